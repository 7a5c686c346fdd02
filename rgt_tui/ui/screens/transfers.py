"""The transfers screen: copies by any rgt of this user, and copies by the boxes themselves."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, ClassVar, NamedTuple, cast

from textual import work
from textual.binding import BindingType
from textual.widget import Widget

from rgt_tui.fleet import PullResult
from rgt_tui.language import translate, translate_in
from rgt_tui.model import BoxState, FleetState, how_many, moment
from rgt_tui.ui.box_pulls import KEPT_FILES, BoxPull, BoxPulls
from rgt_tui.ui.clipboard import ClipboardText
from rgt_tui.ui.commands import MOVE, TRANSFERS, Command, build_bindings, key_for
from rgt_tui.ui.notation import (
    clock_or_dash,
    compact_time,
    current_glyphs,
    percent_or_dash,
    size_or_dash,
)
from rgt_tui.ui.screens.base import Dashboard, FleetAwareScreen, MoveKeys
from rgt_tui.ui.widgets.bars import draw_bar
from rgt_tui.ui.widgets.box_context import BoxContext
from rgt_tui.ui.widgets.fixed_lines import Parts
from rgt_tui.ui.widgets.selectable_list import ListRow, SelectableList
from rgt_tui.ui.widgets.spans import (
    EMPTY,
    Line,
    Span,
    Tone,
    dim_span,
    fit_name,
    fit_text,
    join_fitting,
    label_lines,
    make_line,
    name_width,
    spread_line,
    width_of,
)
from rgt_tui.ui.widgets.vitals import is_old

if TYPE_CHECKING:
    from textual import events

    from rgt_tui.fleet import TransferNote

EVERY_SECONDS = 1.0
NO_TRANSFERS = (
    "nothing has been copied yet; rgt pull and rgt push are shown here, too, whoever runs them"
)
NO_PULL_KEPT = "no pull by this rgt; copies by others were not recorded"


class TransferEntry(NamedTuple):
    """One transfer of the list, from any source."""

    key: str
    box: str
    kind: str
    """``pull``, ``push code``, …, ``on box``."""
    pull: BoxPull
    note: TransferNote | None = None
    """Set if another rgt, or an earlier one, made it; None for a pull of this rgt or a program on
    the box."""

    @property
    def is_ours(self) -> bool:
        """Whether this rgt can stop it."""
        return self.note is None and self.kind == "pull"


NEEDED: dict[str, Callable[[TransferEntry], bool]] = {
    "transfers.open": lambda entry: True,
    "transfers.stop": lambda entry: entry.is_ours and entry.pull.is_running,
    "transfers.again": lambda entry: entry.kind == "pull" and not entry.pull.is_running,
    "transfers.agree": lambda entry: entry.pull.asks is not None,
}
"""Conditions on the selected transfer, by command id."""


def from_note(note: TransferNote) -> TransferEntry:
    """Return an entry for a transfer that another rgt recorded."""
    ended = note.ended_at
    if ended is None:
        end = None
    else:
        end = PullResult(whole=bool(note.whole), text=note.text)
    if note.cut_off:
        end = PullResult(
            whole=False, text=translate("cut off: its rgt was killed, or the machine stopped")
        )
        # Its end was not recorded: then it reported last.
        ended = note.told_at
    pull = BoxPull(
        note.paths, note.look, note.plan, end=end, stopped=note.was_stopped, cut_off=note.cut_off,
        began_at=note.began_at, ended_at=ended,
    )  # fmt: skip
    # A NUL cannot occur in a name, so that keys of different sources always differ.
    return TransferEntry(f"note\0{note.name}", note.box, note.kind, pull, note)


def on_box(box: BoxState, now: float) -> list[TransferEntry]:
    """Return the copies running on a box, and its finished copies to durable storage."""
    name, found = box.spec.name, []
    old = is_old(box, now)
    rest = translate("its progress is unknown")
    if old and box.sample_at is not None:
        rest = translate(
            "as of the last contact with the box, {now} ago", now=compact_time(now - box.sample_at)
        )
    for program in (box.sample.transfers or ()) if box.sample is not None else ():
        plan = translate(
            "{name}, process {pid} there; {rest}", name=program.name, pid=program.pid, rest=rest
        )
        found.append(
            TransferEntry(
                f"box\0{name}\0{program.pid}",
                name,
                "on box",
                BoxPull((), plan=plan, unseen=old),
            )
        )
    for queue in box.queues:
        for cell in queue.cells:
            if cell.durable not in {"verified", "failed"}:
                # "pending" also covers cells that wait or run: the runner does not report when it
                # copies
                continue
            whole, to = (
                cell.durable == "verified",
                cell.durable_path or translate("durable storage"),
            )
            text = translate("the result of {name} is NOT on {to}", name=cell.name, to=to)
            if whole:
                text = translate(
                    "the result of {name} was copied to {to}, read back and compared",
                    name=cell.name,
                    to=to,
                )
            end = PullResult(whole=whole, text=text)
            pull = BoxPull((), end=end, ended_at=cell.ended or queue.at)
            found.append(
                TransferEntry(f"cell\0{name}\0{queue.path}\0{cell.name}", name, "on box", pull)
            )
    return found


def state_of(pull: BoxPull, kind: str = "pull") -> tuple[str, Tone, str]:
    """Return the glyph, tone and word of a transfer's state."""
    g = current_glyphs()
    if pull.asks is not None:
        # A pull that waits for an answer is running, too, and has no progress yet.
        return g.person, Tone.WARN, translate("asks")
    # A box that sends nothing: the copy may have ended since.
    if pull.unseen:
        return g.unknown, Tone.DIM, translate("unknown")
    if pull.is_running:
        if kind == "on box":
            first = translate("copies")
        else:
            first = translate("connecting")
        if pull.progress is not None:
            first = translate(pull.progress.phase)
        return g.ok, Tone.TEXT, first
    # Before the result, which only says that not all files arrived.
    if pull.cut_off:
        return g.warn, Tone.WARN, translate("cut off")
    if pull.stopped:
        return g.warn, Tone.WARN, translate_in("transfer", "stopped")
    if pull.end is not None and pull.end.whole:
        return g.check, Tone.PROVED, translate("complete")
    return g.trouble, Tone.TROUBLE, translate("incomplete")


