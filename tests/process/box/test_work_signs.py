"""What works beside what a sample tells: CPU time of processes and of their ended children, and new results."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from rgt_box import procstat
from rgt_box.autostop import idle_clock, saving, work_signs
from rgt_box.autostop.work_signs import ResultWatch, newest_change, read_process

from tests.process.box.harness import make_job, until

SPIN = "import time\nend = time.process_time() + 0.25\nwhile time.process_time() < end: pass"


@contextmanager
def running(*words: str) -> Iterator[subprocess.Popen[bytes]]:
    child = subprocess.Popen(words, stdout=subprocess.PIPE)
    try:
        yield child
    finally:
        child.kill()
        child.communicate()


def test_what_ended_children_used_counts_as_their_parents() -> None:
    """A build, or a loop of short programs, is never seen at two looks."""
    script = f"{sys.executable} -c '{SPIN}'; echo up; exec sleep 1000"
    with running("/bin/bash", "-c", script) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"up\n"
        row = read_process(child.pid)
        assert row is not None
        assert row["cpu"] >= 20
        assert (row["counts"], row["run"], row["notebook"]) == (True, "", False)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["python3", "-m", "rgt_train", "--config", "x"], ("run", True)),
        (["python3", "train.py"], ("run", True)),
        (["python3", "-m", "ipykernel_launcher", "-f", "x"], ("notebook", True)),
        (
            ["python3", "-I", "-S", "/root/.cache/rgt/rgt-box-0123456789abcdef.pyz", "watch"],
            ("counts", False),
        ),
        (
            ["python3", "-I", "-S", "/root/.cache/rgt/rgt-box-0123456789abcdef.pyz", "send"],
            ("counts", True),
        ),
        (
            ["python3", "-I", "-S", "/root/.cache/rgt/rgt-box-0123456789abcdef.pyz", "autostop"],
            ("counts", False),
        ),
        (["nvidia-smi", "-l"], ("looks_on", True)),
        (["bash"], ("counts", True)),
    ],
)
def test_what_a_process_is_by_its_words(
    monkeypatch: pytest.MonkeyPatch, words: list[str], expected: tuple[str, bool]
) -> None:
    monkeypatch.setattr(procstat, "read_cmdline", lambda pid, limit=0: words)
    row = read_process(os.getpid())
    assert row is not None
    assert bool(row[expected[0]]) is expected[1]


def test_a_process_that_gets_little_of_a_core_and_waits_for_more_works() -> None:
    """Where many share a core, each uses little of it; a neighbour in another container may use all of it."""
    core = str(min(os.sched_getaffinity(0)))
    spin = [
        "taskset",
        "-c",
        core,
        sys.executable,
        "-c",
        "print('up', flush=True)\nwhile True: pass",
    ]
    with ExitStack() as stack:
        children = [stack.enter_context(running(*spin)) for _ in range(4)]
        for child in children:
            assert child.stdout is not None
            assert child.stdout.readline() == b"up\n"
        signs = work_signs.WorkSigns({})
        signs._processes(0.0, {}, {})
        first = dict(signs._cpu)
        pids = {child.pid for child in children}

        def have_run() -> list[dict[str, Any]]:
            signs._cpu = dict(first)
            rows = [row for row in signs._processes(1.0, {}, {}) if row["pid"] in pids]
            return rows if all(row["cpu_pct"] >= 20.0 for row in rows) else []

        for row in until(have_run, "a look in which each has run"):
            assert (
                row["waits_pct"] > row["cpu_pct"]
            )  # of four, each waits three quarters of the time
            assert idle_clock.cpu_demand_pct(row) > 2 * row["cpu_pct"]
    assert idle_clock.cpu_demand_pct({"cpu_pct": 0.3, "waits_pct": 20.0}) == 0.3


def test_kernel_threads_and_what_has_ended_are_none() -> None:
    assert read_process(1 << 22) is None
    with subprocess.Popen(["true"]) as child:
        until(lambda: Path(f"/proc/{child.pid}/stat").read_text().split()[2] == "Z")
        assert read_process(child.pid) is None


def test_the_second_process_of_a_container_is_one_like_any_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where pids are one's own, number 2 is no kernel thread."""
    text = Path("/proc/self/stat").read_bytes()
    _, rest = text.split(b" ", 1)
    head, tail = rest.rsplit(b")", 1)
    fields = tail.split()
    fields[1] = b"2"
    monkeypatch.setattr(
        procstat, "read_bytes", lambda path, limit: b"2 " + head + b") " + b" ".join(fields)
    )
    monkeypatch.setattr(procstat, "read_cmdline", lambda pid, limit=0: ["python3", "train.py"])
    assert read_process(2) is not None
    fields[6] = b"%d" % 0x00200040  # the kernel's own
    assert read_process(2) is None


