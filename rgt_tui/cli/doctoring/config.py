"""Checks of the fleet file."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from rgt_tui.cli.doctoring.finding import Finding, Status
from rgt_tui.cli.opening import NONE_FOUND, UNTRUSTED
from rgt_tui.fleet.config.secrets import usual_name
from rgt_tui.fleet.fleet_file import FleetConfig, FleetFileError, Place, open_place
from rgt_tui.model.plain import clean
from rgt_tui.ssh.keyring import load
from rgt_tui.ssh.ssh_config import NO_FILE, expand, surroundings


def file(place: Place | None) -> tuple[Finding, FleetConfig | None]:
    """Check the fleet file; return what it says, too, if it can be used."""
    name = "config.file"
    if place is None:
        text, _, _ = NONE_FOUND.partition(".\n")
        return Finding(name, Status.FAIL, text, "rgt init, then rgt add NAME HOST"), None
    try:
        config = open_place(place)
    except FleetFileError as error:
        return Finding(
            name, Status.FAIL, clean(str(error)), "correct that line; docs/fleet-file.md has every key"
        ), None
    if config.doubt is not None:
        return Finding(name, Status.WARN, clean(config.doubt), UNTRUSTED), config
    count = f"{place.path}: {len(config.boxes)} box{'es' if len(config.boxes) > 1 else ''}"
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
    named = list(_named(config))
    found = [problem for item in named if (problem := _problem(item, env)) is not None]
    missing = [text for status, text in found if status is Status.FAIL]
    if missing:
        return Finding(
            name,
            Status.FAIL,
            clean("; ".join(missing)),
            "export the variable, or put the file there, before rgt starts",
        )
    if found:
        loose = clean("; ".join(text for _, text in found))
        return Finding(name, Status.WARN, loose, "chmod 600 the file; name the right one if it is no key")
    return Finding(name, Status.OK, f"{len(named)} named, all there" if named else "none is named")


class _Named(NamedTuple):
    """What the fleet file names."""

    who: str
    key: str
    value: str
    what: str
    """variable, file, or identity."""


def _named(config: FleetConfig) -> Iterator[_Named]:
    for spec in config.boxes:
        if spec.provider is not None and spec.provider.key_env:
            yield _Named(f"boxes.{spec.name}.provider", "key_env", spec.provider.key_env, "variable")
        if spec.identity:
            yield _Named(f"boxes.{spec.name}", "identity", spec.identity, "identity")
    for place, sink in enumerate(config.alerts.sinks):
        for key in ("url_env", "token_env"):
            if getattr(sink, key):
                yield _Named(f"sinks[{place}]", key, getattr(sink, key), "variable")
        if sink.url_file:
            yield _Named(f"sinks[{place}]", "url_file", sink.url_file, "file")


def _problem(item: _Named, env: Mapping[str, str]) -> tuple[Status, str] | None:
    """Return what is wrong with one of them: it is missing (fail), or others can read it (warn)."""
    who = f"{item.who}: {item.key}"
    if item.what == "variable":
        if env.get(item.value):
            return None
        shown = f"{item.value!r}, which" if usual_name(item.value) else "a variable that"
        return Status.FAIL, f"{who} names {shown} is not set"
    found = _key_problem(item.value, env) if item.what == "identity" else _file_problem(item.value)
    return None if found is None else (found[0], f"{who} = {item.value!r}: {found[1]}")


def _key_problem(value: str, env: Mapping[str, str]) -> tuple[Status, str] | None:
    """Judge a key file as logging in does: its public half is enough where the SSH agent holds the private one."""
    try:
        home = surroundings(NO_FILE, env).home
        found = load(expand(value, {"%": "%", "d": home}, env))
    except ValueError as error:
        return Status.FAIL, str(error)
    if found.missing:
        return None if found.public is not None else (Status.FAIL, found.problem or "there is no such file")
    return None if found.problem is None else (Status.WARN, found.problem)


def _file_problem(value: str) -> tuple[Status, str] | None:
    try:
        file = Path(value).expanduser()
        mode = stat.S_IMODE(file.stat().st_mode)
    except (OSError, RuntimeError) as error:
        return Status.FAIL, getattr(error, "strerror", None) or str(error)
    if not os.access(file, os.R_OK):
        return Status.FAIL, "cannot be read"
    return (Status.WARN, f"others can read it (mode {mode:o})") if mode & 0o077 else None
