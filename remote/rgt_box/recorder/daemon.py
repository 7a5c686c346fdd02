"""The recorder: a detached process, one per state directory, that samples into the ring.

It continues without a client.
"""

from __future__ import annotations

import os
import signal
import sys
import time

from rgt_box import background, files, ownership, place, procstat
from rgt_box.recorder import control, preemption, ring, state_files
from rgt_box.recorder.ring_history import HistoryStore
from rgt_box.recorder.state_files import (
    ARMED,
    CONFIG,
    FOUND,
    KNOWN_QUEUES,
    LOCK,
    SINK,
    STATUS,
    STOP_STATE,
    ClockWatch,
    describe_self,
    next_tick,
)
from rgt_box.sampling.sampler import BoxSampler
from rgt_box.streams.job_looks import JobPolls

TYPE_CHECKING = False

if TYPE_CHECKING:
    from typing import Callable

    from rgt_wire import JsonObject

    from rgt_box.autostop.watchman import AutostopMonitor

LEVELS = {"failed": "error", "interrupted": "warn"}


class QueueLog:
    """Compares the queues with their last known state, also across recorders.

    Args:
        folder: The state directory.
    """

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._known: JsonObject = state_files.read_json(folder, KNOWN_QUEUES)
        self._taken: dict[str, JsonObject] = {}

    def apply_frames(
        self,
        frames: dict[str, JsonObject],
        launched_at: Callable[[str], float | None] = lambda path: None,
    ) -> list[tuple[str, str, str]]:
        """Return events as ``(kind, text, level)``, in order.

        Args:
            frames: The last ``queue`` frame of each job.
            launched_at: Returns when a job was last launched on this box. Changes of its cells
                since then are reported even if the queue is seen for the first time.
        """
        events = []
        changed = False
        for path, frame in frames.items():
            if self._taken.get(path) is not frame:
                changed = True
                now = comparable_state(frame)
                cells = frame.get("cells", [])
                launched = launched_at(path)
                if path in self._known:
                    events += transitions(self._known[path], now, cells)
                elif launched is not None:
                    before = [
                        cell for cell in cells if float(cell.get("started") or 0.0) < launched
                    ]
                    events += transitions(comparable_state({"cells": before}), now, cells)
                self._known[path] = now
        self._taken = frames
        if changed:
            state_files.write_json(self._folder, KNOWN_QUEUES, self._known)
        return events


def comparable_state(frame: JsonObject) -> JsonObject:
    """Return the compared part of a queue: cells' states and attempts, and whether it is done."""
    cells = {
        cell["name"]: [cell.get("state"), cell.get("attempts") or 0]
        for cell in frame.get("cells", [])
    }
    return {"cells": cells, "done": bool(frame.get("done"))}


def transitions(
    old: JsonObject, new: JsonObject, cells: list[JsonObject]
) -> list[tuple[str, str, str]]:
    """Return the events between two queue states, ordered by the runner's recorded times."""
    found: list[tuple[float, tuple[str, str, str]]] = []
    before = old.get("cells") or {}
    for cell in cells:
        name = cell["name"]
        state = str(cell.get("state"))
        attempts = cell.get("attempts") or 0
        was, ran = before.get(name) or ["waiting", 0]
        started = float(cell.get("started") or 0.0)
        ended = float(cell.get("ended") or 0.0)
        if attempts > ran or (state == "running" and was != "running"):
            found.append(
                (started, ("cell-running", "%s: running, attempt %d" % (name, attempts), "info"))
            )
        if state != "running" and (state != was or attempts > ran):
            why = [
                str(cell[key]) for key in ("reason", "signal") if cell.get(key) and state != "done"
            ]
            if cell.get("exit_code") is not None:
                why.append("exit %d" % cell["exit_code"])
            text = f"{name}: {', '.join([state] + why)}"
            found.append((max(started, ended), ("cell-" + state, text, LEVELS.get(state, "info"))))
    found.sort(key=lambda item: item[0])  # stable: a start stays before an end in the same second
    events = [event for _, event in found]
    if new["done"] and not old.get("done"):
        events.append(("queue-done", "every cell of the queue has run", "info"))
    return events


