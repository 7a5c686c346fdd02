"""Append one key to known_hosts: whole, once, and safe against others who do the same at this moment."""

from __future__ import annotations

import os
from pathlib import Path

from rgt_tui.files.lock import take
from rgt_tui.ssh.errors import HostKeyRefused
from rgt_tui.ssh.hostkeys.entries import Entry, hash_name, parse

LOCK_SECONDS = 10.0
NOWHERE = ("/dev/null", "none", "")


def append(path: str, name: str, kind: str, key: str, *, hashed: bool = False) -> Entry:
    """Write down that `name` has a key; nothing happens when the file says so already.

    It may wait for the lock: call it in a thread.

    The file is locked for other rgt processes and written in one call behind its end, so that neither they nor
    ``ssh`` itself can tear a line.

    Args:
        path: The file; it is made with mode 0600, its directory with 0700.
        name: ``host`` or ``[host]:port``.
        kind: e.g. ``ssh-ed25519``.
        key: base64.
        hashed: Write the name so that it can be recognised, not read.

    Raises:
        HostKeyRefused: it cannot be written, or says something else about this server by now.
    """
    try:
        Path(path).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise _unwritten(path, error) from error
    try:
        take(handle, LOCK_SECONDS)
        text = Path(path).read_text(encoding="utf-8", errors="replace")
        for entry in parse(path, text):
            if entry.marker or entry.type != kind or not entry.about(name):
                continue
            if entry.key == key:
                return entry
            raise HostKeyRefused(
                f"ssh: {entry.at} has got another {kind} key of {name} in the meantime; it was not connected"
            )
        gap = "" if not text or text.endswith("\n") else "\n"
        shown = hash_name(name) if hashed else name
        data = f"{gap}{shown} {kind} {key}\n".encode()
        if os.write(handle, data) != len(data):
            raise OSError(0, "only a part could be written")
        os.fsync(handle)
    except OSError as error:
        raise _unwritten(path, error) from error
    finally:
        os.close(handle)
    return Entry(path, (text + gap).count("\n") + 1, shown, kind, key)


def _unwritten(path: str, error: OSError) -> HostKeyRefused:
    return HostKeyRefused(
        f"ssh: the accepted host key cannot be written to {path} ({error.strerror or error}); "
        "mend that, or name another file with known_hosts in the fleet file"
    )
