"""Whether a box takes files over SFTP; only asked when somebody wants to move some."""

from __future__ import annotations

import asyncio

import asyncssh

SECONDS = 15.0


async def has_sftp(connection: asyncssh.SSHClientConnection) -> bool:
    """Tell whether the box serves SFTP; a box that does not answer in time does not.

    Raises:
        asyncssh.ConnectionLost: the connection is gone, which says nothing about SFTP.
    """
    try:
        async with asyncio.timeout(SECONDS):
            client = await connection.start_sftp_client()
    except (asyncssh.ConnectionLost, asyncssh.DisconnectError):
        raise
    except (TimeoutError, asyncssh.Error, OSError):
        return False
    client.exit()
    await client.wait_closed()
    return True
