"""The ranks of a distributed training: how long each has not run, and where it waits.

The client decides which ranks wait in a collective; this module only reads. A blocked main thread
costs one read of ``/proc/PID/schedstat``: its count of time slices does not change while the thread
does not run (https://docs.kernel.org/scheduler/sched-stats.html).
"""

from __future__ import annotations

import os
import re
import struct
import time
import zlib

from rgt_box import background, files, jsonline, procstat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterable, Mapping

    from rgt_wire import JsonObject

    from rgt_box.sampling import flight_dumps, nccl_ras


PERIOD = 5.0
"""Seconds between two checks."""
STACK_AFTER, FRAMES = 15.0, 4
"""Seconds without running after which the kernel stack is read, once, and the number of frames
reported.
"""
MOST = 32
"""Maximum number of processes in a sample: if it is full, a rank that is not listed may still be
alive.
"""
ENVIRONMENT = 256 << 10
"""Maximum bytes of a process's environment that are read."""

LAUNCHES = (
    ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE",
     ("TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT", "MASTER_ADDR", "MASTER_PORT")),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
     "OMPI_COMM_WORLD_LOCAL_SIZE",
     ("PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid")),
    ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS", ("HYDI_CONTROL_FD", "PMI_PORT")),
    ("SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", "", ("SLURM_JOB_ID", "SLURM_STEP_ID")),
)  # fmt: skip
"""By launcher: variables with the rank, the number of ranks, both for this machine, and those that
distinguish launches.
"""
LAUNCHER = re.compile(
    r"(?:^|[/\s])(?:torchrun|accelerate|deepspeed)\b|torch\.distributed\.(?:run|launch)\b"
)
"""A launcher may itself have a rank, that of its machine; the processes it starts have
``LOCAL_RANK`` as well.
"""
DUMP_WAIT = 0.1
"""Seconds to wait for the search for dumps."""


PHASES = (
    "loop", "data", "forward", "backward", "collective", "optimizer", "checkpoint", "evaluation",
    "start", "end",
)  # fmt: skip
HEARTBEAT_LINK = "/memfd:rgt-heartbeat (deleted)"
"""Target of the descriptor's link in /proc."""
_PAGE = struct.Struct("<8s7Q")
clock = time.monotonic_ns
LARGEST = (1 << 53) - 1
"""Largest integer that every JSON parser reads exactly."""


