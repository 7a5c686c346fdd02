"""A model of one box, its clocks, its platform and its person, around the agent's code for a box that stops itself.

Real: the recorder's watchman with its idle clock, its judgement of a look and its countdown; plans, journal and story
on a disk; the process that carries a stop out, and the table of what an answer proves. Model: what runs on the box
and what a look at it reads, all clocks, the platform behind the box's own key, power, and who dies when.
"""

from __future__ import annotations

import os
import random
import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rgt_box import files, place, procstat
from rgt_box.autostop import (
    armed_plan,
    autostop_command,
    idle_clock,
    own_stop,
    result_copies,
    saving,
    stop_process,
    story,
    watchman,
    work_signs,
)
from rgt_box.commands import seal
from rgt_box.recorder import control, state_files
from rgt_box.sampling import quiet_signs

from rgt_tui.demo import LocalPod

REAL_LOAD = armed_plan.load_plans
reached: Counter[str] = Counter()
"""What the machine has come to: one that reaches nothing proves nothing."""

TICK = 10.0
"""Seconds between two samples of the recorder, at most, while something is armed."""
LATE = 6 * TICK
"""So much later than its limit an idle box may stop. A look, every 10 s but never between two samples, sees that work
has ended, the next one begins the time; the warning and the stop each wait for the sample after they are due."""
CPU_PER_S = 100
RUN_PID, BOOK_PID = 10_000_001, 10_000_002
SETTLE = stop_process.SETTLE
RESUMED = armed_plan.SLEPT


class Crash(BaseException):
    """The process that carries a stop out is no more."""


class PowerOff(BaseException):
    """The machine is off: nothing on it runs any more."""


class Broken(AssertionError):
    """A guarantee does not hold."""


@dataclass
class Run:
    """Something that trains."""

    name: str
    queued: bool
    saves: bool
    gpu: bool
    """It uses the card; else it is a busy process like any other."""
    started: int
    """Point of the model at which it began."""
    began: float
    ends_at: float | None = None
    """Uptime at which it has saved and ended, after SIGTERM."""


@dataclass
class Call:
    """A request to stop that reached the platform, or may have."""

    at: float
    wall: float = 0.0
    proved: bool = False
    """Whoever has sent it was told since that nothing came of it, or, long after, that the machine is still on."""


