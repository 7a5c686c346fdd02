"""Create a job directory for one command or a sweep: completely or not at all, and never twice."""

from __future__ import annotations

import errno
import os
import re
import shutil
import time

from rgt_box import files, jsonline, masking, place
from rgt_box.background import which, write_error_text
from rgt_box.queue import cell_command, detach, queue_file, queue_state
from rgt_box.queue.cell_command import CELL, OUT
from rgt_box.queue.queue_file import Job
from rgt_box.sampling import free_space

TYPE_CHECKING = False
if TYPE_CHECKING:
    from rgt_wire import JsonObject


NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
TASK, EPOCHS = "run", 1
"""Task and epochs in the only line of the queue: a user's command has neither."""


SWEEP_VALUES = {OUT: "{out}", CELL: "{name}"}
"""Fields that replace each cell's variables in a command that runs without a shell."""
DISTINCT_FIELDS = ("cfg", "name", "out")
"""Fields whose values differ between cells."""
QUEUE_HEAD = (
    b"# One cell a line: CONFIG TASK [EPOCHS]. CONFIG is relative to the job's working directory.\n"
)
LAUNCH_LOCK = "launch.lock"
"""Locked while a job is launched: its smoke command runs before a runner exists."""


class JobNotMade(Exception):
    """The job was not created; the message says why, and what to do."""


def job_folder(name: str, top: str = queue_file.JOBS) -> str:
    """Return the directory of a job made by rgt, below `top`.

    Raises:
        JobNotMade: The name is invalid.
    """
    if not NAME.fullmatch(name):
        raise JobNotMade(f"{name!r} is not a valid job name; use letters, digits, '.', '_' and '-'")
    return os.path.join(os.path.expanduser(top), name)


def make_job(asked: JsonObject) -> JsonObject:
    """Create a job directory. A job that exists but never started gets the new settings.

    Args:
        asked: ``name``; ``digest``, which identifies the same job, and ``same_command``, the same
            without the code; ``again``: create one more although one exists; ``words``, a command
            without a shell, or ``line``, one for a shell. Optional: ``workdir``, ``env``,
            ``platform_env``, ``platform_hooks`` (see `cell_command.valid_hooks`), ``paths``
            (directories for the front of PATH), ``data``, ``durable``, ``retries``, ``detach``,
            ``smoke`` (a shell line), ``keep``, ``ckpt_bytes``, ``ckpt_inodes``.

    Returns:
        ``folder``, ``made`` (False: it already exists), ``same`` (it has this digest),
        ``same_command`` (it has at least the same command), ``out``, ``workdir``, ``durable``,
        ``notes``.

    Raises:
        JobNotMade: Nothing was created.
    """
    if asked.get("again"):
        folder = _free_folder(asked)
    else:
        folder = job_folder(str(asked.get("name")))
    there = describe_existing(folder, asked)
    if there is not None and (not there["same"] or is_started_or_launching(queue_file.Job(folder))):
        return there
    name = os.path.basename(folder)
    refuse_secrets(asked)
    if there is None:
        before = None
    else:
        before = there["workdir"]
    workdir = os.path.abspath(os.path.expanduser(str(asked.get("workdir") or before or "~")))
    if not os.path.isdir(workdir):
        raise JobNotMade(f"{workdir} is not a directory on the box; create it, or name another one")
    queue_file.remember_platform(
        place.state_dir(),
        queue_file.environment(_dict_value(asked, "platform_env")),
        cell_command.valid_hooks(asked.get("platform_hooks")),
    )
    notes: list[str] = []
    out = os.path.join(choose_runs_base(asked, notes), "runs", name)
    words, filled = _fill_command(asked, name, out)
    env = environment_with_path(asked)
    env[OUT] = out
    env.update(filled)
    ignored = [path for path in asked.get("ignore") or [] if isinstance(path, str)]
    settings: JsonObject = {
        "command": words,
        "workdir": workdir,
        "out": os.path.join(os.path.dirname(out), "{name}"),
        "durable": _durable_pattern(asked, workdir, notes),
        "keep": asked.get("keep") or ["."],
        "ignore": [path for path in ignored if path.startswith("/")],
        "env": env,
        "retries": asked.get("retries") or 0,
        "detach": asked.get("detach") or "auto",
        "smoke": asked.get("smoke"),
        "ckpt_bytes": asked.get("ckpt_bytes"),
        "ckpt_inodes": asked.get("ckpt_inodes"),
        "digest": asked.get("digest"),
        "same_command": asked.get("same_command"),
    }
    known = {key: value for key, value in settings.items() if value is not None}
    line = "%s/%s/%s.cmd %s %d\n" % (queue_file.JOBS, name, name, TASK, EPOCHS)
    content = {
        "job.json": jsonline.encode_line(known),
        f"{name}.cmd": (_command_text(asked) + "\n").encode("utf-8", "surrogateescape"),
        "queue.txt": line.encode(),
    }
    refuse_unwritable(settings["durable"] and asked.get("durable"))
    try:
        os.makedirs(out, exist_ok=True)
        if there is None:
            publish_folder(folder, content)
        else:
            for file in content.keys() - {"queue.txt"}:
                files.replace_file(os.path.join(folder, file), content[file], sync=True)
    except FileExistsError:
        return describe_existing(folder, asked) or {"folder": folder, "made": False, "same": False}
    except OSError as error:
        raise JobNotMade(f"{write_error_text(error, folder)}; nothing was created") from error
    return {
        "folder": folder, "made": there is None, "same": True, "same_command": True, "out": out,
        "workdir": workdir,
        "durable": settings["durable"], "notes": notes,
    }  # fmt: skip


