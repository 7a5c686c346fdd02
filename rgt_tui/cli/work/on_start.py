"""``rgt run BOX --on-start``: the hook by which a box continues its queues after a restart."""

from __future__ import annotations

from collections.abc import Iterator

from rgt_tui.cli.commands import FAILED, OK
from rgt_tui.cli.opening import rgt_with
from rgt_tui.cli.printing import (
    confirm_yes,
    is_interactive,
    print_error,
    print_json,
    print_lines,
)
from rgt_tui.cli.work.work_arguments import RunArguments
from rgt_tui.fleet import connected_agent
from rgt_tui.fleet.work.agent_answers import Row, query_agent, row_text, row_texts, rows_of
from rgt_tui.language import translate
from rgt_tui.model import BoxSpec, Profile
from rgt_tui.profiles import load_profile


async def change_start_hook(arguments: RunArguments, spec: BoxSpec) -> int:
    """Show, install or remove the hook; return the exit status.

    Raises:
        BoxError: The box was not reached, or was lost.
    """
    profile = load_profile(spec.profile)
    wanted = arguments.on_start or "show"
    # Removing works everywhere: the profile may have lost this ability since the hook was
    # installed.
    if not profile.daemon.on_start and wanted != "remove":
        note = profile.daemon.on_start_note or translate(
            "{name} runs nothing at a start", name=profile.name
        )
        print_error(translate("{name}: nothing was installed: {note}", name=spec.name, note=note))
        return FAILED
    words = hook_words(profile, spec)
    accept = arguments.accept_new_host_key
    limit_s = 120.0
    async with connected_agent(spec, accept_new_host_keys=accept) as (connection, deployed):
        # Without a verb it changes nothing, and says what it would write into which file.
        answer = await query_agent(connection, deployed, words, seconds=limit_s)
        row = answer.last_row
        if wanted != "show" and row and (row_text(row, "kind") or wanted == "remove"):
            if not arguments.json:
                print_lines(*(f"{spec.name}: {line}" for line in describe_hook(row, wanted)))
            if not arguments.yes and not _is_confirmed(spec.name, wanted, arguments.json):
                return FAILED
            # The agent checks again: the row that was shown may be outdated.
            answer = await query_agent(
                connection, deployed, [*words, f"--{wanted}"], seconds=limit_s
            )
            row = answer.last_row
    if not row:
        print_error(f"{spec.name}: {answer.words or 'the agent did not answer'}")
        return FAILED
    if arguments.json:
        print_json({"box": spec.name, **row})
    elif wanted == "show":
        print_lines(*(f"{spec.name}: {line}" for line in describe_hook(row, wanted)))
    for problem in row_texts(row, "problems"):
        print_error(f"{spec.name}: {problem}")
    if answer.status != OK:
        return FAILED
    if not arguments.json:
        undo = f"{rgt_with(arguments.fleet)} run {spec.name} --on-start remove"
        said = {"install": translate("installed; to undo: {undo}", undo=undo), "remove": "removed"}
        if wanted in said:
            print_lines(f"{spec.name}: {said[wanted]}")
    return OK


def hook_words(profile: Profile, spec: BoxSpec) -> list[str]:
    """Return the agent's verb with what the platform offers."""
    daemon = profile.daemon
    words = ["on-start", "--kinds", ",".join(daemon.on_start)]
    # The platform's own file; otherwise the agent knows the usual place of each kind.
    if daemon.on_start_file:
        words += ["--file", daemon.on_start_file]
    lasting = [mount for tier in profile.tiers if tier.survives_stop for mount in tier.mounts]
    # The home directory of such a container is lost with it.
    if "command" in daemon.on_start and lasting:
        words += ["--keep-in", f"{lasting[0].rstrip('/')}/.rgt-on-start"]
    # The agent knows the jobs that were launched through it; others are only in the fleet file.
    return words + [word for job in spec.jobs for word in ("--job", job)]


def describe_hook(row: Row, wanted: str) -> Iterator[str]:
    """Yield the lines that describe the hook on the box, and its queues."""
    where = row_text(row, "where")
    if wanted == "remove":
        yield translate("remove  {row}, and what starts it", row=row_text(row, "script"))
        return
    if row.get("installed") and wanted == "install":
        yield translate("hook    installed already; it is brought up to date")
    elif row.get("installed"):
        yield translate("hook    installed")
    elif wanted == "show":
        yield translate("hook    not installed")
    if where:
        yield f"into    {where}:"
    for line in row_texts(row, "lines"):
        yield f"        {line}"
    yield f"runs    {row_text(row, 'script')}"
    if row.get("by_hand"):
        yield translate(
            "by hand set this as the start command in the platform's console (of another "
            "image: end it with its own):"
        )
        yield f"        {row_text(row, 'by_hand')}"
    jobs = rows_of(row, "jobs")
    for job in jobs:
        yield f"queue   {row_text(job, 'folder')}: {row_text(job, 'state')}"
    if not jobs:
        yield translate("queue   none yet: those that are launched later are continued")


def _is_confirmed(name: str, wanted: str, script: bool) -> bool:
    if script or not is_interactive():
        print_error(
            translate(
                "{name}: nothing was changed: cannot prompt here; in a script: --yes", name=name
            )
        )
        return False
    if confirm_yes(f"{name}: {wanted} it?"):
        return True
    print_error(translate("{name}: nothing was changed", name=name))
    return False
