"""Signs of use while nothing trains: programs that copy files, and terminal input."""

from __future__ import annotations

import functools
import glob
import os
import re
import stat
import time

from rgt_box import background, procstat
from rgt_box.sampling.processes import AGENT, FULL, YOUNG, program_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Iterable, Mapping

    from rgt_wire import JsonObject

PERIOD = 10.0
"""Seconds between two checks."""
MOST = 16
"""Maximum number of transfers that are reported."""

TRANSFERS: dict[str, tuple[str, ...]] = {
    "rsync": (), "scp": (), "sftp": (), "rclone": (), "s5cmd": (), "azcopy": (), "lftp": (),
    "croc": (),
    "cp": (), "mv": (), "tar": (), "dd": (), "restic": (), "borg": (), "unison": (), "bbcp": (),
    "oss": (),
    "ossutil": (), "ossutil64": (), "obsutil": (), "coscli": (), "b2": (), "s3cmd": (),
    "aws": ("s3", "s3api"), "gsutil": ("cp", "mv", "rsync"), "gcloud": ("storage",),
    "az": ("storage",),
    "mc": ("cp", "mirror", "mv", "pipe"), "hf": ("upload", "upload-large-folder", "download"),
    "huggingface-cli": ("upload", "upload-large-folder", "download"), "git-lfs": (),
    "git": ("push", "lfs"),
    "dvc": ("push",), "wandb": ("sync", "artifact"), "runpodctl": ("send",), "vastai": ("copy",),
    "kubectl": ("cp",), "modelscope": ("upload", "download"), "kaggle": ("datasets", "models"),
}  # fmt: skip
"""Program → words of which one must be among its arguments; () for a program that only copies."""
SFTP = "sftp-server"
_NO_STORAGE = ("/dev/", "/proc/", "/memfd:")
_PYTHON = re.compile(r"(?:python|pypy)[\d.]*")
_OWN_TRANSFERS = ("mirror",)
"""Verbs of the agent itself that copy to storage."""


def transfer_name(words: list[str]) -> str | None:
    """Return the name of a command line that copies files; None for all others.

    An SFTP server is called `SFTP`; its open files show whether it transfers anything. Of rgt's own
    commands only those in `_OWN_TRANSFERS` count.
    """
    if any(AGENT.search(word) for word in words[:5]):
        verb = next((word for word in words[1:7] if word in _OWN_TRANSFERS), None)
        if verb:
            return f"rgt {verb}"
        return None
    if words and words[0].endswith("@internal-sftp"):  # sshd's own title for it
        return SFTP
    name = program_name(words)
    rest = words[1:]
    if _PYTHON.fullmatch(name):
        rest = [word for word in rest if not word.startswith("-")]
        name = ""
        if rest:
            name = os.path.basename(rest[0])
        rest = rest[1:]
    if name == SFTP:
        return SFTP
    needed = TRANSFERS.get(name)
    if needed is None:
        return None
    if not needed:
        return name
    word = next((word for word in rest if word in needed), None)
    if word:
        return f"{name} {word}"
    return None


@functools.lru_cache(maxsize=512)
def _cached_transfer_name(cmdline: bytes) -> str | None:
    """Return a command line's transfer name.

    Cached, because few processes are new at each check.
    """
    return transfer_name(procstat.split_cmdline(cmdline))


@functools.lru_cache(maxsize=512)
def _is_agent(cmdline: bytes) -> bool:
    return any(AGENT.search(word) for word in procstat.split_cmdline(cmdline)[:5])


class CommandLines:
    """The command lines of all processes.

    Processes without one, such as kernel threads, are reread only while they are new and every
    `FULL` checks. All others are reread each time: any of them may `exec` a program that copies,
    and the box must not be stopped then.
    """

    def __init__(self) -> None:
        self._known: dict[int, tuple[int, bytes]] = {}
        self._looks = 0

    def read(self) -> dict[int, bytes]:
        """Return pid → command line, as in /proc, of every process."""
        full = self._looks % FULL == 0
        self._looks += 1
        before = self._known
        self._known = {}
        for pid in map(int, filter(str.isdigit, os.listdir("/proc"))):
            looks, line = before.get(pid, (0, b""))
            if line or full or looks <= YOUNG:
                line = procstat.read_bytes("/proc/%d/cmdline" % pid, 1024) or b""
            self._known[pid] = looks + 1, line
        return {pid: line for pid, (_, line) in self._known.items()}


