"""A billing action through the fleet: real provider, gate, journal and audit log; the box is set by hand."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import pytest

from rgt_tui.demo import LocalRequest, LocalResponse, LocalRunPod
from rgt_tui.fleet import (
    BoxSession,
    ConnectLimit,
    EvidenceQueries,
    FleetMeters,
    GateClosed,
    ResultsRequest,
    Teardown,
    billing_actions,
)
from rgt_tui.gate import AuditLog, InstanceTarget, Journal
from rgt_tui.model import (
    ActionReview,
    BillingVerb,
    BoxResults,
    BoxSpec,
    BoxState,
    CopyProgram,
    CopyProof,
    DiskReading,
    FoundRun,
    GpuReading,
    Hello,
    Lifecycle,
    LinkState,
    MountRow,
    ProviderRef,
    QueueCell,
    QueueState,
    ReceivedTimes,
    ResultGroup,
    Sample,
    Seal,
    SkippedFiles,
    StopPhase,
    TrainingProcess,
    steady_time,
)
from rgt_tui.profiles import load_profile
from rgt_tui.ssh import AgentBundle, CommandFailed, Unreachable

BOX = "lab"
KEY = "RGT_TEST_KEY"
GB = 10**9
replace = msgspec.structs.replace
KINDS = {"/": "overlay", "/workspace": "xfs", "/net": "nfs4"}
MOUNTS = tuple(MountRow(path=path, kind=kind, device=kind) for path, kind in KINDS.items())
SAFE = ResultGroup(
    path="/workspace/a", owner="cell a", files=1, bytes=GB, newest=1.0, fingerprint="a"
)
"""On the network volume, which outlives the pod."""


@dataclass
class World:
    """One box by hand, and everything else as it is."""

    server: LocalRunPod
    session: BoxSession
    meters: FleetMeters
    folder: Path
    groups: tuple[ResultGroup, ...] = (SAFE,)
    proofs: tuple[CopyProof, ...] = ()
    busy: tuple[str, ...] = ()
    """Seen when the box is sealed."""
    fault: str = ""
    """Why the box answers no question."""
    silent: bool = False
    """The box tells no sample any more."""
    asked: list[str] = field(default_factory=list)
    later: float = 0.0
    """Seconds by which the steady clock is ahead of this test."""
    lists_for: float = 0.0
    """Seconds that the box takes to list its results, by that clock; it goes on telling samples meanwhile."""
    listing: asyncio.Event | None = None
    """Set once the box may say what it has listed; None = at once."""
    skipped: tuple[SkippedFiles, ...] = ()
    mounts: tuple[MountRow, ...] = MOUNTS
    before_seal: Callable[[], None] | None = None
    """What happens on the box between the list and the seal."""
    teardown: Teardown = field(init=False)
    log: list[str] = field(default_factory=list)
    """What was done, in order: questions and calls."""

    def __post_init__(self) -> None:
        self.teardown = self.another()

    def another(self, **arguments: Any) -> Teardown:
        """Return a Teardown as another rgt would have it."""
        asking = EvidenceQueries(
            look=self._look,
            results=self._results,
            seal=self._seal,
            unseal=self._unseal,
            unsealed=lambda box: self.fault or None,
            copies=self._copies,
        )
        sessions, profiles = {BOX: self.session}, {BOX: load_profile("runpod")}
        audit = self.folder / "audit.jsonl"
        arguments.setdefault("ticks", self.ticks)
        return Teardown(
            sessions, profiles, self.meters, audit, time.time, asking=asking, **arguments
        )

    def ticks(self) -> float:
        return steady_time() + self.later

    async def _look(self, box: BoxSession) -> float:
        self.log.append("look")
        begun = self.ticks()
        if not self.silent:
            self.put()
        return begun

    def _listed(self, wanted: ResultsRequest) -> BoxResults:
        """List what is asked for, as the agent does: what lies on storage that outlives the verb is not looked at."""
        stays = tuple(f"{place.rstrip('/')}/" for place in wanted.survives)
        groups = tuple(
            group for group in self.groups if not group.path.startswith(stays or ("//",))
        )
        generation = "|".join(f"{group.path} {group.fingerprint}" for group in groups)
        return BoxResults(
            at=time.time(),
            generation=generation,
            groups=groups,
            skipped=self.skipped,
            mounts=self.mounts,
        )

    async def _results(self, box: BoxSession, wanted: ResultsRequest) -> BoxResults:
        self.log.append("results")
        if self.fault:
            raise Unreachable(self.fault)
        if self.listing is not None:
            await self.listing.wait()
        if self.lists_for:
            self.later += self.lists_for
            self.put()
        return self._listed(wanted)

    async def _seal(self, box: BoxSession, wanted: ResultsRequest) -> Seal:
        self.log.append("seal")
        if self.fault:
            raise CommandFailed(self.fault)
        if self.before_seal is not None:
            self.before_seal()
        now = self._listed(wanted)
        return Seal(
            nonce="s" * 32,
            generation=now.generation,
            at=time.time(),
            seconds=120.0,
            skipped=now.skipped,
            problems=now.problems,
            mounts=now.mounts,
            busy=self.busy,
        )

    async def _unseal(self, box: BoxSession, nonce: str) -> None:
        self.log.append("unseal")

    async def _copies(
        self, box: str, instance: str, groups: Iterable[ResultGroup]
    ) -> tuple[CopyProof, ...]:
        return self.proofs

    def put(self, **changes: object) -> None:
        """Change the box's state, with a sample of this very moment."""
        base: BoxState = self.session.state
        seen = replace(base.seen, sample=self.ticks())
        self.session.state = replace(base, sample_at=time.time(), **{"seen": seen, **changes})

    def sample(self, **changes: object) -> None:
        """Change the newest sample."""
        assert self.session.state.sample is not None
        self.put(sample=replace(self.session.state.sample, **changes))

    def lines(self) -> list[dict[str, object]]:
        """Return the audit log."""
        path = self.folder / "audit.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def sent(self) -> list[str]:
        """Return what the provider was told to do."""
        return [what for what in self.server.requests if not what.startswith("GET ")]

    async def review(self, verb: BillingVerb = BillingVerb.DESTROY, **choices: Any) -> ActionReview:
        return await self.teardown.review_action(BOX, verb, **choices)

    async def execute(
        self, verb: BillingVerb = BillingVerb.PARK, typed: str = BOX, **choices: Any
    ) -> list[StopPhase]:
        return [
            step.phase async for step in self.teardown.execute_action(BOX, verb, typed, **choices)
        ]

    async def refused(
        self, verb: BillingVerb = BillingVerb.DESTROY, typed: str = BOX, **choices: Any
    ) -> str:
        """Try, and return why it was refused; nothing may have gone out."""
        before = self.sent()
        with pytest.raises(GateClosed) as closed:
            await self.execute(verb, typed, **choices)
        assert self.sent() == before
        return " | ".join(closed.value.reasons)


