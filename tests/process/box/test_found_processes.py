"""What the finder makes of real processes: who trains, where it writes, and what may not be looked at."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from rgt_box import place, procstat
from rgt_box.discovery import finder, process_tree, script_look, training_commands
from rgt_box.discovery.finder import TrainingFinder

from tests.process.box.harness import private_mount, until

REMOTE = Path(__file__).parents[3] / "remote"
SLEEP = "import time; print('up', flush=True); time.sleep(1000)"
Start = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture
def exp(tmp_path: Path) -> Path:
    """A directory of a name that no other test on this machine has."""
    return tmp_path / f"exp{uuid.uuid4().hex[:8]}"


@pytest.fixture
def start(exp: Path) -> Iterator[Start]:
    """Start a script of a name in a directory; it ends with the test."""
    started: list[subprocess.Popen[bytes]] = []

    def start(name: str, code: str, *args: str, **options: Any) -> subprocess.Popen[bytes]:
        folder = options.get("cwd") or exp
        folder.mkdir(exist_ok=True)
        (folder / name).write_text(code)
        options = {"cwd": folder, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL} | options
        words = [*options.pop("prefix", []), options.pop("python", sys.executable), name, *args]
        started.append(subprocess.Popen(words, start_new_session=True, **options))
        if started[-1].stdout is not None:
            assert started[-1].stdout.readline() == b"up\n"
        return started[-1]

    yield start
    for process in started:
        with contextlib.suppress(OSError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def pids() -> set[int]:
    """Return all processes but those of tests beside this one: the finder shows 32 trainings at most."""
    return {
        int(name)
        for name in os.listdir("/proc")
        if name.isdigit() and not is_of_another_worker(name)
    }


def is_of_another_worker(pid: str) -> bool:
    """Tell whether another of pytest's workers has started a process, by what it inherited."""
    variable = b"PYTEST_XDIST_WORKER="
    try:
        inherited = Path("/proc", pid, "environ").read_bytes().split(b"\0")
    except OSError:
        return False
    workers = [each.removeprefix(variable) for each in inherited if each.startswith(variable)]
    return bool(workers) and workers != [os.environ.get("PYTEST_XDIST_WORKER", "").encode()]


def look(found: TrainingFinder, cells: dict[int, str] | None = None) -> dict[int, dict[str, Any]]:
    """Look now; returns the live runs by pid."""
    found._looked = float("-inf")
    found.process_rows(pids(), cells or {})
    return {run["pid"]: run for run in found.build_report()["runs"] if "ended" not in run}


