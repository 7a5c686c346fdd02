"""Stops a writer at each of its file operations in turn, and looks at what is left. Run by a test.

``every_call.py DIR kill`` kills it there, ``every_call.py DIR 28`` lets the operation fail with that errno. Prints one
JSON line: how many operations a save has, and the first thing that went wrong.
Needs no torch: the commit protocol is the standard library alone.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rgt_train.store import Store, verified
from rgt_train.writing import Job, perform

CALLS = (
    "open",
    "write",
    "fsync",
    "fdatasync",
    "close",
    "rename",
    "replace",
    "mkdir",
    "unlink",
    "rmdir",
    "ftruncate",
)
FILES = ("model.safetensors", "trainer.safetensors", "state.json")


def content(step: int, name: str) -> bytes:
    """Return what a file of `step` holds."""
    return f"{name} of {step} ".encode() * 50


def publish(store: Store, step: int, kind: str) -> bool:
    """Save a checkpoint; False where the disk refused."""
    memory = b"".join(content(step, name).ljust(8192) for name in FILES[:2])
    regions = [(name, 8192 * n, len(content(step, name))) for n, name in enumerate(FILES[:2])]
    job = Job(kind, step, {"best": {"step": step, "metric": "loss", "value": 1.0}}, regions, FILES[2])
    done = perform(store, job, memoryview(memory), content(step, FILES[2]))
    if done.error is not None and done.error[1] is None:
        raise RuntimeError(f"not an error of the disk: {done.error}")
    return done.error is None


def arm(deadly: int, how: str) -> list[int]:
    """Make the `deadly`-th file operation from now on kill the process, or fail; return the counter."""
    count = [0]

    def wrap(call: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*args: Any, **kwargs: Any) -> Any:
            count[0] += 1
            if count[0] == deadly and how == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            if count[0] == deadly:  # once: what comes after it succeeds
                raise OSError(int(how), os.strerror(int(how)))
            return call(*args, **kwargs)

        return counted

    for name in CALLS:
        setattr(os, name, wrap(getattr(os, name)))
    return count


def prepare(out: str) -> None:
    """Make a run directory with the steps 1 and 2 and a best of step 1."""
    shutil.rmtree(out, ignore_errors=True)
    os.mkdir(out)
    store = Store(out, 1)
    assert publish(store, 1, "step") and publish(store, 1, "best") and publish(store, 2, "step")


def save(out: str) -> None:
    """Do what is killed: publish step 3 (which prunes step 1) and a new best."""
    store = Store(out, 2)
    if publish(store, 3, "step") and publish(store, 3, "best"):
        return
    found, complaints = store.newest_good(
        verified
    )  # the same process goes on: what it has must be good already
    os._exit(2 if found is None or complaints or not os.path.isdir(store.best) else 3)


def look(out: str) -> str | None:
    """Start anew after the kill; return what is wrong, or None."""
    store = Store(out, 3)
    store.clean()
    found, complaints = store.newest_good(verified)
    if complaints:
        return f"a published checkpoint is damaged: {complaints}"
    if found is None or found.step not in (2, 3):
        return f"newest good is {found}"
    for directory, steps in ((found.path, (found.step,)), (store.best, (1, 3))):
        step = json.loads(Path(directory, "manifest.json").read_text())["step"]
        if step not in steps:
            return f"{directory} is of step {step}"
        for name in FILES:
            if Path(directory, name).read_bytes() != content(step, name):
                return f"{directory}/{name} has other content"
    strays = [name for name in os.listdir(store.root) if name.startswith(".")]
    return f"strays are left: {strays}" if strays else None


def in_child(work: Callable[[], None]) -> int:
    """Run `work` in a fork and return its wait status."""
    pid = os.fork()
    if pid == 0:
        try:
            work()
            os._exit(0)
        finally:
            os._exit(1)
    return os.waitpid(pid, 0)[1]


def main() -> None:
    """Stop at operation 1, 2, … until the save gets through."""
    out = os.path.join(sys.argv[1], "run")
    how = sys.argv[2]
    os.fsync = lambda fd: None  # counted like the others, but a killed process loses no page: only time
    for deadly in range(1, 10_000):
        prepare(out)

        def attempt(deadly: int = deadly) -> None:
            count = arm(deadly, how)
            save(out)
            os._exit(0 if count[0] < deadly else 3)

        status = in_child(attempt)
        wrong = look(out)
        if wrong is None and status == 0:
            print(json.dumps({"calls": deadly - 1, "wrong": None}))
            return
        told = os.WIFEXITED(status) and os.WEXITSTATUS(status) == 3
        if wrong is not None or not (told or os.WIFSIGNALED(status)):
            print(json.dumps({"calls": deadly, "wrong": wrong or f"ended with status {status}"}))
            return


if __name__ == "__main__":
    main()
