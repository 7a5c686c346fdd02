"""RunPod through REST v2 (https://docs.runpod.io/api-reference-v2/overview): read, list, stop, terminate.

Stopping and terminating are sent once and never repeated by themselves; nothing here starts or creates a pod.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable

from rgt_tui.model.evidence import Permit, Verb
from rgt_tui.model.money import Lifecycle, Meter
from rgt_tui.providers.base import (
    BadAnswer,
    Instance,
    NotFound,
    PermitRefused,
    ProviderError,
    check_permit,
    printable,
)
from rgt_tui.providers.runpod_account import RunPodAccount
from rgt_tui.providers.runpod_pod import VOLUME_STOPPED

VENDOR = "https://api.runpod.io"
CONSOLE = "https://console.runpod.io/pods"
KEY_ENV = "RUNPOD_API_KEY"

_ID = re.compile(r"[A-Za-z0-9_-]{1,80}")
"""What may stand in the path of a request: an id from a file must not be able to name another resource."""


class RunPod:
    """One pod's control plane."""

    def __init__(
        self,
        account: RunPodAccount,
        instance: str,
        *,
        clock: Callable[[], float],
        on_close: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self._account = account
        self._instance = instance
        self._clock = clock
        self._on_close = on_close

    @property
    def instance(self) -> str:
        """The pod that this object may stop or terminate."""
        return self._instance

    @property
    def console_url(self) -> str:
        """RunPod's console, or the server itself where it is not RunPod's."""
        return self._account.http.console

    async def read(self, instance: str) -> Meter:
        """Read one pod; see `Provider.read`."""
        try:
            _check_id(instance)
            pod = await self._account.pod(instance)
            if pod.networks:
                await self._account.learn_volumes()
            return self._account.meter(pod, await self._account.spent(pod))
        except NotFound:
            return await self._absent(instance)
        except ProviderError as error:
            return self._trouble(str(error))

    async def _absent(self, instance: str) -> Meter:
        """Return the meter after a 404: gone only if the whole list lacks the pod as well."""
        try:
            pods = await self._account.pods()
        except ProviderError as error:
            return self._trouble(f"404, but the list could not confirm it: {error}")
        if any(pod.id == instance and pod.lifecycle is not Lifecycle.GONE for pod in pods):
            return self._trouble("404, but RunPod's list still shows the pod; ask again")
        pod = self._account.seen(instance)
        if pod is not None:
            return self._account.gone(pod, self._account.spent_known(pod))
        # A wrong id or another account's key looks just like this: so the meter is unknown, not off.
        return Meter(
            lifecycle=Lifecycle.GONE,
            at=self._clock(),
            source=f"RunPod REST v2 at {self._account.http.host}: not in this account, never seen there",
        )

    def _trouble(self, why: str) -> Meter:
        return Meter(at=self._clock(), source=f"RunPod REST v2 at {self._account.http.host}", error=why)

    async def list(self) -> tuple[Instance, ...]:
        """List the account's pods with their meters."""
        pods = await self._account.pods()
        if any(pod.networks for pod in pods):
            await self._account.learn_volumes()
        await self._account.learn_spend(pods)
        await self._account.learn_balance()
        return tuple(
            Instance(
                id=pod.id,
                name=pod.name,
                meter=self._account.meter(pod, self._account.spent_known(pod)),
                host=pod.host,
                port=pod.port,
                user=pod.user,
            )
            for pod in pods
        )

    async def stop(self, permit: Permit) -> str:
        """Stop the pod; see `Provider.stop`. It erases the container disk; the volume disk stays, billed."""
        return await self._act(permit, Verb.PARK)

    async def destroy(self, permit: Permit) -> str:
        """Terminate the pod; see `Provider.destroy`."""
        return await self._act(permit, Verb.DESTROY)

    async def _act(self, permit: Permit, verb: Verb) -> str:
        check_permit(permit, verb, self._instance, self._clock())
        try:
            _check_id(self._instance)
        except BadAnswer as error:
            raise PermitRefused(str(error)) from None
        method, path, body = _call(verb, self._instance)
        answer = await self._account.http.send(method, path, body)
        said = ""
        if isinstance(answer.data, dict) and isinstance(answer.data.get("status"), str):
            said = f", status {printable(answer.data['status'], 40)}"
        return f"{self._account.http.host} answered {answer.status}{said}"

    def describe(self, verb: Verb, instance: str) -> str:
        """Return the exact call."""
        method, path, body = _call(verb, instance)
        text = f"{method} {self._account.http.base_url}{printable(path)}"
        return f'{text} {{"action":"{body["action"]}"}}' if body else text

    def native_label(self, verb: Verb) -> str:
        """Return the label of the console's button."""
        return "Stop" if verb is Verb.PARK else "Terminate"

    def action(self, verb: Verb) -> str:
        """Return the word used in a pod's ``actions``."""
        return "stop" if verb is Verb.PARK else "terminate"

    def keeps_billing(self, verb: Verb, instance: str) -> tuple[str, ...]:
        """Say what bills after the verb, by the last good sight of the pod."""
        pod = self._account.seen(instance)
        if pod is None:
            return (f"unknown: the pod has not been read; check {self.console_url}",)
        lines = []
        if verb is Verb.PARK and pod.volume_gb is None:
            lines.append("the volume disk, if it has one (RunPod did not say)")
        elif verb is Verb.PARK and pod.volume_gb:
            rate = pod.storage_per_hour(running=False) or 0.0
            lines.append(
                f"volume disk {pod.volume_path}, {pod.volume_gb:g} GB: ${rate:.4f}/h "
                f"(${pod.volume_gb * VOLUME_STOPPED:.2f} a month, twice its "
                "running rate) until the pod is terminated"
            )
        for mount in pod.networks or ():
            price = self._account.volume_price(mount.volume)
            cost = "price unknown" if price is None else f"${price:.4f}/h"
            lines.append(f"network volume {mount.volume} at {mount.path}: {cost} until the volume is deleted")
        if pod.networks is None:
            lines.append("a network volume, if one is mounted (RunPod did not say)")
        return tuple(lines)

    def tiers(self, instance: str) -> dict[str, str]:
        """Return which kind of storage stands at which mount point; both kinds may be at /workspace."""
        pod = self._account.seen(instance)
        if pod is None or pod.networks is None:
            return {}
        tiers = {"/": "container-disk"}
        if pod.volume_gb:
            tiers[pod.volume_path] = "volume-disk"
        tiers.update((mount.path, "network-volume") for mount in pod.networks)
        return tiers

    async def close(self) -> None:
        """Close the connections, unless they are shared with other boxes: then their owner closes them."""
        if self._on_close is not None:
            await self._on_close()


def _call(verb: Verb, instance: str) -> tuple[str, str, dict[str, str] | None]:
    if verb is Verb.PARK:
        return "POST", f"/v2/pods/{instance}/action", {"action": "stop"}
    return "DELETE", f"/v2/pods/{instance}", None


def _check_id(instance: str) -> None:
    if not _ID.fullmatch(instance):
        raise BadAnswer(
            f"{printable(instance, 80)!r} is not a RunPod id; correct the instance in the fleet file",
            console=CONSOLE,
        )
