"""``rgt profiles``: the known platforms, what each keeps, charges, and does by itself."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any

import msgspec

from rgt_tui.cli.commands import FAILED, OK, USAGE
from rgt_tui.cli.printing import print_error, print_json, print_lines
from rgt_tui.cli.teardown.money_arguments import ProfilesArguments
from rgt_tui.health import BY_ID
from rgt_tui.language import translate
from rgt_tui.model import DangerClock, Profile
from rgt_tui.profiles import (
    PageRow,
    ProfileError,
    all_profiles,
    check_sources,
    clock_rows,
    load_profile,
    mark_seen,
    old_tables,
    own_profile,
    platform_sections,
)


def run_profiles(arguments: ProfilesArguments) -> int:
    """List platforms, show one, check their sources, or list danger clocks.

    Return the exit code.
    """
    words = arguments.words
    # A bare name shows that platform, as ``rgt profiles NAME`` always has.
    if words and words[0] in ACTIONS:
        action = words[0]
    elif words:
        action = "show"
    else:
        action = "list"
    if words[:1] == [action]:
        names = words[1:]
    else:
        names = words
    # argparse cannot tie an option to a word.
    if action != "check" and (arguments.as_of is not None or arguments.max_age is not None):
        print_error(translate("--as-of and --max-age are for rgt profiles check"))
        return USAGE
    if action == "show" and not names:
        print_error(
            translate(
                "which platform? there are: {all_profiles}", all_profiles=", ".join(all_profiles())
            )
        )
        return USAGE
    try:
        # Named ones alone are loaded, so that a broken profile of one's own spoils only itself.
        english = arguments.json
        profiles = [load_profile(name, english=english) for name in dict.fromkeys(names)]
        profiles = profiles or list(all_profiles(english=english).values())
    except ProfileError as error:
        print_error(error)
        return USAGE
    return ACTIONS[action](profiles, arguments)


def _print_all(lines: Iterable[str]) -> int:
    print_lines(*lines)
    return OK


def _print_rows(rows: Iterable[Any]) -> int:
    for row in rows:
        print_json(row)
    return OK


def _print_list(profiles: Sequence[Profile], arguments: ProfilesArguments) -> int:
    if arguments.json:
        return _print_rows(overview_row(profile) for profile in profiles)
    return _print_all(_format_overview_row(profile) for profile in profiles)


def overview_row(profile: Profile) -> dict[str, Any]:
    """Return the row of a platform for ``rgt profiles list --json``."""
    # Marked, because an own file replaces the shipped facts, and is not updated with rgt.
    own = own_profile(profile.id)
    return {
        "id": profile.id,
        "name": profile.name,
        "kind": profile.kind,
        "confidence": profile.confidence,
        "top_danger": profile.top_danger,
        "clocks": len(profile.clocks),
        "home_url": profile.home_url,
        "own": None if own is None else str(own),
    }


def _format_overview_row(profile: Profile) -> str:
    own = ""
    if own_profile(profile.id) is not None:
        own = translate(" (your own file)")
    return f"{profile.id:<19} {profile.name:<26} {profile.top_danger}{own}"


def _print_pages(profiles: Sequence[Profile], arguments: ProfilesArguments) -> int:
    """Print platforms in full, and record that they were read."""
    if arguments.json:
        return _print_rows(msgspec.to_builtins(profile) for profile in profiles)
    for profile in profiles:
        _print_all(page_lines(profile))
        try:
            # The checklist asks whether the platform's page was read; reading it here counts, too.
            mark_seen(profile, time.time())
        except OSError as error:
            print_error(
                translate(
                    "could not record that you have read it: {strerror}",
                    strerror=error.strerror or error,
                )
            )
    return OK


def page_lines(profile: Profile) -> Iterator[str]:
    """Yield the page of a platform as lines."""
    own = own_profile(profile.id)
    yield f"{profile.name} ({profile.id})" + (
        translate(", your own file {own}", own=own) if own is not None else ""
    )
    for section in platform_sections(profile, alert_title):
        yield ""
        yield translate(section.title)
        yield from _format_page_rows(section.rows)


def alert_title(alert: str) -> str | None:
    """Return the title of an alert."""
    row = BY_ID.get(alert)
    if row is not None:
        return translate(row.title)
    return None


def _format_page_rows(rows: Iterable[PageRow]) -> Iterator[str]:
    for row in rows:
        yield f"  {translate(row.label)}: {row.text}" if row.label else f"    {row.text}"


def _check_facts(profiles: Sequence[Profile], arguments: ProfilesArguments) -> int:
    """Print facts about money or data with no source or an old one, and old tables of APIs."""
    # The local day: sources are dated by month, so the time zone does not matter much.
    as_of = arguments.as_of or datetime.now().astimezone().date()
    found = check_sources(profiles, as_of, arguments.max_age)
    try:
        # Tables of vendors' APIs grow old like facts, but are kept in other files.
        old = tuple(old_tables((profile.id for profile in profiles), as_of))
    except ProfileError as error:
        print_error(error)
        return USAGE
    found = msgspec.structs.replace(found, shortfalls=(*found.shortfalls, *old))
    if arguments.json:
        shortfalls = [msgspec.to_builtins(one) for one in found.shortfalls]
        told = {"as_of": as_of.isoformat(), "profiles": len(profiles), "facts": found.facts}
        _print_rows([{**told, "ok": not found.has_failures, "shortfalls": shortfalls}])
    else:
        _print_all(
            f"{'FAIL' if one.fails else 'warn'}  {one.profile}: {one.key}: {one.words}"
            for one in found.shortfalls
        )
        failed = sum(one.fails for one in found.shortfalls)
        warned = len(found.shortfalls) - failed
        counted = translate(
            "{facts} facts about money or data in {profiles} profiles",
            facts=found.facts,
            profiles=len(profiles),
        )
        _print_all(
            [
                translate(
                    "{counted}, as of {as_of}: {failed} fail, {warned} warnings",
                    counted=counted,
                    as_of=as_of.isoformat(),
                    failed=failed,
                    warned=warned,
                )
            ]
        )
    if found.has_failures:
        return FAILED
    return OK


def _print_clocks(profiles: Sequence[Profile], arguments: ProfilesArguments) -> int:
    if arguments.json:
        return _print_rows(
            clock_row(profile, clock) for profile in profiles for clock in profile.clocks
        )
    for profile in profiles:
        _print_all(_clock_lines(profile))
    return OK


def clock_row(profile: Profile, clock: DangerClock) -> dict[str, Any]:
    """Return the row of a clock for ``rgt profiles clocks --json``."""
    return {
        "platform": profile.id,
        "what": clock.what,
        "mode": clock.mode.value,
        "counts_from": None if clock.counts_from is None else clock.counts_from.value,
        "runs": clock.runs,
        "watched_by": clock.watched_by,
        "after_s": clock.after_s,
        "approx": clock.is_approximate,
        "applies_when": clock.applies_when,
        "consequence": clock.consequence,
        "dispute": clock.dispute_text,
        "claims": [msgspec.to_builtins(claim) for claim in clock.claims],
    }


def _clock_lines(profile: Profile) -> Iterator[str]:
    yield f"{profile.name} ({profile.id})"
    for clock in profile.clocks:
        yield from (
            f"  {translate(row.label):<9}  {row.text}" for row in clock_rows(clock, alert_title)
        )
    yield ""


ACTIONS: dict[str, Callable[[Sequence[Profile], ProfilesArguments], int]] = {
    "list": _print_list,
    "show": _print_pages,
    "check": _check_facts,
    "clocks": _print_clocks,
}
