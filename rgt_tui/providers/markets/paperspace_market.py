"""Finds and rents Paperspace's machines, whose price is only known once they exist.

https://docs.digitalocean.com/reference/paperspace/api-reference/machine-types/ (availability, verified 2026-08);
templates, startup scripts and the creation: https://api.paperspace.com/v1/openapi.json (Paperspace/cli, 2026-02). There
is no field for a key: a startup script, registered before, lets it in. Without capacity a machine may come to be, off.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Awaitable, Mapping
from typing import Protocol
from urllib.parse import urlencode

import msgspec

from rgt_tui.model import Offer, Wish
from rgt_tui.model.gpu_names import same_gpu
from rgt_tui.providers.answers import array, said, table, text, whole
from rgt_tui.providers.control_plane import BadAnswer, ProviderError, printable
from rgt_tui.providers.markets.rented_market import RentedMarket, check_wish, in_order, unknown_gpu
from rgt_tui.providers.rented import Call, RentedAccount

REGIONS = {"ny2": "East Coast (NY2)", "ca1": "West Coast (CA1)", "ams1": "Europe (AMS1)"}
"""Short name → full name; the API takes both, and shows a machine in the full one (``profiles/api``, 2026-03)."""
TEMPLATE = "ML-in-a-Box"
"""What Paperspace calls its own template with drivers and frameworks."""
DISK_SIZES_GB = (50, 100, 250, 500, 1000, 2000)
"""The API refuses a disk of another size: ``profiles/api`` (2026-03)."""
NOTES = (
    "Paperspace tells a machine's price only once it exists: look at it then",
    "without capacity it may come to be and stay off: its disk is charged then",
    "stopped, its disk and snapshots are charged on",
)
_TYPE = re.compile(r"(.+?)(?:x([0-9]{1,2}))?")
_OFFER = re.compile(r"([A-Za-z0-9+_-]{1,40})@([A-Za-z0-9]{1,40})@([A-Za-z0-9 ()_-]{1,60})")


class Pages(Protocol):
    """Asks for all pages of a list."""

    def __call__(self, path: str, **query: str) -> Awaitable[tuple[object, ...]]:
        """Return all of it, or raise a `ProviderError`."""
        ...


class Template(msgspec.Struct, frozen=True):
    """What we use of an operating system's template."""

    id: str
    name: str
    size_gb: int
    types: tuple[str, ...]
    """Machine types that it runs on."""


