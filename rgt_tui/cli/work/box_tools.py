"""``rgt gpu-health``, ``reap``, ``grep``, ``manifest``, ``mirror``, ``stop``: agent commands."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import msgspec

from rgt_tui.cli import running
from rgt_tui.cli.commands import FAILED, OK, USAGE
from rgt_tui.cli.opening import open_box, rgt_with
from rgt_tui.cli.printing import complain, interactive, print_json, print_lines, prompt, says_yes
from rgt_tui.cli.work.work_arguments import (
    GpuHealthArguments,
    GrepArguments,
    ManifestArguments,
    MirrorArguments,
    QueueArguments,
    ReapArguments,
    StopArguments,
    ToolArguments,
)
from rgt_tui.fleet import reached
from rgt_tui.fleet.work.agent_answers import Answer, Row, ask, number, rows_of, text, texts
from rgt_tui.model import BoxSpec, memory
from rgt_tui.model.gpu_names import gpus_not_as_asked
from rgt_tui.profiles import age, size

CONNECT_S = 60.0


class Tool(NamedTuple):
    """One command of the agent as a command of rgt."""

    words: Callable[[Any, BoxSpec], list[str]]
    """Returns the agent's command and its arguments."""
    shown: Callable[[Row], Iterator[str]]
    """Yields the lines of one row for a person."""
    statuses: Mapping[int, int] = MappingProxyType({})
    """Maps the agent's exit statuses to ours, where ours has another meaning."""
    completed: Callable[[Row, BoxSpec], Row] | None = None
    """Adds local knowledge to the agent's only row; its `status` is then the exit status."""


def _gpu_health(arguments: GpuHealthArguments, spec: BoxSpec) -> list[str]:
    asked = spec.asked
    expected = arguments.expect
    if expected is None and asked is not None and asked.gpu is not None:
        expected = asked.gpu_count
    words = ["gpu-health"]
    words += ["--expect", str(expected)] if expected is not None else []
    words += ["--hot", f"{arguments.hot:g}"] if arguments.hot is not None else []
    return words + ["--strict"] * arguments.strict


def _gpus_as_asked(row: Row, spec: BoxSpec) -> Row:
    """Add a check whether each GPU is the rented model, which the agent does not know."""
    asked = spec.asked
    if asked is None or asked.gpu is None:
        return row
    checks = []
    for check in rows_of(row, "checks"):
        checks.append(check)
        if check.get("check") == "visible" and check.get("ok") is True:
            total = check.get("vram_total")
            other = gpus_not_as_asked(
                asked.gpu, 1, [(text(check, "text"), total if isinstance(total, int) else None)]
            )
            said = other or f"{text(check, 'text')}, as asked for"
            checks.append(
                {"gpu": check.get("gpu"), "check": "model", "ok": other is None, "text": said}
            )
    wrong = any(check.get("ok") is False for check in checks)
    return {**row, "checks": checks, "status": FAILED if wrong else row.get("status")}


WORDS_OF = {True: "ok", False: "trouble", None: "unknown"}


def _gpu_lines(row: Row) -> Iterator[str]:
    for check in rows_of(row, "checks"):
        ok = check.get("ok")
        verdict = WORDS_OF[ok if isinstance(ok, bool) else None]
        card = "all" if check.get("gpu") is None else text(check, "gpu")
        yield f"{verdict:<8} gpu {card:<4} {text(check, 'check'):<12} {text(check, 'text')}"
    if row.get("error"):
        yield f"unknown  {text(row, 'error')}"


def _reap(arguments: ReapArguments, spec: BoxSpec) -> list[str]:
    words = ["reap", *(word for job in spec.jobs for word in ("--job", job))]
    return words + (["--pattern", spec.pattern] if spec.pattern else [])


ORPHAN = {True: "orphan", False: "at work", None: "unknown"}


def _reap_lines(row: Row) -> Iterator[str]:
    holders = rows_of(row, "holders")
    for holder in holders:
        orphan = holder.get("orphan")
        kind = "training" if holder.get("training") or holder.get("run") else None
        said = kind or ORPHAN[orphan if isinstance(orphan, bool) else None]
        who = text(holder, "cmd") or text(holder, "name") or "?"
        yield f"{said:<9} {text(holder, 'kill'):<20} {memory(number(holder, 'rss')):>9}  {who}"
    if not holders:
        yield "no process holds a GPU"
    if row.get("why"):
        yield f"unknown which of them are orphans: {text(row, 'why')}"
    for name in texts(row, "ended"):
        yield f"ended     {name}"
    for refusal in rows_of(row, "refused"):
        yield f"not ended {text(refusal, 'kill')}: {text(refusal, 'why')}"


def _grep(arguments: GrepArguments, spec: BoxSpec) -> list[str]:
    words = ["grep", *(["--ignore-case"] if arguments.ignore_case else [])]
    words += ["--max", str(arguments.max)] if arguments.max is not None else []
    words += ["--context", str(arguments.context)] if arguments.context is not None else []
    return [*words, "--", arguments.pattern, *(arguments.paths or logs_of(spec))]


