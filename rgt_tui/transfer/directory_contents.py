"""Lists a directory of results: files with their first bytes, and which ones are checkpoints."""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rgt_wire import checkpoint_names
from rgt_wire.checkpoint_layouts import NOTHING, Checkpoint, FileContent, find_checkpoints
from rgt_wire.checkpoint_names import FORMAT, MANIFEST

from rgt_tui.files import open_regular
from rgt_tui.transfer import safetensors_files, torch_files
from rgt_tui.transfer.copying.box_listing import PARTS, SMALL_PART
from rgt_tui.transfer.file_stretch import FileRefused, FileSection, MemberFileError, OpenFileSection
from rgt_tui.transfer.zip_records import END_MAGIC, MAGIC

LEFT_OVER = (".tmp-", ".old-", ".damaged-", PARTS)
"""Name prefixes of directories that are being written, await deletion, or were set aside."""
_TORCH = (".pt", ".pth", ".ckpt", ".th", ".pth.tar")
_PERHAPS = (".bin", ".pkl", ".pickle", ".tar")
_NAMES_OF_TORCH = (
    "pytorch_model", "model", "adapter_model", "diffusion_pytorch_model", "optimizer", "scheduler",
    "training_args",
)  # fmt: skip
"""Name prefixes of ``.bin`` files that belong to torch, even if their first bytes are damaged."""
_COMPANIONS = (
    "optimizer", "optim", "scheduler", "scaler", "rng_state", "random_states", "training_args",
    "trainer_state",
    "zero_pp_rank", "bf16_zero_pp_rank", "mp_rank", "sampler", "dataloader", "custom_checkpoint",
    "config.json",
    "adapter_config",
)  # fmt: skip
"""Name prefixes of files that, next to weights, make all weights of the directory one checkpoint.
"""
CHECKPOINT_KINDS = ("trainer", "dcp", "torch", "safetensors", "gguf", "index")
MOST_BYTES = 64 << 20
_HEX = re.compile(r"[0-9a-f]{8}")
_KINDS = {
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}
_MOST_HEAD = 1 << 20


class ExamineJob(NamedTuple):
    """One thing to examine: a file, or a directory whose files belong together."""

    kind: str
    """``trainer``, ``dcp``, ``index``, ``torch``, ``safetensors``, ``gguf``, ``npy``, ``npz``,
    ``hdf5``, ``pickle``, ``events``, ``lines`` or ``json``."""
    path: str
    """Relative to the directory that is verified."""


class CheckpointGroup(NamedTuple):
    """One checkpoint: its directory or its file, and the jobs that examine all of it."""

    path: str
    kind: str
    jobs: tuple[ExamineJob, ...]


class ExaminationPlan(NamedTuple):
    """What to examine in a directory tree."""

    groups: tuple[CheckpointGroup, ...]
    others: tuple[ExamineJob, ...]
    """Logs, documents and arrays that belong to no checkpoint."""
    left_over: tuple[str, ...]
    """Files in directories that are not yet, or no longer, checkpoints."""
    found: tuple[Checkpoint, ...] = ()
    """All checkpoints by their names, also those whose save is incomplete."""


def plan_examination(
    files: Mapping[str, str], texts: Mapping[str, str] | None = None
) -> ExaminationPlan:
    """Return what to examine.

    Args:
        files: Relative path of each file, and the kind of its first bytes: ``zip``, ``pickle``,
            ``ours`` (a manifest of rgt_train), or an empty text.
        texts: Paths and texts of the files that name the newest complete checkpoint.
    """
    folders: dict[str, dict[str, str]] = {}
    left_over = []
    for path in sorted(files):
        folder, _, name = path.rpartition("/")
        # Any part of the path: everything in such a directory is unfinished with it.
        if any(part.startswith(LEFT_OVER) for part in path.split("/")):
            left_over.append(path)
        else:
            folders.setdefault(folder, {})[name] = files[path]
    groups: list[CheckpointGroup] = []
    others: list[ExamineJob] = []
    for folder, names in folders.items():
        own, rest = _group_folder(folder, names)
        groups += own
        others += rest
    leave = set(left_over)
    paths = [path for path in files if path not in leave]
    trackers = {path: FileContent(text=text) for path, text in (texts or {}).items()}
    found = tuple(find_checkpoints(paths, lambda path: trackers.get(path, NOTHING)))
    regrouped, more = _regrouped(groups, found)
    return ExaminationPlan(regrouped, (*others, *more), tuple(left_over), found)


