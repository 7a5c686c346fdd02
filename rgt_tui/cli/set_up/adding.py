"""``rgt init``, ``rgt add``, ``rgt import``: add boxes, typed, pasted, or from ssh_config."""

from __future__ import annotations

import json
import os
import re
import shlex
import sys
from collections.abc import Container, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from rgt_tui.cli.commands import FAILED, OK, USAGE
from rgt_tui.cli.opening import rgt_with
from rgt_tui.cli.printing import hint_expanded_tilde, print_error, print_lines
from rgt_tui.cli.set_up.pasted_address import NotSshAddress, parse_target
from rgt_tui.cli.set_up.set_up_arguments import AddArguments, ImportArguments, InitArguments
from rgt_tui.files import note_written, working_directory
from rgt_tui.fleet.config import (
    FleetFileError,
    FleetFilePlace,
    find_place,
    load_fleet,
    value_checks,
)
from rgt_tui.fleet.config.editing import add_boxes, box_table, write_atomically
from rgt_tui.fleet.config.loading import FILE_NAME, VARIABLE, FleetFileSource
from rgt_tui.fleet.config.trusted import default_path, renew_trust
from rgt_tui.language import translate
from rgt_tui.model import Profile
from rgt_tui.profiles import all_profiles, load_profile
from rgt_tui.ssh import ConfigError, HostRequest, resolve_host, scan_config, surroundings

# Of the keys in the file, the most important first.
ORDER = (
    "host", "port", "user", "identity", "ssh_config", "profile", "logs", "jobs", "runs", "tunnels",
    "provider", "asked",
)  # fmt: skip


def guess_profile(host: str) -> str | None:
    """Return the profile whose platform uses such host names; None if unknown."""
    # Host names do not distinguish case, the patterns of profiles are lower case.
    name = host.lower()
    for profile in all_profiles().values():
        if any(fnmatchcase(name, pattern) for pattern in profile.launch.hosts):
            return profile.id
    return None


def find_target_file(named: str | None) -> FleetFilePlace:
    """Return the fleet file to add to: the one in use, else a new ``rgt.toml`` here."""
    return find_place(named, os.environ, working_directory()) or FleetFilePlace(
        Path("rgt.toml"), lies_there=True
    )


def print_boxes(path: Path | None, tables: Mapping[str, Mapping[str, Any]]) -> None:
    """Print boxes as JSON; `path` is the file that has them now, None if none does."""
    for name, values in tables.items():
        box = {"box": name, **values, "file": None if path is None else str(path)}
        print_lines(json.dumps(box))


def trust_written_file(before: FleetFileSource | None, after: FleetFileSource) -> str | None:
    """Trust a fleet file that rgt wrote, if it is new or was trusted before.

    Return why it is not trusted now, or None.
    """
    try:
        # Only rgt's own change is trusted: `before` must be the content that was trusted.
        if renew_trust(default_path(os.environ), before, after, os.environ):
            return None
        why = translate("{path} was not trusted before, and still is not", path=after.path)
    except FleetFileError as error:
        why = translate(
            "{path} was written, but could not be recorded as trusted: {error}",
            path=after.path,
            error=error,
        )
    return translate("{why}: rgt trust {path}", why=why, path=shlex.quote(str(after.path)))


def write_boxes(
    named: str | None, tables: Mapping[str, Mapping[str, Any]], *, as_json: bool = False
) -> int:
    """Add boxes; return the exit code.

    Args:
        named: Value of ``--fleet``.
        tables: Name → keys of each box.
        as_json: Print JSON objects instead of tables.
    """
    path, lies_there = find_target_file(named)
    # Also drops keys with other names.
    ordered = {
        name: {key: table[key] for key in ORDER if key in table} for name, table in tables.items()
    }
    # Filled while the file is locked, so that no other change comes between writing and trusting.
    doubts: list[str | None] = []
    try:
        config = add_boxes(
            path, ordered, lambda before, after: doubts.append(trust_written_file(before, after))
        )
    except FleetFileError as error:
        print_error(error)
        # The disk's fault, not the command line's.
        if isinstance(error.__cause__, OSError):
            return FAILED
        return USAGE
    for warning in (*config.warnings, *(doubt for doubt in doubts if doubt and lies_there)):
        print_error(warning)
    if as_json:
        print_boxes(path, ordered)
        return OK
    for name, values in ordered.items():
        sys.stdout.write(f"{path}: added\n\n{box_table(name, values)}\n")
    for id_ in sorted({spec.profile for spec in config.boxes if spec.name in ordered}):
        if told := profile_defaults(load_profile(id_)):
            print_lines(
                translate(
                    "from the profile {id}, unless the file sets it: {told}", id=id_, told=told
                )
            )
    print_lines(
        translate(
            "next: {named} doctor {ordered}", named=rgt_with(named), ordered=" ".join(ordered)
        )
    )
    return OK


