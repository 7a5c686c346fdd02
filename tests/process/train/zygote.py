"""A process that has imported torch once and forks trainers: a launch costs 20 ms instead of 2 s.

Speaks JSON lines. In: ``{"argv": [...], "fifo": path, "number": n}``, with ``"script": path`` where it is no command.
With ``"brake": n, "go": path`` it waits behind the line of each step from n on, `BRAKE_S` at most, until there is
something in the FIFO ``go``.
Out: ``{"ready": pid}``, then ``{"started": pid, "number": n}`` for each request, and ``{"ended": pid, "code": n}``.
Everything it started dies with it.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import re
import runpy
import select
import signal
import sys
import traceback
from typing import Any, TextIO

import torch
import torch._dynamo  # noqa: F401  a second that each trainer would spend in its first torch.optim
from rgt_train import cli, ending, loop  # noqa: F401
from rgt_train.ranks import sharded_saver, torch_ranks  # noqa: F401  half a second of each rank

ending.MIRROR_GRACE_S = ending.LOGS_GRACE_S = (
    250.0  # a platform that kills is not what these tests are about
)
_LIBC = ctypes.CDLL(None, use_errno=True)
BRAKE_S = 15.0
"""At each line: what comes between two steps still comes, and a trainer that nobody lets go on still ends."""


class Braked:
    """Where a trainer writes that waits for the test from a step on."""

    def __init__(self, stream: TextIO, step: int, go: int) -> None:
        self._stream, self._step, self._go = stream, step, go

    def write(self, text: str) -> int:
        """Write; wait where it is the line of such a step."""
        count = self._stream.write(text)
        told = re.match(r"step (\d+) ", text)
        if told is not None and int(told[1]) >= self._step:
            self._stream.flush()
            select.select([self._go], [], [], BRAKE_S)
        return count

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def child(request: dict[str, Any]) -> None:
    """Become a trainer; does not return."""
    argv, fifo, script = request.get("argv", []), request["fifo"], request.get("script")
    _LIBC.prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    code = 1
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        null, out = os.open(os.devnull, os.O_RDONLY), os.open(fifo, os.O_WRONLY)
        for source, target in ((null, 0), (out, 1), (out, 2)):
            os.dup2(source, target)
        if "brake" in request:
            go = os.open(request["go"], os.O_RDONLY | os.O_NONBLOCK)
            sys.stdout = Braked(sys.stdout, request["brake"], go)
        if script is not None:
            os.chdir(os.path.dirname(script))
            sys.argv = [script, *argv]
            runpy.run_path(script, run_name="__main__")
            code = 0
        else:
            code = cli.main(argv)
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def tell(**fields: int) -> None:
    """Write one line to the test."""
    os.write(1, (json.dumps(fields) + "\n").encode())


def main() -> None:
    """Serve until stdin ends."""
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    os.set_blocking(woken, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake)
    gc.freeze()  # a collection would touch, and so copy, every page that a trainer shares with this process
    tell(ready=os.getpid())
    rest = b""
    while True:
        readable, _, _ = select.select([0, woken], [], [])
        if woken in readable:
            os.read(woken, 512)
            while True:
                try:
                    pid, status = os.waitpid(-1, os.WNOHANG)
                except ChildProcessError:
                    break
                if pid == 0:
                    break
                tell(ended=pid, code=os.waitstatus_to_exitcode(status))
        if 0 in readable:
            data = os.read(0, 65536)
            if not data:
                return
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                request = json.loads(line)
                pid = os.fork()
                if pid == 0:
                    os.environ.update(request.get("env", {}))
                    child(request)
                tell(started=pid, number=request["number"])


if __name__ == "__main__":
    main()
