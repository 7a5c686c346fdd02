"""Metrics beside metrics.jsonl: event files read by the agent and by TensorBoard, services behind a guard, run.json."""

from __future__ import annotations

import json
import math
import os
import random
import re
import shutil
import subprocess
import time
import zlib
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from rgt_train import Options, Run, UsageError
from rgt_train.tracking import report as sinks
from rgt_train.tracking import run_log
from rgt_train.tracking.report import (
    EventFile,
    GuardedSink,
    PatchedCrc,
    RunReport,
    ServiceSink,
    SinkLaunch,
    open_sinks,
)
from rgt_wire.event_records import crc32c
from rgt_wire.event_records import mask_crc as masked

from tests.process.train import frameworks
from tests.process.train.harness import TINY, Zygote, metrics


class TestChecksum:
    @pytest.mark.parametrize(
        ("data", "crc"),
        [(b"", 0), (b"123456789", 0xE3069283), (bytes(32), 0x8A9136AA), (b"\xff" * 32, 0x62A8AB43)],
    )
    def test_known_values(self, data: bytes, crc: int) -> None:
        """The check value of the CRC catalogue and the vectors of RFC 3720."""
        assert crc32c(data) == crc
        assert crc32c(data) != zlib.crc32(data) or not data

    def test_the_mask_of_tfrecord(self) -> None:
        crc = 0x12345678
        assert masked(crc) == (((crc >> 15) | (crc << 17) & 0xFFFFFFFF) + 0xA282EAD8) & 0xFFFFFFFF

    def test_patched_is_the_crc_of_the_whole(self) -> None:
        draw = random.Random(1)
        for size in (1, 9, 200):
            places = sorted(draw.sample(range(size), draw.randint(1, size)))
            template = bytearray(draw.randbytes(size))
            for place in places:
                template[place] = 0
            patched = PatchedCrc(bytes(template), places)
            for _ in range(5):
                changing = draw.randbytes(len(places))
                for place, byte in zip(places, changing, strict=True):
                    template[place] = byte
                assert patched.crc_with(changing) == crc32c(bytes(template))


VALUES = {"loss": 1.25, "lr": 3e-4, "grad_norm": 0.5, "val_acc": 0.75}


def write_events(folder: Path) -> None:
    first = EventFile(folder)
    for step in range(1, 301):
        first.record_point(step, 1000.0 + step, {**VALUES, "loss": step / 4})
    first.close()
    second = EventFile(folder, step=200)  # resumed at 200: the last hundred come again
    for step in range(201, 231):
        second.record_point(step, 2000.0 + step, {**VALUES, "loss": -float(step)})
    second.record_point(20_000, 3000.0, {"loss": math.nan, "huge": 1e300, "ünï": -math.inf})
    second.close()


def test_the_agent_reads_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from rgt_box.metrics import main

    write_events(tmp_path / "tensorboard")
    assert main([str(tmp_path / "tensorboard"), "--json"]) == 0
    series = {line["tag"]: line for line in map(json.loads, capsys.readouterr().out.splitlines())}
    assert set(series) == {"loss", "lr", "grad_norm", "val_acc", "huge", "ünï"}
    assert {line["source"] for line in series.values()} == {"tensorboard"}
    assert (series["loss"]["points"], series["loss"]["nonfinite"]) == (
        231,
        1,
    )  # what came again counts once
    assert (series["lr"]["points"], series["lr"]["last"]) == (230, [230, pytest.approx(3e-4)])


TENSORBOARD = """
import sys, json
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
read = EventAccumulator(sys.argv[1], size_guidance={"scalars": 0}); read.Reload()
print(json.dumps({tag: [(e.step, e.value, e.wall_time) for e in read.Scalars(tag)] for tag in read.Tags()["scalars"]}))
"""


