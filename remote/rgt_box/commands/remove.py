"""The ``remove`` verb: removes rgt or old agents from this box; never jobs, results or checkpoints.

It first looks for anything that still refers to rgt's files: processes, Slurm jobs, Pods, cron and
batch scripts.

A runner, a queued job array or a Pod executes the file it was started with, perhaps hours from now.
Anything that cannot be checked counts as a reference to all files.
"""

from __future__ import annotations

import os
import re
import stat
import sys

from rgt_box import background, files, jsonline, landing, options, place, procstat
from rgt_box.autostop import armed_plan
from rgt_box.queue import detach, queue_file, queue_state
from rgt_box.recorder import control, state_files
from rgt_box.sampling import disks

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterator, NamedTuple

    from rgt_wire import JsonObject

    class FileReference(NamedTuple):
        """A reference to a file."""

        file: str
        """The file's name without the directory."""
        who: str
        """Description of what refers to it."""
        verb: str
        """The agent verb that runs there; "slurm" or "pod" for jobs; "" for everything else."""
        pid: int = 0
        """0 if it is not a process."""
else:
    from collections import namedtuple

    FileReference = namedtuple("FileReference", "file who verb pid", defaults=(0,))


LONGEST = 1 << 20
POD = "/var/run/secrets/kubernetes.io/serviceaccount"
UNCONFIGURED = "configuration source"
"""Part of the error of Slurm clients that were never configured."""


def find_references(
    paths: list[str], jobs: list[str], texts: tuple[str, ...] = ()
) -> tuple[list[FileReference], list[str]]:
    """Return what refers to these files, and what could not be checked.

    Args:
        paths: The files. Each name contains a hash, so the name alone identifies the file in this
            user's scripts, independent of the working directory.
        jobs: Job directories.
        texts: Additional texts to search for as they are: absolute paths whose last part is not
            unique.
    """
    names = sorted({os.path.basename(path) for path in paths} | set(texts))
    found = list(_processes(paths, texts))
    doubts: list[str] = []
    for job in jobs:
        found += _batch_script(job, names)
    # A job that waits has no process yet, and its script is kept by Slurm.
    if background.which("squeue"):
        found += _slurm_references(names, doubts)
    if background.which("kubectl") and _has_cluster():
        text = _try_program(["kubectl", "get", "jobs,pods", "-o", "json", "--request-timeout=5s"])
        if text is None:
            doubts.append(
                "kubectl is installed, but Kubernetes does not list the commands of its Pods"
            )
        found += [
            FileReference(name, "a Kubernetes Job or Pod", "pod")
            for name in names
            if name in (text or "")
        ]
    if background.which("crontab"):
        text = _try_program(["crontab", "-l"]) or ""  # it also fails if there is no crontab
        found += [FileReference(name, "the crontab", "") for name in names if name in text]
    return found, doubts


def _has_cluster() -> bool:
    """Return whether kubectl has a cluster configured: many boxes have only the program."""
    usual = os.path.join(os.path.expanduser("~"), ".kube", "config")
    return bool(os.environ.get("KUBECONFIG")) or os.path.exists(usual) or os.path.exists(POD)


def why_maybe_shared(folder: str, own: str) -> str | None:
    """Return why other hosts may execute files of a directory; None if nothing suggests it.

    Args:
        folder: The directory that they would share.
        own: This host's own directory below it.
    """
    table = disks.mount_table()
    mount, kind = disks.find_mount(disks.resolve_links(folder, table), table)
    if kind not in disks.LOCAL:
        return (
            f"{folder} is on {kind or 'an unknown file system'} ({mount}), which other hosts "
            "may share"
        )
    try:
        others = [name for name in sorted(os.listdir(folder)) if name.startswith("host-")]
    except OSError:
        return None
    others = [name[5:] for name in others if os.path.join(folder, name) != own]
    if others:
        return f"another host has its history there: {', '.join(others[:3])}"
    return None


def _processes(paths: list[str], texts: tuple[str, ...]) -> Iterator[FileReference]:
    mine = set(_with_ancestors(os.getpid()))
    for entry in os.listdir("/proc"):
        if not entry.isdigit() or int(entry) in mine:
            continue
        pid = int(entry)
        words = procstat.read_cmdline(pid, LONGEST)
        if _is_landing(words):
            continue
        environment = (procstat.read_bytes("/proc/%d/environ" % pid, LONGEST) or b"").decode(
            "utf-8", "replace"
        )
        for text in texts:
            if any(
                _names_path(word, text)
                for word in (*words, environment, *_absolute_arguments(pid, words, text))
            ):
                yield FileReference(text, "process %d" % pid, "", pid)
        for path in paths:
            name = os.path.basename(path)
            verb = ""
            for at, word in enumerate(words):
                if word.endswith(name) and _is_same_file(
                    pid, word, path
                ):  # otherwise a shell only mentions it
                    verb = ""
                    if at + 1 < len(words):
                        verb = words[at + 1]
                    break
            else:
                text = " ".join(words) + " " + environment
                if name in text:
                    tokens = re.findall(rf"[^\s'\"=:]*{re.escape(name)}", text)
                else:
                    tokens = []
                if not any(_is_same_file(pid, token, path) for token in tokens):
                    continue
            yield FileReference(
                name, "process %d%s" % (pid, f" ({verb})" if verb else ""), verb, pid
            )