def quiet_state(spec: BoxSpec) -> BoxState:
    now = time.time()
    cell = QueueCell(
        name="a",
        cfg="a.yaml",
        task="t",
        state="done",
        ended=now - 60,
        durable="verified",
        durable_path="/net/a",
    )
    disks = tuple(
        DiskReading(
            mount=mount,
            kind=kind,
            bytes_total=9,
            bytes_used=1,
            bytes_free=8,
            inodes_total=9,
            inodes_used=1,
        )
        for mount, kind in KINDS.items()
    )
    return BoxState(
        spec=spec,
        link=LinkState.LIVE,
        hello=Hello(
            proto=1,
            agent="0" * 16,
            boot="b",
            host="h",
            python="3.11",
            pid=1,
            at=now,
            identity={"RUNPOD_POD_ID": "pod1"},
        ),
        sample=Sample(boot="b", seq=1, at=now, disks=disks, transfers=(), input_at=0.0),
        sample_at=now,
        clock_skew=0.0,
        queues=(QueueState(path="/q", at=now, cells=(cell,), done=True),),
        seen=ReceivedTimes(sample=steady_time(), queues={"/q": steady_time()}),
    )


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    server = LocalRunPod(settle_s=0.0)
    await server.start()
    server.add_pod("pod1", BOX, cost=0.5, persistent=10.0, networks=(("vol", "/net"),))
    spec = BoxSpec(
        name=BOX,
        host="127.0.0.1",
        profile="runpod",
        tiers={"/net": "network-volume"},
        provider=ProviderRef("runpod", "pod1", base_url=server.base_url, key_env=KEY),
    )
    bundle = AgentBundle(data=b"", digest="", filename="")
    session = BoxSession(
        spec, load_profile("runpod"), bundle, ConnectLimit(), time.time, lambda _: None
    )
    session.state = quiet_state(spec)
    meters = FleetMeters(
        {BOX: session}, seconds=60, clock=time.time, say=print, env={KEY: server.key}
    )
    yield World(server, session, meters, tmp_path)
    await meters.close()
    await server.stop()


