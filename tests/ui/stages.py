"""Every main screen with something to show on it, in the states that a fleet can be in."""

from __future__ import annotations

import asyncio
import re
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
from textual.command import CommandPalette
from textual.pilot import Pilot
from textual.widgets import Input

from rgt_tui.fleet import Beginnings, FleetSource, PlatformAccount, PullResult
from rgt_tui.gate import AuditEntry, AuditEvent, AuditLog
from rgt_tui.health import evaluate_checks
from rgt_tui.model import (
    BillingVerb,
    BoxQuestion,
    BoxState,
    CheckResult,
    EvidenceItem,
    FleetState,
    GpuProcess,
    LinkState,
    PersonTick,
    Profile,
    QuestionKind,
    WorkerSums,
)
from rgt_tui.profiles import load_profile
from rgt_tui.store import FleetHistory
from rgt_tui.transfer.copying import PullProgress
from rgt_tui.ui import RgtApp
from tests.ui.fakes import GIB, NOW, FakeFleet, demo_state, running_box, sample
from tests.ui.kept import keep_night, told_story
from tests.ui.screen_pictures import Row, rows_on, text_of_rows
from tests.ui.snap import resize
from tests.ui.test_box_history import kept
from tests.ui.test_curve_compare import timed_box
from tests.ui.test_gpu_cards import card
from tests.ui.test_process_lines import proc

BOX = "vast-demo"
"""The box whose screens are shown: the one that is in trouble, where one is."""
LOST = (BOX, "lab-a100-2")
"""Those that are stale or unreachable, where some are."""

Changed = Callable[[BoxState], BoxState]


def _stale(box: BoxState) -> BoxState:
    return msgspec.structs.replace(box, sample_at=NOW - 42)


def _unreachable(box: BoxState) -> BoxState:
    return msgspec.structs.replace(
        box,
        link=LinkState.UNREACHABLE,
        reason="ssh: connection refused",
        since=NOW - 200,
        sample_at=NOW - 200,
        retry_at=NOW + 12,
    )


def _calm(box: BoxState) -> BoxState:
    return msgspec.structs.replace(running_box(box.spec.name), spec=box.spec, meter=box.meter)


def _eight(box: BoxState) -> BoxState:
    """One card of eight is throttled, one does not answer."""
    gpus = [card(i, procs=(GpuProcess(pid=300 + i, mapped=True),)) for i in range(8)]
    gpus[3] = card(3, throttle=("hw_thermal",), clock_mhz=900, pcie_width=8)
    gpus[6] = card(6, error="GPU is lost", xid=79)
    ranks = [
        proc(300 + i, 299, workers=WorkerSums(count=8, threads=16, states={"S": 8}))
        for i in range(8)
    ]
    shown = msgspec.structs.replace(
        sample(),
        gpus=tuple(gpus),
        procs=(proc(299, cmd="torchrun train.py", threads=3, state="S"), *ranks),
    )
    return msgspec.structs.replace(_calm(box), sample=shown)


STATES: dict[str, Changed] = {
    "live": lambda box: box,
    "stale": _stale,
    "unreachable": _unreachable,
    "readonly": _calm,
}


def boxes_of(state: str) -> tuple[BoxState, ...]:
    """Return the four boxes of the demo, those of `LOST` as the state says."""
    made = []
    for box in demo_state().boxes:
        name = box.spec.name
        if name == "autodl-demo":
            box = msgspec.structs.replace(timed_box(), past=kept(480, 170), recent=kept(20, 170))
        if name == "lab-a100-2":
            box = msgspec.structs.replace(box, sample_at=NOW, runs=())
        change = STATES.get(state, _eight if state == "eight" else STATES["live"])
        if name in LOST or state == "readonly":
            box = change(box)
        past = kept(480, 170), kept(20, 170, holes=range(60, 80))
        made.append(msgspec.structs.replace(box, past=past[0], recent=past[1]))
    return tuple(made)


class StagedFleet(FakeFleet):
    """Judges its boxes as a real fleet does, with the profiles of their platforms."""

    def profile_of(self, box: str) -> Profile:
        found = self.state.find_box(box)
        name = found.spec.profile if found else "generic-ssh"
        return load_profile({"vast": "vastai"}.get(name, name))

    def evaluate_checks(self, box: str) -> tuple[CheckResult, ...]:
        found = self.state.find_box(box)
        self.check_results = (
            evaluate_checks(found, self.profile_of(box), self.now()) if found else ()
        )
        return super().evaluate_checks(box)


