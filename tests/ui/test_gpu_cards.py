"""0, 1, 4 and 8 cards: what is said of each, in which order, and that nothing unknown looks healthy."""

from __future__ import annotations

import msgspec
import pytest

from rgt_tui.model import BoxState, GpuHolder, GpuReading, MigSlice, clean_decoded
from rgt_tui.profiles import load_profile
from rgt_tui.ui import assess_box
from rgt_tui.ui.widgets import (
    Line,
    Tone,
    gpu_sections,
    is_pcie_narrow,
    links_down,
    text_of,
    vitals_sections,
    width_of,
    worst_first,
)
from rgt_tui.ui.widgets.fleet_rows import FleetRow, power_cell, vram_cell
from tests.ui.fakes import GIB, NOW, running_box, sample


def card(index: int, **changes: object) -> GpuReading:
    """An H100 under load, as NVML tells of it."""
    healthy = GpuReading(
        index=index,
        name="NVIDIA H100 80GB HBM3",
        util=95,
        vram_used=61 * GIB,
        vram_total=80 * GIB,
        temp_c=64,
        temp_slow_c=89,
        power_w=612,
        power_limit_w=700,
        clock_mhz=1755,
        clock_max_mhz=1980,
        pcie_gen=5,
        pcie_gen_max=5,
        pcie_width=16,
        pcie_width_max=16,
        nvlinks=18,
        nvlinks_up=18,
        ecc_corrected=0,
        ecc_uncorrected=0,
    )
    return msgspec.structs.replace(healthy, **changes)


def box_of(*gpus: GpuReading) -> BoxState:
    shown = msgspec.structs.replace(sample(), gpus=gpus)
    return msgspec.structs.replace(running_box(), sample=shown)


def shown(box: BoxState, width: int = 50) -> list[str]:
    return [text_of(made).rstrip() for part in gpu_sections(box, width) for made in part.body]


def loud(rows: list[Line]) -> list[str]:
    """What is said in red or yellow."""
    return [
        span.text.strip()
        for made in rows
        for span in made
        if span.tone in {Tone.WARN, Tone.TROUBLE}
    ]


def test_no_card_and_no_sample_are_not_the_same() -> None:
    assert shown(box_of()) == ["no GPU found on this box"]
    assert shown(msgspec.structs.replace(running_box(), sample=None)) == ["no sample yet"]


def test_one_card_says_each_figure_against_its_limit() -> None:
    (part,) = gpu_sections(box_of(card(0)), 44)
    text = "\n".join(map(text_of, part.body))
    for words in (
        "95%",
        "61.0/80 GiB",
        "64/89 °C",
        "612/700 W",
        "1,755/1,980 MHz",
        "PCIe 5 ×16",
        "NVLink 18 of 18 up",
    ):
        assert words in text, words
    assert loud(list(part.body)) == []


def test_what_the_driver_does_not_tell_is_left_out() -> None:
    text = "\n".join(
        shown(box_of(GpuReading(index=0, name="X", temp_c=50, power_w=90, clock_mhz=900)))
    )
    assert "50 °C" in text and "90 W" in text and "900 MHz" in text
    for words in ("/", "PCIe", "NVLink", "ECC", "MIG", "0%"):
        assert words not in text.replace("–/– G", ""), words


@pytest.mark.parametrize("width", [32, 40, 50, 76, 140])
@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 8])
def test_each_card_has_its_place_at_every_width(count: int, width: int) -> None:
    parts = gpu_sections(box_of(*(card(i) for i in range(count))), width)
    rows = [made for part in parts for made in part.body]
    assert all(width_of(made) <= width for made in rows)
    if count <= 2:
        assert [text_of(part.title)[:5] for part in parts] == [f"GPU {i}" for i in range(count)]
    else:
        assert text_of(parts[0].title).startswith(f"GPU ×{count}  NVIDIA H100")
        heads = [text_of(made)[:2] for made in rows if not text_of(made).startswith(" ")]
        assert heads == [f"{i} " for i in range(count)]
    if count > 4:
        assert len(rows) == count, "a healthy card of many takes one line"


def test_the_worst_card_is_first_and_says_why() -> None:
    gpus = [card(i) for i in range(8)]
    gpus[3] = card(3, throttle=("hw_thermal", "sw_power_cap"), pcie_width=8)
    gpus[5] = card(5, util=0)
    gpus[6] = card(6, error="GPU is lost", xid=79)
    gpus[7] = card(7, ecc_uncorrected=2)
    assert [gpu.index for gpu in worst_first(gpus)] == [6, 7, 3, 5, 0, 1, 2, 4]
    rows = shown(box_of(*gpus), 60)
    assert rows[0] == "6 ✖ GPU is lost" and "Xid 79" in rows[1]
    assert rows[2].startswith("7 ") and rows[2].endswith("✖") and "2 uncorrected" in rows[3]
    assert rows[4].startswith("3 ") and rows[4].endswith("▲")
    assert rows[5].strip() == "PCIe 5 ×8/×16"
    assert rows[6].strip() == "▲ throttled: thermal slowdown by the hardware, power cap"
    assert rows[7].startswith("5 ") and "0%" in rows[7]


def test_cards_that_all_idle_stay_in_their_order() -> None:
    assert [
        gpu.index for gpu in worst_first([card(1, util=3), card(0, util=0), card(2, util=None)])
    ] == [
        0,
        1,
        2,
    ]


