"""Read files that may need unlimited memory or time, in a process with little of both.

The cost of a database's schema in SQLite, or of a pickle, cannot be predicted: a file of 12 KB can
request gigabytes, and the kernel then kills a training. The agent therefore opens none itself. It
sends requests to a child process, which is started on demand and exits after a while without
requests.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import time

from rgt_box import files, place, procstat

TYPE_CHECKING = False
if TYPE_CHECKING:
    import subprocess

    from rgt_wire import JsonObject

MEMORY = 256 << 20
"""Address space of the child in bytes, in addition to the interpreter's; a normal database needs
some 40 MiB.
"""
SECONDS = 5
"""CPU seconds that one request may take: next to a training that uses all cores the child gets
little CPU time.
"""
WALL = 60
"""Wall-clock seconds that it may take: a hanging disk uses no CPU time."""
PATIENCE = 0.25
"""Seconds to wait for an answer: a malicious file must not delay the logs for longer."""
LONGEST = 64 << 20
"""Maximum bytes of an answer."""
KEPT = 64
"""Number of answers kept for callers that return for them."""

CODE = (
    "import sys; sys.path[:0] = [sys.argv[1]]; from rgt_box.confined_child import serve; "
    "serve(*sys.argv[2:])"
)


class AnswerPending(Exception):
    """The answer is not available yet."""


class ChildDied(Exception):
    """The child died on this request; the message says how."""


class ConfinedChild:
    """The child process and its current request. Not thread-safe.

    Args:
        reader: The module whose `answer` the child calls with each request.

    Attributes:
        patience: Seconds that a caller waits for the answer; a later answer is returned when it
            asks again.
    """

    def __init__(self, reader: str) -> None:
        self.patience = PATIENCE
        self._reader = reader
        self._process: subprocess.Popen[bytes] | None = None
        self._folder = ""
        self._asked = b""
        self._heard = bytearray()
        self._answers: dict[bytes, JsonObject | str] = {}

    def request_answer(self, request: JsonObject) -> JsonObject:
        """Return the answer to a request.

        Raises:
            AnswerPending: It takes longer, or the child is busy with another one; send the same
                request again.
            ChildDied: The child died on it.
            OSError: No child can be started.
        """
        line = json.dumps(request, sort_keys=True).encode() + b"\n"
        if line not in self._answers:
            if self._asked and self._asked != line:
                self._read_answer(0.0)
            if not self._asked:
                self._send_line(line)
            if self._asked == line:
                self._read_answer(self.patience)
        answer = self._answers.pop(line, None)
        if answer is None:
            raise AnswerPending
        if isinstance(answer, str):
            raise ChildDied(answer)
        return answer

    def _send_line(self, line: bytes) -> None:
        for _ in range(2):  # it may just have exited
            if self._process is not None:
                process = self._process
            else:
                process = self._start_process()
            assert process.stdin is not None
            try:
                process.stdin.write(line)
                process.stdin.flush()
            except OSError:
                self.close()
                continue
            self._asked = line
            return
        raise OSError(0, "the reader of hostile files does not start")

    def _start_process(self) -> subprocess.Popen[bytes]:
        import subprocess

        self._folder = place.make_folder()
        python = sys.executable or "python3"
        given = [place.code_root(), self._reader, self._folder, str(SECONDS), str(WALL)]
        # -I: the user's environment must not add modules to this process.
        words = [python, "-I", "-S", "-Xutf8", "-c", CODE, *given]
        self._process = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd="/"
        )
        return self._process

    def _read_answer(self, patience: float) -> None:
        """Wait for the answer to the current request."""
        assert self._process is not None and self._process.stdout is not None
        fd = self._process.stdout.fileno()
        # Not select(): it fails for descriptors above 1023.
        poller = select.poll()
        poller.register(fd, select.POLLIN)
        until = time.monotonic() + patience
        while poller.poll(max(0.0, until - time.monotonic()) * 1000.0):
            data = os.read(fd, 1 << 20)
            self._heard += data
            if not data or len(self._heard) > LONGEST:
                self._cache_answer(self._describe_death())
                self.close()
                return
            if self._heard.endswith(b"\n"):
                self._cache_answer(json.loads(self._heard))
                self._asked, self._heard = b"", bytearray()
                return

    def _describe_death(self) -> str:
        if len(self._heard) > LONGEST:
            return "an answer of more than %d MiB" % (LONGEST >> 20)
        assert self._process is not None
        status = self._process.wait()
        # ITIMER_PROF counts CPU time, and SIGPROF then ends the child even inside C code.
        if status == -signal.SIGPROF:
            return "it took more than %d s of a core" % SECONDS
        if status == -signal.SIGALRM:
            return "it took more than %d s" % WALL
        return "it took more than %d MiB, or crashed its reader (status %d)" % (
            MEMORY >> 20,
            status,
        )

    def _cache_answer(self, answer: JsonObject | str) -> None:
        # Dictionaries keep their order, so this is the oldest answer.
        while len(self._answers) >= KEPT:
            del self._answers[next(iter(self._answers))]
        # Also for a death: the same request must not kill one child after the other.
        self._answers[self._asked] = answer

    def close(self) -> None:
        """End the child, and remove its copies."""
        if self._process is not None:
            import shutil

            self._process.kill()
            for pipe in (self._process.stdin, self._process.stdout):
                try:
                    if pipe is not None:
                        pipe.close()
                except OSError:
                    pass  # buffered data that could not be written
            self._process.wait()
            shutil.rmtree(self._folder, ignore_errors=True)
        self._process, self._asked, self._heard = None, b"", bytearray()


def serve(reader: str, folder: str, seconds: str, wall: str) -> None:
    """Run the child: answer requests until there are no more.

    Args:
        reader: The module that answers.
        folder: Directory for copies; removed at the end.
        seconds: CPU seconds that one request may take.
        wall: Wall-clock seconds that one request may take.
    """
    import importlib
    import resource
    import shutil
    import tempfile

    # The parent removes this directory after it has killed the child.
    tempfile.tempdir = folder
    most = (
        # On top of the present mappings: RLIMIT_AS counts the interpreter's libraries, too.
        MEMORY
        + int((procstat.read_bytes("/proc/self/statm", 64) or b"0").split()[0]) * procstat.PAGE
    )
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    # A core dump would write the child's whole memory to the user's disk.
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    nice = 10
    os.nice(nice)  # lower priority than a training
    # Ctrl-C reaches the whole process group; the parent ends the child itself.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for limit in (signal.SIGPROF, signal.SIGALRM):  # each ends this process in any state
        signal.signal(limit, signal.SIG_DFL)
    answer = importlib.import_module(reader).answer
    try:
        # Seconds without a request after which the child exits.
        idle = 60.0
        while select.select([0], [], [], idle)[0]:
            line = sys.stdin.buffer.readline()
            if not line:
                break
            signal.setitimer(signal.ITIMER_PROF, float(seconds))
            signal.alarm(int(wall))
            told = json.dumps(answer(json.loads(line))).encode()
            signal.alarm(0)
            signal.setitimer(signal.ITIMER_PROF, 0.0)
            files.write_all(1, told + b"\n")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
