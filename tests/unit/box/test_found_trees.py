"""Processes into runs, files to their runs, and a pane's screen into lines: without any process."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from rgt_box.discovery import found_run, process_tree, run_sources
from rgt_box.discovery.found_run import FoundRun, load_run
from rgt_box.discovery.training_commands import parse_command
from rgt_box.streams import curve_followers, trainings


def nodes(*rows: tuple[int, int, str]) -> dict[int, process_tree.ProcessNode]:
    found = {}
    for pid, ppid, line in rows:
        words = [line] if line.startswith(("tmux", "slurmstepd")) else line.split()
        command = parse_command(words)
        found[pid] = process_tree.ProcessNode(pid, ppid, command.kind, bool(command.why), words)
    return found


TORCHRUN = nodes(
    (1, 0, "/sbin/init"),
    (10, 1, "tmux: server"),
    (11, 10, "-bash"),
    (20, 11, "python /v/bin/torchrun --nproc_per_node 2 main.py"),
    (21, 20, "/v/bin/python -u main.py"),
    (22, 20, "/v/bin/python -u main.py"),
    (23, 21, "/v/bin/python -u main.py"),
    (24, 21, "python -c from multiprocessing.resource_tracker import main;main(5)"),
    (30, 11, "python other_train.py"),
)


def test_a_tree_of_ranks_and_workers_is_one_run() -> None:
    below = process_tree.children_by_pid(TORCHRUN)
    assert process_tree.find_root(20, TORCHRUN) == 20
    assert process_tree.find_root(30, TORCHRUN) == 30
    members = process_tree.run_members(20, below, TORCHRUN)
    assert members == [20, 21, 22, 23, 24]
    assert process_tree.pids_to_show(members, TORCHRUN) == [20, 21, 22]


def test_shells_and_starters_of_anything_lead_to_the_root() -> None:
    found = nodes(
        (5, 1, "-bash"),
        (6, 5, "bash run.sh"),
        (7, 6, "mpirun -np 2 python train.py"),
        (8, 7, "python train.py"),
        (9, 7, "python train.py"),
    )
    assert process_tree.find_root(9, found) == 7
    sweep = nodes(
        (5, 1, "-bash"),
        (6, 5, "python sweep.py"),
        (7, 6, "python train.py"),
        (8, 6, "python train.py"),
    )
    assert [process_tree.find_root(7, sweep), process_tree.find_root(8, sweep)] == [7, 8]


def test_tasks_that_slurm_starts_beside_each_other_are_one_run() -> None:
    found = nodes(
        (1, 0, "init"),
        (5, 1, "slurmstepd: [7.0]"),
        (6, 5, "python train.py --lr 1"),
        (7, 5, "python train.py --lr 1"),
        (8, 5, "python train.py --lr 2"),
    )
    assert [process_tree.find_root(pid, found) for pid in (6, 7, 8)] == [6, 6, 8]
    assert process_tree.run_members(6, process_tree.children_by_pid(found), found) == [6, 7]


def test_a_loop_in_what_proc_says_ends() -> None:
    found = nodes((5, 6, "bash a"), (6, 5, "bash b"), (7, 6, "python train.py"))
    assert process_tree.find_root(7, found) == 7


def run(
    name: str, started: float, cwd: str = "/x", ended: float | None = None, **fields: object
) -> FoundRun:
    made = FoundRun(name, hash(name), 1, 1, started)
    made.cwd, made.ended = cwd, ended
    for field, value in fields.items():
        setattr(made, field, value)
    return made


def test_files_of_two_trainings_in_one_directory_are_told_apart() -> None:
    one = run("one", 100.0, files=["/x/one.jsonl"], dirs=["/x/out1"])
    two = run("two", 200.0, files=["/x/runs/two/events"])
    whose = run_sources.FileClaims()
    whose.replace_runs([one], [])
    assert whose.is_mine(one, "/x/early.csv", 150.0)
    whose.replace_runs([one, two], [])
    assert whose.is_mine(one, "/x/one.jsonl", 300.0)
    assert not whose.is_mine(two, "/x/one.jsonl", 300.0)
    assert whose.is_mine(one, "/x/out1/a/metrics.csv", 300.0)
    assert not whose.is_mine(two, "/x/out1/a/metrics.csv", 300.0)
    assert whose.is_mine(two, "/x/runs/two/metrics.csv", 300.0)
    assert whose.is_mine(one, "/x/early.csv", 300.0)  # it was there before the other began
    assert not whose.torn
    assert not whose.is_mine(one, "/x/late.csv", 300.0)
    assert not whose.is_mine(two, "/x/late.csv", 300.0)
    assert whose.torn == {"one": {"/x/late.csv"}, "two": {"/x/late.csv"}}
    assert not whose.is_mine(one, "/x/old.csv", 50.0)


def test_a_shared_directory_of_results_belongs_to_who_ran_when_it_was_written() -> None:
    one = run("one", 100.0, cwd="/a", roots=["/data/results"], ended=200.0)
    two = run("two", 300.0, cwd="/b", roots=["/data/results"])
    whose = run_sources.FileClaims()
    whose.replace_runs([one, two], [])
    assert whose.is_mine(one, "/data/results/fold_0/log.txt", 150.0)
    assert whose.is_mine(two, "/data/results/fold_1/log.txt", 350.0)
    assert not whose.is_mine(two, "/data/results/fold_2/log.txt", 50.0)
    assert not whose.is_mine(two, "/data/other/log.txt", 350.0)
    assert run_sources.search_roots(two) == ["/b", "/data/results"]
    assert run_sources.search_roots(run("three", 1.0, cwd="/data", roots=["/data/results"])) == [
        "/data"
    ]


def test_a_log_that_a_silent_training_wrote_has_its_curves(tmp_path: Path) -> None:
    """nnU-Net opens its log for each line; what it prints may go to /dev/null."""
    log = tmp_path / "results/Dataset004/Trainer__3d/fold_0/training_log_2024_5_1_10_10_10.txt"
    log.parent.mkdir(parents=True)
    log.write_text("2024-05-01 10:10:10.123456: Epoch 3\n")
    (tmp_path / "old.log").write_text("step 1: loss 2.5\n")
    os.utime(tmp_path / "old.log", (50.0, 50.0))
    one = run("one", 100.0, cwd=str(tmp_path))
    whose = run_sources.FileClaims()
    whose.replace_runs([one], [])
    sources = run_sources.RunSources(one, whose)
    assert [(source.path, source.kind) for source in sources.scan()] == [(str(log), "console")]
    # What it prints itself comes first.
    sources.update_run(one, [str(tmp_path / "old.log")])
    assert sources.scan()[0].path == str(tmp_path / "old.log")


def test_a_log_of_its_own_takes_the_place_of_output_that_is_held_back(tmp_path: Path) -> None:
    """Python keeps up to 8 KiB of what it prints into a file: hours of nnU-Net's epochs."""
    now = time.time()
    printed = tmp_path / "console-of-7"
    printed.write_text("")
    log = tmp_path / "results/fold_0/training_log_2024_5_1_10_10_10.txt"
    log.parent.mkdir(parents=True)
    log.write_text("2024-05-01 10:10:10.123456: Epoch 3 \n")
    one = run("one", now - 500, cwd=str(tmp_path), logs=[str(printed)])
    whose = run_sources.FileClaims()
    whose.replace_runs([one], [])
    training = trainings.FoundTraining(one, whose, {})

    def log_names() -> list[str]:
        training.update(one)
        training._sources._walks.clear()
        training._sources.scan()
        training.update(one)
        return [os.path.basename(name) for name in training.log_names()]

    assert log_names() == [log.name, printed.name]
    # Output that still comes, and output that is newer than the log.
    for age in (5, 200):
        training = trainings.FoundTraining(one, whose, {})
        printed.write_text("loading data\n")
        os.utime(printed, (now - age, now - age))
        os.utime(log, (now - age - 1, now - age - 1))
        assert log_names() == [printed.name]


