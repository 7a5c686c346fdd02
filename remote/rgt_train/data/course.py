"""What a run trains on next: the batches that are left of the epoch, and the steps that are left out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Callable, Dict, Iterable, Iterator, List, Optional, Set, Tuple

from rgt_train import exits
from rgt_train.data.seeded import Seeded
from rgt_train.data.stream import Stream
from rgt_train.guard import is_left_out
from rgt_train.progress import Progress
from rgt_train.report import Report
from rgt_train.sampler import BatchPlan, EpochSampler, Position


@dataclass(frozen=True)
class Part:
    """What this rank's slice of a batch counts; with one rank all of it.

    Attributes:
        real: Samples at its beginning that are no padding (one where there are none: its share is 0 then).
        share: Factor for their mean loss.
    """

    real: int
    share: float


class Course:
    """The data of a run and the position in them.

    Args:
        sampler: Order and sizes.
        total: Steps of the run in all.
        progress: Where the run stands.
        stream: Where the data have an order of their own.
        rank: Number of this rank.
        world: How many there are.
        restore_rng: Puts the random state back; called before the first fetch.

    Attributes:
        entered: Whether the loop over the epochs has begun. What is looked at before, where the checkpoint is of the
            end of an epoch, is a batch of the next.
        asked: Whether this epoch's batches were asked for, so that a resume goes on with those that are left.
    """

    def __init__(
        self,
        sampler: EpochSampler,
        total: int,
        progress: Progress,
        stream: Optional[Stream],
        rank: int,
        world: int,
        restore_rng: Callable[[], None],
    ) -> None:
        self.sampler, self.stream = sampler, stream
        self._progress, self._rank, self._world, self._restore_rng = progress, rank, world, restore_rng
        self.entered = False
        self.asked = False
        self.total = total
        self._from = 0
        self._seeded = False
        self._plans: List[BatchPlan] = []

    @property
    def planned(self) -> int:
        """Steps of the epoch; the last one of a run may be cut off by `max_steps`."""
        p = self._progress
        return max(0, min(self.sampler.steps_per_epoch, self.total - (p.step - p.done_steps)))

    @property
    def is_over(self) -> bool:
        """Whether all steps of the epoch are done."""
        return self._progress.done_steps >= self.planned

    @property
    def is_cut(self) -> bool:
        """Whether the run ends before the epoch does."""
        return self.planned < self.sampler.steps_per_epoch

    def facts(self) -> Dict[str, Any]:
        """Return what is known of the loading, for a checkpoint: what a resume can promise depends on it."""
        if self.stream is not None:
            return {"draws": self.stream.draws}
        return {"seeded": self._seeded, "ahead": any(plan.ahead for plan in self._plans)}

    def batches(self, pad: bool) -> BatchPlan:
        """Return what is left of this epoch as a batch sampler."""
        plan = BatchPlan(
            self.sampler, self._position, self._first, rank=self._rank, world=self._world, pad=pad
        )
        self._plans = [*(old for old in self._plans if old.ahead), plan][-2:]
        return plan

    def parts(self, loader: Iterable[Any]) -> Iterator[Tuple[Any, Part]]:
        """Yield each batch of `loader` with what this rank's part of it counts."""
        own = loader if isinstance(loader, BatchPlan) else getattr(loader, "batch_sampler", None)
        plan = own if isinstance(own, BatchPlan) else self._plans[-1] if self._plans else None
        for position, batch in enumerate(loader):
            assert plan is not None, "the loader has run.batches()"
            yield batch, Part(max(1, plan.real(position)), plan.share(position))

    def seed(self, dataset: Any) -> Seeded:
        """Return `dataset` with random state of its own for every sample."""
        self._seeded = True
        return Seeded(dataset)

    def streamed(self) -> Iterator[Any]:
        """Yield the batches of the stream that are left in this epoch.

        Raises:
            UsageError: There is no stream, or it ended too early.
        """
        if self.stream is None:
            raise exits.UsageError("this Run has no stream: create it with Run(…, stream=loader)")
        p, a = self._progress, self.sampler.accumulate
        left = (self.planned - p.done_steps) * a - p.micro
        return self.stream.batches(left, self._first)

    def begin_epoch(self) -> None:
        """Take in that an epoch begins, or goes on after a resume."""
        self.asked, self._from = False, self._progress.done_steps

    def account(self) -> None:
        """See that the epoch that is over was trained on as planned.

        Raises:
            UsageError: Its steps were not counted, were fewer, or its batches came from elsewhere.
        """
        p, planned = self._progress, self.planned
        over = f"epoch {p.epoch + 1} is over"
        if self._from >= planned:
            return
        if p.done_steps == self._from:
            raise exits.UsageError(
                f"{over}, but run.step was not called in it: call run.step(loss) after each optimizer.step()"
            )
        if not self.asked:
            raise exits.UsageError(
                f"{over}, but its batches did not come from run.batches() (or run.stream()): a relaunch would not know "
                "which ones are left. Use DataLoader(data, batch_sampler=run.batches()), Run(…, sampler=…) for an "
                "order of your own, and `for step in run.steps():` where there are no data"
            )
        if p.done_steps < planned:
            raise exits.UsageError(
                f"{over} after {p.done_steps} of {planned} steps. Call run.step once for each optimizer step, also for "
                f"one that is skipped; for shorter epochs give Run(…, steps_per_epoch={p.done_steps}); to end the "
                "training here call run.finish() before the break"
            )

    def see_room(self) -> None:
        """See that one more step belongs to the epoch.

        Raises:
            UsageError: All its steps are done.
        """
        p, planned = self._progress, self.planned
        if p.done_steps >= planned:
            raise exits.UsageError(
                f"run.step is called for step {p.done_steps + 1} of an epoch of {planned}. Call it once for each "
                f"optimizer step (of {self.sampler.window} batches), in a loop over run.epochs() and run.batches()"
            )

    def see_entered(self) -> None:
        """See, when a run is left, that its epochs were counted.

        Raises:
            UsageError: A whole epoch was trained on without a loop over them.
        """
        if not self.entered and self._progress.done_steps >= self.planned > self._from:
            raise exits.UsageError(
                "an epoch was trained on outside `for epoch in run.epochs():`, which counts them: loop over it"
            )

    def steps(self) -> Iterator[int]:
        """Yield the steps that are left of this epoch, numbered over the whole run from 0.

        Raises:
            UsageError: One was not counted.
        """
        p = self._progress
        self._first()
        while not self.is_over:
            now = p.step
            yield now
            if p.step == now:
                raise exits.UsageError(
                    "run.step was not called: call run.step(loss) in each turn of run.steps()"
                )

    def pass_over(self, report: Report) -> None:
        """Count the steps that are left out next, without a batch and without a change of the weights."""
        p = self._progress
        while p.done_steps < self.planned and is_left_out(p.step + 1, p.left_out):
            p.advance()
            if self.stream is not None:
                self.stream.pass_over(self.sampler.accumulate)
            report.say(f"step {p.step} is left out")
            report.event("left-out", p.step)

    def _first(self) -> None:
        self.asked = True
        self._restore_rng()

    def _position(self) -> Position:
        p = self._progress
        if not self.entered and p.done_steps >= self.planned:
            return Position(p.epoch + 1, seeded=self._seeded)
        return Position(p.epoch, p.done_steps, p.micro, self._left_out(), self._seeded, self.planned)

    def _left_out(self) -> Set[int]:
        """Return the steps of this epoch, from 0, that are not trained on."""
        p = self._progress
        first = p.step - p.done_steps + 1
        steps = range(self.planned) if p.left_out else ()
        return {step for step in steps if is_left_out(first + step, p.left_out)}


def steps_of(stream: Any, accumulate: int) -> int:
    """Return the optimizer steps that one pass of `stream` gives.

    Raises:
        UsageError: It has no length.
    """
    try:
        return max(1, len(stream) // accumulate)
    except TypeError:
        raise exits.UsageError("a stream without a length needs steps_per_epoch") from None
