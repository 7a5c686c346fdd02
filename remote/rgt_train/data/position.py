"""A run's counters and its position in its data: the batches left, of a sampler or of a stream."""

from __future__ import annotations

import itertools
import math
import sys
import time
from dataclasses import asdict, dataclass, field, fields
from typing import (
    Any,
    Callable,
    Iterable,
    Iterator,
    Mapping,
    Protocol,
    Sequence,
)

from rgt_train import exits
from rgt_train.data import rng
from rgt_train.data.sampler import BatchPlan, EpochPosition, EpochSampler, SeededDataset
from rgt_train.exits import UsageError
from rgt_train.tracking.report import RunReport, print_line


class ChangeDetector(Protocol):
    """Detects changes between a step and the next batch: `rgt_train.boundary.StepGap`."""

    def begin(self) -> None:
        """Check, at the first batch, that nothing changed since the run was made."""

    def compare(self) -> None:
        """Report what changed since the step."""

    def forget(self) -> None:
        """Compare nothing until the next step."""


@dataclass
class Progress:
    """Counters of a run.

    Attributes:
        step: Optimizer steps done, skipped ones included.
        epoch: The current epoch, from 0.
        done_steps: Steps done in it. At its end the epoch is still current: a resume repeats the
            work after the last step (the validation).
        micro: Batches of the next step that are done: their gradients are accumulated.
        micro_loss: Sum of their losses, if the loop keeps it here.
        offset: Samples of the epoch that an earlier launch used in batches of another size, before
            those of `done_steps` (or batches, of a sampler that makes them).
        loss: The last loss that was logged.
        loss_sum: Sum of the finite losses of the epoch's steps.
        loss_count: Number of them.
        best: The best value of the validation metric so far, already published.
        best_step: Its step.
        bad_row: Steps skipped in a row because of a NaN or infinity.
        bad_total: Steps skipped in all.
        recent: The last losses that were not spikes.
        spike_row: Loss spikes in a row.
        left_out: Ranges of steps that are not trained on, first and last of each, from 1.
    """

    step: int = 0
    epoch: int = 0
    done_steps: int = 0
    micro: int = 0
    micro_loss: float = 0.0
    offset: int = 0
    loss: float | None = None
    loss_sum: float = 0.0
    loss_count: int = 0
    best: float | None = None
    best_step: int | None = None
    bad_row: int = 0
    bad_total: int = 0
    recent: list[float] = field(default_factory=list)
    spike_row: int = 0
    left_out: list[list[int]] = field(default_factory=list)

    def advance(self) -> None:
        """Count one step."""
        self.step += 1
        self.done_steps += 1
        self.micro = 0
        self.micro_loss = 0.0

    def add_loss(self, loss: float) -> None:
        """Add the loss of a step to the epoch's mean."""
        if math.isfinite(loss):
            self.loss_sum += loss
            self.loss_count += 1

    def next_epoch(self) -> None:
        """Leave the epoch."""
        self.epoch += 1
        self.done_steps = self.micro = self.offset = self.loss_count = 0
        self.micro_loss = self.loss_sum = 0.0

    def state(self) -> dict[str, Any]:
        """Return the counters as plain values."""
        return asdict(self)

    def load(self, state: Mapping[str, Any]) -> None:
        """Set the counters that `state` returned; a missing key keeps its default."""
        for known in fields(self):
            if known.name in state:
                setattr(self, known.name, state[known.name])


def is_better(value: float, best: float | None, mode: str) -> bool:
    """Return whether `value` beats the `best` so far (None for none), by `mode` ``min`` or ``max``.

    Raises:
        UsageError: The mode is another.
    """
    if mode not in ("min", "max"):
        raise UsageError(
            f'mode is {mode!r}: give "min" where lower is better, "max" where higher is'
        )
    if best is None:
        # A NaN as the first best would never be beaten: every comparison with it is false.
        return not math.isnan(value)
    if mode == "min":
        return value < best
    return value > best


