"""Saves as the writer process makes them, without a training: a hundred of them are killed in seconds.

`rgt_train.checkpoint.publish.perform` is what the writer process calls for each snapshot it gets; here it is given
small ones. A drill publishes step 3 (which prunes step 1) and a new best, on top of the steps 1 and 2 and the best of
step 1.
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

from rgt_train.checkpoint import (
    CheckpointDamaged,
    CheckpointStore,
    SaveJob,
    perform_job,
    verified_checkpoint,
)

FILES = ("model.safetensors", "trainer.safetensors", "state.json")
_ROOM = 8192
FAILED_WELL, FAILED_BADLY = 3, 4


def content(step: int, name: str) -> bytes:
    """Return what a file of `step` holds."""
    return f"{name} of {step} ".encode() * 50


def publish(store: CheckpointStore, step: int, kind: str) -> bool:
    """Save a checkpoint; False where the disk refused.

    Raises:
        RuntimeError: It failed for another reason.
    """
    memory = b"".join(content(step, name).ljust(_ROOM) for name in FILES[:2])
    regions = [(name, _ROOM * n, len(content(step, name))) for n, name in enumerate(FILES[:2])]
    job = SaveJob(
        kind, step, {"best": {"step": step, "metric": "loss", "value": 1.0}}, regions, FILES[2]
    )
    done = perform_job(store, job, memoryview(memory), content(step, FILES[2]))
    if done.error is not None and done.error[1] is None:
        raise RuntimeError(f"not an error of the disk: {done.error}")
    return done.error is None


def prepare(out: Path) -> None:
    """Make a run directory with the steps 1 and 2 and a best of step 1."""
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    store = CheckpointStore(out, 1)
    assert publish(store, 1, "step") and publish(store, 1, "best") and publish(store, 2, "step")


def save(words: list[str]) -> int:
    """Publish step 3 and a new best in the directory `words[0]`."""
    store = CheckpointStore(words[0], 2)
    return 0 if publish(store, 3, "step") and publish(store, 3, "best") else FAILED_WELL


def survive(words: list[str]) -> int:
    """The same on a disk that refuses: what there was must be good at once, and the next save must get through.

    The disk is let go by the file `words[1]`, which this process takes away.
    """
    store = CheckpointStore(words[0], 2)
    if publish(store, 3, "step") and publish(store, 3, "best"):
        return 0
    if len(words) > 1:
        os.unlink(words[1])
    found, complaints = store.newest_good(
        verified_checkpoint
    )  # the same process trains on: it needs no cleaning up
    if found is None or found.step not in (2, 3) or complaints or not _has_best(store):
        return FAILED_BADLY
    return FAILED_WELL if publish(store, 4, "step") and publish(store, 4, "best") else FAILED_BADLY


def _has_best(store: CheckpointStore) -> bool:
    """A disk that turns read-only between the two renames of a swap leaves the old best aside until the next launch."""
    places = [
        store.best,
        *(os.path.join(store.root, n) for n in os.listdir(store.root) if n.startswith(".old-best")),
    ]
    for place in places:
        if os.path.isdir(place):
            return verified_checkpoint(place).step in (1, 3)
    return False


def look(out: Path, steps: tuple[int, ...] = (2, 3), bests: tuple[int, ...] = (1, 3)) -> str | None:
    """Start anew in `out`; return what is wrong, or None.

    Args:
        out: The run directory.
        steps: Of which step the newest checkpoint may be.
        bests: Of which step the best may be.
    """
    store = CheckpointStore(out, 9)
    store.remove_leftovers()
    found, complaints = store.newest_good(verified_checkpoint)
    if complaints:
        return f"a published checkpoint is damaged: {complaints}"
    if found is None or found.step not in steps or found.path == store.best:
        return f"the newest good is {found}, not one of {steps}"
    for _, place in store.list_paths():
        try:
            verified_checkpoint(
                place
            )  # also those that are older: a deletion must not leave half of one under its name
        except CheckpointDamaged as damage:
            return f"{place} is damaged: {damage}"
    for folder, allowed in ((Path(found.path), (found.step,)), (Path(store.best), bests)):
        step = json.loads((folder / "manifest.json").read_text())["step"]
        if step not in allowed:
            return f"{folder} is of step {step}, not one of {allowed}"
        for name in FILES:
            if (folder / name).read_bytes() != content(step, name):
                return f"{folder}/{name} has other content"
    strays = [name for name in os.listdir(store.root) if name.startswith(".")]
    return f"strays are left: {strays}" if strays else None
