"""Who does not come to which collective, by what flight recorders have written of a stuck launch, and by NCCL. Pure.

A dump is of one moment: it counts only as long as the launch has not gone on since.
"""

from __future__ import annotations

from collections.abc import Sequence

from rgt_tui.handbook import collectives, ras_output
from rgt_tui.handbook.collectives import Verdict
from rgt_tui.health.rank_progress import beat_of
from rgt_tui.model.protocol import Proc

WAITED_S = 20.0
"""For so long the ranks stand at least before anything is said."""
SLACK_S = 15.0
"""By so much the signs of a rank may be older or younger than its dump."""
OPEN_S, FRESH_S = 40.0, 300.0
"""Where nothing else tells whether ranks that compute all the time go on: so long a collective was open when the dump
was written, and so old it is at most."""


def recorded(ranks: Sequence[Proc], quiet: float | None, silent: float | None) -> Verdict | None:
    """Return what the dumps and NCCL show, the surest; None where they show nothing, or are of earlier.

    Args:
        ranks: The ranks of a launch that are there.
        quiet: Seconds since its curve went on; None = not known.
        silent: Seconds since its log went on.
    """
    dumps = []
    stands = False
    for proc in ranks:
        if proc.dist is None or proc.dist.flight is None:
            continue
        try:
            dumps.append(collectives.dump_of(proc.dist.flight, proc.dist.rank))
        except ValueError:
            continue
        stands = stands or _stands(proc, quiet, silent)
    found = [("flight recorder", verdict) for verdict in collectives.compared(dumps)] if stands else []
    if quiet is None or quiet >= WAITED_S:
        told = [proc.dist.ras for proc in ranks if proc.dist is not None and proc.dist.ras is not None]
        answers = [value for value in told if ras_output.is_ras_json(value)]
        found += [
            ("ncclras", verdict) for value in answers for verdict in ras_output.of_ras_json(value, twice=True)
        ]
    if not found:
        return None
    source, best = max(found, key=lambda one: one[1].confidence)
    return best._replace(text=f"{source}: {best.text}")


def _stands(proc: Proc, quiet: float | None, silent: float | None) -> bool:
    """Tell whether a rank has not gone on since its dump was written."""
    assert proc.dist is not None and proc.dist.flight is not None
    age, opened = _seconds(proc.dist.flight.get("age_s")), _seconds(proc.dist.flight.get("open_s"))
    since = max(age - SLACK_S, WAITED_S)
    beat = beat_of(proc)
    if beat is not None:
        return beat.for_s >= since
    if quiet is not None and quiet < since:
        return False
    if (proc.dist.still_s or 0.0) >= since or quiet is not None:
        return True
    if silent is not None:
        return silent >= since
    return (proc.dist.spin_s or 0.0) >= since and opened >= OPEN_S and age <= FRESH_S


def _seconds(value: object) -> float:
    return float(value) if isinstance(value, (int, float)) else 0.0
