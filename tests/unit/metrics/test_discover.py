"""Sources below a run's directory: found by name and content, within bounds, cheaply the second time."""

from __future__ import annotations

import json
import os
import sqlite3
import struct
from pathlib import Path
from typing import Any

import pytest
from rgt_box.metrics import (
    BY_KIND,
    candidates,
    discover,
    identify_kind,
    open_source,
    preference,
    run_name,
)
from rgt_box.metrics.formats import FORMATS
from rgt_wire.event_records import masked_crc

LINE = "iter 1: loss 2.5, time 1.0ms\n"
EVENTS = struct.pack("<Q", 0) + struct.pack("<I", masked_crc(struct.pack("<Q", 0))) + b"\0\0\0\0"
ROWS = {
    "rgt": '{"step": 1, "time": 1.0, "loss": 2}\n{"event": "resume", "step": 1}\n',
    "llamafactory": '{"current_steps": 5, "total_steps": 40, "loss": 3.8}\n',
    "verl": '{"step": 3, "data": {"actor/pg_loss": -0.01}}\n',
    "mmengine": '{"lr": 0.01, "loss": 0.1, "time": 0.0025, "epoch": 1, "iter": 5, "step": 5}\n',
    "detectron2": '{"iteration": 19, "total_loss": 1.2}\n',
    "jsonl": '{"step": 1, "loss": 2}\n',
    "lightning": "epoch,lr-SGD,step,train_loss\r\n0,,1,0.057\r\n",
    "ultralytics": "      epoch,   train/box_loss,  lr/pg0\n 1, 0.3, 0.1\n",
    "keras": "epoch,loss,val_loss\r\n0,1,2\r\n",
    "csv": "step,my_loss\n1,2\n",
    "mlflow_files": "1795253821909 nan 3\n",
    "torchtune": "Step 1 | loss:2.3456 lr:2e-05 \n",
    "hf_trainer": '{\n  "best_metric": null,\n  "log_history": []}',
    "console": LINE,
}
FILES = {
    "rgt": "metrics.jsonl",
    "llamafactory": "trainer_log.jsonl",
    "verl": "exp.jsonl",
    "mmengine": "20260101_120000/vis_data/20260101_120000.json",
    "detectron2": "metrics.json",
    "jsonl": "mine.jsonl",
    "lightning": "lightning_logs/version_3/metrics.csv",
    "ultralytics": "results.csv",
    "keras": "history.csv",
    "csv": "progress.csv",
    "mlflow_files": "mlruns/1/abc/metrics/train/loss",
    "torchtune": "logs/log_1790000000.txt",
    "hf_trainer": "checkpoint-20/trainer_state.json",
    "console": "train.log",
}
SCHEMAS = {
    "mlflow": "CREATE TABLE metrics (key, value, timestamp, run_uuid, step, is_nan)",
    "trackio": "CREATE TABLE metrics (id INTEGER PRIMARY KEY, run_id, timestamp, run_name, step, metrics)",
    "aitoolkit": "CREATE TABLE metrics (step, key, value_real, value_text)",
}


def write(path: Path, content: str | bytes, mtime: float | None = None) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    if mtime is not None:
        os.utime(path, (mtime, mtime))
    return path


class Finder(discover.SourceFinder):
    """Its clock stands still, but where a test turns it: how far a walk comes in its time is this machine's matter."""

    def __init__(self, root: str, **options: Any) -> None:
        super().__init__(root, **{"clock": lambda: 0.0, **options})


def kinds(root: Path) -> dict[str, str]:
    return {os.path.relpath(source.path, root): source.kind for source in Finder(str(root)).scan()}


def test_every_kind_has_a_rank_a_reader_and_a_way_to_be_known() -> None:
    assert len(BY_KIND) == len(FORMATS)
    assert [each.kind for each in FORMATS if each.sniff is None or not each.names] == [
        "tensorboard_dir"
    ]
    assert (
        preference("rgt")
        < preference("tensorboard")
        < preference("console:nanogpt")
        < preference("hf_trainer")
    )
    assert all(
        open_source(kind, "/nowhere").read().problems or kind == "hf_trainer" for kind in BY_KIND
    )


@pytest.mark.parametrize("kind", sorted(ROWS))
def test_a_file_is_known_by_its_content(kind: str, tmp_path: Path) -> None:
    path = write(tmp_path / FILES[kind], ROWS[kind])
    assert kinds(tmp_path) == {FILES[kind]: kind}
    assert identify_kind(str(path)) == kind