@dataclass
class World:
    """Everything there is, and what has to hold of it whenever a stop is asked for."""

    folder: Path
    random: random.Random
    boot: float = 1000.0
    awake: float = 1000.0
    wall: float = 1.79e9
    boot_id: str = "boot-1"
    boots: int = 1
    pod: LocalPod = field(default_factory=lambda: LocalPod(id="pod1", name="lab", created=1.78e9))
    run: Run | None = None
    notebook: bool = False
    """An idle process that holds memory is there; nobody has accepted it."""
    opened: int = 1
    """By which one notebook is told from the next that has its pid."""
    accepted_notebook: bool = False
    typed_at: float = 0.0
    written: int = 1
    """ns of the newest result."""
    blind: bool = False
    """The GPU does not answer."""
    copying: bool = False
    failed_cells: list[str] = field(default_factory=list)
    cpu: int = 0
    sealed: bool = False
    revoked: bool = False
    reads_only: bool = False
    """The box's key may read the pod, and not stop it."""
    proved: bool = False
    """In the stop that is carried out, a trial of the key has shown that it may stop the pod."""
    deaf: bool = False
    """The platform answers no reading."""
    fault: str = ""
    """What becomes of the next call."""
    effect_at: float | None = None
    """Uptime at which an accepted stop takes effect."""
    pending: str = ""
    """Mode whose stop the recorder has asked for."""
    stopping: str = ""
    """Mode whose stop is being carried out."""
    points: int = 0
    last_look: int = 0
    """Point of the last look at the box."""
    ended_at: float = 0.0
    """Uptime at which the last stop's process ended."""
    slept_at: int = -1
    """Point at which the machine was last suspended while a stop was carried out."""
    acted_at: int = -1
    """Point at which the person last armed, kept or disarmed while a stop was carried out."""
    carried: dict[str, Any] = field(default_factory=dict)
    """What was armed when the stop that is carried out began."""
    script: dict[int, Callable[[World], None]] = field(default_factory=dict)
    """After so many points of a stop → what happens then."""
    kill_at: int = -1
    calls: list[Call] = field(default_factory=list)
    active: float = 0.0
    """Uptime of the newest sign of work, or of what could not be told, up to the last look."""
    newly_active: float = 0.0
    newly_broken: float = 0.0
    disturbed: float = 0.0
    """Uptime since which nothing but idleness could have kept the box from stopping."""
    on: bool = True
    watch: Any = None
    broken: str = ""
    """Which guarantee does not hold."""
    read_mark: Any = None
    read_plans: dict[str, dict[str, Any]] = field(default_factory=dict)
    events: list[str] = field(default_factory=list)
    log: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.active = self.newly_active = self.disturbed = self.boot
        self.recorder_starts()

    # What happens on the box.

    def tell(self, what: str) -> None:
        """Note it for whoever reads a failure."""
        self.log.append(f"{self.boot:10.1f} {what}")

    def works(self) -> None:
        """Something has just shown that the box is in use."""
        self.newly_active = self.boot
        self.disturb(self.boot)

    def breaks_time(self) -> None:
        """A clock was set, or the machine slept: the recorder's next look begins the time anew."""
        self.newly_broken = self.boot
        self.disturb(self.boot)

    def disturb(self, until: float) -> None:
        """Until then something else than idleness may keep the box from stopping."""
        self.disturbed = max(self.disturbed, until)

    def looked(self) -> None:
        """A look has seen all that happened before it."""
        self.last_look = self.points
        self.active = max(self.active, self.newly_active)

    def advance(self, seconds: float) -> None:
        """Let time pass, with the recorder at work."""
        while seconds > 0 and self.on:
            step = min(seconds, TICK)
            seconds -= step
            self.boot += step
            self.awake += step
            self.wall += step
            if self.run is not None:
                self.cpu += int(step * CPU_PER_S)
                self.works()
                if self.run.ends_at is not None and self.boot >= self.run.ends_at:
                    self.run = None
            if self.notebook and not self.accepted_notebook:
                self.works()
            if self.blind or self.copying:
                self.disturb(self.boot)
            self.take_effect()
            if self.on and self.watch is not None:
                reached["steps"] += 1
                self.watch.tick(self.sample(), self.sampler)

    def take_effect(self) -> None:
        if self.effect_at is not None and self.boot >= self.effect_at:
            self.effect_at = None
            self.pod.status, self.on, self.watch = "EXITED", False, None
            reached["parked"] += 1
            self.tell("the machine is off")

    @property
    def sampler(self) -> Any:
        return SimpleNamespace(failing=set(), gpu_source="nvml")

    def sample(self) -> dict[str, Any]:
        """Return what a sample reads now."""
        busy = self.run is not None and self.run.gpu
        card: dict[str, Any] = {
            "index": 0,
            "util": 90.0 if busy else 0.0,
            "vram_used": (8 << 30) if busy else 0,
        }
        if self.blind:
            card = {"index": 0, "error": "no answer"}
        copies = [{"name": "rsync", "pid": 9}] if self.copying else []
        return {"gpus": [card], "transfers": copies, "input_at": self.typed_at, "session": {}}

    def processes(self, share: float) -> list[dict[str, Any]]:
        """Return the processes that a look counts."""
        rows = []
        base = {
            "started": 1.0,
            "vram": False,
            "bytes": 0,
            "rss": 0,
            "notebook": False,
            "works": True,
        }
        if self.run is not None:
            known = self.run.gpu or self.run.queued
            rows.append(dict(base, pid=RUN_PID, ticks=int(self.run.began), name=self.run.name, cpu_pct=share,
                             run=self.run.name if known else "", vram=self.run.gpu, works=known,
                             cmd=f"python {self.run.name}.py"))  # fmt: skip
        if self.notebook:
            rows.append(dict(base, pid=BOOK_PID, ticks=self.opened, name="ipykernel", run="", cmd="ipykernel",
                             cpu_pct=0.0, notebook=True, rss=1 << 30))  # fmt: skip
        return rows

    def recorder_starts(self) -> None:
        """A recorder begins, or takes over: it knows what is armed, and nothing of what was seen before."""
        self.watch = watchman.AutostopMonitor(
            str(self.folder), lambda kind, text, level: self.events.append(kind)
        )
        self.disturb(self.boot + TICK)  # what was looked at only once is not known

    def boots_again(self, instance: str | None = None, kept: bool = True) -> None:
        """The machine starts: another boot, perhaps another machine, with or without its state directory."""
        self.boots += 1
        self.boot_id = f"boot-{self.boots}"
        self.boot = self.awake = 1000.0
        self.wall += 60.0
        self.pod.status, self.effect_at, self.on = "RUNNING", None, True
        self.ended_at = 0.0
        if instance is not None:
            self.pod = LocalPod(id=instance, name="lab", created=1.78e9)
        if not kept:
            shutil.rmtree(self.folder)
            self.folder.mkdir(mode=0o700)
        self.run, self.notebook, self.accepted_notebook, self.sealed = None, False, False, False
        self.newly_broken = self.boot
        self.calls, self.typed_at, self.pending, self.copying = [], 0.0, "", False
        self.active = self.newly_active = self.disturbed = self.boot
        self.recorder_starts()

    # What the person does.

    def arm(
        self,
        mode: str,
        action: str,
        limit: float,
        inspect: float = 0.0,
        accept: tuple[str, ...] = (),
    ) -> None:
        """Arm the box, as the agent's verb does once nothing speaks against it."""
        self.acted_at = self.points
        request = {
            "mode": mode, "action": action, "idle_s": limit, "lease_s": limit, "warn_s": limit / 3.0,
            "inspect_s": inspect, "boot": self.boot_id, "instance": self.pod.id, "box": "lab",
            "stop": {"kind": "runpod", "url": "http://127.0.0.1"}, "jobs": ["/workspace/job"],
            "durable": ["/workspace"], "accept_unsaving": list(accept),
        }  # fmt: skip
        bound = armed_plan.bind_plan(armed_plan.parse_request(request), self.now(), None)
        bound["cards"] = 1
        bound["accepted"] = [[BOOK_PID, self.opened]] if self.accepted_notebook else []
        with armed_plan.PlanLock(str(self.folder)):
            armed_plan.save_plans(
                str(self.folder), dict(armed_plan.load_plans(str(self.folder)), **{mode: bound})
            )
        self.disturb(self.boot + TICK)

    def plans(self) -> dict[str, dict[str, Any]]:
        """Return what is armed, as it stands on the disk."""
        mark = files.signature(str(self.folder / armed_plan.FILE))
        if mark != self.read_mark:
            self.read_mark, self.read_plans = mark, REAL_LOAD(str(self.folder))
        return self.read_plans

    def keep(self, seconds: float) -> None:
        """Put every stop off."""
        if self.plans():
            self.acted_at = self.points
            autostop_command.postpone_stops(str(self.folder), seconds)
            self.disturb(self.boot + seconds)
            reached["kept"] += 1

    def disarm(self) -> None:
        """Take everything back."""
        self.acted_at = self.points
        if watchman.disarm_modes(str(self.folder), list(armed_plan.MODES), "taken back"):
            reached["disarmed"] += 1

    # The clocks and the process of a stop.

    def now(self) -> Any:
        return idle_clock.ClockReading(self.boot, self.awake, self.wall)

    def sleep(self, seconds: float) -> None:
        self.point("sleep")
        self.advance(seconds)
        if not self.on:
            raise PowerOff

    def point(self, where: str) -> None:
        """Something outside is touched: here others act, processes die, and the power goes."""
        if not self.stopping:
            return
        self.points += 1
        happens = self.script.pop(self.points, None)
        if happens is not None:
            self.tell(f"meanwhile: {getattr(happens, '__name__', '')}")
            happens(self)
        self.take_effect()
        if not self.on:
            raise PowerOff
        if self.points == self.kill_at:
            self.kill_at = -1
            phase = story.read_journal(str(self.folder)).get("phase")
            reached[f"killed at {phase} ({where})"] += 1
            self.tell(f"the stop's process is killed at {phase} ({where})")
            raise Crash

    def settle_pending(self) -> None:
        """Run the process that the recorder has asked for, until it ends, dies, or the machine is off."""
        while self.pending and self.on:
            mode, self.pending = self.pending, ""
            self.stopping, self.points, self.acted_at, self.slept_at, self.proved = (
                mode,
                0,
                -1,
                -1,
                False,
            )
            self.carried = self.plans().get(mode, {})
            self.tell(f"a stop begins: {mode}")
            try:
                stop_process.run_stop_attempt(str(self.folder), mode)
            except (Crash, PowerOff):
                pass
            finally:
                self.stopping, self.script, self.kill_at, self.sealed = "", {}, -1, False
                self.last_look = 0
            if self.broken:
                raise Broken(self.broken)
            odd = [
                line["text"]
                for line in story.read_events(str(self.folder))[-3:]
                if "could not be carried" in line["text"]
            ]
            if odd:  # the model no longer fits the code, or the code has a fault: either way nothing is tried any more
                raise Broken(odd[-1])
            self.ended_at = self.boot
            # The recorder sees that it has ended with its next sample, and begins the time anew with the one after.
            self.disturb(self.boot + TICK)
            if self.on:
                ended = story.read_journal(str(self.folder)).get("phase", "nothing")
                reached[f"a stop ended: {ended}"] += 1
                self.tell(f"the stop's process has ended: {ended}")

    # What the platform does.

    def send(self, method: str, path: str, body: object) -> tuple[int, Any]:
        """Answer as RunPod does."""
        self.point(method)
        if path.split("/")[3] != self.pod.id:
            raise self.breaks(f"asked about another machine: {path}")
        if body == {"action": "start"}:
            return self.try_key()
        if self.revoked or (self.reads_only and method != "GET"):
            if method != "GET":
                self.judge()
                self.calls.append(Call(self.boot, self.wall, proved=True))
                reached["refused: the key is revoked"] += 1
            return 403 if self.reads_only else 401, {"detail": "invalid or missing API key"}
        if method == "GET":
            return self.read()
        return self.call()

    def try_key(self) -> tuple[int, Any]:
        """Refuse a start of the running pod, by its state or, first of all, for lack of the right."""
        if self.revoked or self.reads_only:
            reached["a key that may not stop the pod is tried"] += 1
            return 403, {"detail": "Forbidden"}
        self.proved = True
        return 409, {"detail": "action 'start' is not available while pod is RUNNING"}

    def read(self) -> tuple[int, Any]:
        if self.deaf:
            raise OSError("timed out")
        for call in self.calls:
            if self.pod.is_on and self.boot >= call.at + SETTLE:
                call.proved = True
        return 200, self.pod.to_json(self.wall)

    def call(self) -> tuple[int, Any]:
        """Take a stop: first of all, whether it may be."""
        self.judge()
        call = Call(self.boot, self.wall)
        self.calls.append(call)
        fault, self.fault = self.fault, ""
        reached[f"stop asked for ({fault or 'fine'})"] += 1
        self.tell(f"a stop is asked for ({fault or 'fine'})")
        if fault.startswith(("409", "429")):
            call.proved = fault.startswith("429")
            return int(fault[:3]), {"detail": "not now"}
        if fault not in ("nothing", "lost", "500"):
            delay = self.random.choice((0.0, 2.0, 30.0, 200.0)) if fault in ("", "late") else 0.0
            self.effect_at = self.boot + delay
        if fault in ("lost", "timed out after acting"):
            raise OSError("timed out")
        if fault in ("500", "500 after acting"):
            return 500, {"detail": "oops"}
        if fault == "garbage after acting":
            return 200, ["?"]
        return 200, self.pod.to_json(self.wall)

    def breaks(self, why: str) -> Crash:
        """Note that a guarantee does not hold, and return what ends the process: no `except` of it may hide that."""
        self.broken = why
        return Crash()

    def judge(self) -> None:
        """Say whether this box may be stopped now, by what is true of it, whoever asks."""
        mode = self.stopping
        armed = self.plans().get(mode)
        if self.acted_at > self.last_look:  # after the last look nobody can know it in time
            armed = self.carried
        elif armed is None or armed["id"] != self.carried["id"]:
            raise self.breaks("a stop is asked for, and it was taken back, or armed anew")
        if armed["action"] != "park":
            raise self.breaks("a box that may only ask is stopped")
        if armed["boot"] != self.boot_id or armed["instance"] != self.pod.id:
            raise self.breaks("a stop that was armed for another boot or instance")
        slept = abs((self.boot - self.awake) - armed["slept"])
        if slept >= RESUMED and self.slept_at <= self.last_look:
            raise self.breaks(
                "a machine that was suspended and resumed since the arming is stopped"
            )
        if (armed.get("kept_until_boot") or 0.0) > self.boot:
            raise self.breaks("it was put off, and is stopped")
        warned = self.warned_at(mode)
        if any(self.is_open(call, warned) for call in self.calls):
            raise self.breaks("sent again although nobody knows what came of the last call")
        if warned is None or self.wall - warned < armed["warn_s"] - 1.0:
            raise self.breaks(f"it was not warned of for {armed['warn_s']:.0f} s: {warned}")
        self.judge_work(mode, armed)

    def is_open(self, call: Call, warned: float | None) -> bool:
        """Tell whether an earlier call may still be carried out, for all that its sender can know.

        That this machine still runs so long after it, idle and warned of anew, says that it was not.
        """
        anew = warned is not None and warned > call.wall + self.skew_since(call.wall)
        return not call.proved and not (anew and self.boot >= call.at + SETTLE)

    def judge_work(self, mode: str, armed: dict[str, Any]) -> None:
        run = self.run
        seen = run is not None and (run.started <= self.last_look or run.queued)
        if mode == "lease":
            if self.boot < armed["armed_boot"] + armed["lease_s"] - 1e-6:
                raise self.breaks("the lease is not over")
            if run is not None and seen and run.name not in armed["accept_unsaving"]:
                raise self.breaks(
                    f"the lease ends {run.name}, which nobody has accepted and which has not saved"
                )
            reached["a lease is ended"] += 1
            if run is not None:
                reached["a lease ends what was accepted"] += 1
            return
        if run is not None and seen:
            raise self.breaks(
                f"a working box is stopped: {run.name}, {'a cell' if run.queued else 'by hand'}"
            )
        limit = armed["idle_s"] + (armed["inspect_s"] if self.failed_cells else 0.0)
        if self.boot - self.active < limit - 1e-6:
            raise self.breaks(f"idle for {self.boot - self.active:.0f} s only, of {limit:.0f} s")
        reached["an idle box has parked itself"] += 1
        if run is not None:
            reached["work by hand began after the last look"] += 1

    def warned_at(self, mode: str) -> float | None:
        """Return when it was last warned of this stop, by the story, in this boot; None = it was not."""
        at = None
        for line in story.read_events(str(self.folder)):
            if line.get("boot") != self.boot_id or line.get("mode") not in (None, mode):
                continue
            if line["event"] == "warned":
                at = float(line["at"]) + (self.skew_since(float(line["at"])))
            elif line["event"] in ("withdrawn", "armed", "failed"):
                at = None
        return at

    jumps: list[tuple[float, float]] = field(default_factory=list)
    """Wall time and size of each jump of the wall clock in this boot."""

    def skew_since(self, at: float) -> float:
        """Return by how much the wall clock was set since."""
        return sum(size for when, size in self.jumps if when >= at)

    def check_missed(self) -> None:
        """An idle box whose readings are known is stopped in time."""
        armed = self.plans().get("idle")
        if (
            armed is None
            or armed["action"] != "park"
            or not self.on
            or self.watch is None
            or self.pending
        ):
            return
        if armed["boot"] != self.boot_id or "lease" in self.plans():
            return
        limit = armed["idle_s"] + (armed["inspect_s"] if self.failed_cells else 0.0)
        since = max(self.disturbed, self.newly_active)
        # After a failure it waits before it tries again, for a bounded time.
        retry = min(self.watch._counts["idle"].not_before, self.ended_at + idle_clock.LONGEST_RETRY)
        since = max(since, retry - limit)
        if self.boot - since > limit + LATE:
            raise Broken(
                f"idle for {self.boot - since:.0f} s, {limit:.0f} s were armed, and nothing was done"
            )


