"""A disk that does not answer is neither damage nor an empty directory: nothing is deleted, nothing begun anew."""

from __future__ import annotations

import errno
import os
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from rgt_train.checkpoint import (
    STEP,
    AsyncSaver,
    CheckpointDamaged,
    CheckpointStore,
    FolderPlace,
    KeepPolicy,
    RunState,
    SaveRequest,
    Unreadable,
    diskio,
    download_newest,
    load_latest,
    manifest,
    reconcile_best,
    verified_checkpoint,
)
from rgt_train.data.position import Progress
from rgt_train.tracking.report import RunReport

from tests.unit.train.test_commit import save

CALLS = ("open", "stat", "listdir", "preadv")


class Disk:
    """Lets calls of `os` fail: those named `call` on paths that end with `ending`, `times` of them."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self._names: dict[int, str] = {}
        self._rules: list[list[Any]] = []
        self._lock = threading.Lock()
        for call in CALLS:
            patch.setattr(os, call, self._wrap(call, getattr(os, call)))

    def refuse(self, call: str, ending: str, number: int, times: int) -> None:
        self._rules.append([call, ending, number, times])

    def mend(self) -> None:
        self._rules.clear()

    def _wrap(self, call: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(what: Any, *args: Any, **named: Any) -> Any:
            path = self._names.get(what, "") if isinstance(what, int) else os.fspath(what)
            for rule in self._rules:
                with self._lock:
                    hit = rule[0] == call and str(path).endswith(rule[1]) and rule[3] > 0
                    rule[3] -= hit
                if hit:
                    raise OSError(rule[2], os.strerror(rule[2]), path)
            found = real(what, *args, **named)
            if call == "open":
                self._names[found] = str(path)
            return found

        return wrapped


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    monkeypatch.setattr(diskio, "PAUSES", (0.0, 0.0, 0.0))
    return Disk(monkeypatch)


FOR_GOOD = 1000


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run directory with two checkpoints and a best one of a tiny model."""
    out = tmp_path_factory.mktemp("whole")
    store = CheckpointStore(out, 1)
    persister = AsyncSaver(store, background=False)
    for kind, step in ((STEP, 5), ("best", 5), (STEP, 10)):
        about = {"best": {"step": step, "metric": "m", "value": 1.0}} if kind == "best" else {}
        persister.begin_save(SaveRequest(kind, step, about), state_of())
        outcome = persister.wait()
        assert outcome is not None and outcome.error is None, outcome
    persister.close()
    return out


@pytest.fixture
def out(whole: Path, tmp_path: Path) -> Iterator[Path]:
    copy = tmp_path / "run"
    shutil.copytree(whole, copy)
    yield copy


def state_of() -> RunState:
    return RunState({"model": torch.nn.Linear(2, 2)}, {}, Progress(), {}, {})


def launch(out: Path) -> int | None:
    """Load as a launch does; return the step."""
    store, report = CheckpointStore(out, 2), RunReport(out)
    persister = AsyncSaver(store, background=False)
    try:
        loaded, _ = load_latest(store, persister, state_of(), report)
        if loaded is not None:
            assert store.anchor == os.path.basename(loaded.path)
        return loaded.step if loaded else None
    finally:
        report.close()
        persister.close()


def content(out: Path) -> dict[str, bytes]:
    files = [path for path in out.rglob("*") if path.is_file() and path.name != "metrics.jsonl"]
    return {str(path.relative_to(out)): path.read_bytes() for path in files}


WHERE = [
    ("listdir", "checkpoints"),
    ("stat", "step-00000010-a1"),
    ("open", "step-00000010-a1/manifest.json"),
    ("open", "step-00000010-a1/model.safetensors"),
    ("stat", "step-00000010-a1/state.json"),
    ("preadv", "step-00000010-a1/model.safetensors"),
    ("preadv", "step-00000010-a1/state.json"),
]


@pytest.mark.parametrize(("call", "ending"), WHERE)
@pytest.mark.parametrize(
    "number", [errno.EIO, errno.ESTALE, errno.EACCES, errno.EMFILE, errno.ENOMEM]
)
def test_errors_that_stay_end_the_launch_and_change_nothing(
    out: Path, disk: Disk, call: str, ending: str, number: int
) -> None:
    before = content(out)
    disk.refuse(call, ending, number, FOR_GOOD)
    with pytest.raises(
        Unreadable, match=f"{ending} cannot be read: {errno.errorcode[number]}"
    ) as told:
        launch(out)
    assert ("move" in str(told.value)) == ("a1/" in ending)
    disk.mend()
    assert content(out) == before


