"""The ``fix`` verb: runs commands that only look, previews a removal, and removes it after a preview.

No shell is involved. The client decides which commands only look; this verb decides what may be
removed: never a checkpoint, a mount, a path to keep, or files that differ from the preview.
"""

from __future__ import annotations

import hashlib
import json
import os
import pwd
import signal
import stat
import sys
import time

from rgt_box import files, jsonline, landing, options, place, procstat
from rgt_box.background import error_text
from rgt_box.commands import file_tree, result_rules
from rgt_box.sampling import disks

TYPE_CHECKING = False
if TYPE_CHECKING:
    import subprocess
    from typing import Any

    from rgt_wire import JsonObject

HELP = """
usage: fix --look STAGES
       fix [--keep PATH]... [--remove DIGEST] -- PATH

Run programs that only look, or say what the removal of PATH would remove. Without --remove nothing is changed.

  --look STAGES    a JSON list of command lines, each a list of words; each reads the output of the previous one.
                   No shell expands anything. Prints a JSON line per line of output, then {"status": of the last, "cut":
                   why the output is incomplete}
  --keep PATH      nothing that contains it or lies in it may be removed (may be repeated)
  --remove DIGEST  remove PATH if it still is what the preview with this digest showed

Prints one JSON object about PATH: files, bytes and inodes that would be free, oldest and newest change, owners, open
handles, checkpoints, logs, the disk now, "refused" (why it may not be removed), digest; with --remove also removed and
failed.

Exit status: 0 done (or may be removed), 1 refused, failed or incomplete, 2 the command line is wrong.
"""


def main(argv: list[str]) -> int:
    """Run the verb; returns the exit status."""
    spec = {"--look": "str", "--keep": "list", "--remove": "str"}
    found = options.parse_or_exit(argv, spec, HELP)
    if found["look"] is not None:
        stages = _read_stages(found["look"])
        if stages is None or found["rest"]:
            print("--look needs a JSON list of lists of words (see --help)", file=sys.stderr)
            return 2
        return _print_pipeline(stages)
    if len(found["rest"]) != 1:
        print("one path is needed after -- (see --help)", file=sys.stderr)
        return 2
    path = found["rest"][0]
    if found["remove"] is None:
        row = inspect_removal(path, found["keep"])
    else:
        row = remove_previewed(path, found["keep"], found["remove"])
    jsonline.print_frame(row)
    return int(bool(row["refused"] or row.get("failed")))


def _read_stages(text: str) -> list[list[str]] | None:
    try:
        stages = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(stages, list) or not stages:
        return None
    for words in stages:
        if not isinstance(words, list) or not words:
            return None
        if not all(isinstance(word, str) and "\0" not in word for word in words):
            return None
    return stages


def _print_pipeline(stages: list[list[str]]) -> int:
    status, output, cut = run_pipeline(stages)
    for line in output.decode("utf-8", "replace").splitlines():
        jsonline.print_frame({"line": line})
    jsonline.print_frame({"status": status, "cut": cut})
    return int(bool(status or cut))


def run_pipeline(
    stages: list[list[str]], seconds: float = 30.0, most_bytes: int = 256 << 10
) -> tuple[int, bytes, str]:
    """Run programs, each reading the previous one's output.

    Args:
        stages: The words of each program.
        seconds: Time limit for all of them.
        most_bytes: Limit of the output.

    Returns:
        Exit status of the last program, all errors and its output, and why it is incomplete.
    """
    import select
    import subprocess

    children: list[subprocess.Popen[bytes]] = []
    # One pipe for the last program's output and all errors, so that they stay in order.
    reader, writer = os.pipe()
    source: Any = subprocess.DEVNULL
    output = b""
    cut = ""
    try:
        for words in stages:
            target = subprocess.PIPE
            if len(children) == len(stages) - 1:
                target = writer
            child = subprocess.Popen(
                _program_words(words),
                stdin=source,
                stdout=target,
                stderr=writer,
                # Its own process group, so that all it starts is ended with it.
                start_new_session=True,
                # The client reads the output: it must not be in the box's language.
                env=dict(os.environ, LC_ALL="C.UTF-8"),
            )
            children.append(child)
            if source is not subprocess.DEVNULL:
                source.close()  # so that a program whose reader has ended gets SIGPIPE
            source = child.stdout
        os.close(writer)
        writer = -1
        deadline = time.monotonic() + seconds
        while True:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([reader], [], [], left)[0]:
                cut = "ended after %g s" % seconds
                break
            piece = os.read(reader, 65536)
            if not piece:
                break
            output += piece
            if len(output) > most_bytes:
                output = output[:most_bytes]
                cut = "more than %d KiB" % (most_bytes >> 10)
                break
    except OSError as error:
        return 127, output + f"{stages[len(children)][0]}: {error_text(error)}".encode(), ""
    finally:
        os.close(reader)
        if writer >= 0:
            os.close(writer)
        for child in children:
            _end_child(child, 2.0 * (not cut))
    return children[-1].returncode or 0, output, cut


