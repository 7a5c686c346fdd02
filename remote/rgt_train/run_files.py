"""The files of a run: lock, metrics, run log, checkpoints and mirror, held by the writer rank."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from typing import Any, Callable, Mapping

import torch

from rgt_train import exits, guards
from rgt_train.cadence import (
    FailureRate,
    Options,
    SaveCadence,
    StepPace,
    assumed_mtbf,
    fill_result_name,
    group_rates,
)
from rgt_train.checkpoint import resume
from rgt_train.checkpoint.async_saver import BACKGROUND, AsyncSaver, Persister
from rgt_train.checkpoint.diskio import make_dirs
from rgt_train.checkpoint.lock import RunLock
from rgt_train.checkpoint.manifest import CheckpointDamaged
from rgt_train.checkpoint.mirror import CheckpointMirror
from rgt_train.checkpoint.saver import CheckpointSaver, LossLimits
from rgt_train.checkpoint.state import RestoredState, RunState
from rgt_train.checkpoint.store import Checkpoint, CheckpointStore, KeepPolicy
from rgt_train.data.position import DataPosition, merged
from rgt_train.proof import StepProof
from rgt_train.ranks import choose, launch
from rgt_train.ranks.heartbeat import CHECKPOINT, StepTimes
from rgt_train.ranks.launch import Coordinator, Ranks, StandIn
from rgt_train.ranks.replicated import DesyncChecks
from rgt_train.tracking import run_log
from rgt_train.tracking.dynamics import TrainingDynamics
from rgt_train.tracking.report import (
    RunReport,
    SinkLaunch,
    last_logged_point,
    open_sinks,
    print_line,
)
from rgt_train.tracking.run_log import AttemptHistory, RunLog


class RunFiles:
    """The files in a run's directory; on a rank that does not write, stand-ins that do nothing.

    Args:
        out: The run directory.
        options: How to save and log.
        state: The state to save.
        data: The order of the data and the position in it.
        ranks: The processes of the run.
        coordinator: Lets the writer lead.
        stop: Its `StopRequest`.

    Attributes:
        data: The position in the data.
        report: Lines and events.
        run_log: When each attempt began and ended.
        persister: Puts the state onto the disk.
        saver: Decides when.
        pace: The clock of the run.
        mirror: The second copy, if there is one.
        restored: The state restored from the checkpoint; None for a fresh start.
        proof: Keeps the checkpoint that it proves.
    """

    def __init__(
        self,
        out: str,
        options: Options,
        state: RunState,
        data: DataPosition,
        ranks: Ranks,
        coordinator: Coordinator,
        stop: Any,
    ) -> None:
        self.out = out
        self._options = options
        self._state = state
        self.data = data
        self._sampler = data.sampler
        self._ranks = ranks
        self._coordinator = coordinator
        self._stop = stop
        self._lock: Any = StandIn(fd=-1)
        self.report: RunReport = StandIn()  # type: ignore[assignment]
        self.run_log: Any = StandIn(attempt=0, past=AttemptHistory())
        self.saver: Any = StandIn(
            busy=False, wishes=lambda step: 0, is_due_after=lambda step: False
        )
        self.persister: Persister = StandIn()
        self.mirror: CheckpointMirror | None = None
        self.restored: RestoredState | None = None
        self.proof: StepProof | None = None
        self._boundaries = 0
        self._dynamics: TrainingDynamics | None = None
        self._git_state: Callable[[], dict[str, Any] | None] = lambda: None
        self._recorded: Callable[[], str | None] = lambda: None

    def open_directory(self) -> None:
        """Lock the directory and resume from its newest good checkpoint. On every rank.

        Raises:
            UsageError: Another trainer runs here, it cannot be used, or its checkpoint belongs to
                something else.
        """
        if not self._ranks.is_writer:
            self._prepare_follower()
        told = self._coordinator.run_on_leader(self._start_on_writer)
        if not self._ranks.is_writer:
            self.run_log.attempt = told["attempt"]
            self._state.progress.load(told["progress"])
            self._begin_clock(SaveCadence(1, FailureRate(1.0)))

    def show_finished(self, result: Mapping[str, Any]) -> None:
        """Load the final state of a finished run: the code after the loop uses its weights."""
        store = CheckpointStore(self.out, 0)
        self.persister = self._persisting(store)
        if not self._ranks.is_writer:
            self._prepare_follower()

        def load_result() -> None:
            print_line(
                "already finished: step {step}, loss {loss}, best {best}; nothing to do".format_map(
                    result
                )
            )
            self.restored = resume.load_finished(
                store, self.persister, self._state, int(result["step"])
            )
            if self.restored.not_given:
                print_line(
                    f"not given: {self.restored.not_given}; the code after the loop does not get "
                    "it back"
                )

        try:
            self._coordinator.run_on_leader(load_result)
        finally:
            self.persister.close()

    def save_at_boundary(self, step: int, agreed: int) -> None:
        """Let the writer save at a step boundary, if that needs the other ranks or it is alone."""
        saving = agreed & (launch.SAVE | launch.HOLD)
        self._boundaries += 1
        prepared_at = 1
        if self.restored is not None:
            # A relaunch should reach its first step soon, and its state has been loaded already.
            prepared_at = 2
        if not saving and self._boundaries != prepared_at:
            return
        with self._ranks.beat.within_phase(CHECKPOINT):
            if saving:
                self._finish_record()
                self._coordinator.run_on_leader(lambda: self.saver.perform_agreed(step, agreed))
            else:
                self.saver.prepare()  # on another rank, a stand-in

    def leave_out(self, first: int, last: int) -> bool:
        """Record that a rollback leaves out the steps from `first` to `last`.

        False if impossible.
        """

        def decide_steps() -> bool:
            return guards.decide_rollback(
                self.out, self._store.list_steps(), first, last, self.report.print_line
            )

        return bool(self._coordinator.run_on_leader(decide_steps))

    def epoch_with_fraction(self) -> float:
        """Return the epoch, with a fraction."""
        return self.data.fraction

    def named_result_path(self, step: int) -> str:
        """Return the path of the further file for the result; empty for none."""
        if not self._options.result_name:
            return ""
        name = fill_result_name(
            self._options.result_name,
            model=model_name(next(iter(self._state.models.values()))),
            step=step,
            run=os.path.basename(self.out),
        )
        return os.path.join(self.out, name)

    def close(self) -> None:
        """Release the directory without saving."""
        if self._dynamics is not None:
            self._dynamics.remove_hooks()
        self._finish_record()
        try:
            self.saver.wait_for_save()
        finally:
            self.persister.close()
        if self.mirror is not None:
            self.mirror.close()
        self.report.close()
        self.run_log.close()
        self._lock.close()

    def release_unopened(self) -> None:
        """Release the directory of a run that could not be opened."""
        self._finish_record()
        self.persister.close()
        self._lock.close()

    def _prepare_follower(self) -> None:
        """Prepare a rank that is not the writer for the writer's orders."""
        self.persister = self._persisting(CheckpointStore(self.out, 0))
        self._coordinator.orders["see"] = lambda path, content: choose.check_shared_folder(
            self._ranks, path, content
        )
        self._coordinator.orders["load"] = self._load_ordered

    def _load_ordered(self, directory: str) -> None:
        self.restored = None
        try:
            self.restored = self.persister.restore_checkpoint(directory, self._state)
        except CheckpointDamaged:
            return  # the writer knows it too, and tries an older one

    def _start_on_writer(self) -> dict[str, Any]:
        """Take the directory and find the starting point, on the writer.

        Returns the facts that the other ranks need.
        """
        self._lock_directory()
        # Its commands take longer than loading a small checkpoint, so both run at the same time.
        self._git_state = run_log.begin_git_state(os.getcwd())
        o = self._options
        p = self._state.progress
        self.report = RunReport(self.out)
        logged, at = last_logged_point(self.out)
        self.run_log = RunLog(self.out, at)
        try:
            assumed = assumed_mtbf(o.platform)
        except ValueError as error:
            raise exits.UsageError(str(error)) from error
        for pid in self._lock.fenced:
            self.report.print_line(f"ended the writer process of a killed attempt (pid {pid})")
        store = self._store = CheckpointStore(
            self.out, self.run_log.attempt, KeepPolicy(o.keep, o.keep_hours)
        )
        self.persister = self._persisting(store)
        self._open_mirror(store)
        loaded, self.restored = resume.load_latest(
            store, self.persister, self._state, self.report, self.mirror
        )
        # A wiped disk: the history of the run is known only now.
        if self.mirror is not None and self.mirror.logs:
            self.report.reopen_file()
            self.run_log.close()
            logged, at = last_logged_point(self.out)
            self.run_log = RunLog(self.out, at)
            self.run_log.past = replace(self.run_log.past, copied_at=at)
            store.attempt = max(store.attempt, self.run_log.attempt)
        if loaded is not None:
            store.continue_attempts(loaded)
            self.run_log.attempt = store.attempt
        if loaded is not None and self.restored is not None:
            made_by = int(loaded.manifest.get("attempt", 0))
            self.restored.late = self.run_log.past.late_changes(made_by, loaded.step)
        p.left_out = merged(p.left_out, guards.read_left_out(self.out).steps)
        resume.report_resume(
            self.report, self.run_log, p, loaded, self.restored, logged, self.data.total
        )
        resume.reconcile_best(store, p, self.report)
        cadence = SaveCadence(
            o.save_every, self.run_log.past.expected_failures(assumed, self._ranks.nodes)
        )
        self._begin_clock(cadence)
        self._note_launch()
        self.saver = CheckpointSaver(
            self.persister, self._state, store, self._manifest_facts, self.report, cadence,
            self._stop,
            LossLimits(o.max_unsaved, o.hold_limit_s), loaded.step if loaded else None, p.step,
            outdated=loaded is not None and loaded.path == store.best, on_saved=self._note_saved,
            on_wait=self._coordinator.signal_alive,
        )  # fmt: skip
        if self.mirror is not None:
            self.mirror.queue_all(loaded)
        self._stop.tell = lambda name: self.report.print_line(
            f"{name}: stopping as soon as the step is over"
        )
        self.run_log.record_start(p.step, self._ranks.nodes, o.log_every)
        self.report.announce_gathering = self.run_log.record_gathering
        if not self._lock.exclusive:
            self.report.print_line(
                f"warning: {self.out} is on a file system without locks; never start a second "
                "trainer here"
            )
        return {"attempt": self.run_log.attempt, "progress": p.state()}

    def _lock_directory(self) -> None:
        """Take the run directory; the other ranks must see it."""
        try:
            make_dirs(self.out)
            self._lock = RunLock(self.out)
        except OSError as error:
            taken = isinstance(error, (FileExistsError, NotADirectoryError))
            if taken:
                why = "something that is not a directory is in the way"
            else:
                why = error.strerror or str(error)
            raise exits.UsageError(
                f"cannot use {self.out} as run directory: {why}; give another one"
            ) from error
        if self._ranks.world > 1:
            with open(self._lock.path, "rb") as file:
                content = file.read()
            self._coordinator.orders["see"] = lambda path, content: choose.check_shared_folder(
                self._ranks, path, content
            )
            self._coordinator.order_all("see", self._lock.path, content)

    def _open_mirror(self, store: CheckpointStore) -> None:
        """Open the mirror, if there is one, and carry out a decided rollback, here and there."""
        if self._options.mirror:
            self.mirror = CheckpointMirror(
                self._options.mirror,
                store,
                self.report,
                self._lock.note_helper,
                self._coordinator.signal_alive,
            )
            before = guards.read_left_out(self.out).before
            if before:
                self.mirror.delete_from(before)
        gone = guards.remove_rolled_back(self.out, store.root, store.list_paths())
        if gone:
            self.report.print_line(f"going back: checkpoints of the steps {gone} are given up")

    def _note_launch(self) -> None:
        """Open the further logs, and record the launch."""
        o = self._options
        step = self._state.progress.step
        settings = self._state.settings
        launch = SinkLaunch(self.out, step, settings, o.project, o.tracker_group, o.tags)
        self.report.add_sinks(open_sinks(o.loggers, launch, self.report.print_line))
        facts = run_log.launch_facts(
            seed=self._sampler.seed, batch=self._sampler.batch_size,
            accumulate=self._sampler.accumulate,
            world=self._ranks.world, attempt=self.run_log.attempt, step=step, settings=settings,
            overrides=o.overrides,
        )  # fmt: skip
        self._recorded = run_log.begin_launch_record(self.out, facts, self._git_state)

    def _finish_record(self) -> None:
        """Wait until the launch is recorded, once."""
        recorded = self._recorded
        self._recorded = lambda: None
        complaint = recorded()
        if complaint:
            self.report.print_line(complaint)

    def _begin_clock(self, cadence: SaveCadence) -> None:
        samples = self._sampler.batch_size * self._sampler.accumulate
        saving = lambda: bool(self.saver.busy)  # noqa: E731
        times = StepTimes(
            self._ranks.beat,
            self._state.models.values(),
            self._ranks.world,
            self._sampler.accumulate,
        )
        if self._options.dynamics_every and self._ranks.is_writer:
            self._dynamics = TrainingDynamics(
                self._state.models.values(),
                [self._state.others[name] for name in self._state.optimizers],
                self._options.dynamics_every,
                lambda: self._state.progress.step,
            )
        self._optimizers = {
            name: self._state.others[name] for name in sorted(self._state.optimizers)
        }
        self.pace = StepPace(
            self.report,
            self._stop,
            cadence,
            self._options,
            samples,
            self.epoch_with_fraction,
            saving,
            times,
            self._learning_numbers,
        )

    def _learning_numbers(self) -> dict[str, float]:
        """Return the learning rates of groups, and the measured numbers about the updates."""
        rates = group_rates(self._optimizers)
        if self._dynamics is None:
            return rates
        return {**rates, **self._dynamics.take_numbers()}

    def _persisting(self, store: CheckpointStore) -> Persister:
        background = self._options.background and os.environ.get(BACKGROUND) != "0"
        return choose.persister(
            self._state.models, store, self._ranks, self._coordinator, self._state,
            DesyncChecks(self._ranks, self._options.desync_every, self.report.print_line),
            lambda: AsyncSaver(store, [self._lock.fd], self._lock.note_helper,
                               background=background),
            background=background,
        )  # fmt: skip

    def _note_saved(self, saved: Checkpoint) -> None:
        self.run_log.record_alive(saved.step)
        if self.proof is not None:
            self.proof.keep_checkpoint(saved)
        if self.mirror is not None:
            self.mirror.queue_copy(saved)

    def _manifest_facts(self) -> dict[str, Any]:
        return {
            "epoch": self.epoch_with_fraction(),
            "total_steps": self.data.total,
            "attempt": self.run_log.attempt,
            "torch": str(torch.__version__),
            "time": time.time(),
        }


def model_name(model: torch.nn.Module) -> str:
    """Return the name of a model: that of its pretrained weights, or its class."""
    inner: Any = model
    if type(model).__name__ == "DistributedDataParallel":
        inner = model.module
    config: Any = getattr(inner, "config", None)
    for owner in (inner, config):
        found = getattr(owner, "name_or_path", "")
        if isinstance(found, str) and found:
            return found
    return type(inner).__name__.replace("FSDP", "")
