"""What a file's or directory's name says about checkpoints: step, best, weights or data. Pure.

There is no list of frameworks: a name is split into words and numbers, and a number gets its
meaning from the word next to it.
"""

from __future__ import annotations

import functools
import hashlib
import json
import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Mapping, NamedTuple


MANIFEST = "manifest.json"
FORMAT = 2


if TYPE_CHECKING:

    class Name(NamedTuple):
        """The parsed parts of a name."""

        stem: str
        """Without its ending, its shard number, and the marker of a temporary name."""
        ending: str
        words: "frozenset[str]"
        step: "int | None" = None
        epoch: "int | None" = None
        number: "int | None" = None
        """A number that no word explains: a step or an epoch."""
        temporary: bool = False
        shard: "tuple[int, int] | None" = None
        """(index, total)."""

        @property
        def progress(self) -> "int | None":
            """The number that increases within a series of checkpoints."""
            return next(
                (each for each in (self.step, self.epoch, self.number) if each is not None), None
            )
else:
    from collections import namedtuple

    class Name(
        namedtuple(
            "Name",
            "stem ending words step epoch number temporary shard",
            defaults=(None, None, None, False, None),
        )
    ):
        """The parsed parts of a name; same fields as above."""

        @property
        def progress(self):  # noqa: ANN201, D102
            return next(
                (each for each in (self.step, self.epoch, self.number) if each is not None), None
            )


WEIGHTS = (
    ".weights.h5", ".pth.tar", ".pt.tar", ".ckpt.tar", ".safetensors", ".ckpt", ".pth", ".pt",
    ".th", ".keras",
    ".distcp", ".pdparams", ".nemo", ".t7", ".msgpack", ".weights", ".caffemodel",
)  # fmt: skip
"""Endings that only weights files have, or arrays that a script saved the same way."""
CHECKPOINT_ENDINGS = (
    ".weights.h5",
    ".pth.tar",
    ".ckpt.tar",
    ".ckpt",
    ".keras",
    ".distcp",
    ".pdparams",
    ".nemo",
    ".weights",
    ".caffemodel",
)
"""Endings that indicate a checkpoint as clearly as the word itself."""
PERHAPS = (".bin", ".pkl", ".pickle", ".h5", ".hdf5", ".npz", ".tar", ".zip", ".joblib")
"""Endings that weights files share with many others: the name must also indicate a model."""
WITH_IT = (
    ".index",
    ".data",
    ".json",
    ".yaml",
    ".yml",
    ".txt",
    ".pdopt",
    ".pdstates",
    ".solverstate",
    ".meta",
)
"""Endings of files that belong to a checkpoint of the same number without being one."""
ENDINGS = WEIGHTS + PERHAPS + WITH_IT

STEPS = frozenset(
    (
        "step steps globalstep iter iters iteration iterations itr it ba kimg nimg update updates s"
    ).split()
)
EPOCHS = frozenset("epoch epochs ep e".split())
CHECKPOINTS = frozenset(
    ("checkpoint checkpoints ckpt ckpts chkpt chkpts chkpnt snapshot snapshots").split()
)
ALIASES = frozenset("best last latest final current newest".split())
MODELS = frozenset(
    (
        "model models weight weights net network state states lora adapter unet ema g d generator "
        "discriminator policy actor critic pytorch module saved cp"
    ).split()
)
COMPANIONS = frozenset(
    (
        "optim optimizer opt optimizers scheduler scaler rng random training args trainer sampler "
        "dataloader recipe meta extra zero"
    ).split()
)
"""Words for what a trainer saves next to the weights to resume."""
DATA = frozenset(
    (
        "data dataset datasets token tokens tokenizer tok vocab spm corpus feature features feats "
        "embedding embeddings embeds latent latents cache cached shard shards sample samples pred "
        "preds prediction predictions logits hidden image images img label labels replay buffer "
        "vecnormalize memory profile profiler trace traces annotations raw processed eval "
        "evaluations results pretrained batch train val test downloads wheels"
    ).split()
)
"""Words for what a training reads, or writes about itself. ``train`` counts only in a file's name.
"""
_NO_PROGRESS = frozenset(
    (
        "rank of tp pp mp dp shard part world size seed fold version v lr loss acc val top bs gpu "
        "layer layers dim run exp trial try attempt a samples fp bf int"
    ).split()
)
"""Words whose number is not progress."""
_GLUED = CHECKPOINTS | MODELS | frozenset(("opt", "optim"))
"""Words that a number may follow directly, as in ``model010000``; after others it is part of the
word, as in ``resnet50``.
"""

