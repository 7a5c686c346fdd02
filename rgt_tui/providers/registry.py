"""Opens the control plane of a box: the table of adapters, and the accounts that boxes share.

An adapter, and with it the HTTP client, is imported for the first box that needs it.
"""

from __future__ import annotations

import importlib
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import ModuleType

import msgspec

from rgt_tui.language import translate
from rgt_tui.model import FrozenStruct, Lifecycle, Meter, ProviderRef
from rgt_tui.providers.control_plane import (
    Account,
    AccountContext,
    Instance,
    ListRefused,
    Open,
    Provider,
    ProviderError,
)


class LazyAdapter:
    """Opens accounts with the `open_account` of a module, imported on first use.

    Args:
        module: Name of the module.
    """

    def __init__(self, module: str) -> None:
        self.module = module

    def __call__(self, ref: ProviderRef, context: AccountContext) -> Account:
        """Open an account; see `rgt_tui.providers.control_plane.Open`."""
        account: Account = importlib.import_module(self.module).open_account(ref, context)
        return account


def module_of(kind: str) -> ModuleType | None:
    """Return the module of a provider; None for an unknown kind."""
    opens = KINDS.get(kind)
    if isinstance(opens, LazyAdapter):
        return importlib.import_module(opens.module)
    return None


CONSOLES = ("gpushare", "lanrui", "matpool", "paperspace-gradient")
"""Platforms on which a person acts on the console; rgt says what to click."""
IN_BOX = {"autodl-inbox": "autodl"}
"""Boxes without an API that switch themselves off → their profile."""
UNTOLD = frozenset((*CONSOLES, *IN_BOX, "featurize"))
"""Platforms without a call that reports machines: they are not polled, and cost what the fleet file
says.
"""
KINDS: dict[str, Open] = {
    "autodl": LazyAdapter("rgt_tui.providers.autodl"),
    **dict.fromkeys(CONSOLES, LazyAdapter("rgt_tui.providers.console")),
    **dict.fromkeys(IN_BOX, LazyAdapter("rgt_tui.providers.console")),
    "digitalocean": LazyAdapter("rgt_tui.providers.digitalocean"),
    "dstack": LazyAdapter("rgt_tui.providers.dstack"),
    "kubernetes": LazyAdapter("rgt_tui.providers.kubernetes"),
    "lambda": LazyAdapter("rgt_tui.providers.lambda_cloud"),
    "featurize": LazyAdapter("rgt_tui.providers.featurize"),
    "paperspace-core": LazyAdapter("rgt_tui.providers.paperspace"),
    "runpod": LazyAdapter("rgt_tui.providers.runpod"),
    "skypilot": LazyAdapter("rgt_tui.providers.skypilot"),
    "slurm": LazyAdapter("rgt_tui.providers.slurm"),
    "vastai": LazyAdapter("rgt_tui.providers.vast"),
}
"""``kind`` in the fleet file → opener of its accounts; CONTRIBUTING.md says how to add one."""
USUAL_KEYS = {
    "autodl": "AUTODL_TOKEN",
    "digitalocean": "DIGITALOCEAN_ACCESS_TOKEN",
    "lambda": "LAMBDA_API_KEY",
    "paperspace-core": "PAPERSPACE_API_KEY",
    "runpod": "RUNPOD_API_KEY",
    "vastai": "VAST_API_KEY",
}
"""Kinds whose accounts report their machines → default variable of the key. Duplicated from the
kinds' modules, so that these need not be imported.
"""
OVER = frozenset({"dstack", "skypilot"})
"""Control planes on top of other platforms: their boxes use the profile of the platform below."""


class UnknownProvider(ValueError):
    """The fleet file names a control plane without an adapter."""


class AccountListing(FrozenStruct, kw_only=True):
    """One account's machines, by the last list."""

    ref: ProviderRef
    """Any machine of the account."""
    machines: tuple[Instance, ...] = ()
    at: float | None = None
    """Client clock of the last complete list; None = there was none."""
    error: str | None = None
    """Why the last attempt failed; `machines` are then from `at`."""
    refused: bool = False
    """Whether it failed because the key may not list machines: each may still be readable by name.
    """


