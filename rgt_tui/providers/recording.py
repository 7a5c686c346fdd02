"""Records a provider's answers to the reads of an account, with personal data replaced.

Only reads are sent: while recording, the HTTP client refuses every call that acts
(`AccountHttp.record_reads`).
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Awaitable, Callable, Mapping
from urllib.parse import parse_qsl, urlencode, urlsplit

import msgspec

from rgt_tui.language import translate
from rgt_tui.model import FrozenStruct, RentalRequest
from rgt_tui.providers.control_plane import Account, ProviderError
from rgt_tui.providers.http import AccountHttp, RawExchange

WISH = RentalRequest(gpu="24GB+", disk_gb=20)
"""The wish for which offers are requested."""
KEPT_KEYS = frozenset(
    (
        "status", "state", "actual_status", "intended_status", "cur_state", "next_state",
        "desiredstatus",
        "gpu_name", "gpu_description", "model", "gputypeid", "manufacturer", "machinetype",
        "machinetypelabel",
        "size_slug", "instance_type", "instance_type_name", "unit", "currency", "type",
        "resource_type", "kind",
        "cloud", "cloudtype", "code", "error", "region", "regions", "geolocation", "datacenterid",
        "datacenterids",
        "image_runtype", "publiciptype", "agenttype", "stock", "stockstatus", "verification",
        "hosting_type",
        "charge_type", "region_sign", "region_name", "gpu_spec_uuid", "snapshot_gpu_alias_name",
        "features",
        "architecture", "slug", "accelerators", "endpoint_state", "reason_code", "action", "verb",
    )
)  # fmt: skip
"""Lower-case keys whose text is the platform's own."""
CATALOGUE_KEYS = frozenset(
    (
        "region",
        "regions",
        "instance_type",
        "regions_with_capacity_available",
        "sizes",
        "size",
        "gpus",
        "gpu",
        "gputypes",
        "accelerators",
    )
)
"""Keys of objects whose names and descriptions are the platform's own, too."""
CATALOGUE_NAMES = frozenset(("name", "description", "displayname", "id"))
SECRET_NAMES = frozenset(("label_counts", "env", "extra_env", "labels", "tags", "annotations"))
"""Keys of objects whose own keys were chosen by a person."""
FILTERS = frozenset(("eq", "neq", "in", "notin", "gt", "gte", "lt", "lte"))
"""Keys of a search filter: their values belong to the outer key, as in ``type: {in: [...]}``."""
MONEY = re.compile(r"balance|credit|assets|voucher", re.IGNORECASE)
ID_KEY = re.compile(r"(^id|_ids?|Ids?|ID|^idx|_idx|[pP]orts?)$")
PLATFORM_WORD = re.compile(r"[A-Za-z0-9 _./(){}'+,:-]{1,60}")
ISO_DATE = re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+(Z|[+-]\d\d:?\d\d)?")
WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*|\d+/(tcp|udp)")
AROUND_ID = re.compile(
    r"(instance|volume|serverless|endpoint|workergroup|pod|droplet|machine)?[-:/]?"
)
"""Text allowed around a known id in a string that keeps its form, as in ``instance-1234``."""
ID_PREFIXES = ("pro-",)
"""Prefixes of machine ids that an adapter recognises: AutoDL's."""
ID_SEGMENT = re.compile(r"\d{4,}|[0-9a-fA-F-]{12,}|(?=.*\d)[A-Za-z0-9_-]{10,}")
"""A path segment that is an id."""


class RecordedExchange(FrozenStruct, kw_only=True):
    """One request and its answer."""

    method: str
    path: str
    """Path with query."""
    body: object
    status: int
    headers: dict[str, str]
    """Headers that an adapter reads."""
    answer: object
    """Decoded JSON; other content is omitted and described in `note`."""
    note: str = ""


class Recording(FrozenStruct, kw_only=True):
    """A provider's answers to the reads of one account."""

    rgt: str
    """Version."""
    kind: str
    month: str
    """``2026-11``."""
    failed: tuple[str, ...]
    """Reads that failed, with the kind of error."""
    exchanges: tuple[RecordedExchange, ...]


