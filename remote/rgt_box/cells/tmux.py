"""A runner in a tmux session of its own."""

from __future__ import annotations

import errno
import os
import re
import sys
import time

from rgt_box import files, jsonline, ownership, place
from rgt_box.cells.jobfile import Job

READ_WITHIN = 10.0


def session_name(folder: str) -> str:
    """Return the session's name: tmux allows neither dots nor colons."""
    return "rgt-" + (re.sub(r"[^A-Za-z0-9_-]", "-", os.path.basename(folder)) or "job")


def start(job: Job, words: list[str]) -> str | None:
    """Start the runner in a new session; None when tmux refuses.

    A tmux server that is already up gives new sessions *its* environment, so ours goes through a named pipe.
    """
    import subprocess

    fifo = os.path.join(place.state_dir(), "env-%d" % os.getpid())
    try:
        ownership.take(place.state_dir())
        os.mkfifo(fifo, 0o600)
    except OSError as error:
        print("%s: %s: not in tmux" % (error.filename, error.strerror), file=sys.stderr)
        return None
    try:
        wanted = session_name(job.folder)
        for name in [wanted] + ["%s-%d" % (wanted, number) for number in range(2, 10)]:
            command = ["tmux", "new-session", "-d", "-s", name, "-c", job.folder, "--"]
            done = subprocess.run(
                command + words + ["--env-fifo", fifo],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
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
    deadline = time.monotonic() + READ_WITHIN
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