class Providers:
    """All control planes of a fleet. Boxes of one account share its connections and its rate limit."""

    def __init__(
        self,
        *,
        clock: Callable[[], float] = time.time,
        env: Mapping[str, str] | None = None,
        home: Path | None = None,
        timeout_s: float = 10.0,
    ) -> None:
        if env is None:
            env = os.environ
        self._context = AccountContext(clock, env, home or Path.home(), timeout_s)
        self._gone: dict[ProviderRef, Meter] = {}
        self._accounts: dict[tuple[str, str], Account] = {}
        self.listed: dict[tuple[str, str], AccountListing] = {}
        """Kind and account → its machines, including those that no box names, as seen by
        `poll_meters`.
        """

    def open_control_plane(self, ref: ProviderRef) -> Provider:
        """Return the control plane for one box. Nothing is sent.

        The first reading shows a missing key.

        Raises:
            UnknownProvider: there is no adapter for ``ref.kind``.
        """
        return self.find_account(ref).open_control_plane(ref.instance)

    def find_account(self, ref: ProviderRef) -> Account:
        """Return the account of a box, opened for its first box.

        Raises:
            UnknownProvider: there is no adapter for ``ref.kind``.
        """
        if ref.kind not in KINDS:
            raise UnknownProvider(
                translate(
                    "no adapter for the provider {kind!r}; there is one for {known}",
                    kind=ref.kind,
                    known=", ".join(KINDS),
                )
            )
        key = (ref.kind, ref.account)
        if key not in self._accounts:
            self._accounts[key] = KINDS[ref.kind](ref, self._context)
        return self._accounts[key]

    async def poll_meters(self, refs: Iterable[ProviderRef]) -> dict[ProviderRef, Meter]:
        """Read many boxes with one list call per account, to stay within the rate limits.

        Returns:
            Kind, account and id → meter, because two accounts may have equal ids. A box missing in
            the list is read individually, which distinguishes gone from an error.
        """
        import asyncio

        groups: dict[tuple[str, str], list[ProviderRef]] = {}
        for ref in refs:
            groups.setdefault((ref.kind, ref.account), []).append(ref)
        # In parallel: an account that does not answer must not delay the others.
        parts = await asyncio.gather(
            *(self._poll_account(group) for group in groups.values()), return_exceptions=True
        )
        meters: dict[ProviderRef, Meter] = {}
        for group, part in zip(groups.values(), parts, strict=True):
            if isinstance(part, Exception):  # an unexpected error of one must not affect the others
                words = translate(
                    "rgt: {name}: {part}; this is a fault of rgt",
                    name=type(part).__name__,
                    part=part,
                )
                part = dict.fromkeys(group, Meter(at=self._context.clock(), error=words))
            elif isinstance(part, BaseException):
                raise part
            meters |= part
        return meters

    async def list_account(self, ref: ProviderRef) -> AccountListing:
        """List the machines of an account. A failure keeps the earlier list, with the reason."""
        key = (ref.kind, ref.account)
        try:
            machines = await self.open_control_plane(ref).list()
        except (ProviderError, UnknownProvider) as error:
            before = self.listed.get(key, AccountListing(ref=ref))
            refused = isinstance(error, ListRefused)
            self.listed[key] = msgspec.structs.replace(before, error=str(error), refused=refused)
        else:
            self.listed[key] = AccountListing(ref=ref, machines=machines, at=self._context.clock())
        return self.listed[key]

    async def _poll_account(self, refs: Sequence[ProviderRef]) -> dict[ProviderRef, Meter]:
        for ref in refs:
            self.open_control_plane(
                ref
            )  # An account may be limited to the places of its opened boxes.
        account = await self.list_account(refs[0])
        if account.refused:
            return {
                ref: await self._read_missing(self.open_control_plane(ref), ref) for ref in refs
            }
        if account.error is not None:
            trouble = Meter(at=self._context.clock(), source=refs[0].kind, error=account.error)
            return dict.fromkeys(refs, trouble)
        provider = self.open_control_plane(refs[0])
        listed = {item.id: item.meter for item in account.machines}
        meters = {}
        for ref in refs:
            meter = listed.get(ref.instance)
            if meter is not None:
                meters[ref] = meter
            else:
                meters[ref] = await self._read_missing(provider, ref)
        return meters

    async def _read_missing(self, provider: Provider, ref: ProviderRef) -> Meter:
        """Read a box missing in a complete list; once it is gone, only every five minutes."""
        now = self._context.clock()
        known = self._gone.get(ref)
        # Seconds before a box that is gone is read again individually; every list still looks for
        # it.
        gone_age_s = 300.0
        if known is not None and known.at is not None and 0 <= now - known.at < gone_age_s:
            return msgspec.structs.replace(known, at=now)
        meter = await provider.read(ref.instance)
        if meter.error is None and meter.lifecycle is Lifecycle.GONE:
            self._gone[ref] = meter
        else:
            self._gone.pop(ref, None)
        return meter

    async def close(self) -> None:
        """Close every connection."""
        for account in self._accounts.values():
            await account.close()
        self._accounts.clear()
