"""What a crash left open is asked for at a real local provider, written down, and never sent again."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import pytest

from rgt_tui.demo import InjectedFault, LocalRunPod
from rgt_tui.fleet import SETTLE_SECONDS, BoxSession, ConnectLimit, FleetMeters, OpenActions
from rgt_tui.gate import ActionState, AuditLog, InstanceTarget, Journal, target_of
from rgt_tui.health import assess_box
from rgt_tui.model import BillingVerb, BoxSpec, ProviderRef
from rgt_tui.profiles import load_profile
from rgt_tui.ssh import AgentBundle

BOX, POD, KEY = "lab", "pod1", "RGT_TEST_KEY"
SENT, ANSWERED = ActionState.SENT, ActionState.ANSWERED
CONFIRMED, OFF, FAILED = ActionState.CONFIRMED, ActionState.OFF, ActionState.FAILED
UNKNOWN = ActionState.UNKNOWN
COURSES = {
    SENT: [SENT],
    ANSWERED: [SENT, ANSWERED],
    CONFIRMED: [SENT, ANSWERED, CONFIRMED],
    UNKNOWN: [SENT, UNKNOWN],
}


@dataclass
class World:
    server: LocalRunPod
    session: BoxSession
    meters: FleetMeters
    journal: Journal
    open: OpenActions
    audit: Path
    target: InstanceTarget
    said: list[tuple[str, str]] = field(default_factory=list)
    parked: list[tuple[str, float]] = field(default_factory=list)

    def crashed(
        self, verb: BillingVerb, *states: ActionState, target: InstanceTarget | None = None
    ) -> None:
        """Leave an action behind as an rgt does that is killed: its lock goes with it, its file stays."""
        with self.journal.lock_instance(target or self.target, BOX, verb) as action:
            action.record_intent("x", evidence="e")
            for state in states:
                action.record_state(state, "x")

    def age(self, seconds: float) -> None:
        """Let all that is written be so much older."""
        for path in self.journal.folder.glob("*.jsonl"):
            lines = [json.loads(line) for line in path.read_text().splitlines()]
            old = [
                {**line, "at": line["at"] - seconds, "steady": line["steady"] - seconds}
                for line in lines
            ]
            path.write_text("".join(json.dumps(line) + "\n" for line in old))

    def states(self) -> list[str]:
        (path,) = self.journal.folder.glob("*.jsonl")
        return [json.loads(line)["state"] for line in path.read_text().splitlines()]

    def audited(self) -> list[str]:
        return [
            line.entry.text for line in AuditLog(self.audit).read_lines() if line.entry is not None
        ]

    def sent(self) -> list[str]:
        return [what for what in self.server.requests if not what.startswith("GET ")]


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    server = LocalRunPod(settle_s=0.0)
    await server.start()
    server.add_pod(POD, BOX, cost=0.5, persistent=10.0)
    ref = ProviderRef("runpod", POD, base_url=server.base_url, key_env=KEY)
    spec = BoxSpec(name=BOX, host="127.0.0.1", profile="runpod", provider=ref)
    bundle = AgentBundle(data=b"", digest="", filename="")
    session = BoxSession(
        spec, load_profile("runpod"), bundle, ConnectLimit(), lambda: 1.8e9, lambda _: None
    )
    meters = FleetMeters(
        {BOX: session}, seconds=60, clock=lambda: 1.8e9, say=print, env={KEY: server.key}
    )
    journal = Journal(tmp_path / "journal", clock=lambda: 1.8e9)
    said: list[tuple[str, str]] = []
    parked: list[tuple[str, float]] = []

    def say(text: str, level: str = "info") -> None:
        said.append((level, text))

    found = OpenActions(
        journal,
        AuditLog(tmp_path / "audit.jsonl"),
        {BOX: session},
        meters,
        clock=lambda: 1.8e9,
        say=say,
        parked=lambda box, at: parked.append((box, at)),
    )
    audit = tmp_path / "audit.jsonl"
    yield World(server, session, meters, journal, found, audit, target_of(ref), said, parked)
    await meters.close()
    await server.stop()


@pytest.mark.parametrize("state", COURSES, ids=str)
@pytest.mark.parametrize("verb", list(BillingVerb))
async def test_what_was_done_is_found_out_and_nothing_is_sent(
    world: World, verb: BillingVerb, state: ActionState
) -> None:
    world.server.pods[POD].status = "EXITED" if verb is BillingVerb.PARK else "TERMINATED"
    world.crashed(verb, *COURSES[state])
    assert await world.open.check_actions() == ()
    assert world.states()[-1] == "off"
    assert world.journal.open_actions() == ((), ())
    assert world.sent() == []
    (text,) = world.audited()
    assert text.startswith("off, found later")
    assert [level for level, _ in world.said] == ["warn", "info"]
    assert "not sent again" in world.said[0][1]
    requests = len(world.server.requests)
    assert await world.open.check_actions() == ()
    assert len(world.server.requests) == requests, "what is settled is asked for no more"


@pytest.mark.parametrize("state", COURSES, ids=str)
async def test_what_was_not_done_is_waited_for_then_said_and_never_sent_again(
    world: World, state: ActionState
) -> None:
    world.crashed(BillingVerb.DESTROY, *COURSES[state])
    for _ in range(3):
        assert len(await world.open.check_actions()) == 1
    assert world.states()[-1] == state
    world.age(SETTLE_SECONDS)
    assert await world.open.check_actions() == ()
    assert world.states()[-1] == "failed"
    level, text = world.said[-1]
    later = re.search(r"RUNNING (\d+) s later, so it was not done", text)
    assert level == "error" and later is not None
    assert SETTLE_SECONDS <= int(later[1]) < SETTLE_SECONDS + 60.0  # the test itself takes its time
    assert world.sent() == []


async def test_an_action_that_came_to_no_call_is_closed_without_asking(world: World) -> None:
    world.crashed(BillingVerb.DESTROY)
    assert await world.open.check_actions() == ()
    assert world.states() == ["intent", "refused"]
    assert world.server.requests == []
    assert "nothing was sent" in world.said[0][1]


@pytest.mark.parametrize("age", [0.0, 9e6])
async def test_a_provider_that_cannot_be_asked_settles_nothing(world: World, age: float) -> None:
    world.crashed(BillingVerb.DESTROY, SENT)
    world.age(age)
    world.server.inject_faults(InjectedFault(on="GET ", status=500, times=-1))
    assert len(await world.open.check_actions()) == 1
    assert world.states() == ["intent", "sent"]


async def test_a_parked_machine_that_is_gone_has_failed_loudly(world: World) -> None:
    world.crashed(BillingVerb.PARK, SENT)
    world.server.pods[POD].status = "TERMINATED"
    assert await world.open.check_actions() == ()
    assert world.states()[-1] == "failed"
    assert "its disks are lost too" in world.said[-1][1]


async def test_what_bills_on_is_asked_for_until_it_is_known(world: World) -> None:
    world.crashed(BillingVerb.PARK, SENT)
    world.server.pods[POD].status = "EXITED"
    world.server.inject_faults(InjectedFault(on="GET /v2/pods/", change=_no_mounts, times=2))
    assert len(await world.open.check_actions()) == 1
    assert len(await world.open.check_actions()) == 1
    assert await world.open.check_actions() == ()
    assert world.states() == ["intent", "sent", "confirmed", "off"]


async def test_what_another_process_is_at_is_left_alone(world: World) -> None:
    world.crashed(BillingVerb.DESTROY, SENT)
    with world.journal.lock_instance(world.target, BOX, BillingVerb.DESTROY):
        assert await world.open.check_actions() == ()
    assert world.states() == ["intent", "sent"]
    assert world.server.requests == []


async def test_a_machine_of_another_fleet_file_is_named_once(world: World) -> None:
    world.crashed(
        BillingVerb.DESTROY,
        SENT,
        target=InstanceTarget(kind="runpod", account=world.target.account, instance="other"),
    )
    for _ in range(2):
        assert len(await world.open.check_actions()) == 1
    assert len(world.said) == 1 and "check its console" in world.said[0][1]
    assert world.server.requests == []


async def test_a_journal_that_cannot_be_read_is_said(world: World) -> None:
    world.crashed(BillingVerb.DESTROY, SENT)
    (path,) = world.journal.folder.glob("*.jsonl")
    path.write_text("?\n")
    await world.open.check_actions()
    assert [level for level, _ in world.said] == ["error"]


def _no_mounts(data: object) -> object:
    assert isinstance(data, dict)
    return {**data, "mounts": None}


def test_a_target_tells_accounts_apart() -> None:
    mine = ProviderRef("runpod", "k3v9")
    others = (
        msgspec.structs.replace(mine, key_env="OTHER"),
        msgspec.structs.replace(mine, base_url="https://else"),
        msgspec.structs.replace(mine, instance="k3v8"),
        msgspec.structs.replace(mine, kind="vast"),
    )
    assert len({target_of(ref).file_name for ref in (mine, *others)}) == 5


@pytest.mark.parametrize(
    ("verb", "state", "known"),
    [
        (BillingVerb.PARK, OFF, True),
        (BillingVerb.PARK, CONFIRMED, True),
        (BillingVerb.PARK, FAILED, False),
        (BillingVerb.DESTROY, OFF, False),
    ],
)
async def test_a_park_of_an_earlier_rgt_is_told_at_the_start(
    world: World, verb: BillingVerb, state: ActionState, known: bool
) -> None:
    """From its call on, the clocks of its platform count, whoever has sent it."""
    world.crashed(verb, SENT, state)
    world.age(3600.0)
    await world.open.recall_parks()
    assert world.parked == ([(BOX, 1.8e9 - 3600.0)] if known else [])


async def test_a_park_counts_by_name_where_no_provider_is_asked_any_more(world: World) -> None:
    world.crashed(BillingVerb.PARK, SENT, OFF)
    bare = msgspec.structs.replace(world.session.state.spec, provider=None)
    world.session.state = msgspec.structs.replace(world.session.state, spec=bare)
    await world.open.recall_parks()
    assert world.parked == [(BOX, 1.8e9)]


async def test_a_park_of_another_machine_of_that_name_is_not_its_own(world: World) -> None:
    other = msgspec.structs.replace(world.target, instance="pod2")
    world.crashed(BillingVerb.PARK, SENT, OFF, target=other)
    await world.open.recall_parks()
    assert world.parked == []


async def test_a_park_that_turns_out_to_be_done_is_told(world: World) -> None:
    world.server.pods[POD].status = "EXITED"
    world.crashed(BillingVerb.PARK, SENT)
    world.age(60.0)
    await world.open.check_actions()
    assert world.parked == [(BOX, 1.8e9 - 60.0)]


async def test_a_call_that_nobody_saw_end_is_an_alert_until_it_is_known(world: World) -> None:
    world.crashed(BillingVerb.PARK, SENT)
    await world.open.check_actions()
    (alert,) = [
        one for one in assess_box(world.session.state, 1.8e9).alerts if one.kind == "unconfirmed"
    ]
    assert (alert.level, alert.text) == ("error", world.session.state.open_action)
    assert f"park of {BOX} ({POD}) is open since" in alert.text
    world.server.pods[POD].status = "EXITED"
    await world.open.check_actions()
    assert world.session.state.open_action == ""
    assert "unconfirmed" not in [one.kind for one in assess_box(world.session.state, 1.8e9).alerts]
