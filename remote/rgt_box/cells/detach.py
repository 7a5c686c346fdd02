"""The ``detach`` verb: start the runner so that it outlives the SSH connection."""

from __future__ import annotations

import os
import sys
import time

from rgt_box import files, jsonline, options, place
from rgt_box.background import which
from rgt_box.cells import check, jobfile, kubernetes, lanes, slurm, states, tmux
from rgt_box.cells.tmux import session_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

HELP = """
usage: detach --job DIR [-- ARGUMENTS OF queue run]
       detach --job DIR --print slurm
       detach --job DIR --print k8s --image IMAGE --claim NAME:/MOUNT [--gpus N] [--python CMD] [--agent FILE]

Check the queue, then start its runner detached, as "detach" in job.json says:
  auto     in a tmux session named after the job, else by setsid (the default)
  tmux     in tmux or not at all
  setsid   in a session of its own, without a terminal
  slurm    as a Slurm job; "sbatch" in job.json lists more options, like "--gres=gpu:1". With "parallel": N in
           job.json it is a job array: a task for each cell that is not done, N of them at a time

Prints one JSON line {"how": "tmux" | "setsid" | "slurm" | "running" | "ended", "session": ..., "pid": ...}. Of Slurm,
"session" is the job's number. A runner that is alive, or waits in Slurm's queue, is left alone (exit 0).

  --print slurm  print the batch script instead
  --print k8s    print a Kubernetes Job instead, an indexed one with "parallel". The job directory, and the directories
                 that it names, must lie on the claims; --python (python3) and --agent (this file) are their names
                 inside of the container

Exit status: 0 started, or alive already, 1 it did not start, 2 it cannot be run.

Example: detach --job ~/jobs/sweep -- --from 3
"""
SPEC = {
    "--job": "str", "--print": "str", "--image": "str", "--claim": "list", "--gpus": "int", "--python": "str",
    "--agent": "str",
}  # fmt: skip
STARTED_WITHIN = 10.0

__all__ = ["HELP", "main", "session_name"]


def main(argv: list[str]) -> int:
    """Run the verb; returns the exit status."""
    found = options.parse_or_exit(argv, SPEC, HELP)
    if not found["job"]:
        return _refuse("--job DIR is missing")
    job = jobfile.Job(found["job"])
    words = place.command("queue", "run", "--job", job.folder) + found["rest"]
    if job.settings["parallel"] > 1:
        if found["rest"]:
            return _refuse(
                'with "parallel" every cell has a task of its own: no argument after -- has a meaning'
            )
        words = place.command("queue", "cell", "--job", job.folder)
    try:
        if found["print"]:
            return _print(job, found, words)
        return _start(job, words)
    except (slurm.Refused, kubernetes.Wrong) as error:
        return _refuse(str(error))


def _print(job: jobfile.Job, found: dict[str, Any], words: list[str]) -> int:
    if found["print"] == "slurm":
        text = slurm.script(job, words, _indexes(job))
    elif found["print"] == "k8s":
        if not found["image"]:
            return _refuse("--print k8s needs --image IMAGE")
        inside = [found["python"] or "python3", "-I", "-S", found["agent"] or place.command()[-1]]
        inside += words[len(place.command()) :]
        cells = freeze(job) if job.settings["parallel"] > 1 else []
        text = kubernetes.manifest(
            job, inside, found["image"], found["claim"], found["gpus"] or 0, len(cells)
        )
    else:
        return _refuse("--print knows slurm and k8s, not %s" % found["print"])
    sys.stdout.buffer.write(text.encode("utf-8", "surrogateescape"))
    return 0


def _start(job: jobfile.Job, words: list[str]) -> int:
    if files.is_locked(job.path("runner.lock")):
        return _tell("running", None, _runner_pid(job))
    problems = check.check(job).problems
    if problems:
        print("\n".join(problems), file=sys.stderr)
        return 2
    how = job.settings["detach"]
    if how == "slurm":
        queued = slurm.waiting(job)
        return _tell("slurm", queued[0] if queued else slurm.submit(job, words, _indexes(job)), None)
    before = files.signature(job.path("state.json"))
    session = tmux.start(job, words) if how != "setsid" and which("tmux") else None
    if session is None and how == "tmux":
        return _refuse('"detach" in job.json wants tmux, and there is none here or it refuses')
    if session is None:
        from rgt_box.recorder.control import detach  # here: only this path forks

        detach(words, job.path("runner.out"))
    return _await(job, "tmux" if session else "setsid", session, before)


def _indexes(job: jobfile.Job) -> list[int] | None:
    """Return the places of the cells that are not done, where each gets a task of its own; None where not."""
    if job.settings["parallel"] == 1:
        return None
    lines, _ = job.lines()
    pending = {line.name for line in check.to_run(job, lines)}
    found = [index for index, name in enumerate(freeze(job)) if name in pending]
    if not found:
        raise slurm.Refused("every cell of this queue is done already")
    return found


def freeze(job: jobfile.Job) -> list[str]:
    """Return the cells by the index that their tasks have and keep."""
    try:
        return lanes.freeze(job)
    except (OSError, ValueError) as error:
        raise slurm.Refused("which task is which cell could not be written down: %s" % error) from error


def _refuse(text: str) -> int:
    print("detach: %s" % text, file=sys.stderr)
    return 2


def _await(job: jobfile.Job, how: str, session: str | None, before: Any) -> int:
    """Wait until the runner holds its lock (or has already written a state and gone) and tell how it stands."""
    deadline = time.monotonic() + STARTED_WITHIN
    while time.monotonic() < deadline:
        if files.is_locked(job.path("runner.lock")):
            pid = _runner_pid(job)
            if pid:
                return _tell(how, session, pid)
        elif files.signature(job.path("state.json")) != before:
            return _tell("ended", session, states.load(job).get("runner_pid"))
        time.sleep(0.02)
    out = job.path("runner.out")
    hint = "; see %s" % out if os.path.exists(out) else ""
    print("the runner did not start within %d s%s" % (STARTED_WITHIN, hint), file=sys.stderr)
    return 1


def _runner_pid(job: jobfile.Job) -> int | None:
    pid = files.lock_holder(job.path("runner.lock")).get("pid")
    return pid if isinstance(pid, int) else None


def _tell(how: str, session: str | None, pid: int | None) -> int:
    sys.stdout.buffer.write(jsonline.line({"how": how, "session": session, "pid": pid}))
    return 0
