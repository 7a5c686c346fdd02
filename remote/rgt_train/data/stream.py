"""Data that come in their own order: a loader that knows its position, or any iterable, which is then counted."""

from __future__ import annotations

import time
from typing import Any, Callable, Dict, Iterable, Iterator, Mapping, Optional

from rgt_train import rng
from rgt_train.exits import UsageError
from rgt_train.report import say

_WORTH_TELLING_S = 1.0
_LOOKS = 8


class Stream:
    """Batches of an iterable, going on over the epochs of the run; a new pass begins when one is used up.

    What has ``state_dict`` and ``load_state_dict`` (torchdata's ``StatefulDataLoader``, or anything of your own) is put
    back where it was. Anything else is iterated anew and skipped through to the same batch, with the random state that
    its pass began with: exact where the order depends on nothing else, and as slow as loading what is skipped.

    Args:
        source: The iterable of batches.

    Attributes:
        draws: Whether it has no state and draws from the global generators while it is read: then what it keeps for
            later (a buffer that it shuffles) may be other than what the training drew beside it had made of it.
    """

    def __init__(self, source: Iterable[Any]) -> None:
        self._source: Any = source
        self.draws = False
        self._own_state = hasattr(source, "state_dict") and hasattr(source, "load_state_dict")
        self._iterator: Optional[Iterator[Any]] = None
        self._passes = 0
        self._batches = 0
        self._left = 0
        self._to_drop = 0
        self._start: Optional[Dict[str, Any]] = None
        self._pending: Optional[Dict[str, Any]] = None

    def batches(self, count: int, before_first: Callable[[], Any]) -> Iterator[Any]:
        """Yield the next `count` batches.

        Args:
            count: How many.
            before_first: Called when the stream is where it shall be and before the first batch is fetched: the
                random state of the training is put back there.

        Raises:
            UsageError: The stream has no batch at all, or is shorter than the position that it is resumed at.
        """
        if count > 0:
            self._open()
        before_first()
        self._left = count
        while self._left > 0:
            while self._to_drop:
                self._next()
                self._to_drop -= 1
            self._left -= 1
            yield self._next()

    def pass_over(self, count: int) -> None:
        """Drop `count` batches before the next one; those of an epoch that is under way become fewer by as many."""
        self._to_drop += count
        self._left -= count

    @property
    def doubt(self) -> str:
        """What may be another order than before, in words; empty where nothing may."""
        if self._pending is None or self._pending["own"] is None or self._own_state:
            return ""
        return "the stream's order, where it is random (the checkpoint has the state of a loader that kept its own)"

    def state_dict(self) -> Dict[str, Any]:
        """Return the position, as of the last batch that was handed out."""
        if self._pending is not None:
            return {**self._pending, "to_drop": self._to_drop}
        state: Dict[str, Any] = {
            "passes": self._passes,
            "batches": self._batches,
            "to_drop": self._to_drop,
            "own": None,
            "start": self._start,
        }
        if self._own_state and self._iterator is not None:
            state["own"], state["start"] = self._source.state_dict(), None
        return state

    def load_state_dict(self, state_dict: Dict[str, Any]) -> None:
        """Take over a position; the stream is put there when the next batch is asked for."""
        self._pending = dict(state_dict)
        self._to_drop = state_dict["to_drop"]
        self._iterator = None

    def _open(self) -> None:
        if self._pending is not None:
            pending, self._pending = self._pending, None
            self._resume(pending)
        elif self._iterator is None:
            self._begin_pass()

    def _begin_pass(self) -> None:
        self._start = None if self._own_state else rng.capture()
        self._batches = 0
        self._iterator = iter(self._source)

    def _resume(self, state: Dict[str, Any]) -> None:
        """Go to where `state` was taken, leaving the random state of the training alone."""
        self._passes, self._batches, self._start = state["passes"], state["batches"], state["start"]
        if state["own"] is None and self._start is None:
            return  # taken before the first batch: the pass begins like any other, drawing what it draws
        before = rng.capture()
        if state["own"] is not None and self._own_state:
            self._source.load_state_dict(state["own"])
            self._iterator = iter(self._source)
            self._check(state)
        else:
            if self._start is not None:
                rng.restore(self._start)
            self._iterator = iter(self._source)
            self._skip(self._iterator, self._batches)
        rng.restore(before)

    def _check(self, state: Dict[str, Any]) -> None:
        """See that the source is where it was told to be.

        torchdata's loader over an iterable without state counts what it passes over a second time (0.11): every
        resume would double its position.

        Raises:
            UsageError: It is elsewhere; the next save keeps the place where it should be.
        """
        other = _difference(state["own"], self._source.state_dict(), "")
        if other is None:
            return
        self._iterator, self._pending = None, state
        kind = type(self._source).__name__
        raise UsageError(
            f"the stream ({kind}) does not come back to where it was: after iter() {other}. A StatefulDataLoader over "
            "an IterableDataset needs state_dict and load_state_dict of that data set, or of its iterator: add them and"
            " begin anew in another --out. To go on here pass a plain DataLoader: it is read up to the same batch"
        )

    def _skip(self, iterator: Iterator[Any], count: int) -> None:
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
            say(
                f"resume: skipped {count} batches of a stream without state_dict in {spent:.1f} s"
                + ("; a StatefulDataLoader would not have to" if spent > _WORTH_TELLING_S else "")
            )

    def _next(self) -> Any:
        for _ in range(2):
            if self._iterator is None:
                self._begin_pass()
            assert self._iterator is not None
            # A first batch may draw the order of all. Of the others a few tell.
            looked = not self._own_state and not self.draws and 0 < self._batches <= _LOOKS
            before = rng.capture() if looked else None
            try:
                batch = next(self._iterator)
            except StopIteration:
                self._passes += 1
                self._iterator = None
                continue
            self.draws = self.draws or (before is not None and rng.capture() != before)
            self._batches += 1
            return batch
        raise UsageError("the stream has no batch: an iterable that is used up cannot begin again")


def _difference(saved: Any, here: Any, path: str) -> Optional[str]:
    """Return the first place where two states differ, in words; None where they do not."""
    if isinstance(saved, Mapping) and isinstance(here, Mapping):
        pairs: Any = [(key, saved.get(key), here.get(key)) for key in {**saved, **here}]
    elif isinstance(saved, (list, tuple)) and isinstance(here, (list, tuple)) and len(saved) == len(here):
        pairs = [(number, *pair) for number, pair in enumerate(zip(saved, here))]  # noqa: B905
    else:
        saved, here = (each.tolist() if hasattr(each, "tolist") else each for each in (saved, here))
        alike = saved == here or repr(saved) == repr(here)  # NaN is like NaN
        return None if alike else f"{path or 'its state'} was {saved!r:.80}, is {here!r:.80}"
    told = (_difference(old, new, f"{path}/{key}".lstrip("/")) for key, old, new in pairs)
    return next((each for each in told if each), None)
