"""Guards of the steps: a NaN, a loss spike (skipped or rolled back), a step that never ends."""

from __future__ import annotations

import faulthandler
import json
import math
import os
import statistics
import threading
import time
from collections import deque
from dataclasses import dataclass
from typing import Any, Callable, Mapping, Sequence, TypeVar

import torch

from rgt_train import exits
from rgt_train.checkpoint.diskio import StrPath, fsync_dir, remove_path, replace_file
from rgt_train.data.position import Progress
from rgt_train.tracking.report import RunReport, print_line

ENOUGH = 24
"""Losses needed before a spike is judged."""
LEFT_OUT_FILE = "left-out.json"

T = TypeVar("T")


@dataclass(frozen=True)
class LossSpike:
    """A loss that is an outlier.

    Attributes:
        loss: The loss.
        median: Median of the previous losses.
        spread: Their spread (scaled median absolute deviation).
    """

    loss: float
    median: float
    spread: float

    def __str__(self) -> str:
        factor = (self.loss - self.median) / self.spread
        usual = f"the median {self.median:.4f} (spread {self.spread:.4f})"
        return f"loss {self.loss:.4f} is {factor:.1f} spreads above {usual}"


def find_spike(losses: Sequence[float], loss: float, factor: float) -> LossSpike | None:
    """Return the spike that `loss` is after `losses`, or None.

    Args:
        losses: The previous losses, finite, without spikes.
        loss: The one to judge, finite.
        factor: Spreads above the median from which on it is a spike.
    """
    if len(losses) < ENOUGH or not math.isfinite(loss):
        return None
    middle = _median(losses)
    # Standard deviations in a median absolute deviation if the losses are normally distributed.
    sigma = 1.4826
    # Minimum spread, as a share of the median: below it, small variations of a quiet period would
    # count as spikes.
    least_spread = 0.01
    spread = max(
        # The median deviation: a standard deviation would grow with the very outliers it must find.
        sigma * _median([abs(value - middle) for value in losses]),
        least_spread * abs(middle),
        1e-12,
    )
    if loss > middle + factor * spread:
        return LossSpike(loss, middle, spread)
    return None


def _median(values: Sequence[float]) -> float:
    ordered = sorted(values)
    half = len(ordered) // 2
    if len(ordered) % 2:
        return ordered[half]
    return (ordered[half - 1] + ordered[half]) / 2


SPIKE_ACTIONS = ("ignore", "warn", "skip", "rollback")
NEW_LEVEL = 8
"""Spikes in a row after which the losses are assumed to have a new level."""


@dataclass(frozen=True)
class GuardRules:
    """Limits of the guard.

    Attributes:
        max_bad_steps: NaN or infinite steps in a row after which the run ends.
        spike: Reaction to a loss spike, one of `SPIKE_ACTIONS`.
        spike_factor: Spreads above the median from which on a loss is a spike.
        spike_window: Steps that a rollback leaves out; the last of them is the spike.
        max_rollbacks: Rollbacks after which a further spike ends the run.
    """

    max_bad_steps: int = 5
    spike: str = "warn"
    spike_factor: float = 10.0
    spike_window: int = 1
    max_rollbacks: int = 3

    def check(self) -> None:
        """Check the rules.

        Raises:
            UsageError: `spike` is not an action.
        """
        if self.spike not in SPIKE_ACTIONS:
            raise exits.UsageError(f"spike is {self.spike!r}: use {', '.join(SPIKE_ACTIONS)}")


