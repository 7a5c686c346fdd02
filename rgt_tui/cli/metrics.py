"""``rgt metrics``: the fleet's figures for Prometheus."""

from __future__ import annotations

import argparse
import asyncio
import ipaddress
import json
import math
import sys
import time
from collections.abc import Sequence

from rgt_tui.cli import running
from rgt_tui.cli.commands import FAILED, OK, USAGE
from rgt_tui.cli.composing import make_fleet
from rgt_tui.cli.exposition import exposition, series
from rgt_tui.cli.gathering import gather, stop
from rgt_tui.cli.metrics_server import PATH, MetricsServer
from rgt_tui.cli.opening import chosen, open_fleet
from rgt_tui.cli.printing import complain
from rgt_tui.fleet.fleet_file import FleetFileError
from rgt_tui.model.alert import AlertSettings
from rgt_tui.model.box import BoxSpec


def run_metrics(arguments: argparse.Namespace) -> int:
    """Serve or print; return the exit code."""
    try:
        if arguments.json and not arguments.once:
            raise FleetFileError("--json goes with --once; what is served is Prometheus text")
        config = open_fleet(arguments, trusted=True)
        specs = chosen(config, arguments.boxes)
    except FleetFileError as error:
        complain(error)
        return USAGE

    return running.run(
        (_once if arguments.once else _serve)(specs, config.alerts, arguments), boxes=len(specs)
    )


async def _once(specs: Sequence[BoxSpec], alerts: AlertSettings, arguments: argparse.Namespace) -> int:
    state = await gather(
        specs, arguments.timeout, accept_new_host_keys=arguments.accept_new_host_key, alerts=alerts
    )
    now = time.time()
    if not arguments.json:
        sys.stdout.write(exposition(state, now).decode())
        return OK
    for family, rows in series(state, now):
        for labels, value in rows:
            shown = value if math.isfinite(value) else str(value)
            sys.stdout.write(json.dumps({"name": family.name, "labels": labels, "value": shown}) + "\n")
    return OK


async def _serve(specs: Sequence[BoxSpec], alerts: AlertSettings, arguments: argparse.Namespace) -> int:
    over = asyncio.Event()
    running.until_signalled(over)
    fleet = make_fleet(specs, accept_new_host_keys=arguments.accept_new_host_key, alerts=alerts)
    host, port = arguments.listen
    try:
        server = MetricsServer(host, port, lambda: exposition(fleet.state, fleet.now()))
    except OSError as error:
        complain(f"cannot listen on {host}:{port}: {error.strerror}; choose another with --listen")
        return FAILED
    shown = f"[{host}]" if ":" in host else host
    complain(f"listening on http://{shown}:{server.port}{PATH}{_exposed(host)}")
    await fleet.start()
    try:
        await over.wait()
    finally:
        server.stop()
        await stop(fleet)
    return OK


def _exposed(host: str) -> str:
    """Say it where everyone who reaches this machine can read the figures."""
    try:
        local = ipaddress.ip_address(host).is_loopback
    except ValueError:
        local = host == "localhost"
    return "" if local else " (for everyone who reaches this machine: names, prices and losses are in it)"
