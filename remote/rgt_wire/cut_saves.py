"""Finds out whether a checkpoint's save was cut off, by its names and what trainers write next to it. Pure."""

from __future__ import annotations

import re

from rgt_wire import checkpoint_names
from rgt_wire.checkpoint_names import Name, read_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Iterable, NamedTuple, Sequence

    class Checkpoint(NamedTuple):
        """One checkpoint."""

        path: str
        """Its directory, or its weights file; "." is the searched directory."""
        files: "tuple[str, ...]"
        """All its files."""
        group: str
        """The same for all checkpoints of one series; numbers are ``#``."""
        step: "int | None" = None
        epoch: "int | None" = None
        best: bool = False
        unfinished: str = ""
        """Why it is incomplete; "" if nothing indicates that."""
else:
    from collections import namedtuple

    Checkpoint = namedtuple(
        "Checkpoint",
        "path files group step epoch best unfinished",
        defaults=(None, None, False, ""),
    )

TRACKERS = ("latest_checkpointed_iteration.txt", "latest", "latest.txt", "latest_universal")
"""Files with the name or number of the newest complete checkpoint, a directory, written after it
(Megatron-LM and verl; DeepSpeed; nanotron)."""
FILE_TRACKERS = ("last_checkpoint", "checkpoint")
"""The same for checkpoints that are files (mmengine and fvcore; TensorFlow)."""
ENDING_STATES = (
    "trainer_state.json", "training_step.json", "train_state.json", "commit_success.txt",
    "_CHECKPOINT_METADATA",
    "done",
)  # fmt: skip
"""Files that are written into a checkpoint's directory after its weights."""
UNFINISHED = "-unfinished"
"""Ending of an empty file that NeMo keeps next to a checkpoint while it is saved or deleted."""
_RANDOM_STATES = re.compile(r"random_states_\d+\.pkl")
_TENSORFLOW = re.compile(r'^model_checkpoint_path:\s*"([^"]+)"')
_WORLD = re.compile(r"world_size_(\d{1,6})_rank_(\d{1,6})")
_RANK = re.compile(r"rank[-_]?(\d{1,6})")
_VERSION = re.compile(r"v?\d+\.\d+(?:\.\d+.*)?")
_MEGATRON = TRACKERS[0]


def read_tracker(tracker: str, text: str) -> str:
    """Return the name of the checkpoint in a tracker file; "" if it has none."""
    if tracker == "checkpoint":
        found = _TENSORFLOW.match(text)
        if found is None:
            return ""
        return found.group(1)
    name = text.strip().rstrip("/")
    # Other programs have such files, too.
    if len(name.split()) != 1 or not name.isprintable():
        return ""
    return name


def unfinished_marker(path: str) -> str:
    """Return the path of the marker that NeMo keeps next to a checkpoint."""
    return re.sub(r"\.ckpt$", "", path) + UNFINISHED


def is_version(name: str) -> bool:
    """Return whether a tracker's text is the version of a program, as in ``v1.7.2``."""
    return _VERSION.fullmatch(name) is not None


def tracked_step(tracker: str, named: str, here: Sequence[Checkpoint]) -> int | None:
    """Return the step in a tracker's text; None if it has no step, or perhaps an epoch's number.

    Args:
        tracker: The tracker's name.
        named: Its text: a name such as ``step-00002000-a1``, or a number.
        here: The checkpoints next to it. For a number without a word, one of them must have
            such a name or that step: 12 next to ``step_5000`` may be an epoch.
    """
    name = named.rpartition("/")[2]
    if is_version(name):
        return None
    read = read_name(name)
    if read.step is not None or read.number is None:
        return read.step
    pattern = _kind_pattern(name)
    like_it = [
        one
        for one in here
        if one.step == read.number or _kind_pattern(one.path.rpartition("/")[2]) == pattern
    ]
    if here and not like_it and tracker != _MEGATRON:
        return None
    return read.number