async def test_a_quiet_box_is_parked_and_every_step_is_recorded(world: World) -> None:
    review = await world.review(BillingVerb.PARK)
    assert review.refusals == ()
    assert review.native_label == "Stop"
    assert review.per_hour is not None
    assert '{"action":"stop"}' in review.will_send
    phases = await world.execute()
    assert phases == [StopPhase.REQUESTED, StopPhase.CONFIRMED, StopPhase.METER_OFF]
    assert world.sent() == ["POST /v2/pods/pod1/action"]
    assert world.session.state.meter.lifecycle is Lifecycle.STOPPED
    assert [line["event"] for line in world.lines()] == ["requested", "answer", "answer", "answer"]
    assert all(line["typed"] == BOX and line["shown"] for line in world.lines())
    (path,) = (world.folder / "journal").glob("*.jsonl")
    states = [json.loads(line)["state"] for line in path.read_text().splitlines()]
    assert states == ["intent", "sent", "answered", "confirmed", "off"]
    hashes = [line.hash for line in AuditLog(world.folder / "audit.jsonl").read_lines()]
    assert [one.audit for one in Journal(world.folder / "journal").iterate_audited()] == hashes, (
        "each is vouched for"
    )


async def test_a_finished_box_is_destroyed_under_its_seal(world: World) -> None:
    assert (await world.review()).refusals == ()
    world.log.clear()
    assert (await world.execute(BillingVerb.DESTROY))[-1] is StopPhase.METER_OFF
    assert world.log == ["results", "look", "seal", "unseal"], (
        "asked anew at OK, then held still, then the call"
    )
    assert world.sent() == ["DELETE /v2/pods/pod1"]


# Each of these sent a DELETE once.


async def test_evidence_of_another_machine_destroys_nothing(world: World) -> None:
    """The fleet file names one pod, and leads to another one."""
    world.server.pods["pod1"].host, world.server.pods["pod1"].port = "203.0.113.9", 40022
    hello = world.session.state.hello
    assert hello is not None
    world.put(hello=replace(hello, identity={}), peer=("127.0.0.1", 2222))
    review = await world.review(forfeits=frozenset({"identity"}))
    assert "rgt is connected to 127.0.0.1:2222" in review.refusals[0]
    assert "203.0.113.9:40022" in await world.refused(forfeits=frozenset({"identity"}))
    world.put(hello=replace(hello, identity={"RUNPOD_POD_ID": "pod2"}), peer=None)
    assert "calls itself pod2" in await world.refused(forfeits=frozenset({"identity"}))


