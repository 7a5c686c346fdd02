"""All data of a profile as one page in sections, for the dashboard and `rgt profiles show`.

What the sources leave open is shown as *unknown*: never as "no", free or safe.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Iterator
from urllib.parse import urlsplit

import msgspec

from rgt_tui.model import (
    BillingAction,
    Claim,
    ClockMode,
    ClockStart,
    DangerClock,
    Price,
    Profile,
    Source,
    Tier,
)
from rgt_tui.profiles.prices import UNITS, exact, price_words, tariff
from rgt_tui.profiles.readings import age


class Weight(enum.StrEnum):
    """How important a row is; a screen chooses the colour."""

    PLAIN = "plain"
    ASIDE = "aside"
    STRONG = "strong"
    GOOD = "good"
    """A guarantee: it is kept, or it is free."""
    WARN = "warn"
    BAD = "bad"
    """It is lost, or causes costs automatically."""


class PageRow(msgspec.Struct, frozen=True):
    """One fact."""

    label: str
    text: str
    weight: Weight = Weight.PLAIN


class PageSection(msgspec.Struct, frozen=True):
    """Rows with a title."""

    title: str
    rows: tuple[PageRow, ...]


def platform_sections(
    profile: Profile, alert_title: Callable[[str], str | None] = lambda alert: None
) -> tuple[PageSection, ...]:
    """Return the page of a platform, without empty sections.

    Args:
        profile: The platform.
        alert_title: Alert id → its title, for the clocks that an alert watches.
    """
    made = (
        ("in short", _short(profile)),
        ("what survives", _survival(profile)),
        ("what stops the bill", _billing(profile)),
        ("clocks", _clocks(profile, alert_title)),
        ("interruption", _interruption(profile)),
        ("getting in", _launch(profile)),
        ("network", _network(profile)),
        ("keeping work alive", _daemon(profile)),
        ("conveniences", (PageRow("", text) for text in profile.conveniences)),
        ("settings", _overrides(profile)),
        ("known traps", _gotchas(profile)),
        ("where sources disagree", _contradictions(profile)),
        ("sources", _sources(profile)),
    )
    sections = (PageSection(title, tuple(row for row in rows if row.text)) for title, rows in made)
    return tuple(section for section in sections if section.rows)


FIRST_CONTACT = (
    "in short",
    "what survives",
    "what stops the bill",
    "clocks",
    "interruption",
    "network",
    "conveniences",
)
"""Sections that a user should read before any costs; the complete page has more."""

KNOWN = {"battle-tested": "used daily", "from-docs": "from the vendor's pages, not tried"}
"""How well a platform is known, in a few words."""

_KINDS = {
    "battle-tested": "used daily by the authors",
    "from-docs": "from the vendor's pages, not tried",
}


def _short(profile: Profile) -> Iterator[PageRow]:
    names = ", ".join((*((profile.name_zh,) if profile.name_zh else ()), *profile.aliases))
    yield PageRow("danger", profile.top_danger, Weight.BAD)
    yield PageRow("also called", names, Weight.ASIDE)
    yield PageRow("kind", f"{profile.kind}, `{profile.id}` in the fleet file", Weight.ASIDE)
    yield PageRow("money", "" if profile.billed else "machines here cost nothing", Weight.ASIDE)
    yield PageRow("stop the GPU", profile.stops_gpu or "")
    yield PageRow("spend nothing", profile.stops_all or "")
    yield PageRow("known", _KINDS.get(profile.confidence, profile.confidence))
    yield PageRow("", profile.confidence_note or "", Weight.ASIDE)
    months = sorted(source.verified for source in profile.sources if source.verified)
    undated = sum(source.verified is None for source in profile.sources)
    dated = (
        f"{months[0]} to {months[-1]}"
        if months and months[0] != months[-1]
        else "".join(months[:1])
    )
    said = f"{dated or 'never dated'}{f'; {undated} never dated' if undated and dated else ''}"
    yield PageRow("checked", said if profile.sources else "no source is named", Weight.ASIDE)
    yield PageRow(
        "home", " ".join(filter(None, (profile.home_url, profile.docs_url))), Weight.ASIDE
    )


def _kept(answer: bool | None, lasting: str, lost: str) -> str:
    return {True: lasting, False: lost, None: "unknown"}[answer]


def _survival(profile: Profile) -> Iterator[PageRow]:
    for tier in profile.tiers:
        where = (
            ", ".join(filter(None, (" ".join(tier.mounts), tier.where))) or "where it is differs"
        )
        stop, end = tier.survives_stop, tier.survives_destroy
        fate = f"stop: {_kept(stop, 'stays', 'ERASED')}, destroy: {_kept(end, 'stays', 'ERASED')}"
        if stop and end:
            weight = Weight.GOOD
        elif stop:
            weight = Weight.WARN
        elif stop is False:
            weight = Weight.BAD
        else:
            weight = Weight.PLAIN
        yield PageRow(tier.name, f"{where}  {fate}", weight)
        yield PageRow("", _size_words(tier), Weight.ASIDE)
        yield PageRow("", f"{_charge(tier)}{cited(profile, tier.sources)}", Weight.ASIDE)
        yield from (PageRow("", _price_words(price), Weight.ASIDE) for price in tier.prices)
        yield PageRow("", tier.note or "", Weight.ASIDE)
    storage = profile.storage
    yield PageRow("checkpoints", storage.checkpoints or "", Weight.STRONG)
    yield PageRow("inodes", storage.inodes or "")
    yield PageRow("how full", "; ".join(storage.space_probes), Weight.ASIDE)
    yield from (PageRow("note", note, Weight.ASIDE) for note in storage.notes)


def _size_words(tier: Tier) -> str:
    parts = [
        tier.size,
        tier.speed,
        tier.scope and f"reached from {tier.scope}",
        tier.role and f"for {tier.role}",
    ]
    parts += [f"at most {tier.inode_cap:,} files" if tier.inode_cap else None]
    locked = {
        True: "cannot be used from another region",
        False: "can be used from another region",
        None: None,
    }
    parts += [locked[tier.region_lock]]
    return ", ".join(part for part in parts if part)


def _price_words(price: Price) -> str:
    grade = f"{price.grade}, " if price.grade else ""
    above = f" above {price.above_gb:,.0f} GB" if price.above_gb else ""
    amount = f"{tariff(price)} per {UNITS[price.per]}"
    return f"{grade}{price.when}{above} {amount}: {price.url} ({price.verified})"


def _charge(tier: Tier) -> str:
    stopped = {
        True: "bills while stopped",
        False: "free while stopped",
        None: "unknown whether it bills while stopped",
    }
    running, still = price_words(tier, running=True), price_words(tier, running=False)
    figures = f"; {running} running, {still} stopped" if tier.prices else ""
    return stopped[tier.bills_while_stopped] + figures


def _billing(profile: Profile) -> Iterator[PageRow]:
    for action in profile.billing:
        said = _stops(action)
        if action.verb != action.kind:
            said = f"{action.verb}: {said}"
        yield PageRow(action.native_label, said, _action_weight(action))
        fate = [("keeps", action.keeps), ("loses", action.loses), ("unsure", action.uncertain)]
        fate += [
            (f"keeps for {age(seconds)}", (tier,)) for tier, seconds in action.keeps_for_s.items()
        ]
        told = ", ".join(f"{word} {' '.join(tiers)}" for word, tiers in fate if tiers)
        yield PageRow("", f"{told}{cited(profile, action.sources)}", Weight.ASIDE)
        yield PageRow("", action.note or "", Weight.ASIDE)
        yield PageRow("first", action.first or "", Weight.WARN)
        yield PageRow("seen by", action.confirm_with or "", Weight.ASIDE)
        yield from (PageRow("how", how, Weight.ASIDE) for how in action.how)


def _action_weight(action: BillingAction) -> Weight:
    if action.trap:
        return Weight.BAD
    return {"park": Weight.GOOD, "destroy": Weight.WARN}.get(action.kind, Weight.PLAIN)


_WORD = {"park": "park", "destroy": "destroy", "other": ""}


def _stops(action: BillingAction) -> str:
    gpu = {
        True: "the GPU's bill ends",
        False: "the GPU KEEPS BILLING",
        None: "unknown whether the GPU's bill ends",
    }
    disk = {
        True: "storage ends, too",
        False: "storage keeps billing",
        None: "unknown what storage bills",
    }
    back = {True: "can be undone", False: "CANNOT be undone", None: ""}[action.reversible]
    if action.reversible and action.reversible_window_s is not None:
        back = f"can be undone for {age(action.reversible_window_s)}"
    parts = [
        _WORD.get(action.kind, action.kind),
        gpu[action.stops_gpu_meter],
        disk[action.stops_storage_meter],
        back,
    ]
    parts += ["processes end" if action.kills_processes else ""]
    parts += ["looks as if it stopped the bill: it does not" if action.trap else ""]
    return "; ".join(part for part in parts if part)


def _clocks(profile: Profile, alert_title: Callable[[str], str | None]) -> Iterator[PageRow]:
    order = list(ClockMode)
    for clock in sorted(
        profile.clocks, key=lambda one: (order.index(one.mode), one.after_s or float("inf"))
    ):
        yield from clock_rows(clock, alert_title)


def clock_rows(clock: DangerClock, alert_title: Callable[[str], str | None]) -> Iterator[PageRow]:
    """Yield the rows of a clock: its mode, what happens, when, and the source."""
    weight = Weight.WARN if clock.mode in (ClockMode.COUNTDOWN, ClockMode.CHARGE) else Weight.PLAIN
    yield PageRow(clock.mode.value, f"{clock.what}: {clock_manner(clock, alert_title)}", weight)
    where = " (only in scripts)" if clock.in_scripts else ""
    yield PageRow("", f"when {clock.applies_when}{where}: {clock.consequence}")
    if clock.dispute is not None:
        yield PageRow("", f"the sources disagree, the worse counts: {clock.dispute}", Weight.WARN)
    yield from (
        PageRow("", f"source: {claim_source(claim)}", Weight.ASIDE) for claim in clock.claims
    )


_BEGINNINGS: dict[ClockStart, tuple[str, str]] = {
    ClockStart.STOP: ("the stop", "at the stop"),
    ClockStart.START: ("the start", "at the start"),
    ClockStart.WALLTIME: ("the end of the walltime", "when the walltime is over"),
    ClockStart.END_DATE: ("the end date", "at the end date"),
    ClockStart.BALANCE: (
        "the moment at which the balance is used up",
        "when the balance is used up, at the present burn",
    ),
    ClockStart.QUOTA: ("the moment at which the quota is used up", "when the quota is used up"),
}
"""The start of a countdown, as text with and without a time after it."""


def clock_manner(clock: DangerClock, alert_title: Callable[[str], str | None]) -> str:
    """Return when a danger applies: its start, the state in which it runs, or what watches it."""
    about = "about " if clock.approx else ""
    after = "" if not clock.after_s else f"{about}{age(clock.after_s)}"
    if clock.counts_from is not None:
        begins, at_once = _BEGINNINGS[clock.counts_from]
        if after:
            return f"{after} from {begins}"
        return at_once
    if clock.mode is ClockMode.CHARGE:
        return {"always": "in every state"}.get(clock.runs or "", f"while {clock.runs}")
    if clock.mode is ClockMode.TRIPWIRE:
        title = alert_title(clock.watched_by or "")
        told = f" ({title})" if title else ""
        return f"{'within ' + after + ', ' if after else ''}watched by the alert {clock.watched_by}{told}"
    told = (
        "nothing can watch for it: said when the platform is first met, and before a billing action"
    )
    if after:
        return f"after {after}; {told}"
    return told


def claim_source(claim: Claim) -> str:
    """Return the source of a claim with its month, and its text if the figure is not enough."""
    where = ", ".join(part for part in (claim.url, claim.cited_as) if part)
    return f"{where} ({claim.verified or 'not dated'}){f': {claim.says}' if claim.says else ''}"


def cited(profile: Profile, ids: Iterable[str]) -> str:
    """Return `` (docs.runpod.io 2026-06)``: sources and their months; empty without a source."""
    by_id = {source.id: source for source in profile.sources if source.id}
    told = dict.fromkeys(_brief(by_id[one]) for one in ids if one in by_id)
    if told:
        return f"  ({'; '.join(told)})"
    return ""


def _brief(source: Source) -> str:
    host = urlsplit(source.url).hostname if source.url else None
    return f"{host or source.cited_as or 'unnamed'} {source.verified or 'not dated'}"


def _interruption(profile: Profile) -> Iterator[PageRow]:
    part = profile.interruption
    yield PageRow(
        "who ends it", f"{part.model or ''}{cited(profile, part.sources)}" if part.model else ""
    )
    spot = {True: "there is spot", False: "there is no spot", None: "unknown whether there is spot"}
    yield PageRow(
        "spot", spot[part.spot_available], Weight.WARN if part.spot_available else Weight.PLAIN
    )
    if part.spot_available:
        grace = part.spot_grace_s
        if grace is None:
            told = "nobody says how long"
        elif grace:
            told = f"{grace:g} s"
        else:
            told = "none: it ends without a warning"
        yield PageRow("grace", told, Weight.WARN)
    yield PageRow("signal", part.spot_signal or "")
    yield PageRow("seen by", part.detect or "")
    yield PageRow("afterwards", part.resume or "")
    yield from (PageRow("also lost by", loss) for loss in part.losses)


def _launch(profile: Profile) -> Iterator[PageRow]:
    part = profile.launch
    for way in part.ways:
        yield PageRow(way.via, way.call)
        yield PageRow("", way.note or "", Weight.ASIDE)
    yield PageRow("API", part.api or "")
    yield PageRow("address", part.address or "")
    yield PageRow("log in as", part.user or "")
    yield PageRow("host names", " ".join(part.hosts), Weight.ASIDE)
    for shell in part.shells:
        can = (
            ("scp", shell.scp),
            ("rsync", shell.rsync),
            ("sftp", shell.sftp),
            ("port forwarding", shell.forwards),
        )
        words = ", ".join(f"{name} {_kept(answer, 'yes', 'NO')}" for name, answer in can)
        yield PageRow(shell.name, f"{words}{f'; {shell.note}' if shell.note else ''}")
    moves = {True: "a new address or port", False: "the same address and port", None: "unknown"}
    if (part.moves_on_restart, part.moves_on_recreate) != (None, None):
        told = f"after a restart {moves[part.moves_on_restart]}, when recreated {moves[part.moves_on_recreate]}"
        yield PageRow("moves", told, Weight.WARN if part.moves_on_restart else Weight.PLAIN)
    yield PageRow("environment", part.environment or "")
    yield PageRow("first check", part.first_check or "")
    yield from (PageRow("note", note, Weight.ASIDE) for note in part.notes)


def _network(profile: Profile) -> Iterator[PageRow]:
    part = profile.network
    needed = {
        True: "needed: Hugging Face, PyPI and GitHub are slow or out of reach without",
        False: "not needed",
    }
    if part.mirror_needed is not None:
        yield PageRow(
            "mirror",
            needed[part.mirror_needed],
            Weight.WARN if part.mirror_needed else Weight.PLAIN,
        )
    yield from (PageRow("", mirror) for mirror in part.mirrors)
    if part.proxy_required is not None:
        yield PageRow("proxy", "required" if part.proxy_required else "not required")
    yield PageRow("", part.proxy_note or "", Weight.ASIDE)
    yield from (PageRow("trap", trap, Weight.WARN) for trap in part.traps)
    yield from (PageRow("ports", port) for port in part.ports)
    if part.tensorboard is not None:
        board = part.tensorboard
        yield PageRow(
            "TensorBoard",
            f"{board.logdir}, port {board.port}{f'; {board.note}' if board.note else ''}",
        )
    if part.traffic is None:
        yield PageRow("traffic", "no source says what it costs", Weight.WARN)
    else:
        traffic = part.traffic
        told = f"{'METERED' if traffic.metered else 'not metered'}: {traffic.note}"
        said = ", ".join(text for text in (traffic.url, traffic.cited_as) if text)
        yield PageRow("traffic", told, Weight.WARN if traffic.metered else Weight.PLAIN)
        if traffic.most_per_gib is not None:
            yield PageRow(
                "", f"at most {exact(traffic.most_per_gib, traffic.currency)} per GiB", Weight.WARN
            )
        yield PageRow(
            "", f"{said} ({traffic.verified or 'not dated'})" if said else "", Weight.ASIDE
        )
    yield from (PageRow("note", note, Weight.ASIDE) for note in part.notes)


def _daemon(profile: Profile) -> Iterator[PageRow]:
    part = profile.daemon
    yield PageRow("detach", profile.overrides.detach, Weight.STRONG)
    lives = (
        ("the end of SSH", part.survives_ssh_drop),
        ("a stop", part.survives_stop),
        ("a restart", part.survives_restart),
    )
    known = [
        f"{what}: {_kept(answer, 'survives', 'ends')}"
        for what, answer in lives
        if answer is not None
    ]
    yield PageRow("", ", ".join(known))
    yield PageRow("install", part.install or "")
    yield PageRow("without it", part.fallback or "")
    yield PageRow("own queue", part.native_queue or "")
    yield from (PageRow("note", note, Weight.ASIDE) for note in part.notes)


def _overrides(profile: Profile) -> Iterator[PageRow]:
    part = profile.overrides
    yield PageRow("python", " ".join(part.python))
    yield PageRow("", part.python_note or "", Weight.ASIDE)
    yield PageRow("data", part.data_dir or "")
    yield PageRow("durable", part.durable_dir or "")
    yield PageRow("", part.durable_note or "", Weight.ASIDE)
    yield from (PageRow("env", f"{name}={value}") for name, value in part.env.items())
    yield PageRow("before a job", part.env_hook or "")
    yield PageRow("proxy on", part.proxy_hook or "")
    yield PageRow("proxy off", part.proxy_unhook or "")
    yield PageRow("never by it", ", ".join(part.no_proxy))
    yield PageRow("keys", part.credentials or "")
    yield PageRow("scratch", part.scratch or "", Weight.ASIDE)


def _gotchas(profile: Profile) -> Iterator[PageRow]:
    for gotcha in profile.gotchas:
        yield PageRow(gotcha.id, gotcha.symptom, Weight.STRONG)
        yield PageRow("cause", gotcha.cause, Weight.ASIDE)
        yield PageRow("fix", gotcha.fix)
        where = f" in {gotcha.signature_in}" if gotcha.signature_in else ""
        guess = ", as the tools are known to print it" if gotcha.inferred else ""
        yield PageRow(
            "seen by", f"{gotcha.example}{where}{guess}" if gotcha.example else "", Weight.ASIDE
        )
        yield PageRow("pattern", gotcha.log_signature or "", Weight.ASIDE)
        yield PageRow("look at", gotcha.probe or "", Weight.ASIDE)
        yield PageRow("", gotcha.note or "", Weight.ASIDE)


def _contradictions(profile: Profile) -> Iterator[PageRow]:
    for one in profile.contradictions:
        yield PageRow(one.about, " / ".join(one.sides))
        yield PageRow("rgt goes by", f"{one.counts}{cited(profile, one.sources)}", Weight.STRONG)


def _sources(profile: Profile) -> Iterator[PageRow]:
    for source in profile.sources:
        where = ", ".join(part for part in (source.url, source.cited_as) if part)
        yield PageRow(source.verified or "not dated", f"{source.fact}: {where}", Weight.ASIDE)
