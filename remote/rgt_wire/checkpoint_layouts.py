"""Recognise which files of a directory are checkpoints, by structure, for every trainer. Pure.

A checkpoint is a directory with a telling name (``checkpoint-500``, or ``1000`` with an Orbax
marker file inside), a directory with a file that only checkpoints have, or the files of one folder
that share a number or an alias (``model_500.pt``, ``optim_500_rank0.pt``, ``meta_500.json``).
docs/checkpoints.md describes the rules for users.
"""

from __future__ import annotations

import re

from rgt_wire import checkpoint_names, cut_saves
from rgt_wire.checkpoint_names import Name, read_name
from rgt_wire.cut_saves import Checkpoint as Checkpoint

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, Iterable, NamedTuple

    class FileContent(NamedTuple):
        """What the bytes of one file show."""

        weights: "bool | None" = None
        """Whether it contains weights, by its tensors' names; None if unknown."""
        step: "int | None" = None
        epoch: "int | None" = None
        cut: bool = False
        """It ends before its own structure does: it is being written, or was never finished."""
        text: str = ""
        """The first line of a small text file."""
else:
    from collections import namedtuple

    FileContent = namedtuple(
        "FileContent", "weights step epoch cut text", defaults=(None, None, None, False, "")
    )

NOTHING = FileContent()
MARKS = frozenset(
    (
        ".metadata", "_METADATA", "_CHECKPOINT_METADATA", "orbax.checkpoint", "saved_model.pb",
        "rllib_checkpoint.json",
        "adapter_config.json", "trainer_state.json", "model.safetensors.index.json",
        "pytorch_model.bin.index.json",
        "random_states_0.pkl", "metadata.json",
    )
)  # fmt: skip
"""Files that make their directory a checkpoint if it contains weights or one of `ALONE`."""
ALONE = frozenset(
    (
        ".metadata",
        "_METADATA",
        "_CHECKPOINT_METADATA",
        "orbax.checkpoint",
        "saved_model.pb",
        "MLmodel",
    )
)
"""Files that do so without recognisable weights, because the names of their weights say nothing."""
TELLS = ("trainer_state.json", "training_step.json", "train_state.json", "manifest.json")
"""Files in a checkpoint's directory that may contain the step."""
_HF = re.compile(
    r"(?:model|pytorch_model|adapter_model|diffusion_pytorch_model|tf_model"
    r"|flax_model)(?:-\d+-of-\d+)?(?:\.fp16|\.bf16)?"
    r"\.(?:safetensors|bin|h5|msgpack)"
)
_ABOUT = (
    ".txt", ".log", ".json", ".jsonl", ".csv", ".yaml", ".yml", ".toml", ".md", ".py", ".png",
    ".jpg", ".jpeg",
    ".gif", ".svg", ".pdf", ".html", ".wav", ".mp4", ".ply",
)  # fmt: skip
SET_ASIDE = (".old-", ".damaged-", ".rgt-")
"""Name prefixes of directories that are no longer checkpoints."""
SKIPPED = frozenset(
    (
        "site-packages",
        "dist-packages",
        "node_modules",
        "__pycache__",
        ".git",
        ".cache",
        ".venv",
        "venv",
        "hub",
        ".ipynb_checkpoints",
    )
)
"""Directories with installed or downloaded files."""
_DEPTH = 8
"""Levels below a checkpoint's directory that are searched for weights."""


class _FolderNode:
    __slots__ = ("files", "folders", "name", "path")

    def __init__(self, path: str) -> None:
        self.path = path
        self.name = path.rpartition("/")[2]
        self.files: list[str] = []
        self.folders: dict[str, _FolderNode] = {}

    def list_below(self) -> list[str]:
        """Return the paths of all files."""
        found = [_join_path(self.path, name) for name in self.files]
        for folder in self.folders.values():
            found += folder.list_below()
        return found

    def list_names(self, depth: int = _DEPTH) -> list[str]:
        """Return the names of the files down to some depth."""
        found = list(self.files)
        for folder in self.folders.values() if depth else ():
            found += folder.list_names(depth - 1)
        return found