async def record_account(
    account: Account, instance: str, *, rgt: str, kind: str, month: str
) -> Recording:
    """Send every read of an account once, and record the answers.

    Args:
        account: A newly opened account.
        instance: Any machine of it; empty = none is known.
        rgt: Version of this program.
        kind: Kind of the provider.
        month: The current month.

    Raises:
        ProviderError: it does not use HTTP, or nothing was answered.
    """
    http = getattr(account, "http", None)
    if not isinstance(http, AccountHttp):
        raise ProviderError(
            translate("{kind} has no HTTP API, so nothing can be recorded", kind=kind), sent=False
        )
    found: list[RawExchange] = []
    http.record_reads(found.append)
    redactor = Redactor()
    failed: list[str] = []
    machines: list[str]
    if instance:
        machines = [instance]
    else:
        machines = []

    async def read_list() -> None:
        machines.extend(one.id for one in await account.open_control_plane(instance).list())

    async def read_machines() -> None:
        # Number of machines that are read individually.
        most_read = 2
        for one in dict.fromkeys(machines[-most_read:]):
            await account.open_control_plane(one).read(one)

    async def read_offers() -> None:
        market = account.open_market()
        if market is not None:
            await market.find_offers(WISH)

    steps: dict[str, Callable[[], Awaitable[object]]] = {
        "list": read_list,
        "read": read_machines,
        "leftovers": account.list_leftovers,
        "offers": read_offers,
    }
    for name, step in steps.items():
        try:
            await step()
        except ProviderError as error:
            failed.append(f"{name}: {type(error).__name__} {error.status or ''}".rstrip())
    if not found:
        raise ProviderError(
            translate("{kind} answered nothing: {failed}", kind=kind, failed="; ".join(failed)),
            sent=False,
        )
    for one in machines:
        redactor.redact_text(one)
    exchanges = tuple(_redact_exchange(redactor, one) for one in found)
    return Recording(rgt=rgt, kind=kind, month=month, failed=tuple(failed), exchanges=exchanges)


def _redact_exchange(redactor: Redactor, raw: RawExchange) -> RecordedExchange:
    note, answer = "", None
    if raw.content.strip():
        try:
            answer = redactor.redact_data(msgspec.json.decode(raw.content))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            note = f"{len(raw.content)} bytes that are not JSON"
    return RecordedExchange(
        method=raw.method,
        path=redactor.redact_path(raw.path),
        body=redactor.redact_data(raw.body),
        status=raw.status,
        headers=redactor.redact_headers(raw.headers),
        answer=answer,
        note=note,
    )


# Replaces personal data in a provider's answers: ids, names, addresses, keys, balances.
#
# Text is replaced unless its key is known to have the platform's own words, such as a state or a
# model: fields that a platform adds later are replaced, too. Equal texts get equal replacements of
# the same shape, so that an adapter reads a recording like the platform.