def check_request(asked: JsonObject) -> None:
    """Refuse what `make_job` would refuse about the command or environment, before code is pushed.

    Raises:
        JobNotMade: `make_job` would refuse it.
    """
    name = str(asked.get("name"))
    _fill_command(asked, name, os.path.join(job_folder(name), "out"))
    refuse_secrets(asked)


def refuse_unwritable(durable: object) -> None:
    """Refuse a job whose results could not be copied to their durable directory.

    Raises:
        JobNotMade: The directory cannot be written.
    """
    if not isinstance(durable, str) or not durable:
        return
    why = free_space.explain_unwritable(os.path.join(os.path.expanduser(durable), "runs"))
    if why:
        raise JobNotMade(
            f"results could not be copied to {durable}, the durable directory: {why}; nothing was "
            "started. Make it writable (mount it for writing, chown), or name another one (durable "
            "in the fleet file)"
        )


def refuse_secrets(asked: JsonObject) -> None:
    """Refuse a job whose ``job.json`` would contain a secret.

    Raises:
        JobNotMade: A variable, the command or the smoke command looks like a secret.
    """
    for name, value in queue_file.environment(_dict_value(asked, "env")).items():
        why = masking.why_secret(name, value)
        if why:
            raise JobNotMade(
                f"{name} looks like a secret, by its {why}: it would be stored in job.json and "
                f"copied with every pull; give it with --secret {name}"
            )
    for text in (_command_text(asked), str(asked.get("smoke") or "")):
        if masking.has_shape(text):
            raise JobNotMade(
                "the command seems to contain a secret: everyone on the box can see it in the "
                "process list; give it with --secret NAME, and read that variable in the program"
            )


def _fill_command(asked: JsonObject, name: str, out: str) -> tuple[list[str], dict[str, str]]:
    """Return the command and environment with rgt's variables filled in.

    Raises:
        JobNotMade: A variable cannot be filled in, or there is no command.
    """
    env = queue_file.environment(_dict_value(asked, "env"))
    values = {OUT: out, cell_command.CELL: name}
    values.update({key: value for key, value in env.items() if key.startswith("RGT_")})
    try:
        words = [queue_file.escape_template(word) for word in command_with_values(asked, values)]
        return words, {
            key: cell_command.fill_variables(value, values) for key, value in env.items()
        }
    except cell_command.WrongVariable as error:
        raise JobNotMade(str(error)) from None


def _free_folder(asked: JsonObject) -> str:
    """Return the directory for one more job of this name: NAME, NAME-2, etc."""
    name = str(asked.get("name"))
    number = 1
    while True:
        folder = job_folder(name if number == 1 else "%s-%d" % (name, number))
        there = describe_existing(folder, asked)
        if there is None or (there["same"] and not is_started_or_launching(queue_file.Job(folder))):
            return folder
        number += 1


