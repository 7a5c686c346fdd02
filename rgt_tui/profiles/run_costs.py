"""What a run costs: the box's price and the run's own pace, per 1,000 steps and until its end."""

from __future__ import annotations

import msgspec

from rgt_tui.model.box import BoxState
from rgt_tui.model.money import Amount, MeterKind
from rgt_tui.model.protocol import Cell, FoundRun
from rgt_tui.model.run import RunState
from rgt_tui.profiles.prices import money, projected, rate

MOST_OFF = 2
"""A curve that counts from 0 begins within so many of its own intervals."""


class RunCost(msgspec.Struct, frozen=True, kw_only=True):
    """What the box costs while a run goes on. Runs that share a box at one time share this money, too."""

    per_1000_steps: Amount
    left_s: float | None = None
    """Seconds to its last step at the pace that it has had; None = how many steps it will make is not known."""
    to_end: Amount | None = None
    """What the box costs for `left_s`."""

    @property
    def words(self) -> str:
        """In short, e.g. ``$0.12/1k steps, $0.45 to go``."""
        price = self.per_1000_steps
        text = f"{money(price.value, price.currency, price.at_least)}/1k steps"
        end = self.to_end
        return text if end is None else f"{text}, {money(end.value, end.currency, end.at_least)} to go"


def run_cost(box: BoxState, name: str, now: float) -> RunCost | None:
    """Return what a run costs while it goes on; None where price, pace or start is not known: never free.

    The pace is that of the whole present attempt, start-up and standstill included, for they are paid as well.

    Args:
        box: Its state.
        name: Of the run.
        now: Client clock.
    """
    meter = box.meter
    per_hour = rate(meter)
    if per_hour is None or meter.kind is not MeterKind.COMPUTE_AND_STORAGE:
        return None
    pace = seconds_per_step(box, name, now)
    run = next((run for run in box.runs if run.name == name), None)
    if pace is None or run is None or run.step is None:
        return None
    left = None
    if run.total_steps is not None and run.total_steps >= run.step:
        left = (run.total_steps - run.step) * pace
    return RunCost(
        per_1000_steps=projected(per_hour, 1000.0 * pace),
        left_s=left,
        to_end=None if left is None else projected(per_hour, left),
    )


def seconds_per_step(box: BoxState, name: str, now: float) -> float | None:
    """Return the seconds that a step of a run that goes on has taken so far; None where nobody can say."""
    run = next((run for run in box.runs if run.name == name), None)
    if run is None or run.step is None:
        return None
    begun = _begun(box, run)
    if begun is None:
        return None
    started, first = begun
    took, steps = now + (box.clock_skew or 0.0) - started, run.step - first
    return took / steps if took > 0 and steps > 0 else None


def _begun(box: BoxState, run: RunState) -> tuple[float, int] | None:
    """Return when the present attempt of a run began (box clock), and at which step."""
    cells: dict[str, Cell] = {cell.name: cell for queue in box.queues for cell in queue.cells}
    cell = cells.get(run.name)
    if cell is not None:
        if cell.state != "running" or cell.started is None:
            return None
        return cell.started, run.resumes[-1].step if run.resumes else 0
    found: FoundRun | None = next((one for one in box.found if one.name == run.name), None)
    if found is None or not found.alive or not from_its_start(run):
        return None
    return found.started, 0


def from_its_start(run: RunState) -> bool:
    """Tell whether a training's steps are those of the process that runs: one that resumed made some of them before."""
    loss = run.series.get("loss")
    if run.resumes or loss is None or loss.dropped or len(loss) < MOST_OFF:
        return False
    steps = loss.columns()[0]
    return steps[0] <= MOST_OFF * (steps[1] - steps[0])
