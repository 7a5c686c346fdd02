"""A process that has imported torch once and forks trainers: a launch costs 20 ms instead of 2 s.

Speaks JSON lines. In: ``{"argv": [...], "fifo": path}``, with ``"script": path`` where it is no command. Out:
``{"ready": pid}``, then ``{"started": pid}`` for each request in order, and ``{"ended": pid, "code": n}``.
Everything it started dies with it.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import runpy
import select
import signal
import sys
import traceback

import torch
import torch._dynamo  # noqa: F401  a second that each trainer would spend in its first torch.optim
from rgt_train import cli, loop  # noqa: F401
from rgt_train.ranks import sharded_saver, torch_ranks  # noqa: F401  half a second of each rank

_LIBC = ctypes.CDLL(None, use_errno=True)


def child(argv: list[str], fifo: str, script: str | None) -> None:
    """Become a trainer; does not return."""
    _LIBC.prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    code = 1
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        null, out = os.open(os.devnull, os.O_RDONLY), os.open(fifo, os.O_WRONLY)
        for source, target in ((null, 0), (out, 1), (out, 2)):
            os.dup2(source, target)
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
                    child(request.get("argv", []), request["fifo"], request.get("script"))
                tell(started=pid)


if __name__ == "__main__":
    main()
