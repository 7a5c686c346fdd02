"""The ``detach`` verb: start the runner so that it outlives the SSH connection.

It uses tmux, setsid, Slurm or Kubernetes.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import sys
import time

from rgt_wire.kubernetes_job import (
    WrongManifest,
    parse_claim,
    pod_body,
    restart_rules,
    yaml_lines,
)

from rgt_box import files, jsonline, options, ownership, place
from rgt_box.background import which
from rgt_box.queue import queue_check, queue_file, queue_state
from rgt_box.queue.cell_process import stop_grace_seconds
from rgt_box.queue.queue_file import Job
from rgt_box.recorder import state_files

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from rgt_wire import JsonObject

__all__ = ["HELP", "main", "session_name"]


def session_name(folder: str) -> str:
    """Return the tmux session's name, in which dots and colons are not allowed."""
    return "rgt-" + (re.sub(r"[^A-Za-z0-9_-]", "-", os.path.basename(folder)) or "job")


def start_in_tmux(job: Job, words: list[str]) -> str | None:
    """Start the runner in a new tmux session and return the session's name; None if tmux refuses.

    A tmux server that is already running gives new sessions *its* environment, so ours is sent
    through a named pipe.
    """
    import subprocess

    fifo = os.path.join(place.state_dir(), "env-%d" % os.getpid())
    try:
        ownership.ensure_private_folder(place.state_dir())
        # A pipe, not arguments: the environment may hold secrets, which ``ps`` would show.
        os.mkfifo(fifo, 0o600)
    except OSError as error:
        print(f"{error.filename}: {error.strerror}: not in tmux", file=sys.stderr)
        return None
    try:
        wanted = session_name(job.folder)
        # A session of that name may exist already.
        for name in [wanted] + ["%s-%d" % (wanted, number) for number in range(2, 10)]:
            command = ["tmux", "new-session", "-d", "-s", name, "-c", job.folder, "--"]
            done = subprocess.run(
                command + words + ["--env-fifo", fifo],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
            )
            if done.returncode == 0:
                if _send_environment(fifo):
                    return name
                return None
            if b"duplicate" not in done.stderr:
                print(done.stderr.decode("utf-8", "replace").strip(), file=sys.stderr)
                return None
        return None
    finally:
        files.unlink_if_exists(fifo)


def _send_environment(fifo: str) -> bool:
    """Write the environment to the pipe once the runner opens it.

    Return False if that never happens.
    """
    read_within = 10.0
    deadline = time.monotonic() + read_within
    while time.monotonic() < deadline:
        try:
            # Without blocking: a runner that dies at once would never open its end.
            fd = os.open(fifo, os.O_WRONLY | os.O_NONBLOCK)
        except OSError as error:
            if error.errno != errno.ENXIO:
                return False
            time.sleep(0.01)
            continue
        # The environment may be larger than the pipe's buffer.
        os.set_blocking(fd, True)
        try:
            files.write_all(fd, jsonline.dumps(dict(os.environ)))
        finally:
            os.close(fd)
        return True
    return False


SCRIPT, RECORD = "runner.sbatch", "runner.slurm"

SLURM_HEAD = """\
#!/bin/sh
#SBATCH --job-name=%(name)s
#SBATCH --output=%(output)s
#SBATCH --open-mode=append
#SBATCH --requeue
#SBATCH --signal=B:TERM@180
#SBATCH --export=ALL
%(array)s%(own)sexec %(words)s
"""
"""``exec`` makes the runner the batch step itself, so that Slurm's SIGTERM, sent at a cancel or at
the time limit, reaches it and the cell can save. ``B:`` requests that signal three minutes before
the time limit; the cell receives it from the runner only. ``--requeue`` restarts a job that was
preempted or whose node failed.
"""


class SlurmRefused(Exception):
    """Slurm did not accept the job; the message says why."""


