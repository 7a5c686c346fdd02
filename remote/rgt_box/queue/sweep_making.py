"""Makes the job of a sweep: one command with fields, and a queue that lines are added to afterwards."""

from __future__ import annotations

import os

from rgt_box import files, jsonline, place
from rgt_box.queue import cell_hooks, command_variables, job_making, known_jobs, queue_file
from rgt_box.queue.command_variables import CELL, OUT
from rgt_box.queue.job_making import NotMade

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

VALUES = {OUT: "{out}", CELL: "{name}"}
"""What stands for the variables that each cell has, in a command that no shell sees."""
DISTINCT = ("cfg", "name", "out")
"""Fields that differ from cell to cell."""
HEADER = b"# One cell a line: CONFIG TASK [EPOCHS]. CONFIG is relative to the job's working directory.\n"


def make_sweep(asked: dict[str, Any]) -> dict[str, Any]:
    """Make a job directory with an empty queue, or give one that has not begun another command or other code.

    Args:
        asked: ``name``, ``digest``; ``words``, a command that no shell sees, or ``line``, one for a shell, both with
            the fields of ``job.json``; and where they are wanted those that `job_making.make` takes as well, and
            ``prune``.

    Returns:
        ``folder``, ``made`` (False: it was there, with this very content), ``out``, ``workdir``, ``durable``,
        ``notes``.

    Raises:
        NotMade: nothing was changed.
    """
    folder = job_making.folder_of(str(asked.get("name")))
    workdir = os.path.abspath(os.path.expanduser(str(asked.get("workdir") or "~")))
    if not os.path.isdir(workdir):
        raise NotMade("%s is not a directory on the box; create it, or name another one" % workdir)
    try:
        words = _template(asked)
    except command_variables.WrongVariable as error:
        raise NotMade(str(error)) from None
    job_making.refuse_secrets(asked)
    there = files.read_json(os.path.join(folder, "job.json"))
    if there is not None and there.get("digest") == asked.get("digest"):
        return _answer(folder, made=False, notes=[])
    if there is not None and known_jobs.is_taken(queue_file.Job(folder)):
        raise NotMade(
            "%s has begun, with another command or other code: its cells would no longer be comparable. "
            "Choose another name" % folder
        )
    notes = _notes(words)
    queue_file.remember_platform(
        place.state_dir(),
        queue_file.environment(asked.get("platform_env") or {}),
        cell_hooks.hooks(asked.get("platform_hooks")),
    )
    runs = os.path.join(job_making.base_of(asked, notes), "runs", os.path.basename(folder))
    durable = asked.get("durable")
    settings: dict[str, Any] = {
        "command": words,
        "workdir": workdir,
        "out": os.path.join(runs, "{name}"),
        "durable": os.path.join(os.path.expanduser(durable), "runs", os.path.basename(folder), "{name}")
        if isinstance(durable, str) and durable
        else None,
        "keep": asked.get("keep") or ["."],
        "env": dict(job_making.path_of(asked), **queue_file.environment(asked.get("env") or {})),
        "retries": asked.get("retries") or 0,
        "detach": asked.get("detach") or "auto",
        "smoke": asked.get("smoke"),
        "prune": asked.get("prune"),
        "digest": asked.get("digest"),
    }
    job_json = jsonline.line({key: value for key, value in settings.items() if value is not None})
    try:
        if there is None:
            job_making.publish(folder, {"job.json": job_json, "queue.txt": HEADER})
        else:
            files.replace(os.path.join(folder, "job.json"), job_json, sync=True)
    except OSError as error:
        raise NotMade("%s: %s; nothing was created" % (error.filename or folder, error.strerror)) from error
    return _answer(folder, made=True, notes=notes)


def _template(asked: dict[str, Any]) -> list[str]:
    found = job_making.command(asked, VALUES)
    unknown = sorted({field for word in found for field in queue_file.unknown_fields(word)})
    if unknown:
        known = " ".join("{%s}" % name for name in queue_file.FIELDS)
        raise NotMade(
            "the command has the unknown field {%s}; the fields are %s; write {{%s}} for literal braces"
            % (unknown[0], known, unknown[0])
        )
    if not any("{%s}" % field in word for field in DISTINCT for word in found):
        raise NotMade(
            "the command names neither {cfg} nor {name}: every cell would run the same. Write {cfg} where the "
            "config's path belongs, as in: python train.py --config {cfg}"
        )
    return found


def _notes(words: list[str]) -> list[str]:
    if any("{out}" in word or "{name}" in word or OUT in word for word in words):
        return []
    return [
        "the command names neither {out} nor $%s: unless each config has a directory of its own for results, the cells "
        "overwrite each other" % OUT
    ]


def _answer(folder: str, made: bool, notes: list[str]) -> dict[str, Any]:
    job = queue_file.Job(folder)
    return {
        "folder": folder, "made": made, "out": job.settings["out"], "workdir": job.workdir,
        "durable": job.settings["durable"], "notes": notes,
    }  # fmt: skip