def describe_existing(folder: str, asked: JsonObject) -> JsonObject | None:
    """Return what `make_job` returns for a job that already exists; None if it does not."""
    if not os.path.lexists(os.path.join(folder, "job.json")):
        return None
    settings = files.read_json(os.path.join(folder, "job.json")) or {}
    job = queue_file.Job(folder)
    same = bool(asked.get("digest")) and settings.get("digest") == asked.get("digest")
    alike = settings.get("same_command", "") == asked.get("same_command")
    return {
        "folder": folder, "made": False, "same": same, "same_command": same or alike,
        "out": job.run_folder(os.path.basename(folder)), "workdir": job.workdir,
        "durable": job.durable_folder(os.path.basename(folder)), "notes": [],
    }  # fmt: skip


def command_with_values(asked: JsonObject, values: dict[str, str]) -> list[str]:
    """Return the words of the user's command with the values of rgt's variables filled in.

    Args:
        asked: As `make_job` takes it.
        values: The rgt variables that may be used → their values.

    Raises:
        JobNotMade: There is no command.
        cell_command.WrongVariable: The command names a variable that cannot be filled in.
    """
    line = asked.get("line")
    words = asked.get("words")
    for script in (line, asked.get("smoke")):
        if isinstance(script, str):
            cell_command.check_line(script, values)
    if isinstance(line, str) and line.strip():
        found = shell_words(line)
    elif isinstance(words, list) and words and all(isinstance(word, str) for word in words):
        found = cell_command.fill_words([str(word) for word in words], values)
    else:
        raise JobNotMade("there is no command to run")
    if any("\0" in word for word in found):
        raise JobNotMade("a command cannot contain a NUL byte")
    return found


def shell_words(line: str) -> list[str]:
    """Return the words that run a line in bash, or in sh if there is no bash."""
    return [which("bash") or "/bin/sh", "-c", line]


def _command_text(asked: JsonObject) -> str:
    if isinstance(asked.get("line"), str):
        return str(asked["line"])
    return " ".join(queue_file.quote_for_shell(str(word)) for word in asked["words"])


def _dict_value(asked: JsonObject, key: str) -> JsonObject:
    value = asked.get(key)
    if isinstance(value, dict):
        return value
    return {}


def choose_runs_base(asked: JsonObject, notes: list[str]) -> str:
    """Return the base directory for runs: the platform's data disk, or the home directory."""
    data = asked.get("data")
    if isinstance(data, str) and data:
        why: str | None = f"{data}: does not exist"
        if os.path.isdir(data):
            why = free_space.explain_unwritable(os.path.join(data, "runs"))
        if why is None:
            return data
        notes.append(
            f"the platform's data disk is not used ({why}): the run is stored in the home directory"
        )
    return os.path.expanduser("~")


def _durable_pattern(asked: JsonObject, workdir: str, notes: list[str]) -> str | None:
    durable = asked.get("durable")
    if not isinstance(durable, str) or not durable:
        return None
    from rgt_box.commands import (
        work_folders,
    )  # slow import: only with a durable directory

    named = any(OUT in text for text in (_command_text(asked), *_dict_value(asked, "env").values()))
    if not named and work_folders.find_job_folder(workdir) is None:
        notes.append(
            f"no durable copy is made: the command does not name ${OUT}, and {workdir}, its "
            "working directory, is shared: push the code (--push) or name a directory (--in), so "
            "that rgt knows which files it writes"
        )
        return None
    return os.path.join(os.path.expanduser(durable), "runs", "{name}")


def environment_with_path(asked: JsonObject) -> dict[str, str]:
    """Return PATH with the platform's interpreters in front, as an environment."""
    paths = asked.get("paths")
    if isinstance(paths, list):
        first = [path for path in paths if isinstance(path, str) and os.path.isdir(path)]
    else:
        first = []
    if first:
        return {"PATH": ":".join([*first, os.environ.get("PATH", os.defpath)])}
    return {}


