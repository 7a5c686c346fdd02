"""Take a sample of everything, and report events found by comparing two samples."""

from __future__ import annotations

import os
import re
import sys
import time

from rgt_box import background, jsonline, options, place, procstat
from rgt_box.background import error_text
from rgt_box.recorder import state_files
from rgt_box.recorder.state_files import FOUND
from rgt_box.sampling import cgroup
from rgt_box.sampling.cgroup import (
    CpuSampler,
    KeptFile,
    MemorySampler,
    ThreadWatch,
    oom_event,
    oversubscribed,
)
from rgt_box.sampling.disks import DiskSampler
from rgt_box.sampling.gpu import GpuSampler
from rgt_box.sampling.processes import ProcSampler
from rgt_box.sampling.quiet_signs import QuietSigns
from rgt_box.sampling.xid import XidWatch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

    from rgt_wire import JsonObject

    from rgt_box.discovery.finder import TrainingFinder
    from rgt_box.sampling.rank_waits import RankWatch
    from rgt_box.streams.job_looks import JobPolls


DEFAULT_PATTERN = "rgt_train"
"""As a pattern from the client it means rgt's own guess, if the discovery of trainings is on."""


SQUEUE, SQUEUE_TIMEOUT, MOST_JOBS = "squeue", 5.0, 50
SQUEUE_FORMAT = "%i|%T|%M|%L|%R|%j"
"""Id, state, time used, time left, reason or nodes, name (last: it may contain anything):
squeue(1), "--format".
"""


