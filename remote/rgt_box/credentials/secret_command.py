"""The ``secret`` verb: store, list or remove secrets for the runs of this box, and find exposed ones."""

from __future__ import annotations

import os
import re
import stat
import sys

from rgt_box import background, files, jsonline, options
from rgt_box.credentials import secret_store
from rgt_box.masking import masked

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterator


HELP = """
usage: secret put --name NAME [--job DIR | --all-cells] [--to DIR] [--durable DIR]... < VALUE
       secret list [--durable DIR]...
       secret remove --name NAME [--job DIR | --all-cells]
       secret find [--job DIR]... [--durable DIR]...

Keep VALUE, byte for byte, in a file with mode 0600 on storage that no other machine has; with --job, as a variable of
the cells of that job, or of all jobs, read when a cell starts. find looks in the usual places for keys that others can
read; it never prints a value.

  --durable DIR   storage that outlives this box, or that others share

Prints one line of JSON. Exit status: 0 done, 1 refused (see "refused" in it), 2 wrong command line, or it cannot be
written.

Example: secret list
"""
SPEC = {"--name": "str", "--job": "list", "--all-cells": "flag", "--to": "str", "--durable": "list"}


def main(argv: list[str]) -> int:
    """Run the verb; returns the exit status."""
    verbs = {"put": put, "list": listed, "remove": remove, "find": find}
    if not argv or argv[0] not in verbs:
        print(HELP.strip(), file=sys.stdout if argv and argv[0] in ("-h", "--help") else sys.stderr)
        return 0 if argv and argv[0] in ("-h", "--help") else 2
    found = options.parse_or_exit(argv[1:], SPEC, HELP)
    if argv[0] in ("put", "remove") and not found["name"]:
        print("secret: --name NAME is missing", file=sys.stderr)
        return 2
    try:
        answer = verbs[argv[0]](found)
    except secret_store.Refused as error:
        answer = {"refused": str(error)}
    except OSError as error:
        print("secret: %s: %s" % (error.filename or "", background.describe(error)), file=sys.stderr)
        return 2
    sys.stdout.buffer.write(b"\n" + jsonline.line(answer))
    return 1 if "refused" in answer else 0


def put(found: dict[str, Any]) -> dict[str, Any]:
    """Keep what comes on standard input."""
    value = sys.stdin.buffer.read(secret_store.MOST + 1)
    job = _job(found)
    if job not in (None, secret_store.ALL_JOBS) and not os.path.isdir(str(job)):
        raise secret_store.Refused("%s is not a directory" % job)
    return {"put": secret_store.put(found["name"], value, found["to"], job, found["durable"])}


def listed(found: dict[str, Any]) -> dict[str, Any]:
    """Return what is kept, and what is wrong with it."""
    rows = []
    for row in secret_store.index():
        why = secret_store.why_unfit(row["path"]) or secret_store.why_not(row["path"], found["durable"])
        rows.append(dict(row, problem=why or None))
    return {"secrets": rows}


def remove(found: dict[str, Any]) -> dict[str, Any]:
    """Remove what is kept by a name."""
    gone = secret_store.remove(found["name"], _job(found))
    if not gone:
        raise secret_store.Refused("no secret of that name is kept here")
    return {"removed": gone}


def find(found: dict[str, Any]) -> dict[str, Any]:
    """Return keys found in the usual places."""
    return {"found": look(found["job"], found["durable"])}


def _job(found: dict[str, Any]) -> str | None:
    if found["all-cells"]:
        return secret_store.ALL_JOBS
    return os.path.abspath(os.path.expanduser(found["job"][-1])) if found["job"] else None


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
        return "a key, judging by the file name"
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
