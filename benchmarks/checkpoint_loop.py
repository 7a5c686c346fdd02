"""A training loop that saves in one given way, measured from outside the saving. Run by `benchmarks.checkpoint`.

``python -m benchmarks.checkpoint_loop METHOD DIR SAVES WIDTH`` prints one JSON line.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import shutil
import statistics
import sys
import threading
import time
import zlib
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

SETTLE = 3
"""Steps between two saves, once the last one is on the disk."""


class Model(torch.nn.Module):
    """A language model of `layers` blocks; with AdamW its state is about 12 bytes a parameter."""

    def __init__(self, width: int, layers: int) -> None:
        super().__init__()
        self.embed = torch.nn.Embedding(8192, width)
        block = torch.nn.TransformerEncoderLayer
        self.blocks = torch.nn.ModuleList(
            block(width, 8, 4 * width, 0.1, batch_first=True, norm_first=True)
            for _ in range(layers)
        )
        self.head = torch.nn.Linear(width, 8192)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return the loss of predicting the tokens themselves."""
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x)
        loss: torch.Tensor = torch.nn.functional.cross_entropy(
            self.head(x).flatten(0, 1), tokens.flatten()
        )
        return loss


@dataclass
class Save:
    """One save: seconds the call took, seconds a later step waited for it, seconds until it was on the disk."""

    call: float
    waited: float = 0.0
    durable: float = 0.0
    done: threading.Event = field(default_factory=threading.Event)
    begun: float = field(default_factory=time.perf_counter)

    def finish(self) -> None:
        """It is on the disk."""
        self.durable = time.perf_counter() - self.begun
        self.done.set()


class Loop:
    """The loop around every method.

    Args:
        place: Where to save.
        width: Of the model.
    """

    def __init__(self, place: Path, width: int, layers: int) -> None:
        torch.manual_seed(0)
        torch.set_num_threads(1)
        self.place = place
        self.model = Model(width, layers)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4)
        self.tokens = torch.randint(0, 8192, (2, 64))
        self.before_step: Callable[[], None] = lambda: None

    def compute(self) -> None:
        """One step."""
        loss = self.model(self.tokens)
        self.optimizer.zero_grad()
        loss.backward()
        self.before_step()
        self.optimizer.step()

    def state(self) -> dict[str, Any]:
        """What is saved."""
        return {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}

    def size(self) -> int:
        """Bytes of all tensors."""
        states = [value for entry in self.optimizer.state.values() for value in entry.values()]
        tensors = [*self.model.state_dict().values(), *states]
        return sum(t.numel() * t.element_size() for t in tensors if isinstance(t, torch.Tensor))

    def measure(self, begin: Callable[[int], Save], saves: int) -> dict[str, Any]:
        """Save `saves` times, and once before that to warm up."""
        idle: list[float] = []
        rows: list[tuple[list[float], Save]] = []
        for number in range(saves + 1):
            save = None
            during: list[float] = []
            for step in range(1_000):
                start = time.perf_counter()
                self.compute()
                over = save is not None and save.done.is_set()
                if save is None and step == SETTLE:
                    save = begin(number)
                took = time.perf_counter() - start
                if over:
                    break
                if save is not None:
                    during.append(took)
                elif step and number:
                    idle.append(took)
            assert save is not None, "a save was begun"
            if number:
                rows.append((during, save))
        usual = statistics.median(idle)
        return {
            "step": usual,
            "stall": [save.call + save.waited for _, save in rows],
            "total": [sum(seconds - usual for seconds in during) for during, _ in rows],
            "durable": [save.durable for _, save in rows],
            "bytes": self.size(),
        }


def timed(work: Callable[[], Any]) -> Callable[[int], Save]:
    """A save that is over when the call returns."""

    def begin(number: int) -> Save:
        save = Save(0.0)
        work()
        save.call = time.perf_counter() - save.begun
        save.finish()
        return save

    return begin


def naive(loop: Loop) -> Callable[[int], Save]:
    """``torch.save(path)``, as most loops do it."""
    return timed(lambda: torch.save(loop.state(), loop.place / "checkpoint.pt"))


def atomic(loop: Loop) -> Callable[[int], Save]:
    """Temporary file, fsync, rename, fsync of the directory."""

    def save() -> None:
        temporary = loop.place / "checkpoint.tmp"
        with temporary.open("wb") as file:
            torch.save(loop.state(), file)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(loop.place / "checkpoint.pt")
        folder = os.open(loop.place, os.O_RDONLY)
        os.fsync(folder)
        os.close(folder)

    return timed(save)


