"""Turns the output of the shell probe into a sample. Pure; missing values stay unknown.

Training processes are recognised by their command lines alone, whereas the agent uses much more
(files, GPUs, the process tree). Missed processes are reported as unknown, never as idle, so a short
list of names suffices.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence

import msgspec

from rgt_tui.model import (
    DEFAULT_PATTERN,
    CpuReading,
    DetachedSessions,
    DiskReading,
    FrozenStruct,
    GpuReading,
    MemoryReading,
    Sample,
    TrainingProcess,
)

COARSE = (
    "python|pypy|torchrun|accelerate|deepspeed|axolotl|autotrain|composer|horovodrun|litgpt|llamafactory|nnUNet|"
    "swift|trl|tune|xtuner|yolo|train"
)
"""A command line must match this (``grep -E``) to be sent at all."""
NO_PROC = "cannot see processes: /proc is not readable from a shell on this box"
HIDDEN = "cannot see processes of other users (/proc is mounted with hidepid)"
BY_NAME = (
    "cannot see for certain which processes train: without the agent, only command lines "
    "are visible"
)

_PYTHON = re.compile(r"i?python[\d.]*t?|pypy[\d.]*")
_WRAPPER = re.compile(
    r"(?:ba|da|k|z|a|fi)?sh|env|nohup|nice|setsid|time|timeout|tmux.*|screen|SCREEN|ssh|sshd.*|sudo"
    r"|su|srun|sbatch|"
    r"salloc|tail|less|vim?|nano|grep|cat|tee|watch|docker|kubectl"
)
_STARTER = re.compile(
    r"torchrun|accelerate|deepspeed|axolotl|autotrain|composer|horovodrun|litgpt|llamafactory-cli"
    r"|nnUNetv2_train|"
    r"swift|trl|tune|xtuner|yolo"
)
_TRAINS = re.compile(
    r"(?:^|[^a-z])(?:pre|re)?-?_?train|fine_?-?tun|(?:^|[^a-z])(?:sft|dpo|grpo|ppo|lora|qlora"
    r"|dreambooth|distill)"
    r"(?:[^a-z]|$)|torch\.distributed|nanogpt",
    re.IGNORECASE,
)
_SUBCOMMAND = frozenset(("train", "fit", "pretrain", "finetune", "--do_train", "--do-train"))
_NEVER = re.compile(r"(?:^|/)(?:tensorboard|jupyter|ipykernel|rgt-box)")
_VALUED = frozenset("WX")


def program_pattern(pattern: str) -> str:
    """Return the ``grep -E`` expression with which the box selects command lines."""
    # A custom pattern is a Python regex: the box sends every command line, and it is applied here.
    if pattern == DEFAULT_PATTERN:
        return COARSE
    return "."


def processes(
    said: dict[str, list[str]], pattern: str, at: float
) -> tuple[tuple[TrainingProcess, ...], str]:
    """Return the training processes, and why others may be missing.

    Args:
        said: The probe's lines by their first word: ``pt``, and ``p`` per process.
        pattern: As in `WatchConfig`.
        at: Time of the reading, by the box's clock.
    """
    head = said.get("pt", [""])[0].split()
    numbers = [int(word) if word.isascii() and word.isdecimal() else 0 for word in head[:3]]
    if len(numbers) < 3 or not all(numbers):
        return (), NO_PROC
    boot, ticks, page = numbers
    if pattern == DEFAULT_PATTERN:
        own = None
    else:
        own = re.compile(pattern)
    found: dict[int, tuple[int, str, TrainingProcess]] = {}
    for row in said.get("p", []):
        words = row.split(" ", 6)
        if len(words) < 7 or not all(
            word.isascii() and word.isdecimal() for word in (*words[:2], *words[3:6])
        ):
            continue
        pid, parent, start, threads, pages = (int(words[place]) for place in (0, 1, 3, 4, 5))
        command = words[6].split()
        # The first row has the program; further ones are only text of an argument.
        if pid in found or not _is_training(command, own):
            continue  # a command line of several lines arrives as several rows
        started = boot + start / ticks
        proc = TrainingProcess(
            pid=pid,
            started=round(started, 2),
            cmd=shortened_command(command),
            rss=pages * page,
            threads=threads,
            state=words[2][:1] or None,
            age_s=round(max(0.0, at - started), 1),
        )
        found[pid] = (parent, words[6], proc)
    # A loader worker is forked without exec, so its command line equals its parent's.
    rows = [
        proc
        for parent, text, proc in found.values()
        if parent not in found or found[parent][1] != text
    ]
    most_limit = 32
    return tuple(rows[:most_limit]), HIDDEN if "hidden" in head[3:] else BY_NAME


def _is_training(words: Sequence[str], own: re.Pattern[str] | None) -> bool:
    if not words:
        return False
    program = words[0].rpartition("/")[2].lstrip("-").rstrip(":")
    # Before a custom pattern: the wrapper's command line contains that of its training.
    if _WRAPPER.fullmatch(program) or any(_NEVER.search(word) for word in words[:5]):
        return False
    if own is not None:
        return own.search(" ".join(words)) is not None
    if _STARTER.fullmatch(program):
        return True
    if not _PYTHON.fullmatch(program):
        return _TRAINS.search(program) is not None
    rest = words[_script_index(words) :]
    name = ""
    if rest:
        # The script's name alone: its directory, e.g. /data/train, says nothing.
        name = rest[0].rpartition("/")[2].removesuffix(".py")
    return bool(_TRAINS.search(name) or _STARTER.fullmatch(name)) or not _SUBCOMMAND.isdisjoint(
        rest[1:5]
    )


def shortened_command(words: Sequence[str]) -> str:
    """Return a command line up to its script: later arguments may contain a secret."""
    if _PYTHON.fullmatch(words[0].rpartition("/")[2]):
        end = _script_index(words) + 1
    else:
        end = 1
    text = " ".join(words[:end])
    longest = 300
    return text[:longest] + (" …" if len(words) > end else "")


def _script_index(words: Sequence[str]) -> int:
    """Return the index of the script or module after ``python``.

    The last index without one.
    """
    return next(_script_indices(words), len(words) - 1)


def _script_indices(words: Sequence[str]) -> Iterator[int]:
    skip = False
    for place, word in enumerate(words[1:], 1):
        if skip:
            skip = False
        elif not word.startswith("-"):
            yield place
        elif word[-1:] in _VALUED and not word.startswith("--"):
            skip = True


MARK = "RGT "
NO_LIMIT = 1 << 60
"""Version 1 of cgroups writes "no limit" as a number of this size."""
MIB = 1 << 20
GPU_COLUMNS = (
    "index", "name", "utilization.gpu", "memory.used", "memory.total", "temperature.gpu",
    "power.draw",
    "power.limit", "clocks.sm", "clocks.max.sm", "pci.bus_id",
)  # fmt: skip
"""Columns requested from nvidia-smi: those of the agent's list that a plain shell needs."""
_LOST = re.compile(r"lost|unable to|unknown error", re.IGNORECASE)
"""What nvidia-smi prints instead of a row for a GPU that does not answer."""
_DF = re.compile(r"\s(\d+|-)\s+(\d+|-)\s+(-?\d+|-)\s+(?:\d+%|-)\s+/")
"""Size, used and free of one row of ``df -P``; the names around them may contain blanks."""


