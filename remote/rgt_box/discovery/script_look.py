"""Detects how a training script resumes: a bounded scan of its text and installed packages.

Each run is scanned once. Nothing is imported or run. A feature missing from the text may still come
from an imported module, so only the client's advice uses the result, never an alarm.
"""

from __future__ import annotations

import os
import re

from rgt_box import files, jsonline
from rgt_box.discovery import training_commands

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Mapping

    from rgt_wire import JsonObject

    from rgt_box.discovery.training_commands import ParsedCommand

LARGEST = 512 << 10
"""Maximum bytes of a script; larger scripts are skipped."""

FRAMEWORKS = {
    "transformers": "transformers", "trl": "trl", "accelerate": "accelerate",
    "lightning": "lightning",
    "pytorch_lightning": "pytorch-lightning", "torchdata": "torchdata", "deepspeed": "deepspeed",
}  # fmt: skip
"""Module → distribution name."""
_IMPORT = re.compile(r"^[ \t]*(?:from|import)[ \t]+({})\b".format("|".join(FRAMEWORKS)), re.M)

MARKS = {
    "resume": r"resume_from_checkpoint(?!\s*=\s*(?:None|False)\b)|get_last_checkpoint"
    r"|\bckpt_path\s*=(?!\s*None\b)"
    r"|\.load_state\(|\.load_checkpoint\(|--resume\b|--ckpt[-_]path\b",
    "newest": r"resume_from_checkpoint\s*=\s*True\b|\bget_last_checkpoint\b",
    "train()": r"\.train\(\s*\)",
    "fit": r"\.fit\(",
    "ModelCheckpoint": r"\bModelCheckpoint\(",
    "save_last": r"\bsave_last\s*=\s*(?:True|[\"'])",
    "save_total_limit=1": r"\bsave_total_limit(?:\s*=\s*|\s+)1\b",
    "total_limit=1": r"\btotal_limit\s*=\s*1\b",
    "save_top_k=1": r"\bsave_top_k\s*=\s*1\b",
    "AsyncCheckpointIO": r"\bAsyncCheckpointIO\b",
    "BatchNorm": r"\bBatchNorm[123]d\b|\bresnet(?:18|34|50|101|152)\b",
    "SyncBatchNorm": r"\bSyncBatchNorm\b|\bsync_batchnorm\s*=\s*True\b",
    "StatefulDataLoader": r"\bStatefulDataLoader\b",
    "save_state": r"\.save_state\(",
    "load_state": r"\.load_state\(",
    "register_for_checkpointing": r"\.register_for_checkpointing\(",
    "skip_first_batches": (
        r"\bskip_first_batches\(|\buse_stateful_dataloader\s*=\s*True\b"
        r"|\bStatefulDataLoader\b"
    ),
    "automatic_checkpoint_naming": r"\bautomatic_checkpoint_naming\s*=\s*True\b",
    "iteration": r"\.iteration\s*=(?!=)|\bProjectConfiguration\([^)]*\biteration\s*=",
    "load_best_model_at_end": r"\bload_best_model_at_end(?:\s*=\s*|\s+)True\b",
    "DeepSpeed": r"\bdeepspeed\.initialize\(|--deepspeed\b",
}
"""Feature of a script or command line → pattern that detects it."""
_MARKS = {name: re.compile(pattern) for name, pattern in MARKS.items()}


_CALLS = re.compile(
    r"^[^#\n]*?(?:\.(?P<torch>backward)\(|\b(?P<other>GradientTape|value_and_grad"
    r"|trainer\.train|trainer\.fit|model\.fit|(?:xgb|xgboost|lgb|lightgbm)\.train)\()",
    re.M | re.I,
)
"""Calls that only a training makes."""
_TEXT = re.compile(
    r'"""[\s\S]*?(?:"""|\Z)|"(?:[^"\\\n]+|\\.)*"?'
    r"|\'\'\'[\s\S]*?(?:\'\'\'|\Z)|\'(?:[^'\\\n]+|\\.)*'?"
    r"|#[^\n]*"
)
"""Strings and comments. An open end matches as well, so each character is looked at once."""
_EVALUATES = re.compile(
    r"--?(?:do[-_])?(?:eval|evaluate|test|predict|infer|inference|generate)(?:[-_]only)?"
)
"""Options of a run that does not train, although its script can."""
_SERVES = re.compile(
    r"(?<!fabric)\.launch\(|\b(?:uvicorn|serve)\.run\(|\bapp\.run\((?!\w*main\b)|\bserve_forever\("
)
"""Calls of a program with a web page, which may be able to train, and mostly waits. Not Fabric's
``launch()`` and absl's ``app.run(main)``, with which trainings begin."""


def training_call(command: ParsedCommand, cwd: str | None, inside: str) -> str:
    """Return the call in a script that shows training, such as ``backward()``, or "".

    Args:
        command: A Python command: a script, or a module below the working directory.
        cwd: Its working directory.
        inside: Prefix that leads to the process's own root file system.
    """
    if any(map(_EVALUATES.fullmatch, command.args)):
        return ""
    script = command.script
    if not script.endswith((".py", ".ipynb")):
        script = script.replace(".", "/") + ".py"
    text = _TEXT.sub('""', script_text(script, cwd, inside) or "")
    match = _CALLS.search(text)
    if match is None or _SERVES.search(text):
        return ""
    return "%s()" % (match.group("torch") or match.group("other"))