def find_cut_saves(found: Iterable[Checkpoint]) -> dict[str, str]:
    """Return checkpoints whose save was cut off, and a file that is missing next to their weights.

    accelerate's ``save_state`` writes weights, optimizers and schedulers, then
    ``random_states_RANK.pkl``, then what the script has registered, each into its place; no file
    says that a save is complete. transformers' Trainer writes ``trainer_state.json`` last.
    """
    series: dict[tuple[str, str], list[Checkpoint]] = {}
    for one in found:
        series.setdefault((one.path.rpartition("/")[0], one.group), []).append(one)
    cut: dict[str, str] = {}
    for members in series.values():
        members.sort(key=lambda one: (one.step or 0, one.epoch or 0, one.path))
        cut.update(_missing_optimizer(members))
        folders = [one for one in members if one.path not in one.files]
        cut.update(_missing_ends(folders))
    return cut


def _missing_ends(members: list[Checkpoint]) -> dict[str, str]:
    """Return directories of a series without a file that is written last, and its name."""
    cut: dict[str, str] = {}
    own = {one.path: _direct_names(one) for one in members}
    with_states = {path for path, names in own.items() if any(map(_RANDOM_STATES.match, names))}
    seen: set[str] = set()
    for one in members:
        files = own[one.path]
        others = [own[other.path] for other in members if other is not one]
        # With one other checkpoint, the newer one decides: an older script may not write it.
        decides = len(others) > 1 or (one is members[-1] and bool(others))
        for name in ENDING_STATES if decides else ():
            if name not in files and all(name in other for other in others):
                cut[one.path] = name
        # Only accelerate gives both names; the Trainer's own checkpoints have other files, too.
        is_named = re.fullmatch(r"(?:.*/)?checkpoints/checkpoint_\d+", one.path)
        alone = is_named and "optimizer.bin" in files and "trainer_state.json" not in files
        if one.path in with_states:
            gone = sorted(name for name in seen - files if name.startswith("custom_checkpoint_"))
            # What an older script did not register is not missing.
            if gone and one is members[-1]:
                cut[one.path] = gone[0]
            seen |= files
        elif alone or with_states:
            cut[one.path] = "random_states_0.pkl"
    return cut


def _direct_names(one: Checkpoint) -> set[str]:
    return {
        name for folder, _, name in (p.rpartition("/") for p in one.files) if folder == one.path
    }


def _missing_optimizer(members: list[Checkpoint]) -> dict[str, str]:
    """Return the newest of a series if all others have an optimizer's file that it lacks.

    Only the newest: to save space, people delete the optimizers of older checkpoints.
    """
    if len(members) < 2:
        return {}
    last = members[-1]
    optimizers = [
        name
        for name in sorted(_relative_names(members[-2]))
        if read_name(name.rpartition("/")[2]).words & {"optim", "optimizer"}
    ]
    if not optimizers:
        return {}
    kinds = count_kinds(last)
    # Counted once: a checkpoint may have a file for each of hundreds of ranks.
    others = [count_kinds(other) for other in members[:-1]]
    for name in optimizers:
        kind = _kind_pattern(name)
        if kind not in kinds and all(kind in other for other in others):
            return {last.path: _renumbered(name, members[-2].step, last.step)}
    return {}


def count_kinds(one: Checkpoint) -> dict[str, int]:
    """Return how many files with weights or states a checkpoint has by name; numbers are ``#``."""
    counts: dict[str, int] = {}
    for name in _relative_names(one):
        read = read_name(name.rpartition("/")[2])
        if read.ending in checkpoint_names.WEIGHTS + checkpoint_names.PERHAPS:
            kind = _kind_pattern(name)
            counts[kind] = counts.get(kind, 0) + 1
    return counts


