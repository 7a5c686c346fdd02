"""A file or directory to push: every file with its size and hash, and what is excluded and why.

The user's files are never modified: line endings are converted during the transfer.
"""

from __future__ import annotations

import fnmatch
import hashlib
import os
import re
import stat
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from rgt_tui.files import (
    FLEET_FILE,
    config_directory,
    open_regular,
    real_place,
    state_directory,
    written_notes,
)
from rgt_tui.language import translate
from rgt_tui.model import FrozenStruct
from rgt_tui.transfer.copying import PARTS
from rgt_tui.transfer.ledger import has_copy_below
from rgt_tui.transfer.verified_record import RECORDS

SCRIPTS = (".sh", ".bash", ".zsh", ".ksh", ".slurm", ".sbatch", ".sub", ".pbs")
QUEUES = ("queue.txt", "job.json")
_CHUNK = 1 << 20
_NOT_A_NAME = re.compile(r"[^\w.+-]+")
ALWAYS_LEFT_OUT = (
    ".git", ".hg", ".svn", "__pycache__", "*.pyc", ".venv", "venv", "node_modules", "wandb",
    "mlruns", "checkpoints",
    ".ipynb_checkpoints", ".pytest_cache", ".ruff_cache", ".mypy_cache", ".DS_Store",
)  # fmt: skip
"""Patterns in code that no run needs, or that a run writes."""
IGNORE_FILES = (".gitignore", ".rgtignore")
"""Ignore files that are read in every directory, in this order."""
MARKS = frozenset({*RECORDS, PARTS})
"""One of these is in every directory of pulled results that was verified, or whose pull is
unfinished.
"""


class SourceError(Exception):
    """It cannot be pushed; the message has the path and the remedy."""


class ExcludedPath(FrozenStruct):
    """A path that is not pushed."""

    path: str
    """Relative path, with a slash at the end for a directory."""
    why: str
    secret: bool = False


class SourceFile(FrozenStruct, kw_only=True):
    """One file, as it will be on the box."""

    path: str
    """Relative path, with forward slashes."""
    source: Path
    size: int
    sha256: str
    mtime_ns: int
    executable: bool
    mended: bytes | None = None
    """Its content with Unix line endings; None = unchanged."""


class SourceTree(FrozenStruct, kw_only=True):
    """The files to push."""

    name: str
    files: tuple[SourceFile, ...]
    links: tuple[tuple[str, str], ...] = ()
    """(path, target) of links that stay within the tree."""
    left_out: tuple[ExcludedPath, ...] = ()
    windows: tuple[str, ...] = ()
    """Scripts and queue files that have Windows line endings locally."""

    @property
    def total_bytes(self) -> int:
        """Total bytes of all files."""
        return sum(file.size for file in self.files)

    @property
    def tree_digest(self) -> str:
        """SHA-256, in hex, of every path, hash, executable bit and link. Times are ignored."""
        rows = [f"{file.path}\0{file.sha256}\0{int(file.executable)}" for file in self.files]
        rows += [f"{path}\0->{target}" for path, target in self.links]
        return hashlib.sha256("\n".join(sorted(rows)).encode()).hexdigest()


def read_tree(
    path: Path,
    rules: IgnoreRules,
    *,
    own: OwnFiles | None = None,
    secrets_too: bool = False,
    mend: bool = False,
    name: str | None = None,
    may_be_empty: bool = False,
) -> SourceTree:
    """Walk and hash the files to push. It takes as long as reading all of them.

    Args:
        path: A directory or a regular file.
        rules: Exclusion rules, before those in the tree's own files.
        own: Recognises files that rgt wrote, which no pattern can include again; None = without a
            fleet file.
        secrets_too: Also push files that look like keys.
        mend: Convert scripts and queue files to Unix line endings on the box.
        name: Its name on the box; None = the local name.
        may_be_empty: Allow a directory of which nothing would be pushed.

    Raises:
        SourceError: it does not exist, cannot be read, or changes during the read.
    """
    own = OwnFiles() if own is None else own
    top = path.expanduser().absolute()
    if top.name == "..":
        top = top.resolve()
    if not top.exists():
        raise SourceError(translate("{path} does not exist", path=path))
    if top.is_dir():
        walk = _TreeWalk(top, own, secrets_too, mend)
        walk.walk_tree(rules)
    elif top.is_file():
        walk = _TreeWalk(top.parent, own, secrets_too, mend)
        walk.add_single(top.name)
    else:
        raise SourceError(translate("{path} is neither a directory nor a regular file", path=path))
    if not walk.files and not walk.links and not may_be_empty:
        why = "; ".join(f"{each.path}: {each.why}" for each in walk.left_out[:3])
        raise SourceError(
            translate("all files of {path} are excluded", path=path) + (f" ({why})" if why else "")
        )
    return SourceTree(
        name=box_name(name or (top.name if top.is_dir() else top.stem)),
        files=tuple(sorted(walk.files, key=lambda file: file.path)),
        links=tuple(walk.links),
        left_out=tuple(walk.left_out),
        windows=tuple(walk.windows),
    )


