"""Which files of a git work tree a remote has: they can be cloned again, so they are no results.

A repository is hostile data. Nothing of its configuration is executed: no hook, filter, alias, monitor or transport,
because git runs with a directory and a configuration of its own and is given only the repository's objects. Its refs
and its remotes' addresses are read as text.
"""

from __future__ import annotations

import contextlib
import glob
import hashlib
import os
import re
import shutil
import subprocess

from rgt_box import files, own_temporary
from rgt_box.background import which

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Iterator

GIT_SECONDS = 20.0
"""For each of two commands that read objects only."""
LONGEST_FILE = 64 << 20
"""A larger file is not hashed to compare it, and counts as a result."""
MOST_HASHED = 1 << 30
"""Bytes of one work tree that are hashed in one walk; further files count as results."""
_SHA = re.compile(r"[0-9a-f]{40}")
_STASHED = re.compile(r"^[0-9a-f]{40} ([0-9a-f]{40}) ", re.MULTILINE)
"""Each entry of the stash: the ref itself has the newest only."""
_REMOTE = re.compile(r'\s*\[\s*remote\s+"([^"]+)"\s*\]')
_URL = re.compile(r"\s*url\s*=\s*(\S+)")
_INSIDE = re.compile(
    rb"\.git/(?:(?:objects|refs|logs|hooks|info|branches)/.*"
    rb"|HEAD|FETCH_HEAD|ORIG_HEAD|COMMIT_EDITMSG|MERGE_MSG|config|description|index|packed-refs|shallow|gc\.log)",
    re.DOTALL,
)
"""What git itself keeps of commits; submodules, large files (LFS, annex) and other work trees have their own."""
_ELSEWHERE = re.compile(r"(?:https?|ssh|git)://(?!localhost|127\.)|[\w.-]+@[\w.-]+:")
"""An address of another machine. A path, or ``file://``, is a repository on this one, which goes with it."""


class WorkTree:
    """A git work tree.

    Args:
        root: Its top directory, absolute, with a ``.git`` directory in it.

    Attributes:
        root: As given.
        published: A remote on another machine has every commit of every branch, of the stash, and of other work trees.
    """

    def __init__(self, root: bytes) -> None:
        self.root = root
        self.published = False
        self._start = root.rstrip(b"/") + b"/"
        self._blobs: dict[bytes, str] = {}
        self._left = MOST_HASHED
        with contextlib.suppress(OSError):  # a full disk: nothing of the tree is taken for reproducible
            self._read()

    def is_reproducible(self, path: bytes, seen: os.stat_result) -> bool:
        """Return whether a remote has this file, with this content.

        Args:
            path: Absolute, below the root.
            seen: Its status.
        """
        name = path[len(self._start) :]
        if name.startswith(b".git/"):
            return self.published and _INSIDE.fullmatch(name) is not None
        wanted = self._blobs.get(name)
        if wanted is None or seen.st_size > min(LONGEST_FILE, self._left):
            return False
        self._left -= seen.st_size
        data = files.read(os.fsdecode(path), LONGEST_FILE + 1)
        if data is None:
            return False
        return (
            hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest() == wanted
        )  # git's own name of the content

    def _read(self) -> None:
        folder = os.path.join(os.fsdecode(self.root), ".git")
        refs = dict(_refs(folder))
        remotes = [name for name, url in _remotes(folder) if _ELSEWHERE.match(url)]
        known = [
            sha
            for ref, sha in refs.items()
            if any(ref.startswith("refs/remotes/%s/" % one) for one in remotes)
        ]
        head = _head(folder, refs)
        git = which("git")
        if head is None or git is None or not known:
            return
        own = [sha for ref, sha in refs.items() if not ref.startswith(("refs/remotes/", "refs/tags/"))]
        own += _heads_of_others(folder)
        own += _STASHED.findall(_text(folder, "logs", "refs", "stash"))
        place = own_temporary.make()
        try:
            ask = _Git(git, place, os.path.join(folder, "objects"))
            new = ask("rev-list", "--max-count=1", head, *own, "--not", *known)
            self.published = new == b""
            if new and ask("rev-list", "--max-count=1", head, "--not", *known) != b"":
                return
            listed = ask("ls-tree", "-r", "-z", "--full-tree", head) if new is not None else None
        finally:
            shutil.rmtree(place, ignore_errors=True)
        for row in (listed or b"").split(b"\0"):
            about, _, name = row.partition(b"\t")
            parts = about.split()
            if len(parts) == 3 and parts[1] == b"blob" and parts[0] != b"120000":
                self._blobs[name] = parts[2].decode("ascii", "replace")


class _Git:
    """Runs git on the objects of a repository, without anything else of it.

    Args:
        program: Its path.
        place: An empty directory.
        objects: Of the repository.
    """

    def __init__(self, program: str, place: str, objects: str) -> None:
        self._program = program
        for name in ("refs", "objects"):
            os.mkdir(os.path.join(place, name))
        for name, text in (("HEAD", "ref: refs/heads/none\n"), ("config", "[core]\n\tbare = true\n")):
            with open(os.path.join(place, name), "w") as file:
                file.write(text)
        self._place = place
        self._env = {
            "PATH": os.environ.get("PATH", os.defpath), "HOME": place, "GIT_DIR": place, "LC_ALL": "C",
            "GIT_OBJECT_DIRECTORY": objects, "GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": "/dev/null",
            "GIT_NO_LAZY_FETCH": "1", "GIT_NO_REPLACE_OBJECTS": "1", "GIT_TERMINAL_PROMPT": "0",
        }  # fmt: skip

    def __call__(self, *words: str) -> bytes | None:
        """Return what a command printed; None if it failed."""
        try:
            done = subprocess.run(
                [self._program, *words],
                cwd=self._place,
                env=self._env,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                timeout=GIT_SECONDS,
            )
        except (OSError, subprocess.SubprocessError):
            return None
        return done.stdout if done.returncode == 0 else None


def _text(*parts: str) -> str:
    return (files.read(os.path.join(*parts), 16 << 20) or b"").decode("utf-8", "replace")


def _head(folder: str, refs: dict[str, str]) -> str | None:
    text = _text(folder, "HEAD").strip()
    return refs.get(text[5:].strip()) if text.startswith("ref: ") else text if _SHA.fullmatch(text) else None


def _heads_of_others(folder: str) -> list[str]:
    """Return the commits that other work trees of the repository are at without a branch."""
    found = glob.glob(os.path.join(glob.escape(folder), "worktrees", "*", "HEAD"))
    heads = (_text(path).strip() for path in found)
    return [sha for sha in heads if _SHA.fullmatch(sha)]


def _refs(folder: str) -> Iterator[tuple[str, str]]:
    """Yield each ref and its commit, the packed ones first: a loose one counts before them."""
    for line in _text(folder, "packed-refs").splitlines():
        sha, _, ref = line.partition(" ")
        if _SHA.fullmatch(sha) and ref.startswith("refs/"):
            yield ref, sha
    for at, _, names in os.walk(os.path.join(folder, "refs")):
        for name in names:
            sha = _text(at, name).strip()
            if _SHA.fullmatch(sha):
                yield os.path.relpath(os.path.join(at, name), folder), sha


def _remotes(folder: str) -> Iterator[tuple[str, str]]:
    name = None
    for line in _text(folder, "config").splitlines():
        section = _REMOTE.match(line)
        if section or line.lstrip().startswith("["):
            name = section[1] if section else None
        url = _URL.match(line)
        if name is not None and url:
            yield name, url[1]
