"""Finds, names and remembers the training runs of a box, including those that ended unobserved."""

from __future__ import annotations

import os
import re
import signal
import time

from rgt_box import background, masking, ownership, place, procstat
from rgt_box.discovery import found_run, process_tree, script_look, training_commands
from rgt_box.discovery.found_run import FoundRun, TmuxPanes, describe_run, load_run
from rgt_box.discovery.process_tree import OpenFile, OutputStreams, ProcessNode, ProcessTable
from rgt_box.sampling import processes as cells_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Collection, Mapping

    from rgt_wire import JsonObject

    from rgt_box.streams.job_looks import JobPolls

LOGS, FILES = 4, 200
WANDB_OWN = ("debug.log", "debug-internal.log", "debug-core.log", "core-debug.log")
"""wandb's own log files."""
NO_ACCESS = "its open files cannot be read: it belongs to another user"


def update_run_paths(
    run: FoundRun,
    table: ProcessTable,
    nodes: Mapping[int, ProcessNode],
    below: Mapping[int, list[int]],
) -> None:
    """Update a live run's logs, files and directories.

    Known files are kept: a file that is only briefly open at each write still belongs to the run.
    """
    mine = process_tree.read_open_files(run.pid)
    if mine is None:
        run.notes = [note for note in run.notes if note != NO_ACCESS] + [NO_ACCESS]
        run.silent = NO_ACCESS
        return
    near = _possible_readers(run, table, nodes, below)
    streams = process_tree.follow_streams(
        run.pid, mine, near, {pid: _program_name(nodes[pid]) for pid in near}
    )
    inside = procstat.process_root_prefix(run.pid)
    logs = [
        # A deleted file's path is already one of /proc, which needs no prefix of another root.
        inside + path if path.startswith("/") and path not in streams.deleted else path
        for path in streams.logs
    ]
    run.deleted = dict(streams.deleted)
    for pid in _possible_writers(run, nodes):
        # A tracker's service keeps a log of its own, which is not the training's.
        has_log = pid == run.pid or nodes[pid].kind != "never"
        for item in mine if pid == run.pid else process_tree.read_open_files(pid) or []:
            if has_log or process_tree.is_metrics(item.target):
                _sort_open_file(run, inside, item, logs)
    run.logs = logs[:LOGS]
    _set_option_folders(run, table, inside)
    if logs:
        run.silent = ""
    else:
        run.silent = _why_no_log(run, streams)


def _program_name(node: ProcessNode) -> str:
    if node.words:
        return os.path.basename(node.words[0])
    return ""


def _possible_readers(
    run: FoundRun,
    table: ProcessTable,
    nodes: Mapping[int, ProcessNode],
    below: Mapping[int, list[int]],
) -> list[int]:
    """Return processes that may read the run's output: those of its shell and process group."""
    known = table.find_process(run.pid)
    if known is not None:
        found = table.group_pids(known.stat.group)
    else:
        found = []
    at = 0
    if run.pid in nodes:
        at = nodes[run.pid].ppid
    # `sh -c "python … | tee log"`: the reader of the pipe is a child of the shell.
    while at in nodes and nodes[at].kind == "wrapper":
        found += below.get(at, [])
        at = nodes[at].ppid
    return [pid for pid in dict.fromkeys(found) if pid != run.pid][:64]


def _possible_writers(run: FoundRun, nodes: Mapping[int, ProcessNode]) -> list[int]:
    """Return processes that may write metrics; data loader forks come last."""
    first = [
        pid
        for pid in run.pids
        # The same words as the parent's: a fork, such as a DataLoader worker.
        if pid == run.pid or nodes[nodes[pid].ppid].words != nodes[pid].words
    ]
    # Processes of a run whose files are read per poll: the ranks, rarely more on one box.
    processes = 16
    return (first + [pid for pid in run.pids if pid not in first])[:processes]


def _sort_open_file(run: FoundRun, inside: str, item: OpenFile, logs: list[str]) -> None:
    path = inside + item.target
    if item.fd < 3 or not item.writes or item.deleted or not process_tree.is_file(item):
        return
    if process_tree.is_metrics(item.target):
        if path not in run.files and len(run.files) < FILES:
            run.files.append(path)
    elif (
        process_tree.is_log(item.target)
        and path not in logs
        and "/.cache/" not in path
        and os.path.basename(path) not in WANDB_OWN
    ):
        logs.append(path)


def _set_option_folders(run: FoundRun, table: ProcessTable, inside: str) -> None:
    known = table.find_process(run.pid)
    if known is not None and run.cwd:
        dirs = training_commands.written_dirs(known.command.args, run.cwd)
        run.dirs = [inside + path for path in dirs]