def is_left_out(step: int, ranges: Sequence[Sequence[int]]) -> bool:
    """Return whether step `step` (from 1) is in one of the `ranges`, first and last included."""
    return any(first <= step <= last for first, last in ranges)


def merged(*lists: Sequence[Sequence[int]]) -> list[list[int]]:
    """Return the ranges of all `lists` once, ascending."""
    every = {(int(first), int(last)) for ranges in lists for first, last in ranges}
    return [[first, last] for first, last in sorted(every)]


class Stream:
    """Batches of an iterable, across the epochs of the run; a new pass begins when one is used up.

    A source with ``state_dict`` and ``load_state_dict`` (torchdata's ``StatefulDataLoader``, or
    anything of your own) is restored to its position. Any other source is iterated again and
    skipped to the same batch, with the random state of the beginning of its pass: exact if the
    order depends on nothing else, and as slow as loading the skipped batches. So is a shuffled set
    of Hugging Face, whose state lacks the content of its buffer.

    Some sources (sets of Hugging Face) show their position only after the next batch, with loader
    workers after one of each worker. Until then the loaded state counts, and the batches since.

    Args:
        source: The iterable of batches.

    Attributes:
        draws: Whether it has no state and draws from the global generators while it is read: then
            its buffered content (a shuffle buffer) may differ, because the training draws from
            them too.
        own_state: Whether the source has a state.
        source: The iterable.
    """

    def __init__(self, source: Iterable[Any]) -> None:
        self.source: Any = source
        self.draws = False
        self.own_state = hasattr(source, "state_dict") and hasattr(source, "load_state_dict")
        # Its state lacks the content of the buffer, so reading again is the exact way.
        self.own_state = self.own_state and not _has_shuffle_buffer(source)
        self._loaded: dict[str, Any] | None = None
        self._unsettled = 0
        self._iterator: Iterator[Any] | None = None
        self._passes = 0
        self._batches = 0
        self._left = 0
        self._to_drop = 0
        self._start: dict[str, Any] | None = None
        self._pending: dict[str, Any] | None = None

    def next_batches(
        self,
        count: int,
        before_first: Callable[[], Any],
        between: Callable[[int], None] = lambda number: None,
    ) -> Iterator[Any]:
        """Yield the next `count` batches.

        Args:
            count: How many.
            before_first: Called when the stream is at its position and before the first batch is
                fetched: it restores the random state of the training.
            between: Called before each further batch, with the number of batches returned.

        Raises:
            UsageError: The stream has no batch at all, or is shorter than the resumed position.
        """
        if count > 0:
            self._open_source()
        # Opening a loader draws a number for the seed of its workers: the random state of the
        # training is restored after that.
        before_first()
        self._left = count
        for number in itertools.count():
            if number:
                between(number)
            if self._left <= 0:
                return
            # Steps that are left out use up their batches, so that all later steps get the same
            # ones.
            while self._to_drop:
                self._next_batch()
                self._to_drop -= 1
            self._left -= 1
            yield self._next_batch()

    def skip_batches(self, count: int) -> None:
        """Skip `count` batches before the next one; a current epoch has as many fewer."""
        self._to_drop += count
        self._left -= count

    @property
    def order_doubt(self) -> str:
        """What may come in another order than before, in words; empty if nothing may."""
        if self._pending is None or self._pending["own"] is None or self.own_state:
            return ""
        return (
            "the stream's order, where it is random (the checkpoint has the state of a loader "
            "that kept its own)"
        )

    def state_dict(self) -> dict[str, Any]:
        """Return the position, as of the last batch that was returned."""
        if self._pending is not None:
            return {**self._pending, "to_drop": self._to_drop}
        if self._loaded is not None:
            since = self._batches - self._loaded["batches"]
            return {**self._loaded, "to_drop": self._to_drop + since}
        state: dict[str, Any] = {
            "passes": self._passes,
            "batches": self._batches,
            "to_drop": self._to_drop,
            "own": None,
            "start": self._start,
        }
        if self.own_state and self._iterator is not None:
            state["own"], state["start"] = self.source.state_dict(), None
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Set a position; the stream moves there when the next batch is requested."""
        self._pending = dict(state_dict)
        self._to_drop = state_dict["to_drop"]
        self._iterator = None

    def _open_source(self) -> None:
        if self._pending is not None:
            pending = self._pending
            self._pending = None
            self._resume_at(pending)
        elif self._iterator is None:
            self._begin_pass()

    def _begin_pass(self) -> None:
        self._loaded = None
        sources: list[Any] = [self.source, getattr(self.source, "dataset", None)]
        for source in sources:
            if getattr(source, "_starting_state_dict", None) is not None:
                # a set of Hugging Face would begin every pass at the restored position
                source._starting_state_dict = None
        if self.own_state:
            self._start = None
        else:
            self._start = rng.capture_states()
            self._start["own"] = [*map(rng.random_state, rng.find_generators(self.source))]
        self._batches = 0
        self._iterator = iter(self.source)

    def _resume_at(self, state: dict[str, Any]) -> None:
        """Move to the position of `state`, without changing the random state of the training."""
        self._passes, self._batches, self._start = state["passes"], state["batches"], state["start"]
        if state["own"] is None and self._start is None:
            # saved before the first batch: the pass begins like any other, with the same draws
            return
        before = rng.capture_states()
        if state["own"] is not None and self.own_state:
            self.source.load_state_dict(state["own"])
            self._iterator = iter(self.source)
            # The check took batches: back to the position once more.
            if self._check_position(state):
                self.source.load_state_dict(state["own"])
                self._iterator = iter(self.source)
                self._loaded, self._unsettled = dict(state), _workers_of(self.source)
        else:
            if self._start is not None:
                rng.restore_states(self._start)
                pairs = zip(rng.find_generators(self.source), self._start.get("own", ()))
                for generator, own in pairs:
                    rng.restore_generator(generator, own)
            self._iterator = iter(self.source)
            self._skip_used(self._iterator, self._batches)
        # Reading again draws what the first pass drew, and the training has moved on since.
        rng.restore_states(before)

    def _check_position(self, state: dict[str, Any]) -> bool:
        """Check that the source is at the restored position; return whether that took batches of it.

        torchdata's loader over an iterable without state counts skipped batches twice (0.11): every
        resume would double its position.

        Raises:
            UsageError: It is elsewhere; the next save stores the correct position.
        """
        found = self.source.state_dict()
        other = _difference(state["own"], found, "")
        if other is None:
            return False
        if not _is_any(state["own"], found, _is_ahead):  # perhaps it is only not shown yet
            assert self._iterator is not None
            for _ in range(_workers_of(self.source)):
                if next(self._iterator, self) is self:
                    return True  # the end of the pass
            if not _is_any(state["own"], self.source.state_dict(), _is_behind):
                return True
        self._iterator = None
        self._pending = state
        kind = type(self.source).__name__
        raise UsageError(
            f"the stream ({kind}) does not come back to where it was: after iter() {other}. A "
            "StatefulDataLoader over an IterableDataset needs state_dict and load_state_dict of "
            "that data set, or of its iterator: add them and start over in another --out. To "
            "continue here pass a plain DataLoader: it is read up to the same batch"
        )

    def _skip_used(self, iterator: Iterator[Any], count: int) -> None:
        begun = time.monotonic()
        for number in range(count):
            try:
                next(iterator)
            except StopIteration:
                raise UsageError(
                    f"the stream ended after {number} batches, {count} were used before"
                ) from None
        spent = time.monotonic() - begun
        if count:
            worth_telling_s = 1.0
            print_line(
                f"resume: skipped {count} batches of a stream without state_dict in {spent:.1f} s"
                + ("; a StatefulDataLoader would not have to" if spent > worth_telling_s else "")
            )

    def _next_batch(self) -> Any:
        looks = 8
        # The end of a pass may show only here: then the first batch of the next one comes. Two ends
        # in a row mean that no pass has a batch.
        for _ in range(2):
            if self._iterator is None:
                self._begin_pass()
            assert self._iterator is not None
            # A first batch may draw the order of all. Of the others a few are enough to check.
            looked = not self.own_state and not self.draws and 0 < self._batches <= looks
            if looked:
                before = rng.capture_states()
            else:
                before = None
            try:
                batch = next(self._iterator)
            except StopIteration:
                self._passes += 1
                self._iterator = None
                continue
            self.draws = self.draws or (before is not None and rng.capture_states() != before)
            self._batches += 1
            if self._loaded is not None:
                self._unsettled -= 1
                if self._unsettled <= 0:
                    self._loaded = None
            return batch
        raise UsageError("the stream has no batch: an iterable that is used up cannot begin again")


def _has_shuffle_buffer(source: Any) -> bool:
    """Return whether a source reads from a shuffle buffer of Hugging Face's `datasets`."""
    inside = getattr(source, "dataset", source)
    while inside is not None:
        if type(inside).__name__.startswith("BufferShuffled"):
            return True
        inside = getattr(inside, "_ex_iterable", None) or getattr(inside, "ex_iterable", None)
    return False


