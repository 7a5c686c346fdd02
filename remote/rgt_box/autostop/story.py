"""Records of an armed box: the event log, the journal of a stop, and the warning text.

Events are forwarded to the recorder's history and the user's sink; the log is also copied to
storage that survives a stop.
"""

from __future__ import annotations

import contextlib
import os
import stat
import time

from rgt_wire import duration_text

from rgt_box import background, files, jsonline, ownership, place
from rgt_box.recorder import state_files
from rgt_box.sampling import quiet_signs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Mapping, Sequence

    from rgt_wire import JsonObject


FILE, COPY = "autostop.jsonl", "rgt-autostop.jsonl"
MOST = 1 << 20
"""Size in bytes above which the older half of the log is dropped."""
READ = 4 << 20


def append_event(folder: str, event: str, text: str, **more: Any) -> bool:
    """Append an event to the log; returns False if it could not be written anywhere."""
    line = jsonline.encode_line(
        dict(
            {
                "at": round(time.time(), 3),
                "boot": place.boot_id(),
                "event": event,
                "text": text[:2000],
            },
            **more,
        )
    )
    memory = state_files.memory_folder(folder)
    # On a full disk the line goes to tmpfs: the events of a stop must not be lost with it.
    for where in [folder] if memory is None else [folder, memory]:
        if _append_line(where, line):
            return True
    memory = state_files.memory_folder(folder, make=True)
    return memory is not None and _append_line(memory, line)


def _append_line(where: str, line: bytes) -> bool:
    path = os.path.join(where, FILE)
    try:
        ownership.ensure_private_folder(where)
        fd = files.open_appending(path)
        try:
            size = os.fstat(fd).st_size
            try:
                files.write_all(fd, line)
            except OSError:
                os.ftruncate(fd, size)  # half a line would corrupt the next one
                raise
            os.fsync(fd)
        finally:
            os.close(fd)
    except OSError:
        return False
    if size > MOST:
        _drop_older_half(path)
    return True


