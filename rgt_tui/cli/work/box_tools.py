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
from rgt_tui.cli.printing import (
    confirm_yes,
    is_interactive,
    print_error,
    print_json,
    print_lines,
    prompt_line,
)
from rgt_tui.cli.work.object_mirror import check_words, mirror_to_store
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
from rgt_tui.fleet import connected_agent
from rgt_tui.fleet.work.agent_answers import (
    AgentAnswer,
    Row,
    query_agent,
    row_count,
    row_text,
    row_texts,
    rows_of,
)
from rgt_tui.language import translate
from rgt_tui.model import BoxSpec, format_duration, memory, size
from rgt_tui.model.gpu_names import describe_gpu_mismatch


class AgentTool(NamedTuple):
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
        # The number that is paid for: a machine that lost a card since then must not pass.
        expected = asked.gpu_count
    words = ["gpu-health"]
    words += ["--expect", str(expected)] if expected is not None else []
    words += ["--hot", f"{arguments.hot:g}"] if arguments.hot is not None else []
    # A list times a bool is the list or nothing.
    return words + ["--strict"] * arguments.strict


def _add_gpu_check(row: Row, spec: BoxSpec) -> Row:
    """Add a check whether each GPU is the rented model, which the agent does not know."""
    asked = spec.asked
    if asked is None or asked.gpu is None:
        return row
    checks = []
    for check in rows_of(row, "checks"):
        checks.append(check)
        # A card that does not answer has no model to compare.
        if check.get("check") == "visible" and check.get("ok") is True:
            total = check.get("vram_total")
            # One card at a time, so that the row names the one that is wrong.
            other = describe_gpu_mismatch(
                asked.gpu, 1, [(row_text(check, "text"), total if isinstance(total, int) else None)]
            )
            said = other or translate("{check}, as asked for", check=row_text(check, "text"))
            checks.append(
                {"gpu": check.get("gpu"), "check": "model", "ok": other is None, "text": said}
            )
    # Unknown (None) is not wrong; the agent's own status says so.
    wrong = any(check.get("ok") is False for check in checks)
    return {**row, "checks": checks, "status": FAILED if wrong else row.get("status")}


WORDS_OF = {True: "ok", False: "trouble", None: "unknown"}


def _gpu_lines(row: Row) -> Iterator[str]:
    for check in rows_of(row, "checks"):
        ok = check.get("ok")
        verdict = WORDS_OF[ok if isinstance(ok, bool) else None]
        if check.get("gpu") is None:
            card = "all"
        else:
            card = row_text(check, "gpu")
        yield f"{verdict:<8} gpu {card:<4} {row_text(check, 'check'):<12} {row_text(check, 'text')}"
    if row.get("error"):
        yield f"unknown  {row_text(row, 'error')}"


def _reap_words(arguments: ReapArguments, spec: BoxSpec) -> list[str]:
    words = ["reap", *(word for job in spec.jobs for word in ("--job", job))]
    # Without it, the agent could take a training of one's own kind for an orphan.
    return words + (["--pattern", spec.pattern] if spec.pattern else [])


ORPHAN = {True: "orphan", False: "at work", None: "unknown"}


def _reap_lines(row: Row) -> Iterator[str]:
    holders = rows_of(row, "holders")
    for holder in holders:
        orphan = holder.get("orphan")
        # Before the orphan flag: `rgt reap` never ends a training.
        if holder.get("training") or holder.get("run"):
            kind = "training"
        else:
            kind = None
        said = kind or ORPHAN[orphan if isinstance(orphan, bool) else None]
        who = row_text(holder, "cmd") or row_text(holder, "name") or "?"
        yield (
            f"{said:<9} {row_text(holder, 'kill'):<20} {memory(row_count(holder, 'rss')):>9}  {who}"
        )
    if not holders:
        yield translate("no process holds a GPU")
    if row.get("why"):
        # E.g. processes of other users in /proc that may not be read.
        yield translate("unknown which of them are orphans: {row}", row=row_text(row, "why"))
    for name in row_texts(row, "ended"):
        yield f"ended     {name}"
    for refusal in rows_of(row, "refused"):
        yield translate(
            "not ended {refusal}: {refusal_2}",
            refusal=row_text(refusal, "kill"),
            refusal_2=row_text(refusal, "why"),
        )


