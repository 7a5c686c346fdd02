"""Windows line ends: the carriage return joins the last word, and what fails then names a file that seems right."""

from __future__ import annotations

import os
import stat

from rgt_box import files
from rgt_box.cells import template
from rgt_box.cells.jobfile import Job, Line
from rgt_box.cells.queuefile import BOM

MOST = 1 << 20
"""Larger files are no scripts and no configs."""

SCRIPTS = (".sh", ".bash", ".slurm", ".sbatch")


def candidates(job: Job, lines: list[Line]) -> list[str]:
    """Return the files whose line ends matter: the queue, the configs, and the scripts that the command names."""
    found = [job.path("queue.txt")] + [job.config(line) for line in lines]
    if lines and not job.problems:
        words = {word for line in lines for word in job.command(line)}
        paths = [os.path.join(job.workdir, word) for word in sorted(words) if word and "\0" not in word]
        found += [path for path in paths if path.endswith(SCRIPTS) or _has_shebang(path)]
    return list(dict.fromkeys(found))


def _has_shebang(path: str) -> bool:
    try:
        with open(files.open_regular(path), "rb") as file:
            return file.read(2) == b"#!"
    except OSError:
        return False


def first_bad(path: str) -> int | None:
    """Return the number of the first line with a carriage return or a byte-order mark; None = all well."""
    data = _text(path)
    if data is None:
        return None
    if data.startswith(BOM):
        return 1
    at = data.find(b"\r\n") if b"\r\n" in data else data.find(b"\r")
    return None if at < 0 else data.count(b"\n", 0, at) + 1


def problem(path: str, number: int) -> str:
    """Return the problem in words, with the command that mends it."""
    marked = (_text(path) or b"").startswith(BOM)
    script = r"1s/^\xef\xbb\xbf//;s/\r$//" if marked else r"s/\r$//"
    what = "begins with a byte-order mark" if marked else "has Windows line ends"
    command = "sed -i '%s' %s" % (script, template.quoted(path))
    return "%s:%d: %s; fix: %s (or queue check --fix)" % (path, number, what, command)


def fix(path: str) -> None:
    """Put a corrected copy in the place of `path`, atomically.

    Raises:
        OSError: when it cannot be written; the file is then as it was.
    """
    real = os.path.realpath(path)  # a link stays a link
    data = _text(real)
    if data is None:
        return
    clean = data[len(BOM) if data.startswith(BOM) else 0 :].replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    mode = stat.S_IMODE(os.stat(real).st_mode)
    files.replace(real, clean, sync=True, mode=mode & 0o700 | 0o600)
    os.chmod(real, mode)  # once more: the mode that a file is made with is cut by the umask


def _text(path: str) -> bytes | None:
    data = files.read(path, MOST)
    return None if data is None or b"\0" in data else data
