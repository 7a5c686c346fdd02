"""The index of weights that are spread over several files (``*.index.json`` of Hugging Face): all shards, all names."""

from __future__ import annotations

from pathlib import Path

from rgt_tui.profiles.readings import how_many
from rgt_tui.transfer import safetensors_files
from rgt_tui.transfer.file_stretch import OpenStretch, Refused, Trouble
from rgt_tui.transfer.logged_files import examine_json

SUFFIX = ".index.json"


def shards(path: Path) -> dict[str, list[str]]:
    """Return the files that an index names, and the tensors that it says are in each.

    Raises:
        Refused: it is damaged, or names what is no file beside it.
        OSError: it cannot be read.
    """
    with OpenStretch(path) as whole:
        document = examine_json(whole)
    weights = document.get("weight_map") if isinstance(document, dict) else None
    if not isinstance(weights, dict) or not weights:
        raise Refused("it has no weight_map")
    found: dict[str, list[str]] = {}
    for tensor, file in weights.items():
        if not isinstance(file, str) or not file or "/" in file or "\0" in file or file in (".", ".."):
            raise Refused(
                f"it says that {tensor[:80]!r} lies in {str(file)[:80]!r}, which is not a file beside it"
            )
        found.setdefault(file, []).append(tensor)
    return found


def examine(path: Path) -> None:
    """Look whether every shard is there, and holds the tensors that the index says (of safetensors alone).

    Raises:
        Trouble: one is missing, or holds other tensors.
        OSError: one cannot be read.
    """
    try:
        found = shards(path)
    except Refused as refused:
        raise Trouble(path.name, str(refused)) from None
    for file, tensors in sorted(found.items()):
        try:
            with OpenStretch(path.parent / file) as whole:
                there = safetensors_files.examine(whole) if file.endswith(".safetensors") else None
        except FileNotFoundError:
            raise Trouble(
                file, f"it is missing: by {path.name} it has {how_many(len(tensors), 'tensor')}"
            ) from None
        except Refused as refused:
            raise Trouble(file, str(refused)) from None
        if there is not None and there != set(tensors):
            other = sorted(there.symmetric_difference(tensors))[0]
            raise Trouble(file, f"its tensors are not those that {path.name} names: {other[:80]!r}")