class RankMember:
    """One rank of a launch.

    Attributes:
        siblings: The ranks that its launcher started on this machine; empty if unknown.
        still_since: Since when its main thread has not run; None if that cannot be read.
        spins_since: Since when it has run nearly all the time; None if it does not.
        dump: Path of its flight recorder dump, or None.
    """

    __slots__ = ("beat", "beat_at", "dump", "dumps", "flight", "group", "looked", "pid", "ran",
                 "rank",
                 "ras", "ras_at", "reading", "siblings", "slices", "spins_since", "stack",
                 "started",
                 "still_since", "world")  # fmt: skip

    def __init__(self, started: float, env: Mapping[str, str], launch: tuple[Any, ...]) -> None:
        from rgt_box.sampling import (
            flight_dumps,
            nccl_ras,
        )  # here: a process that is no rank does without

        rank, world, local, local_world, names = launch
        self.started = started
        self.rank = int(env[rank])
        self.world = int(env[world])
        place = _parse_number(env.get(local))
        count = _parse_number(env.get(local_world))
        # Maximum number of ranks on one machine; a larger number from a launcher is ignored.
        most_local = 512
        if (
            place is not None
            and count is not None
            and place <= self.rank
            and place < count <= min(self.world, most_local)
        ):
            self.siblings = frozenset(range(self.rank - place, self.rank - place + count))
        else:
            self.siblings = frozenset()
        told = "\0".join(f"{name}={env.get(name, '')}" for name in names)
        self.group = "{:08x}".format(
            zlib.crc32(("%d\0%s" % (self.world, told)).encode("utf-8", "replace"))
        )
        self.dumps = flight_dumps.dump_paths(env, self.rank)
        self.dump: str | None = None
        self.flight: JsonObject | None = None
        self.ras_at = nccl_ras.ras_address_words(env)
        self.ras: JsonObject | None = None
        self.pid = 0
        self.beat: str | None = None
        self.beat_at = float("-inf")
        self.slices = -1
        self.ran = 0
        self.looked = 0.0
        self.still_since: float | None = None
        self.spins_since: float | None = None
        self.stack = ""
        self.reading: JsonObject = {}

    def read_state(self, pid: int, now: float) -> None:
        """Read the state of its main thread; `now` is monotonic."""
        self.pid = pid
        read = read_run_time(pid)
        if read is None:
            self.still_since = self.spins_since = None
        else:
            run_ns, slices = read
            if slices != self.slices:
                self.still_since = now
                self.stack = ""
            # Share of time that a main thread must run to count as spinning.
            busy_limit = 0.9
            busy = (
                self.slices >= 0
                and now > self.looked
                and (run_ns - self.ran) / 1e9 >= busy_limit * (now - self.looked)
            )
            if busy:
                self.spins_since = self.spins_since or self.looked
            else:
                self.spins_since = None
            self.ran = run_ns
            self.slices = slices
            self.looked = now
        if self.still_since is None:
            still = None
        else:
            still = now - self.still_since
        if still is not None and still >= STACK_AFTER and not self.stack:
            self.stack = read_kernel_stack(pid)
        self.reading = jsonline.drop_empty(
            {
                "rank": self.rank,
                "world": self.world,
                "group": self.group,
                "still_s": None if still is None else round(still, 1),
                "spin_s": None if self.spins_since is None else round(now - self.spins_since, 1),
                "wait": read_wait_function(pid) if still else None,
                "stack": self.stack or None,
                "beat": self._read_heartbeat(pid, now),
                "dump": self.dump,
                "flight": self.flight,
                "ras": self.ras,
            }
        )

    def stuck_seconds(self) -> float:
        """Return the seconds it has waited or computed without a break, as of the last check."""
        return float(max(self.reading.get("still_s", 0.0), self.reading.get("spin_s", 0.0)))

    def _read_heartbeat(self, pid: int, now: float) -> JsonObject | None:

        # Seconds after which a rank without a heartbeat is searched for one again.
        again = 20.0
        if self.beat is None and now - self.beat_at >= again:
            self.beat = find_heartbeat(pid)
            self.beat_at = now
        if self.beat is not None:
            told = read_phase(self.beat, self.rank, self.world)
        else:
            told = None
        if told is None:
            self.beat = None
        return told


