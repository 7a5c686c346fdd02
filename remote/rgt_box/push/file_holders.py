"""Which processes use a file or directory: have it open, mapped, as working directory, run it, or name it.

Only what this user may look at is seen. A process of this user that hides what it has open is a doubt; other users'
processes are one where they could get at the file.
"""

from __future__ import annotations

import errno
import os
import re

from rgt_box import files, ownership, procstat
from rgt_box.commands import remove

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Iterator

_MAPPED = re.compile(rb"^\S+ \S+ \S+ \S+ \d+ +(/.*)$", re.M)
_HIDDEN = frozenset(
    ("sshd", "sshd-session", "ssh-agent", "(sd-pam)", "systemd", "gpg-agent", "su", "sudo", "ping")
)
"""Programs that no other may look into, and that run no code of anybody's."""
_MAPS = 16 << 20
_GONE = " (deleted)"
"""What the kernel adds to the name of a file that was removed."""


class Held:
    """What is known of who uses some paths.

    Attributes:
        doubts: What could not be asked; each may hide a user of any of them.
    """

    def __init__(self) -> None:
        self._who: dict[str, list[str]] = {}
        self.doubts: list[str] = []

    def add(self, path: str, who: str) -> None:
        """Note a user of a path."""
        known = self._who.setdefault(path, [])
        if who not in known:
            known.append(who)

    def of(self, path: str) -> list[str]:
        """Return who uses a path, in words."""
        return list(self._who.get(path, []))


def opened(paths: list[str]) -> Held:
    """Return which processes have one of these open, mapped, as working directory or as their program.

    Args:
        paths: Files, or directories with all that is in them; absolute.
    """
    found = Held()
    real: dict[str, list[str]] = {}
    for path in paths:
        if not os.path.islink(path):  # what a link leads to has a path of its own
            real.setdefault(os.path.realpath(path), []).append(path)
    mine = os.getpid()
    for entry in os.listdir("/proc"):
        if not entry.isdigit() or int(entry) == mine:
            continue
        pid = int(entry)
        try:
            targets = list(_targets(pid))
        except PermissionError:
            _doubt(pid, found)
            continue
        except OSError:
            continue  # it has ended
        for target, how in targets:
            for path in _above(target, real):
                for name in real[path]:
                    found.add(name, "process %d %s" % (pid, how % target))
    return found


def _above(target: str, known: dict[str, list[str]]) -> Iterator[str]:
    while len(target) > 1:
        if target in known:
            yield target
        target = os.path.dirname(target)


def _targets(pid: int) -> Iterator[tuple[str, str]]:
    """Yield the paths that a process uses, and how.

    Raises:
        PermissionError: it may not be looked at.
        OSError: it has gone.
    """
    folder = "/proc/%d/" % pid
    for name, how in (("cwd", "works in %s"), ("exe", "runs %s")):
        try:
            yield _plain(os.readlink(folder + name)), how
        except FileNotFoundError:
            if name == "cwd":
                raise
    for name in os.listdir(folder + "fd"):
        try:
            target = os.readlink(folder + "fd/" + name)
        except FileNotFoundError:
            continue
        if target.startswith("/"):
            yield _plain(target), "has %s open"
    for match in set(_MAPPED.findall(procstat.read_whole(folder + "maps", _MAPS) or b"")):
        yield _plain(os.fsdecode(match)), "has %s mapped"


def _plain(target: str) -> str:
    return target[: -len(_GONE)] if target.endswith(_GONE) else target


def _doubt(pid: int, found: Held) -> None:
    name = (procstat.read_bytes("/proc/%d/comm" % pid, 64) or b"").decode("utf-8", "replace").strip()
    owners = ownership.uids(pid)
    if not owners or 0 in owners or name in _HIDDEN or name.startswith("sshd"):
        return  # root's own daemons and those that let nobody look in run none of this user's files
    whose = "" if owners[0] == os.geteuid() else " of %s" % ownership.user_name(owners[0])
    doubt = "what process %d (%s)%s uses cannot be inspected" % (pid, name or "unnamed", whose)
    if len(found.doubts) < 3 and doubt not in found.doubts:
        found.doubts.append(doubt)


def users(paths: list[str], jobs: list[str], links: tuple[str, ...] = ()) -> Held:
    """Return who uses these paths, as `opened` tells it, or names one: a process, a queue, Slurm, a Pod or cron.

    Args:
        paths: Directories whose names hold a hash: wherever one is named, it is meant.
        jobs: Job directories.
        links: Links to them, which have a name that anything may have: only in full they are named.
    """
    found = opened(paths)
    naming, doubts = remove.look_for_namers(paths, jobs, links)
    found.doubts += doubts
    by_name: dict[str, list[str]] = {link: [link] for link in links}
    for path in paths:
        by_name.setdefault(os.path.basename(path), []).append(path)
    for namer in naming:
        for path in by_name.get(namer.file, []):
            found.add(path, "%s names it" % namer.who)
    for job in jobs:
        try:
            for path in (*paths, *links):
                if _named_in(job, path):
                    found.add(path, "the job in %s names it" % job)
        except OSError as error:
            found.doubts.append("what the job in %s names cannot be read: %s" % (job, error.strerror))
    return found


def _named_in(job: str, path: str) -> bool:
    """Tell whether a job's files name a path, in full or by the last part of it.

    Raises:
        OSError: one of them cannot be read, is no regular file, or too large.
    """
    folder = os.path.abspath(os.path.expanduser(job))
    name = re.compile(rb"(?<![\w.\-])%s(?![\w.\-])" % re.escape(os.fsencode(os.path.basename(path))))
    for file in ("job.json", "queue.txt", "indexes.json"):
        try:
            with open(files.open_regular(os.path.join(folder, file)), "rb") as source:
                text = source.read(remove.LONGEST + 1)
        except FileNotFoundError:
            continue
        if name.search(text):
            return True
        if len(text) > remove.LONGEST:
            raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), file)
    return False