def _workers_of(source: Any) -> int:
    return max(1, int(getattr(source, "num_workers", 0)))


def _is_any(saved: Any, here: Any, holds: Callable[[list[tuple[Any, Any]]], bool]) -> bool:
    """Return whether `holds` for the numbers of any mapping or list in a state, there and here."""
    if isinstance(saved, (list, tuple)):
        saved = dict(enumerate(saved))
    if isinstance(here, (list, tuple)):
        here = dict(enumerate(here))
    if not isinstance(saved, Mapping):
        return False
    if isinstance(here, Mapping):
        now = here
    else:
        now = {}
    pairs = []
    for key, old in saved.items():
        if type(old) in (int, float):
            pairs.append((now.get(key), old))
    if holds(pairs):
        return True
    return any(_is_any(old, now.get(key), holds) for key, old in saved.items())


def _is_ahead(pairs: list[tuple[Any, Any]]) -> bool:
    """Return whether a number of a position grew."""
    return any(type(here) in (int, float) and here > saved for here, saved in pairs)


def _is_behind(pairs: list[tuple[Any, Any]]) -> bool:
    """Return whether numbers of a position differ, and none of them grew."""
    if _is_ahead(pairs):
        return False
    return any(repr(here) != repr(saved) for here, saved in pairs)


