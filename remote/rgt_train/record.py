"""``run.json``: what was launched, of which source, on what, so that a number can be traced back to its cause."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import subprocess
import sys
import time
from importlib import metadata
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence

from rgt_train.durable import StrPath, replace_file
from rgt_train.sampler import EpochSampler

NAME = "run.json"
_GIT_SECONDS = 10.0
_LIBRARIES = (
    "torch",
    "numpy",
    "transformers",
    "lightning",
    "accelerate",
    "datasets",
    "torchvision",
    "torchdata",
)


def facts(
    *,
    seed: Optional[int],
    batch: Optional[int],
    accumulate: int,
    world: int,
    attempt: int,
    step: int,
    settings: Mapping[str, Any],
    overrides: Optional[Mapping[str, Any]] = None,
) -> Dict[str, Any]:
    """Return the record of one launch.

    Args:
        seed: Seed of the data order; None where it is not known.
        batch: Samples of a batch over all ranks; None where it is not known.
        accumulate: Batches of an optimizer step.
        world: Number of ranks.
        attempt: Number of this launch.
        step: The step it goes on from.
        settings: The run's settings.
        overrides: Those that the person gave, as far as known.
    """
    return {
        "time": time.time(),
        "attempt": attempt,
        "step": step,
        "argv": sys.argv,
        "host": platform.node(),
        "seed": seed,
        "world_size": world,
        "batch": batch,
        "accumulate": accumulate,
        "effective_batch": None if batch is None else batch * accumulate,
        "settings": dict(settings),
        "overrides": dict(overrides or {}),
        "versions": versions(),
        "git": git_state(os.getcwd()),
    }


def write(out: StrPath, record: Mapping[str, Any]) -> Optional[str]:
    """Replace ``run.json``, keeping the first launch's record; return why it could not be written, or None."""
    path = os.path.join(out, NAME)
    body: Dict[str, Any] = {"first": record, "last": record}
    try:
        with open(path, encoding="utf-8") as file:
            body["first"] = json.load(file)["first"]
    except (OSError, ValueError, KeyError, TypeError):
        pass
    try:
        replace_file(path, (json.dumps(body, indent=1, default=str) + "\n").encode())
    except OSError as error:
        return f"{path} could not be written: {error}"
    return None


def keep(out: StrPath, say: Callable[[str], None], *, sampler: EpochSampler, **known: Any) -> None:
    """Write the record of a launch of ours; a failure is told, and is none of the training.

    Args:
        out: The run directory.
        say: Where a failure is told.
        sampler: Seed and sizes.
        **known: The other arguments of `facts`.
    """
    sizes: Dict[str, Any] = {
        "seed": sampler.seed,
        "batch": sampler.batch_size,
        "accumulate": sampler.accumulate,
    }
    complaint = write(out, facts(**sizes, **known))
    if complaint:
        say(complaint)


def attempts(out: StrPath) -> int:
    """Return the number of the last launch that is recorded in `out`; 0 where there is none."""
    try:
        with open(os.path.join(out, NAME), encoding="utf-8") as file:
            return int(json.load(file)["last"]["attempt"])
    except (OSError, ValueError, KeyError, TypeError):
        return 0


def versions() -> Dict[str, str]:
    """Return the versions of Python and of the libraries that are loaded or stand beside torch."""
    found = {"python": platform.python_version(), "platform": platform.platform()}
    for name in _LIBRARIES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    torch: Any = sys.modules.get("torch")
    if torch is not None:
        found["torch"] = str(torch.__version__)
        if torch.cuda.is_available():
            found["cuda"], found["device"] = str(torch.version.cuda), torch.cuda.get_device_name()
    return found


def git_state(folder: str) -> Optional[Dict[str, Any]]:
    """Return commit, branch and changes of the work tree at `folder`; None where there is none, or no git.

    The remote's address is left out: it may hold a token.
    """
    commit = _git(folder, ["rev-parse", "HEAD"])
    if commit is None:
        return None
    diff = _git(folder, ["diff", "HEAD", "--no-ext-diff", "--binary"])
    untracked = _git(folder, ["ls-files", "--others", "--exclude-standard", "-z"])
    if diff is None or untracked is None:  # too slow, or a damaged index: unknown is not clean
        return {"commit": commit.decode().strip(), "dirty": None}
    names = [name for name in untracked.decode(errors="replace").split("\0") if name]
    return {
        "commit": commit.decode().strip(),
        "branch": (_git(folder, ["rev-parse", "--abbrev-ref", "HEAD"]) or b"").decode().strip(),
        "dirty": bool(diff or names),
        "diff_sha256": hashlib.sha256(diff).hexdigest() if diff else None,
        "untracked": len(names),
    }


def _git(folder: str, words: Sequence[str]) -> Optional[bytes]:
    command: List[str] = ["git", "-C", folder, "--no-optional-locks", *words]
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=_GIT_SECONDS,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout if done.returncode == 0 else None