def test_who_holds_a_gpu_trains_but_an_inference_server_or_an_idle_notebook_does_not(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RGT_NVIDIA_DEVICES", str(tmp_path / "nvidia"))
    (tmp_path / "nvidia0").touch()
    hold = f"held = open({str(tmp_path / 'nvidia0')!r}, 'rb')\n" + SLEEP
    holder, idle = start("main.py", hold), start("other.py", SLEEP)
    server, notebook = start("vllm.py", hold), start("ipykernel_launcher.py", SLEEP)
    busy_notebook = start("colab_kernel_launcher.py", hold)
    found = look(TrainingFinder(None, {}))
    assert found[holder.pid]["why"] == "it uses GPU 0"
    assert found[busy_notebook.pid]["why"] == "it uses GPU 0"
    assert not {idle.pid, server.pid, notebook.pid} & set(found)


def test_long_work_is_found_by_and_by(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    worker = start("crunch.py", "print('up', flush=True)\nwhile True: pass")
    found = TrainingFinder(None, {})
    assert worker.pid not in look(found)
    monkeypatch.setattr(process_tree, "BUSY_AFTER_S", 0.3)
    monkeypatch.setattr(process_tree, "BUSY_CORES", 0.05)

    def busy() -> dict[str, Any] | None:
        # With limits as low as these the test's own runner is busy, too, and then the root of the tree.
        return next((run for run in look(found).values() if worker.pid in run["pids"]), None)

    assert "cores busy" in until(busy, "the busy one")["why"]


def test_a_script_that_computes_gradients_trains_whatever_its_name(start: Start, exp: Path) -> None:
    """Neither a GPU, nor half a core: the box is short of CPU, or it mostly loads data."""
    steps = SLEEP + "\ndef step(loss):\n    loss.backward()\n"
    named, idle = start("makemore.py", steps), start("other.py", SLEEP)
    page = start("demo.py", steps + "demo.launch()\n")
    (exp / "copy_memory").mkdir()
    (exp / "copy_memory" / "copymem_test.py").write_text(steps)
    module = subprocess.Popen(
        [sys.executable, "-m", "copy_memory.copymem_test"],
        cwd=exp,
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        found = TrainingFinder(None, {})
        runs = until(lambda: {named.pid, module.pid} <= set(look(found)) and look(found))
    finally:
        module.kill()
        module.wait()
    assert runs[named.pid]["why"] == "its script calls backward()"
    assert runs[module.pid]["why"] == "its script calls backward()"
    assert not {idle.pid, page.pid} & set(runs)


def test_a_notebook_that_runs_from_beginning_to_end_trains_without_a_gpu(
    start: Start, exp: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cells = [
        {"cell_type": "markdown", "source": "model.fit( is below"},
        {"cell_type": "code", "source": ["%matplotlib inline\n", "loss.backward()\n"]},
    ]
    exp.mkdir()
    (exp / "mnist.ipynb").write_text(json.dumps({"cells": cells}))
    (exp / "report.ipynb").write_text(json.dumps({"cells": cells[:1]}))
    (exp / "ipykernel_launcher.py").write_text("print('up', flush=True)\nwhile True: pass")
    kernel = "import subprocess, sys; subprocess.run([sys.executable, 'ipykernel_launcher.py'])"
    alone = start("ipykernel_launcher.py", "print('up', flush=True)\nwhile True: pass")
    named = start("papermill", SLEEP, "mnist.ipynb", "out.ipynb")
    report = start("jupyter-nbconvert", kernel, "--execute", "report.ipynb")
    shown = start("nbconvert", SLEEP, "--to", "html", "mnist.ipynb")
    runs = until(lambda: named.pid in look(found := TrainingFinder(None, {})) and look(found))
    assert runs[named.pid]["why"] == "its script calls backward()"
    assert not {report.pid, shown.pid, alone.pid} & set(runs)
    monkeypatch.setattr(process_tree, "BUSY_AFTER_S", 0.3)
    monkeypatch.setattr(process_tree, "BUSY_CORES", 0.05)
    found = TrainingFinder(None, {})

    def busy() -> dict[str, Any] | None:
        return next((run for run in look(found).values() if report.pid in run["pids"]), None)

    assert "cores busy" in until(busy, "the notebook's kernel")["why"]
    assert alone.pid not in look(found), "a kernel that runs no notebook of a training"


def test_a_script_on_a_mount_that_hangs_stops_no_search(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    hangs = threading.Event()
    monkeypatch.setattr(script_look, "script_text", lambda *_: hangs.wait(60) and None)
    trains = start("train.py", SLEEP)
    start("main.py", SLEEP)
    began = time.monotonic()
    try:
        assert trains.pid in look(TrainingFinder(None, {}))
        assert time.monotonic() - began < 20
    finally:
        hangs.set()


@pytest.mark.parametrize(
    ("age", "cpu", "busy"), [(120, 70, True), (120, 50, False), (50, 50, False)]
)
def test_work_counts_by_its_share_and_its_length(age: int, cpu: int, busy: bool) -> None:
    ticks = procstat.CLOCK_TICKS
    fields = ["S", "1", *["0"] * 9, str(cpu * ticks), "0", *["0"] * 6, "0", "0", "0"]
    stat = procstat.ProcessStat(1 << 30, f"1 (x) {' '.join(fields)}".encode())
    words = ["python", "crunch.py"]
    assert (
        bool(
            process_tree.why_it_trains(
                training_commands.parse_command(words), words, stat, time.time() - age, False
            )
        )
        == busy
    )


def test_a_pattern_takes_the_place_of_the_guess(start: Start) -> None:
    import re

    mine, other = start("train.py", SLEEP, "--mine"), start("train2.py", SLEEP)
    found = look(TrainingFinder(re.compile("--mine"), {}))
    assert (mine.pid in found, other.pid in found) == (True, False)


def test_cells_of_a_queue_are_no_finds(start: Start) -> None:
    cell = start("train.py", SLEEP)
    assert cell.pid not in look(TrainingFinder(None, {}), {cell.pid: "a"})


def test_a_find_that_turns_out_to_be_a_queue_s_cell_is_none_any_more(start: Start) -> None:
    """A job that starts while the box is watched is seen before its directory is named: it would be told twice."""
    cell, other = start("train.py", SLEEP), start("train2.py", SLEEP)
    found = TrainingFinder(None, {})
    assert {cell.pid, other.pid} <= set(look(found))
    assert cell.pid not in look(found, {cell.pid: "a"})
    cell.kill()
    cell.wait()
    runs = {run["pid"]: run for run in (look(found), found.build_report())[1]["runs"]}
    assert cell.pid not in runs and "ended" not in runs[other.pid]
    assert not any(
        event["kind"] == "training-ended" and "/train:" in event["text"] for event in found.events
    )


def test_where_nothing_keeps_the_output_is_said(start: Start, exp: Path) -> None:
    away = start("train.py", "import time; time.sleep(1000)", stdout=subprocess.DEVNULL)
    piped = start("train2.py", SLEEP)
    found = TrainingFinder(None, {})
    runs = until(lambda: {away.pid, piped.pid} <= set(look(found)) and look(found))
    assert runs[away.pid]["silent"] == "no log file: its output is discarded (/dev/null)"
    assert "a program that could not be identified" in runs[piped.pid]["silent"]
    told = [
        (event["kind"], event["level"])
        for event in found.events
        if event["text"].startswith(f"{exp.name}/train:")
    ]
    assert told == [("training-found", "info"), ("no-log", "warn")]


def test_the_log_of_a_trackers_service_is_not_the_trainings(start: Start, exp: Path) -> None:
    # It ends with the training, whose end closes its input.
    service = "import sys\nheld = open('core-debug-20240501.log', 'a')\nprint(1, flush=True)\nsys.stdin.read()"
    code = (
        "import subprocess, sys\nchild = subprocess.Popen(['wandb-core', '-c', "
        + repr(service)
        + "],"
        " executable=sys.executable, stdin=subprocess.PIPE, stdout=subprocess.PIPE)\nchild.stdout.readline()\n"
    )
    code += "import os\nos.makedirs('.cache')\ncached = open('.cache/symon-debug-1.log', 'a')\n"
    training = start("train.py", code + SLEEP)
    run = look(TrainingFinder(None, {}))[training.pid]
    assert len(run["pids"]) == 2
    assert [path for path in run.get("logs", []) if "-debug-" in path] == []


def test_directories_that_the_environment_names_for_output_are_known(
    start: Start, exp: Path, tmp_path: Path
) -> None:
    """nnU-Net has its results in $nnUNet_results, wherever it works."""
    exp.mkdir()
    folder = tmp_path / "nnUNet_results"
    folder.mkdir()
    env = {
        "nnUNet_results": str(folder),
        "LOG_DIR": "/var/log",
        "WORK_DIR": "/tmp",
        "RUN_DIR": "here",
    }
    process = start("train.py", SLEEP, env={**os.environ, **env, "OUTPUT_DIR": "/no/such/place"})
    assert look(TrainingFinder(None, {}))[process.pid]["roots"] == [str(folder)]


def test_an_end_that_nobody_saw_lies_between_two_times(start: Start) -> None:
    process = start("train.py", SLEEP)
    first = TrainingFinder(None, {})
    assert process.pid in look(first)
    kept = json.loads(json.dumps(first.build_report()))
    process.kill()
    process.wait()
    for run in kept["runs"]:
        run["seen"] -= (
            1005.0  # some more: a start in ticks and a time in seconds differ by a little
        )
    later = TrainingFinder(None, kept)
    assert process.pid not in look(later)
    (run,) = [run for run in later.build_report()["runs"] if run["pid"] == process.pid]
    assert run["ended"] - run["seen"] > 900.0
    text = next(
        event["text"] for event in later.events if f"pid {process.pid} has" in event["text"]
    )
    assert "last seen 10" in text
    assert "exit status" in text


def test_a_reboot_ends_what_ran_before_it(start: Start, exp: Path) -> None:
    process = start("train.py", SLEEP)
    first = TrainingFinder(None, {})
    look(first)
    later = TrainingFinder(None, dict(first.build_report(), boot="another"))
    (name,) = [run["name"] for run in look(later).values() if run["pid"] == process.pid]
    assert (
        name == f"{exp.name}/train"
    )  # found anew: whether the number means the same process cannot be known


def test_what_ran_before_a_reboot_had_ended_when_the_box_began_anew(exp: Path) -> None:
    """Not when somebody looks for the first time, perhaps a day later."""
    run = {"name": "exp/t", "key": 1, "pid": 7, "ticks": 5, "started": 1000.0, "seen": 2000.0}
    began = procstat.boot_time() + (procstat.start_ticks(1) or 0) / procstat.CLOCK_TICKS
    found = TrainingFinder(None, {"boot": "another", "runs": [run]})
    look(found)
    (ended,) = [run for run in found.build_report()["runs"] if run["name"] == "exp/t"]
    assert ended["ended"] == pytest.approx(began, abs=2.0)
    assert ended["seen"] == 2000.0


def test_ended_runs_are_forgotten_by_number_and_age(monkeypatch: pytest.MonkeyPatch) -> None:
    old = {"key": 1, "pid": 1, "ticks": 1, "started": 1.0, "seen": 2.0}
    now = time.time()
    runs = [dict(old, name=f"r{n}", ended=now - n) for n in range(60)] + [
        dict(old, name="x", ended=now - 1e6)
    ]
    found = TrainingFinder(None, {"boot": place.boot_id(), "runs": runs})
    look(found)
    names = [run["name"] for run in found.build_report()["runs"] if run["pid"] == 1]
    assert sorted(names) == sorted(f"r{n}" for n in range(finder.REMEMBERED))


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A directory into which every user may look, which pytest's own are not."""
    with tempfile.TemporaryDirectory(prefix="rgt-open-") as name:
        Path(name).chmod(0o755)
        yield Path(name)


@pytest.mark.skipif(os.geteuid() != 0, reason="takes root to be another user")
def test_what_another_user_runs_is_found_and_what_may_not_be_read_is_said(
    start: Start, open_folder: Path, tmp_path: Path
) -> None:
    mine = start("train.py", SLEEP)
    user = {"user": 65534, "group": 65534, "extra_groups": [], "python": "/usr/bin/python3"}
    nobodys = start("train.py", SLEEP, cwd=open_folder, **user)
    found = look(TrainingFinder(None, {}))
    assert (found[nobodys.pid]["user"], found[nobodys.pid]["cwd"]) == ("nobody", str(open_folder))
    code = (
        "import os, sys, json\nos.setgroups([]); os.setgid(65534); os.setuid(65534)\n"
        f"sys.path.insert(0, {str(REMOTE)!r})\n"
        "from rgt_box.discovery.finder import TrainingFinder\nfound = TrainingFinder(None, {})\n"
        "found.process_rows({int(n) for n in os.listdir('/proc') if n.isdigit()}, {})\n"
        "print(json.dumps(found.build_report()))"
    )
    readable = (
        f"import sys; sys.path.insert(0, {str(REMOTE)!r}); import rgt_box.discovery.finder, pwd"
    )
    done = subprocess.run(
        [sys.executable, "-c", readable + "\n" + code], stdout=subprocess.PIPE, check=True
    )
    (run,) = [run for run in json.loads(done.stdout)["runs"] if run["pid"] == mine.pid]
    assert (run["user"], run.get("cwd"), run.get("logs")) == ("root", None, None)
    assert any("cannot be read" in note for note in run["notes"])
    assert "belongs to another user" in run["silent"]


@pytest.mark.skipif(os.geteuid() != 0, reason="takes root to look into another namespace")
def test_the_files_of_a_container_are_read_through_its_root(start: Start, tmp_path: Path) -> None:
    (tmp_path / "hidden").mkdir()
    inside = private_mount(
        f"mount -t tmpfs none {tmp_path / 'hidden'}", f"exec > {tmp_path / 'hidden' / 'log'}"
    )
    process = start("train.py", SLEEP, prefix=inside, stdout=None)
    found = TrainingFinder(None, {})
    run = until(
        lambda: (look(found).get(process.pid) or {}).get("logs") and look(found)[process.pid]
    )
    assert run["logs"] == [f"/proc/{process.pid}/root{tmp_path}/hidden/log"]
    until(lambda: Path(run["logs"][0]).read_text() == "up\n", "the line")
    assert not (tmp_path / "hidden" / "log").exists()


def test_looking_again_and_again_reads_little(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    others = [start(f"tool{n}.py", SLEEP) for n in range(3)]
    process = start("train.py", SLEEP)
    found = TrainingFinder(None, {})
    for _ in range(4):
        look(found)
    asked: list[int] = []
    judged = process_tree.why_by_open_files

    def counted(pid: int, has_cards: bool, metrics: bool) -> str:
        asked.append(pid)
        return judged(pid, has_cards, metrics)

    monkeypatch.setattr(process_tree, "why_by_open_files", counted)
    for _ in range(8):
        assert process.pid in look(found)
    assert process.pid not in asked
    assert all(0 < asked.count(other.pid) <= 3 for other in others)


def test_what_a_script_says_of_resuming_and_how_many_ranks_there_were_before(start: Start) -> None:
    code = "if False:\n    from transformers import Trainer\n    Trainer().train()\n" + SLEEP
    ranks = {"RANK": "0", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}
    first = start("train.py", code, env=os.environ | ranks | {"WORLD_SIZE": "4"})
    finder = TrainingFinder(None, {})
    run = until(
        lambda: (run := look(finder)[first.pid]).get("marks") and run, "a look at its script"
    )
    assert (run["marks"], run["world"]) == (["train()"], 4)
    assert [use.split(" ")[0] for use in run["uses"]] == ["transformers"]
    os.killpg(first.pid, signal.SIGKILL)
    first.wait()
    again = start("train.py", code, env=os.environ | ranks | {"WORLD_SIZE": "2"})
    run = until(lambda: look(finder).get(again.pid), "the second one")
    assert (run["world"], run["world_before"]) == (2, 4)


def test_a_script_on_a_mount_that_hangs_keeps_nobody_waiting(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The finder runs where the samples are taken."""
    code = "# trainer.fit(model)\n" + SLEEP
    hung, real = threading.Event(), script_look.inspect_script
    monkeypatch.setattr(
        script_look, "inspect_script", lambda *given: hung.wait(600) and real(*given)
    )
    first = start("train.py", code)
    found = TrainingFinder(None, {})
    assert look(found)[first.pid].get("marks") is None
    second = start("train_b.py", code)
    assert look(found)[second.pid].get("marks") is None
    hung.set()
    for process in (first, second):
        assert until(lambda: look(found)[process.pid].get("marks"), "its script") == ["fit"]  # noqa: B023