async def test_results_that_nobody_listed_keep_the_box(world: World) -> None:
    world.put(queues=(QueueState(path="/q", at=time.time()),))
    lone = ResultGroup(
        path="/workspace/hf/out", owner="run hf/train.py", files=9, bytes=3 * GB, fingerprint="x"
    )
    world.groups = (lone,)
    assert (
        "/workspace/hf/out (run hf/train.py, 9 files, 3.0 GB) is erased; not pulled"
        in await world.refused()
    )
    world.proofs = (
        CopyProof(path=lone.path, fingerprint="x", where="/home/me/out", files=9, bytes=3 * GB),
    )
    assert (await world.execute(BillingVerb.DESTROY))[-1] is StopPhase.METER_OFF


async def test_a_checkpoint_newer_than_its_verified_copy_keeps_the_box(world: World) -> None:
    newer = ResultGroup(
        path="/workspace/a",
        owner="cell a",
        files=2,
        bytes=GB,
        newest=time.time() + 7200,
        newest_path="/workspace/a/step-9.pt",
        fingerprint="x",
    )
    world.groups = (newer,)
    assert "newer than its verified copy at /net/a: /workspace/a/step-9.pt" in await world.refused()
    world.groups = (replace(newer, newest=time.time() - 90),)
    assert (await world.execute(BillingVerb.DESTROY))[-1] is StopPhase.METER_OFF


async def test_a_flipped_byte_of_a_copy_is_named_by_its_file(world: World) -> None:
    world.groups = (ResultGroup(path="/workspace/x", files=1, bytes=GB, fingerprint="x"),)
    world.proofs = (
        CopyProof(
            path="/workspace/x",
            fingerprint="x",
            where="/pulled",
            errors=(("/pulled/last.pt", "sha256 differs"),),
        ),
    )
    assert "/pulled/last.pt: sha256 differs" in await world.refused()


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        (
            {"gpus": (GpuReading(index=0, name="H100", util=0.0, vram_used=70 * GB),)},
            "holds 65.2 GiB of GPU 0 at 0%",
        ),
        (
            {"gpus": (GpuReading(index=0, name="H100", vram_used=70 * GB),)},
            "at a use that cannot be read",
        ),
        ({"transfers": (CopyProgram(pid=9, name="rsync"),)}, "files are being copied: rsync"),
        ({"input_at": 1e12}, "somebody typed at a terminal"),
        ({"procs": (TrainingProcess(pid=231, started=1.0, cmd="train"),)}, "pid 231"),
    ],
)
async def test_a_box_that_is_not_quiet_is_kept(
    world: World, changes: dict[str, object], why: str
) -> None:
    world.sample(**changes)
    for verb in BillingVerb:
        assert any(why in reason for reason in (await world.review(verb)).refusals)
        assert why in await world.refused(verb)


async def test_a_training_that_was_found_alive_keeps_the_box(world: World) -> None:
    run = FoundRun(name="hf/train.py", pid=70, started=1.0, command="python train.py")
    world.put(found=(run,))
    assert "hf/train.py is training: found alive" in await world.refused()


async def test_at_ok_the_box_is_asked_anew(world: World) -> None:
    """A sample of nine seconds ago says nothing about the last nine seconds."""
    assert (await world.review()).refusals == ()
    world.silent = True
    assert "not answered the request" in await world.refused()


async def test_an_item_is_as_old_as_what_it_was_read_from(world: World) -> None:
    world.put(seen=ReceivedTimes(sample=steady_time(), queues={"/q": steady_time() - 6 * 3600}))
    review = await world.review()
    (queue,) = [item for item in review.items if item.kind == "queue"]
    age = review.item_age_s(queue, review.at)
    assert age is not None and 6 * 3600 <= age < 6 * 3600 + 60


async def test_a_training_that_begins_before_the_call_stops_it_and_the_seal_is_opened(
    world: World,
) -> None:
    assert (await world.review()).refusals == ()
    world.busy = ("a training process began: pid 300",)
    assert "seen when it was sealed: a training process began: pid 300" in await world.refused()
    assert world.log[-2:] == ["seal", "unseal"]
    assert [line["event"] for line in world.lines()] == ["requested", "refused"]
    world.busy = ()
    assert (await world.execute(BillingVerb.DESTROY))[-1] is StopPhase.METER_OFF


