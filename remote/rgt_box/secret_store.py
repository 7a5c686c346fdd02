"""A user's secrets and the ``secret`` verb: files of mode 0600 on storage of this machine only.

Never on a network or shared file system, whose readers are unknown, nor on storage that outlives
the box.
"""

from __future__ import annotations

import errno
import os
import re
import stat
import sys
import zlib

from rgt_box import background, files, jsonline, options, ownership, place
from rgt_box.masking import mask_words
from rgt_box.sampling import disks

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterator

    from rgt_wire import JsonObject


INDEX, LOCK = "secrets.json", "secrets.lock"
"""In the state directory: the list of secrets and their paths."""
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")
MOST_SECRET_BYTES = 64 << 10
ALL_JOBS = "*"
"""Job name of a secret that the cells of every job of this box get."""
MASK = "***"
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


class SecretNotStored(Exception):
    """Nothing was written; the message says why, and where it could be stored instead."""


def usual_places() -> list[str]:
    """Return where secrets may be stored, in order of preference."""
    config = os.environ.get("XDG_CONFIG_HOME") or os.path.join(os.path.expanduser("~"), ".config")
    return [
        os.path.join(config, "rgt", "secrets"),
        "/dev/shm/rgt-secrets-%d" % os.geteuid(),
        "/var/lib/rgt-secrets-%d" % os.geteuid(),
    ]


def why_unsuitable(folder: str, durable: list[str]) -> str:
    """Return why no secret may be stored in a directory; "" if one may.

    Args:
        folder: The directory; it need not exist yet.
        durable: Directories of the platform that outlive the box, or that other machines share.
    """
    table = disks.mount_table()
    path = disks.resolve_links(os.path.abspath(os.path.expanduser(folder)), table)
    mount, kind = disks.find_mount(path, table)
    # A list of known local file systems: an unknown one may be a network's.
    if kind not in disks.LOCAL:
        return (
            f"{folder} is on {kind or 'an unknown file system'} ({mount}), which other "
            "machines may read"
        )
    for above in durable:
        real = disks.resolve_links(os.path.abspath(os.path.expanduser(above)), table)
        if files.is_below(path, real):
            return f"{folder} is on {above}, which outlives this box"
    return ""


def propose_folder(durable: list[str], but: str = "") -> str:
    """Return another suitable directory; "" if none is known."""
    return next(
        (path for path in usual_places() if path != but and not why_unsuitable(path, durable)), ""
    )


def list_secrets() -> list[JsonObject]:
    """Return the stored secrets: ``name``, ``path`` and ``job`` (None: only a file; `ALL_JOBS`)."""
    index = files.read_json(os.path.join(place.state_dir(), INDEX), 1 << 20) or {}
    told = index.get("secrets")
    if isinstance(told, list):
        return [row for row in told if _is_row(row)]
    return []


def _is_row(row: Any) -> bool:
    return (
        isinstance(row, dict)
        and isinstance(row.get("name"), str)
        and isinstance(row.get("path"), str)
        and (row.get("job") is None or isinstance(row["job"], str))
    )


def secret_inodes() -> frozenset[tuple[int, int]]:
    """Return device and inode of all secret files, which lists of results must leave out."""
    paths = [row["path"] for row in list_secrets()]
    for top in usual_places():
        for folder, _, names in os.walk(top):
            paths += [os.path.join(folder, name) for name in names]
    found = set()
    for path in paths:
        try:
            seen = os.lstat(path)
        except OSError:
            continue
        found.add((seen.st_dev, seen.st_ino))
    return frozenset(found)


def is_place(path: str) -> bool:
    """Return whether a path is in one of rgt's directories for secrets."""
    real = os.path.realpath(path)
    return any(files.is_below(real, os.path.realpath(top)) for top in usual_places())


def store_secret(
    name: str, value: bytes, folder: str | None, job: str | None, durable: list[str]
) -> JsonObject:
    """Write a secret, replacing one of the same name; return its row.

    Args:
        name: Name of the environment variable.
        value: The exact bytes to store.
        folder: Where to store it; None for the first suitable usual place.
        job: A job directory whose cells get it, or `ALL_JOBS`.
        durable: As for `why_unsuitable`.

    Raises:
        SecretNotStored: There it could be read by others, or would outlive the box.
        OSError: It cannot be written.
    """
    if not NAME.fullmatch(name):
        raise SecretNotStored(f"{name!r} is not a valid variable name")
    if not value or len(value) > MOST_SECRET_BYTES or (job is not None and b"\0" in value):
        raise SecretNotStored(
            "a secret must have 1 to %d bytes, and for cells no NUL byte" % MOST_SECRET_BYTES
        )
    chosen = folder or propose_folder(durable)
    if chosen:
        why = why_unsuitable(chosen, durable)
    else:
        why = "no place on this machine is known that is neither shared nor durable"
    if why:
        other = propose_folder(durable, chosen)
        raise SecretNotStored(why + (f"; {other} is suitable (--to {other})" if other else ""))
    top = os.path.abspath(os.path.expanduser(chosen))
    where = top
    if job is not None:
        if job == ALL_JOBS:
            own = "all"
        else:
            own = f"{zlib.crc32(os.fsencode(job)):08x}"
        where = os.path.join(top, "cells", own)
    # makedirs gives its mode only to the last directory; the ones above get the umask's.
    for path in dict.fromkeys((top, os.path.dirname(where) if job else top, where)):
        ownership.ensure_private_folder(path)
        os.chmod(path, 0o700)
    row = {"name": name, "path": os.path.join(where, name), "job": job}
    # Before the index: a row without its file would be reported as a missing secret.
    files.replace_file(os.path.join(where, name), value, sync=True, mode=0o600)
    _change_index(
        lambda rows: [
            each
            for each in rows
            if not _is_same_secret(each, name, job) or each["path"] == row["path"]
        ],
        row,
    )
    return row