def profile_defaults(profile: Profile) -> str:
    """Return the defaults that a platform's profile provides; may be empty."""
    overrides = profile.overrides
    told = {
        "user": profile.launch.user,
        "python": overrides.python[0] if overrides.python else None,
        "durable": overrides.durable_dir,
        "jobs get": ", ".join(overrides.env),
    }
    return "; ".join(f"{key} {value}" for key, value in told.items() if value)


TEMPLATE = """\
# The boxes that rgt watches. docs/fleet-file.md describes every key; `rgt doctor` checks this file and the boxes.
# Add one:  rgt add NAME HOST       or:  rgt add NAME "ssh -p 40022 root@1.2.3.4"
# Or all hosts of ssh_config:  rgt import --write

# [defaults]                 # for every box that does not set it
# identity = "~/.ssh/id_ed25519"
# profile = "autodl"         # the platform (`rgt profiles`); gives defaults for user, python, durable, env of jobs

# [boxes.lab]
# host = "lab-a100"          # an alias of ssh_config or a host name; user, port and identity are optional
# profile = "runpod"         # default: that of the provider
# logs = ["~/exp/*.log"]     # ~ is the home directory on the box
# jobs = ["~/jobs/sweep"]    # queues of docs/jobs.md
# per_hour = 1.89            # price per hour, if no provider reports it
# currency = "USD"

# [boxes.lab.provider]       # the API that reports its cost and stops it
# kind = "runpod"
# instance = "k3v9q0x1fake01"
# key_env = "RUNPOD_API_KEY" # the name of a variable: never put a key itself in here

# [alerts.idle-gpu]          # docs/alerts.md lists the kinds and their limits
# hold_s = 1800

# [[sinks]]                  # where alerts go beside the screen
# kind = "ntfy"
# url_env = "RGT_NTFY_URL"
"""


def run_init(arguments: InitArguments) -> int:
    """Write the file; return the exit code."""
    path = Path(
        arguments.path or arguments.fleet or os.environ.get(VARIABLE) or FILE_NAME
    ).expanduser()
    try:
        # Exclusive in one step: between a check and a write another program could create it.
        write_atomically(path, TEMPLATE, exclusive=True)
    except FileExistsError:
        print_error(
            translate(
                "{path} already exists; not overwritten. Edit it, or use `rgt add NAME HOST`",
                path=path,
            )
        )
        return FAILED
    except OSError as error:
        print_error(
            translate("cannot write {path}: {strerror}", path=path, strerror=error.strerror)
        )
        return FAILED
    # So that no push takes the file for code.
    note_written([path])
    doubt = trust_written_file(None, FleetFileSource(path, path.resolve(), TEMPLATE.encode()))
    if doubt is not None:
        print_error(doubt)
    if arguments.json:
        print_lines(json.dumps({"path": str(path)}))
    else:
        rgt = rgt_with(arguments.path or arguments.fleet)
        sys.stdout.write(
            translate(
                "{path}: written\nnext: {rgt} add NAME HOST, or {rgt} import\n", path=path, rgt=rgt
            )
        )
    return OK


KEYS = ("profile", "port", "user", "identity", "logs", "jobs", "runs")
"""Options that become keys of the box."""
LOCAL_FILES = ("identity", "ssh_config")


def make_absolute(path: str) -> str:
    """Return a local path that does not depend on the working directory."""
    # "none" and the last two are ssh's own notation, which it expands later.
    if path == "none" or path.startswith(("/", "~", "%d", "${")):
        return path
    return str(Path(path).absolute())


def run_add(arguments: AddArguments) -> int:
    """Add the box; return the exit code."""
    try:
        left_out: list[str] = []
        values = parse_target(arguments.target, left_out)
    except NotSshAddress as error:
        print_error(error)
        return USAGE
    # Options win over the pasted command.
    values |= {
        key: getattr(arguments, key) for key in KEYS if getattr(arguments, key) not in (None, [])
    }
    for key in LOCAL_FILES:
        if key in values:
            values[key] = make_absolute(values[key])
    if "profile" not in values and (guess := guess_profile(values["host"])) is not None:
        values["profile"] = guess
    there = [*values.get("jobs", ()), *values.get("runs", ()), *values.get("logs", ())]
    # With the same user name, the home there may really be the path that the shell has made of ~.
    for where in there if values.get("user") != Path.home().name else ():
        if hint := hint_expanded_tilde(where):
            print_error(translate("{where} is a path on the box{hint}", where=where, hint=hint))
    for line in left_out:
        print_error(line)
    return write_boxes(arguments.fleet, {arguments.name: values}, as_json=arguments.json)