def slurm_script(job: Job, words: list[str], indexes: list[int] | None = None) -> str:
    """Return the batch script of a job.

    Args:
        job: The job; its ``sbatch`` options come last, so that they override the others.
        words: The command line of the runner.
        indexes: The cells that each become a task of a job array; None for one runner for all
            cells.

    Raises:
        SlurmRefused: A path or option contains a line break, which a batch script cannot have.
    """
    options = [str(option) for option in job.settings["sbatch"]]
    for text in options + [job.folder]:
        if "\n" in text or "\r" in text:
            raise SlurmRefused(f"{text!r} contains a line break, which a batch script cannot")
    return SLURM_HEAD % {
        "name": session_name(job.folder),
        # Slurm expands %x and %j, so a percent sign of the path itself is doubled.
        "output": _quote_spaces(
            job.path("runner.out").replace("%", "%%") + ("" if indexes is None else ".%a")
        ),
        "array": ""
        if indexes is None
        else "#SBATCH --array=%s%%%d\n" % (sbatch_ranges(indexes), job.settings["parallel"]),
        "own": "".join(f"#SBATCH {option}\n" for option in options),
        "words": " ".join(queue_file.quote_for_shell(word) for word in words),
    }


def sbatch_ranges(indexes: list[int]) -> str:
    """Return numbers in sbatch's notation: ``0-3,7``."""
    out: list[list[int]] = []
    for index in sorted(set(indexes)):
        if out and index == out[-1][1] + 1:
            out[-1][1] = index
        else:
            out.append([index, index])
    return ",".join("%d" % low if low == high else "%d-%d" % (low, high) for low, high in out)


def _quote_spaces(text: str) -> str:
    if " " in text:
        return f'"{text}"'
    return text


def submit_to_slurm(job: Job, words: list[str], indexes: list[int] | None = None) -> str:
    """Submit the runner, or an array of runners; return the job's ID.

    Raises:
        SlurmRefused: With sbatch's error message.
    """
    text = slurm_script(job, words, indexes)
    path = job.path(SCRIPT)
    try:
        files.replace_file(path, text.encode("utf-8", "surrogateescape"), sync=True, mode=0o755)
    except OSError as error:
        raise SlurmRefused(f"{path}: {error.strerror}") from error
    status, out, err = run_slurm_program(["sbatch", "--parsable", path], job.folder)
    # --parsable prints "ID" or "ID;CLUSTER".
    number = out.strip().split(";")[0]
    if status or not number.isdigit():
        raise SlurmRefused("sbatch: %s" % (err.strip() or out.strip() or "exit %d" % status))
    files.write_json(job.path(RECORD), {"id": number})
    return number


def waiting_in_slurm(job: Job) -> tuple[str, str] | None:
    """Return (job ID, state) of the job's last submission; None if Slurm no longer lists it.

    Raises:
        SlurmRefused: squeue failed: without its answer a second runner must not be submitted.
    """
    number = (files.read_json(job.path(RECORD)) or {}).get("id")
    if not isinstance(number, str) or not number.isdigit():
        return None
    status, out, err = run_slurm_program(["squeue", "-h", "-j", number, "-o", "%T"], job.folder)
    # The number of an old job is no error: Slurm forgets jobs.
    if status and "invalid job id" not in err.lower():
        raise SlurmRefused("squeue: %s" % (err.strip() or "exit %d" % status))
    state = ", ".join(sorted(set(out.split())))
    if state and not status:
        return (number, state)
    return None


def run_slurm_program(words: list[str], folder: str) -> tuple[int, str, str]:
    """Run one of Slurm's programs in a directory; return its exit status, stdout and stderr.

    Raises:
        SlurmRefused: The program cannot be run, or did not answer in time.
    """
    import subprocess

    answers_within = 60.0
    submitter = f"{place.boot_id()} {place.state_dir()}"
    try:
        done = subprocess.run(
            words,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            timeout=answers_within,
            # The messages are compared, so they must not be translated.
            env=dict(os.environ, LC_ALL="C", **{state_files.SUBMITTED_FROM: submitter}),
        )
    except OSError as error:
        raise SlurmRefused(
            f"{words[0]}: {error.strerror}; is this a login node of the cluster?"
        ) from error
    except subprocess.TimeoutExpired:
        raise SlurmRefused("%s did not answer within %d s" % (words[0], answers_within)) from None
    return (
        done.returncode,
        done.stdout.decode("utf-8", "replace"),
        done.stderr.decode("utf-8", "replace"),
    )


