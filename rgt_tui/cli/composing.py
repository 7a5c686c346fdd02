"""Put a fleet together for a command: who is asked, what is kept, who is told."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from rgt_tui.fleet.alerting import Alerting
from rgt_tui.fleet.engine import Fleet
from rgt_tui.fleet.memory import Memory
from rgt_tui.fleet.observe import Observer, Tap
from rgt_tui.gate import audit
from rgt_tui.health import mutes
from rgt_tui.model.alert import AlertSettings
from rgt_tui.model.box import BoxSpec
from rgt_tui.ssh.host_keys import Policy
from rgt_tui.store import History, history_path

NOISY = ("asyncssh", "httpx", "httpcore")
"""What these write would come between the lines that were asked for."""


def make_fleet(
    specs: Sequence[BoxSpec],
    *,
    accept_new_host_keys: bool = False,
    clock: Callable[[], float] = time.time,
    observers: Sequence[Observer] = (),
    tap: Tap | None = None,
    alerts: AlertSettings | None = None,
) -> Fleet:
    """Return a fleet for a command that looks: nobody answers questions, nothing is kept, no sink is told.

    Mutes count all the same, and so does for how long an alert has held as an earlier rgt saw it.

    Args:
        specs: The boxes.
        accept_new_host_keys: Write the keys of unknown hosts to known_hosts.
        clock: Epoch seconds.
        observers: Told of every state and event.
        tap: Given every raw line of every box.
        alerts: What the fleet file says of alerts; its sinks do not count here.

    Raises:
        ProfileError: a box names a profile that does not exist.
    """
    _hush()
    kinds = AlertSettings(kinds=alerts.kinds) if alerts is not None else AlertSettings()
    return Fleet(
        specs,
        audit=audit.default_path(os.environ),
        clock=clock,
        observers=observers,
        tap=tap,
        policy=_policy(accept_new_host_keys),
        alerting=Alerting(kinds, path=_alerts_file(specs), clock=clock),
    )


def make_kept_fleet(
    specs: Sequence[BoxSpec],
    alerts: AlertSettings,
    *,
    fleet_file: Path | None = None,
    history: bool = True,
    asks: bool = False,
    accept_new_host_keys: bool = False,
    clock: Callable[[], float] = time.time,
    observers: Sequence[Observer] = (),
) -> Fleet:
    """Return a fleet for a command that stays: with the history on disk, and alerts that reach their sinks.

    Args:
        specs: The boxes.
        alerts: What the fleet file says of alerts.
        fleet_file: It; what is spent is added up for the boxes that it has, or had.
        history: Keep the history on disk, where ``RGT_HISTORY`` does not say otherwise.
        asks: Somebody answers questions.
        accept_new_host_keys: Write the keys of unknown hosts to known_hosts.
        clock: Epoch seconds.
        observers: Told of every state and event.

    Raises:
        ProfileError: a box names a profile that does not exist.
    """
    _hush()
    log = audit.default_path(os.environ)
    path = history_path(os.environ) if history and _is_trusted(specs) else None
    known_by = "" if fleet_file is None else str(fleet_file.absolute())
    memory = None if path is None else Memory(History(path, clock=clock, fleet=known_by), clock=clock)
    return Fleet(
        specs,
        audit=log,
        clock=clock,
        remember=None if memory is None else memory.remember,
        observers=(*observers, *(() if memory is None else (memory,))),
        asks=asks,
        policy=_policy(accept_new_host_keys),
        alerting=Alerting(alerts, path=_alerts_file(specs), clock=clock),
    )


def _is_trusted(specs: Sequence[BoxSpec]) -> bool:
    """Tell whether what is seen may be kept: a stranger's names and prices would count as those of one's own boxes."""
    return not any(spec.untrusted for spec in specs)


def _alerts_file(specs: Sequence[BoxSpec]) -> Path | None:
    return mutes.default_path(os.environ) if _is_trusted(specs) else None


def _policy(accept_new_host_keys: bool) -> Policy:
    return Policy.ACCEPT_NEW if accept_new_host_keys else Policy.ASK


def _hush() -> None:
    for name in NOISY:
        logging.getLogger(name).setLevel(logging.CRITICAL)