class StepGuard:
    """Judges a step before it is applied.

    Its whole memory is in `progress`, so that a resume judges as the uninterrupted run would.

    Args:
        report: Receives messages about a bad step.
        progress: The counters that are saved.
        rules: The limits.
        named: Returns which gradient or weight is not finite, in words.
        go_back: Records that the steps from the first to the last are left out; False if the run
            cannot go back.
    """

    def __init__(
        self,
        report: RunReport,
        progress: Progress,
        rules: GuardRules,
        named: Callable[[], str] = lambda: "",
        go_back: Callable[[int, int], bool] = lambda first, last: False,
    ) -> None:
        rules.check()
        self._report = report
        self._progress = progress
        self._rules = rules
        self._named = named
        self.go_back = go_back

    def is_healthy(self, loss: float, grad_norm: float) -> bool:
        """Return whether the step may be applied; otherwise count it as skipped.

        Raises:
            TrainingStop: Too many steps in a row were not finite, or too many rollbacks (exit code
                1).
            RollbackStop: The run goes back to before a spike (exit code 75).
        """
        if not (math.isfinite(loss) and math.isfinite(grad_norm)):
            self._nonfinite(loss, grad_norm)
            return False
        self._progress.bad_row = 0
        return self._passes_spike_rule(loss)

    def _nonfinite(self, loss: float, grad_norm: float) -> None:
        p = self._progress
        p.bad_row += 1
        p.bad_total += 1
        step = p.step + 1
        where = self._position_text()
        found = self._named()
        self._report.print_line(
            f"step {step} skipped: loss {loss}, gradient norm {grad_norm} "
            f"({where}; {p.bad_row} in a row, {p.bad_total} in all)"
            + (f"; {found}" if found else "")
        )
        self._report.append_event(
            "nonfinite",
            step,
            loss=loss,
            grad_norm=grad_norm,
            row=p.bad_row,
            total=p.bad_total,
            where=found,
        )
        if p.bad_row >= self._rules.max_bad_steps:
            self._report.print_line(
                f"stopping: {p.bad_row} steps in a row were not finite, the last is step {step} "
                f"({where})" + (f"; {found}" if found else "")
            )
            raise exits.TrainingStop(exits.FAILED, "nonfinite")

    def _passes_spike_rule(self, loss: float) -> bool:
        p = self._progress
        rules = self._rules
        if rules.spike == "ignore":
            return True
        found = find_spike(p.recent, loss, rules.spike_factor)
        if found is None:
            p.spike_row = 0
            self._remember_loss(loss)
            return True
        step = p.step + 1
        where = self._position_text()
        action = rules.spike
        p.spike_row += 1
        if p.spike_row >= NEW_LEVEL:
            self._report.print_line(
                f"step {step}: {found} ({where}), {p.spike_row} in a row: taken as the new level"
            )
            self._report.append_event(
                "spike", step, loss=loss, median=found.median, action="accepted"
            )
            # The old losses would keep calling the new level a spike.
            p.recent = [loss]
            p.spike_row = 0
            return True
        if action == "rollback":
            action = self._roll_back(step, found, where)
        self._report.print_line(f"step {step}: {found} ({where}); {_DONE[action]}")
        self._report.append_event(
            "spike", step, loss=loss, median=found.median, spread=found.spread, action=action
        )
        if action == "warn":
            self._remember_loss(loss)
            return True
        return False

    def _roll_back(self, step: int, found: LossSpike, where: str) -> str:
        p = self._progress
        rules = self._rules
        if len(p.left_out) >= rules.max_rollbacks:
            self._report.print_line(
                f"stopping: step {step}: {found} ({where}), after {len(p.left_out)} rollbacks; "
                "look at the data there, lower the learning rate, or set spike to skip"
            )
            raise exits.TrainingStop(exits.FAILED, "spike")
        first = max(1, step - rules.spike_window + 1)
        if not self.go_back(first, step):
            return "skip"
        self._report.print_line(
            f"step {step}: {found} ({where}); going back, leaving out steps {first} to {step}"
        )
        self._report.append_event(
            "spike", step, loss=found.loss, median=found.median, action="rollback", first=first
        )
        raise RollbackStop(first, step)

    def _remember_loss(self, loss: float) -> None:
        # Number of remembered losses.
        history = 64
        self._progress.recent = [*self._progress.recent, loss][-history:]

    def _position_text(self) -> str:
        p = self._progress
        return f"epoch {p.epoch + 1}, step {p.done_steps + 1} of it"


_DONE = {"warn": "applied all the same", "skip": "skipped"}


def nonfinite(models: Mapping[str, torch.nn.Module], optimizer: Any = None) -> str:
    """Return in words which weights or gradients are not finite; empty if all are.

    A backward pass carries a NaN from the output towards the input, and clipping by a NaN norm
    spoils every gradient: so call this before clipping. Of several, the last in the model's order
    is nearest to the origin.

    Args:
        models: Name → module.
        optimizer: If it has ``param_groups``, the group is named too.
    """
    named = [
        (f"{model}.{name}" if len(models) > 1 else name, parameter)
        for model, module in models.items()
        for name, parameter in module.named_parameters()
    ]
    weights = [(name, p) for name, p in named if not _is_finite(p)]
    if weights:
        # Weights first: if they are bad, so are all gradients, and the origin is an earlier step.
        name, parameter = weights[0]
        return (
            f"{len(weights)} of {len(named)} weights are not finite, the first is {name}"
            f"{_group_text(parameter, optimizer)} ({_nonfinite_text(parameter)})"
        )
    grads = [(name, p) for name, p in named if p.grad is not None]
    bad: list[tuple[str, Any]] = [
        (name, p) for name, p in grads if p.grad is not None and not _is_finite(p.grad)
    ]
    if not bad:
        return ""
    if len(bad) == len(grads):
        name, parameter = bad[-1]
        return (
            f"all {len(grads)} gradients are not finite (from the loss on, or clipped before this "
            f"was asked), the last is {name}{_group_text(parameter, optimizer)} "
            f"({_nonfinite_text(parameter.grad)})"
        )
    name, parameter = bad[-1]
    return (
        f"{len(bad)} of {len(grads)} gradients are not finite, nearest to the loss is {name}"
        f"{_group_text(parameter, optimizer)} ({_nonfinite_text(parameter.grad)})"
    )


