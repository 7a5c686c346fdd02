"""Walks a directory without leaving it: sorted, by file descriptors, with names as raw bytes."""

from __future__ import annotations

import os
import stat
import sys

from rgt_box import files, options
from rgt_box.background import error_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Iterator

    from rgt_wire import JsonObject

FILE, FOLDER, LINK, SPECIAL, ERROR = "file", "folder", "link", "special", "error"

KINDS = (
    (stat.S_ISREG, FILE, ""),
    (stat.S_ISDIR, FOLDER, ""),
    (stat.S_ISLNK, LINK, ""),
    (stat.S_ISFIFO, SPECIAL, "a named pipe"),
    (stat.S_ISSOCK, SPECIAL, "a socket"),
    (stat.S_ISCHR, SPECIAL, "a character device"),
    (stat.S_ISBLK, SPECIAL, "a block device"),
)
OPEN_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# If the file was swapped meanwhile, a link is refused and a pipe does not block.
OPEN_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class TreeEntry:
    """An entry of the tree. It can be opened until the walk moves on.

    Attributes:
        path: Raw bytes relative to the root, separated by ``/``.
        kind: ``file``, ``folder``, ``link``, ``special`` or ``error``.
        stat: Stat result of the walk; None for an error.
        text: The kind of special file, or the error.
    """

    __slots__ = ("_folder", "_name", "kind", "path", "stat", "text")

    def __init__(self, folder: int, name: str, path: bytes) -> None:
        self._folder = folder
        self._name = name
        self.path = path
        self.stat: os.stat_result | None = None
        self.kind = ERROR
        self.text = ""
        try:
            self.stat = os.stat(name, dir_fd=folder, follow_symlinks=False)
        except OSError as error:
            self.text = error_text(error)
            return
        for test, kind, text in KINDS:
            if test(self.stat.st_mode):
                self.kind = kind
                self.text = text

    def open_file(self) -> int:
        """Open a regular file for reading.

        Raises:
            OSError: when it cannot be opened or is no longer a regular file.
        """
        fd = os.open(self._name, OPEN_FILE, dir_fd=self._folder)
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            os.close(fd)
            raise OSError(0, "is no longer a regular file")
        return fd

    def open_folder(self) -> int:
        """Open a directory.

        Raises:
            OSError: when it cannot be opened or is no longer a directory.
        """
        return os.open(self._name, OPEN_FOLDER, dir_fd=self._folder)

    def is_gone(self) -> bool:
        """Return whether the entry was removed since it was listed."""
        try:
            os.stat(self._name, dir_fd=self._folder, follow_symlinks=False)
        except FileNotFoundError:
            return True
        except OSError:
            pass
        return False

    def read_link(self) -> bytes:
        """Return the target of a link.

        Raises:
            OSError: when it cannot be read.
        """
        return os.fsencode(os.readlink(self._name, dir_fd=self._folder))

    def mark_failed(self, text: str) -> TreeEntry:
        """Turn this entry into an error entry and return it."""
        self.kind = ERROR
        self.text = text
        return self


def walk_tree(root: str, left_out: frozenset[bytes] = frozenset()) -> Iterator[TreeEntry]:
    """Yield the entries below a directory in the byte order of the paths, or a file alone.

    Links are yielded, never followed (but `root` itself may be one).

    Args:
        root: A directory or a file.
        left_out: Directories to leave out, as paths relative to `root`.

    Raises:
        OSError: when `root` cannot be opened.
    """
    real = os.path.realpath(root)
    if not stat.S_ISDIR(os.stat(real).st_mode):
        folder = files.open_folder(os.path.dirname(real))
        try:
            yield TreeEntry(folder, os.path.basename(real), os.path.basename(os.fsencode(real)))
        finally:
            os.close(folder)
        return
    first = files.open_folder(real, OPEN_FOLDER)
    stack = [(first, _list_entries(first, b""))]
    try:
        while stack:
            entry = next(stack[-1][1], None)
            if entry is None:
                os.close(stack.pop()[0])
                continue
            if entry.kind != FOLDER:
                yield entry
                continue
            if entry.path in left_out:
                continue
            try:
                below = entry.open_folder()
            except OSError as error:
                yield entry.mark_failed(error_text(error))
                continue
            yield entry
            stack.append((below, _list_entries(below, entry.path + b"/")))
    finally:
        for fd, _ in stack:
            os.close(fd)


def _list_entries(folder: int, prefix: bytes) -> Iterator[TreeEntry]:
    try:
        # By descriptor: the directory may have been renamed or replaced since it was opened.
        names = os.listdir(folder)
    except OSError as error:
        # Report the directory itself; its own entry has been yielded already.
        yield _error_entry(prefix, error_text(error))
        return
    entries = [TreeEntry(folder, name, prefix + os.fsencode(name)) for name in names]
    # Sort with the trailing slash, so that "a.b" comes before "a/c" as in sorted paths.
    entries.sort(key=lambda entry: entry.path + b"/" * (entry.kind == FOLDER))
    for entry in entries:
        yield entry


def _error_entry(prefix: bytes, text: str) -> TreeEntry:
    entry = TreeEntry.__new__(TreeEntry)
    entry.path = prefix or b"."
    entry.stat = None
    entry.kind = ERROR
    entry.text = text
    return entry


def leads_outside(root: str, path: bytes) -> bool:
    """Return whether a link's target is outside the tree."""
    top = os.fsencode(os.path.realpath(root))
    real = os.path.realpath(os.path.join(top, path))
    return real != top and not real.startswith(top.rstrip(b"/") + b"/")


def name_fields(path: bytes, key: str = "path") -> JsonObject:
    """Return a name for JSON; one that is not UTF-8 is also added as base64, without loss."""
    try:
        return {key: path.decode("utf-8")}
    except UnicodeDecodeError:
        import base64

        return {
            key: path.decode("utf-8", "replace"),
            key + "_b64": base64.b64encode(path).decode("ascii"),
        }


def raw_name(row: JsonObject) -> bytes | None:
    """Return the raw bytes of the ``path`` written by `name_fields`; None without one."""
    coded = row.get("path_b64")
    plain = row.get("path")
    if isinstance(coded, str):
        import base64

        try:
            return base64.b64decode(coded, validate=True)
        except ValueError:
            return None
    if isinstance(plain, str):
        return plain.encode("utf-8", "surrogateescape")
    return None


def parse_words(
    argv: list[str], spec: dict[str, str], help_text: str
) -> tuple[list[str], JsonObject]:
    """Split the words into paths and options; a wrong command line exits with status 2.

    Args:
        argv: The words. Everything after ``--`` is a path, so a path may begin with a dash.
        spec: Option → kind, as for `options.parse_options`.
        help_text: What ``--help`` prints.

    Returns:
        The paths in their order, and the options.
    """
    paths: list[str] = []
    rest: list[str] = []
    words = iter(argv)
    for word in words:
        if word == "--":
            paths += words
        elif word.startswith("-") and word != "-":
            rest.append(word)
            name, equals, _ = word.partition("=")
            if spec.get(name, "flag") != "flag" and not equals:
                # The value of an option may begin with a dash, or look like a path.
                rest += [value for value in [next(words, None)] if value is not None]
        else:
            paths.append(word)
    return paths, options.parse_or_exit(rest, spec, help_text)


def print_usage_error(text: str) -> int:
    """Print on stderr why nothing was done; returns exit status 2."""
    print(f"{text} (see --help)", file=sys.stderr)
    return 2