class BoxSampler:
    """All samplers together.

    Args:
        state_dir: Where a sampler may store a cache.
        oom_kills: The counter's last known value, so that a kill between two recorders is noticed.
        remember: False for a one-off sample, which must not change what the recorder has reported.
        jobs: State of this box's jobs; None to read their directories here, which waits for their
            disks.

    Attributes:
        limited: What this agent cannot do here, as texts.
    """

    def __init__(
        self,
        state_dir: str,
        oom_kills: int | None = None,
        remember: bool = True,
        jobs: JobPolls | None = None,
    ) -> None:
        self._state_dir = state_dir
        self._remember = remember
        self._jobs = jobs
        self._config: JsonObject = {}
        self._oom_kills = oom_kills
        self._gpu: GpuSampler | None = None
        self._procs: ProcSampler | None = None
        self.finder: TrainingFinder | None = None
        """Discovers trainings; None if not requested."""
        self._disks = DiskSampler()
        self._session = SessionSampler()
        self._signs = QuietSigns()
        self._ranks: RankWatch | None = None
        self._memory = MemorySampler(cgroup.locate_own_controller("memory"))
        self._cpu = CpuSampler(cgroup.locate_own_controller("cpu"))
        self._threads = ThreadWatch()
        self._xid: XidWatch | None = None
        self._limited: list[str] = []
        self._gpu_errors: set[int] = set()
        self._failing: set[str] = set()

    def configure(self, config: JsonObject, written: list[str]) -> None:
        """Apply mounts, pattern and trace; unchanged parts are kept.

        Args:
            config: Keys ``mounts``, ``jobs``, ``pattern``, ``find``, ``gpu_trace``.
            written: Directories that runs write to.
        """
        before = self._config
        self._config = dict(config)
        if self._gpu is None or before.get("gpu_trace") != config.get("gpu_trace"):
            self._gpu = GpuSampler(config.get("gpu_trace"), self._state_dir)
            if self._gpu.has_nvidia_driver and self._xid is None:
                self._xid = XidWatch(self._state_dir, self._remember)
        if self._procs is None or any(
            before.get(key) != config.get(key) for key in ("pattern", "jobs", "find")
        ):
            self._limited = []
            pattern = config.get("pattern") or DEFAULT_PATTERN
            jobs = list(config.get("jobs") or [])
            try:
                re.compile(pattern)
            except re.error as error:
                self._limited = [f"pattern: {error}; using {DEFAULT_PATTERN}"]
                pattern = DEFAULT_PATTERN
            self._set_finder(pattern, bool(config.get("find")))
            if self.finder is not None:
                found = self.finder.process_rows
            else:
                found = None
            if self._jobs is not None:
                cells = self._jobs.live_cells
            else:
                cells = None
            self._procs = ProcSampler(pattern, jobs, found, cells)
        self._disks.configure(list(config.get("mounts") or []), written)

    def _set_finder(self, pattern: str, wanted: bool) -> None:
        if not wanted:
            self.finder = None
            return
        from rgt_box.discovery.finder import TrainingFinder  # here: needed only for discovery

        if self.finder is not None:
            kept = self.finder.build_report()
        else:
            kept = state_files.read_json(self._state_dir, FOUND)
        self.finder = TrainingFinder(
            None if pattern == DEFAULT_PATTERN else re.compile(pattern), kept, self._jobs
        )

    @property
    def gpu_source(self) -> str:
        """nvml, smi, amd, ascend, sim or none."""
        if self._gpu:
            return self._gpu.source
        return "none"

    @property
    def failing(self) -> set[str]:
        """Names of the readings that currently fail, whose values are unknown."""
        return set(self._failing)

    @property
    def limited(self) -> list[str]:
        """What does not work here, as texts."""
        if self._xid and self._xid.limited:
            blind = [self._xid.limited]
        else:
            blind = []
        return self._limited + (self._gpu.limited if self._gpu else []) + blind

    def read(self, wait: float = 0.0) -> tuple[JsonObject, list[dict[str, str]]]:
        """Take one sample.

        Args:
            wait: Seconds to wait for slow samplers; with 0 they return their last value.

        Returns:
            The sample without ``t``, ``boot`` and ``seq``; and events as ``{"kind", "text",
            "level"}``.
        """
        at = time.time()
        events: list[dict[str, str]] = []
        procs: list[JsonObject] = []
        fields: JsonObject = {"at": round(at, 3)}
        reads: list[tuple[str, Callable[[], Any]]] = [
            ("procs", self._procs.read if self._procs else list),
            ("ranks", lambda: self._read_ranks(procs)),
            ("gpus", lambda: self._gpu.read(at, procs, wait) if self._gpu else []),
            ("mem", self._memory.read),
            ("cpu", self._cpu.read),
            ("disks", lambda: self._disks.read(wait)),
            ("session", lambda: self._session.read(wait)),
            ("signs", self._signs.read),
        ]
        for key, read in reads:
            try:
                fields[key] = read()
                self._failing.discard(key)
            except Exception as error:  # one failure must not lose the sample
                if key not in self._failing:
                    text = f"{key}: {error_text(error)}"
                    events.append({"kind": "sampler-failed", "text": text, "level": "warn"})
                self._failing.add(key)
            if key == "procs":
                procs = fields.get("procs", [])
        signs = fields.pop("signs", {})
        fields.pop("ranks", None)
        if self.finder is not None:
            events += self.finder.events
            self.finder.events = []
        try:
            events += self._find_events(fields)
            self._failing.discard("events")
        except Exception as error:  # nor must an error in evaluating the readings
            if "events" not in self._failing:
                events.append(
                    {"kind": "sampler-failed", "text": error_text(error), "level": "warn"}
                )
            self._failing.add("events")
        told = {key: value for key, value in fields.items() if value not in ([], {})}
        return (
            dict(told, **signs),
            events,
        )  # an empty list is reported, too: without the field it is unknown, as with older agents

    def _read_ranks(self, procs: list[JsonObject]) -> None:
        if procs and self._ranks is None:
            from rgt_box.sampling.rank_waits import (
                RankWatch,
            )  # here: needed only if something trains

            self._ranks = RankWatch()
        if self._ranks is not None:
            self._ranks.add_rank_readings(procs)

    def _find_events(self, fields: JsonObject) -> list[dict[str, str]]:
        events = []
        mem = fields.get("mem", {})
        cpu = fields.get("cpu", {})
        procs = fields.get("procs", [])
        text = oom_event(self._oom_kills, mem)
        if text:
            events.append({"kind": "oom-kill", "text": text, "level": "error"})
        # Kept if the counter cannot be read, so that a kill meanwhile is still reported.
        self._oom_kills = mem.get("oom_kills", self._oom_kills)
        broken = {}
        for gpu in fields.get("gpus", []):
            if gpu.get("error"):
                broken[gpu["index"]] = gpu["error"]
        # Only new ones: a broken card would otherwise make an event per second.
        for index in sorted(set(broken) - self._gpu_errors):
            events.append(
                {
                    "kind": "gpu-error",
                    "text": "GPU %d: %s" % (index, broken[index]),
                    "level": "error",
                }
            )
        self._gpu_errors = set(broken)
        if oversubscribed(procs, cpu):
            cpu["oversubscribed"] = True
        crowded = self._threads.poll(procs, cpu)
        if crowded:
            events.append({"kind": "threads-oversubscribed", "text": crowded, "level": "warn"})
        if (
            self._xid is not None and self._gpu is not None and self._gpu.has_answered
        ):  # before that, it could not name a card
            events += self._xid.poll_events(self._gpu.index_by_bus)
            for gpu in fields.get("gpus", []):
                if gpu.get("bus") in self._xid.last:
                    gpu["xid"] = self._xid.last[gpu["bus"]]
        return events


WAIT = 3.0
"""Seconds that the verb gives each slow reading."""


def reading_timeout(usual: float) -> float:
    """Return the seconds that a slow reading gets, unless ``RGT_READ_SECONDS`` overrides it."""
    try:
        return float(os.environ.get("RGT_READ_SECONDS", ""))
    except ValueError:
        return usual


