"""The ``on-start`` verb: a hook by which this box continues its queues after a restart.

The hook runs a script of ours, next to a copy of the agent. It starts the queues that were launched
here, or that the script names, as `launch` does: a runner that is alive is left alone, a cell
continues from its checkpoint.
"""

from __future__ import annotations

import os
import re
import shlex
import stat
import sys
import time

from rgt_box import background, files, jsonline, options, place, procstat
from rgt_box.background import error_text
from rgt_box.queue import job_making, launch, queue_file, queue_state
from rgt_box.recorder import control, state_files

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from rgt_wire import JsonObject

HELP = """
usage: on-start [--kinds KIND,...] [--file PATH] [--keep-in DIR] [--job DIR ...] [--install | --remove]
       on-start --run [--job DIR ...] [--wait S]

Show, install or remove the hook by which this box continues its queues after a restart; --run is what the hook runs.

  --kinds KIND,...  hooks that the platform offers, the best first; the first that this box has is used:
                    file (a script that the platform runs), command (set in its console), systemd, cron
  --file PATH       for file: that script
  --keep-in DIR     where the hook's script and a copy of the agent are kept (default: ~/.config/rgt/on-start)
  --job DIR         a queue of this box, besides those that were launched here (may be repeated)
  --wait S          seconds for which a queue that cannot start yet is tried again (default: 300)

Prints {"kind", "where", "lines", "installed", "by_hand", "jobs", "problems"} as a JSON line; --run one line per queue.

Exit status: 0 done, 1 no hook is possible, or a queue did not start, 2 wrong command line.

Example: on-start --kinds systemd,cron --install
"""
SPEC = {
    "--kinds": "str", "--file": "str", "--keep-in": "str", "--job": "list", "--install": "flag",
    "--remove": "flag", "--run": "flag", "--wait": "float",
}  # fmt: skip
OK, FAILED = 0, 1
BEGIN, END, MADE = "# >>> rgt on-start >>>", "# <<< rgt on-start <<<", " (rgt made this file)"
SHEBANG = "#!/bin/bash\n"
UNIT = "rgt-on-start.service"
SCRIPT = "on-start.sh"
PASSED_ON = (
    "HOME", "PATH", "LD_LIBRARY_PATH", "LANG", "LC_ALL", "CUDA_HOME", "XDG_CACHE_HOME",
    "XDG_CONFIG_HOME", "RGT_STATE_DIR",
)  # fmt: skip
"""Variables that a hook's environment lacks, and that hold no secrets."""


def main(argv: list[str]) -> int:
    """Run the verb; return the exit status."""
    found = options.parse_or_exit(argv, SPEC, HELP)
    jobs = [os.path.abspath(os.path.expanduser(job)) for job in found["job"]]
    if found["run"]:
        wait_s = 300.0
        if found["wait"] is not None:
            wait_s = found["wait"]
        return continue_queues(jobs, wait_s)
    hook = StartHook(
        [kind for kind in (found["kinds"] or "systemd,cron").split(",") if kind],
        found["file"],
        found["keep-in"] or os.path.join(os.path.expanduser("~"), ".config", "rgt", "on-start"),
        jobs,
    )
    problems = []
    try:
        if found["remove"]:
            hook.remove_hook()
        elif found["install"] and hook.kind:
            hook.install_hook()
    except OSError as error:
        problems.append(f"{error.filename or hook.hook_location}: {error_text(error)}")
    except RuntimeError as error:
        problems.append(str(error))
    row = hook.to_row()
    row["problems"] += problems
    jsonline.print_frame(row)
    if row["problems"]:
        return FAILED
    return OK


