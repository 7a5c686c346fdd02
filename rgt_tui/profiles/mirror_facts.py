"""Which mirrors and what proxy a platform has, by its profile: what rgt can turn on, and what is left to a person.

Nothing is made up: where a profile has no fact, there is none.
"""

from __future__ import annotations

import msgspec

from rgt_tui.model.profile import Profile

VARIABLES = {
    "hf": ("HF_ENDPOINT", "HF_HUB_DISABLE_XET", "HF_HUB_ENABLE_HF_TRANSFER"),
    "pip": ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_TRUSTED_HOST", "UV_INDEX_URL", "UV_DEFAULT_INDEX"),
    "conda": ("CONDA_CHANNELS", "CONDA_CHANNEL_ALIAS", "CONDA_DEFAULT_CHANNELS"),
}
"""Kind → the variables of a profile's environment that are about it; the first of each is the mirror itself."""
PROXY = "proxy"
KINDS = (*VARIABLES, PROXY)


class MirrorFact(msgspec.Struct, frozen=True, kw_only=True):
    """What a platform has of one kind."""

    kind: str
    env: dict[str, str] = {}
    hook: str | None = None
    """Shell line that turns it on."""
    no_proxy: tuple[str, ...] = ()
    by_hand: tuple[str, ...] = ()
    """What the platform offers and rgt does not do: it could not be undone, or differs from box to box."""

    @property
    def settable(self) -> bool:
        """Rgt can turn it on and off."""
        return bool(self.env or self.hook)


def mirror_facts(profile: Profile) -> tuple[MirrorFact, ...]:
    """Return what a profile says of mirrors and proxy, one for each kind that it speaks of."""
    own, network = profile.overrides, profile.network
    found = []
    for kind, names in VARIABLES.items():
        env = {name: own.env[name] for name in names if name in own.env} if _has(own.env, names) else {}
        hand = tuple(text for text in network.mirrors if _speaks_of(kind, text)) if not env else ()
        found.append(MirrorFact(kind=kind, env=env, by_hand=hand))
    hand = (network.proxy_note,) if network.proxy_note and own.proxy_hook is None else ()
    found.append(MirrorFact(kind=PROXY, hook=own.proxy_hook, no_proxy=own.no_proxy, by_hand=hand))
    return tuple(fact for fact in found if fact.settable or fact.by_hand)


def _has(env: dict[str, str], names: tuple[str, ...]) -> bool:
    return names[0] in env or (names[0].startswith(("PIP", "CONDA")) and any(name in env for name in names))


def _speaks_of(kind: str, text: str) -> bool:
    return (kind in ("pip", "conda") and kind in text.lower()) or (kind == "hf" and "HF_ENDPOINT" in text)
