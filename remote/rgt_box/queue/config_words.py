"""What a cell's config says of how it is trained: learning rate, batch, seed and the like, to compare runs by.

Read line by line, ``key: value`` or ``key = value``, as YAML, TOML and most other formats write scalars; nothing is
executed. Only names of this list leave the box: a config may hold keys and addresses. A name that stands there twice
with different values says nothing, since nobody knows which one counts.
"""

from __future__ import annotations

import re

NAMES = {
    "learning_rate": "lr",
    "max_lr": "lr",
    "batch_size": "batch",
    "train_batch_size": "batch",
    "per_device_train_batch_size": "batch",
    "micro_batch_size": "batch",
    "random_seed": "seed",
}
"""Other names for what is said."""
SAID = frozenset(
    (
        "lr", "batch", "seed", "optimizer", "weight_decay", "warmup", "warmup_steps", "schedule", "scheduler",
        "dropout", "precision", "dtype", "grad_accum", "gradient_accumulation_steps", "clip", "grad_clip",
        "max_grad_norm", "model", "layers", "n_layer", "num_layers", "width", "d_model", "hidden", "hidden_size",
        "heads", "n_head", "block_size", "seq_len", "context", "ranks", "epochs", "steps",
    )
)  # fmt: skip
LONGEST = 40
"""Characters of a value; a longer one is no setting."""
READ = 1 << 18
"""Bytes that are looked at."""
_LINE = re.compile(
    r"""^[\s{,]*["']?([A-Za-z_][\w.\-]{0,60})["']?\s{0,4}[:=]\s{0,4}(?:"([^"]*)"|'([^']*)'|([\w.+\-/]+))\s*,?\s*(?:[#;}].*)?$"""
)


def told(data: bytes | None) -> dict[str, str]:
    """Return what a config says, by the usual short names; nothing of one that cannot be read."""
    found: dict[str, str] = {}
    unsure = set()
    for line in (data or b"")[:READ].decode("utf-8", "replace").splitlines():
        match = _LINE.match(line[:200])
        if match is None:
            continue
        plain = match.group(1).rpartition(".")[2].replace("-", "_").lower()
        name = NAMES.get(plain, plain)
        value = next((text for text in match.groups()[1:] if text is not None), "")
        if name not in SAID or not value or len(value) > LONGEST or not value.isprintable():
            continue
        if found.get(name, value) != value:
            unsure.add(name)
        found[name] = value
    return {name: value for name, value in found.items() if name not in unsure}