def _difference(saved: Any, here: Any, path: str) -> str | None:
    """Return the first difference between two states, in words; None without one."""
    lists = isinstance(saved, (list, tuple)) and isinstance(here, (list, tuple))
    if isinstance(saved, Mapping) and isinstance(here, Mapping):
        keys = {**saved, **here}
        pairs: Any = [(key, saved.get(key), here.get(key)) for key in keys]
    elif lists and len(saved) == len(here):
        pairs = [(number, *pair) for number, pair in enumerate(zip(saved, here))]
    else:
        # Arrays and tensors compare element by element, plain lists as a whole.
        saved, here = (each.tolist() if hasattr(each, "tolist") else each for each in (saved, here))
        alike = saved == here or repr(saved) == repr(here)  # NaN equals NaN here
        if alike:
            return None
        return f"{path or 'its state'} was {saved!r:.80}, is {here!r:.80}"
    for key, old, new in pairs:
        found = _difference(old, new, f"{path}/{key}".lstrip("/"))
        if found:
            return found
    return None


@dataclass(frozen=True)
class BatchPart:
    """The size of this rank's slice of a batch; with one rank all of it.

    Attributes:
        real: Samples at its beginning that are not padding (one without one: its share is 0
            then).
        share: Factor for their mean loss.
    """

    real: int
    share: float


