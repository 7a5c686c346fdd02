"""The ``secret`` verb: keep a secret for the runs of this box, list or remove those that are kept, find open ones."""

from __future__ import annotations

import os
import sys

from rgt_box import background, jsonline, options
from rgt_box.credentials import exposed_tokens, secret_store

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

HELP = """
usage: secret put --name NAME [--job DIR] [--to DIR] [--durable DIR]... < VALUE
       secret list [--durable DIR]...
       secret remove --name NAME [--job DIR]
       secret find [--job DIR]... [--durable DIR]...

Keep VALUE, to the byte, in a file of mode 0600 on storage of this machine alone; with --job as a variable of the cells
of that job, read when a cell starts. find looks at the usual places for keys that others may read; it prints no value.

  --durable DIR   storage that outlives this box, or that others share

Prints one line of JSON. Exit status: 0 done, 1 refused (see "refused" in it), 2 wrong command line, or it cannot be
written.

Example: secret list
"""
SPEC = {"--name": "str", "--job": "list", "--to": "str", "--durable": "list"}


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
    if job is not None and not os.path.isdir(job):
        raise secret_store.Refused("%s is no directory" % job)
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
    """Return keys that lie in the usual places."""
    return {"found": exposed_tokens.look(found["job"], found["durable"])}


def _job(found: dict[str, Any]) -> str | None:
    return os.path.abspath(os.path.expanduser(found["job"][-1])) if found["job"] else None