class StartHook:
    """The hook of this box.

    Args:
        kinds: What the platform offers, the best first.
        file: The script that the platform runs, for ``file``.
        folder: Where our script and the copy of the agent are.
        jobs: Queues that the script names.

    Attributes:
        kind: The hook that is used; "" if this box has none of them.
    """

    def __init__(self, kinds: list[str], file: str | None, folder: str, jobs: list[str]) -> None:
        self._file = file or ""
        self._folder = folder
        self._jobs = list(dict.fromkeys([*jobs, *state_files.known_launched_jobs()]))
        self.kind = next((kind for kind in kinds if self._is_possible(kind)), "")

    def _is_possible(self, kind: str) -> bool:
        if kind == "file":
            return bool(self._file) and os.path.isdir(os.path.dirname(self._file))
        if kind == "systemd":
            if not os.path.isdir("/run/systemd/system") or background.which("systemctl") is None:
                return False  # sd_booted(3)
            # A user's units only run without a login once the user lingers, which may be refused.
            return os.geteuid() == 0 or _user_lingers() or not self._is_possible("cron")
        if kind == "cron":
            return background.which("crontab") is not None and _is_cron_running()
        return kind == "command"

    @property
    def hook_location(self) -> str:
        """Where the hook is."""
        places = {"file": self._file, "systemd": self._unit_path, "cron": "this user's crontab"}
        return places.get(self.kind, "")

    @property
    def _unit_path(self) -> str:
        if os.geteuid() == 0:
            return "/etc/systemd/system/" + UNIT
        return os.path.join(os.path.expanduser("~"), ".config", "systemd", "user", UNIT)

    @property
    def _script_path(self) -> str:
        return os.path.join(self._folder, SCRIPT)

    def hook_lines(self) -> list[str]:
        """Return the lines of the hook."""
        start = "/bin/sh " + queue_file.quote_for_shell(self._script_path)
        if self.kind == "file":
            # In the background, so that the platform's script goes on.
            return [BEGIN, start + " &", END]
        if self.kind == "cron":
            # cron takes an unescaped percent sign as a line end (crontab(5)).
            return ["@reboot " + start.replace("%", "\\%") + "  # rgt on-start"]
        if self.kind == "systemd":
            target = "multi-user.target"
            if os.geteuid():
                target = "default.target"
            return [
                "[Unit]",
                "Description=rgt continues the queues of this machine",
                "Wants=network-online.target",
                "After=network-online.target remote-fs.target",
                "[Service]",
                "Type=oneshot",
                # Otherwise systemd ends the runners with the script that started them.
                "RemainAfterExit=yes",
                "TimeoutStopSec=150",
                "ExecStart=/bin/sh " + _quote_for_unit(self._script_path),
                "[Install]",
                "WantedBy=" + target,
            ]
        return []

    def by_hand(self) -> str | None:
        """Return the start command that only the platform's console can set; None for others."""
        if self.kind != "command":
            return None
        script = queue_file.quote_for_shell(self._script_path)
        usual = " ".join(map(queue_file.quote_for_shell, procstat.read_cmdline(1))) or "/start.sh"
        # The first process gets the platform's SIGTERM: it asks the runs to save.
        taken = f"/bin/sh {script} taken-away RunPod 5; sleep 5"
        line = f"/bin/sh {script} & trap {shlex.quote(taken)} TERM; {usual} & wait $!"
        return "bash -c " + shlex.quote(line)

    def script_text(self, agent: str) -> str:
        """Return our script."""
        quote = queue_file.quote_for_shell
        words = [word for job in self._jobs for word in ("--job", quote(job))]
        exported = [
            f"export {key}={quote(os.environ[key])}" for key in PASSED_ON if os.environ.get(key)
        ]
        rows = [
            "#!/bin/sh",
            (
                "# Written by rgt run --on-start; it rewrites this file. To undo: rgt run BOX "
                "--on-start remove"
            ),
            *exported,
            f"PY={quote(sys.executable or 'python3')}",
            '[ -x "$PY" ] || PY=python3',
            'if [ "$1" = taken-away ]; then set -- record --taken-away "$2" --in "$3"',
            " ".join(["else set -- on-start --run", *words]) + "; fi",
            f'exec "$PY" -I -S -Xutf8 {quote(agent)} "$@" '
            f">>{quote(os.path.join(self._folder, 'on-start.log'))} 2>&1 </dev/null",
            "",
        ]
        return "\n".join(rows)

    def install_hook(self) -> None:
        """Install the hook, or bring it up to date.

        Raises:
            OSError: A file cannot be written.
            RuntimeError: A program refused.
        """
        source = place.code_root()
        if not os.path.isfile(source):
            raise RuntimeError("the agent runs from a source tree, so a hook could not start it")
        os.makedirs(self._folder, mode=0o700, exist_ok=True)
        agent = os.path.join(self._folder, os.path.basename(source))
        if not os.path.exists(agent):
            data = files.read_file(source, 64 << 20)
            if data is None:
                raise OSError(5, "it cannot be read", source)
            files.replace_file(agent, data, sync=True, mode=0o700)
        self._remove_copies(keep=agent)
        text = self.script_text(agent).encode("utf-8", "surrogateescape")
        files.replace_file(self._script_path, text, sync=True, mode=0o700)
        if self.kind == "file":
            change_file(self._file, lambda text: add_block(text, self.hook_lines()))
        elif self.kind == "cron":
            _write_crontab([*self._foreign_rows(), *self.hook_lines()])
        elif self.kind == "systemd":
            os.makedirs(os.path.dirname(self._unit_path), exist_ok=True)
            unit = "\n".join([*self.hook_lines(), ""]).encode("utf-8", "surrogateescape")
            files.replace_file(self._unit_path, unit, sync=True, mode=0o644)
            # Without lingering, a user's units start at the first login, not with the machine.
            if os.geteuid() and not _user_lingers():
                _run_or_raise(["loginctl", "enable-linger"])
            _run_systemctl("daemon-reload")
            _run_systemctl("enable", UNIT)

    def remove_hook(self) -> None:
        """Remove every hook of ours, whichever kind it is, the script and the copy of the agent.

        Raises:
            OSError: A file cannot be written.
            RuntimeError: A program refused.
        """
        if self._file:
            change_file(self._file, remove_block)
        if background.which("crontab") is not None and self._has_cron_row():
            _write_crontab(self._foreign_rows())
        if os.path.exists(self._unit_path):
            _run_systemctl("disable", UNIT)
            files.unlink_if_exists(self._unit_path)
        for name in (SCRIPT, "on-start.log"):
            files.unlink_if_exists(os.path.join(self._folder, name))
        self._remove_copies()
        try:
            os.rmdir(self._folder)
        except OSError:
            pass  # it does not exist, or something uses the copy of the agent

    def _remove_copies(self, keep: str = "") -> None:
        """Remove copies of the agent that no process uses."""
        if not os.path.isdir(self._folder):
            return
        for name in os.listdir(self._folder):
            path = os.path.join(self._folder, name)
            if name.startswith("rgt-box-") and path != keep and not _is_in_use(path):
                files.unlink_if_exists(path)

    def is_installed(self) -> bool:
        """Return whether the hook is in place and starts our script."""
        if not os.path.isfile(self._script_path):
            return False
        if self.kind == "file":
            return "\n".join(self.hook_lines()[1:]) in _read_text(self._file)
        if self.kind == "cron":
            return self.hook_lines()[0] in _read_crontab()
        if self.kind == "systemd":
            return _read_text(self._unit_path) == "\n".join([*self.hook_lines(), ""])
        return self.kind == "command"

    def _has_cron_row(self) -> bool:
        return self._foreign_rows() != _read_crontab()

    @staticmethod
    def _foreign_rows() -> list[str]:
        return [row for row in _read_crontab() if not row.endswith("# rgt on-start")]

    def to_row(self) -> JsonObject:
        """Return the hook as a JSON row."""
        problems = []
        if not self.kind:
            problems.append("this box offers no way to run something when it starts")
        return {
            "kind": self.kind,
            "where": self.hook_location,
            "lines": self.hook_lines(),
            "script": self._script_path,
            "by_hand": self.by_hand(),
            "installed": self.is_installed(),
            "jobs": [{"folder": job, "state": queue_status(job)} for job in self._jobs],
            "problems": problems,
        }