def test_tensorboard_reads_them_and_forgets_what_comes_again(tmp_path: Path) -> None:
    write_events(tmp_path / "events")
    read = json.loads(frameworks.run(TENSORBOARD, tmp_path, "events").stdout)
    assert set(read) == {"loss", "lr", "grad_norm", "val_acc", "huge", "ünï"}
    loss = {step: value for step, value, _ in read["loss"]}
    assert len(read["loss"]) == 231
    assert [loss[step] for step in range(1, 201)] == [step / 4 for step in range(1, 201)]
    assert [loss[step] for step in range(201, 231)] == [-float(step) for step in range(201, 231)]
    assert math.isnan(loss[20_000])
    assert read["huge"][0][1] == pytest.approx(3.4028234e38)
    assert read["lr"][0] == [1, pytest.approx(3e-4), 1001.0]
    assert read["ünï"][0][1] == -math.inf


class Collect:
    def __init__(self) -> None:
        self.points: list[tuple[int, Mapping[str, float]]] = []
        self.closed = False

    def record_point(self, step: int, seconds: float, values: Mapping[str, float]) -> None:
        if step == 3:
            raise ConnectionError("the service is gone")
        self.points.append((step, values))

    def close(self) -> None:
        self.closed = True


def test_a_sink_that_fails_is_switched_off_and_told_once(tmp_path: Path) -> None:
    said: list[str] = []
    bad, good = Collect(), Collect()
    report = RunReport(tmp_path)
    report.add_sinks([GuardedSink("bad", bad, said.append)])
    for step in (1, 2, 3, 4, 5):
        report.record_point(step, 0.1, loss=1.0)
    report.close()
    assert [step for step, _ in bad.points] == [1, 2]
    assert said == [
        "logger bad failed and is switched off for this launch: ConnectionError: the service is gone"
    ]
    assert not bad.closed
    assert len(metrics(tmp_path)) == 5
    report = RunReport(tmp_path)
    report.add_sinks([GuardedSink("good", good, said.append)])
    report.close()
    assert good.closed


def test_values_that_are_not_finite_stay_json(tmp_path: Path) -> None:
    report = RunReport(tmp_path)
    report.record_point(1, 0.5, loss=math.nan, lr=1.0)
    report.append_event("odd", 2, values=[math.inf, {"a": -math.inf}])
    report.close()
    first, second = metrics(tmp_path)
    assert (first["loss"], first["lr"]) == ("nan", 1.0)
    assert second["values"] == ["inf", {"a": "-inf"}]


