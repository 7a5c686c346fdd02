"""The user's own files: who else can write to them, the state directory, and locks."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import grp
import json
import os
import pwd
import shlex
import stat
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import BinaryIO, NamedTuple

from rgt_tui.language import translate

SECONDS = 10.0
"""Seconds to wait for a lock: it is held only while a few lines are written, so a longer wait means
a hang.
"""
EVERY_SECONDS = 0.02


def lock_file(handle: int, seconds: float = SECONDS) -> None:
    """Lock an open file for this process, until it is closed or the process ends in any way.

    This blocks: call it in a thread if the event loop must continue.

    Args:
        handle: Descriptor of the file, or of a directory.
        seconds: How long to wait for another process's lock.

    Raises:
        TimeoutError: Another program did not release it.
        OSError: The file system has no locks, or they fail.
    """
    until = time.monotonic() + seconds
    while True:
        try:
            return fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= until:
                raise TimeoutError(
                    errno.ETIMEDOUT,
                    translate(
                        "another program has held its lock for {seconds:g} s", seconds=seconds
                    ),
                ) from None
            time.sleep(EVERY_SECONDS)


LOCK_S = 10.0
"""Seconds to wait for another rgt's lock, which is normally held for a moment only."""


class FileFault(NamedTuple):
    """Why the content of a file may be another user's."""

    words: str
    cure: str
    """What to do, with the command."""


def state_directory(env: Mapping[str, str]) -> Path:
    """Return ``$XDG_STATE_HOME/rgt``, by default ``~/.local/state/rgt``; ignore a relative value.

    https://specifications.freedesktop.org/basedir-spec/latest/
    """
    state = Path(env.get("XDG_STATE_HOME", ""))
    if env.get("HOME"):
        home = Path(env["HOME"])
    else:
        home = Path.home()
    return (state if state.is_absolute() else home / ".local" / "state") / "rgt"


def config_directory(env: Mapping[str, str]) -> Path:
    """Return ``$XDG_CONFIG_HOME/rgt``, by default ``~/.config/rgt``; ignore a relative value.

    A relative value would mean another directory in every working directory.
    """
    config = Path(env.get("XDG_CONFIG_HOME", ""))
    if env.get("HOME"):
        home = Path(env["HOME"])
    else:
        home = Path.home()
    return (config if config.is_absolute() else home / ".config") / "rgt"


def find_fault(path: Path, status: os.stat_result, handle: int | None = None) -> FileFault | None:
    """Return who else can write a file; None if only this user and root can.

    A group without other members, which most systems create for each user, does not count.

    Args:
        path: Path for the text.
        status: Status of the open file, so that the checked file is the one that is read.
        handle: The open file, whose access list is checked; None to skip that.
    """
    # The effective user: it is the one whose rights a program in the file would get.
    me, mode = os.geteuid(), stat.S_IMODE(status.st_mode)
    shown = shlex.quote(str(path))
    # The owner first, who can change the mode at any time.
    if status.st_uid not in (0, me):
        return FileFault(
            translate(
                "{path} belongs to {owner}, not to you",
                path=path,
                owner=_user_name(status.st_uid),
            ),
            translate(
                "if you know what is in it, chown {me} {shown}", me=_user_name(me), shown=shown
            ),
        )
    if mode & stat.S_IWOTH:
        return FileFault(
            translate("{path} can be written by everyone (mode {mode:o})", path=path, mode=mode),
            f"chmod go-w {shown}",
        )
    if mode & stat.S_IWGRP and (
        _has_list(handle) or not _is_private(status.st_gid, (status.st_uid, me))
    ):
        return FileFault(
            translate("{path} can be written by others (mode {mode:o})", path=path, mode=mode),
            f"chmod g-w {shown}",
        )
    return None


def _user_name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _has_list(handle: int | None) -> bool:
    """Return whether a file has an access list, which makes the mode's group bits its mask."""
    if handle is None or not hasattr(os, "getxattr"):
        return False
    try:
        # Any list counts: its entries are not read, so it may let others write.
        return bool(os.getxattr(handle, "system.posix_acl_access"))
    except OSError:
        return False


def _is_private(gid: int, uids: tuple[int, ...]) -> bool:
    """Return whether a group is one user's own: it has the user's name and no other member."""
    try:
        group = grp.getgrgid(gid)
    except KeyError:
        return False
    names = {_user_name(uid) for uid in uids if _primary_group(uid) == gid}
    return group.gr_name in names and not set(group.gr_mem) - {group.gr_name}


def _primary_group(uid: int) -> int | None:
    try:
        return pwd.getpwuid(uid).pw_gid
    except KeyError:
        return None