async def test_a_file_that_came_after_the_list_stops_the_call(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    seal = world._seal

    async def later(box: BoxSession, wanted: ResultsRequest) -> Seal:
        world.groups = (replace(SAFE, fingerprint="newer"),)
        return await seal(box, wanted)

    monkeypatch.setattr(world, "_seal", later)
    world.teardown = world.another()
    assert "files on the box have changed since they were listed" in await world.refused()
    assert world.log[-1] == "unseal"


async def test_what_changes_while_it_is_sealed_stops_the_call(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    seal = world._seal

    async def later(box: BoxSession, wanted: ResultsRequest) -> Seal:
        world.sample(procs=(TrainingProcess(pid=300, started=1.0, cmd="train"),))
        return await seal(box, wanted)

    monkeypatch.setattr(world, "_seal", later)
    world.teardown = world.another()
    assert "pid 300" in await world.refused()
    assert world.log[-1] == "unseal"


async def test_without_an_agent_there_is_no_seal_and_that_has_to_be_given_up(world: World) -> None:
    world.fault = "the agent does not run on lab"
    keys = frozenset({"seal", "results"})
    assert [item.key for item in (await world.review()).items if item.is_blocking] == [
        "results",
        "seal",
        "name",
    ]
    assert "cannot be sealed for the call" in await world.refused()
    assert "something is given up" in await world.refused(forfeits=keys)
    review = await world.review(forfeits=keys)
    assert review.phrase == "forfeit 2 of lab"
    assert (await world.execute(BillingVerb.DESTROY, review.phrase, forfeits=keys))[
        -1
    ] is StopPhase.METER_OFF
    assert "seal" not in world.log


async def test_a_seal_that_fails_is_refused_and_can_be_given_up_afterwards(world: World) -> None:
    async def broken(box: BoxSession, wanted: ResultsRequest) -> Seal:
        raise CommandFailed("rgt-box seal: no space left")

    asking = world.teardown._asking
    world.teardown = world.another()
    world.teardown._asking = EvidenceQueries(**{**vars(asking), "seal": broken})
    assert "no space left" in await world.refused()
    review = await world.review(forfeits=frozenset({"seal"}))
    assert [forfeit.key for forfeit in review.forfeits] == ["seal"]
    assert (await world.execute(BillingVerb.DESTROY, review.phrase, forfeits=frozenset({"seal"})))[
        -1
    ] is StopPhase.METER_OFF


async def test_where_person_and_provider_disagree_on_a_disk_the_worse_counts(world: World) -> None:
    world.server.pods["pod1"].networks = ()
    spec = replace(world.session.state.spec, tiers={"/workspace": "network-volume"})
    cell = replace(world.session.state.queues[0].cells[0], durable_path="/workspace/safe")
    world.put(spec=spec, queues=(QueueState(path="/q", at=time.time(), cells=(cell,)),))
    world.groups = (
        ResultGroup(path="/workspace/a", owner="cell a", files=1, bytes=GB, fingerprint="x"),
    )
    assert "/workspace/a (cell a, 1 file, 1.0 GB) is erased" in await world.refused()
    notes = [item.text for item in (await world.review()).items if item.kind == "tiers"]
    assert any(
        "network-volume by the fleet file and volume-disk by the provider" in note for note in notes
    )


async def test_a_second_rgt_is_told_who_acts(world: World) -> None:
    spec = world.session.state.spec
    assert spec.provider is not None
    target = InstanceTarget(kind="runpod", account=spec.provider.account, instance="pod1")
    with Journal(world.folder / "journal").lock_instance(target, BOX, BillingVerb.DESTROY):
        assert "acts on the instance pod1" in await world.refused()
    with Journal(world.folder / "journal").lock_instance(
        target, BOX, BillingVerb.DESTROY
    ) as action:
        action.record_intent("DELETE")
        action.record_sent("DELETE")
    assert "settle that first" in await world.refused()
    assert world.sent() == []


async def test_a_review_names_what_an_earlier_rgt_left_open(world: World) -> None:
    spec = world.session.state.spec
    assert spec.provider is not None
    target = InstanceTarget(kind="runpod", account=spec.provider.account, instance="pod1")
    for instance, sent in (("pod2", True), ("pod1", False), ("pod1", True)):
        other = InstanceTarget(kind="runpod", account=target.account, instance=instance)
        with Journal(world.folder / "journal").lock_instance(
            other, BOX, BillingVerb.DESTROY
        ) as action:
            action.record_intent("DELETE")
            if sent:
                action.record_sent("DELETE")
        review = await world.review()
        shown = [item for item in review.items if item.kind == "open"]
        assert len(shown) == (instance == "pod1" and sent)
    assert shown[0].is_blocking
    assert not shown[0].forfeitable
    assert "destroy of lab (pod1) is open since" in shown[0].text
    assert shown[0].text in review.refusals


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (
            {"skipped": (SkippedFiles(rule="caches", files=9, bytes=GB),)},
            "left out by a rule: caches",
        ),
        ({"mounts": (MountRow(path="/", kind="overlay", device="overlay"),)}, "/workspace/a"),
        (
            {"skipped": (SkippedFiles(rule="compiled Python", files=9, bytes=9, proved=True),)},
            "something changed",
        ),
    ],
)
async def test_a_list_whose_rules_or_mounts_change_before_the_seal_stops_the_call(
    world: World, change: dict[str, object], why: str
) -> None:
    """The seal's generation covers the files that could be lost, and the decision rests on more than these."""
    await world.review()

    def happens() -> None:
        for name, value in change.items():
            setattr(world, name, value)

    world.before_seal = happens
    assert why in await world.refused()
    assert world.sent() == []