def kubernetes_manifest(
    job: Job, words: list[str], image: str, claims: list[str], gpus: int, cells: int
) -> str:
    """Return the Job as YAML.

    Args:
        job: The job; its directory must be inside one of the claims' mounts.
        words: The command line of the runner inside the container.
        image: The container image.
        claims: ``NAME:/MOUNT`` of each persistent volume claim; one claim may be mounted several
            times.
        gpus: How many GPUs to request.
        cells: Number of indexed cells, if each gets its own pod.

    Raises:
        WrongManifest: A claim has another form, Kubernetes would refuse it, or no claim contains
            the job directory.
    """
    # A stopped cell gets the grace period to save, and the runner needs a moment to record the end.
    grace_s = int(stop_grace_seconds()) + 30
    container = {"name": "runner", "image": image, "command": words}
    pod = pod_body(container, claims, gpus, grace_s)
    if not any(files.is_below(job.folder, parse_claim(claim)[1]) for claim in claims):
        raise WrongManifest(
            f"no --claim NAME:/MOUNT contains the job directory {job.folder}: the pod would not "
            "see it"
        )
    rules = restart_rules("runner", cells, int(job.settings["parallel"]))
    spec = dict(rules, template={"spec": pod})
    body = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": job_name(job.folder)},
        "spec": spec,
    }
    return "# kubectl apply -f FILE\n" + "\n".join(yaml_lines(body)) + "\n"


def job_name(folder: str) -> str:
    """Return a valid Kubernetes name that is unique per directory and always the same for it.

    Lower case letters, digits and dashes. With the index of the last pod appended, which becomes a
    host name, it has at most 63 characters. The hash distinguishes directories with the same last
    part: without it the second Job would replace the first.
    """
    last = folder.rstrip("/").rpartition("/")[2]
    text = re.sub(r"[^a-z0-9]+", "-", last.lower()).strip("-")
    digest = hashlib.sha256(folder.encode("utf-8", "surrogateescape")).hexdigest()[:8]
    longest_name = 63
    # Limit for the pods of an indexed Job; the last pod's index is one less.
    most_pods = 100_000
    room = longest_name - len("rgt--" + digest) - len("-%d" % most_pods)
    return f"rgt-{(text or 'job')[:room].rstrip('-')}-{digest}"


HELP = """
usage: detach --job DIR [-- ARGUMENTS OF queue run]
       detach --job DIR --print slurm
       detach --job DIR --print k8s --image IMAGE --claim NAME:/MOUNT [--gpus N] [--python CMD] [--agent FILE]

Check the queue, then start its runner detached, as "detach" in job.json says:
  auto     in a tmux session named after the job, else by setsid (the default)
  tmux     in tmux, or not at all
  setsid   in a session of its own, without a terminal
  slurm    as a Slurm job; "sbatch" in job.json lists more options, like "--gres=gpu:1". With "parallel": N in
           job.json it is a job array: a task for each cell that is not done, N of them at a time

Prints one JSON line {"how": "tmux" | "setsid" | "slurm" | "running" | "ended", "session": ..., "pid": ...}. With
Slurm, "session" is the job ID. A runner that is alive, or waits in Slurm's queue, is left alone (exit 0).

  --print slurm  print the batch script instead
  --print k8s    print a Kubernetes Job instead, an indexed one with "parallel". The job directory, and the directories
                 that it names, must lie on the claims; --python (python3) and --agent (this file) are their names
                 inside of the container

Exit status: 0 started, or alive already, 1 it did not start, 2 it cannot be run.

Example: detach --job ~/jobs/sweep -- --from 3
"""
SPEC = {
    "--job": "str", "--print": "str", "--image": "str", "--claim": "list", "--gpus": "int",
    "--python": "str",
    "--agent": "str",
}  # fmt: skip


def main(argv: list[str]) -> int:
    """Run the verb; return the exit status."""
    found = options.parse_or_exit(argv, SPEC, HELP)
    if not found["job"]:
        return _print_usage_error("--job DIR is missing")
    job = queue_file.Job(found["job"])
    words = place.agent_command("queue", "run", "--job", job.folder) + found["rest"]
    if job.settings["parallel"] > 1:
        if found["rest"]:
            return _print_usage_error(
                'with "parallel", every cell has its own task: arguments after -- are not used'
            )
        # Each task finds its cell by the index that Slurm or Kubernetes gives it.
        words = place.agent_command("queue", "cell", "--job", job.folder)
    try:
        if found["print"]:
            return _print_manifest(job, found, words)
        return _start_runner(job, words)
    except (SlurmRefused, WrongManifest) as error:
        return _print_usage_error(str(error))


