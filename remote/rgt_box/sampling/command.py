"""The ``sample`` verb."""

from __future__ import annotations

import os
import sys

from rgt_box import jsonline, options, place, procstat
from rgt_box.sampling.sampler import DEFAULT_PATTERN, Sampler

HELP = """
usage: sample [--mount DIR ...] [--pattern REGEX] [--gpu-trace FILE]

Take one full sample of this box and print it as a JSON line.

  --mount DIR       also read this mount (may be repeated; / is always read)
  --pattern REGEX   what tells a training process by its command line (default: rgt_train)
  --gpu-trace FILE  replay this recorded trace where there is no GPU
"""


def main(argv: list[str]) -> int:
    """Run the verb; returns the exit status."""
    spec = {"--mount": "list", "--pattern": "str", "--gpu-trace": "str"}
    found = options.parse_or_exit(argv, spec, HELP)
    sampler = Sampler(place.state_dir(), remember=False)
    config = {
        "mounts": found["mount"],
        "pattern": found["pattern"] or DEFAULT_PATTERN,
        "gpu_trace": found["gpu-trace"],
    }
    sampler.configure(config, [])
    fields, _ = sampler.read(wait=3.0)
    frame = dict({"t": "sample", "boot": place.boot_id(), "seq": 0}, **fields)
    frame["agent_rss"] = procstat.resident(os.getpid())
    sys.stdout.buffer.write(jsonline.line(frame))
    sys.stdout.flush()
    for text in sampler.limited:
        print("limited: %s" % text, file=sys.stderr)
    return 0
