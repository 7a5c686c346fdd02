"""Staging of a push until it is complete: files named by SHA-256, next to their destination.

A staged file is named by the hash of its final content, so that a killed push can be resumed: a
file that is too short is continued, and a file of full length is used once its hash is verified.
"""

from __future__ import annotations

import errno
import os
import re
import stat
import sys
import zlib

from rgt_box import files, jsonline
from rgt_box.commands import hashing
from rgt_box.sampling import free_space

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, BinaryIO

    from rgt_wire import JsonObject


FOLDER = ".rgt-push"
"""In the directory that is pushed to: staged files, and the records of published versions."""
MANIFEST, BLOBS = "manifest.json", "blobs"
MOST = 256 << 20
"""Maximum bytes of a manifest: some two million files."""
SHORT = 12
"""Digits of the hash in a directory's name."""
NAME = re.compile(r"[\w+\-][\w.+\-]{0,99}")
DIGEST = re.compile(r"[0-9a-f]{64}")
CHUNK = 1 << 20


class BadManifest(Exception):
    """The request is invalid; the message says why."""


class PushManifest:
    """A checked request to push files.

    Attributes:
        kind: code or data.
        place: The directory that is pushed to, absolute.
        name: Name of the code, or of the data's source.
        digest: Hash of the whole push.
        files: (path below the place or the version, bytes, SHA-256, mtime in ns, executable).
        links: (path, target).
        replace: Data that is newer here, or may be in use, may be replaced.
    """

    def __init__(self, told: JsonObject) -> None:
        self.told = told
        self.kind = str(told.get("kind"))
        self.name = str(told.get("name"))
        self.digest = str(told.get("digest"))
        place = str(told.get("place"))
        if (
            self.kind not in ("code", "data")
            or not NAME.fullmatch(self.name)
            or not DIGEST.fullmatch(self.digest)
        ):
            raise BadManifest("not the manifest of a push")
        self.place = os.path.abspath(os.path.expanduser(place))
        if not place.startswith(("/", "~")):
            raise BadManifest(f"{place} is not an absolute path")
        self.files: list[tuple[str, int, str, int, bool]] = []
        self.links: list[tuple[str, str]] = []
        self.replace = told.get("replace") is True
        for path, size, digest, mtime, executable in told.get("files") or []:
            if not DIGEST.fullmatch(digest) or int(size) < 0:
                raise BadManifest(f"invalid size or hash: {path}")
            self.files.append(
                (_check_inside(path), int(size), digest, int(mtime), bool(executable))
            )
        for path, target in told.get("links") or []:
            self.links.append((_check_inside(path), str(target)))

    @property
    def version_name(self) -> str:
        """Name of the code's directory."""
        return f"{self.name}-{self.digest[:SHORT]}"

    @property
    def staging_folder(self) -> str:
        """Directory of the staged files."""
        return os.path.join(self.place, FOLDER, f"in-{self.version_name}")

    def sizes_by_digest(self) -> dict[str, int]:
        """Return SHA-256 → bytes, each content once."""
        return {digest: size for _, size, digest, _, _ in self.files}

    def needed_folders(self) -> set[str]:
        """Return the directories that it needs below its place."""
        found = set()
        for path in [row[0] for row in self.files] + [row[0] for row in self.links]:
            while "/" in path:
                path = path.rpartition("/")[0]
                found.add(path)
        return found


def _check_inside(path: Any) -> str:
    parts = str(path).split("/")
    if (
        path != str(path)
        or not path
        or {"", ".", ".."} & set(parts)
        or parts[0] == FOLDER
        or "\0" in path
    ):
        raise BadManifest(f"not a path below the directory: {path}")
    return str(path)


def load_manifest(staging: str) -> PushManifest:
    """Read the manifest written by a plan.

    Raises:
        BadManifest: It is missing or invalid.
    """
    told = files.read_json(os.path.join(staging, MANIFEST), MOST)
    if told is None:
        raise BadManifest(f"{os.path.join(staging, MANIFEST)} is missing: push again")
    found = PushManifest(told)
    if found.staging_folder != os.path.abspath(staging):
        raise BadManifest(f"{staging} was meant for {found.staging_folder}")
    return found


def create_staging(manifest: PushManifest) -> None:
    """Create the staging directory.

    Raises:
        OSError: It cannot be created, or belongs to another user.
    """
    blobs = os.path.join(manifest.staging_folder, BLOBS)
    os.makedirs(manifest.place, exist_ok=True)
    for folder in (os.path.join(manifest.place, FOLDER), manifest.staging_folder, blobs):
        try:
            os.mkdir(folder, 0o700)
        except FileExistsError:
            seen = os.lstat(folder)
            if not stat.S_ISDIR(seen.st_mode) or seen.st_uid != os.geteuid():
                raise OSError(errno.EPERM, "it is not this user's directory", folder) from None
    files.write_json(os.path.join(manifest.staging_folder, MANIFEST), manifest.told)


