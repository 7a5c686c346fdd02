"""The real torchrun for the tests."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType

ROOT = Path(__file__).parents[4]


@contextmanager
def torchrun(
    count: int,
    script: str,
    *words: str,
    options: tuple[str, ...] = (),
    cwd: Path | None = None,
    env: Mapping[str, str] = MappingProxyType({}),
    python: str = sys.executable,
) -> Iterator[subprocess.Popen[bytes]]:
    """Start a script on so many ranks; nothing of it is left behind."""
    command = [
        python,
        "-m",
        "torch.distributed.run",
        "--standalone",
        f"--nproc-per-node={count}",
        *options,
    ]
    process = subprocess.Popen(
        [*command, script, *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=os.environ
        | {"PYTHONPATH": f"{ROOT / 'remote'}:{ROOT}", "OMP_NUM_THREADS": "1"}
        | dict(env),
        start_new_session=True,
        cwd=cwd,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        if process.stdout is not None and not process.stdout.closed:
            process.communicate()
