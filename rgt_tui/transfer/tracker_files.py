"""Checks what trainers write about their checkpoints: which is the newest, which is the best."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import msgspec
from rgt_wire import checkpoint_names, cut_saves
from rgt_wire.checkpoint_layouts import Checkpoint

from rgt_tui.files import open_regular
from rgt_tui.transfer.directory_contents import join_path

_TRACKERS = frozenset((*cut_saves.TRACKERS, *cut_saves.FILE_TRACKERS))
_OF_RANK = re.compile(r"last_checkpoint\.rank_\d+")
"""The tracker of one rank, in DINOv2 and other trainings with FSDP."""
PathFaults = list[tuple[str, str]]
"""Paths, each with its fault."""


class _TrainerState(msgspec.Struct):
    """The part of a ``trainer_state.json`` that names the best checkpoint."""

    global_step: int = 0
    best_model_checkpoint: str | None = None


def read_trackers(root: Path, paths: Iterable[str]) -> dict[str, str]:
    """Return the texts of the tracker files among the files of a directory."""
    most_bytes = 4096
    texts = {}
    for path in paths:
        name = path.rpartition("/")[2]
        if name in _TRACKERS or _OF_RANK.fullmatch(name):
            try:
                with open_regular(root / path, follow=False) as file:
                    texts[path] = file.read(most_bytes).decode(errors="replace")
            except OSError:
                continue  # the read error is reported when it is hashed
    return texts


def find_cut_checkpoints(found: Sequence[Checkpoint], paths: Iterable[str]) -> PathFaults:
    """Return the missing files of the checkpoints among `paths`, by the names of their files."""
    here = set(paths)
    faults: PathFaults = []
    for path, name in cut_saves.find_cut_saves(found).items():
        folder = path
        if path in here:
            folder = path.rpartition("/")[0]
        faults.append((join_path(folder, name), "it is missing: the save was cut off"))
    for one in found:
        missing = cut_saves.find_missing_part(one.files)
        # Its own examination reports what torch.distributed.checkpoint lacks.
        if missing.startswith("it has"):
            faults.append((one.path, f"{missing}: the others were not saved, or not copied"))
        marker = cut_saves.unfinished_marker(one.path)
        if marker in here:
            faults.append(
                (one.path, f"{marker.rpartition('/')[2]} is next to it: the save was cut off")
            )
    return faults


def find_tracker_faults(
    root: Path, texts: Mapping[str, str], found: Sequence[Checkpoint], paths: Iterable[str]
) -> tuple[PathFaults, PathFaults]:
    """Return errors and notes about tracker files, and about checkpoints that they do not name yet.

    Args:
        root: The directory, whose name is compared with that in an absolute path.
        texts: Paths and texts of the tracker files.
        found: The checkpoints.
        paths: All files.
    """
    errors: PathFaults = []
    notes: PathFaults = []
    files = list(paths)
    children = _list_children({path.rpartition("/")[0] for path in texts}, files)
    for path, text in texts.items():
        folder, _, tracker = path.rpartition("/")
        named = cut_saves.read_tracker(tracker, text)
        if not named:
            continue
        here = [one for one in found if one.path.rpartition("/")[0] == folder]
        target = _find_target(named, tracker, children[folder])
        if target:
            errors += _find_shorter_saves(here, join_path(folder, target), tracker)
        elif _names_checkpoint(named, path, here) and not _is_elsewhere(named, files):
            reason = f"it names {named[-200:]}, which is not in this copy"
            parent = folder.rpartition("/")[2] or root.name
            # An absolute path may lead to another directory than the tracker's own.
            if "/" in named and named.split("/")[-2] != parent:
                notes.append((path, reason))
            else:
                errors.append((path, reason))
    return errors, notes


def _list_children(folders: set[str], files: Iterable[str]) -> dict[str, set[str]]:
    """Return the names of files and directories directly in each of some directories."""
    children: dict[str, set[str]] = {folder: set() for folder in folders}
    if not folders:
        return children
    for path in files:
        folder, _, name = path.rpartition("/")
        while True:
            if folder in children:
                children[folder].add(name)
            if not folder:
                break
            folder, _, name = folder.rpartition("/")
    return children


def _find_target(named: str, tracker: str, children: set[str]) -> str:
    """Return the child of a directory that a tracker in it names; "" = none."""
    name = named.rpartition("/")[2]
    if name in children:
        return name
    if tracker == "checkpoint" and {f"{name}.index", f"{name}.meta"} & children:
        return name
    if name.isdigit() and tracker in cut_saves.TRACKERS:
        for child in sorted(children):
            read = checkpoint_names.read_name(child)
            if not read.temporary and read.progress == int(name):
                return child
    return ""


def _names_checkpoint(named: str, path: str, here: Sequence[Checkpoint]) -> bool:
    """Return whether a tracker's text is a checkpoint's name: other programs have a ``latest``, too."""
    *above, tracker = path.split("/")
    if tracker in ("latest_checkpointed_iteration.txt", "checkpoint"):
        return True
    name = named.rpartition("/")[2]
    read = checkpoint_names.read_name(name)
    is_other_file = re.search(r"\.[a-z]+$", name) and read.ending not in checkpoint_names.WEIGHTS
    if is_other_file or cut_saves.is_version(name):
        return False
    if read.step is not None or read.epoch is not None or read.words & checkpoint_names.CHECKPOINTS:
        return True
    step = cut_saves.tracked_step(tracker, named, here)
    is_telling = step is not None or read.words & checkpoint_names.ALIASES
    parent = checkpoint_names.read_name("".join(above[-1:]))
    is_here = bool(here) or bool(parent.words & checkpoint_names.CHECKPOINTS)
    return is_here and (bool(is_telling) or read.ending in checkpoint_names.WEIGHTS)


def _is_elsewhere(named: str, files: Iterable[str]) -> bool:
    """Return whether the last two parts of a path lead to a file of another directory."""
    last = "/".join(named.split("/")[-2:])
    return "/" in last and any(
        f"/{path}".endswith(f"/{last}") or f"/{last}/" in f"/{path}" for path in files
    )


def _find_shorter_saves(here: Sequence[Checkpoint], target: str, tracker: str) -> PathFaults:
    """Return the checkpoints that are newer than the named one, and have fewer files of a kind."""
    complete = next((one for one in here if one.path == target), None)
    if complete is None or complete.step is None:
        return []
    faults = []
    for one in here:
        if one.step is not None and one.step > complete.step:
            kind = cut_saves.find_lacking_kind(one, complete)
            if kind:
                name = complete.path.rpartition("/")[2]
                reason = f"{tracker} does not name it yet, and {name} has more files {kind}"
                faults.append((one.path, f"{reason}: the save was cut off"))
    return faults


def find_missing_ranks(
    answers: Mapping[str, Mapping[str, object]], paths: Iterable[str]
) -> PathFaults:
    """Return DeepSpeed's checkpoints with fewer optimizer files than ranks.

    Args:
        answers: Path of each file of weights, and what its examination said.
        paths: All files.
    """
    ranks = {
        path: answer["zero_ranks"] for path, answer in answers.items() if answer.get("zero_ranks")
    }
    have: dict[tuple[str, str], int] = {}
    pattern = re.compile(r"(?:bf16_)?zero_pp_rank_\d+_mp_rank_(\d+)_optim_states\.pt")
    for path in paths:
        folder, _, name = path.rpartition("/")
        match = pattern.fullmatch(name)
        if match:
            key = folder, match.group(1)
            have[key] = have.get(key, 0) + 1
    faults = []
    for path, wanted in ranks.items():
        folder, _, name = path.rpartition("/")
        match = re.search(r"mp_rank_(\d+)_model_states\.pt$", name)
        if match and isinstance(wanted, int):
            count = have.get((folder, match.group(1)), 0)
            if count < wanted:
                reason = (
                    f"it was saved by {wanted} ranks, and {count} of their optim_states.pt are here"
                )
                faults.append((path, reason))
    return faults


def find_missing_best(root: Path, sizes: Mapping[str, int]) -> PathFaults:
    """Return each newest ``trainer_state.json`` that names a best checkpoint which is not here.

    The Trainer of transformers loads it at the end (``load_best_model_at_end``), and keeps it
    in addition to the ``save_total_limit`` newest ones.
    """
    newest: dict[str, tuple[int, str, str]] = {}
    largest = 64 << 20
    for path, size in sizes.items():
        folder, _, name = path.rpartition("/")
        if name != "trainer_state.json" or size > largest:
            continue
        try:
            state = msgspec.json.decode((root / path).read_bytes(), type=_TrainerState)
        except (OSError, ValueError, RecursionError):
            continue  # whether it is intact is judged elsewhere
        best = (state.best_model_checkpoint or "").rpartition("/")[2]
        above = folder.rpartition("/")[0]
        # Each checkpoint has one; only the newest names the best that counts.
        if state.global_step >= newest.get(above, (0, "", ""))[0]:
            newest[above] = (state.global_step, path, best)
    faults = []
    for above, (_, path, best) in newest.items():
        wanted = join_path(above, f"{best}/")
        if best and not any(other.startswith(wanted) for other in sizes):
            faults.append(
                (path, f"it names {best} as the best checkpoint, which is not in this copy")
            )
    return faults
