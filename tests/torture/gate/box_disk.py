"""The files of a machine of the model, listed by the agent's own walk.

Real: the files, the rules and the walk over them. Model: when each file was written, which clock the machine had then,
how old the machine is, and what is mounted on it.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rgt_box import files
from rgt_box.commands import result_walk, results
from rgt_box.commands.result_walk import FolderOwners, MountTable, ResultWalk

from rgt_tui.fleet import ResultsRequest
from rgt_tui.model import MountRow

ODD = ("/workspace/project/out", "/usr/src/app/out", "/opt/ComfyUI/output")
"""Where results lie that no job and no run knows: next to a Python environment, and in the image's own directories."""
NOT_RESULTS = (
    "/workspace/project/pyvenv.cfg",
    "/workspace/project/lib/python3/x.py",
    "/etc/passwd",
)
NAME = "picture.png"
"""Of a result that no rule would know by its name."""


@dataclass
class BoxDisk:
    """What lies on one machine, with the model's times."""

    root: Path
    made: float
    """When the machine was created, and its oldest process started."""
    booted: float = field(init=False)
    times: dict[str, tuple[float, float]] = field(default_factory=dict)
    """Directory → ctime and mtime of its file, by the clock that the machine had then."""
    volume: bool = True
    """There is a disk at /workspace; else it is a directory of the root."""

    _there: set[str] = field(default_factory=set)
    """The directories of the last list."""

    def __post_init__(self) -> None:
        self.booted = self.made
        for path in NOT_RESULTS:
            self._put(path, 1)

    def _put(self, path: str, count: int) -> None:
        real = self.root / path.lstrip("/")
        real.parent.mkdir(parents=True, exist_ok=True)
        real.write_bytes(b"x" * count)

    def read_once_swapped(self, path: str) -> bytes | None:
        """Read a result as the agent sends it, once a link has taken its place; None = it is refused.

        Afterwards it is what it was.
        """
        file = self.root / path.lstrip("/") / NAME
        before = file.read_bytes() if file.exists() else b"x"
        self._put(f"{path}/{NAME}", 1)
        file.unlink()
        file.symlink_to(self.root / "etc/passwd")
        opener = files.CachedOpener()
        try:
            with open(opener.open_file(str(file)), "rb") as opened:
                return opened.read()
        except OSError:
            return None
        finally:
            opener.close()
            file.unlink()
            file.write_bytes(before)

    def mounts(self) -> bytes:
        """Return the mount table, as the machine's kernel writes it."""
        rows = [("/", "overlay", "0:300")] + [("/workspace", "xfs", "8:1")] * self.volume
        real = [(f"{self.root}{path}".rstrip("/"), kind, device) for path, kind, device in rows]
        table = [("/", "overlay", "0:300"), *real[1:]]
        return "".join(
            f"1 0 {device} / {path} rw - {kind} x rw\n" for path, kind, device in table
        ).encode()

    def mounted(self) -> tuple[MountRow, ...]:
        """Return the table of the answer, with the machine's own paths."""
        rows = MountTable(self.mounts()).rows
        return tuple(
            MountRow(
                path=os.fsdecode(point).removeprefix(str(self.root)) or "/",
                kind=kind,
                device=device,
            )
            for point, (kind, device) in rows.items()
        )

    def listed(
        self, written: Mapping[str, int], wanted: ResultsRequest, now: float, owners: dict[str, str]
    ) -> list[str]:
        """Return the directories whose files the agent lists."""
        for path, count in written.items():
            self._put(f"{path}/{NAME}", count)
        for path in self._there - written.keys():
            shutil.rmtree(self.root / path.lstrip("/"))
        self._there = set(written)
        since = wanted.since
        if since is not None:
            age = [("the oldest process", self.booted), ("a job", self.made)]
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(results, "iterate_creation_times", lambda *_: iter(age))
                if results.why_machine_is_older(since, now, [], []):
                    since = None
        owned = FolderOwners()
        for path, owner in owners.items():
            owned.claim_path(f"{self.root}{path}", owner)
        survives = tuple(f"{self.root}{path}".rstrip("/") for path in wanted.survives)
        walk = ModelWalk(self._seen, owned, since, (), (), survives, MountTable(self.mounts()))
        walk.walk_roots([str(self.root)])
        found = [os.fsdecode(path).removeprefix(str(self.root)) for path in walk.groups]
        assert not walk.problems, walk.problems
        return sorted(found)

    def _seen(self, path: str, real: os.stat_result) -> Any:
        where = os.path.dirname(path).removeprefix(str(self.root))
        changed, written = self.times.get(where, (self.made + 1.0, self.made + 1.0))
        return SimpleNamespace(
            st_size=real.st_size, st_mode=stat.S_IFREG, st_ino=real.st_ino,
            st_ctime=changed, st_mtime=written, st_ctime_ns=int(changed * 1e9), st_mtime_ns=int(written * 1e9),
        )  # fmt: skip


class ModelWalk(ResultWalk):
    """The agent's walk, with the model's times of files."""

    def __init__(self, seen: Callable[[str, os.stat_result], Any], *arguments: Any) -> None:
        super().__init__(*arguments)
        self._seen = seen

    def _count_files(
        self, level: result_walk.WalkLevel, files: list[tuple[str, os.stat_result]]
    ) -> None:
        folder = os.fsdecode(level.path)
        super()._count_files(
            level, [(name, self._seen(f"{folder}/{name}", real)) for name, real in files]
        )


def lost_by_park(files: Iterable[str], disk: BoxDisk) -> Iterator[str]:
    """Yield what a stop of the machine erases."""
    return (path for path in files if not (disk.volume and path.startswith("/workspace/")))