class Signs:
    """What a look sees beside a sample: as `rgt_box.autostop.work_signs`, of the model."""

    def __init__(self, world: World, in_stop: bool = False) -> None:
        self.world, self.in_stop = world, in_stop
        self.cpu: int | None = None
        self.seen: tuple[float, int] | None = None
        self.at = 0.0

    @property
    def failed(self) -> list[str]:
        return self.world.failed_cells

    def read_signs(self, at: Any, sample: Any, sampler: Any) -> dict[str, Any]:
        world = self.world
        first = self.cpu is None
        active, unknown = [], ["only one reading so far"] if first else []
        if world.run is not None and world.run.queued:
            active.append(f"{world.run.name} is being run")
        if self.seen is not None and self.seen[0] != world.typed_at:
            active.append("somebody typed at a terminal")
        if self.seen is not None and self.seen[1] != world.written:
            active.append("a result was written")
        passed = at.boot - self.at
        share = (
            0.0
            if first or passed <= 0
            else 100.0 * (world.cpu - (self.cpu or 0)) / CPU_PER_S / passed
        )
        if not first and share >= 1.0 and world.run is None:
            active.append("something has worked, and ended")
        self.cpu, self.seen, self.at = world.cpu, (world.typed_at, world.written), at.boot
        world.looked()
        if not world.stopping:  # a stop that is under way has its own last look
            world.active = max(world.active, world.newly_broken)
        if (first and not world.stopping) or world.blind:
            world.active = max(world.active, world.boot)
        return {
            "active": active,
            "unknown": unknown,
            "processes": world.processes(share),
            "named": {0: True},
        }


