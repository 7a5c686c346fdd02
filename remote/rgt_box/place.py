"""The agent's location on a box: its state directory, its own file, and the host's identity.

Its temporary directories are recognised by name, and removed later if it was killed.

Hosts may share a home directory (NFS), and containers even the kernel, the home and ``/dev/shm``:
each has its own state directory below the shared one, with a file that identifies it.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import sys
import time
import zlib

from rgt_box import files, landing, procstat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Mapping

    from rgt_wire import JsonObject


OWNER, LOCK, RING = "host.json", "recorder.lock", "ring"
"""Names in a state directory: its owner, its recorder's lock, and its history."""
_NAME = re.compile(r"rgt-box-([0-9a-f]{8,64})\.pyz$")


def state_dir() -> str:
    """Return the directory for the ring, locks and pid files of this host; it need not exist yet.

    ``RGT_STATE_DIR`` is used as it is. Otherwise each host has a directory below ``~/.cache/rgt``,
    named after its host name and machine id, so that history survives a reboot or container
    restart. If another live host has the same name, as with two containers with ``--network host``,
    the directory is for this boot only.
    """
    own = os.environ.get("RGT_STATE_DIR")
    if own:
        return own
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    base = os.path.join(cache, "rgt")
    mine = host_identity()
    usual = os.path.join(base, "host-" + mine["host"])
    for folder in _host_folders(base):
        # The owner file decides, not the name: another live host may have taken the usual one.
        if files.read_json(os.path.join(folder, OWNER), 4096) == mine:
            return folder
    # An existing directory belongs to an earlier boot, unless its recorder is alive.
    if not files.is_locked(os.path.join(usual, LOCK)):
        return usual
    return f"{usual}-{zlib.crc32(repr(sorted(mine.items())).encode()):08x}"


def claim_state_dir(folder: str) -> None:
    """Mark a state directory as this host's; the caller must hold its lock.

    Raises:
        OSError: It cannot be written.
    """
    if files.read_json(os.path.join(folder, OWNER), 4096) != host_identity():
        files.write_json(os.path.join(folder, OWNER), host_identity())


def neighbours(folder: str) -> list[str]:
    """Return the state directories of other hosts next to this one; [] with ``RGT_STATE_DIR``."""
    if os.environ.get("RGT_STATE_DIR"):
        return []
    if os.path.basename(folder).startswith("host-"):
        base = os.path.dirname(folder)
    else:
        base = folder
    return [path for path in _host_folders(base) if path != folder]


def host_identity() -> JsonObject:
    """Return what identifies this host's current life: its name, boot and PID namespace."""
    name = os.uname().nodename
    machine = files.read_file("/etc/machine-id", 256) or b""
    # Cloned images share the machine ID, containers the host name: only both together keep them
    # apart.
    number = zlib.crc32(os.fsencode(name) + b"\0" + machine.strip())
    return {
        "host": "{}-{:08x}".format(re.sub(r"[^\w.\-]", "_", name)[:40] or "unnamed", number),
        "boot": boot_id(),
        "processes": namespace(),
    }


def namespace() -> int:
    """Return the number of this process's PID namespace, which differs between containers.

    0 if unknown.
    """
    try:
        return os.stat("/proc/self/ns/pid").st_ino
    except OSError:
        return 0


def _host_folders(base: str) -> list[str]:
    try:
        return sorted(
            os.path.join(base, name) for name in os.listdir(base) if name.startswith("host-")
        )
    except OSError:
        return []


def code_root() -> str:
    """Return the zipapp this code was loaded from, or the package's parent directory."""
    return os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def agent_digest() -> str:
    """Return the content hash in the zipapp's file name; ``dev`` in a source tree."""
    match = _NAME.search(code_root())
    if match:
        return match.group(1)
    return "dev"


def agent_command(*words: str) -> list[str]:
    """Return the command line that starts another agent process of the same code.

    ``-I -S``: the user's environment must not shadow the standard library, and ``site`` costs start
    time. ``-Xutf8``: names are UTF-8, and other bytes are kept, in any locale.
    """
    path = code_root()
    if os.path.isdir(path):
        # A directory is started by its ``__main__.py``, as the zipapp is.
        path = os.path.join(path, "rgt_box")
    return [sys.executable or "python3", "-I", "-S", "-Xutf8", path] + list(words)


def boot_id() -> str:
    """Return an ID of this boot: the kernel's boot id joined with the start time of pid 1.

    A container that is restarted on a running kernel keeps the kernel's id but gets a new pid 1.
    Two containers that start in the same tick (a hundredth of a second) have the same ID;
    `boot_and_namespace` distinguishes them. ``RGT_BOOT_ID`` overrides it to simulate a reboot.
    """
    forced = os.environ.get("RGT_BOOT_ID")
    if forced:
        return forced
    kernel = (procstat.read_bytes("/proc/sys/kernel/random/boot_id", 64) or b"unknown").decode(
        "ascii", "replace"
    )
    first = procstat.read_stat(1)
    return f"{kernel.strip().replace('-', '')[:16]}-{first.start if first else 0:x}"