GIT_HOSTS = (
    "github.com",
    "gitlab.com",
    "bitbucket.org",
    "ssh.dev.azure.com",
    "git.sr.ht",
    "codeberg.org",
)
"""Hosts in ssh_config that are no boxes; imported only if a pattern names one exactly."""


def import_hosts(arguments: ImportArguments) -> int:
    """List or add hosts of ssh_config; return the exit code."""
    try:
        taken = _list_known_hosts(arguments)
        tables = host_tables(arguments.config, arguments.patterns, taken)
    except (FleetFileError, ConfigError) as error:
        print_error(error)
        return USAGE
    except OSError as error:
        print_error(translate("cannot read the fleet file: {error}", error=error))
        return FAILED
    if not tables:
        where = arguments.config or "ssh_config"
        print_error(
            translate(
                "nothing to import: no host in {where} matches, or all that match are in the "
                "fleet file",
                where=where,
            )
        )
        return FAILED
    return show_or_write(arguments, tables)


def show_or_write(arguments: ImportArguments, tables: Mapping[str, Mapping[str, Any]]) -> int:
    """Write boxes with ``--write``, else only show them; return the exit code."""
    if arguments.write:
        return write_boxes(arguments.fleet, tables, as_json=arguments.json)
    if arguments.json:
        print_boxes(None, tables)
        return OK
    sys.stdout.write("\n".join(box_table(name, values) for name, values in tables.items()))
    sys.stdout.write(
        translate("\n# nothing was written; add --write, and patterns to choose hosts\n")
    )
    return OK


def _list_known_hosts(arguments: ImportArguments) -> dict[str, str]:
    """Return a map from hosts and names to boxes of the fleet file; empty without one."""
    # Hosts count as known, too: the same machine must not be added under a second name.
    path = find_target_file(arguments.fleet).path
    # A file without boxes, as written by `rgt init`, is not read here; its errors show up when it
    # is written.
    if not path.exists() or not re.search(rb"^\s*\[?boxes", path.read_bytes(), re.MULTILINE):
        return {}
    return {name: spec.name for spec in load_fleet(path) for name in (spec.host, spec.name)}


def host_tables(
    named: str | None = None, patterns: Sequence[str] = (), taken: Container[str] = ()
) -> dict[str, dict[str, Any]]:
    """Return the hosts of ssh_config that can become boxes: name → keys of the box.

    Args:
        named: The ssh_config to read; None = the person's own.
        patterns: Globs of which an alias must match one; none = all.
        taken: Names and hosts of existing boxes.

    Raises:
        ConfigError: It cannot be read.
    """
    if named:
        config = str(Path(named).expanduser().absolute())
    else:
        config = None
    around = surroundings(config)
    found: dict[str, dict[str, Any]] = {}

    def host_of(alias: str) -> str:
        try:
            return resolve_host(HostRequest(alias), around).host
        except ConfigError:
            return alias  # connecting to the box will report the error in its entry

    names = scan_config(around).aliases
    # `ssh -G` runs once per alias; hundreds in turn would take seconds.
    with ThreadPoolExecutor() as threads:
        hosts = dict(zip(names, threads.map(host_of, names), strict=True))
    for alias in names:
        wanted = [pattern for pattern in patterns if fnmatchcase(alias, pattern)]
        # An alias may have characters that a box's name may not.
        if value_checks.NAME.fullmatch(alias):
            name = alias
        else:
            name = re.sub(r"[^A-Za-z0-9._-]+", "-", alias).strip("-._")
        if (
            (patterns and not wanted)
            or alias in taken
            or name in taken
            or name in found
            or not name
        ):
            continue
        if (wrong := value_checks.BOX["host"](alias)) is not None:
            print_error(
                translate(
                    "{alias!r} was left out: {wrong}; give that host a plain name in ssh_config",
                    alias=alias,
                    wrong=wrong,
                )
            )
            continue
        # By host, not by alias: `Host work-git` with HostName github.com is no box, either.
        if (host := hosts[alias]) in GIT_HOSTS and alias not in patterns:
            continue
        values: dict[str, Any] = {"host": alias}
        if config is not None:
            values["ssh_config"] = config
        if (guess := guess_profile(host)) is not None:
            values["profile"] = guess
        found[name] = values
    return found