def _regrouped(
    groups: Sequence[CheckpointGroup], found: Sequence[Checkpoint]
) -> tuple[tuple[CheckpointGroup, ...], list[ExamineJob]]:
    """Group files by checkpoint, as recognised by the shared code; return also the ungrouped jobs.

    A model and its optimizer of the same step, or all ranks of one ``global_step500``, are only
    valid together; two steps in one directory are two checkpoints.
    """
    checkpoint = {path: one.path for one in found for path in one.files}
    kept: dict[str, list[CheckpointGroup]] = {}
    rest: list[ExamineJob] = []
    for group in groups:
        own = {job.path: checkpoint.get(job.path, "") for job in group.jobs}
        # A format that names its own files needs no guess by names.
        if not any(own.values()) or any(job.kind in ("trainer", "dcp") for job in group.jobs):
            kept.setdefault(group.path, []).append(group)
            continue
        whole = set(own.values())
        if len(whole) == 1 and whole.pop().startswith(f"{group.path}/"):
            kept.setdefault(group.path, []).append(
                group
            )  # name it by its directory instead of one of its files
            continue
        for path in dict.fromkeys(own.values()):
            jobs = tuple(job for job in group.jobs if own[job.path] == path)
            if path:
                kept.setdefault(path, []).append(CheckpointGroup(path, group.kind, jobs))
            else:
                rest += jobs
    whole_groups = []
    for path, rows in kept.items():
        one = rows[0]
        if len(rows) > 1:
            jobs = tuple(job for group in rows for job in group.jobs)
            one = CheckpointGroup(path, "files of one checkpoint", jobs)
        whole_groups.append(one)
    return tuple(whole_groups), rest


def _group_folder(
    folder: str, names: Mapping[str, str]
) -> tuple[list[CheckpointGroup], list[ExamineJob]]:
    here = folder or "."
    groups = []
    taken: set[str] = set()
    if _is_trainer(names):
        groups.append(CheckpointGroup(here, "rgt_train", (ExamineJob("trainer", here),)))
        taken = {"manifest.json", "state.json", "model.safetensors", "trainer.safetensors"}
        # Checked with the manifest, so they are no job of their own.
        taken |= {name for name in names if _is_sharded(name)}
    elif any(_is_sharded(name) for name in names):
        groups.append(
            CheckpointGroup(here, "torch.distributed.checkpoint", (ExamineJob("dcp", here),))
        )
        taken = {name for name in names if _is_sharded(name)}
    jobs = {name: kind_of(name, head) for name, head in names.items() if name not in taken}
    weights = [
        ExamineJob(kind, join_path(folder, name))
        for name, kind in jobs.items()
        if kind in CHECKPOINT_KINDS
    ]
    others = [
        ExamineJob(kind, join_path(folder, name))
        for name, kind in jobs.items()
        if kind and kind not in CHECKPOINT_KINDS
    ]
    if weights and groups:
        groups[0] = groups[0]._replace(jobs=(*groups[0].jobs, *weights))
    elif any(
        name.startswith(_COMPANIONS) or name.endswith(safetensors_files.INDEX_SUFFIX)
        for name in names
    ):
        groups += (
            [CheckpointGroup(here, "files of one directory", tuple(weights))] if weights else []
        )
    else:
        groups += [CheckpointGroup(job.path, job.kind, (job,)) for job in weights]
    return groups, others


def _is_trainer(names: Mapping[str, str]) -> bool:
    weights = {"model.safetensors", "trainer.safetensors", torch_files.METADATA}
    return names.get(MANIFEST) == "ours" or ("state.json" in names and bool(weights & set(names)))


def _is_sharded(name: str) -> bool:
    return name == torch_files.METADATA or name.endswith(torch_files.SUFFIX)


def join_path(folder: str, name: str) -> str:
    """Return the path of a file below a directory; "" and "." are the directory itself."""
    return "/".join(part for part in (folder, name) if part not in ("", "."))