class Shown(msgspec.Struct, frozen=True, kw_only=True):
    """How one gets to a screen from the fleet."""

    place: str = ""
    """As `RgtApp.open_screen` knows it; empty = the fleet, and what its keys open."""
    box: bool = False
    """It is the screen of one box."""
    keys: tuple[str, ...] = ()
    """Pressed there."""
    states: tuple[str, ...] = tuple(STATES)


FOUND = re.compile(r"Run of vast-demo|vast-demo 的训练|No matches found")
"""What the palette shows when it has looked everywhere, in both languages."""
FEW = ("live", "readonly")
"""Where the link to a box changes nothing, as a test of the pictures says."""
SCREENS: dict[str, Shown] = {
    "fleet": Shown(),
    "box": Shown(place="box", box=True, states=(*STATES, "eight")),
    "log": Shown(place="log", box=True, keys=("slash", *"step", "enter", "t")),
    "curves": Shown(
        place="curves", box=True, keys=("s", "j", "left_square_bracket", "left_square_bracket")
    ),
    "curve grid": Shown(place="curves", box=True, keys=("g",), states=("live",)),
    "all curves": Shown(place="curves", box=True, keys=("j", "R", "B"), states=("live",)),
    "phases": Shown(place="phases", box=True, states=(*STATES, "eight")),
    "alerts": Shown(place="alerts"),
    "journal": Shown(place="journal"),
    "night": Shown(place="night"),
    "teardown": Shown(place="teardown", box=True, keys=("down",)),
    "platform": Shown(place="platform", box=True),
    "handbook": Shown(place="handbook"),
    "transfers": Shown(place="transfers"),
    "audit": Shown(place="audit", states=FEW, keys=("j",)),
    "time machine": Shown(place="time machine", keys=("left",)),
    "help": Shown(keys=("question_mark",), states=FEW),
    "palette": Shown(keys=("ctrl+p", *"vast")),
    "first contact": Shown(place="first contact", box=True, states=("live",)),
    "question": Shown(keys=("A",), states=("live",)),
    "welcome": Shown(states=("live",)),
}
KEY = BoxQuestion(
    id=1,
    box="runpod-demo",
    kind=QuestionKind.HOST_KEY,
    title="first host key of 1.2.3.4:40022",
    lines=("ED25519 SHA256:2n6Lk0yGqD0k9Yt1", "it is written to ~/.ssh/known_hosts"),
)
AGAINST = (
    EvidenceItem("quiet", False, "pid 2231 trains: python -m rgt_train", NOW - 4),
    EvidenceItem("roster", True, "3 cells, 3 accounted for", NOW - 1),
    EvidenceItem("results:/workspace/a", True, "/workspace/a: a verified copy", NOW - 9, path="/workspace/a",
                 bytes=GIB, newest=NOW - 60),
    EvidenceItem("results:/workspace/b", False, "/workspace/b is erased; not pulled", NOW - 9, fact="b", bytes=3 * GIB,
                 forfeitable=True, path="/workspace/b", newest=NOW - 700),
)  # fmt: skip
LOOK = PullProgress(
    phase="pulling", files=214, files_done=131, bytes=38 * GIB, bytes_done=24 * GIB, rate=312e6, eta=45.0,
    path="ckpt/lstm-b/step-00800/shard-3.pt",
)  # fmt: skip


class _FoundHere:
    """What there is to begin with on the computer of nobody in particular."""

    async def find_beginnings(self) -> Beginnings:
        accounts = (PlatformAccount("runpod", "RunPod", "RUNPOD_API_KEY"),)
        return Beginnings(
            hosts=("lab-a100", "lab-a100-2", "vast"),
            accounts=accounts,
            path="~/.config/rgt/fleet.toml",
        )

    async def choose_demo(self) -> str:
        raise NotImplementedError

    take_hosts = choose_demo

    async def import_account(self, kind: str) -> str:
        raise NotImplementedError(kind)

    paste = import_account

    def make_chosen_fleet(self) -> FleetSource:
        raise NotImplementedError


def staged_fleet(screen: str, state: str) -> StagedFleet:
    """Return the fleet in a state, with what the screen shows besides."""
    questions = (KEY,) if screen == "question" else ()
    fleet = StagedFleet(FleetState(boxes_of(state), told_story(), NOW, questions=questions))
    fleet.ticks = {"4.6": (PersonTick(ticked=True, at=NOW - 60, by="han", note="both read well"),)}
    if state == "live":
        fleet.review_changes = {"items": AGAINST, "refusals": ()}
    if state == "unreachable":
        gone = EvidenceItem(
            "reached", False, "the box does not answer: ssh: connection refused", NOW
        )
        fleet.review_changes = {"items": (gone,)}
    return fleet


