"""``rgt`` without a fleet file: the choices for a first one, offered by the welcome screen."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Callable, Mapping
from typing import Any

from rgt_tui.cli.set_up.adding import (
    ORDER,
    guess_profile,
    host_tables,
    make_absolute,
)
from rgt_tui.cli.set_up.pasted_address import NotSshAddress, parse_target
from rgt_tui.fleet import Beginnings, FleetSource, PlatformAccount
from rgt_tui.fleet.config import (
    FleetConfig,
    FleetFileError,
    FleetFilePlace,
    open_place,
    value_checks,
)
from rgt_tui.fleet.config.editing import add_boxes
from rgt_tui.fleet.config.loading import xdg_path
from rgt_tui.language import translate
from rgt_tui.model import how_many
from rgt_tui.profiles import all_profiles
from rgt_tui.providers import USUAL_KEYS
from rgt_tui.ssh import ConfigError


class FirstFleet:
    """Writes the person's own fleet file like `rgt import`, `rgt add`, or starts `rgt demo`.

    Args:
        make_fleet: Makes the fleet of a file that was written.
    """

    def __init__(self, make_fleet: Callable[[FleetConfig], FleetSource]) -> None:
        self._make_fleet = make_fleet
        self._made: Callable[[], FleetSource] | None = None
        # The person's own place, not the working directory: the welcome screen opens anywhere.
        self.path = xdg_path(os.environ)

    async def find_beginnings(self) -> Beginnings:
        """Search ssh_config for hosts, and the environment for keys of accounts."""
        trouble, hosts = "", tuple[str, ...]()
        try:
            hosts = tuple(await asyncio.to_thread(host_tables))
        except (ConfigError, OSError) as error:
            trouble = str(error)
        profiles = all_profiles()
        accounts = tuple(
            PlatformAccount(kind, profiles[kind].name if kind in profiles else kind, variable)
            for kind, variable in USUAL_KEYS.items()
            # The key is not used until the person chooses the account.
            if os.environ.get(variable)
        )
        return Beginnings(hosts=hosts, accounts=accounts, path=str(self.path), trouble=trouble)

    async def choose_demo(self) -> str:
        """Choose the real demo or, if this computer cannot run it, the recording of it."""
        from rgt_tui.demo import RECORDING, DemoError, sandboxes

        def check_demo() -> str:
            try:
                # The same checks as `rgt demo`; one tries to make a namespace, which starts a
                # process.
                sandboxes.check_torch()
                sandboxes.check_sandboxes()
            except DemoError as error:
                return str(error)
            return ""

        why = await asyncio.to_thread(check_demo)

        def make_real_demo() -> FleetSource:
            from rgt_tui.demo.demo_fleet import DemoFleet

            return DemoFleet()

        def make_recording() -> FleetSource:
            from rgt_tui.recordings import ReplayFleet

            return ReplayFleet(RECORDING, loop=True)

        if why:
            self._made = make_recording
        else:
            self._made = make_real_demo
        if why:
            return translate(
                "a recording of the demo: {partition}", partition=why.partition(";")[0]
            )
        return translate("the demo's boxes are starting")

    async def take_hosts(self) -> str:
        """Write all hosts of ssh_config."""
        return await self._write_tables(await asyncio.to_thread(host_tables))

    async def import_account(self, kind: str) -> str:
        """Request the account's machines from the platform, and write them."""
        from rgt_tui.cli.renting.account_import import accounts_of, tables_of
        from rgt_tui.fleet import ask_accounts

        # There is no fleet file yet, so no machine is named already.
        bills = await ask_accounts(accounts_of([kind], []), [])
        failed = [
            f"{bill.kind}: {bill.machines_error}"
            for bill in bills
            if bill.machines_error is not None
        ]
        if failed:
            raise FleetFileError("; ".join(failed))
        # All of them: the welcome screen has no patterns.
        tables = {name: values for name, (_, values) in tables_of(bills, (), ()).items()}
        if not tables:
            raise FleetFileError(
                translate("the account at {kind} has no machine; nothing was written", kind=kind)
            )
        return await self._write_tables(tables)

    async def paste(self, text: str) -> str:
        """Write one box, named after the valid part of its host's name."""
        try:
            left_out: list[str] = []
            values = parse_target(text.strip(), left_out)
        except NotSshAddress as error:
            raise FleetFileError(str(error)) from error
        for key in ("identity", "ssh_config"):
            if key in values:
                values[key] = make_absolute(values[key])
        if (guess := guess_profile(values["host"])) is not None:
            values["profile"] = guess
        written = await self._write_tables({box_name(values["host"]): values})
        return "; ".join((written, *left_out))

    async def _write_tables(self, tables: Mapping[str, Mapping[str, Any]]) -> str:
        ordered = {
            name: {key: table[key] for key in ORDER if key in table}
            for name, table in tables.items()
        }
        if not ordered:
            raise FleetFileError(translate("nothing was selected; nothing was written"))
        config = await asyncio.to_thread(self._write_file, ordered)
        # Made later, on the app's own loop.
        self._made = lambda: self._make_fleet(config)
        return translate(
            "{ordered} in {path}; rgt doctor checks what is missing",
            ordered=how_many(len(ordered), "box", "boxes"),
            path=self.path,
        )

    def _write_file(self, tables: Mapping[str, Mapping[str, Any]]) -> FleetConfig:
        # 0700, because the file names hosts and variables of keys.
        self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        add_boxes(self.path, tables)
        # Read back from the disk: the same checks as at the next start.
        return open_place(FleetFilePlace(self.path))

    def make_chosen_fleet(self) -> FleetSource:
        """Make the chosen fleet."""
        assert self._made is not None
        return self._made()


def box_name(host: str) -> str:
    """Return a name for the box of a host: its first label, or ``box`` if that is a number."""
    label = re.sub(r"[^A-Za-z0-9._-]+", "-", host.partition(".")[0]).strip("-._")
    # The first label of an IPv4 address is a number, which names nothing.
    if label.isdecimal() or not value_checks.NAME.fullmatch(label):
        return "box"
    return label
