"""``rgt up`` at the market of every platform that rents, with what goes wrong there: its status, and its words.

The command's own code runs in the loop of the test, so that no process is started for a case; the machine's SSH and
what it measures are said by the test. With a process, a terminal and a real sshd: `test_up`.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pytest

from rgt_tui.cli import FAILED, OK, UNCONFIRMED, UNREACHABLE, entry, running
from rgt_tui.cli.renting import arriving, up
from rgt_tui.demo import InjectedFault, LocalRequest, LocalResponse, LocalServer, MachineChange
from rgt_tui.fleet.config import dump_fleet, load_fleet
from rgt_tui.fleet.renting import MachineRental, arrival, wait_for_ssh
from rgt_tui.fleet.renting.acceptance import BoxMeasurements, NamedGpu, TorchTrial, TrialDevice
from rgt_tui.gate import Journal
from rgt_tui.model import BoxSpec, LinkState, ProviderRef
from tests.contract.providers.fakes.local_paperspace import LocalPaperspace
from tests.contract.providers.fakes.renting_runpod import RentingRunPod
from tests.contract.providers.platform_outcomes import Row, edited
from tests.contract.providers.platform_rows import PUBLIC_KEY, ROWS

KEY, BOX = "SOME_KEY", "rented"
MARKETS = [row for row in ROWS if row.wish is not None]


@dataclass
class Place:
    """A market, and rgt at a shell beside it."""

    row: Row
    server: LocalServer
    folder: Path
    output: Callable[[], tuple[str, str]]
    works: list[Coroutine[None, None, int]]

    async def up(self, *words: str) -> tuple[int, dict[str, Any], str]:
        """Run the command; return its status, its object for scripts, and what it said beside."""
        wish = self.row.wish
        assert wish is not None
        given = [
            "up",
            BOX,
            "--fleet",
            str(self.folder / "fleet.toml"),
            "--json",
            "--gpu",
            wish.gpu,
            "--disk",
            str(wish.disk_gb),
        ]
        given += ["--key", str(self.folder / "id.pub"), "--timeout", "0.1", *words]
        code = up.run_up(entry.parse_command_line(given))
        if self.works:
            code = await self.works.pop()
        out, said = self.output()
        return code, json.loads(out.splitlines()[-1]) if out.strip() else {}, said

    async def confirmed(
        self, fault: Callable[[], None] = lambda: None
    ) -> tuple[int, dict[str, Any], str]:
        """Confirm what a dry run showed; the fault comes between the two."""
        code, shown, said = await self.up("--dry-run")
        assert (code, self.sent()) == (OK, 0), said
        fault()
        return await self.up(
            "--confirm", shown["phrase"], "--evidence", shown["digest"], "--accept-new-host-key"
        )

    def sent(self) -> int:
        return sum(what.startswith(self.row.on["create"]) for what in self.server.requests)

    def boxes(self) -> set[str]:
        return {spec.name for spec in load_fleet(self.folder / "fleet.toml")}

    def open(self) -> int:
        found, problems = Journal(self.folder / "state/rgt/journal").open_actions()
        assert problems == ()
        return len(found)


@pytest.fixture
def works(monkeypatch: pytest.MonkeyPatch) -> list[Coroutine[None, None, int]]:
    """What the command would run in a loop of its own."""
    found: list[Coroutine[None, None, int]] = []

    def run(work: Coroutine[None, None, int], **_: object) -> int:
        found.append(work)
        return OK

    monkeypatch.setattr(running, "run_coroutine", run)
    return found


@pytest.fixture
def place(
    works: list[Coroutine[None, None, int]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Callable[[Row], Place]:
    """Pauses pass at once, no machine has SSH, and home is a directory of the test's."""

    async def sleep(_: float) -> None:
        await asyncio.sleep(0)

    async def silent(_host: str, _port: int) -> bool:
        return False

    for function in (MachineRental.__init__, wait_for_ssh):
        monkeypatch.setitem(cast(dict[str, Any], function.__kwdefaults__), "sleep", sleep)
    monkeypatch.setitem(
        cast(dict[str, Any], MachineRental.__init__.__kwdefaults__), "find_seconds", 20.0
    )
    monkeypatch.setattr(arrival, "ssh_answers", silent)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "id.pub").write_text(f"{PUBLIC_KEY}\n")

    def made(row: Row) -> Place:
        def changed(change: MachineChange) -> None:
            if isinstance(server, RentingRunPod) and change.action == "create":
                server.pods[
                    change.machine
                ].host = "203.0.113.9"  # Of the others the fake tells one itself.

        server = row.make(settle_s=0.0, on_change=changed)
        return Place(row, server, tmp_path, lambda: capsys.readouterr(), works)

    return made


