"""Finds and rents GPU droplets: DigitalOcean's sizes, and the one creation call.

https://docs.digitalocean.com/reference/api/ (sizes, droplets, SSH keys; OpenAPI of 2026-08). A creation is answered
with 202, which says that it was accepted and nothing more. 422 means that the size is not to be had, or that the
account may have no more droplets: only its words tell, and nothing was made either way.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Awaitable, Callable, Mapping
from urllib.parse import quote

from rgt_tui.model import Offer, Wish
from rgt_tui.model.gpu_names import same_gpu
from rgt_tui.providers.answers import array, number, table, text, whole
from rgt_tui.providers.control_plane import BadAnswer, Instance, NotFound, ProviderError
from rgt_tui.providers.markets.rented_market import RentedMarket
from rgt_tui.providers.markets.wish_matching import check_wish, in_order, unknown_gpu
from rgt_tui.providers.rented import Call, Machine, RentedAccount

Pages = Callable[[str, str], Awaitable[tuple[object, ...]]]
IMAGES = {"nvidia": ("gpu-h100x1-base", "gpu-h100x8-base"), "amd": ("gpu-amd-base", "gpu-amd-base")}
"""Maker → DigitalOcean's own images with drivers, for one GPU and for several.

https://github.com/dstackai/dstack (its DigitalOcean backend, verified 2026-08).
"""
OUT_PER_GB = 0.01
"""USD, above what the size includes: https://docs.digitalocean.com (verified 2026-08)."""
NOTES = (
    "powered off it bills in full: only its destruction ends the bill",
    "a scratch disk is not kept while it is off",
)


class DigitalOceanMarket(RentedMarket):
    """Rents droplets; see `Market`."""

    def __init__(self, account: RentedAccount, pages: Pages, parse: Callable[[object], Machine]) -> None:
        """Wrap an account.

        Args:
            account: That pays.
            pages: Asks for all pages of a list: its path, and the key of what is in it.
            parse: Reads a droplet.
        """
        super().__init__(account)
        self._pages, self._parse = pages, parse

    async def offers(self, wish: Wish) -> tuple[Offer, ...]:
        """Return the sizes with that GPU that can be had now; see `Market.offers`."""
        check_wish("DigitalOcean", wish, currency="USD", spot="DigitalOcean rents no droplet as spot")
        sizes = [table(raw) for raw in await self._pages("/v2/sizes", "sizes")]
        with_gpu = [size for size in sizes if _model(size)]
        if not any(_is_wished(wish, size) for size in with_gpu):
            raise unknown_gpu("DigitalOcean", wish, map(_model, with_gpu), self.account.http.console)
        found = (self._offer(wish, size) for size in with_gpu if _is_wished(wish, size))
        return in_order((offer for offer in found if offer is not None), wish)

    def _offer(self, wish: Wish, size: Mapping[str, object]) -> Offer | None:
        gpu = table(size.get("gpu_info"))
        slug, disk = text(size.get("slug"), 80), whole(size.get("disk"))
        regions = [name for one in array(size.get("regions")) if (name := text(one, 40))]
        places = regions if wish.region is None else [one for one in regions if one == wish.region]
        if (
            size.get("available") is not True
            or slug is None
            or not places
            or whole(gpu.get("count")) != wish.gpu_count
            or (disk is not None and disk < wish.disk_gb)
        ):
            return None
        transfer = number(size.get("transfer"))
        included = "some" if transfer is None else f"{transfer:g} TB"
        return Offer(
            kind=self.account.ref.kind,
            id=f"{slug}/{wish.region or ANYWHERE}",
            gpu=_model(size),
            gpu_count=wish.gpu_count,
            gpu_memory_gb=_memory(size),
            # The whole droplet with its disks; a price of 0 would be a gift, and is not believed.
            compute_per_hour=number(size.get("price_hourly")) or None,
            storage_per_hour=0.0,
            in_per_gb=None,
            out_per_gb=OUT_PER_GB,
            disk_gb=disk,
            region=wish.region,
            stock=f"available in {', '.join(places)}",
            notes=(*NOTES, f"{included} of outgoing traffic is in the price, what goes beyond is charged"),
        )

    def creation(self, offer: Offer, wish: Wish, token: str) -> Call:
        """Return the one creation call; the key that it names is registered before."""
        slug, _, place = offer.id.partition("/")
        if not slug or not place:
            raise BadAnswer(f"{offer.id!r} is not an offer from DigitalOcean", sent=False)
        one, several = IMAGES["amd" if offer.gpu.lower().startswith("amd") else "nvidia"]
        body: dict[str, object] = {
            "name": token,
            "size": slug,
            "image": wish.image or (one if offer.gpu_count == 1 else several),
            "ssh_keys": [fingerprint(wish.public_key)] if wish.public_key else [],
            "backups": False,
            "ipv6": False,
            "monitoring": False,
            "tags": [],
            "volumes": [],
            "public_networking": True,
        }
        return Call("POST", "/v2/droplets", body if place == ANYWHERE else {**body, "region": place})

    def made(self, data: object) -> str | None:
        """Return the id of the droplet."""
        found = table(table(data).get("droplet")).get("id")
        return str(found) if type(found) is int and found > 0 else None

    def describe_creation(self, offer: Offer, wish: Wish, token: str) -> str:
        """Return the exact call, and the one that may be needed before it."""
        return f"{self.told(self.creation(offer, wish, token))} (before it, POST /v2/account/keys if the key is new)"

    async def prepare(self, wish: Wish, token: str) -> Mapping[str, object]:
        """Register the public key, if the account has it not: a droplet takes only such keys."""
        if not wish.public_key:
            raise ProviderError(
                "a droplet needs a public key: without one DigitalOcean makes a password, which rgt cannot use",
                sent=False,
            )
        http = self.account.http
        try:
            await http.get(f"/v2/account/keys/{fingerprint(wish.public_key)}")
        except NotFound:
            await http.send("POST", "/v2/account/keys", {"name": token, "public_key": wish.public_key})
        return {}

    async def find(self, token: str) -> tuple[Instance, ...]:
        """Look for the name, which DigitalOcean compares whole and without regard to case."""
        found = await self._pages(f"/v2/droplets?type=gpus&name={quote(token, safe='')}", "droplets")
        return tuple(self.account.listed(one) for one in map(self._parse, found) if token in one.name)


def _model(size: Mapping[str, object]) -> str:
    return text(table(size.get("gpu_info")).get("model"), 60) or ""


def _memory(size: Mapping[str, object]) -> float | None:
    vram = table(table(size.get("gpu_info")).get("vram"))
    return (number(vram.get("amount")) or None) if vram.get("unit") in ("gib", "gb") else None


def _is_wished(wish: Wish, size: Mapping[str, object]) -> bool:
    return same_gpu(wish.gpu, _model(size), _memory(size))


ANYWHERE = "any"
"""In the id of an offer, where the place of a region: wherever there is one."""


def fingerprint(public_key: str) -> str:
    """Return the MD5 fingerprint of a public key, which is DigitalOcean's name for keys.

    Raises:
        BadAnswer: it is not a public key; nothing was sent.
    """
    try:
        blob = base64.b64decode(public_key.split()[1], validate=True)
    except (IndexError, binascii.Error):
        raise BadAnswer("the public key is not one line as in authorized_keys", sent=False) from None
    return ":".join(f"{byte:02x}" for byte in hashlib.md5(blob, usedforsecurity=False).digest())
