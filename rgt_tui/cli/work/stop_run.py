"""``rgt stop``: end one run of a box so that it can save, and say what was saved and where."""

from __future__ import annotations

import sys
from collections.abc import Iterator

from rgt_tui.cli import running
from rgt_tui.cli.commands import FAILED, OK, USAGE
from rgt_tui.cli.opening import open_box, rgt_with
from rgt_tui.cli.printing import complain, interactive, print_json, print_lines, says_yes
from rgt_tui.cli.work.work_arguments import StopArguments
from rgt_tui.fleet import reached
from rgt_tui.fleet.work.agent_answers import Row, ask, number, text, texts
from rgt_tui.model import BoxSpec
from rgt_tui.profiles import age, size

CONNECT_S = 60.0


def run_stop(arguments: StopArguments) -> int:
    """End a run; return the exit status."""
    spec = open_box(arguments, trusted=True)
    return running.run_on_box(spec.name, _stop(arguments, spec))


async def _stop(arguments: StopArguments, spec: BoxSpec) -> int:
    words = ["stop", "--run", arguments.run, *(word for job in spec.jobs for word in ("--job", job))]
    accept = arguments.accept_new_host_key

    def show(row: Row) -> None:
        if arguments.json:
            print_json({"box": spec.name, **row})
        else:
            print_lines(*(f"{spec.name}: {line}" for line in lines_of(row)))
        sys.stdout.flush()

    async with reached(spec, accept_new_host_keys=accept) as (connection, deployed):
        answer = await ask(connection, deployed, words, seconds=CONNECT_S)
        if answer.status != OK:
            complain(f"{spec.name}: {answer.words.removeprefix('stop: ')}")
            return USAGE
        found = answer.last
        show(found)
        if not arguments.yes and not _is_confirmed(arguments, spec):
            return FAILED
        words += ["--end", text(found, "end")]
        words += ["--after-checkpoint", "--wait", f"{arguments.wait:g}"] if arguments.after_checkpoint else []
        words += [] if arguments.seconds is None else ["--seconds", f"{arguments.seconds:g}"]
        limit = (
            CONNECT_S + (arguments.seconds or 600.0) + (arguments.wait if arguments.after_checkpoint else 0.0)
        )
        done = await ask(
            connection,
            deployed,
            words,
            seconds=limit,
            each=lambda row: show(row) if row.get("phase") != "found" else None,
        )
    if done.words and done.status:
        complain(f"{spec.name}: {done.words.removeprefix('stop: ')}")
    if done.status == OK and not arguments.json and texts(found, "waiting"):
        job = text(found, "job").rpartition("/")[2]
        again = f"{rgt_with(arguments.fleet)} queue {spec.name} run --job {job}"
        print_lines(f"{spec.name}: {', '.join(texts(found, 'waiting'))} wait; to go on: {again}")
    return done.status


def _is_confirmed(arguments: StopArguments, spec: BoxSpec) -> bool:
    if not interactive():
        complain(f"{spec.name}: nothing was stopped: cannot prompt here; in a script: --yes")
        return False
    if says_yes(f"{spec.name}: stop {arguments.run}?"):
        return True
    complain(f"{spec.name}: nothing was stopped")
    return False


def lines_of(row: Row) -> Iterator[str]:
    """Yield a row of the agent's ``stop`` for a person."""
    phase = row.get("phase")
    if phase == "found":
        whose = f"cell {text(row, 'cell')} of {text(row, 'job')}, " if row.get("cell") else ""
        yield f"found  {text(row, 'run')}: {whose}pid {number(row, 'pid')}"
        if row.get("command"):
            yield f"       {text(row, 'command')[:200]}"
        yield f"saved  {_point(row)}"
        if row.get("handles_sigterm") is not True:
            yield "       it does not handle SIGTERM: it ends at once, and loses what it has not saved"
    elif phase == "waits":
        yield f"waits  for its next checkpoint, at most {age(_seconds(row))}"
    elif phase == "asked":
        yield f"asked  SIGTERM was sent; waiting up to {age(_seconds(row))} for its end"
    elif phase == "ended":
        took = age(row["took"] if isinstance(row.get("took"), (int, float)) else None)
        if not row.get("ended"):
            yield f"alive  it has not ended after {took}; nothing else was sent"
            return
        why = f": {text(row, 'reason')}" if row.get("reason") else ""
        state = f", {text(row, 'state')}{why}" if row.get("state") else ""
        yield f"ended  after {took}{state}"
        yield f"saved  {_point(row)}" if row.get("saved") else f"lost   what came after {_point(row)}"


def _seconds(row: Row) -> float | None:
    value = row.get("seconds")
    return float(value) if isinstance(value, (int, float)) else None


def _point(row: Row) -> str:
    """Return a checkpoint: its step, its place, its size, and how old it is by the box's own clock."""
    newest, now = row.get("newest"), row.get("at")
    if not isinstance(newest, dict):
        return "no checkpoint that rgt recognises"
    step = f"step {newest['step']:,}, " if isinstance(newest.get("step"), int) else ""
    at = newest.get("at")
    known = isinstance(at, (int, float)) and isinstance(now, (int, float))
    old = f", {age(max(0.0, now - at))} ago" if known and now is not None and at is not None else ""
    return f"{step}{text(newest, 'path')}, {size(number(newest, 'bytes'))}{old}"