CHINESE = {
    "最佳": "_best_", "最优": "_best_", "最好": "_best_", "最新": "_latest_", "最后": "_last_",
    "最终": "_final_",
    "模型": "_model_", "权重": "_weights_", "检查点": "_checkpoint_", "优化器": "_optimizer_", "数据": "_data_",
    "轮": "epoch", "步": "step",
}  # fmt: skip
"""Words of names, and the English ones that they are read as; the last two follow their number."""
_CHINESE = re.compile("|".join(CHINESE))
_TEMPORARY = re.compile(
    r"^(?:\.?tmp[-_.]|\.tmp|_tmp)|\.orbax-checkpoint-tmp.*$|\.(?:tmp|temp|part|partial|incomplete"
    r"|writing|saving)(?:[-.]?\d*)$"
    r"|[-_]tmp$|~$"
)
_SHARD = re.compile(r"[-_.](\d{1,6})-of-(\d{1,6})(?=\.|$)")
_WORD = re.compile(r"[a-z]+|\d+\.\d+|\d+")
_HASH = re.compile(r"(?=[0-9a-f]*\d)(?=[0-9a-f]*[a-f])[0-9a-f]{6,}")
_WORD_AND_NUMBER = re.compile(r"[a-z]+\d+")
_DATE = re.compile(
    r"(?<!\d)20[0-4]\d[-_]?[01]\d[-_]?[0-3]\d(?:[-_+t]?\d{2}[-_:]?\d{2}(?:[-_:]?\d{2}(?:\+\d\d)?)?)?(?!\d)"
)
_ORDINAL = re.compile(r"(?<![a-z\d])\d{1,3}(?:st|nd|rd|th)(?![a-z\d])")
_HUB = re.compile(r".*-[0-9a-f]{8}\.(?:pth|pt|ckpt)")
"""Names of files downloaded by torch.hub, with the first digits of their hash."""
_MOST_DIGITS = 15


@functools.lru_cache(maxsize=4096)
def read_name(name: str) -> Name:
    """Parse the name of a file or directory."""
    bare = _TEMPORARY.sub("", name)
    temporary = bare != name
    found = _SHARD.search(bare)
    if found:
        shard = (int(found.group(1)), int(found.group(2)))
    else:
        shard = None
    bare = _SHARD.sub("", bare)
    lower = bare.lower()
    # Longer endings come first in the list: ".pth.tar" before ".tar".
    ending = next((each for each in ENDINGS if lower.endswith(each) and len(each) < len(lower)), "")
    stem = bare[: len(bare) - len(ending)]
    if ending == ".index" and stem.lower().endswith(".ckpt"):  # cp-0005.ckpt.index
        stem = stem[:-5]
    step, epoch, number, words = _parse_progress(stem)
    if ending in CHECKPOINT_ENDINGS:
        words |= {"ckpt"}
    return Name(stem, ending, words, step, epoch, number, temporary, shard)


