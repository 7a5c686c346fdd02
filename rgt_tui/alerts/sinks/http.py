"""One POST over httpx, with the address kept out of every message and log."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from urllib.parse import urlsplit

from rgt_tui.alerts.sinks.base import SinkError, host_of

CHATTY = ("httpx", "httpcore", "urllib3", "requests", "apprise")
"""Loggers that write addresses; a topic or a hook in a log file is a password in a log file."""


def hush() -> None:
    """Keep those loggers from writing anything below an error."""
    for name in CHATTY:
        logging.getLogger(name).setLevel(logging.CRITICAL)


async def post(url: str, body: bytes, headers: Mapping[str, str], *, timeout_s: float) -> None:
    """Send `body` once.

    Raises:
        SinkError: no connection, no answer in time, or an answer other than 2xx. It names the host alone.
    """
    import httpx

    hush()
    host = host_of(url)
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable:
        raise SinkError("its address is no http or https address")
    try:
        # A redirect is not followed: the message would go, and the token with it, where nobody has named.
        async with httpx.AsyncClient(timeout=timeout_s, follow_redirects=False) as client:
            status = (await client.post(url, content=body, headers=dict(headers))).status_code
    except (httpx.HTTPError, httpx.InvalidURL, OSError, ValueError) as error:
        # `from None`: the chained exception holds the request, and with it the address.
        raise SinkError(f"{host} cannot be reached ({type(error).__name__})") from None
    if not 200 <= status < 300:
        hint = {401: ": check its token", 403: ": check its token", 404: ": check its address"}.get(
            status, ""
        )
        raise SinkError(f"{host} answered {status}{hint}")
