"""A pretended NVIDIA driver: its library, its device files, and processes that really have them open."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

HOLD = "import sys; held = open(sys.argv[1]); print('held', flush=True); sys.stdin.read()"
STUBBORN = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); " + HOLD

Hold = Callable[..., subprocess.Popen[bytes]]


def build_driver(folder: Path) -> Path:
    """Compile the library into `folder`, for LD_LIBRARY_PATH."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        pytest.fail("no C compiler; it is one of the system parts (make parts)")
    source = Path(__file__).with_name("nvml_stub.c")
    subprocess.run(
        [compiler, "-shared", "-fPIC", "-o", str(folder / "libnvidia-ml.so.1"), str(source)],
        check=True,
    )
    return folder


def make_devices(folder: Path) -> str:
    """Make pretended device files; returns what their paths begin with."""
    for name in ("nvidia0", "nvidia1", "nvidiactl"):
        (folder / name).touch()
    return str(folder / "nvidia")


@contextmanager
def holding() -> Iterator[Hold]:
    """Yield a function that starts a process which has a file open; they end with the block."""
    started: list[subprocess.Popen[bytes]] = []

    def start(path: str, *words: str, code: str = HOLD) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            [sys.executable, "-c", code, path, *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        started.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        return process

    try:
        yield start
    finally:
        for process in started:
            process.kill()
            process.communicate()
