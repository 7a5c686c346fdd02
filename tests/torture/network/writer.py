"""Writes numbered lines and points to many pairs of files until its input ends; arguments: LOG=METRICS."""

from __future__ import annotations

import json
import select
import sys

TICK = 0.1


def main(words: list[str]) -> None:
    """Write the same line and point everywhere at each tick."""
    pairs = [word.split("=") for word in words]
    files = [(open(log, "a"), open(metrics, "a")) for log, metrics in pairs]  # noqa: SIM115 (until the end)
    number = 0
    while not select.select([sys.stdin], [], [], TICK)[0]:
        number += 1
        point = json.dumps({"step": number, "time": 1.0, "epoch": 0.0, "loss": number / 2})
        for log, metrics in files:
            log.write(f"line {number}\n")
            log.flush()
            metrics.write(point + "\n")
            metrics.flush()
    print(json.dumps({"last": number}))


if __name__ == "__main__":
    main(sys.argv[1:])