def _grep_words(arguments: GrepArguments, spec: BoxSpec) -> list[str]:
    words = ["grep", *(["--ignore-case"] if arguments.ignore_case else [])]
    words += ["--max", str(arguments.max)] if arguments.max is not None else []
    words += ["--context", str(arguments.context)] if arguments.context is not None else []
    # "--": a pattern may begin with a hyphen.
    return [*words, "--", arguments.pattern, *(arguments.paths or logs_of(spec))]


def logs_of(spec: BoxSpec) -> list[str]:
    """Return the log locations of a box in the fleet file."""
    # The queue runner writes the logs of its cells there.
    return [*spec.logs, *(f"{job.rstrip('/')}/logs" for job in spec.jobs)]


def _grep_lines(row: Row) -> Iterator[str]:
    if "end" in row:
        if not row.get("complete"):
            yield f"-- search incomplete: {row_text(row, 'stopped') or 'see below'}"
        for problem in rows_of(row, "problems"):
            yield f"-- {row_text(problem, 'path')}: {row_text(problem, 'error')}"
        return
    path = row_text(row, "path")
    # The marks are those of grep.
    for place, mark in (("before", "-"), ("text", ":"), ("after", "-")):
        for line in [row_text(row, place)] if place == "text" else row_texts(row, place):
            yield f"{path}{mark}{line}"


def _manifest_words(arguments: ManifestArguments, spec: BoxSpec) -> list[str]:
    return ["manifest", *(["--no-cache"] if arguments.no_cache else []), "--", arguments.dir]


def _manifest_lines(row: Row) -> Iterator[str]:
    if "sha256" in row:
        # Two blanks, as sha256sum writes it: `sha256sum -c` can read these lines.
        yield f"{row_text(row, 'sha256')}  {row_text(row, 'path')}"
    elif "link" in row:
        yield f"{'link':<64}  {row_text(row, 'path')} -> {row_text(row, 'link')}"
    elif "error" in row:
        yield f"{'NOT LISTED':<64}  {row_text(row, 'path')}: {row_text(row, 'error')}"


def _mirror_words(arguments: MirrorArguments, spec: BoxSpec) -> list[str]:
    return ["mirror", "--", arguments.source, arguments.target]


def _mirror_lines(row: Row) -> Iterator[str]:
    if "end" in row:
        counts = translate(
            "{row} verified ({row_2} copied, {row_3} the same)",
            row=row_count(row, "verified"),
            row_2=row_count(row, "copied"),
            row_3=row_count(row, "same"),
        )
        if row_count(row, "would"):
            counts = translate(
                "{count} to send; {counts}", count=row_count(row, "would"), counts=counts
            )
        yield f"{counts}, {row_count(row, 'failed')} failed, {size(row_count(row, 'bytes'))}"
    elif row.get("status") == "failed":
        yield f"failed  {row_text(row, 'path')}: {row_text(row, 'error')}"
    elif row.get("status") == "copied":
        yield f"copied  {row_text(row, 'path')}"
    elif row.get("status") == "would":
        yield translate("to send {row}", row=row_text(row, "path"))


TOOLS = {
    "gpu-health": AgentTool(_gpu_health, _gpu_lines, completed=_add_gpu_check),
    "reap": AgentTool(_reap_words, _reap_lines),
    "grep": AgentTool(_grep_words, _grep_lines),
    "manifest": AgentTool(_manifest_words, _manifest_lines),
    # The agent's 3 means that another mirror is running; ours that the box was not reached.
    "mirror": AgentTool(_mirror_words, _mirror_lines, {3: FAILED}),
}
"""By command, which is also the agent's command."""


