"""The process that examines possibly hostile files: little memory, no writing, no foreign code.

One JSON object per line in, ``{"kind", "path"}``; one per line out: ``trouble`` (pairs of file and
reason), ``checked`` (every byte was compared with a checksum in the files), ``torch`` (files that
torch could load), ``not_loadable`` (contents that ``weights_only`` loading rejects) and
``not_checked`` (contents that were not examined).

With ``--load`` it loads files of torch.save with torch, ``weights_only``, mapped if possible, under
limits. Only files that `rgt_tui.transfer.torch_files` found complete, with only names that torch's
own loader accepts, are loaded. torch before 2.6 is not used: its ``weights_only`` loading could be
made to run code (CVE-2025-32434). A question is then ``{"path", "legacy"}`` and an answer
``trouble``, or nothing; the first output line has torch's version, or why there is none.
"""

from __future__ import annotations

import ctypes
import importlib
import json
import resource
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rgt_tui.transfer import (
    array_files,
    directory_contents,
    logged_files,
    safetensors_files,
    torch_files,
)
from rgt_tui.transfer.file_stretch import FileRefused, FileSection, MemberFileError, OpenFileSection

MEMORY = 2 << 30
"""Address space in bytes; the longest pickle that is examined needs less."""
OLDEST = (2, 6)
LOAD_MEMORY = 16 << 30
"""Address space for loading, in addition to the file's: torch's libraries alone reserve several GB.
"""
LOAD_DATA = 3 << 30
"""Data memory for loading, in addition to the file's."""


def _examine_torch(whole: FileSection) -> dict[str, Any]:
    found = torch_files.examine_torch_file(whole)
    return {
        "checked": found.checked,
        "not_loadable": found.not_loadable,
        "legacy": found.legacy,
        "torch": True,
        "zero_ranks": found.zero_ranks,
    }


def _examine_safetensors(whole: FileSection) -> dict[str, Any]:
    safetensors_files.examine_safetensors(whole)
    return {}


def _examine_gguf(whole: FileSection) -> dict[str, Any]:
    unknown = array_files.examine_gguf(whole)
    if unknown:
        return {"not_checked": f"tensors of unknown length: {', '.join(unknown)}"}
    return {}


def _examine_npy(whole: FileSection) -> dict[str, Any]:
    if array_files.examine_npy(whole):
        return {"not_checked": "its array of Python objects"}
    return {}


def _examine_npz(whole: FileSection) -> dict[str, Any]:
    objects = array_files.examine_npz(whole)
    shown = ", ".join(repr(name[:80]) for name in objects[:3]) + (" …" if len(objects) > 3 else "")
    return {"checked": True} | (
        {"not_checked": f"arrays of Python objects: {shown}"} if objects else {}
    )


def _examine_hdf5(whole: FileSection) -> dict[str, Any]:
    array_files.examine_hdf5(whole)
    return {}


def _examine_pickle(whole: FileSection) -> dict[str, Any]:
    return {"not_checked": torch_files.examine_pickle(whole)}


def _examine_events(whole: FileSection) -> dict[str, Any]:
    logged_files.examine_events(whole)
    return {"checked": True}


def _examine_lines(whole: FileSection) -> dict[str, Any]:
    logged_files.examine_lines(whole)
    return {}


def _examine_json(whole: FileSection) -> dict[str, Any]:
    logged_files.examine_json(whole)
    return {}


def _examine_trainer(folder: Path) -> dict[str, Any]:
    return {"checked": True, "covers": directory_contents.examine_trainer_checkpoint(folder)}


def _examine_sharded(folder: Path) -> dict[str, Any]:
    return {"covers": torch_files.examine_checkpoint(folder)}


def _examine_index(path: Path) -> dict[str, Any]:
    safetensors_files.examine_index(path)
    return {}


