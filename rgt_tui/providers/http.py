"""One account's HTTP: a key, connections, and every way an answer can be wrong, as typed exceptions."""

from __future__ import annotations

import asyncio
import email.utils
import re
from collections.abc import Callable

import httpx
import msgspec

from rgt_tui.providers.base import (
    AuthError,
    BadAnswer,
    Conflict,
    NotFound,
    RateLimited,
    Unreachable,
    printable,
)
from rgt_tui.providers.keys import Secret, is_loopback

TIMEOUT_S = 10.0
"""Seconds without a byte. Long enough for a slow control plane, short enough that a person at a dialog is told."""
MAX_BODY = 8 << 20
"""Bytes; a list of 200 machines is well under one MiB."""
BACK_OFF = 15.0
"""Seconds to leave a server alone after a 429 that does not say how long."""


class Answer(msgspec.Struct, frozen=True):
    """A 2xx answer."""

    status: int
    data: object
    """Decoded JSON; None where the body is empty."""
    more: bool
    """True when a header says that this is not all of it."""


class Account:
    """Requests to one control plane with one key. Nothing is retried here."""

    def __init__(
        self,
        base_url: str,
        key: Callable[[], Secret],
        *,
        console: str,
        clock: Callable[[], float],
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        self.base_url = base_url.rstrip("/")
        self.console = console
        self._key = key
        self._clock = clock
        self._quiet_until = 0.0
        self._total_s = 3 * timeout_s
        # A proxy for the loopback would be a mistake, and redirects could carry the key elsewhere.
        self._http = httpx.AsyncClient(
            timeout=httpx.Timeout(timeout_s, connect=timeout_s / 2),
            follow_redirects=False,
            trust_env=not is_loopback(base_url),
        )

    @property
    def host(self) -> str:
        """Host and port, for a person."""
        return printable(self.base_url.rpartition("//")[2].rpartition("@")[2].partition("/")[0], 80)

    async def get(self, path: str) -> Answer:
        """Read something. Waits out a rate limit by refusing at once, so that polling cannot make it worse.

        Raises:
            ProviderError: one of its kinds, by what went wrong.
        """
        left = self._quiet_until - self._clock()
        if left > 0:
            raise self._limited(left)
        return await self.send("GET", path)

    async def send(self, method: str, path: str, body: object = None) -> Answer:
        """Send one request, once.

        Raises:
            ProviderError: one of its kinds, by what went wrong.
        """
        # Asked for at each use: it also checks, before anything is sent, that this server may have it.
        headers = {"Authorization": f"Bearer {self._key().reveal()}", "Accept": "application/json"}
        content = None
        if body is not None:
            content = msgspec.json.encode(body)
            headers["Content-Type"] = "application/json"
        try:
            # The whole exchange is bounded, too: a server may send a byte now and then for ever.
            async with (
                asyncio.timeout(self._total_s),
                self._http.stream(method, self.base_url + path, headers=headers, content=content) as response,
            ):
                raw = await self._body(response)
                return self._judge(response, raw, f"{method} {path}")
        except (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout) as error:
            # `from None` throughout: the chained exception holds the request, and with it the key.
            raise Unreachable(
                f"{self.host} cannot be reached ({type(error).__name__}); nothing was sent; try again",
                sent=False,
                console=self.console,
            ) from None
        except (httpx.HTTPError, TimeoutError) as error:
            raise Unreachable(
                f"{self.host} did not answer {method} {path} ({type(error).__name__}); the state is unknown, "
                "check the console",
                console=self.console,
            ) from None

    async def _body(self, response: httpx.Response) -> bytes:
        chunks: list[bytes] = []
        size = 0
        async for chunk in response.aiter_bytes():
            size += len(chunk)
            if size > MAX_BODY:
                raise BadAnswer(f"{self.host} answered more than {MAX_BODY >> 20} MiB", console=self.console)
            chunks.append(chunk)
        return b"".join(chunks)

    def _judge(self, response: httpx.Response, raw: bytes, what: str) -> Answer:
        status = response.status_code
        self._note_limits(response.headers)
        if 200 <= status < 300:
            more = 'rel="next"' in response.headers.get("link", "")
            return Answer(status=status, data=self._json(raw, what), more=more)
        detail = _detail(raw) or response.reason_phrase
        if status in (401, 403):
            raise AuthError(
                f"{self.host} refused the key ({status} {detail}); check that it is valid and may do this",
                console=self.console,
            )
        if status == 404:
            raise NotFound(f"{self.host} does not know it: {what}", console=self.console)
        if status == 409:
            raise Conflict(f"{self.host} refused: {detail}", detail=detail, console=self.console)
        if status == 429:
            wait = _retry_after(response.headers.get("retry-after"), self._clock())
            self._quiet_until = max(
                self._quiet_until, self._clock() + (BACK_OFF if wait is None else min(wait, 3600.0))
            )
            raise self._limited(wait)
        if status >= 500:
            raise Unreachable(
                f"{self.host} failed with {status} {detail} on {what}; state unknown, see the console",
                console=self.console,
            )
        raise BadAnswer(
            f"{self.host} answered {status} {detail} to {what}; nothing was done", console=self.console
        )

    def _json(self, raw: bytes, what: str) -> object:
        if not raw.strip():
            return None
        try:
            data: object = msgspec.json.decode(raw)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            raise BadAnswer(
                f"{self.host} answered {what} with something that is not JSON", console=self.console
            ) from None
        return data

    def _note_limits(self, headers: httpx.Headers) -> None:
        """Leave the server alone when it says that no request is left.

        The header: https://datatracker.ietf.org/doc/draft-ietf-httpapi-ratelimit-headers/
        """
        for item in headers.get("ratelimit", "").split(","):
            left = re.search(r";\s*r=(\d+)", item)
            until = re.search(r";\s*t=(\d+)", item)
            if left and until and int(left[1]) == 0:
                self._quiet_until = max(self._quiet_until, self._clock() + min(int(until[1]), 3600))

    def _limited(self, wait: float | None) -> RateLimited:
        when = "later" if wait is None else f"in {wait:.0f} s"
        return RateLimited(
            f"{self.host} allows no more requests now; try again {when}",
            retry_after=wait,
            console=self.console,
        )

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()


def _detail(raw: bytes) -> str:
    """Return the words of a problem+json body (RFC 9457), cleaned for a terminal."""
    try:
        data = msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return ""
    if not isinstance(data, dict):
        return ""
    parts = [data.get(key) for key in ("detail", "title", "message")]
    return next((printable(part) for part in parts if isinstance(part, str) and part), "")


def _retry_after(value: str | None, now: float) -> float | None:
    """Return the seconds of a Retry-After header, which is a number or a date (RFC 9110 section 10.2.3)."""
    if not value:
        return None
    if value.strip().isdecimal():
        return float(value.strip()[:9])
    try:
        return max(0.0, email.utils.parsedate_to_datetime(value).timestamp() - now)
    except (ValueError, TypeError, OverflowError):
        return None
