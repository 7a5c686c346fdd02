"""Finds mistakes in a decoded platform profile: words, names, numbers, patterns and sources."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, date, datetime

from rgt_tui.language import translate
from rgt_tui.model import (
    BillingAction,
    ClockClaim,
    ClockMode,
    ClockStart,
    DangerClock,
    FactSource,
    FrozenStruct,
    Gotcha,
    Overrides,
    Profile,
    StoragePrice,
    StorageTier,
    TrafficFacts,
)
from rgt_tui.profiles.prices import HOURS, STATES

KINDS = ("ssh", "ssh-rental", "cloud-api", "slurm", "kubernetes", "notebook", "workstation")
CONFIDENCE = ("battle-tested", "from-docs")
ACTIONS = ("park", "destroy", "other")
RUNS = ("stopped", "running", "always")
"""States of the machine in which a charge applies."""
NOTICES = ("ec2", "gce", "azure")
"""Metadata services that the agent can read."""
ON_START = ("file", "command", "systemd", "cron")
"""Hooks that the agent can install, or whose command it prints."""
ROLES = ("system", "data", "durable")
CURRENCY = re.compile(r"[A-Z]{3}")
MONTH = re.compile(r"20\d\d-(0[1-9]|1[0-2])")
URL = re.compile(r"https?://[^\s/]+\S*")
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
DOMAIN = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?")
# A pattern instead of RE2 itself, which is only imported when a log is searched.
NOT_RE2 = re.compile(r"\(\?(=|!|<=|<!|>|P=|\()|\\[1-9]|[*+?}]\+|\\Z")
"""Look-around, back-references, atomic groups, conditions, possessive repeats: unsupported by RE2.
"""


def suggest_nearest(word: str, known: Iterable[str]) -> str:
    """Return ``; did you mean 'x'?`` for the known name closest to `word`, or ""."""
    # Lower than difflib's usual 0.6: ids are short, and one slip is much of them.
    close = difflib.get_close_matches(word, list(known), n=1, cutoff=0.5)
    if close:
        return f"; did you mean '{close[0]}'?"
    # A signature that RE2 refuses is not compiled: its message would hide this one.
    return ""


def none_of(word: str, known: Iterable[str]) -> str:
    """Return the message that `word` is not a known name, with the closest one."""
    listed = tuple(known)
    return f"'{word}' is not one of {', '.join(listed)}{suggest_nearest(word, listed)}"


def find_faults(profile: Profile, stem: str) -> Iterator[str]:
    """Yield each fault of `profile` as ``key: what is wrong``.

    `stem` is the file name without suffix.
    """
    # Own files replace shipped ones by their names: an id that differs would have no effect.
    if profile.id != stem:
        yield f"id: '{profile.id}' is not the file's name '{stem}'"
    if profile.kind not in KINDS:
        yield f"kind: {none_of(profile.kind, KINDS)}"
    if profile.confidence not in CONFIDENCE:
        yield f"confidence: {none_of(profile.confidence, CONFIDENCE)}"
    yield from _check_url("home_url", profile.home_url)
    yield from _check_url("docs_url", profile.docs_url)
    tiers = [tier.name for tier in profile.tiers]
    # Billing actions refer to tiers by name.
    yield from _find_duplicates("tiers.name", tiers)
    for i, tier in enumerate(profile.tiers):
        yield from (f"tiers[{i}].{fault}" for fault in _tier_faults(tier))
    for i, action in enumerate(profile.billing):
        yield from (f"billing[{i}]{fault}" for fault in _action_faults(action, tiers))
    for i, clock in enumerate(profile.clocks):
        yield from (f"clocks[{i}]{fault}" for fault in _clock_faults(clock))
    yield from _find_duplicates("gotchas.id", [gotcha.id for gotcha in profile.gotchas])
    for i, gotcha in enumerate(profile.gotchas):
        yield from (f"gotchas[{i}].{fault}" for fault in _signature_faults(gotcha))
    traffic = profile.network.traffic
    if traffic is not None:
        yield from _check_month("network.traffic.verified", traffic.verified)
        yield from _check_url("network.traffic.url", traffic.url)
        if traffic.most_per_gib is not None and not 0 <= traffic.most_per_gib < math.inf:
            yield f"network.traffic.most_per_gib: {traffic.most_per_gib:g} is not an amount"
        if not CURRENCY.fullmatch(traffic.currency):
            yield (
                f"network.traffic.currency: '{traffic.currency}' is not three capital letters, "
                "such as USD or CNY"
            )
    yield from _check_seconds("interruption.spot_grace_s", profile.interruption.spot_grace_s)
    for name in profile.daemon.on_start:
        if name not in ON_START:
            yield f"daemon.on_start: {none_of(name, ON_START)}"
    if "file" in profile.daemon.on_start and not profile.daemon.on_start_file:
        yield "daemon.on_start_file is missing: the script that the platform runs"
    for name in profile.interruption.notices:
        if name not in NOTICES:
            yield f"interruption.notices: {none_of(name, NOTICES)}"
    for i, contradiction in enumerate(profile.contradictions):
        if len(contradiction.sides) < 2:
            yield f"contradictions[{i}].sides: it takes two to contradict each other"
    yield from (f"overrides.{fault}" for fault in _override_faults(profile.overrides))
    yield from _source_faults(profile)


def _tier_faults(tier: StorageTier) -> Iterator[str]:
    if tier.role is not None and tier.role not in ROLES:
        yield f"role: {none_of(tier.role, ROLES)}"
    for mount in tier.mounts:
        # Compared literally with the box's mount table; a pattern would match nothing.
        if not mount.startswith("/") or set(mount) & set("*$<"):
            yield (
                f"mounts: '{mount}' is not absolute and literal; say it in words with the key "
                "'where'"
            )
    for j, price in enumerate(tier.prices):
        yield from (f"prices[{j}].{fault}" for fault in _price_faults(price))


def _price_faults(price: StoragePrice) -> Iterator[str]:
    for key, amount in (("amount", price.amount), ("above_gb", price.above_gb)):
        if not (math.isfinite(amount) and amount >= 0):
            yield f"{key}: {amount:g} is not an amount"
    if not CURRENCY.fullmatch(price.currency):
        yield f"currency: '{price.currency}' is not three capital letters, such as USD or CNY"
    if price.per not in HOURS:
        yield f"per: {none_of(price.per, HOURS)}"
    if price.when not in STATES:
        yield f"when: {none_of(price.when, STATES)}"
    yield from _check_month("verified", price.verified)
    yield from _check_url("url", price.url)


def _action_faults(action: BillingAction, tiers: list[str]) -> Iterator[str]:
    if action.kind not in ACTIONS:
        yield f".kind: {none_of(action.kind, ACTIONS)}"
    # Only kinds park and destroy are offered as actions.
    if action.trap and action.kind != "other":
        yield f".trap: a {action.kind} is offered to people; a trap is an 'other'"
    fates: Mapping[str, tuple[str, ...]] = {
        "keeps": action.keeps,
        "loses": action.loses,
        "uncertain": action.uncertain,
        "keeps_for_s": tuple(action.keeps_for_s),
    }
    said: dict[str, str] = {}
    for key, names in fates.items():
        for name in names:
            if name not in tiers:
                yield f".{key}: no tier is called '{name}'{suggest_nearest(name, tiers)}"
            # One fate per tier: two would leave it to the order of the code which one counts.
            if said.setdefault(name, key) != key:
                yield f": '{name}' is both in {said[name]} and in {key}"
    for name, seconds in action.keeps_for_s.items():
        yield from _check_seconds(f".keeps_for_s.{name}", seconds)
    yield from _check_seconds(".reversible_window_s", action.reversible_window_s)
    # None may have a window: it says for how long it would be possible.
    if action.reversible_window_s is not None and action.reversible is False:
        yield ".reversible_window_s: only what can be undone has it"


def _clock_faults(clock: DangerClock) -> Iterator[str]:
    """Yield each fault of a danger clock as ``.key: what is wrong``, e.g. a missing field."""
    # Each mode has exactly one field of its own; the others must be absent.
    for mode, key, why in (
        (ClockMode.COUNTDOWN, "counts_from", "needs its beginning"),
        (ClockMode.CHARGE, "runs", "needs the state in which it runs"),
        (ClockMode.TRIPWIRE, "watched_by", "needs the alert that watches for it"),
    ):
        has = getattr(clock, key) is not None
        if clock.mode is mode and not has:
            yield f".{key}: the key is missing: a {mode.value} {why}"
        elif clock.mode is not mode and has:
            yield f".{key}: only a {mode.value} has it, this is a {clock.mode.value}"
    if clock.runs is not None and clock.runs not in RUNS:
        yield f".runs: {none_of(clock.runs, RUNS)}"
    # The other starts get their end from the provider or the scheduler.
    if clock.counts_from in (ClockStart.STOP, ClockStart.START) and clock.after_s is None:
        yield f".claims: a countdown from the {clock.counts_from} needs after_s in one of them"
    if not clock.claims:
        yield ".claims: at least one source has to say so"
    for j, claim in enumerate(clock.claims):
        yield from _check_seconds(f".claims[{j}].after_s", claim.after_s)
        if claim.url is None and claim.cited_as is None:
            yield f".claims[{j}]: neither url nor cited_as says where it comes from"
        yield from _check_url(f".claims[{j}].url", claim.url)
        yield from _check_month(f".claims[{j}].verified", claim.verified)
    # Different figures without words cannot be shown as a disagreement.
    figures = {claim.after_s for claim in clock.claims}
    if (
        len(clock.claims) > 1
        and len(figures) > 1
        and any(claim.says is None for claim in clock.claims)
    ):
        yield ".claims: the sources disagree: each needs its words (says)"


def _signature_faults(gotcha: Gotcha) -> Iterator[str]:
    signature = gotcha.log_signature
    if signature is None:
        return
    if gotcha.signature_in is None:
        yield "signature_in: the key is missing: which text is searched?"
    if beyond := NOT_RE2.search(signature):
        yield f"log_signature: RE2 has no '{beyond.group()}'"
        return
    try:
        pattern = re.compile(signature)
    except re.error as error:
        yield f"log_signature: not a regular expression: {error}"
        return
    if gotcha.example is None:
        yield "example: the key is missing: a line that the signature matches"
    # The example is the signature's own test.
    elif not pattern.search(gotcha.example):
        yield f"example: the signature does not match '{gotcha.example}'"
    # It would match every line.
    if pattern.search(""):
        yield "log_signature: it matches an empty line"


def _override_faults(overrides: Overrides) -> Iterator[str]:
    paths = [("data_dir", overrides.data_dir), ("durable_dir", overrides.durable_dir)]
    for key, path in (*paths, *(("python", path) for path in overrides.python)):
        # These paths go into commands and job files, where nothing expands them.
        if path is not None and (not path.startswith("/") or set(path) & set("*$<\n")):
            yield (
                f"{key}: '{path}' is not absolute and literal; leave it out where it differs "
                "from box to box"
            )
    for name, value in overrides.env.items():
        if not VARIABLE.fullmatch(name):
            yield f"env.{name}: not a name that a variable can have"
        # "<" marks a placeholder such as <your key>, which must not be set literally.
        if set(value) & set("$<\n\0"):
            yield f"env.{name}: '{value}' is not literal"
    for key, line in (("env_hook", overrides.env_hook), ("proxy_hook", overrides.proxy_hook)):
        if line is not None and (not line.strip() or set(line) & set("\n\0")):
            yield f"{key}: must be one line for a shell"
    for name in overrides.no_proxy:
        if not DOMAIN.fullmatch(name):
            yield f"no_proxy: '{name}' is not a domain"


def _source_faults(profile: Profile) -> Iterator[str]:
    ids = [source.id for source in profile.sources if source.id is not None]
    yield from _find_duplicates("sources.id", ids)
    for i, source in enumerate(profile.sources):
        yield from _check_url(f"sources[{i}].url", source.url)
        yield from _check_month(f"sources[{i}].verified", source.verified)
    named = [(f"tiers[{i}]", tier.sources) for i, tier in enumerate(profile.tiers)]
    named += [(f"billing[{i}]", action.sources) for i, action in enumerate(profile.billing)]
    named += [(f"contradictions[{i}]", one.sources) for i, one in enumerate(profile.contradictions)]
    named.append(("interruption", profile.interruption.sources))
    for key, names in named:
        for name in names:
            if name not in ids:
                yield f"{key}.sources: no source has the id '{name}'{suggest_nearest(name, ids)}"


def _find_duplicates(key: str, names: list[str]) -> Iterator[str]:
    for name in sorted({name for name in names if names.count(name) > 1}):
        yield f"{key}: '{name}' is there twice"


def _check_month(key: str, month: str | None) -> Iterator[str]:
    if month is not None and not MONTH.fullmatch(month):
        yield f"{key}: '{month}' is not a month like 2026-06"


def _check_url(key: str, url: str | None) -> Iterator[str]:
    if url is not None and not URL.fullmatch(url):
        yield f"{key}: '{url}' is not an address like https://example.com/page"


def _check_seconds(key: str, seconds: float | None) -> Iterator[str]:
    if seconds is not None and not 0 <= seconds < math.inf:
        yield f"{key}: {seconds:g} is not a number of seconds, 0 or more"


class Shortfall(FrozenStruct, kw_only=True):
    """A problem with the source of one fact."""

    profile: str
    key: str
    """Key of the fact, such as ``tiers.data``."""
    words: str
    fails: bool
    """False = a warning."""


class SourceCheckResult(FrozenStruct, kw_only=True):
    """The result of checking the sources."""

    facts: int
    """Number of checked facts about money or data."""
    shortfalls: tuple[Shortfall, ...]

    @property
    def has_failures(self) -> bool:
        """Whether any of them is more than a warning."""
        return any(one.fails for one in self.shortfalls)


def check_sources(
    profiles: Iterable[Profile], as_of: date, max_age: int | None = None
) -> SourceCheckResult:
    """Check every fact about money or data: survival, prices, actions, clocks, traffic, spot grace.

    Args:
        profiles: The platforms.
        as_of: The date from which ages are computed.
        max_age: Months after which a fact fails, as does one without a date. None = it only warns.
    """
    facts, found = 0, []
    for profile in profiles:
        for key, cited in _list_cited_facts(profile):
            # Counted also if it is fine, so that the report can say how many were checked.
            facts += 1
            said = _find_source_fault(cited, as_of, max_age)
            if said is not None:
                words, fails = said
                found.append(Shortfall(profile=profile.id, key=key, words=words, fails=fails))
    return SourceCheckResult(facts=facts, shortfalls=tuple(found))


Cited = FactSource | ClockClaim | StoragePrice | TrafficFacts


def format_month(cited: Iterable[Cited]) -> str:
    """Return the newest month in which a fact was checked, as `` (2026-06)``, or `` (not dated)``."""
    return f" ({_find_newest_month(cited) or translate('not dated')})"


def describe_check_months(profile: Profile, action: BillingAction | None) -> str:
    """Return when the facts that a billing action relies on were last checked, in one line."""
    parts = []
    if action is not None:
        parts.append(
            translate(
                "what {label} does{month}",
                label=action.native_label,
                month=format_month(cited_by(profile, action)),
            )
        )
    parts += [
        translate(
            "what survives in {tier}{month}",
            tier=tier.name,
            month=format_month(cited_by(profile, tier)),
        )
        for tier in profile.tiers
    ]
    return ", ".join(parts)


def cited_by(profile: Profile, fact: BillingAction | StorageTier) -> tuple[FactSource, ...]:
    """Return the sources that a fact refers to."""
    return tuple(source for source in profile.sources if source.id in fact.sources)


def list_old_facts(profile: Profile, action: BillingAction | None, now: float) -> tuple[str, ...]:
    """Return the facts for an action that were checked too long ago, a line per month.

    They are the action, the tiers with their prices, and the clocks that a person reads before it.
    `now` is the client clock, in seconds of the epoch.
    """
    # UTC: facts are dated by month, so a day more or less does not matter.
    as_of = datetime.fromtimestamp(now, UTC).date()
    wanted = {
        f"tiers.{tier.name}": translate("what survives in {tier}", tier=tier.name)
        for tier in profile.tiers
    }
    wanted |= {
        f"tiers.{tier.name}.prices[{number}]": translate("what {tier} costs", tier=tier.name)
        for tier in profile.tiers
        for number in range(len(tier.prices))
    }
    wanted |= {f"clocks.{one.what}": one.what for one in profile.clocks if not one.in_scripts}
    if action is not None:
        wanted[f"billing.{action.verb}"] = translate("what {label} does", label=action.native_label)
    newest: dict[str, str] = {}
    for key, cited in _list_cited_facts(profile):
        # Claims of one clock count together, by the newest of them.
        what, month = wanted.get(key.split(".claims[")[0]), _find_newest_month(cited)
        if what is not None and month is not None:
            newest[what] = max(month, newest.get(what, ""))
    lines = []
    for month in sorted(set(newest.values())):
        if _is_old(month, as_of):
            facts = ", ".join(what for what, when in newest.items() if when == month)
            lines.append(
                translate(
                    "last checked {count} months ago, in {month}: {facts}",
                    count=_count_months(month, as_of),
                    month=month,
                    facts=facts,
                )
            )
    return tuple(lines)


def _find_newest_month(cited: Iterable[Cited]) -> str | None:
    return max((one.verified for one in cited if one.verified is not None), default=None)


def _is_old(month: str, as_of: date, months: int = 6) -> bool:
    """Return whether a fact that was checked in `month` should be checked again."""
    return _count_months(month, as_of) > months


def _list_cited_facts(profile: Profile) -> Iterator[tuple[str, tuple[Cited, ...]]]:
    """Yield each fact about money or data: its key, and its citations."""
    rows = {source.id: source for source in profile.sources if source.id is not None}

    def cited_sources(ids: tuple[str, ...]) -> tuple[Cited, ...]:
        return tuple(rows[id_] for id_ in ids if id_ in rows)

    for tier in profile.tiers:
        yield f"tiers.{tier.name}", cited_sources(tier.sources)
        for number, price in enumerate(tier.prices):
            yield f"tiers.{tier.name}.prices[{number}]", (price,)
    for action in profile.billing:
        yield f"billing.{action.verb}", cited_sources(action.sources)
    for clock in profile.clocks:
        # Separately, because of conflicting sources one may be outdated.
        for number, claim in enumerate(clock.claims):
            yield f"clocks.{clock.what}.claims[{number}]", (claim,)
    if profile.network.traffic is not None:
        yield "network.traffic", (profile.network.traffic,)
    if profile.interruption.spot_available:
        yield "interruption", cited_sources(profile.interruption.sources)


def _find_source_fault(
    cited: tuple[Cited, ...], as_of: date, max_age: int | None
) -> tuple[str, bool] | None:
    """Return what is wrong with the sources of a fact, and whether it fails; None = nothing."""
    real = [one for one in cited if one.url or getattr(one, "cited_as", None)]
    if not real:
        return "no source", True
    # The newest: one fresh source is enough to rely on.
    newest = _find_newest_month(real)
    if newest is None:
        return f"never dated ({_describe_source(real[0])})", max_age is not None
    age = _count_months(newest, as_of)
    where = _describe_source(next(one for one in real if one.verified == newest))
    # A month in the future is a typing error, and would hide the fact's age for long.
    if age < 0:
        return f"verified in {newest}, which is not over yet ({where})", True
    if _is_old(newest, as_of) or (max_age is not None and age > max_age):
        return (
            f"last looked at {age} months ago, in {newest} ({where})",
            max_age is not None and age > max_age,
        )
    return None


def _count_months(month: str, as_of: date) -> int:
    year, number = map(int, month.split("-"))
    return (as_of.year - year) * 12 + as_of.month - number


def _describe_source(source: Cited) -> str:
    return ", ".join(part for part in (source.url, getattr(source, "cited_as", None)) if part)
