"""Reference tasks: small, on data made at run time, and really learning."""

from __future__ import annotations

from rgt_train.config.merge import Config
from rgt_train.tasks.base import Task


def make(config: Config) -> Task:
    """Return the task that `config` names, with its data made."""
    if config.str("task") == "image_classifier":
        from rgt_train.tasks.image_classifier import ImageClassifier

        return ImageClassifier(config)
    from rgt_train.tasks.char_lm import CharLM

    return CharLM(config)
