"""Parsers of the commands that look at boxes: options, help and examples."""

from __future__ import annotations

import argparse
import math

from rgt_tui.cli.arguments import (
    box_argument,
    box_names,
    boxes_argument,
    command,
    connection_options,
    count,
    duration,
    fleet_option,
    history_option,
    host_key_option,
    json_option,
    port,
)
from rgt_tui.cli.commands import Subparsers, epilog

ALERTS_EXAMPLES = ("rgt alerts test", "rgt alerts test pager --json | jq -r .problem")
LISTEN = "127.0.0.1:9844"
FULL = "full"
LOG_LINES = 200


def add_status(subparsers: Subparsers) -> None:
    """Declare ``rgt status``."""
    parser = command(
        subparsers,
        "status",
        about="Connect to the boxes once and print a line for each, in the order of the fleet file.",
        examples=("rgt status", "rgt status lab --json | jq -r '.state + \" \" + .reason'"),
    )
    boxes_argument(parser)
    connection_options(parser, json="print one JSON object per box", seconds=20.0)


def add_watch(subparsers: Subparsers) -> None:
    """Declare ``rgt watch``."""
    parser = command(
        subparsers,
        "watch",
        about="Stay connected and print a line whenever something happens on a box; alerts reach the sinks of the\n"
        "fleet file. With --json: the line of `rgt status --json` whenever a box has changed, at most one a\n"
        "second for each.",
        examples=("rgt watch", "rgt watch lab --json | jq -r .reason", "rgt watch --for 3600"),
    )
    boxes_argument(parser)
    fleet_option(parser)
    json_option(parser, "print status lines as JSON objects")
    parser.add_argument(
        "--for", dest="seconds", type=duration, metavar="TIME", help="end after this time: 45s, 30m, 1h30"
    )
    host_key_option(parser)
    history_option(parser)


def add_serve(subparsers: Subparsers) -> None:
    """Declare ``rgt serve``."""
    parser = command(
        subparsers,
        "serve",
        about="Show the dashboard in a browser on this machine: only on a loopback address, and read-only. The\n"
        "address that is printed contains a secret of this run; without it nothing is shown. From elsewhere: ssh\n"
        "-L.",
        examples=("rgt serve", "rgt serve --port 8123", "ssh -L 8000:127.0.0.1:8000 jump rgt serve"),
    )
    parser.add_argument("--port", type=port, default=8000, metavar="N", help="port (default 8000)")
    parser.add_argument(
        "--host",
        default="127.0.0.1",
        metavar="ADDRESS",
        help="127.0.0.1 (default) or ::1; every other one is refused",
    )
    fleet_option(parser)


def add_patrol(subparsers: Subparsers) -> None:
    """Declare ``rgt patrol``."""
    parser = command(
        subparsers,
        "patrol",
        about="Look at every box once and print a line for each, even when nothing has changed: its verdict (healthy,\n"
        "escalate, unknown), its state and why. It changes nothing on a box beyond rgt's own files there: the\n"
        "agent below ~/.cache/rgt, and the recorder with its bounded history.",
        examples=(
            "*/30 * * * *  rgt patrol --fleet ~/exp/rgt.toml >> ~/patrol.log || mail -s rgt me < ~/patrol.log",
            "rgt patrol --json --timeout 60",
        ),
    )
    boxes_argument(parser)
    connection_options(parser, json="print one JSON object per box", seconds=30.0)


def add_journal(subparsers: Subparsers) -> None:
    """Declare ``rgt journal``."""
    parser = command(
        subparsers,
        "journal",
        about="Print what happened on the boxes, as the history has it, below the report of the night: errors,\n"
        "what it cost and how much of that was wasted, what was lost, the next danger clock. It connects to no\n"
        "box. Times are written as 02:30, 'yesterday 14:00', '2026-11-21 14:00' or 3h (ago).",
        examples=(
            "rgt journal                               since 23:00",
            "rgt journal lab --since 'yesterday 14:00'",
            "rgt journal --report --since 12h | mail -s 'the night' me",
            "rgt journal --json | jq -r 'select(.level == \"error\") | .text'",
        ),
    )
    box = parser.add_argument(
        "box", metavar="BOX", nargs="?", help="name of the box in the fleet file (default: all)"
    )
    box.completer = box_names  # type: ignore[attr-defined]
    parser.add_argument("--since", metavar="TIME", help="from this time on (default: 23:00)")
    parser.add_argument("--until", metavar="TIME", help="up to this time (default: now)")
    parser.add_argument("--report", action="store_true", help="only the report")
    json_option(parser, "print one JSON object per event; with --report, one of the report")
    fleet_option(parser)