def _run_tool(name: str, arguments: ToolArguments) -> int:
    spec = open_box(arguments, trusted=True)
    if isinstance(arguments, GrepArguments) and not arguments.paths and not logs_of(spec):
        print_error(
            translate(
                "{name}: the fleet file names no logs and no jobs there: give a path to search",
                name=spec.name,
            )
        )
        return USAGE
    # Ending a process needs two requests on one connection, and a prompt between them.
    if isinstance(arguments, ReapArguments) and arguments.kill is not None:
        return running.run_on_box(spec.name, _end_process(arguments, spec))
    return running.run_on_box(spec.name, _print_answer(name, arguments, spec))


def run_gpu_health(arguments: GpuHealthArguments) -> int:
    """Check the GPUs; return the exit status."""
    return _run_tool("gpu-health", arguments)


def run_reap(arguments: ReapArguments) -> int:
    """List the processes that hold a GPU, or end one of them; return the exit status."""
    return _run_tool("reap", arguments)


def run_grep(arguments: GrepArguments) -> int:
    """Search; return the exit status."""
    return _run_tool("grep", arguments)


def run_manifest(arguments: ManifestArguments) -> int:
    """List files; return the exit status."""
    return _run_tool("manifest", arguments)


def run_mirror(arguments: MirrorArguments) -> int:
    """Copy on the box, or to an object store; return the exit status."""
    error = check_words(arguments)
    if error is not None:
        print_error(error)
        # No such run, or several: the agent's words say which.
        return USAGE
    # A path on the box: the agent alone does it.
    if "://" not in arguments.target:
        return _run_tool("mirror", arguments)
    spec = open_box(arguments, trusted=True)

    def show_row(row: Row) -> None:
        if arguments.json:
            print_json({"box": spec.name, **row})
        else:
            print_lines(*_mirror_lines(row))

    return running.run_on_box(
        spec.name,
        mirror_to_store(arguments, spec, show_row),
        hint=translate("; what has arrived is kept, and the same command continues"),
    )


async def _print_answer(name: str, arguments: ToolArguments, spec: BoxSpec) -> int:
    tool = TOOLS[name]
    answer = await _query_agent(tool, tool.words(arguments, spec), arguments, spec)
    return tool.statuses.get(answer.status, answer.status)


async def _query_agent(
    tool: AgentTool, words: list[str], arguments: ToolArguments, spec: BoxSpec
) -> AgentAnswer:
    status: list[int] = []

    def print_row(row: Row) -> None:
        if tool.completed is not None:
            row = tool.completed(row, spec)
            # Our check of the model may turn the agent's success into a failure.
            status.append(row_count(row, "status"))
        if arguments.json:
            print_json({"box": spec.name, **row})
        else:
            print_lines(*tool.shown(row))

    accept = arguments.accept_new_host_key
    async with connected_agent(spec, accept_new_host_keys=accept) as (connection, deployed):
        answer = await query_agent(
            connection, deployed, words, seconds=arguments.timeout, each=print_row
        )
    if answer.words and answer.status:
        print_error(f"{spec.name}: {answer.words}")
    if status:
        return msgspec.structs.replace(answer, status=status[-1])
    return answer


