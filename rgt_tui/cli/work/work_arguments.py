"""Arguments of the commands that start work on a box or open it to a person's programs."""

from __future__ import annotations

from typing import TypeAlias

from rgt_tui.cli.arguments import (
    FLEET,
    HOST_KEY,
    BoxArguments,
    ConnectedArguments,
    box_names,
    byte_count,
    count,
    duration,
    flag,
    list_option,
    option,
    positional,
    text_option,
    timeout_option,
)

CONNECT_SECONDS = 60.0


PROBE = option("TIME", duration, "wait at most this long for a first step (60s)", default=60.0)
NO_SMOKE = flag("start without the smoke command")
SMOKE_SECONDS = option("TIME", duration, "how long the smoke command may take (10m)", default=600.0)


class RunArguments(BoxArguments):
    """Arguments of ``rgt run``."""

    about = """
    Run a command on a box so that it outlives the connection: as a job of its own (docs/jobs.md), with
    Python, disks and environment as the platform's profile says. First its smoke command runs, then the
    queue is checked, then it is started, detached, and watched: alive, first line, first step, no
    traceback. A single word after -- is a line for a shell; several are run without a shell. The same
    command again, with the same code, starts nothing: it says how the job is doing. If it runs with other
    code, you are asked; a script needs --again. $RGT_OUT in its environment is the directory of its results;
    in the words of a command without a shell it is filled in.
    """
    examples = (
        "rgt run lab --push . -- python train.py --config big.yaml",
        "rgt run lab --in /workspace/code --smoke 'python train.py --steps 2' -- python train.py",
        "rgt run lab --name try-2 --env LR=3e-4 -- 'python train.py --out \"$RGT_OUT\"'",
        "rgt run lab --push . --smoke 'python train.py --steps 2' --smoke-here -- python train.py",
        "rgt run lab --push . --secret HF_TOKEN --ckpt-size 2G -- python train.py --out '$RGT_OUT'",
        "rgt run lab --wait --json -- ./sweep.sh",
    )
    name = text_option("N", "of the job (default: from the command, always the same)")
    push = text_option("PATH", "push this code first (rgt push), and start in this version of it")
    smoke = text_option("CMD", "a shell line that must end with 0 first")
    smoke_here = flag(
        "run it on this machine first, without a GPU, in a copy of what --push would push"
    )
    env = list_option("K=V", "environment of the command; several times")
    secret = list_option(
        "NAME",
        "a key or token for the command: from this variable here, else typed, or from standard input",
    )
    workdir = text_option("DIR", "where it starts (default: the home directory)", "--in")
    retries = option("N", count, "further attempts when it fails", default=0)
    ckpt_size = option(
        "SIZE",
        byte_count,
        "of one checkpoint, such as 2G: it must fit on the disk before anything starts; 0 = do not check",
    )
    keep = list_option(
        "PATH",
        "copy only this to durable storage, below $RGT_OUT; several times (default: all of it)",
    )
    again = flag("start it once more, although it was started before")
    wait = flag("then wait until it has ended: 0 done, 1 failed")
    probe = PROBE
    no_smoke = NO_SMOKE
    smoke_seconds = SMOKE_SECONDS
    fleet = FLEET
    json = flag("print one JSON object: box, name, job, smoke, check, start, begins, finding, exit")


QUEUE_ACTIONS = ("new", "add", "run", "status", "check", "reconcile", "take-out")


