"""Start, find, replace, stop and configure the recorder from another process."""

from __future__ import annotations

import os
import re
import signal
import time
import warnings

from rgt_box import files, ownership, place, procstat
from rgt_box.recorder import state_files

TYPE_CHECKING = False

if TYPE_CHECKING:
    from rgt_wire import JsonObject

STOPPED_WITHIN = 5.0


def start_detached(words: list[str], log: str | None = None) -> None:
    """Start a detached process: own session, no terminal, no inherited descriptors, never awaited.

    Args:
        words: The command line.
        log: File to append its output to; discarded by default.
    """
    # Python 3.12 warns about forks in threaded processes; this child only execs.
    warnings.filterwarnings("ignore", category=DeprecationWarning, message=".*fork.*")
    # Two forks: the second child has no parent that must reap it, and cannot get a terminal again.
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        return
    try:
        os.setsid()
        if os.fork():
            os._exit(0)
        null = os.open(os.devnull, os.O_RDWR)
        if log is None:
            out = null
        else:
            out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        for target, source in ((0, null), (1, out), (2, out)):
            os.dup2(source, target)
        # An inherited lock or SSH pipe would stay open as long as the recorder runs.
        os.closerange(3, 256)
        os.chdir("/")
        os.execv(words[0], words)
    finally:
        # Never return into the caller's code: this is a copy of its process.
        os._exit(127)


def live_status(folder: str) -> JsonObject | None:
    """Return the status of the live recorder; None if there is no ready one."""
    found = state_files.read_status(folder, state_files.STATUS)
    if found is None or found.get("error"):
        return None
    return found


def last_failure(folder: str) -> str | None:
    """Return the write error that ended the last recorder; None if there was none."""
    error = state_files.read_json(folder, state_files.STATUS).get("error")
    if error:
        return str(error)
    return None


def is_running(folder: str) -> bool:
    """Return whether a recorder holds the lock."""
    return any(
        files.is_locked(os.path.join(where, state_files.LOCK))
        for where in state_files.state_folders(folder)
    )


def find_host_elsewhere(folder: str) -> str | None:
    """Return a message if the lock belongs to another host's or container's recorder."""
    owner = files.read_json(os.path.join(folder, place.OWNER), 4096)
    if owner is None or owner == place.host_identity() or not is_running(folder):
        return None
    return (
        f"{folder} is in use by the recorder of {owner.get('host')}; set another RGT_STATE_DIR here"
    )


def signal_recorder(folder: str, number: int) -> bool:
    """Send a signal to the recorder; its pid is trusted only together with its start time."""
    for where in state_files.state_folders(folder):
        found = files.lock_holder(os.path.join(where, state_files.LOCK))
        pid = int(found.get("pid") or 0)
        if procstat.is_alive(pid, found.get("ticks")):
            try:
                os.kill(pid, number)
            except OSError:
                continue
            return True
    return False


def stop_recorder(folder: str, within: float = STOPPED_WITHIN) -> bool:
    """Ask the recorder to stop and wait for it; one that replaces it meanwhile is stopped as well.

    Returns:
        True if none is running any more.
    """
    deadline = time.monotonic() + within
    while is_running(folder):
        if time.monotonic() > deadline:
            return False
        signal_recorder(folder, signal.SIGTERM)  # a repeated signal is ignored
        time.sleep(0.01)
    return True


def ensure_running(folder: str, idle_hours: float | None = None) -> JsonObject | None:
    """Make sure that a recorder is running that is not older than this code.

    Args:
        folder: The state directory.
        idle_hours: Passed to a recorder that has to be started.

    Returns:
        Its status; None if it cannot run here (`last_failure` may say why).
    """
    found: JsonObject | None = None
    # An older client may start its recorder first after a newer one has stopped one.
    tries = 3
    for _ in range(tries):
        if is_running(folder):
            found = live_status(folder) or _wait_for_status(
                folder, state_files.read_json(folder, state_files.STATUS)
            )
            if found is not None and not state_files.is_older(found):
                return found
            if found is not None and not stop_recorder(folder):
                return found  # an old recorder that does not stop is better than none
        found = _start_recorder(folder, idle_hours)
        if found is None or not state_files.is_older(found):
            return found
    return found


def _start_recorder(folder: str, idle_hours: float | None) -> JsonObject | None:
    """Start a recorder.

    Return the status of the one that then runs, which may be another client's.
    """
    if unwritable(folder) and state_files.memory_folder(folder, make=True) is None:
        return None
    words = place.agent_command("record", "--foreground")
    if idle_hours is not None:
        words += ["--idle-hours", f"{idle_hours:g}"]
    # Not removed: by now it may belong to a recorder that another process started, which writes it
    # only once.
    before = state_files.read_json(folder, state_files.STATUS)
    start_detached(words)
    return _wait_for_status(folder, before)


def unwritable(folder: str) -> str | None:
    """Return why nothing can be written to the state directory; None if it can."""
    try:
        ownership.ensure_private_folder(folder)
        files.replace_file(os.path.join(folder, "probe"), b"probe\n")
        files.unlink_if_exists(os.path.join(folder, "probe"))
    except OSError as error:
        return f"the ring in {folder} cannot be written: {error.strerror}"
    return None