def _parse_progress(
    stem: str,
) -> "tuple[int | None, int | None, int | None, frozenset[str]]":
    # A date would be taken for a huge step, and "epoch_2nd_00010" is not epoch 2.
    text = _ORDINAL.sub("", _DATE.sub("", stem.lower()))
    text = _CHINESE.sub(lambda found: CHINESE[found.group()], text)
    parts = [
        "" if _HASH.fullmatch(part) and not _WORD_AND_NUMBER.fullmatch(part) else part
        for part in re.split(r"([-_= +])", text)
    ]
    tokens = [
        (match.group(), match.start(), match.end()) for match in _WORD.finditer("".join(parts))
    ]
    step = epoch = None
    bare = []
    for place, (text, start, end) in enumerate(tokens):
        if not text.isdigit() or len(text) > _MOST_DIGITS:
            continue
        before, glued = (
            ("", False) if not place else (tokens[place - 1][0], tokens[place - 1][2] == start)
        )
        after, before_it = (
            ("", False)
            if place + 1 == len(tokens)
            else (tokens[place + 1][0], tokens[place + 1][1] == end)
        )
        # A single letter counts only next to its number: "s500", but not "s 500".
        if before in STEPS and (len(before) > 1 or glued):
            step = int(text)
        elif (before in EPOCHS and (len(before) > 1 or glued)) or (
            before_it and after in EPOCHS and len(after) > 1
        ):
            epoch = int(text)
        elif (
            after in STEPS
            and len(after) > 2
            and (place + 2 == len(tokens) or not tokens[place + 2][0].isdigit())
        ):
            step = int(text)
        elif before_it or before in _NO_PROGRESS or (glued and before not in _GLUED):
            continue
        else:
            bare.append(int(text))
    words = frozenset(text for text, _, _ in tokens if not text[0].isdigit())
    if bare and step is None:
        # Of several unexplained numbers the largest is most likely the step.
        number = max(bare)
    else:
        number = None
    if number is not None and epoch is not None:
        number = None
    return step, epoch, number, words


def is_best(name: Name) -> bool:
    """Return whether a name says that its checkpoint has the best metric so far."""
    return "best" in name.words


def is_companion(name: Name) -> bool:
    """Return whether a file belongs to weights but contains none."""
    return bool(name.words & COMPANIONS) and "model" not in name.words


def is_data(name: Name) -> bool:
    """Return whether a file's name says that it contains no weights."""
    if name.words & CHECKPOINTS:
        return False
    if name.words & {"model", "weights"}:
        return bool(name.words & {"replay", "tokenizer"})  # rl_model_replay_buffer_10000_steps.pkl
    return bool(name.words & DATA)


def is_downloaded(name: str) -> bool:
    """Return whether torch.hub stores downloads under such a name."""
    return _HUB.fullmatch(name) is not None


def shows_checkpoint(name: Name) -> bool:
    """Return whether the name alone shows that a tensor file is a checkpoint."""
    if name.step is not None or name.epoch is not None:
        return True
    return bool(name.words & (CHECKPOINTS | ALIASES | MODELS))


def is_weights(name: Name) -> bool:
    """Return whether a file may be a checkpoint's, by its ending or (if ambiguous) its name."""
    if name.ending in WEIGHTS:
        return True
    if name.ending in PERHAPS:
        return bool(name.words & (CHECKPOINTS | ALIASES | MODELS)) and not is_data(name)
    if not name.ending and name.number is not None and "." not in name.stem:
        return bool(name.words & CHECKPOINTS)  # Flax: checkpoint_1000, without an ending
    return name.ending == ".index"


# ``manifest.json`` of the trainer's checkpoints: canonical JSON with its own SHA-256
# (docs/checkpoint-format.md).


def encode_manifest(body: "Mapping[str, Any]") -> bytes:
    """Return the file's content: `body` and its digest, so that a flipped bit is detected."""
    return _canonical({**body, "digest": hashlib.sha256(_canonical(body)).hexdigest()})


def decode_manifest(raw: bytes) -> "dict[str, Any]":
    """Return the body of a manifest without its digest.

    Raises:
        ValueError: It is damaged; the message says how.
    """
    try:
        body: "dict[str, Any]" = json.loads(raw)
        del body["digest"]
        # The bytes, not the parsed values: a flipped bit in a space is damage, too.
        intact = raw == encode_manifest(body)
    except (ValueError, KeyError, AttributeError, TypeError, RecursionError):
        raise ValueError("it is not readable as a manifest") from None
    if not intact:
        raise ValueError("its bytes are not what was written")
    return body


def _canonical(body: "Mapping[str, Any]") -> bytes:
    return (json.dumps(body, sort_keys=True, indent=1) + "\n").encode()