def add_alerts(subparsers: Subparsers) -> None:
    """Declare ``rgt alerts``."""
    parser = command(
        subparsers,
        "alerts",
        about="The sinks: where alerts go besides the screen.",
        examples=ALERTS_EXAMPLES,
    )
    fleet_option(parser)
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    test = verbs.add_parser(
        "test",
        help="send one message to each sink of the fleet file",
        description="Send one message to each sink of the fleet file, side by side, and say which of them accepted\n"
        "it. Levels, kinds, boxes and quiet hours do not hold it back. Whether anyone has seen it, only they can tell.",
        epilog=epilog("alerts", *ALERTS_EXAMPLES),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    test.add_argument("sinks", metavar="SINK", nargs="*", help="only the sinks of these names (default: all)")
    json_option(test, "print one JSON object per sink: sink, kind, sent, problem")
    fleet_option(test)


def kinds(**_: object) -> list[str]:
    """Return all kinds of alert, for a shell."""
    from rgt_tui.health import BY_ID

    return list(BY_ID)


def add_mute(subparsers: Subparsers) -> None:
    """Declare ``rgt mute``."""
    parser = command(
        subparsers,
        "mute",
        about="Silence the alerts of a box: all of them, one kind (docs/alerts.md lists them), or one alert by\n"
        "the id that `rgt status --json` prints. It holds for every rgt on this machine, a running dashboard within\n"
        "5 seconds, and ends by itself. A whole box, and done-billing, can be muted for 24 hours at a time.",
        examples=(
            "rgt mute lab --for 2h",
            "rgt mute lab idle-gpu --for 30m",
            "rgt mute lab idle-gpu --until 07:00",
            "rgt mute lab inodes:/workspace --until-over",
            "rgt mute lab --off",
            "rgt mute --list",
        ),
    )
    box = parser.add_argument("box", metavar="BOX", nargs="?", help="name of the box in the fleet file")
    box.completer = box_names  # type: ignore[attr-defined]
    what = parser.add_argument(
        "what", metavar="KIND|ID", nargs="?", help="only this (default: all of the box)"
    )
    what.completer = kinds  # type: ignore[attr-defined]
    how = parser.add_mutually_exclusive_group()
    how.add_argument(
        "--for",
        dest="seconds",
        type=duration,
        metavar="TIME",
        help="for how long: 90s, 30m, 2h, 1d (default 1h)",
    )
    how.add_argument(
        "--until", metavar="TIME", help="until then: 07:00 (the next one), tomorrow 07:00, 2026-11-21 07:00"
    )
    how.add_argument("--until-over", action="store_true", help="until the muted alert is over")
    how.add_argument("--off", action="store_true", help="unmute")
    how.add_argument("--list", action="store_true", help="list what is muted")
    json_option(
        parser, "print one JSON object per mute: box, what (* = all), until (null = until it is over), since"
    )
    fleet_option(parser)


def _address(text: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not host or not port.isdecimal() or int(port) > 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is not ADDRESS:PORT, such as {LISTEN}")
    return host, int(port)


def add_metrics(subparsers: Subparsers) -> None:
    """Declare ``rgt metrics``."""
    parser = command(
        subparsers,
        "metrics",
        about="Stay connected and serve the boxes' figures as Prometheus text under /metrics; GPUs are named as\n"
        "NVIDIA's dcgm-exporter names them. A box that cannot be reached has rgt_box_up 0 and no older figures.",
        examples=("rgt metrics", "rgt metrics --listen 0.0.0.0:9844", "rgt metrics --once | grep rgt_box_up"),
    )
    boxes_argument(parser)
    parser.add_argument(
        "--listen",
        type=_address,
        default=LISTEN,
        metavar="ADDRESS:PORT",
        help=f"where to listen (default {LISTEN})",
    )
    parser.add_argument("--once", action="store_true", help="connect once, print the text, and end")
    json_option(parser, "with --once: one JSON object per value: name, labels, value")
    connection_options(parser, seconds=20.0)


def add_record(subparsers: Subparsers) -> None:
    """Declare ``rgt record``."""
    parser = command(
        subparsers,
        "record",
        about="Connect to the boxes and write every line that they send into a new file, with lost connections and\n"
        "the provider's readings beside them, until Ctrl-C. The file holds logs and process names as they\n"
        "are, and no keys; look through it before you share it.",
        examples=("rgt record --out fleet.jsonl.gz --for 600", "rgt record lab --out lab.jsonl.gz"),
    )
    boxes_argument(parser)
    fleet_option(parser)
    parser.add_argument("--out", metavar="FILE", required=True, help="a new file; FILE.gz is compressed")
    parser.add_argument(
        "--for", dest="seconds", type=duration, metavar="TIME", help="end after this time: 45s, 30m, 1h30"
    )
    json_option(parser, "print one JSON object at the end: file, seconds, bytes, lines per box")
    host_key_option(parser)


def _speed(text: str) -> float:
    try:
        value = math.inf if text == FULL else float(text)
    except ValueError:
        value = 0.0
    if not value > 0 or (math.isinf(value) and text != FULL):
        raise argparse.ArgumentTypeError(f"{text!r} is not a speed, such as 10, 0.5 or {FULL}")
    return value


def add_replay(subparsers: Subparsers) -> None:
    """Declare ``rgt replay``."""
    parser = command(
        subparsers,
        "replay",
        about="Open the dashboard on a recording. Ages are by the recording's clock, and billing actions are refused.\n"
        "With --headless or --json: without a screen, at full speed unless --speed says otherwise; what happened\n"
        "goes to stderr, and the final state of every box to stdout, as `rgt status` prints it.",
        examples=(
            "rgt replay fleet.jsonl.gz --speed 10",
            "rgt replay fleet.jsonl --from 120 --loop",
            "rgt replay fleet.jsonl --json | jq -r '.box + \" \" + .state'",
        ),
    )
    parser.add_argument("file", metavar="FILE", help="what rgt record wrote, compressed or not")
    parser.add_argument(
        "--speed", type=_speed, metavar="X",
        help=f"seconds of the recording per second, or {FULL!r} (default 1; {FULL} without a screen)",
    )  # fmt: skip
    parser.add_argument(
        "--from", dest="skip", type=duration, default=0.0, metavar="TIME",
        help="start this far into the recording: 90s, 1h30",
    )  # fmt: skip
    parser.add_argument("--loop", action="store_true", help="start over at the end")
    parser.add_argument("--headless", action="store_true", help="no screen")
    json_option(parser, "print status lines as JSON objects at the end; implies --headless")


def add_logs(subparsers: Subparsers) -> None:
    """Declare ``rgt logs``."""
    parser = command(
        subparsers,
        "logs",
        about="Print a file of a box to standard output, byte by byte: nothing is stripped, cut or decoded. A lost\n"
        "connection resumes where it broke off, without a gap or a repeat; rotation and truncation are\n"
        "reported on standard error. On a terminal, escape sequences are made harmless, unless --raw.\n"
        "A pipe gets them all, also such as write to the clipboard (OSC 52) or make links (OSC 8) of\n"
        "whichever terminal shows them later: --plain takes them out.",
        examples=(
            "rgt logs lab                              the newest of its logs",
            "rgt logs lab gpt-small --follow           that run's, as it grows",
            "rgt logs lab '~/exp/*.log' --from-start > exp.log",
        ),
    )
    box_argument(parser)
    log = parser.add_argument(
        "log",
        metavar="PATH|RUN",
        nargs="?",
        help="a path on the box (~ and globs are expanded there), or the name of a run; default: the newest log",
    )
    log.completer = lambda **_: []  # type: ignore[attr-defined]
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--from-start", action="store_true", help="the whole file")
    where.add_argument(
        "--lines", type=count, default=LOG_LINES, metavar="N", help=f"the last N lines (default {LOG_LINES})"
    )
    parser.add_argument(
        "-f", "--follow", action="store_true", help="keep printing what is written, until Ctrl-C"
    )
    sequences = parser.add_mutually_exclusive_group()
    sequences.add_argument("--raw", action="store_true", help="leave escape sequences in, also on a terminal")
    sequences.add_argument(
        "--plain",
        action="store_true",
        help="take escape sequences out, also of what goes to a pipe or a file",
    )
    json_option(
        parser,
        "a JSON object per line instead of its bytes: path, offset, text (what is not UTF-8 is replaced)",
    )
    parser.add_argument("--list", action="store_true", help="list the logs of the box, the newest first")
    connection_options(parser, seconds=60.0)


def add_curves(subparsers: Subparsers) -> None:
    """Declare ``rgt curves``."""
    parser = command(
        subparsers,
        "curves",
        about="Connect to a box once and plot the curves of a run as text, for a pipe or a report. Points of\n"
        "attempts that were resumed stand one after the other; NaN and infinite values are left out, and counted.",
        examples=(
            "rgt curves lab                              the run that wrote last",
            "rgt curves lab gpt-small --metric lr --metric grad_norm",
            "rgt curves lab gpt-small --json | jq '.values[-1]'",
        ),
    )
    box_argument(parser)
    parser.add_argument(
        "run", metavar="RUN", nargs="?", help="name of the run (default: the one that wrote last)"
    )
    parser.add_argument(
        "--metric",
        dest="metrics",
        action="append",
        metavar="NAME",
        help="a series to plot (default: the losses)",
    )
    parser.add_argument(
        "--log", action="store_true", help="logarithmic values; those that are not positive are left out"
    )
    parser.add_argument(
        "--width", type=count, metavar="N", help="columns (default: those of the terminal, else 100)"
    )
    parser.add_argument("--height", type=count, metavar="N", help="lines (default 24)", default=24)
    json_option(parser, "print one JSON object per series: box, run, metric, steps, values")
    connection_options(parser, seconds=20.0)


def add_scalars(subparsers: Subparsers) -> None:
    """Declare ``rgt scalars``."""
    parser = command(
        subparsers,
        "scalars",
        about="List the scalars that training programs left in a file or below a directory of this machine:\n"
        "one line per series.",
        examples=("rgt scalars runs/", "rgt scalars train.log --json"),
    )
    parser.add_argument("path", metavar="PATH", help="a file, or a directory that is searched for sources")
    json_option(parser, "print one JSON object per series")
