"""Logs in, ids out: each entry is found by its lines, the more exact one wins, and healthy logs stay silent."""

from __future__ import annotations

import pytest

from rgt_tui.handbook import shipped_pages
from rgt_tui.health import HANDBOOK, diagnose_box, run_pages
from rgt_tui.model import Severity
from tests.unit.handbook.test_line_search import CASES
from tests.unit.triage.builders import NOW, box, cell, log, queue, run

ILL: list[tuple[str, str]] = [
    ("U6", "RuntimeError: [enforce fail] . PytorchStreamWriter failed writing file data/7"),
    ("U6", "terminate called: basic_ios::clear: iostream error"),
    ("U6", 'File "torch/serialization.py", line 9\nOSError: [Errno 28] No space left on device'),
    ("U7", "OSError: [Errno 28] No space left on device"),
    ("U7", "OSError: [Errno 122] Disk quota exceeded: '/workspace/a'"),
    ("U7", "mkdir: cannot create directory '/workspace/vis': No space left on device"),
    ("U7", "run.sh: line 4: echo: write error: No space left on device\nbash: echo: No space left on device"),
    ("U33", "cp: error writing '/mnt/fs/best': No space left on device\n[09:10] auto-synced cell-3"),
    ("U33", "!! SYNC FAILED cell-3"),
    ("CKPT1", "checkpoint save failed at step 40: /workspace is read-only; last good checkpoint is step 20"),
    ("C2", "RuntimeError: PytorchStreamReader failed reading zip archive: failed finding central directory"),
    ("C2", "EOFError: Ran out of input"),
    ("DP15", "RuntimeError: DataLoader worker (pid 91) is killed by signal: Bus error. Out of shared memory?"),
    ("DP15", "RuntimeError: unable to write to file </torch_81_2>"),
    ("U9", "step 9  loss 2.1\nKilled"),
    ("U9", "run.sh: line 42:  3127 Killed                  python train.py"),
    ("U9", "RuntimeError: DataLoader worker (pid 7) is killed by signal: Killed. "),
    ("U9", "Memory cgroup out of memory: Killed process 3127 (python) total-vm:9kB"),
    ("U9", "worker exited with code 137"),
    ("U10", "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has 23 GiB"),
    ("U11", "CUDA out of memory. Of the allocated memory 0 bytes is allocated by PyTorch"),
    # In a container torch tells its own process as somebody's, by the pid that the host has for it.
    ("U10", "CUDA out of memory. Tried to allocate 9.00 MiB. Process 71 has 79.5 GiB memory in use. Of the allocated"),
    ("LO3", "CUDA out of memory. Tried 9 MiB. Process 7 has 9.5 GiB memory in use. Process 8 has 6 MiB memory in use"),
    ("LO3", "CUDA out of memory. Including non-PyTorch memory, this process has 308.00 MiB memory in use. "
     "Process 71 has 78.50 GiB memory in use. Of the allocated memory 0 bytes is allocated by PyTorch"),
    ("M8", "CUDA out of memory. Tried 9.00 MiB. 10.92 GiB is reserved by PyTorch but unallocated."),
    ("SP1", "Received Signals.SIGTERM death signal, shutting down workers"),
    ("SP1", "SIGTERM at step 338: saving, then exit 75"),
    ("SP1", '{"action": "terminate", "time": "2026-06-01T13:22:09Z"}'),
    ("SP10", "slurmstepd: error: *** JOB 9 ON n1 CANCELLED AT 2026-05-30T08:00:12 DUE TO TIME LIMIT ***"),
    ("U3", "SignalException: Process 1188 got signal: 1"),
    ("LL4", "step 4  loss 2.0\nHangup"),
    ("P8", "step 41  epoch 1  loss nan  lr 1e-4"),
    ("P8", "{'loss': nan, 'learning_rate': 1e-05, 'epoch': 0.1}"),
    ("P8", "train_loss=inf"),
    ("P8", "stopping: 8 steps in a row were not finite, the last is step 90 (epoch 1, step 90 of it)"),
    ("P9", "RuntimeError: Function 'SqrtBackward0' returned nan values in its 0th output."),
    ("P10", "Exception: Current loss scale already at minimum - cannot decrease scale anymore. Exiting run."),
    ("MN3", "[Rank 3] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=9) ran for 600 milliseconds"),
    ("U22", "NVRM: Xid (PCI:0000:65:00): 79, pid=1, GPU has fallen off the bus."),
    ("ENV1", "ModuleNotFoundError: No module named 'einops.layers'"),
    ("ENV1", "/usr/bin/python3: No module named rgt_train"),
]  # fmt: skip