def _is_landing(words: list[str]) -> bool:
    """Return whether a process is a client checking for its agent (``landing.py``), in any home.

    It exits at once, and a client that finds its agent missing uploads it again.
    """
    return any(
        words[at] in ("look", "write")
        and ZIPAPP.match(words[at + 1])
        and DIGEST.match(words[at + 2])
        for at in range(len(words) - 2)
    )


def _names_path(said: str, text: str) -> bool:
    """Return whether an absolute path, or a path below it, occurs in a text."""
    return text in said and re.search(rf"{re.escape(text)}(?![\w.\-])", said) is not None


def _absolute_arguments(pid: int, words: list[str], text: str) -> list[str]:
    """Return arguments that may be relative paths to `text`, as absolute paths."""
    near = [word for word in words if os.path.basename(text) in word and not word.startswith("/")]
    try:
        return [
            os.path.normpath(os.path.join(os.readlink("/proc/%d/cwd" % pid), word)) for word in near
        ]
    except OSError:
        return []


def _is_same_file(pid: int, text: str, path: str) -> bool:
    """Return whether a path used by a process is this file, not the same version elsewhere."""
    if text.startswith("/"):
        seen = "/proc/%d/root%s"
    else:
        seen = "/proc/%d/cwd/%s"
    try:
        return os.path.samefile(seen % (pid, text), path)
    except OSError as error:
        # The path cannot be resolved for that process. Then a process of this user counts as a
        # reference. But if the path is missing in our own root too, it is not another name of an
        # existing file.
        try:
            gone = (
                isinstance(error, FileNotFoundError)
                and text.startswith("/")
                and os.path.exists(path)
            )
            if gone and os.path.samefile("/proc/%d/root" % pid, "/"):
                return False
            return os.stat("/proc/%d" % pid).st_uid == os.geteuid()
        except OSError:
            return False


def _with_ancestors(pid: int) -> Iterator[int]:
    """Yield a process and its ancestors: the shell that started it mentions the file too."""
    while pid > 1:
        yield pid
        stat = procstat.read_stat(pid)
        if stat is None:
            pid = 0
        else:
            pid = stat.ppid


def _batch_script(job: str, names: list[str]) -> list[FileReference]:
    folder = os.path.abspath(os.path.expanduser(job))
    state = files.read_json(os.path.join(folder, "state.json")) or {}
    if state.get("done"):
        return []
    path = os.path.join(folder, detach.SCRIPT)
    text = (files.read_file(path, LONGEST) or b"").decode("utf-8", "replace")
    return [
        FileReference(name, f"{path}, whose queue is not finished", "")
        for name in names
        if name in text
    ]


def _slurm_references(names: list[str], doubts: list[str]) -> Iterator[FileReference]:
    try:
        status, text, words = detach.run_slurm_program(
            ["squeue", "-h", "-u", "%d" % os.getuid(), "-o", "%A"], "/"
        )
    except detach.SlurmRefused as error:
        status, text, words = 1, "", str(error)
    if status:
        # A box with Slurm's programs but no cluster has no jobs that could refer to anything.
        if UNCONFIGURED not in words:
            doubts.append("Slurm does not list waiting jobs")
        return
    jobs = sorted(set(text.split()))
    most_jobs = 200
    if len(jobs) > most_jobs:
        doubts.append("you have %d Slurm jobs, too many to check each of them" % len(jobs))
    for job in jobs[:most_jobs]:
        script = _try_program(["scontrol", "write", "batch_script", job, "-"])
        if script is None:
            doubts.append(f"Slurm does not show the script of job {job}")
            continue
        for name in names:
            if name in script:
                yield FileReference(name, f"Slurm job {job}", "slurm")


def _try_program(words: list[str]) -> str | None:
    try:
        seconds = 10.0
        return background.try_program(words, seconds)
    except TimeoutError:
        return None