def find_checkpoints(
    paths: Iterable[str], content: Callable[[str], FileContent] = lambda path: NOTHING
) -> list[Checkpoint]:
    """Return the checkpoints among files, including those being written.

    Args:
        paths: Files, relative to the searched directory; no links.
        content: Returns what the bytes of a file show; called only if its name is ambiguous.
    """
    top = _build_tree(paths)
    found: list[Checkpoint] = []
    unsure: list[Checkpoint] = []
    _search_folder(top, "", found, unsure, content)
    # A file with a neutral name counts only if there is nothing better, or if it is next to that
    # and says how far it was trained: otherwise it is a downloaded model.
    beside = {one.path.rpartition("/")[0] for one in found}
    found = [
        *found,
        *(
            one
            for one in unsure
            if not found
            or (one.path.rpartition("/")[0] in beside and _says_progress(content(one.path)))
        ),
    ]
    for path, name in cut_saves.find_cut_saves(found).items():
        at = next(number for number, one in enumerate(found) if one.path == path)
        reason = f"its {name}, which is written after the weights, is missing"
        found[at] = found[at]._replace(unfinished=reason)
    return sorted(found, key=lambda one: one.path)


def _says_progress(inside: FileContent) -> bool:
    """Return whether a file of weights holds the step or the epoch of a training."""
    numbers = [each for each in (inside.step, inside.epoch) if each is not None]
    return bool(inside.weights) and any(each >= 0 for each in numbers)


def _build_tree(paths: Iterable[str]) -> _FolderNode:
    top = _FolderNode("")
    for path in paths:
        folder = top
        *above, name = path.split("/")
        for part in above:
            if part not in folder.folders:
                folder.folders[part] = _FolderNode(_join_path(folder.path, part))
            folder = folder.folders[part]
        folder.files.append(name)
    return top


def _join_path(folder: str, name: str) -> str:
    if folder:
        return f"{folder}/{name}"
    return name


def _search_folder(
    folder: _FolderNode,
    kind: str,
    found: list[Checkpoint],
    unsure: list[Checkpoint],
    content: Callable[[str], FileContent],
) -> None:
    """Add the checkpoints of a directory.

    Args:
        folder: The directory.
        kind: Purpose by the nearest telling directory name: ``data``, ``models`` or "".
        found: Checkpoints are added here.
        unsure: Files with neutral names are added here.
        content: See `find_checkpoints`.
    """
    units = [each for each in folder.folders.values() if not _is_left_out(each.name)]
    below: list[_FolderNode] = []
    for each in units:
        name = read_name(each.name)
        if (kind != "data" and _is_unit(each, name, folder)) or (
            _is_marked(each)
            and kind != "data"
            and _folder_kind(each.name, kind) != "data"
            and not _has_units(each)
        ):
            found.append(_checkpoint_of_folder(each, name, content))
        else:
            below.append(each)
    # A data set may contain files that look like weights: below it, only names that say
    # "checkpoint" count, as in nnU-Net's results/Dataset004_Hippocampus.
    files = folder.files
    if kind == "data":
        folder.files = [name for name in files if _is_named_checkpoint(name)]
    if folder.files:
        _add_file_checkpoints(folder, kind, found, unsure, content)
    folder.files = files
    if kind != "data":
        _apply_trackers(folder, found, content)
    for each in below:
        _search_folder(each, _folder_kind(each.name, kind), found, unsure, content)


def _is_named_checkpoint(name: str) -> bool:
    """Return whether a file of weights is called a checkpoint, by more than its ending."""
    read = read_name(name)
    words = read_name(read.stem).words & checkpoint_names.CHECKPOINTS
    return read.ending in checkpoint_names.WEIGHTS and bool(words)


def _is_left_out(name: str) -> bool:
    return name in SKIPPED or name.startswith(SET_ASIDE)


def is_data_folder(name: str) -> bool:
    """Return whether a directory's name says that it holds a data set."""
    return _folder_kind(name, "") == "data"


def _folder_kind(name: str, above: str) -> str:
    words = read_name(name).words
    if "pretrained" in words:
        return "data"
    if words & (checkpoint_names.CHECKPOINTS | {"models", "weights", "saved"}):
        return "models"
    if words & (checkpoint_names.DATA - {"train", "val", "test", "eval", "results"}):
        return "data"
    return above


def _is_unit(folder: _FolderNode, name: Name, above: _FolderNode) -> bool:
    """Return whether a directory is one checkpoint by its name."""
    words = name.words
    if name.temporary and name.progress is not None and folder.list_names():
        return True
    if (
        name.step is not None
        or name.epoch is not None
        or (name.number is not None and words & checkpoint_names.CHECKPOINTS)
    ):
        named = True
    elif name.number is not None and not words:
        named = (
            bool(read_name(above.name).words & checkpoint_names.CHECKPOINTS)
            or not set(cut_saves.TRACKERS).isdisjoint(above.files)
            or _marks_below(folder)
        )
    else:
        named = bool(words & checkpoint_names.ALIASES) or (
            bool(words) and folder.name.endswith("-state")
        )
    in_series = bool((words | read_name(above.name).words) & checkpoint_names.CHECKPOINTS)
    return named and (_has_weights(folder) or (in_series and _has_content(folder)))