def reached(monkeypatch: pytest.MonkeyPatch, measured: BoxMeasurements) -> None:
    """Let every machine answer, let everybody in, and measure this."""

    async def answers(_host: str, _port: int) -> bool:
        return True

    async def login(*_: object) -> tuple[LinkState, str]:
        return LinkState.LIVE, ""

    async def measure(*_: object, **__: object) -> BoxMeasurements:
        return measured

    monkeypatch.setattr(arrival, "ssh_answers", answers)
    monkeypatch.setattr(arriving, "_log_in", login)
    monkeypatch.setattr(arriving, "measure_box", measure)


BROKEN = "CUDA driver initialization failed, you might not have a CUDA gpu."


def machine(row: Row, torch: TorchTrial) -> BoxMeasurements:
    assert row.wish is not None
    return BoxMeasurements(
        at=0.0, gpus=(NamedGpu(name=f"NVIDIA {row.wish.gpu}", total=80 << 30),), torch=torch
    )


def dearer(value: Any) -> Any:
    return {key: one * 2 for key, one in value.items()} if isinstance(value, dict) else value * 2


def no_capacity(here: Place) -> None:
    """What each platform says when there is none: `rgt_tui.providers.answers.CREATIONS`."""
    status, raw = NO_CAPACITY[here.row.kind]
    here.server.inject_faults(InjectedFault(on=here.row.on["create"], status=status, raw=raw))


def stays_off(here: Place) -> None:
    """The capacity is gone at the very call: the machine is made, and does not start.

    https://github.com/skypilot-org/skypilot/issues/3197
    """
    server = here.server
    assert isinstance(server, LocalPaperspace)
    usual = server.handle_request

    def handle(request: LocalRequest) -> LocalResponse:
        if f"{request.method} {request.path}" == here.row.on["create"]:
            server.capacity.clear()
        return usual(request)

    server.handle_request = handle  # type: ignore[method-assign]


def dearer_offer(here: Place) -> None:
    prices = {key.replace(".", "__"): dearer for key in here.row.offer_price}
    here.server.inject_faults(
        InjectedFault(
            on=here.row.on["offers"], change=edited(here.row.offers_in, **prices), times=-1
        )
    )


def dearer_machine(here: Place) -> None:
    prices = {key.replace(".", "__"): dearer for key in here.row.price}
    here.server.inject_faults(
        InjectedFault(
            on=here.row.on["find"], change=edited(here.row.machines_in, **prices), times=-1
        )
    )


NO_CAPACITY = {
    "digitalocean": (
        422,
        b'{"id": "unprocessable_entity", "message": "Size is not available in this region."}',
    ),
    "lambda": (
        400,
        b'{"error": {"code": "instance-operations/launch/insufficient-capacity", "message": "Not enough capacity"}}',
    ),
    "runpod": (400, b'{"title": "Bad Request", "status": 400, "detail": "no instances available"}'),
    "vastai": (400, b'{"success": false, "error": "no_such_ask", "msg": "ask is not available"}'),
}


@dataclass(frozen=True)
class Case:
    """What goes wrong, and how the command ends."""

    what: str
    breaks: Callable[[Place], None]
    status: int
    says: str
    sent: int
    open: int = 0
    listed: bool = False
    """The machine is a box of the fleet file."""
    reached: bool = False
    lacks: tuple[tuple[str, str], ...] = ()
    """Platform → why it cannot be so there."""


