"""Resumes from the end of the last attempt, and reports exactly what was restored."""

from __future__ import annotations

import copy
import json
import os
from contextlib import suppress
from typing import Any

from rgt_train.checkpoint import diskio, manifest, matching
from rgt_train.checkpoint.async_saver import Persister
from rgt_train.checkpoint.diskio import StrPath, Unreadable, remove_path, replace_file
from rgt_train.checkpoint.manifest import CheckpointDamaged
from rgt_train.checkpoint.mirror import CheckpointMirror
from rgt_train.checkpoint.state import RestoredState, RunState
from rgt_train.checkpoint.store import Checkpoint, CheckpointStore, describe_checkpoint
from rgt_train.data import rng
from rgt_train.data.position import Progress
from rgt_train.exits import UsageError
from rgt_train.tracking.report import RunReport, print_line
from rgt_train.tracking.run_log import RunLog


def result_path(out: StrPath) -> str:
    """Return the path of the result of a finished run."""
    return os.path.join(out, "result.json")


def random_path(out: StrPath) -> str:
    """Return the path of the random state with which a finished run left its last epoch."""
    return os.path.join(out, "random.json")


def read_finished_result(out: StrPath, total_steps: int) -> dict[str, Any] | None:
    """Return the result in `out` if it covers `total_steps`.

    None if work is left (more epochs, say).

    The result of a run that was ended early covers the steps planned then.
    """
    try:
        with open(result_path(out), encoding="utf-8") as file:
            result = json.load(file)
        if int(result.get("planned", result["step"])) >= total_steps:
            return {"step": int(result["step"]), "loss": result["loss"], "best": result["best"]}
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return None


def load_finished(
    store: CheckpointStore, persister: Persister, state: RunState, step: int
) -> RestoredState:
    """Load the final state of a finished run for the code after the loop. Change nothing on disk.

    Args:
        store: The run's checkpoints.
        persister: Loads them.
        state: The target.
        step: The last step that was made.

    Raises:
        UsageError: There is none of that step, or it belongs to another run.
        Unreadable: The disk cannot return the content.
    """
    told = f"none of step {step} is in {store.root}"
    for item in reversed(store.list_items()):
        # An earlier one is not what the run ended with.
        if item.step < step:
            break
        try:
            restored = persister.restore_checkpoint(store.path_of(item), state)
            # The last validation may have drawn numbers, and the next fold begins with the rest.
            with suppress(OSError, ValueError, KeyError, TypeError):
                with open(random_path(store.out), encoding="utf-8") as file:
                    at_end = json.load(file)
                if at_end["step"] == step and at_end["rng"]:
                    restored.rng = at_end["rng"]
            return restored
        except CheckpointDamaged as damage:
            told = f"{store.path_of(item)} is damaged: {damage}"
    raise UsageError(
        f"{store.out} is finished, but what it ended with cannot be loaded: {told}. What comes "
        "after the loop would work on untrained weights. Put the checkpoint back, or remove "
        f"{result_path(store.out)} to continue from what is left"
    )


def load_latest(
    store: CheckpointStore,
    persister: Persister,
    state: RunState,
    report: RunReport,
    mirror: CheckpointMirror | None = None,
) -> tuple[Checkpoint | None, RestoredState | None]:
    """Clean up, load the newest checkpoint whose every byte is right, and report it.

    Returns:
        The checkpoint and the restored state; None twice for a fresh start, if no checkpoint
        exists.

    Raises:
        UsageError: The checkpoint is intact but does not belong to this run; or there are some and
            none is good.
        Unreadable: The disk cannot return the content. Nothing was deleted; a fresh start, or an
            older checkpoint, would lead to the loss of what is there.
    """
    strays = store.remove_leftovers()
    if strays:
        report.print_line(f"cleaned up after the last attempt: {', '.join(strays)}")

    def load_checkpoint(path: str) -> tuple[str, RestoredState]:
        return path, persister.restore_checkpoint(path, state)

    found, complaints = store.newest_good(load_checkpoint)
    for complaint in complaints:
        report.print_line(complaint)
    if mirror is not None:
        if found:
            local = int(manifest.read_manifest(found[0])["step"])
        else:
            local = None
        if mirror.fetch_newer(local) is not None or (found is None and diskio.is_dir(store.best)):
            found, _ = store.newest_good(load_checkpoint)
    # Starting again would delete the damaged ones, which a person may still repair.
    if found is None and complaints:
        raise UsageError(
            f"no checkpoint in {store.out} is good, and none was deleted: {'; '.join(complaints)}. "
            "Look at the disk and launch again. To start from step 0, give another --out, or move "
            f"{store.root} and {store.best} away"
        )
    remove_path(
        result_path(store.out)
    )  # an existing result belongs to fewer epochs than requested now
    if found is None:
        return None, None
    path, restored = found
    checkpoint = describe_checkpoint(path, manifest.read_manifest(path))
    store.anchor = os.path.basename(path)
    if complaints:
        report.print_line(f"going back to step {checkpoint.step}")
    return checkpoint, restored


