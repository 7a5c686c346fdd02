"""Records what a provider answers to the reads of an account, without what belongs to a person.

Only reads go out: while an account records, its HTTP client refuses every call that acts (`AccountHttp.record_reads`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import msgspec

from rgt_tui.model import Wish
from rgt_tui.providers.control_plane import Account, ProviderError
from rgt_tui.providers.http import AccountHttp, RawExchange
from rgt_tui.providers.redaction import Redactor

MOST_READ = 2
"""Machines that are read one by one."""
WISH = Wish(gpu="24GB+", disk_gb=20)
"""What offers are asked for."""


class Recorded(msgspec.Struct, frozen=True, kw_only=True):
    """One request and its answer."""

    method: str
    path: str
    """With the query."""
    body: object
    status: int
    headers: dict[str, str]
    """Those of the answer that an adapter reads."""
    answer: object
    """Decoded JSON; text of another kind is left out and named in `note`."""
    note: str = ""


class Recording(msgspec.Struct, frozen=True, kw_only=True):
    """What a provider answered to the reads of one account."""

    rgt: str
    """Version."""
    kind: str
    month: str
    """``2026-11``."""
    failed: tuple[str, ...]
    """Reads that ended with an error, with its words."""
    exchanges: tuple[Recorded, ...]


async def record_account(account: Account, instance: str, *, rgt: str, kind: str, month: str) -> Recording:
    """Read everything that rgt reads of an account, once.

    Args:
        account: Just opened.
        instance: Any machine of it; empty = none is known.
        rgt: Version of this program.
        kind: Of the provider.
        month: Of today.

    Raises:
        ProviderError: it is not asked over HTTP, or nothing was answered.
    """
    http = getattr(account, "http", None)
    if not isinstance(http, AccountHttp):
        raise ProviderError(f"{kind} is not asked over HTTP, so nothing can be recorded", sent=False)
    found: list[RawExchange] = []
    http.record_reads(found.append)
    redactor = Redactor()
    failed: list[str] = []
    machines: list[str] = [instance] if instance else []

    async def read_list() -> None:
        machines.extend(one.id for one in await account.box(instance).list())

    async def read_machines() -> None:
        for one in dict.fromkeys(machines[-MOST_READ:]):
            await account.box(one).read(one)

    async def read_offers() -> None:
        market = account.market()
        if market is not None:
            await market.offers(WISH)

    steps: dict[str, Callable[[], Awaitable[object]]] = {
        "list": read_list,
        "read": read_machines,
        "leftovers": account.leftovers,
        "offers": read_offers,
    }
    for name, step in steps.items():
        try:
            await step()
        except ProviderError as error:
            failed.append(f"{name}: {type(error).__name__} {error.status or ''}".rstrip())
    if not found:
        raise ProviderError(f"{kind} answered nothing: {'; '.join(failed)}", sent=False)
    for one in machines:
        redactor.text(one)
    exchanges = tuple(_redacted(redactor, one) for one in found)
    return Recording(rgt=rgt, kind=kind, month=month, failed=tuple(failed), exchanges=exchanges)


def _redacted(redactor: Redactor, raw: RawExchange) -> Recorded:
    note, answer = "", None
    if raw.content.strip():
        try:
            answer = redactor.data(msgspec.json.decode(raw.content))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            note = f"{len(raw.content)} bytes that are not JSON"
    return Recorded(
        method=raw.method,
        path=redactor.path(raw.path),
        body=redactor.data(raw.body),
        status=raw.status,
        headers=redactor.headers(raw.headers),
        answer=answer,
        note=note,
    )
