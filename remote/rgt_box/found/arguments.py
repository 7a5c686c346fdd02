"""What a training's arguments say of where it writes, and which of them only say how it goes on. Pure."""

from __future__ import annotations

import os
import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Iterator

_DIR = re.compile(
    r"(?:.*[-_.])?(?:out(?:put)?s?|log(?:ging|s)?|save|work|exp(?:eriment)?|ckpts?|checkpoints?|runs?|results?|tensorboard"
    r"|tb|default[-_]root|metrics?)[-_]?(?:dir(?:ectory)?|path|folder|root)|out|output|outdir|o|hydra\.run\.dir",
    re.I,
)
_CONTINUED = re.compile(
    r"-{0,2}(?:auto[-_]?)?(?:resume|continue|restore|load|ckpt|checkpoint|init[-_]from|overwrite|local[-_]rank"
    r"|(?:start|begin|initial|first|last|from)[-_]?(?:epoch|step|iter(?:ation)?))(?:[-_](?!dir)\w+)*",
    re.I,
)
_NAME = re.compile(r"-{0,2}(?:run|exp(?:eriment)?|wandb|job)?[-_]?(?:name|tag|id)", re.I)
_CONFIG = re.compile(r"-{0,2}(?:config|cfg)(?:[-_](?:file|path|name))?", re.I)
_FILE = re.compile(r"[\w./\-]+\.(?:ya?ml|toml|json|py|gin|cfg)$")


def pairs(args: list[str]) -> Iterator[tuple[str, str]]:
    """Yield (option, value): ``--a=b``, ``--a b`` and ``a=b``; a switch has the value ""."""
    at = 0
    while at < len(args):
        name, sign, value = args[at].partition("=")
        at += 1
        if not sign and name.startswith("-") and at < len(args) and not args[at].startswith("-"):
            value = args[at]
            at += 1
        yield name, value


def written_dirs(args: list[str], cwd: str) -> list[str]:
    """Return the directories that the arguments say are written to; none that holds the working directory."""
    found = []
    for name, value in pairs(args):
        if value and _DIR.fullmatch(name.lstrip("-")) and "\0" not in value:
            path = os.path.normpath(os.path.join(cwd, os.path.expanduser(value)))
            if os.path.isabs(path) and not (cwd + "/").startswith(path.rstrip("/") + "/"):
                found.append(path)
    return list(dict.fromkeys(found))[:8]


def lasting(args: list[str]) -> list[str]:
    """Return the arguments that tell one training from another: not those that only say how it goes on."""
    return ["%s=%s" % pair for pair in pairs(args) if not _CONTINUED.fullmatch(pair[0])]


def hint(args: list[str]) -> str:
    """Return what a person would call a training by its arguments: name, output or configuration; "" for none."""
    found = list(pairs(args))
    for name, value in found:
        if value and name.startswith("-") and _NAME.fullmatch(name):
            return value
    for name, value in found:
        if value and _DIR.fullmatch(name.lstrip("-")):
            return os.path.basename(os.path.normpath(value))
    for name, value in found:
        text = value if _CONFIG.fullmatch(name) else ("" if value else name)
        if text and (_CONFIG.fullmatch(name) or _FILE.match(text)):
            return os.path.splitext(os.path.basename(text))[0]
    return ""
