"""What Prometheus is told, made of states and read with its own parser."""

from __future__ import annotations

import math
import re

import msgspec
import pytest
from prometheus_client.parser import text_string_to_metric_families

from rgt_tui.cli import FAMILIES, format_exposition, iterate_series
from rgt_tui.model import BoxState, FleetState, GpuReading, LinkState, RunState
from tests.unit.cli.test_status_line import NOW, box


def parsed(*boxes: BoxState) -> dict[str, dict[frozenset[tuple[str, str]], float]]:
    text = format_exposition(FleetState(boxes=boxes, at=NOW), NOW).decode()
    return {
        family.name: {frozenset(sample.labels.items()): sample.value for sample in family.samples}
        for family in text_string_to_metric_families(text)
    }


def with_gpu(**fields: object) -> BoxState:
    state = box()
    assert state.sample is not None
    gpu = GpuReading(index=3, name="NVIDIA A100", **fields)  # type: ignore[arg-type]
    return msgspec.structs.replace(state, sample=msgspec.structs.replace(state.sample, gpus=(gpu,)))


def test_gpus_are_named_and_measured_as_dcgm_exporter_does() -> None:
    found = parsed(
        with_gpu(
            util=97.0,
            vram_used=3 << 20,
            vram_total=10 << 20,
            temp_c=61.0,
            power_w=250.5,
            bus="0000:3b:00.0",
            uuid="GPU-5afe",
        )
    )
    ((labels, util),) = found["DCGM_FI_DEV_GPU_UTIL"].items()
    assert dict(labels) == {
        "box": "lab", "gpu": "3", "UUID": "GPU-5afe", "device": "nvidia3", "modelName": "NVIDIA A100",
        "pci_bus_id": "0000:3b:00.0", "hostname": "h",
    }  # fmt: skip
    values = {
        name: next(iter(rows.values())) for name, rows in found.items() if name.startswith("DCGM")
    }
    assert util == 97.0
    assert values["DCGM_FI_DEV_FB_USED"] == 3.0
    assert values["DCGM_FI_DEV_FB_FREE"] == 7.0
    assert values["DCGM_FI_DEV_GPU_TEMP"] == 61.0
    assert values["DCGM_FI_DEV_POWER_USAGE"] == 250.5


def test_what_is_not_known_is_absent_and_never_zero() -> None:
    found = parsed(with_gpu())
    assert not [name for name in found if name.startswith("DCGM")]


def test_a_replayed_gpu_says_so() -> None:
    ((labels, _),) = parsed(with_gpu(util=1.0, sim=True))["DCGM_FI_DEV_GPU_UTIL"].items()
    assert dict(labels)["sim"] == "true"


def test_old_figures_are_left_out() -> None:
    stale = box(sample_at=NOW - 100)
    gone = box(link=LinkState.UNREACHABLE, runs=(RunState(name="r", step=3),))
    for state in (stale, gone):
        found = parsed(state)
        assert next(iter(found["rgt_box_up"].values())) == 0
        assert not [
            name
            for name in found
            if name.startswith(("DCGM", "rgt_disk", "rgt_inodes", "rgt_run", "rgt_mem"))
        ]
    assert next(iter(parsed(stale)["rgt_sample_age_seconds"].values())) == 100


def test_hostile_names_break_no_line() -> None:
    evil = 'a"b\\c\n# TYPE x\x1b[31m{}'
    found = parsed(box(runs=(RunState(name=evil, step=3), RunState(name=evil, step=4))))
    ((labels, value),) = found["rgt_run_step"].items()
    assert (dict(labels)["run"], value) == ('a"b\\c# TYPE x{}', 3)


def test_a_loss_may_be_nan() -> None:
    assert math.isnan(
        next(iter(parsed(box(runs=(RunState(name="r", loss=math.nan),)))["rgt_run_loss"].values()))
    )


@pytest.mark.parametrize(
    ("value", "text"),
    [(1.5, "1.5"), (math.inf, "+Inf"), (-math.inf, "-Inf"), (math.nan, "NaN"), (1e300, "1e+300")],
)
def test_numbers(value: float, text: str) -> None:
    state = FleetState(boxes=(box(runs=(RunState(name="r", loss=value),)),), at=NOW)
    assert (
        f'rgt_run_loss{{box="lab",run="r"}} {text}'
        in format_exposition(state, NOW).decode().splitlines()
    )


def test_names_labels_and_kinds_are_those_of_the_table() -> None:
    """The client library adds a suffix to counters, whose names are NVIDIA's here."""
    state = FleetState(boxes=(with_gpu(util=1.0, ecc_corrected=2, ecc_uncorrected=3),), at=NOW)
    text = format_exposition(state, NOW).decode()
    for family, rows in iterate_series(state, NOW):
        assert text.count(f"# TYPE {family.name} {family.kind}\n") == 1
        assert text.count(f"# HELP {family.name} ") == 1
        found = [line for line in text.splitlines() if line.startswith(f"{family.name}{{")]
        assert len(found) == len(rows)
        for line, (labels, _) in zip(found, rows, strict=True):
            assert {pair.partition("=")[0] for pair in re.findall(r'\w+="', line)} == set(labels)


def test_names_are_unique_and_valid() -> None:
    names = [family.name for family in FAMILIES]
    assert len(set(names)) == len(names)
    assert all(name.startswith(("DCGM_FI_DEV_", "rgt_")) and name.isidentifier() for name in names)


def test_books_that_differ_are_a_gauge_that_is_absent_where_they_agree() -> None:
    state = box()
    assert "rgt_meter_books_differ" not in parsed(state)
    meter = msgspec.structs.replace(
        state.meter, currency="EUR", books_differ=-0.75, books_differ_since=NOW - 9
    )
    ((labels, value),) = parsed(msgspec.structs.replace(state, meter=meter))[
        "rgt_meter_books_differ"
    ].items()
    assert (value, dict(labels)["box"], dict(labels)["currency"]) == (-0.75, "lab", "EUR")