def report_resume(
    report: RunReport,
    run_log: RunLog,
    progress: Progress,
    loaded: Checkpoint | None,
    restored: RestoredState | None,
    logged: int | None,
    total_steps: int,
) -> None:
    """Write the `start` event of a new run, or the receipt and the `resume` event of an old one.

    Args:
        report: Receives them.
        run_log: Knows how the last attempt ended.
        progress: The starting point of this attempt.
        loaded: The loaded checkpoint.
        restored: The state restored from it.
        logged: Last step that was logged before, as known so far.
        total_steps: Steps in all.
    """
    cause = run_log.past.cause
    if loaded is None and cause is None and logged is None:
        report.append_event("start", 0, total_steps=total_steps)
        return
    lost, in_words = run_log.past.describe_lost_steps(logged, progress.step)
    if loaded:
        source = f"from {loaded.path}"
    else:
        source = "from the beginning, no checkpoint was there yet"
    report.print_line(
        f"resume: at step {progress.step} of {total_steps} {source}; attempt {run_log.attempt}, "
        f"the last one ended by: {cause or 'unknown'}; work lost: {in_words}"
    )
    if restored is not None:
        report.print_line(f"resume: restored {', '.join(restored.parts)}")
        if restored.not_given:
            report.print_line(f"resume: not given: {restored.not_given}")
        for missing in restored.not_restored:
            report.print_line(f"resume: not restored: {missing}")
        if restored.changed:
            report.print_line(f"resume: settings changed: {restored.changed}")
        for difference in restored.told:
            report.print_line(f"resume: {difference}")
        report.print_line(f"resume: {restored.guarantee()}")
    report.append_event(
        "resume", progress.step, reason=cause or "killed", total_steps=total_steps, lost_steps=lost
    )


def reconcile_best(store: CheckpointStore, progress: Progress, report: RunReport) -> None:
    """Reconcile ``best``, ``best.json`` and the counters after a kill between them, or damage.

    A missing best is removed from the counters, with a message: the next validation publishes one,
    which is better than none at all.

    Raises:
        Unreadable: The disk cannot tell whether it is complete.
    """
    if progress.best is None:
        return
    try:
        best = manifest.verify_checkpoint(store.best)["best"]
    except Unreadable:
        raise
    except (CheckpointDamaged, UsageError, KeyError) as error:
        report.print_line(
            f"best of step {progress.best_step} is damaged: {error}; the next validation makes a "
            "new one"
        )
        # Moved, not deleted: damaged weights may be all that is left of the best.
        store.set_best_aside()
        progress.best = progress.best_step = None
        return
    best = {key: best[key] for key in ("step", "metric", "value")}  # the manifest sorts its keys
    path = os.path.join(store.out, "best.json")
    try:
        with open(path, encoding="utf-8") as file:
            if json.load(file) == best:
                return
    except (OSError, ValueError):
        pass
    try:
        replace_file(path, (json.dumps(best) + "\n").encode())
    except OSError as error:
        report.print_line(f"best.json could not be repaired: {error}")