def remove_secrets(name: str, job: str | None) -> list[JsonObject]:
    """Remove the secrets of a name; return the removed rows.

    Args:
        name: Its name.
        job: Job whose cells get it; None for one that is only a file.

    Raises:
        OSError: One cannot be removed.
    """
    gone = [row for row in list_secrets() if _is_same_secret(row, name, job)]
    for row in gone:
        try:
            os.unlink(row["path"])
        except FileNotFoundError:
            pass
    _change_index(lambda rows: [row for row in rows if not _is_same_secret(row, name, job)], None)
    return gone


def _is_same_secret(row: JsonObject, name: str, job: str | None) -> bool:
    return bool(row["name"] == name and row["job"] == job)


def _change_index(keep: Any, added: JsonObject | None) -> None:
    folder = place.state_dir()
    ownership.ensure_private_folder(folder)
    held = files.FileLock(os.path.join(folder, LOCK))
    if not held.acquire(10.0):
        raise OSError(errno.EAGAIN, "another command changes the list of secrets; try again", INDEX)
    try:
        before = list_secrets()
        rows = [row for row in keep(before) if row != added] + ([added] if added else [])
        for row in before:  # same name in another place: it would remain there unnoticed
            if added and row not in rows:
                files.unlink_if_exists(row["path"])
        files.write_json(os.path.join(folder, INDEX), {"secrets": rows})
    finally:
        held.release()


def why_unfit(path: str) -> str:
    """Return why the file at a path is not accepted as our secret; "" if it is."""
    try:
        seen = os.lstat(path)
    except OSError:
        return "it is missing: set it again"
    if not ownership.is_ours(path) or stat.S_IMODE(seen.st_mode) & 0o077:
        return "others may read or write it, or it belongs to another user: set it again"
    return ""


def secrets_of_job(job: str) -> tuple[dict[str, str], list[str]]:
    """Return the variables for the cells of a job, and messages about those that cannot be read.

    A secret of this job takes precedence over one for all jobs.
    """
    found = {}
    notes = []
    rows = [row for row in list_secrets() if row["job"] in (job, ALL_JOBS)]
    # False sorts first, so a job's own secret overwrites that of all jobs.
    for row in sorted(rows, key=lambda row: row["job"] != ALL_JOBS):
        why = why_unfit(row["path"])
        if why:
            data = None
        else:
            data = files.read_file(row["path"], MOST_SECRET_BYTES)
        if data is None:
            notes.append(
                f"the secret {row['name']} is not set: {row['path']}: {why or 'cannot be read'}"
            )
        else:
            # The reverse of what os.environ does, so that the cell gets exactly these bytes.
            found[row["name"]] = data.decode("utf-8", "surrogateescape")
    return found, notes


class SecretMasker:
    """Masks the values of all secrets in log lines; rereads them when the index changes."""

    def __init__(self) -> None:
        self._seen: Any = ()
        self._values: list[str] = []

    def mask_line(self, line: str) -> str:
        """Return a line with all secret values masked."""
        for value in self._values:
            if value in line:
                line = line.replace(value, MASK)
        return line

    def reread_secrets(self) -> bool:
        """Reread the secrets if they changed; return whether there is anything to mask."""
        path = os.path.join(place.state_dir(), INDEX)
        seen = files.signature(path)
        if seen != self._seen:
            self._seen = seen
            values = set()
            # Characters of the shortest value that is masked in logs: shorter ones occur in any
            # text by chance.
            least_masked = 6
            for row in list_secrets() if seen else []:
                if why_unfit(row["path"]):
                    data = None
                else:
                    data = files.read_file(row["path"], MOST_SECRET_BYTES)
                # Logs are masked line by line, so a key of several lines needs each of them.
                for part in (data or b"").decode("utf-8", "replace").splitlines():
                    if len(part.strip()) >= least_masked:
                        values.add(part.strip())
            # The longest first: a secret that contains another one must be masked as a whole.
            self._values = sorted(values, key=len, reverse=True)
        return bool(self._values)


# The ``secret`` verb: store, list or remove secrets for the runs of this box, and find exposed
# ones.