class FakeService:
    """Has the calls of trackio, whose own package is not among the test's libraries."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, Any]] = []

    def init(self, **arguments: Any) -> FakeService:
        self.calls.append(("init", arguments))
        return self

    def log(self, values: dict[str, float]) -> None:
        self.calls.append(("log", values))

    def finish(self) -> None:
        self.calls.append(("finish", None))


def test_a_service_gets_one_identity_per_run_and_the_step_as_a_column(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = FakeService()
    monkeypatch.setitem(__import__("sys").modules, "trackio", service)
    launch = SinkLaunch(str(tmp_path / "run"), 40, {"lr": 0.1}, "birds")
    (sink,) = open_sinks(["trackio"], launch, print)
    sink.record_point(41, 0.0, {"loss": 1.0})
    sink.close()
    assert service.calls == [
        (
            "init",
            {
                "project": "birds",
                "name": launch.run_identity,
                "config": {"lr": 0.1},
                "resume": "allow",
            },
        ),
        ("log", {"train_step": 41, "loss": 1.0}),
        ("finish", None),
    ]
    assert launch.run_identity == SinkLaunch(f"{tmp_path}/x/../run", 0, {}, "").run_identity


def test_groups_and_tags_reach_the_services(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    launch = SinkLaunch(str(tmp_path / "run"), 0, {}, "birds", "ablations", ["a", "b"])
    arguments: dict[str, dict[str, Any]] = {}
    for name in ("wandb", "trackio"):
        service = FakeService()
        monkeypatch.setitem(__import__("sys").modules, name, service)
        open_sinks([name], launch, print)
        arguments[name] = service.calls[0][1]
    assert (arguments["wandb"]["group"], arguments["wandb"]["tags"]) == ("ablations", ["a", "b"])
    assert arguments["trackio"]["group"] == "ablations"
    assert (
        arguments["trackio"]["config"] == {"tags": ["a", "b"]}
        and "tags" not in arguments["trackio"]
    )
    said: list[str] = []
    open_sinks(["tensorboard"], launch, said.append)
    assert said == ["TensorBoard has no groups and tags: tracker_group and tags do nothing there"]


def test_updates_and_dead_units_are_measured_as_worked_out_by_hand(tmp_path: Path) -> None:
    """SGD with gradient g moves w by lr·g; a unit with bias -100 is zero for every sample."""
    first, rectifier, last = torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.Linear(4, 1)
    model = torch.nn.Sequential(first, rectifier, last)
    first.bias.data = torch.tensor([100.0, -100.0, 100.0, 100.0])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    options = Options(dynamics_every=4, log_every=2, save_every=100)
    ratios: dict[int, float] = {}
    run = Run(
        tmp_path, model=model, optimizer=optimizer, samples=32, batch_size=2, epochs=1, accumulate=2,
        max_steps=8, options=options,
    )  # fmt: skip
    with run:
        for _ in run.epochs():
            for indices in run.batches():
                model(torch.tensor(indices).float()[:, None].expand(-1, 3) / 32).mean().backward()
                if not run.micro():
                    continue
                both = []
                for weight in (first.weight, last.weight):
                    assert weight.grad is not None
                    both.append(float(0.01 * weight.grad.norm() / weight.detach().norm()))
                ratios[run.step_now + 1] = sum(both) / 2
                model.eval()
                model(torch.full((1, 3), 1e9))  # an evaluation proves nothing about a unit
                model.train()
                optimizer.step()
                optimizer.zero_grad()
                run.step(0.0)
    points = {row["step"]: row for row in metrics(tmp_path) if "event" not in row}
    assert {step for step, row in points.items() if "update_ratio" in row} == {4, 8}
    for step in (4, 8):
        assert points[step]["update_ratio"] == pytest.approx(ratios[step], rel=1e-3)
        assert points[step]["dead_units"] == 0.25
    assert not optimizer._optimizer_step_pre_hooks and not rectifier._forward_hooks


class FakeMlflow:
    """Has the calls of mlflow, whose own package is not among the test's libraries; keeps its runs."""

    def __init__(self) -> None:
        self.runs: list[SimpleNamespace] = []
        self.current: Any = None

    def set_experiment(self, name: str) -> SimpleNamespace:
        return SimpleNamespace(experiment_id=f"id of {name}")

    def search_runs(self, ids: list[str], filter_string: str, **rest: Any) -> list[SimpleNamespace]:
        assert ids == ["id of birds"] and rest == {"max_results": 1, "output_format": "list"}
        return [
            run for run in self.runs if filter_string == f"tags.rgt_run = '{run.tags['rgt_run']}'"
        ]

    def start_run(self, run_id: str = "", run_name: str = "", tags: Any = None) -> None:
        if not run_id:
            info = SimpleNamespace(run_id=f"r{len(self.runs)}")
            self.runs.append(
                SimpleNamespace(info=info, name=run_name, tags=tags, params={}, points=[])
            )
        (self.current,) = [run for run in self.runs if not run_id or run.info.run_id == run_id]

    def log_params(self, values: dict[str, Any]) -> None:
        self.current.params.update(values)

    def log_metrics(self, values: dict[str, float], step: int) -> None:
        self.current.points.append((step, values))

    def end_run(self) -> None:
        self.current = None


def test_mlflow_continues_the_run_of_an_earlier_launch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = FakeMlflow()
    monkeypatch.setitem(__import__("sys").modules, "mlflow", service)
    for step in (0, 40):
        launch = SinkLaunch(str(tmp_path / "run"), step, {"lr": 0.1}, "birds", "ablations", ["a"])
        (sink,) = open_sinks(["mlflow"], launch, print)
        sink.record_point(step + 1, 0.0, {"loss": 1.0})
        sink.close()
    (run,) = service.runs
    assert run.tags == {"rgt_run": launch.run_identity, "a": "true", "group": "ablations"}
    assert (run.params, run.points) == ({"lr": 0.1}, [(1, {"loss": 1.0}), (41, {"loss": 1.0})])
    assert service.current is None