def install(world_of: Callable[[], World], patch: pytest.MonkeyPatch) -> None:
    """Put the model around the agent's code."""

    class Clock:
        @staticmethod
        def time() -> float:
            return world_of().wall

        @staticmethod
        def monotonic() -> float:
            return world_of().awake

        @staticmethod
        def sleep(seconds: float) -> None:
            world_of().sleep(max(seconds, 2.0))  # as a busy machine does

    class FakeLock:
        def write_owner(self, value: object) -> None:
            pass

        def release(self) -> None:
            world_of().sealed = False

    def take_queues(jobs: list[str]) -> tuple[list[Any], list[str]]:
        world = world_of()
        world.point("seal")
        run = world.run
        if run is not None and run.queued:
            return [], [f"{run.name} is being run"]
        world.sealed = True
        return [FakeLock()], []

    def look(self: Any) -> tuple[dict[str, Any], dict[str, Any], Any]:
        world = world_of()
        world.point("look")
        signs = Signs(world, in_stop=True)
        signs.read_signs(world.now(), world.sample(), world.sampler)
        world.sleep(stop_process.GAP)
        sample = world.sample()
        found = signs.read_signs(world.now(), sample, world.sampler)
        found["cards"] = 1
        return sample, found, world.sampler

    def runs_of(sample: Any, signs: Any, armed: Any) -> list[Any]:
        run = world_of().run
        if run is None:
            return []
        return [saving.SavingRun(run.name, RUN_PID, int(run.began), run.saves, run.queued, ())]

    def kill(pid: int, number: int) -> None:
        world, run = world_of(), world_of().run
        assert pid == RUN_PID
        if not world.proved:
            raise world.breaks(
                "a run is ended, and nothing has shown that the box can be stopped after it"
            )
        if run is not None and run.saves:
            run.ends_at = world_of().boot + 5.0

    def is_alive(pid: int, ticks: object) -> bool:
        run = world_of().run
        return pid == RUN_PID and run is not None and ticks == int(run.began)

    def runner_processes(jobs: list[str]) -> list[tuple[int, int]]:
        run = world_of().run
        return [(RUN_PID, int(run.began))] if run is not None and run.queued else []

    def send(self: Any, method: str, path: str, body: object) -> tuple[int, Any]:
        return world_of().send(method, path, body)

    def own_key(kind: str, own: object = None) -> Any:
        return own_stop.InstanceKey("secret", world_of().pod.id)

    def newest(folders: object, deadline: float, until: float = 0.0) -> Any:
        world = world_of()
        world.point("results")
        return work_signs.NewestChange(world.written, "/workspace/out", world.written, True)

    def save_results(*_: object) -> Any:
        world_of().point("mirror")
        return result_copies.CopySummary("every known result lies where it survives a stop", [])

    def copy(folder: str, durable: list[str]) -> list[str]:
        world_of().point("copy")
        return []

    def detach(words: list[str]) -> None:
        world_of().pending = words[-1]

    real_store = armed_plan.store_json

    def store(folder: str, name: str, value: Any) -> None:
        world_of().point("before journal")
        real_store(folder, name, value)
        world_of().point("after journal")

    patch.setattr(stop_process, "time", Clock)
    patch.setattr(
        watchman, "RUNS_WAIT", 60.0
    )  # for a real thread, which on a busy machine may be late
    patch.setattr(story, "time", Clock)
    patch.setattr(idle_clock, "read_clocks", lambda: world_of().now())
    patch.setattr(place, "boot_id", lambda: world_of().boot_id)
    patch.setattr(place, "agent_command", lambda *words: list(words))
    patch.setattr(armed_plan, "own_identity", lambda: {"RUNPOD_POD_ID": world_of().pod.id})
    patch.setattr(armed_plan, "store_json", store)
    patch.setattr(files, "sync_path", lambda path: None)
    patch.setattr(state_files, "memory_folder", lambda folder, make=False: None)
    patch.setattr(control, "start_detached", detach)
    patch.setattr(control, "signal_recorder", lambda *_: None)
    patch.setattr(story, "write_to_terminals", lambda words: 0)
    patch.setattr(work_signs, "WorkSigns", lambda plan: Signs(world_of()))
    patch.setattr(work_signs, "newest_change", newest)
    patch.setattr(work_signs, "result_roots", lambda *_: [])
    patch.setattr(stop_process.StopAttempt, "_take_fresh_sample", look)
    patch.setattr(saving, "runner_processes", runner_processes)
    patch.setattr(saving, "list_saving_runs", runs_of)
    patch.setattr(procstat, "is_alive", is_alive)
    patch.setattr(quiet_signs, "transfers", lambda *_: [])
    patch.setattr(seal, "acquire_queues", take_queues)
    patch.setattr(result_copies, "copy_results", save_results)
    patch.setattr(story, "copy_event_log", copy)
    patch.setattr(own_stop.OwnStop, "_send_request", send)
    patch.setattr(own_stop, "own_key", own_key)
    patch.setattr(os, "nice", lambda _: 0)
    patch.setattr(os, "kill", kill)