class RankWatch:
    """Adds ``dist`` to the processes of a sample that are ranks of a launch."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[tuple[float, str], RankMember | None]] = {}
        self._seen: dict[str, dict[int, int]] = {}
        """Launch → seen rank → its pid."""
        self._flights: flight_dumps.FlightDumps | None = None
        self._ras_child: Any = None
        self._ras: dict[str, nccl_ras.RasWatch] = {}
        self._looked = float("-inf")
        self._wanted: list[RankMember] = []
        self._dumps = background.Background(self._find_dumps, 0.0, float("inf"))

    def add_rank_readings(self, procs: list[JsonObject], now: float | None = None) -> None:
        """Add the readings of the ranks among `procs`; they are read again every `PERIOD` seconds.

        Args:
            procs: As `ProcSampler.read` returns them; ``dist`` is added.
            now: Monotonic time.
        """
        if now is None:
            now = time.monotonic()
        before = self._known
        self._known = {}
        for proc in procs:
            pid = proc["pid"]
            key = (proc["started"], proc["cmd"])
            known = before.get(pid)
            if known is not None and known[0] == key:
                self._known[pid] = known
            else:
                self._known[pid] = (key, read_rank(pid, *key))
        firsts = self._ranks_without_children(procs)
        due = now - self._looked >= PERIOD - 0.5
        if due:
            self._looked = now
            self._wanted = [member for _, member in firsts]
            if firsts:
                self._dumps.poll(DUMP_WAIT)
        for proc, member in firsts:
            if due or not member.reading:
                member.read_state(proc["pid"], now)
            proc["dist"] = dict(member.reading)
        self._mark_lost_ranks(firsts, complete=len(procs) < MOST)

    def _find_dumps(self) -> None:
        """Find the ranks' dumps.

        Runs in a thread, because their directory may be on a mount that hangs.

        They are read only if a rank of the launch is suspected to be stuck.
        """
        from rgt_box.sampling import flight_dumps

        wanted = self._wanted
        self._flights = self._flights or flight_dumps.FlightDumps()
        for member in wanted:
            member.dump = next(
                (path for path in member.dumps if _is_newer(path, member.started)), None
            )
        # Seconds that a rank must wait or compute without a break before its flight recorder dump
        # is read.
        suspect_s = 10.0
        suspect = {member.group for member in wanted if member.stuck_seconds() >= suspect_s}
        read = [member for member in wanted if member.dump is not None and member.group in suspect]
        self._flights.keep_only(member.dump for member in read if member.dump is not None)
        for member in wanted:
            if member in read and member.dump is not None:
                member.flight = self._flights.read_dump(member.dump)
            else:
                member.flight = None
        self._query_nccl(wanted)

    def _query_nccl(self, wanted: list[RankMember]) -> None:
        """Query NCCL about launches whose local ranks all wait.

        The first rank reports the answer.
        """
        from rgt_box.sampling import nccl_ras

        self._ras_child = self._ras_child or nccl_ras.new_child()
        groups: dict[str, list[RankMember]] = {}
        for member in wanted:
            groups.setdefault(member.group, []).append(member)
        self._ras = {
            group: self._ras.get(group) or nccl_ras.RasWatch(self._ras_child) for group in groups
        }
        for group, members in groups.items():
            first = min(members, key=lambda member: member.rank)
            if first.ras_at is not None:
                ranks = {member.pid: member.rank for member in members if member.pid}
                stood = min(member.stuck_seconds() for member in members)
                first.ras = self._ras[group].poll_stuck_launch(
                    stood, ranks, first.world, first.ras_at
                )

    def _ranks_without_children(
        self, procs: Iterable[JsonObject]
    ) -> list[tuple[JsonObject, RankMember]]:
        """Return the ranks without their children, which are younger with the same environment."""
        found: dict[tuple[str, int], tuple[JsonObject, RankMember]] = {}
        for proc in sorted(procs, key=lambda proc: (proc["started"], proc["pid"])):
            member = self._known[proc["pid"]][1]
            if member is not None:
                found.setdefault((member.group, member.rank), (proc, member))
        return list(found.values())

    def _mark_lost_ranks(self, firsts: list[tuple[JsonObject, RankMember]], complete: bool) -> None:
        """Add the local ranks that are gone although others of their launch are alive."""
        groups: dict[str, list[tuple[JsonObject, RankMember]]] = {}
        for proc, member in firsts:
            groups.setdefault(member.group, []).append((proc, member))
        self._seen = {group: self._seen.get(group, {}) for group in groups}
        for group, both in groups.items():
            alive = {
                member.rank: proc["pid"]
                for proc, member in both
                if proc.get("state") not in ("Z", "X")
            }
            seen = self._seen[group]
            seen.update(alive)
            expected = set().union(*(member.siblings for _, member in both))
            if complete:
                lost = sorted((expected | set(seen)) - set(alive))[:MOST]
            else:
                lost = []
            for proc, _ in both:
                if lost:
                    proc["dist"]["lost"] = [[rank, seen.get(rank)] for rank in lost]


def read_rank(pid: int, started: float, cmd: str) -> RankMember | None:
    """Return the rank of a process; None for any other process, or without permission."""
    raw = procstat.read_whole("/proc/%d/environ" % pid, ENVIRONMENT) or b""
    rows = (row.split(b"=", 1) for row in raw.split(b"\0") if b"=" in row)
    env = {name.decode("latin-1"): os.fsdecode(value) for name, value in rows}
    for launch in LAUNCHES:
        rank = _parse_number(env.get(launch[0]))
        world = _parse_number(env.get(launch[1]))
        if rank is None or world is None or not rank < world or world < 2:
            continue
        if LAUNCHER.search(cmd) and launch[2] not in env:
            continue
        return RankMember(started, env, launch)
    return None


def _parse_number(text: str | None) -> int | None:
    if text is not None and re.fullmatch("[0-9]{1,7}", text):
        return int(text)
    return None


def read_run_time(pid: int) -> tuple[int, int] | None:
    """Return the main thread's run time in nanoseconds and its number of time slices.

    Return None if unknown.
    """
    words = (procstat.read_bytes("/proc/%d/schedstat" % pid, 256) or b"").split()
    if len(words) == 3 and words[2] != b"0":
        return int(words[0]), int(words[2])
    text = procstat.read_bytes("/proc/%d/status" % pid, 8192) or b""
    switches = re.findall(rb"^(?:non)?voluntary_ctxt_switches:\s*(\d+)", text, re.MULTILINE)
    stat = procstat.read_bytes("/proc/%d/task/%d/stat" % (pid, pid), 4096) or b""
    if len(switches) != 2 or b")" not in stat:
        return None
    fields = stat[stat.rindex(b")") + 2 :].split()
    ticks = int(fields[11]) + int(fields[12])
    return ticks * (1_000_000_000 // procstat.CLOCK_TICKS), sum(map(int, switches)) + ticks


def read_wait_function(pid: int) -> str | None:
    """Return the kernel function in which the main thread sleeps (proc(5), ``wchan``).

    Return None if unknown.
    """
    text = (
        (procstat.read_bytes("/proc/%d/wchan" % pid, 128) or b"").decode("ascii", "replace").strip()
    )
    if text not in ("", "0"):
        return text
    return None


def read_kernel_stack(pid: int) -> str:
    """Return the innermost kernel functions of the main thread.

    Return "" without the permission to read them.
    """
    text = (procstat.read_bytes("/proc/%d/stack" % pid, 4096) or b"").decode("ascii", "replace")
    return " < ".join(re.findall(r"^\[<[0-9a-f]+>\] ([\w.]+)", text, re.MULTILINE)[:FRAMES])


def _is_newer(path: str, than: float) -> bool:
    try:
        return os.stat(path).st_mtime >= than
    except (OSError, ValueError):
        return False


# The heartbeat of a rank of our own trainer, read from a memory page that it has open.
#
# The layout is that of ``rgt_train/ranks/heartbeat.py``. The page is found among the open files of
# the process, so that no directory and no other machine is involved; it needs the same permission
# as reading the environment.


def find_heartbeat(pid: int) -> str | None:
    """Return the path of a process's heartbeat; None if it has none or is not readable."""
    folder = "/proc/%d/fd" % pid
    try:
        with os.scandir(folder) as entries:
            # Maximum number of a process's open files that are searched for it.
            most_open = 4096
            for _, entry in zip(range(most_open), entries):
                path = f"{folder}/{entry.name}"
                if _is_heartbeat_link(path):
                    return path
    except OSError:
        pass
    return None


