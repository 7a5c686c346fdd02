"""Finds and launches Lambda's instances: their types, and the regions that have capacity now.

https://docs.lambda.ai/api/cloud (verified 2026-08). That a region is listed is no promise: a third of the launches of
one report was refused all the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from rgt_tui.model import Offer, Wish
from rgt_tui.model.gpu_names import same_gpu
from rgt_tui.providers.answers import array, number, table, text, whole
from rgt_tui.providers.control_plane import BadAnswer, ProviderError
from rgt_tui.providers.markets.rented_market import RentedMarket
from rgt_tui.providers.markets.wish_matching import check_wish, in_order, unknown_gpu
from rgt_tui.providers.paging import read_single_page
from rgt_tui.providers.rented import Call

NO_SPOT = "Lambda rents nothing that may be taken away"
NOTES = (
    "there is no stop: it is charged until it is terminated, also after a shutdown on it",
    "a file system that is to outlive it must be attached at the launch, in the console",
    "some hosts come up without a working CUDA: check the box before it is used",
)


class LambdaMarket(RentedMarket):
    """Launches instances; see `Market`."""

    async def offers(self, wish: Wish) -> tuple[Offer, ...]:
        """Return the types with that GPU in the regions that have one now; see `Market.offers`."""
        check_wish("Lambda", wish, currency="USD", spot=NO_SPOT)
        await self.account.pace.turn("offers")
        types = table((await self.account.http.get("/api/v1/instance-types")).data).get("data")
        if not isinstance(types, dict):
            raise BadAnswer("Lambda's list of types has no 'data'", console=self.account.http.console)
        entries = [table(entry) for entry in types.values()]
        names = {_gpu(table(entry.get("instance_type"))) for entry in entries} - {""}
        if not any(same_gpu(wish.gpu, name) for name in names):
            raise unknown_gpu("Lambda", wish, names, self.account.http.console)
        return in_order((offer for entry in entries for offer in self._offers(entry, wish)), wish)

    def _offers(self, entry: Mapping[str, object], wish: Wish) -> Iterator[Offer]:
        """Read one type: an offer for each region that has it."""
        kind = table(entry.get("instance_type"))
        specs, name, gpu = table(kind.get("specs")), text(kind.get("name"), 80), _gpu(kind)
        disk, cents = whole(specs.get("storage_gib")), number(kind.get("price_cents_per_hour"))
        fits = same_gpu(wish.gpu, gpu) and whole(specs.get("gpus")) == wish.gpu_count
        if name is None or not fits or (disk is not None and disk < wish.disk_gb):
            return
        for region in map(table, array(entry.get("regions_with_capacity_available"))):
            place = text(region.get("name"), 60)
            if place is None or wish.region not in (None, place):
                continue
            yield Offer(
                kind=self.account.ref.kind,
                id=f"{name}/{place}",
                gpu=gpu,
                gpu_count=wish.gpu_count,
                # Cents of the whole instance; 0 of them are no price.
                compute_per_hour=cents / 100.0 if cents else None,
                # The local disk is in the price, traffic costs nothing: https://lambda.ai (verified 2026-06).
                storage_per_hour=0.0,
                in_per_gb=0.0,
                out_per_gb=0.0,
                disk_gb=disk,
                region=place,
                stock="has capacity now",
                notes=NOTES,
            )

    def creation(self, offer: Offer, wish: Wish, token: str) -> Call:
        """Return the launch; the key that it needs is named by `prepare`."""
        name, _, place = offer.id.partition("/")
        if not name or not place:
            raise BadAnswer(f"{offer.id!r} is not an offer from Lambda", sent=False)
        body: dict[str, object] = {
            "region_name": place,
            "instance_type_name": name,
            "name": token,
            "file_system_names": [],
        }
        if wish.image is not None:
            body["image"] = {"family": wish.image}
        return Call("POST", "/api/v1/instance-operations/launch", body)

    def made(self, data: object) -> str | None:
        """Return the id of the one instance."""
        ids = array(table(table(data).get("data")).get("instance_ids"))
        return text(ids[0], 80) if len(ids) == 1 else None

    def describe_creation(self, offer: Offer, wish: Wish, token: str) -> str:
        """Return the exact call, and the one that may be needed before it."""
        said = self.told(self.creation(offer, wish, token))
        return f"{said} with the name of your key (before it, POST /api/v1/ssh-keys if the key is new)"

    async def prepare(self, wish: Wish, token: str) -> Mapping[str, object]:
        """Return the name of the public key in the account, where it is registered if it is new."""
        if not wish.public_key.strip():
            raise ProviderError("Lambda launches nothing without a public key", sent=False)
        http = self.account.http
        await self.account.pace.turn("keys")
        answer = await http.get("/api/v1/ssh-keys")
        items = read_single_page(answer, table(answer.data).get("data"), "keys", self.account.odd)
        for item in map(table, items):
            name = text(item.get("name"), 80)
            if name is not None and _same_key(item.get("public_key"), wish.public_key):
                return {"ssh_key_names": [name]}
        await self.account.pace.turn("keys")
        await http.send("POST", "/api/v1/ssh-keys", {"name": token, "public_key": wish.public_key})
        return {"ssh_key_names": [token]}


def _same_key(one: object, other: str) -> bool:
    """Tell whether two lines are the same key; the comment at their end does not matter."""
    return isinstance(one, str) and one.split()[:2] == other.split()[:2]


def _gpu(kind: Mapping[str, object]) -> str:
    return text(kind.get("gpu_description"), 60) or ""