DEFAULT_CONFIG = {
    "interval": 1.0, "mounts": [], "jobs": [], "notices": [], "pattern": None, "gpu_trace": None,
}  # fmt: skip
IDLE_HOURS = 72.0
GIVE_BACK_FIRST, GIVE_BACK_MOST = 10.0, 600.0
"""Seconds until free memory is first returned to the system, when there is most to return, and
maximum between two times.

It takes less than a millisecond; the interval doubles each time.
"""

STOP, WAKE = (signal.SIGTERM, signal.SIGINT), signal.SIGHUP

OK, ALREADY, UNUSABLE = 0, 3, 4
"""Exit statuses of the recorder's process."""


class Recorder:
    """The recorder's main loop and its state.

    Args:
        folder: The state directory.
        store: Where to write.
        idle_hours: Hours without a watcher after which the recorder stops.
        held: Its lock.
    """

    def __init__(
        self, folder: str, store: HistoryStore, idle_hours: float, held: files.FileLock
    ) -> None:
        self._folder = folder
        self._store = store
        self._idle_hours = idle_hours
        self._held = held
        self._watchers = control.LiveWatchers(folder)
        self._config: JsonObject = dict(DEFAULT_CONFIG, **state_files.read_json(folder, CONFIG))
        self._queues = QueueLog(folder)
        self._clock = ClockWatch()
        self._jobs = JobPolls(folder)
        self._written: list[str] = []
        self._sampler = BoxSampler(
            folder, store.last_sample.get("mem", {}).get("oom_kills"), jobs=self._jobs
        )
        self._preemption = preemption.PreemptionWatch(folder, lambda: list(self._config["jobs"]))
        self._preemption.set_platforms(self._config["notices"])
        self._watched = time.monotonic()
        self._live: list[JsonObject] = []
        # Not the wall clock: another process compares it, and the clock may be set in between.
        self._unwatched_since: float | None = time.clock_gettime(time.CLOCK_BOOTTIME)
        self._boot = place.boot_id()
        self._watchman: AutostopMonitor | None = None
        self._start_watchman_if_needed()

    def run(self) -> None:
        """Sample until asked to stop, or until there was no watcher for too long."""
        self._apply_watchers(first=True)
        if self._store.last_boot not in (None, self._boot):
            self.record_event(
                "rebooted", "the box was rebooted (or its container was restarted)", "warn"
            )
        self.record_event(
            "agent-started", "recorder %s, pid %d" % (place.agent_digest(), os.getpid())
        )
        wait = 0.2  # the first sample may take longer
        due = time.monotonic()
        give_back = due + GIVE_BACK_FIRST
        pause = GIVE_BACK_FIRST
        while True:
            if not self._held.is_in_place():
                return  # its directory was removed; writing would create it again
            self._record_changes()
            self._take_sample(wait)
            wait = 0.0
            self._store.add_segment()
            if time.monotonic() >= give_back:
                procstat.release_freed_memory()
                pause = min(GIVE_BACK_MOST, 2.0 * pause)
                give_back = time.monotonic() + pause
            interval = float(self._config["interval"])
            due = next_tick(due, interval, time.monotonic())
            if self._sleep_until(due):
                self.record_event("agent-stopped", "the recorder was asked to stop")
                return
            # Woken early by a watcher: the grid of samples starts again from now.
            due = min(due, time.monotonic())
            # An armed recorder stays: without it the box would not stop itself.
            if not self._is_armed and not os.path.exists(place.code_root()):
                self.record_event(
                    "agent-stopped", f"its agent file was removed: {place.code_root()}", "warn"
                )
                return
            if not self._is_armed and time.monotonic() - self._watched > self._idle_hours * 3600.0:
                self.record_event("agent-stopped", f"no client for {self._idle_hours:g} hours")
                return

    def _start_watchman_if_needed(self) -> None:
        """Start the watchman once something is armed or a sink is configured."""
        if self._watchman is None and state_files.is_there(self._folder, (ARMED, STOP_STATE, SINK)):
            from rgt_box.autostop.watchman import AutostopMonitor  # here: most boxes have neither

            self._watchman = AutostopMonitor(self._folder, self.record_event)

    @property
    def _is_armed(self) -> bool:
        return self._watchman is not None and self._watchman.has_plans

    def _record_changes(self) -> None:
        """Record changes besides samples: clock jumps, cells' states, the ring's location."""
        jump = self._clock.read_jump()
        if jump:
            self.record_event(
                "clock-jumped", f"the box's clock was changed by {jump:+.0f} s", "warn"
            )
        for kind, text, level in [
            *self._preemption.poll_events(),
            *self._jobs.poll_jobs(self._config["jobs"]),
        ]:
            self.record_event(kind, text, level)
        try:
            for kind, text, level in self._queues.apply_frames(
                self._jobs.queue_frames(), self._jobs.launched_at
            ):
                self.record_event(kind, text, level)
        except (OSError, ValueError, TypeError, KeyError):
            pass  # `watch` reports an invalid queue file with its own message
        written = self._jobs.written_folders()
        if written != self._written:  # a job may be created after its watcher requested it
            self._written = written
            self._sampler.configure(self._config, written)
        news, self._store.news = self._store.news, []
        for kind, text, level in news:
            self.record_event(kind, text, level)
        if news:
            write_status(self._folder, self._build_status())

    def _sleep_until(self, due: float) -> bool:
        """Wait for the next tick or a change of the watchers; return True if asked to stop."""
        while True:
            got = signal.sigtimedwait(set(STOP) | {WAKE}, max(0.0, due - time.monotonic()))
            if got is not None and got.si_signo in STOP:
                return True
            if self._apply_watchers() or got is None or self._preemption.has_changed():
                return False

    def _apply_watchers(self, first: bool = False) -> bool:
        """Apply the live watchers' settings; return True if the configuration changed."""
        self._live = self._watchers.live_entries()
        if self._live:
            self._watched = time.monotonic()
        came_or_left = bool(self._live) == (self._unwatched_since is not None)
        if came_or_left:
            if self._live:
                self._unwatched_since = None
            else:
                self._unwatched_since = time.clock_gettime(time.CLOCK_BOOTTIME)
        for entry in self._live:
            after = entry.get("after") or {}
            if after.get("boot") == self._boot and isinstance(after.get("seq"), int):
                # A lost ring would start at 1, and the client would take its numbers for
                # duplicates.
                self._store.skip_to(after["seq"])
        self._start_watchman_if_needed()
        merged = control.merge_configs(self._live, self._config)
        if self._watchman is not None:
            merged = self._watchman.extend_config(merged)
        changed = first or merged != self._config
        if changed:
            self._config = merged
            self._sampler.configure(merged, self._written)
            self._preemption.set_platforms(merged["notices"])
            state_files.write_json(self._folder, CONFIG, merged)
        # Only now: before its first configuration the sampler knows no GPU.
        if changed or came_or_left:
            write_status(self._folder, self._build_status())
        return changed

    def _build_status(self) -> JsonObject:
        trouble = self._store.trouble or ""
        return dict(
            describe_self(),
            boot=self._boot,
            gpu_source=self._sampler.gpu_source,
            limited=self._sampler.limited + ["history is in memory: " + trouble] * bool(trouble),
            interval=self._config["interval"],
            unwatched_since=self._unwatched_since,
        )

    def _take_sample(self, wait: float) -> None:
        fields, events = self._sampler.read(wait)
        for event in events:
            self.record_event(event["kind"], event["text"], event["level"])
        finder = self._sampler.finder
        if finder is not None and finder.changed:
            state_files.write_json(self._folder, FOUND, finder.build_report())
        pids = [os.getpid()] + [entry["pid"] for entry in self._live]
        frame = dict({"t": "sample", "boot": "", "seq": 0}, **fields)
        if self._preemption.notice is not None:
            frame["notice"] = self._preemption.notice
        if self._watchman is not None:
            frame.update(self._watchman.tick(fields, self._sampler))
        frame["agent_rss"] = sum(map(procstat.resident_bytes, pids))
        try:
            self._store.append_frame(ring.SAMPLE, frame)
        except ValueError:  # too large for the ring: leave out the lists
            self._store.append_frame(ring.SAMPLE, dict(frame, procs=[], disks=frame["disks"][:8]))

    def record_event(self, kind: str, text: str, level: str = "info") -> None:
        """Record an event."""
        frame = {"t": "event", "boot": "", "seq": 0, "at": round(time.time(), 3)}
        frame.update(kind=kind, text=text[:4000], level=level)
        self._store.append_frame(ring.EVENT, frame)
        self._start_watchman_if_needed()
        if self._watchman is not None:
            self._watchman.forward_to_sink(kind, text)