def kind_of(name: str, head: str) -> str:
    """Return the kind of the job for a file; empty if only its bytes can be hashed."""
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
        pickled = ""
        if lower.endswith((".pkl", ".pickle")):
            pickled = "pickle"
        # `.bin`, `.tar` and the like are many formats: name or first bytes must speak for torch.
        if known or head == "zip":
            return "torch"
        return pickled
    return ""


# Checks checkpoints of rgt_train byte by byte against ``manifest.json``
# (docs/checkpoint-format.md).


def is_manifest(raw: bytes) -> bool:
    """Return whether a ``manifest.json`` belongs to rgt_train, even if it is damaged."""
    return (b'"files"' in raw and b'"crc32"' in raw) or (b'"digest"' in raw and b'"format"' in raw)


def read_trainer_manifest(folder: Path) -> dict[str, Any]:
    """Return the manifest of a checkpoint after comparing it with its own digest.

    Raises:
        MemberFileError: it is damaged, or of another format.
        OSError: it cannot be read.
    """
    try:
        with OpenFileSection(folder / MANIFEST) as whole:
            if whole.length > MOST_BYTES:
                raise FileRefused(f"it has {whole.length} bytes, too many for a manifest")
            return _parse_manifest(whole.read(0, whole.length))
    except FileNotFoundError:
        raise MemberFileError(
            MANIFEST, "it is missing: the files of this checkpoint are unknown"
        ) from None
    except FileRefused as refused:
        raise MemberFileError(MANIFEST, str(refused)) from None


def _parse_manifest(raw: bytes) -> dict[str, Any]:
    try:
        body = checkpoint_names.decode_manifest(raw)
    except ValueError as error:
        raise FileRefused(str(error)) from None
    if body.get("format") != FORMAT:
        raise FileRefused(
            f"it is of format {str(body.get('format'))[:20]}, and this version of rgt reads format "
            f"{FORMAT}"
        )
    if type(body.get("files")) is not dict or not body["files"]:
        raise FileRefused("it lists no files")
    return body


def examine_trainer_checkpoint(folder: Path) -> tuple[str, ...]:
    """Compare every byte of a checkpoint with its checksum, and check its files.

    Return their names.

    Raises:
        MemberFileError: a file is missing, short, long, altered, or of the wrong content.
        OSError: one cannot be read.
    """
    files = read_trainer_manifest(folder)["files"]
    for name, facts in sorted(files.items()):
        if not name or "/" in name or "\0" in name or name in (".", "..", MANIFEST):
            raise MemberFileError(
                MANIFEST, f"it lists {name[:80]!r}, which is not a file next to it"
            )
        try:
            with OpenFileSection(folder / name) as whole:
                _check_manifest_file(whole, facts)
                if name.endswith(".safetensors"):
                    safetensors_files.examine_safetensors(whole)
                elif name.endswith(".json"):
                    _check_json(whole)
        except FileNotFoundError:
            raise MemberFileError(name, "it is missing") from None
        except FileRefused as refused:
            raise MemberFileError(name, str(refused)) from None
    if torch_files.METADATA in files:
        torch_files.examine_checkpoint(folder)
    return (MANIFEST, *files)


def _check_manifest_file(whole: FileSection, facts: Any) -> None:
    size, chunk, sums = (
        facts.get(key) if type(facts) is dict else None for key in ("size", "chunk", "crc32")
    )
    if type(size) is not int or type(chunk) is not int or chunk < 1 or type(sums) is not list:
        raise FileRefused("the manifest has no record of its content")
    if whole.length != size:
        raise FileRefused(f"{whole.length} bytes, {size} were written")
    # Rounded up: the last chunk may be short.
    if len(sums) != -(-size // chunk) or not all(
        type(each) is str and _HEX.fullmatch(each) for each in sums
    ):
        raise FileRefused("the manifest lacks its checksums")
    for number, wanted in enumerate(sums):
        begin = number * chunk
        end = min(begin + chunk, size)
        found = f"{whole.subsection(begin, end - begin).compute_crc32():08x}"
        if found != wanted:
            raise FileRefused(f"crc32 {found} of bytes {begin} to {end}, {wanted} was written")
    digest = facts.get("sha256")
    if digest is not None:
        whole_digest = hashlib.sha256()
        for piece in whole.iterate_pieces():
            whole_digest.update(piece)
        if whole_digest.hexdigest() != digest:
            raise FileRefused("its SHA-256 is not the one that was written")


