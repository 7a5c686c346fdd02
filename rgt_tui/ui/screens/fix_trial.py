"""A dialog that tries a fix on a box: what only looks runs at once, a removal is previewed first."""

from __future__ import annotations

from typing import ClassVar

import msgspec
from textual import events
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.widgets import Input, Static

from rgt_tui.fleet import (
    DiskFigures,
    FixRefused,
    FixTrials,
    FleetSource,
    NotOffered,
    RemovalPreview,
)
from rgt_tui.health import CopiedOnly, LookTrial, RemovalTrial, Trial, plan_trial
from rgt_tui.language import translate
from rgt_tui.model import BoxState, FixStep, how_many, pct, size
from rgt_tui.profiles import compute_percent
from rgt_tui.ui.clipboard import ClipboardText
from rgt_tui.ui.commands import Command, build_bindings, key_for
from rgt_tui.ui.notation import compact_time, current_glyphs, make_displayable
from rgt_tui.ui.screens.dialogs import TextDialog
from rgt_tui.ui.widgets.lines import FittedLines
from rgt_tui.ui.widgets.spans import (
    EMPTY,
    Line,
    Tone,
    dim_span,
    fit_text,
    label_lines,
    make_line,
)
from rgt_tui.ui.widgets.why import command_lines

FIX_TRIAL: tuple[Command, ...] = (
    Command("fix.close", ("escape",), "close",
            "Close the dialog; what has not run yet does not run.", "close"),
    Command("fix.copy", ("y",), "copy", "Copy the steps with what they printed.", "copy"),
    Command("fix.page-down", ("pagedown", "ctrl+d"), "page down", "Scroll down.", "scroll(1)"),
    Command("fix.page-up", ("pageup", "ctrl+u"), "page up", "Scroll up.", "scroll(-1)"),
)  # fmt: skip


class StepTrial(msgspec.Struct):
    """One step, and what came out of it."""

    step: FixStep
    trial: Trial | None
    """None = the step has no command."""
    output: list[str] = []
    result: str = ""
    """How it ended; empty = it has not run yet."""
    tone: Tone = Tone.DIM
    preview: RemovalPreview | None = None

    @property
    def awaits_word(self) -> bool:
        """Whether a person may now type the last word of its path."""
        found = self.preview
        return found is not None and not found.refused and not found.removed

    def make_lines(self, number: int, width: int, now: float) -> list[Line]:
        """Return the step with what came out of it."""
        out = label_lines(
            translate("fix {number}", number=number),
            translate(self.step.text),
            width,
            Tone.STRONG,
            most=12,
        )
        if self.step.command is not None:
            out += command_lines(self.step.command, width)
        most_rows = 10
        inner = max(8, width - 9)
        for row in self.output[:most_rows]:
            out.append(make_line(" " * 9, fit_text(make_displayable(row), inner)))
        if len(self.output) > most_rows:
            more = translate(
                "{output} more lines; {key} copies them",
                output=len(self.output) - most_rows,
                key=key_for("fix.copy"),
            )
            out.append(make_line(" " * 9, dim_span(f"{current_glyphs().more} {more}")))
        if self.preview is not None:
            out += preview_lines(self.preview, width, now)
        if self.result:
            out += label_lines("", self.result, width, self.tone, most=6)
        return out


def preview_lines(found: RemovalPreview, width: int, now: float) -> list[Line]:
    """Return what a removal would remove, who uses it, what it contains, and the disk afterwards."""
    amount = translate(
        "{files} in {folders}, {bytes}",
        files=how_many(found.files, "file"),
        folders=how_many(found.folders, "folder"),
        bytes=size(found.bytes),
    )
    label = translate("removed" if found.removed else "removes")
    about = [(label, [amount], Tone.TEXT)]
    if found.files or found.folders:
        # Ages by the clock of the box, which may differ from this one's.
        first, last = compact_time(found.at - found.oldest), compact_time(found.at - found.newest)
        about.append(
            (
                translate("changed"),
                [translate("first {first} ago, last {last} ago", first=first, last=last)],
                Tone.TEXT,
            )
        )
        owners = [f"{name} {count:,}" for name, count in found.owners.items()]
        about.append((translate("owner"), [", ".join(owners[:4])], Tone.TEXT))
    about.append((translate("in use"), *_describe_handles(found)))
    about.append((translate("contains"), *_describe_content(found)))
    after = found.room_after()
    if found.disk is not None and after is not None and not found.removed:
        about.append((translate("disk then"), [_describe_room(found.disk, after)], Tone.STRONG))
    out: list[Line] = []
    for label, texts, tone in about:
        for text in texts:
            name, *rest = label_lines(label, text, max(12, width - 9), tone, pad=11, most=3)
            out += [make_line(" " * 9, *row) for row in (name, *rest)]
            label = ""
    return out