class Redactor:
    """Replaces texts; equal texts get equal replacements."""

    def __init__(self) -> None:
        self._known: dict[str, str] = {}

    def redact_data(self, value: object, key: str = "", parent: str = "") -> object:
        """Return a decoded JSON value without personal data.

        Args:
            value: The value.
            key: Its key.
            parent: Key of the surrounding object.
        """
        if isinstance(value, dict):
            return {
                self._redact_name(name, key): self.redact_data(
                    inner, key if name in FILTERS else name, key
                )
                for name, inner in value.items()
            }
        if isinstance(value, list):
            return [self.redact_data(inner, key, parent) for inner in value]
        if value is None or isinstance(value, bool):
            return value
        if MONEY.search(key):
            return _like_money(value)
        if isinstance(value, str) and value.startswith(("{", "[")):
            with contextlib.suppress(msgspec.DecodeError, RecursionError):
                # SkyPilot answers with JSON in a string.
                return msgspec.json.encode(
                    self.redact_data(msgspec.json.decode(value), key, parent)
                ).decode()
        if isinstance(value, str):
            if self._is_kept(value, key, parent):
                return value
            return self.redact_text(value)
        if isinstance(value, int) and ID_KEY.search(key) and value > 9:
            return int(self.redact_text(str(value)))
        return value

    def redact_text(self, text: str) -> str:
        """Return the replacement of a text."""
        if not text:
            return text
        if text not in self._known:
            self._known[text] = self._around_known(text) or _build_replacement(
                text, len(self._known) + 1
            )
        return self._known[text]

    def redact_headers(self, headers: Mapping[str, str]) -> dict[str, str]:
        """Return the headers of an answer without ids."""
        return {
            name: self.redact_text(value) if name.endswith("-id") else value
            for name, value in headers.items()
        }

    def redact_path(self, path: str) -> str:
        """Return a request's path and query without ids."""
        parts = urlsplit(path)
        segments = [self._redact_segment(one) for one in parts.path.split("/")]
        query = [(name, self._query_value(name, value)) for name, value in parse_qsl(parts.query)]
        return "/".join(segments) + (f"?{urlencode(query)}" if query else "")

    def _redact_segment(self, segment: str) -> str:
        is_id = segment in self._known or ID_SEGMENT.fullmatch(segment) is not None
        if is_id:
            return self.redact_text(segment)
        return segment

    def _query_value(self, name: str, value: str) -> str:
        try:
            return msgspec.json.encode(self.redact_data(msgspec.json.decode(value), name)).decode()
        except msgspec.DecodeError:
            return self._redact_segment(value)

    def _redact_name(self, name: str, parent: str) -> str:
        """Return a key of an object; keys chosen by a person are replaced."""
        if parent.lower() in SECRET_NAMES or name in self._known:
            return self.redact_text(name)
        if WORD.fullmatch(name) or (len(name) < 40 and not ID_SEGMENT.fullmatch(name)):
            return name
        return self.redact_text(name)

    def _is_kept(self, value: str, key: str, parent: str) -> bool:
        name = key.lower()
        if ISO_DATE.fullmatch(value):
            return True
        if name in KEPT_KEYS:
            return value not in self._known and PLATFORM_WORD.fullmatch(value) is not None
        if parent.lower() in CATALOGUE_KEYS and name in CATALOGUE_NAMES:
            return True
        return re.fullmatch(r"-?\d+(\.\d+)?", value) is not None and not ID_KEY.search(key)

    def _around_known(self, text: str) -> str | None:
        """Return a text with its known id replaced; None = it has other private parts."""
        for original in sorted(self._known, key=len, reverse=True):
            before, found, after = text.partition(original)
            if found and len(original) > 3 and not after and AROUND_ID.fullmatch(before):
                return before + self._known[original]
        return None


def _like_money(value: object) -> object:
    """Return an amount of the same type and sign without personal information."""
    if isinstance(value, str):
        if value.startswith("-"):
            return "-12.34"
        return "12.34"
    if isinstance(value, int | float) and not isinstance(value, bool):
        if isinstance(value, float):
            amount = 12.34
        else:
            amount = 12
        if value == 0:
            return 0
        if value < 0:
            return -amount
        return amount
    return None


SHAPES: Mapping[str, str] = {
    r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}": "00000000-0000-4000-8000-{number:012d}",
    r"\d{1,3}(\.\d{1,3}){3}": "198.18.{high}.{low}",
    r"[0-9a-fA-F:]*::?[0-9a-fA-F:]+": "2001:db8::{number:x}",
    r"[^@\s]+@[^@\s]+": "user{number}@example.org",
    r"(ssh|ecdsa)-.*": "ssh-ed25519 AAAA{number} key",
    r"https?://.*": "https://example.org/{number}",
}
"""Shape of an original → shape of its replacement."""


def _build_replacement(text: str, number: int) -> str:
    """Return a replacement in the shape of a text."""
    for shape, replacement in SHAPES.items():
        if re.fullmatch(shape, text, re.DOTALL):
            return replacement.format(number=number, high=number // 250, low=number % 250 + 1)
    if text.isdecimal():
        return str(10 ** max(len(text) - 1, 4) + number)
    if re.fullmatch(r"[0-9a-f]{16,}", text):
        return f"{number:0{len(text)}x}"
    prefix = next((one for one in ID_PREFIXES if text.startswith(one)), "text-")
    return f"{prefix}{number}"