def _why_no_log(run: FoundRun, streams: OutputStreams) -> str:
    """Return why there is no log, and how to get one."""
    if streams.terminal is None:
        return "no log file: %s" % (streams.other or "its output is closed")
    if run.session == "tmux" and run.pane:
        return (
            f"no log file; it prints to tmux pane {run.place or run.pane}, "
            f"whose buffer is shown: use tmux pipe-pane -t {run.pane} 'cat >> FILE' to keep every "
            "line"
        )
    if run.session == "tmux":
        return (
            "no log file; it prints to a tmux of another user or container, which rgt does not "
            "read: use 2>&1 | tee FILE to keep its lines"
        )
    if run.session == "screen":
        how = "C-a H logs a screen window"
    else:
        how = "use 2>&1 | tee FILE to keep its lines"
    return (
        f"no log file: it prints to the terminal {streams.terminal[5:]}, which cannot be read; "
        f"{how}"
    )


PERIOD = 10.0
"""Default of `background.poll_period`."""
MOST, REMEMBERED = 32, 40
"""Maximum live runs shown, and ended runs remembered."""
FORGET = 7 * 86400.0
MAX_COMMAND, MAX_PIDS = 1000, 64
ASK_END = 300.0
"""Seconds after a run's end during which Slurm or the job's queue is queried for the exit."""
RUNNERS = frozenset(("RGT_CELL", "RGT_SMOKE"))
"""Environment variables that a queue runner sets for its processes."""


