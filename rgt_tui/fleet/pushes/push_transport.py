"""Transport of a push's bytes: rsync where both sides have it, otherwise a stream over SSH.

Both write to files named by the hash of their future content and append to existing ones. Neither
verifies anything: the agent hashes every file before moving it into place. File names of the tree
are not sent.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shutil
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path

import asyncssh

from rgt_tui.model import clean
from rgt_tui.ssh import CommandFailed, Deployed, NotCarried, Unreachable, bulk_client, feed
from rgt_tui.transfer import SourceFile

RSYNC_FROM = 8 << 20
"""Bytes from which rsync is worth its additional login."""
SILENCE_S = 120
CHUNK = 1 << 20
_VERSION = re.compile(r"rsync\s+version\s+v?(\d+)\.(\d+)")
_OLDEST = (3, 1)
"""``--info=progress2`` and ``--append-verify`` need this version (rsync(1)); macOS has another
program of that name."""
_PROGRESS = re.compile(rb"\s*([\d,]+)\s+\d+%")
_PLAIN = re.compile(r"/[\w/.+-]*")

Tell = Callable[[int], None]
"""Called with the number of bytes sent so far in this push."""
Wanted = Sequence[tuple[SourceFile, int]]
"""The files to send, and the byte offset to start at."""


class RsyncFailed(Exception):
    """rsync started and did not finish: the box must be queried again for what it has."""


class NotTaken(CommandFailed):
    """The agent ended with an error.

    One cause is another push of the same code that has already published it.
    """


async def send(
    connection: asyncssh.SSHClientConnection,
    deployed: Deployed,
    staging: str,
    wanted: Wanted,
    *,
    rsync_there: str | None,
    tell: Tell,
    rsync_from: int = RSYNC_FROM,
    env: Mapping[str, str] = os.environ,
) -> str:
    """Send the wanted files; return the transport: ``rsync``, ``ssh``, or "" if nothing was sent.

    Args:
        connection: To the box.
        deployed: The agent there.
        staging: The agent's directory for incoming files.
        wanted: What to send.
        rsync_there: Path of the box's rsync; None = it has none.
        tell: Called with the progress.
        rsync_from: Bytes from which rsync is used.
        env: Environment with the PATH.

    Raises:
        NotTaken: the box did not write it.
        Unreachable: the connection was lost; the next push resumes.
        RsyncFailed: plan again, and send without rsync.
    """
    left = sum(file.size - have for file, have in wanted)
    if not wanted:
        return ""
    if rsync_there is not None and left >= rsync_from and _PLAIN.fullmatch(rsync_there):
        with contextlib.suppress(NotCarried):  # fall back to the SSH connection
            await _by_rsync(connection, staging, wanted, rsync_there, tell, env)
            return "rsync"
    command = deployed.command("push", "take", "--staging", staging)
    done = await feed(connection, command, _pieces(wanted, tell), name="pushing")
    if done.status != 0:
        raise NotTaken(f"the box refused it: {done.words or f'exit {done.status}'}")
    return "ssh"


async def _pieces(wanted: Wanted, tell: Tell) -> AsyncIterator[bytes]:
    sent = 0
    for file, have in wanted:
        yield f"{file.sha256} {have} {file.size - have}\n".encode()
        at = have
        while at < file.size:
            data = await asyncio.to_thread(_read, file, at, min(CHUNK, file.size - at))
            if not data:
                # The file has shrunk: the hash check will fail, and the next plan reports it.
                return
            yield data
            at += len(data)
            sent += len(data)
            tell(sent)


def _read(file: SourceFile, at: int, count: int) -> bytes:
    if file.mended is not None:
        return file.mended[at : at + count]
    try:
        with file.source.open("rb") as source:
            source.seek(at)
            return source.read(count)
    except OSError:
        return b""


async def _by_rsync(
    connection: asyncssh.SSHClientConnection,
    staging: str,
    wanted: Wanted,
    rsync_there: str,
    tell: Tell,
    env: Mapping[str, str],
) -> None:
    program = shutil.which("rsync", path=env.get("PATH"))
    if program is None or not _PLAIN.fullmatch(staging):
        raise NotCarried("there is no rsync on this machine")
    if await _version(program) < _OLDEST:
        raise NotCarried("the rsync of this machine is too old, or another program")
    client = await asyncio.to_thread(bulk_client, connection, env)
    try:
        with tempfile.TemporaryDirectory(prefix="rgt-push-") as folder:
            await asyncio.to_thread(_lay_out, Path(folder), wanted)
            words = (
                program, "--recursive", "--copy-links", "--append-verify", "--info=progress2", "--no-motd",
                f"--timeout={SILENCE_S}", "--protect-args", f"--rsync-path={rsync_there}",
                "-e", client.remote_shell(), f"{folder}/", f"box:{staging}/blobs/",
            )  # fmt: skip
            await _run(words, tell, env)
    finally:
        client.close()


def _lay_out(folder: Path, wanted: Wanted) -> None:
    """Create links to all files under the names they have on the box."""
    try:
        for file, _ in wanted:
            place = folder / file.sha256
            if file.mended is not None:
                place.write_bytes(file.mended)
            else:
                place.symlink_to(file.source)
    except OSError as error:
        raise NotCarried(f"no link can be created for it ({error.strerror or error})") from error


async def _version(program: str) -> tuple[int, int]:
    try:
        process = await asyncio.create_subprocess_exec(
            program, "--version", stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL
        )
        out, _ = await process.communicate()
    except OSError:
        return 0, 0
    found = _VERSION.search(out.decode(errors="replace"))
    if found:
        return (int(found[1]), int(found[2]))
    return (0, 0)


async def _run(words: Sequence[str], tell: Tell, env: Mapping[str, str]) -> None:
    kept = {
        name: value for name, value in env.items() if not name.startswith(("RSYNC_", "SSH_ASKPASS"))
    }
    process = await asyncio.create_subprocess_exec(
        *words,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**kept, "LC_ALL": "C"},
        start_new_session=True,
    )
    assert process.stdout is not None and process.stderr is not None
    errors = asyncio.ensure_future(process.stderr.read(1 << 16))
    try:
        while data := await process.stdout.read(4096):
            for line in re.split(rb"[\r\n]", data):
                if found := _PROGRESS.match(line):
                    tell(int(found[1].replace(b",", b"")))
        said = (await errors).decode(errors="replace")
        status = await process.wait()
    finally:
        errors.cancel()
        if process.returncode is None:
            process.kill()
            await process.wait()
    if status == 0:
        return
    lines = [clean(line) for line in said.strip().splitlines()]
    last = " ".join(lines[-3:])[:300]
    if "No space left" in said or "quota exceeded" in said.lower():
        raise CommandFailed(f"no space on the box: {last}")
    if status in (10, 12, 20, 30, 35) and "not found" not in said:  # rsync(1): the connection
        raise Unreachable(f"rsync: the connection was lost ({last or f'exit {status}'})")
    raise RsyncFailed(f"rsync ended with {status}: {last}")
