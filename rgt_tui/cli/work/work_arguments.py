"""Arguments of the commands that start work on a box or open it to a person's programs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TypeAlias

from rgt_tui.cli.arguments import (
    FLEET,
    HOST_KEY,
    Arguments,
    BoxArguments,
    ConnectedArguments,
    box_names,
    byte_count,
    flag,
    list_option,
    option,
    parse_count,
    parse_duration,
    positional,
    text_option,
    timeout_option,
)

# To reach the box; a command or a shell then has no limit.
CONNECT_SECONDS = 60.0


# Large models load for minutes, so a missing first step is reported and is no failure.
PROBE = option(
    "TIME", parse_duration, "wait at most this long for a first step (60s)", default=60.0
)
# For repeated launches of a job whose smoke has passed before.
NO_SMOKE = flag("start without the smoke command")
SMOKE_SECONDS = option(
    "TIME", parse_duration, "time limit of the smoke command (10m)", default=600.0
)


def parse_environment(given: Sequence[str]) -> dict[str, str]:
    """Return ``K=V`` words as an environment.

    Raises:
        ValueError: A word has another form.
    """
    found = {}
    for word in given:
        # Values may contain line ends, hence DOTALL.
        match = re.fullmatch(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", word, re.DOTALL)
        if match is None:
            raise ValueError(f"--env {word!r}: write NAME=VALUE")
        found[match[1]] = match[2]
    return found


class SmokeArguments(Arguments):
    """Arguments of ``rgt smoke``."""

    about = """
    Run a training command on this machine's CPU before a box is rented: no GPU is visible, experiment
    trackers are off, and $RGT_OUT is a temporary directory. Trainings with transformers, Lightning, Keras or
    rgt_train run two batches, without changes to the script; they neither save nor resume. Another command
    runs as it is, or as its own option limits it (--smoke 2, --max-steps 2, --fast-dev-run …), until the time
    limit. It runs in a copy of the current directory, as rgt push would send it, with data linked and without
    earlier checkpoints: no result is replaced, and none is left for the next push. If it fails, the handbook
    says what went wrong. A single word after -- is a shell line.
    """
    examples = (
        "rgt smoke -- python train.py --config big.yaml",
        "rgt smoke --seconds 2m -- python train.py --limit-batches 2",
        "rgt smoke --env DATA=tiny -- 'cd code && torchrun --nproc-per-node 2 train.py'",
        "rgt smoke --overfit-one-batch 100 -- python -m rgt_train --task char_lm",
        "rgt smoke --job job.toml && rgt up --job job.toml",
        "rgt smoke -- python train.py && rgt up lab --gpu A100",
    )
    job = text_option(
        "FILE", "run the smoke command of a job file, or else its command (docs/job.md)"
    )
    overfit_one_batch = option(
        "N",
        parse_count,
        "train N steps on one batch instead, and fail unless its loss falls: rgt_train, or a "
        "script that trains with resume() or overfit_one_batch() of rgt_train.callbacks",
    )
    batches = option("N", parse_count, "batches to train, and to evaluate (2)", default=2)
    seconds = option("TIME", parse_duration, "time limit (10m)", default=600.0)
    workdir = text_option("DIR", "working directory (default: the current one)", "--in")
    env = list_option("K=V", "environment variable of the command (repeatable)")
    json = flag(
        "print one JSON object: words, limits, own_option, overfit, seconds, reason, findings, exit"
    )


class RunArguments(BoxArguments):
    """Arguments of ``rgt run``."""

    about = """
    Run a command on a box so that it continues without the connection: as a job (docs/jobs.md), with Python,
    disks and environment from the platform's profile. First the smoke command runs, then the queue is
    checked, then the job is started, detached, and watched: process alive, first line, first step, no
    traceback. A single word after -- is a shell line; several words are run without a shell. The same command
    again, with the same code, starts nothing and shows the state of the job. If it runs with other code, rgt
    asks; a script needs --again. On a pod (docs/kubernetes.md) it runs inside of it; if the fleet file names a
    Job and its image, rgt creates that Job. The environment variable $RGT_OUT is the directory for results;
    it is also replaced in a command without a shell.
    """
    examples = (
        "rgt run lab --push . -- python train.py --config big.yaml",
        "rgt run lab --in /workspace/code --smoke 'python train.py --steps 2' -- python train.py",
        "rgt run lab --name try-2 --env LR=3e-4 -- 'python train.py --out \"$RGT_OUT\"'",
        "rgt run lab --push . --smoke 'python train.py --steps 2' --smoke-here -- python train.py",
        "rgt run lab --push . --secret HF_TOKEN --ckpt-size 2G -- python train.py --out '$RGT_OUT'",
        "rgt run lab --wait --json -- ./sweep.sh",
        "rgt run lab --push . --install --wait",
        "rgt run lab --on-start",
        "rgt run lab --job job.toml",
    )
    job = text_option(
        "FILE",
        "take command, environment, results and card from a job file (docs/job.md); options beat it",
    )
    name = text_option("N", "name of the job (default: derived from the command)")
    push = text_option("PATH", "push this code first (rgt push), and start in that version")
    smoke = text_option("CMD", "a shell line that must exit with 0 first")
    smoke_here = flag(
        "run the smoke command on this machine first, without a GPU, in a copy of the code of "
        "--push"
    )
    env = list_option("K=V", "environment variable of the command (repeatable)")
    secret = list_option(
        "NAME",
        "a key or token for the command: from this variable here, else typed or from standard input",
    )
    workdir = text_option("DIR", "working directory (default: the home directory)", "--in")
    retries = option("N", parse_count, "retries after a failure", default=0)
    # 0 disables the check, which is why None means unknown.
    ckpt_size = option(
        "SIZE",
        byte_count,
        "size of one checkpoint, such as 2G: the job starts only if it fits on the disk; 0 = do "
        "not check",
    )
    keep = list_option(
        "PATH",
        "copy only this path below $RGT_OUT to durable storage (repeatable; default: everything)",
    )
    again = flag("start it once more, although it was started before")
    install = flag(
        "instead of a command: install what the code of --push needs, by its install_deps.sh, lock "
        "file or requirements.txt; torch and CUDA stay those of the image"
    )
    force = flag("with --job: also on a smaller card than the job asks for, or on an unknown one")
    on_start = text_option(
        None,
        "install the hook by which this box continues its queues after a restart (default), show "
        "or remove it",
        # --on-start alone installs; the words after -- are separated before argparse sees them.
        nargs="?",
        const="install",
        choices=("install", "show", "remove"),
    )
    reader = flag(
        "instead of a command, on a Kubernetes Job that has ended: start a pod without GPU for an"
        " hour that mounts its claims, so that pull, logs, reconcile and down reach them"
    )
    yes = flag("--on-start: do not ask")
    wait = flag("wait until it ends, then exit with 0 (done) or 1 (failed)")
    probe = PROBE
    no_smoke = NO_SMOKE
    smoke_seconds = SMOKE_SECONDS
    fleet = FLEET
    json = flag("print one JSON object: box, name, job, smoke, check, start, begins, finding, exit")


QUEUE_ACTIONS = ("new", "add", "run", "status", "check", "reconcile", "take-out")


class QueueArguments(ConnectedArguments):
    """Arguments of ``rgt queue``."""

    about = """
    The queue of one box, or one queue over several: a,b,c. new makes a job for a sweep of your code: the
    command after --, with {cfg} {name} {task} {epochs} {out} {py} filled in for each cell, in one version of
    the code on every box. add appends lines: CONFIG [TASK] [EPOCHS]; run tests, checks and starts it, and
    watches the start; status, check and reconcile change nothing (check --fix corrects line endings). With
    several boxes, run QUEUEFILE distributes its lines by the cost of such cells so far, and reconcile
    compares the cells of all boxes with the files there. run --hand-over BOX gives the unfinished cells of a
    box that is off to the others. On a box that is a Kubernetes Job, run --job FILE.toml creates it, with a
    pod for each cell (docs/kubernetes.md).
    """
    examples = (
        (
            "rgt queue lab new sweep --push . -- 'python train.py --config {cfg} --epochs {epochs} "
            "--out {out}'"
        ),
        "rgt queue lab add 'configs/a.yaml classify 20' 'configs/b.yaml classify'",
        "rgt queue lab run --from b",
        "rgt queue lab check --fix",
        "rgt queue a,b,c run sweep.txt --job sweep",
        "rgt queue a,b,c reconcile --json",
        "rgt queue a,b run --job job.toml --skip-existing --dry-run",
        "rgt queue pod run --job job.toml --parallel 4",
        "rgt queue b,c run --hand-over a --job sweep",
    )
    boxes: str = positional("BOX[,BOX…]", "names of boxes in the fleet file", complete=box_names)
    action: str = positional("ACTION", " | ".join(QUEUE_ACTIONS), choices=QUEUE_ACTIONS)
    rest: list[str] = positional(
        "WORD",
        "new: the job's name; add: lines; run: a queue file of this machine; take-out: cells",
        nargs="*",
    )
    push = text_option("PATH", "new: push this code first, and run in that version")
    workdir = text_option(
        "DIR", "new: working directory of the cells (default: the pushed code)", "--in"
    )
    env = list_option("K=V", "new: environment variable of the cells (repeatable)")
    smoke = text_option("CMD", "new: a shell line that must exit with 0 before a launch")
    retries = option("N", parse_count, "new: retries of a failed cell", default=0)
    keep = list_option(
        "PATH",
        "new: copy only this path below a cell's directory to durable storage (repeatable)",
    )
    prune = text_option(
        None,
        "new: delete results of finished cells that have a verified copy when the next cell needs "
        "space",
        choices=("keep-best",),
    )
    job = text_option(
        "J",
        "name or directory of the job (default: the one of the fleet file); run: or a job file, "
        "FILE.toml, whose sweep is made and started (docs/job.md)",
    )
    names = list_option("CELL", "with a job file: only these cells", nargs="+", action="extend")
    skip_existing = flag(
        "with a job file: without the cells that are done on a box, or whose results were pulled"
    )
    dry_run = flag(
        "with a job file: show cards, cells and how they are shared, or the manifest of a "
        "Kubernetes Job; push and start nothing"
    )
    force = flag("with a job file: also on smaller cards than it asks for, or on unknown ones")
    parallel = option(
        "N", parse_count, "with a job file, on a Kubernetes Job: pods that run at the same time (1)"
    )
    start = text_option("CELL", "run, check: begin with this cell", "--from")
    fix = flag("check: fix Windows line endings")
    again = list_option("CELL", "run: also run this finished cell, whose result was lost")
    durable = text_option("DIR", "reconcile: directory of the copies (default: from the job)")
    hand_over = text_option("BOX", "run: give the unfinished cells of this box to the named boxes")
    confirm = text_option("NAME", "the name of that box, instead of typing it")
    probe = PROBE
    no_smoke = NO_SMOKE
    smoke_seconds = SMOKE_SECONDS
    fleet = FLEET
    json = flag("print one JSON object per box; of reconcile over several, one of all cells")


LaunchArguments: TypeAlias = RunArguments | QueueArguments


class SshArguments(BoxArguments):
    """Arguments of ``rgt ssh``."""

    about = """
    Open ssh as rgt connects: to the same address (also a new one from the provider), through the same jump
    hosts, with the same key, and accepting only the host key that rgt has just verified. A command after --
    runs in the terminal instead of a shell.
    """
    examples = ("rgt ssh lab", "rgt ssh lab -- htop")
    fleet = FLEET
    timeout = timeout_option(CONNECT_SECONDS)


class ExecArguments(BoxArguments):
    """Arguments of ``rgt exec``."""

    about = """
    Run one command on a box, with this terminal's standard input, output and error, every byte unchanged. A
    single word after -- is a line for the box's shell; several words are passed unchanged, blanks and quotes
    included. The box needs neither Python nor the agent. Ctrl-C disconnects; in a pod, and if the box's sshd
    supports it (not for root), the command gets the signal first. For commands that must survive a lost
    connection, use rgt run.
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
    Forward ports of this machine to ports of a box, until Ctrl-C. They listen on 127.0.0.1 only; if a port is
    taken here, another one is used, and printed. They stay open while rgt reconnects. Without PORT: the
    tunnels of the fleet file, such as those of a pasted ssh command (-L, -D).
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
    Print what VS Code, Cursor and JetBrains need to open a directory of a box: a block of ssh_config with the
    same route as rgt, and the address of the directory. Nothing is written. With --write, the block goes to
    rgt's own file, and rgt prints the Include line for ~/.ssh/config.
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
    Stop one run of a box: a job, a cell, or a detected training, by the name that rgt shows. It gets SIGTERM
    and time to save; then you see what it saved, and where. A run of a queue is stopped through its runner:
    the cell counts as interrupted, and the rest of the queue waits. A process is never ended by its pid
    alone: it must be the process that was shown.
    """
    examples = (
        "rgt stop lab try-1",
        "rgt stop lab exp/train --after-checkpoint",
        "rgt stop lab try-1 --yes --json",
    )
    run: str = positional("RUN", "job (name or directory), cell, or detected training")
    after_checkpoint = flag("wait for its next checkpoint, then stop it")
    wait = option("TIME", parse_duration, "time limit for that checkpoint (1h)", default=3600.0)
    seconds = option("TIME", parse_duration, "time limit for it to end (default: 2m30)")
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
    expect = option("N", parse_count, "expected number of GPUs")
    hot = option("C", float, "temperature that counts as too hot (default 85)")
    strict = flag("unknown results count as failures")


class ReapArguments(BoxArguments):
    """Arguments of ``rgt reap``."""

    about = """
    List processes that use GPU memory of a box without working, such as those left by a training that died.
    Nothing is changed without --kill, which ends one process, by its pid and start time, after you type the
    name of the box. A process that trains is never ended.
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
    unverified = flag("even if it is unknown whether it is an orphan")
    confirm = text_option("NAME", "the name of the box, instead of typing it")