def _describe_handles(found: RemovalPreview) -> tuple[list[str], Tone]:
    said = []
    for one in found.open[:4]:
        uses = []
        if one.writes:
            uses.append(translate("writes {writes} there", writes=how_many(one.writes, "file")))
        if one.handles > one.writes:
            uses.append(translate("has {handles} open", handles=how_many(one.handles, "file")))
        if one.works:
            uses.append(translate("works there"))
        if one.mapped:
            uses.append(translate("has mapped a file"))
        said.append(f"pid {one.pid} {one.name} {', '.join(uses)}")
    if found.unread:
        said.append(
            translate(
                "unknown for {unread} of other users",
                unread=how_many(found.unread, "process", "processes"),
            )
        )
    if found.open:
        return said, Tone.WARN
    return said or [translate("by no process now")], Tone.TEXT


def _describe_content(found: RemovalPreview) -> tuple[list[str], Tone]:
    if found.checkpoints:
        return [
            translate(
                "{checkpoints} that may be checkpoints",
                checkpoints=how_many(found.checkpoints, "file"),
            )
        ], Tone.TROUBLE
    if found.logs:
        return [
            translate("{logs}; no checkpoint, no result of a run", logs=how_many(found.logs, "log"))
        ], Tone.WARN
    return [translate("no checkpoint, no log, no result of a run")], Tone.TEXT


def _describe_room(before: DiskFigures, after: DiskFigures) -> str:
    arrow = current_glyphs().arrow
    said = []
    if before.inodes_total:
        old = pct(compute_percent(before.inodes_used, before.inodes_total))
        new = pct(compute_percent(after.inodes_used, before.inodes_total))
        said.append(translate("inodes {change}", change=f"{old} {arrow} {new}"))
    old = pct(compute_percent(before.bytes_used, before.bytes_total))
    new = pct(compute_percent(after.bytes_used, before.bytes_total))
    said.append(translate("bytes {change}", change=f"{old} {arrow} {new}"))
    return ", ".join(said)