def box_name(name: str) -> str:
    """Return a name that can be part of a path on a box without quoting.

    Raises:
        SourceError: nothing of it can.
    """
    found = _NOT_A_NAME.sub("_", name).lstrip(".")[:80]
    if not found.strip("_") or not found.isascii():
        raise SourceError(
            translate(
                "{name!r} gives no plain name for a directory on the box: choose one with --name",
                name=name,
            )
        )
    return found


class _TreeWalk:
    def __init__(self, top: Path, own: OwnFiles, secrets_too: bool, mend: bool) -> None:
        self._top, self._own, self._secrets_too, self._mend = top, own, secrets_too, mend
        self._real = os.path.realpath(top)
        self.files: list[SourceFile] = []
        self.links: list[tuple[str, str]] = []
        self.left_out: list[ExcludedPath] = []
        self.windows: list[str] = []

    def walk_tree(self, rules: IgnoreRules) -> None:
        """Walk the tree iteratively: a cloned tree may be deeper than Python's recursion limit."""
        todo = [("", rules)]
        while todo:
            folder, rules = todo.pop()
            todo += list(self._add_folder(folder, rules))[::-1]

    def _add_folder(self, folder: str, rules: IgnoreRules) -> Iterator[tuple[str, IgnoreRules]]:
        """Add the entries of a directory.

        Yield its subdirectories with the rules that apply to them.
        """
        if folder:
            here = self._top / folder
        else:
            here = self._top
        try:
            entries = sorted(os.scandir(here), key=lambda entry: entry.name)
        except OSError as error:
            raise SourceError(f"{here}: {error.strerror or error}") from error
        names = {entry.name: entry for entry in entries}
        if folder and (why := self._own.why_folder(names)) is not None:
            self.left_out.append(ExcludedPath(f"{folder}/", why))
            return
        for name in IGNORE_FILES:
            entry = names.get(name)
            # Like git, which follows no link here: https://git-scm.com/docs/gitignore
            if entry is not None and entry.is_file(follow_symlinks=False):
                rules = rules.with_file(folder, name, _read_text(here / name))
        for entry in entries:
            if folder:
                path = f"{folder}/{entry.name}"
            else:
                path = entry.name
            is_folder = entry.is_dir(follow_symlinks=False)
            shown = path + "/" * is_folder
            why = self._own.why_excluded(f"{self._real}/{path}", entry) or rules.why_ignored(
                path, is_folder=is_folder
            )
            if why is None and not _is_plain(entry.name):
                why = "its name is not UTF-8, or has control characters"
            if why is not None:
                self.left_out.append(
                    ExcludedPath(shown.encode("utf-8", "backslashreplace").decode(), why)
                )
            elif is_folder:
                yield path, rules
            elif entry.is_symlink():
                self._add_link(path)
            elif entry.is_file(follow_symlinks=False):
                self.add_file(path)
            else:
                self.left_out.append(ExcludedPath(path, "a socket, pipe or device"))

    def add_single(self, name: str) -> None:
        """Add a single file that a person named."""
        with os.scandir(self._top) as entries:
            entry = next((each for each in entries if each.name == name), None)
        if entry is None:
            why = None
        else:
            why = self._own.why_excluded(f"{self._real}/{name}", entry)
        if why is not None:
            self.left_out.append(ExcludedPath(name, why))
        else:
            self.add_file(name)

    def _add_link(self, path: str) -> None:
        target = str((self._top / path).readlink())
        ends = os.path.normpath(PurePosixPath(path).parent / target)
        if ends.startswith(("/", "../")) or ends == ".." or not _is_plain(target):
            self.left_out.append(ExcludedPath(path, "a symbolic link that leaves the tree"))
        else:
            self.links.append((path, target))

    def add_file(self, path: str) -> None:
        source = self._top / path
        try:
            with source.open("rb") as file:
                before = os.fstat(file.fileno())
                head = file.read(MOST)
                if self._secrets_too:
                    why = None
                else:
                    why = why_secret(source.name, head)
                if why is not None:
                    self.left_out.append(ExcludedPath(path, why, secret=True))
                    return
                digest, size = hashlib.sha256(head), len(head)
                windows = len(head) < MOST and is_script(path, head) and b"\r\n" in head
                while data := file.read(_CHUNK):
                    digest.update(data)
                    size += len(data)
                after = os.fstat(file.fileno())
        except OSError as error:
            raise SourceError(f"{source}: {error.strerror or error}") from error
        if (before.st_mtime_ns, before.st_size) != (
            after.st_mtime_ns,
            after.st_size,
        ) or size != after.st_size:
            raise SourceError(
                translate(
                    "{source} is being written to: push when it is done, or leave it out "
                    "(--exclude)",
                    source=source,
                )
            )
        mended = None
        if windows:
            self.windows.append(path)
            if self._mend:
                mended = head.replace(b"\r\n", b"\n")
                digest, size = hashlib.sha256(mended), len(mended)
        self.files.append(
            SourceFile(
                path=path,
                source=source,
                size=size,
                sha256=digest.hexdigest(),
                mtime_ns=after.st_mtime_ns,
                executable=bool(after.st_mode & stat.S_IXUSR),
                mended=mended,
            )
        )


