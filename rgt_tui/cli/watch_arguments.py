"""Arguments of the commands that watch boxes, read logs and name failures."""

from __future__ import annotations

import argparse
import math

from rgt_tui.cli.arguments import (
    FLEET,
    HOST_KEY,
    NO_HISTORY,
    Arguments,
    BoxArguments,
    BoxesArguments,
    FleetArguments,
    box_names,
    flag,
    list_option,
    option,
    parse_count,
    parse_duration,
    parse_port,
    positional,
    text_option,
    timeout_option,
)
from rgt_tui.language import translate

# Loopback by default, because the figures contain names, prices and losses.
LISTEN = "127.0.0.1:9844"


# A word, because a speed such as 1e9 would still wait between lines.
FULL = "full"


# A few screens: a whole log may be gigabytes over a slow line.
LOG_LINES = 200


class StatusArguments(BoxesArguments):
    """Arguments of ``rgt status``."""

    about = "Connect to the boxes once and print a line for each, in the order of the fleet file."
    examples = ("rgt status", "rgt status lab --json | jq -r '.state + \" \" + .reason'")
    fleet = FLEET
    json = flag("print one JSON object per box")
    # A person waits; what did not answer by then is reported as unknown.
    timeout = timeout_option(20.0)


class NightArguments(BoxesArguments):
    """Arguments of ``rgt night``."""

    about = """
    Connect to the boxes once and print the night ahead, until tomorrow noon: when each run ends, each disk is
    full, each clock runs out, what that costs by seven and how much of it without work, and up to three
    commands worth running before sleep. Forecasts have their spread; unknown stays unknown.
    """
    examples = ("rgt night", "rgt night --json | jq '.advice'")
    fleet = FLEET
    json = flag("print one JSON object: now, morning, until, boxes, advice")
    timeout = timeout_option(20.0)


class WatchArguments(BoxesArguments):
    """Arguments of ``rgt watch``."""

    about = """
    Stay connected and print a line whenever something happens on a box; alerts reach the sinks of the fleet
    file. With --json: the line of `rgt status --json` whenever a box changes, at most one per box and second.
    """
    examples = ("rgt watch", "rgt watch lab --json | jq -r .reason", "rgt watch --for 3600")
    fleet = FLEET
    json = flag("print status lines as JSON objects")
    # `for` is a keyword of Python.
    seconds = option("TIME", parse_duration, "stop after this time: 45s, 30m, 1h30", "--for")
    accept_new_host_key = HOST_KEY
    no_history = NO_HISTORY


class ServeArguments(FleetArguments):
    """Arguments of ``rgt serve``."""

    about = """
    Show the dashboard in a browser on this machine: only on a loopback address, and read-only. The printed
    address contains a secret for this run; it is needed to see anything. From another computer, use ssh -L.
    """
    examples = ("rgt serve", "rgt serve --port 8123", "ssh -L 8000:127.0.0.1:8000 jump rgt serve")
    # As in the example with ssh -L, where both ends have the same port.
    port = option("N", parse_port, "port (default 8000)", default=8000)
    host = option(
        "ADDRESS",
        str,
        "127.0.0.1 (default) or ::1; others are refused",
        default="127.0.0.1",
    )


class PatrolArguments(BoxesArguments):
    """Arguments of ``rgt patrol``."""

    about = """
    Check every box once and print a line for each, even if nothing has changed: its verdict (healthy,
    escalate, unknown), its state and the reason. On a box it writes only rgt's own files: the agent below
    ~/.cache/rgt, and the recorder with its bounded history.
    """
    examples = (
        (
            "*/30 * * * *  rgt patrol --fleet ~/exp/rgt.toml >> ~/patrol.log || mail -s rgt me < "
            "~/patrol.log"
        ),
        "rgt patrol --json --timeout 60",
    )
    fleet = FLEET
    json = flag("print one JSON object per box")
    # Longer than for `rgt status`: cron does not mind, and an unknown box wakes a person.
    timeout = timeout_option(30.0)


