r"""A Python that has imported what many short processes need, and forks each of them: the work of the imports once.

``python -P warm_server.py SOCKET CODE`` runs CODE (the imports), listens on SOCKET, and writes a line. A connection
starts one process: it sends ``{"words", "cwd", "env"}`` with the three standard streams, hears ``PID\n``, and at the
end ``CODE\n``. The process is what ``python WORDS`` would be (``-m MODULE …`` or ``-c CODE …``): it has its own working
directory, environment and signals, and dies with the server. It ends as the interpreter ends: threads are waited for,
`atexit` is heard and the streams are flushed; only that every module is taken apart is left out where all went well,
for that touches each page of all that was imported and is most of a short command.
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import json
import os
import runpy
import signal
import socket
import sys
import threading
from typing import Any

PDEATHSIG = 1


def listen(path: str, told: int) -> dict[str, Any]:
    """Serve, and say so to `told`; returns in each process that was asked for, with what it has to do."""
    server = socket.socket(socket.AF_UNIX)
    server.bind(path)
    server.listen(64)
    os.write(told, b"ready\n")
    while True:
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the keepers need nobody to wait for them
        connection, _ = server.accept()
        if os.fork() == 0:
            die_with_parent()
            server.close()
            return keep(connection)
        connection.close()


def keep(connection: socket.socket) -> dict[str, Any]:
    """Start the process and tell its end; returns in the process."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    data, streams, _, _ = socket.recv_fds(connection, 1 << 20, 3)
    while not data.endswith(b"\n"):
        data += connection.recv(1 << 20)
    pid = os.fork()
    if pid == 0:
        die_with_parent()
        connection.close()
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
            os.close(stream)
        asked: dict[str, Any] = json.loads(data)
        return asked
    for stream in streams:
        os.close(stream)
    connection.sendall(b"%d\n" % pid)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    connection.sendall(b"%d\n" % code)
    os._exit(0)


def die_with_parent() -> None:
    """Have the kernel end this process with the one that forked it."""
    ctypes.CDLL(None).prctl(PDEATHSIG, signal.SIGKILL)


def become(words: list[str], cwd: str, env: dict[str, str]) -> None:
    """Run what the words say, in this process."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)
    kind, what, *rest = words
    if kind == "-m":
        sys.path.insert(0, cwd)
        sys.argv = [what, *rest]
        runpy.run_module(what, run_name="__main__", alter_sys=True)
    else:
        sys.path.insert(0, "")
        sys.argv = ["-c", *rest]
        main = sys.modules["__main__"].__dict__
        main.pop("__file__", None)
        exec(compile(what, "<string>", "exec"), main)


def leave(code: int) -> None:
    """End as the interpreter does, but for its modules; returns where a stream takes no more: it says that itself."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except (OSError, ValueError):
        return
    os._exit(code & 0xFF)


if __name__ == "__main__":
    told = os.dup(1)
    os.dup2(2, 1)  # a library may greet
    exec(sys.argv[2], {})
    sys.stdout.flush()  # a greeting that still waits would be said by every process
    gc.freeze()  # a collection would touch, and so copy, every page that a process shares with the server
    try:
        become(**listen(sys.argv[1], told))
    except SystemExit as ended:
        if not isinstance(ended.code, int | None):
            raise
        leave(ended.code or 0)
        raise
    leave(0)