_FILES: dict[str, Callable[[FileSection], dict[str, Any]]] = {
    "torch": _examine_torch,
    "safetensors": _examine_safetensors,
    "gguf": _examine_gguf,
    "npy": _examine_npy,
    "npz": _examine_npz,
    "hdf5": _examine_hdf5,
    "pickle": _examine_pickle,
    "events": _examine_events,
    "lines": _examine_lines,
    "json": _examine_json,
}
_SEVERAL: dict[str, Callable[[Path], dict[str, Any]]] = {
    "trainer": _examine_trainer,
    "dcp": _examine_sharded,
    "index": _examine_index,
}


def examine_path(kind: str, path: Path) -> dict[str, Any]:
    """Examine a file or a directory; return the result, including any trouble."""
    try:
        # These open their files themselves, each with an error of its own.
        if kind in _SEVERAL:
            return _SEVERAL[kind](path)
        with OpenFileSection(path) as whole:
            if not whole.length:
                raise FileRefused("it is empty")
            return _FILES[kind](whole)
    except MemberFileError as trouble:
        return {"trouble": [[trouble.name, str(trouble)]]}
    except FileRefused as refused:
        return {"trouble": [["", str(refused)]]}
    except OSError as error:
        return {"trouble": [["", f"it cannot be read: {error.strerror or error}"]]}
    except MemoryError:
        return {"trouble": [["", "looking at it needs more memory than it may have"]]}
    except Exception as error:  # no file content may crash this process
        return {"trouble": [["", f"it cannot be read: {type(error).__name__}: {str(error)[:120]}"]]}


def limit_process(memory: int | None) -> None:
    """Restrict this process: memory, writing files, core dumps, and outliving its parent."""
    if sys.platform == "linux":
        # From prctl(2): kills this process when its parent ends, as the answer is no longer needed.
        parent_death_signal = 1
        ctypes.CDLL(None).prctl(parent_death_signal, signal.SIGKILL)
    # A core dump would have the content of the files.
    for what in (resource.RLIMIT_FSIZE, resource.RLIMIT_CORE):
        resource.setrlimit(what, (0, 0))
    if memory is not None:
        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))


def main() -> int:
    """Answer questions until stdin closes."""
    limit_process(MEMORY)
    # It ends when the parent closes the pipe, also on systems without prctl.
    for line in sys.stdin.buffer:
        asked = json.loads(line)
        answer = examine_path(asked["kind"], Path(asked["path"]))
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()
    return 0


def _parse_version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split("+")[0].split(".")[:2] if part.isdigit())


def _load_file(torch: Any, path: str, legacy: bool) -> dict[str, Any]:
    # Per file: a limit for the largest one would let a small hostile one use as much.
    size = Path(path).stat().st_size
    for what, most in (
        (resource.RLIMIT_AS, LOAD_MEMORY + 2 * size),
        (resource.RLIMIT_DATA, LOAD_DATA + 2 * size),
    ):
        resource.setrlimit(what, (most, resource.getrlimit(what)[1]))
    try:
        # The old format cannot be mapped.
        torch.load(path, map_location="cpu", weights_only=True, mmap=not legacy)
    except MemoryError:
        return {"trouble": "torch needs more memory for it than a file of its length may need"}
    except Exception as error:
        lines = [*(line for line in str(error).splitlines() if "error:" in line), str(error)]
        return {
            "trouble": f"torch.load refuses it: {type(error).__name__}: {lines[0].strip()[:160]}"
        }
    return {}


def answer_load_requests() -> int:
    """Load the requested files with torch until stdin closes."""
    limit_process(None)
    try:
        torch = importlib.import_module("torch")
    except Exception as error:
        print(
            json.dumps({"missing": f"torch cannot be imported: {type(error).__name__}"}), flush=True
        )
        return 0
    if _parse_version(torch.__version__) < OLDEST:
        why = (
            f"torch {torch.__version__} is older than 2.6, the first with safe weights_only loading"
        )
        print(json.dumps({"missing": why}), flush=True)
        return 0
    print(json.dumps({"torch": str(torch.__version__)}), flush=True)
    for line in sys.stdin.buffer:
        asked = json.loads(line)
        print(json.dumps(_load_file(torch, asked["path"], asked["legacy"])), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(answer_load_requests() if sys.argv[1:] == ["--load"] else main())
