"""The ``send`` verb: answers requests on stdin with pieces of files and their hashes."""

from __future__ import annotations

import errno
import fcntl
import os
import threading
import time

from rgt_wire.block_packing import BlockPacker

from rgt_box import files, jsonline
from rgt_box.background import error_text
from rgt_box.commands import file_tree, hashing
from rgt_box.commands.hashing import change_stamp

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterator

    from rgt_wire import JsonObject

HELP = """
usage: send [--pack]

Read requests on standard input, one JSON object a line, and answer them in order until it ends:
  {"id": N, "path": P, "start": A, "end": B}                 send bytes A to B of a file; without "end": to its end
  {"id": N, "path": P, "start": A, "end": B, "hash": true}   only the SHA-256 of those bytes
A name that is not UTF-8 is given as "path_b64". PATH is absolute, as "manifest --no-hash" lists it; a link that has
taken the place of the file or of a directory in its path is refused; only regular files are opened. With "listed":
[DEVICE, INODE], another file than that one is refused as well.

Answers:
  {"id": N, "n": COUNT, "stamp": S}     COUNT bytes follow this line, then:
  {"id": N, "stamp": S, "sha256": H}    end of answer; H is of the bytes that were asked for with "hash", else of all
                                        bytes of the file before B, null unless A is 0 or the request before this one
                                        ended there. S is [size, mtime_ns, ctime_ns, inode]: a different one than
                                        before means that the file has changed
  {"id": N, "busy": COUNT}              so much has been hashed so far; more follows
  {"id": N, "error": TEXT}              it cannot be read; with "stamp": another file of the same device has taken the
                                        place of the listed one, and this is its stamp

With --pack all output is in frames: "r" or "z", four bytes with the length of what follows (big-endian), and that many
bytes: as they are, or as a zlib stream of at most 1 MiB. A block is packed where that arrives sooner, by the speeds
measured so far; after one that does not pay, more and more blocks are sent as they are before the next attempt.

Exit status: 0 the input has ended, or the reader has gone, 2 wrong command line.

Example: echo '{"id": 1, "path": "/workspace/a.pt"}' | python3 rgt-box.pyz send
"""
BLOCK = 1 << 20
REQUESTS = 1 << 16
GATHERED = 1 << 18
"""Files up to this size are batched: each write makes the SSH server encrypt a packet that may not
be full."""
HASHED = 1 << 18
"""Bytes read at a time for hashing: small enough to stay in the processor's cache."""
NO_SENDFILE = (errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EOVERFLOW)


def main(argv: list[str]) -> int:
    """Run the verb; returns its exit status."""
    paths, options = file_tree.parse_words(argv, {"--pack": "flag"}, HELP)
    if paths:
        return file_tree.print_usage_error("send: requests are read from standard input")
    enlarge_pipe(1)
    server = RequestServer(1, BlockPacker() if options.get("pack") else None)
    try:
        for line in read_requests(server):
            server.answer_request(line)
        server.flush_batch()
    except (BrokenPipeError, ConnectionResetError):
        os.dup2(
            os.open(os.devnull, os.O_WRONLY), 1
        )  # otherwise the interpreter reports the error again at exit
    finally:
        server.close()
    return 0


def read_requests(server: RequestServer) -> Iterator[bytes]:
    """Yield the lines of stdin; flush batched answers before waiting for more."""
    rest = b""
    while True:
        data = os.read(0, REQUESTS)
        if not data:
            break
        lines = (rest + data).split(b"\n")
        rest = lines.pop()
        for line in lines:
            yield line
        server.flush_batch()
    if rest:
        yield rest


def enlarge_pipe(fd: int) -> None:
    """Enlarge a pipe's buffer so that its two ends wait less; do nothing if refused."""
    try:
        # Linux's constant; Python defines it from 3.10 on.
        f_setpipe_sz = 1031
        fcntl.fcntl(fd, f_setpipe_sz, BLOCK)
    except (OSError, OverflowError):
        pass  # not a pipe, or this user has reached the kernel's limit for pipes


class RunningHash:
    """The running hash of a file whose pieces are sent in order.

    Args:
        stamp: Stamp of the file when its first piece was sent.
    """

    def __init__(self, stamp: list[int]) -> None:
        self.stamp = stamp
        self.at = 0
        self.hash = hashing.new_sha256()
        self._buffer = bytearray(HASHED)

    def hash_up_to(self, fd: int, end: int) -> None:
        """Hash up to `end`.

        If the file is shorter, `at` stays below `end` and the hash is not used.
        """
        view = memoryview(self._buffer)
        while self.at < end:
            count = os.preadv(fd, [view[: min(HASHED, end - self.at)]], self.at)
            if not count:
                return
            self.hash.update(view[:count])
            self.at += count


