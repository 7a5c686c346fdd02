"""AMD cards from a pretended sysfs."""

from __future__ import annotations

from pathlib import Path

import pytest
from rgt_box.sampling import gpu_without_nvml
from rgt_box.sampling.gpu import GpuSampler
from rgt_box.sampling.gpu_without_nvml import AmdCards, generation, highest_clock, parse_ecc_counts

FILES = {
    "vendor": "0x1002\n",
    "device": "0x74a1\n",
    "product_name": "AMD Instinct MI300X\n",
    "gpu_busy_percent": "97\n",
    "mem_info_vram_used": "100000000000\n",
    "mem_info_vram_total": "206141652992\n",
    "hwmon/hwmon3/temp1_input": "54000\n",
    "hwmon/hwmon3/power1_average": "612000000\n",
    "hwmon/hwmon3/power1_cap": "750000000\n",
    "hwmon/hwmon3/freq1_input": "2100000000\n",
    "pp_dpm_sclk": "0: 132Mhz\n1: 2100Mhz *\n",
    "current_link_speed": "16.0 GT/s PCIe\n",
    "max_link_speed": "32.0 GT/s PCIe\n",
    "current_link_width": "8\n",
    "max_link_width": "16\n",
    "ras/umc_err_count": "ue: 1\nce: 4\n",
}


def card(root: Path, number: int, bus: str, **changed: str | None) -> Path:
    """Make card `number`, a link to its PCI device as in the real tree."""
    device = root / "pci" / bus
    for name, text in (FILES | changed).items():
        if text is not None:
            (device / name).parent.mkdir(parents=True, exist_ok=True)
            (device / name).write_text(text)
    folder = root / "drm" / f"card{number}"
    folder.mkdir(parents=True)
    (folder / "device").symlink_to(device)
    return device


def test_a_card_by_its_files(tmp_path: Path) -> None:
    card(tmp_path, 1, "0000:c1:00.0")
    (tmp_path / "drm" / "card1-DP-1").mkdir()
    (found,) = AmdCards(str(tmp_path / "drm")).read()
    assert found == {
        "index": 0,
        "name": "AMD Instinct MI300X",
        "bus": "0000:c1:00.0",
        "util": 97,
        "vram_used": 100000000000,
        "vram_total": 206141652992,
        "temp_c": 54.0,
        "power_w": 612.0,
        "power_limit_w": 750.0,
        "clock_mhz": 2100.0,
        "clock_max_mhz": 2100,
        "pcie_gen": 4,
        "pcie_gen_max": 5,
        "pcie_width": 8,
        "pcie_width_max": 16,
        "ecc_corrected": 4,
        "ecc_uncorrected": 1,
    }


def test_what_is_missing_is_absent_and_never_zero(tmp_path: Path) -> None:
    gone = dict.fromkeys(
        [name for name in FILES if name not in ("vendor", "device", "mem_info_vram_total")]
    )
    card(tmp_path, 0, "0000:03:00.0", **gone)
    (found,) = AmdCards(str(tmp_path / "drm")).read()
    assert found == {
        "index": 0,
        "name": "AMD GPU 0x74a1",
        "bus": "0000:03:00.0",
        "vram_total": 206141652992,
    }


def test_cards_of_others_are_left_out_and_the_order_is_by_number(tmp_path: Path) -> None:
    card(tmp_path, 10, "0000:0a:00.0")
    card(tmp_path, 2, "0000:02:00.0")
    card(tmp_path, 0, "0000:01:00.0", vendor="0x8086\n")
    amd = AmdCards(str(tmp_path / "drm"))
    assert [gpu["bus"] for gpu in amd.read()] == ["0000:02:00.0", "0000:0a:00.0"]
    assert AmdCards(str(tmp_path / "none")).cards == []


def test_readings_follow_the_files_and_a_dead_driver_is_an_error(tmp_path: Path) -> None:
    device = card(tmp_path, 0, "0000:03:00.0")
    amd = AmdCards(str(tmp_path / "drm"))
    amd.read()
    (device / "gpu_busy_percent").write_text("3\n")
    assert amd.read()[0]["util"] == 3
    (device / "mem_info_vram_total").write_text("")
    assert amd.read()[0]["error"] == "the amdgpu driver does not answer"


def test_it_is_chosen_where_there_is_no_nvidia(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    card(tmp_path, 0, "0000:03:00.0")
    monkeypatch.setattr(gpu_without_nvml, "AmdCards", lambda: AmdCards(str(tmp_path / "drm")))
    monkeypatch.setenv("PATH", str(tmp_path))
    sampler = GpuSampler(None, str(tmp_path))
    assert (sampler.source, sampler.has_nvidia_driver, sampler.limited) == ("amd", False, [])
    assert sampler.read(0.0, [], wait=60.0)[0]["util"] == 97


def test_small_parsers() -> None:
    assert (generation(b"2.5 GT/s PCIe\n"), generation(b"Unknown\n"), generation(b"")) == (
        1,
        None,
        None,
    )
    assert (highest_clock(b"0: 500Mhz *\n1: 1700Mhz\nS: 19Mhz\n"), highest_clock(b"")) == (
        1700,
        None,
    )
    assert (parse_ecc_counts(b""), parse_ecc_counts(b"ce: 3\n")) == ({}, {"ecc_corrected": 3})