def _wait_for_status(folder: str, before: JsonObject) -> JsonObject | None:
    """Wait for the status of a live recorder; None on a failure that differs from `before`."""
    # A loaded box takes seconds to start a process; a recorder that cannot write reports it at
    # once.
    ready_within = 10.0
    # A recorder of another host never writes one that is live here. Not at once: ours has the lock
    # for a moment before it writes whose it is.
    elsewhere_s = 1.0
    deadline = time.monotonic() + ready_within
    here_at = time.monotonic()
    while time.monotonic() < deadline:
        if find_host_elsewhere(folder) is None:
            here_at = time.monotonic()
        elif time.monotonic() - here_at > elsewhere_s:
            return None
        found = live_status(folder)
        if found is not None:
            return found
        told = state_files.read_json(folder, state_files.STATUS)
        if told.get("error") and told != before:
            return None
        time.sleep(0.005)
    return None


_NAME = re.compile(r"watch-(\d+)\.json$")
LISTS = ("mounts", "jobs", "notices")
LATEST = ("pattern", "gpu_trace", "find")
MIN_INTERVAL, MAX_INTERVAL = 0.05, 3600.0


class LiveWatchers:
    """The live watchers of a state directory, reread when the directory changes."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._signature: list[tuple[int, int, int] | None] = []
        self._entries: list[JsonObject] = []

    def live_entries(self) -> list[JsonObject]:
        """Return the entries of live watchers, the most recently started one last."""
        places = state_files.state_folders(self._folder)
        signature = [files.signature(where) for where in places]
        if signature != self._signature or None in signature:
            self._entries = [
                entry
                for entry in map(self._load_entry, self._watcher_paths(places))
                if entry is not None
            ]
            self._entries.sort(key=lambda entry: (int(entry["ticks"]), int(entry["pid"])))
            self._signature = signature
        # Checked every time: a killed watcher leaves its file unchanged.
        alive = [
            entry for entry in self._entries if procstat.is_alive(entry["pid"], entry["ticks"])
        ]
        if len(alive) != len(self._entries):
            for entry in self._entries:
                if entry not in alive:
                    state_files.unlink_everywhere(self._folder, entry_name(entry["pid"]))
            self._entries = alive
        return alive

    @staticmethod
    def _watcher_paths(places: list[str]) -> list[str]:
        found = []
        for folder in places:
            try:
                found += [
                    os.path.join(folder, name) for name in os.listdir(folder) if _NAME.match(name)
                ]
            except OSError:
                continue
        return found

    @staticmethod
    def _load_entry(path: str) -> JsonObject | None:
        entry = files.read_json(path)
        if (
            entry is None
            or not isinstance(entry.get("pid"), int)
            or not isinstance(entry.get("ticks"), int)
        ):
            return None
        return entry


def has_live_watcher(folder: str) -> bool:
    """Return whether a client watches through this state directory; read-only."""
    entries = map(
        LiveWatchers._load_entry, LiveWatchers._watcher_paths(state_files.state_folders(folder))
    )
    return any(
        entry is not None and procstat.is_alive(entry["pid"], entry["ticks"]) for entry in entries
    )


def entry_name(pid: int) -> str:
    """Return the name of a watcher's file."""
    return "watch-%d.json" % pid


def register_watcher(folder: str, config: JsonObject, after: JsonObject | None) -> None:
    """Write this process's watcher file.

    Args:
        folder: The state directory.
        config: This watcher's ``interval``, ``mounts``, ``jobs``, ``notices``, ``pattern``,
            ``find``, ``gpu_trace``.
        after: The client's last ``{"boot", "seq"}``: numbers up to it must not be used again.
    """
    pid = os.getpid()
    keys = ("interval",) + LISTS + LATEST
    entry = {"pid": pid, "ticks": procstat.start_ticks(pid), "after": after}
    entry["config"] = {key: config.get(key) for key in keys}
    state_files.write_json(folder, entry_name(pid), entry)


def unregister_watcher(folder: str) -> None:
    """Remove this process's watcher file."""
    state_files.unlink_everywhere(folder, entry_name(os.getpid()))


def merge_configs(entries: list[JsonObject], last: JsonObject) -> JsonObject:
    """Return the recorder's configuration: fastest interval, all mounts and jobs, newest pattern.

    Args:
        entries: Live watchers.
        last: The previous configuration, which stays valid without watchers.
    """
    configs = [entry["config"] for entry in entries if isinstance(entry.get("config"), dict)]
    if not configs:
        return last
    merged: JsonObject = {}
    intervals = [float(config["interval"]) for config in configs if config.get("interval")]
    if intervals:
        merged["interval"] = clamp_interval(min(intervals))
    else:
        merged["interval"] = 1.0
    for key in LISTS:
        merged[key] = list(
            dict.fromkeys(str(item) for config in configs for item in config.get(key) or [])
        )
    for key in LATEST:
        values = [config.get(key) for config in configs if config.get(key)]
        # Entries are sorted by start, so the last one is the newest watcher.
        merged[key] = values[-1] if values else None
    return merged


def clamp_interval(interval: float) -> float:
    """Return an interval limited to what the agent supports."""
    return min(MAX_INTERVAL, max(MIN_INTERVAL, interval))