def test_what_is_written_is_told_once_and_only_what_is_new(tmp_path: Path) -> None:
    (tmp_path / "out/deep").mkdir(parents=True)
    (tmp_path / "out/old.pt").write_text("1")
    watch = ResultWatch([], [str(tmp_path / "out*")])
    assert [watch.find_new_write(), watch.find_new_write()] == ["", ""]
    (tmp_path / "out/deep/new.pt").write_text("1")
    assert watch.find_new_write() == str(tmp_path / "out/deep")
    assert watch.find_new_write() == ""
    with (tmp_path / "out/old.pt").open("a") as file:
        file.write("2")
    assert watch.find_new_write() == str(tmp_path / "out")
    assert watch.find_new_write() == ""


def test_many_files_are_looked_at_by_and_by(tmp_path: Path) -> None:
    for folder in "abcd":
        (tmp_path / "out" / folder).mkdir(parents=True)
        for number in range(5):
            (tmp_path / "out" / folder / str(number)).write_text("1")
    watch = ResultWatch([], [str(tmp_path / "out")])
    assert [watch.find_new_write(most=6) for _ in range(8)] == [
        ""
    ] * 8  # they are all new, as far as anybody knows
    with (tmp_path / "out/b/3").open("a") as file:
        file.write("2")
    assert str(tmp_path / "out/b") in [watch.find_new_write(most=6) for _ in range(8)]


def test_packages_next_to_results_are_not_looked_at(tmp_path: Path) -> None:
    """They would keep a look at the results from its end for an hour, and the last one before a stop as well."""
    packages = ("venv/lib/python3.11/site-packages/torch", "web/node_modules/x", ".git/objects/ab")
    for folder in packages:
        (tmp_path / "exp" / folder).mkdir(parents=True)
        for number in range(50):
            (tmp_path / "exp" / folder / str(number)).write_text("1")
    (tmp_path / "exp/outputs").mkdir()
    watch = ResultWatch([], [str(tmp_path / "exp")])
    assert [watch.find_new_write(most=25), watch.find_new_write(most=25)] == ["", ""]
    (tmp_path / "exp/outputs/new.pt").write_text("1")
    assert watch.find_new_write(most=25) == str(tmp_path / "exp/outputs")
    assert newest_change([str(tmp_path / "exp")], float("inf")).path.startswith(
        str(tmp_path / "exp/outputs")
    )
    inside = str(tmp_path / "exp" / packages[0])
    assert newest_change([inside], float("inf")).path.startswith(inside), (
        "what is named is looked at"
    )


def test_cells_write_where_their_job_says(tmp_path: Path) -> None:
    job = make_job(tmp_path / "job", ["true"], ["a", "b"], durable=str(tmp_path / "kept/{name}"))
    roots = work_signs.result_roots([str(job)], [])
    assert roots == [str(tmp_path / at) for at in ("job/out/a", "kept/a", "job/out/b", "kept/b")]
    assert newest_change([str(tmp_path)], 0.0) == (0, "", 0, False)


def test_who_saves_on_sigterm(tmp_path: Path) -> None:
    """A run with our callback: its directory says that this very launch writes it, and it heeds the signal."""
    code = "import signal, time; signal.signal(signal.SIGTERM, lambda *_: 0); print('up', flush=True); time.sleep(1000)"
    plain = "import time; print('up', flush=True); time.sleep(1000)"
    for script, heeds in ((code, True), (plain, False)):
        with running(sys.executable, "-c", script) as child:
            assert child.stdout is not None
            assert child.stdout.readline() == b"up\n"
            assert saving.catches_sigterm(child.pid) is heeds
            (tmp_path / "run.json").write_text('{"last": {"time": 1.0}}')
            assert saving.is_ours(child.pid, (str(tmp_path),)) is False  # an earlier launch's
            (tmp_path / "run.json").write_text('{"last": {"time": 99999999999.0}}')
            assert saving.is_ours(child.pid, (str(tmp_path),)) is heeds
            (tmp_path / "run.json").write_text("{")
            assert saving.is_ours(child.pid, (str(tmp_path),)) is False


@pytest.mark.parametrize(
    ("words", "ours"),
    [
        (["python3", "-m", "rgt_train", "--config", "x"], True),
        (
            ["/opt/venv/bin/python", "/root/.cache/rgt/rgt-train-0123456789abcdef.pyz", "--config"],
            True,
        ),
        (["torchrun", "--nproc-per-node", "2", "-m", "rgt_train", "--config", "x"], True),
        (["python3", "train.py", "rgt_train"], False),
        (["python3", "train.py", "--out", "rgt_train"], False),
        (["bash", "-c", "python -m rgt_train"], False),
    ],
)
def test_launches_of_our_trainer(
    monkeypatch: pytest.MonkeyPatch, words: list[str], ours: bool
) -> None:
    monkeypatch.setattr(procstat, "read_cmdline", lambda pid: words)
    assert saving.is_ours(os.getpid()) is ours


def test_the_newest_change_is_none_of_the_future(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("1")
    found = newest_change([str(tmp_path)], float("inf"))
    assert (found.path in (str(tmp_path), str(tmp_path / "a")), found.whole) == (True, True)
    assert newest_change([str(tmp_path)], float("inf"), until=1.0) == (0, "", found.mark, True)
    with (tmp_path / "a").open("a") as file:
        file.write("2")
    assert newest_change([str(tmp_path)], float("inf")).mark != found.mark