class GrepArguments(BoxArguments):
    """Arguments of ``rgt grep``."""

    about = """
    Search logs on a box from their end, so that the newest lines come first, with limits on time and bytes,
    so that it does not slow a training. PATTERN is a regular expression of Python. Without PATH: the logs and
    the jobs that the fleet file names.
    """
    examples = (
        "rgt grep lab 'CUDA out of memory|Traceback' --context 3",
        "rgt grep lab loss '~/exp/*.log' --max 5",
    )
    fleet = FLEET
    json = flag("print one JSON object per match, and a last one with end")
    timeout = timeout_option(60.0)
    accept_new_host_key = HOST_KEY
    pattern: str = positional("PATTERN", "a regular expression")
    paths: list[str] = positional("PATH", "a file, a directory or a glob on the box", nargs="*")
    max = option("N", parse_count, "stop after N matches (default 100)")
    context = option("N", parse_count, "lines around each match (at most 50)")
    ignore_case = flag("ignore case")


class ManifestArguments(BoxArguments):
    """Arguments of ``rgt manifest``."""

    about = """
    Print the SHA-256 and the path of every file below a directory of a box, as sha256sum does. Hashes are
    cached there: the next run reads only changed files. Links are listed, never followed.
    """
    examples = (
        "rgt manifest lab /workspace/runs > runs.sha256",
        "rgt manifest lab '~/data' --json",
    )
    fleet = FLEET
    json = flag("print one JSON object per file, and a last one with end")
    timeout = timeout_option(3600.0)
    accept_new_host_key = HOST_KEY
    dir: str = positional("DIR", "on the box")
    no_cache = flag("hash everything again")