def test_a_power_cap_alone_is_said_calmly() -> None:
    (part,) = gpu_sections(box_of(card(0, throttle=("sw_power_cap",))), 44)
    assert "throttled: power cap" in "\n".join(map(text_of, part.body))
    assert loud(list(part.body)) == []
    low = card(0, throttle=("sw_power_cap",), clock_mhz=900)
    assert loud(list(gpu_sections(box_of(low), 44)[0].body)) == ["▲ throttled: power cap"]


def test_links_that_idle_or_were_never_bridged_are_no_fault_and_missing_ones_are() -> None:
    assert not is_pcie_narrow(card(0, pcie_gen=1)) and is_pcie_narrow(card(0, pcie_width=4))
    assert not links_down(card(0, nvlinks_up=0)) and links_down(card(0, nvlinks_up=17))
    assert "PCIe 1/5 ×16" in "\n".join(shown(box_of(card(0, pcie_gen=1))))
    (part,) = gpu_sections(box_of(card(0, nvlinks_up=17)), 44)
    assert loud(list(part.body)) == ["NVLink 17 of 18 up"]


def test_the_parts_of_a_card_stand_below_it() -> None:
    parts = (
        MigSlice(name="1g.10gb", vram_used=3 * GIB, vram_total=10 * GIB),
        MigSlice(name="3g.40gb\x1b[2J", vram_total=40 * GIB),
    )
    gpus = [card(i) for i in range(5)]
    gpus[1] = card(1, util=None, mig=parts)
    rows = shown(box_of(*gpus))
    assert rows[1].startswith("1 ") and "–" in rows[1], "its own use is not told: that is not 0"
    assert rows[2].split()[:2] == ["MIG", "1g.10gb"] and rows[2].endswith("3.0/10 GiB")
    assert rows[3].endswith("–/40 GiB") and "\x1b" not in rows[3]
    assert "no MIG instance exists" in "\n".join(shown(box_of(card(0, mig=()))))


def test_names_and_reasons_are_hostile_text_and_bounded() -> None:
    bad = card(
        0,
        name="[red]x\x1b[31m",
        throttle=tuple(f"odd{i}\x07" for i in range(99)),
        orphans=(GpuHolder(pid=7, started=0.0, cmd="[b]\x1b]0;t\x07" + "x" * 300),),
        mig=tuple(MigSlice(name="y" * 500) for _ in range(99)),
    )
    parts = gpu_sections(box_of(clean_decoded(bad)), 44)
    text = text_of(parts[0].title) + "\n".join(text_of(made) for made in parts[0].body)
    assert "[red]x" in text and "\x1b" not in text and "\x07" not in text
    assert len(parts[0].body) < 40 and all(width_of(made) <= 44 for made in parts[0].body)
    many = gpu_sections(box_of(*(card(i) for i in range(500))), 44)
    assert len(many[0].body) == 65 and text_of(many[0].body[-1]) == "and 436 more"


def test_a_card_that_was_lost_from_the_start_is_no_other_kind_of_card() -> None:
    """Nobody could ask it for its name: the driver's index is all that is known of it."""
    gpus = [*(card(i) for i in range(7)), GpuReading(index=7, name="GPU", error="GPU is lost")]
    (part,) = gpu_sections(box_of(*gpus), 80)
    assert text_of(part.title) == "GPU ×8  NVIDIA H100 80GB HBM3"
    assert text_of(gpu_sections(box_of(*(gpus[7:] * 3)), 80)[0].title) == "GPU ×3  GPU"


def test_of_many_cards_one_that_idles_beside_busy_ones_is_marked_as_in_the_fleet() -> None:
    rows = shown(box_of(*(card(i) for i in range(7)), card(7, util=0)), 60)
    assert rows[0].startswith("7 ") and rows[0].endswith("◇")
    assert not any(
        row.endswith("◇") for row in shown(box_of(*(card(i, util=0) for i in range(8))), 60)
    )


def first_section(box: BoxState, *, short: bool) -> str:
    made = vitals_sections(box, load_profile("generic-ssh"), 44, NOW, short=short)
    return text_of(made[0].title)


def test_in_a_small_terminal_a_card_in_trouble_stands_before_the_disks() -> None:
    dead = box_of(*(card(i) for i in range(7)), card(7, error="GPU is lost"))
    assert first_section(dead, short=True).startswith("GPU")
    assert first_section(box_of(card(0, ecc_uncorrected=1)), short=True).startswith("GPU")
    assert first_section(box_of(card(0, throttle=("hw_thermal",))), short=True).startswith("disks")
    assert first_section(box_of(card(0)), short=False).startswith("GPU")


def test_the_fleet_sums_up_what_the_cards_tell() -> None:
    """Of eight cards a dead one and one without a power reading take nothing away from what the others say."""
    gpus = [card(i) for i in range(8)]

    def cells(*gpus: GpuReading) -> tuple[str, str]:
        box = box_of(*gpus)
        row = FleetRow(box, assess_box(box, NOW), (), "x")
        return text_of(power_cell(row, 5)).strip(), text_of(vram_cell(row, 6))

    whole = "━━━━╸·"
    assert cells(*gpus) == ("4896W", whole)
    gpus[4] = GpuReading(index=4, name="GPU", error="GPU is lost")
    assert cells(*gpus) == ("4284W", whole)
    gpus[5] = card(5, power_w=None)
    assert cells(*gpus) == ("≥3672", whole)
    gpus[6] = card(6, vram_used=None)
    assert cells(*gpus) == ("≥3672", "?·····")
    assert cells(*gpus[4:5]) == ("–", "?·····")
