"""Runs on a box before the agent exists there: finds the agent's file, or writes it.

The client sends this file's text, so it imports no module of ours. The agent's file belongs in
``~/.cache/rgt``. If that is not writable (a full disk, a quota, a read-only home), it goes into a
private directory below `BASES`, created with mode 0700 under a random name and recognised by owner
and mode, so that no other user can have prepared it. If nothing is writable, an older complete
agent is used. A file with the right content is never written again; one with other content is
replaced by a rename.
"""

from __future__ import annotations

import errno
import glob
import hashlib
import os
import re
import stat
import sys

BASES = ("/tmp", "/var/tmp", "/dev/shm")
"""Disk before memory: logind empties /dev/shm when a user logs out. ``RGT_SPARE_DIRS`` overrides
these, separated by ``:``.
"""
AGENT = re.compile(r"rgt-box-([0-9a-f]{16})\.pyz$")
OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


def main(verb: str, name: str, digest: str, spare: str) -> int:
    """Print a line of ``RGT`` and tab-separated values; errors go to standard error.

    Args:
        verb: look or write.
        name: File name of the agent.
        digest: SHA-256 of its content, in hex; ``write`` reads the content from standard input.
        spare: "1" to allow another directory if ``~/.cache/rgt`` is not writable.
    """
    places = [agent_home(), *(spare_folders() if spare else [])]
    paths = [os.path.join(folder, name) for folder in places]
    if verb == "look":
        path = next((path for path in paths if is_whole(path, digest)), None)
        why = ""
        if path in paths[1:]:
            # It was written elsewhere while the home was full; /tmp may be emptied at any time.
            path, why = copy_to_home(path, paths[0])
        print_answer(sys.executable, path or paths[0], ("1 " + why).strip() if path else "0")
        return 0
    data = sys.stdin.buffer.read()
    # A login shell that prints or a broken connection may have changed the bytes.
    if hashlib.sha256(data).hexdigest() != digest:
        sys.exit("the agent arrived damaged (%d bytes)" % len(data))
    why = ""
    for folder in [*places, *(new_spare_names() if spare else [])]:
        try:
            ensure_private_folder(folder)
            write_durably(os.path.join(folder, name), data)
        except OSError as error:
            why = why or os_error_text(error, folder)
            continue
        print_answer(os.path.join(folder, name), why, "")
        return 0
    if spare:
        old = find_older_agent(places)
    else:
        old = None
    if old is None:
        sys.exit(why)
    print_answer(old, why, "older")
    return 0


def copy_to_home(path: str, wanted: str) -> tuple[str, str]:
    """Try to copy the agent to its usual place; return its path and, if that failed, why."""
    try:
        ensure_private_folder(os.path.dirname(wanted))
        with open(path, "rb") as file:
            write_durably(wanted, file.read())
    except OSError as error:
        return path, os_error_text(error, os.path.dirname(wanted))
    return wanted, ""


def os_error_text(error: OSError, folder: str) -> str:
    """Return an error's text with its path."""
    return f"{error.filename or folder}: {error.strerror or error}"


def print_answer(*values: str) -> None:
    """Print one line of the answer.

    It begins with a newline, to end any unfinished output of the login shell's start-up files.
    """
    text = "\n" + "\t".join(["RGT"] + list(values)) + "\n"
    sys.stdout.buffer.write(text.encode("utf-8", "surrogateescape"))


def agent_home() -> str:
    """Return the usual directory of the agent."""
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return os.path.join(cache, "rgt")


def spare_bases() -> list[str]:
    """Return the directories for private ones: no other user may rename their entries."""
    own = os.environ.get("RGT_SPARE_DIRS")
    found = []
    for base in BASES if own is None else own.split(":"):
        try:
            mode = os.stat(base).st_mode
        except OSError:
            continue
        # Without the sticky bit another user could rename our directory and put theirs in its
        # place.
        if stat.S_ISDIR(mode) and (mode & stat.S_ISVTX or not mode & OTHERS_WRITE):
            found.append(base)
    return found


def spare_name(end: str) -> str:
    """Return the name of a private directory."""
    return "rgt-agent-%d-%s" % (os.geteuid(), end)