HELP = """
usage: sample [--mount DIR ...] [--pattern REGEX] [--gpu-trace FILE]

Take one full sample of this box and print it as a JSON line.

  --mount DIR       also read this mount (may be repeated; / is always read)
  --pattern REGEX   what identifies a training process by its command line (default: rgt_train)
  --gpu-trace FILE  replay this recorded trace where there is no GPU
"""


def main(argv: list[str]) -> int:
    """Run the verb; return the exit status."""
    spec = {"--mount": "list", "--pattern": "str", "--gpu-trace": "str"}
    found = options.parse_or_exit(argv, spec, HELP)
    sampler = BoxSampler(place.state_dir(), remember=False)
    config = {
        "mounts": found["mount"],
        "pattern": found["pattern"] or DEFAULT_PATTERN,
        "gpu_trace": found["gpu-trace"],
    }
    sampler.configure(config, [])
    fields, _ = sampler.read(wait=reading_timeout(WAIT))
    frame = dict({"t": "sample", "boot": place.boot_id(), "seq": 0}, **fields)
    frame["agent_rss"] = procstat.resident_bytes(os.getpid())
    jsonline.print_frame(frame)
    for text in sampler.limited:
        print(f"limited: {text}", file=sys.stderr)
    return 0


# The tmux sessions and Slurm jobs of this user, and the uptime of the box.


def has_slurm() -> bool:
    """Return whether ``squeue`` is in PATH."""
    return background.which(SQUEUE) is not None


def slurm_jobs() -> list[JsonObject]:
    """Query ``squeue`` (takes seconds if the controller is busy: call it in a thread).

    Raises:
        TimeoutError: It hangs.
        RuntimeError: It fails, for example because no controller answers.
    """
    text = background.try_program(
        [SQUEUE, "-h", "-u", str(os.getuid()), "-o", SQUEUE_FORMAT], SQUEUE_TIMEOUT
    )
    if text is None:
        raise RuntimeError("squeue failed: no answer from Slurm's controller")
    return parse_squeue(text)[:MOST_JOBS]


def parse_squeue(text: str) -> list[JsonObject]:
    """Parse its rows; invalid ones are ignored."""
    found = []
    for row in text.splitlines():
        # At most six parts: the name, the last one, may contain the separator.
        cells = row.strip().split("|", 5)
        if len(cells) == 6 and cells[0]:
            job, state, used, left, reason, name = cells
            fields = {"id": job, "name": name[:200], "state": state, "reason": reason[:200] or None}
            found.append(
                jsonline.drop_empty(
                    dict(fields, elapsed_s=slurm_seconds(used), left_s=slurm_seconds(left))
                )
            )
    return found


def slurm_seconds(text: str) -> float | None:
    """Return the seconds of ``days-hours:minutes:seconds`` or a shorter form.

    Return None for UNLIMITED etc.
    """
    days, _, clock = text.rpartition("-")
    parts = clock.split(":")
    if (
        not all(part.isdigit() for part in parts)
        or not (days.isdigit() or not days)
        or len(parts) not in (2, 3)
    ):
        return None
    total = 0
    for part in parts:
        total = total * 60 + int(part)
    return float(total + int(days or "0") * 86400)


PERIOD, TIMEOUT = 10.0, 5.0
SLURM_PERIOD = 30.0
"""Seconds between two queries of Slurm's queue: its administrators ask not to be polled faster."""


class SessionSampler:
    """Queries tmux and Slurm in threads, at most every `PERIOD` and `SLURM_PERIOD` seconds."""

    def __init__(self) -> None:
        self._uptime = KeptFile("/proc/uptime", 128)
        first = procstat.read_stat(1)
        # A container is as old as its first process, however long the host has been up.
        if first:
            self._began = first.start / procstat.CLOCK_TICKS
        else:
            self._began = 0.0
        self._tmux = background.Background(tmux_sessions, PERIOD, TIMEOUT * 2)
        self._slurm: background.Background | None = None
        if has_slurm():
            self._slurm = background.Background(slurm_jobs, SLURM_PERIOD, SQUEUE_TIMEOUT * 2)

    def read(self, wait: float = 0.0) -> JsonObject:
        """Return the ``session`` object of a sample."""
        words = (self._uptime.read() or b"").split()
        names, error = self._tmux.poll(wait)
        if words:
            up = max(0.0, float(words[0]) - self._began)
        else:
            up = None
        found = {"tmux": [] if error else names or [], "uptime_s": up}
        if self._slurm is not None:
            jobs, error = self._slurm.poll(wait)
            found.update(slurm=[] if error else jobs, slurm_error=error)
        return jsonline.drop_empty(found)


def tmux_sessions() -> list[str]:
    """Return the names of this user's tmux sessions; [] without tmux or a server."""
    if background.which("tmux") is None:
        return []
    done = background.run_program(["tmux", "ls", "-F", "#S"], TIMEOUT)
    return [name[:200] for name in done.splitlines() if name][:100]
