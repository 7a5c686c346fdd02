"""Finds files that can be restored and so are no results: files in git on a remote, and packages.

A repository is untrusted data. Nothing of its configuration is executed (hooks, filters, aliases,
fsmonitor, transports): git runs with its own directory and configuration and gets only the
repository's objects. Refs and remote URLs are read as text.
"""

from __future__ import annotations

import array
import bisect
import contextlib
import glob
import hashlib
import json
import os
import re
import shutil
import subprocess

from rgt_box import files, place
from rgt_box.background import which

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Iterable, Iterator


LONGEST_FILE = 64 << 20
"""Larger files are not hashed for comparison and count as results."""
MOST_HASHED = 1 << 30
"""Bytes hashed per work tree in one walk; further files count as results."""
_SHA = re.compile(r"[0-9a-f]{40}")
_STASHED = re.compile(r"^[0-9a-f]{40} ([0-9a-f]{40}) ", re.MULTILINE)
"""Matches each stash entry in its reflog: the ref itself has only the newest."""
_REMOTE = re.compile(r'\s*\[\s*remote\s+"([^"]+)"\s*\]')
_URL = re.compile(r"\s*url\s*=\s*(\S+)")
_INSIDE = re.compile(
    rb"\.git/(?:(?:objects|refs|logs|hooks|info|branches)/.*"
    rb"|HEAD|FETCH_HEAD|ORIG_HEAD|COMMIT_EDITMSG|MERGE_MSG|config|description|index|packed-refs"
    rb"|shallow|gc\.log)",
    re.DOTALL,
)
"""Git's own files about commits. Submodules, large files (LFS, annex) and other work trees are not
included."""
_ELSEWHERE = re.compile(r"(?:https?|ssh|git)://(?!localhost|127\.)|[\w.-]+@[\w.-]+:")
"""Matches the URL of another machine. A path or ``file://`` is a repository on this one, lost with
it."""
MOST_BYTES = 64 << 20
"""Maximum bytes of one package list."""
RPM_FOLDERS = ("var/lib/rpm", "usr/lib/sysimage/rpm")
RPM_DATABASES = ("rpmdb.sqlite", "Packages.db", "Packages")
"""Database files of rpm 4.16 and later, and of the two older formats (rpm.org, *Database backends*,
2026-11)."""
LINKED_DIRECTORIES = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
"""Root directories that newer systems replace with links into /usr, while package lists keep the
old names."""
DIST_INFO = ".dist-info"
_FILES = re.compile(rb'"files"\s*:\s*(\[)')


