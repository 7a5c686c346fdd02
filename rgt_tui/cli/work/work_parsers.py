"""Parsers of the commands that start work on a box or open it to a person's programs."""

from __future__ import annotations

import argparse

from rgt_tui.cli.arguments import (
    box_argument,
    box_names,
    byte_count,
    command,
    connection_options,
    count,
    duration,
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
        help="wait at most this long for a first step (60s)",
    )
    parser.add_argument("--no-smoke", action="store_true", help="start without the smoke command")
    parser.add_argument(
        "--smoke-seconds",
        metavar="TIME",
        type=duration,
        default=600.0,
        help="how long the smoke command may take (10m)",
    )


def add_run(subparsers: Subparsers) -> None:
    """Declare ``rgt run``."""
    parser = command(
        subparsers,
        "run",
        about="Run a command on a box so that it outlives the connection: as a job of its own (docs/jobs.md), with\n"
        "Python, disks and environment as the platform's profile says. First its smoke command runs, then the\n"
        "queue is checked, then it is started, detached, and watched: alive, first line, first step, no\n"
        "traceback. A single word after -- is a line for a shell; several are run without a shell. The same\n"
        "command again, with the same code, starts nothing: it says how the job is doing. If it runs with other\n"
        "code, you are asked; a script needs --again. $RGT_OUT in its environment is the directory of its results;\n"
        "in the words of a command without a shell it is filled in.",
        examples=(
            "rgt run lab --push . -- python train.py --config big.yaml",
            "rgt run lab --in /workspace/code --smoke 'python train.py --steps 2' -- python train.py",
            "rgt run lab --name try-2 --env LR=3e-4 -- 'python train.py --out \"$RGT_OUT\"'",
            "rgt run lab --push . --smoke 'python train.py --steps 2' --smoke-here -- python train.py",
            "rgt run lab --push . --secret HF_TOKEN --ckpt-size 2G -- python train.py --out '$RGT_OUT'",
            "rgt run lab --wait --json -- ./sweep.sh",
        ),
    )
    parser.set_defaults(words=[])
    box_argument(parser)
    parser.add_argument("--name", metavar="N", help="of the job (default: from the command, always the same)")
    parser.add_argument(
        "--push", metavar="PATH", help="push this code first (rgt push), and start in this version of it"
    )
    parser.add_argument("--smoke", metavar="CMD", help="a shell line that must end with 0 first")
    parser.add_argument(
        "--smoke-here",
        action="store_true",
        help="run it on this machine first, without a GPU, in a copy of what --push would push",
    )
    parser.add_argument(
        "--env", metavar="K=V", action="append", help="environment of the command; several times"
    )
    parser.add_argument(
        "--secret",
        metavar="NAME",
        action="append",
        help="a key or token for the command: from this variable here, else typed, or from standard input",
    )
    parser.add_argument(
        "--in", dest="workdir", metavar="DIR", help="where it starts (default: the home directory)"
    )
    parser.add_argument(
        "--retries", metavar="N", type=count, default=0, help="further attempts when it fails"
    )
    parser.add_argument(
        "--ckpt-size",
        metavar="SIZE",
        type=byte_count,
        help="of one checkpoint, such as 2G: it must fit on the disk before anything starts; 0 = do not check",
    )
    parser.add_argument(
        "--keep",
        metavar="PATH",
        action="append",
        help="copy only this to durable storage, below $RGT_OUT; several times (default: all of it)",
    )
    parser.add_argument(
        "--again", action="store_true", help="start it once more, although it was started before"
    )
    parser.add_argument("--wait", action="store_true", help="then wait until it has ended: 0 done, 1 failed")
    launch_options(parser)
    connection_options(
        parser, json="print one JSON object: box, name, job, smoke, check, start, begins, finding, exit"
    )


QUEUE_ACTIONS = ("new", "add", "run", "status", "check", "reconcile", "take-out")


