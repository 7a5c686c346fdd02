"""Sends listed files to an object store through fsspec; run by any Python 3.8 that has it, never imported by rgt.

Arguments: the URL, the directory, and ``plan`` (changes nothing), ``compare``, ``send`` or
``send-growing``. Standard input has a JSON line for each file: path, size, sha256, mtime. Each
answer
is a JSON line: path and ``status`` (copied, same, would or failed), ``size``, ``error``; or only
``error`` if the store cannot be used. Lines in between have path and the bytes ``sent`` or ``read``
back.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import sys
import time
from importlib import import_module
from typing import Any

RECORD = ".rgt-mirror.json"
"""Object next to the others: size, SHA-256 and ETag of each object that was read back."""


def answer_rows(url: str, folder: str, verb: str) -> None:
    """Plan or send, and print the answers."""
    rows = [json.loads(line) for line in sys.stdin.buffer]
    progress = ProgressRows()
    # A single file was named: its row has the bare name.
    if os.path.isfile(folder):
        folder = os.path.dirname(folder)
    try:
        place = ObjectPlace(url, folder, progress)
    except Exception as error:  # a store's library raises errors of its own
        print_row({"error": error_line(error)})
        return
    open_files = set()
    if verb == "send":
        open_files = files_open_for_writing()
    failures = 0
    try:
        for row in rows:
            failures, answer = answer_row(place, verb, row, open_files, failures)
            print_row(answer)
            if progress.stopped:
                break
            if failures == 3:
                # Each takes minutes if a store does not answer.
                print_row({"error": f"3 files failed one after the other: {answer['error']}"})
                break
    finally:
        # Also if the caller is gone: the next run then has less to read back.
        if verb != "plan" and place.has_news:
            write_record(place)


def answer_row(
    place: ObjectPlace, verb: str, row: dict[str, Any], open_files: set[str], failures: int
) -> tuple[int, dict[str, Any]]:
    """Plan or send one file; return how many failed in a row because of the store, and the answer."""
    path = os.path.join(place.folder, row["path"])
    try:
        found = place.classify_file(row, path)
        if found == "would" and verb.startswith("send"):
            if os.path.realpath(path) in open_files:
                raise ValueError("a process has it open for writing: --growing sends it as it is")
            place.send_file(row, path, growing=verb == "send-growing")
            found = "copied"
        return 0, {"path": row["path"], "status": found, "size": row["size"]}
    except Exception as error:
        if not (isinstance(error, ValueError) or getattr(error, "filename", None)):
            failures += 1
        return failures, {"path": row["path"], "status": "failed", "error": error_line(error)}


def write_record(place: ObjectPlace) -> None:
    """Write the record; say if that failed."""
    try:
        place.write_record()
    except Exception as error:
        print_row({"error": f"{RECORD} was not written: {error_line(error)}"})


def error_line(error: BaseException) -> str:
    """Return what went wrong, in one line."""
    if isinstance(error, ValueError):
        return str(error)
    return " ".join(f"{type(error).__name__}: {error}".split())[:300]


def print_row(row: dict[str, Any]) -> None:
    """Print an answer; a caller that is gone ends the process here."""
    print(json.dumps(row), flush=True)


class ProgressRows:
    """Prints how far a file is, at most twice a second.

    A print to a caller that is gone ends the upload, and the store's library removes the parts
    that it has sent, for which a store would bill. So does a SIGTERM.
    """

    def __init__(self) -> None:
        self.stopped = False
        self._printed = time.monotonic()
        signal.signal(signal.SIGTERM, self._note_stop)

    def _note_stop(self, *_: object) -> None:
        self.stopped = True

    def count_bytes(self, path: str, step: str, count: int) -> None:
        """Report how many bytes of a file were ``sent``, or ``read`` back.

        Raises:
            ValueError: The process was asked to stop.
        """
        if self.stopped:
            raise ValueError("stopped")
        now = time.monotonic()
        if now - self._printed >= 0.5:
            self._printed = now
            print_row({"path": path, step: count})


class ObjectPlace:
    """A prefix of an object store.

    Args:
        url: Its address.
        folder: The directory here.
        progress: Receives the bytes that were sent and read.

    Raises:
        Exception: The store does not answer; of which kind, its library decides.
    """

    def __init__(self, url: str, folder: str, progress: ProgressRows) -> None:
        self._scheme = url.partition("://")[0]
        self._files, root = import_module("fsspec.core").url_to_fs(url)
        self._root, self.folder, self._progress = root.rstrip("/"), folder, progress
        if not self._root:
            raise ValueError("it names no bucket: give s3://BUCKET/PREFIX")
        # fsspec caches listings per process and instance; an old one would hide a newer object.
        self._files.invalidate_cache()
        try:
            found = self._files.find(self._root, detail=True)
        except FileNotFoundError:
            found = {}
        if not found:
            self._check_bucket()
        if self._root in found:
            raise ValueError("it is an object, not a prefix: choose another one")
        self._objects: dict[str, dict[str, Any]] = {
            key[len(self._root) + 1 :]: info for key, info in found.items()
        }
        self._record: dict[str, dict[str, Any]] = {}
        self.has_news = False
        """The record is not written yet."""
        if RECORD in self._objects:
            self._record = json.loads(self._files.cat_file(self._object_key(RECORD)))
        self._written = time.monotonic()

    def _check_bucket(self) -> None:
        """Raise ValueError if the bucket does not exist; a store may refuse to say that."""
        bucket = self._root.partition("/")[0]
        if self._scheme in ("s3", "gs", "gcs", "az", "abfs"):
            try:
                self._files.info(bucket)
            except FileNotFoundError:
                raise ValueError(f"there is no bucket {bucket}") from None
            except Exception:
                return

    def _object_key(self, path: str) -> str:
        return f"{self._root}/{path}"

    def classify_file(self, row: dict[str, Any], path: str) -> str:
        """Return ``same`` or ``would`` (be sent).

        Raises:
            ValueError: Another object has the name.
        """
        info = self._objects.get(row["path"])
        if info is None:
            return "would"
        known = self._record.get(row["path"], {})
        is_known = bool(known) and read_tag(info) == known["tag"] and info["size"] == known["size"]
        # With a tag that has not changed, the object need not be read back.
        if is_known and known["tag"]:
            if known["sha256"] == row["sha256"]:
                return "same"
            return "would"
        size, digest = self._read_back(row["path"])
        if (size, digest) == (row["size"], row["sha256"]):
            self._note_verified(row["path"], size, digest)
            return "same"
        if is_known or not os.path.exists(path) or hash_file(path, size) == digest:
            return "would"  # ours, or the beginning of a log that went on
        raise ValueError("another object has this name: move it away, or choose another prefix")

    def _read_back(self, path: str) -> tuple[int, str]:
        found, size = hashlib.sha256(), 0
        with self._files.open(
            self._object_key(path), "rb", block_size=16 << 20, cache_type="readahead"
        ) as opened:
            while True:
                piece = opened.read(4 << 20)
                if not piece:
                    return size, found.hexdigest()
                found.update(piece)
                size += len(piece)
                self._progress.count_bytes(path, "read", size)

    def send_file(self, row: dict[str, Any], path: str, *, growing: bool) -> None:
        """Send a file and read it back.

        Raises:
            ValueError: It is not the listed one, it changed meanwhile, or reads back differently.
        """
        before = os.lstat(path)
        is_listed = before.st_size == row["size"]
        if is_listed and before.st_mtime != row["mtime"]:
            # A copy through another machine has a new time and the same content.
            is_listed = hash_file(path, row["size"]) == row["sha256"]
        if not (is_listed or growing):
            raise ValueError("it changed since it was listed: --growing sends it as it is")

        def count_sent(_: object, sent: int, **__: object) -> None:
            self._progress.count_bytes(row["path"], "sent", sent)

        options: dict[str, Any] = {}
        if self._scheme == "s3":
            # Of 50 MB by default: too much memory, and no progress for minutes. 10,000 are allowed.
            options["chunksize"] = max(8 << 20, before.st_size // 9000)
        callback = import_module("fsspec.callbacks").Callback(hooks={"rows": count_sent})
        if self._scheme in ("file", "local", "sftp", "ssh", "smb", "hdfs", "webhdfs"):
            # A directory of an object store is only part of a name; these have real ones.
            parent = self._object_key(row["path"]).rpartition("/")[0]
            self._files.makedirs(parent, exist_ok=True)
        self._files.put_file(path, self._object_key(row["path"]), callback=callback, **options)
        self._files.invalidate_cache()
        size, digest = self._read_back(row["path"])
        if digest != row["sha256"] and not (growing and hash_file(path, size) == digest):
            # Not left there: without a record it would later pass for another's object.
            self._files.rm_file(self._object_key(row["path"]))
            raise ValueError("it reads back differently, and was removed there")
        self._note_verified(row["path"], size, digest)
        # An interrupted run reads back what the record does not name.
        if time.monotonic() - self._written > 60:
            self.write_record()

    def _note_verified(self, path: str, size: int, digest: str) -> None:
        tag = read_tag(self._files.info(self._object_key(path)))
        self._record[path] = {"size": size, "sha256": digest, "tag": tag}
        self.has_news = True

    def write_record(self) -> None:
        """Write the record, which names the uploaded objects."""
        self._files.pipe_file(
            self._object_key(RECORD), json.dumps(self._record, sort_keys=True).encode()
        )
        self._written, self.has_news = time.monotonic(), False


def read_tag(info: dict[str, Any]) -> str:
    """Return what a store changes whenever an object changes; empty if it has none."""
    for name in ("ETag", "etag", "generation"):
        if info.get(name):
            return str(info[name])
    return ""


def hash_file(path: str, size: int) -> str:
    """Return the SHA-256 of the first `size` bytes of a file."""
    found = hashlib.sha256()
    with open(path, "rb") as opened:
        while size > 0:
            piece = opened.read(min(size, 4 << 20))
            if not piece:
                break
            found.update(piece)
            size -= len(piece)
    return found.hexdigest()


def files_open_for_writing() -> set[str]:
    """Return the files that a process has open for writing, as far as this user may see it."""
    found: set[str] = set()
    if not os.path.isdir("/proc"):
        return found
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            for number in os.listdir(f"/proc/{pid}/fd"):
                path = os.readlink(f"/proc/{pid}/fd/{number}")
                if not path.startswith("/") or path.startswith("/dev/"):
                    continue
                with open(f"/proc/{pid}/fdinfo/{number}", encoding="ascii") as opened:
                    flags = next(line for line in opened if line.startswith("flags:"))
                if int(flags.split()[1], 8) & (os.O_WRONLY | os.O_RDWR):
                    found.add(path)
        except (OSError, StopIteration):
            continue
    return found


if __name__ == "__main__":
    answer_rows(*sys.argv[1:4])