class PaperspaceMarket(RentedMarket):
    """Rents machines; see `Market`."""

    def __init__(self, account: RentedAccount, pages: Pages) -> None:
        """Wrap an account.

        Args:
            account: That pays.
            pages: Asks for all pages of a list.
        """
        super().__init__(account)
        self._pages = pages

    async def offers(self, wish: Wish) -> tuple[Offer, ...]:
        """Return the types of machine that have capacity now, without a price; see `Market.offers`."""
        check_wish("Paperspace", wish, currency="USD", spot="Paperspace rents nothing as spot")
        wanted = (wish.region or "").lower()
        regions = [name for code, name in REGIONS.items() if wanted in ("", code, name.lower())]
        if not regions:
            raise ProviderError(
                f"Paperspace has no region {printable(wanted, 60)!r}; it has: {', '.join(REGIONS)}",
                sent=False,
            )
        templates = [
            found for raw in await self._pages("/os-templates") if (found := _template(raw)) is not None
        ]
        types = dict.fromkeys(label for template in templates for label in template.types)
        if not any(_is_wished(wish.gpu, label) for label in types):
            raise unknown_gpu("Paperspace", wish, types, self.account.http.console)
        offers: list[Offer] = []
        for label in types:
            template = _best(templates, label, wish)
            if not _is_wished(wish.gpu, label) or _count(label) != wish.gpu_count or template is None:
                continue
            for region in regions:
                if await self._has(label, region):
                    offers.append(self._offer(wish, label, template, region))
        return in_order(offers, wish)

    async def _has(self, label: str, region: str) -> bool:
        query = urlencode({"machineType": label, "region": region})
        available = said(
            table((await self.account.http.get(f"/machine-availability?{query}")).data).get("available")
        )
        if available is None:
            raise BadAnswer(
                f"Paperspace does not say whether there is a {printable(label, 40)} in {region}",
                console=self.account.http.console,
            )
        return available

    def _offer(self, wish: Wish, label: str, template: Template, region: str) -> Offer:
        least_gb = max(wish.disk_gb, template.size_gb)
        return Offer(
            kind=self.account.ref.kind,
            id=f"{label}@{template.id}@{region}",
            gpu=label,
            gpu_count=wish.gpu_count,
            compute_per_hour=None,
            storage_per_hour=None,
            disk_gb=next((size for size in DISK_SIZES_GB if size >= least_gb), least_gb),
            region=region,
            stock="has capacity",
            notes=(*NOTES, f"template {template.name}"),
        )

    def creation(self, offer: Offer, wish: Wish, token: str) -> Call:
        """Return the one creation call; the script that lets the key in is registered before, and named in it."""
        found = _OFFER.fullmatch(offer.id)
        if found is None:
            raise BadAnswer(f"{printable(offer.id, 80)!r} is not an offer from Paperspace", sent=False)
        label, template, region = found.groups()
        body = {
            "name": token,
            "machineType": label,
            "templateId": template,
            "region": region,
            "diskSize": offer.disk_gb or wish.disk_gb,
            "publicIpType": "dynamic",
            "startOnCreate": True,
            "autoShutdownEnabled": False,
            "autoSnapshotEnabled": False,
            "restorePointEnabled": False,
            "takeInitialSnapshot": False,
            "enableNvlink": False,
            "emailPassword": True,
        }
        return Call("POST", "/machines", body)

    def made(self, data: object) -> str | None:
        """Return the id of the machine."""
        return text(table(table(data).get("data")).get("id"), 80)

    def describe_creation(self, offer: Offer, wish: Wish, token: str) -> str:
        """Return the exact call, and the one before it."""
        call = self.told(self.creation(offer, wish, token))
        return f"{call} (before it, POST /startup-scripts with the key; its id goes in as startupScriptId)"

    async def prepare(self, wish: Wish, token: str) -> Mapping[str, object]:
        """Register the script that lets the key in at the first boot; return its id."""
        if not wish.public_key:
            raise ProviderError(
                "a machine needs a public key: without one only a password lets in", sent=False
            )
        body = {"name": token, "script": script(wish.public_key), "isRunOnce": True}
        made = text(
            table((await self.account.http.send("POST", "/startup-scripts", body)).data).get("id"), 80
        )
        if made is None:
            raise BadAnswer(
                "Paperspace did not say what the startup script is called", console=self.account.http.console
            )
        return {"startupScriptId": made}


def script(public_key: str) -> str:
    """Return what lets a key in for Paperspace's own user."""
    home = "/home/paperspace/.ssh"
    return (
        f"#!/bin/sh\nmkdir -p {home} && printf '%s\\n' {shlex.quote(public_key)} >> {home}/authorized_keys"
        f" && chown -R paperspace:paperspace {home} && chmod 700 {home} && chmod 600 {home}/authorized_keys\n"
    )


def _template(raw: object) -> Template | None:
    """Read a template for machines without a desktop; None for any other."""
    item = table(raw)
    found = text(item.get("id"), 40)
    if found is None or "linux" not in f"{item.get('agentType')}".lower():
        return None
    labels = (
        text(one.get("machineTypeLabel"), 40)
        for one in map(table, array(item.get("availableMachineTypes")))
        if one.get("isAvailable") is True
    )
    return Template(
        id=found,
        name=text(item.get("name"), 80) or found,
        size_gb=whole(item.get("defaultSizeGb")) or DISK_SIZES_GB[0],
        types=tuple(label for label in labels if label is not None),
    )


def _best(templates: list[Template], label: str, wish: Wish) -> Template | None:
    """Return the template that was asked for by id, else Paperspace's own for learning, else any that fits."""
    fitting = [one for one in templates if label in one.types and wish.image in (None, one.id)]
    return next(
        (one for one in fitting if TEMPLATE.lower() in one.name.lower()), fitting[0] if fitting else None
    )


def _count(label: str) -> int:
    """Return how many GPUs a type has: ``A100-80Gx8`` has eight."""
    found = _TYPE.fullmatch(label)
    return int(found[2]) if found is not None and found[2] else 1


def _is_wished(gpu: str, label: str) -> bool:
    found = _TYPE.fullmatch(label)
    return same_gpu(gpu, found[1] if found is not None else label)
