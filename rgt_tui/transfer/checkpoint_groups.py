"""Which files of a directory are checkpoints, which belong together, and which need checking."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from rgt_wire.checkpoint_layouts import find_checkpoints
from rgt_wire.checkpoint_names import MANIFEST

from rgt_tui.transfer import dcp_files, safetensors_files
from rgt_tui.transfer.copying.box_listing import PARTS

LEFT_OVER = (".tmp-", ".old-", ".damaged-", PARTS)
"""Begin the names of directories of what is being written, waits for its deletion, or was set aside."""
_TORCH = (".pt", ".pth", ".ckpt", ".th", ".pth.tar")
_PERHAPS = (".bin", ".pkl", ".pickle", ".tar")
_NAMES_OF_TORCH = (
    "pytorch_model", "model", "adapter_model", "diffusion_pytorch_model", "optimizer", "scheduler", "training_args",
)  # fmt: skip
"""Begin the names of ``.bin`` files that are torch's whatever their first bytes are now."""
_COMPANIONS = (
    "optimizer", "optim", "scheduler", "scaler", "rng_state", "random_states", "training_args", "trainer_state",
    "zero_pp_rank", "bf16_zero_pp_rank", "mp_rank", "sampler", "dataloader", "custom_checkpoint", "config.json",
    "adapter_config",
)  # fmt: skip
"""Begin the names of files that make a checkpoint of all the files of weights beside them."""
CHECKPOINT_KINDS = ("trainer", "dcp", "torch", "safetensors", "gguf", "index")


class Job(NamedTuple):
    """One thing to look at: a file, or a directory whose files belong together."""

    kind: str
    """``trainer``, ``dcp``, ``index``, ``torch``, ``safetensors``, ``gguf``, ``npy``, ``npz``, ``hdf5``, ``pickle``,
    ``events``, ``lines`` or ``json``."""
    path: str
    """Relative to the directory that is verified."""


class Group(NamedTuple):
    """One checkpoint: its directory or its file, and the jobs that look at all of it."""

    path: str
    kind: str
    jobs: tuple[Job, ...]


class Plan(NamedTuple):
    """What is to be looked at in a directory and all below it."""

    groups: tuple[Group, ...]
    others: tuple[Job, ...]
    """Logs, documents and arrays, which are part of no checkpoint."""
    left_over: tuple[str, ...]
    """Files in directories that are no checkpoints yet, or no longer."""


def plan(files: Mapping[str, str]) -> Plan:
    """Say what is to be looked at.

    Args:
        files: Path of each file, relative, and what its first bytes are: ``zip``, ``pickle``, ``ours`` of a manifest of
            rgt_train, or an empty text.
    """
    folders: dict[str, dict[str, str]] = {}
    left_over = []
    for path in sorted(files):
        folder, _, name = path.rpartition("/")
        if any(part.startswith(LEFT_OVER) for part in path.split("/")):
            left_over.append(path)
        else:
            folders.setdefault(folder, {})[name] = files[path]
    groups: list[Group] = []
    others: list[Job] = []
    for folder, names in folders.items():
        found, rest = _folder(folder, names)
        groups += found
        others += rest
    leave = set(left_over)
    regrouped, more = _regrouped(groups, [path for path in files if path not in leave])
    return Plan(regrouped, (*others, *more), tuple(left_over))


def _regrouped(groups: Sequence[Group], paths: Sequence[str]) -> tuple[tuple[Group, ...], list[Job]]:
    """Group files by checkpoint, as the recogniser says that the box uses as well; return also what is in none.

    A model and its optimizer of the same step, or all ranks of one ``global_step500``, are whole together or not at
    all; two steps in one directory are two checkpoints.
    """
    checkpoint = {
        path: one.path for one in find_checkpoints(paths) if not one.unfinished for path in one.files
    }
    kept: dict[str, list[Group]] = {}
    rest: list[Job] = []
    for group in groups:
        own = {job.path: checkpoint.get(job.path, "") for job in group.jobs}
        if not any(own.values()) or any(job.kind in ("trainer", "dcp") for job in group.jobs):
            kept.setdefault(group.path, []).append(group)
            continue
        whole = set(own.values())
        if len(whole) == 1 and whole.pop().startswith(f"{group.path}/"):
            kept.setdefault(group.path, []).append(
                group
            )  # the directory says it better than one of its files
            continue
        for path in dict.fromkeys(own.values()):
            jobs = tuple(job for job in group.jobs if own[job.path] == path)
            if path:
                kept.setdefault(path, []).append(Group(path, group.kind, jobs))
            else:
                rest += jobs
    return tuple(
        rows[0]
        if len(rows) == 1
        else Group(path, "files of one checkpoint", tuple(job for group in rows for job in group.jobs))
        for path, rows in kept.items()
    ), rest


def _folder(folder: str, names: Mapping[str, str]) -> tuple[list[Group], list[Job]]:
    here = folder or "."
    groups = []
    taken: set[str] = set()
    if _is_trainer(names):
        groups.append(Group(here, "rgt_train", (Job("trainer", here),)))
        taken = {"manifest.json", "state.json", "model.safetensors", "trainer.safetensors"}
        taken |= {name for name in names if _is_sharded(name)}
    elif any(_is_sharded(name) for name in names):
        groups.append(Group(here, "torch.distributed.checkpoint", (Job("dcp", here),)))
        taken = {name for name in names if _is_sharded(name)}
    jobs = {name: kind_of(name, head) for name, head in names.items() if name not in taken}
    weights = [Job(kind, _join(folder, name)) for name, kind in jobs.items() if kind in CHECKPOINT_KINDS]
    others = [
        Job(kind, _join(folder, name)) for name, kind in jobs.items() if kind and kind not in CHECKPOINT_KINDS
    ]
    if weights and groups:
        groups[0] = groups[0]._replace(jobs=(*groups[0].jobs, *weights))
    elif any(name.startswith(_COMPANIONS) or name.endswith(safetensors_files.INDEX_SUFFIX) for name in names):
        groups += [Group(here, "files of one directory", tuple(weights))] if weights else []
    else:
        groups += [Group(job.path, job.kind, (job,)) for job in weights]
    return groups, others


def _is_trainer(names: Mapping[str, str]) -> bool:
    weights = {"model.safetensors", "trainer.safetensors", dcp_files.METADATA}
    return names.get(MANIFEST) == "ours" or ("state.json" in names and bool(weights & set(names)))


def _is_sharded(name: str) -> bool:
    return name == dcp_files.METADATA or name.endswith(dcp_files.SUFFIX)


def _join(folder: str, name: str) -> str:
    return f"{folder}/{name}" if folder else name


def kind_of(name: str, head: str) -> str:
    """Return the kind of the job for a file; empty where nothing is known but its bytes."""
    lower = name.lower()
    if "tfevents" in lower:
        return "events"
    for suffix, kind in (
        (".safetensors", "safetensors"),
        (safetensors_files.INDEX_SUFFIX, "index"),
        (".jsonl", "lines"),
        (".gguf", "gguf"),
        (".npy", "npy"),
        (".npz", "npz"),
        (".h5", "hdf5"),
        (".hdf5", "hdf5"),
    ):
        if lower.endswith(suffix):
            return kind
    if lower.endswith(".json"):
        return "json"
    if lower.endswith(_TORCH):
        return "torch"
    if lower.endswith(_PERHAPS):
        known = lower.endswith(".bin") and lower.startswith(_NAMES_OF_TORCH)
        pickled = "pickle" if lower.endswith((".pkl", ".pickle")) else ""
        return "torch" if known or head == "zip" else pickled
    return ""
