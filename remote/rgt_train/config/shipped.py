"""The configs that come with the trainer, by name: section, key, value."""

from __future__ import annotations

from typing import Dict, List, Mapping, Union

Plain = Union[str, int, float, List[str]]

SHIPPED: Mapping[str, Dict[str, Dict[str, Plain]]] = {
    # While you write the training: everything is logged, mistakes stop soon, nothing takes long.
    "dev": {
        "log": {"log_every": 1},
        "save": {"save_every": 50, "keep": 2},
        "guard": {"max_bad_steps": 1, "spike": "warn", "stall_floor": 60},
    },
    # For days on a rented machine with nobody awake: few lines, TensorBoard, more checkpoints to go back to.
    "prod": {
        "log": {"log_every": 10, "loggers": ["tensorboard"]},
        # 0: chosen from the cost of a save and from how often this run was killed.
        "save": {"save_every": 0, "keep": 3},
        "guard": {
            "max_bad_steps": 5,
            "spike": "rollback",
            "stall_factor": 20,
            "stall_floor": 600,
            "stall_exit": 75,
        },
    },
}