def blob_path(manifest: PushManifest, digest: str) -> str:
    """Return the staging path of the content with this hash."""
    return os.path.join(manifest.staging_folder, BLOBS, digest)


def file_size(path: str) -> int:
    """Return the size of a regular file in bytes, or -1."""
    try:
        seen = os.lstat(path)
    except OSError:
        return -1
    if stat.S_ISREG(seen.st_mode):
        return seen.st_size
    return -1


def is_right(path: str, digest: str, cache: hashing.HashCache) -> bool:
    """Return whether a file has this hash, by reading it unless its hash is cached."""
    try:
        seen = os.lstat(path)
        if not stat.S_ISREG(seen.st_mode):
            return False
        known = cache.get(seen)
        if known is None:
            known, seen = hashing.hash_unchanging_file(lambda: files.open_regular(path))
            cache.put(seen, known)
    except (OSError, hashing.FileChangedError):
        return False
    return known == digest


def list_wanted(
    manifest: PushManifest, digests: list[str], cache: hashing.HashCache
) -> list[tuple[str, int]]:
    """Return the contents still to be sent, and the bytes of each that are already here."""
    sizes = manifest.sizes_by_digest()
    found = []
    for digest in digests:
        path = blob_path(manifest, digest)
        have = file_size(path)
        if have > sizes[digest] or (have == sizes[digest] and not is_right(path, digest, cache)):
            files.unlink_if_exists(path)
            have = -1
        if have != sizes[digest]:
            found.append((digest, max(0, have)))
    return found


def measure_room(manifest: PushManifest, needed: int, inodes: int) -> JsonObject:
    """Return the needed and the free space of the place; ``error`` if that is unknown.

    Args:
        manifest: The push.
        needed: Bytes still to be written.
        inodes: Files, links and directories still to be created.
    """
    where, error = free_space.measure_free_space(manifest.place)
    found = {"needed_bytes": needed, "needed_inodes": inodes}
    if where is None:
        return dict(found, error=error or "does not answer")
    return dict(
        found, mount=where.mount, free_bytes=where.free_bytes, free_inodes=where.free_inodes
    )


def write_pieces(staging: str, source: BinaryIO) -> int:
    """Write the pieces received: a line with hash, offset and length, then the bytes.

    A fourth number is the length of what follows, if that is a zlib stream. Return their total.

    Bytes that arrived after the plan, from a push that was killed just before, are not written
    twice.

    Raises:
        BadManifest: A piece was not requested.
        OSError: It cannot be written.
    """
    manifest = load_manifest(staging)
    sizes = manifest.sizes_by_digest()
    total = 0
    while True:
        words = source.readline(200).split()
        if not words:
            return total
        digest = words[0].decode("ascii", "replace")
        offset = int(words[1])
        count = int(words[2])
        path = ""
        if DIGEST.fullmatch(digest):
            path = blob_path(manifest, digest)
        have = max(0, file_size(path))
        if not 0 <= offset <= have <= offset + count <= sizes.get(digest, -1):
            raise BadManifest("%s from byte %d on was not requested" % (digest[:SHORT], offset))
        fd = os.open(
            path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600
        )
        packed = 0
        if len(words) > 3:
            packed = int(words[3])
        try:
            while count:
                if packed:
                    data = _read_packed(source, packed, count)
                else:
                    data = source.read(min(CHUNK, count))
                if not data:
                    return total  # the other end has closed: the received bytes are kept
                new = data[max(0, have - offset) :]
                files.write_all(fd, new)
                offset += len(data)
                count -= len(data)
                total += len(new)
        finally:
            os.close(fd)


def _read_packed(source: BinaryIO, packed: int, count: int) -> bytes:
    """Read a packed piece; return nothing if the other end has closed in the middle of it.

    Raises:
        BadManifest: It is not a packed piece of this length.
    """
    # What zlib makes of a block that does not shrink is a little longer than the block.
    if not 0 < packed <= 2 * CHUNK or count > CHUNK:
        raise BadManifest("a packed piece is too long")
    body = source.read(packed)
    if len(body) < packed:
        return b""
    try:
        data = zlib.decompressobj().decompress(body, count + 1)
    except zlib.error as error:
        raise BadManifest("a packed piece is damaged: %s" % error) from None
    if len(data) != count:
        raise BadManifest("a packed piece has another length")
    return data