def add_queue(subparsers: Subparsers) -> None:
    """Declare ``rgt queue``."""
    parser = command(
        subparsers,
        "queue",
        about="The queue of a box, or one queue over several: a,b,c. new makes the job of a sweep of your own code:\n"
        "the command after --, with {cfg} {name} {task} {epochs} {out} {py} filled in for each cell, in one version\n"
        "of the code on every box. add appends lines: CONFIG [TASK] [EPOCHS]; run tries, checks and starts\n"
        "it, and watches how it begins; status, check and reconcile change nothing (check --fix corrects line\n"
        "ends). With several boxes run QUEUEFILE shares out its lines by what such cells have cost so far, and\n"
        "reconcile compares the cells of all boxes with what is there. run --hand-over BOX gives the unfinished\n"
        "cells of a box that is off to the others.",
        examples=(
            "rgt queue lab new sweep --push . -- 'python train.py --config {cfg} --epochs {epochs} --out {out}'",
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
        help="new: the job's name; add: lines; run: a queue file of this machine; take-out: cells",
    )
    parser.set_defaults(words=[])
    parser.add_argument(
        "--push", metavar="PATH", help="new: push this code first, and work in this version of it"
    )
    parser.add_argument(
        "--in", dest="workdir", metavar="DIR", help="new: where cells start (default: the pushed code)"
    )
    parser.add_argument(
        "--env", metavar="K=V", action="append", help="new: environment of the cells; several times"
    )
    parser.add_argument(
        "--smoke", metavar="CMD", help="new: a shell line that must end with 0 before a launch"
    )
    parser.add_argument(
        "--retries", metavar="N", type=count, default=0, help="new: further attempts of a failed cell"
    )
    parser.add_argument(
        "--prune",
        choices=("keep-best",),
        help="new: finished cells with a verified copy give their room to the next",
    )
    parser.add_argument(
        "--job", metavar="J", help="name or directory of the job (default: the one of the fleet file)"
    )
    parser.add_argument("--from", dest="start", metavar="CELL", help="run, check: begin with this cell")
    parser.add_argument("--fix", action="store_true", help="check: mend Windows line endings")
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
    connection_options(
        parser, json="print one JSON object per box; of reconcile over several, one of all cells"
    )


def add_ssh(subparsers: Subparsers) -> None:
    """Declare ``rgt ssh``."""
    parser = command(
        subparsers,
        "ssh",
        about="Open ssh the way rgt connects: to the same address (also a new one that the provider gives),\n"
        "through the same jump hosts, with the same key, and held to the host key that rgt has just verified.\n"
        "Words after -- are run in a terminal instead of a shell.",
        examples=("rgt ssh lab", "rgt ssh lab -- htop"),
    )
    parser.set_defaults(words=[])
    box_argument(parser)
    connection_options(parser, seconds=CONNECT_SECONDS)


def add_exec(subparsers: Subparsers) -> None:
    """Declare ``rgt exec``."""
    parser = command(
        subparsers,
        "exec",
        about="Run one command on a box, with this terminal's standard input and outputs, every byte as it is. A\n"
        "single word after -- is a line for the box's shell; several stay what they are, blanks and quotes\n"
        "included. It needs neither a Python nor the agent there. Ctrl-C hangs up; where the sshd there can do\n"
        "that (not for root), the command gets it first. Start what must outlive the connection with rgt run.",
        examples=(
            "rgt exec lab -- nvidia-smi",
            "rgt exec lab -- 'cd /workspace && ls | wc -l'",
            "rgt exec lab -- tar -C /workspace/code -xf - < code.tar",
        ),
    )
    parser.set_defaults(words=[])
    box_argument(parser)
    connection_options(parser, seconds=CONNECT_SECONDS)


def add_tunnel(subparsers: Subparsers) -> None:
    """Declare ``rgt tunnel``."""
    parser = command(
        subparsers,
        "tunnel",
        about="Forward ports of this machine to ports of a box, until Ctrl-C. They listen on 127.0.0.1 only; if a\n"
        "port is taken here, another one is used, and printed. They stay open while a lost connection is made\n"
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
    connection_options(parser, json="print one JSON object per tunnel: box, url, local, wanted, to")


def add_code(subparsers: Subparsers) -> None:
    """Declare ``rgt code``."""
    parser = command(
        subparsers,
        "code",
        about="Print what VS Code, Cursor and JetBrains need to open a directory of a box: a block of ssh_config that\n"
        "leads there the way rgt goes, and the address of the directory. Nothing is written; with --write the\n"
        "block goes to a file of rgt's own, and one line that includes it is shown, for ~/.ssh/config.",
        examples=("rgt code lab", "rgt code lab --write --dir /workspace/project"),
    )
    box_argument(parser)
    parser.add_argument(
        "--dir", metavar="DIR", help="on the box (default: the data directory of its platform, or home)"
    )
    parser.add_argument("--write", action="store_true", help="write the block to rgt's own ssh_config")
    connection_options(
        parser, json="print one JSON object: box, host, ssh_config, folder, uri, file, include", seconds=30.0
    )


def _add(
    subparsers: Subparsers, name: str, about: str, examples: tuple[str, ...], json: str, seconds: float
) -> argparse.ArgumentParser:
    parser = command(subparsers, name, about=about, examples=examples)
    box_argument(parser)
    connection_options(parser, json=json, seconds=seconds)
    return parser


def add_stop(subparsers: Subparsers) -> None:
    """Declare ``rgt stop``."""
    parser = command(
        subparsers,
        "stop",
        about="End one run of a box: a job, a cell, or a training that rgt has found, by the name that rgt shows. It\n"
        "gets SIGTERM, and time to save; then you see what it has saved, and where. A run of a queue ends through\n"
        "its runner: the cell counts as interrupted, and the rest of the queue waits. No process is ended by a\n"
        "number alone: it must be the one that was shown.",
        examples=(
            "rgt stop lab try-1",
            "rgt stop lab exp/train --after-checkpoint",
            "rgt stop lab try-1 --yes --json",
        ),
    )
    box_argument(parser)
    parser.add_argument("run", metavar="RUN", help="job (name or directory), cell, or found training")
    parser.add_argument(
        "--after-checkpoint", action="store_true", help="wait until it has saved once more, then end it"
    )
    parser.add_argument(
        "--wait", metavar="TIME", type=duration, default=3600.0, help="how long to wait for that (1h)"
    )
    parser.add_argument(
        "--seconds", metavar="TIME", type=duration, help="how long to wait for its end (default: 2m30)"
    )
    parser.add_argument("--yes", action="store_true", help="do not ask")
    connection_options(parser, json="print one JSON object per step: found, waits, asked, ended")


def add_gpu_health(subparsers: Subparsers) -> None:
    """Declare ``rgt gpu-health``."""
    parser = _add(
        subparsers,
        "gpu-health",
        "Check every GPU of a box, and change nothing: does it answer, memory errors, throttling, the kernel's Xid\n"
        "messages, PCIe lanes, temperature, memory that no process holds. What cannot be determined is\n"
        "reported as such.",
        ("rgt gpu-health lab --expect 8", "rgt gpu-health lab --strict --json"),
        "print one JSON object: checks, source, error, status",
        60.0,
    )
    parser.add_argument("--expect", metavar="N", type=count, help="how many GPUs there must be")
    parser.add_argument("--hot", metavar="C", type=float, help="what counts as too hot (default 85)")
    parser.add_argument("--strict", action="store_true", help="what is not known is not good enough, either")


def add_reap(subparsers: Subparsers) -> None:
    """Declare ``rgt reap``."""
    parser = _add(
        subparsers,
        "reap",
        "List who holds a GPU of a box without the driver knowing: what a training that died has left behind.\n"
        "Nothing is touched without --kill, and then one process only, by its pid and its start, after you\n"
        "have typed the name of the box. What trains is never ended.",
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
        "--unverified", action="store_true", help="even if it is not known whether it is an orphan"
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
    parser.add_argument("--ignore-case", action="store_true", help="ignore case")


def add_manifest(subparsers: Subparsers) -> None:
    """Declare ``rgt manifest``."""
    parser = _add(
        subparsers,
        "manifest",
        "Print the SHA-256 and the path of every file below a directory of a box, as sha256sum does. Hashes are\n"
        "remembered there: the next time only what has changed is read. Links are named, never followed.",
        ("rgt manifest lab /workspace/runs > runs.sha256", "rgt manifest lab '~/data' --json"),
        "print one JSON object per file, and one with end at last",
        3600.0,
    )
    parser.add_argument("dir", metavar="DIR", help="on the box")
    parser.add_argument("--no-cache", action="store_true", help="hash everything again")


def add_mirror(subparsers: Subparsers) -> None:
    """Declare ``rgt mirror``."""
    parser = _add(
        subparsers,
        "mirror",
        "Copy a directory on a box to another one there, on storage that outlives the box: each file is read back\n"
        "and compared before it takes its place. If it is stopped, the next one continues; nothing there\n"
        "is deleted.",
        ("rgt mirror lab /root/autodl-tmp/runs/a /root/autodl-fs/runs/a",),
        "print one JSON object per file, and one with end at last",
        4 * 3600.0,
    )
    parser.add_argument("source", metavar="SRC", help="a directory on the box")
    parser.add_argument("target", metavar="DST", help="where to, on the box")
