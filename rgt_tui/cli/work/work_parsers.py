"""What the commands take that start work on a box, look at it, or open it to a person's own programs."""

from __future__ import annotations

import argparse

from rgt_tui.cli.arguments import (
    box_argument,
    box_names,
    command,
    count,
    duration,
    fleet_option,
    host_key_option,
    json_option,
    timeout_option,
)
from rgt_tui.cli.commands import Subparsers

CONNECT_SECONDS = 60.0


def launch_options(parser: argparse.ArgumentParser) -> None:
    """Add what every launch takes."""
    parser.add_argument(
        "--probe",
        metavar="TIME",
        type=duration,
        default=60.0,
        help="wait at most so long for a first step (60s)",
    )
    parser.add_argument("--no-smoke", action="store_true", help="start without the smoke command")
    parser.add_argument(
        "--smoke-seconds",
        metavar="TIME",
        type=duration,
        default=600.0,
        help="what the smoke command may take (10m)",
    )


def add_run(subparsers: Subparsers) -> None:
    """Declare ``rgt run``."""
    parser = command(
        subparsers,
        "run",
        about="Run a command on a box so that it outlives the connection: as a job of its own (docs/jobs.md), by what\n"
        "the platform's profile says of Python, disks and environment. Its smoke command first, then the check of\n"
        "the queue, then the start, detached, and a look: alive, first line, first step, no traceback. One word\n"
        "behind -- is a line for a shell; several are run exactly as they stand. The same command again starts\n"
        "nothing: it tells how the job stands. $RGT_OUT in its environment is the directory of its results.",
        examples=(
            "rgt run lab --push . -- python train.py --config big.yaml",
            "rgt run lab --in /workspace/code --smoke 'python train.py --steps 2' -- python train.py",
            "rgt run lab --name try-2 --env LR=3e-4 -- 'python train.py --out \"$RGT_OUT\"'",
            "rgt run lab --wait --json -- ./sweep.sh",
        ),
    )
    parser.set_defaults(words=[])
    box_argument(parser)
    parser.add_argument("--name", metavar="N", help="of the job (default: from the command, always the same)")
    parser.add_argument(
        "--push", metavar="PATH", help="push this code first (rgt push), and start in this version of it"
    )
    parser.add_argument("--smoke", metavar="CMD", help="a line for a shell that must end with 0 before")
    parser.add_argument(
        "--env", metavar="K=V", action="append", help="environment of the command; several times"
    )
    parser.add_argument(
        "--in", dest="workdir", metavar="DIR", help="where it starts (default: the home directory)"
    )
    parser.add_argument(
        "--retries", metavar="N", type=count, default=0, help="further attempts when it fails"
    )
    parser.add_argument("--wait", action="store_true", help="then wait until it has ended: 0 done, 1 failed")
    launch_options(parser)
    fleet_option(parser)
    json_option(parser, "print one JSON object: box, name, job, smoke, check, start, begins, finding, exit")
    host_key_option(parser)


QUEUE_ACTIONS = ("add", "run", "status", "check", "reconcile", "take-out")


def add_queue(subparsers: Subparsers) -> None:
    """Declare ``rgt queue``."""
    parser = command(
        subparsers,
        "queue",
        about="The queue of a box, or one queue over several: a,b,c. add appends lines; run tries, checks and starts\n"
        "it, and looks how it begins; status, check and reconcile change nothing (check --fix mends line ends). With\n"
        "several boxes run QUEUEFILE shares its lines out by what such cells have cost, and reconcile compares the\n"
        "cells of all boxes with what is there. run --hand-over BOX gives the undone cells of a box that is off to\n"
        "the others.",
        examples=(
            "rgt queue lab add 'configs/a.yaml classify 20' 'configs/b.yaml classify'",
            "rgt queue lab run --from b",
            "rgt queue lab check --fix",
            "rgt queue a,b,c run sweep.txt --job sweep",
            "rgt queue a,b,c reconcile --json",
            "rgt queue b,c run --hand-over a --job sweep",
        ),
    )
    boxes = parser.add_argument("boxes", metavar="BOX[,BOX…]", help="names of boxes in the fleet file")
    boxes.completer = box_names  # type: ignore[attr-defined]
    parser.add_argument("action", metavar="ACTION", choices=QUEUE_ACTIONS, help=" | ".join(QUEUE_ACTIONS))
    parser.add_argument(
        "rest",
        metavar="WORD",
        nargs="*",
        help="add: lines; run: a queue file of this machine; take-out: cells",
    )
    parser.add_argument(
        "--job", metavar="J", help="name or directory of the job (default: the one of the fleet file)"
    )
    parser.add_argument("--from", dest="start", metavar="CELL", help="run, check: begin with this cell")
    parser.add_argument("--fix", action="store_true", help="check: mend Windows line ends")
    parser.add_argument(
        "--again", metavar="CELL", action="append", help="run: a done cell, too, whose result was lost"
    )
    parser.add_argument(
        "--durable", metavar="DIR", help="reconcile: where the copies are, instead of where the job says"
    )
    parser.add_argument(
        "--hand-over", metavar="BOX", help="run: give the undone cells of this box to those named"
    )
    parser.add_argument("--confirm", metavar="NAME", help="the name of that box, in place of typing it")
    launch_options(parser)
    fleet_option(parser)
    json_option(parser, "print one JSON object per box; of reconcile over several, one of all cells")
    host_key_option(parser)