NOTHING = lambda here: None  # noqa: E731
CASES = (
    Case("nothing", NOTHING, OK, "", 1, listed=True, reached=True),
    Case(
        "the answer is lost, the machine is there",
        lambda here: here.server.inject_faults(InjectedFault(on=here.row.on["create"], act=True, drop=True)),
        UNREACHABLE, "no SSH after", 1, listed=True,
    ),
    Case(
        "the answer is lost, no machine is found",
        lambda here: here.server.inject_faults(InjectedFault(on=here.row.on["create"], drop=True)),
        UNCONFIRMED, "but lists lag", 1, open=1,
    ),
    Case(
        "no capacity", no_capacity, FAILED, "", 1,
        lacks=(("paperspace-core", "how it refuses is documented nowhere"),),
    ),
    Case(
        "no capacity, and a machine that stays off", stays_off, UNREACHABLE, "the platform calls it stopped", 1,
        listed=True, lacks=tuple((kind, "it refuses") for kind in NO_CAPACITY),
    ),
    Case(
        "the price has changed since the dry run", dearer_offer, FAILED, "has changed since the dry run", 0,
        lacks=(("paperspace-core", "it tells a price only of a machine that is there"),),
    ),
    Case(
        "the machine is dearer than its offer", dearer_machine, UNCONFIRMED, "agreed:", 1, listed=True,
        reached=True,
        lacks=(("paperspace-core", "it tells a price only of a machine that is there"),),
    ),
    Case("it is active, and CUDA fails", NOTHING, UNCONFIRMED, BROKEN, 1, listed=True, reached=True),
)  # fmt: skip


@pytest.mark.full_matrix
@pytest.mark.parametrize(
    ("row", "case"),
    [
        pytest.param(row, case, id=f"{case.what}-{row.kind}")
        for case in CASES
        for row in MARKETS
        if row.kind not in dict(case.lacks)
    ],
)
async def test_how_it_ends(
    row: Row, case: Case, place: Callable[[Row], Place], monkeypatch: pytest.MonkeyPatch
) -> None:
    here = place(row)
    if case.reached:
        broken = case.says == BROKEN
        torch = TorchTrial(torch="2.9.0", built_for="12.8", error=BROKEN if broken else None)
        ready = TorchTrial(
            torch="2.9.0", built_for="12.8", count=1, devices=(TrialDevice(name="x"),)
        )
        reached(monkeypatch, machine(row, torch if broken else ready))
    await here.server.start()
    try:
        monkeypatch.setenv(KEY, here.server.key)
        ref = ProviderRef(row.kind, row.machine, here.server.base_url, KEY)
        (here.folder / "fleet.toml").write_text(
            dump_fleet([BoxSpec(name="lab", host="lab.invalid", profile=row.kind, provider=ref)])
        )
        code, body, said = await here.confirmed(lambda: case.breaks(here))
        words = " ".join(body["reasons"])
        assert (code, body["exit"], here.sent(), here.open()) == (
            case.status,
            case.status,
            case.sent,
            case.open,
        ), said
        assert case.says in words and bool(words) is (code != OK), words
        assert (BOX in here.boxes()) is case.listed
        if code in (UNREACHABLE, UNCONFIRMED) and case.listed:
            assert f"it is billed: rgt down {BOX} --destroy ends it" in said
    finally:
        await here.server.stop()


def lines() -> list[str]:
    """Return the table in docs/up.md."""
    kinds = [row.kind for row in MARKETS]
    found = [f"| what goes wrong | {' | '.join(kinds)} |", f"|---|{'---|' * len(kinds)}"]
    for case in CASES:
        lacks = dict(case.lacks)
        cells = [f"– ({lacks[kind]})" if kind in lacks else str(case.status) for kind in kinds]
        found.append(f"| {case.what} | {' | '.join(cells)} |")
    return found


def test_the_table_in_the_docs_is_that_of_the_test() -> None:
    text = (Path(__file__).parents[3] / "docs" / "up.md").read_text()
    assert "\n".join(lines()) in text, "\n".join(lines())
