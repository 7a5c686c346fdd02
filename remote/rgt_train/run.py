"""`Run`: what a training loop needs to survive being killed at any moment."""

from __future__ import annotations

import os
import time
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Dict, Iterable, Iterator, List, Mapping, Optional, Tuple, Type, Union

import torch

from rgt_train import cadence as prior
from rgt_train import exits, rollback
from rgt_train.boundary import Standing
from rgt_train.cadence import Cadence, Failures, Number, Pace, number
from rgt_train.checkpoint import resume
from rgt_train.checkpoint.async_saver import BACKGROUND, ArenaPersister, Persister
from rgt_train.checkpoint.diskio import StrPath, make_dirs
from rgt_train.checkpoint.lock import RunLock
from rgt_train.checkpoint.manifest import Damaged
from rgt_train.checkpoint.mirror import Mirror
from rgt_train.checkpoint.receipt import Hyperparameters
from rgt_train.checkpoint.saver import Limits, Saver
from rgt_train.checkpoint.state import (
    Parts,
    Restored,
    RunState,
    check,
    counted,
    named,
    own_state,
)
from rgt_train.checkpoint.store import Checkpoint, Policy, Store
from rgt_train.data import rng
from rgt_train.data.position import Course, Part, Stream, steps_of
from rgt_train.data.rng import evaluation
from rgt_train.data.sampler import BatchPlan, Order, SampleIndex, Seeded, lengths, mix, order_of, sample_seed
from rgt_train.ending import Ending
from rgt_train.exits import StopRequest
from rgt_train.guards import Guard, Rules, StallRules, Telltale, Watchdog, culprit
from rgt_train.options import Options
from rgt_train.progress import Progress, is_better, merged
from rgt_train.ranks import choose, launch
from rgt_train.ranks.coordinator import Crew, NoLedger, NoLock, NoReport, NoSaver
from rgt_train.ranks.launch import Ranks
from rgt_train.ranks.replicated import Checks
from rgt_train.tracking import run_log
from rgt_train.tracking.report import Launch, Report, last_seen, open_sinks, say
from rgt_train.tracking.run_log import Ledger

BEST_METRIC = "val_loss"