def _marks_below(folder: _FolderNode) -> bool:
    return any(name in MARKS for name in folder.list_names(2))


def _has_weights(folder: _FolderNode) -> bool:
    for name in folder.list_names():
        if name in ALONE or name == "model":  # spaCy
            return True
        read = read_name(name)
        if read.ending in checkpoint_names.WEIGHTS or (
            read.ending in checkpoint_names.PERHAPS and checkpoint_names.is_weights(read)
        ):
            return True
    return False


def _has_content(folder: _FolderNode) -> bool:
    """Return whether a directory has more files than texts and pictures about a checkpoint."""
    return any(not name.lower().endswith(_ABOUT) for name in folder.list_names())


def _is_marked(folder: _FolderNode) -> bool:
    names = set(folder.files)
    if names & ALONE or any(name.endswith(".distcp") for name in names):
        return True
    # Both: "manifest.json" alone is a common name.
    is_ours = "manifest.json" in names and "model.safetensors" in names
    return (bool(names & MARKS) or "config.json" in names or is_ours) and any(
        _HF.fullmatch(name) for name in names
    )


def _has_units(folder: _FolderNode) -> bool:
    return any(
        _is_unit(each, read_name(each.name), folder) or _has_units(each)
        for each in folder.folders.values()
    )


def _checkpoint_of_folder(
    folder: _FolderNode, name: Name, content: Callable[[str], FileContent]
) -> Checkpoint:
    files = tuple(folder.list_below())
    step = name.step
    epoch = name.epoch
    if step is None and epoch is None:
        step = name.number
    if step is None and epoch is None:
        step = next(
            (
                inside
                for path in files
                if path.rpartition("/")[2] in TELLS
                for inside in [content(path).step]
                if inside is not None
            ),
            None,
        )
    if name.temporary:
        unfinished = "it has a temporary name"
    else:
        unfinished = _why_unfinished(files, content)
    return Checkpoint(
        folder.path,
        files,
        _group_pattern(folder.path),
        step,
        epoch,
        checkpoint_names.is_best(name),
        unfinished,
    )


def _why_unfinished(files: tuple[str, ...], content: Callable[[str], FileContent]) -> str:
    missing = cut_saves.find_missing_part(files)
    if missing:
        return missing
    for path in files:
        if path.lower().endswith(checkpoint_names.WEIGHTS + (".bin", ".h5")) and content(path).cut:
            return f"{path.rpartition('/')[2]} ends too early"
    return ""


def _group_pattern(path: str) -> str:
    return re.sub(r"\d+", "#", path)


def _add_file_checkpoints(
    folder: _FolderNode,
    kind: str,
    found: list[Checkpoint],
    unsure: list[Checkpoint],
    content: Callable[[str], FileContent],
) -> None:
    """Add the checkpoints that are files of a directory."""
    series: dict[object, list[tuple[str, Name]]] = {}
    plain: list[tuple[str, Name]] = []
    with_it: list[str] = []
    whole: list[str] = []
    marked = _is_marked(folder) and not folder.path
    for text in sorted(folder.files):
        name = read_name(text)
        path = _join_path(folder.path, text)
        # A Hugging Face checkpoint in the searched directory itself, without a number in its name.
        if marked and _HF.fullmatch(text):
            whole.append(path)
        elif checkpoint_names.is_downloaded(text):
            continue
        elif checkpoint_names.is_companion(name) and name.progress is None:
            with_it.append(path)
        elif checkpoint_names.is_data(name) or (
            not name.ending and not checkpoint_names.is_weights(name)
        ):
            continue
        elif name.progress is not None or name.words & checkpoint_names.ALIASES:
            key = (
                name.step,
                name.epoch,
                name.number,
                name.words & checkpoint_names.ALIASES,
                name.temporary,
            )
            series.setdefault(key, []).append((path, name))
        elif checkpoint_names.is_weights(name) and name.ending != ".index":
            plain.append((path, name))
    if whole:
        names = {
            _join_path(folder.path, mark)
            for mark in folder.files
            if mark in MARKS or mark == "config.json"
        }
        files = tuple(dict.fromkeys([*whole, *with_it, *sorted(names)]))
        found.append(_marked_root(whole, files, content))
    elif marked:
        files = tuple(_join_path(folder.path, name) for name in folder.files)
        found.append(Checkpoint(".", files, ".", unfinished=_why_unfinished(files, content)))
    for rows in series.values():
        _add_series(rows, kind, found, unsure, content)
    for path, name in plain:
        if len(plain) == 1 and not series:
            files = (path, *with_it)
        else:
            files = (path,)
        _add_file(path, name, files, kind, found, unsure, content)


