"""The tear-down dialog: reviews a billing action and sends it only once the box's name is typed."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import ClassVar

import msgspec
from rich.cells import cell_len
from textual import events
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.content import Content
from textual.geometry import Region
from textual.screen import ModalScreen
from textual.widgets import Input
from textual.worker import Worker

from rgt_tui.fleet import FleetSource, GateClosed, NoControlPlane
from rgt_tui.gate import GENERIC, Receipt, receipt_markdown, receipt_rows
from rgt_tui.language import translate
from rgt_tui.model import BillingAction, BillingVerb, FleetState, Meter, MeterKind, RiskLevel
from rgt_tui.profiles import (
    action_for,
    describe_check_months,
    describe_missing_verb,
    list_kept_charges,
    list_old_facts,
)
from rgt_tui.ui.box_pulls import BoxPulls
from rgt_tui.ui.clipboard import ClipboardText, copy_to_clipboard
from rgt_tui.ui.commands import APP, Command, build_bindings, key_for, keys_for
from rgt_tui.ui.enduring import FaultTolerant
from rgt_tui.ui.mouse import MouseSelection
from rgt_tui.ui.notation import current_glyphs, make_displayable
from rgt_tui.ui.screens.receipt import END_CHARGES, receipt_lines, review_destroying
from rgt_tui.ui.widgets.fixed_lines import KeyLine
from rgt_tui.ui.widgets.lines import FittedLines, RowChosen
from rgt_tui.ui.widgets.panes import out_of_sight
from rgt_tui.ui.widgets.spans import Line, Span, dim_span, make_line
from rgt_tui.ui.widgets.teardown.confirm import CHOOSE, PRESS, DialogButton, NameField, VerbChoice
from rgt_tui.ui.widgets.teardown.confirm_state import (
    GUARD_SECONDS,
    ConfirmState,
    DialogStage,
    ItemChoice,
    level_of,
)
from rgt_tui.ui.widgets.teardown.confirm_view import (
    NAMES,
    DialogSetting,
    button_text,
    call_lines,
    console_steps,
    dialog_status,
    dialog_title,
    facts_lines,
    progress_line,
    promise_text,
    typing_prompt,
    verb_with_native,
)
from rgt_tui.ui.widgets.teardown.evidence_list import (
    EVIDENCE,
    WALK,
    EvidenceList,
    EvidenceRow,
    list_pullable,
    rows_of,
)
from rgt_tui.ui.widgets.teardown.pull_line import price_lines, pull_line

STYLE = """
TeardownScreen { align: center middle; }
TeardownScreen #dialog {
    width: 100%; max-width: 122; height: auto; max-height: 100%; padding: 0 1;
    background: $background; border: round $rgt-faint;
    border-title-color: $foreground; border-title-style: bold;
    border-subtitle-color: $rgt-faint; border-subtitle-align: right;
}
TeardownScreen.ascii #dialog { border: ascii $rgt-faint; }
TeardownScreen #verbs { margin: 0 0 1 0; }
TeardownScreen #scroll { height: auto; scrollbar-size-vertical: 1; }
TeardownScreen #more, TeardownScreen #asked, TeardownScreen #keys { height: 1; }
TeardownScreen #answer { height: 1; }
TeardownScreen #typing { width: auto; height: 1; }
TeardownScreen #buttons { width: 1fr; height: 1; align-horizontal: left; }
TeardownScreen.stacked #answer { layout: vertical; height: 2; }
TeardownScreen.stacked #typing { width: 100%; }
TeardownScreen.stacked #buttons { width: 100%; align-horizontal: right; }
TeardownScreen #prompt { width: 15; }
TeardownScreen #name {
    width: 36; height: 1; background: $rgt-raised; color: $foreground;
    border: none; padding: 0 1;
}
TeardownScreen #name:focus { background: $rgt-raised; background-tint: $accent 20%; }
TeardownScreen DialogButton { width: auto; height: 1; margin: 0 0 0 2; }
TeardownScreen DialogButton:disabled:can-focus { opacity: 100%; }
TeardownScreen DialogButton:hover > .tone--text { color: $accent; }
TeardownScreen #status, TeardownScreen #course { height: 1; }
TeardownScreen #status { padding: 0; }
"""


REVIEW_SECONDS = 2.0
"""Seconds between two reviews while the dialog is open."""

TOO_SOON = "the review has just changed: read it, then press again"
"""Shown when a key arrives too soon after a change. Keys that arrive before the first review are
dropped silently: they were meant for the screen below."""

COPY = Command("teardown.copy", ("y",), "copy",
               "Copy the selected row; without a control plane, what to click.", "copy")  # fmt: skip
TEARDOWN: tuple[Command, ...] = (
    Command("teardown.close", ("escape",), "cancel",
            "Close the dialog. A request already sent continues.", "close"),
    Command("teardown.next", ("tab",), "next", "Go to the next field or button.", "app.focus_next"),
    Command("teardown.previous", ("shift+tab",), "previous",
            "Go to the previous field or button.", "app.focus_previous"),
    Command("teardown.scroll-down", ("pagedown",), "scroll down", "See the rest of the review.", "scroll(1)"),
    Command("teardown.scroll-up", ("pageup",), "scroll up", "See the start of the review.", "scroll(-1)"),
    COPY,
    *(command for command in APP if command.id == "app.help"),
)  # fmt: skip
"""None of these keys sends anything; only the button does."""
CLOSE = msgspec.structs.replace(TEARDOWN[0], title="close")
"""The same key once there is nothing left to cancel."""


class TeardownScreen(FaultTolerant, MouseSelection, ModalScreen[None]):
    """Shows what stopping a box's billing costs and loses.

    Sends it once the box's name is typed.
    """

    PLACE: ClassVar[str] = "tear down"
    _OWN_KEYS: ClassVar[tuple[Command, ...]] = (*TEARDOWN, END_CHARGES, *WALK)
    KEYS: ClassVar[tuple[Command, ...]] = (*_OWN_KEYS, *EVIDENCE, *PRESS, *CHOOSE)
    BINDINGS: ClassVar[list[BindingType]] = list(build_bindings(_OWN_KEYS))
    # Enter right after opening must do nothing.
    AUTO_FOCUS = "#cancel"
    DEFAULT_CSS = STYLE

    def __init__(self, fleet: FleetSource, box_name: str) -> None:
        super().__init__()
        self._fleet = fleet
        self.box_name = box_name
        self._profile = fleet.profile_of(box_name)
        # A platform without any verb still has a review, and steps to do by hand.
        offered = tuple(
            verb for verb in BillingVerb if self._find_billing_action(verb) is not None
        ) or (BillingVerb.DESTROY,)
        box, verb = fleet.state.find_box(box_name), offered[0]
        # Of a parked box only the rest can be ended.
        is_parked = box is not None and box.meter.kind is MeterKind.STORAGE_ONLY
        if is_parked and BillingVerb.DESTROY in offered:
            verb = BillingVerb.DESTROY
        self.state = ConfirmState(box_name, verb, fleet.now(), offered)
        self._opened_at = fleet.now()
        self._reviewing: Worker[None] | None = None
        self._asks = False
        """Whether a pull of this box waits for a yes to its price."""
        self.receipt: Receipt | None = None
        """Shown instead of the review once the meter is off."""

    @classmethod
    def commands(cls) -> tuple[Command, ...]:
        """All commands that work here."""
        return cls.KEYS

    def compose(self) -> ComposeResult:
        """Lay out the dialog: the review scrolls, the input and the buttons do not."""
        with Vertical(id="dialog"):
            if len(self.state.offered) > 1:
                yield VerbChoice(
                    {verb: self._verb_label(verb) for verb in self.state.offered}, self.state.verb
                )
            with VerticalScroll(id="scroll", can_focus=False):
                yield FittedLines(self._review_lines, id="facts")
                yield EvidenceList(self._list_rows)
                yield FittedLines(lambda width: call_lines(self.state, width), id="sends")
            yield FittedLines(lambda width: [self._hidden_line()], id="more")
            yield FittedLines(self._pull_lines, id="pull")
            yield FittedLines(lambda width: [typing_prompt(self.state, width)], id="asked")
            with Horizontal(id="answer"):
                with Horizontal(id="typing"):
                    yield FittedLines(lambda width: [(dim_span(translate("here")),)], id="prompt")
                    yield NameField(self.accepts_keys, lambda: self.state.wanted_text)
                with Horizontal(id="buttons"):
                    yield DialogButton(translate("Cancel"), id="cancel")
                    yield DialogButton("", id="ok", disabled=True)
            yield FittedLines(
                lambda width: [dialog_status(self.state, self._make_setting(), width)], id="status"
            )
            yield FittedLines(lambda width: [progress_line(self.state, width)], id="course")
            yield KeyLine(())

    def _review_lines(self, width: int) -> list[Line]:
        """Return the review; after the end, the receipt."""
        if self.receipt is not None:
            return receipt_lines(receipt_rows(self.receipt), width)
        return facts_lines(self.state, self._make_setting(), width)

    def _key_commands(self) -> tuple[Command, ...]:
        """Return the commands of the key line: those of the selected row, or of the dialog."""
        closes = TEARDOWN[0]
        if self.state.stage is not DialogStage.REVIEW or self.state.by_hand:
            closes = CLOSE
        if self.query_one(EvidenceList).has_focus:
            # The most important first: the key line leaves out the last ones.
            first = (*EVIDENCE[:4], COPY, *TEARDOWN[1:2], closes)
        elif self.receipt is not None and self.receipt.verb is BillingVerb.PARK:
            first = (END_CHARGES, COPY, *TEARDOWN[3:4], closes)
        elif self.receipt is not None:
            first = (COPY, *TEARDOWN[3:4], closes)
        else:
            first = (*WALK[:1], *TEARDOWN[1:2], *TEARDOWN[3:4], closes)
        # In this order, no matter their rank on other key lines.
        shown = [msgspec.structs.replace(one, footer=rank) for rank, one in enumerate(first, 1)]
        return (*shown, TEARDOWN[-1])

    def on_descendant_focus(self) -> None:
        """Show the keys of the focused part, and the way from it to the button."""
        self.query_one(KeyLine).show_commands(self._key_commands())
        self.query_one("#status", FittedLines).update()

    def action_act(self, what: str) -> None:
        """Act on the selected row, after a click on the key line."""
        self.query_one(EvidenceList).action_act(what)

    @property
    def now(self) -> float:
        """The client clock."""
        return self._fleet.now()

    @property
    def worker_group(self) -> str:
        """The group of workers that follow a request for this box.

        They belong to the app, not to the dialog.
        """
        return f"teardown:{self.box_name}"

    def accepts_keys(self) -> bool:
        """Return whether input counts yet.

        Input right after a change is dropped, with a message.
        """
        armed = self.state.accepts_input(self.now)
        too_soon = translate(TOO_SOON)
        told = "" if armed else too_soon
        # Only this message is set and cleared here; any other one stays.
        if (
            self.state.review is not None
            and told != self.state.told
            and too_soon in (told, self.state.told)
        ):
            self._apply_state(replace(self.state, told=told))
        return armed

    def on_mount(self) -> None:
        """Request the first review now, and another every `REVIEW_SECONDS`."""
        self.set_class(not current_glyphs().braille, "ascii")
        following = any(
            # A request of an earlier dialog goes on when that is closed.
            w.group == self.worker_group and not w.is_finished
            for w in self.app.workers
        )
        self._apply_state(
            replace(self.state, elsewhere=following, pulling=bool(self._list_pulled_paths()))
        )
        # Both scrolling and a longer review change how many lines are hidden.
        scroll = self.query_one("#scroll")
        for moved in ("scroll_y", "virtual_size"):
            self.watch(scroll, moved, self._count_hidden, init=False)
        # Evidence ages while the person reads: the gate decides by the newest.
        self.set_interval(REVIEW_SECONDS, self.start_review)
        self.start_review()

    def _list_rows(self) -> tuple[EvidenceRow, ...]:
        """Return the current rows of the evidence."""
        review = self.state.review
        if review is None:
            return ()
        return rows_of(review, self.state.choice, self.now, frozenset(self._list_pulled_paths()))

    @property
    def pulls(self) -> BoxPulls:
        """The running pulls of the app."""
        found: BoxPulls = getattr(self.app, "pulls")  # noqa: B009  (whose class must not be imported here)
        return found

    def _list_pulled_paths(self) -> tuple[str, ...]:
        """Return the directories that are being pulled."""
        pull = self.pulls.find_pull(self.box_name)
        if pull is not None and pull.is_running:
            return pull.paths
        return ()

    def _pull_lines(self, width: int) -> list[Line]:
        pull = self.pulls.find_pull(self.box_name)
        if pull is None:
            return []
        return [*price_lines(pull, width), pull_line(pull, width)]

    def pull_moved(self) -> None:
        """Redraw the progress of a pull.

        When one ends, request a new review, since its result counts.
        """
        ended = self.state.pulling and not self._list_pulled_paths()
        pull = self.pulls.find_pull(self.box_name)
        asks = pull is not None and pull.asks is not None
        # The question has just appeared: a key pressed now was meant for something else.
        if asks and not self._asks:
            guard = self.now
        else:
            guard = self.state.guard_from
        self._asks = asks
        self._apply_state(
            replace(self.state, pulling=bool(self._list_pulled_paths()), guard_from=guard)
        )
        if ended and self.is_attached:
            self._restart_review()

    def _hidden_line(self) -> Line:
        """Return the line that counts the lines of the review out of sight."""
        scroll = self.query_one("#scroll", VerticalScroll)
        above = round(scroll.scroll_y)
        hidden = out_of_sight(above, round(scroll.max_scroll_y) - above)
        return make_line(Span(" " * NAMES), hidden)

    def _count_hidden(self) -> None:
        self.query_one("#more", FittedLines).redraw()

    def on_resize(self, event: events.Resize) -> None:
        """Rearrange the dialog for the new size."""
        self._arrange_dialog(event.size.width, event.size.height)

    def _arrange_dialog(self, width: int, height: int) -> None:
        """Stack the buttons below the field if one line is too short; limit the review's height."""
        # Both widths as in `STYLE`.
        dialog_width = 122
        inner = min(width, dialog_width) - 4
        field_width = 36
        field = max(field_width, len(self.state.wanted_text) + 3)
        buttons = sum(cell_len(b.text) + 6 for b in self.query(DialogButton))
        is_over = self.state.stage is DialogStage.OFF
        stacked = inner < NAMES + field + buttons and not is_over
        self.set_class(stacked, "stacked")
        if stacked:
            self.query_one(NameField).styles.width = "1fr"
        else:
            self.query_one(NameField).styles.width = field
        pull = len(self._pull_lines(inner))
        # Before anything is sent, a small terminal has no line for the steps of a request.
        least_height = 30
        course = height >= least_height or self.state.stage is not DialogStage.REVIEW
        self.query_one("#course").display = course and not self.state.by_hand
        # Lines of the dialog around the review.
        has_choice = len(self.state.offered) > 1 and not is_over
        fixed = 7 + course + stacked + pull + 2 * has_choice - is_over
        self.query_one("#scroll").styles.max_height = max(3, height - fixed)

    def receive_state(self, state: FleetState, now: float) -> None:
        """Redraw, so that the ages advance."""
        self._apply_state(self.state)

    def _find_billing_action(self, verb: BillingVerb) -> BillingAction | None:
        """Return the platform's description of a verb, None if it has none."""
        return action_for(self._profile, verb)

    def _verb_label(self, verb: BillingVerb) -> str:
        """Return the verb's name, together with the platform's own label for it."""
        action = self._find_billing_action(verb)
        return verb_with_native(verb, action.native_label if action is not None else "")

    def _make_setting(self) -> DialogSetting:
        box = self._fleet.state.find_box(self.box_name)
        if box is not None:
            meter = box.meter
        else:
            meter = Meter()
        console = self._profile.home_url or ""
        verb = self.state.verb
        action = self._find_billing_action(verb)
        keeps = list_kept_charges(self._profile, verb)
        lacks = describe_missing_verb(self._profile, verb)
        owner = ""
        if self._profile.id == GENERIC:
            owner = translate("your provider")
        if self.query_one("#ok").has_focus:
            to_button = translate("{key} presses it", key=key_for("teardown.press"))
        elif self.query_one(NameField).has_focus:
            to_button = translate("{key} goes there", key=key_for("teardown.press"))
        else:
            to_button = translate("{key} goes there", key=key_for("teardown.next"))
        return DialogSetting(
            meter,
            action,
            self._profile.name,
            self.now,
            console,
            keeps,
            owner,
            to_button,
            lacks,
            describe_check_months(self._profile, action),
            list_old_facts(self._profile, action, self.now),
        )

    def _apply_state(self, state: ConfirmState) -> None:
        """Store and show a state. Does nothing to the screen after the dialog was closed."""
        cleared = self.state.typed and not state.typed
        moved = self.state.stage is not state.stage
        self.state = state
        if not self.is_mounted or not self.is_attached:
            return
        setting = self._make_setting()
        dialog = self.query_one("#dialog", Vertical)
        dialog.border_title = Content(make_displayable(dialog_title(state, setting)))
        dialog.border_subtitle = Content(make_displayable(promise_text(state)))
        for part in self.query(FittedLines):
            part.update()
        field = self.query_one(NameField)
        field.disabled = state.stage is not DialogStage.REVIEW or state.by_hand
        is_over = state.stage is DialogStage.OFF
        for hidden in ("#typing", "#asked"):
            self.query_one(hidden).display = not (state.by_hand or is_over)
        for choice in self.query(VerbChoice):
            choice.chosen = state.verb
            choice.display = not is_over
            choice.redraw()
        self.query_one("#ok").display = not (state.by_hand or is_over)
        for shown in (self.query_one(EvidenceList), self.query_one("#sends")):
            shown.display = self.receipt is None
        # The state drops a name that was typed for another review; the field follows.
        if cleared:
            field.value = ""
        ok, cancel = self.query_one("#ok", DialogButton), self.query_one("#cancel", DialogButton)
        after = state.stage is DialogStage.YOURS
        may = after or state.may_confirm(setting.now)
        lost_focus = ok.has_focus and not may
        # Without a review the worst is assumed.
        level = RiskLevel.IRREVERSIBLE
        if after:
            level = RiskLevel.LOCAL
        elif state.review is not None:
            level = level_of(state.review)
        ok.show_button(button_text(state, setting), disabled=not may, level=level)
        if state.stage is DialogStage.REVIEW and not state.by_hand:
            closes = translate("Cancel")
        else:
            closes = translate("Close")
        cancel.show_button(closes, disabled=False)
        self._arrange_dialog(*self.size)
        # The focus must not stay on a button that cannot be pressed, and Cancel is harmless.
        if lost_focus or (field.disabled and not after) or (after and moved):
            cancel.focus()
        if moved and state.stage is DialogStage.OFF:
            self.run_worker(self._read_receipt(), exit_on_error=False)
        self.query_one(KeyLine).show_commands(self._key_commands())

    async def _read_receipt(self) -> None:
        """Show the receipt from its start instead of the review."""
        self.receipt = await self._fleet.find_receipt(self.box_name)
        self._apply_state(self.state)
        self.query_one("#scroll").scroll_home(animate=False)

    def start_review(self) -> None:
        """Start a review, unless one is running."""
        if self.state.stage is not DialogStage.REVIEW:
            return
        # A review may take longer than the interval between two of them.
        if self._reviewing is None or self._reviewing.is_finished:
            self._reviewing = self.run_worker(
                self._run_review(self.state.verb, self.state.choice),
                group="review",
                exclusive=True,
                exit_on_error=False,
                description=f"review {self.state.verb} of {self.box_name}",
            )

    def _restart_review(self) -> None:
        """Cancel the running review and start one for the current choice."""
        self._cancel_review()
        self.start_review()

    async def _run_review(self, verb: BillingVerb, choice: ItemChoice) -> None:
        try:
            review = await self._fleet.review_action(
                self.box_name,
                verb,
                forfeits=choice.forfeit_keys,
                ignored=choice.ignored_keys,
                unprotect=choice.unprotect,
            )
        except Exception as error:  # any failure has to show up as a missing review
            by_hand = isinstance(error, NoControlPlane)
            self._apply_state(
                replace(self.state.review_failed(verb, _error_reason(error)), by_hand=by_hand)
            )
            return
        self._apply_state(replace(self.state.apply_review(review, self.now, choice), by_hand=False))
        # Something was given up while the review ran, so it was not reviewed for that.
        if self.state.reviewed_for != self.state.choice:
            # Not at once: it cancels the worker that runs this.
            self.call_later(self._restart_review)

    def on_evidence_list_acted(self, event: EvidenceList.Acted) -> None:
        """Handle an action on a row: forfeit it, ignore it, pull it, or agree to a price."""
        event.stop()
        if not self.accepts_keys():
            return
        if event.what == "agree":
            self.pulls.agree_to_cost(self.box_name)
            return
        if event.what in {"pull", "pull-all"}:
            self._toggle_pull(event.key if event.what == "pull" else None)
            return
        if event.what == "forfeit":
            way = ConfirmState.give_up
        else:
            way = ConfirmState.toggle_ignored
        before = self.state.choice
        self._apply_state(way(self.state, event.key, self.now))
        if self.state.choice != before:
            self._restart_review()

    def _toggle_pull(self, key: str | None) -> None:
        """Pull the files of one item, or of all items that block the action.

        Stop such a pull if it runs.
        """
        if key is not None:
            item = self.state.find_item(key)
        else:
            item = None
        paths: tuple[str, ...]
        if item is not None and item.path and not item.ok:
            paths = (item.path,)
        else:
            paths = ()
        if key is None:
            paths = list_pullable(self.state.review)
        going = self._list_pulled_paths()
        told = ""
        # The same key stops what it has started, but not a pull of other rows.
        if going and (key is None or set(paths) <= set(going)):
            self.pulls.stop(self.box_name)
        elif going:
            told = translate(
                "another pull is under way; {key} stops it", key=key_for("teardown.pull-all")
            )
        elif self.state.stage is not DialogStage.REVIEW or not paths:
            told = translate("nothing to pull here")
        else:
            self.pulls.start(self._fleet, self.box_name, paths)
        self._apply_state(replace(self.state, told=told, guard_from=self.now))

    def on_row_chosen(self, event: RowChosen) -> None:
        """Scroll to the selected row after the next layout."""
        event.stop()
        self._count_hidden()
        self.call_after_refresh(self._show_selected)

    def _show_selected(self) -> None:
        rows, scroll = self.query_one(EvidenceList), self.query_one("#scroll", VerticalScroll)
        first, count = rows.selection
        place = rows.virtual_region
        if first <= 1 and rows.has_focus and place.y <= 0:
            top = 0
        else:
            top = place.y + first
        scroll.scroll_to_region(Region(place.x, top, place.width, max(1, count)), animate=False)

    def on_key(self, event: events.Key) -> None:
        """Put a typed letter into the field, unless letters act on the selected row."""
        if self.state.by_hand:
            return
        field = self.query_one(NameField)
        if event.is_printable:
            letter = event.character
        else:
            letter = None
        if (
            letter is None
            # Space chooses the action.
            or letter == " "
            or field.has_focus
            or field.disabled
            or field.asks_for_help(event)
        ):
            return
        if not self.accepts_keys():
            return
        if self.query_one(EvidenceList).has_focus:
            if not any(letter in keys_for(command.id) for command in (*EVIDENCE, COPY)):
                self._apply_state(
                    replace(
                        self.state,
                        told=translate(
                            "letters act on the row here; {key} goes to the field",
                            key=key_for("teardown.next"),
                        ),
                    )
                )
            return
        event.stop()
        field.focus()
        field.insert_text_at_cursor(letter)

    def on_input_changed(self, event: Input.Changed) -> None:
        """Apply the typed name."""
        self._apply_state(self.state.enter_text(event.value))

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Move to the button. The guard restarts, so that a double Enter does not press it."""
        if not self.accepts_keys():
            return
        lifted = self.state.lift_protection(self.now)
        if lifted is not self.state:
            self._apply_state(lifted)
            self._restart_review()
        elif self.state.may_confirm(self.now):
            self._apply_state(replace(self.state, guard_from=self.now))
            self.query_one("#ok").focus()

    def on_verb_choice_chosen(self, event: VerbChoice.Chosen) -> None:
        """Switch between park and destroy."""
        if self.accepts_keys() and event.verb is not self.state.verb:
            self._apply_state(self.state.choose_verb(event.verb, self.now))
            self._restart_review()

    def _cancel_review(self) -> None:
        if self._reviewing is not None:
            self._reviewing.cancel()
            self._reviewing = None

    def on_dialog_button_pressed(self, event: DialogButton.Pressed) -> None:
        """Close the dialog, send the request, or record that a click is done."""
        event.stop()
        if event.button.id == "cancel":
            self._close_dialog()
            return
        if not self.accepts_keys():
            return
        if self.state.stage is DialogStage.YOURS:
            self.run_worker(self._confirm_done(), group="done", exclusive=True, exit_on_error=False)
            return
        # Read before the press changes the state: exactly this was confirmed.
        typed, choice = self.state.typed, self.state.choice
        state, send = self.state.press_confirm(self.now)
        if send:
            # A review that ends now would replace the state of the request.
            self._cancel_review()
            self._apply_state(state)
            # The app owns this worker: it outlives the dialog, and only the end of the app cancels
            # it.
            self.app.run_worker(
                self._send_request(state.verb, typed, choice),
                group=self.worker_group,
                exit_on_error=False,
                description=f"{state.verb} {self.box_name}",
            )

    async def _confirm_done(self) -> None:
        """Confirm a manual stop. It counts only if the box no longer answers."""
        self._apply_state(self.state.not_done((translate("checking whether it still answers"),)))
        try:
            step = await self._fleet.confirm_done(self.box_name)
        except GateClosed as closed:
            self._apply_state(self.state.not_done(closed.reasons))
            return
        self._apply_state(self.state.apply_step(step))

    async def _send_request(self, verb: BillingVerb, typed: str, choice: ItemChoice) -> None:
        steps = self._fleet.execute_action(
            self.box_name,
            verb,
            typed,
            forfeits=choice.forfeit_keys,
            ignored=choice.ignored_keys,
            unprotect=choice.unprotect,
        )
        try:
            async for step in steps:
                self._apply_state(self.state.apply_step(step))
            self._apply_state(self.state.end_request())
        except GateClosed as closed:
            self._apply_state(self.state.gate_closed(closed.reasons, self.now))
            if self.is_attached:
                self.start_review()
        except asyncio.CancelledError:
            self._apply_state(
                self.state.call_failed(translate("rgt stopped following the request"))
            )
            raise
        # whether the request arrived is unknown, and the screen must say so
        except Exception as error:
            self._apply_state(self.state.call_failed(_error_reason(error)))
        if not self.is_attached:
            self._report_after_close()

    def _report_after_close(self) -> None:
        """Report the result of a request on the current screen, because its dialog was closed."""
        name = self.box_name
        if self.state.stage is DialogStage.OFF:
            said = translate("{name}: the provider reports that the meter is off", name=name)
            self._hint_on(self.app.screen, said)
            return
        if self.state.closed:
            text = "; ".join(self.state.closed)
        else:
            text = self.state.trouble or ""
        if self.state.closed:
            known = translate("nothing was sent")
        else:
            known = translate("state unknown, check the console")
        self.app.notify(
            make_displayable(f"{name}: {known}. {text}"), severity="error", timeout=60, markup=False
        )

    @staticmethod
    # Not every screen on top has a hint line.
    def _hint_on(screen: object, text: str) -> None:
        hint = getattr(screen, "hint", None)
        if callable(hint):
            hint(text)

    def action_close(self) -> None:
        """Clear the mouse selection if there is one, else close the dialog."""
        if not self.end_selection():
            self._close_dialog()

    def _close_dialog(self) -> None:
        """Close the dialog. A request that was sent continues, and a hint says so.

        Closing loses nothing, so it also works right after a change; only not while the dialog
        opens.
        """
        if 0 <= self.now - self._opened_at < GUARD_SECONDS and not self.accepts_keys():
            return
        if self.state.in_flight:
            name = self.box_name
            said = translate("{box_name}: the request continues in the background", box_name=name)
            self._hint_on(self.app.screen_stack[-2], said)
        self.dismiss()

    def action_tear_down(self) -> None:
        """Review destroying the box that was parked here, as its receipt offers."""
        review_destroying(self, self.receipt)

    def to_copy(self) -> ClipboardText | None:
        """Return the receipt, the manual steps, or the selected row of the evidence."""
        if self.receipt is not None:
            return ClipboardText(
                what=translate("the receipt of {box_name}", box_name=self.box_name),
                text=receipt_markdown(self.receipt),
            )
        if self.state.by_hand or self.state.stage is DialogStage.YOURS:
            steps = console_steps(self._make_setting())
            told = "\n".join(f"{number}. {step}" for number, step in enumerate(steps, 1))
            if steps:
                return ClipboardText(
                    what=translate("what to click for {box_name}", box_name=self.box_name),
                    text=told,
                )
            return None
        picked = self.query_one(EvidenceList).picked_key
        if picked:
            item = self.state.find_item(picked)
        else:
            item = None
        if item is None:
            return None
        return ClipboardText(
            what=translate("the evidence {key}", key=item.key),
            text=f"{item.kind}: {item.text}  {item.path}".rstrip(),
        )

    def action_copy(self) -> None:
        """Copy the selection, and confirm it in the dialog."""
        copied = self.find_selection() or self.to_copy()
        self.clear_selection()
        if copied is None:
            self.hint(translate("nothing to copy here"))
        else:
            self.hint(copy_to_clipboard(self.app, copied))

    def hint(self, said: str) -> None:
        """Show a message in the dialog's status line."""
        if self.state.by_hand:
            self._hint_on(self.app.screen_stack[-2], said)
        self._apply_state(replace(self.state, told=said))

    def action_walk(self, count: int) -> None:
        """Focus the evidence list, which then handles these keys itself."""
        rows = self.query_one(EvidenceList)
        if self.accepts_keys() and rows.picked_key:
            rows.focus()

    def action_scroll(self, pages: int) -> None:
        """Scroll the review by pages."""
        part = self.query_one("#scroll", VerticalScroll)
        part.scroll_relative(y=pages * max(1, part.size.height - 2), animate=False)


def _error_reason(error: Exception) -> str:
    """Return an error's message, or its type if it has none."""
    return str(error) or type(error).__name__
