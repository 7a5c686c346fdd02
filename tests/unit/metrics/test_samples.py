"""Files that frameworks wrote, with exact expectations."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest
from rgt_box.metrics import BY_KIND, open_reader, read_all

from tests.unit.metrics.makers import FIXTURES, summary

Series = dict[str, tuple[str, int, int, float, Any]]

SAMPLES: list[tuple[str, str, int, int, int, Series]] = [
    # kind, file, series, points, nonfinite, tag: (x, points, nonfinite, last x, last y)
    (
        "tensorboard",
        "tensorboard/torch_mixed_old_new_style.tfevents",
        *(5, 10, 1),
        {
            "train/loss": ("step", 6, 1, 5, 0.5),
            "f64": ("step", 1, 0, 3, 1.2345678806304932),
            "new": ("step", 1, 0, 7, 2.5),
            "new_dp": ("step", 1, 0, 8, 2.5),
            "old_dp": ("step", 1, 0, 8, 2.5),
        },
    ),
    (
        "tensorboard",
        "tensorboard/tf2_events.out.tfevents.v2",
        *(3, 7, 1),
        {
            "loss": ("step", 5, 1, 4, 0.6000000238418579),
            "d": ("step", 1, 0, 9, 1.5),
            "i": ("step", 1, 0, 9, 7.0),
        },
    ),
    (
        "tensorboard",
        "tensorboard/keras_train.v2",
        *(5, 33, 0),
        {
            "batch_loss": ("step", 12, 0, 24, 8.022817611694336),
            "epoch_loss": ("epoch", 3, 0, 2, 8.022817611694336),
            "epoch_learning_rate": ("epoch", 3, 0, 2, 0.0010000000474974513),
        },
    ),
    (
        "tensorboard",
        "tensorboard/torn_mid_payload.tfevents",
        1,
        3,
        0,
        {"a": ("step", 3, 0, 2, 2.0)},
    ),
    (
        "tensorboard",
        "hf_trainer/events.out.tfevents.1795253585.vm.8600.0",
        *(15, 68, 0),
        {
            "train/loss": ("step", 8, 0, 40, 3.8949179649353027),
            "train/grad_norm": ("step", 8, 0, 40, 0.8476967811584473),
            "eval/loss": ("step", 2, 0, 40, 3.893690824508667),
            "train/epoch": ("step", 8, 0, 40, 0.800000011920929),
        },
    ),
    (
        "tensorboard",
        "lightning/events.out.tfevents.1795253705.vm.9580.0",
        *(7, 75, 0),
        {
            "train_loss": ("step", 15, 0, 29, 0.2877298593521118),
            "val_loss": ("step", 3, 0, 29, 0.12217380851507187),
            "lr-SGD": ("step", 15, 0, 29, 9.999999747378752e-05),
        },
    ),
    (
        "hf_trainer",
        "hf_trainer/checkpoint-20/trainer_state.json",
        *(12, 33, 0),
        {
            "loss": ("step", 4, 0, 20, 3.9002235412597654),
            "eval_loss": ("step", 1, 0, 20, 3.895179271697998),
        },
    ),
    (
        "hf_trainer",
        "hf_trainer/checkpoint-40/trainer_state.json",
        *(12, 65, 0),
        {
            "loss": ("step", 8, 0, 40, 3.8949180603027345),
            "eval_loss": ("step", 2, 0, 40, 3.893690824508667),
            "learning_rate": ("step", 8, 0, 40, 5.7142857142857145e-06),
            "epoch": ("step", 8, 0, 40, 0.8),
        },
    ),
    (
        "llamafactory",
        "typed/llamafactory_trainer_log.jsonl",
        *(8, 14, 0),
        {
            "loss": ("step", 1, 0, 5, 3.8978),
            "eval_loss": ("step", 1, 0, 20, 3.8952),
            "epoch": ("step", 3, 0, 40, 0.8),
            "lr": ("step", 1, 0, 5, 0.00016),
            "throughput": ("step", 1, 0, 5, 7257.13),
        },
    ),
    (
        "lightning",
        "lightning/metrics_v0.csv",
        *(7, 75, 0),
        {
            "train_loss": ("step", 15, 0, 29, 0.2877298593521118),
            "train_loss_both_epoch": ("step", 3, 0, 29, 0.13912083208560944),
            "val_loss": ("step", 3, 0, 29, 0.12217380851507187),
            "lr-SGD": ("step", 15, 0, 29, 0.0001),
            "epoch": ("step", 15, 0, 29, 2.0),
            "late/key": ("step", 9, 0, 29, 29.0),
        },
    ),
    ("lightning", "lightning/rewrite_before.csv", 1, 4, 0, {"train/loss": ("step", 4, 0, 3, 0.75)}),
    (
        "lightning",
        "lightning/rewrite_after.csv",
        *(2, 12, 0),
        {"train/loss": ("step", 8, 0, 7, 0.375), "grad_norm": ("step", 4, 0, 7, 1.0)},
    ),
    (
        "ultralytics",
        "ultralytics/results.csv",
        *(16, 48, 0),
        {
            "train/box_loss": ("epoch", 3, 0, 3, 0.03417),
            "train/loss": ("epoch", 3, 0, 3, 0.03417 + 0.32089 + 0.02434),
            "val/loss": ("epoch", 3, 0, 3, 0.00208 + 1.34843 + 0.00117),
            "lr/pg0": ("epoch", 3, 0, 3, 0.00068),
            "time": ("epoch", 3, 0, 3, 1.22445),
        },
    ),
    (
        "ultralytics",
        "ultralytics/results_old_padded.csv",
        *(6, 12, 0),
        {"train/loss": ("epoch", 2, 0, 2, 2.71 + 3.9), "lr/pg0": ("epoch", 2, 0, 2, 0.0066)},
    ),
    (
        "keras",
        "keras/csvlogger_appended.csv",  # appended by a second run, which overtakes the first
        *(4, 12, 12),
        {"loss": ("epoch", 3, 3, 2, "nan"), "val_loss": ("epoch", 3, 3, 2, "nan")},
    ),
    (
        "mmengine",
        "mmengine/by_epoch.json",
        *(8, 44, 0),
        {
            "loss": ("step", 6, 0, 30, 0.10628215139731764),
            "acc": ("step", 2, 0, 30, 15.0),
            "time": ("step", 6, 0, 30, 0.001308751106262207),
            "epoch": ("step", 6, 0, 30, 2.0),
        },
    ),
    (
        "mmengine",
        "mmengine/by_epoch_resumed.json",
        *(8, 44, 0),
        {"loss": ("step", 6, 0, 60, 0.04877365585416556), "acc": ("step", 2, 0, 60, 15.0)},
    ),
    (
        "wandb",
        "wandb/history_nan.wandb",
        *(3, 36, 2),
        {
            "train/loss": ("step", 12, 2, 11, 0.25),
            "lr": ("step", 12, 0, 11, 0.001),
            "nest.a": ("step", 12, 0, 11, 11.0),
        },
    ),
    ("mlflow_files", "mlflow/metrics/train/loss", 1, 6, 1, {"train/loss": ("step", 6, 1, 5, 0.5)}),
    ("mlflow_files", "mlflow/metrics/lr", 1, 6, 0, {"lr": ("step", 6, 0, 5, 0.001)}),
    ("mlflow_files", "mlflow/metrics/inf", 1, 1, 1, {"inf": ("step", 1, 1, 3, "inf")}),
    ("mlflow_files", "mlflow/metrics/eval_loss", 1, 1, 0, {"eval_loss": ("step", 1, 0, 5, 2.1)}),
    ("mlflow_files", "mlflow/metrics/nostep", 1, 1, 0, {"nostep": ("step", 1, 0, 0, 1.0)}),
    (
        "trackio",
        "trackio/proj_db.sql",
        *(3, 34, 2),
        {
            "train/loss": ("step", 10, 2, 12, 0.1),
            "lr": ("step", 12, 0, 11, 0.001),
            "grad_norm": ("step", 12, 0, 11, 0.5),
        },
    ),
    (
        "trackio",
        "made/trackio_db.sql",  # its first row has no step of the trainer and so no place
        *(1, 6, 1),
        {"train/loss": ("step", 6, 1, 25, 2 / 6)},
    ),
    (
        "mlflow",
        "made/mlflow_db.sql",
        *(5, 17, 3),
        {
            "loss": ("step", 6, 1, 5, 0.0),
            "grad_norm": ("step", 1, 1, 5, "nan"),
            "up": ("step", 1, 1, 2, "inf"),
            "nostep": ("step", 4, 0, 3, 6.0),
        },
    ),
    (
        "aitoolkit",
        "typed/aitoolkit_loss_log.sql",
        *(2, 2, 0),
        {"loss/loss": ("step", 1, 0, 1, 0.3556), "learning_rate": ("step", 1, 0, 1, 0.0001)},
    ),
    (
        "deepspeed",
        "typed/deepspeed_Train_Samples_train_loss.csv",
        *(1, 3, 0),
        {"train_loss": ("samples", 3, 0, 96, 2.25)},
    ),
    (
        "torchtune",
        "typed/torchtune_log.txt",
        *(4, 8, 0),
        {
            "loss": ("step", 2, 0, 2, 2.1),
            "lr": ("step", 2, 0, 2, 4e-05),
            "grad_norm": ("step", 2, 0, 2, 0.9),
            "tokens_per_second_per_gpu": ("step", 2, 0, 2, 1250.1),
        },
    ),
    (
        "verl",
        "typed/verl_file_logger.jsonl",
        *(3, 5, 1),
        {"actor/pg_loss": ("step", 2, 1, 4, "nan"), "critic/score/mean": ("step", 2, 0, 4, 0.42)},
    ),
]


def ready(name: str, directory: Path) -> str:
    """Return a path to read: a dump becomes the database it was."""
    path = FIXTURES / name
    if path.suffix != ".sql":
        return str(path)
    database = directory / (path.stem + ".db")
    with sqlite3.connect(database) as db:
        db.executescript(path.read_text())
    db.close()
    return str(database)


@pytest.mark.parametrize(
    ("kind", "name", "count", "points", "nonfinite", "expected"),
    SAMPLES,
    ids=[each[1] for each in SAMPLES],
)
def test_sample(
    kind: str, name: str, count: int, points: int, nonfinite: int, expected: Series, tmp_path: Path
) -> None:
    store, problems = read_all(open_reader(kind, ready(name, tmp_path)))
    found = summary(store)
    assert problems == []
    for tag, (axis, *rest) in expected.items():
        mine = [value for key, value in found.items() if key[1:] == (tag, axis)]
        last = rest[3] if isinstance(rest[3], str) else pytest.approx(rest[3], rel=1e-12)
        assert mine == [(*rest[:3], last)], tag
    assert (
        len(found),
        sum(each[0] for each in found.values()),
        sum(each[1] for each in found.values()),
    ) == (
        count,
        points,
        nonfinite,
    )


def test_every_kind_has_a_sample_or_a_test_of_its_own() -> None:
    elsewhere = {"rgt", "jsonl", "json", "numbers", "csv", "detectron2", "tensorboard_dir"}
    elsewhere |= {"optuna", "yolo"}  # test_unknown_forms
    assert {each[0] for each in SAMPLES} | elsewhere == set(BY_KIND) - {"console"}


def test_every_sample_file_is_used() -> None:
    used = {each[1] for each in SAMPLES} | {"mlflow/metrics/system/gpu_0_utilization_percentage"}
    used |= {
        "made/wandb_history.wandb",
        *(
            f"made/tensorboardX/events.out.tfevents.{stamp}.vm"
            for stamp in (1795263245, 1795263246)
        ),
    }
    used |= {  # by test_rewards
        f"trl/{kind}/{name}"
        for kind in ("grpo", "dpo")
        for name in ("console.log", "checkpoint-6/trainer_state.json")
    }
    used |= {
        f"restarts/{name}.jsonl" for name in ("counter_alone", "from_checkpoint")
    }  # by test_step_back
    here = {
        str(path.relative_to(FIXTURES))
        for path in FIXTURES.rglob("*")
        if path.is_file() and "console" not in path.parts and path.name != "README.md"
    }
    assert here == used


def test_wall_times_and_segments_of_the_samples(tmp_path: Path) -> None:
    store, _ = read_all(open_reader("trackio", ready("trackio/proj_db.sql", tmp_path)))
    loss = store.series["runA", "train/loss", "step"]
    assert (loss.xs, loss.breaks, loss.ats[-1]) == ([*range(8), 8, 12], [8.0], 1795253791.6304)
    store, _ = read_all(open_reader("keras", ready("keras/csvlogger_appended.csv", tmp_path)))
    assert store.series["", "loss", "epoch"].breaks == [0.0]
    store, _ = read_all(
        open_reader("deepspeed", ready("typed/deepspeed_Train_Samples_train_loss.csv", tmp_path))
    )
    assert (
        store.series["", "train_loss", "samples"].ys,
        store.series["", "train_loss", "samples"].breaks,
    ) == (
        [2.345, 2.299, 2.25],
        [64.0],
    )
    store, _ = read_all(
        open_reader("tensorboard", ready("tensorboard/tf2_events.out.tfevents.v2", tmp_path))
    )
    assert store.series["", "d", "step"].ats == [1795254291.771703]