class WorkTree:
    """A git work tree.

    Args:
        root: Its top directory, absolute, with a ``.git`` directory in it.

    Attributes:
        root: As given.
        published: A remote on another machine has every commit of all branches, the stash, and
            other work trees.
    """

    def __init__(self, root: bytes) -> None:
        self.root = root
        self.published = False
        self._start = root.rstrip(b"/") + b"/"
        self._blobs: dict[bytes, str] = {}
        self._left = MOST_HASHED
        with contextlib.suppress(OSError):  # full disk: treat no file of the tree as reproducible
            self._read_pushed_files()

    def is_reproducible(self, path: bytes, seen: os.stat_result) -> bool:
        """Return whether a remote has this file with this content.

        Args:
            path: Absolute, below the root.
            seen: Its stat.
        """
        name = path[len(self._start) :]
        if name.startswith(b".git/"):
            return self.published and _INSIDE.fullmatch(name) is not None
        wanted = self._blobs.get(name)
        # Before reading: a file that is not hashed counts as a result, which is the safe side.
        if wanted is None or seen.st_size > min(LONGEST_FILE, self._left):
            return False
        self._left -= seen.st_size
        data = files.read_file(os.fsdecode(path), LONGEST_FILE + 1)
        if data is None:
            return False
        return (
            hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest() == wanted
        )  # git's blob hash of the content

    def _read_pushed_files(self) -> None:
        folder = os.path.join(os.fsdecode(self.root), ".git")
        refs = dict(_read_refs(folder))
        remotes = [name for name, url in _read_remotes(folder) if _ELSEWHERE.match(url)]
        # What a remote had at the last fetch or push. A remote on this machine would be lost with
        # it.
        known = [
            sha
            for ref, sha in refs.items()
            if any(ref.startswith(f"refs/remotes/{one}/") for one in remotes)
        ]
        head = _head_commit(folder, refs)
        git = which("git")
        if head is None or git is None or not known:
            return
        own = [
            sha for ref, sha in refs.items() if not ref.startswith(("refs/remotes/", "refs/tags/"))
        ]
        # These commits may be on no branch: no ref names them.
        own += _detached_heads(folder)
        own += _STASHED.findall(_read_text(folder, "logs", "refs", "stash"))
        scratch = place.make_folder()
        try:
            ask = _IsolatedGit(git, scratch, os.path.join(folder, "objects"))
            new = ask("rev-list", "--max-count=1", head, *own, "--not", *known)
            self.published = new == b""
            # Other branches may have unpushed commits; the files on disk are those of HEAD, so HEAD
            # decides for them.
            if new and ask("rev-list", "--max-count=1", head, "--not", *known) != b"":
                return
            if new is not None:
                listed = ask("ls-tree", "-r", "-z", "--full-tree", head)
            else:
                listed = None
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
        for row in (listed or b"").split(b"\0"):
            about, _, name = row.partition(b"\t")
            parts = about.split()
            # Mode 120000 is a symbolic link, and a "commit" is a submodule: neither is a file with
            # this content.
            if len(parts) == 3 and parts[1] == b"blob" and parts[0] != b"120000":
                self._blobs[name] = parts[2].decode("ascii", "replace")


def list_edits(top: str, git_folder: str, common: str, commit: str) -> list[str]:
    """Return the files that differ from a commit, as far as git tracks them; untracked ones are not seen.

    Empty also without git, and if it takes too long.

    Args:
        top: The work tree.
        git_folder: Its own git directory, with the index.
        common: The git directory with the objects.
        commit: The commit.
    """
    git = which("git")
    if git is None:
        return []
    listed = None
    with contextlib.suppress(OSError):  # no room for git's own directory
        scratch = place.make_folder()
        try:
            ask = _IsolatedGit(git, scratch, os.path.join(common, "objects"))
            # A copy: git would refresh the index, and take the lock that a person's commit needs.
            # With its time: git compares the contents of files that changed in the index's own
            # second.
            index = os.path.join(scratch, "index")
            shutil.copy2(os.path.join(git_folder, "index"), index)
            ask.env.update(GIT_WORK_TREE=top, GIT_INDEX_FILE=index)
            # Not into submodules: their own configuration would apply.
            words = ("diff", "--name-only", "-z", "--no-renames", "--ignore-submodules=dirty")
            listed = ask(*words, "--no-ext-diff", "--no-textconv", commit)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
    return [os.fsdecode(name) for name in (listed or b"").split(b"\0") if name]


class _IsolatedGit:
    """Runs git on a repository's objects, isolated from its configuration.

    Args:
        program: Path of git.
        place: An empty directory.
        objects: The repository's object directory.
    """

    def __init__(self, program: str, place: str, objects: str) -> None:
        self._program = program
        # The least by which git accepts a directory as a repository.
        for name in ("refs", "objects"):
            os.mkdir(os.path.join(place, name))
        for name, text in (
            ("HEAD", "ref: refs/heads/none\n"),
            ("config", "[core]\n\tbare = true\n"),
        ):
            with open(os.path.join(place, name), "w") as file:
                file.write(text)
        self._place = place
        self.env = {
            "PATH": os.environ.get("PATH", os.defpath), "HOME": place, "GIT_DIR": place,
            "LC_ALL": "C",
            "GIT_OBJECT_DIRECTORY": objects, "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_CONFIG_GLOBAL": "/dev/null",
            "GIT_NO_LAZY_FETCH": "1", "GIT_NO_REPLACE_OBJECTS": "1", "GIT_TERMINAL_PROMPT": "0",
        }  # fmt: skip

    def __call__(self, *words: str) -> bytes | None:
        """Return what a command printed; None if it failed."""
        try:
            # Timeout of each git command; they read objects only.
            git_seconds = 20.0
            done = subprocess.run(
                [self._program, *words],
                cwd=self._place,
                env=self.env,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                timeout=git_seconds,
            )
        except (OSError, subprocess.SubprocessError):
            return None
        if done.returncode == 0:
            return done.stdout
        return None


