"""Files that keep the shape that a reader expects and hold anything: each is read in bounded memory and time.

A failure names kind and seed: `RGT_FUZZ=KIND:SEED` reads that one file again.
"""

from __future__ import annotations

import json
import os
import random
import re
import resource
import signal
import sqlite3
import struct
import traceback
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
from rgt_box.metrics import (
    BY_KIND,
    SeriesStore,
    SourceSeries,
    identify_kind,
    merge_curves,
    open_reader,
    open_source,
)
from rgt_box.metrics.console_formats import FORMATS
from rgt_box.streams.curve_followers import FoundScalars, ScalarFollower
from rgt_box.streams.log_follower import LogFollower

from tests.unit.metrics import makers

MIB = 1 << 20
DATABASES = tuple(kind for kind, each in BY_KIND.items() if each.is_database)
SEEDS = (0, *(pytest.param(seed, marks=pytest.mark.full) for seed in (1, 2, 3)))
"""Each makes another file of a kind."""
MEMORY = 160 * MIB
"""Address space that a child may take beyond what it inherits."""
SECONDS = 6.0
"""Of processor time per file."""

NUMBERS = (
    "0", "-1", "1", "3.5", "1e17", "1e308", "-1e308", "1e400", "NaN", "Infinity", "-Infinity", "null", "true", '""',
    '"nan"', '"1_0"', '"1,000"', "9223372036854775808", "1795253821902000000", "9" * 390, "[1]", '{"a": {"b": 2}}',
)  # fmt: skip
KEYS = (
    "step", "iter", "iteration", "current_steps", "global_step", "_step", "epoch", "time", "loss", "train/loss", "lr",
    "grad_norm", "val_loss", "eval_loss", "event", "data", "reason", "total_steps", "", "\u202e", "x" * 301,
    "tokens_per_second",
)  # fmt: skip

Make = Callable[[random.Random], bytes]


def rows(rng: random.Random, count: int) -> list[str]:
    found = []
    for _ in range(count):
        keys = rng.sample(KEYS, rng.randint(1, 9)) + ["step"] * rng.randint(0, 1)
        found.append(
            "{" + ", ".join(f"{json.dumps(key)}: {rng.choice(NUMBERS)}" for key in keys) + "}"
        )
    return found