def main(argv: list[str]) -> int:
    """Run the verb; return the exit status."""
    verbs = {
        "put": put_from_stdin,
        "list": describe_secrets,
        "remove": remove_named,
        "find": find_exposed,
    }
    if not argv or argv[0] not in verbs:
        return options.refuse_verb(argv, HELP)
    found = options.parse_or_exit(argv[1:], SPEC, HELP)
    if argv[0] in ("put", "remove") and not found["name"]:
        print("secret: --name NAME is missing", file=sys.stderr)
        return 2
    try:
        answer = verbs[argv[0]](found)
    except SecretNotStored as error:
        answer = {"refused": str(error)}
    except OSError as error:
        print(f"secret: {background.write_error_text(error, '')}", file=sys.stderr)
        return 2
    # A newline first, to end any unfinished output of the shell's start-up files.
    sys.stdout.buffer.write(b"\n" + jsonline.encode_line(answer))
    if "refused" in answer:
        return 1
    return 0


def put_from_stdin(found: JsonObject) -> JsonObject:
    """Store the secret from standard input."""
    value = sys.stdin.buffer.read(MOST_SECRET_BYTES + 1)
    job = _job_of_options(found)
    if job not in (None, ALL_JOBS) and not os.path.isdir(str(job)):
        raise SecretNotStored(f"{job} is not a directory")
    return {"put": store_secret(found["name"], value, found["to"], job, found["durable"])}


def describe_secrets(found: JsonObject) -> JsonObject:
    """Return the stored secrets and their problems."""
    rows = []
    for row in list_secrets():
        why = why_unfit(row["path"]) or why_unsuitable(row["path"], found["durable"])
        rows.append(dict(row, problem=why or None))
    return {"secrets": rows}


def remove_named(found: JsonObject) -> JsonObject:
    """Remove the secrets of a name."""
    gone = remove_secrets(found["name"], _job_of_options(found))
    if not gone:
        raise SecretNotStored("no secret of that name is kept here")
    return {"removed": gone}


def find_exposed(found: JsonObject) -> JsonObject:
    """Return keys found in the usual places."""
    return {"found": find_tokens(found["job"], found["durable"])}


def _job_of_options(found: JsonObject) -> str | None:
    if found["all-cells"]:
        return ALL_JOBS
    if found["job"]:
        job: str = found["job"][-1]
        return os.path.abspath(os.path.expanduser(job))
    return None


USUAL_TOKEN_FILES = (
    "~/.netrc", "~/.huggingface/token", "~/.cache/huggingface/token", "~/.config/wandb/settings",
    "~/.kaggle/kaggle.json", "~/.wandb_key", "~/.git-credentials", "~/.aws/credentials", "~/.env",
    "~/.config/rclone/rclone.conf",
)  # fmt: skip
"""Files in which tools store their keys."""
TOKEN_FILES = frozenset(("token", ".wandb_key", ".git-credentials", "kaggle.json", "credentials"))
OF_JOB = ("job.json", "queue.txt", ".env", "env.sh", "secrets.env")
MOST_BYTES, MOST_FOUND = 256 << 10, 50
_NETRC = re.compile(r"\bpassword\s+\S+")
OTHERS_READ = stat.S_IRGRP | stat.S_IROTH


def find_tokens(jobs: list[str], durable: list[str]) -> list[JsonObject]:
    """Return ``path``, ``why`` (what it looks like) and ``open`` (why others may read it, or None).

    Args:
        jobs: Job directories.
        durable: Directories that outlive the box or that others share: only a few known names in
            them are read.
    """
    found: list[JsonObject] = []
    for path in dict.fromkeys(_token_paths(jobs, durable)):
        real = os.path.expanduser(path)
        data = files.read_file(real, MOST_BYTES)
        if data is None:
            why = ""
        else:
            why = describe_token(os.path.basename(real), data.decode("utf-8", "replace"))
        if why and len(found) < MOST_FOUND:
            found.append({"path": real, "why": why, "open": _why_exposed(real, durable)})
    return found


def _token_paths(jobs: list[str], durable: list[str]) -> Iterator[str]:
    home = os.environ.get("HF_HOME")
    yield from USUAL_TOKEN_FILES
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


def describe_token(name: str, text: str) -> str:
    """Return what in a text looks like a key, without the key; "" if nothing does."""
    if name in TOKEN_FILES and text.strip():
        return "a key, judging by the file name"
    if name == ".netrc":
        if _NETRC.search(text):
            return "a password"
        return ""
    for number, line in enumerate(text.splitlines()[:5000], 1):
        if mask_words([line]) != [line]:
            return "a key or password in line %d" % number
    return ""


def _why_exposed(path: str, durable: list[str]) -> str | None:
    why = why_unsuitable(path, durable)
    if why:
        return why
    try:
        if os.stat(path).st_mode & OTHERS_READ:
            return f"others on this machine may read it: chmod 600 {path}"
    except OSError:
        return None
    return None
