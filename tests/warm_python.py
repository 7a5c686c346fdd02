"""Short processes of one kind without their start: forked by a server that has imported what they need."""

from __future__ import annotations

import contextlib
import io
import json
import os
import socket
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

SERVER = Path(__file__).with_name("warm_server.py")


class WarmPython:
    """Runs what ``python WORDS`` runs, as a process of its own; `imports` is code that runs once, before them all."""

    def __init__(self, python: Path | str, imports: str, env: Mapping[str, str]) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="rgt-warm-")
        self._socket = f"{self._folder.name}/socket"
        self._server = subprocess.Popen(
            [str(python), "-P", str(SERVER), self._socket, imports],
            env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, start_new_session=True,
        )  # fmt: skip
        assert self._server.stdout is not None
        if self._server.stdout.readline() != b"ready\n":
            self.close()
            raise RuntimeError(f"the warm server did not start: {imports}")

    def run(
        self, words: Sequence[str], *, cwd: Path, env: Mapping[str, str], timeout: float
    ) -> subprocess.CompletedProcess[str]:
        """Run one process to its end, as `subprocess.run` does with ``capture_output`` and without stdin.

        Raises:
            subprocess.TimeoutExpired: it took longer, and was killed.
        """
        outputs = [io.BytesIO(), io.BytesIO()]
        readers = []
        with socket.socket(socket.AF_UNIX) as connection, contextlib.ExitStack() as files:
            connection.connect(self._socket)
            theirs = [os.open(os.devnull, os.O_RDONLY)]
            for output in outputs:
                ours, end = os.pipe()
                theirs.append(end)
                reader = threading.Thread(target=_read_all, args=(ours, output), daemon=True)
                readers.append(reader)
            asked = json.dumps({"words": list(words), "cwd": str(cwd), "env": dict(env)}) + "\n"
            data = asked.encode()
            sent = socket.send_fds(connection, [data], theirs)
            if data[
                sent:
            ]:  # else all may be done by now, and a closed connection takes not even nothing
                connection.sendall(data[sent:])
            for stream in theirs:
                os.close(stream)
            for reader in readers:
                reader.start()
            told = files.enter_context(connection.makefile())
            pid = int(told.readline())
            connection.settimeout(timeout)
            try:
                code = int(told.readline())
            except TimeoutError:
                os.kill(pid, 9)
                raise subprocess.TimeoutExpired(list(words), timeout) from None
            for reader in readers:
                reader.join(timeout)
        texts = [output.getvalue().decode() for output in outputs]
        return subprocess.CompletedProcess(list(words), code, *texts)

    def close(self) -> None:
        """End the server and all that it has forked."""
        self._server.kill()
        self._server.wait()
        assert self._server.stdout is not None
        self._server.stdout.close()
        self._folder.cleanup()


def _read_all(descriptor: int, output: io.BytesIO) -> None:
    with os.fdopen(descriptor, "rb") as file:
        while data := file.read1(65536):
            output.write(data)


@contextlib.contextmanager
def warm_python(python: Path | str, imports: str, env: Mapping[str, str]) -> Iterator[WarmPython]:
    """Give one, and end it."""
    warm = WarmPython(python, imports, env)
    try:
        yield warm
    finally:
        warm.close()
