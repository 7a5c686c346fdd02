"""Who owns a process, a socket or a directory: what another user could change is not run, connected to or believed.

A tmux server may order its client to run any command (``MSG_LOCK``), and code is run from the state directory: whoever
can put something there is whoever the agent runs as. Root's own things are trusted, for root may do all this anyway.
"""

from __future__ import annotations

import os
import re
import stat
import struct

from rgt_box import procstat
from rgt_box.landing import is_ours as is_ours
from rgt_box.landing import take as take
from rgt_box.landing import user_name as user_name

ANSWER = 2.0
"""Seconds for a server to take our connection."""


def uids(pid: int) -> tuple[int, ...]:
    """Return a process's real, effective, saved and file system uid; () when it is gone.

    The owner of ``/proc/PID`` would not do: it is the effective one, and of a set-user-ID program another user has
    chosen arguments and environment.
    """
    found = re.search(
        rb"^Uid:\s+([\d\s]+)$", procstat.read_bytes("/proc/%d/status" % pid, 8192) or b"", re.M
    )
    if found:
        return tuple(map(int, found.group(1).split()))
    return ()


def is_own_process(pid: int) -> bool:
    """Tell whether a process is this user's in every respect: not what another user started by set-user-ID."""
    return set(uids(pid)) == {os.geteuid()}


LONGEST_NAME = 64
"""Characters of a user's name that are told."""


def users(path: str = "/etc/passwd") -> dict[int, str]:
    """Return the names of the users that the box itself lists.

    Those of a directory service are not asked for: it may hang, and with it the samples. Such a user is a number.
    """
    found: dict[int, str] = {}
    for row in (procstat.read_whole(path, 1 << 20) or b"").decode("utf-8", "replace").splitlines():
        cells = row.split(":")
        if len(cells) > 2 and cells[2].isdigit():
            found.setdefault(int(cells[2]), cells[0][:LONGEST_NAME])
    return found


def user_of(pid: int) -> str | None:
    """Return who started a process, as `users` names him, else by number; None when it is gone."""
    found = uids(pid)
    if found:
        return users().get(found[0], str(found[0]))
    return None


def own_socket(path: str) -> str | None:
    """Return where a server of this user listens, as a path that nobody else can redirect; None if none does.

    Nothing is connected to before it is known whose it is.
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
            client.settimeout(ANSWER)
            client.connect(real)
            said = client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
    except (OSError, ValueError):
        return None
    if struct.unpack("3i", said)[1] == os.geteuid():
        return real
    return None


def is_another_users(folder: str) -> bool:
    """Tell whether a directory is there, and is not this user's."""
    try:
        return os.stat(folder).st_uid != os.geteuid()
    except OSError:
        return False


def forget_foreign_tmux() -> None:
    """Take another user's tmux out of the environment, where ``su`` left it: every tmux command would go there."""
    if own_socket(os.environ["TMUX"].split(",")[0]) is None:
        del os.environ["TMUX"]


def why_unsafe(folder: str, top: str = "/", only_replaced: bool = False) -> str:
    """Say why the content of a directory may be somebody else's; "" when only this user and root can write there.

    Args:
        folder: A directory; links in its path are followed.
        top: The highest directory that is looked at.
        only_replaced: It is enough that nobody can replace what stands there already: others may add to it, as in /tmp.

    Raises:
        OSError: when it, or a directory above it, is not there or cannot be looked at.
    """
    place = first = os.path.realpath(folder)
    top = os.path.realpath(top)
    while True:
        seen = os.stat(place)
        if seen.st_uid not in (0, os.geteuid()):
            return f"{place} belongs to {user_name(seen.st_uid)}"
        others = _writers(seen)
        # In a sticky directory what is ours can be neither removed nor renamed by anybody else.
        if others and not (seen.st_mode & stat.S_ISVTX and (only_replaced or place != first)):
            return f"{others} can write to {place}: chmod go-w {place}"
        if place in ("/", top):
            return ""
        place = os.path.dirname(place)


def _writers(seen: os.stat_result) -> str:
    """Say who else may write to a directory."""
    if seen.st_mode & stat.S_IWOTH:
        return "everybody"
    if seen.st_mode & stat.S_IWGRP and seen.st_gid and not _is_private(seen.st_gid):
        return "the group %d" % seen.st_gid
    return ""


def _is_private(gid: int) -> bool:
    """Tell whether a group is one user's alone, as many systems make one for each: of this user, with no others."""
    try:
        import grp
        import pwd

        group, user = grp.getgrgid(gid), pwd.getpwuid(os.geteuid())
    except (ImportError, KeyError):
        return False
    return (
        gid == user.pw_gid and group.gr_name == user.pw_name and set(group.gr_mem) <= {user.pw_name}
    )
