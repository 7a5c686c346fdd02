"""Checks of the fleet file."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path

from rgt_tui.cli.doctoring.finding import Finding, Status
from rgt_tui.cli.opening import NONE_FOUND
from rgt_tui.fleet.fleet_file import FleetConfig, FleetFileError, read_fleet


def file(path: Path | None) -> tuple[Finding, FleetConfig | None]:
    """Check the fleet file; return what it says, too, if it can be used."""
    name = "config.file"
    if path is None:
        text, _, _ = NONE_FOUND.partition(".\n")
        return Finding(name, Status.FAIL, text, "rgt init, then rgt add NAME HOST"), None
    try:
        config = read_fleet(path)
    except FleetFileError as error:
        return Finding(
            name, Status.FAIL, str(error), "correct that line; docs/fleet-file.md has every key"
        ), None
    count = f"{path}: {len(config.boxes)} box{'es' if len(config.boxes) > 1 else ''}"
    if config.warnings:
        return Finding(
            name, Status.WARN, f"{count}; {'; '.join(config.warnings)}", "remove one of the two"
        ), config
    return Finding(name, Status.OK, count), config


def secrets(config: FleetConfig | None, env: Mapping[str, str]) -> Finding:
    """Check that what the file names for its secrets is there; no value is ever shown."""
    name = "config.secrets"
    if config is None:
        return Finding(name, Status.SKIP, "there is no usable fleet file")
    missing, loose = list(_missing(config, env)), list(_loose(config))
    if missing:
        return Finding(
            name,
            Status.FAIL,
            "; ".join(missing),
            "export the variable, or put the file there, before rgt starts",
        )
    if loose:
        return Finding(name, Status.WARN, "; ".join(loose), "chmod 600 the file")
    count = len(list(_named(config)))
    return Finding(name, Status.OK, f"{count} named, all there" if count else "none is named")


def _named(config: FleetConfig) -> Iterator[tuple[str, str, str | None, str | None]]:
    """Yield (who, key, variable, file)."""
    for spec in config.boxes:
        if spec.provider is not None and spec.provider.key_env:
            yield f"boxes.{spec.name}.provider", "key_env", spec.provider.key_env, None
        if spec.identity:
            yield f"boxes.{spec.name}", "identity", None, spec.identity
    for place, sink in enumerate(config.alerts.sinks):
        for key in ("url_env", "token_env"):
            if getattr(sink, key):
                yield f"sinks[{place}]", key, getattr(sink, key), None
        if sink.url_file:
            yield f"sinks[{place}]", "url_file", None, sink.url_file


def _missing(config: FleetConfig, env: Mapping[str, str]) -> Iterator[str]:
    for who, key, variable, path in _named(config):
        if variable is not None and not env.get(variable):
            yield f"{who}: {key} = {variable!r} is not set"
        if path is not None and "%" not in path and not os.access(Path(path).expanduser(), os.R_OK):
            yield f"{who}: {key} = {path!r} cannot be read"


def _loose(config: FleetConfig) -> Iterator[str]:
    for who, key, _, path in _named(config):
        if path is not None and "%" not in path:
            mode = stat.S_IMODE(Path(path).expanduser().stat().st_mode)
            if mode & 0o077:
                yield f"{who}: {key} = {path!r} can be read by others (mode {mode:o})"
