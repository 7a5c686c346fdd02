"""`Run`: makes a training loop survive being killed at any moment."""

from __future__ import annotations

import os
from contextlib import contextmanager
from dataclasses import replace
from types import TracebackType
from typing import (
    Any,
    Callable,
    Iterable,
    Iterator,
    Mapping,
    TypeVar,
)

import torch

from rgt_train import exits
from rgt_train.boundary import StepBoundary, StepGap
from rgt_train.cadence import Number, Options, plain_number
from rgt_train.checkpoint import resume
from rgt_train.checkpoint.diskio import StrPath
from rgt_train.checkpoint.resume import PendingRestore
from rgt_train.checkpoint.state import Parts, RunState
from rgt_train.data import rng
from rgt_train.data.position import (
    BatchPart,
    DataPosition,
    Progress,
    Stream,
    is_better,
    steps_per_pass,
)
from rgt_train.data.sampler import (
    BatchPlan,
    Order,
    SampleSeeds,
    SeededDataset,
    build_order,
    mix_bits,
    total_lengths,
)
from rgt_train.ending import RunEnding
from rgt_train.exits import StopRequest
from rgt_train.guards import GuardRules, StallReporter, StallRules, StepGuard, Watchdog, nonfinite
from rgt_train.proof import StepProof, StepReplay, refuse_training
from rgt_train.ranks import choose, launch
from rgt_train.ranks.heartbeat import (
    CHECKPOINT,
    COLLECTIVE,
    END,
    EVALUATION,
    LOOP,
    PHASES,
    optimizer_hooks,
)
from rgt_train.ranks.launch import Coordinator, Ranks, StandIn
from rgt_train.run_files import RunFiles
from rgt_train.state_search import StateSearch
from rgt_train.tracking.report import print_line

T = TypeVar("T")

BEST_METRIC = "val_loss"
_NAMED = PHASES[:COLLECTIVE]


