"""The recorder: a detached process that samples into the ring while nobody watches, one per state directory."""

from __future__ import annotations

import os
import signal
import sys
import time

from rgt_box import background, files, jsonline, lock, place, procstat
from rgt_box.cells import jobfile
from rgt_box.history import segment, watchers
from rgt_box.history.layout import CONFIG, LOCK, RING, STATUS, describe_self, next_tick
from rgt_box.history.ring import Ring, ring_bytes
from rgt_box.sampling.sampler import Sampler

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

DEFAULT_CONFIG = {"interval": 1.0, "mounts": [], "jobs": [], "pattern": None, "gpu_trace": None}
IDLE_HOURS = 72.0
JOBS_EVERY = 15.0
"""Seconds between two looks into job.json: a job may be made after its watcher has asked for it."""

STOP, WAKE = (signal.SIGTERM, signal.SIGINT), signal.SIGHUP

OK, ALREADY, UNUSABLE = 0, 3, 4
"""Exit statuses of the recorder's process."""


class Recorder:
    """The loop and what it keeps.

    Args:
        folder: The state directory.
        ring: Where to write.
        idle_hours: Hours without a watcher after which the recorder ends by itself.
    """

    def __init__(self, folder: str, ring: Ring, idle_hours: float) -> None:
        self._folder, self._ring, self._idle_hours = folder, ring, idle_hours
        self._watchers = watchers.Watchers(folder)
        self._config: dict[str, Any] = dict(
            DEFAULT_CONFIG, **(files.read_json(os.path.join(folder, CONFIG)) or {})
        )
        self._sampler = Sampler(folder, ring.last_sample.get("mem", {}).get("oom_kills"))
        self._watched = time.monotonic()
        self._live: list[dict[str, Any]] = []
        self._boot = place.boot_id()
        self._looked = 0.0

    def run(self) -> None:
        """Sample until told to stop, or until nobody has watched for too long."""
        self._adopt(first=True)
        if self._ring.last_boot not in (None, self._boot):
            self.event("rebooted", "the box has booted anew (or its container was restarted)", "warn")
        self.event("agent-started", "recorder %s, pid %d" % (place.digest(), os.getpid()))
        wait = 0.2  # the first sample may take its time
        due = time.monotonic()
        while True:
            self._sample(wait)
            wait = 0.0
            self._ring.grow()
            interval = float(self._config["interval"])
            due = next_tick(due, interval, time.monotonic())
            if self._sleep_until(due):
                self.event("agent-stopped", "the recorder was asked to stop")
                return
            due = min(due, time.monotonic())
            if time.monotonic() - self._watched > self._idle_hours * 3600.0:
                self.event("agent-stopped", "nobody has watched for %g hours" % self._idle_hours)
                return

    def _sleep_until(self, due: float) -> bool:
        """Wait for the next tick, or until the watchers want something else; True when told to stop."""
        while True:
            got = signal.sigtimedwait(set(STOP) | {WAKE}, max(0.0, due - time.monotonic()))
            if got is not None and got.si_signo in STOP:
                return True
            if self._adopt() or got is None:
                return False

    def _adopt(self, first: bool = False) -> bool:
        """Take over what the live watchers ask for; True when it changed."""
        self._live = self._watchers.live()
        if self._live:
            self._watched = time.monotonic()
        for entry in self._live:
            after = entry.get("after") or {}
            if after.get("boot") == self._boot and isinstance(after.get("seq"), int):
                self._ring.skip_to(after["seq"])
        merged = watchers.merge(self._live, self._config)
        changed = first or merged != self._config
        now = time.monotonic()
        if not changed and now - self._looked < JOBS_EVERY:
            return False
        self._looked, self._config = now, merged
        written = [path for job in merged["jobs"] for path in jobfile.written_dirs(job)]
        self._sampler.configure(merged, written)
        if not changed:
            return False
        try:
            files.write_json(os.path.join(self._folder, CONFIG), merged)
        except OSError:
            pass  # only the next recorder would have wanted it
        write_status(self._folder, self._status())
        return True

    def _status(self) -> dict[str, Any]:
        return dict(
            describe_self(),
            boot=self._boot,
            gpu_source=self._sampler.gpu_source,
            limited=self._sampler.limited,
            interval=self._config["interval"],
        )

    def _sample(self, wait: float) -> None:
        fields, events = self._sampler.read(wait)
        for event in events:
            self.event(event["kind"], event["text"], event["level"])
        pids = [os.getpid()] + [entry["pid"] for entry in self._live]
        frame = dict({"t": "sample", "boot": "", "seq": 0}, **fields)
        frame["agent_rss"] = sum(map(procstat.resident, pids))
        try:
            self._ring.append(segment.SAMPLE, frame, jsonline.dumps)
        except ValueError:  # larger than the ring takes: better without the lists than no sample
            self._ring.append(segment.SAMPLE, dict(frame, procs=[], disks=frame["disks"][:8]), jsonline.dumps)

    def event(self, kind: str, text: str, level: str = "info") -> None:
        """Record an event."""
        frame = {"t": "event", "boot": "", "seq": 0, "at": round(time.time(), 3)}
        frame.update(kind=kind, text=text[:4000], level=level)
        self._ring.append(segment.EVENT, frame, jsonline.dumps)


def write_status(folder: str, status: dict[str, Any]) -> None:
    """Say how the recorder stands; a disk that is full is not worth dying for."""
    try:
        files.write_json(os.path.join(folder, STATUS), status)
    except OSError:
        pass


def serve(folder: str, idle_hours: float = IDLE_HOURS) -> int:
    """Be the recorder, in this process, until told to stop.

    Returns:
        `OK`, `ALREADY` when another recorder holds the lock, `UNUSABLE` when the ring cannot be written.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, set(STOP) | {WAKE})
    held = lock.Lock(os.path.join(folder, LOCK))
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        if not held.acquire():
            return ALREADY
        files.unlink(os.path.join(folder, STATUS))
        held.write(describe_self())
        ring = Ring(os.path.join(folder, RING), place.boot_id(), ring_bytes())
        Recorder(folder, ring, idle_hours).run()
    except (OSError, ValueError) as error:
        text = "the ring in %s cannot be written: %s" % (folder, background.describe(error))
        write_status(folder, dict(describe_self(), error=text))
        print(text, file=sys.stderr)
        return UNUSABLE
    files.unlink(os.path.join(folder, STATUS))
    return OK
