"""How a log ends, in the words of any program: statuses, signals, kinds of failure, and the nearest page by words."""

from __future__ import annotations

from pathlib import Path

import pytest

from rgt_tui.cli.triage_files import as_json, as_text, triage_log
from rgt_tui.handbook import FileFinding, shipped_pages, states_of

STEPS = "".join(f"step {n}/5000 | loss {3 - n / 3000:.4f}\n" for n in range(0, 60, 10))
TRACE = (
    'Traceback (most recent call last):\n  File "/srv/train.py", line 9, in <module>\n    go()\n'
)
ENDS = [
    ("U9", "]  exits with return code = -9"),
    ("U9", "worker 3 exited with code -9"),
    ("U9", "ERROR: child process 4412 died: signal 9"),
    ("U9", "[pool] rank 2 got SIGKILL"),
    ("U9", "ExitCode: 137"),
    ("U9", "Main process exited, code=killed, status=9/KILL"),
    ("SEG1", "child terminated with signal 11"),
    ("SEG1", "*** SIGSEGV (@0x0) received by PID 88 (TID 0x7f) from PID 0; stack trace: ***"),
    ("SEG1", "exit_code: 139"),
    ("SEG1", "Process finished with exit code -6"),
    ("PROC1", "the worker process(12) is dead, probably it crashed during its start"),
    ("HMEM1", "fatal: out of memory, malloc failed (tried to allocate 99 bytes)"),
    ("HMEM1", "java.lang.OutOfMemoryError: Java heap space"),
    ("U10", "vulkan: VK_ERROR_OUT_OF_DEVICE_MEMORY"),
    ("U7", "error: filesystem is full"),
    ("U7", "Kein Speicherplatz auf dem Gerät verfügbar"),
    ("U7", "ENOSPC: no space left on device, write"),
    ("NET1", "Temporary failure in name resolution"),
    ("NET1", "java.net.UnknownHostException: hub"),
    ("U28", "RuntimeError: ext was compiled with torch 2.1, but torch 2.4 is loaded"),
    ("CKPT2", "ValueError: Shape mismatch: checkpoint has (10, 2), model has (5, 2)"),
]
HEALTHY = [
    "exit code 0",
    "signal 15 handled, 9 workers returned 0",
    "HTTP status: 139 files, return value 137.5",
    "Missing keys: 0\nUnexpected keys: []",
    "restarting after SIGTERM timed out\n" + STEPS,
    "disk usage 137 of 200 GB, 9 files",
]
NEAREST = "[store] FATAL the certificate of our mirror is not trusted"


def find_pages_of(log: str, folder: Path) -> list[FileFinding]:
    path = folder / "run.log"
    path.write_text(log, encoding="utf-8")
    return triage_log(path, shipped_pages(), (), [])[0]


@pytest.mark.parametrize(("page", "line"), ENDS)
def test_an_end_is_named_in_any_programs_words(page: str, line: str, tmp_path: Path) -> None:
    found = find_pages_of(f"{STEPS}{line}\n", tmp_path)
    assert found[0].gotcha == page
    assert not found[0].by_words


@pytest.mark.parametrize("line", HEALTHY)
def test_numbers_and_remarks_are_no_ends(line: str, tmp_path: Path) -> None:
    assert find_pages_of(f"{STEPS}{line}\n", tmp_path) == []


def test_a_launchers_kill_does_not_explain_an_exception(tmp_path: Path) -> None:
    log = f"{TRACE}ValueError: depth\n[launcher] rank 1 got SIGKILL\n"
    found = find_pages_of(log, tmp_path)
    assert found[0].gotcha == "PY1"
    assert all(one.by_words for one in found if one.gotcha == "U9")


def test_a_wrapped_exception_is_read_by_its_own_name(tmp_path: Path) -> None:
    line = "pool.TaskError: BrokenPipeError: [Errno 32] Broken pipe"
    assert states_of(line) == [line, "BrokenPipeError: [Errno 32] Broken pipe"]
    assert states_of("pool.TaskError: count: 3") == ["pool.TaskError: count: 3"]
    found = find_pages_of(f"{TRACE}{line}\n", tmp_path)
    assert "PIPE1" in [one.gotcha for one in found if not one.by_words]


def test_a_missing_device_that_is_only_warned_of_does_not_end_a_run(tmp_path: Path) -> None:
    warned = (
        "2026-02-01 10:00:00.5: W tensorflow/dso_loader.cc:60] Could not load dynamic library "
        "'libcudart.so.11.0'; dlerror: libcudart.so.11.0: cannot open shared object file\n"
    )
    alone = find_pages_of(warned, tmp_path)
    both = find_pages_of(
        f"{warned}{TRACE}ModuleNotFoundError: No module named 'einops'\n", tmp_path
    )
    assert alone[0].gotcha == "LIB1"
    assert [one.gotcha for one in both][:2] == ["ENV1", "LIB1"]


def test_a_notebooks_frame_shows_the_library(tmp_path: Path) -> None:
    log = (
        "TypeError                                 Traceback (most recent call last)\n"
        "Cell In[3], line 1\n----> 1 tuner.run()\n\n"
        "File ~/env/lib/python3.11/site-packages/tuner/core.py:88, in Tuner.run(self)\n"
        "     87     self.x\n---> 88     return step(1, 2)\n\n"
        "TypeError: step() takes 1 positional argument but 2 were given\n"
    )
    assert [one.gotcha for one in find_pages_of(log, tmp_path)] == ["IMP1", "PY1"]


def test_the_nearest_page_comes_where_no_page_knows_the_end(tmp_path: Path) -> None:
    (nearest,) = find_pages_of(f"{STEPS}\x1b[31m{NEAREST}\x1b[0m\n", tmp_path)
    assert (nearest.gotcha, nearest.by_words, nearest.line_no) == ("SSL1", True, 7)
    assert nearest.confidence == pytest.approx(0.4)
    assert as_json("run.log", [nearest])["findings"][0]["by_words"] is True
    assert next(as_text("run.log", [nearest])).startswith("run.log:7: nearest page by words: SSL1 ")


def test_the_nearest_page_comes_behind_an_unknown_exception(tmp_path: Path) -> None:
    found = find_pages_of(
        f"{TRACE}hub.StoreError: the certificate of our mirror is not trusted\n", tmp_path
    )
    assert [(one.gotcha, one.by_words) for one in found] == [("PY1", False), ("SSL1", True)]


@pytest.mark.parametrize(
    "log",
    [
        f"{NEAREST}\n{STEPS}",  # the program went on
        f"{STEPS}the certificate of our mirror cannot be trusted\n",  # no line says that something ended
        f"{NEAREST}\n" + "copied a file\n" * 40,
        f"{STEPS}[x] FATAL quux zyzzyva brr\n",  # no page is near
    ],
)
def test_without_an_end_or_a_near_page_nothing_is_offered(log: str, tmp_path: Path) -> None:
    assert not any(one.by_words for one in find_pages_of(log, tmp_path))


def test_a_known_cause_needs_no_nearest_page(tmp_path: Path) -> None:
    found = find_pages_of(f"torch.OutOfMemoryError: CUDA out of memory.\n{NEAREST}\n", tmp_path)
    assert not any(one.by_words for one in found)