def boot_and_namespace() -> str:
    """Return the boot ID and PID namespace in one string, cached because they do not change."""
    return _cached_boot_and_namespace(os.environ.get("RGT_BOOT_ID"))


@functools.lru_cache(maxsize=4)
def _cached_boot_and_namespace(forced: str | None) -> str:
    return "%s\0%d" % (boot_id(), namespace())


NAMES = (
    "RUNPOD_POD_ID",  # docs.runpod.io/pods/templates/environment-variables, 2026-11
    "CONTAINER_ID",  # vast.ai: docs.vast.ai/guides/instances/docker-environment, 2026-11
    "VAST_CONTAINERLABEL",  # the same page: "C." and the id
    "FEATURIZE_INSTANCE_ID",  # PyPI featurize 0.0.27, 2026-11
    "SLURM_JOB_ID",  # sbatch(1), "OUTPUT ENVIRONMENT VARIABLES"
)
"""Variables with the instance's id, and the source of that. No other variables are read."""
VALUE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:\-]{0,127}")
"""Valid form of an id; other values are ignored."""
POD = re.compile(r"(?:/pods/|pod)([0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12})(?=[/.\s]|$)")
"""The UID of a Kubernetes pod, as in the kubelet's directories and control groups."""
JOB = re.compile(r"/slurm\S*/job_(\d{1,18})(?=[/\s]|$)")
"""A job in a control group of Slurm's daemon."""
FIRST, GROUPS, MOUNTS = "/proc/1/environ", "/proc/self/cgroup", "/proc/self/mountinfo"


def box_identity(
    own: Mapping[str, str] | None = None, files: Mapping[str, bytes] | None = None
) -> dict[str, str]:
    """Return name → value of everything that identifies this instance.

    Values written by a daemon (control groups, mounts) take precedence over the environment of the
    first process, and that over our own.

    Args:
        own: Environment of this process; None for the actual one.
        files: Path → content, used instead of the real files.
    """

    def read_path(path: str) -> bytes:
        return (procstat.read_whole(path) if files is None else files.get(path)) or b""

    found: dict[str, str] = {}
    # The later one overwrites: process 1 got its variables from the platform, we from a login.
    for environment in (
        os.environ if own is None else own,
        procstat.split_environment(read_path(FIRST)),
    ):
        for name in NAMES:
            value = environment.get(name, "")
            if VALUE.fullmatch(value):
                found[name] = value
    groups = read_path(GROUPS).decode("utf-8", "replace")
    told = {
        "SLURM_JOB_ID": _common_value(JOB.findall(groups)),
        # With cgroup namespaces the path is only "/", so the mounts are the second source.
        "pod_uid": _common_value(POD.findall(groups))
        or _common_value(_mounted_pods(read_path(MOUNTS).decode("utf-8", "replace"))),
    }
    found.update({name: value for name, value in told.items() if value is not None})
    return found


def _mounted_pods(table: str) -> list[str]:
    """Return the pods whose directories are mounted here under other names, as inside a pod.

    On a node itself they have their own names.
    """
    found: list[str] = []
    for line in table.splitlines():
        row = line.split(" ")
        if len(row) > 4 and "/pods/" not in row[4]:
            found += POD.findall(row[3])
    return found


def _common_value(values: list[str]) -> str | None:
    """Return the common value if all are equal; None if they differ."""
    different = {value.replace("_", "-") for value in values}
    if len(different) == 1:
        return different.pop()
    return None


_TEMPORARY = re.compile(r"rgt-tmp-(\d+)-(\d+)-(\d+)-\w+")
"""With the PID namespace, the pid, and its start time in ticks."""


def make_folder() -> str:
    """Create an empty directory and return its path; remove those of killed processes.

    Raises:
        OSError: It cannot be created.
    """
    import tempfile  # here: few verbs need it

    remove_leftovers()
    pid = os.getpid()
    # Containers may share /tmp, so a pid is unique only together with its namespace.
    owner = namespace(), pid, procstat.start_ticks(pid) or 0
    return tempfile.mkdtemp(prefix="rgt-tmp-%d-%d-%d-" % owner)


def list_own_folders() -> list[str]:
    """Return the existing ones that are not links and that only this user can access."""
    import tempfile

    folder = tempfile.gettempdir()
    try:
        names = os.listdir(folder)
    except OSError:
        return []
    paths = [os.path.join(folder, name) for name in names if _TEMPORARY.fullmatch(name)]
    return [path for path in paths if landing.is_private(path)]


def remove_leftovers() -> None:
    """Remove those whose process has ended."""
    for path in list_own_folders():
        if _is_left(path):
            import shutil  # here: it loads three compressors

            shutil.rmtree(path, ignore_errors=True)


def _is_left(path: str) -> bool:
    match = _TEMPORARY.fullmatch(os.path.basename(path))
    if match is None:
        return False
    home, pid, ticks = map(int, match.groups())
    if home == namespace():
        return not procstat.is_alive(pid, ticks)
    with contextlib.suppress(OSError):
        # Seconds after which a directory of another container is removed: whether its process is
        # alive is not visible from here.
        kept_s = 86400.0
        return time.time() - os.stat(path).st_mtime > kept_s
    return False