class ProbeGreeting(FrozenStruct):
    """The probe's first line."""

    boot: str
    cores: int | None
    host: str
    pid: int


def parse_greeting(line: str) -> ProbeGreeting:
    """Parse ``RGT hello …``.

    Raises:
        ValueError: it is something else.
    """
    words = line.split()
    if len(words) < 6 or words[:2] != ["RGT", "hello"]:
        raise ValueError("the probe does not greet")
    boot = re.sub(r"[^0-9A-Za-z-]", "", words[2])[:64]
    return ProbeGreeting(
        f"sh-{boot or 'unknown'}",
        _parse_integer(words[3]),
        words[4][:253],
        _parse_integer(words[5]) or 0,
    )


def parse_sample(
    lines: Sequence[str],
    boot: str,
    seq: int,
    cores: int | None,
    mounts: Sequence[str],
    pattern: str = DEFAULT_PATTERN,
) -> Sample:
    """Parse the lines of one reading.

    Args:
        lines: From ``RGT { …`` to before ``RGT } …``; lines not from the probe are skipped.
        boot: Identifies the sequence.
        seq: Its number there.
        cores: From the greeting.
        mounts: The requested mounts; the probe identifies them by index.
        pattern: Recognises a training process, as in `WatchConfig`.

    Raises:
        ValueError: the reading has no time.
    """
    rows = [line[len(MARK) :].split(" ", 1) for line in lines if line.startswith(MARK)]
    said: dict[str, list[str]] = {}
    for row in rows:
        said.setdefault(row[0], []).append(row[1] if len(row) > 1 else "")
    start = " ".join(said.get("{", [])).split()
    if len(start) == 2:
        at = _parse_integer(start[1])
    else:
        at = None
    if at is None:
        raise ValueError("a reading without a time")
    procs, unseen = processes(said, pattern, float(at))
    return Sample(
        boot=boot,
        seq=seq,
        at=float(at),
        gpus=_parse_gpus(said),
        mem=_parse_memory(said),
        cpu=_parse_cpu(said, cores),
        disks=_parse_disks(said, mounts),
        procs=procs,
        unseen=unseen,
        session=DetachedSessions(uptime_s=_parse_float(_first_value(said, "u"))),
    )


