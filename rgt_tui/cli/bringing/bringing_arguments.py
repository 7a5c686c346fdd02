"""Arguments of the commands that bring something to a box: options, help and examples."""

from __future__ import annotations

from rgt_tui.cli.arguments import (
    FLEET,
    BoxArguments,
    flag,
    list_option,
    option,
    positional,
    text_option,
    timeout_option,
    words_list,
)


class PushArguments(BoxArguments):
    """Arguments of ``rgt push``."""

    about = """
    Push code to a directory of its own, named by its hash, and point a link at it: a run in progress
    keeps the files that it was started with. With --data: put data where the platform keeps it, file by
    file, each checked by its hash; what a process has open is not replaced. An interrupted push continues
    where it stopped. Left out of code: .git, caches, .venv, node_modules, wandb, checkpoints, and what
    .gitignore and .rgtignore name. Keys and tokens are left out and named. With --trainer: put rgt_train
    there as one file.
    """
    examples = (
        "rgt push lab .",
        "rgt push lab ~/exp --exclude 'data/' --fix-crlf",
        "rgt push lab ./imagenet --data",
        "rgt push lab --list",
        "rgt push lab --prune --dry-run",
        "rgt push --trainer lab --json | jq -r .launch",
    )
    one_of = ("data trainer list_only prune",)
    paths: list[str] = positional("PATH", "directory or file here", nargs="*")
    data = flag("it is data: it goes to the platform's data directory")
    trainer = flag("put rgt_train there")
    list_only = flag("list the versions of code there, and who uses them", "--list")
    prune = flag("remove versions that nothing is known to use")
    to = text_option("DIR", "another directory on the box (absolute)")
    name = text_option("NAME", "another name there")
    exclude = list_option("GLOB", "leave out, as in .gitignore; may be repeated")
    include_secrets = flag("push what looks like a key or a token, too")
    fix_crlf = flag("give scripts and queue files the line ends of Unix on the box")
    replace_newer = flag("with --data: replace files that are newer on the box, too")
    shared = flag("with --prune: nobody on another machine is running what is there")
    dry_run = flag("only say what would be pushed, or removed")
    yes = flag("with --prune: do not ask")
    fleet = FLEET
    json = flag("print one JSON object for each PATH")
    timeout = timeout_option(60.0)


class MirrorsArguments(BoxArguments):
    """Arguments of ``rgt mirrors``."""

    about = """
    Show which mirrors (Hugging Face, pip, conda) and what proxy the platform of a box has, and whether
    they are on there. Cells of jobs get them anyway, as the platform's profile says; --on sets them for
    login shells, too, by one marked block that --off removes without a trace. Nothing is set where no fact
    is known.
    """
    examples = ("rgt mirrors lab", "rgt mirrors lab --on", "rgt mirrors lab --off --for proxy")
    one_of = ("on off show",)
    on = flag("for jobs and login shells")
    off = flag("likewise")
    show = flag("only show (the default)")
    kinds = option("KIND[,…]", words_list, "only these: hf, pip, conda, proxy", "--for")
    fleet = FLEET
    json = flag("print one JSON object: facts, jobs, login, problems")


class SecretArguments(BoxArguments):
    """Arguments of ``rgt secret``."""

    about = """
    Put a key or token on a box: typed without an echo, or read from standard input; never on a command
    line. It is kept in a file that you alone can read, on storage of that machine alone: a network file
    system or storage that outlives the box is refused, and another place is named. With --job, the cells of
    that job get it as a variable, with --all-cells those of every job. --list shows what is kept, and keys in
    the usual places; no value is ever printed.
    """
    examples = (
        "rgt secret lab HF_TOKEN",
        "pass wandb | rgt secret lab WANDB_API_KEY --job sweep",
        "pass hf | rgt secret lab HF_TOKEN --all-cells",
        "rgt secret lab --list",
        "rgt secret lab HF_TOKEN --remove",
    )
    one_of = (
        "job all_cells",
        "list_only remove",
    )
    name: str | None = positional("NAME", "name of the variable", nargs="?")
    job = text_option("J", "a variable of the cells of this job: its name, or directory")
    all_cells = flag("a variable of the cells of every job there")
    to = text_option("DIR", "another directory on the box")
    list_only = flag("list what is kept there, and keys that lie open", "--list")
    remove = flag("remove it")
    fleet = FLEET
    json = flag("print one JSON object: put, removed, secrets, found, refused")
