"""Every source by its kind name. A reader's module is imported when it is first needed."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from rgt_box.metrics.base import Reader

KINDS = {
    "rgt": ("jsonl", "JsonLines"),
    "jsonl": ("jsonl", "JsonLines"),
    "llamafactory": ("jsonl", "JsonLines"),
    "mmengine": ("jsonl", "JsonLines"),
    "detectron2": ("jsonl", "JsonLines"),
    "verl": ("jsonl", "JsonLines"),
    "csv": ("table", "Table"),
    "lightning": ("table", "Table"),
    "ultralytics": ("table", "Table"),
    "keras": ("table", "Table"),
    "deepspeed": ("table", "Table"),
    "torchtune": ("torchtune", "TorchtuneLog"),
    "tensorboard": ("tensorboard", "EventFile"),
    "tensorboard_dir": ("event_dir", "EventDirectory"),
    "hf_trainer": ("trainer_state", "TrainerState"),
    "wandb": ("wandb", "WandbFile"),
    "mlflow_files": ("mlruns", "MetricFile"),
    "mlflow": ("mlflow_db", "MlflowDatabase"),
    "trackio": ("trackio", "TrackioDatabase"),
    "aitoolkit": ("aitoolkit", "AiToolkitDatabase"),
}
"""Kind → module of this package and class in it. Readers of several kinds take the kind as second argument."""

SEVERAL = ("jsonl", "table")


def open_reader(kind: str, path: str) -> Reader:
    """Return the reader of one file.

    Args:
        kind: A key of `KINDS`.
        path: The file; for ``tensorboard_dir`` a directory, for ``tensorboard`` one event file of it.
    """
    from importlib import import_module

    module, name = KINDS[kind]
    made = getattr(import_module("rgt_box.metrics." + module), name)
    reader: Reader = made(path, kind) if module in SEVERAL else made(path)
    return reader