def transfers(lines: Mapping[int, bytes] | None = None) -> list[JsonObject]:
    """Return ``pid`` and ``name`` of the programs that are copying files.

    If there are too many, those with the highest pids, which are usually the newest ones.

    Args:
        lines: Result of `CommandLines.read`; None to read them now.
    """
    if lines is None:
        lines = CommandLines().read()
    found: list[JsonObject] = []
    for pid in sorted(lines, reverse=True):
        name = _cached_transfer_name(lines[pid])
        if (
            name is None
            or procstat.start_ticks(pid) is None
            or (name == SFTP and not _serves_file(pid))
        ):
            continue
        found.append({"pid": pid, "name": name})
        if len(found) >= MOST:
            break
    return found


def _serves_file(pid: int) -> bool:
    """Return whether a file server has a file open.

    Return True, the cautious answer, if that is unknown.
    """
    folder = "/proc/%d/fd" % pid
    try:
        names = os.listdir(folder)
    # It has ended; any other error, such as a missing permission, leaves it unknown.
    except FileNotFoundError:
        return False
    except OSError:
        return True
    for name in set(names) - {"0", "1", "2"}:  # its errors may go to a file
        try:
            target = os.readlink(os.path.join(folder, name))
        except OSError:
            continue
        # Do not stat the file itself: it may be on a mount that hangs.
        if (
            target.startswith("/")
            and not target.startswith(_NO_STORAGE)
            and not _is_listed(pid, name)
        ):
            return True
    return False


def _is_listed(pid: int, number: str) -> bool:
    """Return whether an open file is a directory, by its open flags."""
    return bool((procstat.read_open_flags(pid, number) or 0) & os.O_DIRECTORY)


TERMINALS = "/dev/pts/[0-9]*:/dev/tty[0-9]*"


def terminals() -> list[str]:
    """Return the terminals of the box.

    ``RGT_TERMINALS`` overrides them with globs separated by ``:``.
    """
    patterns = os.environ.get("RGT_TERMINALS", TERMINALS).split(":")
    return [path for pattern in patterns if pattern for path in glob.glob(pattern)]


def input_at(paths: Iterable[str] | None = None, lines: Mapping[int, bytes] | None = None) -> float:
    """Return when a user last typed at a terminal that is not rgt's (epoch seconds); 0 if never.

    The kernel stores it as the access time, to about 8 seconds (``tty_update_time`` in
    drivers/tty/tty_io.c); ``w`` shows the same. Opening a terminal counts as input.

    Args:
        paths: The terminals; None for those of the box.
        lines: As for `transfers`.
    """
    read: list[tuple[float, int]] = []
    for path in terminals() if paths is None else paths:
        try:
            seen = os.stat(path)
        except OSError:
            continue
        if stat.S_ISCHR(seen.st_mode):
            # st_rdev names the terminal itself; processes report theirs by this number.
            read.append((seen.st_atime, seen.st_rdev))
    now = time.time()
    # Input older than this many seconds is not checked for its origin.
    fresh_limit = 300.0
    fresh = any(now - at < fresh_limit for at, _ in read)
    # Reading all command lines is the expensive part, so only when it can change the answer.
    if fresh:
        ours = _runner_terminals(CommandLines().read() if lines is None else lines)
    else:
        ours = frozenset()
    return max((at for at, device in read if device not in ours), default=0.0)


def _runner_terminals(lines: Mapping[int, bytes]) -> frozenset[int]:
    """Return the terminals of rgt's queue runners, where no user types."""
    found = set()
    for pid, line in lines.items():
        if _is_agent(line):
            known = procstat.read_stat(pid)
            if known is not None and known.terminal:
                found.add(_device_number(known.terminal))
    return frozenset(found)


def _device_number(number: int) -> int:
    """Return a device number as in ``stat``, from the packed ``tty_nr`` of proc(5)."""
    return os.makedev((number >> 8) & 0xFFF, (number & 0xFF) | ((number >> 12) & 0xFFF00))


class QuietSigns:
    """Checks for signs of use every `PERIOD` seconds, see `background.poll_period`."""

    def __init__(self) -> None:
        self._every = background.poll_period(PERIOD)
        self._looked = float("-inf")
        self._lines = CommandLines()
        self._typed = 0.0
        """Also of terminals that no longer exist."""
        self._found: JsonObject = {}

    def read(self) -> JsonObject:
        """Return the fields ``transfers`` and ``input_at`` of a sample.

        An unknown one is missing.
        """
        now = time.monotonic()
        if now - self._looked >= self._every:
            self._looked = now
            self._found = {}
            lines = self._lines.read()
            self._found["transfers"] = transfers(lines)
            self._typed = max(self._typed, input_at(lines=lines))
            self._found["input_at"] = round(self._typed, 1)
        return self._found
