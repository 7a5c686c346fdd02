"""Opens the control plane of a box. The HTTP client is imported here, at the first box that has one."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from rgt_tui.model.box import ProviderRef
from rgt_tui.model.money import Lifecycle, Meter
from rgt_tui.providers.base import Provider, ProviderError

if TYPE_CHECKING:
    from rgt_tui.providers.runpod_account import RunPodAccount

KINDS = ("runpod",)
"""Control planes that there is an adapter for."""
GONE_AGE_S = 300.0
"""Seconds before a box that is gone is asked for again by itself; every list still looks for it."""


class UnknownProvider(ValueError):
    """The fleet file names a control plane that there is no adapter for."""


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
        self._clock = clock
        self._env = os.environ if env is None else env
        self._home = home
        self._timeout_s = timeout_s
        self._gone: dict[tuple[str | None, str | None, str], Meter] = {}
        self._accounts: dict[tuple[str, str | None], RunPodAccount] = {}

    def open(self, ref: ProviderRef) -> Provider:
        """Return the control plane for one box. Nothing is sent; a missing key shows in the first reading.

        Raises:
            UnknownProvider: there is no adapter for ``ref.kind``.
        """
        from rgt_tui.providers.runpod import RunPod

        return RunPod(self.account(ref), ref.instance, clock=self._clock)

    def account(self, ref: ProviderRef) -> RunPodAccount:
        """Return the account that a box belongs to, opened at its first box."""
        if ref.kind not in KINDS:
            raise UnknownProvider(
                f"no adapter for the provider {ref.kind!r}; there is one for {', '.join(KINDS)}"
            )
        from rgt_tui.providers.http import Account
        from rgt_tui.providers.keys import Secret, check_base_url, is_loopback, runpod_key
        from rgt_tui.providers.runpod import CONSOLE, KEY_ENV, VENDOR
        from rgt_tui.providers.runpod_account import RunPodAccount

        base_url = ref.base_url or VENDOR
        found = self._accounts.get((base_url, ref.key_env))
        if found is not None:
            return found
        # The vendor's own file holds the vendor's key: it is not for a server on the loopback.
        console = CONSOLE if base_url == VENDOR else base_url
        home = None if is_loopback(base_url) else self._home or Path.home()

        def key() -> Secret:
            check_base_url(base_url, VENDOR, ref.key_env, KEY_ENV)
            return runpod_key(self._env, key_env=ref.key_env, default_env=KEY_ENV, home=home, console=console)

        account = RunPodAccount(
            Account(base_url, key, console=console, clock=self._clock, timeout_s=self._timeout_s),
            self._clock,
            tells_balance=base_url == VENDOR,
        )
        self._accounts[base_url, ref.key_env] = account
        return account

    async def poll(self, refs: Iterable[ProviderRef]) -> dict[str, Meter]:
        """Read many boxes with one list call per account, so that 200 boxes stay within a rate limit.

        Returns:
            Instance id → meter; a box that the list lacks is read by itself, which tells gone from trouble.
        """
        import asyncio

        groups: dict[tuple[str, str | None, str | None], list[ProviderRef]] = {}
        for ref in refs:
            groups.setdefault((ref.kind, ref.base_url, ref.key_env), []).append(ref)
        # Side by side: an account that does not answer must not make the others late.
        parts = await asyncio.gather(*(self._poll_account(group) for group in groups.values()))
        return {instance: meter for part in parts for instance, meter in part.items()}

    async def _poll_account(self, refs: list[ProviderRef]) -> dict[str, Meter]:
        try:
            provider = self.open(refs[0])
            listed = {item.id: item.meter for item in await provider.list()}
        except (ProviderError, UnknownProvider) as error:
            trouble = Meter(at=self._clock(), source=refs[0].kind, error=str(error))
            return {ref.instance: trouble for ref in refs}
        meters = {}
        for ref in refs:
            meter = listed.get(ref.instance)
            meters[ref.instance] = meter if meter is not None else await self._missing(provider, ref)
        return meters

    async def _missing(self, provider: Provider, ref: ProviderRef) -> Meter:
        """Read a box that a complete list lacks; once it is known to be gone, only every five minutes."""
        now = self._clock()
        key = (ref.base_url, ref.key_env, ref.instance)
        known = self._gone.get(key)
        if known is not None and known.at is not None and now - known.at < GONE_AGE_S:
            return msgspec.structs.replace(known, at=now)
        meter = await provider.read(ref.instance)
        if meter.error is None and meter.lifecycle is Lifecycle.GONE:
            self._gone[key] = meter
        else:
            self._gone.pop(key, None)
        return meter

    async def close(self) -> None:
        """Close every connection."""
        for account in self._accounts.values():
            await account.http.close()
        self._accounts.clear()


def open_provider(
    ref: ProviderRef, *, clock: Callable[[], float] = time.time, env: Mapping[str, str] | None = None
) -> Provider:
    """Open the control plane of one box alone; close it with its own `close`."""
    from rgt_tui.providers.runpod import RunPod

    providers = Providers(clock=clock, env=env)
    return RunPod(providers.account(ref), ref.instance, clock=clock, on_close=providers.close)