def open_regular(path: Path, *, follow: bool = True) -> BinaryIO:
    """Open a regular file for reading, without blocking.

    Pipes, devices and directories are refused.

    Raises:
        OSError: It is not a regular file, cannot be opened, or is a link and `follow` is False.
    """
    # O_NONBLOCK: opening a pipe without a writer would otherwise wait.
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | (0 if follow else os.O_NOFOLLOW)
    try:
        handle = os.open(path, flags)
    except OSError as error:
        # A socket cannot be opened at all: the same answer as for a pipe below.
        if error.errno != errno.ENXIO:
            raise
    else:
        if stat.S_ISREG(os.fstat(handle).st_mode):
            return os.fdopen(handle, "rb")
        os.close(handle)
    raise OSError(
        errno.EINVAL, translate("it is a pipe, a socket, a device or a directory, not a file")
    )


def open_named(path: Path) -> BinaryIO:
    """Open a file named by the user: a regular one, ``/dev/null``, or a shell's ``<(…)`` pipe.

    Raises:
        OSError: It is something else, which might block, or it cannot be opened.
    """
    status = path.stat()
    # An anonymous pipe: Linux has no path for it; macOS has it in /dev/fd itself.
    nameless = path.parent == Path("/dev/fd") or not os.path.lexists(path.resolve())
    nameless = nameless and stat.S_ISFIFO(status.st_mode)
    if nameless or os.path.samestat(status, Path(os.devnull).stat()):
        return path.open("rb")
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    return open_regular(path)


def read_bounded(path: Path, most: int) -> bytes:
    """Return the content of a regular file of at most `most` bytes.

    Never a part of it: a table that is cut between two lines means something else.

    Raises:
        OSError: It is larger, is not a regular file, or cannot be read.
    """
    with open_regular(path) as file:
        return _read_rest(file, most)


def _read_rest(file: BinaryIO, most: int) -> bytes:
    data = file.read(most + 1)
    if len(data) > most:
        raise OSError(errno.EFBIG, translate("it is larger than {most:,} bytes", most=most))
    return data


class NotOurs(Exception):
    """A user's own file that others may change; the message says whose it is, and what to do."""


def read_own(path: Path, most: int) -> bytes:
    """Return the content of a file that acts in the user's name.

    Raises:
        NotOurs: Others may write to it, or to its directory.
        OSError: It is larger than `most` bytes, is not a regular file, or cannot be read.
    """
    with open_regular(path) as file:
        wrong = find_fault(path, os.fstat(file.fileno()), file.fileno()) or find_fault(
            path.parent, path.parent.stat()
        )
        if wrong is not None:
            raise NotOurs(
                translate(
                    "{words}, so that it is not used: {cure}", words=wrong.words, cure=wrong.cure
                )
            )
        return _read_rest(file, most)


ENV_FILES: list[Path] = []
"""``.env`` next to each trusted fleet file that was opened, the newest first."""


def add_env_file(path: Path) -> None:
    """Let `find_in_env_files` search this file first."""
    ENV_FILES[:] = [path, *(other for other in ENV_FILES if other != path)]


def find_in_env_files(names: Iterable[str], most: int = 65536) -> tuple[str, str]:
    """Return the value of the first of some variables in an ``.env``, and where it was found.

    A file that others may change, or that is larger than `most` bytes, is not used. Without a value
    the second text says why a file was not used; empty = none was refused.
    """
    wanted, refused = tuple(names), ""
    for path in ENV_FILES:
        try:
            lines = read_own(path, most).decode("utf-8", "replace").splitlines()
        except OSError:
            continue
        except NotOurs as error:
            refused = str(error)
            continue
        found = dict(filter(None, map(_read_assignment, lines)))
        for name in wanted:
            if found.get(name):
                return found[name], f"{name} in {path}"
    return "", refused


def _read_assignment(line: str) -> tuple[str, str] | None:
    """Return name and value of ``[export] NAME=VALUE``; quotes and a comment are dropped."""
    name, equals, value = line.strip().removeprefix("export ").partition("=")
    value = value.strip()
    if not equals or name.startswith("#"):
        return None
    if value[:1] in ("'", '"') and value.find(value[0], 1) > 0:
        return name.strip(), value[1 : value.index(value[0], 1)]
    return name.strip(), value.partition(" #")[0].strip()


@contextlib.contextmanager
def locked_file(path: Path) -> Iterator[None]:
    """Hold a lock file next to a state file.

    The state file itself is replaced, so it cannot be locked.

    Its directory is created. This blocks for a moment.

    Raises:
        TimeoutError: Another rgt did not release it.
        OSError: It cannot be created.
    """
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with path.with_name(path.name + ".lock").open("ab") as lock:
        try:
            lock_file(lock.fileno(), LOCK_S)
        except TimeoutError:
            raise TimeoutError(
                translate(
                    "another rgt has held {name} for {limit:g} s", name=lock.name, limit=LOCK_S
                )
            ) from None
        yield


