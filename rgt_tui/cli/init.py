"""``rgt init``: begin a fleet file."""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path

from rgt_tui.cli.adding import keep_trust
from rgt_tui.cli.commands import FAILED, OK
from rgt_tui.cli.opening import rgt_with
from rgt_tui.cli.printing import complain
from rgt_tui.fleet.config.find import NAME, VARIABLE
from rgt_tui.fleet.config.load import Source
from rgt_tui.fleet.config.write import write_atomically

TEMPLATE = """\
# The boxes that rgt watches. docs/fleet-file.md describes every key; `rgt doctor` checks this file and the boxes.
# Add one:  rgt add NAME HOST       or:  rgt add NAME "ssh -p 40022 root@1.2.3.4"
# Or all hosts of ssh_config:  rgt import --write

# [defaults]                 # for every box that does not say it itself
# identity = "~/.ssh/id_ed25519"
# profile = "autodl"         # autodl, runpod, vastai or generic-ssh

# [boxes.lab]
# host = "lab-a100"          # an alias of ssh_config or a host name; user, port and identity are optional
# logs = ["~/exp/*.log"]     # ~ is the home directory on the box
# jobs = ["~/jobs/sweep"]    # queues of docs/jobs.md
# per_hour = 1.89            # what an hour costs, where no provider can be asked
# currency = "USD"

# [boxes.lab.provider]       # who bills it, and stops it
# kind = "runpod"
# instance = "k3v9q0x1fake01"
# key_env = "RUNPOD_API_KEY" # the name of a variable: a key itself does not belong in here

# [alerts.idle-gpu]          # docs/alerts.md lists the kinds and their limits
# hold_s = 1800

# [[sinks]]                  # where alerts go beside the screen
# kind = "ntfy"
# url_env = "RGT_NTFY_URL"
"""


def run_init(arguments: argparse.Namespace) -> int:
    """Write the file; return the exit code."""
    path = Path(arguments.path or arguments.fleet or os.environ.get(VARIABLE) or NAME).expanduser()
    try:
        write_atomically(path, TEMPLATE, exclusive=True)
    except FileExistsError:
        complain(f"{path} is there already and is left as it is; edit it, or use `rgt add NAME HOST`")
        return FAILED
    except OSError as error:
        complain(f"cannot write {path}: {error.strerror}")
        return FAILED
    doubt = keep_trust(None, Source(path, path.resolve(), TEMPLATE.encode()))
    if doubt is not None:
        complain(doubt)
    if arguments.json:
        sys.stdout.write(json.dumps({"path": str(path)}) + "\n")
    else:
        rgt = rgt_with(arguments.path or arguments.fleet)
        sys.stdout.write(f"{path}: written\nnext: {rgt} add NAME HOST, or {rgt} import\n")
    return OK