def _is_finite(tensor: torch.Tensor) -> bool:
    return bool(torch.isfinite(tensor.detach()).all())


def _nonfinite_text(tensor: torch.Tensor) -> str:
    values = tensor.detach()
    nan = int(torch.isnan(values).sum())
    bad = int((~torch.isfinite(values)).sum())
    return f"{nan} NaN and {bad - nan} infinite of {values.numel()}"


def _group_text(parameter: Any, optimizer: Any) -> str:
    for number, group in enumerate(getattr(optimizer, "param_groups", ())):
        if any(entry is parameter for entry in group["params"]):
            label = group.get("name")
            return f" of parameter group {number}" + (f" ({label})" if label else "")
    return ""


@dataclass(frozen=True)
class StallRules:
    """When a step counts as stalled.

    Attributes:
        factor: A step may take this many median steps; 0 switches the watchdog off.
        floor_s: A shorter step never counts as stalled (a first batch, a recompilation, a slow
            disk).
        exit_code: Exit with this code after reporting a stall; 0 keeps waiting.
    """

    factor: float = 20.0
    floor_s: float = 300.0
    exit_code: int = 0


class StallReporter:
    """Reports a stall to the log, to the metrics and, if the process will exit, to the run log.

    Args:
        report: Lines and events.
        progress: The step.
        run_log: Records how the attempt ends.
        exit_code: The exit code; 0 if the process continues.
    """

    def __init__(self, report: RunReport, progress: Progress, run_log: Any, exit_code: int) -> None:
        self._report = report
        self._progress = progress
        self._run_log = run_log
        self._exit = exit_code

    def __call__(self, spent: float, limit: float, path: str) -> None:
        """Report that there was no step for `spent` seconds; the stacks are in `path`."""
        step = self._progress.step
        self._report.print_line(
            f"stalled: no step for {spent:.0f} s (limit {limit:.0f} s) after step {step}; "
            f"the stacks of all threads are in {path}"
        )
        self._report.append_event(
            "stalled", step, seconds=round(spent, 1), limit=round(limit, 1), path=path
        )
        if self._exit:
            self._run_log.record_end(step, "stalled")


class Watchdog:
    """Watches the time since the last beat from a separate thread.

    A thread needs the interpreter lock to run; a call that never releases it would block the
    thread. So the thread also rearms `faulthandler`'s own timer, which needs no lock: it fires when
    the thread is blocked too.

    Args:
        out: Directory of the stack dumps.
        rules: When a step is stalled.
        tell: Called once per stall with seconds, the limit and the file of the dump.
    """

    def __init__(
        self, out: StrPath, rules: StallRules, tell: Callable[[float, float, str], None]
    ) -> None:
        self._rules = rules
        self._tell = tell
        self.path = os.path.join(out, "stalls.log")
        # Number of step times from which the limit is computed.
        steps_limit = 32
        self._times: deque[float] = deque(maxlen=steps_limit)
        self._last = time.monotonic()
        self._told = False
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None
        if rules.factor > 0:
            self._thread = threading.Thread(
                target=self._watch_steps, name="rgt-watchdog", daemon=True
            )
            self._thread.start()

    def note_step(self) -> None:
        """Note that a step has ended."""
        now = time.monotonic()
        self._times.append(now - self._last)
        self._last = now
        self._told = False

    def note_alive(self) -> None:
        """Note a sign of life other than a step (a validation batch, a save)."""
        self._last = time.monotonic()
        self._told = False

    def limit_s(self) -> float:
        """Return the seconds after which a step is stalled."""
        times = list(self._times)
        usual = 0.0
        if times:
            usual = statistics.median(times)
        return max(self._rules.floor_s, self._rules.factor * usual)

    def close(self) -> None:
        """Stop watching."""
        self._closing.set()
        # The call may close the run from this very thread.
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()

    def _watch_steps(self) -> None:
        try:
            # An eighth of the limit, so that a stall is reported at most that late.
            while not self._closing.wait(min(5.0, max(0.02, self.limit_s() / 8))):
                limit = self.limit_s()
                # Twice the limit: it fires only if this thread has been blocked that long too.
                faulthandler.dump_traceback_later(
                    2 * limit, exit=self._rules.exit_code != 0, file=2
                )
                spent = time.monotonic() - self._last
                if spent > limit and not self._told:
                    self._told = True
                    self._report_stall(spent, limit)
        finally:
            faulthandler.cancel_dump_traceback_later()

    def _report_stall(self, spent: float, limit: float) -> None:
        # By faulthandler, in C: it needs no lock that a stuck thread may hold.
        faulthandler.dump_traceback(2, all_threads=True)
        self._tell(spent, limit, self.path if self._keep_dump(spent, limit) else "stderr")
        if self._rules.exit_code:
            os._exit(
                self._rules.exit_code
            )  # the main thread is stuck: nothing else ends the process

    def _keep_dump(self, spent: float, limit: float) -> bool:
        stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        try:
            with open(self.path, "ab", buffering=0) as log:
                log.write(f"--- {stamp} no step for {spent:.1f} s (limit {limit:.1f} s)\n".encode())
                faulthandler.dump_traceback(log, all_threads=True)
        except OSError:
            return False
        return True


