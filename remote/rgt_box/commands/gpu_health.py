"""The ``gpu-health`` verb: checks whether each GPU is fit for a run; JSON plus an exit status."""

from __future__ import annotations

import time

from rgt_box import jsonline, options, place
from rgt_box.sampling import xid
from rgt_box.sampling.gpu import (
    UNEXPLAINED,
    GpuSampler,
    device_prefix,
    in_initial_namespace,
    map_pids,
    throttle_names,
    unexplained,
)
from rgt_box.sampling.xid import XidWatch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, Optional, Tuple

    from rgt_wire import JsonObject

    Verdict = Tuple[Optional[bool], str]
    Gpu = JsonObject

HELP = """
usage: gpu-health [--expect N] [--hot C] [--strict]

Check every GPU and print one JSON object: per GPU and check {"gpu", "check", "ok", "text"}; "ok" is null where the
result is unknown. Checks: visible, ecc, throttle, xid, pcie, temperature, memory (held by no process).

  --expect N   how many GPUs there must be
  --hot C      temperature that counts as too hot (default: 85)
  --strict     a check with an unknown result is not good enough: exit 2

Exit status: 0 nothing is wrong, 1 something is wrong, 2 unknown.
"""

OK, TROUBLE, UNKNOWN = 0, 1, 2
HOT, WAIT = 85.0, 10.0

SLOWED = frozenset(("hw_slowdown", "hw_thermal", "hw_power_brake", "sw_thermal"))
"""Throttling that indicates a fault or bad cooling. Power caps and synchronised clocks are the
operator's choice."""


def _check_visible(gpu: Gpu) -> Verdict:
    if gpu.get("error"):
        return (False, gpu["error"])
    return (True, gpu.get("name", "GPU"))


def _check_ecc_errors(gpu: Gpu) -> Verdict:
    errors = gpu.get("ecc_uncorrected")
    if errors is None:
        return None, "the card or its driver does not count memory errors"
    return not errors, "%d uncorrected, %s corrected" % (errors, gpu.get("ecc_corrected", "?"))


def _check_throttling(gpu: Gpu) -> Verdict:
    if "throttle_mask" not in gpu:
        return None, "the driver does not say"
    names = throttle_names(gpu["throttle_mask"])
    return not SLOWED & set(names), ", ".join(names) or "no throttling"


def _check_pcie_width(gpu: Gpu) -> Verdict:
    width = gpu.get("pcie_width")
    most = gpu.get("pcie_width_max")
    if width is None or most is None:
        return None, "the driver does not say"
    # The PCIe generation drops while a card idles; missing lanes stay missing.
    return width >= most, "x%d of x%d, generation %s of %s" % (
        width,
        most,
        gpu.get("pcie_gen", "?"),
        gpu.get("pcie_gen_max", "?"),
    )


def _check_memory_owners(gpu: Gpu) -> Verdict:
    nobody = unexplained(gpu)
    if gpu.get("vram_used") is None:
        return None, "the driver does not say"
    # The driver itself uses some memory that belongs to no process.
    if nobody < UNEXPLAINED:
        return True, "all memory in use has an owner"
    text = "%.1f GiB are used by no process that the driver lists" % (nobody / 2**30)
    if gpu.get("comparable"):
        return (False, text)
    return (None, text + "; it may not list all processes here")


CHECKS: tuple[tuple[str, Callable[[Gpu], Verdict]], ...] = (
    ("ecc", _check_ecc_errors),
    ("throttle", _check_throttling),
    ("pcie", _check_pcie_width),
    ("memory", _check_memory_owners),
)


def main(argv: list[str]) -> int:
    """Run the verb; returns the exit status."""
    found = options.parse_or_exit(
        argv, {"--expect": "int", "--hot": "float", "--strict": "flag"}, HELP
    )
    folder = place.state_dir()
    sampler = GpuSampler(None, folder)
    gpus, error = sampler.read_raw(WAIT)
    if sampler.has_nvidia_driver:
        # The recorder remembers where it has read to: this verb must not move that.
        watch = XidWatch(folder, remember=False)
    else:
        watch = None
    if watch is not None:
        watch.poll_events({})
    if sampler.has_nvidia_driver:
        comparable = map_pids(gpus, device_prefix(), in_initial_namespace())
    else:
        comparable = None
    hot = found["hot"] or HOT
    rows = [row for gpu in gpus for row in check_gpu(dict(gpu, comparable=comparable), hot, watch)]
    expected = found["expect"]
    if expected is not None:
        text = "%d of %d GPU%s" % (len(gpus), expected, "" if expected == 1 else "s")
        rows.append({"gpu": None, "check": "count", "ok": len(gpus) >= expected, "text": text})
    problem = error or (
        None if gpus else "no GPU is visible" + "".join("; " + text for text in sampler.limited)
    )
    result = exit_status(rows, problem, found["strict"])
    report = {
        "at": round(time.time(), 3),
        "source": sampler.source,
        "error": problem,
        "status": result,
        "gpus": [{"name": gpu.get("name"), "vram_total": gpu.get("vram_total")} for gpu in gpus],
    }
    jsonline.print_frame(dict(report, checks=rows))
    return result


def check_gpu(gpu: Gpu, hot: float, watch: XidWatch | None) -> list[JsonObject]:
    """Return the checks of one GPU; if it does not answer, only ``visible`` and ``xid``."""
    verdicts = [("visible", _check_visible(gpu)), ("xid", _check_xid(gpu, watch))]
    if not gpu.get("error"):
        verdicts += [(name, check(gpu)) for name, check in CHECKS]
        verdicts.append(("temperature", _check_temperature(gpu, hot)))
    rows = [
        {"gpu": gpu["index"], "check": name, "ok": ok, "text": text}
        for name, (ok, text) in verdicts
    ]
    rows[0]["vram_total"] = gpu.get("vram_total")
    return rows


def _check_temperature(gpu: Gpu, hot: float) -> Verdict:
    now = gpu.get("temp_c")
    if now is None:
        return (None, "the driver does not say")
    return (now < hot, f"{now:g} C (limit {hot:g} C)")


def _check_xid(gpu: Gpu, watch: XidWatch | None) -> Verdict:
    if watch is None:
        return None, "only NVIDIA's driver writes them"
    if watch.limited:
        return None, watch.limited
    bus = gpu.get("bus", "")
    number = watch.broken.get(
        bus, watch.last.get(bus)
    )  # a later software fault does not repair the card
    if number is None:
        return True, "none in the kernel log"
    level, meaning = xid.MEANINGS.get(number, (xid.SOFTWARE, f"see {xid.SOURCE}"))
    return level != xid.HARDWARE, "Xid %d, %s" % (number, meaning)


def exit_status(rows: list[JsonObject], problem: str | None, strict: bool) -> int:
    """Return the exit status: failures first, then unknown results, then OK."""
    if any(row["ok"] is False for row in rows):
        return TROUBLE
    if problem or (strict and any(row["ok"] is None for row in rows)):
        return UNKNOWN
    return OK