def pull_row(
    box: str,
    pull: BoxPull,
    names: int,
    now: float,
    kind: str = "pull",
    *,
    width: int = 0,
    silent: float = 0.0,
) -> Line:
    """Draw a transfer: box, state and reason, progress, speed, time left.

    The reason why it waits or failed comes first, and stays if not all fits.

    Args:
        box: The box's name.
        pull: The transfer.
        names: Cells of the longest name.
        now: Client clock.
        kind: What is copied, and in which direction.
        width: Available cells; 0 = unlimited.
        silent: Seconds since a running transfer last reported; 0 = recently.
    """
    glyph, tone, word = state_of(pull, kind)
    look = pull.progress
    head = make_line(
        Span(f" {glyph} ", tone),
        Span(fit_name(box, names), Tone.STRONG),
        "  ",
        Span(fit_text(word, 10), tone),
        dim_span(f"  {fit_text(translate(kind), 9)}  "),
    )
    # Cells to assume if the width is unknown.
    whole_limit = 1000
    if width:
        room = width - width_of(head)
    else:
        room = whole_limit
    # The price is asked before the first byte: there is no progress to draw yet.
    if pull.asks is not None:
        yes = dim_span(translate("   {key} yes", key=key_for("transfers.agree")))
        return make_line(
            head,
            Span(
                translate("fetch {size_and_price}?", size_and_price=pull.asks.size_and_price),
                Tone.WARN,
            ),
            yes,
        )
    if not pull.is_running and pull.end is not None:
        if pull.ended_at is not None:
            when = dim_span(translate("  {now} ago", now=compact_time(now - pull.ended_at)))
        else:
            when = dim_span("")
        end_tone = Tone.STRONG
        if pull.end.whole:
            end_tone = Tone.TEXT
        text = make_line(Span(pull.end.text, end_tone))
        if width:
            cells = spread_line(text, make_line(when), room)
        else:
            cells = make_line(text, when)
        return make_line(head, cells)
    stuck = ""
    if silent:
        stuck = translate("no bytes for {silent}", silent=compact_time(silent))
    if look is None:
        stuck_text = ""
        if stuck:
            stuck_text = f"{stuck}  "
        return make_line(head, Span(stuck_text, Tone.WARN), dim_span(pull.plan))
    share = 100 * look.done_share
    problems = ""
    if look.problems:
        problems = how_many(look.problems, "problem")
    bar = 20
    file_count = ""
    if look.files:
        file_count = translate(
            "{files_done:,} of {files}",
            files_done=look.files_done,
            files=how_many(look.files, "file"),
        )
    if look.rate is not None:
        rate = f"{size_or_dash(look.rate)}/s"
    else:
        rate = translate("speed unknown yet")
    if look.eta is not None:
        eta = translate("{eta} left", eta=compact_time(look.eta))
    else:
        eta = translate("end unknown")
    # Trouble stays; the bar and the counts are left out first.
    parts: Parts = [
        (5, make_line(draw_bar(share, bar))),
        (1, make_line(f"{percent_or_dash(share):>4}")),
        (0, make_line(Span(stuck, Tone.WARN))),
        (0, make_line(Span(problems, Tone.WARN))),
        (
            4,
            make_line(
                translate(
                    "{bytes_done} of {bytes}",
                    bytes_done=size_or_dash(look.bytes_done),
                    bytes=size_or_dash(look.bytes),
                )
            ),
        ),
        (6, make_line(dim_span(file_count))),
        (3, make_line(rate)),
        (2, make_line(eta)),
        (7, make_line(dim_span("" if problems else translate("0 refused")))),
    ]
    return make_line(head, join_fitting(room, parts))


