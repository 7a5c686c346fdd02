"""``rgt secret``: send a key or token to a box over standard input, never onto storage that others can read."""

from __future__ import annotations

import getpass
import sys

import msgspec

from rgt_tui.cli import running
from rgt_tui.cli.bringing.bringing_arguments import SecretArguments
from rgt_tui.cli.commands import FAILED, OK, USAGE
from rgt_tui.cli.opening import open_box
from rgt_tui.cli.printing import complain, expanded_here, print_json, print_lines
from rgt_tui.fleet import durable_dirs, reached
from rgt_tui.fleet.box_settings import KeptSecret, SecretAnswer, ask_secret
from rgt_tui.fleet.work.launching import job_directory
from rgt_tui.model import BoxSpec, Secret
from rgt_tui.profiles import load_profile

MOST = 64 << 10


def run_secret(arguments: SecretArguments) -> int:
    """Keep, list or remove; return the exit code."""
    if arguments.list_only == bool(arguments.name):
        complain("name the secret: rgt secret BOX NAME, or rgt secret BOX --list")
        return USAGE
    if arguments.to is not None and not arguments.to.startswith("/"):
        complain(f"--to {arguments.to}: give an absolute directory on the box")
        return USAGE
    spec = open_box(arguments, trusted=True)
    value = None
    if not arguments.list_only and not arguments.remove:
        value = read_value(arguments.name or "")
        if value is None:
            complain("no value was given: it is read from standard input")
            return USAGE
    return running.run_on_box(spec.name, _work(arguments, spec, value))


def read_value(name: str) -> Secret | None:
    """Return what is typed without an echo, or what comes on standard input, less one line end; None = nothing."""
    if sys.stdin.isatty():
        text = getpass.getpass(f"{name}: ").encode()
    else:
        text = sys.stdin.buffer.read(MOST + 1)
        text = text.removesuffix(b"\n").removesuffix(b"\r")
    return Secret(text.decode("utf-8", "surrogateescape")) if text else None


async def _work(arguments: SecretArguments, spec: BoxSpec, value: Secret | None) -> int:
    durable = durable_dirs(spec, load_profile(spec.profile))
    outlives = [word for path in durable for word in ("--durable", path)]
    async with reached(spec, accept_new_host_keys=arguments.accept_new_host_key) as (connection, deployed):
        if arguments.list_only:
            kept = await ask_secret(connection, deployed, "list", *outlives)
            jobs = [word for job in spec.jobs for word in ("--job", job)]
            found = await ask_secret(connection, deployed, "find", *jobs, *outlives)
            return _tell(arguments, spec, msgspec.structs.replace(kept, found=found.found))
        words = ["--name", arguments.name or ""]
        if arguments.job:
            words += ["--job", job_directory(spec, arguments.job)]
        words += ["--all-cells"] * arguments.all_cells
        if arguments.remove:
            return _tell(arguments, spec, await ask_secret(connection, deployed, "remove", *words))
        words += [*(["--to", arguments.to] if arguments.to else []), *outlives]
        return _tell(arguments, spec, await ask_secret(connection, deployed, "put", *words, value=value))


def _tell(arguments: SecretArguments, spec: BoxSpec, answer: SecretAnswer) -> int:
    if arguments.json:
        print_json({"box": spec.name, **msgspec.to_builtins(answer)})
    else:
        for line in lines(spec.name, answer):
            print_lines(line)
    if answer.refused is not None:
        complain(f"{spec.name}: {answer.refused}{expanded_here(arguments.job)}")
        return FAILED
    return OK


ALL_JOBS = "*"
"""How the agent names all jobs of a box."""


def _whose(row: KeptSecret) -> str:
    return "cells of every job" if row.job == ALL_JOBS else f"cells of {row.job}"


def lines(box: str, answer: SecretAnswer) -> list[str]:
    """Return what is printed, one line for each thing; no value is known here."""
    found = []
    if answer.put is not None:
        whose = f"for the {_whose(answer.put)}" if answer.put.job else "in a file"
        found.append(f"{box}: {answer.put.name} {whose}: {answer.put.path}")
    found += [f"{box}: removed {row.path}" for row in answer.removed]
    for row in answer.secrets:
        whose = _whose(row) if row.job else "file"
        found.append(f"{box}: {row.name}  {row.path}  ({whose}){f': {row.problem}' if row.problem else ''}")
    for token in answer.found:
        found.append(f"{box}: found {token.path}: {token.why}; {token.open or 'this user alone may read it'}")
    return found or (
        [] if answer.refused else [f"{box}: no secret is kept there, and none is in the usual places"]
    )
