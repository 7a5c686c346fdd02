"""The agent and the trainer as one file each: reproducible zipapps, built on the client."""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import io
import zipfile
from pathlib import Path

from rgt_tui.model import FrozenStruct

PACKAGE = "rgt_box"
SHARED = "rgt_wire"
"""Package that the agent shares with the client and the trainer."""
BINDING = "pynvml"
TRAINER = "rgt_train"
EPOCH = (1980, 1, 1, 0, 0, 0)
"""The timestamp of every entry, the earliest that zip supports."""

MAIN = f'''"""Entry point of the packed agent."""

from {PACKAGE} import bytecode

bytecode.install_importer(__loader__)
from {PACKAGE}.__main__ import main

try:
    status = main()
finally:
    bytecode.save_compiled()
raise SystemExit(status)
'''


TRAINER_MAIN = f'''"""Entry point of the packed trainer."""

if __name__ == "__main__":  # a process that multiprocessing spawns imports this file again
    from {TRAINER}.__main__ import run

    run()
'''


class AgentBundle(FrozenStruct):
    """The agent or the trainer, ready to be sent to a box."""

    data: bytes
    digest: str
    """SHA-256 of `data`, in hex."""
    filename: str
    """``rgt-box-<first 16 digits>.pyz`` (or ``rgt-train-…``): the content of a file with this name
    never changes.
    """


def remote_root() -> Path:
    """Return the directory of the agent's package, in a source tree or an installed wheel.

    Raises:
        FileNotFoundError: the installation lacks it.
    """
    package = Path(__file__).resolve().parent.parent
    for candidate in (package / "_data" / "remote", package.parent / "remote"):
        if (candidate / PACKAGE / "__main__.py").is_file():
            return candidate
    raise FileNotFoundError(f"the agent's source ({PACKAGE}) is missing from this installation")


def trainer_root() -> Path:
    """Return the directory of the trainer's package.

    Once installed, it is importable like any other.

    Raises:
        FileNotFoundError: the installation lacks it.
    """
    around = Path(__file__).resolve().parent.parent.parent
    for candidate in (around / "remote", around):
        if (candidate / TRAINER / "__main__.py").is_file():
            return candidate
    raise FileNotFoundError(f"the trainer's source ({TRAINER}) is missing from this installation")


def agent_files(root: Path) -> dict[str, bytes]:
    """Return name in the archive → content of everything that is packed."""
    files = _read_packages(root, MAIN, PACKAGE)
    binding = importlib.util.find_spec(BINDING)
    if binding is not None and binding.origin and binding.origin.endswith(".py"):
        files[f"{BINDING}.py"] = Path(binding.origin).read_bytes()
    return files


def pack_zip(files: dict[str, bytes]) -> bytes:
    """Return a zip archive of `files`, independent of their order, of clocks and of permissions."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name in sorted(files):
            # The same bytes on every machine: the digest decides whether a box already has this
            # file.
            entry = zipfile.ZipInfo(name, EPOCH)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = 0o644 << 16
            # 3 = Unix: zipfile writes 0 on Windows, which would change the bytes.
            entry.create_system = 3
            archive.writestr(entry, files[name])
    return buffer.getvalue()


@functools.cache
def build_agent() -> AgentBundle:
    """Build the zipapp, once per process because that takes tens of milliseconds.

    Raises:
        FileNotFoundError: the installation lacks the agent's source.
    """
    return _build_bundle("rgt-box", agent_files(remote_root()))


def trainer_files(root: Path) -> dict[str, bytes]:
    """Return name in the archive → content of everything in the trainer's zipapp."""
    return _read_packages(root, TRAINER_MAIN, TRAINER)


def _read_packages(root: Path, entry_point: str, own: str) -> dict[str, bytes]:
    files = {"__main__.py": entry_point.encode()}
    for package in (own, SHARED):
        for path in (root / package).rglob("*.py"):
            files[path.relative_to(root).as_posix()] = path.read_bytes()
    return files


@functools.cache
def build_trainer() -> AgentBundle:
    """Build the trainer's zipapp, once per process; to run, it only needs a Python with torch.

    Raises:
        FileNotFoundError: the installation lacks the trainer's source.
    """
    return _build_bundle("rgt-train", trainer_files(trainer_root()))


def _build_bundle(name: str, files: dict[str, bytes]) -> AgentBundle:
    data = pack_zip(files)
    digest = hashlib.sha256(data).hexdigest()
    return AgentBundle(data, digest, f"{name}-{digest[:16]}.pyz")