def inspect_script(
    pid: int, words: list[str], cwd: str | None, env: Mapping[str, str], inside: str = ""
) -> JsonObject:
    """Return ``uses`` (framework and version), ``marks`` and ``cache``; unknown keys are missing.

    Args:
        pid: PID of the root process.
        words: Its command line.
        cwd: Its working directory.
        env: The environment that it was started with.
        inside: Prefix that leads to the process's own root file system.
    """
    command = training_commands.parse_command(words)
    text = script_text(command.script, cwd, inside)
    said = f"{' '.join(words)}\n{text or ''}"
    modules = sorted(
        set(_IMPORT.findall(text or ""))
        | ({"deepspeed"} if _MARKS["DeepSpeed"].search(said) else set())
    )
    found: JsonObject = {}
    if text is not None:
        found["marks"] = [name for name, pattern in _MARKS.items() if pattern.search(said)]
    if modules:
        versions = installed(site_packages(pid, words, env, inside))
        names = [FRAMEWORKS[module] for module in modules]
        found["uses"] = [(f"{name} {versions.get(name, '')}").rstrip() for name in names]
    if {"transformers", "trl", "accelerate"} & set(modules):
        found["cache"] = hub_cache(env)
    return found


def script_text(script: str, cwd: str | None, inside: str) -> str | None:
    """Return the text of a script, or the code of a notebook.

    None if it is missing, not a regular file, or too large.
    """
    if not script.endswith((".py", ".ipynb")) or not (os.path.isabs(script) or cwd):
        return None
    limit = LARGEST
    if script.endswith(".ipynb"):
        limit = 16 * LARGEST  # pictures of earlier runs are in it
    try:
        text = files.read_file(inside + os.path.normpath(os.path.join(cwd or "/", script)), limit)
    except ValueError:  # a NUL in its name
        return None
    if text is None:
        return None
    if script.endswith(".ipynb"):
        return notebook_code(text)
    return text.decode("utf-8", "replace")


def notebook_code(text: bytes) -> str:
    """Return the code of a notebook's cells, without lines for IPython and the shell."""
    cells = (jsonline.loads_dict(text) or {}).get("cells")
    lines: list[str] = []
    for cell in cells if isinstance(cells, list) else ():
        if isinstance(cell, dict) and cell.get("cell_type") == "code":
            source = cell.get("source")
            if isinstance(source, list):
                source = "".join(map(str, source))
            lines += str(source or "").splitlines()
    return "\n".join(line for line in lines if not line.lstrip().startswith(("%", "!")))


def site_packages(
    pid: int, words: list[str], env: Mapping[str, str], inside: str = ""
) -> list[str]:
    """Return up to four likely package directories of a process's Python."""
    try:
        program = os.readlink("/proc/%d/exe" % pid)
    except OSError:
        program = ""
    said = ""
    if words and os.path.isabs(words[0]):
        said = words[0]
    prefixes = [os.path.dirname(os.path.dirname(path)) for path in (said, program) if path]
    prefixes[1:1] = [env[name] for name in ("VIRTUAL_ENV", "CONDA_PREFIX") if env.get(name)]
    found = []
    for prefix in dict.fromkeys(prefixes):
        try:
            names = sorted(os.listdir(os.path.join(inside + prefix, "lib")))
        except (OSError, ValueError):
            continue
        for name in names:
            for last in ("site-packages", "dist-packages"):
                path = os.path.join(inside + prefix, "lib", name, last)
                if re.fullmatch(r"python3(?:\.\d+)?t?", name) and os.path.isdir(path):
                    found.append(path)
    return found[:4]


_DIST = re.compile(r"([A-Za-z0-9_.]+)-([0-9][^-/]{0,40})\.dist-info")


def installed(folders: list[str]) -> dict[str, str]:
    """Return framework → version found in package directories; the first directory wins."""
    wanted = set(FRAMEWORKS.values())
    found: dict[str, str] = {}
    # Maximum entries of a ``site-packages`` to list.
    installed_limit = 20_000
    for folder in folders:
        try:
            with os.scandir(folder) as entries:
                for _, entry in zip(range(installed_limit), entries):
                    match = _DIST.fullmatch(entry.name)
                    name = ""
                    if match:
                        name = match.group(1).replace("_", "-").lower()
                    if match and name in wanted:
                        found.setdefault(name, match.group(2))
        except OSError:
            continue
    return found


def hub_cache(env: Mapping[str, str]) -> str | None:
    """Return Hugging Face's model cache directory, following its documented variables.

    https://huggingface.co/docs/huggingface_hub/package_reference/environment_variables
    """
    if env.get("HF_HUB_CACHE"):
        return env["HF_HUB_CACHE"]
    if env.get("HF_HOME"):
        return os.path.join(env["HF_HOME"], "hub")
    above = env.get("XDG_CACHE_HOME") or (
        os.path.join(env["HOME"], ".cache") if env.get("HOME") else None
    )
    if above:
        return os.path.join(above, "huggingface", "hub")
    return None


def find_world_size(pids: list[int], started: float) -> int | None:
    """Return the number of ranks, from the first process whose environment defines it; or None."""
    from rgt_box.sampling import rank_waits  # imported here: only needed once a run was found

    for pid in pids[:16]:
        member = rank_waits.read_rank(pid, started, "")
        if member is not None:
            return member.world
    return None
