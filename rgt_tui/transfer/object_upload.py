"""Sends listed files to an object store through fsspec; run by any Python 3.8 that has it, never imported by rgt.

Arguments: the URL, the directory, and ``plan``, ``send`` or ``send-growing``. Standard input has a
JSON line for each file: path, size, sha256, mtime. Each answer is a JSON line: path and ``status``
(copied, same, would or failed), ``size``, ``error``; or only ``error`` if the store does not answer.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import time
from importlib import import_module
from typing import Any

RECORD = ".rgt-mirror.json"
"""Object next to the others: size, SHA-256 and ETag of each object that was read back."""


def answer_rows(url: str, folder: str, verb: str) -> None:
    """Plan or send, and print the answers."""
    rows = [json.loads(line) for line in sys.stdin.buffer]
    try:
        place = ObjectPlace(url, folder)
    except Exception as error:  # a store's library raises errors of its own
        print_row({"error": error_line(error)})
        return
    open_files = set()
    if verb == "send":
        open_files = files_open_for_writing()
    for row in rows:
        path = os.path.join(folder, row["path"])
        try:
            found = place.classify_file(row, path)
            if found == "would" and verb != "plan":
                if os.path.realpath(path) in open_files:
                    raise ValueError(
                        "a process has it open for writing: --growing sends it as it is"
                    )
                place.send_file(row, path, growing=verb == "send-growing")
                found = "copied"
            print_row({"path": row["path"], "status": found, "size": row["size"]})
        except Exception as error:
            print_row({"path": row["path"], "status": "failed", "error": error_line(error)})
    try:
        if verb != "plan":
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


class ObjectPlace:
    """A prefix of an object store.

    Args:
        url: Its address.
        folder: The directory here.

    Raises:
        Exception: The store does not answer; of which kind, its library decides.
    """

    def __init__(self, url: str, folder: str) -> None:
        self._files, root = import_module("fsspec.core").url_to_fs(url)
        self._root, self._folder = root.rstrip("/"), folder
        self._files.invalidate_cache()
        try:
            found = self._files.find(self._root, detail=True)
        except FileNotFoundError:
            found = {}
        if self._root in found:
            raise ValueError(f"{url} is an object, not a prefix")
        self._objects: dict[str, dict[str, Any]] = {
            key[len(self._root) + 1 :]: info for key, info in found.items()
        }
        self._record: dict[str, dict[str, Any]] = {}
        if RECORD in self._objects:
            self._record = json.loads(self._files.cat_file(self._object_key(RECORD)))
        self._written = time.monotonic()

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
        with self._files.open(self._object_key(path), "rb", cache_type="readahead") as opened:
            while True:
                piece = opened.read(4 << 20)
                if not piece:
                    return size, found.hexdigest()
                found.update(piece)
                size += len(piece)

    def send_file(self, row: dict[str, Any], path: str, *, growing: bool) -> None:
        """Send a file and read it back.

        Raises:
            ValueError: It is not the listed one, it changed meanwhile, or reads back differently.
        """
        before = os.lstat(path)
        is_listed = before.st_size == row["size"]
        if is_listed and before.st_mtime != row["mtime"]:
            is_listed = hash_file(path, row["size"]) == row["sha256"]
        if not (is_listed or growing):
            raise ValueError("it changed since it was listed: --growing sends it as it is")
        self._files.put_file(path, self._object_key(row["path"]))
        self._files.invalidate_cache()
        size, digest = self._read_back(row["path"])
        if digest != row["sha256"] and not (growing and hash_file(path, size) == digest):
            self._files.rm_file(self._object_key(row["path"]))
            raise ValueError("it reads back differently, and was removed there")
        self._note_verified(row["path"], size, digest)
        # An interrupted run reads back what the record does not name.
        if time.monotonic() - self._written > 60:
            self.write_record()

    def _note_verified(self, path: str, size: int, digest: str) -> None:
        tag = read_tag(self._files.info(self._object_key(path)))
        self._record[path] = {"size": size, "sha256": digest, "tag": tag}

    def write_record(self) -> None:
        """Write the record, which names the uploaded objects."""
        self._files.pipe_file(
            self._object_key(RECORD), json.dumps(self._record, sort_keys=True).encode()
        )
        self._written = time.monotonic()


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
