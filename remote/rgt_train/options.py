"""How a run saves and logs."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Options:
    """Options of `Run`; the defaults are meant to be right.

    Attributes:
        save_every: Steps between checkpoints; 0 chooses them from the measured cost of a save.
        keep: Step checkpoints that stay.
        max_unsaved: Steps that may be unsaved while the disk refuses; 0 for two save intervals.
        hold_limit_s: Seconds the training waits for the disk before exit code 74.
        log_every: Steps between lines and points; 0 logs nothing.
        pace_s: Least seconds of a step. For demos and tests: the rest of the time is left to others.
        max_bad_steps: NaN or infinite steps in a row after which the run stops with exit code 1.
        unit: What the rate counts, ``tok`` or ``img``.
        per_sample: How many of them a sample has.
    """

    save_every: int = 0
    keep: int = 2
    max_unsaved: int = 0
    hold_limit_s: float = 1800.0
    log_every: int = 1
    pace_s: float = 0.0
    max_bad_steps: int = 5
    unit: str = "sample"
    per_sample: int = 1