class Run:
    """One run in one directory; the identical launch command is always the way back.

    Creating it loads the newest good checkpoint, if there is one. Build and seed everything before, then::

        with run:
            for epoch in run.epochs():
                for batch in DataLoader(data, batch_sampler=run.batches()):
                    ...
                    run.step(loss.item())

    Args:
        out: The run directory; created if missing.
        model: The module, or several by name.
        optimizer: Its optimizer, or several by name, likewise `scheduler`, `scaler` and `ema`: anything with
            `state_dict` and `load_state_dict`.
        scheduler: See `optimizer`.
        scaler: See `optimizer`.
        ema: See `optimizer`.
        extra: A person's own state, such as a patience counter: a dictionary of plain values (and of objects with
            `state_dict`), which a resume fills, or an object with `state_dict` and `load_state_dict`.
        epochs: Epochs in all; may be left out where `max_steps` is given.
        max_steps: Optimizer steps in all, after which the run ends, in the middle of an epoch if need be.
        samples: How many samples an epoch shuffles. Without `samples`, `sampler` and `stream` there are no data, and an
            epoch has `steps_per_epoch` steps (see `steps`).
        sampler: Instead of `samples`: a sampler or batch sampler of torch's, or a function of the epoch that returns
            indices or lists of them. It is the same for all ranks.
        batch_size: Samples in a batch, over all ranks.
        stream: Instead of `samples`: an iterable of batches with its own order, such as a ``StatefulDataLoader``;
            then give `steps_per_epoch`, or a stream that has a length.
        seed: Seed of the data order.
        steps_per_epoch: Optimizer steps an epoch is cut to; None for all samples.
        accumulate: Batches that make one optimizer step; call `step` once for them. Those left over at the end of an
            epoch are left out of it.
        options: How to save and log.
        settings: Plain values whose change should be told at a resume.
        overrides: Those of them that the person gave, for ``run.json``.
        stop: Signals, where they were caught already.
        ranks: The processes of the run, as `rgt_train.distributed` returns them; None finds out: those of torchrun,
            else this one alone.

    Raises:
        NotStarted: Another trainer runs in `out`, it cannot be used, or its checkpoint belongs to something else. It is
            a `UsageError`, and a `SystemExit` with exit code 2.
    """

    @exits.starts
    def __init__(
        self,
        out: StrPath,
        *,
        model: Union[torch.nn.Module, Mapping[str, torch.nn.Module]],
        epochs: Optional[int] = None,
        max_steps: Optional[int] = None,
        samples: int = 0,
        sampler: Optional[Order] = None,
        batch_size: int = 1,
        stream: Optional[Iterable[Any]] = None,
        optimizer: Optional[Parts] = None,
        scheduler: Optional[Parts] = None,
        scaler: Optional[Parts] = None,
        ema: Optional[Parts] = None,
        extra: Optional[Any] = None,
        seed: int = 0,
        steps_per_epoch: Optional[int] = None,
        accumulate: int = 1,
        options: Optional[Options] = None,
        settings: Optional[Mapping[str, Any]] = None,
        overrides: Optional[Mapping[str, Any]] = None,
        stop: Optional[StopRequest] = None,
        ranks: Optional[Ranks] = None,
    ) -> None:
        self.out = os.path.abspath(out)
        self.options = options or Options()
        check(model, {"optimizer": optimizer, "scheduler": scheduler, "scaler": scaler, "ema": ema})
        self.options.check()
        streamed = Stream(stream) if stream is not None else None
        if stream is not None:
            steps_per_epoch = steps_per_epoch or steps_of(stream, accumulate)
            samples = steps_per_epoch * accumulate * batch_size
        self.sampler = order_of(sampler, samples, batch_size, seed, steps_per_epoch, accumulate, max_steps)
        self.epochs_total, self.total_steps = lengths(epochs, max_steps, self.sampler.steps_per_epoch)
        self._over = False
        self.progress = Progress()
        self._models = {"model": model} if isinstance(model, torch.nn.Module) else dict(model)
        self._lock: Any  # a `RunLock`, or a `NoLock`
        self._report: Report
        self._ledger: Union[Ledger, NoLedger]
        self._saver: (
            Any  # a `Saver`, or a `NoSaver`, of which only the writer's methods are called in `Crew.do`
        )
        self._ranks: Ranks = choose.ranks_of(ranks)
        self._crew = Crew(self._ranks)
        parts = {"optimizer": optimizer, "scheduler": scheduler, "scaler": scaler, "ema": ema}
        others = named({**parts, "extra": own_state(extra), "stream": streamed})
        self._optimizers = named({"optimizer": optimizer})
        self._settings, self._overrides = settings or {}, overrides or {}
        self._state = RunState(
            self._models, others, self.progress, self.sampler.state(), settings or {},
            world=self._ranks.world, rank=self._ranks.rank,
        )  # fmt: skip
        self._state.optimizers = set(self._optimizers)
        self._state.steady = {*self._optimizers, *counted(named({"ema": ema}))}
        self._state.small = {*named({"scheduler": scheduler, "scaler": scaler}), *({"extra"} & set(others))}
        said = Hyperparameters(others, set(self._optimizers), self._state.small - {"extra"})
        said.check(self.options.override)
        self._state.hyperparameters, self._state.override = said, self.options.override
        self._mirror: Optional[Mirror] = None
        self._rng: Optional[Dict[str, Any]] = None
        self._grads: Dict[str, Dict[str, torch.Tensor]] = {}
        self._course = Course(
            self.sampler,
            self.total_steps,
            self.progress,
            streamed,
            self._ranks.rank,
            self._ranks.world,
            self._begin_batches,
        )
        self._state.data = self._course.facts
        self._reseed: Optional[int] = None
        self._looked: Optional[Tuple[Any, ...]] = None
        # The gradients of several ranks differ before they are reduced: no rank's stand for all.
        self._midway = self._ranks.world == 1 and not choose.is_sharded(self._models)
        self._restored: Optional[Restored] = None
        result = self._crew.do(lambda: resume.finished(self.out, self.total_steps))
        self.finished = result is not None
        if result is None:
            self._open(stop)
        else:
            self._show_finished(result)

    @property
    def step_now(self) -> int:
        """Optimizer steps done so far, in all incarnations."""
        return self.progress.step

    def epochs(self) -> Iterator[int]:
        """Yield the epochs that are left, from 0; the first may be half done.

        Raises:
            Stop: A signal asked for the end before the first step (exit code 75).
        """
        if not self.finished:
            self._course.entered = True
            if self._looked is not None:
                _, self._rng, self._reseed, self._grads = self._looked
            self._course.pass_over(self._report)
            self.check()
        while not self.finished and self.progress.epoch < self.epochs_total:
            self._standing.look(self._rng)
            self._course.begin_epoch()
            yield self.progress.epoch
            if self._over:
                return
            self._course.account()
            self._standing.next_epoch()
            if self._course.is_cut:
                self._over = True
                break
            self.progress.next_epoch()
            self._course.pass_over(self._report)
        self.restore_rng()  # nobody asked for a batch where the checkpoint is of the very end

    def batches(self, *, pad: bool = True) -> BatchPlan:
        """Return what is left of the epoch as a batch sampler: it yields lists of sample indices, this rank's alone.

        A loader of it may be made for each epoch, or once for all of them: where the run stands is looked up each time
        it is iterated.

        Args:
            pad: Whether all ranks get as many samples of each batch, some of them twice where it cannot be shared
                evenly (see `parts`); else the slices differ by one sample, and of a last batch that is smaller than the
                number of ranks some get none: for validation, where no rank waits for another.
        """
        return self._course.batches(pad)

    def parts(self, loader: Iterable[Any]) -> Iterator[Tuple[Any, Part]]:
        """Yield each batch of a `loader` of ``run.batches()`` with what this rank's part of it counts.

        The mean loss over the first ``part.real`` samples, times ``part.share``, gives the gradients of the whole batch
        when the ranks' gradients are averaged, however the batch is shared.
        """
        return self._course.parts(loader)

    def seeded(self, dataset: Any) -> Seeded:
        """Return `dataset` with random state of its own for every sample, for loading by ``run.batches()``.

        Random transforms then give the same bits after a resume in the middle of an epoch, for any number of workers.
        """
        return self._course.seed(dataset)

    def steps(self) -> Iterator[int]:
        """Yield the steps that are left of the epoch, numbered from 0 over the run: for a loop without a data set.

        Raises:
            UsageError: `step` was not called in one.
        """
        return self._course.steps()

    def stream(self) -> Iterator[Any]:
        """Yield the batches of the stream that are left in this epoch.

        Raises:
            UsageError: The run was made without `stream`, or it ended too early.
        """
        return self._course.streamed()

    def sample_seed(self, index: int) -> int:
        """Return the seed for augmenting sample `index` in this epoch, whatever the number of workers.

        Args:
            index: As the data set was given it: in workers that outlive an epoch it says which one it is of.
        """
        if isinstance(index, SampleIndex):
            return index.seed
        return sample_seed(self.sampler.seed, self.progress.epoch, index)

    def restore_rng(self) -> None:
        """Put the random state of the checkpoint back, once; `batches` calls it before its first batch."""
        if self._rng is not None:
            rng.restore(self._rng)
            self._rng = None
        elif self._reseed is not None:
            rng.seed_all(self._reseed)
        self._reseed = None
        if self._grads:
            self._state.give_grads(self._grads)
            self._grads = {}

    def healthy(self, loss: Number, grad_norm: Number = 0.0) -> bool:
        """Say whether this step may be applied; ask before clipping and ``optimizer.step()``, on every rank.

        The ranks' losses are averaged first, so that all get the same answer.

        Raises:
            Stop: Too many steps in a row were NaN or infinite (exit code 1).
            Rollback: ``Options.spike`` is ``rollback`` and the loss is a spike: the next launch goes back (75).
        """
        means = self._ranks.mean([number("loss", loss), number("grad_norm", grad_norm)])
        return self._guard.healthy(*means)

    def micro(self) -> bool:
        """End one batch of a gradient accumulation; True when the optimizer is to step (then call `step`).

        Calling it is what lets a signal in between two batches of one step: the gradients so far are saved with
        everything else, and the next launch goes on with the next batch.

        Raises:
            Stop: A signal asked for the end (exit code 75).
        """
        p = self.progress
        p.micro += 1
        if p.micro >= self.sampler.window:
            return True
        if self._midway:
            self.check()
        return False

    def step(self, loss: Number, **values: Number) -> None:
        """End one optimizer step: count, log, save if due, stop if asked to. The last call in the body of the loop.

        Args:
            loss: The loss of the step, a number or a tensor of one element; with several ranks the mean is logged.
            **values: Further numbers for the metrics, e.g. ``lr``, ``grad_norm``.

        Raises:
            Stop: A signal asked for the end (exit code 75), or nothing can be saved any more (74).
            UsageError: More steps than the epoch has, or a loss that is no number.
        """
        shown, plain = number("loss", loss), {name: number(name, value) for name, value in values.items()}
        self._course.see_room()
        self.progress.advance()
        self._looked = None
        self.progress.loss = self._ranks.mean([shown])[0]
        self._pace.end_of_step(self.progress, plain)
        self._watchdog.beat()
        stop = launch.STOP if self._stop.requested else 0
        agreed = self._ranks.agree(stop | self._saver.wishes(self.progress.step))
        if not agreed & launch.STOP:
            self._boundary(self.progress.step, agreed)
            self._pace.begin_step()
        self._course.pass_over(self._report)
        self._standing.stepped()
        if self._mirror is not None:
            self._mirror.poll()
        self._obey(agreed)
        if self._ranks.world == 1:
            self._obey(launch.STOP if self._stop.requested else 0)  # one that came while holding

    def check(self) -> None:
        """Stop here if a signal asked for it; for long stretches without a `step`, such as a validation.

        Between ``optimizer.step()`` and `step` it does nothing: that is no moment to save.

        Raises:
            Stop: With exit code 75; the state is saved while `with run` unwinds.
        """
        self._watchdog.alive()
        if self.progress.micro and not self._midway:
            return
        self._persister.before_change()  # what was copied is known to be good: it need not wait for the next step
        stop = launch.STOP if self._stop.requested else 0
        agreed = self._ranks.agree(stop | (launch.MIDSTEP if self._standing.touched else 0))
        if not agreed & launch.MIDSTEP:
            self._obey(agreed)

    def finish(self) -> None:
        """End the training with the state of now as its result, as early stopping does; then leave the loops.

        On every rank. The same command launched again says that it is finished, unless it asks for more steps.

        Raises:
            UsageError: Weights have changed since the last `step`.
        """
        if not self.finished:
            if self._standing.touched:
                raise exits.UsageError(
                    "run.finish() stands between optimizer.step() and run.step: call run.step first"
                )
            self._standing.next_epoch()
            self._over = True

    @contextmanager
    def evaluating(self) -> Iterator[None]:
        """Switch to evaluation, without gradients, and leave modes and random state as they were."""
        self.restore_rng()
        self._persister.before_change()
        try:
            with evaluation(self._models.values()):
                yield
        finally:
            self._pace.begin_step()

    def validated(
        self,
        value: Number,
        metric: str = BEST_METRIC,
        scores: Optional[Mapping[str, float]] = None,
        *,
        mode: str = "min",
    ) -> bool:
        """Take in what a validation gave; where it is the best so far, publish ``best``. Returns whether it is.

        A later value of ``best`` replaces an earlier one only after it is completely on disk.

        Args:
            value: The validation loss, or another metric; with several ranks that of rank 0 counts (see `total`).
            metric: Its name.
            scores: Further numbers for the metrics, e.g. ``val_accuracy``.
            mode: ``min`` where lower is better, ``max`` where higher is. The same in all calls.
        """
        p = self.progress
        reached = self._ranks.share(number(metric, value))
        self._report.point(p.step, self._epoch(), **{metric: reached, **(scores or {})})
        better = is_better(reached, p.best, mode)
        if better:
            former, p.best, p.best_step = (p.best, p.best_step), reached, p.step
            if not self._crew.do(lambda: self._saver.offer_best(p.step, reached, metric)):
                p.best, p.best_step = former
        best = f"best {p.best:.4f} of step {p.best_step}" if p.best is not None else "no best yet"
        shown = "".join(f"  {name} {score:.4f}" for name, score in (scores or {}).items())
        self._report.say(f"epoch {p.epoch + 1} of {self.epochs_total}  {metric} {reached:.4f}{shown}  {best}")
        return better

    @contextmanager
    def uneven(self, model: torch.nn.Module) -> Iterator[None]:
        """Let the ranks make different numbers of optimizer steps with a ``DistributedDataParallel`` `model`.

        For data of a person's own that do not split evenly. The whole block counts as one step of the run: call `step`
        once behind it, on every rank. Optimizers, schedulers and averages are the same on all ranks afterwards.
        """
        from rgt_train.ranks.torch_ranks import joined

        self._course.asked = True  # its data are a person's own

        kinds = ("optimizer", "scheduler", "scaler", "ema")
        names = [name for name in self._state.others if name.startswith(kinds)]
        with joined(model, {name: self._state.others[name] for name in names}):
            yield

    def total(self, *numbers: float) -> List[float]:
        """Return the sums of the ranks' numbers, e.g. of the losses and the number of samples each has validated."""
        return [float(sum(column)) for column in zip(*self._ranks.all_gather(numbers))]  # noqa: B905

    def __enter__(self) -> "Run":
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        if self.finished:
            return
        try:
            if error is None:
                self._course.see_entered()
                self._crew.do(self._ending().finish)
                self.finished = self._is_over()
            elif isinstance(error, exits.Stop):
                self._ending().leave(error)
            else:
                stop = self._ending().fail(error, trace, whole=self._standing.whole)
                if stop is not None:
                    raise stop from error
        finally:
            self.close()

    def close(self) -> None:
        """Release the directory and the signals without saving; `with run` does it."""
        if hasattr(self, "_watchdog"):
            self._watchdog.close()
            self._standing.close()
            try:
                self._saver.finish()
            finally:
                self._persister.close()
            if self._mirror is not None:
                self._mirror.close()
            self._report.close()
            self._ledger.close()
            self._lock.close()
            self._stop.close()

    def _open(self, stop: Optional[StopRequest]) -> None:
        self._stop = stop or StopRequest()
        try:
            if not self._ranks.is_writer:
                self._be_led()
            told = self._crew.do(self._start)
            if not self._ranks.is_writer:
                self._join_in(told)
            self._stand_ready()
        except BaseException:
            for part in ("_persister", "_lock", "_stop"):
                if hasattr(self, part):
                    getattr(self, part).close()
            raise

    def _show_finished(self, result: Mapping[str, Any]) -> None:
        """Be what the run has ended as: there is nothing to do, but the code behind the loop wants its weights."""
        store, step = Store(self.out, 0), int(result["step"])
        self._lock, self._report = NoLock(), NoReport()
        self._persister = self._persisting(store)
        if not self._ranks.is_writer:
            self._be_led()

        def load() -> None:
            say("already finished: step {step}, loss {loss}, best {best}; nothing to do".format_map(result))
            self._restored = resume.load_finished(store, self._persister, self._state, step)

        try:
            self._crew.do(load)
        finally:
            self._persister.close()
        self._rng = self._restored.rng if self._restored is not None else None
        self.progress.step = step

    def _be_led(self) -> None:
        """Get ready, on a rank that is not the writer, for what the writer will order."""
        self._lock, self._report = NoLock(), NoReport()
        self._persister = self._persisting(Store(self.out, 0))
        self._crew.orders["see"] = lambda path, content: choose.see(self._ranks, path, content)
        self._crew.orders["load"] = self._load_as_told

    def _load_as_told(self, directory: str) -> None:
        self._restored = None
        try:
            self._restored = self._persister.load(directory, self._state)
        except Damaged:
            return  # the writer knows it too, and looks for an older one

    def _join_in(self, told: Mapping[str, Any]) -> None:
        """Go on, on a rank that is not the writer, from where the writer has found."""
        self._ledger, self._saver = NoLedger(told["attempt"]), NoSaver()
        self.progress.load(told["progress"])
        self._pace = self._clock(Cadence(1, Failures(1.0)))

    def _stand_ready(self) -> None:
        """Do what every rank does when the state is there."""
        o, p, restored = self.options, self.progress, self._restored
        self._standing = Standing(
            self._state, self.sampler.window, lambda: self._course.is_over, list(self._optimizers.values()),
            self._persister.before_change, self._report.say,
        )  # fmt: skip
        self._rng = restored.rng if restored else None
        self._grads = dict(restored.grads) if restored else {}
        if self._rng is None and (restored or self._ranks.world > 1):
            self._reseed = mix(self.sampler.seed, p.step, self._ranks.rank, 0x72616E6B)
        rules = Rules(o.max_bad_steps, o.spike, o.spike_factor, o.spike_window)
        self._guard = Guard(
            self._report, p, rules, lambda: culprit(self._models, next(iter(self._optimizers.values()), None))
        )
        self._guard.go_back = lambda first, last: bool(
            self._crew.do(
                lambda: rollback.decide(self.out, self._store.steps(), first, last, self._report.say)
            )
        )
        stall = StallRules(o.stall_factor, o.stall_floor_s, o.stall_exit)
        self._watchdog = Watchdog(self.out, stall, Telltale(self._report, p, self._ledger, o.stall_exit))
        self._crew.heard, self._saver.on_wait = self._watchdog.alive, self._crew.alive  # a wait is no stall
        self._crew.asked = lambda: self._stop.requested

    def _persisting(self, store: Store) -> Persister:
        background = self.options.background and os.environ.get(BACKGROUND) != "0"
        return choose.persister(
            self._models, store, self._ranks, self._crew, self._state,
            Checks(self._ranks, self.options.desync_every, self._report.say),
            lambda: ArenaPersister(store, [self._lock.fd], self._lock.note_helper, background=background),
            background=background,
        )  # fmt: skip

    def _take(self) -> None:
        """Take the run directory; the other ranks must see it."""
        try:
            make_dirs(self.out)
            self._lock = RunLock(self.out)
        except OSError as error:
            raise exits.UsageError(f"cannot use {self.out}: {type(error).__name__}: {error}") from error
        if self._ranks.world > 1:
            with open(self._lock.path, "rb") as file:
                content = file.read()
            self._crew.orders["see"] = lambda path, content: choose.see(self._ranks, path, content)
            self._crew.order("see", self._lock.path, content)

    def _start(self) -> Dict[str, Any]:
        """Take the directory and find where to go on; for the writer. Returns what the other ranks must know."""
        self._take()
        o = self.options
        self._report = Report(self.out)
        logged, at = last_seen(self.out)
        self._ledger = Ledger(self.out, at)
        try:
            assumed = prior.prior_of(o.platform)
        except ValueError as error:
            raise exits.UsageError(str(error)) from error
        for pid in self._lock.fenced:
            self._report.say(f"ended the writer of a killed incarnation (pid {pid})")
        store = Store(self.out, self._ledger.attempt, Policy(o.keep, o.keep_hours))
        self._store = store
        self._persister = self._persisting(store)
        if o.mirror:
            self._mirror = Mirror(o.mirror, store, self._report, self._lock.note_helper)
            self._mirror.on_wait = self._crew.alive
            before = rollback.read(self.out).before
            if before:
                self._mirror.forget(before)
        gone = rollback.give_up(self.out, store.root, store.places())
        if gone:
            self._report.say(f"going back: checkpoints of the steps {gone} are given up")
        loaded, restored = resume.load_latest(store, self._persister, self._state, self._report, self._mirror)
        if (
            self._mirror is not None and self._mirror.logs
        ):  # a wiped disk: what the run has been is known only now
            self._report.reopen()
            self._ledger.close()
            logged, at = last_seen(self.out)
            self._ledger = Ledger(self.out, at)
            store.attempt = max(store.attempt, self._ledger.attempt)
        if loaded is not None:
            store.after(loaded)
            self._ledger.attempt = store.attempt
        self._restored = restored
        p = self.progress
        p.left_out = merged(p.left_out, rollback.read(self.out).steps)
        resume.announce(self._report, self._ledger, p, loaded, restored, logged, self.total_steps)
        resume.mend_best(store, p, self._report)
        cadence = Cadence(o.save_every, self._ledger.past.expect(assumed, self._ranks.nodes))
        self._pace = self._clock(cadence)
        self._report.add(
            open_sinks(o.loggers, Launch(self.out, p.step, self._settings, o.project), self._report.say)
        )
        launched = run_log.facts(
            seed=self.sampler.seed, batch=self.sampler.batch_size, accumulate=self.sampler.accumulate,
            world=self._ranks.world, attempt=self._ledger.attempt, step=p.step, settings=self._settings,
            overrides=self._overrides,
        )  # fmt: skip
        complaint = run_log.write(self.out, launched)
        if complaint:
            self._report.say(complaint)
        self._saver = Saver(
            self._persister, self._state, store, self._about, self._report, cadence, self._stop,
            Limits(o.max_unsaved, o.hold_limit_s), loaded.step if loaded else None, p.step,
        )  # fmt: skip
        self._saver.only_best = loaded is not None and loaded.path == store.best
        self._saver.on_saved = self._saved
        if self._mirror is not None:
            self._mirror.offer_all(loaded)
        self._stop.tell = lambda name: self._report.say(f"{name}: stopping as soon as the step is over")
        self._ledger.start(p.step, self._ranks.nodes, o.log_every)
        if not self._lock.exclusive:
            self._report.say(
                f"warning: {self.out} is on a file system without locks; never start a second trainer here"
            )
        return {"attempt": self._ledger.attempt, "progress": p.state()}

    def _clock(self, cadence: Cadence) -> Pace:
        sizes = self.sampler.batch_size * self.sampler.accumulate, self.sampler.steps_per_epoch
        return Pace(self._report, self._stop, cadence, self.options, *sizes, lambda: self._saver.busy)

    def _begin_batches(self) -> None:
        """Put random state and gradients back; again, where a batch was only looked at since and nothing made of it."""
        p = self.progress
        here = p.epoch, p.step, p.micro
        if self._rng is not None or self._reseed is not None:
            self._looked = here, self._rng, self._reseed, self._grads
        elif self._looked and self._looked[0] == here and not self._course.is_over:
            _, self._rng, self._reseed, self._grads = self._looked
        self.restore_rng()

    def _boundary(self, step: int, agreed: int) -> None:
        """Let the writer save, if any of this needs the other ranks or there are none."""
        if self._ranks.world == 1 or agreed & (launch.SAVE | launch.HOLD):
            self._crew.do(lambda: self._saver.boundary(step, agreed))
        elif self._ranks.is_writer:
            self._saver.prepare()

    def _saved(self, saved: Checkpoint) -> None:
        self._ledger.alive(saved.step)
        if self._mirror is not None:
            self._mirror.offer(saved)

    def _obey(self, agreed: int) -> None:
        if agreed & launch.STOP:
            raise exits.Stop(exits.PREEMPTED, str(self._stop.name or "a signal to another rank"))

    def _is_over(self) -> bool:
        return self._over or self.progress.epoch >= self.epochs_total

    def _ending(self) -> Ending:
        return Ending(
            self.out, self.progress, self.total_steps, self._is_over(), self.options.hold_limit_s, self._saver,
            self._mirror, self._report, self._ledger, self._stop, self._crew, self.restore_rng,
            self._standing.spoilt,
        )  # fmt: skip

    def _epoch(self) -> float:
        return self.progress.epoch + self.progress.done_steps / self.sampler.steps_per_epoch

    def _about(self) -> Dict[str, Any]:
        return {
            "epoch": self._epoch(),
            "total_steps": self.total_steps,
            "attempt": self._ledger.attempt,
            "torch": str(torch.__version__),
            "time": time.time(),
        }
