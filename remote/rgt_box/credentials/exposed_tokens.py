"""Keys that lie where others may read them: a bounded look at the usual places, which names no value.

What is found nowhere here may still stand in a script, a notebook or a log: this look proves nothing of those.
"""

from __future__ import annotations

import os
import re
import stat

from rgt_box import files
from rgt_box.credentials import secret_store
from rgt_box.masking import masked

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterator

USUAL = (
    "~/.netrc", "~/.huggingface/token", "~/.cache/huggingface/token", "~/.config/wandb/settings",
    "~/.kaggle/kaggle.json", "~/.wandb_key", "~/.git-credentials", "~/.aws/credentials", "~/.env",
    "~/.config/rclone/rclone.conf",
)  # fmt: skip
"""Where tools keep their keys."""
WHOLE = frozenset(("token", ".wandb_key", ".git-credentials", "kaggle.json", "credentials"))
OF_JOB = ("job.json", "queue.txt", ".env", "env.sh", "secrets.env")
MOST_BYTES, MOST_FOUND = 256 << 10, 50
_NETRC = re.compile(r"\bpassword\s+\S+")
OTHERS_READ = stat.S_IRGRP | stat.S_IROTH


def look(jobs: list[str], durable: list[str]) -> list[dict[str, Any]]:
    """Return ``path``, ``why`` (what it looks like) and ``open`` (why others may read it; None = this user alone).

    Args:
        jobs: Job directories.
        durable: Directories that outlive the box or that others share: only what lies directly in them is looked at.
    """
    found: list[dict[str, Any]] = []
    for path in dict.fromkeys(_paths(jobs, durable)):
        real = os.path.expanduser(path)
        data = files.read(real, MOST_BYTES)
        why = "" if data is None else why_token(os.path.basename(real), data.decode("utf-8", "replace"))
        if why and len(found) < MOST_FOUND:
            found.append({"path": real, "why": why, "open": _open(real, durable)})
    return found


def _paths(jobs: list[str], durable: list[str]) -> Iterator[str]:
    home = os.environ.get("HF_HOME")
    yield from USUAL
    if home:
        yield os.path.join(home, "token")
    for job in jobs:
        folder = os.path.abspath(os.path.expanduser(job))
        for name in OF_JOB:
            yield os.path.join(folder, name)
    for folder in durable:
        for name in (
            ".env",
            ".netrc",
            "token",
            ".cache/huggingface/token",
            ".cache/hf/token",
            "huggingface/token",
        ):
            yield os.path.join(os.path.expanduser(folder), name)


def why_token(name: str, text: str) -> str:
    """Return what a text holds that looks like a key, without the key; "" where nothing does."""
    if name in WHOLE and text.strip():
        return "a key by the file's name"
    if name == ".netrc":
        return "a password" if _NETRC.search(text) else ""
    for number, line in enumerate(text.splitlines()[:5000], 1):
        if masked([line]) != [line]:
            return "a key or password in line %d" % number
    return ""


def _open(path: str, durable: list[str]) -> str | None:
    why = secret_store.why_not(path, durable)
    if why:
        return why
    try:
        if os.stat(path).st_mode & OTHERS_READ:
            return "others on this machine may read it: chmod 600 %s" % path
    except OSError:
        return None
    return None
