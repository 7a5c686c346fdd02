"""A live process that makes no progress: the box parks itself only if the person decided so."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rgt_box.autostop import idle_clock, progress_watch

from rgt_tui.demo import LocalRunPod
from tests.process.box.harness import PATIENCE, make_job, until
from tests.process.box.parking_box import ParkingBox, by_runpod, needs_namespaces, pod, stops_sent

HUNG = "print('step 800 loss 2.1', flush=True)\nimport time\nwhile True: time.sleep(1000)"
RETRIES = (
    "import time\nwhile True:\n"
    "    print(time.strftime('%H:%M:%S'), 'waiting for peer', flush=True); time.sleep(0.3)"
)
SLOW = (
    "import sys, time\nfor step in range(8):\n    print('step', step, flush=True); time.sleep(1)\n"
    "open(sys.argv[1], 'w').close()\nwhile True: time.sleep(1000)"
)
SPINS = "print('step 1', flush=True)\nwhile True: pass"
LIMITS_OBSERVED_S = 4.5
"""Three times the limits of idleness (1 s) and of no progress (0.5 s) together."""
QUIET: dict[str, Any] = {
    "transfers": [],
    "input_at": 0.0,
    "gpus": [{"index": 0, "util": 0.0, "vram_used": 0}],
}


@pytest.fixture
def lab(agent_file: Path, tmp_path: Path) -> Iterator[tuple[ParkingBox, LocalRunPod]]:
    needs_namespaces()
    with pod(agent_file, tmp_path / "lab") as found:
        yield found


def start_training(box: ParkingBox, code: str, log: Path | None, *words: str) -> None:
    script = box.folder / "train.py"
    script.write_text(code)
    if log is None:
        box.spawn(box.python, str(script), *words)
        return
    with log.open("wb") as out:
        box.spawn(box.python, str(script), *words, stdout=out, stderr=out)


@pytest.mark.parametrize("code", [HUNG, RETRIES], ids=["sleeps", "repeats a line"])
def test_a_live_process_without_progress_is_idle_by_decision(
    lab: tuple[ParkingBox, LocalRunPod], code: str
) -> None:
    box, plane = lab
    start_training(box, code, box.folder / "train.log")
    until(lambda: (box.folder / "train.log").stat().st_size, "its first line")
    armed = box.arm(stop=by_runpod(plane), no_progress_s=2.0)
    assert armed["ok"], armed["reasons"]
    until(lambda: not box.on, "the stop")
    said = [text for text in box.told("warned") if "lives without progress" in text]
    assert said and ("step 800" in said[-1]) is (code == HUNG)
    assert "last write" in said[-1] and "CPU" in said[-1] and ", pid " in said[-1]


def test_a_cell_without_progress_and_its_runner_are_idle_by_decision(
    lab: tuple[ParkingBox, LocalRunPod],
) -> None:
    box, plane = lab
    (box.folder / "train.py").write_text(HUNG)
    job = make_job(box.folder / "job", [box.python, str(box.folder / "train.py")], ["a"])
    box.start("queue", "run", "--job", str(job))
    until(lambda: b"step 800" in read_or_empty(job / "logs/a.log"), "the cell's first line")
    assert box.arm(stop=by_runpod(plane), jobs=[str(job)], no_progress_s=2.0)["ok"]
    until(lambda: not box.on, "the stop")
    assert stops_sent(plane) == 1


def read_or_empty(path: Path) -> bytes:
    return path.read_bytes() if path.exists() else b""


@pytest.mark.parametrize(
    ("code", "log", "limit_s"),
    [(HUNG, True, 0.0), (HUNG, False, 0.5), (SPINS, True, 0.5)],
    ids=["without the decision", "a log that cannot be read", "uses the CPU"],
)
def test_everything_else_that_lives_keeps_the_box(
    lab: tuple[ParkingBox, LocalRunPod], code: str, log: bool, limit_s: float
) -> None:
    box, plane = lab
    start_training(box, code, box.folder / "train.log" if log else None)
    assert box.arm(stop=by_runpod(plane), no_progress_s=limit_s)["ok"]
    armed_at = time.monotonic()
    began: list[float] = []

    def is_watched() -> bool:
        """The recorder has looked at it again and again, for several times both limits."""
        # Each status is a process of its own. By their number alone, a busy machine took a minute.
        status = box.autostop("--status")
        began.append(status["idle_s"] or 0.0)
        return len(began) > 3 and time.monotonic() - armed_at > LIMITS_OBSERVED_S

    until(is_watched, "several readings")
    status = box.autostop("--status")
    assert (status["no_progress"], began[-1]) == ([], 0.0)
    assert box.on and box.told("intent") == []


def test_a_slow_training_is_kept_until_its_steps_end(lab: tuple[ParkingBox, LocalRunPod]) -> None:
    box, plane = lab
    log, ended = box.folder / "train.log", box.folder / "ended"
    start_training(box, SLOW, log, str(ended))
    until(lambda: log.stat().st_size, "its first step")
    assert box.arm(stop=by_runpod(plane), no_progress_s=PATIENCE / 4)["ok"]
    until(ended.exists, "its last step")
    assert box.told("warned") == []
    assert box.autostop("--status")["no_progress"] == []


class Reading:
    """A watch of this very process and a log, by a clock that the test sets."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.log = folder / "train.log"
        self.log.write_text("12:00:01 step 800\n")
        self.written = {str(self.log): True}
        monkeypatch.setattr(progress_watch, "_written_files", lambda pid: dict(self.written))
        self.boot, self.ahead, self.passed = 100.0, 0.0, 0.0
        self.row = {"pid": 7, "ticks": 9, "name": "train", "run": "train", "cpu_pct": 0.3}
        self.watch = progress_watch.ProgressWatch(10.0, 60.0, PATIENCE)

    def read(self, seconds: float = 10.0, /, **signs: Any) -> idle_clock.IdleVerdict:
        self.boot += seconds
        at = idle_clock.ClockReading(self.boot, self.boot, self.boot + self.ahead)
        return self.watch.judge_reading(at, QUIET, {"processes": [self.row], **signs}, ())

    def is_idle(self) -> bool:
        """Read for two minutes; tell whether the last reading was idle."""
        return [self.read() for _ in range(12)][-1] == idle_clock.IdleVerdict()