class FixTrialScreen(TextDialog):
    """Tries the steps of a fix on a box.

    Args:
        fleet: Runs the steps.
        box: Its state; only what it says now decides what may run.
        title: The problem, in a few words.
        never: What never to do about it; None = nothing.
        steps: The steps, in order.
    """

    PLACE = "try the fix"
    KEYS = FIX_TRIAL
    BINDINGS: ClassVar[list[BindingType]] = build_bindings(FIX_TRIAL)
    # Empty: the keys scroll until there is something to type.
    AUTO_FOCUS: ClassVar[str | None] = ""
    DEFAULT_CSS = """
    FixTrialScreen { align: center middle; }
    FixTrialScreen > Vertical {
        width: 122; max-width: 100%; height: auto; max-height: 100%; padding: 0 1; background: $background;
        border: round $accent; border-title-color: $foreground; border-subtitle-align: right;
    }
    FixTrialScreen.ascii > Vertical { border: ascii $accent; }
    FixTrialScreen VerticalScroll { height: auto; scrollbar-size-vertical: 1; }
    FixTrialScreen Static { height: auto; color: $warning; }
    FixTrialScreen Input, FixTrialScreen Input:focus {
        height: 1; border: none; padding: 0; background: $rgt-raised; color: $foreground;
    }
    """

    def __init__(
        self,
        fleet: FleetSource,
        box: BoxState,
        title: str,
        never: str | None,
        steps: tuple[FixStep, ...],
    ) -> None:
        super().__init__()
        self._fleet, self._box, self._title, self._never = fleet, box, title, never
        self.trials = [_make_trial(box, step) for step in steps]
        """The steps and what came out of them."""

    @classmethod
    def commands(cls) -> tuple[Command, ...]:
        """The keys of the dialog."""
        return FIX_TRIAL

    def compose(self) -> ComposeResult:
        """Lay out the steps, and below them the entry for the word that removes."""
        with Vertical() as page:
            name = self._box.spec.name
            title = translate("try the fix on {name}: {title}", name=name, title=self._title)
            page.border_title = Content(make_displayable(title))
            page.border_subtitle = Content(
                translate(
                    "{key} copies · {key_2} closes",
                    key=key_for("fix.copy"),
                    key_2=key_for("fix.close"),
                )
            )
            with VerticalScroll():
                yield FittedLines(self._make_lines)
            yield Static("")
            yield Input("", compact=True)

    def on_mount(self) -> None:
        """Run what only looks, and preview the removals."""
        self.set_class(not current_glyphs().braille, "ascii")
        self._show_progress()
        self.run_worker(self._run_trials(), exit_on_error=False)

    def on_resize(self, event: events.Resize) -> None:
        """Divide the room for the new size."""
        self._show_progress()

    def _make_lines(self, width: int) -> list[Line]:
        out: list[Line] = []
        if self._never:
            out = [*label_lines("never", translate(self._never), width, Tone.WARN, most=6), EMPTY]
        for number, one in enumerate(self.trials, 1):
            out += one.make_lines(number, width, self._fleet.now())
        return out

    @property
    def awaited_step(self) -> StepTrial | None:
        """The step whose path may be removed next."""
        return next((one for one in self.trials if one.awaits_word), None)

    def _show_progress(self) -> None:
        if not self.is_mounted:
            return
        # The frame, the entry and two lines of what to type stay visible.
        self.query_one(VerticalScroll).styles.max_height = max(3, self.app.size.height - 5)
        self.query_one(FittedLines).update()
        entry, label, step = self.query_one(Input), self.query_one(Static), self.awaited_step
        entry.display = label.display = step is not None
        if step is not None and isinstance(step.trial, RemovalTrial):
            word = make_displayable(step.trial.last_word)
            path = make_displayable(step.trial.path)
            label.update(
                Content(translate("type {word} and enter to remove {path}", word=word, path=path))
            )
            if self.focused is None:
                entry.focus()
            # What the removal would change is at the end, and must be in sight together with the
            # prompt.
            self.call_after_refresh(self.query_one(VerticalScroll).scroll_end, animate=False)

    async def _run_trials(self) -> None:
        try:
            runner = self._fleet.fix_trials(self._box.spec.name)
        except NotOffered:
            self._finish_all(translate("only a connected box can be asked"))
            return
        for one in self.trials:
            if one.trial is not None and not isinstance(one.trial, CopiedOnly):
                one.result = "running"
                self._show_progress()
                await self._run_trial(runner, one)
            self._show_progress()

    def _finish_all(self, text: str) -> None:
        for one in self.trials:
            if one.step.command is not None:
                one.result, one.tone = text, Tone.WARN
        self._show_progress()

    async def _run_trial(self, runner: FixTrials, one: StepTrial) -> None:
        # After a refusal the step is tried again: nothing of the first try may stay.
        one.output, one.preview = [], None
        try:
            if isinstance(one.trial, LookTrial):
                status = await runner.run_look(one.trial, one.output.append)
                one.result, one.tone = "", Tone.DIM
                if status:
                    one.result, one.tone = (
                        translate("exit status {status}", status=status),
                        Tone.WARN,
                    )
                elif not one.output:
                    one.result = translate("it printed nothing")
            elif isinstance(one.trial, RemovalTrial):
                one.preview = await runner.preview_removal(one.trial)
                one.result = translate("nothing is removed until you type its last word")
                if one.preview.refused:
                    one.result = translate(
                        "not removed from here: {refused}", refused="; ".join(one.preview.refused)
                    )
                    one.tone = Tone.WARN
        except Exception as error:
            one.result, one.tone = translate("not done: {error}", error=error), Tone.WARN

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Remove the previewed path, if its last word was typed."""
        event.stop()
        step, typed = self.awaited_step, event.value.strip()
        event.input.clear()
        if step is None or not isinstance(step.trial, RemovalTrial):
            return
        if typed != step.trial.last_word:
            step.result, step.tone = (
                translate(
                    "nothing was removed: that is not {last_word}", last_word=step.trial.last_word
                ),
                Tone.WARN,
            )
            self._show_progress()
            return
        # A group of its own: the steps that still run are not cancelled.
        self.run_worker(
            self._remove_files(step, typed), group="removal", exclusive=True, exit_on_error=False
        )

    async def _remove_files(self, step: StepTrial, typed: str) -> None:
        found = step.preview
        assert found is not None
        try:
            runner = self._fleet.fix_trials(self._box.spec.name)
        except NotOffered:
            error = translate("only a connected box can be asked")
            step.result = translate("nothing was removed: {error}", error=error)
            self._show_progress()
            return
        step.result, step.tone = "removing", Tone.WARN
        self._show_progress()
        try:
            done = await runner.remove_previewed(found, typed)
        except FixRefused as error:
            # The box has refused, usually because something has changed: preview it as it is now.
            await self._run_trial(runner, step)
            step.result, step.tone = (
                translate("nothing was removed: {error}", error=error),
                Tone.WARN,
            )
        except Exception as error:
            # The outcome is unknown, so nothing more may be removed by this preview.
            step.preview = None
            step.result, step.tone = (
                translate("not known to be removed: {error}", error=error),
                Tone.TROUBLE,
            )
        else:
            step.preview = done
            step.result, step.tone = (
                translate("not all of it: {failed}", failed="; ".join(done.failed[:2])),
                Tone.TROUBLE,
            )
            if done.removed:
                room = ""
                if found.disk is not None and done.disk is not None:
                    room = f"; {_describe_room(found.disk, done.disk)}"
                step.result = f"{current_glyphs().check} {translate('removed')}{room}"
                step.tone = Tone.PROVED
        self._show_progress()

    def _copied_text(self) -> str:
        rows = []
        for one in self.trials:
            rows += [
                f"# {translate(one.step.text)}",
                *filter(None, [one.step.command]),
                *one.output,
            ]
            rows += filter(None, [one.result])
        return "\n".join(rows)

    def to_copy(self) -> ClipboardText:
        """Return all steps with their output."""
        return ClipboardText(what=translate("the steps and their output"), text=self._copied_text())


def _make_trial(box: BoxState, step: FixStep) -> StepTrial:
    if step.command is None:
        return StepTrial(step, None)
    trial = plan_trial(box, step.command)
    # A command that looks different from the one that would run must not be tried.
    if make_displayable(step.command) != step.command:
        trial = CopiedOnly(translate("its path cannot be displayed here"))
    if isinstance(trial, CopiedOnly):
        return StepTrial(step, trial, result=trial.reason)
    return StepTrial(step, trial)