def is_script(path: str, head: bytes) -> bool:
    """Return whether Windows line endings break a file: a script (suffix or ``#!``), or a queue."""
    name = path.rpartition("/")[2]
    return name.endswith(SCRIPTS) or name in QUEUES or head.startswith(b"#!")


def _is_plain(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return name.isprintable()


def _read_text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(MOST).decode("utf-8", "replace")
    except OSError as error:
        raise SourceError(f"{path}: {error.strerror or error}") from error


NAMES = (
    ".env", ".env.*", "*.env", "id_rsa", "id_dsa", "id_ecdsa", "id_ed25519", "id_ecdsa_sk",
    "id_ed25519_sk", "*.pem",
    "*.ppk", "*.p12", "*.pfx", ".netrc", "_netrc", ".pypirc", ".npmrc", ".git-credentials",
    "kaggle.json", ".pgpass",
    "*.kdbx", "service-account*.json", "service_account*.json", "credentials.json",
    "client_secret*.json",
    ".wandb_key",
)  # fmt: skip
HARMLESS = (".env.example", ".env.sample", ".env.template", ".env.dist")
SHAPES = (
    r"\b(?:hf_|sk-|[rsw]k_(?:live|test)_|rpa_|gh[opusr]_|github_pat_|glpat-|xox[abeprs]-|xapp-"
    r"|nvapi-|r8_|dckr_pat_|npm_"
    r"|pypi-|gsk_|lsv2_|tskey-|wandb_v\d_|dop_v1_|whsec_|SG\.|ya29\."
    r"|local-(?=[0-9a-f]{40}))[\w\-]{8,}[\w.\-]*"
    r"|\b(?:AKIA|ASIA)[A-Z0-9]{12,}\b|\bAIza[\w\-]{30,}"
    r"|\beyJ[\w\-]{10,2000}\.[\w\-]{5,}(?:\.[\w\-]+)?"
    r"|\b\d{8,10}:AA[\w\-]{30,}"
)
"""The same patterns with which the agent masks command lines (``rgt_box/masking.py``)."""
_SHAPED = re.compile(SHAPES.encode(), re.ASCII)
_PRIVATE = re.compile(rb"-----BEGIN [A-Z ]{0,30}PRIVATE KEY-----\s*[A-Za-z0-9+/=\s]{40}")
_RUN = re.compile(rb"[A-Za-z0-9]{16,}")
"""``hf_hub_download`` has the shape of a token, but no run of letters and digits this long."""
MOST = 1 << 20
"""Bytes of a file that are searched."""


def why_secret(name: str, head: bytes) -> str | None:
    """Return why a file seems to be a secret; None = it does not.

    Args:
        name: Its name without the directory.
        head: Its first `MOST` bytes.
    """
    names = () if name in HARMLESS else NAMES
    pattern = next((each for each in names if fnmatch.fnmatchcase(name, each)), None)
    if pattern is not None and not (
        name.endswith(".pem") and b"PRIVATE KEY" not in head and b"CERTIFICATE" in head
    ):
        return f"by its name ({pattern})"
    if _PRIVATE.search(head):
        return f"a private key in line {_line_number(head, _PRIVATE)}"
    if b"\0" in head[:8192]:
        return None
    for match in _SHAPED.finditer(head):
        if any(_is_random(run) for run in _RUN.findall(match.group())):
            line = head.count(b"\n", 0, match.start()) + 1
            return f"what looks like a token in line {line}"
    return None


def _line_number(head: bytes, pattern: re.Pattern[bytes]) -> int:
    match = pattern.search(head)
    if match:
        return head.count(b"\n", 0, match.start()) + 1
    return 1


def _is_random(run: bytes) -> bool:
    digits = sum(48 <= byte <= 57 for byte in run)
    return 0 < digits < len(run) or len(run) == digits >= 30


# Which paths are not pushed: the patterns of ``.gitignore``, ``.rgtignore`` and the command line.
#
# Patterns follow gitignore(5) (https://git-scm.com/docs/gitignore): the last match counts, ``!``
# includes again, a ``/`` before the end anchors a pattern to the directory of its file, a ``/`` at
# the end matches directories only.


class _IgnoreRule(NamedTuple):
    pattern: re.Pattern[str]
    folders_only: bool
    keeps: bool
    base: str
    """Directory of the rule's file, with a slash at the end; empty = the top."""
    said: str


class IgnoreRules:
    """The rules that apply in a directory; `with_file` returns those of a subdirectory.

    Args:
        patterns: Patterns that apply from the top.
    """

    def __init__(self, patterns: Iterable[str] = ()) -> None:
        self._rules = tuple(
            rule for text in patterns if (rule := _parse_rule(text, "", "")) is not None
        )

    def with_file(self, folder: str, name: str, text: str) -> IgnoreRules:
        """Return these rules followed by those of a file.

        Args:
            folder: Its directory, relative to the top; empty = the top.
            name: Name of the file.
            text: Content of the file.
        """
        base = f"{folder}/" if folder else ""
        added = tuple(
            rule
            for line in text.splitlines()
            if (rule := _parse_rule(line, base, name)) is not None
        )
        found = IgnoreRules()
        found._rules = self._rules + added
        return found

    def why_ignored(self, path: str, *, is_folder: bool) -> str | None:
        """Return the pattern that excludes a path; None = none does.

        Args:
            path: Relative to the top, with forward slashes. Its parent directories are not checked.
            is_folder: Whether it is a directory.
        """
        # The last rule that matches decides, as in git.
        for rule in reversed(self._rules):
            if rule.folders_only and not is_folder:
                continue
            if path.startswith(rule.base) and rule.pattern.fullmatch(path[len(rule.base) :]):
                if rule.keeps:
                    return None
                return rule.said
        return None


def _parse_rule(line: str, base: str, source: str) -> _IgnoreRule | None:
    # git keeps a space at the end only after a backslash.
    text = re.sub(r"(?<!\\)[ \t]+$", "", line.rstrip("\r\n"))
    if not text or text.startswith("#"):
        return None
    keeps = text.startswith("!")
    if source:
        said = f"{text} in {base}{source}"
    else:
        said = text
    text = text[1:] if keeps else text
    folders_only = text.endswith("/")
    text = text.rstrip("/")
    if not text:
        return None
    # As in git: a slash anywhere but at the end ties a pattern to its directory.
    tied = "/" in text
    try:
        pattern = re.compile(
            ("" if tied else "(?:.*/)?") + _expression(text.lstrip("/")), re.DOTALL
        )
    except re.error:
        return None  # an invalid bracket, which git rejects as well
    return _IgnoreRule(pattern, folders_only, keeps, base, said)


def _expression(text: str) -> str:
    """Return a gitignore pattern as a regular expression that cannot backtrack exponentially.

    Each star matches as little as possible and is atomic. That is correct, because anything that
    can follow at a later position can also follow at the first one.
    """
    chunks: list[list[str]] = [[""]]
    """The text between two ``**/``, split at single stars."""
    at = 0
    while at < len(text):
        rest = text[at:]
        pieces = chunks[-1]
        if rest.startswith("**/") and (at == 0 or text[at - 1] == "/"):
            chunks.append([""])
            at += 3
        elif rest == "**" and (at == 0 or text[at - 1] == "/"):
            pieces[-1] += ".+"
            at += 2
        elif rest[0] == "*":
            if len(pieces) == 1 or pieces[-1]:
                pieces.append("")
            at += 1
        elif rest[0] == "?":
            pieces[-1] += "[^/]"
            at += 1
        elif rest[0] == "[" and (bracket := re.match(r"\[(!|\^)?(\]?[^\]/]*)\]", rest)):
            inside = bracket[2].replace("\\", "\\\\").replace("[", "\\[")
            pieces[-1] += f"[{'^/' if bracket[1] else ''}{inside}]"
            at += bracket.end()
        elif rest[0] == "\\" and len(rest) > 1:
            pieces[-1] += re.escape(rest[1])
            at += 2
        else:
            pieces[-1] += re.escape(rest[0])
            at += 1
    first, *middle, last = [[""], *chunks] if len(chunks) == 1 else chunks
    found = _join_pieces(first) + "".join(
        f"(?>(?:.*?/)??{_join_pieces(pieces)})" for pieces in middle
    )
    return (
        found
        + ("(?:.*/)?" if len(chunks) > 1 else "")
        + _join_pieces(last[:-1] or [""])
        + (f"[^/]*{last[-1]}" if len(last) > 1 else last[0])
    )


def _join_pieces(pieces: list[str]) -> str:
    return pieces[0] + "".join(f"(?>[^/]*?{piece})" for piece in pieces[1:])


# Files among a person's code that rgt wrote itself: the fleet file, pulled results, recordings.
#
# They change while a training runs. Pushed as code, they would create another version, and so
# another job, of the same command.


class OwnFiles:
    """Recognises files and directories of a tree that rgt wrote.

    Args:
        fleet: The fleet file in use, with any name.
        pulled_too: Pulled results may be pushed, because a person moves them as data.
        env: Environment that determines rgt's state directory.
    """

    def __init__(
        self,
        fleet: Path | None = None,
        *,
        pulled_too: bool = False,
        env: Mapping[str, str] = os.environ,
    ) -> None:
        self._pulled_too = pulled_too
        if fleet is None:
            self._fleets = set()
        else:
            self._fleets = {real_place(fleet), os.path.realpath(fleet)}
        names = {FLEET_FILE, *(Path(path).name for path in self._fleets)}
        self._unfinished = re.compile(rf"\.(?:{'|'.join(map(re.escape, sorted(names)))})\.\d+\.tmp")
        """A temporary fleet file that is being written."""
        self._folders = {
            os.path.realpath(state_directory(env)),
            os.path.realpath(config_directory(env)),
        }
        self._notes, self._env = written_notes(env), env

    def why_excluded(self, path: str, entry: os.DirEntry[str]) -> str | None:
        """Return why a directory entry is not pushed; None = it is not rgt's.

        Args:
            path: Absolute path without links.
            entry: The directory entry.
        """
        if path in self._fleets or entry.name == FLEET_FILE:
            return "the fleet file of rgt"
        if entry.name in MARKS or self._unfinished.fullmatch(entry.name) or path in self._folders:
            return "rgt wrote it"
        note = self._notes.get(path)
        if note is None:
            return None
        if entry.is_dir(follow_symlinks=False):
            is_pulled = not note and not self._pulled_too and has_copy_below(path, self._env)
            if is_pulled:
                return "rgt pulled it"
            return None
        if _is_as_written(path, note):
            return "rgt wrote it"
        return None

    def why_folder(self, names: Collection[str]) -> str | None:
        """Return why a directory with these entries is not pushed; None = it is not rgt's."""
        if not self._pulled_too and MARKS.intersection(names):
            return "rgt pulled it"
        return None


def _is_as_written(path: str, note: list[object]) -> bool:
    """Return whether a file is what rgt wrote, or, if rgt appends to it, begins with that.

    See `note_written`. Anything else belongs to the user: a user's file must never be excluded
    because of its name.
    """
    match note:
        case [int(length), str(digest), bool(grows)]:
            pass
        case _:
            return False
    try:
        with open_regular(Path(path), follow=False) as file:
            begins = file.read(length)
            more = file.read(1)
    except OSError:
        return False
    return hashlib.sha256(begins).hexdigest() == digest and (grows or not more)