def spoilt(rng: random.Random, data: bytes) -> bytes:
    """Cut, doubled, or with other bytes in it: as a crash, a bad disk or an attacker leaves it."""
    for _ in range(rng.randint(0, 3)):
        at = rng.randrange(len(data) + 1)
        what = rng.randrange(5)
        if what == 0:
            data = data[:at]
        elif what == 1:
            data = data[:at] + rng.randbytes(rng.randint(1, 40)) + data[at:]
        elif what == 2:
            data = data[:at] + bytes(rng.choice((1, 100, 70_000))) + data[at:]
        elif what == 3:
            data = data[:at] + data[at // 2 : at] * rng.randint(1, 3) + data[at:]
        else:
            data = data[:at] + bytes([rng.randrange(256)]) + data[at + 1 :]
    return data[: 3 * MIB]


def json_lines(rng: random.Random) -> bytes:
    lines = rows(rng, rng.choice((3, 300, 3000)))
    extra = rng.randrange(6)
    if extra == 0:
        lines += ['{"event": "resume", "step": 1, "reason": "again"}'] * 20_000
    elif extra == 1:
        lines += ["{" + ", ".join(f'"m{n}": {n}' for n in range(30_000)) + ', "step": 1}'] * 2
    elif extra == 2:
        lines += [f'{{"step": {n % 2}, "loss": 1}}' for n in range(20_000)]
    elif extra == 3:
        lines.insert(0, '{"step": 1, "loss": ' + "[" * 100_000)
    elif extra == 4:
        lines += [f'{{"step": 1, "loss_{n}": 1, "{n}": 2}}' for n in range(9000)]
    return spoilt(rng, ("\n".join(lines) + "\n").encode())


def table(rng: random.Random) -> bytes:
    delimiter = rng.choice(",,\t;")
    names = rng.sample([key for key in KEYS if key], 6) * rng.choice((1, 1, 400))
    lines = [delimiter.join(names)]
    plain = [each.strip('"') for each in NUMBERS]
    for _ in range(rng.choice((5, 500))):
        lines.append(
            delimiter.join(rng.choice(plain) for _ in names[: rng.choice((6, len(names)))])
        )
    if not rng.randrange(3):
        lines += [lines[0]] * 5000
    if not rng.randrange(4):
        lines.append('"' * 50_001)
    return spoilt(rng, ("\n".join(lines) + "\n").encode())


def console(rng: random.Random) -> bytes:
    samples = [each.sample for each in FORMATS]
    lines = []
    for _ in range(rng.choice((10, 2000))):
        line = rng.choice(samples)
        lines.append(
            re.sub(r"\d+(\.\d+)?", lambda _: rng.choice(("7", "1e9", "0.5", "9" * 30, "nan")), line)
        )
    if not rng.randrange(3):
        lines += [f"[rank{n}]: " + rng.choice(samples) for n in range(3000)]
    if not rng.randrange(3):
        lines += [
            "loss: 1 " * 9000,
            "\x1b[" * 9000,
            "(" * 9000,
            "1" * 9000 + ":",
            "a=1," * 3000,
            " " * 9000,
        ]
    rng.shuffle(lines)
    return spoilt(rng, rng.choice(("\n", "\r", "\r\n")).join(lines).encode() + b"\n")


def trainer_state(rng: random.Random) -> bytes:
    blank = rng.choice((" ", " " * 5000, "\n" * 70_000))
    text = (
        '{"best": null, "log_history": ['
        + ("," + blank).join(rows(rng, rng.choice((3, 2000))))
        + "]}"
    )
    return spoilt(rng, text.encode())


def event_file(rng: random.Random) -> bytes:
    def values() -> list[bytes]:
        tags = [rng.choice(KEYS) for _ in range(rng.choice((1, 5, 900)))]
        return [
            makers.simple(tag, rng.choice((0.0, 1.0, float("nan"), float("inf")))) for tag in tags
        ]

    steps = (0, 1, 2, -1, 1 << 62, 10**17)
    records = []
    for _ in range(rng.choice((3, 60))):
        kind = rng.randrange(4)
        if kind == 0:
            records.append(makers.tfrecord(rng.randbytes(rng.randint(0, 50))))
        elif kind == 1:  # the session begins again
            records.append(
                makers.tfrecord(makers.number(2, rng.choice(steps)) + makers.blob(7, b"\x08\x01"))
            )
        else:
            records.append(makers.tfrecord(makers.event(rng.choice(steps), *values())))
    return spoilt(rng, b"".join(records))


def wandb(rng: random.Random) -> bytes:
    records = []
    for _ in range(rng.choice((3, 200))):
        row = {
            rng.choice(KEYS): rng.choice((0, 1.5, "NaN", {"a": {"b": 1}}, "x" * 9000, 1e17))
            for _ in range(6)
        }
        records.append(makers.history(row))
    data = makers.wandb_file(records)
    if not rng.randrange(2):  # a record of chunks without content, which never ends
        first, middle = (struct.pack("<IHB", zlib.crc32(bytes([kind])), 0, kind) for kind in (2, 3))
        data += bytes(-len(data) % 32768)
        block = middle * (32768 // 7)
        data += first + block[7:] + bytes(32768 - len(block))
        data += (block + bytes(32768 - len(block))) * 150
    return spoilt(rng, data)


def metric_file(rng: random.Random) -> bytes:
    words = [each.strip('"') for each in NUMBERS if " " not in each]
    lines = [
        " ".join(rng.choice(words) for _ in range(rng.randint(1, 5)))
        for _ in range(rng.choice((5, 3000)))
    ]
    return spoilt(rng, ("1795253821909 1.0 1\n" + "\n".join(lines) + "\n").encode())


SCHEMAS = {
    "trackio": "CREATE TABLE metrics (id INTEGER PRIMARY KEY, timestamp, run_name, step, metrics)",
    "mlflow": "CREATE TABLE metrics (key, value, timestamp, run_uuid, step, is_nan)",
    "aitoolkit": "CREATE TABLE steps (step, wall_time); CREATE TABLE metrics (step, key, value_real, value_text)",
}


def database(kind: str) -> Make:
    def build(rng: random.Random) -> bytes:
        db = sqlite3.connect(":memory:", isolation_level=None)
        db.executescript("BEGIN;" + SCHEMAS[kind])
        values = (
            None,
            0,
            1,
            -1,
            1 << 62,
            1.5,
            float("inf"),
            "",
            "x" * 2000,
            b"\0\xff",
            *NUMBERS,
            *rows(rng, 20),
        )
        for name in re.findall(r"TABLE (\w+)", SCHEMAS[kind]):
            columns = [row[1] for row in db.execute(f"PRAGMA table_info({name})") if row[1] != "id"]
            for step in range(rng.choice((5, 1500))):
                row = [
                    step if column == "step" and rng.randrange(3) else rng.choice(values)
                    for column in columns
                ]
                marks = ", ".join("?" for _ in columns)
                db.execute(f"INSERT INTO {name} ({', '.join(columns)}) VALUES ({marks})", row)
        db.execute("COMMIT")
        data = bytes(db.serialize())
        db.close()
        return spoilt(rng, data)

    return build


def json_document(rng: random.Random) -> bytes:
    """Return a list of rows, rows by their number, or names with a list of values each."""
    objects = rows(rng, rng.choice((3, 2000)))
    numbers = ("1", "2", "9" * 30, "²", "-1", "x")
    text = rng.choice(
        (
            "[" + ",".join(objects) + "]",
            '{"args": 1, "history": [' + ",".join(objects) + "]}",
            "{" + ",".join(f'"{rng.choice(numbers)}": {row}' for row in objects) + "}",
            "{"
            + ",".join(
                f'"{rng.choice(KEYS)}": [{",".join(rng.choices(NUMBERS, k=rng.choice((2, 900))))}]'
                for _ in range(8)
            )
            + "}",
        )
    )
    return spoilt(rng, text.encode())


def number_rows(rng: random.Random) -> bytes:
    words = [each.strip('"') for each in NUMBERS]
    width = rng.choice((1, 3, 900))
    lines = [rng.choice(",; \t").join(rng.choices(words, k=width)) for _ in range(200)]
    return spoilt(rng, "\n".join(lines).encode() + b"\n")


FAMILIES: dict[str, Make] = {
    **dict.fromkeys(("rgt", "jsonl", "llamafactory", "mmengine", "detectron2", "verl"), json_lines),
    **dict.fromkeys(("csv", "lightning", "ultralytics", "keras", "deepspeed", "optuna"), table),
    "torchtune": console,
    "yolo": number_rows,
    "console": console,
    "tensorboard": event_file,
    "tensorboard_dir": event_file,
    "hf_trainer": trainer_state,
    "json": json_document,
    "numbers": number_rows,
    "wandb": wandb,
    "mlflow_files": metric_file,
    **{kind: database(kind) for kind in DATABASES},
}


class Slow(BaseException):
    """The time is up; no reader may catch it."""


def ring(*_: object) -> None:
    raise Slow


def read(kind: str, path: Path) -> None:
    """Read a file as the agent does: to its end, from its cursors, merged."""
    place = path.parent if kind == "tensorboard_dir" else path
    reader = open_reader(kind, str(place)) if kind in DATABASES else open_source(kind, str(place))
    store, cursor = SeriesStore(), None
    for _ in range(400):
        batch = reader.read(cursor)
        for problem in batch.problems:
            # The last line of defence has caught what the reader should have said in words.
            caught = re.match(r"(\w+Error|Exception): ", problem.reason)
            assert not caught or kind in DATABASES, problem.reason
        store.apply_batch(batch)
        moved = json.dumps(batch.cursor) != json.dumps(cursor)
        assert not batch.more or moved or batch.points, (
            "it says that there is more, and does not go on"
        )
        cursor = json.loads(json.dumps(batch.cursor))
        if not batch.more:
            break
    else:
        raise AssertionError("it does not come to an end")
    curves = merge_curves([SourceSeries(str(path), kind, "", BY_KIND[kind].rank, store.series, "")])
    for curve in curves.values():
        curve.list_points()
    identify_kind(
        str(path),
        tuple(
            each
            for each in BY_KIND
            if each in FAMILIES and each not in DATABASES and each != "tensorboard_dir"
        ),
    )


def streams(kind: str, path: Path) -> None:
    """Follow it as a log, as metrics of ours, and as whatever it is found to be."""
    follower = LogFollower(str(path), (path.stat().st_ino, 0), 10)
    while follower.poll_frame():
        pass
    follower.close()
    own = ScalarFollower("r", str(path), None)
    while own.poll()[0]:
        pass
    if kind not in DATABASES:
        scalars = FoundScalars("r", str(path.parent), str(path), {})
        for _ in range(3):
            json.dumps(scalars.poll(), allow_nan=False)
            scalars._scanned = float("-inf")


def in_child(kind: str, seed: int, folder: Path) -> str:
    """Read one file in a child of little memory; returns what went wrong, "" when nothing did."""
    reader, writer = os.pipe()
    pid = os.fork()
    if not pid:
        status = 1
        try:
            os.close(reader)
            rng = random.Random(f"{kind}:{seed}")
            data = FAMILIES[kind](rng)
            path = (
                folder / "events.out.tfevents.1.a"
                if kind.startswith("tensorboard")
                else folder / "metrics.jsonl"
            )
            path.write_bytes(data)
            most = (
                int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
                + MEMORY
            )
            resource.setrlimit(resource.RLIMIT_AS, (most, most))
            signal.signal(signal.SIGPROF, ring)
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(120)
            for look in (read, streams):
                signal.setitimer(signal.ITIMER_PROF, SECONDS)
                look(kind, path)
            signal.setitimer(signal.ITIMER_PROF, 0)
            status = 0
        except BaseException as error:
            lines = traceback.format_exception(error)
            os.write(writer, "".join(lines).encode("utf-8", "replace")[-3000:])
        finally:
            os._exit(status)
    os.close(writer)
    with open(reader, "rb") as pipe:
        text = pipe.read()
    _, status = os.waitpid(pid, 0)
    return "" if status == 0 else f"{text.decode('utf-8', 'replace')} (status {status})"


def test_every_kind_is_in_the_fuzz() -> None:
    assert set(FAMILIES) == set(BY_KIND)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("kind", FAMILIES)
def test_whatever_stands_in_a_file(kind: str, seed: int, tmp_path: Path) -> None:
    only = os.environ.get("RGT_FUZZ", "").partition(":")
    seed = int(only[2]) if only[0] == kind else seed
    wrong = in_child(kind, seed, tmp_path)
    assert not wrong, f"RGT_FUZZ={kind}:{seed}: {wrong}"


def test_the_fuzz_sees_what_is_slow_large_or_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def hog(kind: str, path: Path) -> None:
        assert len(bytes(400 * MIB))

    def spin(kind: str, path: Path) -> None:
        while True:
            pass

    for broken, word, limit in ((hog, "MemoryError", SECONDS), (spin, "Slow", 0.2)):
        monkeypatch.setitem(globals(), "streams", broken)
        monkeypatch.setitem(globals(), "SECONDS", limit)
        assert word in in_child("csv", 0, tmp_path)
