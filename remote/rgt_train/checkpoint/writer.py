"""The writer process, how it is started, and the messages between it and the trainer.

It is started once by ``exec``, never by fork, and imports only the standard library and the
trainer's own file handling. It has its own interpreter lock and page faults, so its work never
delays the training. It ends with its trainer.
"""

from __future__ import annotations

import array
import ctypes
import json
import mmap
import os
import signal
import socket
import struct
import subprocess
import sys
from contextlib import suppress
from dataclasses import asdict
from typing import Any, Callable, Dict, List, Mapping, Sequence, Tuple

from rgt_train.checkpoint.publish import DIED, SaveJob, SaveResult, perform_job
from rgt_train.checkpoint.store import CheckpointStore, KeepPolicy

_HEAD = struct.Struct("<QQB")
Message = Tuple[Dict[str, Any], bytes, List[int]]
"""Its fields, the raw bytes, the descriptors sent with it."""


class ConnectionClosed(ConnectionError):
    """The other side has closed."""


def send_message(
    sock: socket.socket, fields: Mapping[str, Any], raw: bytes = b"", fd: int | None = None
) -> None:
    """Send one message, with a descriptor if given.

    Raises:
        ConnectionClosed: The other side has closed.
    """
    text = json.dumps(fields).encode()
    head = _HEAD.pack(len(text), len(raw), int(fd is not None))
    extra = []
    if fd is not None:
        extra = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [fd]))]
    try:
        # The descriptor travels with the first byte; a second sendmsg would send it twice.
        sent = sock.sendmsg([head], extra)
        sock.sendall(head[sent:] + text + raw)
    except OSError as error:
        raise ConnectionClosed(str(error)) from error


class MessageReader:
    """Reads complete messages from a stream socket."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._data = bytearray()
        self._fds: list[int] = []

    def read_message(self, *, block: bool) -> Message | None:
        """Return the next message; None if none is complete yet and `block` is false.

        Raises:
            ConnectionClosed: The other side has closed.
        """
        while True:
            message = self._next_buffered()
            if message is not None:
                return message
            if not self._receive_bytes(block):
                return None

    def _next_buffered(self) -> Message | None:
        if len(self._data) < _HEAD.size:
            return None
        text, raw, count = _HEAD.unpack_from(self._data)
        end = _HEAD.size + text + raw
        if len(self._data) < end:
            return None
        body = bytes(self._data[_HEAD.size : end])
        del self._data[:end]
        # Ancillary data may arrive before the message that it belongs to is complete.
        fds = self._fds[:count]
        self._fds = self._fds[count:]
        fields: dict[str, Any] = json.loads(body[:text])
        return fields, body[text:], fds

    def _receive_bytes(self, block: bool) -> bool:
        if block:
            flags = 0
        else:
            flags = socket.MSG_DONTWAIT
        try:
            data, extra, _, _ = self._sock.recvmsg(
                1 << 20, socket.CMSG_SPACE(array.array("i").itemsize), flags
            )
        except BlockingIOError:
            return False
        except OSError as error:
            raise ConnectionClosed(str(error)) from error
        for level, kind, content in extra:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                found = array.array("i")
                # A truncated control message may end within a number (recvmsg(2)).
                found.frombytes(content[: len(content) - len(content) % found.itemsize])
                self._fds += list(found)
        if not data:
            raise ConnectionClosed("end of stream")
        self._data += data
        return True


_IGNORED = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGHUP)


def main() -> None:
    """Serve jobs until the trainer closes the connection."""
    sock = socket.socket(fileno=int(sys.argv[1]))
    die_with_parent(int(sys.argv[2]))
    with suppress(OSError):
        # Added to the niceness of the writer: if cores are scarce, the training goes first.
        yields = 10
        os.nice(yields)
    reader = MessageReader(sock)
    store: CheckpointStore | None = None
    memory: memoryview | None = None
    try:
        while True:
            message = reader.read_message(block=True)
            assert message is not None, "a blocking read returns a message"
            fields, raw, fds = message
            if fields["do"] == "store":
                store = _build_store(fields)
            elif fields["do"] == "memory":
                memory = _map_memory(fds[0], int(fields["size"]))
            elif fields["do"] == "save":
                assert store is not None and memory is not None, "told where and what before"
                verdict = _SnapshotVerdict(reader)
                send_message(
                    sock,
                    asdict(
                        perform_job(store, _parse_job(fields["job"]), memory, raw, verdict.is_good)
                    ),
                )
    except ConnectionClosed:
        os._exit(0)


def die_with_parent(parent: int) -> None:
    """Make the kernel kill this process when the trainer dies, and ignore common signals.

    The trainer handles those signals and closes this process.

    Args:
        parent: Its process id; if it is gone already, this process ends at once.
    """
    for number in _IGNORED:
        signal.signal(number, signal.SIG_IGN)
    with suppress(OSError, AttributeError):  # not Linux: the end of the connection ends it
        pr_set_pdeathsig = 1
        ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)
    # The trainer died before prctl took effect.
    if os.getppid() != parent:
        os._exit(0)


class _SnapshotVerdict:
    """Whether the trainer approved the snapshot of one job; received before or after the write."""

    def __init__(self, reader: MessageReader) -> None:
        self._reader = reader
        self._told: bool | None = None

    def is_good(self) -> bool:
        """Wait for it, once.

        Raises:
            ConnectionClosed: The trainer is gone.
        """
        if self._told is None:
            message = self._reader.read_message(block=True)
            assert message is not None and message[0]["do"] == "judge", (
                "the next message after a job"
            )
            self._told = bool(message[0]["good"])
        return self._told


def _build_store(fields: dict[str, Any]) -> CheckpointStore:
    policy = KeepPolicy(int(fields["last"]), float(fields["hours"]))
    store = CheckpointStore(fields["out"], int(fields["attempt"]), policy)
    store.anchor = str(fields["anchor"])
    return store


def _map_memory(fd: int, size: int) -> memoryview:
    memory = memoryview(mmap.mmap(fd, size))
    os.close(fd)
    return memory


def _parse_job(fields: dict[str, Any]) -> SaveJob:
    regions = [(str(name), int(offset), int(size)) for name, offset, size in fields["regions"]]
    return SaveJob(**{**fields, "regions": regions})


_BOOT = (
    "import sys,os;sys.path.insert(0,os.environ.pop('RGT_HELPER_HOME'));"
    "from importlib import import_module;import_module(os.environ.pop('RGT_HELPER')).main()"
)
"""The names are passed by the environment: with them in its command line it would look like a
second training process.
"""


class HelperProcess:
    """A process with a socket to it.

    The kernel ends it with the thread that starts it: start it from a thread that lives on.

    Args:
        module: The module to run, e.g. ``rgt_train.checkpoint.writer``; its `main` gets the socket
            and our process id as arguments.
        keep: Descriptors that it holds while it lives.
        bare: Whether it needs nothing but the standard library (it starts faster then).

    Raises:
        OSError: It cannot be started.
    """

    def __init__(self, module: str, keep: Sequence[int] = (), *, bare: bool = True) -> None:
        self.sock, theirs = socket.socketpair()
        environment = {**os.environ, "RGT_HELPER": module, "RGT_HELPER_HOME": _package_parent()}
        if bare:
            flags = ["-I", "-S"]
        else:
            flags = ["-I"]
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
        self.reader = MessageReader(self.sock)

    @property
    def pid(self) -> int:
        """Its process id."""
        return self.process.pid

    def exit_code(self) -> int | None:
        """Return its exit code if it has ended."""
        return self.process.poll()

    def close(self, *, kill: bool = False) -> None:
        """Close the connection, which ends it, and wait for that.

        Args:
            kill: Do not let it finish its work.
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