def _program_words(words: list[str]) -> list[str]:
    """Return the words to start; `ulimit` is part of the shell, and gets its options as arguments."""
    if words[0] == "ulimit":
        return ["sh", "-c", 'ulimit "$@"', *words]
    return words


def _end_child(child: subprocess.Popen[bytes], grace_s: float) -> None:
    import subprocess

    kill_s = 2.0
    try:
        child.wait(grace_s)
    except subprocess.TimeoutExpired:
        try:
            os.killpg(child.pid, signal.SIGKILL)
            child.wait(kill_s)
        except (OSError, subprocess.TimeoutExpired):
            pass  # it hangs in the kernel, e.g. on a dead network mount
    if child.stdout is not None:
        child.stdout.close()


class _RemovalCount:
    """What a walk over a path has counted."""

    def __init__(self) -> None:
        self.files = self.folders = self.bytes = self.inodes = self.logs = 0
        self.checkpoints: list[str] = []
        self.owners: dict[int, int] = {}
        self.oldest = self.newest = 0.0
        self.refused: list[str] = []
        self.seen: set[tuple[int, int]] = set()
        self.links: dict[tuple[int, int], int] = {}
        """Names found so far of files with several names."""
        self.digest = hashlib.sha256()

    def add_entry(self, path: bytes, found: os.stat_result) -> None:
        """Count a file, a directory or a link."""
        name = os.path.basename(path).decode("utf-8", "replace")
        key = (found.st_dev, found.st_ino)
        self.seen.add(key)
        # Size and mtime as well as the inode: a preview must not cover a file that has changed
        # since.
        self.digest.update(
            b"%s\0%d %d %d\n" % (path, found.st_ino, found.st_size, found.st_mtime_ns)
        )
        self.owners[found.st_uid] = self.owners.get(found.st_uid, 0) + 1
        self.oldest = min(self.oldest or found.st_mtime, found.st_mtime)
        self.newest = max(self.newest, found.st_mtime)
        if stat.S_ISDIR(found.st_mode):
            self.folders += 1
        else:
            self.files += 1
        if stat.S_ISREG(found.st_mode) and result_rules.looks_like_result(name):
            self.checkpoints.append(path.decode("utf-8", "replace"))
        log_endings = (".log", ".out", ".err")
        self.logs += name.endswith(log_endings)
        # A file is free only once its last name is gone.
        names = self.links[key] = self.links.get(key, 0) + 1
        if stat.S_ISDIR(found.st_mode) or names == found.st_nlink:
            self.bytes += found.st_blocks * 512
            self.inodes += 1


def inspect_removal(path: str, keep: list[str], shown: str = "") -> JsonObject:
    """Return what the removal of a path would remove, and why it is refused.

    Args:
        path: An absolute path.
        keep: Paths that must stay.
        shown: Its usual path, if it was moved aside.
    """
    name = shown or path
    count = _RemovalCount()
    count.refused += _list_path_objections(name, path, keep)
    if not count.refused:
        _count_entries(path, count)
    if count.checkpoints:
        count.refused.append(
            "%d files look like checkpoints or results, such as %s"
            % (len(count.checkpoints), count.checkpoints[0])
        )
    row: JsonObject = {
        "at": round(time.time(), 3),
        "path": name,
        "files": count.files,
        "folders": count.folders,
        "bytes": count.bytes,
        "inodes": count.inodes,
        "oldest": round(count.oldest, 3),
        "newest": round(count.newest, 3),
        "owners": _name_owners(count.owners),
        "logs": count.logs,
        "checkpoints": len(count.checkpoints),
        "refused": count.refused,
        "digest": count.digest.hexdigest(),
    }
    row["open"], row["unread"] = find_open_handles(path, count.seen)
    row["disk"] = _read_disk(path)
    return row


def _list_path_objections(name: str, path: str, keep: list[str]) -> list[str]:
    if not name.startswith("/") or os.path.normpath(name) != name or name.count("/") < 2:
        return ["not an absolute path of at least two levels"]
    if not os.path.lexists(path):
        return ["there is no such path"]
    # A link on the way could be pointed elsewhere between the preview and the removal.
    if os.path.realpath(path) != path:
        return [f"it is reached through a link: it is {os.path.realpath(path)}"]
    if os.path.islink(path):
        return ["it is a link that leads to itself"]
    if os.path.ismount(path):
        return ["a disk is mounted there"]
    kept = [*keep, place.state_dir(), landing.agent_home()]
    for one in dict.fromkeys(kept):
        if not one.startswith("/"):
            continue
        # Both spellings: the path of the preview has no links, a path to keep may.
        for spelled in (one, os.path.realpath(one)):
            if files.is_below(spelled, name) or files.is_below(name, spelled):
                return [f"it is or has to do with {one}, which rgt keeps"]
    for one in (os.path.expanduser("~"), os.getcwd()):
        if files.is_below(os.path.realpath(one), name):
            return [f"it contains {one}"]
    return []


