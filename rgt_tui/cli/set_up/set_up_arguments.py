"""Arguments of the commands that set things up: options, help and examples."""

from __future__ import annotations

from rgt_tui.cli.arguments import (
    FLEET,
    Arguments,
    BoxArguments,
    BoxesArguments,
    FleetArguments,
    flag,
    list_option,
    option,
    parse_duration,
    parse_port,
    positional,
    provider_kinds,
    text_option,
    timeout_option,
    words_list,
)

SHELLS = ("bash", "zsh", "fish")


class DemoArguments(Arguments):
    """Arguments of ``rgt demo``."""

    about = """
    Open the dashboard on three sandboxed boxes that really train on this machine. If that cannot run here, it
    plays a recorded run, marked REPLAY, and lists what the real one needs.
    """
    examples = (
        "rgt demo",
        "rgt demo --headless --for 45 --json",
        "rgt demo --headless --until story",
        "rgt demo --fleet-only --write-fleet demo.toml",
    )
    headless = flag("no screen: progress on stderr")
    seconds = option("TIME", parse_duration, "stop after this time: 45s, 30m", "--for")
    until = text_option(
        None,
        "stop when all three stories have happened; or: one box trains, its results are pulled "
        "and it is destroyed; or: a box parks itself while rgt is not connected",
        choices=["story", "teardown", "autostop"],
    )
    json = flag("print one JSON object on the last line")
    port_base = option("PORT", parse_port, "first SSH port (default: any free)")
    follow_advice = flag(
        "remove the files that fill the disk once rgt has reported it (default: you do it)"
    )
    fleet_only = flag("run the boxes alone, for another rgt to watch")
    write_fleet = text_option("FILE", "with --fleet-only: write the fleet file there")


class InitArguments(FleetArguments):
    """Arguments of ``rgt init``."""

    about = (
        "Write a starter fleet file with comments that explain every key. An existing file is "
        "never overwritten."
    )
    examples = ("rgt init", "rgt init --path ~/.config/rgt/fleet.toml")
    path = text_option("FILE", "where to write it (default: --fleet or RGT_FLEET, else ./rgt.toml)")
    fleet = FLEET
    json = flag("print one JSON object: the path")


def complete_profiles(**_: object) -> list[str]:
    """Return the ids of all profiles for shell completion."""
    from rgt_tui.profiles import all_profiles

    return list(all_profiles())


def _parse_port(text: str) -> int:
    return parse_port(text, 1, 65535)


class AddArguments(FleetArguments):
    """Arguments of ``rgt add``."""

    about = """
    Add a box to the fleet file; everything else in it is kept, comments included. HOST is a host
    name, an alias in ssh_config, USER@HOST, or, in quotes, the whole ssh command that a rental gives you.
    """
    examples = (
        "rgt add lab lab-a100",
        'rgt add vast "ssh -p 40022 root@1.2.3.4 -L 8080:localhost:8080" --profile vastai',
        "rgt add seeta \"ssh -p 12345 root@connect.westb.seetacloud.com\" --log '~/exp/*.log'",
    )
    name: str = positional("NAME", "name of the box in the fleet file")
    target: str = positional("HOST", "a host, or an ssh command in quotes")
    profile = text_option(
        "P", "platform (default: recognised by the host name)", complete=complete_profiles
    )
    port = option("N", _parse_port, "port", "-p", "--port")
    user = text_option(None, "user name for the login")
    identity = text_option("FILE", "private key file", "-i", "--identity")
    logs = list_option("GLOB", "a log on the box to follow", "--log")
    jobs = list_option("DIR", "a job directory on the box", "--job")
    runs = list_option("DIR", "a run directory on the box", "--run")
    json = flag("print one JSON object per box: its keys, and the file")


class ImportArguments(FleetArguments):
    """Arguments of ``rgt import``."""

    about = """
    List the hosts that ssh_config names (Include is followed, wildcards are not hosts) as boxes; with
    --write, add them to the fleet file. A box names its alias only: port, user, keys and jump hosts stay in
    ssh_config. With --from: the machines of these providers' accounts that are not in the fleet file yet,
    with their cost; for the accounts in the fleet file, else the account of your usual key.
    """
    examples = (
        "rgt import",
        "rgt import 'gpu-*' lab --write",
        "rgt import --config work.conf --write",
        "rgt import --from runpod --write",
    )
    patterns: list[str] = positional(
        "PATTERN", "only these hosts, or names or ids of machines; globs (default: all)", nargs="*"
    )
    sources = option(
        "PROVIDER[,…]",
        words_list,
        "machines of these providers, not hosts of ssh_config",
        "--from",
        complete=provider_kinds,
    )
    config = text_option(
        "FILE", "read this ssh_config file instead of ~/.ssh/config and the system's"
    )
    write = flag("write them (default: only show them)")
    json = flag("print one JSON object per box: its keys, and the file")


