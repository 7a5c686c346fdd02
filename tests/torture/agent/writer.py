"""Writes numbered lines, points and cell states until its parent ends it: LOG METRICS STATE."""

from __future__ import annotations

import json
import os
import signal
import sys

ROTATE = 3000
TICK = 0.004


def main(log: str, metrics: str, state: str) -> None:
    """Write a few lines per tick, some of them in two pieces; rotate the log now and then."""
    stop = {signal.SIGTERM}
    signal.pthread_sigmask(signal.SIG_BLOCK, stop)
    number = attempt = 0
    lines = open(log, "w")  # noqa: SIM115 (rotated below)
    points = open(metrics, "w")  # noqa: SIM115
    while signal.sigtimedwait(stop, TICK) is None:
        for _ in range(1 + number * 7 % 3):
            number += 1
            text = f"line {number}\n"
            for piece in (text[:4], text[4:]) if number % 5 == 0 else (text,):
                lines.write(piece)
                lines.flush()
            points.write(
                json.dumps({"step": number, "time": 1.0, "epoch": 0.0, "loss": number / 2}) + "\n"
            )
            points.flush()
            if number % ROTATE == 0:
                lines.close()
                os.rename(log, f"{log}.{number}")
                lines = open(log, "w")  # noqa: SIM115
        if number // 100 > attempt:
            attempt = number // 100
            cell = {"name": "a", "state": "running", "attempts": attempt, "started": float(attempt)}
            with open(state + ".new", "w") as file:
                json.dump({"cells": [cell]}, file)
            os.rename(state + ".new", state)
    lines.close()
    points.close()
    print(number)


if __name__ == "__main__":
    main(*sys.argv[1:])
