"""``rgt``: runs the dashboard on a fleet file or another source, and cleans up at the end."""

from __future__ import annotations

import gc
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, MutableMapping
from pathlib import Path
from typing import TYPE_CHECKING

from rgt_tui.cli.arguments import DashboardArguments
from rgt_tui.cli.commands import USAGE
from rgt_tui.cli.printing import print_error
from rgt_tui.language import translate

if TYPE_CHECKING:
    from rgt_tui.fleet import FirstSteps, FleetSource
    from rgt_tui.fleet.config import FleetConfig
    from rgt_tui.fleet.config.following import FleetFileFollower
    from rgt_tui.model import FleetState, Profile
    from rgt_tui.ui import Preferences

ENV = "RGT_TRACE_FILE"
HEAVY = ("torch", "numpy", "asyncssh", "httpx", "cryptography")


def trace_event(event: str) -> None:
    """Append an event to the trace file that the environment names, if any."""
    path = os.environ.get(ENV)
    if not path:
        return
    # Which heavy modules are loaded at each event: the benchmark of the start checks this.
    line = {
        "event": event,
        "t": time.time(),
        "modules": [name for name in HEAVY if name in sys.modules],
    }
    # One write in append mode: several rgt may trace into one file.
    fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.write(fd, json.dumps(line).encode() + b"\n")
    finally:
        os.close(fd)


WEB_DRIVER = "textual.drivers.web_driver:WebDriver"
"""TEXTUAL_DRIVER of an app whose terminal is a browser, as textual-serve sets it."""
DUMB = ("dumb", "unknown")
"""TERM of terminals that cannot position text, such as Emacs's shell and a serial console."""


TMUX_SECONDS = 1.0
"""How long to wait for tmux's answer."""


