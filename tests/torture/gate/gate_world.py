"""A model of boxes, their providers and the people before them, around the real gate, journal and adapter.

Real: the teardown of the fleet with gate, seals and permits, journal and audit log on a disk, the RunPod adapter and
its HTTP client. Model: the machines and what lies on them, the copies here, both clocks, the network, who dies when.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import hashlib
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import httpx
import msgspec
import pytest

from rgt_tui.demo import LocalPod
from rgt_tui.fleet import (
    SETTLE_SECONDS,
    BoxSession,
    ConnectLimit,
    EvidenceQueries,
    FleetMeters,
    GateClosed,
    OpenActions,
    ResultsRequest,
    Teardown,
    billing_actions,
    open_actions,
)
from rgt_tui.gate import (
    ActionState,
    AuditEntry,
    AuditLog,
    Journal,
    JournalRecord,
    OpenAction,
    journal,
    target_of,
)
from rgt_tui.health import LIMITS
from rgt_tui.model import (
    ActionReview,
    BillingVerb,
    BoxResults,
    BoxSpec,
    BoxState,
    CopyProof,
    DiskReading,
    Hello,
    LinkState,
    Meter,
    Permit,
    ProviderRef,
    QueueCell,
    QueueState,
    ReceivedTimes,
    ResultGroup,
    Sample,
    Seal,
    StopPhase,
    StopProgress,
    TrainingProcess,
)
from rgt_tui.profiles import load_profile
from rgt_tui.providers import PermitRefused, Provider, ProviderError, carry_out, console, runpod
from rgt_tui.ssh import AgentBundle, Unreachable
from tests.torture.gate.box_disk import BoxDisk, lost_by_park

POD = "pod1"
"""Both accounts have a pod of this id."""
SERVERS = {"lab": "https://one.example", "twin": "https://two.example"}
"""Box → the server of its account."""
HAND = "hand"
"""The box without a provider in the fleet file: rgt judges it as any other, and a person clicks."""
BOXES = (*SERVERS, HAND)
KEYS = {"lab": "KEY_ONE", "twin": "KEY_TWO"}
QUEUE = "/workspace/job"
CREATED = 1.78e9
"""When every machine of the model was made."""
PLACES = ("/workspace/cell-a", "/workspace/found", "/root/scratch", QUEUE)
"""Directories that may hold results. A park keeps those below /workspace, a destroy none."""
SEAL_SECONDS = 120.0
PROFILE = load_profile("runpod")

reached: Counter[str] = Counter()
"""What the machine has come to, over all examples: a machine that reaches nothing proves nothing."""


class Crash(BaseException):
    """This rgt is no more. What it had not written is not written, and it sends nothing."""


class Broken(AssertionError):
    """A guarantee does not hold. It counts also where rgt catches it, as whatever else an adapter raises."""

    seen: ClassVar[list[Broken]] = []

    def __init__(self, words: str) -> None:
        super().__init__(words)
        self.seen.append(self)


@dataclass
class Machine:
    """What is behind one instance."""

    pod: LocalPod
    files: dict[str, int] = field(default_factory=dict)
    """Directory → how often it was written to."""
    cell: str = "done"
    training: bool = False
    sealed_until: float = -1.0
    seals: int = 0
    typed_at: float = 0.0
    """When somebody typed at a terminal of it, by its own clock, which is ours."""
    disk: BoxDisk = field(kw_only=True)
    seen_typing: bool = False
    """Of the last look at it."""

    def fingerprint(self, path: str) -> str:
        return hashlib.sha256(f"{id(self)} {path} {self.files[path]}".encode()).hexdigest()

    def generation(self, paths: Iterable[str]) -> str:
        return hashlib.sha256(" ".join(map(self.fingerprint, sorted(paths))).encode()).hexdigest()


@dataclass
class Ok:
    """What a person has agreed to."""

    box: str
    verb: BillingVerb
    right: bool
    forfeits: dict[str, str]
    """Key of what is given up → what was shown of it."""
    machine: Machine
    """What answered when it was shown."""


@dataclass
class Rgt:
    """One running rgt."""

    teardown: Teardown
    meters: FleetMeters
    sessions: dict[str, BoxSession]
    open: OpenActions
    dead: bool = False
    ok: Ok | None = None
    said: list[str] = field(default_factory=list)


ACTING: contextvars.ContextVar[Rgt] = contextvars.ContextVar("acting")


def alive() -> Rgt:
    rgt = ACTING.get()
    if rgt.dead:
        raise Crash
    return rgt


class World:
    """Everything there is, and what has to hold of it whenever a call arrives."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.loop = asyncio.new_event_loop()
        self.wall, self.ticks = 1.79e9, 1000.0
        self._made = 0
        self.machines = {box: self._machine(box) for box in BOXES}
        """What the provider has."""
        self.spoken: dict[str, Machine] = dict(self.machines)
        """What answers where the fleet file says that the box is."""
        self.linked = dict.fromkeys(BOXES, True)
        self.deaf = False
        """No provider answers a reading."""
        self.copies: dict[tuple[str, str], tuple[str, bool]] = {}
        """Box and directory → fingerprint of what was pulled, and whether the copy is whole."""
        self.script: dict[int, Callable[[], Any]] = {}
        """After so many looks at the world → what happens then."""
        self.points = 0
        self.die: tuple[str, str] | None = None
        """``before`` or ``after``, and the state of the journal, or ``call``."""
        self.fault = ""
        """What becomes of the next call."""
        self.clicks = True
        """The person clicks on the console at once when rgt leaves it to them; else they forget it."""
        self.told_off: dict[str, set[str]] = {}
        """Box → in which states its provider has shown it off since the last call."""
        self.calls: dict[str, bool] = {}
        """Action of the journal whose call has arrived → whether it was carried out."""
        self.carried_out = False
        """The last call was."""
        self.proved = False
        """The copies were looked at for a call that is on its way."""
        self.permits: list[tuple[Provider, Permit]] = []
        self._patch(patch)
        self.rgts = [self.begin(), self.begin()]

    # What rgt sees.

    def _machine(self, box: str) -> Machine:
        self._made += 1
        root = self.folder / "machines" / str(self._made)
        pod = LocalPod(id=POD, name=box, created=CREATED, disk=20.0)
        return Machine(pod, dict.fromkeys(PLACES, 1), disk=BoxDisk(root, CREATED))

    def begin(self) -> Rgt:
        sessions = {}
        for box, server in SERVERS.items():
            ref = ProviderRef("runpod", POD, base_url=server, key_env=KEYS[box])
            spec = BoxSpec(name=box, host="127.0.0.1", profile="runpod", provider=ref)
            bundle = AgentBundle(data=b"", digest="", filename="")
            sessions[box] = BoxSession(
                spec, PROFILE, bundle, ConnectLimit(), self.clock, lambda _: None
            )
        spec = BoxSpec(name=HAND, host="127.0.0.1", port=2222, profile="runpod")
        sessions[HAND] = BoxSession(
            spec, PROFILE, bundle, ConnectLimit(), self.clock, lambda _: None
        )
        meters = FleetMeters(
            sessions, seconds=60, clock=self.clock, say=print, env={KEYS[box]: box for box in KEYS}
        )
        audit = self.folder / "audit.jsonl"
        profiles = dict.fromkeys(BOXES, PROFILE)
        teardown = Teardown(
            sessions, profiles, meters, audit, self.clock, asking=self._asking(), ticks=self.steady
        )
        said: list[str] = []
        found = OpenActions(
            Journal(self.folder / journal.JOURNAL, clock=self.clock),
            AuditLog(audit),
            sessions,
            meters,
            clock=self.clock,
            say=lambda text, *_: said.append(text),
        )
        rgt = Rgt(teardown, meters, sessions, found, said=said)
        for box in BOXES:
            self.sample(rgt, box)
        return rgt

    def clock(self) -> float:
        return self.wall

    def steady(self) -> float:
        return self.ticks

    async def sleep(self, seconds: float) -> None:
        alive()
        self.wall += seconds
        self.ticks += seconds

    def sample(self, rgt: Rgt, box: str) -> None:
        """Let rgt take in what the machine shows now; where it cannot be reached, that it cannot."""
        session, machine = rgt.sessions[box], self.spoken[box]
        if not self.linked[box] or not machine.pod.is_on:
            self.cut(rgt, box)
            return
        procs = (
            (TrainingProcess(pid=7, started=1.0, cmd="python train.py"),)
            if machine.training
            else ()
        )
        disks = tuple(
            DiskReading(
                mount=mount,
                bytes_total=9,
                bytes_used=1,
                bytes_free=8,
                inodes_total=9,
                inodes_used=1,
            )
            for mount in ("/", "/workspace")
        )
        cell = QueueCell(name="a", cfg="a.yaml", task="t", state=machine.cell, out=PLACES[0])
        busy = machine.cell == "running"
        session.state = BoxState(
            spec=session.state.spec,
            link=LinkState.LIVE,
            peer=("127.0.0.1", 2222) if box == HAND else None,
            hello=Hello(
                proto=1, agent="0" * 16, boot="b", host="h", python="3.11", pid=1, at=self.wall,
                identity={"RUNPOD_POD_ID": machine.pod.id},
            ),
            sample=Sample(
                boot="b", seq=1, at=self.wall, disks=disks, procs=procs, transfers=(), input_at=machine.typed_at
            ),
            sample_at=self.wall,
            clock_skew=0.0,
            queues=(QueueState(path=QUEUE, at=self.wall, cells=(cell,), runner_alive=busy, done=not busy),),
            meter=session.state.meter,
            seen=ReceivedTimes(sample=self.ticks, queues={QUEUE: self.ticks}),
        )  # fmt: skip

    @staticmethod
    def cut(rgt: Rgt, box: str) -> None:
        session = rgt.sessions[box]
        session.state = msgspec.structs.replace(
            session.state, link=LinkState.UNREACHABLE, reason="cut"
        )

    def _asking(self) -> EvidenceQueries:
        async def look(session: BoxSession) -> float:
            since = self.ticks
            await self.record_point()
            box = session.state.spec.name
            self.sample(alive(), box)
            machine = self.spoken[box]
            machine.seen_typing = (
                machine.typed_at > 0.0 and self.wall - machine.typed_at < LIMITS.typed_s
            )
            return since

        async def results(session: BoxSession, wanted: ResultsRequest) -> BoxResults:
            await self.record_point()
            machine = self._asked(session)
            paths = self._listed(machine, wanted)
            groups = tuple(
                ResultGroup(
                    path=path,
                    owner="cell a" if path == PLACES[0] else "",
                    files=1,
                    bytes=10,
                    newest=self.wall,
                    newest_path=f"{path}/x",
                    fingerprint=machine.fingerprint(path),
                )
                for path in paths
            )
            return BoxResults(
                at=self.wall,
                generation=machine.generation(paths),
                groups=groups,
                mounts=machine.disk.mounted(),
            )

        async def seal(session: BoxSession, wanted: ResultsRequest) -> Seal:
            await self.record_point()
            machine = self._asked(session)
            machine.sealed_until, machine.seals = self.ticks + SEAL_SECONDS, machine.seals + 1
            reached["sealed"] += 1
            busy = tuple(
                why
                for why, so in (
                    ("a training is alive", machine.training),
                    ("a cell runs", machine.cell == "running"),
                )
                if so
            )
            generation = machine.generation(self._listed(machine, wanted))
            return Seal(
                nonce=f"{machine.seals:032x}",
                generation=generation,
                at=self.wall,
                seconds=SEAL_SECONDS,
                skipped=(),
                problems=(),
                mounts=machine.disk.mounted(),
                busy=busy,
            )

        async def unseal(session: BoxSession, nonce: str) -> None:
            self._asked(session).sealed_until = -1.0
            reached["unsealed"] += 1

        def unsealed(session: BoxSession) -> str | None:
            return None if session.state.link is LinkState.LIVE else "the box is unreachable"

        async def copies(
            box: str, instance: str, groups: Iterable[ResultGroup]
        ) -> tuple[CopyProof, ...]:
            await self.record_point()
            self.proved = alive().ok is not None
            found = ((group.path, self.copies.get((box, group.path))) for group in groups)
            return tuple(
                CopyProof(
                    path=path,
                    fingerprint=copy[0],
                    where=f"/pulled{path}",
                    files=1,
                    errors=() if copy[1] else (("x", "damaged"),),
                    checked=self.ticks,
                )
                for path, copy in found
                if copy is not None
            )

        async def addresses(meter: Meter) -> frozenset[str]:
            return frozenset()

        async def reach(session: BoxSession) -> None:
            await self.record_point()
            self.sample(alive(), session.state.spec.name)

        return EvidenceQueries(look, results, seal, unseal, unsealed, copies, addresses, reach)

    def _asked(self, session: BoxSession) -> Machine:
        alive()
        box = session.state.spec.name
        machine = self.spoken[box]
        if (
            not self.linked[box]
            or not machine.pod.is_on
            or session.state.link is not LinkState.LIVE
        ):
            raise Unreachable("the box does not answer")
        return machine

    def _listed(self, machine: Machine, wanted: ResultsRequest) -> list[str]:
        owners = {PLACES[0]: "cell a", QUEUE: f"job {QUEUE}"}
        return machine.disk.listed(machine.files, wanted, self.wall, owners)

    # What the provider does.

    async def _answer(self, request: httpx.Request) -> httpx.Response:
        alive()
        box = next(
            name for name, server in SERVERS.items() if server == f"https://{request.url.host}"
        )
        if request.headers["Authorization"] != f"Bearer {box}":
            raise Broken(f"the key of another account came to {box}")
        if request.method != "GET":
            return await self._call(box, request)
        await self.record_point()
        if self.deaf:
            raise httpx.ReadTimeout("no answer", request=request)
        return self._read(box, request.url.path)

    def _read(self, box: str, path: str) -> httpx.Response:
        pod = self.machines[box].pod
        there = pod.status != "TERMINATED"
        if not pod.is_on:
            self.told_off.setdefault(box, set()).add(pod.status)
        if path == "/v2/pods":
            return httpx.Response(200, json={"pods": [pod.to_json(self.wall)] if there else []})
        if path == f"/v2/pods/{POD}":
            return (
                httpx.Response(200, json=pod.to_json(self.wall))
                if there
                else httpx.Response(404, json={})
            )
        return httpx.Response(200, json={"records": [], "networkVolumes": []})

    async def _call(self, box: str, request: httpx.Request) -> httpx.Response:
        """Take a stop or a destroy: first of all, whether it may be."""
        destroy = request.method == "DELETE"
        verb = BillingVerb.DESTROY if destroy else BillingVerb.PARK
        rgt = alive()
        action = self.judge(rgt, box, verb)
        fault, self.fault = self.fault, ""
        dies = self.die if self.die is not None and self.die[1] == "call" else None
        acts = fault not in ("nothing", "500", "401", "409", "cut before") and dies != (
            "before",
            "call",
        )
        if dies is not None:
            self.die = None
        pod = self.machines[box].pod
        wanted = "terminate" if destroy else "stop"
        refused = wanted not in pod.allowed_actions
        if acts and not refused:
            self._stopped(box, "TERMINATED" if destroy else "EXITED")
        self.calls[action.first.action] = acts and not refused
        self.told_off[box] = set()
        self.carried_out = acts and not refused
        reached[f"{verb} sent"] += 1
        if dies is not None:
            rgt.dead = True
            reached[f"crash {dies[0]} the call was carried out"] += 1
            raise Crash
        if fault:
            reached[f"answer: {fault}"] += 1
        if fault in ("cut before", "cut after"):
            raise httpx.ReadError("cut", request=request)
        if fault in ("500", "401", "409", "302", "408"):
            return httpx.Response(int(fault), json={}, headers={"Location": SERVERS["lab"]})
        if fault == "unreadable":
            return httpx.Response(200, content=b"<html>")
        if refused and fault != "nothing":
            return httpx.Response(409 if pod.status != "TERMINATED" else 404, json={})
        return httpx.Response(204) if destroy else httpx.Response(200, json=pod.to_json(self.wall))

    def started(self, box: str) -> None:
        """Start a machine that is off; that takes its time, and nobody sets the provider's clock."""
        self.wall += 2.0
        self.ticks += 2.0
        pod = self.machines[box].pod
        pod.status, pod.started = "RUNNING", CREATED + self.ticks
        self.machines[box].disk.booted = self.wall

    def _stopped(self, box: str, status: str) -> None:
        machine = self.machines[box]
        machine.pod.status = status
        machine.training, machine.sealed_until = False, -1.0
        if machine.cell == "running":
            machine.cell = "interrupted"
        lost = list(
            machine.files if status == "TERMINATED" else lost_by_park(machine.files, machine.disk)
        )
        for path in lost:
            del machine.files[path]

    # What must hold when a call arrives.

    def judge(self, rgt: Rgt, box: str, verb: BillingVerb) -> OpenAction:
        machine, ok = self.machines[box], rgt.ok
        state = ActionState.YOURS if box == HAND else ActionState.SENT
        if ok is None or ok.box != box or ok.verb is not verb:
            raise Broken(f"{verb} of {box} was sent, and nobody has agreed to that")
        if not ok.right:
            raise Broken("it was sent after a wrong name")
        target = target_of(rgt.sessions[box].state.spec.billing_ref)
        found, problems = Journal(self.folder / journal.JOURNAL).open_actions()
        here = [action for action in found if action.first.target == target]
        if problems or len(here) != 1 or here[0].last.state is not state:
            raise Broken(f"it was sent, and the journal says {here or problems}")
        if here[0].first.action in self.calls:
            raise Broken("an action was sent twice")
        self._judge_box(machine, box, verb, ok)
        self._judge_results(machine, box, verb, ok)
        return here[0]

    def _judge_box(self, machine: Machine, box: str, verb: BillingVerb, ok: Ok) -> None:
        given = ok.forfeits
        if box == HAND and ok.machine is not machine and "identity" not in given:
            raise Broken("the click is for another machine than the one that was shown")
        if machine.pod.status == "TERMINATED" and box != HAND:
            raise Broken("a machine that is gone was stopped again")
        if not machine.pod.is_on:
            return
        if self.spoken[box] is not machine and "identity" not in given:
            raise Broken("another machine was looked at than the one that is stopped")
        if machine.training and not any(key.startswith("quiet") for key in given):
            raise Broken("a training was stopped")
        if machine.seen_typing and not any(key.startswith("quiet") for key in given):
            raise Broken("somebody was at work on the box")
        if machine.sealed_until < self.ticks and "seal" not in given:
            raise Broken("the box was not held still")
        undone = (
            ("running",)
            if verb is BillingVerb.PARK
            else ("running", "waiting", "interrupted", "failed")
        )
        if machine.cell in undone and not any(
            key.startswith(("queue", "quiet:run")) for key in given
        ):
            raise Broken(f"the queue had a cell that was {machine.cell}")

    def _judge_results(self, machine: Machine, box: str, verb: BillingVerb, ok: Ok) -> None:
        for path in machine.files:
            if verb is BillingVerb.PARK and path not in lost_by_park(machine.files, machine.disk):
                continue
            fingerprint = machine.fingerprint(path)
            if self.copies.get((box, path)) == (fingerprint, True):
                continue
            if "results" in ok.forfeits or fingerprint in ok.forfeits.get(f"results:{path}", ""):
                reached["a result that was given up was lost"] += 1
                continue
            raise Broken(f"{path} was lost: no whole copy of it, and nobody gave it up")

    # What happens meanwhile.

    async def record_point(self) -> None:
        """Let happen what was to happen at this moment."""
        alive()
        self.points += 1
        event = self.script.pop(self.points, None)
        if event is not None:
            found = event()
            if asyncio.iscoroutine(found):
                await found
        alive()

    def _patch(self, patch: pytest.MonkeyPatch) -> None:
        append, record = Journal.append_record, AuditLog.record_entry

        def crashing(this: Journal, line: JournalRecord, room: int = 0) -> None:
            rgt = alive()
            dies = self.die is not None and self.die[1] == line.state
            when = self.die[0] if self.die is not None and dies else ""
            if when == "before":
                self._dead(rgt, f"crash before {line.state} is written")
            append(this, line, room)
            if when == "after":
                self._dead(rgt, f"crash after {line.state} is written")

        def recording(this: AuditLog, entry: AuditEntry) -> str:
            alive()
            return record(this, entry)

        async def carrying(
            provider: Provider, permit: Permit, **options: Any
        ) -> AsyncIterator[StopProgress]:
            self.permits.append((provider, permit))
            mine = {**options, "sleep": self.sleep, "ticks": self.steady, "poll_s": 40.0}
            async for step in carry_out(provider, permit, **mine):
                yield step

        def connecting(**options: Any) -> httpx.AsyncClient:
            follows = options["follow_redirects"]
            transport = httpx.MockTransport(self._answer)
            return client(transport=transport, follow_redirects=follows, trust_env=False)

        client = httpx.AsyncClient
        patch.setattr("rgt_tui.providers.http.httpx.AsyncClient", connecting)
        patch.setattr(Journal, "append_record", crashing)
        patch.setattr(AuditLog, "record_entry", recording)
        patch.setattr(billing_actions, "carry_out", carrying)
        for module in (runpod, console, journal, open_actions):
            patch.setattr(module, "steady_time", self.steady)
        patch.setattr(journal, "read_boot_id", lambda: "boot")
        patch.setattr(open_actions, "read_boot_id", lambda: "boot")

    def _dead(self, rgt: Rgt, how: str) -> None:
        rgt.dead, self.die = True, None
        reached[how] += 1
        raise Crash

    # What people do.

    def run(self, number: int, doing: Callable[[Rgt], Any]) -> None:
        """Let one rgt do something; where it dies of that, another is started in its place, which finds out."""
        rgt = self.rgts[number]
        self.points = 0
        Broken.seen.clear()

        async def work() -> None:
            ACTING.set(rgt)
            await doing(rgt)

        try:
            self.loop.run_until_complete(asyncio.ensure_future(work(), loop=self.loop))
        except Crash:
            pass
        finally:
            rgt.ok, self.script, self.die, self.fault, self.proved = None, {}, None, "", False
            self.clicks = True
        if Broken.seen:
            raise Broken.seen[0]
        if rgt.dead:
            self.rgts[number] = self.begin()

    async def act(
        self,
        rgt: Rgt,
        box: str,
        verb: BillingVerb,
        *,
        give_up: bool,
        right: bool,
        wait: float = 0.0,
    ) -> None:
        """Look at the review as a person does, agree to it or give things up, and confirm."""
        before = (
            rgt.ok
        )  # a person may confirm twice in one rgt: what was agreed to first still holds
        with contextlib.suppress(GateClosed):
            seen = await rgt.teardown.review_action(box, verb)
            shown = {item.key: item for item in seen.items}
            forfeits = frozenset(
                key for key, item in shown.items() if item.forfeitable and not item.ok
            )
            if give_up and forfeits:
                seen = await rgt.teardown.review_action(box, verb, forfeits=forfeits)
                shown = {item.key: item for item in seen.items}
            else:
                forfeits = frozenset()
            machine = self.spoken[box]
            given = {key: shown[key].fact or shown[key].text for key in forfeits if key in shown}
            rgt.ok = Ok(box, verb, right, given, machine)
            await self.sleep(wait)
            await self._confirm(
                rgt, seen, box, verb, seen.phrase if right else f"{seen.phrase} ", forfeits
            )
        rgt.ok = before

    async def _confirm(
        self,
        rgt: Rgt,
        seen: ActionReview,
        box: str,
        verb: BillingVerb,
        typed: str,
        forfeits: frozenset[str],
    ) -> None:
        with_what = " with forfeits" if forfeits else ""
        self.carried_out = False
        try:
            async for step in rgt.teardown.execute_action(box, verb, typed, forfeits=forfeits):
                reached[f"{verb}{with_what}: {step.phase}"] += 1
                if step.phase is StopPhase.YOURS:
                    self._click(rgt, box, verb)
                if step.phase is StopPhase.FAILED and self.carried_out:
                    raise Broken(f"it said that it failed, and it was done: {step.text}")
                if step.phase is StopPhase.METER_OFF and not self.is_off(box, verb):
                    raise Broken("it said that the meter is off, and it is not")
        except GateClosed as closed:
            reached[f"{verb} refused"] += 1
            for reason in closed.reasons:
                if "settled first" in reason or "acts on the instance" in reason:
                    reached["refused: another action is open, or held by another rgt"] += 1

    def _click(self, rgt: Rgt, box: str, verb: BillingVerb) -> None:
        """The person does on the console what rgt has left to them, or forgets it."""
        action = self.judge(rgt, box, verb)
        if self.clicks and self.machines[box].pod.is_on:
            self.calls[action.first.action] = True
            self._stopped(box, "TERMINATED" if verb is BillingVerb.DESTROY else "EXITED")
            reached[f"{verb} clicked"] += 1

    async def say_done(self, rgt: Rgt) -> None:
        """Say that the click was made, whether it was or not, and whether rgt has left one to the person or not."""
        target = target_of(rgt.sessions[HAND].state.spec.billing_ref)
        found, _ = Journal(self.folder / journal.JOURNAL).open_actions()
        judged = [one for one in found if one.first.target == target and one.first.evidence]
        answers = self.linked[HAND] and self.spoken[HAND].pod.is_on
        try:
            await rgt.teardown.confirm_done(HAND)
        except GateClosed:
            reached["a word refused"] += 1
            return
        reached["a word taken"] += 1
        if answers:
            raise Broken("a person's word was taken, and the box answers")
        if not judged:
            raise Broken("a person's word was taken, and no evidence had been judged")

    async def settle_click(self, rgt: Rgt) -> None:
        """End what waits for a click: by the word where it was made, else as not done."""
        machine, ref = self.machines[HAND], rgt.sessions[HAND].state.spec.billing_ref
        self.sample(rgt, HAND)
        if not machine.pod.is_on:
            await self.say_done(rgt)
        with Journal(self.folder / journal.JOURNAL, clock=self.clock).lock_instance(
            target_of(ref), HAND, BillingVerb.PARK
        ) as held:
            if held.earlier is not None:
                held.settle_earlier(ActionState.FAILED, "seen on")

    def is_off(self, box: str, verb: BillingVerb) -> bool:
        """Tell whether the provider has shown since the last call that the meter is off."""
        if box == HAND:
            return not self.machines[box].pod.is_on
        return bool(
            self.told_off.get(box, set())
            & ({"TERMINATED"} if verb is BillingVerb.DESTROY else {"EXITED"})
        )

    async def find_out(self, rgt: Rgt) -> None:
        """Start as after a crash: what is open is asked for, until it is known."""
        deaf, self.deaf = self.deaf, False
        found, _ = Journal(self.folder / journal.JOURNAL).open_actions()
        before = [
            one for one in found if one.first.box != HAND or one.last.state is ActionState.INTENT
        ]
        await rgt.open.check_actions()
        await self.sleep(SETTLE_SECONDS + 1.0)
        still = [one for one in await rgt.open.check_actions() if one.first.box != HAND]
        self.deaf = deaf
        await self.settle_click(rgt)
        if still:
            raise Broken(f"still open after it was asked for: {still}")
        last = {line.action: line for path in self._journals() for line in self._lines(path)}
        for action in before:
            reached[f"resumed from {action.last.state}"] += 1
            came, sent = last[action.first.action].state, self.calls.get(action.first.action)
            box = action.first.box
            assert action.first.verb is not None
            if came is ActionState.REFUSED and sent is not None:
                raise Broken("it says that nothing was sent, and it was")
            if came is ActionState.OFF and not self.is_off(box, action.first.verb):
                raise Broken("it says that the meter is off, and it is not")
            gone = self.machines[box].pod.status == "TERMINATED"
            if came is ActionState.FAILED and gone and action.first.verb is BillingVerb.DESTROY:
                raise Broken("it says that it failed, and the machine is gone")
            if came not in journal.SETTLED:
                raise Broken(f"nobody knows what became of it: {came}")

    def _journals(self) -> Iterator[Path]:
        yield from (self.folder / journal.JOURNAL).glob("*.jsonl")

    @staticmethod
    def _lines(path: Path) -> list[JournalRecord]:
        return [
            msgspec.json.decode(line, type=JournalRecord) for line in path.read_bytes().splitlines()
        ]

    async def use_again(self, rgt: Rgt, number: int) -> None:
        """Send with a permit that was used, by its provider and by that of the other account."""
        provider, permit = self.permits[number % len(self.permits)]
        others = [rgt.meters.open_provider(session) for session in rgt.sessions.values()]
        for one in (provider, *filter(None, others)):
            try:
                await (one.stop if permit.verb is BillingVerb.PARK else one.destroy)(permit)
            except PermitRefused:
                reached["a permit was refused"] += 1
            except ProviderError as error:
                raise Broken(f"a permit was used again: {error}") from error

    def close(self) -> None:
        async def closing() -> None:
            for rgt in self.rgts:
                await rgt.meters.close()

        self.loop.run_until_complete(closing())
        self.loop.run_until_complete(self.loop.shutdown_default_executor())
        self.loop.close()
