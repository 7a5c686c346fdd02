"""The options of how a run saves and logs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Mapping, Tuple

from rgt_train.exits import UsageError


@dataclass(frozen=True)
class Options:
    """Options of `Run`; the defaults are meant to be right.

    Attributes:
        save_every: Steps between checkpoints; 0 chooses them from the measured cost of a save.
        keep: Step checkpoints that stay: so many of the newest.
        keep_hours: One more stays for each stretch of so many hours; 0 for none.
        mirror: Where a second copy of the checkpoints goes: an absolute path or an fsspec URL; empty for none.
        background: Whether saves are copied beside the training and written by another process.
        platform: Kind of machine, for how often it is expected to fail: ``spot``, ``rented``, ``session``, ``batch``,
            ``owned``; empty looks at the environment.
        max_unsaved: Steps that may be unsaved while the disk refuses; 0 for two save intervals.
        hold_limit_s: Seconds the training waits for the disk before exit code 74.
        log_every: Steps between lines and points; 0 logs nothing.
        pace_s: Least seconds of a step. For demos and tests: the rest of the time is left to others.
        max_bad_steps: NaN or infinite steps in a row after which the run stops with exit code 1.
        unit: What the rate counts, ``tok`` or ``img``.
        per_sample: How many of them a sample has.
        loggers: Where points go beside ``metrics.jsonl``: ``tensorboard``, ``wandb``, ``trackio``.
        project: The project's name at W&B or trackio.
        spike: What a loss spike leads to: ``ignore``, ``warn``, ``skip`` or ``rollback``.
        spike_factor: Spreads above the running median from which on a loss is a spike.
        spike_window: Steps that a rollback leaves out, the spike being the last.
        stall_factor: Times the median step after which a step counts as stalled; 0 does not watch.
        stall_floor_s: Seconds below which no step counts as stalled.
        stall_exit: Exit code with which a stalled run leaves; 0 tells and waits.
        desync_every: With several ranks: saves between two comparisons of their replicas; 0 never compares.
        override: Hyperparameters, such as ``lr``, ``weight_decay`` or ``T_max``, that a resume takes from the code
            where they were edited; else the checkpoint's go on.
        settings: Plain values whose change should be told at a resume, and that further logs and ``run.json`` get.
        overrides: Those of them that the person gave, for ``run.json``.
    """

    save_every: int = 0
    keep: int = 2
    keep_hours: float = 0.0
    mirror: str = ""
    background: bool = True
    platform: str = ""
    max_unsaved: int = 0
    hold_limit_s: float = 1800.0
    log_every: int = 1
    pace_s: float = 0.0
    max_bad_steps: int = 5
    unit: str = "sample"
    per_sample: int = 1
    loggers: Tuple[str, ...] = ()
    project: str = "rgt"
    spike: str = "warn"
    spike_factor: float = 10.0
    spike_window: int = 1
    stall_factor: float = 20.0
    stall_floor_s: float = 300.0
    stall_exit: int = 0
    desync_every: int = 1
    override: Tuple[str, ...] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)
    overrides: Mapping[str, Any] = field(default_factory=dict)

    def check(self) -> None:
        """See that the numbers are in their range.

        Raises:
            UsageError: One is not.
        """
        for name, least in _LEAST.items():
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not value >= least:
                raise UsageError(f"Options({name}={value!r}): it must be a number, at least {least}")


_LEAST = {
    "save_every": 0, "keep": 1, "keep_hours": 0, "max_unsaved": 0, "hold_limit_s": 0, "log_every": 0, "pace_s": 0,
    "max_bad_steps": 1, "spike_factor": 0, "spike_window": 1, "stall_factor": 0, "stall_floor_s": 0, "desync_every": 0,
}  # fmt: skip
"""The least values of the options that are numbers."""