async def test_results_are_listed_anew_once_their_copies_have_changed(world: World) -> None:
    world.groups = (ResultGroup(path="/workspace/x", files=1, bytes=GB, fingerprint="x"),)
    assert (await world.review()).refusals
    world.proofs = (CopyProof(path="/workspace/x", fingerprint="x", where="/pulled"),)
    assert (await world.review()).refusals, "a list is good for a while"
    world.teardown.invalidate_results(BOX)
    review = await world.review()
    assert not review.refusals
    (row,) = [item for item in review.items if item.path == "/workspace/x"]
    assert (row.ok, row.ignorable, row.forfeitable) == (True, False, False)
    assert (
        row.text == "/workspace/x (nobody owns it, 1 file, 1.0 GB) has a verified copy in /pulled"
    )


async def test_a_row_of_the_newest_list_is_pulled_as_that_list_was_made(world: World) -> None:
    world.groups = (ResultGroup(path="/root", files=1, bytes=163, fingerprint="x"),)
    assert world.teardown.listed_with(BOX, ("/root",)) is None, "nothing was listed yet"
    await world.review(BillingVerb.DESTROY)
    wanted = world.teardown.listed_with(BOX, ("/root",))
    assert wanted is not None
    assert world._listed(wanted).groups == world.groups
    assert world.teardown.listed_with(BOX, ("/root", "/typed/by/hand")) is None
    assert world.teardown.listed_with(BOX, ()) is None


