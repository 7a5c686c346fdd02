"""Training with a DeepSpeed engine of any ZeRO stage: its own checkpoints, verified, mirrored, resumed."""

from __future__ import annotations

import glob
import os
from types import TracebackType
from typing import Any, Iterable, Iterator

from rgt_train import exits
from rgt_train.cadence import Number, plain_number
from rgt_train.callbacks.proven import newest_good
from rgt_train.callbacks.recorder import TrainingRecorder, error_text, plain_settings
from rgt_train.checkpoint.diskio import StrPath, remove_path
from rgt_train.data import rng
from rgt_train.exits import StopRequest
from rgt_train.ranks import choose, launch
from rgt_train.ranks.launch import Coordinator
from rgt_train.tracking.report import print_line


class RgtDeepSpeed:
    """One training of a DeepSpeed engine in one directory; the same launch command continues it.

    Creating it loads the newest good checkpoint, here or in the mirror. Create it on every rank,
    after ``deepspeed.initialize``::

        with RgtDeepSpeed("run", engine, total_steps=1000, save_every=100) as run:
            for batch in run.batches(loader, epochs=10):
                loss = engine(batch)
                engine.backward(loss)
                engine.step()
                run.step(loss.item())

    ``engine.save_checkpoint`` writes the checkpoints, with the random state of each rank, and
    ``engine.load_checkpoint`` reads them. SIGTERM, SIGUSR1 and SIGINT save after the step, on all
    ranks, and end with exit code 75.

    Args:
        out: The run directory, which all ranks see.
        engine: The engine that ``deepspeed.initialize`` returned.
        total_steps: Optimizer steps in all.
        save_every: Optimizer steps between two checkpoints.
        keep: How many checkpoints stay, here and in the mirror.
        mirror: A place that outlives the machine, for a second copy of each checkpoint: an
            absolute path, or an fsspec URL. Empty for none.
        extra: State of your own, a dictionary of plain values; a resume fills it.

    Raises:
        NotStarted: There are checkpoints and none is good, or DeepSpeed cannot load the newest good
            one, for example because it is of another number of ranks (exit code 2).
    """

    @exits.raises_not_started
    def __init__(
        self,
        out: StrPath,
        engine: Any,
        *,
        total_steps: int,
        save_every: int = 100,
        keep: int = 2,
        mirror: str = "",
        extra: dict[str, Any] | None = None,
    ) -> None:
        self.out = os.path.abspath(out)
        self._engine = engine
        self._total = total_steps
        self._every = save_every
        self._keep = keep
        self._extra = extra
        self._ranks = choose.choose_ranks(None)
        self._coordinator = Coordinator(self._ranks)
        self._states: list[dict[str, Any]] = []
        found = self._coordinator.run_on_leader(lambda: self._find_newest(mirror))
        if found:
            self._load_checkpoint(found)
        self._last = self._saved = self.step_now
        self._stop = StopRequest()
        self._recorder: TrainingRecorder | None = None
        if self._ranks.is_writer:
            facts = {
                "seed": None,
                "batch": int(engine.train_batch_size()),
                "accumulate": int(engine.gradient_accumulation_steps()),
                "world": self._ranks.world,
                "settings": plain_settings({"zero_stage": engine.zero_optimization_stage()}),
            }
            self._recorder = TrainingRecorder(
                self.out, self.step_now, total_steps, facts, mirror, keep
            )

    @property
    def step_now(self) -> int:
        """Optimizer steps done so far, in all launches."""
        return int(self._engine.global_steps)

    def batches(self, loader: Iterable[Any], epochs: int) -> Iterator[Any]:
        """Yield the batches of all epochs that no step has used, until `total_steps` are done.

        The sampler's ``set_epoch`` is called if it has one: a `DistributedSampler` then gives the
        same order again. Batches that were used are read and passed over.

        Args:
            loader: A loader with a length, whose order depends on the epoch alone.
            epochs: Number of passes.
        """
        per_epoch = len(loader)  # type: ignore[arg-type]  # a DataLoader has one
        used = self.step_now * int(self._engine.gradient_accumulation_steps())
        for epoch in range(used // max(1, per_epoch), epochs):
            sampler = getattr(loader, "sampler", None)
            if hasattr(sampler, "set_epoch"):
                sampler.set_epoch(epoch)  # type: ignore[union-attr]
            for number, batch in enumerate(loader, epoch * per_epoch):
                # Read and thrown away, so that the order of the data continues where it was.
                if number < used:
                    continue
                # Only now: making the skipped batches has used up random numbers.
                self._restore_random()
                yield batch
                if self.step_now >= self._total:
                    return

    def step(self, loss: Number, **values: Number) -> None:
        """Log, save and stop as needed; call it on every rank after each ``engine.step()``.

        Args:
            loss: The loss, a number or a tensor of one element.
            **values: Further numbers for the metrics.

        Raises:
            TrainingStop: A signal asked for the end, and everything is saved (exit code 75).
        """
        if self.step_now == self._last:
            return  # in the middle of a gradient accumulation
        self._last = self.step_now
        mean = self._ranks.mean_over_ranks([plain_number("loss", loss)])[0]
        if self._recorder is not None:
            numbers = {name: plain_number(name, value) for name, value in values.items()}
            self._recorder.record_point(self._last, 0.0, {"loss": mean, **numbers})
            self._recorder.poll_mirror()
        wish = 0
        if self._stop.requested:
            wish = launch.STOP
        # A signal may reach one rank only, or at different steps; a save needs all of them.
        stopping = self._ranks.agree_on_flags(wish) & launch.STOP
        if stopping or self._last % self._every == 0:
            self.save_checkpoint()
        if stopping and self._last < self._total:
            raise exits.TrainingStop(
                exits.PREEMPTED, str(self._stop.name or "a signal to another rank")
            )

    def save_checkpoint(self) -> None:
        """Save by ``engine.save_checkpoint``, record the checksums, delete older ones. Collective."""
        step = self.step_now
        if step == self._saved:
            return
        tag = f"global_step{step}"
        own = {"rng": self._ranks.all_gather(rng.capture_states()), "extra": self._extra}
        self._engine.save_checkpoint(self.out, tag=tag, client_state={"rgt": own})
        self._ranks.all_gather(step)  # all have written their files
        if self._recorder is not None:
            self._recorder.checkpoint(step, os.path.join(self.out, tag))
            for path in self._list_checkpoints()[: -self._keep]:
                remove_path(path)
        self._saved = step

    def __enter__(self) -> "RgtDeepSpeed":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        reason: str | None = None
        if error is None:
            self.save_checkpoint()
        elif isinstance(error, exits.TrainingStop):
            reason = error.cause
        else:
            reason = error_text(error)
        if self._recorder is not None:
            self._recorder.record_end(self.step_now, self._total, reason)
        self._stop.close()

    def _list_checkpoints(self) -> list[str]:
        """Return the checkpoints, the newest last."""
        found = glob.glob(os.path.join(glob.escape(self.out), "global_step*"))
        numbered = {path: path.rpartition("global_step")[2] for path in found}
        return sorted(
            (path for path in found if numbered[path].isdigit()),
            key=lambda path: int(numbered[path]),
        )

    def _find_newest(self, mirror: str) -> str:
        return newest_good(self.out, self._list_checkpoints(), mirror) or ""

    def _load_checkpoint(self, path: str) -> None:
        try:
            loaded, client = self._engine.load_checkpoint(self.out, tag=os.path.basename(path))
        # DeepSpeed raises assertions, KeyErrors and torch's errors for one and the same mistake.
        except Exception as error:
            raise exits.UsageError(
                f"DeepSpeed cannot load {path}: {type(error).__name__}: {error}. With ZeRO it "
                "takes the number of ranks and the settings with which it was saved"
            ) from error
        if loaded is None:
            raise exits.UsageError(f"DeepSpeed has loaded nothing from {path}")
        own = dict((client or {}).get("rgt") or {})
        self._states = list(own.get("rng") or [])
        if self._extra is not None and own.get("extra"):
            self._extra.update(own["extra"])

    def _restore_random(self) -> None:
        """Restore the random state of this rank, once, before the first batch that is used."""
        states = self._states
        self._states = []
        if len(states) == self._ranks.world:
            rng.restore_states(states[self._ranks.rank])
        elif states and self._ranks.is_writer:
            print_line("rgt: not restored: random state (another number of ranks)")
