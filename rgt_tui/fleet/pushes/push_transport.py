"""Transport of a push's bytes: a stream over the SSH connection.

The agent writes to files named by the hash of their future content and appends to existing ones. It
hashes every file before moving it into place. File names of the tree are not sent.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence

from rgt_wire.block_packing import BlockPacker

from rgt_tui.fleet.pulls.box_pipe import may_pack
from rgt_tui.language import translate
from rgt_tui.ssh import BoxTransport, CommandFailed, DeployedAgent, feed_command
from rgt_tui.transfer import SourceFile

CHUNK = 1 << 20

Tell = Callable[[int], None]
"""Called with the number of bytes sent so far in this push."""
Wanted = Sequence[tuple[SourceFile, int]]
"""The files to send, and the byte offset to start at."""


class PushAgentFailed(CommandFailed):
    """The agent ended with an error.

    One cause is another push of the same code that has already published it.
    """


async def send_files(
    connection: BoxTransport,
    deployed: DeployedAgent,
    staging: str,
    wanted: Wanted,
    tell: Tell,
    pack_from_s: float = 0.003,
) -> int:
    """Send the wanted files; return how many bytes of them were saved by packing.

    Args:
        connection: To the box.
        deployed: The agent there.
        staging: The agent's directory for incoming files.
        wanted: What to send.
        tell: Called with the progress.
        pack_from_s: Round trip from which blocks are packed where they then arrive sooner.

    Raises:
        NotTaken: the box did not write it.
        Unreachable: the connection was lost; the next push resumes.
    """
    if not wanted:
        return 0
    packer = None
    if may_pack(connection, pack_from_s):
        packer = BlockPacker()
    command = deployed.build_command("push", "take", "--staging", staging)
    done = await feed_command(
        connection, command, _iterate_pieces(wanted, tell, packer), name="pushing"
    )
    if done.status != 0:
        raise PushAgentFailed(
            translate("the box refused it: {words}", words=done.words or f"exit {done.status}")
        )
    if packer is None:
        return 0
    return packer.saved_bytes


async def _iterate_pieces(
    wanted: Wanted, tell: Tell, packer: BlockPacker | None
) -> AsyncIterator[bytes]:
    sent = 0
    for file, have in wanted:
        # Packed, each block has its own line; an empty file has no block.
        if packer is None or have == file.size:
            yield f"{file.sha256} {have} {file.size - have}\n".encode()
        at = have
        while at < file.size:
            data = await asyncio.to_thread(_read_piece, file, at, min(CHUNK, file.size - at))
            if not data:
                # The file has shrunk: the hash check will fail, and the next plan reports it.
                return
            began, piece = time.monotonic(), data
            if packer is not None:
                packed = await asyncio.to_thread(packer.pack_block, data)
                head = f"{file.sha256} {at} {len(data)}"
                if packed is None:
                    piece = f"{head}\n".encode() + data
                else:
                    piece = f"{head} {len(packed)}\n".encode() + packed
                began = time.monotonic()
            yield piece
            if packer is not None:
                packer.count_line(len(piece), time.monotonic() - began)
            at += len(data)
            sent += len(data)
            tell(sent)


def _read_piece(file: SourceFile, at: int, count: int) -> bytes:
    if file.mended is not None:
        return file.mended[at : at + count]
    try:
        with file.source.open("rb") as source:
            source.seek(at)
            return source.read(count)
    except OSError:
        return b""