class QueueArguments(ConnectedArguments):
    """Arguments of ``rgt queue``."""

    about = """
    The queue of a box, or one queue over several: a,b,c. new makes the job of a sweep of your own code:
    the command after --, with {cfg} {name} {task} {epochs} {out} {py} filled in for each cell, in one version
    of the code on every box. add appends lines: CONFIG [TASK] [EPOCHS]; run tries, checks and starts
    it, and watches how it begins; status, check and reconcile change nothing (check --fix corrects line
    ends). With several boxes run QUEUEFILE shares out its lines by what such cells have cost so far, and
    reconcile compares the cells of all boxes with what is there. run --hand-over BOX gives the unfinished
    cells of a box that is off to the others.
    """
    examples = (
        "rgt queue lab new sweep --push . -- 'python train.py --config {cfg} --epochs {epochs} --out {out}'",
        "rgt queue lab add 'configs/a.yaml classify 20' 'configs/b.yaml classify'",
        "rgt queue lab run --from b",
        "rgt queue lab check --fix",
        "rgt queue a,b,c run sweep.txt --job sweep",
        "rgt queue a,b,c reconcile --json",
        "rgt queue b,c run --hand-over a --job sweep",
    )
    boxes: str = positional("BOX[,BOX…]", "names of boxes in the fleet file", complete=box_names)
    action: str = positional("ACTION", " | ".join(QUEUE_ACTIONS), choices=QUEUE_ACTIONS)
    rest: list[str] = positional(
        "WORD",
        "new: the job's name; add: lines; run: a queue file of this machine; take-out: cells",
        nargs="*",
    )
    push = text_option("PATH", "new: push this code first, and work in this version of it")
    workdir = text_option("DIR", "new: where cells start (default: the pushed code)", "--in")
    env = list_option("K=V", "new: environment of the cells; several times")
    smoke = text_option("CMD", "new: a shell line that must end with 0 before a launch")
    retries = option("N", count, "new: further attempts of a failed cell", default=0)
    prune = text_option(
        None,
        "new: finished cells with a verified copy give their room to the next",
        choices=("keep-best",),
    )
    job = text_option("J", "name or directory of the job (default: the one of the fleet file)")
    start = text_option("CELL", "run, check: begin with this cell", "--from")
    fix = flag("check: mend Windows line endings")
    again = list_option("CELL", "run: a done cell, too, whose result was lost")
    durable = text_option("DIR", "reconcile: where the copies are, instead of where the job says")
    hand_over = text_option("BOX", "run: give the undone cells of this box to those named")
    confirm = text_option("NAME", "the name of that box, in place of typing it")
    probe = PROBE
    no_smoke = NO_SMOKE
    smoke_seconds = SMOKE_SECONDS
    fleet = FLEET
    json = flag("print one JSON object per box; of reconcile over several, one of all cells")


LaunchArguments: TypeAlias = RunArguments | QueueArguments


class SshArguments(BoxArguments):
    """Arguments of ``rgt ssh``."""

    about = """
    Open ssh the way rgt connects: to the same address (also a new one that the provider gives),
    through the same jump hosts, with the same key, and held to the host key that rgt has just verified.
    Words after -- are run in a terminal instead of a shell.
    """
    examples = ("rgt ssh lab", "rgt ssh lab -- htop")
    fleet = FLEET
    timeout = timeout_option(CONNECT_SECONDS)


class ExecArguments(BoxArguments):
    """Arguments of ``rgt exec``."""

    about = """
    Run one command on a box, with this terminal's standard input and outputs, every byte as it is. A
    single word after -- is a line for the box's shell; several stay what they are, blanks and quotes
    included. It needs neither a Python nor the agent there. Ctrl-C hangs up; where the sshd there can do
    that (not for root), the command gets it first. Start what must outlive the connection with rgt run.
    """
    examples = (
        "rgt exec lab -- nvidia-smi",
        "rgt exec lab -- 'cd /workspace && ls | wc -l'",
        "rgt exec lab -- tar -C /workspace/code -xf - < code.tar",
    )
    fleet = FLEET
    timeout = timeout_option(CONNECT_SECONDS)


class TunnelArguments(BoxArguments):
    """Arguments of ``rgt tunnel``."""

    about = """
    Forward ports of this machine to ports of a box, until Ctrl-C. They listen on 127.0.0.1 only; if a
    port is taken here, another one is used, and printed. They stay open while a lost connection is made
    again. Without PORT: the tunnels of the fleet file, such as those of a pasted ssh command (-L, -D).
    """
    examples = (
        "rgt tunnel lab 6006",
        "rgt tunnel lab 8080:6006 9000:db.internal:5432",
        "rgt tunnel lab socks:1080",
    )
    ports: list[str] = positional(
        "PORT", "PORT, LOCAL:PORT, LOCAL:HOST:PORT, or socks:PORT for a SOCKS proxy", nargs="*"
    )
    fleet = FLEET
    json = flag("print one JSON object per tunnel: box, url, local, wanted, to")


class CodeArguments(BoxArguments):
    """Arguments of ``rgt code``."""

    about = """
    Print what VS Code, Cursor and JetBrains need to open a directory of a box: a block of ssh_config that
    leads there the way rgt goes, and the address of the directory. Nothing is written; with --write the
    block goes to a file of rgt's own, and one line that includes it is shown, for ~/.ssh/config.
    """
    examples = ("rgt code lab", "rgt code lab --write --dir /workspace/project")
    dir = text_option("DIR", "on the box (default: the data directory of its platform, or home)")
    write = flag("write the block to rgt's own ssh_config")
    fleet = FLEET
    json = flag("print one JSON object: box, host, ssh_config, folder, uri, file, include")
    timeout = timeout_option(30.0)


