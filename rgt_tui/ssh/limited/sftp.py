"""Whether a box takes files over SFTP, which scp uses, too. rgt itself needs none."""

from __future__ import annotations

import asyncio
import contextlib

import asyncssh

from rgt_tui.ssh.errors import Unreachable
from rgt_tui.ssh.refusing import lost, no_further, not_opened

SECONDS = 15.0
NO_SFTP = "no SFTP: sftp and scp cannot copy files to or from it; rsync, scp -O and tar through ssh may"


async def has_sftp(connection: asyncssh.SSHClientConnection) -> bool | None:
    """Tell whether the box serves SFTP; None where it does not answer in time, or grants no session beside others.

    Raises:
        Unreachable: the connection is gone, which says nothing about SFTP.
    """
    try:
        async with asyncio.timeout(SECONDS):
            client = await connection.start_sftp_client()
    except TimeoutError:
        return None
    except asyncssh.ChannelOpenError as error:
        refusal = not_opened(connection, error, "SFTP")
        if isinstance(refusal, Unreachable):
            raise refusal from error
        return None if no_further(connection, error) else False
    except (asyncssh.ConnectionLost, asyncssh.DisconnectError) as error:
        raise lost(connection) from error
    except (asyncssh.Error, OSError) as error:
        if connection.is_closed():
            raise lost(connection) from error
        return False
    client.exit()
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(client.wait_closed(), SECONDS)
    return True