def copy_content(path: str, digest: str, target: str) -> bool:
    """Copy a file to a new one if it has this hash; otherwise return False and leave nothing.

    Not a hard link: a program that writes into a file of its code would change all other versions.

    Raises:
        OSError: It cannot be written.
    """
    try:
        reader = files.open_regular(path)
    except OSError:
        return False
    part = target + ".copy"
    try:
        files.unlink_if_exists(part)
        writer = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            found, _ = hashing.hash_open_file(reader, writer)
        finally:
            os.close(writer)
        if found == digest:
            os.rename(part, target)
        return found == digest
    finally:
        os.close(reader)
        files.unlink_if_exists(part)


def move_content(manifest: PushManifest, digest: str, target: str, again: bool) -> None:
    """Give a verified, staged content a name in a tree: as a hard link, or as a copy.

    Args:
        manifest: The push.
        digest: Hash of the content.
        target: The new path.
        again: It already has a name in the tree: two paths of a tree never share a file.

    Raises:
        OSError: It cannot be written.
    """
    if not again:
        try:
            os.link(blob_path(manifest, digest), target)
            return
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EEXIST):
                raise
    if not copy_content(blob_path(manifest, digest), digest, target):
        raise OSError(errno.EIO, "what arrived differs from what was sent", target)


def remove_folder(folder: str) -> None:
    """Remove a directory of our own with its content; links are removed, not followed."""
    import shutil  # here: most verbs of a push remove nothing

    shutil.rmtree(folder, ignore_errors=True)


def print_answer(answer: JsonObject) -> None:
    """Print a verb's answer on its own line."""
    sys.stdout.buffer.write(b"\n" + jsonline.encode_line(answer))
    sys.stdout.buffer.flush()


# Which files of a directory were put there by ``rgt push``: only these can be pushed again.


def record_path(place: str, version: str) -> str:
    """Return the file that lists a version's content."""
    return os.path.join(place, FOLDER, version + ".json")


class PushedFiles:
    """The files of one version of pushed code, from its record.

    Args:
        folder: The version's directory, absolute.
        record: Its record, as `code_versions.publish` writes it.
    """

    def __init__(self, folder: str, record: JsonObject) -> None:
        self.folder = folder
        self._start = os.fsencode(folder).rstrip(b"/") + b"/"
        self._files = {os.fsencode(row[0]): row for row in record["files"]}
        links = record.get("links") or []
        self._links = {os.fsencode(row[0]): os.fsencode(row[1]) for row in links}

    def is_unchanged(self, path: bytes, seen: os.stat_result) -> bool:
        """Return whether a regular file is one that was pushed, with the same content.

        Args:
            path: Absolute.
            seen: Its status. Only a file of the right size and another mtime is read.
        """
        if path.startswith(self._start):
            row = self._files.get(path[len(self._start) :])
        else:
            row = None
        if row is None or row[1] != seen.st_size:
            return False
        if seen.st_mtime_ns == row[3]:
            return True
        try:
            return bool(hashing.hash_path(os.fsdecode(path)) == row[2])
        except OSError:
            return False

    def is_link(self, path: bytes, target: bytes) -> bool:
        """Return whether a symbolic link is one that was pushed."""
        return path.startswith(self._start) and self._links.get(path[len(self._start) :]) == target


def load_record(place: str, version: str) -> PushedFiles | None:
    """Return the pushed files of a directory; None without a usable record.

    Args:
        place: The directory that it is in.
        version: Its name.
    """
    record = files.read_json(record_path(place, version), MOST)
    if record is None or record.get("version") != version:
        return None
    rows = record.get("files")
    links = record.get("links") or []
    if not isinstance(rows, list) or not all(_is_row(row) for row in rows):
        return None
    if not isinstance(links, list) or not all(_is_pair(link) for link in links):
        return None
    return PushedFiles(os.path.join(place, version), record)


def version_around(path: str) -> PushedFiles | None:
    """Return the pushed files of `path`, or of a directory around it; None if there are no such."""
    at = os.path.realpath(path)
    while at != os.path.dirname(at):
        found = load_record(os.path.dirname(at), os.path.basename(at))
        if found is not None:
            return found
        at = os.path.dirname(at)
    return None


def _is_row(row: Any) -> bool:
    kinds = (str, int, str, int)
    return isinstance(row, list) and len(row) >= 4 and all(map(isinstance, row, kinds))


def _is_pair(link: Any) -> bool:
    return isinstance(link, list) and len(link) == 2 and all(isinstance(part, str) for part in link)