def _is_heartbeat_link(path: str) -> bool:
    try:
        return os.readlink(path) == HEARTBEAT_LINK
    except OSError:
        return False


def read_phase(path: str, rank: int, world: int) -> JsonObject | None:
    """Return the content of the heartbeat at `path`; None if it is gone or belongs to another rank.

    Returns:
        ``phase`` and the seconds since it began (``for_s``), steps done (``step``), seconds since
        the last one ended (``step_s``), duration of a usual one and of the slowest, and steps done
        by this process (``steps``).
    """
    if not _is_heartbeat_link(path):
        return None
    try:
        fd = files.open_regular(path)  # a user's own mount namespace may have a device here
    except OSError:
        return None
    try:
        raw = b""
        tries = 4
        for _ in range(tries):  # two equal reads: not in the middle of a change
            before, raw = raw, os.pread(fd, _PAGE.size, 0)
            if raw == before:
                return _parse_heartbeat(raw, rank, world)
    except OSError:
        pass
    finally:
        os.close(fd)
    return None


def _parse_heartbeat(raw: bytes, rank: int, world: int) -> JsonObject | None:
    if len(raw) != _PAGE.size:
        return None
    magic, who, since, step, stepped, usual, slowest, steps = _PAGE.unpack(raw)
    now = clock()
    phase = since & 15
    # A time in the future is from another clock (a time namespace).
    if (
        magic != b"rgtbeat1"
        or who != rank << 32 | world
        or phase >= len(PHASES)
        or max(since - 15, stepped) > now
    ):
        return None
    return {
        "phase": PHASES[phase],
        "for_s": round(max(0, now - since) / 1e9, 1),
        "step": min(step, LARGEST),
        "step_s": round((now - stepped) / 1e9, 1),
        "usual_s": round(usual / 1e9, 3),
        "slowest_s": round(slowest / 1e9, 3),
        "steps": min(steps, LARGEST),
    }