def _count_entries(path: str, count: _RemovalCount) -> None:
    """Count everything below a path; add reasons to refuse it."""
    most_entries = 1_000_000
    seconds = 60.0
    deadline = time.monotonic() + seconds
    top = os.lstat(path)
    if stat.S_ISDIR(top.st_mode):
        count.add_entry(b"", top)
    for entry in file_tree.walk_tree(path):
        if entry.stat is None or entry.kind == file_tree.ERROR:
            count.refused.append(f"{os.fsdecode(entry.path)} cannot be read: {entry.text}")
            return
        if entry.stat.st_dev != top.st_dev:
            count.refused.append(f"another disk is mounted inside: {os.fsdecode(entry.path)}")
            return
        if entry.kind == file_tree.SPECIAL:
            count.refused.append(f"{os.fsdecode(entry.path)} is {entry.text}")
            return
        count.add_entry(entry.path, entry.stat)
        if len(count.seen) > most_entries or time.monotonic() > deadline:
            count.refused.append("too much to preview: remove it in parts")
            return


def _name_owners(owners: dict[int, int]) -> dict[str, int]:
    named = {}
    for uid, files_count in sorted(owners.items(), key=lambda item: -item[1]):
        try:
            named[pwd.getpwuid(uid).pw_name] = files_count
        except KeyError:
            named["uid %d" % uid] = files_count
    return named


def _read_disk(path: str) -> JsonObject | None:
    try:
        return disks.statvfs_figures(os.statvfs(os.path.dirname(path)))
    except OSError:
        return None


def find_open_handles(path: str, seen: set[tuple[int, int]]) -> tuple[list[JsonObject], int]:
    """Return the processes that use these files, and how many processes could not be checked.

    Args:
        path: Where they are; for files that are only mapped into memory.
        seen: Device and inode of each file.
    """
    found = []
    unread = 0
    for entry in os.listdir("/proc"):
        if not entry.isdigit() or int(entry) == os.getpid():
            continue
        pid = int(entry)
        try:
            handles = os.listdir("/proc/%d/fd" % pid)
        except PermissionError:
            unread += 1
            continue
        except OSError:
            continue  # it has ended
        reads = 0
        writes = 0
        for handle in handles:
            if _is_among("/proc/%d/fd/%s" % (pid, handle), seen):
                reads = reads + 1
                writes = writes + _is_writing(pid, handle)
        works = _is_among("/proc/%d/cwd" % pid, seen)
        maps = procstat.read_whole("/proc/%d/maps" % pid) or b""
        # A mapped file needs no open descriptor.
        mapped = b" " + os.fsencode(path) + b"/" in maps
        if reads or works or mapped:
            name = procstat.read_bytes("/proc/%d/comm" % pid) or b"?"
            words = " ".join(procstat.read_cmdline(pid))[:200]
            found.append(
                {
                    "pid": pid,
                    "name": name.decode("utf-8", "replace").strip(),
                    "command": words,
                    "handles": reads,
                    "writes": writes,
                    "works": works,
                    "mapped": mapped,
                }
            )
    return found, unread


def _is_among(link: str, seen: set[tuple[int, int]]) -> bool:
    try:
        found = os.stat(link)
    except OSError:
        return False
    return (found.st_dev, found.st_ino) in seen


def _is_writing(pid: int, handle: str) -> int:
    flags = procstat.read_open_flags(pid, handle) or 0
    return int(flags & os.O_ACCMODE != os.O_RDONLY)


def remove_previewed(path: str, keep: list[str], digest: str) -> JsonObject:
    """Remove a path if it is what a preview showed; returns its row with removed and failed.

    It is moved aside first, so that no file can be added between the check and the removal. Where
    the disk refuses that, it is removed where it is.
    """
    import shutil

    row = inspect_removal(path, keep)
    row["removed"], row["failed"] = False, []
    if not row["refused"] and row["digest"] != digest:
        row["refused"] = ["it has changed since the preview: look again"]
    if row["refused"]:
        return row
    aside = os.path.join(os.path.dirname(path), ".rgt-removing-" + digest[:16])
    try:
        if os.path.lexists(aside):
            raise OSError("left by an earlier removal")
        os.rename(path, aside)
    except OSError:
        aside = path
    else:
        # Programs that open files by path do not reach it any more: this count still holds at the
        # removal.
        again = inspect_removal(aside, keep, path)
        if again["digest"] != digest or again["refused"]:
            why = "a file was added while it was removed: nothing was removed, look again"
            # The program has created its directory again: moving back would overwrite it.
            if os.path.lexists(path):
                why += f"; the files are in {aside}"
            else:
                os.rename(aside, path)
            row["refused"] = again["refused"] or [why]
            return row
    if os.path.isdir(aside):
        shutil.rmtree(
            aside,
            onerror=lambda call, name, info: row["failed"].append(f"{name}: {error_text(info[1])}"),
        )
    else:
        os.unlink(aside)
    row["removed"] = not os.path.lexists(aside)
    row["failed"] = row["failed"][:20]
    row["disk"] = _read_disk(path)
    return row