def dcp(loop: Loop) -> Callable[[int], Save]:
    """``torch.distributed.checkpoint.save``."""
    library: Any = importlib.import_module("torch.distributed.checkpoint")

    def begin(number: int) -> Save:
        folder = loop.place / f"dcp{number}"
        save = timed(lambda: library.save(loop.state(), checkpoint_id=folder))(number)
        shutil.rmtree(loop.place / f"dcp{number - 1}", ignore_errors=True)
        return save

    return begin


def seal(folder: Path) -> None:
    """Read back the files in `folder`, which are fsynced, and note their checksums durably."""
    sums = {path.name: crc32_of(path) for path in folder.iterdir()}
    with (folder / "sums.tmp").open("w") as file:
        json.dump(sums, file)
        file.flush()
        os.fsync(file.fileno())
    (folder / "sums.tmp").replace(folder / "sums.json")
    for place in (folder, folder.parent):
        fd = os.open(place, os.O_RDONLY)
        os.fsync(fd)
        os.close(fd)


def crc32_of(path: Path) -> int:
    """Return the CRC-32 of a file, read by pieces."""
    found = 0
    with path.open("rb") as file:
        while piece := file.read(1 << 20):
            found = zlib.crc32(piece, found)
    return found


def dcp_async(
    loop: Loop, mode: str = "thread", *, read_back: bool = False
) -> Callable[[int], Save]:
    """``torch.distributed.checkpoint.async_save``, by a thread; `mode` names other ways to call it.

    With `read_back` a save is over once its files are read back and their checksums are on the
    disk, too.
    """
    dist: Any = importlib.import_module("torch.distributed")
    library: Any = importlib.import_module("torch.distributed.checkpoint")
    from torch.distributed.checkpoint.staging import DefaultStager, StagingOptions
    from torch.distributed.checkpoint.state_dict_saver import (
        AsyncCheckpointerType,
        AsyncSaveResponse,
    )

    kind = AsyncCheckpointerType.THREAD
    stager: Any = None
    if mode in ("reused", "staging"):
        asynchronous = mode == "staging"
        stager = DefaultStager(StagingOptions(False, False, asynchronous, False))
    if mode == "process":
        kind = AsyncCheckpointerType.PROCESS
        store = dist.FileStore(str(loop.place / "group"), 1)
        dist.init_process_group("gloo", store=store, rank=0, world_size=1)
        stager = DefaultStager(StagingOptions(False, True, False, False))
    pending: list[Callable[[], Any]] = []

    def before() -> None:
        while pending:
            pending.pop()()

    loop.before_step = before

    def begin(number: int) -> Save:
        folder = loop.place / f"dcp{number}"
        save = Save(0.0)
        response = library.async_save(
            loop.state(), checkpoint_id=folder, async_checkpointer_type=kind, async_stager=stager
        )
        save.call = time.perf_counter() - save.begun
        if isinstance(response, AsyncSaveResponse):
            staged, future = response.staging_completion, response.upload_completion

            def wait() -> None:
                start = time.perf_counter()
                staged.result()
                save.waited = time.perf_counter() - start

            pending.append(wait)
        else:
            future = response

        def over(ended: Future[Any]) -> None:
            assert ended.exception() is None, ended.exception()
            if read_back:
                seal(folder)
            save.finish()
            shutil.rmtree(loop.place / f"dcp{number - 1}", ignore_errors=True)

        future.add_done_callback(over)
        return save

    return begin


class ReadBack:
    """Reads each checkpoint back as soon as it is published, by a thread of this process."""

    def __init__(self, latest: Path) -> None:
        self._latest = latest
        self.at: dict[int, float] = {}
        threading.Thread(target=self._follow, daemon=True).start()

    def _follow(self) -> None:
        from rgt_train.checkpoint import manifest

        while True:
            time.sleep(0.005)
            with contextlib.suppress(OSError):
                place = self._latest.parent / self._latest.read_text().strip()
                step = int(place.name.split("-")[1])
                if step not in self.at:
                    manifest.verify_checkpoint(place, threads=1)
                    self.at[step] = time.time()


