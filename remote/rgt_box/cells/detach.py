"""The ``detach`` verb: start the runner so that it outlives the SSH connection."""

from __future__ import annotations

import errno
import os
import re
import sys
import time

from rgt_box import files, jsonline, lock, options, place
from rgt_box.cells import check, jobfile, states
from rgt_box.sampling.session import which

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

HELP = """
usage: detach --job DIR [-- ARGUMENTS OF queue run]

Check the queue, then start its runner detached: in a tmux session named after the job where there is tmux, else
by setsid. Prints one JSON line {"how": "tmux" | "setsid" | "running" | "ended", "session": …, "pid": …}.
A runner that is already alive is left alone (exit 0).
"""
STARTED_WITHIN = 10.0


def main(argv: list[str]) -> int:
    """Run the verb; returns the exit status."""
    found = options.parse_or_exit(argv, {"--job": "str"}, HELP)
    if not found["job"]:
        print("--job DIR is missing", file=sys.stderr)
        return 2
    job = jobfile.Job(found["job"])
    if lock.is_held(job.path("runner.lock")):
        return _tell("running", None, _runner_pid(job))
    problems = check.check(job).problems
    if problems:
        print("\n".join(problems), file=sys.stderr)
        return 2
    before = files.signature(job.path("state.json"))
    words = place.command("queue", "run", "--job", job.folder) + found["rest"]
    session = _start_in_tmux(job, words) if which("tmux") else None
    if session is None:
        from rgt_box.history.control import detach  # here: only this path forks

        detach(words, job.path("runner.out"))
    return _await(job, "tmux" if session else "setsid", session, before)


def _await(job: jobfile.Job, how: str, session: str | None, before: Any) -> int:
    """Wait until the runner holds its lock (or has already written a state and gone) and tell how it stands."""
    deadline = time.monotonic() + STARTED_WITHIN
    while time.monotonic() < deadline:
        if lock.is_held(job.path("runner.lock")):
            pid = _runner_pid(job)
            if pid:
                return _tell(how, session, pid)
        elif files.signature(job.path("state.json")) != before:
            return _tell("ended", session, states.load(job).get("runner_pid"))
        time.sleep(0.02)
    print("the runner did not start within %d s" % STARTED_WITHIN, file=sys.stderr)
    return 1


def _runner_pid(job: jobfile.Job) -> int | None:
    pid = lock.holder(job.path("runner.lock")).get("pid")
    return pid if isinstance(pid, int) else None


def _tell(how: str, session: str | None, pid: int | None) -> int:
    sys.stdout.buffer.write(jsonline.line({"how": how, "session": session, "pid": pid}))
    return 0


def session_name(folder: str) -> str:
    """Return the tmux session's name: tmux allows neither dots nor colons."""
    return "rgt-" + (re.sub(r"[^A-Za-z0-9_-]", "-", os.path.basename(folder)) or "job")


def _start_in_tmux(job: jobfile.Job, words: list[str]) -> str | None:
    """Start the runner in a new session; None when tmux refuses.

    A tmux server that is already up gives new sessions *its* environment, so ours goes through a named pipe.
    """
    import subprocess

    fifo = os.path.join(place.state_dir(), "env-%d" % os.getpid())
    os.makedirs(place.state_dir(), mode=0o700, exist_ok=True)
    os.mkfifo(fifo, 0o600)
    try:
        wanted = session_name(job.folder)
        for name in [wanted] + ["%s-%d" % (wanted, number) for number in range(2, 10)]:
            command = (
                ["tmux", "new-session", "-d", "-s", name, "-c", job.folder, "--"]
                + words
                + ["--env-fifo", fifo]
            )
            done = subprocess.run(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
            )
            if done.returncode == 0:
                return name if _send_environment(fifo) else None
            if b"duplicate" not in done.stderr:
                print(done.stderr.decode("utf-8", "replace").strip(), file=sys.stderr)
                return None
        return None
    finally:
        files.unlink(fifo)


def _send_environment(fifo: str) -> bool:
    """Write the environment once the runner reads; False when it never does."""
    deadline = time.monotonic() + STARTED_WITHIN
    while time.monotonic() < deadline:
        try:
            fd = os.open(fifo, os.O_WRONLY | os.O_NONBLOCK)
        except OSError as error:
            if error.errno != errno.ENXIO:
                return False
            time.sleep(0.01)
            continue
        os.set_blocking(fd, True)
        try:
            files.write_all(fd, jsonline.dumps(dict(os.environ)))
        finally:
            os.close(fd)
        return True
    return False
