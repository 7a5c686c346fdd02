"""What a training lives in: whether it survives the end of a login, and where its output is seen."""

from __future__ import annotations

import os
import re

from rgt_box import ownership, procstat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NamedTuple, Optional

    class Life(NamedTuple):
        """What a process lives in."""

        kind: str
        """tmux, screen, slurm, container, service, nohup, detached, shell or unknown."""
        place: "Optional[str]"
        """Pane id, job id, container, unit or terminal."""
        socket: "Optional[str]" = None
        """tmux's socket."""
        pane: "Optional[str]" = None
        """A pane that may be asked for: of this user's own tmux."""
else:
    from collections import namedtuple

    Life = namedtuple("Life", "kind place socket pane", defaults=(None, None))

_PANE, _NUMBER = re.compile(r"%\d{1,9}"), re.compile(r"\d{1,18}")
_JOB = re.compile(r"/job_(\d+)")
_CONTAINER = re.compile(r"(?:docker|libpod|cri-containerd|crio|containerd|kubepods)[^\n]*?([0-9a-f]{64})")
_SERVICE = re.compile(r"/([\w@.\-\\:]+)\.service(?:/|$)")
_OWN_SERVICES = ("ssh", "sshd", "cron", "crond", "user@", "slurmd", "slurmstepd", "docker", "containerd")
HUP = 1
"""Bit of SIGHUP in a signal mask."""


def environ(pid: int) -> dict[str, str] | None:
    """Return the environment that a process was started with; None where it may not be read."""
    try:
        with open("/proc/%d/environ" % pid, "rb") as file:
            raw = file.read(1 << 20)
    except OSError:
        return None
    found = {}
    for item in raw.split(b"\0"):
        name, sign, value = item.partition(b"=")
        if sign:
            found[name.decode("utf-8", "replace")] = value.decode("utf-8", "replace")
    return found


def look(pid: int, chain: list[list[str]]) -> Life:
    """Return what a process lives in.

    Args:
        pid: The root of a training.
        chain: Command lines of its ancestors, the nearest first.
    """
    own = environ(pid) or {}
    groups = (procstat.read_bytes("/proc/%d/cgroup" % pid, 8192) or b"").decode("utf-8", "replace")
    mine = (procstat.read_bytes("/proc/self/cgroup", 8192) or b"").decode("utf-8", "replace")
    above = [os.path.basename(words[0]).split(":")[0] if words else "" for words in chain]
    job = _JOB.search(groups)
    if "slurmstepd" in above or job:
        # The control group is the daemon's word, the environment the process's own, which may be anything.
        said = _NUMBER.fullmatch(own.get("SLURM_JOB_ID", ""))
        return Life("slurm", job.group(1) if job else said.group() if said else None)
    if "tmux" in above:
        return _in_tmux(pid, own)
    if "SCREEN" in above or "screen" in above:
        return Life("screen", own.get("STY"))
    container = _CONTAINER.search(groups)
    if container and container.group(1) not in mine:
        return Life("container", container.group(1)[:12])
    service = _SERVICE.search(groups)
    if service and groups != mine and not service.group(1).startswith(_OWN_SERVICES):
        return Life("service", service.group(1))
    return _plain(pid)


def _in_tmux(pid: int, own: dict[str, str]) -> Life:
    """Return what a process in a pane lives in; of another user's tmux, or a container's, nothing is asked."""
    found = _PANE.fullmatch(own.get("TMUX_PANE", ""))
    pane = found.group() if found else None
    socket = own.get("TMUX", "").split(",")[0] or None
    if not ownership.is_own_process(pid) or procstat.root_of(pid):
        return Life("tmux", pane)
    if socket is not None and ownership.own_socket(socket) is None:
        return Life("tmux", pane)
    return Life("tmux", pane, socket, pane)


def _plain(pid: int) -> Life:
    text = procstat.read_bytes("/proc/%d/stat" % pid, 4096) or b""
    status = procstat.read_bytes("/proc/%d/status" % pid, 8192) or b""
    ignored = re.search(rb"^SigIgn:\s*([0-9a-f]+)", status, re.M)
    try:
        terminal = int(text[text.rindex(b")") + 2 :].split()[4])
    except (ValueError, IndexError):
        return Life("unknown", None)
    if ignored and int(ignored.group(1), 16) & HUP:
        return Life("nohup", None)
    return Life("shell", _terminal(terminal)) if terminal else Life("detached", None)


def _terminal(number: int) -> str | None:
    """Return the name of a terminal by its device number (Unix 98 pseudo terminals have the majors 136 to 143)."""
    major, minor = os.major(number), os.minor(number)
    return "pts/%d" % (minor + 256 * (major - 136)) if 136 <= major <= 143 else None
