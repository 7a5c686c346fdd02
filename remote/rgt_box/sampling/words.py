"""Command lines: which programs only carry, help or watch a training. Pure."""

from __future__ import annotations

import os
import re

WRAPPERS = frozenset(
    (
        "ash", "bash", "cat", "dash", "docker", "emacs", "env", "fish", "grep", "htop", "ionice", "ksh", "kubectl",
        "less", "more", "nano", "nice", "nohup", "nvidia-smi", "ps", "rg", "salloc", "sbatch", "screen", "script",
        "setsid", "sh", "srun", "ssh", "sshd", "su", "sudo", "tail", "tee", "time", "timeout", "tmux", "top", "vi",
        "vim", "watch", "zsh",
    )
)  # fmt: skip
"""Programs that carry the pattern in their arguments without being the training."""
HELPERS = re.compile(
    r"multiprocessing\.(resource_tracker|forkserver)|compile_worker|(^|/)(wandb-core|wandb-service|tensorboard)\b"
)
"""Processes that a training starts beside itself, by their command lines."""

AGENT = re.compile(r"(^|/)(rgt-box-[0-9a-f]+\.pyz|rgt_box(/__main__\.py)?)$")


def is_helper(words: list[str]) -> bool:
    """Tell whether a command line is a helper; a wrapper's may only speak of one."""
    return program(words) not in WRAPPERS and bool(HELPERS.search(" ".join(words)))


def program(words: list[str]) -> str:
    """Return the name of the program of a command line: ``tmux`` for ``tmux: server``, ``bash`` for ``-bash``."""
    return os.path.basename(words[0]).lstrip("-").split(":")[0] if words else ""


def is_training(words: list[str], pattern: re.Pattern[str]) -> bool:
    """Tell whether a command line is a training process: matches, and is neither wrapper nor the agent itself."""
    if not words or not pattern.search(" ".join(words)):
        return False
    return program(words) not in WRAPPERS and not any(AGENT.search(word) for word in words[:5])