HELP = """
usage: remove [--old] [--dry-run] [--job DIR]...

Stop the recorder of this host, and remove its history, what rgt keeps in the state directory, and the files of agent
and trainer. Anything else there is left alone. Job directories, results and checkpoints are not touched.

Nothing is removed while a queue runs or waits here, another rgt is watching, or the box is armed to stop itself. A file
that a process, a Slurm job, a Pod, cron or the batch script of an unfinished job may refer to is kept. So are all
agents where other hosts may share them, or where one of these cannot be checked.

  --old       only agents of other versions than this one
  --dry-run   only say what would be removed
  --job DIR   a job directory that may refer to an agent

Prints a JSON line per item: path, bytes, what, kept (why it stays; null = it goes); then {"refused": [...], "failed":
[...], "bytes": removed}.

Exit status: 0 all of it is gone (or would be), 1 something stays, 2 the command line is wrong.
"""
ZIPAPP = re.compile(r"rgt-(box|train)-[0-9a-f]{16}\.pyz$")
STATE = re.compile(
    r"(?:recorder\.(?:lock|json)|recorder-config\.json|watch-\d+\.json|pynvml-.*\.pyc|hashes\.jsonl"
    r"|mirror-.*\.lock|seal\.lock"
    r"|autostop(?:-state|-stop)?\.json|autostop(?:-stop)?\.lock|autostop\.jsonl|sink\.json"
    r"|found\.json|mirrors\.json|job-env\.json|xid\.json|host\.json|env-\d+"
    r"|probe)(?:\.tmp-[\da-f-]+)?|rgt-(?:box|train)-.*\.tmp"
)
DIGEST = re.compile(r"[0-9a-f]{64}$")
RING = re.compile(r"\d+\.seg|spare-\d+")


def main(argv: list[str]) -> int:
    """Run the verb; returns the exit status."""
    found = options.parse_or_exit(
        argv, {"--old": "flag", "--dry-run": "flag", "--job": "list"}, HELP
    )
    sys.dont_write_bytecode = True  # otherwise .pyc files would be written again at the end
    state = place.state_dir()
    packed = list(find_zipapps([landing.agent_home(), *landing.spare_folders()]))
    # Before the recorder is stopped: a refusal must leave everything as it is.
    naming, doubts = find_references(packed, found["job"])
    if found["old"]:
        refused = []
    else:
        refused = [*find_live_work(naming, found["job"]), *find_armed_stops(state)]
        refused += find_start_hook()
    shared = why_maybe_shared(landing.agent_home(), state)
    own = os.path.basename(place.code_root())
    # The recorder is stopped first, so its reference does not count.
    if found["old"]:
        recorder = 0
    else:
        recorder = find_recorder_pid(state)
    if (
        not refused
        and not found["old"]
        and not found["dry-run"]
        and not control.stop_recorder(state)
    ):
        refused = ["the recorder of this host did not stop"]
    if found["old"]:
        rows = []
    else:
        rows = [*list_rgt_files(state, bool(shared)), *list_other_hosts(state)]
    for path in packed:
        name = os.path.basename(path)
        if not found["old"] or (name.startswith("rgt-box-") and name != own):
            who = [
                namer.who
                for namer in naming
                if namer.file == name and not 0 < namer.pid == recorder
            ]
            in_home = path.startswith(landing.agent_home() + os.sep)
            doubt = ([shared] if shared and in_home else []) + doubts
            why = "; ".join(["in use by " + text for text in who[:3]] or doubt[:1])
            rows.append(
                item_row(
                    path, "the agent" if name.startswith("rgt-box-") else "the trainer", why or None
                )
            )
            rows += [
                item_row(code, "its compiled modules") for code in find_compiled_code(path)
            ]  # nothing depends on them
    failed: list[str] = []
    gone = 0
    for item in rows:
        if refused or found["dry-run"] or item["kept"] or remove_item(item["path"], failed):
            gone += 0 if item["kept"] or refused else item["bytes"]
        jsonline.print_frame(item)
    if not refused and not found["dry-run"] and not found["old"]:
        for folder in own_folders_innermost_first(state):
            _remove_empty_folder(folder)
    jsonline.print_frame({"refused": refused, "failed": failed, "bytes": gone})
    if refused or failed or any(item["kept"] for item in rows):
        return 1
    return 0


def find_recorder_pid(state: str) -> int:
    """Return the pid of this host's recorder; 0 if none runs."""
    found = control.live_status(state) or {}
    return int(found.get("pid") or 0)


def find_live_work(naming: list[FileReference], jobs: list[str]) -> Iterator[str]:
    """Yield what prevents removing anything: a running queue, or another rgt that is connected."""
    for job in jobs:
        if queue_state.is_runner_alive(queue_file.Job(job)):
            yield f"the queue in {job} is running"
    for namer in naming:
        if namer.verb in ("slurm", "pod") and namer.file.startswith("rgt-box-"):
            yield f"{namer.who} will run the agent when its turn comes"
        elif namer.verb == "watch":
            yield f"another rgt is watching this box ({namer.who}): quit it first"
        elif namer.verb not in ("", "record") and namer.file.startswith("rgt-box-"):
            yield f"the agent is busy: {namer.who}"


