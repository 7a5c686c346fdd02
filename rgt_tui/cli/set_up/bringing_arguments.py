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
    Push code to a new directory named by its hash, and point a link at it: a run in progress keeps the files
    that it was started with. With --data: copy data to the platform's data directory, each file checked by
    its hash; a file that a process has open is not replaced. An interrupted push continues where it stopped.
    Not pushed as code: .git, caches, .venv, node_modules, wandb, checkpoints, and files named in .gitignore
    and .rgtignore. Keys and tokens are skipped and listed. With --trainer: put rgt_train there as one file.
    """
    examples = (
        "rgt push lab .",
        "rgt push lab ~/exp --exclude 'data/' --fix-crlf",
        "rgt push lab ./imagenet --data",
        "rgt push lab --list",
        "rgt push lab --prune --dry-run",
        "rgt push --trainer lab --json | jq -r .launch",
    )
    # Without any of them: PATH is code.
    one_of = ("data trainer list_only prune",)
    paths: list[str] = positional("PATH", "directory or file here", nargs="*")
    data = flag("it is data: it goes to the platform's data directory")
    trainer = flag("put rgt_train there")
    list_only = flag("list the code versions on the box, and what uses them", "--list")
    prune = flag("remove code versions that no known job or process uses")
    # Absolute, because a relative one would depend on where the box's login shell starts.
    to = text_option("DIR", "use this directory on the box (absolute)")
    name = text_option("NAME", "use this name on the box")
    exclude = list_option("GLOB", "leave out, as in .gitignore; may be repeated")
    # Off by default: pushed code lies on disks that may outlive the box, where others can read it.
    include_secrets = flag("also push files that look like keys or tokens")
    fix_crlf = flag("convert scripts and queue files on the box to Unix line endings")
    replace_newer = flag("with --data: also replace files that are newer on the box")
    # Storage that several machines mount may be in use by one that cannot be seen from here.
    shared = flag("with --prune: no other machine is running these versions")
    dry_run = flag("only show what would be pushed or removed")
    yes = flag("with --prune: do not ask")
    fleet = FLEET
    json = flag("print one JSON object for each PATH")
    timeout = timeout_option(60.0)


class MirrorsArguments(BoxArguments):
    """Arguments of ``rgt mirrors``."""

    about = """
    Show the mirrors (Hugging Face, pip, conda) and the proxy of a box's platform, and whether they are on.
    Jobs always use them, as the platform's profile says. --on also sets them for login shells, in one marked
    block that --off removes. Unknown mirrors are not set.
    """
    examples = ("rgt mirrors lab", "rgt mirrors lab --on", "rgt mirrors lab --off --for proxy")
    one_of = ("on off show",)
    on = flag("for jobs and login shells")
    off = flag("likewise")
    show = flag("only show them (the default)")
    # `for` is a keyword of Python, so the attribute has another name.
    kinds = option("KIND[,…]", words_list, "only these: hf, pip, conda, proxy", "--for")
    fleet = FLEET
    json = flag("print one JSON object: facts, jobs, login, problems")


class SecretArguments(BoxArguments):
    """Arguments of ``rgt secret``."""

    about = """
    Put a key or token on a box. You type it hidden, or pass it on standard input; never on a command line. It
    is written to a file that only you can read, on the machine's own disk: a network file system, or storage
    that outlives the box, is refused, and another path is suggested. With --job, the cells of that job get it
    as an environment variable; with --all-cells, those of every job. --list shows the stored names and the
    keys in the usual places; values are never printed.
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
    job = text_option("J", "set it as a variable for the cells of this job (name or directory)")
    all_cells = flag("set it as a variable for the cells of every job")
    to = text_option("DIR", "use this directory on the box")
    list_only = flag("list stored secrets, and keys that others can read", "--list")
    remove = flag("remove it")
    fleet = FLEET
    json = flag("print one JSON object: put, removed, secrets, found, refused")
