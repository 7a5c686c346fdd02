"""Tests whether a Python's torch can compute on the GPUs; run by that Python, never imported.

It prints one flushed JSON object per line, so that partial results survive a timeout: torch first,
then each GPU. ``nvidia-smi`` also lists cards whose CUDA fails to initialise; only a computation
proves that they work.
"""

from __future__ import annotations

import importlib
import json
import signal
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

SECONDS = 0.5
"""Minimum seconds of each measurement of a GPU."""
COPY_BYTES = 256 << 20


def main(limit: float) -> None:
    """Run all tests; `limit` is the time limit in seconds."""
    # The parent process kills this one at the limit. The alarm is for a parent that has died.
    grace_seconds = 5
    signal.alarm(max(1, int(limit)) + grace_seconds)
    try:
        torch = importlib.import_module("torch")
    except Exception as error:  # a broken installation can raise anything
        print_row({"torch": None, "error": error_line(error)})
        return
    found: dict[str, object] = {
        "torch": str(getattr(torch, "__version__", "?")),
        "python": sys.executable,
        "error": None,
    }
    version = getattr(getattr(torch, "version", None), "cuda", None) or getattr(
        getattr(torch, "version", None), "hip", None
    )
    if version is None:
        found["built_for"] = None
    else:
        found["built_for"] = str(version)
    try:
        torch.cuda.init()
        count = int(torch.cuda.device_count())
    except Exception as error:
        print_row(dict(found, devices=None, error=error_line(error)))
        return
    print_row(dict(found, devices=count))
    for index in range(count):
        try:
            print_row(dict(try_gpu(torch, index), device=index))
        except Exception as error:
            print_row({"device": index, "error": error_line(error)})


def try_gpu(torch: Any, index: int) -> dict[str, object]:
    """Compute and copy on one GPU; returns its name and measurements."""
    place = torch.device("cuda", index)
    told: dict[str, object] = {"name": str(torch.cuda.get_device_name(index)), "error": None}
    # Side of the square matrices: large enough that the GPU, not the kernel launch, is the limit.
    size = 4096
    one = torch.randn(size, size, device=place, dtype=torch.float16)
    other = torch.randn(size, size, device=place, dtype=torch.float16)

    def synchronize_gpu() -> None:
        torch.cuda.synchronize(index)

    product = one @ other
    synchronize_gpu()
    rounds, passed = repeat_and_time(lambda: one @ other, synchronize_gpu)
    told["tflops"] = 2.0 * size**3 * rounds / passed / 1e12
    part = one[:8].float().cpu() @ other.float().cpu()
    wrong = float((product[:8].float().cpu() - part).abs().max())
    # Half precision gives about three digits for sums of this size.
    if not wrong <= 0.02 * float(part.abs().max()):
        told["error"] = f"the product of two matrices is wrong by {wrong:g}"
    # Pageable memory is copied twice, and would measure the processor.
    host = torch.empty(COPY_BYTES, dtype=torch.uint8).pin_memory()
    there = torch.empty(COPY_BYTES, dtype=torch.uint8, device=place)
    for name, copy in (
        ("to_gpu_gbs", lambda: there.copy_(host, non_blocking=True)),
        ("from_gpu_gbs", lambda: host.copy_(there, non_blocking=True)),
    ):
        rounds, passed = repeat_and_time(copy, synchronize_gpu)
        told[name] = COPY_BYTES * rounds / passed / 1e9
    return told


def repeat_and_time(work: Callable[[], object], wait: Callable[[], object]) -> tuple[int, float]:
    """Repeat `work` for `SECONDS`; returns the number of calls and the seconds they took."""
    # The first call loads kernels and allocates memory: it is not timed.
    work()
    wait()
    begun = time.monotonic()
    rounds = 0
    while True:
        for _ in range(4):
            work()
        rounds += 4
        wait()
        passed = time.monotonic() - begun
        if passed >= SECONDS:
            return rounds, passed


def error_line(error: BaseException) -> str:
    """Return an error as one line."""
    return (f"{type(error).__name__}: {' '.join(str(error).split())}")[:300]


def print_row(found: dict[str, object]) -> None:
    """Print one result."""
    sys.stdout.write(json.dumps(found) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(float(sys.argv[1]))