def find_start_hook() -> list[str]:
    """Return why rgt must stay: a hook starts it with the box, and would fail from then on."""
    script = os.path.join(os.path.expanduser("~"), ".config", "rgt", "on-start", "on-start.sh")
    if os.path.exists(script):
        return [f"{script} continues queues after a restart: first rgt run BOX --on-start remove"]
    return []


def find_armed_stops(state: str) -> Iterator[str]:
    """Yield armed stops, which prevent removal.

    Without the agent the box would not park itself, and billing would continue.
    """
    for mode in armed_plan.load_plans(state):
        yield (
            f"the box is armed to stop itself ({mode}): disarm it first (rgt autostop BOX --disarm)"
        )


def find_zipapps(places: list[str]) -> Iterator[str]:
    """Yield the agent and trainer files in these directories."""
    for folder in places:
        for name in _list_names(folder):
            path = os.path.join(folder, name)
            if ZIPAPP.match(name) and _is_own(path, stat.S_ISREG):
                yield path


def find_compiled_code(path: str) -> Iterator[str]:
    """Yield the cached code files of an agent, which avoid compiling it at each start."""
    folder, name = os.path.split(path)
    for other in _list_names(folder):
        beside = os.path.join(folder, other)
        if (
            other.startswith(name[: -len("pyz")])
            and other.endswith(".code")
            and _is_own(beside, stat.S_ISREG)
        ):
            yield beside


def list_rgt_files(state: str, shared: bool) -> Iterator[JsonObject]:
    """Yield the files of the recorder and the verbs: the history as one row, others one row each.

    Args:
        state: This host's state directory.
        shared: Other hosts may use the same home directory. Files directly in rgt's home, left by
            an older rgt, may then be theirs, as when another recorder still writes there.
    """
    old = landing.agent_home()
    theirs = shared or files.is_locked(os.path.join(old, place.LOCK))
    for folder in dict.fromkeys(
        [*state_files.state_folders(state), *([] if theirs else [old]), *landing.spare_folders()]
    ):
        ring = os.path.join(folder, "ring")
        if _is_own(ring, stat.S_ISDIR) and _list_names(ring):
            yield item_row(ring, "the history")
        for name in _list_names(folder):
            path = os.path.join(folder, name)
            if STATE.fullmatch(name) and (
                _is_own(path, stat.S_ISREG) or _is_own(path, stat.S_ISFIFO)
            ):
                yield item_row(path, "its notes")


def list_other_hosts(state: str) -> Iterator[JsonObject]:
    """Yield other hosts' histories in this home directory; only those hosts may remove them."""
    for name in _list_names(landing.agent_home()):
        path = os.path.join(landing.agent_home(), name)
        if name.startswith("host-") and path != state and _is_own(path, stat.S_ISDIR):
            size = item_row(os.path.join(path, "ring"), "")["bytes"]
            yield dict(item_row(path, "the history", f"it belongs to {name[5:]}"), bytes=size)


def own_folders_innermost_first(state: str) -> list[str]:
    """Return rgt's directories, innermost first; only empty ones are removed."""
    found = dict.fromkeys(
        [*state_files.state_folders(state), landing.agent_home(), *landing.spare_folders()]
    )
    return [path for folder in found for path in (os.path.join(folder, "ring"), folder)]


def item_row(path: str, what: str, kept: str | None = None) -> JsonObject:
    """Return the printed row of one item."""
    paths = [os.path.join(path, name) for name in _list_names(path) if RING.fullmatch(name)] or [
        path
    ]
    size = 0
    for one in paths:
        try:
            # What becomes free: a sparse or compressed file takes less than its length.
            size += os.lstat(one).st_blocks * 512
        except OSError:
            pass
    return {"path": path, "bytes": size, "what": what, "kept": kept}


def remove_item(path: str, failed: list[str]) -> bool:
    """Remove a file, or the segments of a ring; returns False on failure."""
    inside = [os.path.join(path, name) for name in _list_names(path) if RING.fullmatch(name)]
    for one in inside if _is_own(path, stat.S_ISDIR) else [path]:
        try:
            os.unlink(one)
        except FileNotFoundError:
            pass  # it is already gone
        except OSError as error:
            failed.append(f"{error.filename or path}: {error.strerror}")
            return False
    return True


def _list_names(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []


def _is_own(path: str, kind: Any) -> bool:
    """Return whether a path is of a kind, owned by this user, and not a link."""
    try:
        there = os.lstat(path)
    except OSError:
        return False
    # In a shared directory such as /tmp, another user can put a file of our name there.
    return bool(kind(there.st_mode)) and there.st_uid == os.geteuid()


def _remove_empty_folder(folder: str) -> None:
    try:
        os.rmdir(folder)
    except OSError:
        pass  # it holds another program's files, or is already gone