class Run:
    """One run in one directory; the identical launch command always continues it.

    Creating it loads the newest good checkpoint, if there is one. Build and seed everything before,
    then::

        with run:
            for epoch in run.epochs():
                for batch in DataLoader(data, batch_sampler=run.batches()):
                    ...
                    run.step(loss.item())

    Args:
        out: The run directory; created if missing.
        model: The module, or several by name.
        optimizer: Its optimizer, or several by name, likewise `scheduler`, `scaler` and `ema`:
            anything with `state_dict` and `load_state_dict`.
        scheduler: See `optimizer`.
        scaler: See `optimizer`.
        ema: See `optimizer`.
        extra: A person's own state, such as a patience counter: a dictionary of plain values (and
            of objects with `state_dict`), which a resume fills, or an object with `state_dict` and
            `load_state_dict`.
        epochs: Epochs in all; may be left out if `max_steps` is given.
        max_steps: Optimizer steps in all, after which the run ends, in the middle of an epoch if
            necessary.
        samples: Number of samples that an epoch shuffles. Without `samples`, `sampler` and `stream`
            there is no data, and an epoch has `steps_per_epoch` steps (see `steps`).
        sampler: Instead of `samples`: a torch sampler or batch sampler, or a function of the epoch
            that returns indices or lists of them. It is the same for all ranks.
        batch_size: Samples in a batch, over all ranks.
        stream: Instead of `samples`: an iterable of batches with its own order, such as a
            ``StatefulDataLoader``; then give `steps_per_epoch`, or a stream that has a length.
        seed: Seed of the data order.
        steps_per_epoch: Optimizer steps an epoch is cut to; None for all samples.
        accumulate: Batches that make one optimizer step; call `step` once for them. An incomplete
            group at the end of an epoch is left out.
        options: How to save and log.
        stop: Signals, if they were caught already.
        ranks: The processes of the run, as `rgt_train.distributed` returns them; None finds those
            of torchrun, or only this one.

    Raises:
        NotStarted: Another trainer runs in `out`, it cannot be used, or its checkpoint belongs to
            something else. It is a `UsageError`, and a `SystemExit` with exit code 2.
    """

    @exits.raises_not_started
    def __init__(
        self,
        out: StrPath,
        *,
        model: torch.nn.Module | Mapping[str, torch.nn.Module],
        epochs: int | None = None,
        max_steps: int | None = None,
        samples: int = 0,
        sampler: Order | None = None,
        batch_size: int = 1,
        stream: Iterable[Any] | None = None,
        optimizer: Parts | None = None,
        scheduler: Parts | None = None,
        scaler: Parts | None = None,
        ema: Parts | None = None,
        extra: Any | None = None,
        seed: int = 0,
        steps_per_epoch: int | None = None,
        accumulate: int = 1,
        options: Options | None = None,
        stop: StopRequest | None = None,
        ranks: Ranks | None = None,
    ) -> None:
        self.out = os.path.abspath(out)
        self.options = options or Options()
        self.progress = Progress()
        self.options.check()
        ordered = bool(samples) or sampler is not None
        self._replay = StepReplay.of_process()
        if self._replay is not None and self._replay.out == self.out:
            # the steps are repeated in another directory, which is deleted
            self.out = self._replay.directory
            self.options = replace(
                self.options, prove=0, mirror="", loggers=(), log_every=0, save_every=1 << 60
            )
        else:
            self._replay = None
        if stream is not None:
            streamed = Stream(stream)
        else:
            streamed = None
        if stream is not None:
            steps_per_epoch = steps_per_epoch or steps_per_pass(stream, accumulate)
            samples = steps_per_epoch * accumulate * batch_size
        self.sampler = build_order(
            sampler, samples, batch_size, seed, steps_per_epoch, accumulate, max_steps
        )
        self.epochs_total, self.total_steps = total_lengths(
            epochs, max_steps, self.sampler.steps_per_epoch
        )
        self._ranks: Ranks = choose.choose_ranks(ranks)
        limited = choose.limit_threads()
        if limited and self._ranks.is_writer:
            print_line(limited)
        self._beat = self._ranks.beat
        self._data = DataPosition(
            self.sampler, epochs, max_steps, self.progress, streamed, self._ranks.rank,
            self._ranks.world,
            lambda: self._pending.restore_before_batch(over=self._data.is_over),
        )  # fmt: skip
        order = self.sampler.fixed_values()
        if not ordered:
            order["samples"] = 0  # they follow from the other sizes
        self._state = RunState.from_parts(
            model, {"optimizer": optimizer, "scheduler": scheduler, "scaler": scaler, "ema": ema},
            extra, streamed,
            progress=self.progress, sampler=order, settings=self.options.settings,
            world=self._ranks.world, rank=self._ranks.rank, override=self.options.override,
            data=self._data.loading_facts,
        )  # fmt: skip
        # The gradients of several ranks differ before they are reduced: none can represent all.
        self._midway = self._ranks.world == 1 and not choose.is_sharded(self._state.models)
        self._over = self._inside = False
        self._random_at_end: dict[str, Any] | None = None
        self._watchdog: Watchdog | None = None
        self._coordinator = Coordinator(self._ranks, self._note_alive, lambda: self._stop.requested)
        # Before signals and files: a finished run must not take the lock or change anything.
        result = self._coordinator.run_on_leader(
            lambda: resume.read_finished_result(self.out, self.total_steps)
        )
        self.finished = result is not None
        self._stop: Any = stop or (StandIn(requested=False) if self.finished else StopRequest())
        self._files = RunFiles(
            self.out, self.options, self._state, self._data, self._ranks, self._coordinator,
            self._stop,
        )  # fmt: skip
        if result is None:
            if self._replay is None:
                refuse_training(self.out)
            self._open_run()
        else:
            self._files.show_finished(result)
            self._pending = PendingRestore(self._state, self._files.restored)
            if self._pending.rng is not None:
                rng.restore_states(self._pending.rng)  # again in `epochs`, if they are looped over
            self.progress.step = int(result["step"])
            self._data.leave_last_epoch()

    @property
    def step_now(self) -> int:
        """Optimizer steps done so far, in all attempts."""
        return self.progress.step

    def epochs(self) -> Iterator[int]:
        """Yield the epochs that are left, from 0; the first may be half done.

        Raises:
            TrainingStop: A signal asked for the end before the first step (exit code 75).
        """
        if not self.finished:
            self._data.entered = True
            # A batch may have been read before the loop, for a look at it: that must not use up the
            # restored random state.
            self._pending.undo_restore()
            self._data.skip_left_out(self._files.report)
            self.check()
        try:
            while not self.finished and not self._is_over():
                self._boundary.keep_epoch_end(self._pending.rng)
                self._data.begin_epoch()
                self._pending.begin_epoch()
                self._search.next_epoch()
                self._beat.enter_phase(LOOP)
                yield self.progress.epoch
                if self._over:
                    return
                self._data.check_epoch_trained()
                if self._data.is_cut:
                    # With more steps, the epoch continues: what comes after its steps is done
                    # again.
                    self._over = True
                    break
                self.progress.next_epoch()
                self._boundary.next_epoch(last=self._data.is_finished)
                self._data.skip_left_out(self._files.report)
            self.restore_rng()  # no batch was requested if the checkpoint is of the very end
        finally:  # also left by a break
            self._random_at_end = rng.capture_states()

    def batches(self, *, pad: bool = True) -> BatchPlan:
        """Return the rest of the epoch as a batch sampler of this rank's lists of sample indices.

        A loader of it may be made for each epoch, or once for all of them: the position of the run
        is read each time it is iterated.

        Args:
            pad: Whether all ranks get the same number of samples of each batch, some samples twice
                if it cannot be shared evenly (see `parts`). Otherwise the slices differ by one
                sample, and some ranks get nothing of a last batch with fewer samples than ranks:
                for validation, where no rank waits for another.
        """
        return self._data.plan_batches(pad)

    def parts(self, loader: Iterable[Any]) -> Iterator[tuple[Any, BatchPart]]:
        """Yield each batch of a `loader` of ``run.batches()`` with the size of this rank's part.

        The mean loss over the first ``part.real`` samples, times ``part.share``, gives the
        gradients of the whole batch when the ranks' gradients are averaged, for every way of
        sharing the batch.
        """
        return self._beat.timed_batches(self._data.iterate_parts(loader))

    def loading(self, loader: Iterable[T]) -> Iterator[T]:
        """Yield the batches of a `loader`, and measure the waits (``data_time`` of the metrics).

        If a rank hangs, it is also known at once whether it waits for its data. `parts` and
        `stream` do the same.
        """
        return self._beat.timed_batches(loader)

    def enumerate(self, loader: Iterable[T]) -> Iterator[tuple[int, T]]:
        """Yield the number of each batch in its epoch, from 0, and the batch.

        Python's own ``enumerate`` counts from 0 again after a resume in the middle of an epoch.
        The waits are measured as by `loading`.
        """
        return self._beat.timed_batches(self._data.number_batches(loader))

    def phase(self, name: str) -> None:
        """Set the next phase: ``data``, ``forward``, ``backward`` or ``loop`` (anything else).

        Not needed: the phases that a run knows itself are recorded without it. If several ranks
        wait for one of them, a message names its phase within a minute.

        Raises:
            UsageError: No such phase.
        """
        if name not in _NAMED:
            raise exits.UsageError(f"run.phase({name!r}): it is one of {', '.join(_NAMED)}")
        self._beat.enter_step_phase(_NAMED.index(name))

    def seeded(self, dataset: Any) -> SeededDataset:
        """Return `dataset` with separate random state for every sample, for ``run.batches()``.

        Random transforms then give the same bits after a resume in the middle of an epoch, for any
        number of workers.
        """
        return self._data.seed_samples(dataset)

    def steps(self) -> Iterator[int]:
        """Yield the rest of the epoch's steps, from 0 over the run, for a loop without data.

        Raises:
            UsageError: `step` was not called in one, or this is not inside a loop over `epochs`.
        """
        return self._data.iterate_steps()

    def draw_ahead(self, make: Callable[..., T], *given: Any, **named: Any) -> T:
        """Return ``make(*given, **named)``: a random batch, drawn before the step that uses it.

        For loops without a loader that draw the first batch before `steps`, and each following one
        before the step that uses it: a resume draws again the batch that no step had used.
        """
        self._pending.redraw_batch()
        return make(*given, **named)

    def stream(self) -> Iterator[Any]:
        """Yield the batches of the stream that are left in this epoch.

        Raises:
            UsageError: The run was made without `stream`, or it ended too early.
        """
        return self._beat.timed_batches(self._data.stream_batches())

    def sample_seed(self, index: int) -> int:
        """Return the seed for augmenting sample `index` in this epoch, for any number of workers.

        Args:
            index: The index that the data set received: it carries its epoch in workers that
                outlive one.
        """
        return SampleSeeds(self.sampler.seed, self.progress.epoch).sample_seed(index)

    def __reduce__(self) -> tuple[Any, ...]:
        """Send the seeds alone to a worker that is started by spawn, whose data set holds the run."""
        return SampleSeeds, (self.sampler.seed, self.progress.epoch)

    @property
    def epoch_loss(self) -> float:
        """The mean of the epoch's finite losses that `step` received, in all attempts; 0 without any."""
        return self.progress.loss_sum / max(1, self.progress.loss_count)

    def restore_rng(self) -> None:
        """Restore the random state of the checkpoint, once.

        `batches` calls it before its first batch.
        """
        self._pending.restore_now()

    def healthy(self, loss: Number, grad_norm: Number = 0.0) -> bool:
        """Return whether to apply this step; call it before clipping, on every rank.

        The ranks' losses are averaged first, so that all get the same answer.

        Raises:
            TrainingStop: Too many steps in a row were NaN or infinite (exit code 1).
            RollbackStop: ``Options.spike`` is ``rollback`` and the loss is a spike: the next launch
                goes back (75).
        """
        means = self._ranks.mean_over_ranks(
            [plain_number("loss", loss), plain_number("grad_norm", grad_norm)]
        )
        return self._guard.is_healthy(*means)

    def micro(self) -> bool:
        """End one batch of a gradient accumulation; return True if the optimizer must step now.

        Then call `step`. Calling `micro` allows a signal to stop the run between two batches of one
        step: the gradients so far are saved with everything else, and the next launch continues
        with the next batch.

        Raises:
            TrainingStop: A signal asked for the end (exit code 75).
        """
        p = self.progress
        p.micro += 1
        if p.micro >= self.sampler.window:
            return True
        if self._midway:
            self.check()
        return False

    def step(self, loss: Number, **values: Number) -> None:
        """End one optimizer step: count, log, save if due, stop if asked to.

        The last call in the body of the loop.

        Args:
            loss: The loss of the step, a number or a tensor of one element; with several ranks the
                mean is logged.
            **values: Further numbers for the metrics, e.g. ``lr``, ``grad_norm``.

        Raises:
            TrainingStop: A signal asked for the end (exit code 75), or nothing can be saved any
                more (74).
            UsageError: More steps than the epoch has, a loss that is not one number, or no
                ``with run:`` around the loop.
        """
        if not self._inside:
            raise exits.ShownError.of(
                exits.UsageError(
                    "run.step is called outside `with run:`, which saves at the end: put the loop "
                    "into it"
                )
            )
        shown = plain_number("loss", loss)
        for name, value in values.items():
            if type(value) is not float:
                values[name] = plain_number(name, value)
        # Before the count: a step too many must not reach a checkpoint.
        self._data.require_steps_left()
        self.progress.advance()
        self._beat.record_step(self.progress.step)
        self._state.note_modes()
        self._pending.note_step()
        mean = shown
        if self._ranks.world > 1:
            mean = self._ranks.mean_over_ranks([shown])[0]
        self.progress.loss = mean
        self.progress.add_loss(mean)
        self._files.pace.end_of_step(self.progress, values)
        if self._watchdog is not None:
            self._watchdog.note_step()
        self._search.after_step()
        self._proof.after_step(self.progress.step, shown)
        if self._replay is not None:
            self._replay.after_step(self.progress.step, shown, self._state.models)
        stop = 0
        if self._stop.requested:
            stop = launch.STOP
        # All ranks must save and stop at the same step: one that goes on alone waits in a
        # collective without end.
        agreed = self._ranks.agree_on_flags(stop | self._files.saver.wishes(self.progress.step))
        # The end saves as well, so a save here would be written twice.
        if not agreed & launch.STOP:
            if agreed & launch.SAVE:
                self._search.at_save()  # before the save, whose cost it is not
            self._files.save_at_boundary(self.progress.step, agreed)
            self._files.pace.begin_step()
        if self.progress.left_out:
            self._data.skip_left_out(self._files.report)
        self._gap.stepped(saving=bool(agreed & launch.SAVE))
        self._boundary.note_step()
        if self._files.mirror is not None:
            self._files.mirror.poll_copy()
        if self._ranks.world == 1 and self._stop.requested:
            agreed |= launch.STOP  # a signal that arrived during the hold
        self._stop_if_agreed(agreed)

    def check(self) -> None:
        """Stop here if a signal asked for it; for long work without a `step`, such as a validation.

        Between ``optimizer.step()`` and `step` it does nothing, because the state cannot be saved
        there.

        Raises:
            TrainingStop: With exit code 75; the state is saved while `with run` unwinds.
        """
        self._note_alive()
        if self.progress.micro and not (self._midway and self._can_stop_midway()):
            return
        # the copy is known to be good: it need not wait for the next step
        self._files.persister.before_change()
        stop = 0
        if self._stop.requested:
            stop = launch.STOP
        agreed = self._ranks.agree_on_flags(
            stop | (launch.MIDSTEP if self._boundary.is_touched else 0)
        )
        if not agreed & launch.MIDSTEP:
            self._stop_if_agreed(agreed)

    def finish(self) -> None:
        """End the training with the present state as its result (early stopping).

        Then leave the loops.

        Call it on every rank. The same command launched again reports that it is finished, unless
        it asks for more steps.

        Raises:
            UsageError: Weights have changed since the last `step`.
        """
        if not self.finished:
            if self._boundary.is_touched:
                raise exits.UsageError(
                    "run.finish() comes between optimizer.step() and run.step: call run.step first"
                )
            self._over = True

    @contextmanager
    def evaluating(self) -> Iterator[None]:
        """Switch to evaluation without gradients; restore modes and random state afterwards."""
        self.restore_rng()
        self._files.persister.before_change()
        try:
            with self._beat.within_phase(EVALUATION), rng.evaluation(self._state.models.values()):
                yield
        finally:
            self._files.pace.begin_step()

    def validated(
        self,
        value: Number,
        metric: str = BEST_METRIC,
        scores: Mapping[str, float] | None = None,
        *,
        mode: str = "min",
    ) -> bool:
        """Report the result of a validation.

        Publish ``best`` if it is the best, and return whether it is.

        A later ``best`` replaces an earlier one only after it is completely on disk.

        Args:
            value: The validation loss, or another metric; with several ranks that of rank 0 counts
                (see `total`).
            metric: Its name.
            scores: Further numbers for the metrics, e.g. ``val_accuracy``.
            mode: ``min`` if lower is better, ``max`` if higher is. The same in all calls.
        """
        p = self.progress
        reached = self._ranks.share_from_writer(plain_number(metric, value))
        self._files.report.record_point(
            p.step, self._files.epoch_with_fraction(), **{metric: reached, **(scores or {})}
        )
        better = is_better(reached, p.best, mode)
        if better:
            former = (p.best, p.best_step)
            p.best = reached
            p.best_step = p.step
            with self._beat.within_phase(CHECKPOINT):
                published = self._coordinator.run_on_leader(
                    lambda: self._files.saver.offer_best(p.step, reached, metric)
                )
            # It is not on the disk, so the next best is compared with the former one.
            if not published:
                p.best, p.best_step = former
        if p.best is not None:
            best = f"best {p.best:.4f} of step {p.best_step}"
        else:
            best = "no best yet"
        shown = "".join(f"  {name} {score:.4f}" for name, score in (scores or {}).items())
        self._files.report.print_line(
            f"epoch {p.epoch + 1} of {max(p.epoch + 1, self.epochs_total)}  {metric} "
            f"{reached:.4f}{shown}  {best}"
        )
        return better

    @contextmanager
    def uneven(self, model: torch.nn.Module) -> Iterator[None]:
        """Let the ranks make different numbers of optimizer steps with a DDP `model`.

        For a person's own data that does not split evenly. The whole block counts as one step of
        the run: call `step` once after it, on every rank. Optimizers, schedulers and averages are
        the same on all ranks afterwards.
        """
        from rgt_train.ranks.torch_ranks import uneven_steps

        self._data.asked = True  # its data is a person's own

        kinds = ("optimizer", "scheduler", "scaler", "ema")
        names = [name for name in self._state.others if name.startswith(kinds)]
        with uneven_steps(model, {name: self._state.others[name] for name in names}):
            yield

    def total(self, *numbers: float) -> list[float]:
        """Return the sums of the ranks' numbers, e.g. of losses and counts of validated samples."""
        return [float(sum(column)) for column in zip(*self._ranks.all_gather(numbers))]

    def __enter__(self) -> "Run":
        self._inside = True
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.finished:
            return
        self._beat.enter_phase(END)
        try:
            if error is None:
                self._data.require_epoch_entered()
                self._proof.wait_result(self._stop.wait)
                self._coordinator.run_on_leader(self._build_ending().finish_run)
                self.finished = self._is_over()
                if self.finished:
                    self._data.leave_last_epoch()
            elif isinstance(error, exits.TrainingStop):
                self._build_ending().save_and_leave(error)
            else:
                stop = self._build_ending().end_by_error(
                    error, trace, whole=self._boundary.is_complete
                )
                if stop is not None:
                    raise stop from error
                explained = (
                    exits.explain_error(error)
                    or self._state.explain_error(error)
                    or self._data.explain_error(error, trace)
                )
                if explained is not None:
                    raise exits.ShownError.of(explained) from error
        finally:
            self.close()

    def close(self) -> None:
        """Release the directory and the signals without saving; `with run` does it."""
        if self._watchdog is not None:
            self._watchdog.close()
            self._boundary.close()
            self._search.close()
            self._unhook()
            self._files.close()
            self._stop.close()

    def _open_run(self) -> None:
        """Take the directory, resume from its newest good checkpoint, and start the guards."""
        try:
            self._files.open_directory()
            self._start_guards()
        except BaseException:
            self._files.release_unopened()
            self._stop.close()
            raise

    def _start_guards(self) -> None:
        """Start the parts of every rank once the state is loaded."""
        o = self.options
        p = self.progress
        files = self._files
        state = self._state
        optimizers = [state.others[name] for name in state.others if name in state.optimizers]
        self._boundary = StepBoundary(
            state, self.sampler.window, lambda: self._data.is_over, optimizers,
            files.persister.before_change,
            files.report.print_line,
        )  # fmt: skip
        found: Mapping[str, list[str]] = {}
        content: Mapping[str, Any] = {}
        proof: Mapping[str, Any] = {}
        if files.restored is not None:
            found = files.restored.found
            if self._ranks.is_writer:  # whose content it is
                content = files.restored.content
            proof = files.restored.proof
        self._search = StateSearch(
            state.models, state.others, state.optimizers, lambda: (p.step, p.epoch),
            files.report.print_line, found,
            content, lambda: files.saver.is_due_after(p.step),
            lambda: self._boundary.loses_gradients,
        )  # fmt: skip
        steps = 0
        if self._ranks.world == 1:
            steps = o.prove
        self._proof = files.proof = StepProof(
            self.out, steps, state.models, files.report.print_line, proof
        )
        state.data = self._facts
        self._data.gap = self._gap = StepGap(
            state,
            lambda: self._boundary.is_touched,
            files.report.print_line,
            lambda change: files.run_log.record_late(p.step, change),
            resumed=files.restored is not None,
        )
        fresh = files.restored is None and self._ranks.world == 1
        if fresh:
            seed = None
        else:
            # A checkpoint of another number of ranks has no random state for this one.
            seed = mix_bits(self.sampler.seed, p.step, self._ranks.rank, 0x72616E6B)
        self._unhook = optimizer_hooks(self._beat, optimizers)
        self._pending = PendingRestore(state, files.restored, seed)
        rules = GuardRules(o.max_bad_steps, o.spike, o.spike_factor, o.spike_window)
        if optimizers:
            stepped = optimizers[0]
        else:
            stepped = None
        self._guard = StepGuard(
            files.report, p, rules, lambda: nonfinite(state.models, stepped), files.leave_out
        )
        stall = StallRules(o.stall_factor, o.stall_floor_s, o.stall_exit)
        self._watchdog = Watchdog(
            self.out, stall, StallReporter(files.report, p, files.run_log, o.stall_exit)
        )

    def _facts(self) -> dict[str, Any]:
        """Return what a checkpoint says about data, about state that was not given, and a proof."""
        self._proof.begin_save(self.progress.step)
        found = self._search.at_save()
        facts = {"not_given": found, "content": self._search.content, "proof": self._proof.result}
        return {**self._data.loading_facts(), **facts}

    def _note_alive(self) -> None:
        if self._watchdog is not None:
            self._watchdog.note_alive()  # a wait for another rank is not a stall

    def _can_stop_midway(self) -> bool:
        """Return whether a signal may end the run between two batches of a step."""
        return not self._stop.requested or self._state.can_store_grads()

    def _stop_if_agreed(self, agreed: int) -> None:
        if agreed & launch.STOP:
            raise exits.TrainingStop(
                exits.PREEMPTED, str(self._stop.name or "a signal to another rank")
            )

    def _is_over(self) -> bool:
        return self._over or self._data.is_finished

    def _build_ending(self) -> RunEnding:
        return RunEnding(
            self._files, self.progress, self.total_steps, self._is_over(),
            self.options.hold_limit_s, self._stop,
            self._coordinator, self.restore_rng, self._boundary.why_spoilt, self._random_at_end,
            outdated=self._is_over() and self._boundary.is_save_outdated(),
        )  # fmt: skip