async def _end_process(arguments: ReapArguments, spec: BoxSpec) -> int:
    """Show the named process, ask for the box's name, and end the process."""
    tool = TOOLS["reap"]
    words = tool.words(arguments, spec)
    accept = arguments.accept_new_host_key
    async with connected_agent(spec, accept_new_host_keys=accept) as (connection, deployed):
        found = (await query_agent(connection, deployed, words, seconds=arguments.timeout)).last_row
        named = [
            one for one in rows_of(found, "holders") if row_text(one, "kill") == arguments.kill
        ]
        if not named:
            print_error(
                translate(
                    "{name}: no holder of a GPU is {kill}: {rgt_with} reap {name}",
                    name=spec.name,
                    kill=arguments.kill,
                    rgt_with=rgt_with(None),
                )
            )
            return FAILED
        if not arguments.json:
            print_lines(*tool.shown({"holders": named}))
        if not confirm_box_name(arguments, spec.name, translate("end this process")):
            return FAILED
        # PID and start time: if the process ended while the person was typing, a new one with that
        # pid is refused.
        words += ["--kill", arguments.kill or ""] + ["--unverified"] * arguments.unverified
        answer = await query_agent(connection, deployed, words, seconds=arguments.timeout)
    ended = row_texts(answer.last_row, "ended")
    if arguments.json:
        print_json({"box": spec.name, **answer.last_row})
    else:
        print_lines(*(f"ended     {name}" for name in ended))
    for refusal in rows_of(answer.last_row, "refused"):
        print_error(
            translate(
                "{name}: {refusal} was not ended: {refusal_2}",
                name=spec.name,
                refusal=row_text(refusal, "kill"),
                refusal_2=row_text(refusal, "why"),
            )
        )
    # The agent's status also counts other orphans that still exist.
    if ended:
        return OK
    return answer.status or FAILED


def confirm_box_name(arguments: ReapArguments | QueueArguments, name: str, what: str) -> bool:
    """Ask for the box's name, or use ``--confirm``; print why it is refused."""
    given = arguments.confirm
    if given is None:
        if not is_interactive():
            print_error(
                translate(
                    "{name}: nothing was done: cannot prompt here; in a script: --confirm {name}",
                    name=name,
                )
            )
            return False
        # The name, not yes: the wrong box is the likely mistake.
        given = prompt_line(translate("Type the name of the box to {what}: ", what=what)).strip()
    if given != name:
        print_error(
            translate("{name}: nothing was done: that is not the name of the box", name=name)
        )
        return False
    return True


# ``rgt stop``: end one run of a box so that it can save, and print what was saved and where.


def run_stop(arguments: StopArguments) -> int:
    """End a run; return the exit status."""
    spec = open_box(arguments, trusted=True)
    return running.run_on_box(spec.name, _stop_run(arguments, spec))


async def _stop_run(arguments: StopArguments, spec: BoxSpec) -> int:
    words = [
        "stop",
        "--run",
        arguments.run,
        *(word for job in spec.jobs for word in ("--job", job)),
    ]
    accept = arguments.accept_new_host_key

    def print_row(row: Row) -> None:
        if arguments.json:
            print_json({"box": spec.name, **row})
        else:
            print_lines(*(f"{spec.name}: {line}" for line in lines_of(row)))
        sys.stdout.flush()

    connect_s = 60.0
    async with connected_agent(spec, accept_new_host_keys=accept) as (connection, deployed):
        # First only a search: the run is shown, then stopped by its identity instead of its name.
        answer = await query_agent(connection, deployed, words, seconds=connect_s)
        if answer.status != OK:
            print_error(f"{spec.name}: {answer.words.removeprefix('stop: ')}")
            return USAGE
        found = answer.last_row
        print_row(found)
        if not arguments.yes and not _is_confirmed(arguments, spec):
            return FAILED
        words += ["--end", row_text(found, "end")]
        if arguments.after_checkpoint:
            words += ["--after-checkpoint", "--wait", f"{arguments.wait:g}"]
        words += [] if arguments.seconds is None else ["--seconds", f"{arguments.seconds:g}"]
        limit = (
            connect_s
            # Longer than the agent's own limit, which ends first and has the better message.
            + (arguments.seconds or 600.0)
            + (arguments.wait if arguments.after_checkpoint else 0.0)
        )
        done = await query_agent(
            connection,
            deployed,
            words,
            seconds=limit,
            each=lambda row: print_row(row) if row.get("phase") != "found" else None,
        )
    if done.words and done.status:
        print_error(f"{spec.name}: {done.words.removeprefix('stop: ')}")
    # Cells that waited for the stopped one do not start by themselves.
    if done.status == OK and not arguments.json and row_texts(found, "waiting"):
        job = row_text(found, "job").rpartition("/")[2]
        again = f"{rgt_with(arguments.fleet)} queue {spec.name} run --job {job}"
        print_lines(
            translate(
                "{name}: {found} wait; to continue: {again}",
                name=spec.name,
                found=", ".join(row_texts(found, "waiting")),
                again=again,
            )
        )
    return done.status


