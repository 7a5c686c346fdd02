"""Makes a job directory for one command in one step: complete or not at all, and never twice."""

from __future__ import annotations

import errno
import os
import re
import shutil

from rgt_box import files, jsonline, place
from rgt_box.background import describe, which
from rgt_box.queue import cell_hooks, queue_file

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

JOBS = "~/jobs"
"""Where jobs stand, by their names: in the home directory, which a full data disk leaves alone."""
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
OUT = "RGT_OUT"
"""Environment variable of a cell: the run's directory, which its durable copy is made of."""
TASK, EPOCHS = "run", 1
"""What the one line of the queue says: a command of a person has no tasks and no epochs."""


class NotMade(Exception):
    """The job was not made; the message says why, and what to do."""


def folder_of(name: str) -> str:
    """Return the directory of a job that rgt has made.

    Raises:
        NotMade: for what is no name.
    """
    if not NAME.fullmatch(name):
        raise NotMade("%r is not a valid job name; use letters, digits, '.', '_' and '-'" % name)
    return os.path.join(os.path.expanduser(JOBS), name)


def make(asked: dict[str, Any]) -> dict[str, Any]:
    """Make a job directory.

    Args:
        asked: ``name``; ``digest``, by which the same job is known again; ``words``, a command that no shell sees, or
            ``line``, one for a shell; and where they are wanted ``workdir``, ``env``, ``platform_env``,
            ``platform_hooks`` (as `cell_hooks.hooks` takes them), ``paths`` (directories for the front of PATH),
            ``data``, ``durable``, ``retries``, ``detach``, ``smoke`` (a line for a shell).

    Returns:
        ``folder``, ``made`` (False: it already exists), ``same`` (it has this digest), ``out``, ``workdir``,
        ``durable``, ``notes``.

    Raises:
        NotMade: nothing was made.
    """
    name = str(asked.get("name"))
    folder = folder_of(name)
    there = standing(folder, asked)
    if there is not None:
        return there
    workdir = os.path.abspath(os.path.expanduser(str(asked.get("workdir") or "~")))
    if not os.path.isdir(workdir):
        raise NotMade("%s is not a directory on the box; create it, or name another one" % workdir)
    queue_file.remember_platform(
        place.state_dir(),
        queue_file.environment(_object(asked, "platform_env")),
        cell_hooks.hooks(asked.get("platform_hooks")),
    )
    notes: list[str] = []
    out = os.path.join(_base(asked, notes), "runs", name)
    settings: dict[str, Any] = {
        "command": command(asked),
        "workdir": workdir,
        "out": os.path.join(os.path.dirname(out), "{name}"),
        "durable": _durable(asked, notes),
        "keep": ["."],
        "env": dict(_path(asked), **{OUT: out}, **queue_file.environment(_object(asked, "env"))),
        "retries": asked.get("retries") or 0,
        "detach": asked.get("detach") or "auto",
        "smoke": asked.get("smoke"),
        "digest": asked.get("digest"),
    }
    content = {
        "job.json": jsonline.line({key: value for key, value in settings.items() if value is not None}),
        "%s.cmd" % name: (_shown(asked) + "\n").encode("utf-8", "surrogateescape"),
        "queue.txt": ("%s/%s/%s.cmd %s %d\n" % (JOBS, name, name, TASK, EPOCHS)).encode(),
    }
    try:
        os.makedirs(out, exist_ok=True)
        _publish(folder, content)
    except FileExistsError:
        return standing(folder, asked) or {"folder": folder, "made": False, "same": False}
    except OSError as error:
        raise NotMade("%s: %s; nothing was created" % (error.filename or folder, describe(error))) from error
    return {
        "folder": folder, "made": True, "same": True, "out": out, "workdir": workdir,
        "durable": settings["durable"], "notes": notes,
    }  # fmt: skip


def standing(folder: str, asked: dict[str, Any]) -> dict[str, Any] | None:
    """Return what `make` answers where the job is there already; None where it is not."""
    if not os.path.lexists(os.path.join(folder, "job.json")):
        return None
    settings = files.read_json(os.path.join(folder, "job.json")) or {}
    job = queue_file.Job(folder)
    same = bool(asked.get("digest")) and settings.get("digest") == asked.get("digest")
    return {
        "folder": folder, "made": False, "same": same, "out": job.out(os.path.basename(folder)),
        "workdir": job.workdir, "durable": job.durable(os.path.basename(folder)), "notes": [],
    }  # fmt: skip


def command(asked: dict[str, Any]) -> list[str]:
    """Return the command of ``job.json``: exactly what was typed, with no field that would be filled in.

    Raises:
        NotMade: there is none.
    """
    line, words = asked.get("line"), asked.get("words")
    if isinstance(line, str) and line.strip():
        found = shell(line)
    elif isinstance(words, list) and words and all(isinstance(word, str) for word in words):
        found = [str(word) for word in words]
    else:
        raise NotMade("there is no command to run")
    if any("\0" in word for word in found):
        raise NotMade("a command cannot contain a NUL byte")
    return [queue_file.escaped(word) for word in found]


def shell(line: str) -> list[str]:
    """Return the words that run a line as a person's shell would."""
    return [which("bash") or "/bin/sh", "-c", line]


def _shown(asked: dict[str, Any]) -> str:
    if isinstance(asked.get("line"), str):
        return str(asked["line"])
    return " ".join(queue_file.quoted(str(word)) for word in asked["words"])


def _object(asked: dict[str, Any], key: str) -> dict[str, Any]:
    value = asked.get(key)
    return value if isinstance(value, dict) else {}


def _base(asked: dict[str, Any], notes: list[str]) -> str:
    data = asked.get("data")
    if isinstance(data, str) and data:
        if os.path.isdir(data):
            return data
        notes.append(
            "%s, the platform's data disk, is not there: the run is kept in the home directory" % data
        )
    return os.path.expanduser("~")


def _durable(asked: dict[str, Any], notes: list[str]) -> str | None:
    durable = asked.get("durable")
    if not isinstance(durable, str) or not durable:
        return None
    if OUT not in " ".join(command(asked)):
        notes.append(
            "no durable copy is made: the command does not name $%s, and what it writes elsewhere is not known; "
            "rgt pull brings it home" % OUT
        )
        return None
    return os.path.join(os.path.expanduser(durable), "runs", "{name}")


def _path(asked: dict[str, Any]) -> dict[str, str]:
    paths = asked.get("paths")
    first = (
        [path for path in paths if isinstance(path, str) and os.path.isdir(path)]
        if isinstance(paths, list)
        else []
    )
    return {"PATH": ":".join([*first, os.environ.get("PATH", os.defpath)])} if first else {}


def _publish(folder: str, content: dict[str, bytes]) -> None:
    """Put a directory with these files at `folder`, in one step.

    Raises:
        FileExistsError: something is there.
        OSError: it cannot be written; nothing is left behind.
    """
    parent, name = os.path.split(folder)
    os.makedirs(parent, exist_ok=True)
    temporary = os.path.join(parent, ".%s.tmp-%d" % (name, os.getpid()))
    shutil.rmtree(temporary, ignore_errors=True)
    try:
        os.mkdir(temporary)
        for file, data in content.items():
            files.replace(os.path.join(temporary, file), data, sync=True, mode=0o644)
        try:
            os.rename(temporary, folder)  # onto a directory that is not empty it fails
        except OSError as error:
            if error.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
                raise FileExistsError(error.errno, "it already exists", folder) from error
            raise
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