class JournalArguments(FleetArguments):
    """Arguments of ``rgt journal``."""

    about = """
    Print what happened on the boxes, from the history, below a report of the night: errors, cost and how much
    of it was wasted, losses, the next deadline. It connects to no box. Write times as 02:30, 'yesterday
    14:00', '2026-11-21 14:00' or 3h (ago).
    """
    examples = (
        "rgt journal                               since 23:00",
        "rgt journal lab --since 'yesterday 14:00'",
        "rgt journal --report --since 12h | mail -s 'the night' me",
        "rgt journal --json | jq -r 'select(.level == \"error\") | .text'",
    )
    box: str | None = positional(
        "BOX", "name of the box in the fleet file (default: all)", nargs="?", complete=box_names
    )
    # Parsed later: "02:30" depends on the time at which the command runs.
    since = text_option("TIME", "events after this time (default: 23:00)")
    until = text_option("TIME", "events before this time (default: now)")
    report = flag("only the report")
    json = flag("print one JSON object per event; with --report, one of the report")


class AlertsArguments(FleetArguments):
    """Arguments of ``rgt alerts``."""

    about = "Sinks: where alerts are sent, in addition to the screen."
    examples = ("rgt alerts test", "rgt alerts test pager --json | jq -r .problem")
    # A subcommand, so that `rgt alerts` alone cannot send messages by mistake.
    subcommand = "test"
    subcommand_brief = "send one message to each sink of the fleet file"
    subcommand_about = """
    Send one message to each sink of the fleet file, in parallel, and report which accepted it. Levels, kinds,
    boxes and quiet hours are ignored. Check yourself that the message arrived.
    """
    sinks: list[str] = positional("SINK", "only these sinks (default: all)", nargs="*")
    json = flag("print one JSON object per sink: sink, kind, sent, problem")


def complete_kinds(**_: object) -> list[str]:
    """Return all kinds of alert for shell completion."""
    from rgt_tui.health import BY_ID

    return list(BY_ID)


class MuteArguments(FleetArguments):
    """Arguments of ``rgt mute``."""

    about = """
    Silence the alerts of a box: all of them, one kind (docs/alerts.md lists them), or one alert by the id
    that `rgt status --json` prints. It applies to every rgt on this machine (to a running dashboard within 5
    seconds) and ends automatically. A whole box, or done-billing, can be muted for at most 24 hours at a
    time.
    """
    examples = (
        "rgt mute lab --for 2h",
        "rgt mute lab idle-gpu --for 30m",
        "rgt mute lab idle-gpu --until 07:00",
        "rgt mute lab inodes:/workspace --until-over",
        "rgt mute lab --off",
        "rgt mute --list",
    )
    # Each of them says how long, or that it is no mute.
    one_of = ("seconds until until_over off list_only",)
    box: str | None = positional(
        "BOX", "name of the box in the fleet file", nargs="?", complete=box_names
    )
    what: str | None = positional(
        "KIND|ID",
        "only this alert or kind (default: all of the box)",
        nargs="?",
        complete=complete_kinds,
    )
    seconds = option("TIME", parse_duration, "for how long: 90s, 30m, 2h, 1d (default 1h)", "--for")
    until = text_option(
        "TIME", "until this time: 07:00 (the next one), tomorrow 07:00, 2026-11-21 07:00"
    )
    until_over = flag("until the muted alert is over")
    off = flag("unmute")
    list_only = flag("list what is muted", "--list")
    json = flag(
        "print one JSON object per mute: box, what (* = all), until (null = until it ends), since"
    )


