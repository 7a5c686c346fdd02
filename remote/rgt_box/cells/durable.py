"""The verified copy of a finished run to storage that outlives the box."""

from __future__ import annotations

import os
import shutil

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

CHUNK = 1 << 20


class CopyFailed(Exception):
    """The copy is not there or not the same; the message says why."""


def copy_verified(out: str, keep: list[str], target: str) -> list[str]:
    """Copy what exists of `keep` from `out` to `target`, all or nothing.

    Everything goes to a temporary directory beside `target`, is flushed, read back and compared by SHA-256; only
    then it takes the place of `target`.

    Returns:
        The paths of `keep` that were copied.

    Raises:
        CopyFailed: with the reason; `target` is then as it was.
    """
    temporary = "%s.tmp-%d" % (target, os.getpid())
    try:
        shutil.rmtree(temporary, ignore_errors=True)
        os.makedirs(temporary)
        kept = [path for path in keep if os.path.exists(os.path.join(out, path))]
        pairs = [
            pair for path in kept for pair in _files(os.path.join(out, path), os.path.join(temporary, path))
        ]
        digests = [_copy(source, copy) for source, copy in pairs]
        _sync_dirs(temporary)
        for (_, copy), digest in zip(pairs, digests):  # noqa: B905 (strict= needs Python 3.10)
            if _digest(copy) != digest:
                raise CopyFailed("%s reads back different from what was written" % copy)
        _publish(temporary, target)
        return kept
    except OSError as error:
        raise CopyFailed("%s: %s" % (error.filename or target, error.strerror or error)) from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _files(source: str, copy: str) -> list[tuple[str, str]]:
    """Return (source, copy) for every file, making the directories; links are followed: a copy must not dangle."""
    if not os.path.isdir(source):
        os.makedirs(os.path.dirname(copy), exist_ok=True)
        return [(source, copy)]
    pairs = []
    for folder, names, found in os.walk(source, followlinks=True, onerror=_raise):
        names[:] = sorted(name for name in names if not name.startswith(".tmp-"))
        relative = os.path.relpath(folder, source)
        os.makedirs(os.path.normpath(os.path.join(copy, relative)), exist_ok=True)
        pairs += [
            (os.path.join(folder, name), os.path.normpath(os.path.join(copy, relative, name)))
            for name in sorted(found)
        ]
    return pairs


def _raise(error: OSError) -> None:
    raise error


def _copy(source: str, copy: str) -> str:
    digest = _hasher()
    with open(source, "rb") as reader, open(copy, "wb") as writer:
        while True:
            chunk = reader.read(CHUNK)
            if not chunk:
                break
            digest.update(chunk)
            writer.write(chunk)
        writer.flush()
        os.fsync(writer.fileno())
        # Out of the page cache, so that reading it back asks the storage and not our own memory.
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(writer.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    return str(digest.hexdigest())


def _digest(path: str) -> str:
    digest = _hasher()
    with open(path, "rb") as reader:
        for chunk in iter(lambda: reader.read(CHUNK), b""):
            digest.update(chunk)
    return str(digest.hexdigest())


def _hasher() -> Any:
    import hashlib  # here: it brings libcrypto, which a runner that copies nothing need not carry

    return hashlib.sha256()


def _sync_dirs(top: str) -> None:
    for folder, _, _ in os.walk(top):
        _sync(folder)


def _sync(folder: str) -> None:
    fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    except OSError:
        pass  # some network file systems cannot; the files themselves were flushed
    finally:
        os.close(fd)


def _publish(temporary: str, target: str) -> None:
    old = "%s.old-%d" % (target, os.getpid())
    replaced = os.path.lexists(target)
    if replaced:
        os.rename(target, old)
    try:
        os.rename(temporary, target)
    except OSError:
        if replaced:
            os.rename(old, target)
        raise
    _sync(os.path.dirname(target) or ".")
    if replaced:
        shutil.rmtree(old, ignore_errors=True)