def test_the_next_job_of_a_sweep_has_the_name_and_the_one_before_keeps_its_curve(
    tmp_path: Path,
) -> None:
    """Hydra's multirun with its usual launcher: one process writes one directory after the other."""
    files = [tmp_path / f"multirun/2024-05-01/10-10-10/{job}/metrics.csv" for job in range(3)]

    def write(job: int, begun: float, written: float) -> None:
        """Write a job's files at these times, as a process with its settings first would have."""
        file = files[job]
        (file.parent / ".hydra").mkdir(parents=True, exist_ok=True)
        file.write_text("step,loss\n" + "".join(f"{n},{job + 1 / n}\n" for n in range(1, 9)))
        os.utime(file.parent / ".hydra", (begun, begun))
        os.utime(file, (written, written))

    one = run("one", 100.0, cwd=str(tmp_path))
    whose = run_sources.FileClaims()
    whose.replace_runs([one], [])
    sources = run_sources.RunSources(one, whose)
    curves = curve_followers.FoundScalars("one", str(tmp_path), None, {}, finder=sources)

    def points_of() -> dict[str, list[float]]:
        sources._walks.clear()
        curves.rescan_soon()
        curves._due = 0.0
        return {
            frame["run"]: [point[3]["loss"] for point in frame["points"]]
            for frame in curves.poll()
            if frame["source"].endswith("#loss")
        }

    write(0, 200.0, 300.0)
    assert list(points_of()) == ["one"]
    write(1, 310.0, 400.0)
    now = points_of()
    assert now["one"][0] == 2.0
    assert now["one/10-10-10/0"] == [1 / n for n in range(1, 9)]
    # At the same time: the name stays.
    write(2, 320.0, 410.0)
    assert list(points_of()) == ["one/10-10-10/2"]
    write(1, 310.0, 420.0)
    assert points_of() == {}


