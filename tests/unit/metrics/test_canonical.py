from __future__ import annotations

from collections.abc import Iterable

import pytest
from rgt_box.metrics import TagNaming, choose_tags


def canonical(tag: str, tags: Iterable[str] = (), directory: str = "") -> str | None:
    return TagNaming(tags, directory).metric_of(tag)


NAMES = {
    "loss": "loss train/loss train_loss train_loss_step lm\u00a0loss loss_metrics/global_avg_loss total_loss "
    "loss/current loss/loss step_loss train/gpt_loss gpt_loss avr_loss actor/pg_loss policy_loss "
    "Train/Samples/train_loss batch_loss epoch_loss Loss Loss/train Loss/training loss_train training/loss",
    "eval_loss": "eval_loss eval/loss val_loss valid_loss val/loss validation_metrics/loss "
    "loss/validation/step_average Val_Loss Loss/val Loss/valid Loss/validation Loss/eval Loss/test loss_val "
    "loss_valid loss_test valid/loss validation/loss",
    "lr": "learning_rate train/learning_rate lr learning-rate lr-AdamW lr/pg0 lr/unet actor/lr Train/Samples/lr "
    "train/lr Learning\u00a0Rate",
    "grad_norm": "grad_norm train/grad_norm grad-norm gnorm actor/grad_norm",
    "throughput": "tokens_per_second_per_gpu throughput throughput(tps) tps tok/sec wps samples/sec "
    "perf/throughput train_samples_per_second train/train_tokens_per_second tok_s",
    "epoch": "epoch train/epoch Epoch",
    None: "loss_scale loss-scale loss\u00a0scale lm\u00a0loss\u00a0vs\u00a0samples eval_samples_per_second accuracy "
    "late/key lossless total_flos grad_norm_clip nest.a metrics/mAP50(B) eval/samples_per_second",
}


@pytest.mark.parametrize(
    ("tag", "metric"),
    [
        (tag.replace("\u00a0", " "), metric)
        for metric, tags in NAMES.items()
        for tag in tags.split(" ")
    ],
)
def test_names(tag: str, metric: str | None) -> None:
    assert canonical(tag) == metric


@pytest.mark.parametrize("tag", ["lm loss validation", "grad norm", "lm loss"])
def test_names_with_blanks(tag: str) -> None:
    assert (
        canonical(tag)
        == {"lm loss validation": "eval_loss", "grad norm": "grad_norm", "lm loss": "loss"}[tag]
    )


def test_the_mean_at_the_end_of_a_run_is_no_loss() -> None:
    assert canonical("train_loss", ("loss", "train_loss", "train_runtime")) is None
    assert canonical("train_loss", ("train_loss", "val_loss")) == "loss"


def test_twins() -> None:
    tags = ("train_loss", "train_loss_step", "train_loss_epoch", "batch_loss", "epoch_loss")
    assert [canonical(tag, tags) for tag in tags] == ["loss", "loss", None, "loss", None]
    assert canonical("epoch_loss", ("epoch_loss",), "train") == "loss"
    assert canonical("epoch_loss", ("epoch_loss",), "validation") == "eval_loss"


def test_a_name_of_the_users_own() -> None:
    tags = ("my_loss_step", "my_loss_epoch", "my_loss", "val_my_loss", "step_time")
    assert [canonical(tag, tags) for tag in tags] == [None, None, "loss", "eval_loss", None]
    several = ("train/box_loss", "train/cls_loss", "val/box_loss", "val/cls_loss")
    assert [canonical(tag, several) for tag in several] == [None] * 4


def test_the_names_of_pytorchs_guide_to_summary_writer() -> None:
    tags = ["Loss/train", "Loss/test", "Accuracy/train", "Accuracy/test"]
    figures = {tag: tag for tag in tags if tag.startswith("Accuracy")}
    assert choose_tags(tags) == {"loss": "Loss/train", "eval_loss": "Loss/test", **figures}
    assert choose_tags(["training loss"]) == {"loss": "training loss"}


def test_the_best_tag_of_each_metric() -> None:
    tags = ["lr/pg1", "lr/pg0", "train/loss", "batch_loss", "eval/loss", "train/epoch", "tps"]
    assert choose_tags(tags) == {
        "lr": "lr/pg0",
        "loss": "train/loss",
        "eval_loss": "eval/loss",
        "epoch": "train/epoch",
        "throughput": "tps",
    }
    assert (
        choose_tags(["train/train_loss", "train/loss", "train/train_runtime"])["loss"]
        == "train/loss"
    )


@pytest.mark.parametrize(
    ("tags", "metrics"),
    [
        (("Cost", "L.r.", "words/s"), {"loss": "Cost", "lr": "L.r.", "throughput": "words/s"}),
        (("reduced_train_loss", "lr"), {"loss": "reduced_train_loss", "lr": "lr"}),
        (
            ("loss_disc", "loss_gen", "loss_1", "current_lr_0"),
            {"loss": "loss_1", "lr": "current_lr_0"},
        ),
        (("Loss/total", "Loss/bbox"), {"loss": "Loss/total"}),
        (("cross-entropy-loss", "load-balance-loss"), {"loss": "cross-entropy-loss"}),
        (("Mean value loss", "Mean surrogate loss"), {}),
        (("valid/cross-entropy", "valid/perplexity"), {"eval_loss": "valid/cross-entropy"}),
        (("train-logloss", "eval-logloss"), {"loss": "train-logloss", "eval_loss": "eval-logloss"}),
    ],
)
def test_frameworks_own_names_are_known_by_their_role(
    tags: tuple[str, ...], metrics: dict[str, str]
) -> None:
    found = choose_tags(tags)
    assert {
        metric: found[metric] for metric in found if metric not in tags or metric in metrics
    } == metrics


def test_measures_come_first_and_settings_do_not_come_at_all() -> None:
    tags = ["loss", "loss_scale", "peak_mem", "seed", *(f"layer{n}" for n in range(100)), "mIoU"]
    found = choose_tags(tags)
    assert "mIoU" in found
    assert not {"loss_scale", "peak_mem", "seed"} & set(found)