def _drop_older_half(path: str) -> None:
    # The line is stored already: a log that cannot be read or shortened now stays as it is.
    with contextlib.suppress(OSError):
        data = files.read_existing(path, READ) or b""
        # Cut after a newline, so that the first line left is complete.
        files.replace_file(path, data[data.find(b"\n", len(data) // 2) + 1 :], sync=True)


def read_events(folder: str) -> list[JsonObject]:
    """Return all log lines, oldest first."""
    found: list[JsonObject] = []
    for where in state_files.state_folders(folder):
        data = files.read_file(os.path.join(where, FILE), READ) or b""
        found += [line for line in map(jsonline.loads_dict, data.splitlines()) if line is not None]
    return found


def last_event(folder: str) -> JsonObject | None:
    """Return the newest log line without its boot ID; None if the log is empty."""
    lines = read_events(folder)
    if lines:
        return {key: lines[-1].get(key) for key in ("at", "event", "text")}
    return None


def copy_event_log(folder: str, durable: list[str]) -> list[str]:
    """Copy the log into directories that survive a stop; returns an error per failed directory."""
    data = b"".join(map(jsonline.encode_line, read_events(folder)))
    failed = []
    for where in durable:
        try:
            path = os.path.join(where, COPY)
            files.replace_file(path, data, sync=True)
            # The directory too: network volumes may lose a rename that was not synced.
            files.sync_path(where)
        except OSError as error:
            failed.append(f"{where}: {error.strerror}")
    return failed


class EventTail:
    """Reads lines added to the log after this object was created, by any process."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._seen: dict[str, tuple[int, int]] = {}
        self._last: dict[str, bytes] = {}
        """The last line of each file. Two lines may have equal times, so time is not a cursor."""
        self._told = 0.0
        self.new_events()

    def new_events(self) -> list[JsonObject]:
        """Return the lines added since the previous call."""
        found: list[JsonObject] = []
        for where in state_files.state_folders(self._folder):
            path = os.path.join(where, FILE)
            mark = files.signature(path)
            if mark is None:
                continue
            inode = mark[0]
            size = mark[1]
            before = self._seen.get(path)
            if before == (inode, size):
                continue
            data = files.read_file(path, READ)
            if data is None:
                continue  # read again at the next call
            # Another process may be in the middle of its line; the rest is read the next time.
            whole = data[: data.rfind(b"\n") + 1]
            last = self._last.get(path)
            if before is not None and before[0] == inode:
                start = before[1]
            else:  # the older half was dropped, so this is a new file
                if last is not None:
                    at = whole.rfind(last)
                else:
                    at = -1
                start = 0
                if last is not None and at >= 0:
                    start = at + len(last)
            self._seen[path] = (inode, len(whole))
            if whole:
                self._last[path] = whole[whole.rfind(b"\n", 0, -1) + 1 :]
            lines = [
                line
                for line in map(jsonline.loads_dict, whole[start:].splitlines())
                if line is not None
            ]
            if start == 0 and before is not None:
                # The last known line is gone, too; times are the only cursor left.
                lines = [line for line in lines if float(line.get("at") or 0.0) > self._told]
            found += lines
        self._told = max([self._told] + [float(line.get("at") or 0.0) for line in found])
        return found


LOCK, JOURNAL = "autostop-stop.lock", "autostop-stop.json"
BEGUN, SEALED, SAVED, INTENT, ANSWERED = "begun", "sealed", "saved", "intent", "answered"
OFF, WITHDRAWN, FAILED = "off", "withdrawn", "failed"
UNFINISHED, FINISHED = (BEGUN, SEALED, SAVED, INTENT, ANSWERED), (OFF, WITHDRAWN, FAILED)
"""Journal phases: of a stop in progress or killed midway, and of one that has finished."""
ASKED = (INTENT, ANSWERED)
"""Phases in which the platform may have received the stop: ask it for the state before anything
else."""


def is_at_work(folder: str) -> bool:
    """Return whether a stop process is running."""
    return any(
        files.is_locked(os.path.join(where, LOCK)) for where in state_files.state_folders(folder)
    )


def mode_at_work(folder: str) -> str:
    """Return the mode (idle or lease) of the running stop process; "" if unknown."""
    for where in state_files.state_folders(folder):
        found = files.lock_holder(os.path.join(where, LOCK)).get("mode")
        if found:
            return str(found)
    return ""


def read_journal(folder: str) -> JsonObject:
    """Return the journal of the last stop; {} without one."""
    return state_files.read_json(folder, JOURNAL)


def forget_journal(folder: str) -> None:
    """Remove the journal, unless the call to the platform may have been sent."""
    # The next stop process needs it to ask for the outcome instead of stopping again.
    if read_journal(folder).get("phase") not in ASKED:
        state_files.unlink_everywhere(folder, JOURNAL)


def wait_factor() -> float:
    """Return the factor applied to every wait; ``RGT_AUTOSTOP_PACE`` (0 to 1) speeds up tests."""
    try:
        return min(1.0, max(0.0, float(os.environ.get("RGT_AUTOSTOP_PACE", ""))))
    except ValueError:
        return 1.0


def start_within() -> float:
    """Return the seconds after which a stop process without its lock counts as dead."""
    # Seconds for the stop process to acquire its lock.
    start_within_limit = 15.0
    return max(2.0, start_within_limit * wait_factor())


def warning_text(
    plan: Mapping[str, Any],
    mode: str,
    stops_in: float,
    unsaving: list[str],
    no_progress: Sequence[str] = (),
) -> str:
    """Return the warning as one line, with the evidence of live runs without progress."""
    left = duration_text(stops_in)
    if mode == "idle":
        words = f"Idle for {duration_text(plan['idle_s'])}, its limit ends in {left}"
    else:
        words = f"Lease of {duration_text(plan['lease_s'])} ends in {left}"
    if plan["action"] == "ask":
        words += ". This box cannot stop itself: stop it"
    else:
        words += ". This box then parks itself"
    if mode == "lease" and unsaving:
        words += f"; not known to save on SIGTERM: {', '.join(unsaving[:5])}"
    if mode == "idle" and no_progress:
        words += f"; {'; '.join(no_progress[:3])}"
    return words


def keep_command() -> str:
    """Return the command that the user types on the box to postpone a stop."""
    return " ".join([*place.agent_command("autostop"), "--keep", "2h"])


def write_to_terminals(words: str) -> int:
    """Write a warning to all terminals; returns how many of this user's own were reached.

    ``wall`` reaches only logins recorded in utmp, and containers record none. So this user's
    terminals are written to directly, and ``wall`` is used only for those of other users.
    """
    message = (
        f"\r\nrgt: {_printable_text(words)}.\r\nTo keep it: {_printable_text(keep_command())}\r\n"
    )
    reached = 0
    others = False
    for path in sorted(quiet_signs.terminals()):
        try:
            seen = os.stat(path)
            if not stat.S_ISCHR(seen.st_mode) or os.path.basename(path) == "ptmx":
                continue
            if seen.st_uid != os.geteuid():
                others = others or not path.startswith("/dev/tty")
                continue
            if path.startswith("/dev/tty"):
                continue
            fd = os.open(path, os.O_WRONLY | os.O_NOCTTY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            continue
        try:
            os.write(fd, message.encode("utf-8", "replace"))
            reached += 1
        except OSError:
            pass  # the terminal's buffer is full because no process reads it
        finally:
            os.close(fd)
    if others and background.which("wall") is not None:
        try:
            wall_timeout = 5.0
            background.run_program(["wall", message.replace("\r", "")], wall_timeout)
        except TimeoutError:
            pass
    return reached


def _printable_text(words: str) -> str:
    return "".join(char if char.isprintable() else " " for char in words)