def ours(loop: Loop, saves: int, *, read_back: bool = False) -> dict[str, Any]:
    """`rgt_train.Run`, as a person uses it; with `read_back` each checkpoint is verified after its save."""
    from rgt_train import Options, Run

    steps, every, half = (saves + 5) * 12, 12, 6
    waiting = Waiting(
        loop.optimizer
    )  # around whatever the run itself does before an optimizer step
    run = Run(
        loop.place / "run", model=loop.model, optimizer=loop.optimizer, samples=steps, batch_size=1,
        epochs=1,
        options=Options(save_every=every, log_every=0, loggers=()),
    )  # fmt: skip
    waiting.close_after()
    latest = loop.place / "run" / "checkpoints" / "latest"
    if read_back:
        verified = ReadBack(latest).at
    else:
        verified = {}
    times: dict[int, float] = {}
    calls: dict[int, float] = {}
    begun: dict[int, float] = {}
    published: dict[int, float] = {}
    with run:
        for _ in run.epochs():
            for _ in run.batches():
                start = time.perf_counter()
                loop.compute()
                step, called, begun[run.step_now + 1] = (
                    run.step_now + 1,
                    time.perf_counter(),
                    time.time(),
                )
                run.step(1.0)
                over = time.perf_counter()
                times[step], calls[step] = over - start, over - called
                with contextlib.suppress(OSError, ValueError):
                    published.setdefault(
                        int(latest.read_text().split("-")[1]), latest.stat().st_mtime
                    )
    published.update(verified)
    # The first save warms up, and by the third a run also searches all objects of the process (80
    # ms; next by the seventh): the saves after it are measured. The last is that of the end, which
    # nothing overlaps.
    saved = list(range(4 * every, (4 + saves) * every, every))
    assert set(saved) <= set(published), f"saves of steps {saved} asked, {sorted(published)} seen"
    # As with the others: the step that begins the save, and those that begin before it is on the
    # disk.
    ends = {step: begun[step] + calls[step] for step in times}
    during = {step: [step] for step in saved}
    for step, steps_of in during.items():
        while ends[steps_of[-1]] < published[step]:
            steps_of.append(steps_of[-1] + 1)
    usual = statistics.median(
        seconds for step, seconds in times.items() if step > every and step % every > half
    )
    return {
        "step": usual,
        "stall": [calls[step] + waiting.of(step + 1) for step in saved],
        "total": [sum(times[one] - usual for one in during[step]) for step in saved],
        "durable": [published[step] - begun[step] for step in saved],
        "bytes": loop.size(),
    }


class Waiting:
    """How long each optimizer step was held up by what was hooked to it in between, seconds."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self._optimizer = optimizer
        self._entered = 0.0
        self._taken: list[float] = []
        optimizer.register_step_pre_hook(lambda *_: self._enter())

    def close_after(self) -> None:
        """Stop the clock behind the hooks that are there now."""
        self._optimizer.register_step_pre_hook(lambda *_: self._leave())

    def of(self, step: int) -> float:
        """Return what step number `step` waited."""
        return self._taken[step - 1]

    def _enter(self) -> None:
        self._entered = time.perf_counter()

    def _leave(self) -> None:
        self._taken.append(time.perf_counter() - self._entered)


class Memory:
    """The most memory of this process and its children, in bytes, sampled; what they share is counted once."""

    def __init__(self) -> None:
        self.most = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def close(self) -> int:
        """Stop; return the peak."""
        self._over.set()
        self._thread.join()
        return self.most

    def _watch(self) -> None:
        while not self._over.wait(0.02):
            own, shared = zip(
                *(_own_and_shared(pid) for pid in (os.getpid(), *_children())), strict=True
            )
            self.most = max(self.most, sum(own) + max(shared))


def _children() -> list[int]:
    found: list[int] = []
    for task in Path("/proc/self/task").iterdir():
        with contextlib.suppress(OSError):
            found += [int(pid) for pid in (task / "children").read_text().split()]
    return found


def _own_and_shared(pid: int) -> tuple[int, int]:
    """Return the bytes that a process has for itself (a fair part of mapped files), and those of shared memory."""
    own = shared = 0
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith(("Pss_Anon:", "Pss_File:")):
                own += 1024 * int(line.split()[1])
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("RssShmem:"):
                shared = 1024 * int(line.split()[1])
    return own, shared


METHODS: dict[str, Callable[[Loop], Callable[[int], Save]]] = {
    "naive": naive,
    "atomic": atomic,
    "dcp": dcp,
    "dcp_async": dcp_async,
    "dcp_async_reused": lambda loop: dcp_async(loop, "reused"),
    "dcp_async_staging": lambda loop: dcp_async(loop, "staging"),
    "dcp_async_process": lambda loop: dcp_async(loop, "process"),
    "dcp_async_read_back": lambda loop: dcp_async(loop, "reused", read_back=True),
}


def main() -> None:
    """Measure one method."""
    method, place, saves, width, layers = sys.argv[1], Path(sys.argv[2]), *map(int, sys.argv[3:6])
    loop = Loop(place, width, layers)
    for _ in range(2):
        loop.compute()
    watched = "memory" in sys.argv
    memory = Memory()
    for _ in range(8 if watched else 0):  # the peak within a step belongs to the training
        loop.compute()
    before = memory.close()
    memory = Memory() if watched else memory
    if method in ("ours", "ours_read_back"):
        result = ours(loop, saves, read_back=method != "ours")
    else:
        result = loop.measure(METHODS[method](loop), saves)
    if watched:
        result["memory"] = memory.close() - before
    else:
        result["memory"] = 0
    print("\n" + json.dumps(result), flush=True)
    os._exit(0)


if __name__ == "__main__":
    main()