HEALTHY = [
    "latest.pt: not found",
    "checkpoint runs/a: not found, starting anew",
    "retrying after HTTP Error 4290",
    "the lock could not be acquired at first",
    "node-1:88:90 [1] NCCL WARN Cuda failure 'driver shutting down'",
    "step 652  loss 1.7102  lr 2.9e-4  gnorm 0.81  41.2 k tok/s",
    "checkpoint 640 → /workspace/runs/a/checkpoints/step-00000640  38.0 MB  sha256 ok  0.40 s",
    "step 813 skipped: loss nan, gradient norm nan (epoch 1, step 813 of it; 1 in a row, 1 in all)",
    "{'loss': 10.9, 'grad_norm': nan, 'learning_rate': 0.0}",
    "guard: stop when the loss is nan for 3 steps (non-finite loss guard on)",
    'sample: "it was Killed when there was no space left, and NaN stood everywhere."',
    "[reaper] killed 0 stale workers, early stopping killed 3 trials",
    "tests/test_guard.py::test_out_of_memory_is_reported PASSED",
    "per-class IoU: road 0.98 void nan train nan\nloss 0.31 | aux 0.12",
    "best loss: inf -> 1.20 (step 20)",
    "NCCL INFO NET/IB : No device found.",
    "[12:41:07] auto-synced cell-3 to durable storage",
    "epoch finished with exit code 0",
    "info: signal handlers for SIGTERM installed",
    "batch size 128 failed, trying batch size 96",
]


def found(text: str, state: str = "failed") -> list[str]:
    sick = box(
        queues=(queue(cell(state=state, exit_code=1)),),
        runs=(),
        checkpoints=(),
        logs=(log(*text.split("\n")),),
    )
    return [finding.gotcha for finding in diagnose_box(sick, NOW, ())]


@pytest.mark.parametrize(("id_", "text"), ILL)
def test_a_line_leads_to_its_entry_and_to_no_other(id_: str, text: str) -> None:
    sick = box(
        sample=None,
        queues=(queue(cell(state="failed", exit_code=1)),),
        logs=(log(*text.split("\n")),),
    )
    assert [finding.gotcha for finding in diagnose_box(sick, NOW, ())] == [id_]


@pytest.mark.parametrize("text", HEALTHY)
@pytest.mark.parametrize("state", ["failed", "running"])
def test_healthy_lines_stay_silent(text: str, state: str) -> None:
    assert found(text, state) == []


def test_every_entry_is_found_by_some_line() -> None:
    assert {id_ for id_, _ in ILL} | {case["expected"] for case in CASES} >= {
        page.id for page in run_pages()
    }


@pytest.mark.parametrize("id_", sorted(HANDBOOK))
def test_every_entry_says_what_to_do_and_what_not(id_: str) -> None:
    entry = HANDBOOK[id_]
    assert entry.never.startswith(("Do not", "Never"))
    assert entry.fixes or id_ in ("U6", "U7")  # theirs are made from the live reading
    assert shipped_pages()[id_].sources
    assert set(entry.beats) <= set(HANDBOOK)


def test_what_an_exception_is_probably_about_is_an_entry() -> None:
    assert {page.id for page in shipped_pages().values() if page.hints} <= set(HANDBOOK)


def test_the_missing_module_is_named() -> None:
    sick = box(
        queues=(queue(cell(state="failed")),),
        logs=(log("ModuleNotFoundError: No module named 'einops'"),),
    )
    assert diagnose_box(sick, NOW, ())[0].resource == "module 'einops'"


@pytest.mark.parametrize("step", [2400, 1300])
def test_of_an_abort_at_the_end_it_is_said_which_runs_had_come_to_their_last_step(
    step: int,
) -> None:
    sick = box(
        queues=(queue(cell(state="failed", exit_code=-6)),),
        runs=(run(step=step),),
        logs=(log("saved final.pt", "terminate called without an active exception"),),
    )
    (finding,) = diagnose_box(sick, NOW, ())
    assert (finding.gotcha, finding.reading) == (
        "END1", "lstm-b has reached its last step, 2,400" if step == 2400 else None
    )  # fmt: skip


def test_a_silent_copy_is_not_called_fatal() -> None:
    assert HANDBOOK["U33"].severity is Severity.SILENT_WRONG


def test_a_timeout_gives_way_to_its_cause() -> None:
    text = "CUDA out of memory. Tried to allocate 2.00 GiB.\nWatchdog caught collective operation timeout"
    assert found(text) == ["U10"]