def add_ssh(subparsers: Subparsers) -> None:
    """Declare ``rgt ssh``."""
    parser = command(
        subparsers,
        "ssh",
        about="Become ssh, on the way that rgt uses: its address (also a new one that the provider tells), its jump\n"
        "hosts and its key, held to the host key that rgt has verified there just now. Words behind -- are run in\n"
        "a terminal instead of a shell.",
        examples=("rgt ssh lab", "rgt ssh lab -- htop"),
    )
    parser.set_defaults(words=[])
    box_argument(parser)
    fleet_option(parser)
    timeout_option(parser, CONNECT_SECONDS)
    host_key_option(parser)


def add_exec(subparsers: Subparsers) -> None:
    """Declare ``rgt exec``."""
    parser = command(
        subparsers,
        "exec",
        about="Run one command on a box, with this terminal's standard input and outputs, every byte as it is. One\n"
        "word behind -- is a line for the box's shell; several stay what they are, blanks and quotes included.\n"
        "It needs neither a Python nor the agent there. Ctrl-C hangs up, and is handed on before\n"
        "where the sshd there does that (not to root). What is to outlive the connection is started with rgt run.",
        examples=(
            "rgt exec lab -- nvidia-smi",
            "rgt exec lab -- 'cd /workspace && ls | wc -l'",
            "rgt exec lab -- tar -C /workspace/code -xf - < code.tar",
        ),
    )
    parser.set_defaults(words=[])
    box_argument(parser)
    fleet_option(parser)
    timeout_option(parser, CONNECT_SECONDS)
    host_key_option(parser)


def add_tunnel(subparsers: Subparsers) -> None:
    """Declare ``rgt tunnel``."""
    parser = command(
        subparsers,
        "tunnel",
        about="Let ports of this machine lead to ports of a box, until Ctrl-C. Only 127.0.0.1 listens; where a port\n"
        "is taken here another one is used, and said. The ports stay while the connection is lost and taken up\n"
        "again. Without PORT: the tunnels of the fleet file, such as those of a pasted ssh command (-L, -D).",
        examples=(
            "rgt tunnel lab 6006",
            "rgt tunnel lab 8080:6006 9000:db.internal:5432",
            "rgt tunnel lab socks:1080",
        ),
    )
    box_argument(parser)
    parser.add_argument(
        "ports",
        metavar="PORT",
        nargs="*",
        help="PORT, LOCAL:PORT, LOCAL:HOST:PORT, or socks:PORT for a SOCKS proxy",
    )
    fleet_option(parser)
    json_option(parser, "print one JSON object per tunnel: box, url, local, wanted, to")
    host_key_option(parser)


def add_code(subparsers: Subparsers) -> None:
    """Declare ``rgt code``."""
    parser = command(
        subparsers,
        "code",
        about="Print what VS Code, Cursor and JetBrains need to open a directory of a box: a block of ssh_config that\n"
        "says the same as rgt's own way there, and the address of the directory. Nothing is written; with --write\n"
        "the block goes to a file of rgt's own, and one line that includes it is shown, for ~/.ssh/config.",
        examples=("rgt code lab", "rgt code lab --write --dir /workspace/project"),
    )
    box_argument(parser)
    parser.add_argument(
        "--dir", metavar="DIR", help="on the box (default: the data directory of its platform, or home)"
    )
    parser.add_argument("--write", action="store_true", help="write the block to rgt's own ssh_config")
    fleet_option(parser)
    json_option(parser, "print one JSON object: box, host, ssh_config, folder, uri, file, include")
    timeout_option(parser, 30.0)
    host_key_option(parser)