def publish_folder(folder: str, content: dict[str, bytes]) -> None:
    """Create `folder` with these files in one step.

    Raises:
        FileExistsError: `folder` already exists.
        OSError: It cannot be written; nothing is left on disk.
    """
    parent, name = os.path.split(folder)
    os.makedirs(parent, exist_ok=True)
    temporary = os.path.join(parent, ".%s.tmp-%s" % (name, files.unique_suffix()))
    try:
        os.mkdir(temporary)
        for file, data in content.items():
            files.replace_file(os.path.join(temporary, file), data, sync=True)
        try:
            os.rename(temporary, folder)  # fails if the target is a directory that is not empty
        except OSError as error:
            if error.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
                raise FileExistsError(error.errno, "it already exists", folder) from error
            raise
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


# Create the job of a sweep: one command with fields, and a queue that lines are added to
# afterwards.


def make_sweep(asked: JsonObject) -> JsonObject:
    """Create a job directory with an empty queue, or update a sweep that has not started.

    Args:
        asked: ``name``, ``digest``; ``words``, a command without a shell, or ``line``, one for a
            shell, both with the fields of ``job.json``. Optional: those of `make_job`, ``prune``,
            and ``jobs``, the directory of job directories.

    Returns:
        ``folder``, ``made`` (False: it existed with the same content), ``out``, ``workdir``,
        ``durable``, ``notes``.

    Raises:
        JobNotMade: Nothing was changed.
    """
    folder = job_folder(str(asked.get("name")), str(asked.get("jobs") or queue_file.JOBS))
    workdir = os.path.abspath(os.path.expanduser(str(asked.get("workdir") or "~")))
    if not os.path.isdir(workdir):
        raise JobNotMade(f"{workdir} is not a directory on the box; create it, or name another one")
    try:
        words = _command_template(asked)
    except cell_command.WrongVariable as error:
        raise JobNotMade(str(error)) from None
    refuse_secrets(asked)
    there = files.read_json(os.path.join(folder, "job.json"))
    if there is not None and there.get("digest") == asked.get("digest"):
        return _job_answer(folder, made=False, notes=[])
    if there is not None and is_started_or_launching(queue_file.Job(folder)):
        raise JobNotMade(
            f"{folder} has started with another command or other code: its cells would not be "
            "comparable. Choose another name"
        )
    notes = _output_notes(words)
    queue_file.remember_platform(
        place.state_dir(),
        queue_file.environment(asked.get("platform_env") or {}),
        cell_command.valid_hooks(asked.get("platform_hooks")),
    )
    name = os.path.basename(folder)
    runs = os.path.join(choose_runs_base(asked, notes), "runs", name)
    durable = asked.get("durable")
    durable_pattern = None
    refuse_unwritable(durable)
    if isinstance(durable, str) and durable:
        durable_pattern = os.path.join(os.path.expanduser(durable), "runs", name, "{name}")
    env = environment_with_path(asked)
    env.update(queue_file.environment(asked.get("env") or {}))
    settings: JsonObject = {
        "command": words,
        "workdir": workdir,
        "out": os.path.join(runs, "{name}"),
        "durable": durable_pattern,
        "keep": asked.get("keep") or ["."],
        "env": env,
        "retries": asked.get("retries") or 0,
        "detach": asked.get("detach") or "auto",
        "smoke": asked.get("smoke"),
        "prune": asked.get("prune"),
        "digest": asked.get("digest"),
    }
    job_json = jsonline.encode_line(
        {key: value for key, value in settings.items() if value is not None}
    )
    try:
        if there is None:
            publish_folder(folder, {"job.json": job_json, "queue.txt": QUEUE_HEAD})
        else:
            files.replace_file(os.path.join(folder, "job.json"), job_json, sync=True)
    except OSError as error:
        raise JobNotMade(f"{write_error_text(error, folder)}; nothing was created") from error
    return _job_answer(folder, made=True, notes=notes)


def _command_template(asked: JsonObject) -> list[str]:
    found = command_with_values(asked, SWEEP_VALUES)
    unknown = sorted({field for word in found for field in queue_file.unknown_fields(word)})
    if unknown:
        known = " ".join(f"{{{name}}}" for name in queue_file.FIELDS)
        raise JobNotMade(
            (
                f"the command has the unknown field {{{unknown[0]}}}; the fields are "
                f"{known}; write {{{{{unknown[0]}}}}} for literal braces"
            )
        )
    if not any(f"{{{field}}}" in word for field in DISTINCT_FIELDS for word in found):
        raise JobNotMade(
            "the command names neither {cfg} nor {name}: every cell would run the same. Write "
            "{cfg} in place of the config's path, as in: python train.py --config {cfg}"
        )
    return found