class TrustArguments(FleetArguments):
    """Arguments of ``rgt trust``."""

    about = """
    Show a fleet file in the working tree, or its changes since you trusted it, and ask whether rgt may use
    all of it: run the programs, send the keys and read the files that it names. Until then, rgt uses only the
    names and hosts of its boxes. Trust applies to this path with exactly the content shown.
    """
    examples = (
        "rgt trust",
        "rgt trust ~/exp/rgt.toml --yes",
        "rgt trust --list",
        "rgt trust --revoke",
    )
    one_of = ("yes list_only revoke",)
    file: str | None = positional("FILE", "the fleet file (default: the one rgt finds)", nargs="?")
    yes = flag("trust it without asking")
    list_only = flag("list trusted fleet files", "--list")
    revoke = flag("stop trusting it")
    json = flag("print JSON objects: path, trusted, since, why")


class DoctorArguments(BoxesArguments):
    """Arguments of ``rgt doctor``."""

    about = """
    Check this machine, the fleet file and each box, from its name to its GPUs, and say what to do. The boxes
    are checked in parallel: one that hangs does not delay the others. The ids of the checks do not change
    between versions. On a terminal, it shows an unknown host key and asks.
    """
    examples = (
        "rgt doctor",
        'rgt doctor lab --json | jq -r \'select(.status == "fail") | .id + ": " + .advice\'',
        "rgt doctor vastai --record vastai.json",
    )
    record = text_option(
        "FILE",
        "instead of checking, record a provider's answers (vastai, runpod, …, or the provider of "
        "a box) to reads of your account, for a bug report; ids, names, addresses and keys are "
        "replaced",
    )
    fleet = FLEET
    json = flag("print one JSON object per check")
    timeout = timeout_option(60.0)


class RemoveArguments(BoxArguments):
    """Arguments of ``rgt remove``."""

    about = """
    Stop rgt's recorder on a box, and remove its history and the files of agent and trainer there. Jobs,
    results and checkpoints are not touched. Nothing is removed while a queue runs or waits there, or another
    rgt is connected. Files that a process, a Slurm job or a Pod uses, or might use, are kept. The machine is
    neither stopped nor destroyed, and is still billed.
    """
    examples = (
        "rgt remove lab --dry-run",
        "rgt remove lab --yes --forget",
        "rgt remove lab --old      only agents that no process, job or Pod uses any more",
        "rgt remove lab --only-forget",
    )
    one_of = ("old forget only_forget",)
    dry_run = flag("only show what would be removed")
    yes = flag("do not ask")
    old = flag("only agents of other versions of rgt")
    forget = flag("also remove the box from the fleet file")
    only_forget = flag(
        "only remove it from the fleet file, without connecting: the machine no longer exists"
    )
    fleet = FLEET
    json = flag("print one JSON object: box, dry_run, refused, failed, bytes, things, forgotten")
    timeout = timeout_option(60.0)


class CompletionArguments(Arguments):
    """Arguments of ``rgt completion``."""

    about = """
    Print the script that makes a shell complete commands, options and box names (it asks rgt itself at
    every TAB, so it is never out of date). Paths on a box are not completed.
    """
    examples = (
        'eval "$(rgt completion bash)"                        in ~/.bashrc',
        'eval "$(rgt completion zsh)"                         in ~/.zshrc, after compinit',
        "rgt completion fish > ~/.config/fish/completions/rgt.fish",
    )
    shell: str = positional(None, "which shell", choices=SHELLS)


class AgentArguments(Arguments):
    """Arguments of ``rgt agent``."""

    about = "The program that rgt puts on a box."
    examples = ("rgt agent build --out rgt-box.pyz",)
    subcommand = "build"
    subcommand_brief = "write the agent's zipapp"
    out = option("FILE", str, "where to write it", default="", required=True)