@pytest.fixture
def reading(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Reading:
    return Reading(tmp_path, monkeypatch)


def test_the_evidence_is_stated(reading: Reading) -> None:
    assert reading.read().active == (
        "train, pid 7, is new",
        f"train, pid 7, wrote to {reading.log}",
    )
    assert reading.read().holders == (reading.row,)
    assert reading.is_idle()
    assert reading.watch.evidence[0].startswith(
        "train, pid 7, lives without progress for 2 min: step 800, GPU 0%, CPU 0.3%, last write "
    )


@pytest.mark.parametrize(
    ("line", "advances"),
    [("12:40:07 step 800\n", False), ("12:40:07 step 801\n", True), ("\n", True)],
)
def test_only_a_repeated_line_is_no_progress(reading: Reading, line: str, advances: bool) -> None:
    assert reading.is_idle()
    with reading.log.open("a") as file:
        file.write(line)
    assert bool(reading.read().active) is advances
    assert bool(reading.watch.evidence) is not advances


def test_a_file_that_is_cut_or_written_again_is_progress(reading: Reading) -> None:
    assert reading.is_idle()
    reading.log.write_text("")
    assert reading.read().active


def test_a_clock_change_a_gap_and_work_begin_the_count_again(reading: Reading) -> None:
    for interrupt in ("clock", "gap", "work", "unknown"):
        assert reading.is_idle(), interrupt
        if interrupt == "clock":
            reading.ahead += 3600.0
            found = reading.read()
        elif interrupt == "gap":
            found = reading.read(3600.0)
        else:
            words = {"work": "active", "unknown": "unknown"}[interrupt]
            reading.read(**{words: ["x"]})
            found = reading.read()
        assert found.holders == (reading.row,), interrupt


def test_a_run_whose_log_is_not_known_is_never_one_without_progress(reading: Reading) -> None:
    reading.written = {str(reading.log): False}
    assert not reading.is_idle()
    reading.written = {}
    assert not reading.is_idle()


def test_disks_that_do_not_answer_are_unknown(
    reading: Reading, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(pid: int) -> dict[str, bool]:
        raise OSError(5, "Input/output error")

    assert reading.is_idle()
    monkeypatch.setattr(progress_watch, "_written_files", fail)
    assert reading.read().unknown == (
        "the progress of the runs cannot be read: Input/output error",
    )
    assert reading.watch.evidence == ()


def test_the_process_that_stops_the_box_continues_the_count(reading: Reading) -> None:
    """It has seconds, so it needs what the recorder has counted; a new line since then counts."""
    assert reading.is_idle()
    saved = reading.watch.dump_state()
    reading.watch = progress_watch.ProgressWatch(float("inf"), 60.0, PATIENCE, saved)
    assert reading.read() == idle_clock.IdleVerdict()
    reading.watch = progress_watch.ProgressWatch(float("inf"), 60.0, PATIENCE, saved)
    with reading.log.open("a") as file:
        file.write("step 801\n")
    assert reading.read().active
    reading.watch = progress_watch.ProgressWatch(
        float("inf"), 60.0, PATIENCE
    )  # a recorder that was killed
    assert reading.read() != idle_clock.IdleVerdict()


def test_a_runner_counts_by_the_logs_of_its_cells(reading: Reading) -> None:
    runner = {"pid": 8, "ticks": 1, "name": "runner", "text": "a runner", "logs": []}
    assert [reading.read(runners=[runner]) for _ in range(12)][-1].active == ("a runner",)
    runner["logs"] = [str(reading.log)]
    found = [reading.read(runners=[runner]) for _ in range(12)][-1]
    assert found == idle_clock.IdleVerdict()
