"""All data of a profile as one page in sections, for the dashboard and `rgt profiles show`.

What the sources leave open is shown as *unknown*: never as "no", free or safe.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Iterator
from urllib.parse import urlsplit

from rgt_tui.language import translate
from rgt_tui.model import (
    BillingAction,
    ClockClaim,
    ClockMode,
    ClockStart,
    DangerClock,
    FactSource,
    FrozenStruct,
    Profile,
    StoragePrice,
    StorageTier,
    format_duration,
    format_unit_price,
)
from rgt_tui.profiles.prices import UNITS, describe_tier_prices, format_price


class RowWeight(enum.StrEnum):
    """How important a row is; a screen chooses the colour."""

    PLAIN = "plain"
    ASIDE = "aside"
    STRONG = "strong"
    GOOD = "good"
    """A guarantee: it is kept, or it is free."""
    WARN = "warn"
    BAD = "bad"
    """It is lost, or causes costs automatically."""


class PageRow(FrozenStruct):
    """One fact."""

    label: str
    text: str
    weight: RowWeight = RowWeight.PLAIN


class PageSection(FrozenStruct):
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
    # The order of the page: danger and survival first, because a person may read no further.
    page_parts = (
        ("in short", _summary_rows(profile)),
        ("what survives", _survival_rows(profile)),
        ("what stops the bill", _billing_rows(profile)),
        ("clocks", _sorted_clock_rows(profile, alert_title)),
        ("interruption", _interruption_rows(profile)),
        ("getting in", _launch_rows(profile)),
        ("network", _network_rows(profile)),
        ("keeping work alive", _daemon_rows(profile)),
        ("conveniences", (PageRow("", text) for text in profile.conveniences)),
        ("settings", _override_rows(profile)),
        ("known traps", _gotcha_rows(profile)),
        ("where sources disagree", _contradiction_rows(profile)),
        ("sources", _source_rows(profile)),
    )
    # Rows of unknown facts are empty here; where "unknown" matters, the row says so in words.
    sections = (
        PageSection(title, tuple(row for row in rows if row.text)) for title, rows in page_parts
    )
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

_WHEN = {"running": "running", "stopped": "stopped", "always": "in every state"}
_CONFIDENCE = {
    "battle-tested": "used daily by the authors",
    "from-docs": "from the vendor's pages, not tried",
}


def _summary_rows(profile: Profile) -> Iterator[PageRow]:
    names = ", ".join((*((profile.name_zh,) if profile.name_zh else ()), *profile.aliases))
    yield PageRow("danger", profile.top_danger, RowWeight.BAD)
    yield PageRow("also called", names, RowWeight.ASIDE)
    yield PageRow(
        "kind",
        translate("{kind}, `{id}` in the fleet file", kind=profile.kind, id=profile.id),
        RowWeight.ASIDE,
    )
    text = ""
    if not profile.billed:
        text = translate("machines here cost nothing")
    yield PageRow("money", text, RowWeight.ASIDE)
    yield PageRow("stop the GPU", profile.stops_gpu or "")
    yield PageRow("spend nothing", profile.stops_all or "")
    yield PageRow("known", translate(_CONFIDENCE.get(profile.confidence, profile.confidence)))
    yield PageRow("", profile.confidence_note or "", RowWeight.ASIDE)
    # ISO months sort as text.
    months = sorted(source.verified for source in profile.sources if source.verified)
    undated = sum(source.verified is None for source in profile.sources)
    if months and months[0] != months[-1]:
        dated = translate("{first} to {last}", first=months[0], last=months[-1])
    else:
        dated = "".join(months[:1])
    said = dated or translate("never dated")
    if undated and dated:
        said += translate("; {undated} never dated", undated=undated)
    if not profile.sources:
        said = translate("no source is named")
    yield PageRow("checked", said, RowWeight.ASIDE)
    yield PageRow(
        "home", " ".join(filter(None, (profile.home_url, profile.docs_url))), RowWeight.ASIDE
    )


def _choose_answer(answer: bool | None, lasting: str, lost: str) -> str:
    # A lookup instead of truth values: None must never read as "no".
    return translate({True: lasting, False: lost, None: "unknown"}[answer])


def _survival_rows(profile: Profile) -> Iterator[PageRow]:
    for tier in profile.tiers:
        where = ", ".join(filter(None, (" ".join(tier.mounts), tier.where))) or translate(
            "where it is differs"
        )
        stop, end = tier.survives_stop, tier.survives_destroy
        fate = translate(
            "stop: {stop}, destroy: {end}",
            stop=_choose_answer(stop, "stays", "ERASED"),
            end=_choose_answer(end, "stays", "ERASED"),
        )
        # Colours by the worst that is known: a stop happens more often than a destroy.
        if stop and end:
            weight = RowWeight.GOOD
        elif stop:
            weight = RowWeight.WARN
        elif stop is False:
            weight = RowWeight.BAD
        else:
            weight = RowWeight.PLAIN
        yield PageRow(tier.name, f"{where}  {fate}", weight)
        yield PageRow("", _describe_size(tier), RowWeight.ASIDE)
        yield PageRow(
            "",
            # The source next to the claim: facts about money are only as good as it.
            f"{_describe_storage_bill(tier)}{format_citations(profile, tier.sources)}",
            RowWeight.ASIDE,
        )
        yield from (PageRow("", _describe_price(price), RowWeight.ASIDE) for price in tier.prices)
        yield PageRow("", tier.note or "", RowWeight.ASIDE)
    storage = profile.storage
    yield PageRow("checkpoints", storage.checkpoints or "", RowWeight.STRONG)
    yield PageRow("inodes", storage.inodes or "")
    yield PageRow("how full", "; ".join(storage.space_probes), RowWeight.ASIDE)
    yield from (PageRow("note", note, RowWeight.ASIDE) for note in storage.notes)


def _describe_size(tier: StorageTier) -> str:
    parts = [
        tier.size,
        tier.speed,
        tier.scope and translate("reached from {scope}", scope=tier.scope),
        tier.role and translate("for {role}", role=tier.role),
    ]
    inode_text = None
    if tier.inode_cap:
        inode_text = translate("at most {inode_cap:,} files", inode_cap=tier.inode_cap)
    parts += [inode_text]
    locked = {
        True: translate("cannot be used from another region"),
        False: translate("can be used from another region"),
        None: None,
    }
    parts += [locked[tier.region_lock]]
    return ", ".join(part for part in parts if part)


def _describe_price(price: StoragePrice) -> str:
    grade = ""
    if price.grade:
        grade = f"{price.grade}, "
    above = ""
    if price.above_gb:
        above = translate(" above {gb:,.0f} GB", gb=price.above_gb)
    amount = translate(
        "{price} per {unit}", price=format_price(price), unit=translate(UNITS[price.per])
    )
    return f"{grade}{translate(_WHEN[price.when])}{above} {amount}: {price.url} ({price.verified})"


def _describe_storage_bill(tier: StorageTier) -> str:
    stopped = {
        True: translate("bills while stopped"),
        False: translate("free while stopped"),
        None: translate("unknown whether it bills while stopped"),
    }
    # Both states, since some platforms charge a stopped disk more than a running one.
    running, still = (
        describe_tier_prices(tier, running=True),
        describe_tier_prices(tier, running=False),
    )
    figures = ""
    if tier.prices:
        figures = translate("; {running} running, {still} stopped", running=running, still=still)
    return stopped[tier.bills_while_stopped] + figures


def _billing_rows(profile: Profile) -> Iterator[PageRow]:
    for action in profile.billing:
        said = _describe_stop(action)
        # The file's own verb, if it is not just park or destroy.
        if action.verb != action.kind:
            said = f"{action.verb}: {said}"
        yield PageRow(action.native_label, said, _action_weight(action))
        fate = [
            (translate("keeps"), action.keeps),
            (translate("loses"), action.loses),
            (translate("unsure"), action.uncertain),
        ]
        fate += [
            (translate("keeps for {seconds}", seconds=format_duration(seconds)), (tier,))
            for tier, seconds in action.keeps_for_s.items()
        ]
        told = ", ".join(f"{word} {' '.join(tiers)}" for word, tiers in fate if tiers)
        yield PageRow("", f"{told}{format_citations(profile, action.sources)}", RowWeight.ASIDE)
        yield PageRow("", action.note or "", RowWeight.ASIDE)
        # Above the ways to do it, because it must happen before.
        yield PageRow("first", action.first or "", RowWeight.WARN)
        yield PageRow("seen by", action.confirm_with or "", RowWeight.ASIDE)
        yield from (PageRow("how", how, RowWeight.ASIDE) for how in action.how)


def _action_weight(action: BillingAction) -> RowWeight:
    # Above the kind: a trap has the kind "other".
    if action.trap:
        return RowWeight.BAD
    return {"park": RowWeight.GOOD, "destroy": RowWeight.WARN}.get(action.kind, RowWeight.PLAIN)


_WORD = {"park": "park", "destroy": "destroy", "other": ""}


def _describe_stop(action: BillingAction) -> str:
    gpu = {
        True: translate("the GPU's bill ends"),
        False: translate("the GPU KEEPS BILLING"),
        None: translate("unknown whether the GPU's bill ends"),
    }
    disk = {
        True: translate("storage ends, too"),
        False: translate("storage keeps billing"),
        None: translate("unknown what storage bills"),
    }
    back = {True: translate("can be undone"), False: translate("CANNOT be undone"), None: ""}[
        action.reversible
    ]
    if action.reversible and action.reversible_window_s is not None:
        back = translate(
            "can be undone for {reversible_window_s}",
            reversible_window_s=format_duration(action.reversible_window_s),
        )
    parts = [
        translate(_WORD.get(action.kind, action.kind)),
        gpu[action.stops_gpu_meter],
        disk[action.stops_storage_meter],
        back,
    ]
    parts += [translate("processes end") if action.kills_processes else ""]
    parts += [translate("looks as if it stopped the bill: it does not") if action.trap else ""]
    return "; ".join(part for part in parts if part)


def _sorted_clock_rows(
    profile: Profile, alert_title: Callable[[str], str | None]
) -> Iterator[PageRow]:
    order = list(ClockMode)
    for clock in sorted(
        profile.clocks, key=lambda one: (order.index(one.mode), one.after_s or float("inf"))
    ):
        yield from clock_rows(clock, alert_title)


def clock_rows(clock: DangerClock, alert_title: Callable[[str], str | None]) -> Iterator[PageRow]:
    """Yield the rows of a clock: its mode, what happens, when, and the source."""
    if clock.mode in (ClockMode.COUNTDOWN, ClockMode.CHARGE):
        weight = RowWeight.WARN
    else:
        weight = RowWeight.PLAIN
    yield PageRow(clock.mode.value, f"{clock.what}: {clock_manner(clock, alert_title)}", weight)
    where = ""
    if clock.in_scripts:
        where = translate(" (only in scripts)")
    text = translate(
        "when {applies}: {happens}",
        applies=f"{clock.applies_when}{where}",
        happens=clock.consequence,
    )
    yield PageRow("", text)
    # All sides are shown, since a person may know which one is right.
    if clock.dispute_text is not None:
        yield PageRow(
            "",
            translate(
                "the sources disagree, the worse counts: {dispute}", dispute=clock.dispute_text
            ),
            RowWeight.WARN,
        )
    yield from (
        PageRow("", translate("source: {source}", source=claim_source(claim)), RowWeight.ASIDE)
        for claim in clock.claims
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
    about = ""
    if clock.is_approximate:
        about = translate("about ")
    if not clock.after_s:
        after = ""
    else:
        after = f"{about}{format_duration(clock.after_s)}"
    # A countdown; the other modes have no beginning.
    if clock.counts_from is not None:
        begins, at_once = _BEGINNINGS[clock.counts_from]
        if after:
            return translate("{time} from {start}", time=after, start=translate(begins))
        return translate(at_once)
    if clock.mode is ClockMode.CHARGE:
        if clock.runs == "always":
            return translate(_WHEN["always"])
        return translate("while {state}", state=translate(_WHEN.get(clock.runs or "", "")))
    if clock.mode is ClockMode.TRIPWIRE:
        title = alert_title(clock.watched_by or "")
        told = f" ({title})" if title else ""
        watched = translate("watched by the alert {id}", id=f"{clock.watched_by}{told}")
        if after:
            return translate("within {time}, {watched}", time=after, watched=watched)
        return watched
    told = translate(
        "nothing can watch for it: shown at the first contact with the platform, and before a "
        "billing action"
    )
    if after:
        return translate("after {time}; {told}", time=after, told=told)
    return told


def claim_source(claim: ClockClaim) -> str:
    """Return the source of a claim with its month, and its text if the figure is not enough."""
    where = ", ".join(part for part in (claim.url, claim.cited_as) if part)
    says = f": {claim.says}" if claim.says else ""
    return f"{where} ({claim.verified or translate('not dated')}){says}"


def format_citations(profile: Profile, ids: Iterable[str]) -> str:
    """Return `` (docs.runpod.io 2026-06)``: sources and their months; empty without a source."""
    by_id = {source.id: source for source in profile.sources if source.id}
    told = dict.fromkeys(_format_source(by_id[one]) for one in ids if one in by_id)
    if told:
        return f"  ({'; '.join(told)})"
    return ""


def _format_source(source: FactSource) -> str:
    if source.url:
        # The host is enough here; the full address is in the section "sources".
        host = urlsplit(source.url).hostname
    else:
        host = None
    return (
        f"{host or source.cited_as or translate('unnamed')} "
        f"{source.verified or translate('not dated')}"
    )


def _interruption_rows(profile: Profile) -> Iterator[PageRow]:
    part = profile.interruption
    model = ""
    if part.model:
        model = f"{part.model or ''}{format_citations(profile, part.sources)}"
    yield PageRow("who ends it", model)
    spot = {
        True: translate("there is spot"),
        False: translate("there is no spot"),
        None: translate("unknown whether there is spot"),
    }
    weight = RowWeight.PLAIN
    if part.spot_available:
        weight = RowWeight.WARN
    yield PageRow("spot", spot[part.spot_available], weight)
    # The grace period only matters where there is spot; 0 and unknown are different answers.
    if part.spot_available:
        grace = part.spot_grace_s
        if grace is None:
            told = translate("unknown how long")
        elif grace:
            told = f"{grace:g} s"
        else:
            told = translate("none: it ends without a warning")
        yield PageRow("grace", told, RowWeight.WARN)
    yield PageRow("signal", part.spot_signal or "")
    yield PageRow("announced by", ", ".join(part.notices))
    yield PageRow("seen by", part.detect or "")
    yield PageRow("afterwards", part.resume or "")
    yield from (PageRow("also lost by", loss) for loss in part.losses)


def _launch_rows(profile: Profile) -> Iterator[PageRow]:
    part = profile.launch
    for way in part.ways:
        yield PageRow(way.via, way.call)
        yield PageRow("", way.note or "", RowWeight.ASIDE)
    yield PageRow("API", part.api or "")
    yield PageRow("address", part.address or "")
    yield PageRow("your public key", part.key_step or "")
    yield PageRow("log in as", part.user or "")
    yield PageRow("host names", " ".join(part.hosts), RowWeight.ASIDE)
    for shell in part.shells:
        can = (
            ("scp", shell.scp),
            ("rsync", shell.rsync),
            ("sftp", shell.sftp),
            (translate("port forwarding"), shell.forwards),
        )
        words = ", ".join(f"{name} {_choose_answer(answer, 'yes', 'NO')}" for name, answer in can)
        yield PageRow(shell.name, f"{words}{f'; {shell.note}' if shell.note else ''}")
    moves = {
        True: translate("a new address or port"),
        False: translate("the same address and port"),
        None: translate("unknown"),
    }
    # Two unknowns are no row: most platforms say nothing about it.
    if (part.moves_on_restart, part.moves_on_recreate) != (None, None):
        told = translate(
            "after a restart {moves}, when recreated {moves_2}",
            moves=moves[part.moves_on_restart],
            moves_2=moves[part.moves_on_recreate],
        )
        weight = RowWeight.PLAIN
        if part.moves_on_restart:
            weight = RowWeight.WARN
        yield PageRow("moves", told, weight)
    yield PageRow("environment", part.environment or "")
    yield PageRow("first check", part.first_check or "")
    yield from (PageRow("note", note, RowWeight.ASIDE) for note in part.notes)


def _network_rows(profile: Profile) -> Iterator[PageRow]:
    part = profile.network
    needed = {
        True: translate("needed: Hugging Face, PyPI and GitHub are slow or out of reach without"),
        False: translate("not needed"),
    }
    # Unknown for platforms outside of China, where the question does not arise.
    if part.mirror_needed is not None:
        weight = RowWeight.PLAIN
        if part.mirror_needed:
            weight = RowWeight.WARN
        yield PageRow("mirror", needed[part.mirror_needed], weight)
    yield from (PageRow("", mirror) for mirror in part.mirrors)
    if part.proxy_required is not None:
        if part.proxy_required:
            proxy_text = translate("required")
        else:
            proxy_text = translate("not needed")
        yield PageRow("proxy", proxy_text)
    yield PageRow("", part.proxy_note or "", RowWeight.ASIDE)
    yield from (PageRow("trap", trap, RowWeight.WARN) for trap in part.traps)
    yield from (PageRow("ports", port) for port in part.ports)
    if part.tensorboard is not None:
        board = part.tensorboard
        yield PageRow(
            "TensorBoard",
            f"{board.logdir}, port {board.port}{f'; {board.note}' if board.note else ''}",
        )
    # A warning: unknown traffic must not read like free traffic.
    if part.traffic is None:
        yield PageRow("traffic", translate("no source says what it costs"), RowWeight.WARN)
    else:
        traffic = part.traffic
        # In capitals, as one of the few rows here that can surprise on a bill.
        kind = translate("METERED") if traffic.metered else translate("not metered")
        told = f"{kind}: {traffic.note}"
        said = ", ".join(text for text in (traffic.url, traffic.cited_as) if text)
        weight = RowWeight.PLAIN
        if traffic.metered:
            weight = RowWeight.WARN
        yield PageRow("traffic", told, weight)
        if traffic.most_per_gib is not None:
            yield PageRow(
                "",
                translate(
                    "at most {most_per_gib} per GiB",
                    most_per_gib=format_unit_price(traffic.most_per_gib, traffic.currency),
                ),
                RowWeight.WARN,
            )
        source_text = ""
        if said:
            source_text = f"{said} ({traffic.verified or 'not dated'})"
        yield PageRow("", source_text, RowWeight.ASIDE)
    yield from (PageRow("note", note, RowWeight.ASIDE) for note in part.notes)


def _daemon_rows(profile: Profile) -> Iterator[PageRow]:
    part = profile.daemon
    # From another section of the file, but this is where a person looks for it.
    yield PageRow("detach", profile.overrides.detach, RowWeight.STRONG)
    lives = (
        (translate("the end of SSH"), part.survives_ssh_drop),
        (translate("a stop"), part.survives_stop),
        (translate("a restart"), part.survives_restart),
    )
    known = [
        f"{what}: {_choose_answer(answer, 'survives', 'ends')}"
        for what, answer in lives
        if answer is not None
    ]
    yield PageRow("", ", ".join(known))
    yield PageRow("install", part.install or "")
    yield PageRow("without it", part.fallback or "")
    yield PageRow("own queue", part.native_queue or "")
    hooks = " ".join(filter(None, (", ".join(part.on_start), part.on_start_file)))
    yield PageRow("--on-start", "; ".join(filter(None, (hooks, part.on_start_note))))
    yield from (PageRow("note", note, RowWeight.ASIDE) for note in part.notes)


def _override_rows(profile: Profile) -> Iterator[PageRow]:
    part = profile.overrides
    yield PageRow("python", " ".join(part.python))
    yield PageRow("", part.python_note or "", RowWeight.ASIDE)
    yield PageRow("data", part.data_dir or "")
    yield PageRow("durable", part.durable_dir or "")
    yield PageRow("", part.durable_note or "", RowWeight.ASIDE)
    yield from (PageRow("env", f"{name}={value}") for name, value in part.env.items())
    yield PageRow("before a job", part.env_hook or "")
    yield PageRow("proxy on", part.proxy_hook or "")
    yield PageRow("proxy off", part.proxy_unhook or "")
    yield PageRow("never by it", ", ".join(part.no_proxy))
    yield PageRow("keys", part.credentials or "")
    yield PageRow("scratch", part.scratch or "", RowWeight.ASIDE)


def _gotcha_rows(profile: Profile) -> Iterator[PageRow]:
    for gotcha in profile.gotchas:
        yield PageRow(gotcha.id, gotcha.symptom, RowWeight.STRONG)
        yield PageRow("cause", gotcha.cause, RowWeight.ASIDE)
        yield PageRow("fix", gotcha.fix)
        where = ""
        if gotcha.signature_in:
            where = translate(" in {place}", place=gotcha.signature_in)
        guess = ""
        if gotcha.inferred:
            guess = translate(", as the tools are known to print it")
        text = ""
        if gotcha.example:
            text = f"{gotcha.example}{where}{guess}"
        yield PageRow("seen by", text, RowWeight.ASIDE)
        yield PageRow("pattern", gotcha.log_signature or "", RowWeight.ASIDE)
        yield PageRow("look at", gotcha.probe or "", RowWeight.ASIDE)
        yield PageRow("", gotcha.note or "", RowWeight.ASIDE)


def _contradiction_rows(profile: Profile) -> Iterator[PageRow]:
    for one in profile.contradictions:
        yield PageRow(one.about, " / ".join(one.sides))
        yield PageRow(
            "rgt goes by", f"{one.counts}{format_citations(profile, one.sources)}", RowWeight.STRONG
        )


def _source_rows(profile: Profile) -> Iterator[PageRow]:
    for source in profile.sources:
        where = ", ".join(part for part in (source.url, source.cited_as) if part)
        yield PageRow(
            source.verified or translate("not dated"), f"{source.fact}: {where}", RowWeight.ASIDE
        )