def test_what_is_followed_under_another_name_is_left_to_it() -> None:
    one = run("one", 100.0)
    whose = run_sources.FileClaims()
    whose.replace_runs([one], ["/x/named"])
    assert not whose.is_mine(one, "/x/named/metrics.csv", 150.0)


def test_the_nearer_directory_and_the_time_decide() -> None:
    outer = run("outer", 100.0, cwd="/x")
    inner = run("inner", 100.0, cwd="/x/sub")
    before = run("before", 10.0, cwd="/x", ended=20.0)
    whose = run_sources.FileClaims()
    whose.replace_runs([outer, inner, before], [])
    assert whose.is_mine(inner, "/x/sub/a.csv", 150.0)
    assert not whose.is_mine(outer, "/x/sub/a.csv", 150.0)
    assert whose.is_mine(before, "/x/b.csv", 15.0)
    assert not whose.is_mine(outer, "/x/b.csv", 15.0)


def test_a_restarted_training_keeps_the_files_of_its_earlier_life() -> None:
    old = run("one", 100.0, ended=150.0, files=["/x/a.jsonl"])
    new = run("one", 200.0)
    new.copy_history(old)
    assert (new.files, new.first_start) == (["/x/a.jsonl"], 100.0)
    assert [new.was_running_at(at, 2.0, 30.0) for at in (97.0, 99.0, 179.0, 190.0, 199.0, 1e9)] == [
        False,
        True,
        True,
        False,
        True,
        True,
    ]
    again = load_run(new.as_dict())
    assert again is not None
    assert again.as_dict() == new.as_dict()


def test_a_spoiled_memory_is_left_out() -> None:
    for raw in (
        None,
        5,
        {},
        {"name": 3},
        {"name": "a", "key": 1, "pid": "x", "ticks": 1, "started": 1.0},
    ):
        assert load_run(raw) is None
    good = {
        "name": "a",
        "key": 1,
        "pid": 2,
        "ticks": 3,
        "started": 4.0,
        "logs": "no list",
        "cwd": "/x",
    }
    found = load_run(good)
    assert found is not None
    assert (found.logs, found.cwd) == ([], "/x")


def test_fold_2_comes_before_fold_10() -> None:
    assert sorted(["fold_10", "fold_2", "a"], key=run_sources.natural_sort_key) == [
        "a",
        "fold_2",
        "fold_10",
    ]