class StopArguments(BoxArguments):
    """Arguments of ``rgt stop``."""

    about = """
    End one run of a box: a job, a cell, or a training that rgt has found, by the name that rgt shows. It
    gets SIGTERM, and time to save; then you see what it has saved, and where. A run of a queue ends through
    its runner: the cell counts as interrupted, and the rest of the queue waits. No process is ended by a
    number alone: it must be the one that was shown.
    """
    examples = (
        "rgt stop lab try-1",
        "rgt stop lab exp/train --after-checkpoint",
        "rgt stop lab try-1 --yes --json",
    )
    run: str = positional("RUN", "job (name or directory), cell, or found training")
    after_checkpoint = flag("wait until it has saved once more, then end it")
    wait = option("TIME", duration, "how long to wait for that (1h)", default=3600.0)
    seconds = option("TIME", duration, "how long to wait for its end (default: 2m30)")
    yes = flag("do not ask")
    fleet = FLEET
    json = flag("print one JSON object per step: found, waits, asked, ended")


class GpuHealthArguments(BoxArguments):
    """Arguments of ``rgt gpu-health``."""

    about = """
    Check every GPU of a box, and change nothing: does it answer, memory errors, throttling, the kernel's Xid
    messages, PCIe lanes, temperature, memory that no process holds. What cannot be determined is
    reported as such.
    """
    examples = ("rgt gpu-health lab --expect 8", "rgt gpu-health lab --strict --json")
    fleet = FLEET
    json = flag("print one JSON object: checks, source, error, status")
    timeout = timeout_option(60.0)
    accept_new_host_key = HOST_KEY
    expect = option("N", count, "how many GPUs there must be")
    hot = option("C", float, "what counts as too hot (default 85)")
    strict = flag("what is not known is not good enough, either")


class ReapArguments(BoxArguments):
    """Arguments of ``rgt reap``."""

    about = """
    List who holds a GPU of a box without the driver knowing: what a training that died has left behind.
    Nothing is touched without --kill, and then one process only, by its pid and its start, after you
    have typed the name of the box. What trains is never ended.
    """
    examples = (
        "rgt reap lab",
        "rgt reap lab --kill 4711:8812345",
        "rgt reap lab --kill 4711:8812345 --confirm lab",
    )
    fleet = FLEET
    json = flag("print one JSON object: holders, ended, refused, why")
    timeout = timeout_option(60.0)
    accept_new_host_key = HOST_KEY
    kill = text_option("PID:START", "end this process; both numbers as the list shows them")
    unverified = flag("even if it is not known whether it is an orphan")
    confirm = text_option("NAME", "the name of the box, in place of typing it")


class GrepArguments(BoxArguments):
    """Arguments of ``rgt grep``."""

    about = """
    Search logs on a box from their end, so that the newest lines come first, within bounds of time and bytes:
    it disturbs no training. PATTERN is a regular expression of Python. Without PATH: the logs and the jobs
    that the fleet file names.
    """
    examples = (
        "rgt grep lab 'CUDA out of memory|Traceback' --context 3",
        "rgt grep lab loss '~/exp/*.log' --max 5",
    )
    fleet = FLEET
    json = flag("print one JSON object per match, and one with end at last")
    timeout = timeout_option(60.0)
    accept_new_host_key = HOST_KEY
    pattern: str = positional("PATTERN", "a regular expression")
    paths: list[str] = positional("PATH", "a file, a directory or a glob on the box", nargs="*")
    max = option("N", count, "stop after so many matches (default 100)")
    context = option("N", count, "lines around each match (at most 50)")
    ignore_case = flag("ignore case")


class ManifestArguments(BoxArguments):
    """Arguments of ``rgt manifest``."""

    about = """
    Print the SHA-256 and the path of every file below a directory of a box, as sha256sum does. Hashes are
    remembered there: the next time only what has changed is read. Links are named, never followed.
    """
    examples = (
        "rgt manifest lab /workspace/runs > runs.sha256",
        "rgt manifest lab '~/data' --json",
    )
    fleet = FLEET
    json = flag("print one JSON object per file, and one with end at last")
    timeout = timeout_option(3600.0)
    accept_new_host_key = HOST_KEY
    dir: str = positional("DIR", "on the box")
    no_cache = flag("hash everything again")


class MirrorArguments(BoxArguments):
    """Arguments of ``rgt mirror``."""

    about = """
    Copy a directory on a box to another one there, on storage that outlives the box: each file is read back
    and compared before it takes its place. If it is stopped, the next one continues; nothing there
    is deleted.
    """
    examples = ("rgt mirror lab /root/autodl-tmp/runs/a /root/autodl-fs/runs/a",)
    fleet = FLEET
    json = flag("print one JSON object per file, and one with end at last")
    timeout = timeout_option(4 * 3600.0)
    source: str = positional("SRC", "a directory on the box")
    target: str = positional("DST", "where to, on the box")


ToolArguments: TypeAlias = (
    GpuHealthArguments | ReapArguments | GrepArguments | ManifestArguments | MirrorArguments
)