def write_status(folder: str, status: JsonObject) -> None:
    """Write the recorder's status."""
    state_files.write_json(folder, STATUS, status)


def claim_folder(held: files.FileLock) -> None:
    """Write the owner of the state directory, if it is writable; memory is this box's anyway."""
    folder = os.path.dirname(held.path)
    try:
        place.claim_state_dir(folder)
        state_files.forget_hosts(folder)
    except OSError:
        pass


def acquire_lock(folder: str) -> files.FileLock | None:
    """Acquire the recorder's lock, in memory if the state directory is not writable.

    Return None if it is taken.

    Raises:
        OSError: There is no place for a lock.
    """
    try:
        ownership.ensure_private_folder(folder)
        held = files.FileLock(os.path.join(folder, LOCK))
        if not held.acquire():
            return None
    except OSError:
        # The disk became full after a recorder had started: its lock is still the valid one.
        if not ownership.is_another_users(folder) and files.is_locked(os.path.join(folder, LOCK)):
            return None
        memory = state_files.memory_folder(folder, make=True)
        if memory is None:
            raise
        held = files.FileLock(os.path.join(memory, LOCK))
        if held.acquire():
            return held
        return None
    memory = state_files.memory_folder(folder)
    # A recorder that started while the disk was full holds its lock in memory.
    if memory is not None and files.is_locked(os.path.join(memory, LOCK)):
        return None
    return held