@pytest.mark.parametrize(
    "shown", ["loss=0.31, step=4", "loss: 0.31, step: 4", "lr=1e-4, acc=0.5", "steps=4, loss=nan"]
)
def test_a_bar_with_commas_is_no_header_of_a_table(shown: str, tmp_path: Path) -> None:
    frame = f"Epoch 1:  40%|████      | 4/10 [00:09<00:13, 2.25s/it, {shown}]"
    path = write(tmp_path / "train.log", f"\r{frame}\r{frame}\n")
    assert identify_kind(str(path)) == "console"
    write(path, f"{frame}\n" * 3)
    assert identify_kind(str(path)) == "console"


@pytest.mark.parametrize(
    "names", ["Step,lr=1e-4 - loss", "epoch;val: loss", "step,loss@k=5 (mean)"]
)
def test_a_header_may_name_its_runs_settings(names: str, tmp_path: Path) -> None:
    path = write(tmp_path / "export.csv", f"{names}\n1,2.5\n")
    assert identify_kind(str(path)) in ("csv", "keras")


@pytest.mark.parametrize("kind", sorted(SCHEMAS))
def test_a_database_is_known_by_its_tables(kind: str, tmp_path: Path) -> None:
    """By those on its first page; where they are not there, a child reads them."""
    path = tmp_path / "any.db"
    db = sqlite3.connect(path)
    db.execute(SCHEMAS[kind])
    db.close()
    assert kinds(tmp_path) == {"any.db": kind}
    assert [each.name for each in tmp_path.iterdir()] == ["any.db"]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("events.out.tfevents.1.host", b"\0" * 64),
        ("run-x.wandb", "text"),
        ("results.csv", "a,b\n1,2\n"),
        ("data.jsonl", '{"text": "hello"}\n'),
        ("broken.jsonl", "{" * 5000),
        ("config.json", '{"epoch": 1}'),
        ("notes.db", "text"),
        ("notes.md", LINE),
        ("core.log", b"\x7fELF" + b"\0" * 64),
        ("vis_data/scalars.json", ROWS["mmengine"]),
        ("empty.log", ""),
    ],
)
def test_a_name_alone_is_not_believed(name: str, content: str | bytes, tmp_path: Path) -> None:
    write(tmp_path / name, content)
    assert kinds(tmp_path) == {}


@pytest.mark.parametrize("first", [b"", b"nohup: ignoring input\n"])
@pytest.mark.parametrize("hole", [100, 300_000])
def test_a_log_that_copytruncate_emptied_is_read_behind_its_zeros(
    hole: int, first: bytes, tmp_path: Path
) -> None:
    """A program that did not open it to append writes on where it was: what comes first is zeros.

    Another one, here nohup, may have written into the emptied file before.
    """
    with (tmp_path / "train.log").open("wb") as file:
        file.write(first)
        file.seek(hole)
        for step in range(1, 9):
            file.write(b"step %d loss %.3f\n" % (step, 2 / step))
    (source,) = Finder(str(tmp_path)).scan()
    assert source.kind == "console"
    points = open_source("console", source.path).read().points
    assert points[-1].x == 8


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        ('[\n    {\n        "main/loss": 2.5,\n        "epoch": 1,\n        "iteration": 20\n    }\n]', "json"),
        (LINE, "console"),
        ("[core]\n\tbare = false\n", "console"),
    ],
)  # fmt: skip
def test_a_file_named_log_is_what_it_contains(content: str, kind: str, tmp_path: Path) -> None:
    """Chainer's reporter writes its list of rows under this name, and `python train.py > log` the console."""
    path = tmp_path / "result" / "log"
    path.parent.mkdir()
    path.write_text(content)
    assert identify_kind(str(path), candidates(str(path))) == kind


def test_event_files_of_one_directory_belong_together(tmp_path: Path) -> None:
    write(tmp_path / "runs/Jan01_00-00-00_box/events.out.tfevents.1.box", EVENTS)
    assert kinds(tmp_path) == {"runs/Jan01_00-00-00_box/events.out.tfevents.1.box": "tensorboard"}
    write(tmp_path / "runs/Jan01_00-00-00_box/events.out.tfevents.2.box", EVENTS)
    (source,) = Finder(str(tmp_path)).scan()
    assert (source.kind, source.run) == ("tensorboard_dir", tmp_path.name)
    assert source.path.endswith("Jan01_00-00-00_box")


