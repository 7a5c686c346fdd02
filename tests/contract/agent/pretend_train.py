"""A training without the training: writes metrics and prints lines until it is ended. Standard library only.

--to FILE       jsonl, csv or a TensorBoard event file, by its name; nothing without it
--output_dir D  the same as a jsonl file below D
--first_step N       the first step
--stop N        end with status 3 after so many steps
--until FILE    but not before this file is there
--scale X       multiplies the losses
--ranks N       start main.py so many times, as torchrun does, and wait; only the first writes metrics
--workers N     fork so many loaders
--closing       open the file anew for every step
"""

from __future__ import annotations

import argparse
import json
import os
import struct
import subprocess
import sys
import time
from collections.abc import Callable


def crc(data: bytes) -> bytes:
    value = 0xFFFFFFFF
    for byte in data:
        value ^= byte
        for _ in range(8):
            value = (value >> 1) ^ (0x82F63B78 if value & 1 else 0)
    value ^= 0xFFFFFFFF
    return struct.pack("<I", ((value >> 15 | value << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def record(data: bytes) -> bytes:
    head = struct.pack("<Q", len(data))
    return head + crc(head) + data + crc(data)


def blob(number: int, data: bytes) -> bytes:
    return bytes([number << 3 | 2, len(data)]) + data


def varint(value: int) -> bytes:
    out = b""
    while value > 0x7F:
        out += bytes([value & 0x7F | 0x80])
        value >>= 7
    return out + bytes([value])


def event(step: int, loss: float) -> bytes:
    value = blob(1, b"train/loss") + b"\x15" + struct.pack("<f", loss)
    return record(
        b"\x09" + struct.pack("<d", time.time()) + b"\x10" + varint(step) + blob(5, blob(1, value))
    )


def csv(step: int, loss: float) -> bytes:
    return f"{step // 100},{step},{loss:.6f}\n".encode()


def jsonl(step: int, loss: float) -> bytes:
    return json.dumps({"step": step, "loss": loss, "lr": 0.001}).encode() + b"\n"


def form(path: str) -> tuple[bytes, Callable[[int, float], bytes]]:
    """Return what a file of metrics begins with, and how a step is written."""
    if "tfevents" in path:
        return record(b"\x09" + struct.pack("<d", time.time()) + blob(3, b"brain.Event:2")), event
    return (b"epoch,step,train_loss\n", csv) if path.endswith(".csv") else (b"", jsonl)


def start_ranks(count: int) -> None:
    words = [sys.executable, "-u", "main.py", *sys.argv[1:], "--ranks", "0"]
    ranks = [subprocess.Popen([*words, *(["--to", ""] if n else [])]) for n in range(count)]
    for rank in ranks:
        rank.wait()
    sys.exit(0)


def main() -> None:
    parser = argparse.ArgumentParser()
    for option in ("--to", "--output_dir", "--until"):
        parser.add_argument(option, default="")
    for option in ("--ranks", "--workers", "--stop"):
        parser.add_argument(option, type=int, default=0)
    parser.add_argument("--first_step", type=int, default=1)
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--closing", action="store_true")
    args, _ = parser.parse_known_args()
    if args.ranks:
        start_ranks(args.ranks)
    for _ in range(args.workers):
        if not os.fork():
            time.sleep(100000)
    path = os.path.join(args.output_dir, "history.jsonl") if args.output_dir else args.to
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    file = open(path or os.devnull, "ab", buffering=0)  # noqa: SIM115
    head, row = form(path)
    if path and not os.path.getsize(path):
        file.write(head)
    step = args.first_step
    while not args.stop or step < args.first_step + args.stop:
        loss = args.scale * (1.0 + 4.0 / step)
        if file.closed:
            file = open(path, "ab", buffering=0)  # noqa: SIM115
        file.write(row(step, loss))
        if args.closing:
            file.close()
        print(f"step {step} | loss {loss:.4f} | lr 1.0e-03", flush=True)
        step += 1
        time.sleep(0.05)
    while args.until and not os.path.exists(args.until):
        time.sleep(0.05)
    sys.exit(3)


main()