def run_recorder(folder: str, idle_hours: float = IDLE_HOURS) -> int:
    """Run the recorder in this process until asked to stop.

    Returns:
        `OK`, `ALREADY` if another recorder holds the lock, `UNUSABLE` if nothing can be written.
    """
    # Blocked, and received with sigtimedwait: no handler can interrupt a write to the ring.
    signal.pthread_sigmask(signal.SIG_BLOCK, set(STOP) | {WAKE})
    try:
        held = acquire_lock(folder)
        if held is None:
            return ALREADY
        # The status of a killed recorder could name a pid that is in use again.
        state_files.unlink_everywhere(folder, STATUS)
        held.write_owner(describe_self())
        claim_folder(held)
        Recorder(folder, HistoryStore(folder, place.boot_id()), idle_hours, held).run()
    except (OSError, ValueError) as error:
        # In the status as well: the process that started it has no pipe to this one.
        text = f"the ring in {folder} cannot be written: {background.error_text(error)}"
        write_status(folder, dict(describe_self(), error=text))
        print(text, file=sys.stderr)
        return UNUSABLE
    if held.is_in_place():  # otherwise it may be that of the next recorder
        state_files.unlink_everywhere(folder, STATUS)
    memory = state_files.memory_folder(folder)
    if memory is not None and os.listdir(memory) in ([], [LOCK]):
        files.unlink_if_exists(os.path.join(memory, LOCK))
        os.rmdir(memory)
    return OK