def choose_ascii_in_tmux(environ: MutableMapping[str, str]) -> None:
    """Select ASCII if the terminal around tmux cannot show our characters.

    If the client's locale is not UTF-8 (as over ssh without LANG), tmux shows underscores, whatever
    the locale is here. And the Linux console lacks most of our characters.
    """
    if not environ.get("TMUX") or environ.get("RGT_ASCII"):
        return
    try:
        told = subprocess.run(
            ("tmux", "display-message", "-p", "#{client_utf8} #{client_termname}"),
            env=dict(environ), stdin=subprocess.DEVNULL, capture_output=True, timeout=TMUX_SECONDS,
            check=False,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return
    from rgt_tui.ui.notation import POOR

    utf8, _, kind = told.stdout.decode(errors="replace").strip().partition(" ")
    if utf8 == "0" or kind in POOR:
        environ["RGT_ASCII"] = "1"


class SeenPlatformFile:
    """Platform pages that a person has seen, stored in the file that the checklist reads."""

    async def has_seen(self, profile: Profile) -> bool:
        """Return whether the person has seen the current version of the page."""
        import asyncio

        from rgt_tui.profiles import seen_at

        return await asyncio.to_thread(seen_at, profile) is not None

    async def record_seen(self, profile: Profile) -> str | None:
        """Record that the page was shown; return why that failed, or None."""
        import asyncio

        from rgt_tui.profiles import mark_seen

        try:
            await asyncio.to_thread(mark_seen, profile, time.time())
        except OSError as error:
            return str(error)
        return None


def in_terminal() -> bool:
    """Return whether there is a terminal to draw on and to read keys from; stderr may be a file."""
    return sys.stdin.isatty() and sys.stdout.isatty()


def run_dashboard(
    make_fleet: Callable[[], FleetSource],
    *,
    title: str,
    hint: str | None,
    farewell: str | None,
    without: str,
    boxes: int = 0,
    notice: tuple[str, str] | None = None,
    waiting: str = "",
    readonly: bool = False,
    first_steps: FirstSteps | None = None,
    met: SeenPlatformFile | None = None,
) -> int:
    """Run the dashboard until the person leaves; return the exit code.

    Args:
        make_fleet: Called after the first frame.
        title: Title of the terminal.
        hint: Shown on the event line until something happens.
        farewell: One line printed afterwards; None lists the boxes that keep running.
        without: What to use without a terminal, such as "`rgt status`".
        boxes: Number of boxes in the fleet.
        notice: A warning for the whole session, and what to do about it.
        waiting: Shown until the fleet has started; empty = that it connects.
        readonly: Offer no action that stops billing.
        first_steps: Choices for a first fleet without one.
        met: Knows which platform pages the person has seen; None = no page opens by itself.
    """
    served = os.environ.get("TEXTUAL_DRIVER") == WEB_DRIVER
    # A page of another site could send keys to a browser's dashboard; nothing there may cost money.
    if served and not readonly:
        print_error(translate("in a browser rgt is always read-only: rgt serve"))
        return USAGE
    if not (served or in_terminal()):
        print_error(
            translate("the dashboard needs a terminal; without one use {without}", without=without)
        )
        return USAGE
    if not served and (kind := os.environ.get("TERM", "")) in DUMB:
        sys.stderr.write(
            translate(
                "rgt: TERM={kind}: the dashboard cannot be drawn on such a terminal; use "
                "{without}, or say what it really is: export TERM=xterm-256color\n",
                kind=kind,
                without=without,
            )
        )
        return USAGE
    # Objects made during the start stay alive: collecting garbage meanwhile takes a tenth of the
    # time until the first frame. After that, the app runs the collector.
    gc.disable()
    # Before Textual is imported, which reads the environment.
    choose_ascii_in_tmux(os.environ)
    # Only after reading the fleet file, so that an error in that is printed at once.
    import asyncio

    from rgt_tui.ui import PreferencesError, preferences_path, read_preferences

    chosen = preferences_path(os.environ)
    try:
        preferences = read_preferences(chosen)
    except PreferencesError as error:
        print_error(error)
        return USAGE

    from rgt_tui.fleet import new_loop

    with asyncio.Runner(loop_factory=lambda: new_loop(boxes)) as runner:
        return runner.run(
            _run_app(
                make_fleet,
                title,
                hint,
                farewell,
                notice,
                waiting,
                readonly,
                met,
                preferences,
                chosen,
                first_steps,
            )
        )


async def _run_app(
    make_fleet: Callable[[], FleetSource],
    title: str,
    hint: str | None,
    farewell: str | None,
    notice: tuple[str, str] | None,
    waiting: str,
    readonly: bool,
    met: SeenPlatformFile | None,
    preferences: Preferences,
    remember: Path,
    first_steps: FirstSteps | None,
) -> int:
    import asyncio

    from rgt_tui.ui import RgtApp

    made: list[FleetSource] = []

    def make_traced_fleet() -> FleetSource:
        trace_event("first-frame")
        fleet = make_fleet()
        made.append(fleet)
        # Replaced below; the first state may arrive before `subscribe` has returned.
        unsubscribe: Callable[[], None] = lambda: None  # noqa: E731

        def first_sample(state: FleetState) -> None:
            if any(box.sample is not None for box in state.boxes):
                trace_event("first-sample")
                unsubscribe()

        unsubscribe = fleet.subscribe(first_sample)
        return fleet

    app = RgtApp(
        make_traced_fleet,
        title=title,
        hint=hint,
        farewell=farewell,
        notice=notice,
        waiting=waiting,
        readonly=readonly,
        preferences=preferences,
        remember=remember,
        first_steps=first_steps,
        met=met,
    )
    app.match_terminal()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        # The app leaves the terminal's alternate screen itself; Python's default would not.
        loop.add_signal_handler(number, app.exit)
    try:
        await app.run_async()
    finally:
        # A crash of a screen must not leave sessions open.
        for fleet in made:
            await fleet.stop()
    if app.return_code == 0:
        sys.stdout.write(app.farewell_line + "\n")
    return app.return_code or 0


NOTICE = (
    "this fleet file is not trusted: no sinks, keys or providers, and only hosts of your own "
    "ssh_config"
)
"""Shown on every screen while the file is not trusted."""


def _fleet_of(
    arguments: DashboardArguments, config: FleetConfig, following: FleetFileFollower | None
) -> FleetSource:
    from rgt_tui.cli.gathering import make_recording_fleet

    return make_recording_fleet(
        config.boxes,
        config.alerts,
        fleet_file=config.path,
        asks=True,
        readonly=arguments.readonly,
        following=following,
        history=not arguments.no_history,
    )


def _open_welcome(arguments: DashboardArguments) -> int:
    """Open the dashboard without a fleet file: it offers choices for a first one."""
    from rgt_tui.cli.set_up.first_fleet import FirstFleet
    from rgt_tui.fleet.config import FleetFilePlace
    from rgt_tui.fleet.config.following import FleetFileFollower

    def build_kept_fleet(config: FleetConfig) -> FleetSource:
        return _fleet_of(
            arguments, config, FleetFileFollower(FleetFilePlace(config.path), config, names=())
        )

    steps = FirstFleet(build_kept_fleet)
    return run_dashboard(
        steps.make_chosen_fleet,
        title="rgt",
        hint=None,
        farewell=None,
        without=translate("`rgt demo`, `rgt init` or `rgt import`"),
        readonly=arguments.readonly,
        first_steps=steps,
        met=SeenPlatformFile(),
    )


def open_dashboard(arguments: DashboardArguments) -> int:
    """Open the dashboard; return the exit code."""
    # Not for a demo or a recording, which have no fleet file.
    from rgt_tui.cli.opening import find_fleet_place, open_fleet, watch_fleet_file
    from rgt_tui.fleet.config import FleetFileError

    place = find_fleet_place(arguments)
    if place is None and in_terminal():
        return _open_welcome(arguments)
    try:
        config = open_fleet(arguments)
    except FleetFileError as error:
        print_error(error)
        return USAGE

    readonly = arguments.readonly
    following = watch_fleet_file(arguments, config)

    return run_dashboard(
        lambda: _fleet_of(arguments, config, following),
        title=f"rgt {config.path.name}",
        hint=None,
        farewell=None,
        without=translate("`rgt status` or `rgt watch`"),
        boxes=len(config.boxes),
        notice=None if config.doubt is None else (translate(NOTICE), "rgt trust"),
        readonly=readonly,
        met=SeenPlatformFile(),
    )
