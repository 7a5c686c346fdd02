"""Find everything that would keep a queue from running before it starts, and report it all at once.

Windows line endings are checked because the carriage return becomes part of the last word, and the
error then names a file that looks right.
"""

from __future__ import annotations

import os
import stat

from rgt_box import files
from rgt_box.queue import disk_budget, durable_copy, queue_file, queue_state
from rgt_box.queue.queue_file import BOM, JOBS, Job, QueueLine
from rgt_box.recorder import state_files

MOST = 1 << 20
"""Larger files are neither scripts nor configs."""

SCRIPTS = (".sh", ".bash", ".slurm", ".sbatch")


def line_end_candidates(job: Job, lines: list[QueueLine]) -> list[str]:
    """Return the files whose line endings matter: the queue, configs and the command's scripts."""
    found = [job.path("queue.txt")] + [job.config_path(line) for line in lines]
    if lines and not job.problems:
        words = {word for line in lines for word in job.command_of(line)}
        paths = [
            os.path.join(job.workdir, word) for word in sorted(words) if word and "\0" not in word
        ]
        found += [path for path in paths if path.endswith(SCRIPTS) or _has_shebang(path)]
    return list(dict.fromkeys(found))


def _has_shebang(path: str) -> bool:
    try:
        with open(files.open_regular(path), "rb") as file:
            return file.read(2) == b"#!"
    except OSError:
        return False


def first_carriage_return(path: str) -> int | None:
    """Return the number of the first line with a carriage return or a byte-order mark.

    Return None without one.
    """
    data = _read_text(path)
    if data is None:
        return None
    if data.startswith(BOM):
        return 1
    if b"\r\n" in data:
        at = data.find(b"\r\n")
    else:
        at = data.find(b"\r")
    if at < 0:
        return None
    return data.count(b"\n", 0, at) + 1


def line_end_problem(path: str, number: int) -> str:
    """Return a text with the problem and the command that fixes it."""
    marked = (_read_text(path) or b"").startswith(BOM)
    if marked:
        script = r"1s/^\xef\xbb\xbf//;s/\r$//"
    else:
        script = r"s/\r$//"
    if marked:
        what = "begins with a byte-order mark"
    else:
        what = "has Windows line endings"
    command = f"sed -i '{script}' {queue_file.quote_for_shell(path)}"
    return "%s:%d: %s; fix: %s (or queue check --fix)" % (path, number, what, command)


def fix_line_ends(path: str) -> None:
    """Replace `path` with a corrected copy, atomically.

    Raises:
        OSError: It cannot be written; the file is then unchanged.
    """
    real = os.path.realpath(path)  # a link stays a link
    data = _read_text(real)
    if data is None:
        return
    clean = (
        data[len(BOM) if data.startswith(BOM) else 0 :]
        .replace(b"\r\n", b"\n")
        .replace(b"\r", b"\n")
    )
    mode = stat.S_IMODE(os.stat(real).st_mode)
    files.replace_file(real, clean, sync=True, mode=mode & 0o700 | 0o600)
    os.chmod(real, mode)  # again: the umask limits the mode that a file is created with


def _read_text(path: str) -> bytes | None:
    data = files.read_file(path, MOST)
    if data is None or b"\0" in data:
        return None
    return data


class CheckResult:
    """Result of a check.

    Attributes:
        lines: The cells.
        problems: What keeps the cells from running; each names file and line, and what to do.
        notes: What could not be checked.
        crlf: Files with Windows line endings, which `fix_line_ends` can correct.
        first: Number of the first line of the queue to run; earlier lines are skipped.
    """

    def __init__(self, job: Job) -> None:
        self.lines, found = job.read_lines()
        self.problems = job.problems + found
        self.notes: list[str] = []
        self.crlf: list[str] = []
        self.first = 0


def check_queue(job: Job, start: str | None = None) -> CheckResult:
    """Check a job.

    Args:
        job: The job, as just loaded.
        start: The cell to start with, as for `first_line`; cells before it need no disk space.
    """
    found = CheckResult(job)
    if not os.path.isdir(job.workdir):
        found.problems.append(
            '{}: "workdir" {} is not a directory; make it'.format(
                job.source.line_of_key("workdir"), job.workdir
            )
        )
    for line in found.lines:
        path = job.config_path(line)
        if not os.path.isfile(path):
            found.problems.append(
                "%s:%d: the config %s does not exist; put it there, or correct the line"
                % (job.path("queue.txt"), line.number, path)
            )
    for path in line_end_candidates(job, found.lines):
        number = first_carriage_return(path)
        if number is not None:
            found.crlf.append(path)
            found.problems.append(line_end_problem(path, number))
    if start is not None:
        try:
            found.first = first_line(job, found.lines, start)
        except ValueError as error:
            found.problems.append(f"--from {start}: {error}")
    if not found.lines and not found.problems:
        found.problems.append(
            f"{job.path('queue.txt')}:1: has no cells; write <cfg> <task> [epochs]"
        )
    if job.settings["out"]:
        found.problems += shared_out_problems(job, found.lines)
    pending = lines_to_run(job, [line for line in found.lines if line.number >= found.first])
    if pending and job.settings["out"]:
        spare = durable_copy.removable_checkpoints(job, queue_state.load_state(job)["cells"])
        if spare:
            found.notes.append(
                f'"prune": {durable_copy.describe_removable(spare)} may be removed when a cell '
                "needs room: "
                "all but the best of each, after their copies were proved again (nothing is "
                "removed now)"
            )
        amounts = (sum(one.bytes for one in spare), sum(len(one.files) for one in spare))
        problems, notes = disk_budget.check_budget(job, pending, amounts)
        found.problems += problems
        found.notes += notes
    return found