def _add(
    subparsers: Subparsers, name: str, about: str, examples: tuple[str, ...], json: str, seconds: float
) -> argparse.ArgumentParser:
    parser = command(subparsers, name, about=about, examples=examples)
    box_argument(parser)
    fleet_option(parser)
    json_option(parser, json)
    timeout_option(parser, seconds)
    host_key_option(parser)
    return parser


def add_gpu_health(subparsers: Subparsers) -> None:
    """Declare ``rgt gpu-health``."""
    parser = _add(
        subparsers,
        "gpu-health",
        "Check every GPU of a box, and change nothing: does it answer, memory errors, throttling, the kernel's Xid\n"
        "messages, PCIe lanes, temperature, memory that nobody holds. What cannot be told is called so.",
        ("rgt gpu-health lab --expect 8", "rgt gpu-health lab --strict --json"),
        "print one JSON object: checks, source, error, status",
        60.0,
    )
    parser.add_argument("--expect", metavar="N", type=count, help="how many GPUs there must be")
    parser.add_argument("--hot", metavar="C", type=float, help="what counts as too hot (default 85)")
    parser.add_argument(
        "--strict", action="store_true", help="what cannot be told is not good enough, either"
    )


def add_reap(subparsers: Subparsers) -> None:
    """Declare ``rgt reap``."""
    parser = _add(
        subparsers,
        "reap",
        "List who holds a GPU of a box without the driver knowing: what a training that died has left behind.\n"
        "Nothing is touched without --kill, and then one process only, by its pid and its start, after the name of\n"
        "the box was typed. What trains is never ended.",
        (
            "rgt reap lab",
            "rgt reap lab --kill 4711:8812345",
            "rgt reap lab --kill 4711:8812345 --confirm lab",
        ),
        "print one JSON object: holders, ended, refused, why",
        60.0,
    )
    parser.add_argument(
        "--kill", metavar="PID:START", help="end this process; both numbers as the list shows them"
    )
    parser.add_argument(
        "--unverified", action="store_true", help="also where it cannot be told whether it is an orphan"
    )
    parser.add_argument("--confirm", metavar="NAME", help="the name of the box, in place of typing it")


def add_grep(subparsers: Subparsers) -> None:
    """Declare ``rgt grep``."""
    parser = _add(
        subparsers,
        "grep",
        "Search logs on a box from their end, so that the newest lines come first, within bounds of time and bytes:\n"
        "it disturbs no training. PATTERN is a regular expression of Python. Without PATH: the logs and the jobs\n"
        "that the fleet file names.",
        (
            "rgt grep lab 'CUDA out of memory|Traceback' --context 3",
            "rgt grep lab loss '~/exp/*.log' --max 5",
        ),
        "print one JSON object per match, and one with end at last",
        60.0,
    )
    parser.add_argument("pattern", metavar="PATTERN", help="a regular expression")
    parser.add_argument("paths", metavar="PATH", nargs="*", help="a file, a directory or a glob on the box")
    parser.add_argument("--max", metavar="N", type=count, help="stop after so many matches (default 100)")
    parser.add_argument("--context", metavar="N", type=count, help="lines around each match (at most 50)")
    parser.add_argument("--ignore-case", action="store_true", help="upper and lower case are the same")


def add_manifest(subparsers: Subparsers) -> None:
    """Declare ``rgt manifest``."""
    parser = _add(
        subparsers,
        "manifest",
        "Print the SHA-256 and the path of every file below a directory of a box, as sha256sum does. Hashes are\n"
        "remembered there: a second look reads what has changed. Links are named, never followed.",
        ("rgt manifest lab /workspace/runs > runs.sha256", "rgt manifest lab '~/data' --json"),
        "print one JSON object per file, and one with end at last",
        3600.0,
    )
    parser.add_argument("dir", metavar="DIR", help="on the box")
    parser.add_argument("--no-cache", action="store_true", help="hash everything anew")


def add_mirror(subparsers: Subparsers) -> None:
    """Declare ``rgt mirror``."""
    parser = _add(
        subparsers,
        "mirror",
        "Copy a directory on a box to another one there, on storage that outlives the box: each file is read back\n"
        "and compared before it takes its place. Stopped anywhere, the next one goes on; nothing there is deleted.",
        ("rgt mirror lab /root/autodl-tmp/runs/a /root/autodl-fs/runs/a",),
        "print one JSON object per file, and one with end at last",
        4 * 3600.0,
    )
    parser.add_argument("source", metavar="SRC", help="a directory on the box")
    parser.add_argument("target", metavar="DST", help="where to, on the box")