def _parse_memory(said: dict[str, list[str]]) -> MemoryReading:
    total, free, swap, swap_free = _parse_numbers(_first_value(said, "h"), 4)
    levels = [row for text in said.get("m", []) if (row := _parse_numbers(text, 8))[1] is not None]
    # The kernel kills at the tightest limit; the own level is the first.
    level = min(levels, key=lambda row: _parse_limit(row[2]) or NO_LIMIT, default=None)
    found = MemoryReading(
        host_total=None if total is None else total * 1024,
        host_used=None if total is None or free is None else (total - free) * 1024,
        host_swap_total=None if not swap else swap * 1024,
        host_swap_used=None if not swap or swap_free is None else (swap - swap_free) * 1024,
    )
    if level is None:
        return found
    version, used, most, peak, cache, kills, swapped, most_swap = level
    return msgspec.structs.replace(
        found,
        cgroup=version,
        used=used,
        limit=_parse_limit(most),
        peak=peak,
        cache=cache,
        oom_kills=kills,
        swap_used=swapped,
        swap_limit=_parse_limit(most_swap),
    )


def _parse_cpu(said: dict[str, list[str]], cores: int | None) -> CpuReading:
    quotas = []
    for text in said.get("q", []):
        quota, period = _parse_numbers(text, 2)
        if quota and period and quota > 0:
            quotas.append(round(quota / period, 3))
    quota_cores = min(quotas, default=None)
    granted = [value for value in (quota_cores, cores) if value]
    return CpuReading(
        quota=quota_cores,
        cores=cores,
        load1=_parse_float(_first_value(said, "l")),
        usable=min(granted) if granted else None,
    )