def first_line(job: Job, lines: list[QueueLine], start: str) -> int:
    """Return the number of the queue line that ``--from`` means.

    Args:
        job: The job.
        lines: Its cells.
        start: The name of a cell, or its config as written in the queue, or how many cells to skip.
            Commented-out lines count as skipped cells, so that removing a line does not shift the
            others.

    Raises:
        ValueError: There is no such cell, or there are two; the message says which.
    """
    places = sorted(lines + job.commented(), key=lambda line: line.number)
    named = {line.number for line in places if line.cfg == start} or {
        line.number for line in places if line.name == start
    }
    counted = start.isdigit() and start.isascii() and int(start) <= len(places)
    if counted:
        ends = 0
        if places:
            ends = places[-1].number + 1
        named.add(places[int(start)].number if int(start) < len(places) else ends)
    if len(named) > 1:
        if counted:
            where = "is the name of one cell and the position of another"
        else:
            where = f"matches lines {', '.join(map(str, sorted(named)))}"
        raise ValueError(f"{where}; give the config as it is written in the queue")
    if not named:
        raise ValueError("no cell has this name, and the queue has only %d" % len(places))
    return named.pop()


def lines_to_run(job: Job, lines: list[QueueLine]) -> list[QueueLine]:
    """Return the cells that are not done."""
    known = queue_state.cells_by_name(queue_state.load_state(job))
    return [line for line in lines if known.get(line.name, {}).get("state") != "done"]


KEYS = ("out", "durable")


def shared_out_problems(job: Job, lines: list[QueueLine]) -> list[str]:
    """Return a problem for each other job that writes to a directory of one of these cells."""
    problems = []
    mine = {key: _written_folders(job, key, lines) for key in KEYS}
    for folder in _other_jobs(job):
        other = Job(folder)
        theirs = other.read_lines()[0]
        for key in KEYS:
            found = _shared_folder(mine[key], _written_folders(other, key, theirs))
            if found is not None:
                problems.append(
                    '{}: "{}": cell {} would write to {}, where cell {} of the job {} writes: name '
                    'another "{}", or '
                    "remove that job if it is over".format(
                        job.source.line_of_key(key), key, *found, folder, key
                    )
                )
                break
    return problems


def _written_folders(job: Job, key: str, lines: list[QueueLine]) -> dict[str, str]:
    """Return run directory → cell."""
    found = {}
    for line in lines:
        if key == "out":
            path = job.run_folder(line.name)
        else:
            path = job.durable_folder(line.name)
        if path:
            found[os.path.realpath(path)] = line.name
    return found


def _shared_folder(mine: dict[str, str], theirs: dict[str, str]) -> tuple[str, str, str] | None:
    """Return (own cell, directory, other cell) of the first pair that is equal or nested."""
    for path, name in mine.items():
        if path in theirs:
            return name, path, theirs[path]
    for path, name in mine.items():
        for other, cell in theirs.items():
            if files.is_below(path, other) or files.is_below(other, path):
                return name, path, cell
    return None


def _other_jobs(job: Job) -> list[str]:
    """Return the other job directories: in the default location, next to this job, or launched."""
    here = os.path.realpath(job.folder)
    found: dict[str, str] = {}
    tops = dict.fromkeys([os.path.expanduser(JOBS), os.path.dirname(job.folder)])
    paths = [
        os.path.join(top, name) for top in tops for name in _visible_names(top)
    ] + state_files.known_launched_jobs()
    # Maximum number of jobs on a box to compare with; more cannot be managed by hand.
    most_jobs = 500
    for path in paths[:most_jobs]:
        real = os.path.realpath(path)
        if real != here and os.path.isfile(os.path.join(real, "job.json")):
            found.setdefault(real, path)
    return list(found.values())


def _visible_names(top: str) -> list[str]:
    try:
        return sorted(name for name in os.listdir(top) if not name.startswith("."))
    except OSError:
        return []