def _parse_address(text: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    # Port 0 is allowed: the kernel chooses a free one, and rgt prints it.
    if not colon or not host or not port.isdecimal() or int(port) > 65535:
        raise argparse.ArgumentTypeError(
            translate("{words!r} is not ADDRESS:PORT, such as {listen}", words=text, listen=LISTEN)
        )
    return host, int(port)


class MetricsArguments(BoxesArguments):
    """Arguments of ``rgt metrics``."""

    about = """
    Stay connected and serve the boxes' figures as Prometheus text under /metrics; GPUs are named as
    NVIDIA's dcgm-exporter names them. A box that cannot be reached has rgt_box_up 0 and no older figures.
    """
    examples = (
        "rgt metrics",
        "rgt metrics --listen 0.0.0.0:9844",
        "rgt metrics --once | grep rgt_box_up",
    )
    listen = option(
        "ADDRESS:PORT",
        _parse_address,
        translate("where to listen (default {address})", address=LISTEN),
        default=_parse_address(LISTEN),
    )
    once = flag("connect once, print the text, and exit")
    json = flag("with --once: one JSON object per value: name, labels, value")
    fleet = FLEET
    timeout = timeout_option(20.0)


class RecordArguments(BoxesArguments):
    """Arguments of ``rgt record``."""

    about = """
    Connect to the boxes and write every line that they send to a new file, with lost connections and the
    provider's readings, until Ctrl-C. The file contains logs and process names unchanged, and no keys; read
    it before you share it.
    """
    examples = ("rgt record --out fleet.jsonl.gz --for 600", "rgt record lab --out lab.jsonl.gz")
    fleet = FLEET
    # Required: a recording contains logs, so a person says where it goes.
    out = option("FILE", str, "a new file; FILE.gz is compressed", default="", required=True)
    seconds = option("TIME", parse_duration, "stop after this time: 45s, 30m, 1h30", "--for")
    json = flag("print one JSON object at the end: file, seconds, bytes, lines per box")


def _parse_speed(text: str) -> float:
    try:
        if text == FULL:
            value = math.inf
        else:
            value = float(text)
    except ValueError:
        value = 0.0
    # `not >` also refuses nan; float() would read "inf" and "infinity".
    if not value > 0 or (math.isinf(value) and text != FULL):
        raise argparse.ArgumentTypeError(
            translate("{words!r} is not a speed, such as 10, 0.5 or {full}", words=text, full=FULL)
        )
    return value


class ReplayArguments(Arguments):
    """Arguments of ``rgt replay``."""

    about = """
    Open the dashboard on a recording. Ages use the recording's clock, and billing actions are refused. With
    --headless or --json: without a screen, at full speed unless --speed is given; events go to stderr, and
    the final state of every box to stdout, as `rgt status` prints it.
    """
    examples = (
        "rgt replay fleet.jsonl.gz --speed 10",
        "rgt replay fleet.jsonl --at 02:30",
        "rgt replay fleet.jsonl --from 120 --loop",
        "rgt replay fleet.jsonl --json | jq -r '.box + \" \" + .state'",
    )
    one_of = ("skip at",)
    file: str = positional("FILE", "a file of rgt record, compressed or not")
    speed = option(
        "X",
        _parse_speed,
        translate(
            "seconds of the recording per second, or {full!r} (default 1; {full} without a screen)",
            full=FULL,
        ),
    )
    skip = option(
        "TIME",
        parse_duration,
        "start this far into the recording: 90s, 1h30",
        "--from",
        default=0.0,
    )
    at = text_option("TIME", "start at a time of the recording: 02:30, 2026-11-21 02:30")
    loop = flag("start over at the end")
    headless = flag("no screen")
    json = flag("print status lines as JSON objects at the end; implies --headless")


class LogsArguments(BoxArguments):
    """Arguments of ``rgt logs``."""

    about = """
    Print a file of a box to standard output, byte by byte, unchanged. After a lost connection it continues
    without a gap or a repeat; rotation and truncation are reported on standard error. On a terminal, escape
    sequences are made harmless, unless --raw. A pipe gets all of them, also those that write to the clipboard
    (OSC 52) or make links (OSC 8) in a terminal that shows them later: --plain removes them.
    """
    examples = (
        "rgt logs lab                              the newest of its logs",
        "rgt logs lab gpt-small --follow           that run's, as it grows",
        "rgt logs lab '~/exp/*.log' --from-start > exp.log",
    )
    one_of = (
        "from_start lines",
        # --raw keeps escape sequences where they are removed by default, --plain the other way
        # round.
        "raw plain",
    )
    log: str | None = positional(
        "PATH|RUN",
        "a path on the box (~ and globs are expanded there), or the name of a run; default: the "
        "newest log",
        nargs="?",
        # Without a completer, argcomplete offers local files, which are on the wrong machine.
        complete=lambda **_: [],
    )
    from_start = flag("the whole file")
    lines = option(
        "N",
        parse_count,
        translate("the last N lines (default {count})", count=LOG_LINES),
        default=LOG_LINES,
    )
    follow = flag("keep printing what is written, until Ctrl-C", "-f", "--follow")
    raw = flag("keep escape sequences, also on a terminal")
    plain = flag("remove escape sequences, also for a pipe or a file")
    json = flag(
        "a JSON object per line instead of its bytes: path, offset, text (invalid UTF-8 is "
        "replaced)"
    )
    list_only = flag("list the logs of the box, the newest first", "--list")
    fleet = FLEET
    # Also how long a lost connection is tried again before the copy ends.
    timeout = timeout_option(60.0)


def parse_band(text: str) -> str:
    """Parse the kind of a band.

    Raises:
        argparse.ArgumentTypeError: There is no such kind.
    """
    # The values of `AverageBand`, which is not imported: it needs numpy, and this module is read
    # for every --help.
    kinds = ("bootstrap", "range", "std")
    if text not in kinds:
        raise argparse.ArgumentTypeError(
            translate("{words!r} is none of {kinds}", words=text, kinds=", ".join(kinds))
        )
    return text


class CurvesArguments(BoxArguments):
    """Arguments of ``rgt curves``."""

    about = """
    Connect to a box once and plot the curves of a run as text, for a pipe or a report. Points of resumed
    attempts follow one another; NaN and infinite values are left out, and counted.
    """
    examples = (
        "rgt curves lab                              the run that wrote last",
        "rgt curves lab gpt-small --metric lr --metric grad_norm",
        "rgt curves lab gpt-small --json | jq '.values[-1]'",
        "rgt curves lab,lab-2 'gpt-seed*' --over-seeds",
        "rgt curves lab gpt-a --first-difference gpt-b",
    )
    run: str | None = positional(
        "RUN",
        "name of the run (default: the one that wrote last); with --over-seeds a pattern with * "
        "and ? (default: all runs)",
        nargs="?",
    )
    over_seeds = flag(
        "plot IQM, mean and a band over several runs; BOX may be several names with commas between"
    )
    band = option(
        "BAND",
        parse_band,
        # argparse formats help with %, hence %%.
        "of --over-seeds: bootstrap (95%% interval of the IQM, the default), range (lowest and "
        "highest run) or std (mean ± standard deviation)",
        default="bootstrap",
    )
    first_difference = option(
        "OTHER",
        str,
        "the first step where RUN and this run differ by more than their noise, and what was not "
        "the same; BOX may be several names with commas between",
    )
    metrics = list_option("NAME", "a series to plot (default: the losses)", "--metric")
    log = flag("logarithmic values; those that are not positive are left out")
    width = option("N", parse_count, "width in columns (default: of the terminal, else 100)")
    height = option("N", parse_count, "lines (default 24)", default=24)
    json = flag(
        "print one JSON object per series: box, run, metric, steps, values; with --over-seeds: "
        "boxes, runs, metric, band, steps, iqm, mean, low, high; with --first-difference: boxes, "
        "runs, metric, step, values, differences"
    )
    fleet = FLEET
    timeout = timeout_option(20.0)


class ScalarsArguments(Arguments):
    """Arguments of ``rgt scalars``."""

    about = """
    List the scalars that training programs wrote to a file or below a directory on this machine: one line per
    series.
    """
    examples = ("rgt scalars runs/", "rgt scalars train.log --json")
    path: str = positional("PATH", "a file, or a directory that is searched for sources")
    json = flag("print one JSON object per series")


# Arguments of the commands about failures: options, help and examples.


class TriageArguments(Arguments):
    """Arguments of ``rgt triage``."""

    about = """
    Read logs of any origin on this machine and list the known failures in them, best match first: the line
    that proves it, what never to do, and the fix. No command is run, and no box is contacted.
    """
    examples = (
        "rgt triage train.log",
        "rgt triage logs/*.log --json | jq -r '.findings[0].gotcha'",
        "journalctl -u train | rgt triage -",
        "rgt triage /tmp/nccl_trace_rank_*",
    )
    files: list[str] = positional(
        "FILE",
        "a log (- is standard input; gz, bz2, xz are unpacked), the ranks' flight recorder dumps, "
        "ncclras' output",
        # At least one: without a file, a pipe would have to be guessed.
        nargs="+",
    )
    samples = text_option(
        "FILE",
        "readings of the box from that time: a file of rgt record, or lines of the agent's sample",
    )
    # No completion from the fleet file: the names are those in the recording.
    box = text_option("NAME", "use the readings of this box, if FILE has several boxes")
    json = flag("print one JSON object per file: file, findings")


class HandbookArguments(Arguments):
    """Arguments of ``rgt handbook``."""

    about = """
    Search the handbook of known failures: by id, by words, or by an error line in quotes. A single match is
    shown in full. `rgt handbook new ID` drafts a page of your own in ~/.config/rgt/handbook.
    """
    examples = (
        "rgt handbook U7",
        "rgt handbook no space",
        "rgt handbook 'Address already in use'",
        "rgt handbook new LAB1",
    )
    term: list[str] = positional(
        "TERM", "an id, words, or a line (default: list all pages)", nargs="*"
    )
    json = flag("print one JSON object per page, and per trap of a platform")
