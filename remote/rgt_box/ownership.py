"""Ownership checks: nothing that another user could change is run, connected to or trusted.

A tmux server may order its client to run any command (``MSG_LOCK``), and code is run from the state
directory: a user who can write there can run code as the agent's user. Root's own files are
trusted, because root can do all this anyway.
"""

from __future__ import annotations

import os
import re
import stat
import struct

from rgt_box import procstat
from rgt_box.landing import ensure_private_folder as ensure_private_folder
from rgt_box.landing import is_ours as is_ours
from rgt_box.landing import user_name as user_name


def process_uids(pid: int) -> tuple[int, ...]:
    """Return a process's real, effective, saved and file system uid; () if it has ended.

    The owner of ``/proc/PID`` is not enough: it is the effective uid, and a set-user-ID program has
    arguments and environment chosen by another user.
    """
    found = re.search(
        rb"^Uid:\s+([\d\s]+)$", procstat.read_bytes("/proc/%d/status" % pid, 8192) or b"", re.M
    )
    if found:
        return tuple(map(int, found.group(1).split()))
    return ()


def is_own_process(pid: int) -> bool:
    """Return whether all uids of a process are this user's, which excludes set-user-ID programs."""
    return set(process_uids(pid)) == {os.geteuid()}


LONGEST_NAME = 64
"""Maximum characters reported of a user's name."""


def user_names(path: str = "/etc/passwd") -> dict[int, str]:
    """Return the users that the box itself lists, as uid → name.

    A directory service is not queried: it may hang, and with it the samples. Its users are shown as
    numbers.
    """
    found: dict[int, str] = {}
    for row in (procstat.read_whole(path, 1 << 20) or b"").decode("utf-8", "replace").splitlines():
        cells = row.split(":")
        if len(cells) > 2 and cells[2].isdigit():
            # The first row of a uid counts, as in getpwuid(3).
            found.setdefault(int(cells[2]), cells[0][:LONGEST_NAME])
    return found


def process_user_name(pid: int) -> str | None:
    """Return the name, or otherwise the number, of the user who started a process.

    Return None if it has ended.
    """
    found = process_uids(pid)
    if found:
        return user_names().get(found[0], str(found[0]))
    return None


def own_socket(path: str) -> str | None:
    """Return the safe path of a socket on which a server of this user listens; None if none does.

    Its owner is checked before connecting, and no other user can redirect the path.
    """
    import socket

    folder = os.path.realpath(os.path.dirname(path))
    real = os.path.join(folder, os.path.basename(path))
    try:
        seen = os.lstat(real)
        if (
            not stat.S_ISSOCK(seen.st_mode)
            or seen.st_uid != os.geteuid()
            or why_unsafe(folder, only_replaced=True)
        ):
            return None
        with socket.socket(socket.AF_UNIX) as client:
            # Seconds for a server to accept our connection.
            answer = 2.0
            client.settimeout(answer)
            # A dead server leaves its socket file: only a connection shows that it lives.
            client.connect(real)
            # struct ucred: pid, uid and gid of the process that listens (unix(7)).
            said = client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
    except (OSError, ValueError):
        return None
    if struct.unpack("3i", said)[1] == os.geteuid():
        return real
    return None


def is_another_users(folder: str) -> bool:
    """Return whether a directory exists and belongs to another user."""
    try:
        return os.stat(folder).st_uid != os.geteuid()
    except OSError:
        return False


def forget_foreign_tmux() -> None:
    """Remove another user's tmux from the environment, where ``su`` leaves it.

    Every tmux command would go there.
    """
    if own_socket(os.environ["TMUX"].split(",")[0]) is None:
        del os.environ["TMUX"]


def why_unsafe(folder: str, top: str = "/", only_replaced: bool = False) -> str:
    """Return why a directory's content may be another user's.

    Return "" if only this user and root can write.

    Args:
        folder: A directory; links in its path are followed.
        top: The highest directory that is checked.
        only_replaced: Check only that existing entries cannot be replaced: others may add entries,
            as in /tmp.

    Raises:
        OSError: It, or a directory above it, does not exist or cannot be read.
    """
    # Every directory above counts: who can write to one can replace the whole path below it.
    place = first = os.path.realpath(folder)
    top = os.path.realpath(top)
    while True:
        seen = os.stat(place)
        if seen.st_uid not in (0, os.geteuid()):
            return f"{place} belongs to {user_name(seen.st_uid)}"
        others = _other_writers(seen)
        # In a sticky directory our entries can be neither removed nor renamed by other users.
        if others and not (seen.st_mode & stat.S_ISVTX and (only_replaced or place != first)):
            return f"{others} can write to {place}: chmod go-w {place}"
        if place in ("/", top):
            return ""
        place = os.path.dirname(place)


def _other_writers(seen: os.stat_result) -> str:
    """Return who else may write to a directory."""
    if seen.st_mode & stat.S_IWOTH:
        return "everyone"
    # Group 0 is root's own, which is trusted.
    if seen.st_mode & stat.S_IWGRP and seen.st_gid and not _is_private(seen.st_gid):
        return "the group %d" % seen.st_gid
    return ""


def _is_private(gid: int) -> bool:
    """Return whether a group belongs to this user only, as many systems create one per user."""
    try:
        import grp
        import pwd

        group, user = grp.getgrgid(gid), pwd.getpwuid(os.geteuid())
    except (ImportError, KeyError):
        return False
    return (
        gid == user.pw_gid and group.gr_name == user.pw_name and set(group.gr_mem) <= {user.pw_name}
    )