def find_lacking_kind(one: Checkpoint, complete: Checkpoint) -> str:
    """Return a name, with ``#`` for numbers, of which `one` has fewer files; "" = none."""
    have = count_kinds(one)
    for kind, count in sorted(count_kinds(complete).items()):
        if have.get(kind, 0) < count:
            return kind
    return ""


def _relative_names(one: Checkpoint) -> list[str]:
    """Return the files' paths below the checkpoint's directory, or below that of its file."""
    folder = one.path
    if one.path in one.files:
        folder = one.path.rpartition("/")[0]
    if folder in ("", "."):
        return list(one.files)
    return [path[len(folder) + 1 :] for path in one.files]


def _kind_pattern(name: str) -> str:
    return re.sub(r"\d+", "#", name)


def _renumbered(name: str, step: int | None, new: int | None) -> str:
    """Return a file's name with another step, as in ``optim_002000.pt`` for ``optim_001000.pt``."""

    def replace_step(found: re.Match[str]) -> str:
        if step is None or new is None or int(found.group()) != step:
            return found.group()
        return str(new).zfill(len(found.group()))

    return re.sub(r"\d+", replace_step, name)


def find_missing_part(files: Iterable[str]) -> str:
    """Return that files of a checkpoint are missing, by the numbers in the names; "" if none is."""
    names = {path.rpartition("/")[2] for path in files}
    # torch.distributed.checkpoint writes .metadata after all ranks have written their files.
    if any(name.endswith(".distcp") for name in names) and ".metadata" not in names:
        return "its .metadata, which is written last, is missing"
    for stem in _tensorflow_stems(names):
        # TensorFlow writes the index after the data.
        if not any(name.startswith(f"{stem}.data-") for name in names):
            return f"it has no {stem}.data-…"
    parts: dict[tuple[str, int], set[int]] = {}
    ranks: dict[str, set[int]] = {}
    for path in files:
        folder, _, text = path.rpartition("/")
        read = read_name(text)
        world = _WORLD.search(text)
        rank = _RANK.search(text)
        if read.shard is not None:
            key = (f"{folder}/{read.stem}{read.ending}", read.shard[1])
            parts.setdefault(key, set()).add(read.shard[0])
        elif world:
            key = (f"{folder}/{_WORLD.sub('', text)}", int(world.group(1)))
            parts.setdefault(key, set()).add(int(world.group(2)))
        elif rank and _is_state(read):
            ranks.setdefault(f"{folder}/{_RANK.sub('', text, 1)}", set()).add(int(rank.group(1)))
    for (_, total), numbers in parts.items():
        if len(numbers) < total:
            return "it has %d of %d files" % (len(numbers), total)
    for numbers in ranks.values():
        # A machine whose disk is not shared has the files of its own ranks only, without a gap.
        # 0, 8 and 16 may be the first ranks of machines, or LoRA's ranks.
        if 0 in numbers and max(numbers) >= len(numbers) and any(each % 4 for each in numbers):
            return "it has %d of at least %d files" % (len(numbers), max(numbers) + 1)
    return ""


def _tensorflow_stems(names: set[str]) -> list[str]:
    """Return the names of TensorFlow's checkpoints; faiss and others write an index, too."""
    stems = [name[: -len(".index")] for name in sorted(names) if name.endswith(".index")]
    if not stems or "saved_model.pb" in names:
        return stems
    others = [read_name(name) for name in names if not name.endswith(".index")]
    if any(map(checkpoint_names.is_weights, others)):
        return []
    return [stem for stem in stems if read_name(stem).words & checkpoint_names.CHECKPOINTS]


def _is_state(read: Name) -> bool:
    """Return whether a file with a rank in its name is a part of a checkpoint's state."""
    if read.ending not in checkpoint_names.WEIGHTS + checkpoint_names.PERHAPS:
        return False
    if checkpoint_names.is_data(read) or "lora" in read.words:
        return False
    return checkpoint_names.is_weights(read) or checkpoint_names.is_companion(read)