CONTINUES, GONE = "continues", "its directory is gone"


def queue_status(folder: str) -> str:
    """Return what a start of the box does with a queue: `CONTINUES`, or why nothing."""
    job = queue_file.Job(folder)
    if not os.path.isdir(folder):
        return GONE
    state = queue_state.load_state(job)
    if state.get("done"):
        return "done"
    if job_making.is_at_work(job):
        return "alive"
    if not job_making.has_begun(job):
        return "never started"
    # A restart must not continue what a person has ended.
    if state.get("stopped_by") == queue_state.BY_PERSON:
        return "stopped by a person"
    return CONTINUES


def continue_queues(named: list[str], wait_s: float) -> int:
    """Start every queue of this box that was interrupted; return the exit status.

    Args:
        named: Queues, besides those that were launched here.
        wait_s: How long to try a queue again whose disk is not mounted yet, for example.
    """
    print(time.strftime("%Y-%m-%d %H:%M:%S on-start"), flush=True)
    # The recorder first, so that what the queues do from here on is recorded.
    control.ensure_running(place.state_dir())
    deadline = time.monotonic() + wait_s
    left = list(dict.fromkeys([*named, *state_files.known_launched_jobs()]))
    asked = {"from": None, "no-smoke": True, "smoke-seconds": None}
    # A queue that cannot start is tried again after this many seconds.
    pause_s = 5.0
    while left:
        later = []
        for folder in left:
            status = queue_status(folder)
            print(f"{folder}: {status}", flush=True)
            if status == CONTINUES:
                waits = launch.launch_job(queue_file.Job(folder), asked, 0.0) == launch.USAGE
            else:
                # Its disk may be mounted later than this hook runs.
                waits = status == GONE
            if waits:
                later.append(folder)
        left = later
        if not left or time.monotonic() > deadline:
            break
        time.sleep(pause_s)
    if left:
        return FAILED
    return OK