def silent_for(entry: TransferEntry, now: float) -> float:
    """Return the seconds since a running transfer last reported; 0 if that was recently."""
    silent = 0.0
    # Another rgt writes its note at most once a second, and only if something has moved.
    if entry.note is not None and entry.pull.is_running:
        silent = now - entry.note.told_at
    if silent > 5 * EVERY_SECONDS:
        return silent
    return 0.0


def entry_details(entry: TransferEntry, width: int, now: float) -> list[Line]:
    """Draw everything known about a transfer, and what to do next."""
    pull, note = entry.pull, entry.note
    out: list[Line] = []
    if entry.kind != "on box":
        what = list(pull.paths)
        if note is not None and note.paths_left_out:
            what.append(translate("and {paths_left_out} more", paths_left_out=note.paths_left_out))
        if entry.kind == "pull":
            rest = translate("all results of the box")
        else:
            rest = translate("the trainer")
        out += label_lines("of", ", ".join(what) or rest, width, most=4)
    if note is not None and note.to:
        out += label_lines("to", note.to, width, most=2)
    if pull.began_at is not None:
        out += label_lines(
            "since",
            translate(
                "{at}, {age} ago",
                at=_format_when(pull.began_at, now),
                age=compact_time(now - pull.began_at),
            ),
            width,
        )
    if pull.plan:
        out += label_lines("plan", pull.plan, width)
    if pull.asks is not None:
        out += label_lines("price", pull.asks.words, width, Tone.WARN)
    if pull.is_running and pull.progress is not None and pull.progress.path:
        out += label_lines("file", pull.progress.path, width)
    if note is not None:
        if pull.is_running:
            owner = translate("another rgt, process {pid}", pid=note.pid)
        else:
            owner = translate("an rgt that has ended")
        out += label_lines("by", owner, width)
    if silent := silent_for(entry, now):
        out += label_lines(
            "told",
            translate("{silent} ago: no bytes since", silent=compact_time(silent)),
            width,
            Tone.WARN,
        )
    if pull.end is not None:
        if pull.ended_at is not None:
            out += label_lines("ended", _format_when(pull.ended_at, now), width)
        if pull.end.whole:
            tone = Tone.TEXT
        else:
            tone = Tone.STRONG
        out += label_lines("end", pull.end.text, width, tone, most=6)
        if not pull.end.whole and pull.progress is not None and pull.progress.bytes:
            came = translate(
                "{bytes_done} of {bytes} (maybe more)",
                bytes_done=size_or_dash(pull.progress.bytes_done),
                bytes=size_or_dash(pull.progress.bytes),
            )
            out += label_lines("came", came, width)
        if not pull.end.whole and not pull.stopped and entry.kind == "pull":
            out += label_lines(
                "then",
                translate(
                    "{key} pulls again: {kept}",
                    key=key_for("transfers.again"),
                    kept=translate(KEPT_FILES),
                ),
                width,
            )
    return out


def _format_when(at: float, now: float) -> str:
    """Return a time of day, with the date unless it is today."""
    import time

    if time.localtime(at)[:3] == time.localtime(now)[:3]:
        return clock_or_dash(at)
    return moment(at)