def _parse_disks(said: dict[str, list[str]], mounts: Sequence[str]) -> tuple[DiskReading, ...]:
    sizes, inodes, errors = (_by_place(said.get(key, [])) for key in ("db", "di", "de"))
    found = []
    for place, mount in enumerate(mounts):
        if place in errors or place not in sizes:
            found.append(DiskReading(mount=mount, error=errors.get(place, "not read")[:200]))
            continue
        # File system type, ro or rw, then the row of df.
        kind, _, rest = sizes[place].partition(" ")
        flag, _, row = rest.partition(" ")
        total, used, free = _parse_df(row)
        nodes, nodes_used, _ = _parse_df(inodes.get(place, ""))
        found.append(
            DiskReading(
                mount=mount,
                bytes_total=_scale_to_bytes(total, 1024),
                bytes_used=_scale_to_bytes(used, 1024),
                bytes_free=_scale_to_bytes(free, 1024),
                # 0 inodes: the file system has no fixed number of them, as btrfs.
                inodes_total=nodes or None,
                inodes_used=nodes_used if nodes else None,
                read_only=flag == "ro",
                kind=None if kind == "-" else kind[:40],
            )
        )
    return tuple(found)


def _parse_gpus(said: dict[str, list[str]]) -> tuple[GpuReading, ...]:
    found: list[GpuReading] = []
    odd: list[tuple[int | None, str]] = []
    for text in said.get("g", [])[:64]:
        cells = [cell.strip() for cell in text.split(",")]
        numbered = re.fullmatch(r"\d{1,3}", cells[0]) is not None
        if len(cells) != len(GPU_COLUMNS) or not numbered:
            if len(cells) > 1 or _LOST.search(text):  # else a remark between the rows
                odd.append((int(cells[0]) if numbered else None, _odd_row_error(text)))
            continue
        util, used, total, temp, power, most_power, clock, most_clock = (
            _parse_float(cell) for cell in cells[2:10]
        )
        found.append(
            GpuReading(
                index=int(cells[0]),
                name=cells[1][:80],
                util=util,
                vram_used=_scale_to_bytes(used, MIB),
                vram_total=_scale_to_bytes(total, MIB),
                temp_c=temp,
                power_w=power,
                power_limit_w=most_power,
                clock_mhz=clock,
                clock_max_mhz=most_clock,
                bus=cells[10][:40] or None,
            )
        )
    for index, error in odd:  # an unreadable GPU must not disappear from the list
        # A free index, because two readings with one index would be one GPU to the views.
        free = next(
            place for place in range(len(found) + 1) if all(gpu.index != place for gpu in found)
        )
        found.append(
            GpuReading(index=free if index is None else index, name="nvidia-smi", error=error)
        )
    if not found and "ge" in said:
        return (GpuReading(index=0, name="nvidia-smi", error=said["ge"][0][:200]),)
    return tuple(found)


def _odd_row_error(row: str) -> str:
    return f"nvidia-smi prints a row that is not its {len(GPU_COLUMNS)} columns: {row[:150]}"


def _by_place(rows: Sequence[str]) -> dict[int, str]:
    found = {}
    for row in rows:
        place, _, rest = row.partition(" ")
        if place.isdecimal():
            found[int(place)] = rest
    return found


def _parse_df(row: str) -> tuple[int | None, int | None, int | None]:
    found = _DF.search(f" {row}")
    if found is None:
        return None, None, None
    total, used, free = (_parse_integer(text) for text in found.groups())
    return total, used, free


def _first_value(said: dict[str, list[str]], key: str) -> str:
    return said.get(key, [""])[0]


def _parse_numbers(text: str, count: int) -> list[int | None]:
    words = text.split()[:count]
    return [_parse_integer(word) for word in words] + [None] * (count - len(words))


def _parse_integer(text: str) -> int | None:
    # int() also accepts blanks, underscores and other digits, which the probe never prints.
    if re.fullmatch(r"-?\d{1,19}", text):
        return int(text)
    return None


def _parse_float(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    if math.isfinite(number):
        return number
    return None


def _parse_limit(number: int | None) -> int | None:
    if number is None or number >= NO_LIMIT:
        return None
    return number


def _scale_to_bytes(number: float | None, unit: int) -> int | None:
    if number is None:
        return None
    return int(number * unit)