def test_of_several_trainer_states_the_one_written_last_counts(tmp_path: Path) -> None:
    for number, mtime in ((20, 3000), (40, 2000), (500, 1000)):
        write(tmp_path / f"a/checkpoint-{number}/trainer_state.json", ROWS["hf_trainer"], mtime)
    write(tmp_path / "b/checkpoint-7/trainer_state.json", ROWS["hf_trainer"], 1000)
    write(tmp_path / "b/tmp-checkpoint-9/trainer_state.json", ROWS["hf_trainer"], 9000)
    assert set(kinds(tmp_path)) == {
        "a/checkpoint-20/trainer_state.json",
        "b/checkpoint-7/trainer_state.json",
    }


@pytest.mark.parametrize(
    ("path", "kind", "run"),
    [
        ("train.log", "console", "root"),
        ("exp1/lightning_logs/version_2/metrics.csv", "lightning", "exp1"),
        ("exp1/runs/Nov21_09-33-05_vm/events.out.tfevents.1", "tensorboard", "exp1"),
        ("exp1/tb/20260101-1200/events.out.tfevents.1", "tensorboard", "exp1"),
        ("keras/train/events.out.tfevents.1", "tensorboard", "keras"),
        ("runs/detect/train3/results.csv", "ultralytics", "runs/detect/train3"),
        ("wandb/offline-run-20260101_120000-ab12/run-ab12.wandb", "wandb", "root"),
        ("mlruns/0/ab12/metrics/train/loss", "mlflow_files", "mlruns/0/ab12"),
        ("x/20260101_120000/vis_data/20260101_120000.json", "mmengine", "x"),
        ("logs/none/attempt_0/0/stdout.log", "console", "logs/none"),
        ("exp/dvclive/plots/metrics/eval/loss.tsv", "csv", "exp"),
        ("multirun/2024-05-01/10-10-10/3/metrics.csv", "csv", "10-10-10/3"),
        (
            "multirun/2024-05-01/10-10-10/lr=0.1/tb/events.out.tfevents.1",
            "tensorboard",
            "10-10-10/lr=0.1",
        ),
        ("outputs/2024-05-01/10-10-10/metrics.csv", "csv", "outputs/2024-05-01/10-10-10"),
        ("sweep/3/lightning_logs/version_0/metrics.csv", "lightning", "sweep/3"),
    ],
)
def test_a_run_is_named_by_its_own_directory(path: str, kind: str, run: str) -> None:
    assert run_name("/some/root", "/some/root/" + path, kind) == run


def test_places_without_scalars_are_not_entered(tmp_path: Path) -> None:
    write(tmp_path / "a.log", LINE)
    for name in (
        ".git",
        "node_modules",
        "site-packages",
        "__pycache__",
        ".cache",
        "global_step100",
    ):
        write(tmp_path / name / "b.log", LINE)
    write(tmp_path / "/".join("123456") / "deep.log", LINE)
    write(tmp_path / "/".join("1234567") / "too-deep.log", LINE)
    assert set(kinds(tmp_path)) == {"a.log", "1/2/3/4/5/6/deep.log"}


def test_links_are_followed_once_and_loops_end(tmp_path: Path) -> None:
    root = tmp_path / "root"
    write(root / "real/a.log", LINE)
    write(tmp_path / "elsewhere/b.log", LINE)
    (root / "again").symlink_to(root / "real")
    (root / "real/loop").symlink_to(root)
    (root / "real/self").symlink_to("self")
    (root / "out").symlink_to(tmp_path / "elsewhere")
    (root / "copy.log").symlink_to(root / "real/a.log")
    assert set(kinds(root)) == {"real/a.log", "out/b.log"}


def test_a_walk_is_bounded(tmp_path: Path) -> None:
    for n in range(60):
        write(tmp_path / f"{n}/a.log", LINE, 1000.0 + n)
    finder = Finder(str(tmp_path))
    found = finder.scan()
    assert len(found) == discover.PER_KIND
    assert min(source.mtime for source in found) == 1020.0
    finder = Finder(str(tmp_path), limits=discover.WHOLE._replace(entries=30))
    finder.scan()
    assert finder.cut == "size"
    times = iter([0.0] + [100.0] * 1000)
    finder = Finder(str(tmp_path), clock=lambda: next(times))
    assert (finder.scan(), finder.cut) == ([], "time")
    assert Finder(str(tmp_path / "none")).scan() == []


