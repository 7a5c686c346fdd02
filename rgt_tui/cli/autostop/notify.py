"""``rgt notify``: give a box an address that it calls itself when it needs attention."""

from __future__ import annotations

import getpass
import json
import sys

from rgt_tui.cli import running
from rgt_tui.cli.autostop.autostop_arguments import NotifyArguments
from rgt_tui.cli.commands import FAILED, OK, USAGE
from rgt_tui.cli.opening import open_box
from rgt_tui.cli.printing import print_error, print_json, print_lines, wait_indicator
from rgt_tui.fleet import connected_agent
from rgt_tui.fleet.autostop.autostop_verbs import run_sink_verb
from rgt_tui.language import translate
from rgt_tui.model import BoxSpec, Secret, clean_text
from rgt_tui.ssh import extract_record


def run_notify(arguments: NotifyArguments) -> int:
    """Set, test, show or remove the address; return the exit status."""
    spec = open_box(arguments, trusted=True)
    given: tuple[Secret, Secret | None] | None = None
    if arguments.what is None:
        try:
            # Before connecting: a person who pastes the wrong text learns it at once.
            given = _read_address(arguments.token)
        except ValueError as error:
            print_error(error)
            return USAGE
    return running.run_on_box(spec.name, _set_notify_address(arguments, spec, given))


def _read_address(with_token: bool) -> tuple[Secret, Secret | None]:
    """Read the address, and with `with_token` a token, from stdin; a terminal does not echo them.

    Raises:
        ValueError: It is not an address that a box could call.
    """
    # Never from the command line: other users of this machine can list processes.
    lines = []
    # Enough for webhook addresses with their tokens; a file given by mistake is not read as a
    # whole.
    longest = 4096
    for what in ("address", *(["token"] if with_token else [])):
        if sys.stdin.isatty():
            lines.append(
                getpass.getpass(
                    translate("{what}, which is not shown: ", what=what), sys.stderr
                ).strip()
            )
        else:
            line = sys.stdin.readline(longest)
            # The rest of a longer line must not be read as the token.
            if len(line) == longest and not line.endswith("\n"):
                raise ValueError(
                    translate(
                        "the {what} on standard input is longer than {longest:,} characters",
                        what=what,
                        longest=longest,
                    )
                )
            lines.append(line.strip())
    address = lines[0]
    if (
        not address.startswith(("https://", "http://"))
        # A blank or a control character is no part of an address: something else was pasted.
        or not address.isprintable()
        or " " in address
    ):
        raise ValueError(
            translate(
                "there was no address on standard input: one line, https://… (and the token in a "
                "second one, with --token)"
            )
        )
    if with_token and not (lines[1] and lines[1].isprintable()):
        raise ValueError(
            translate("--token was given, but there was no second line on standard input")
        )
    return Secret(address), Secret(lines[1]) if with_token else None


async def _set_notify_address(
    arguments: NotifyArguments, spec: BoxSpec, given: tuple[Secret, Secret | None] | None
) -> int:
    # The agent's verb without an option sets the address, which it reads from its standard input.
    words = () if arguments.what is None else (f"--{arguments.what}",)
    address, token = given if given is not None else (None, None)
    with wait_indicator(translate("asking {name} …", name=spec.name)):
        async with connected_agent(spec, accept_new_host_keys=arguments.accept_new_host_key) as way:
            done = await run_sink_verb(way, words, address, token)
    # Lines of a login shell's greeting are skipped: only records of the agent count.
    said = [
        clean_text(told.decode(errors="replace"))
        for raw in done.out.splitlines()
        if (told := extract_record(raw))
    ]
    code = OK if done.status == 0 else FAILED
    text = " ".join(said[-1:]) or done.words or ("done" if code == OK else f"exit {done.status}")
    if arguments.json:
        body = {
            "ok": code == OK,
            "box": spec.name,
            "what": arguments.what or "set",
            "text": text,
            "exit": code,
        }
        print_json(body)
    elif code == OK:
        print_lines(f"{spec.name}: {_answer_text(text)}")
    else:
        print_error(f"{spec.name}: {done.words or _answer_text(text)}")
    return code


def _answer_text(text: str) -> str:
    """Return the text of the agent's JSON answer, cleaned after decoding.

    An answer in another form is returned unchanged.
    """
    try:
        # The answer is the box's own text, so it may be anything: it must not raise.
        said = json.loads(text)
    except (ValueError, RecursionError):
        return text
    if not isinstance(said, dict):
        return text
    # Only --status has these fields; the other answers have a text.
    if said.get("set") is False:
        return translate("it has no address to notify")
    if said.get("set") is True and said.get("host"):
        return clean_text(
            translate("it notifies {said} ({get})", said=said["host"], get=said.get("kind"))
        )
    return clean_text(str(said.get("text") or text))
