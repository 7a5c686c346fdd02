"""Which storage tier a path belongs to, and thus what outlives a stop or a destroy."""

from __future__ import annotations

from collections.abc import Mapping

from rgt_tui.model.profile import Profile, Tier

_WORTH = {False: 0, None: 1, True: 2}


def tier_named(profile: Profile, name: str) -> Tier | None:
    """Return the tier of `profile` called `name`."""
    return next((tier for tier in profile.tiers if tier.name == name), None)


def survival(
    profile: Profile, mount: str, *, tier: str | None = None, known: Mapping[str, str] | None = None
) -> Tier | None:
    """Return the tier that `mount` (a mount point, or any absolute path) belongs to; None = not known.

    The longest matching mount wins. Where two tiers share it (RunPod's ``/workspace`` is the volume disk
    or a network volume), the one that survives less is assumed; who knows better names the `tier`.

    Args:
        profile: The platform.
        mount: Absolute path on the box.
        tier: Name of the tier to prefer among those that share the longest mount.
        known: Mount point → tier name, where the fleet file says which one it is; it beats the profile's guess.
    """
    path = mount.rstrip("/") + "/"

    def under(root: str) -> str | None:
        own = root.rstrip("/") + "/"
        return own if path.startswith(own) else None

    found = [
        (len(root), candidate)
        for candidate in profile.tiers
        for root in map(under, candidate.mounts)
        if root is not None
    ]
    longest = max((length for length, _ in found), default=0)
    said = [(len(root), name) for mounted, name in (known or {}).items() if (root := under(mounted))]
    if said and max(said)[0] >= longest:
        return tier_named(profile, max(said)[1])
    best = [candidate for length, candidate in found if length == longest]
    if tier is not None:
        best = [candidate for candidate in best if candidate.name == tier] or best
    return min(best, key=lambda t: (_WORTH[t.survives_destroy], _WORTH[t.survives_stop]), default=None)
