"""Starting a helper process of the trainer, from a directory or from inside a zip file, without fork."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from contextlib import suppress
from typing import Optional, Sequence

from rgt_train import wire

_BOOT = (
    "import sys,os;sys.path.insert(0,os.environ.pop('RGT_HELPER_HOME'));"
    "from importlib import import_module;import_module(os.environ.pop('RGT_HELPER')).main()"
)
"""The names come by the environment: a command line with them in it would look like a second training process."""


class Helper:
    """A process with a socket to it.

    It dies with the thread that starts it (that is what the kernel watches): start it from one that lives on.

    Args:
        module: What it runs, e.g. ``rgt_train.writer``; its `main` gets the socket and our process id as arguments.
        keep: Descriptors that it holds as long as it lives.
        bare: Whether it needs nothing but the standard library (it starts faster then).

    Raises:
        OSError: It cannot be started.
    """

    def __init__(self, module: str, keep: Sequence[int] = (), *, bare: bool = True) -> None:
        self.sock, theirs = socket.socketpair()
        environment = {**os.environ, "RGT_HELPER": module, "RGT_HELPER_HOME": _home()}
        flags = ["-I", "-S"] if bare else ["-I"]
        try:
            self.process = subprocess.Popen(
                [sys.executable, *flags, "-c", _BOOT, str(theirs.fileno()), str(os.getpid())],
                pass_fds=[theirs.fileno(), *keep],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                env=environment,
                start_new_session=True,
            )
        except BaseException:
            self.sock.close()
            raise
        finally:
            theirs.close()
        self.reader = wire.Reader(self.sock)

    @property
    def pid(self) -> int:
        """Its process id."""
        return self.process.pid

    def ended(self) -> Optional[int]:
        """Return its exit code if it has ended."""
        return self.process.poll()

    def close(self, *, kill: bool = False) -> None:
        """Close the connection, which ends it, and wait for that.

        Args:
            kill: Do not let it finish what it does.
        """
        with suppress(OSError):
            self.sock.shutdown(
                socket.SHUT_RDWR
            )  # data workers made by fork may hold copies of the descriptor
        self.sock.close()
        if kill:
            self.process.kill()
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def _home() -> str:
    return os.path.dirname(os.path.dirname(os.path.abspath(__file__)))  # a directory, or a zip file