def test_a_gentle_walk_enters_no_dataset_and_nothing_hidden(tmp_path: Path) -> None:
    write(tmp_path / "logs/a.log", LINE)
    for name in (".hidden", "data", "dataset_v2", "miniconda3", "a/b/c/d/e"):
        write(tmp_path / name / "b.log", LINE)
    for n in range(30):
        write(tmp_path / f"shards/{n:02}/c.log", LINE)
    finder = Finder(str(tmp_path), limits=discover.GENTLE._replace(folder=20))
    assert {os.path.relpath(source.path, tmp_path) for source in finder.scan()} == {"logs/a.log"}
    assert len(Finder(str(tmp_path)).scan()) == 36


def test_a_gentle_walk_follows_what_the_run_itself_has_made(tmp_path: Path) -> None:
    deep = "logs/train/runs/2024-05-01_10-00-00/csv/version_0/metrics.csv"
    write(tmp_path / deep, ROWS["lightning"])
    finder = Finder(str(tmp_path), limits=discover.GENTLE, since=1000.0)
    assert [os.path.relpath(source.path, tmp_path) for source in finder.scan()] == [deep]
    for folder in (tmp_path / deep).parents:
        if folder.is_relative_to(tmp_path):
            os.utime(folder, (900.0, 900.0))
    assert Finder(str(tmp_path), limits=discover.GENTLE, since=1000.0).scan() == []


@pytest.mark.parametrize(
    "name", ["logs/train/loss.tsv", "fold_0/training_log_2024_5_1_10_10_10.txt"]
)
def test_names_of_tables_and_logs(name: str, tmp_path: Path) -> None:
    kind = "csv" if name.endswith(".tsv") else "console"
    content = {"csv": "timestamp\tstep\ttrain/loss\n1790000000000\t0\t2.5\n", "console": LINE}
    write(tmp_path / name, content[kind])
    assert kinds(tmp_path) == {name: kind}


def test_an_unchanged_directory_is_not_listed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "a/a.log", LINE)
    write(tmp_path / "b/b.log", LINE)
    for name in ("a", "b", "."):
        os.utime(tmp_path / name, (1000, 1000))
    listed: list[str] = []
    real = os.scandir

    def scandir(path: str) -> Any:
        listed.append(os.path.basename(path))
        return real(path)

    monkeypatch.setattr(os, "scandir", scandir)
    finder = Finder(str(tmp_path))
    first = finder.scan()
    assert len(listed) == 3
    assert finder.scan() == first
    assert len(listed) == 3
    write(tmp_path / "b/c.log", LINE)
    assert [os.path.basename(source.path) for source in finder.scan()] == [
        "a.log",
        "b.log",
        "c.log",
    ]
    assert listed[3:] == ["b"]


def test_a_file_is_looked_into_once_it_is_known_and_again_while_it_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def counted(path: str, *rest: Any) -> str | None:
        asked.append(os.path.basename(path))
        return identify_kind(path, *rest)

    monkeypatch.setattr(discover, "identify_kind", counted)
    write(tmp_path / "known.log", LINE)
    late = write(tmp_path / "late.jsonl", "")
    finder = Finder(str(tmp_path))
    assert [source.kind for source in finder.scan()] == ["console"]
    finder.scan()
    assert sorted(asked) == ["known.log", "late.jsonl"]
    late.write_text(ROWS["jsonl"])
    assert [source.kind for source in finder.scan()] == ["console", "jsonl"]
    late.unlink()
    assert [source.kind for source in finder.scan()] == ["console"]


def test_sources_known_longest_come_first(tmp_path: Path) -> None:
    write(tmp_path / "one.log", LINE, 1000)
    finder = Finder(str(tmp_path))
    finder.scan()
    write(tmp_path / "two.log", LINE, 500)
    os.utime(tmp_path / "one.log", (3000, 3000))
    assert [os.path.basename(source.path) for source in finder.scan()] == ["one.log", "two.log"]


def test_a_pipe_with_a_promising_name_holds_nothing_up(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "train.log")
    assert kinds(tmp_path) == {}


def test_names_that_are_not_looked_at() -> None:
    assert candidates("/a/model.safetensors") == candidates("/a/README") == ()
    assert "console" in candidates("/a/slurm-12.out")
    assert json.dumps(candidates("/a/TRAIN.LOG")) == '["console"]'
