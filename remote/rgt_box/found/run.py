"""One found run as the recorder keeps it, and as it stands in ``found.json``."""

from __future__ import annotations

from rgt_box import jsonline

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

LISTS = ("logs", "files", "dirs", "notes", "pids", "lives")
MOST_LIVES = 20
FIELDS = (
    "name", "key", "pid", "ticks", "started", "command", "why", "cwd", "user", "session", "place", "pane", "socket",
    "silent", "deleted", "seen", "ended", "exit_code", "outcome", *LISTS,
)  # fmt: skip


class Run:
    """A training, alive or ended.

    Attributes:
        name: What it is called; the same after a restart.
        key: See `naming.key`.
        pid, ticks: Its root, which the two identify.
        started: When that began, epoch seconds.
        command: Its command line, without secrets.
        why: What told that it trains.
        cwd, user: None where they could not be read.
        session, place: What it lives in, see `session.Life`.
        pane, socket: tmux's.
        silent: Why it has no log, in words, or "".
        deleted: Log → the name that it had before it was deleted.
        logs, files, dirs: Logs, open files of metrics, and directories that it is told to write to.
        notes: What could not be found out, in words.
        pids: Its processes, the root first.
        seen: When it was last seen alive.
        ended: When it was found to be gone; None while it lives.
        lives: (start, end) of the same training before it was started again, the oldest first.
        exit_code: None: only a process's parent learns it. Slurm tells that of its jobs.
        outcome: Slurm's word for how the job ended, such as TIMEOUT; None where nobody says one.
    """

    __slots__ = FIELDS

    def __init__(self, name: str, key: int, pid: int, ticks: int, started: float) -> None:
        self.name, self.key, self.pid, self.ticks, self.started = name, key, pid, ticks, started
        self.command = self.why = self.silent = ""
        self.session = "unknown"
        self.cwd: str | None = None
        self.user: str | None = None
        self.place: str | None = None
        self.pane: str | None = None
        self.socket: str | None = None
        self.deleted: dict[str, str] = {}
        self.logs: list[str] = []
        self.files: list[str] = []
        self.dirs: list[str] = []
        self.notes: list[str] = []
        self.pids: list[int] = [pid]
        self.lives: list[list[float]] = []
        self.seen = started
        self.ended: float | None = None
        self.exit_code: int | None = None
        self.outcome: str | None = None

    def succeed(self, old: Run) -> None:
        """Take over what is known of the same training before it was started again."""
        self.lives = (old.lives + [[old.started, old.seen if old.ended is None else old.ended]])[-MOST_LIVES:]
        self.files = list(old.files)

    def lived(self, at: float, slack: float, late: float) -> bool:
        """Tell whether it ran at a time, or up to `slack` seconds before it began and `late` after its end."""
        lives = self.lives + [[self.started, self.ended or float("inf")]]
        return any(start - slack <= at <= end + late for start, end in lives)

    @property
    def since(self) -> float:
        """When it was started for the first time."""
        return self.lives[0][0] if self.lives else self.started

    def as_dict(self) -> dict[str, Any]:
        """Return it as JSON can hold it."""
        return jsonline.compact({field: getattr(self, field) for field in FIELDS})


def load(raw: Any) -> Run | None:
    """Return a run of ``found.json``; None for what makes no sense."""
    if not isinstance(raw, dict) or not isinstance(raw.get("name"), str):
        return None
    key, pid, ticks, started = (raw.get(field) for field in ("key", "pid", "ticks", "started"))
    if not (isinstance(key, int) and isinstance(pid, int) and isinstance(ticks, int)):
        return None
    run = Run(raw["name"], key, pid, ticks, float(started) if isinstance(started, (int, float)) else 0.0)
    for field in FIELDS:
        have, value = getattr(run, field), raw.get(field)
        if value is not None and (have is None or isinstance(value, type(have)) or isinstance(have, float)):
            setattr(run, field, value)
    return run


def summary(run: Run) -> str:
    """Return a run in one line, for an event."""
    where = " in %s" % run.cwd if run.cwd else ""
    lives = run.session + (" " + run.place if run.place else "")
    text = "%s: pid %d (%s)%s: %s; found because %s" % (run.name, run.pid, lives, where, run.command, run.why)
    return text + ("; log %s" % run.logs[0] if run.logs else "")