def logs_of(spec: BoxSpec) -> list[str]:
    """Return the log locations of a box in the fleet file."""
    return [*spec.logs, *(f"{job.rstrip('/')}/logs" for job in spec.jobs)]


def _grep_lines(row: Row) -> Iterator[str]:
    if "end" in row:
        if not row.get("complete"):
            yield f"-- search incomplete: {text(row, 'stopped') or 'see below'}"
        for problem in rows_of(row, "problems"):
            yield f"-- {text(problem, 'path')}: {text(problem, 'error')}"
        return
    path = text(row, "path")
    for place, mark in (("before", "-"), ("text", ":"), ("after", "-")):
        for line in [text(row, place)] if place == "text" else texts(row, place):
            yield f"{path}{mark}{line}"


def _manifest(arguments: ManifestArguments, spec: BoxSpec) -> list[str]:
    return ["manifest", *(["--no-cache"] if arguments.no_cache else []), "--", arguments.dir]


def _manifest_lines(row: Row) -> Iterator[str]:
    if "sha256" in row:
        yield f"{text(row, 'sha256')}  {text(row, 'path')}"
    elif "link" in row:
        yield f"{'link':<64}  {text(row, 'path')} -> {text(row, 'link')}"
    elif "error" in row:
        yield f"{'NOT LISTED':<64}  {text(row, 'path')}: {text(row, 'error')}"


def _mirror(arguments: MirrorArguments, spec: BoxSpec) -> list[str]:
    return ["mirror", "--", arguments.source, arguments.target]


def _mirror_lines(row: Row) -> Iterator[str]:
    if "end" in row:
        counts = f"{number(row, 'verified')} verified ({number(row, 'copied')} copied, {number(row, 'same')} the same)"
        yield f"{counts}, {number(row, 'failed')} failed, {size(number(row, 'bytes'))}"
    elif row.get("status") == "failed":
        yield f"failed  {text(row, 'path')}: {text(row, 'error')}"
    elif row.get("status") == "copied":
        yield f"copied  {text(row, 'path')}"


TOOLS = {
    "gpu-health": Tool(_gpu_health, _gpu_lines, completed=_gpus_as_asked),
    "reap": Tool(_reap, _reap_lines),
    "grep": Tool(_grep, _grep_lines),
    "manifest": Tool(_manifest, _manifest_lines),
    # The agent's 3 means that another mirror is running; ours that the box was not reached.
    "mirror": Tool(_mirror, _mirror_lines, {3: FAILED}),
}
"""By command, which is also the agent's command."""


def _run(name: str, arguments: ToolArguments) -> int:
    spec = open_box(arguments, trusted=True)
    if isinstance(arguments, GrepArguments) and not arguments.paths and not logs_of(spec):
        complain(
            f"{spec.name}: the fleet file names no logs and no jobs there: give a path to search"
        )
        return USAGE
    if isinstance(arguments, ReapArguments) and arguments.kill is not None:
        return running.run_on_box(spec.name, _end(arguments, spec))
    return running.run_on_box(spec.name, _answer(name, arguments, spec))


def run_gpu_health(arguments: GpuHealthArguments) -> int:
    """Check the GPUs; return the exit status."""
    return _run("gpu-health", arguments)


def run_reap(arguments: ReapArguments) -> int:
    """List the processes that hold a GPU, or end one of them; return the exit status."""
    return _run("reap", arguments)


def run_grep(arguments: GrepArguments) -> int:
    """Search; return the exit status."""
    return _run("grep", arguments)


def run_manifest(arguments: ManifestArguments) -> int:
    """List files; return the exit status."""
    return _run("manifest", arguments)


def run_mirror(arguments: MirrorArguments) -> int:
    """Copy on the box; return the exit status."""
    return _run("mirror", arguments)


async def _answer(name: str, arguments: ToolArguments, spec: BoxSpec) -> int:
    tool = TOOLS[name]
    answer = await _asked(tool, tool.words(arguments, spec), arguments, spec)
    return tool.statuses.get(answer.status, answer.status)


async def _asked(tool: Tool, words: list[str], arguments: ToolArguments, spec: BoxSpec) -> Answer:
    status: list[int] = []

    def show(row: Row) -> None:
        if tool.completed is not None:
            row = tool.completed(row, spec)
            status.append(number(row, "status"))
        if arguments.json:
            print_json({"box": spec.name, **row})
        else:
            print_lines(*tool.shown(row))

    accept = arguments.accept_new_host_key
    async with reached(spec, accept_new_host_keys=accept) as (connection, deployed):
        answer = await ask(connection, deployed, words, seconds=arguments.timeout, each=show)
    if answer.words and answer.status:
        complain(f"{spec.name}: {answer.words}")
    if status:
        return msgspec.structs.replace(answer, status=status[-1])
    return answer