def _print_manifest(job: queue_file.Job, found: JsonObject, words: list[str]) -> int:
    if found["print"] == "slurm":
        text = slurm_script(job, words, _pending_indexes(job))
    elif found["print"] == "k8s":
        if not found["image"]:
            return _print_usage_error("--print k8s needs --image IMAGE")
        inside = [
            found["python"] or "python3",
            "-I",
            "-S",
            "-Xutf8",
            found["agent"] or place.agent_command()[-1],
        ]
        inside += words[len(place.agent_command()) :]
        if job.settings["parallel"] > 1:
            cells = fixed_cell_order(job)
        else:
            cells = []
        text = kubernetes_manifest(
            job, inside, found["image"], found["claim"], found["gpus"] or 0, len(cells)
        )
    else:
        return _print_usage_error(f"--print takes slurm or k8s, not {found['print']}")
    sys.stdout.buffer.write(text.encode("utf-8", "surrogateescape"))
    return 0


def _start_runner(job: queue_file.Job, words: list[str]) -> int:
    who = queue_state.find_lock_owner(job)
    if who == "seal":
        return _print_usage_error(
            f"{job.folder} is sealed for a billing action; the seal expires automatically"
        )
    # A second runner would wait for the lock, or run the same cells.
    if who:
        return _print_status("running", None, _runner_pid(job))
    problems = queue_check.check_queue(job).problems
    if problems:
        print("\n".join(problems), file=sys.stderr)
        return 2
    how = job.settings["detach"]
    if how == "slurm":
        queued = waiting_in_slurm(job)
        return _print_status(
            "slurm",
            queued[0] if queued else submit_to_slurm(job, words, _pending_indexes(job)),
            None,
        )
    # To recognise a runner that writes its state and exits before it is seen alive.
    before = files.signature(job.path("state.json"))
    if how != "setsid" and which("tmux"):
        session = start_in_tmux(job, words)
    else:
        session = None
    if session is None and how == "tmux":
        return _print_usage_error(
            '"detach" in job.json asks for tmux, which is not installed here or refuses to start'
        )
    if session is None:
        from rgt_box.recorder.control import start_detached  # here: only this path forks

        start_detached(words, job.path("runner.out"))
    return _wait_for_start(job, "tmux" if session else "setsid", session, before)


def _pending_indexes(job: queue_file.Job) -> list[int] | None:
    """Return the indexes of the cells that are not done; None if one runner runs them all."""
    if job.settings["parallel"] == 1:
        return None
    lines, _ = job.read_lines()
    pending = {line.name for line in queue_check.lines_to_run(job, lines)}
    found = [index for index, name in enumerate(fixed_cell_order(job)) if name in pending]
    if not found:
        raise SlurmRefused("every cell of this queue is done already")
    return found


def fixed_cell_order(job: queue_file.Job) -> list[str]:
    """Return the cells in the order of their fixed task indexes."""
    try:
        return queue_state.freeze_cell_indexes(job)
    except (OSError, ValueError) as error:
        raise SlurmRefused(f"the table of tasks and cells could not be written: {error}") from error


def _print_usage_error(text: str) -> int:
    print(f"detach: {text}", file=sys.stderr)
    return 2


def _wait_for_start(job: queue_file.Job, how: str, session: str | None, before: Any) -> int:
    """Wait until the runner has its lock, or has written a state and exited; report its status."""
    started_within = 10.0
    deadline = time.monotonic() + started_within
    while time.monotonic() < deadline:
        if files.is_locked(job.path("runner.lock")):
            pid = _runner_pid(job)
            if pid:
                return _print_status(how, session, pid)
        elif files.signature(job.path("state.json")) != before:
            return _print_status("ended", session, queue_state.load_state(job).get("runner_pid"))
        time.sleep(0.02)
    out = job.path("runner.out")
    hint = ""
    if os.path.exists(out):
        hint = f"; see {out}"
    print("the runner did not start within %d s%s" % (started_within, hint), file=sys.stderr)
    return 1


def _runner_pid(job: queue_file.Job) -> int | None:
    pid = files.lock_holder(job.path("runner.lock")).get("pid")
    if isinstance(pid, int):
        return pid
    return None


def _print_status(how: str, session: str | None, pid: int | None) -> int:
    jsonline.print_frame({"how": how, "session": session, "pid": pid})
    return 0
