"""What Slurm says of the job in which a training runs: where its output goes, and how it ended."""

from __future__ import annotations

import re

from rgt_box import background
from rgt_box.background import Background

TYPE_CHECKING = False
if TYPE_CHECKING:
    from rgt_box.found.run import Run

PERIOD, TIMEOUT = 30.0, 5.0
"""Seconds between two questions about a job, and for an answer."""
_FIELD = re.compile(r"(?:^|\s)(StdOut|JobState|ExitCode)=(\S+)")
NOT_ENDED = (
    "RUNNING", "COMPLETING", "SUSPENDED", "STOPPED", "PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD",
    "REQUEUE_FED", "RESIZING", "SIGNALING", "SPECIAL_EXIT", "STAGE_OUT",
)  # fmt: skip
WELL = "COMPLETED"
"""The one state of a job that ended well: the code of one that was cancelled or lost its node can be 0:0, too.
https://slurm.schedmd.com/job_state_codes.html
"""


def parse(text: str) -> dict[str, str]:
    """Return what matters of what ``scontrol show job`` prints."""
    return dict(_FIELD.findall(text))


def expanded(path: str, job: str) -> str:
    """Return a path with the job's number where Slurm left its mark for it (``%j``, ``%A``)."""
    return path.replace("%j", job).replace("%A", job)


class Jobs:
    """Asks ``scontrol`` in a thread.

    Args:
        seconds: Between two questions about one job.
    """

    def __init__(self, seconds: float = PERIOD) -> None:
        self._seconds = seconds
        self._jobs: dict[str, Background] = {}

    def _ask(self, job: str) -> dict[str, str]:
        if job not in self._jobs:
            if background.which("scontrol") is None:
                return {}
            words = ["scontrol", "show", "job", job]
            self._jobs[job] = Background(
                lambda: parse(background.run_program(words, TIMEOUT)), self._seconds, TIMEOUT * 2
            )
        return self._jobs[job].poll(0.0)[0] or {}

    def look(self, run: Run) -> None:
        """Add the job's output to the logs of a live run that has none of its own."""
        if run.session != "slurm" or not run.place or run.logs:
            return
        path = expanded(self._ask(run.place).get("StdOut", ""), run.place)
        if path.startswith("/") and path != "/dev/null":
            run.logs, run.silent = [path], ""

    def ending(self, run: Run) -> bool:
        """Note how an ended run's job ended; True when there is nothing more to ask.

        Slurm forgets a job some minutes after its end (MinJobAge), and only the job's own end is known, not a step's.
        """
        if run.session != "slurm" or not run.place:
            return True
        told = self._ask(run.place)
        state, code = told.get("JobState", ""), told.get("ExitCode", "")
        if not state or state in NOT_ENDED:
            return False
        self._jobs.pop(run.place, None)
        note = "Slurm job %s: %s" % (run.place, state)
        if note not in run.notes:
            run.notes.append(note)
        run.outcome = state
        number, _, signal = code.partition(":")
        if number.isdigit() and signal == "0" and (state == WELL or int(number)):
            run.exit_code = int(number)
        return True