def _read_text(*parts: str) -> str:
    return (files.read_file(os.path.join(*parts), 16 << 20) or b"").decode("utf-8", "replace")


def _head_commit(folder: str, refs: dict[str, str]) -> str | None:
    text = _read_text(folder, "HEAD").strip()
    if text.startswith("ref: "):
        return refs.get(text[5:].strip())
    if _SHA.fullmatch(text):
        return text
    return None


def _detached_heads(folder: str) -> list[str]:
    """Return the commits at which other work trees have a detached HEAD."""
    found = glob.glob(os.path.join(glob.escape(folder), "worktrees", "*", "HEAD"))
    heads = (_read_text(path).strip() for path in found)
    return [sha for sha in heads if _SHA.fullmatch(sha)]


def _read_refs(folder: str) -> Iterator[tuple[str, str]]:
    """Yield each ref and its commit, packed refs first, because a loose ref overrides them."""
    for line in _read_text(folder, "packed-refs").splitlines():
        sha, _, ref = line.partition(" ")
        if _SHA.fullmatch(sha) and ref.startswith("refs/"):
            yield ref, sha
    for at, _, names in os.walk(os.path.join(folder, "refs")):
        for name in names:
            sha = _read_text(at, name).strip()
            if _SHA.fullmatch(sha):
                yield os.path.relpath(os.path.join(at, name), folder), sha


def _read_remotes(folder: str) -> Iterator[tuple[str, str]]:
    name = None
    for line in _read_text(folder, "config").splitlines():
        section = _REMOTE.match(line)
        if section or line.lstrip().startswith("["):
            if section:
                name = section[1]
            else:
                name = None
        url = _URL.match(line)
        if name is not None and url:
            yield name, url[1]


# Reads which files package managers installed, from their lists: dpkg, rpm, apk, pacman, pip and
# conda. A box has several hundred thousand of them, so only a 64-bit hash of each path is kept. The
# chance of a false match is about 1 in 10^10.


class PathSet:
    """A set of paths that takes 8 bytes per path."""

    def __init__(self, paths: Iterable[bytes]) -> None:
        self._hashes = array.array("q", sorted(set(map(hash, paths))))

    def __contains__(self, path: bytes) -> bool:
        wanted = hash(path)
        at = bisect.bisect_left(self._hashes, wanted)
        return at < len(self._hashes) and self._hashes[at] == wanted

    def __len__(self) -> int:
        return len(self._hashes)


def system_packages(root: str) -> PathSet:
    """Return the files of the system's packages below a root directory."""
    return PathSet(_at_root(root, _system_paths(root)))


def python_packages(prefix: str) -> PathSet:
    """Return the files that pip and conda installed into an environment or a plain directory.

    Paths outside the environment are ignored.
    """
    return PathSet(_python_paths(os.fsencode(os.path.normpath(prefix))))


def may_be_prefix(folders: list[str]) -> bool:
    """Return whether `python_packages` may find something in a directory with these folders."""
    return (
        "lib" in folders
        or "conda-meta" in folders
        or any(name.endswith(DIST_INFO) for name in folders)
    )