def add_block(text: str, lines: list[str]) -> str:
    """Return a script with the block as its first lines, after ``#!``; an earlier block goes."""
    text = remove_block(text)
    first = lines[0]
    if not text:
        text = SHEBANG
        first = first + MADE
    head = ""
    rest = text
    if text.startswith("#!"):
        head, _, rest = text.partition("\n")
        head += "\n"
    return head + "\n".join([first, *lines[1:], ""]) + rest


def remove_block(text: str) -> str:
    """Return a script without the block; "" if nothing else is in a file that we made."""
    block = re.compile(f"^{re.escape(BEGIN)}.*?^{re.escape(END)}\n", re.S | re.M)
    found = block.search(text)
    if found is None:
        return text
    left = text[: found.start()] + text[found.end() :]
    if found.group().startswith(BEGIN + MADE) and left == SHEBANG:
        return ""
    return left


def change_file(path: str, change: Any) -> None:
    """Replace a script's text, keeping its permissions; remove it if nothing is left.

    Raises:
        OSError: It cannot be read or written.
    """
    # An error here must not look like an empty file: its content would be lost.
    before = (files.read_existing(path) or b"").decode("utf-8", "surrogateescape")
    after = change(before)
    if after == before:
        return
    if not after:
        files.unlink_if_exists(path)
        return
    mode = 0o755
    if os.path.exists(path):
        mode = stat.S_IMODE(os.stat(path).st_mode)
    files.replace_file(path, after.encode("utf-8", "surrogateescape"), sync=True, mode=mode)
    # The umask has narrowed the mode at creation.
    os.chmod(path, mode)


def _read_text(path: str) -> str:
    return (files.read_file(path) or b"").decode("utf-8", "surrogateescape")


def _quote_for_unit(path: str) -> str:
    escaped = path.replace("\\", "\\\\").replace('"', '\\"')
    # systemd.syntax(7) and systemd.unit(5): specifiers begin with a percent sign.
    escaped = escaped.replace("%", "%%").replace("$", "$$")
    return f'"{escaped}"'


def _is_cron_running() -> bool:
    names = ("cron", "crond", "fcron", "anacron", "dcron", "busybox-crond")
    for pid in filter(str.isdigit, os.listdir("/proc")):
        words = procstat.read_cmdline(int(pid))
        if any(os.path.basename(word) in names for word in words[:2]):
            return True
    return False


def _is_in_use(path: str) -> bool:
    return any(
        path in procstat.read_cmdline(int(pid)) for pid in filter(str.isdigit, os.listdir("/proc"))
    )


def _read_crontab() -> list[str]:
    return background.run_program(["crontab", "-l"], 10.0).splitlines()


def _write_crontab(rows: list[str]) -> None:
    import subprocess

    text = "".join(row + "\n" for row in rows)
    words = ["crontab", "-"]
    if not text:
        words = ["crontab", "-r"]
    done = subprocess.run(
        words, input=text.encode("utf-8", "surrogateescape"), stderr=subprocess.PIPE, timeout=10.0
    )
    if done.returncode:
        raise RuntimeError("crontab: " + done.stderr.decode("utf-8", "replace").strip())


def _user_lingers() -> bool:
    import pwd

    try:
        user = pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return False
    return os.path.exists("/var/lib/systemd/linger/" + user)


def _run_systemctl(*words: str) -> None:
    scope = []
    if os.geteuid():
        scope = ["--user"]
    _run_or_raise(["systemctl", *scope, *words])


def _run_or_raise(words: list[str]) -> None:
    import subprocess

    done = subprocess.run(words, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, timeout=60.0)
    if done.returncode:
        text = done.stderr.decode("utf-8", "replace").strip()
        raise RuntimeError(f"{' '.join(words)}: {text or done.returncode}")
