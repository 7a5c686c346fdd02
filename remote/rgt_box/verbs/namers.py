"""Who can still name a file of rgt's: processes, Slurm's jobs, Pods, cron, batch scripts.

A runner, a queued job array and a Pod execute the very file that they were started with, perhaps hours from now.
What cannot be asked is a doubt, and counts as if it named all of them.
"""

from __future__ import annotations

import os
import re

from rgt_box import background, files, procstat
from rgt_box.queue import detach
from rgt_box.sampling import disks

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Iterator, NamedTuple

    class Namer(NamedTuple):
        """Something that names a file."""

        file: str
        """Its name without the directory."""
        who: str
        """In words."""
        verb: str
        """What an agent does there; "slurm" and "pod" for jobs; "" for everything else."""
        pid: int = 0
        """0 = it is no process."""
else:
    from collections import namedtuple

    Namer = namedtuple("Namer", "file who verb pid", defaults=(0,))

SECONDS = 10.0
MOST_JOBS = 200
LONGEST = 1 << 20
POD = "/var/run/secrets/kubernetes.io/serviceaccount"
UNCONFIGURED = "configuration source"
"""Of what Slurm's programs say where there are no more than the programs."""


def look(paths: list[str], jobs: list[str]) -> tuple[list[Namer], list[str]]:
    """Return who names one of these files, and what could not be asked.

    Args:
        paths: The files. Each name holds a hash: in a script of this user's it stands for the file, wherever that
            script is run and whatever the directory is called there.
        jobs: Job directories.
    """
    names = sorted({os.path.basename(path) for path in paths})
    found = list(_processes(paths))
    doubts: list[str] = []
    for job in jobs:
        found += _batch_script(job, names)
    if background.which("squeue"):
        found += _slurm(names, doubts)
    if background.which("kubectl") and _has_cluster():
        text = _ask(["kubectl", "get", "jobs,pods", "-o", "json", "--request-timeout=5s"])
        if text is None:
            doubts.append("kubectl is here, and Kubernetes does not say what its Pods run")
        found += [Namer(name, "a Job or Pod of Kubernetes", "pod") for name in names if name in (text or "")]
    if background.which("crontab"):
        text = _ask(["crontab", "-l"]) or ""  # it fails, too, where there is none
        found += [Namer(name, "the crontab", "") for name in names if name in text]
    return found, doubts


def _has_cluster() -> bool:
    """Tell whether kubectl has anybody to ask: many boxes have the program alone."""
    usual = os.path.join(os.path.expanduser("~"), ".kube", "config")
    return bool(os.environ.get("KUBECONFIG")) or os.path.exists(usual) or os.path.exists(POD)


def sharing(folder: str, own: str) -> str | None:
    """Return why other hosts may execute what stands in a directory; None = nothing tells so.

    Args:
        folder: The directory that all of them would share.
        own: This host's own directory below it.
    """
    table = disks.mount_table()
    mount, kind = disks.mount_of(disks.resolve(folder, table), table)
    if kind not in disks.LOCAL:
        return "%s is on %s (%s), which other hosts may have, too" % (
            folder,
            kind or "an unknown file system",
            mount,
        )
    try:
        others = [name for name in sorted(os.listdir(folder)) if name.startswith("host-")]
    except OSError:
        return None
    others = [name[5:] for name in others if os.path.join(folder, name) != own]
    return "another host has its history there: %s" % ", ".join(others[:3]) if others else None


def _processes(paths: list[str]) -> Iterator[Namer]:
    mine = set(_line(os.getpid()))
    for entry in os.listdir("/proc"):
        if not entry.isdigit() or int(entry) in mine:
            continue
        pid = int(entry)
        words = procstat.cmdline(pid, LONGEST)
        environment = (procstat.read_bytes("/proc/%d/environ" % pid, LONGEST) or b"").decode(
            "utf-8", "replace"
        )
        for path in paths:
            name = os.path.basename(path)
            verb = ""
            for place, word in enumerate(words):
                if word.endswith(name) and _means(pid, word, path):  # else a shell that only speaks of it
                    verb = words[place + 1] if place + 1 < len(words) else ""
                    break
            else:
                text = " ".join(words) + " " + environment
                tokens = re.findall(r"[^\s'\"=:]*%s" % re.escape(name), text) if name in text else []
                if not any(_means(pid, token, path) for token in tokens):
                    continue
            yield Namer(name, "process %d%s" % (pid, " (%s)" % verb if verb else ""), verb, pid)


def _means(pid: int, text: str, path: str) -> bool:
    """Tell whether a process means a file by a path: others may have the same version in a directory of their own."""
    seen = "/proc/%d/root%s" if text.startswith("/") else "/proc/%d/cwd/%s"
    try:
        return os.path.samefile(seen % (pid, text), path)
    except OSError:
        # Its files cannot be looked into, or have gone: then it is this user's own that is in doubt.
        try:
            return os.stat("/proc/%d" % pid).st_uid == os.geteuid()
        except OSError:
            return False


def _line(pid: int) -> Iterator[int]:
    """Yield a process and those above it: the shell and the server that have started it name it, too."""
    while pid > 1:
        yield pid
        stat = procstat.read_stat(pid)
        pid = 0 if stat is None else stat.ppid


def _batch_script(job: str, names: list[str]) -> list[Namer]:
    folder = os.path.abspath(os.path.expanduser(job))
    state = files.read_json(os.path.join(folder, "state.json")) or {}
    if state.get("done"):
        return []
    path = os.path.join(folder, detach.SCRIPT)
    text = (files.read(path, LONGEST) or b"").decode("utf-8", "replace")
    return [Namer(name, "%s, whose queue is not through" % path, "") for name in names if name in text]


def _slurm(names: list[str], doubts: list[str]) -> Iterator[Namer]:
    try:
        status, text, words = detach.ask_slurm(["squeue", "-h", "-u", "%d" % os.getuid(), "-o", "%A"], "/")
    except detach.SlurmRefused as error:
        status, text, words = 1, "", str(error)
    if status:
        if UNCONFIGURED not in words:
            doubts.append("Slurm does not say which jobs wait")
        return
    jobs = sorted(set(text.split()))
    if len(jobs) > MOST_JOBS:
        doubts.append("Slurm has %d jobs of yours, too many to look at each" % len(jobs))
    for job in jobs[:MOST_JOBS]:
        script = _ask(["scontrol", "write", "batch_script", job, "-"])
        if script is None:
            doubts.append("Slurm does not show the script of job %s" % job)
            continue
        for name in names:
            if name in script:
                yield Namer(name, "Slurm job %s" % job, "slurm")


def _ask(words: list[str]) -> str | None:
    try:
        return background.try_program(words, SECONDS)
    except TimeoutError:
        return None