def in_order(entries: Iterable[TransferEntry]) -> list[TransferEntry]:
    """Sort entries: running ones first, then by end, newest first."""
    return sorted(
        entries,
        key=lambda one: (not one.pull.is_running, -(one.pull.ended_at or one.pull.began_at or 0.0)),
    )


class TransfersScreen(MoveKeys, FleetAwareScreen):
    """One line per transfer, running ones first."""

    PLACE = "transfers"
    KEYS: ClassVar[tuple[Command, ...]] = (*TRANSFERS, *MOVE)
    BINDINGS: ClassVar[list[BindingType]] = build_bindings(KEYS)
    _notes: Sequence[TransferNote] = ()
    _trouble = ""
    _asked_at = -math.inf

    def compose_body(self) -> Iterable[Widget]:
        """Return the list, and below it more about the box of the selected transfer."""
        yield SelectableList(id="transfers")
        yield BoxContext()

    @property
    def pulls(self) -> BoxPulls:
        """The pulls of the app."""
        found: BoxPulls = getattr(self.app, "pulls")  # noqa: B009  (whose class must not be imported here)
        return found

    def _list_entries(self) -> dict[str, TransferEntry]:
        known = [
            TransferEntry(f"{box}\0{pull.began_at}", box, "pull", pull)
            for box, pull in self.pulls.list_pulls()
        ]
        # This rgt's own pulls have notes, too, but are in the list already.
        known += [from_note(note) for note in self._notes if not note.ours]
        if self.fleet_state is not None:
            # The newest copies on the boxes are listed, at most this many.
            most_on_boxes = 100
            known += in_order(
                one for box in self.fleet_state.boxes for one in on_box(box, self.now)
            )[:most_on_boxes]
        mine = (one for one in known if self.box_name in (None, one.box))
        return {one.key: one for one in in_order(mine)}

    def _find_picked(self) -> TransferEntry | None:
        return self._list_entries().get(self.main_list.picked_key or "")

    def why_not(self, command: Command) -> str | None:
        """Return why a command does not work now; None if it works on the selected transfer."""
        if self.fleet_state is None or command.id not in NEEDED:
            return super().why_not(command)
        picked = self._find_picked()
        fits = picked is not None and NEEDED[command.id](picked)
        if fits:
            return super().why_not(command)
        return translate("not for the selected transfer")

    @property
    def target_box(self) -> str | None:
        """The box of the selected transfer."""
        picked = self._find_picked()
        if picked is None:
            return self.box_name
        return picked.box

    def pull_moved(self) -> None:
        """Redraw the progress."""
        self.redraw_now()

    def show_state(self, state: FleetState, now: float) -> None:
        """Draw the transfers, and read the records of other rgts at most every `EVERY_SECONDS`."""
        if self.fleet.keeps_transfers and not 0.0 <= now - self._asked_at < EVERY_SECONDS:
            self._asked_at = now
            self.read_notes()
        every = self._list_entries()
        width = self.size.width
        names = name_width((one.box for one in every.values()), width)
        rows = [
            ListRow(
                key,
                pull_row(
                    one.box,
                    one.pull,
                    names,
                    now,
                    one.kind,
                    # One cell of margin at the right.
                    width=width - 1,
                    silent=silent_for(one, now),
                ),
            )
            for key, one in every.items()
        ]
        if self.fleet.keeps_transfers:
            without = translate(NO_TRANSFERS)
        else:
            without = translate(NO_PULL_KEPT)
        empty = (EMPTY, make_line(dim_span(f" {without}")))
        self.main_list.show_rows(
            rows, empty, lambda key, width: entry_details(every[key], width, now)
        )
        box_name = None
        if every:
            box_name = self.target_box
        self.show_context(box_name, self.main_list.wanted_height(width))

    @work(
        group="transfers",
        exclusive=True,
        exit_on_error=False,
        description="read transfers of others",
    )
    async def read_notes(self) -> None:
        """Read the transfers of other rgts in a worker: their disk may be slow."""
        try:
            self._notes = await self.fleet.transfers()
            self._trouble = ""
        except asyncio.CancelledError:
            raise
        except Exception as error:  # an unreadable list must not look like an empty one
            self._trouble = str(error) or type(error).__name__
        # The screen may have been closed while this was read.
        if self.is_mounted:
            self.redraw_now()

    def build_summary(self, state: FleetState, now: float) -> Parts:
        """Return how many are running and how many have ended."""
        if self._trouble:
            text = translate(
                "{trouble} transfers of others are unknown: {trouble_2}",
                trouble=current_glyphs().trouble,
                trouble_2=self._trouble,
            )
            return [(1, make_line(Span(text, Tone.TROUBLE)))]
        every = [one.pull for one in self._list_entries().values()]
        going, unseen = sum(pull.is_running for pull in every), sum(pull.unseen for pull in every)
        lost = ""
        if unseen:
            lost = translate("   {unseen} unknown", unseen=unseen)
        return [
            (
                1,
                make_line(
                    Span(translate("{going} under way", going=going)),
                    dim_span(
                        translate(
                            "{lost}   {every} ended", lost=lost, every=len(every) - going - unseen
                        )
                    ),
                ),
            )
        ]

    def open_row(self) -> None:
        """Open the box of the selected transfer."""
        self.action_open()

    def on_resize(self, event: events.Resize) -> None:
        """Redraw for the new size."""
        self.redraw_now()

    def action_open(self) -> None:
        """Open the box of the selected transfer."""
        picked = self._find_picked()
        if picked is not None and self._is_for_this_box(picked.box):
            cast("Dashboard", self.app).open_screen("box", picked.box)

    def _is_for_this_box(self, box: str) -> bool:
        # Transfers of other rgts may be about boxes of another fleet file.
        here = self.fleet_state is not None and self.fleet_state.find_box(box) is not None
        if not here:
            self.hint(translate("{box} is not a box of this fleet", box=box))
        return here

    def action_stop_pull(self) -> None:
        """Stop the selected pull; the files that arrived are kept."""
        picked = self._find_picked()
        if picked is None or not picked.pull.is_running:
            self.hint(translate("nothing is being pulled here"))
        elif not picked.is_ours:
            if picked.note is not None:
                self.hint(
                    translate(
                        "process {pid} of this machine is doing it: ctrl+c there stops it",
                        pid=picked.note.pid,
                    )
                )
            else:
                self.hint(translate("it is a program on {box}, not one of rgt's", box=picked.box))
        else:
            self.pulls.stop(picked.box)
            self.hint(
                translate(
                    "stopping the pull of {box}; {kept}", box=picked.box, kept=translate(KEPT_FILES)
                )
            )

    def action_agree(self) -> None:
        """Agree to the price of the selected pull."""
        picked = self._find_picked()
        if picked is None or picked.pull.asks is None:
            self.hint(translate("this pull needs no answer"))
            return
        self.pulls.agree_to_cost(picked.box)
        self.hint(
            translate("agreed: {size_and_price}", size_and_price=picked.pull.asks.size_and_price)
        )

    def action_again(self) -> None:
        """Pull the same paths again; files that are complete here are skipped."""
        picked = self._find_picked()
        if picked is None or self.fleet.plays_back or picked.kind != "pull":
            self.hint(translate("nothing to pull"))
        elif picked.pull.is_running or self._is_pulling(picked.box):
            self.hint(translate("it is in progress"))
        # A note keeps the first paths only: repeating those would pull less than before.
        elif picked.note is not None and picked.note.paths_left_out:
            self.hint(translate("too many paths to repeat this pull here"))
        elif self._is_for_this_box(picked.box):
            # The key of the new pull, if it begins at this clock reading; otherwise the list
            # selects its first row, a pull under way.
            self.main_list.select_key(f"{picked.box}\0{self.now}")
            self.pulls.start(self.fleet, picked.box, picked.pull.paths)
            self.hint(translate("pulling from {box} again", box=picked.box))

    def _is_pulling(self, box: str) -> bool:
        # A box has one pull at a time; the selected one may be an earlier pull of it.
        newest = self.pulls.find_pull(box)
        return newest is not None and newest.is_running

    def to_copy(self) -> ClipboardText | None:
        """Return the selected transfer: its box, its directories, its state or result."""
        picked = self._find_picked()
        if picked is None:
            return None
        pull = picked.pull
        if pull.end is not None:
            end = pull.end.text
        else:
            end = state_of(pull, picked.kind)[2]
        text = f"{picked.box}: {' '.join(pull.paths)}: {pull.plan} {end}".strip()
        return ClipboardText(
            what=translate("the {kind} of {box}", kind=translate(picked.kind), box=picked.box),
            text=text,
        )