def _is_confirmed(arguments: StopArguments, spec: BoxSpec) -> bool:
    if not is_interactive():
        print_error(
            translate(
                "{name}: nothing was stopped: cannot prompt here; in a script: --yes",
                name=spec.name,
            )
        )
        return False
    if confirm_yes(f"{spec.name}: stop {arguments.run}?"):
        return True
    print_error(translate("{name}: nothing was stopped", name=spec.name))
    return False


def lines_of(row: Row) -> Iterator[str]:
    """Yield a row of the agent's ``stop`` as lines for a person."""
    phase = row.get("phase")
    if phase == "found":
        whose = ""
        if row.get("cell"):
            whose = translate(
                "cell {row} of {row_2}, ", row=row_text(row, "cell"), row_2=row_text(row, "job")
            )
        yield translate(
            "found  {row}: {whose}pid {row_2}",
            row=row_text(row, "run"),
            whose=whose,
            row_2=row_count(row, "pid"),
        )
        if row.get("command"):
            # Command lines of sweeps can have thousands of characters.
            yield f"       {row_text(row, 'command')[:200]}"
        yield f"saved  {_describe_checkpoint(row)}"
        # Unknown counts as no: a person should rather save first.
        if row.get("handles_sigterm") is not True:
            yield translate(
                "       it does not handle SIGTERM: it ends at once and loses all unsaved progress"
            )
    elif phase == "waits":
        yield translate(
            "waits  for its next checkpoint, at most {row}", row=format_duration(_read_seconds(row))
        )
    elif phase == "asked":
        yield translate(
            "asked  SIGTERM was sent; waiting up to {row} for it to end",
            row=format_duration(_read_seconds(row)),
        )
    elif phase == "ended":
        took = format_duration(row["took"] if isinstance(row.get("took"), (int, float)) else None)
        if not row.get("ended"):
            yield translate(
                "alive  it has not ended after {took}; nothing else was sent", took=took
            )
            return
        why = ""
        if row.get("reason"):
            why = f": {row_text(row, 'reason')}"
        state = ""
        if row.get("state"):
            state = f", {row_text(row, 'state')}{why}"
        yield translate("ended  after {took}{state}", took=took, state=state)
        if row.get("saved"):
            yield f"saved  {_describe_checkpoint(row)}"
        else:
            yield translate("lost   everything after {row}", row=_describe_checkpoint(row))


def _read_seconds(row: Row) -> float | None:
    value = row.get("seconds")
    if isinstance(value, (int, float)):
        return float(value)
    return None


def _describe_checkpoint(row: Row) -> str:
    """Return a checkpoint: its step, path, size, and its age by the box's clock."""
    newest, now = row.get("newest"), row.get("at")
    if not isinstance(newest, dict):
        return translate("no checkpoint that rgt recognises")
    step = ""
    if isinstance(newest.get("step"), int):
        step = f"step {newest['step']:,}, "
    at = newest.get("at")
    known = isinstance(at, (int, float)) and isinstance(now, (int, float))
    old = ""
    if known and now is not None and at is not None:
        old = f", {format_duration(max(0.0, now - at))} ago"
    return f"{step}{row_text(newest, 'path')}, {size(row_count(newest, 'bytes'))}{old}"