class RequestServer:
    """Answers requests.

    Args:
        out: Descriptor that answers and file data are written to.
        packer: Packs the output in frames; None = no frames.
    """

    def __init__(self, out: int, packer: BlockPacker | None = None) -> None:
        self._out = out
        self._packer = packer
        self._buffer = bytearray(BLOCK)
        self._gathered = bytearray(BLOCK)
        self._filled = 0
        self._opener = files.CachedOpener()
        self._cache: hashing.HashCache | None = None
        self._running: RunningHash | None = None
        self._copied = not hasattr(os, "sendfile")

    def answer_request(self, line: bytes) -> None:
        """Answer one request line.

        Raises:
            BrokenPipeError: the reader has disconnected.
        """
        request = jsonline.loads_dict(line) or {}
        number = request.get("id")
        path = file_tree.raw_name(request)
        if path is None or not isinstance(number, int):
            return self._write_row({"id": number, "error": "send: no request"})
        try:
            fd = self._opener.open_file(os.fsdecode(path))
        except OSError as error:
            return self._write_row({"id": number, "error": error_text(error)})
        try:
            self._send_file(fd, number, request)
        finally:
            os.close(fd)
        return None

    def _send_file(self, fd: int, number: int, request: JsonObject) -> None:
        found = os.fstat(fd)
        listed = request.get("listed")
        if listed is not None and listed != [found.st_dev, found.st_ino]:
            self._refuse_other(number, listed, found)
            return
        if time.time_ns() - max(found.st_mtime_ns, found.st_ctime_ns) < hashing.RACY_NS:
            # A write within the same clock tick would not change the stamp.
            time.sleep(hashing.RACY_NS / 10**9)
            found = os.fstat(fd)
        start = min(max(0, _int_or_default(request.get("start"), 0)), found.st_size)
        end = min(max(start, _int_or_default(request.get("end"), found.st_size)), found.st_size)
        if request.get("hash") is True:
            self._answer_hash(fd, number, found, start, end)
        elif start == 0 and end == found.st_size <= GATHERED:
            self._append_to_batch(fd, number, found)
        else:
            self._send_and_hash(fd, number, found, start, end)

    def _refuse_other(self, number: int, listed: Any, found: os.stat_result) -> None:
        row: JsonObject = {
            "id": number,
            "error": "another file has taken its place since it was listed",
        }
        if isinstance(listed, list) and listed[:1] == [found.st_dev]:
            row["stamp"] = change_stamp(found)  # saved again by rename, as trainers do
        self._write_row(row)

    def _append_to_batch(self, fd: int, number: int, found: os.stat_result) -> None:
        """Append a small file to the batch."""
        size = found.st_size
        head = b'{"id":%d,"n":%d,"stamp":%s}\n' % (number, size, _stamp_text(found))
        longest_answer = 512
        if self._filled + size + 2 * len(head) + longest_answer > BLOCK:
            self.flush_batch()
        view = memoryview(self._gathered)
        at = self._filled + len(head)
        view[self._filled : at] = head
        end = at + size
        part = view[at:end]
        try:
            while at < end:
                count = os.preadv(fd, [view[at:end]], at - end + size)
                # Truncated: the byte count is already sent, the stamp shows the change.
                if not count:
                    view[at:end] = bytes(end - at)
                    break
                at += count
        except OSError as error:
            return self._write_row({"id": number, "error": error_text(error)})
        digest = hashing.new_sha256()
        digest.update(part)
        told = number, _stamp_text(os.fstat(fd)), digest.hexdigest().encode()
        last = b'{"id":%d,"stamp":%s,"sha256":"%s"}\n' % told
        view[end : end + len(last)] = last
        self._filled = end + len(last)
        return None

    def flush_batch(self) -> None:
        """Send the batch.

        Raises:
            BrokenPipeError: the reader has disconnected.
        """
        if self._filled:
            data = memoryview(self._gathered)[: self._filled]
            self._filled = 0
            self._write_all([data])

    def _send_and_hash(
        self, fd: int, number: int, found: os.stat_result, start: int, end: int
    ) -> None:
        """Send a piece with sendfile while another thread hashes it, so that neither waits."""
        seen = change_stamp(found)
        if start == 0:
            self._running = RunningHash(seen)
        running = self._running
        # A gap or a change: the hash would be that of no version of the file.
        if running is None or running.stamp != seen or running.at != start:
            running = self._running = None
        thread = None
        if running is not None:
            # hashlib and sendfile both release the interpreter's lock, so two cores work.
            thread = threading.Thread(target=running.hash_up_to, args=(fd, end))
            thread.start()
        try:
            self._write_row({"id": number, "n": end - start, "stamp": seen})
            self._send_range(fd, start, end)
        finally:
            if thread is not None:
                thread.join()
        if running is not None and running.at == end:
            told = running.hash.hexdigest()
        else:
            told = None
        self._write_row({"id": number, "stamp": change_stamp(os.fstat(fd)), "sha256": told})

    def _send_range(self, fd: int, at: int, end: int) -> None:
        view = memoryview(self._buffer)
        while at < end:
            if not (self._copied or self._packer):
                try:
                    count = os.sendfile(self._out, fd, at, min(BLOCK, end - at))
                except OSError as error:
                    if error.errno not in NO_SENDFILE:
                        raise
                    self._copied = True  # this file system or stdout does not support sendfile
                    continue
                at += count
                if count:
                    continue
            part = view[: os.preadv(fd, [view[: min(BLOCK, end - at)]], at)]
            if not part:  # truncated: the byte count is already sent, the stamp shows the change
                part = memoryview(bytes(min(BLOCK, end - at)))
            at += len(part)
            self._flush_and_write([part])

    def _answer_hash(
        self, fd: int, number: int, found: os.stat_result, start: int, end: int
    ) -> None:
        whole = start == 0 and end == found.st_size
        if whole:
            known = self._hash_cache().get(found)
        else:
            known = None
        if known is None:
            digest = hashing.new_sha256()
            at = start
            view = memoryview(self._buffer)
            spoken = time.monotonic()
            busy_seconds = 2.0
            while at < end:
                count = os.preadv(fd, [view[: min(BLOCK, end - at)]], at)
                if not count:
                    break
                digest.update(view[:count])
                at += count
                if time.monotonic() - spoken > busy_seconds:
                    spoken = time.monotonic()
                    # The client would take a long silence for a dead connection.
                    self._write_row({"id": number, "busy": at - start})
            known = str(digest.hexdigest())
            after = os.fstat(fd)
            if whole and hashing.content_key(after) == hashing.content_key(found):
                self._hash_cache().put(after, known)
        self._write_row({"id": number, "stamp": change_stamp(os.fstat(fd)), "sha256": known})

    def _hash_cache(self) -> hashing.HashCache:
        if self._cache is None:
            self._cache = hashing.HashCache(hashing.default_path())
        return self._cache

    def _write_row(self, row: JsonObject) -> None:
        self._flush_and_write([jsonline.encode_line(row)])

    def _flush_and_write(self, parts: list[Any]) -> None:
        self.flush_batch()
        self._write_all(parts)

    def _write_all(self, parts: list[Any]) -> None:
        parts = [part for part in parts if part]
        if self._packer is None:
            return self._write_parts(parts)
        block = b"".join(parts)
        packed = None
        # A row between two files is shorter than what a packed one would save.
        shortest = 512
        if len(block) >= shortest:
            packed = self._packer.pack_block(block)
        if packed is None:
            head = b"r"
            body = block
        else:
            head = b"z"
            body = packed
        began = time.monotonic()
        self._write_parts([head + len(body).to_bytes(4, "big"), body])
        self._packer.count_line(len(body), time.monotonic() - began)
        return None

    def _write_parts(self, parts: list[Any]) -> None:
        while parts:
            count = os.writev(self._out, parts)
            # writev may take any part of the buffers.
            while parts and count >= len(parts[0]):
                count -= len(parts.pop(0))
            if count:
                parts[0] = memoryview(parts[0])[count:]

    def close(self) -> None:
        """Close the hash cache and the directory opener."""
        self._opener.close()
        if self._cache is not None:
            self._cache.close()


def _stamp_text(found: os.stat_result) -> bytes:
    return b"[%d,%d,%d,%d]" % (found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino)


def _int_or_default(value: Any, default: int) -> int:
    # A bool is an int in Python.
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    return default