def _package_parent() -> str:
    home = os.path.abspath(__file__)
    for _ in __name__.split("."):
        home = os.path.dirname(home)
    return home  # a directory, or a zip file


class WriterClient:
    """Keeps one writer process running.

    Args:
        store: Where it writes.
        keep: Descriptors the process holds while it lives (the lock of the run).
        started: Called with the process id of each one that is started.
    """

    def __init__(
        self, store: CheckpointStore, keep: Sequence[int], started: Callable[[int], None]
    ) -> None:
        self._store = store
        self._keep = keep
        self._started = started
        self._helper: HelperProcess | None = None
        self._memory: int | None = None

    def start(self) -> None:
        """Start the process if it is not running.

        Raises:
            OSError: It cannot be started.
        """
        if self._helper is not None and self._helper.exit_code() is None:
            return
        self._drop_helper()
        self._helper = HelperProcess("rgt_train.checkpoint.writer", self._keep)
        self._memory = None
        self._started(self._helper.pid)
        store = self._store
        policy = self._store.policy
        send_message(
            self._helper.sock,
            {"do": "store", "out": store.out, "attempt": store.attempt, "anchor": store.anchor,
             "last": policy.last, "hours": policy.hours},
        )  # fmt: skip

    def submit_job(self, job: SaveJob, inline: bytes, fd: int, size: int) -> None:
        """Hand a snapshot to the started process. If that is dead, `poll_result` reports it.

        Args:
            job: The checkpoint to make of it.
            inline: The file that is not in the memory.
            fd: The memory.
            size: Its length in bytes.
        """
        assert self._helper is not None, "started before"
        with suppress(ConnectionClosed):
            if self._memory != fd:
                send_message(self._helper.sock, {"do": "memory", "size": size}, fd=fd)
                self._memory = fd
            send_message(self._helper.sock, {"do": "save", "job": job.as_plain()}, inline)

    def send_verdict(self, *, good: bool) -> None:
        """Send whether the last snapshot may be published."""
        if self._helper is not None:
            with suppress(ConnectionClosed):
                send_message(self._helper.sock, {"do": "judge", "good": good})

    def poll_result(self, *, block: bool) -> SaveResult | None:
        """Return the result of the job; None while it runs."""
        assert self._helper is not None, "polled after a submit"
        try:
            message = self._helper.reader.read_message(block=block)
        except ConnectionClosed:
            code = self._end_helper()
            if code < 0:
                how = signal.Signals(-code).name
            else:
                how = f"exit code {code}"
            return SaveResult(error=(DIED, None, f"the writer process died ({how})", None))
        if message is None:
            return None
        fields = message[0]
        return SaveResult(**{**fields, "notes": tuple(fields["notes"])})

    def forget_memory(self) -> None:
        """Forget the memory given before; a descriptor with the same number will be a new one."""
        self._memory = None

    def close(self) -> None:
        """Let it finish its work, and end it."""
        if self._helper is not None:
            self._helper.close()
            self._helper = None

    def _end_helper(self) -> int:
        helper = self._helper
        self._helper = None
        assert helper is not None, "there was one"
        helper.close(kill=True)
        return helper.exit_code() or 0

    def _drop_helper(self) -> None:
        if self._helper is not None:
            self._helper.close(kill=True)
            self._helper = None