def here_or(folder: Path) -> Iterator[Path]:
    """Yield directories for a user's file: the working directory, if it exists, and `folder`."""
    with contextlib.suppress(OSError):
        yield Path.cwd()
    yield folder


FLEET_FILE = "rgt.toml"
"""Default name of a fleet file."""
_NOTES = "written.json"
"""In the state directory: files and directories that rgt wrote among the user's own."""


def note_written(
    paths: Iterable[Path], env: Mapping[str, str] = os.environ, *, grows: bool = False
) -> None:
    """Remember that rgt wrote these files and directories, so that no push treats them as code.

    Best effort: if the note cannot be written, the file is still kept.

    Args:
        paths: Existing paths, with the content that rgt wrote.
        env: Environment that names the state directory.
        grows: rgt appends to them later, so they are recognised by their start.
    """
    notes = state_directory(env) / _NOTES
    with contextlib.suppress(OSError):
        seen = {
            real_place(path): note
            for path in paths
            if (note := _fingerprint_file(path, grows)) is not None
        }
        # Without the lock first: most pulls note nothing new.
        known = written_notes(env)
        if all(known.get(path) == note for path, note in seen.items()):
            return
        with locked_file(notes):
            rows = {
                path: row for path, row in written_notes(env).items() if path not in seen
            } | seen
            most_notes = 5000
            # The newest notes: paths that were noted again have moved to the end.
            replace_file(notes, json.dumps(dict(list(rows.items())[-most_notes:])).encode())


def _fingerprint_file(path: Path, grows: bool) -> list[object] | None:
    """Return a file's fingerprint: length, SHA-256, and whether more bytes may follow.

    An inode is not enough, because the next file of that name may get the same one. For a directory
    only the name is noted; None if there is no such file.
    """
    try:
        if path.is_dir():
            return []
        content = path.read_bytes()
    except OSError:
        return None
    from hashlib import sha256  # here: the first frame of the dashboard does not need it

    return [len(content), sha256(content).hexdigest(), grows and bool(content)]


def iterate_upwards(start: Path, home: Path) -> Iterator[Path]:
    """Yield the directories of a project, from `start` up to its git root, otherwise up to `home`.

    Outside both, only `start` itself is yielded: a stranger's file in ``/tmp`` must not be found.
    """
    chain = [start, *start.parents]
    # `.git` may be a file, as in a work tree or a submodule.
    root = next((folder for folder in chain if (folder / ".git").exists()), home)
    end = 0
    if root in chain:
        end = chain.index(root)
    yield from chain[: end + 1]


def working_directory() -> Path | None:
    """Return the working directory, or None if it has been removed."""
    try:
        return Path.cwd()
    except OSError:
        return None


def real_place(path: Path) -> str:
    """Return a path with the links in its parent directories resolved, but not the last part."""
    return f"{os.path.realpath(path.absolute().parent)}/{path.name}"


def written_notes(env: Mapping[str, str] = os.environ) -> dict[str, list[object]]:
    """Return the stored notes of `note_written`: path (`real_place`) → `_fingerprint_file`."""
    try:
        with open_regular(state_directory(env) / _NOTES, follow=False) as file:
            found = json.loads(file.read())
    except (OSError, ValueError):
        return {}
    if isinstance(found, dict):
        return found
    return {}


def write_new(path: Path, data: bytes, numbers: Iterable[int] = range(2, 1000)) -> Path:
    """Write a new file, adding one of `numbers` to its name if it exists; return its path.

    Raises:
        OSError: It cannot be written, and no part of it remains; or all these names are taken.
    """
    for found in (
        path,
        *(path.with_name(f"{path.stem}-{number}{path.suffix}") for number in numbers),
    ):
        try:
            # O_EXCL decides and creates in one step: a test before it could be outdated.
            handle = os.open(found, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        except FileExistsError:
            continue
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
        except OSError:
            found.unlink(missing_ok=True)
            raise
        return found
    raise FileExistsError(errno.EEXIST, translate("all names like it are taken"), str(path))


def replace_file(path: Path, data: bytes | Iterable[bytes]) -> None:
    """Replace `path` with `data` (or all of its pieces) atomically, mode 0600, and flush it.

    Raises:
        OSError: It cannot be written; the file is unchanged.
    """
    # In the same directory, since a rename is atomic only within one file system.
    handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.writelines((data,) if isinstance(data, bytes) else data)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            Path(temporary).unlink()
        raise
    sync_folder(path.parent)


def sync_folder(folder: Path | str) -> None:
    """Flush a directory's entries to the disk, without which a new file may be lost in a crash."""
    with contextlib.suppress(OSError):  # some file systems do not support it
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
