"""A runner as a Slurm job: the batch script, its submission, and whether it is still in Slurm's queue."""

from __future__ import annotations

import os

from rgt_box import files
from rgt_box.cells import template
from rgt_box.cells.jobfile import Job
from rgt_box.cells.tmux import session_name

SCRIPT, RECORD = "runner.sbatch", "runner.slurm"
ANSWERS_WITHIN = 60.0

HEAD = """\
#!/bin/sh
#SBATCH --job-name=%(name)s
#SBATCH --output=%(output)s
#SBATCH --open-mode=append
#SBATCH --requeue
#SBATCH --signal=B:TERM@180
#SBATCH --export=ALL
%(array)s%(own)sexec %(words)s
"""
"""``exec`` makes the runner the batch step itself, so that Slurm's own TERM, at a cancel or at the end of the time,
reaches it and the cell can save; ``B:`` asks for it three minutes before the end of the time. The cell itself hears
of it from the runner alone. ``--requeue``: what is preempted, or lost with its node, starts again by itself."""


class Refused(Exception):
    """Slurm did not take the job; the message says why."""


def script(job: Job, words: list[str], indexes: list[int] | None = None) -> str:
    """Return the batch script of a job.

    Args:
        job: The job; its ``sbatch`` options come last, so that they win.
        words: The command line of the runner.
        indexes: The cells of which each becomes a task of a job array; None = one runner for all.

    Raises:
        Refused: when a name cannot stand in a batch script.
    """
    options = [str(option) for option in job.settings["sbatch"]]
    for text in options + [job.folder]:
        if "\n" in text or "\r" in text:
            raise Refused("%r holds a line end, which a batch script cannot" % text)
    return HEAD % {
        "name": session_name(job.folder),
        # Slurm fills in %x and %j; a percent sign of the path itself is doubled.
        "output": _quoted(job.path("runner.out").replace("%", "%%") + ("" if indexes is None else ".%a")),
        "array": ""
        if indexes is None
        else "#SBATCH --array=%s%%%d\n" % (ranges(indexes), job.settings["parallel"]),
        "own": "".join("#SBATCH %s\n" % option for option in options),
        "words": " ".join(template.quoted(word) for word in words),
    }


def ranges(indexes: list[int]) -> str:
    """Return numbers as sbatch takes them: ``0-3,7``."""
    out: list[list[int]] = []
    for index in sorted(set(indexes)):
        if out and index == out[-1][1] + 1:
            out[-1][1] = index
        else:
            out.append([index, index])
    return ",".join("%d" % low if low == high else "%d-%d" % (low, high) for low, high in out)


def _quoted(text: str) -> str:
    return '"%s"' % text if " " in text else text


def submit(job: Job, words: list[str], indexes: list[int] | None = None) -> str:
    """Submit the runner, or an array of runners; returns the job's number.

    Raises:
        Refused: with what sbatch said.
    """
    text = script(job, words, indexes)
    path = job.path(SCRIPT)
    try:
        files.replace(path, text.encode("utf-8", "surrogateescape"), sync=True, mode=0o755)
    except OSError as error:
        raise Refused("%s: %s" % (path, error.strerror)) from error
    status, out, err = ask(["sbatch", "--parsable", path], job.folder)
    number = out.strip().split(";")[0]
    if status or not number.isdigit():
        raise Refused("sbatch: %s" % (err.strip() or out.strip() or "exit %d" % status))
    files.write_json(job.path(RECORD), {"id": number})
    return number


def waiting(job: Job) -> tuple[str, str] | None:
    """Return (number, state) of the job's last submission while Slurm still knows it as unfinished.

    Raises:
        Refused: when Slurm cannot be asked: a second runner must not be submitted on a guess.
    """
    number = (files.read_json(job.path(RECORD)) or {}).get("id")
    if not isinstance(number, str) or not number.isdigit():
        return None
    status, out, err = ask(["squeue", "-h", "-j", number, "-o", "%T"], job.folder)
    if status and "invalid job id" not in err.lower():
        raise Refused("squeue: %s" % (err.strip() or "exit %d" % status))
    state = ", ".join(sorted(set(out.split())))
    return (number, state) if state and not status else None


def ask(words: list[str], folder: str) -> tuple[int, str, str]:
    """Run one of Slurm's programs in a directory; returns its exit status and what it says on its two outputs.

    Raises:
        Refused: it cannot be run, or does not answer.
    """
    import subprocess

    try:
        done = subprocess.run(
            words,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            timeout=ANSWERS_WITHIN,
            env=dict(os.environ, LC_ALL="C"),
        )
    except OSError as error:
        raise Refused("%s: %s; is this a login node of the cluster?" % (words[0], error.strerror)) from error
    except subprocess.TimeoutExpired:
        raise Refused("%s did not answer within %d s" % (words[0], ANSWERS_WITHIN)) from None
    return done.returncode, done.stdout.decode("utf-8", "replace"), done.stderr.decode("utf-8", "replace")