def test_unknown_and_missing_loggers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    launch = SinkLaunch(str(tmp_path), 0, {}, "p")
    with pytest.raises(UsageError, match="unknown logger 'tb'"):
        open_sinks(["tb"], launch, print)
    monkeypatch.setitem(__import__("sys").modules, "wandb", None)
    with pytest.raises(
        UsageError, match="logger wandb was asked for, but it is not installed here"
    ):
        open_sinks(["wandb"], launch, print)
    said: list[str] = []
    monkeypatch.setitem(
        sinks.SINKS, "tensorboard", lambda launch: ServiceSink(object(), launch, {})
    )
    assert open_sinks(["tensorboard"], launch, said.append) == []
    assert "could not be opened and is left out: AttributeError" in said[0]


WANDB = """
import sys
from rgt_train.tracking.report import SinkLaunch, open_sinks
for start in (0, 3):
    (sink,) = open_sinks(["wandb"], SinkLaunch(sys.argv[1], start, {"lr": 0.1, "task": "birds"}, "birds"), print)
    for step in range(start + 1, start + 6):
        sink.record_point(step, 0.0, {"loss": 1.0 / step})
    sink.close()
"""


def test_the_real_wandb_offline(tmp_path: Path) -> None:
    done = frameworks.run(WANDB, tmp_path, str(tmp_path / "run"))
    assert "failed" not in done.stdout and "left out" not in done.stdout, done.stdout
    kept = sorted((tmp_path / "run" / "wandb").glob("offline-run-*/run-*.wandb"))
    assert len(kept) == 2
    assert all(b"train_step" in path.read_bytes() for path in kept)
    identity = SinkLaunch(str(tmp_path / "run"), 0, {}, "").run_identity
    assert {path.name for path in kept} == {f"run-{identity}.wandb"}


def test_a_run_with_tensorboard_that_is_killed(trainers: Zygote, tmp_path: Path) -> None:
    out = tmp_path / "run"
    values = {"loggers": "tensorboard", "save_every": 10, "pace_ms": 15}
    died = trainers.launch(out, values, brake=70)
    died.wait_line(r"^step 34 ")
    died.kill()
    again = trainers.launch(out, values)
    assert again.wait() == 0, again.text()
    files = sorted((out / "tensorboard").iterdir())
    assert len(files) == 2
    read = json.loads(frameworks.run(TENSORBOARD, tmp_path, str(out / "tensorboard")).stdout)
    steps = [step for step, _, _ in read["loss"]]
    assert steps == list(range(1, 81))  # each once: what was lost and came again is not there twice
    assert [step for step, _, _ in read["val_loss"]] == [40, 80]