def _check_json(whole: FileSection) -> None:
    if whole.length > MOST_BYTES * 4:
        return  # the checksum matched, and its content is not needed here
    try:
        json.loads(whole.read(0, whole.length))
    except (ValueError, RecursionError) as error:
        raise FileRefused(f"it is not JSON: {str(error)[:120]}") from None


# Lists every file below a directory, without following links out of it, with its first bytes.


class DirectoryListing(NamedTuple):
    """The entries below a directory; names are relative to it."""

    files: dict[str, int]
    """Regular files, and their sizes."""
    problems: list[tuple[str, str]]
    """Names that are not files, or cannot be listed, with the reason."""


def list_directory(root: Path, left_out: frozenset[str]) -> DirectoryListing:
    """List a directory recursively.

    Args:
        root: The directory.
        left_out: Names directly in it that are ignored.

    Raises:
        OSError: it cannot be listed.
    """
    found = DirectoryListing({}, [])
    real = Path(os.path.realpath(root, strict=True))
    waiting = [""]
    while waiting:
        folder = waiting.pop()
        try:
            with os.scandir(root / folder) as entries:
                names = sorted(entry.name for entry in entries)
        except OSError as error:
            if not folder:
                raise
            found.problems.append((folder, f"it cannot be listed: {error.strerror or error}"))
            continue
        for name in names:
            if (not folder and name in left_out) or SMALL_PART.fullmatch(name):
                continue  # a leftover of a killed pull is not a copy
            path = f"{folder}/{name}" if folder else name
            try:
                mode = (status := os.lstat(f"{root}/{path}")).st_mode
            except OSError as error:
                found.problems.append((path, f"it cannot be read: {error.strerror or error}"))
                continue
            if stat.S_ISDIR(mode):
                waiting.append(path)
            elif stat.S_ISREG(mode):
                found.files[path] = status.st_size
            elif stat.S_ISLNK(mode):
                why = _find_link_problem(root / path, real)
                if why is not None:
                    found.problems.append((path, why))
            else:
                kind = _KINDS.get(stat.S_IFMT(mode), "no regular file")
                found.problems.append((path, f"it is {kind}"))
    return found


def _find_link_problem(path: Path, real: Path) -> str | None:
    """Return what is wrong with a link; None if its target is inside `real`."""
    try:
        target = path.resolve(strict=True)
    except (OSError, RuntimeError):
        return "it is a link that leads nowhere"
    if not target.is_relative_to(real):
        return "it is a link to a target outside the directory"
    return None


def read_heads(folder: Path, files: Iterable[tuple[str, int]]) -> Iterator[tuple[str, str]]:
    """Yield the kind of each file's first bytes for `rgt_tui.transfer.directory_contents.plan_examination`.

    Args:
        folder: The directory of the files.
        files: Relative names, and sizes.
    """
    for name, size in files:
        last = name.rpartition("/")[2].lower()
        head = ""
        if last == MANIFEST:
            head = ""
            if is_manifest(_read_bytes(folder / name, _MOST_HEAD)):
                head = "ours"
        elif last.endswith((".bin", ".pkl", ".pickle", ".tar")):
            head = ""
            if _is_zip(folder / name, size):
                head = "zip"
        yield name, head


def _is_zip(path: Path, size: int) -> bool:
    """Return whether a file is a zip file, even if its beginning or end is damaged."""
    if _read_bytes(path, 4) == MAGIC:
        return True
    end_bytes = 22
    return _read_bytes(path, end_bytes, size - end_bytes).startswith(END_MAGIC)


def _read_bytes(path: Path, most: int, at: int = 0) -> bytes:
    try:
        with open_regular(path, follow=False) as file:
            return os.pread(file.fileno(), most, max(0, at))
    except OSError:
        return b""  # the read error is reported when it is hashed
