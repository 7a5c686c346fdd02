"""How a run ends: with its result on the disk and on the mirror, or asked to stop and saved."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any, Callable, Optional

from rgt_train import exits, resume
from rgt_train.mirror.client import Mirror
from rgt_train.parallel.crew import Crew
from rgt_train.progress import Progress
from rgt_train.report import Report
from rgt_train.signals import StopRequest

MIRROR_GRACE_S = 20.0
"""Seconds for which a run that was asked to stop waits for its mirror; most platforms give 30."""


@dataclass(frozen=True)
class Ending:
    """What the end of a run needs of it.

    Attributes:
        out: The run directory.
        progress: Where it stands.
        epochs: Epochs in all.
        hold_limit_s: Seconds it waits for the disk or the mirror.
        saver: Its `Saver`; on a rank that is led, what stands in for it.
        mirror: The second copy, if there is one.
        report: Lines and events.
        ledger: The diary.
        stop: Whether a signal asks for the end.
        crew: The ranks.
        restore_rng: Puts the random state back, where no batch was asked for yet.
    """

    out: str
    progress: Progress
    epochs: int
    hold_limit_s: float
    saver: Any
    mirror: Optional[Mirror]
    report: Report
    ledger: Any
    stop: StopRequest
    crew: Crew
    restore_rng: Callable[[], None]

    def finish(self) -> None:
        """Save the last state and write the result; wait for the disk if it must be. For the writer.

        Raises:
            Stop: A signal asked for the end meanwhile (75), or neither disk nor mirror took it (74).
        """
        p = self.progress
        if p.epoch < self.epochs:
            self.saver.save(p.step)
            self.ledger.end(p.step, "left early")
            return
        result = {"step": p.step, "loss": p.loss, "best": p.best}
        path = resume.result_path(self.out)

        def kept() -> bool:
            return bool(self.saver.save(p.step, loud=False) and self.saver.write(p.step, path, result))

        if self.saver.save(p.step) and not self._mirrored(self.hold_limit_s, self.stop.wait):
            self._give_up(p.step)
        if not kept():
            self.saver.hold(p.step, kept)
            self._give_way()
        self.report.event("done", p.step)
        self.ledger.end(p.step, "done")
        self.report.say(f"done: step {p.step}  loss {p.loss}  best {p.best}")

    def leave(self, stop: exits.Stop) -> None:
        """Save where that makes sense, and tell why the run ends. On every rank."""
        p = self.progress
        if stop.code == exits.PREEMPTED and stop.saves:
            self.restore_rng()
            self.crew.do(lambda: self._save(stop))
        self.report.event("stop", p.step, reason=stop.cause)
        self.ledger.end(p.step, stop.cause)

    def _save(self, stop: exits.Stop) -> None:
        p = self.progress
        self.report.say(f"{stop.cause} at step {p.step}: saving, then exit {exits.PREEMPTED}")
        if p.step == 0 and not p.micro:
            self.report.say("nothing to save yet")
        elif not self.saver.save(p.step, force=p.micro > 0):
            self.report.say(
                f"step {p.step} could not be saved; a relaunch goes on from the last good checkpoint"
            )
        self._mirrored(MIRROR_GRACE_S, _sleep)

    def _give_way(self) -> None:
        """End here where a signal asked for it while the end of the run was being kept."""
        if self.stop.requested:
            self.leave(exits.Stop(exits.PREEMPTED, str(self.stop.name)))
            raise exits.Stop(exits.PREEMPTED, str(self.stop.name))

    def _give_up(self, step: int) -> None:
        """End without a result: the mirror has not taken the last checkpoint, and a relaunch must try again."""
        self._give_way()
        self.ledger.end(step, "mirror")
        self.report.event("stop", step, reason="mirror")
        raise exits.Stop(exits.NO_SPACE, "mirror")

    def _mirrored(self, seconds: float, wait: Callable[[float], bool]) -> bool:
        def waiting(turn: float) -> bool:
            self.crew.order("nothing")  # the other ranks hear that this one is alive
            return wait(turn)

        return self.mirror is None or self.mirror.finish(seconds, waiting)


def _sleep(seconds: float) -> bool:
    time.sleep(seconds)
    return False