@pytest.mark.parametrize(("call", "ending"), WHERE)
def test_errors_that_pass_are_waited_for(out: Path, disk: Disk, call: str, ending: str) -> None:
    before = content(out)
    disk.refuse(call, ending, errno.EIO, len(diskio.PAUSES))
    assert launch(out) == 10
    assert content(out) == before


def test_a_best_that_cannot_be_read_is_not_damaged(out: Path, disk: Disk) -> None:
    before = content(out)
    progress = Progress()
    progress.best, progress.best_step = 1.0, 5
    disk.refuse("preadv", "best/model.safetensors", errno.EIO, FOR_GOOD)
    report = RunReport(out)
    with pytest.raises(Unreadable, match=r"best/model\.safetensors cannot be read: EIO"):
        reconcile_best(CheckpointStore(out, 2), progress, report)
    report.close()
    place = FolderPlace(str(out.parent / "mirror"))
    shutil.copytree(out / "best", out.parent / "mirror" / "best-00000005-a1")
    with pytest.raises(Unreadable):
        download_newest(place, CheckpointStore(out, 2), 10)
    disk.mend()
    assert progress.best == 1.0
    assert content(out) == before


def test_an_old_best_that_waits_to_be_put_back_is_not_a_stray(out: Path, disk: Disk) -> None:
    (out / "best").rename(out / "checkpoints" / ".old-best-1")
    before = content(out)
    disk.refuse("preadv", ".old-best-1/state.json", errno.EIO, FOR_GOOD)
    with pytest.raises(Unreadable):
        launch(out)
    disk.mend()
    assert content(out) == before
    assert CheckpointStore(out, 2).make_room(valuable=False) is None, "it may be the only one"
    shutil.copytree(out / "checkpoints" / ".old-best-1", out / "best")
    assert CheckpointStore(out, 2).make_room(valuable=False) == ".old-best-1"


def test_damage_is_moved_aside_and_deleted_only_after_the_next_save(out: Path) -> None:
    for step in (5, 10):
        os.truncate(out / "checkpoints" / f"step-{step:08d}-a1" / "model.safetensors", 100)
    assert launch(out) == 5, "best is left"
    store = CheckpointStore(out, 2)
    aside = [".damaged-step-00000005-a1-2", ".damaged-step-00000010-a1-2"]
    assert sorted(name for name in os.listdir(store.root) if name.startswith(".")) == aside
    assert save(store, 11).error is None
    assert sorted(name for name in os.listdir(store.root) if name.startswith(".")) == aside[1:]


def test_what_this_launch_goes_on_from_never_goes(
    out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A damaged newest that cannot even be renamed counts as the newest for ever; what is good must not go for it."""
    os.truncate(out / "checkpoints" / "step-00000010-a1" / "model.safetensors", 100)
    with monkeypatch.context() as patch:
        patch.setattr(
            os, "rename", lambda *_: (_ for _ in ()).throw(OSError(errno.EROFS, "Read-only"))
        )
        store = CheckpointStore(out, 2, KeepPolicy(last=1))
        found, _ = store.newest_good(verified_checkpoint)
    assert found is not None and found.step == 5
    store.anchor = os.path.basename(found.path)
    assert store.make_room(valuable=True) is None
    assert save(store, 7).error is None
    assert store.list_steps() == [7, 10]


def test_a_save_is_none_the_worse_for_a_list_that_cannot_be_read(out: Path, disk: Disk) -> None:
    store = CheckpointStore(out, 2, KeepPolicy(last=1))
    disk.refuse("listdir", "checkpoints", errno.EIO, FOR_GOOD)
    assert save(store, 12).error is None
    assert store.make_room(valuable=True) is None


@pytest.mark.parametrize("kind", ["fifo", "folder", "loop", "gone", "short"])
def test_what_is_no_file_is_damage(out: Path, kind: str) -> None:
    path = out / "checkpoints" / "step-00000010-a1" / "model.safetensors"
    size = path.stat().st_size
    path.unlink()
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    elif kind == "loop":
        path.symlink_to(path.name)
    elif kind == "short":
        path.write_bytes(b"\0" * (size - 1))
    with pytest.raises(CheckpointDamaged, match=r"model\.safetensors: "):
        manifest.verify_checkpoint(path.parent)


def test_a_file_that_shrinks_while_it_is_read_is_damage(
    out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = out / "checkpoints" / "step-00000010-a1" / "model.safetensors"
    size, real = path.stat().st_size, os.stat

    def before(place: Any, *args: Any, **named: Any) -> Any:
        found = real(place, *args, **named)
        if str(place) == str(path):
            os.truncate(path, size - 10)
        return found

    monkeypatch.setattr(os, "stat", before)
    with pytest.raises(
        CheckpointDamaged, match=f"model.safetensors: ends at byte {size - 10}, {size} were written"
    ):
        manifest.verify_checkpoint(path.parent)