class TrainingFinder:
    """Polls for training runs at the interval of `background.poll_period`.

    Args:
        pattern: Matches the command line of a training process; None to use rgt's own rules.
        kept: A report of an earlier recorder or configuration.
        jobs: The jobs of this box; None to ignore jobs that no client names.

    Attributes:
        events: Runs found and ended, as ``{"kind", "text", "level"}``; the caller removes them
            after reporting.
        changed: True if `build_report` has changed.
    """

    def __init__(
        self, pattern: re.Pattern[str] | None, kept: Mapping[str, Any], jobs: JobPolls | None = None
    ) -> None:
        self._queued = jobs
        self._every = background.poll_period(PERIOD)
        self._table = ProcessTable(pattern)
        # Factor on the poll interval for tmux: each query starts a process.
        panes = 1.5
        self._panes, self._jobs = (
            TmuxPanes(panes * self._every),
            found_run.SlurmJobs(found_run.SLURM_PERIOD * self._every / PERIOD),
        )
        self._boot = place.boot_id()
        runs = [load_run(raw) for raw in kept.get("runs") or []]
        self._runs = {run.name: run for run in runs if run is not None}
        self._restarted = kept.get("boot") != self._boot
        self._looked = self._said = float("-inf")
        self._asking: set[str] = set()
        self._scripts: dict[tuple[int, int], background.Background] = {}
        self._rows: dict[int, tuple[int, list[str], str]] = {}
        self.events: list[dict[str, str]] = []
        self.changed = bool(self._runs)

    def process_rows(
        self, pids: Collection[int], cells: Mapping[int, str]
    ) -> dict[int, tuple[int, list[str], str]]:
        """Return pid → (start in ticks, command line, run name) of processes worth a row.

        Args:
            pids: PIDs of all current processes.
            cells: Sessions of the queues' running cells, whose processes are not reported as found
                runs.
        """
        now = time.monotonic()
        if now - self._looked >= self._every - min(0.5, self._every / 2):
            self._looked = now
            self._poll_processes(pids, cells)
        return self._rows

    def _poll_processes(self, pids: Collection[int], cells: Mapping[int, str]) -> None:
        before = [self._comparable_state(run) for run in self._runs.values()]
        self._table.update_table(pids)
        nodes = self._table.build_nodes()
        below = process_tree.children_by_pid(nodes)
        for run in self._live_runs():
            known = self._table.find_process(run.pid)
            gone = known is None or known.stat.start != run.ticks
            # Asked once more: the table may have read /proc while the process was being replaced.
            over = self._restarted or (gone and not procstat.is_alive(run.pid, run.ticks))
            if over and not self._awaits_queue(run):
                self._end_run(run)
        self._restarted = False
        self._leave_to_queues(cells)
        self._find_new_runs(nodes, below, cells)
        self._rows = {}
        for run in self._live_runs():
            if run.pid in nodes:
                self._update_run(run, nodes, below)
        self._query_slurm_ends()
        self._drop_old_runs()
        # Seconds between two reports if only the runs' `seen` times have changed.
        say_seen = 300.0
        late = bool(self._live_runs()) and time.monotonic() - self._said > say_seen
        if late or before != [self._comparable_state(run) for run in self._runs.values()]:
            self.changed = True

    def _leave_to_queues(self, cells: Mapping[int, str]) -> None:
        """Drop runs found before their job was named: the queue now reports them and their exit."""
        for run in self._live_runs() if cells else ():
            # A queue has taken it over since, and reports it by itself.
            if cells_of.cell_session(run.pid, cells) is not None:
                del self._runs[run.name]
        if self._queued is not None:
            named = [
                run.name
                for run in self._runs.values()
                if run.job and self._queued.is_named(run.job)
            ]
            for name in named:
                del self._runs[name]

    def _live_runs(self) -> list[FoundRun]:
        return [run for run in self._runs.values() if run.ended is None]

    @staticmethod
    def _comparable_state(run: FoundRun) -> JsonObject:
        return dict(run.as_dict(), seen=None)

    def _find_new_runs(
        self,
        nodes: Mapping[int, ProcessNode],
        below: Mapping[int, list[int]],
        cells: Mapping[int, str],
    ) -> None:
        known: set[int] = set()
        for run in self._live_runs():
            if run.pid in nodes:
                known.update(process_tree.run_members(run.pid, below, nodes))
        if self._queued is not None:
            unnamed = self._queued.unnamed_cells()
        else:
            unnamed = {}
        for pid in self._table.training_pids():
            if pid in known or len(self._live_runs()) >= MOST:
                continue
            root = process_tree.find_root(pid, nodes)
            known.update(process_tree.run_members(root, below, nodes))
            session = cells_of.cell_session(root, {**cells, **unnamed})
            if session in cells or (session not in unnamed and self._is_fresh_cell(root)):
                continue
            new = self._new_run(root, pid, nodes)
            if new is not None:
                if session is not None and session in unnamed:
                    new.job, new.cell = unnamed[session]
                # A restart replaces the old run and moves to the end.
                old = self._runs.pop(new.name, None)
                if old is not None:
                    new.copy_history(old)
                self._runs[new.name] = new

    def _is_fresh_cell(self, root: int) -> bool:
        """Return whether a queue runner started a process just now.

        Its cell is then known at the next poll.

        The environment is not trusted, so it only delays the decision.
        """
        known = self._table.find_process(root)
        age = 0.0
        if known:
            age = time.time() - self._table.boot - known.stat.start / procstat.CLOCK_TICKS
        # Seconds within which a runner has recorded the process of its cell.
        runner_writes_s = 5.0
        if age > max(runner_writes_s, self._every):
            return False
        # Its runner will name it in a moment; until then it is not shown as a run of its own.
        return not RUNNERS.isdisjoint(found_run.read_environment(root) or {})

    def _awaits_queue(self, run: FoundRun) -> bool:
        """Apply the queue's result to an ended run.

        Returns True if the runner has not written the result yet.
        """
        if self._queued is not None and run.job:
            cell = self._queued.find_cell(run.job, run.cell)
        else:
            cell = None
        if cell is None or run.exit_code is not None:
            return False
        if cell.get("state") in ("running", "waiting"):
            again = float(cell.get("started") or 0.0) > run.seen
            return not again and time.time() - run.seen < ASK_END
        if cell.get("signal"):
            # 128 + number, as a shell reports a signal.
            number = getattr(signal, str(cell["signal"]), None)
            run.exit_code = 128 + number if number else 1
        elif cell.get("exit_code") is not None:
            # A result that could not be copied makes a failed cell, although the process exited
            # with 0.
            run.exit_code = cell["exit_code"] or int(cell["state"] != "done")
        if cell.get("reason"):
            run.notes.append(str(cell["reason"]))
        return False

    def _new_run(
        self, root: int, positive: int, nodes: Mapping[int, ProcessNode]
    ) -> FoundRun | None:
        known = self._table.find_process(root)
        other = self._table.find_process(positive)
        if known is None or other is None:
            return None
        try:
            cwd: str | None = os.readlink("/proc/%d/cwd" % root)
        except OSError:
            cwd = None
        taken = {run.name: run.key for run in self._runs.values()}
        alive = {run.name for run in self._live_runs()}
        name = training_commands.choose_run_name(known.command, cwd, taken, alive)
        started = self._table.boot + known.stat.start / procstat.CLOCK_TICKS
        run = FoundRun(
            name,
            training_commands.training_key(known.command, cwd),
            root,
            known.stat.start,
            round(started, 2),
        )
        run.command = " ".join(masking.mask_words(known.words))[:MAX_COMMAND]
        run.why = known.why or other.why
        run.cwd = cwd
        run.roots = found_run.find_output_roots(root)
        run.user = ownership.process_user_name(root)
        if cwd is None:
            run.notes.append(
                "its directory cannot be read: it belongs to %s" % (run.user or "another user")
            )
        lives = found_run.find_session(root, _ancestor_commands(root, nodes))
        run.session, run.place, run.socket, run.pane = lives
        return run

    def _update_run(
        self, run: FoundRun, nodes: Mapping[int, ProcessNode], below: Mapping[int, list[int]]
    ) -> None:
        # So it is only until its first update.
        new = run.seen == run.started
        pids = process_tree.run_members(run.pid, below, nodes)
        run.pids = pids[:MAX_PIDS]
        run.seen = round(time.time(), 2)
        update_run_paths(run, self._table, nodes, below)
        self._panes.add_pane(run, nodes, below)
        self._jobs.add_job_output(run)
        for pid in process_tree.pids_to_show(pids, nodes):
            known = self._table.find_process(pid)
            if known is not None:
                self._rows[pid] = known.stat.start, known.words, run.name
        if run.marks is None:
            self._read_script(run)
        # Seconds after its start during which a run may still start ranks.
        settled = 120.0
        if run.world is None and (new or run.seen - run.started < settled):
            run.world = script_look.find_world_size(run.pids, run.started)
        if new:
            self._add_event("training-found", describe_run(run))
            if run.silent:
                self._add_event("no-log", f"{run.name}: {run.silent}", "warn")

    def _read_script(self, run: FoundRun) -> None:
        """Scan the script once in a thread; afterwards `marks` is a list."""
        known = self._table.find_process(run.pid)
        key = (run.pid, run.ticks)
        if known is None:
            return
        # Seconds to wait for a script. It may be on a mount that hangs; the result is then used at
        # a later poll.
        script_wait = 0.1
        if key in self._scripts:
            wait = 0.0
        else:
            wait = script_wait
        if wait:
            env = found_run.read_environment(run.pid) or {}
            inside = procstat.process_root_prefix(run.pid)
            given = run.pid, known.words, run.cwd, env, inside
            # Never again: a script is read once per process.
            once = float("inf")
            self._scripts[key] = background.Background(
                lambda: script_look.inspect_script(*given), once, once
            )
        said, error = self._scripts[key].poll(wait)
        if said is None and error is None:
            return
        del self._scripts[key]
        said = said or {}
        run.marks, run.uses, run.cache = (
            said.get("marks", []),
            said.get("uses", []),
            said.get("cache"),
        )

    def _end_run(self, run: FoundRun) -> None:
        now = time.time()
        # A run from before a reboot ended at the latest when the box last started.
        run.ended = round(
            max(run.seen, min(now, self._box_start_time())) if self._restarted else now, 2
        )
        run.deleted = {}
        text = "%s: pid %d has ended; " % (run.name, run.pid)
        text += (
            "nobody but its parent knows its exit status"
            if run.exit_code is None
            else "exit %d" % run.exit_code
        )
        if now - run.seen > 2 * max(PERIOD, self._every):
            text += "; it was last seen %d s ago" % (now - run.seen)
        self._add_event("training-ended", text)
        if run.session == "slurm":
            self._asking.add(run.name)

    def _box_start_time(self) -> float:
        """Return when the box or its container was started."""
        first = procstat.read_stat(1)
        return self._table.boot + (first.start / procstat.CLOCK_TICKS if first is not None else 0.0)

    def _query_slurm_ends(self) -> None:
        for name in list(self._asking):
            ended = self._runs.get(name)
            if ended is None or ended.ended is None or self._is_end_known(ended, ended.ended):
                self._asking.discard(name)

    def _is_end_known(self, run: FoundRun, ended: float) -> bool:
        return time.time() - ended > ASK_END or self._jobs.record_job_end(run)

    def _drop_old_runs(self) -> None:
        live = {(run.pid, run.ticks) for run in self._live_runs()}
        self._scripts = {key: look for key, look in self._scripts.items() if key in live}
        ended = [run for run in self._runs.values() if run.ended is not None]
        ended.sort(key=lambda run: run.ended or 0.0)
        old = [run for run in ended if time.time() - (run.ended or 0.0) > FORGET] + ended[
            :-REMEMBERED
        ]
        for run in old:
            self._runs.pop(run.name, None)

    def _add_event(self, kind: str, text: str, level: str = "info") -> None:
        self.events.append({"kind": kind, "text": text[:2000], "level": level})

    def build_report(self) -> JsonObject:
        """Return the content of ``found.json``, and reset `changed`.

        A later `TrainingFinder` resumes from it.
        """
        self._said = time.monotonic()
        self.changed = False
        return {"boot": self._boot, "runs": [run.as_dict() for run in self._runs.values()]}


def _ancestor_commands(pid: int, nodes: Mapping[int, ProcessNode]) -> list[list[str]]:
    found: list[list[str]] = []
    at = nodes[pid].ppid
    while at in nodes and len(found) < process_tree.DEEP:
        found.append(nodes[at].words)
        at = nodes[at].ppid
    return found