class DataPosition:
    """The data of a run and the position in it.

    Args:
        sampler: Order and sizes.
        epochs: Epochs of the run; None without a limit.
        max_steps: Steps of the run in all; None without a limit.
        progress: The counters of the run.
        stream: Data with an order of its own, if any.
        rank: Number of this rank.
        world: Number of ranks.
        restore_rng: Restores the random state; called before the first fetch.

    Attributes:
        entered: Whether the loop over the epochs has begun. A batch read before, from a checkpoint
            at the end of an epoch, belongs to the next one.
        gap: Detects changes between a step and the next batch; None before the run has begun.
        asked: Whether this epoch's batches were requested, so that a resume continues with the
            rest.
    """

    def __init__(
        self,
        sampler: EpochSampler,
        epochs: int | None,
        max_steps: int | None,
        progress: Progress,
        stream: Stream | None,
        rank: int,
        world: int,
        restore_rng: Callable[[], None],
    ) -> None:
        self.sampler = sampler
        self.stream = stream
        self._progress = progress
        self._rank = rank
        self._world = world
        self._restore_rng = restore_rng
        self._known = -1, -1, 0
        self.entered = False
        self.gap: ChangeDetector | None = None
        self.asked = False
        self.epochs = epochs or sys.maxsize
        self.most = max_steps or sys.maxsize
        self._from = 0
        self._seeded = False
        self._plans: list[BatchPlan] = []

    @property
    def planned_steps(self) -> int:
        """Steps of the epoch; the last one of a run may be cut off by `max_steps`."""
        p = self._progress
        known = self._known
        # Both cases are without a further call: several parts of a step ask for this.
        if known[0] == p.epoch and known[1] == p.offset:
            steps = known[2]
        else:
            steps = self._steps
        most = self.most - p.step + p.done_steps
        if steps <= most:
            return steps
        return max(0, most)

    @property
    def _steps(self) -> int:
        """Steps of the epoch, whether or not the run ends before it does."""
        p = self._progress
        known = self._known
        if known[0] != p.epoch or known[1] != p.offset:
            known = p.epoch, p.offset, self.sampler.steps_in(p.epoch, p.offset)
            self._known = known
        return known[2]

    @property
    def total(self) -> int:
        """Steps of the run in all, if later epochs are as long as this one."""
        p = self._progress
        left = self.epochs - p.epoch
        if left < 1:
            return min(self.most, p.step)
        later = (left - 1) * self.sampler.steps_in(p.epoch)
        return min(self.most, p.step - p.done_steps + self.planned_steps + later)

    @property
    def fraction(self) -> float:
        """The epoch, with the part of it that is done."""
        p = self._progress
        steps = whole = self._steps
        if p.offset:
            whole = self.sampler.steps_in(p.epoch)
        return p.epoch + 1 - (steps - p.done_steps) / max(1, whole)

    @property
    def is_finished(self) -> bool:
        """Whether all epochs or steps of the run are done, and what follows its last epoch, too."""
        p = self._progress
        return p.epoch >= self.epochs or (p.step >= self.most and not p.done_steps + p.offset)

    @property
    def is_over(self) -> bool:
        """Whether all steps of the epoch are done."""
        return self._progress.done_steps >= self.planned_steps

    @property
    def is_cut(self) -> bool:
        """Whether the run ends before the epoch does."""
        return self.planned_steps < self._steps

    def loading_facts(self) -> dict[str, Any]:
        """Return the facts about the loading for a checkpoint; a resume's guarantee needs them."""
        if self.stream is not None:
            return {"draws": self.stream.draws}
        return {"seeded": self._seeded, "ahead": any(plan.ahead for plan in self._plans)}

    def plan_batches(self, pad: bool) -> BatchPlan:
        """Return the rest of this epoch as a batch sampler."""
        plan = BatchPlan(
            self.sampler,
            self._current_position,
            self._before_first_batch,
            self._between,
            rank=self._rank,
            world=self._world,
            pad=pad,
        )
        # At most two: the one in use and a loader of another epoch with workers that prefetch.
        self._plans = [*(old for old in self._plans if old.ahead), plan][-2:]
        return plan

    def iterate_parts(self, loader: Iterable[Any]) -> Iterator[tuple[Any, BatchPart]]:
        """Yield each batch of `loader` with the size of this rank's part."""
        plan = self._plan_of(loader)
        for position, batch in zip(itertools.count(), loader):
            assert plan is not None, "the loader has run.batches()"
            yield batch, BatchPart(max(1, plan.count_real(position)), plan.loss_share(position))

    def number_batches(self, loader: Iterable[Any]) -> Iterator[tuple[int, Any]]:
        """Yield each batch of `loader` with its number in the epoch."""
        plan = self._plan_of(loader)
        first = self._progress.done_steps * self.sampler.accumulate + self._progress.micro
        for position, batch in zip(itertools.count(), loader):
            number = first + position
            if plan is not None:
                number = plan.epoch_number(position)
            yield number, batch

    def _plan_of(self, loader: Iterable[Any]) -> BatchPlan | None:
        for own in (loader, getattr(loader, "batch_sampler", None)):
            if isinstance(own, BatchPlan):
                return own
        if self._plans:  # a loader in a wrapper
            return self._plans[-1]
        return None

    def seed_samples(self, dataset: Any) -> SeededDataset:
        """Return `dataset` with separate random state for every sample."""
        self._seeded = True
        return SeededDataset(dataset)

    def stream_batches(self) -> Iterator[Any]:
        """Yield the batches of the stream that are left in this epoch.

        Raises:
            UsageError: There is no stream, or it ended too early.
        """
        if self.stream is None:
            raise exits.UsageError("this Run has no stream: create it with Run(…, stream=loader)")
        p = self._progress
        a = self.sampler.accumulate
        left = (self.planned_steps - p.done_steps) * a - p.micro
        first = p.done_steps * self.sampler.window + p.micro
        return self.stream.next_batches(
            left, self._before_first_batch, lambda number: self._between(first + number)
        )

    def begin_epoch(self) -> None:
        """Note that an epoch begins, or continues after a resume."""
        self.asked = False
        self._from = self._progress.done_steps
        if self.gap is not None:
            self.gap.forget()

    def leave_last_epoch(self) -> None:
        """Leave the last epoch of the run, if all its steps are done.

        Its checkpoint may have been made before; the code after the loop is in the next one.
        """
        p = self._progress
        whole = p.done_steps and self.is_over and not self.is_cut
        if whole and (p.epoch + 1 >= self.epochs or p.step >= self.most):
            p.next_epoch()

    def check_epoch_trained(self) -> None:
        """Check that the finished epoch was trained on as planned.

        Raises:
            UsageError: Its steps were not counted, were fewer, or its batches came from elsewhere.
        """
        p = self._progress
        planned = self.planned_steps
        over = f"epoch {p.epoch + 1} is over"
        # Resumed at the end of the epoch: there was nothing left to train on.
        if self._from >= planned:
            return
        if p.done_steps == self._from:
            raise exits.UsageError(
                f"{over}, but run.step was not called in it: call run.step(loss) after each "
                "optimizer.step()"
            )
        if not self.asked:
            raise exits.UsageError(
                f"{over}, but its batches did not come from run.batches() (or run.stream()): a "
                "relaunch would not know which ones are left. Use DataLoader(data, "
                "batch_sampler=run.batches()), Run(…, sampler=…) for an order of your own, and "
                "`for step in run.steps():` where there are no data"
            )
        if p.done_steps < planned:
            raise exits.UsageError(
                f"{over} after {p.done_steps} of {planned} steps. Call run.step once for each "
                "optimizer step, also for one that is skipped; for shorter epochs give Run(…, "
                f"steps_per_epoch={p.done_steps}); to end the training here call run.finish() "
                "before the break"
            )

    def explain_error(self, error: BaseException, trace: Any) -> UsageError | None:
        """Return a `UsageError` if a loop asked for a batch after the last one; else None."""
        found = None
        while isinstance(error, StopIteration) and trace is not None:
            reader = trace.tb_frame.f_locals.get("self")
            if isinstance(getattr(reader, "_index_sampler", None), BatchPlan):
                found = UsageError(
                    "the loop asked for a batch after the last one of the epoch: a resume in its "
                    "middle leaves fewer than len(loader). Read them with `for batch in loader`"
                )
            trace = trace.tb_next
        return found

    def require_steps_left(self) -> None:
        """Check that one more step belongs to the epoch.

        Raises:
            UsageError: All its steps are done.
        """
        p = self._progress
        planned = self.planned_steps
        if p.done_steps >= planned:
            raise exits.UsageError(
                f"run.step is called for step {p.done_steps + 1} of an epoch of {planned}. Call it "
                f"once for each optimizer step (of {self.sampler.window} batches), in a loop over "
                "run.epochs() and run.batches()"
            )

    def require_epoch_entered(self) -> None:
        """Check, at the end of a run, that its epochs were counted.

        Raises:
            UsageError: A whole epoch was trained on without a loop over them.
        """
        if not self.entered and self._progress.done_steps >= self.planned_steps > self._from:
            raise exits.UsageError(
                "an epoch was trained on outside `for epoch in run.epochs():`, which counts them: "
                "loop over it"
            )

    def iterate_steps(self) -> Iterator[int]:
        """Yield the steps that are left of this epoch, numbered over the whole run from 0.

        Raises:
            UsageError: A step was not counted, or the epochs are not counted: raised before the
                first step.
        """
        p = self._progress
        if not self.entered:
            raise exits.UsageError(
                "run.steps() are those of one epoch: put `for step in run.steps():` into `for "
                "epoch in run.epochs():`"
            )
        self._before_first_batch()
        while not self.is_over:
            now = p.step
            yield now
            if p.step == now:
                raise exits.UsageError(
                    "run.step was not called: call run.step(loss) in each turn of run.steps()"
                )
            self._between(p.done_steps * self.sampler.window + p.micro)

    def skip_left_out(self, report: RunReport) -> None:
        """Count the next steps that are left out, without a batch and without changing weights."""
        p = self._progress
        if not p.left_out:
            return
        while p.done_steps < self.planned_steps and is_left_out(p.step + 1, p.left_out):
            p.advance()
            if self.stream is not None:
                self.stream.skip_batches(self.sampler.accumulate)
            report.print_line(f"step {p.step} is left out")
            report.append_event("left-out", p.step)

    def _before_first_batch(self) -> None:
        self.asked = True
        if self.gap is not None:
            self.gap.begin()
        self._restore_rng()

    def _between(self, received: int) -> None:
        """Look for changes since the last step, unless a batch was requested before it was made."""
        p = self._progress
        if self.gap is not None and received == p.done_steps * self.sampler.window + p.micro:
            self.gap.compare()

    def _current_position(self) -> EpochPosition:
        p = self._progress
        if not self.entered and p.done_steps >= self.planned_steps:
            return EpochPosition(p.epoch + 1, seeded=self._seeded)
        return EpochPosition(
            p.epoch,
            p.done_steps,
            p.micro,
            self._left_out(),
            self._seeded,
            self.planned_steps,
            p.offset,
        )

    def _left_out(self) -> set[int]:
        """Return the steps of this epoch, from 0, that are not trained on."""
        p = self._progress
        first = p.step - p.done_steps + 1
        steps = range(self.planned_steps) if p.left_out else ()
        return {step for step in steps if is_left_out(first + step, p.left_out)}


def steps_per_pass(stream: Any, accumulate: int) -> int:
    """Return the optimizer steps in one pass of `stream`.

    Raises:
        UsageError: It has no length.
    """
    try:
        return max(1, len(stream) // accumulate)
    except TypeError:
        raise exits.UsageError("a stream without a length needs steps_per_epoch") from None
