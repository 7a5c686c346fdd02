"""Facts that a person should know about a platform before paying, and whether they were shown.

``$XDG_STATE_HOME/rgt/platforms.json`` has, per platform, a digest of the page that was shown: facts
that have changed since count as unseen.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping
from pathlib import Path

import msgspec

from rgt_tui.files import locked_file, replace_file, state_directory
from rgt_tui.language import translate
from rgt_tui.model import BillingVerb, FrozenStruct, Profile
from rgt_tui.profiles.loader import restore_english
from rgt_tui.profiles.survival import action_for, bilingual_verb

VERSION = 1
MOST_BYTES = 1 << 20


class SeenPage(FrozenStruct):
    """A platform's page as it was shown."""

    digest: str
    at: float
    """Client clock, Unix time."""


class SeenPages(FrozenStruct):
    """The content of the file."""

    version: int = VERSION
    pages: dict[str, SeenPage] = {}


def shown_path(env: Mapping[str, str]) -> Path:
    """Return the path of the file."""
    return state_directory(env) / "platforms.json"


def page_digest(profile: Profile) -> str:
    """Return a digest that changes with any fact of the platform."""
    import hashlib  # imported here so that the first frame does not wait

    # In another language, the facts are the same.
    profile = restore_english(profile)
    # Sorted, so that the order of keys in a file does not matter.
    return hashlib.sha256(msgspec.json.encode(profile, order="sorted")).hexdigest()[:32]


def mark_seen(profile: Profile, now: float, env: Mapping[str, str] = os.environ) -> None:
    """Record that a person was shown the platform's page. Blocks briefly.

    Raises:
        OSError: it cannot be written; the page then counts as unseen.
    """
    path = shown_path(env)
    with locked_file(path):
        known = _read_seen_pages(path)
        pages = {**known.pages, profile.id: SeenPage(page_digest(profile), now)}
        replace_file(path, msgspec.json.encode(SeenPages(pages=pages)))


def seen_at(profile: Profile, env: Mapping[str, str] = os.environ) -> float | None:
    """Return when a person was shown the current page (client clock); None = never, or unknown."""
    path = shown_path(env)
    try:
        found = path.stat()
    except OSError:
        return None
    # Asked with every check of a box: the file is only decoded again when it has changed.
    page = _remembered(path, found.st_mtime_ns, found.st_size).pages.get(profile.id)
    if page is not None and page.digest == page_digest(profile):
        return page.at
    return None


@functools.lru_cache(maxsize=4)
def _remembered(path: Path, changed: int, length: int) -> SeenPages:
    return _read_seen_pages(path)


def _read_seen_pages(path: Path) -> SeenPages:
    """Read the file. A damaged one, or one of a newer rgt, counts as empty."""
    try:
        with path.open("rb") as file:
            known = msgspec.json.decode(file.read(MOST_BYTES), type=SeenPages)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return SeenPages()
    if known.version == VERSION:
        return known
    return SeenPages()


def before_renting(profile: Profile) -> tuple[str, ...]:
    """Return the warnings before renting or choosing a volume there, the worst danger first."""
    said = [profile.top_danger]
    for tier in profile.tiers:
        if tier.region_lock:
            scope = ""
            if tier.scope:
                scope = f" ({tier.scope})"
            said.append(
                translate(
                    "{name} is bound to where it is made{scope}: choose the place first",
                    name=tier.name,
                    scope=scope,
                )
            )
    park, destroy = action_for(profile, BillingVerb.PARK), action_for(profile, BillingVerb.DESTROY)
    if park is None or not park.stops_gpu_meter:
        if destroy is not None:
            how = translate("only {destroy} can end it", destroy=bilingual_verb(destroy))
        else:
            how = translate("nothing here ends it")
        said.append(
            translate("no stop is known that ends the GPU's bill and keeps the box: {how}", how=how)
        )
    said += [
        translate("{one} does not end the bill", one=bilingual_verb(one))
        for one in profile.billing
        if one.trap
    ]
    traffic = profile.network.traffic
    if traffic is None:
        said.append(translate("unknown whether traffic costs money"))
    elif traffic.metered:
        said.append(translate("traffic costs money: {note}", note=traffic.note))
    if profile.interruption.spot_available:
        said.append(
            translate(
                "spot can be taken away: {spot_grace_s}",
                spot_grace_s=describe_grace(profile.interruption.spot_grace_s),
            )
        )
    return tuple(said)


def describe_grace(seconds: float | None) -> str:
    """Return how much warning there is before a machine is taken away."""
    if seconds is None:
        return translate("the time between warning and end is unknown")
    if seconds:
        return translate("{seconds:g} s after a warning", seconds=seconds)
    return translate("without a warning")
