"""``rgt import --from``: add machines of a provider's account that the fleet file does not name."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Container, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

from rgt_tui.cli.commands import FAILED, UNREACHABLE, USAGE
from rgt_tui.cli.printing import print_error, print_lines
from rgt_tui.cli.set_up.adding import find_target_file, import_hosts, show_or_write
from rgt_tui.cli.set_up.set_up_arguments import ImportArguments
from rgt_tui.fleet.config import (
    FleetFileError,
    FleetFilePlace,
    load_fleet,
    open_place,
    value_checks,
)
from rgt_tui.language import translate
from rgt_tui.model import MACHINE, AccountBill, BoxSpec, ProviderRef, UnlistedItem, clean_text
from rgt_tui.profiles import all_profiles, describe_unlisted_item, thing_price
from rgt_tui.providers import KINDS

NOWHERE = "invalid"
"""A reserved top-level domain (https://www.rfc-editor.org/rfc/rfc2606), so that rgt asks the
provider."""


def run_import(arguments: ImportArguments) -> int:
    """List or add boxes, from ssh_config or from accounts; return the exit status."""
    if arguments.sources is None:
        return import_hosts(arguments)
    return import_machines(arguments)


def import_machines(arguments: ImportArguments) -> int:
    """List or add boxes from accounts; return the exit status."""
    if arguments.config is not None:
        print_error(
            translate(
                "--config reads hosts of ssh_config, --from machines of a provider: give only one "
                "of them"
            )
        )
        return USAGE
    try:
        sources = arguments.sources or ()
        check_kinds(sources)
        place = find_target_file(arguments.fleet)
        # All boxes, to know which machines are named; keys are sent for trusted ones only.
        every, trusted = load_known_boxes(place)
    except FleetFileError as error:
        print_error(error)
        return USAGE
    except OSError as error:
        print_error(translate("cannot read the fleet file: {error}", error=error))
        return FAILED
    # Imported here, because it imports the SSH library, which listing ssh_config's hosts does not
    # need.
    from rgt_tui.fleet import ask_accounts

    named = [spec.provider for spec in every if spec.provider is not None]
    refs = accounts_of(sources, [spec.provider for spec in trusted if spec.provider is not None])
    bills = asyncio.run(ask_accounts(refs, named))
    for bill in bills:
        if bill.machines_error is not None:
            print_error(f"{bill.kind}: {bill.machines_error}")
    # A partial list would import some machines, and the next call would look complete.
    if any(bill.machines_at is None for bill in bills):
        return UNREACHABLE
    tables = tables_of(bills, arguments.patterns, {spec.name for spec in every})
    if not arguments.json:
        _print_costs(bills)
    if not tables:
        print_error(
            translate(
                "nothing to import: every machine of {sources} that matches is a box already",
                sources=", ".join(sources),
            )
        )
        return FAILED
    # The same way as ssh_config's hosts: shown first, written with --write.
    return show_or_write(arguments, {name: values for name, (_, values) in tables.items()})


def check_kinds(kinds: Sequence[str]) -> None:
    """Check that rgt knows the providers.

    Raises:
        FleetFileError: It does not know one; the message lists those that it knows.
    """
    for kind in kinds:
        if kind not in KINDS:
            raise FleetFileError(
                translate(
                    "there is no provider {kind!r}; there are: {kinds}",
                    kind=clean_text(kind),
                    kinds=", ".join(KINDS),
                )
            )


def load_known_boxes(place: FleetFilePlace) -> tuple[tuple[BoxSpec, ...], tuple[BoxSpec, ...]]:
    """Return all boxes of a fleet file, and the trusted ones; empty if there is no file yet.

    Raises:
        FleetFileError: It cannot be used.
        OSError: It cannot be read.
    """
    # A file without boxes, as written by `rgt init`, is not read here; its errors show up when it
    # is written.
    if not place.path.exists() or not re.search(
        rb"^\s*\[?boxes", place.path.read_bytes(), re.MULTILINE
    ):
        return (), ()
    return load_fleet(place.path), open_place(place, os.environ).boxes


def accounts_of(kinds: Sequence[str], refs: Sequence[ProviderRef]) -> list[ProviderRef]:
    """Return one reference per account of these kinds, by default the account of the usual key."""
    found: dict[tuple[str, str], ProviderRef] = {}
    for kind in kinds:
        # Without a box of that provider: the key of its usual variable.
        own = [ref for ref in refs if ref.kind == kind] or [ProviderRef(kind=kind, instance="")]
        for ref in own:
            # Several boxes share an account; it is listed once.
            found.setdefault((ref.kind, ref.account), ref)
    return list(found.values())


def tables_of(
    bills: Sequence[AccountBill], patterns: Sequence[str], taken: Container[str]
) -> dict[str, tuple[UnlistedItem, dict[str, Any]]]:
    """Return the wanted machines and the keys of their boxes, by the names of the boxes. Pure.

    Args:
        bills: Things in the accounts.
        patterns: Globs for names and ids; none = all.
        taken: Names of existing boxes.
    """
    profiles = all_profiles()
    found: dict[str, tuple[UnlistedItem, dict[str, Any]]] = {}
    for bill in bills:
        for thing in bill.things:
            wanted = not patterns or any(
                fnmatchcase(text, glob) for glob in patterns for text in (thing.name, thing.id)
            )
            # Volumes and the like cost money, too, but are no boxes: `_print_costs` lists them.
            if thing.what != MACHINE or not wanted:
                continue
            if bill.kind not in profiles:
                print_error(
                    translate(
                        "{id} was left out: there is no profile {kind!r} yet; rgt profiles lists "
                        "them",
                        id=thing.id,
                        kind=bill.kind,
                    )
                )
                continue
            name = _choose_free_name(thing, found, taken)
            found[name] = thing, box_values(bill, thing)
    return found


def _choose_free_name(
    thing: UnlistedItem, found: Mapping[str, object], taken: Container[str]
) -> str:
    """Return a free name for a box: the valid part of the machine's own name or id."""
    # Vendors allow any text as a name of a machine, while a box's name is a TOML key and a word of
    # commands.
    plain = [
        re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip("-._")[:48] for text in (thing.name, thing.id)
    ]
    first = next((text for text in plain if value_checks.NAME.fullmatch(text)), thing.kind)
    number, name = 1, first
    while name in found or name in taken:
        number += 1
        name = f"{first}-{number}"
    return name


def box_values(bill: AccountBill, thing: UnlistedItem) -> dict[str, Any]:
    """Return the keys of a box for a machine; without an address, rgt asks the provider for it."""
    # A valid host name is required, and the id makes it clear which machine is meant.
    nowhere = f"{re.sub(r'[^A-Za-z0-9-]+', '-', thing.id).strip('-')[:60] or 'machine'}.{NOWHERE}"
    # The answer of a provider is checked like text that a person typed.
    if thing.host and value_checks.BOX["host"](thing.host) is None:
        host = thing.host
    else:
        host = None
    provider = {
        "kind": bill.kind,
        "instance": thing.id,
        "base_url": bill.base_url,
        "key_env": bill.key_env,
    }
    values = {
        "host": host or nowhere,
        # A port without its address would belong to the wrong host.
        "port": thing.port if host else None,
        "user": thing.user if thing.user and value_checks.BOX["user"](thing.user) is None else None,
        "profile": bill.kind,
        "provider": {key: value for key, value in provider.items() if value is not None},
    }
    return {key: value for key, value in values.items() if value is not None}


def _print_costs(bills: Sequence[AccountBill]) -> None:
    """Print the cost of each thing as comments above the tables, including volumes and the like."""
    for bill in bills:
        for thing in bill.things:
            print_lines(f"# {bill.kind}: {describe_unlisted_item(thing)}: {thing_price(thing)}")
            if thing.what != MACHINE and thing.how:
                print_lines(translate("#   belongs to no box; to delete it: {how}", how=thing.how))
        if bill.leftovers_error is not None:
            print_lines(
                f"# {bill.kind}: volumes, addresses and snapshots: unknown ({bill.leftovers_error})"
            )
        if bill.gaps:
            gaps = ", ".join(bill.gaps)
            print_lines(f"# {bill.kind}: may also be billed, but its API does not list: {gaps}")
    if any(bill.things or bill.gaps for bill in bills):
        print_lines("")