def spare_folders() -> list[str]:
    """Return the existing private directories."""
    found = [
        path
        for base in spare_bases()
        for path in sorted(glob.glob(os.path.join(base, spare_name("*"))))
    ]
    return [path for path in found if is_private(path)]


def is_private(path: str) -> bool:
    """Return whether a path is a directory, not a link, that only this user can read or write."""
    try:
        # lstat: a link of ours may lead to a directory that others can write to.
        there = os.lstat(path)
    except OSError:
        return False
    return (
        stat.S_ISDIR(there.st_mode) and there.st_uid == os.geteuid() and not there.st_mode & 0o077
    )


def new_spare_names() -> list[str]:
    """Return names for new private directories."""
    return [os.path.join(base, spare_name(os.urandom(8).hex())) for base in spare_bases()]


def ensure_private_folder(folder: str) -> None:
    """Create a directory, or ensure that only this user can write to an existing one.

    Raises:
        OSError: It cannot be created, or belongs to another user.
    """
    os.makedirs(folder, mode=0o700, exist_ok=True)
    there = os.stat(folder)
    if there.st_uid != os.geteuid():
        raise OSError(errno.EPERM, f"it belongs to {user_name(there.st_uid)}", folder)
    above = open_above(folder)
    if above:
        raise OSError(errno.EPERM, f"everyone can write to {above}: chmod o-w {above}", folder)
    if there.st_mode & OTHERS_WRITE:
        os.chmod(folder, stat.S_IMODE(there.st_mode) & ~OTHERS_WRITE)


def user_name(uid: int) -> str:
    """Return the name of a user, or its number if it has none."""
    try:
        import pwd

        return pwd.getpwuid(uid).pw_name
    except (ImportError, KeyError):
        return str(uid)


def open_above(folder: str) -> str:
    """Return a parent directory in which any user could replace this one, or ""."""
    at = os.path.realpath(folder)
    while at != os.path.dirname(at):
        at = os.path.dirname(at)
        mode = os.stat(at).st_mode
        if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
            return at
    return ""


def write_durably(path: str, data: bytes) -> None:
    """Write a file completely and durably under its name, or not at all."""
    # Not only the pid: machines that share a home directory may have the same one.
    temporary = "%s.%d-%s.tmp" % (path, os.getpid(), os.urandom(4).hex())
    try:
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(fd, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.rename(temporary, path)
    except OSError:
        remove_partial(temporary)
        raise
    # The rename is durable only after the directory has been flushed.
    handle = os.open(os.path.dirname(path), os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def remove_partial(temporary: str) -> None:
    """Remove a partial file, and the private directory if it was created only for it."""
    for remove, path in ((os.unlink, temporary), (os.rmdir, os.path.dirname(temporary))):
        try:
            remove(path)
        except OSError:
            pass


def find_older_agent(folders: list[str]) -> str | None:
    """Return the newest agent of another version whose content matches the hash in its name."""
    found = []
    for folder in folders:
        for path in glob.glob(os.path.join(glob.escape(folder), "rgt-box-*.pyz")):
            name = AGENT.search(path)
            if name and is_whole(path, name.group(1)):
                found.append((os.stat(path).st_mtime, path))
    if found:
        return max(found)[1]
    return None


def is_ours(path: str) -> bool:
    """Return whether a file and its directory are this user's, and only writable by this user."""
    try:
        # Who can write to the directory can replace the file.
        for there in (os.stat(os.path.dirname(path) or "."), os.lstat(path)):
            if there.st_uid != os.geteuid() or there.st_mode & OTHERS_WRITE:
                return False
    except OSError:
        return False
    return stat.S_ISREG(there.st_mode)


def is_whole(path: str, digest: str) -> bool:
    """Return whether a file's hash starts with `digest`, and only this user can change the file."""
    try:
        if not is_ours(path) or open_above(os.path.dirname(path)):
            return False
        with open(path, "rb") as file:
            return hashlib.sha256(file.read()).hexdigest().startswith(digest)
    except OSError:
        return False


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:5]))