class TestRecord:
    def git(self, folder: Path, *words: str) -> None:
        identity = ["-c", "user.name=a", "-c", "user.email=a@b"]
        subprocess.run(
            ["git", "-C", str(folder), *identity, *words], check=True, capture_output=True
        )

    def test_the_state_of_the_work_tree(self, tmp_path: Path) -> None:
        assert run_log.git_state(str(tmp_path)) is None
        self.git(tmp_path, "init", "-b", "main")
        (tmp_path / "a.py").write_text("1\n")
        self.git(tmp_path, "add", ".")
        self.git(tmp_path, "commit", "-m", "x")
        clean = run_log.git_state(str(tmp_path))
        assert clean is not None
        assert (clean["branch"], clean["dirty"], clean["diff_sha256"], clean["untracked"]) == (
            "main",
            False,
            None,
            0,
        )
        assert len(clean["commit"]) == 40
        (tmp_path / "a.py").write_text("2\n")
        (tmp_path / "b.py").write_text("3\n")
        dirty = run_log.git_state(str(tmp_path))
        assert dirty is not None
        assert (dirty["dirty"], dirty["untracked"], dirty["commit"]) == (True, 1, clean["commit"])
        (tmp_path / "a.py").write_text("4\n")
        other = run_log.git_state(str(tmp_path))
        assert other is not None
        assert other["diff_sha256"] != dirty["diff_sha256"]

    def test_nothing_of_the_work_tree_is_written(self, tmp_path: Path) -> None:
        self.git(tmp_path, "init")
        file = tmp_path / "a.py"
        file.write_text("1\n")
        self.git(tmp_path, "add", ".")
        self.git(tmp_path, "commit", "-m", "x")
        os.utime(file, (1, 1))  # as an editor that saves the same text: git would note the new time
        before = {path: path.stat() for path in (tmp_path / ".git").rglob("*")}
        state = run_log.git_state(str(tmp_path))
        assert state is not None and state["dirty"] is False
        after = {path: path.stat() for path in (tmp_path / ".git").rglob("*")}
        assert after.keys() == before.keys()
        assert [path for path in after if after[path].st_mtime_ns != before[path].st_mtime_ns] == []

    def test_a_launch_does_not_wait_for_git(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        self.git(tmp_path, "init")
        self.git(tmp_path, "commit", "--allow-empty", "-m", "x")
        git = tmp_path / "bin" / "git"
        git.parent.mkdir()
        slow = f'#!/bin/sh\ncase "$*" in *rev-parse*) sleep 2;; esac\nexec {shutil.which("git")} "$@"\n'
        git.write_text(slow)
        git.chmod(0o755)
        monkeypatch.setenv("PATH", str(git.parent), prepend=os.pathsep)
        monkeypatch.chdir(tmp_path)
        model = torch.nn.Linear(2, 2)
        begun = time.monotonic()
        run = Run(tmp_path / "run", model=model, samples=4, epochs=1)
        assert time.monotonic() - begun < 1.5
        run.close()
        last = json.loads((tmp_path / "run" / "run.json").read_text())["last"]
        assert len(last["git"]["commit"]) == 40

    def test_the_first_launch_stays(self, tmp_path: Path) -> None:
        run_log.write_launch_record(tmp_path, {"attempt": 1})
        run_log.write_launch_record(tmp_path, {"attempt": 2})
        (tmp_path / "run.json").write_text((tmp_path / "run.json").read_text())
        run_log.write_launch_record(tmp_path, {"attempt": 3})
        body = json.loads((tmp_path / "run.json").read_text())
        assert (body["first"]["attempt"], body["last"]["attempt"]) == (1, 3)
        (tmp_path / "run.json").write_text("{ torn")
        run_log.write_launch_record(tmp_path, {"attempt": 4})
        assert json.loads((tmp_path / "run.json").read_text())["first"]["attempt"] == 4

    def test_a_place_that_cannot_be_written_is_told(self, tmp_path: Path) -> None:
        assert "could not be written" in (
            run_log.write_launch_record(tmp_path / "nowhere", {}) or ""
        )

    def test_what_a_launch_records(self, trainers: Zygote, tmp_path: Path) -> None:
        out = tmp_path / "run"
        self.git(tmp_path, "init", "-b", "main")
        self.git(tmp_path, "commit", "--allow-empty", "-m", "x")
        values = TINY | {"epochs": 1, "steps_per_epoch": 4, "accumulate": 2, "seed": 9}
        words = [word for key, value in values.items() for word in ("--set", f"{key}={value}")]
        env = {
            "GIT_DIR": str(tmp_path / ".git"),
            "GIT_WORK_TREE": str(tmp_path),
        }  # it runs somewhere else
        trainer = trainers.launch_raw(["--out", str(out), *words], env=env)
        assert trainer.wait() == 0, trainer.text()
        last = json.loads((out / "run.json").read_text())["last"]
        assert (last["seed"], last["world_size"], last["batch"], last["effective_batch"]) == (
            9,
            1,
            2,
            4,
        )
        assert last["overrides"]["accumulate"] == 2
        assert "lr" not in last["overrides"] and last["settings"]["lr"] == 0.003
        assert last["versions"]["torch"]
        head = subprocess.run(
            ["git", "rev-parse", "HEAD"], cwd=tmp_path, capture_output=True, text=True
        )
        assert (last["git"]["commit"], last["git"]["branch"]) == (head.stdout.strip(), "main")


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = torch.nn.Linear(2, 2), torch.nn.Linear(2, 1)
        self.config = SimpleNamespace(name_or_path="org/Small-1B chat")


def _train_groups(out: Path, groups: list[dict[str, Any]], optimizers: int = 1) -> None:
    """Train two steps with an optimizer of these groups, or with further ones."""
    model = Net()
    for group in groups:
        group["params"] = getattr(model, group["params"]).parameters()
    made: dict[str, torch.optim.Optimizer] = {"first": torch.optim.SGD(groups, lr=0.5)}
    if optimizers == 2:
        made["second"] = torch.optim.SGD(model.head.parameters(), lr=0.125)
    name = "result_{time}_{model}_{step}.json"
    options = Options(result_name=name, save_every=10)
    single: Any = made["first"] if len(made) == 1 else made
    run = Run(out, model=model, optimizer=single, steps_per_epoch=2, epochs=1, options=options)
    with run:
        for _ in run.epochs():
            for _ in run.steps():
                model.head(model.body(torch.ones(1, 2))).sum().backward()
                for optimizer in made.values():
                    optimizer.step()
                run.step(1.0)


def test_the_learning_rate_of_each_group_is_logged(tmp_path: Path) -> None:
    def rates(groups: list[dict[str, Any]], optimizers: int = 1) -> dict[str, float]:
        out = tmp_path / f"run{len(list(tmp_path.iterdir()))}"
        _train_groups(out, groups, optimizers)
        last = [line for line in metrics(out) if "loss" in line][-1]
        return {name: value for name, value in last.items() if name.startswith("lr")}

    assert rates([{"params": "body"}]) == {}
    assert rates([{"params": "body"}, {"params": "head", "lr": 0.25}]) == {
        "lr/0": 0.5,
        "lr/1": 0.25,
    }
    named: list[dict[str, Any]] = [
        {"params": "body", "name": "body"},
        {"params": "head", "lr": 0.25, "name": "head"},
    ]
    assert rates(named) == {"lr/body": 0.5, "lr/head": 0.25}
    two = rates([{"params": "body"}], optimizers=2)
    assert two == {"lr/first/0": 0.5, "lr/second/0": 0.125}


def test_the_result_is_named_by_the_model(tmp_path: Path) -> None:
    _train_groups(tmp_path / "run", [{"params": "body"}])
    (path,) = (tmp_path / "run").glob("result_*.json")
    assert re.fullmatch(r"result_\d{8}T\d{6}Z_org_Small_1B_chat_2\.json", path.name)
    assert path.read_text() == (tmp_path / "run" / "result.json").read_text()
    for name, message in (
        ("{modle}.json", "it takes {model}"),
        ("result.json", "a name of its own"),
    ):
        with pytest.raises(UsageError, match=message):
            Options(result_name=name).check()


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_measuring_updates_ends_no_training_of_other_kinds(
    tmp_path: Path, dtype: torch.dtype
) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(3, 4, dtype=dtype), torch.nn.ReLU())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    options = Options(dynamics_every=1, log_every=1, save_every=100)
    run = Run(tmp_path, model=model, optimizer=optimizer, samples=4, epochs=1, options=options)
    with run:
        for _ in run.epochs():
            for _batch in run.batches():
                model(torch.zeros(0, 3, dtype=dtype))  # a detection head without proposals
                model(torch.ones(2, 3, dtype=dtype)).mean().backward()
                optimizer.step()
                optimizer.zero_grad()
                run.step(0.0)
    points = [row for row in metrics(tmp_path) if "event" not in row]
    assert all("update_ratio" in row and "dead_units" in row for row in points) and points