class ResumedSettings:
    """The small state with which an unfinished epoch is resumed.

    A loop may change it before the first batch of each epoch: ``scheduler.step()``, a learning rate
    that is multiplied, a counter in `extra`. The checkpoint has that change already, so that of a
    resume is undone.

    Args:
        state: The state of the run, as restored.
    """

    def __init__(self, state: RunState) -> None:
        self._parts = {name: state.others[name] for name in sorted(state.small)}
        # With `Options.override` the code has the say.
        optimizers: list[str] = []
        if not state.override:
            optimizers = sorted(state.optimizers)
        self._groups = [
            (name, group)
            for name in optimizers
            for group in getattr(state.others[name], "param_groups", ())
        ]
        self._kept = copy.deepcopy(self._current_values())

    def undo_changes(self) -> str:
        """Undo the changes since; return the names of the parts that had any."""
        changed = []
        for name, values in self._current_values().items():
            kept = self._kept[name]
            # `differences` does not see additions, and the text of large tensors is shortened.
            if repr(kept) == repr(values) and matching.differences(kept, values, "") is None:
                continue
            changed.append(name)
            if name in self._parts:
                self._parts[name].load_state_dict(kept)
        for name, values in self._kept.items():
            if name in changed and name not in self._parts:
                for (_, group), kept in zip(self._groups_of(name), values):
                    group.update(kept)
        return ", ".join(changed)

    def _groups_of(self, name: str) -> list[tuple[str, dict[str, Any]]]:
        return [pair for pair in self._groups if pair[0] == name]

    def _current_values(self) -> dict[str, Any]:
        values: dict[str, Any] = {name: part.state_dict() for name, part in self._parts.items()}
        for name, group in self._groups:
            kept = {key: value for key, value in group.items() if key != "params"}
            values.setdefault(name, []).append(kept)
        return values


class PendingRestore:
    """Random state and gradients of a checkpoint, restored when the first batch is requested.

    Args:
        state: The target of the gradients.
        restored: The state restored so far; None for a fresh start.
        seed: Seeds the random state if the checkpoint has none for this rank; None leaves it
            unchanged.

    Attributes:
        rng: The random state that is not restored yet.
    """

    def __init__(
        self, state: RunState, restored: RestoredState | None, seed: int | None = None
    ) -> None:
        self._state = state
        if restored is not None:
            self.rng = restored.rng
        else:
            self.rng = None
        if restored is not None:
            self._grads, state.evaluating = dict(restored.grads), dict(restored.evaluating)
        else:
            self._grads = {}
        self._modes = dict(state.evaluating)
        if self.rng is None:
            self._seed = seed
        else:
            self._seed = None
        self._looked: tuple[Any, ...] | None = None
        self._redraw: list[Any] = list((self.rng or {}).get("ahead", ()))
        # Also for a save that is made before the epoch continues.
        state.head = self._head = (self.rng or {}).get("head")
        self._begun = False
        self._settings: ResumedSettings | None = None

    def begin_epoch(self) -> None:
        """Restore, once, the random state with which the epoch began; note that of a new epoch.

        Code before the first batch (a permutation, negative samples) draws the same numbers again.
        """
        p, head = self._state.progress, self._head
        if not (p.done_steps or p.micro or p.offset):
            self.restore_now()  # nothing of the epoch was trained on: all of it is still to be drawn
        else:
            self._settings = ResumedSettings(self._state)
        if head is not None and head["epoch"] == p.epoch:
            rng.restore_states(head)
        self._head = None
        self._state.head = {"epoch": p.epoch, **rng.capture_states()}

    def redraw_batch(self) -> None:
        """Restore the random state before a batch that was drawn and not used; note this draw."""
        if self._redraw:
            rng.restore_states(self._redraw.pop(0))
        self._state.ahead.append(rng.capture_states())
        if self._begun:
            del self._state.ahead[0]

    def restore_now(self) -> None:
        """Restore both, once."""
        if self.rng is not None:
            rng.restore_states(self.rng)
        elif self._seed is not None:
            rng.seed_all(self._seed)
        if self._grads:
            self._state.restore_grads(self._grads)
        self.rng = None
        self._seed = None
        self._grads = {}

    def restore_before_batch(self, *, over: bool) -> None:
        """Restore both, and modes; again if a batch was only read since, without a step on it.

        Args:
            over: Whether all steps of the epoch are done.
        """
        p = self._state.progress
        here = p.epoch, p.step, p.micro
        self._begun = True
        if self._settings is not None:
            undone = self._settings.undo_changes()
            self._settings = None
            if undone:
                print_line(
                    f"resume: {undone}: changed before the first batch of the epoch, as the "
                    "checkpoint has it already; undone"
                )
        if self.rng is not None or self._seed is not None:
            # Kept until the first step, because a look at a batch must not change the training.
            self._looked = here, self.rng, self._seed, self._grads
        elif self._looked and self._looked[0] == here and not over:
            self.undo_restore()
        told = matching.restore_modes(self._state.models, self._modes)
        self._modes = {}
        if told:
            print_line(f"resume: {told}")
        self.restore_now()

    def undo_restore(self) -> None:
        """Undo the restore if a batch was read without a step on it."""
        if self._looked is not None:
            _, self.rng, self._seed, self._grads = self._looked

    def note_step(self) -> None:
        """Note that a step was made."""
        self._looked = None