class MirrorArguments(BoxArguments):
    """Arguments of ``rgt mirror``."""

    about = """
    Copy a directory on a box to another one there, on storage that outlives the box: each file is read back
    and compared before it gets its name. If it is stopped, the next run continues; nothing is deleted there.

    To an object store (s3://bucket/prefix, or another URL of fsspec): the box sends the files if a Python there
    has fsspec's package (s3fs), otherwise they are pulled and sent from here. The price of the traffic is shown
    first. Each object is read back and compared; one with the same content is not sent again. A file that a
    process is still writing is refused. Keys come from the sender's own environment or ~/.aws: rgt copies none.
    """
    examples = (
        "rgt mirror lab /root/autodl-tmp/runs/a /root/autodl-fs/runs/a",
        "rgt mirror lab /workspace/runs s3://my-bucket/runs --dry-run",
        "rgt mirror lab /workspace/runs s3://my-bucket/runs --through laptop",
    )
    dry_run = flag("with a URL: only show what would be sent, and what its traffic costs")
    through = text_option(
        None,
        "with a URL: send from the box, or through this machine (default: the box if it can)",
        choices=("box", "laptop"),
    )
    growing = flag("with a URL: also send files that are being written, as they are now")
    fleet = FLEET
    json = flag("print one JSON object per file, and a last one with end")
    timeout = timeout_option(4 * 3600.0)
    source: str = positional("SRC", "a directory on the box")
    target: str = positional("DST", "target directory on the box, or a URL")


ToolArguments: TypeAlias = (
    GpuHealthArguments | ReapArguments | GrepArguments | ManifestArguments | MirrorArguments
)