async def test_who_asks_once_waits_for_a_list_that_takes_long(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(billing_actions, "LIST_SECONDS", 0.0)
    world.listing = asyncio.Event()
    review = await world.review(patience=0.0)
    assert review.refusals == ("the files on the box are unknown: the box is listing it",)
    waits = asyncio.create_task(world.review(patience=None))
    assert (await asyncio.wait([waits], timeout=0.5))[1] == {waits}
    world.listing.set()
    assert (await waits).refusals == ()
    assert world.log.count("results") == 1, "both wait for one list"


async def test_a_digest_is_as_old_as_the_end_of_its_dry_run_and_judged_when_the_order_is_given(
    world: World,
) -> None:
    world.lists_for = 200.0
    dry = await world.review()
    assert (dry.refusals, int(dry.digest.rpartition("-")[2])) == ((), int(dry.steady_at or 0.0))
    assert world.ticks() - (dry.steady_at or 0.0) < 100.0
    ordered = world.ticks() + 30.0
    world.later += 90.0  # the second rgt connects, and lists it all anew
    world.teardown = world.another()
    world.put()
    assert "older than 60 s" in await world.refused(evidence_digest=dry.digest)
    phases = await world.execute(
        BillingVerb.DESTROY, evidence_digest=dry.digest, ordered_at=ordered
    )
    assert phases[-1] is StopPhase.METER_OFF


async def test_a_reading_of_the_provider_that_took_too_long_is_taken_anew(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow, answer = 1, world.server.handle_request

    def handle(request: LocalRequest) -> LocalResponse:
        nonlocal slow
        slow, late = slow - 1, slow > 0
        if late:
            world.later += 20.0
            world.put()  # it goes on telling samples
        return answer(request)

    monkeypatch.setattr(world.server, "handle_request", handle)
    assert (await world.review()).refusals == ()
    slow = 100
    refusals = (await world.review()).refusals
    assert any("s old, at most 15 s are allowed" in why for why in refusals), refusals
    slow = 1
    assert (await world.execute(BillingVerb.DESTROY))[-1] is StopPhase.METER_OFF


# What a person gives up, lifts or looks at.


async def test_a_wrong_name_sends_nothing(world: World) -> None:
    for typed in ("", "Lab", "lab ", "lаb"):  # the last one has a Cyrillic letter
        await world.refused(typed=typed)
    assert world.sent() == []


async def test_what_changed_since_it_was_shown_closes_the_gate(world: World) -> None:
    """The provider still accepts the stop, but what goes on billing is no longer what the person read."""
    await world.review(BillingVerb.PARK)
    world.server.pods["pod1"].persistent = 500.0
    assert "what keeps billing has changed" in await world.refused(BillingVerb.PARK)
    await world.review(BillingVerb.PARK)
    assert (await world.execute())[-1] is StopPhase.METER_OFF


async def test_what_nobody_owns_is_ignored_or_given_up_by_its_name(world: World) -> None:
    lone = ResultGroup(
        path="/workspace/tmp", files=4, bytes=5 * GB, newest=time.time() - 50, fingerprint="x"
    )
    world.groups = (SAFE, lone)
    key = frozenset({"results:/workspace/tmp"})
    assert "nobody owns it, 4 files, 5.0 GB" in await world.refused()
    review = await world.review(forfeits=key)
    assert (review.refusals, review.forfeits[0].bytes, review.phrase) == (
        (),
        5 * GB,
        "forfeit 1 of lab",
    )
    assert "but not in the review" not in await world.refused(forfeits=key)
    world.groups = (SAFE, replace(lone, fingerprint="newer"))
    assert "the item given up differs from the review" in await world.refused(
        typed="forfeit 1 of lab", forfeits=key
    )
    review = await world.review(ignored=key)
    assert (review.refusals, review.phrase) == ((), BOX)
    assert (await world.execute(BillingVerb.DESTROY, ignored=key))[-1] is StopPhase.METER_OFF


async def test_an_unreachable_box_is_given_up_item_by_item_and_by_its_instance(
    world: World,
) -> None:
    world.put(link=LinkState.UNREACHABLE, reason="ssh: timed out")
    world.fault = "lab is not connected"
    review = await world.review()
    keys = frozenset(item.key for item in review.items if item.is_blocking and item.forfeitable)
    assert keys == {"identity", "quiet:unseen", "results", "seal"}
    review = await world.review(forfeits=keys)
    assert (review.refusals, review.phrase) == ((), "forfeit 4 of lab pod1")
    await world.refused(typed="forfeit 4 of lab", forfeits=keys)
    assert (await world.execute(BillingVerb.DESTROY, review.phrase, forfeits=keys))[
        -1
    ] is StopPhase.METER_OFF


async def test_a_parked_box_can_be_destroyed_later_by_another_rgt(world: World) -> None:
    await world.execute(BillingVerb.PARK)
    world.put(link=LinkState.UNREACHABLE, queues=(), hello=None, sample=None, seen=ReceivedTimes())
    world.fault = "lab is not connected"
    world.teardown = world.another()
    assert (await world.review()).refusals == ()
    assert (await world.execute(BillingVerb.DESTROY))[-1] is StopPhase.METER_OFF
    assert list((world.folder / "parked").iterdir()) == []


async def test_what_a_park_keeps_and_nobody_has_pulled_is_not_destroyed_later(world: World) -> None:
    """A park lists what a destroy would take as well: the box cannot be asked any more when that comes."""
    world.groups = (
        SAFE,
        ResultGroup(path="/workspace/b", files=1, bytes=GB, newest=1.0, fingerprint="b"),
    )
    await world.execute(BillingVerb.PARK)
    world.put(link=LinkState.UNREACHABLE, queues=(), hello=None, sample=None, seen=ReceivedTimes())
    world.fault = "lab is not connected"
    world.teardown = world.another()
    assert "/workspace/b" in await world.refused()
    assert world.server.requests.count("DELETE /v2/pods/pod1") == 0


async def test_a_box_that_was_started_since_its_park_is_not_what_it_was(world: World) -> None:
    await world.execute(BillingVerb.PARK)
    world.put(link=LinkState.UNREACHABLE, queues=(), hello=None, sample=None, seen=ReceivedTimes())
    world.fault = "lab is not connected"
    pod = world.server.pods["pod1"]
    pod.started = time.time() + 60
    assert "no proof that this machine is pod1" in await world.refused()
    pod.started = None
    assert (await world.review()).refusals == ()
    pod.status = "RUNNING"
    world.teardown = world.another()
    await world.review()
    pod.status = "EXITED"
    assert "no proof that this machine is pod1" in await world.refused()


async def test_a_protected_box_needs_an_act_of_its_own(world: World) -> None:
    world.put(spec=replace(world.session.state.spec, protected=True))
    assert (await world.review()).unprotect == "unprotect lab"
    assert "protected in the fleet file" in await world.refused()
    review = await world.review(unprotect="unprotect lab")
    assert (review.refusals, review.unprotect) == ((), "")
    assert (await world.execute(BillingVerb.DESTROY, unprotect="unprotect lab"))[
        -1
    ] is StopPhase.METER_OFF


async def test_readonly_refuses_every_action(world: World) -> None:
    world.teardown = world.another(readonly=True)
    for verb in BillingVerb:
        assert (await world.review(verb)).refusals == (
            "rgt was started with --readonly: it sends no billing action",
        )
        assert "--readonly" in await world.refused(verb)
    assert world.sent() == []


async def test_a_script_confirms_the_evidence_of_its_dry_run(world: World) -> None:
    dry = (await world.review()).digest
    world.teardown = world.another()
    facts, _, made = dry.rpartition("-")
    assert "older than 60 s" in await world.refused(evidence_digest=f"{facts}-{int(made) - 90}")
    assert "has changed since the dry run" in await world.refused(
        evidence_digest=f"{'0' * 64}-{made}"
    )
    world.groups = (SAFE, ResultGroup(path="/workspace/b", files=1, bytes=GB, fingerprint="new"))
    assert "has changed since the dry run" in await world.refused(evidence_digest=dry)
    world.groups = (SAFE,)
    assert (await world.execute(BillingVerb.DESTROY, evidence_digest=dry))[
        -1
    ] is StopPhase.METER_OFF


async def test_an_action_that_cannot_be_recorded_is_not_sent(world: World) -> None:
    (world.folder / "audit.jsonl").mkdir()
    assert "Nothing was sent" in await world.refused(BillingVerb.PARK)
    (world.folder / "audit.jsonl").rmdir()
    (world.folder / "journal").rename(world.folder / "away")
    (world.folder / "journal").write_text("in the way")
    assert "Nothing was sent" in await world.refused(BillingVerb.PARK)