def _marked_root(
    whole: list[str], files: tuple[str, ...], content: Callable[[str], FileContent]
) -> Checkpoint:
    inside = content(whole[0])
    return Checkpoint(
        whole[0],
        files,
        _group_pattern(whole[0]),
        inside.step,
        inside.epoch,
        unfinished=_why_unfinished(files, content),
    )


def _add_series(
    rows: list[tuple[str, Name]],
    kind: str,
    found: list[Checkpoint],
    unsure: list[Checkpoint],
    content: Callable[[str], FileContent],
) -> None:
    """Add the checkpoint of files that share a number or an alias."""
    weights = [(path, name) for path, name in rows if checkpoint_names.is_weights(name)]
    main = [(path, name) for path, name in weights if not checkpoint_names.is_companion(name)]
    if not main:
        return
    # By name at last, so that the same files always give the same path.
    path, name = min(main, key=lambda row: (_file_rank(row[1]), row[0]))
    known = read_words(name)
    files = [path]
    for other, read in rows:
        if other != path and (
            checkpoint_names.is_weights(read)
            or checkpoint_names.is_companion(read)
            or read.ending in (".data", ".pdopt", ".pdstates", ".solverstate")
            or read_words(read) <= known
        ):
            files.append(other)
    _add_file(path, name, tuple(files), kind, found, unsure, content)


def read_words(name: Name) -> "frozenset[str]":
    """Return the words of a name that say which model it is."""
    return name.words - checkpoint_names.COMPANIONS


def _file_rank(name: Name) -> int:
    """Return a file's rank among those of one checkpoint; the lowest is the model itself."""
    if "model" in name.words or name.ending == ".index":
        return 0
    if name.words & {"d", "ema", "discriminator", "state", "critic"}:
        return 2
    return 1


def _add_file(
    path: str,
    name: Name,
    files: tuple[str, ...],
    kind: str,
    found: list[Checkpoint],
    unsure: list[Checkpoint],
    content: Callable[[str], FileContent],
) -> None:
    said = checkpoint_names.shows_checkpoint(name) or kind == "models"
    inside = content(path)
    # Only a known False: None means that the bytes do not show it.
    if inside.weights is False and not (said and name.ending in checkpoint_names.WEIGHTS):
        return
    step = name.step
    epoch = name.epoch
    if step is None and epoch is None:
        step = inside.step
        epoch = inside.epoch
        # The number in the name may be the epoch that the file itself records.
        if step is None and epoch != name.number:
            step = name.number
    elif step is None and inside.epoch in (None, epoch):
        step = inside.step
    if name.temporary:
        unfinished = "it has a temporary name"
    else:
        unfinished = _why_unfinished(files, content)
    one = Checkpoint(
        path, files, _group_pattern(path), step, epoch, checkpoint_names.is_best(name), unfinished
    )
    (found if said else unsure).append(one)


def _apply_trackers(
    folder: _FolderNode, found: list[Checkpoint], content: Callable[[str], FileContent]
) -> None:
    """Mark checkpoints of a directory that the trainer's files next to them call incomplete."""
    newest: dict[str, int] = {}
    here = [one for one in found if one.path.rpartition("/")[0] == folder.path]
    for tracker in cut_saves.TRACKERS:
        if tracker in folder.files:
            text = content(_join_path(folder.path, tracker)).text
            named = cut_saves.read_tracker(tracker, text)
            step = cut_saves.tracked_step(tracker, named, here)
            if step is not None:
                newest[tracker] = step
    marked = {name for name in folder.files if name.endswith(cut_saves.UNFINISHED)}
    if not newest and not marked:
        return
    for place, one in enumerate(found):
        above, _, name = one.path.rpartition("/")
        if above != folder.path or one.unfinished:
            continue
        marker = cut_saves.unfinished_marker(name)
        if marker in marked:
            found[place] = one._replace(unfinished=f"{marker} is next to it")
        for tracker, step in newest.items():
            # Only directories: the trainers with a tracker file save one directory per step.
            if one.path not in one.files and one.step is not None and one.step > step:
                found[place] = one._replace(unfinished=f"{tracker} does not name it yet")
