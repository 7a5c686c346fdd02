"""Is anything still working on the box? Only a fresh reading of the box itself can say no."""

from __future__ import annotations

from rgt_tui.gate.evaluate import AHEAD_S, MAX_AGE_S
from rgt_tui.gate.words import ago, listed, quoted
from rgt_tui.health.facts import MOVING_S, NO_QUEUE_MOVING_S, computing, trainers, unseen
from rgt_tui.model.box import BoxState, Link
from rgt_tui.model.evidence import EvidenceItem
from rgt_tui.model.protocol import Proc
from rgt_tui.model.run import RunState

FINISHED = frozenset({"done", "failed", "interrupted"})


def quiet(state: BoxState, now: float) -> EvidenceItem:
    """Say whether the box is quiet: a fresh sample, no training, no queue runner, nothing computing."""
    blind = _blind(state, now)
    reasons = [blind] if blind else _busy(state, now)
    if reasons:
        return EvidenceItem(key="quiet", ok=False, text="; ".join(reasons), at=state.sample_at)
    text = f"no training process, no queue runner; read {ago(state.sample_at, now)}"
    return EvidenceItem(key="quiet", ok=True, text=text, at=state.sample_at)


def _blind(state: BoxState, now: float) -> str | None:
    """Return why the box cannot be judged; None = it can."""
    if state.sample is None or state.sample_at is None:
        return f"no reading of the box ({quoted(state.reason)}): what runs on it is unknown"
    if state.link is not Link.LIVE:
        return f"the box is {state.link.value} ({quoted(state.reason)}): what runs on it now is unknown"
    age = now - state.sample_at
    if not -AHEAD_S <= age <= MAX_AGE_S["quiet"]:
        return f"the newest reading of the box is {age:.0f} s old: what runs on it now is unknown"
    if (why := unseen(state.sample)) is not None:
        return f"the box cannot be asked for its processes: {quoted(why)}"
    if state.hello is not None:
        lacking = [text for text in state.hello.limited if "process" in text.lower()]
        if lacking:
            return f"the box cannot be asked for its processes: {quoted(lacking[0])}"
    return None


def _busy(state: BoxState, now: float) -> list[str]:
    cells = {cell.name: cell.state for queue in state.queues for cell in queue.cells}
    running = [name for name, cell in cells.items() if cell == "running"]
    live = trainers(state.sample)
    reasons = []
    if live:
        reasons.append(_training(live, running, state.runs, now))
    for queue in state.queues:
        if queue.runner_alive:
            pid = f"pid {queue.runner_pid}" if queue.runner_pid is not None else "pid unknown"
            waiting = sum(cell.state == "waiting" for cell in queue.cells)
            reasons.append(f"the queue runner is alive ({pid}), {waiting} cells waiting")
    if not live:
        reasons += [
            _advanced(run, now)
            for run in state.runs
            if cells.get(run.name) not in FINISHED
            and run.progressed_at is not None
            and now - run.progressed_at < MOVING_S
        ]
        if busy := computing(state.sample):
            which = listed([f"GPU {gpu.index} {gpu.util:.0f} %" for gpu in busy])
            reasons.append(f"no training process is known, but something computes: {which}")
    return reasons


def _training(live: tuple[Proc, ...], running: list[str], runs: tuple[RunState, ...], now: float) -> str:
    pids = ", ".join(str(proc.pid) for proc in live[:4]) + ("…" if len(live) > 4 else "")
    names = running or [
        run.name for run in runs if run.progressed_at and now - run.progressed_at < NO_QUEUE_MOVING_S
    ]
    who = f"{listed(names)} is training" if names else "a training process is alive"
    text = f"{who}: pid {pids}"
    run = next((run for run in runs if len(names) == 1 and run.name == names[0]), None)
    if run is None or run.step is None:
        return f"{text}, {quoted(live[0].cmd, 60)}" if not names else text
    return f"{text}, step {run.step:,}, advanced {ago(run.progressed_at, now)}"


def _advanced(run: RunState, now: float) -> str:
    return f"{quoted(run.name)} advanced to step {run.step} {ago(run.progressed_at, now)}"