def _output_notes(words: list[str]) -> list[str]:
    if any("{out}" in word or "{name}" in word or OUT in word for word in words):
        return []
    return [
        f"the command names neither {{out}} nor ${OUT}: unless each config has a directory of its "
        "own for results, the cells overwrite each other"
    ]


def _job_answer(folder: str, made: bool, notes: list[str]) -> JsonObject:
    job = queue_file.Job(folder)
    return {
        "folder": folder, "made": made, "out": job.settings["out"], "workdir": job.workdir,
        "durable": job.settings["durable"], "notes": notes,
    }  # fmt: skip


# Find the jobs on this box that match a request, and those that run its command with other code.


class MatchingJobs:
    """The existing jobs that match a request.

    Attributes:
        same: Directory of the job with this command, environment, name and code; None if there is
            none.
        begun: Whether it was started before, with any result, or is being launched.
        others: Jobs that run the same command with other code: ``name`` and ``seconds`` since the
            start.
    """

    def __init__(self, same: str | None, begun: bool, others: list[JsonObject]) -> None:
        self.same = same
        self.begun = begun
        self.others = others


def find_job(asked: JsonObject) -> MatchingJobs:
    """Search the jobs that rgt has created on this box.

    Args:
        asked: As for `make_job`: ``digest`` covers everything, ``same_command`` everything but the
            code.
    """
    same: list[tuple[bool, float, str]] = []
    others = []
    for folder, settings in _list_made_jobs():
        job = Job(folder)
        if asked.get("digest") and settings.get("digest") == asked["digest"]:
            same.append((is_at_work(job), _creation_time(folder), folder))
            continue
        alike = asked.get("same_command") and settings.get("same_command") == asked["same_command"]
        if alike and is_at_work(job):
            seconds = max(0, int(time.time() - _first_start_time(job)))
            others.append({"name": os.path.basename(folder), "seconds": seconds})
    if not same:
        return MatchingJobs(None, False, others)
    newest = max(same)[-1]
    return MatchingJobs(newest, is_started_or_launching(Job(newest)), others)


def job_folders() -> list[str]:
    """Return the directories of all jobs in the default location."""
    return [folder for folder, _ in _list_made_jobs()]


def _list_made_jobs() -> list[tuple[str, JsonObject]]:
    top = os.path.expanduser(queue_file.JOBS)
    try:
        names = sorted(os.listdir(top))
    except OSError:
        return []
    found = []
    for name in names:
        settings = files.read_json(os.path.join(top, name, "job.json"), 1 << 20)
        if settings is not None and not name.startswith("."):
            found.append((os.path.join(top, name), settings))
    return found


def _creation_time(folder: str) -> float:
    try:
        return os.stat(os.path.join(folder, "job.json")).st_mtime
    except OSError:
        return 0.0


def _first_start_time(job: Job) -> float:
    times = [cell.get("started") for cell in queue_state.load_state(job)["cells"]]
    return min(
        [at for at in times if isinstance(at, (int, float))], default=_creation_time(job.folder)
    )


def is_started_or_launching(job: Job) -> bool:
    """Return whether a job was started before, or is being launched by another process."""
    return files.is_locked(job.path(LAUNCH_LOCK)) or has_begun(job)


def has_begun(job: Job) -> bool:
    """Return whether a job was started before, with any result."""
    return _is_running(job) or any(
        cell.get("attempts") for cell in queue_state.load_state(job)["cells"]
    )


def is_at_work(job: Job) -> bool:
    """Return whether a job runs, waits in Slurm's queue, or is being launched."""
    return files.is_locked(job.path(LAUNCH_LOCK)) or _is_running(job)


def _is_running(job: Job) -> bool:
    if queue_state.is_runner_alive(job):
        return True
    if any(queue_state.is_lane_alive(job, name) for name in queue_state.lane_names(job)):
        return True
    try:
        return job.settings["detach"] == "slurm" and detach.waiting_in_slurm(job) is not None
    except detach.SlurmRefused:
        return True  # it may still be queued: start nothing without an answer