async def _end(arguments: ReapArguments, spec: BoxSpec) -> int:
    """Show the named process, ask for the box's name, and end the process."""
    tool = TOOLS["reap"]
    words = tool.words(arguments, spec)
    accept = arguments.accept_new_host_key
    async with reached(spec, accept_new_host_keys=accept) as (connection, deployed):
        found = (await ask(connection, deployed, words, seconds=arguments.timeout)).last
        named = [one for one in rows_of(found, "holders") if text(one, "kill") == arguments.kill]
        if not named:
            complain(
                f"{spec.name}: no holder of a GPU is {arguments.kill}: {rgt_with(None)} reap {spec.name}"
            )
            return FAILED
        if not arguments.json:
            print_lines(*tool.shown({"holders": named}))
        if not typed(arguments, spec.name, "end this process"):
            return FAILED
        words += ["--kill", arguments.kill or ""] + ["--unverified"] * arguments.unverified
        answer = await ask(connection, deployed, words, seconds=arguments.timeout)
    ended = texts(answer.last, "ended")
    if arguments.json:
        print_json({"box": spec.name, **answer.last})
    else:
        print_lines(*(f"ended     {name}" for name in ended))
    for refusal in rows_of(answer.last, "refused"):
        complain(f"{spec.name}: {text(refusal, 'kill')} was not ended: {text(refusal, 'why')}")
    if ended:
        return OK
    return answer.status or FAILED


def typed(arguments: ReapArguments | QueueArguments, name: str, what: str) -> bool:
    """Ask for the box's name, or use ``--confirm``; print why it is refused."""
    given = arguments.confirm
    if given is None:
        if not interactive():
            complain(f"{name}: nothing was done: cannot prompt here; in a script: --confirm {name}")
            return False
        given = prompt(f"Type the name of the box to {what}: ").strip()
    if given != name:
        complain(f"{name}: nothing was done: that is not the name of the box")
        return False
    return True


# ``rgt stop``: end one run of a box so that it can save, and print what was saved and where.


def run_stop(arguments: StopArguments) -> int:
    """End a run; return the exit status."""
    spec = open_box(arguments, trusted=True)
    return running.run_on_box(spec.name, _stop(arguments, spec))


async def _stop(arguments: StopArguments, spec: BoxSpec) -> int:
    words = [
        "stop",
        "--run",
        arguments.run,
        *(word for job in spec.jobs for word in ("--job", job)),
    ]
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
        words += (
            ["--after-checkpoint", "--wait", f"{arguments.wait:g}"]
            if arguments.after_checkpoint
            else []
        )
        words += [] if arguments.seconds is None else ["--seconds", f"{arguments.seconds:g}"]
        limit = (
            CONNECT_S
            + (arguments.seconds or 600.0)
            + (arguments.wait if arguments.after_checkpoint else 0.0)
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
        print_lines(f"{spec.name}: {', '.join(texts(found, 'waiting'))} wait; to continue: {again}")
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
    """Yield a row of the agent's ``stop`` as lines for a person."""
    phase = row.get("phase")
    if phase == "found":
        whose = f"cell {text(row, 'cell')} of {text(row, 'job')}, " if row.get("cell") else ""
        yield f"found  {text(row, 'run')}: {whose}pid {number(row, 'pid')}"
        if row.get("command"):
            yield f"       {text(row, 'command')[:200]}"
        yield f"saved  {_point(row)}"
        if row.get("handles_sigterm") is not True:
            yield "       it does not handle SIGTERM: it ends at once and loses all unsaved progress"
    elif phase == "waits":
        yield f"waits  for its next checkpoint, at most {age(_seconds(row))}"
    elif phase == "asked":
        yield f"asked  SIGTERM was sent; waiting up to {age(_seconds(row))} for it to end"
    elif phase == "ended":
        took = age(row["took"] if isinstance(row.get("took"), (int, float)) else None)
        if not row.get("ended"):
            yield f"alive  it has not ended after {took}; nothing else was sent"
            return
        why = f": {text(row, 'reason')}" if row.get("reason") else ""
        state = f", {text(row, 'state')}{why}" if row.get("state") else ""
        yield f"ended  after {took}{state}"
        yield (
            f"saved  {_point(row)}"
            if row.get("saved")
            else f"lost   everything after {_point(row)}"
        )


def _seconds(row: Row) -> float | None:
    value = row.get("seconds")
    if isinstance(value, (int, float)):
        return float(value)
    return None


def _point(row: Row) -> str:
    """Return a checkpoint: its step, path, size, and its age by the box's clock."""
    newest, now = row.get("newest"), row.get("at")
    if not isinstance(newest, dict):
        return "no checkpoint that rgt recognises"
    step = f"step {newest['step']:,}, " if isinstance(newest.get("step"), int) else ""
    at = newest.get("at")
    known = isinstance(at, (int, float)) and isinstance(now, (int, float))
    old = f", {age(max(0.0, now - at))} ago" if known and now is not None and at is not None else ""
    return f"{step}{text(newest, 'path')}, {size(number(newest, 'bytes'))}{old}"