def test_what_is_new_on_a_screen() -> None:
    assert trainings.count_repeated([], ["a"]) == 0
    assert trainings.count_repeated(["a", "b"], ["a", "b", "c"]) == 2
    assert trainings.count_repeated(["a", "b", "c"], ["b", "c", "d"]) == 2
    assert trainings.count_repeated(["x", "x"], ["x", "x", "x"]) == 2
    assert trainings.count_repeated(["a"], ["b"]) == 0


def test_what_tmux_and_slurm_print_is_parsed() -> None:
    panes_found = found_run.parse_panes("%0 0 main:0.0\n%3 1 my run:2.1\njunk\n")
    assert panes_found == {"%0": ("main:0.0", False), "%3": ("my run:2.1", True)}
    told = found_run.parse_job(
        "JobId=5 JobName=a\n   JobState=FAILED Reason=X\n   ExitCode=3:0\n   StdOut=/x/slurm-%j.out\n"
    )
    assert told == {"JobState": "FAILED", "ExitCode": "3:0", "StdOut": "/x/slurm-%j.out"}
    assert found_run.expand_slurm_log(told["StdOut"], "5") == "/x/slurm-5.out"


def test_a_log_of_its_own_gives_way_when_it_is_deleted_or_output_comes_again(
    tmp_path: Path,
) -> None:
    now = time.time()
    printed = tmp_path / "console-of-7"
    printed.write_text("loading data\n")
    os.utime(printed, (now - 200, now - 200))
    log = tmp_path / "results/fold_0/training_log_2024_5_1_10_10_10.txt"
    log.parent.mkdir(parents=True)
    line = "2024-05-01 10:10:10.123456: Epoch 3 \n"
    log.write_text(line)
    os.utime(log, (now - 30, now - 30))
    one = run("one", now - 500, cwd=str(tmp_path), logs=[str(printed)])
    whose = run_sources.FileClaims()
    whose.replace_runs([one], [])
    training = trainings.FoundTraining(one, whose, {})

    def log_names() -> list[str]:
        for _ in range(3):
            training.update(one)
            training._sources._walks.clear()
            training._sources.scan()
        training.update(one)
        return [os.path.basename(log.path) for log in training.logs]

    both = [log.name, printed.name]
    assert log_names() == both
    # A block of output comes, and the log goes on.
    os.utime(printed, (now - 20, now - 20))
    assert log_names() == [printed.name]
    os.utime(printed, (now - 100, now - 100))
    assert log_names() == both
    os.utime(printed, (now - 20, now - 20))
    os.utime(log, (now - 10, now - 10))
    assert log_names() == both
    log.unlink()
    assert log_names() == [printed.name]
    # Without any output of its own, and after its end: it is named once.
    one.logs = []
    log.write_text(line)
    assert log_names() == [log.name]
    one.ended = time.time()
    assert log_names() == [log.name]
    log.unlink()
    assert log_names() == []


def test_a_training_that_restarts_often_keeps_its_first_start() -> None:
    made = run("one", 1000.0, ended=1010.0)
    for restart in range(1, 26):
        after = run("one", 1000.0 + 100 * restart, ended=1010.0 + 100 * restart)
        after.copy_history(made)
        made = after
    assert made.first_start == 1000.0
    assert len(made.lives) == 20
    assert made.lives[-1] == [3400.0, 3410.0]
    assert made.was_running_at(1005.0, 0.0, 0.0)


def test_an_output_directory_is_judged_by_where_it_leads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = tmp_path / "deep/results"
    good.mkdir(parents=True)
    values = ["/workspace/..", "/home/me/.", "/home/me/x/..", "/a/../var/x", "//", ".", "", "x/.."]
    given = {f"A{number}_OUTPUT_DIR": value for number, value in enumerate(values)}
    given |= {"RESULTS_DIR": f"{good}/../results/", "CHECKPOINTS_PATH": str(good)}
    monkeypatch.setattr(found_run, "read_environment", lambda pid: given)
    monkeypatch.setattr(os.path, "isdir", lambda path: True)
    assert found_run.find_output_roots(os.getpid()) == [str(good)]