async def _pulls(app: RgtApp, fleet: FakeFleet, pilot: Pilot[None]) -> None:
    """Three pulls: one that is whole, one that is not, one under way."""
    whole = msgspec.structs.replace(LOOK, files_done=214, bytes_done=LOOK.bytes)
    now = fleet.now()
    for box, end in (
        (
            "autodl-demo",
            PullResult(whole=True, text="214 files, 38.2 GB verified in pulled/autodl-demo"),
        ),
        (
            "runpod-demo",
            PullResult(
                whole=False, text="2 of 214 files differ from the manifest: ckpt/a.pt, ckpt/b.pt"
            ),
        ),
    ):
        fleet.pull_end, fleet.pull_looks = end, (whole,) if end.whole else (LOOK,)
        app.pulls.start(fleet, box, ("/workspace",))
        await app.workers.wait_for_complete()
    fleet.pull_gate = asyncio.Event()
    app.pulls.start(fleet, BOX, ("/workspace", "/root/results"))
    await pilot.pause()
    fleet.advance(now - fleet.now())


def _audited(home: Path) -> None:
    log = AuditLog(home / "audit.jsonl")
    told = (
        (AuditEvent.REFUSED, "not pulled: /workspace/b, 3.0 GB"),
        (AuditEvent.REQUESTED, "DELETE /instances/9918231/"),
        (AuditEvent.ANSWER, "the provider confirms: deleted"),
        (AuditEvent.ANSWER, "meter off"),
    )
    for n, (event, text) in enumerate(told):
        log.record_entry(AuditEntry(at=NOW - 600 + n, event=event, box=BOX,
        verb=BillingVerb.DESTROY, instance="9918231", text=text,
                              typed=BOX, who="han@desk"))  # fmt: skip


@asynccontextmanager
async def staged(
    screen: str,
    state: str,
    *,
    home: Path,
    night: Path | None = None,
    size: tuple[int, int] = (80, 24),
    fleet: FakeFleet | None = None,
) -> AsyncIterator[tuple[RgtApp, Pilot[None]]]:
    """Run the app on a fleet in a state, with a screen on top.

    Args:
        screen: A name of `SCREENS`.
        state: A name of `STATES`, or ``eight``.
        home: rgt's state directory.
        night: A history to copy; None = one is made.
        size: Of the terminal.
        fleet: Instead of that of the state.
    """
    shown, fleet = SCREENS[screen], fleet or staged_fleet(screen, state)
    home.mkdir(parents=True, exist_ok=True)
    if screen == "audit":
        _audited(home)
    path = home / "history.db"
    history = None
    if screen in ("journal", "time machine"):
        if night is None:
            keep_night(path, fleet.state).close()
        else:
            shutil.copy(night, path)
        history = FleetHistory(path, clock=lambda: NOW)
        history.adopt_boxes([box.spec for box in fleet.state.boxes])
        fleet.chronicle = history
    app = RgtApp(
        lambda: fleet,
        readonly=state == "readonly",
        first_steps=_FoundHere() if screen == "welcome" else None,
    )
    try:
        async with app.run_test(size=size) as pilot:
            await rest(app, pilot)
            if screen == "transfers":
                await _pulls(app, fleet, pilot)
            if shown.place:
                app.open_screen(shown.place, BOX if shown.box else None)
                await rest(app, pilot)
            opening = (
                1.0 if screen == "teardown" else 0.0
            )  # so long a dialog that has just opened takes no key
            fleet.advance(opening)
            for key in shown.keys:
                await pilot.press(key)
            fleet.advance(-opening)
            await rest(app, pilot)
            yield app, pilot
    finally:
        if history is not None:
            await history.close()


async def rest(app: RgtApp, pilot: Pilot[None], size: tuple[int, int] | None = None) -> list[Row]:
    """Wait until everything that was asked for is drawn, at a size if one is named; return what is on the screen.

    A pull may go on.
    """
    if size is not None:
        await resize(pilot, *size)
    if working := [one for one in app.workers if not one.group.startswith("pull:")]:
        await app.workers.wait_for_complete(working)
    await pilot.pause()
    app.tick(force=True)
    for field in app.screen.query(Input):
        field.cursor_blink = False
    for _ in range(2000):  # the palette shows what it finds as it comes
        await pilot.pause()
        if not isinstance(app.screen, CommandPalette) or FOUND.search(
            "\n".join(text_of_rows(rows_on(app)))
        ):
            break
    seen = rows_on(app)
    for _ in range(1000):
        await pilot.pause()
        before, seen = seen, rows_on(app)
        if seen == before and size in {None, (len(seen[0]), len(seen))}:
            return seen
    raise AssertionError("it does not come to rest")