def _at_root(root: str, paths: Iterable[bytes]) -> Iterator[bytes]:
    moved = {}
    for name in LINKED_DIRECTORIES:
        link = os.path.join(root, name)
        if os.path.islink(link):
            target = os.path.join(
                "/", os.readlink(link)
            )  # relative to this root, which may not be the system's
            moved[os.fsencode(f"/{name}/")] = os.fsencode(os.path.normpath(target)) + b"/"
    top = os.fsencode(root.rstrip("/"))
    for path in paths:
        first = path[: path.find(b"/", 1) + 1]
        yield top + (moved[first] + path[len(first) :] if first in moved else path)


def _system_paths(root: str) -> Iterator[bytes]:
    for name in glob.iglob(os.path.join(glob.escape(root), "var/lib/dpkg/info/*.list")):
        yield from (files.read_file(name, MOST_BYTES) or b"").splitlines()
    folder = b""
    for row in (
        files.read_file(os.path.join(root, "lib/apk/db/installed"), MOST_BYTES) or b""
    ).splitlines():
        if row.startswith(b"F:"):
            folder = row[2:]
        elif row.startswith(b"R:"):
            yield b"/" + os.path.join(folder, row[2:])
    for name in glob.iglob(os.path.join(glob.escape(root), "var/lib/pacman/local/*/files")):
        yield from (b"/" + row for row in (files.read_file(name, MOST_BYTES) or b"").splitlines())
    # Newer distributions link the old place to the new one: one database, read once.
    for database in {os.path.realpath(os.path.join(root, name)) for name in RPM_FOLDERS}:
        # In a directory without a database, rpm would create one.
        if any(os.path.exists(os.path.join(database, name)) for name in RPM_DATABASES):
            yield from _rpm_paths(database)


def _rpm_paths(folder: str) -> list[bytes]:
    """Return the files listed in an rpm database.

    The path is passed explicitly because rpm may be configured for another one.
    """
    try:
        rpm_seconds = 60.0
        done = subprocess.run(
            ["rpm", "--dbpath", folder, "-qal"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=rpm_seconds,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return []
    return done.stdout.splitlines()


def _python_paths(prefix: bytes) -> Iterator[bytes]:
    for name in glob.iglob(os.path.join(glob.escape(prefix), b"conda-meta", b"*.json")):
        for path in conda_files(files.read_file(os.fsdecode(name), MOST_BYTES) or b""):
            yield os.path.join(prefix, path)
    inside = prefix + b"/"
    for pattern in (b"lib*/python*/*-packages", b""):
        for record in glob.iglob(
            os.path.join(glob.escape(prefix), pattern, b"*.dist-info", b"RECORD")
        ):
            packages = os.path.dirname(os.path.dirname(record))
            for path in record_files(files.read_file(os.fsdecode(record), MOST_BYTES) or b""):
                found = os.path.join(packages, path)
                # pip records scripts as "../../../bin/x"; for all other paths the join is enough,
                # and a box has several hundred thousand.
                if b".." in path:
                    found = os.path.normpath(found)
                if found.startswith(inside):
                    yield found


def record_files(text: bytes) -> Iterator[bytes]:
    """Yield the paths of a RECORD: ``path,hash,size``, quoted if the path has a comma (PEP 376)."""
    for row in text.splitlines():
        if row.startswith(b'"'):
            yield row[1:].partition(b'",')[0].replace(b'""', b'"')
        else:
            yield row.partition(b",")[0]


def conda_files(text: bytes) -> list[bytes]:
    """Return the paths in conda's package JSON, parsing only the ``files`` list of a large file."""
    match = _FILES.search(text)
    if match is not None:
        end = match.start(1)
    else:
        end = -1
    while match is not None and (end := text.find(b"]", end + 1)) >= 0:
        try:
            found = json.loads(text[match.start(1) : end + 1])
        except (ValueError, RecursionError):
            continue  # the bracket is part of a file name
        return [os.fsencode(path) for path in found if isinstance(path, str) and "\0" not in path]
    return []