# Rolls back to before a loss spike, and skips the steps that led to it.
#
# The decision is written into the run directory before anything else happens, and every later
# checkpoint contains it. So a kill at any instant changes nothing: the next launch goes back to a
# checkpoint from before the first step that is left out, and gets the same bits as the launch that
# was not killed.


class RollbackStop(exits.TrainingStop):
    """Ends this attempt so that the next one goes back; the next launch does so automatically."""

    saves = False

    def __init__(self, first: int, last: int) -> None:
        super().__init__(exits.PREEMPTED, f"rollback: steps {first} to {last} are left out")


@dataclass(frozen=True)
class RollbackDecision:
    """The decision stored in the run directory.

    Attributes:
        steps: Ranges of optimizer steps that are left out, first and last of each, from 1.
        before: Checkpoints of this step and later ones must still be deleted; 0 if none.
    """

    steps: "tuple[tuple[int, int], ...]" = ()
    before: int = 0


def read_left_out(out: StrPath) -> RollbackDecision:
    """Return the decision in `out`; an empty one without one.

    Raises:
        UsageError: The file cannot be understood: continuing would train on steps to leave out.
    """
    path = os.path.join(out, LEFT_OUT_FILE)
    try:
        with open(path, encoding="utf-8") as file:
            body = json.load(file)
        return RollbackDecision(
            tuple((int(a), int(b)) for a, b in body["steps"]), int(body["before"])
        )
    except FileNotFoundError:
        return RollbackDecision()
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise exits.UsageError(
            f"{path} cannot be read ({error}): it lists the steps that are left out; restore or "
            "remove it"
        ) from error


def write_left_out(out: StrPath, decision: RollbackDecision) -> None:
    """Make `decision` durable.

    Raises:
        OSError: The previous decision stays in force.
    """
    body = {"steps": [list(pair) for pair in decision.steps], "before": decision.before}
    replace_file(os.path.join(out, LEFT_OUT_FILE), (json.dumps(body) + "\n").encode())


def remove_rolled_back(out: StrPath, root: StrPath, places: Sequence[tuple[int, str]]) -> list[int]:
    """Remove the checkpoints after the rollback target; return their steps.

    Done at the start of a launch, and only once: afterwards the decision no longer requests it, so
    that later checkpoints are safe.

    Args:
        out: The run directory.
        root: Directory of the step checkpoints.
        places: Step and directory of the existing ones.

    Raises:
        UsageError: The end of this work could not be recorded.
    """
    decision = read_left_out(out)
    if not decision.before:
        return []
    gone = []
    for step, path in places:
        if step < decision.before:
            continue
        gone.append(step)
        aside = os.path.join(os.fspath(root), f".old-{os.path.basename(path)}-rollback")
        remove_path(aside)
        os.rename(path, aside)  # never a half-deleted directory under a published name
        remove_path(aside)
    try:
        if gone:
            fsync_dir(root)
        # After the removal: a kill in between removes again, and never keeps a rolled-back one.
        write_left_out(out, RollbackDecision(decision.steps, 0))
    except OSError as error:
        raise exits.UsageError(
            f"cannot note the rollback in {out}: {error}; free space and launch again"
        ) from error
    return gone


def decide_rollback(
    out: StrPath, steps: Sequence[int], first: int, last: int, say: Callable[[str], None]
) -> bool:
    """Record that the steps from `first` to `last` are left out; return False if impossible.

    Args:
        out: The run directory.
        steps: Steps of the existing checkpoints, ascending. If only later ones are left, nothing is
            decided: the run would have to start again.
        first: The first step that is left out.
        last: The last one.
        say: Receives the reason if it could not be recorded.
    """
    if steps and steps[0] >= first:
        return False
    decision = read_left_out(out)
    try:
        write_left_out(out, RollbackDecision((*decision.steps, (first, last)), first))
    except OSError as error:
        say(f"no rollback, the decision could not be kept: {error}")
        return False
    return True


def until_done(main: Callable[[], T]) -> T:
    """Call `main`, and again after each rollback: it builds everything and creates the `Run`.

    Returns:
        The result of `main`.
    """
    while True:
        try:
            return main()
        except RollbackStop as back:
            print_line(f"going back: {back.cause}")
