from __future__ import annotations

import os
from pathlib import Path

import pytest
from rgt_box import procstat
from rgt_box.sampling import xid
from rgt_box.sampling.xid import XidWatch


@pytest.mark.parametrize(
    ("line", "bus", "number", "detail"),
    [
        ("NVRM: Xid (PCI:0000:3b:00): 79, pid=1, GPU lost.", "0000:3b:00.0", 79, "pid=1, GPU lost."),
        ("NVRM: Xid (0000:06:00): 31, Ch 0000000b", "0000:06:00.0", 31, "Ch 0000000b"),
        ("NVRM: Xid (PCI:0000:c6:00 GPU-I:05): 94, Contained", "0000:c6:00.0", 94, "Contained"),
        ("NVRM: Xid (PCI:000a:01:00): 62", "000a:01:00.0", 62, ""),
    ],
)  # fmt: skip
def test_the_forms_of_a_report(line: str, bus: str, number: int, detail: str) -> None:
    report = xid.parse_xid(line, 5)
    assert report is not None
    assert (report.bus, report.number, report.detail, report.at_us) == (bus, number, detail, 5)


@pytest.mark.parametrize(
    "line", ["NVRM: loading", "Xid 79", "NVRM: GPU at PCI:0000:3b:00: GPU-1", ""]
)
def test_what_is_no_report(line: str) -> None:
    assert xid.parse_xid(line) is None


def test_broken_hardware_is_an_error_and_an_unknown_number_says_what_the_kernel_says() -> None:
    assert {number for number, (level, _) in xid.MEANINGS.items() if level == "error"} >= {
        48,
        64,
        74,
        79,
        95,
    }
    assert {number for number, (level, _) in xid.MEANINGS.items() if level != "error"} >= {
        13,
        31,
        43,
        45,
    }
    report = xid.XidReport("", 999, "something new", 0)
    assert (report.level, report.meaning) == ("warn", "something new")
    assert xid.SOURCE in xid.XidReport("", 999, "", 0).meaning


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("00000000:3B:00.0", "0000:3b:00.0"),
        (b"00000000:3B:00.1", "0000:3b:00.1"),
        ("3b:00.0", "0000:3b:00.0"),
        ("", None),
        (None, None),
        ("N/A", None),
    ],
)
def test_one_spelling_of_pci_addresses(text: object, expected: str | None) -> None:
    assert procstat.pci_address(text) == expected


def test_cards_that_the_kernel_module_lists(tmp_path: Path) -> None:
    folder = tmp_path / "0000:3b:00.0"
    folder.mkdir()
    (folder / "information").write_text(
        "Model: \t\t NVIDIA H100\nIRQ: 5\nBus Location: \t 0000:3b:00.0\nDevice Minor: \t 3\n"
    )
    (tmp_path / "0000:5e:00.0").mkdir()
    assert procstat.nvidia_cards(str(tmp_path)) == [
        {"bus": "0000:3b:00.0", "name": "NVIDIA H100", "minor": 3},
        {"bus": "0000:5e:00.0", "name": "GPU", "minor": None},
    ]
    assert procstat.nvidia_cards(str(tmp_path / "none")) == []


def record(at: int, text: str) -> str:
    return f"4,{at},{at},-;{text}\n SUBSYSTEM=pci\n"


def test_a_storm_is_one_event(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = tmp_path / "kmsg"
    log.write_text(
        "".join(record(n, "NVRM: Xid (PCI:0000:3b:00): 13, Graphics") for n in range(1, 301))
    )
    monkeypatch.setenv("RGT_KMSG", str(log))
    watch = XidWatch(str(tmp_path))
    (event,) = watch.poll_events({"0000:3b:00.0": 4})
    assert (
        event["text"].startswith("GPU 4 (0000:3b:00.0): Xid 13, ")
        and ", 300 times" in event["text"]
    )
    with log.open("a") as file:
        file.write(record(400, "NVRM: Xid (PCI:0000:3b:00): 13, Graphics"))
        file.write(record(401, "NVRM: Xid (PCI:0000:5e:00): 13, Graphics"))
    (other,) = watch.poll_events({})
    assert other["text"].startswith("GPU ? (0000:5e:00.0)")
    monkeypatch.setattr(xid, "QUIET", 0.0)
    (late,) = watch.poll_events({})  # it was kept, not dropped
    assert late["text"].startswith("GPU ? (0000:3b:00.0)") and "times" not in late["text"]
    assert watch.poll_events({}) == []


def test_a_record_that_is_half_written_is_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "kmsg"
    whole = record(7, "NVRM: Xid (PCI:0000:3b:00): 48, DBE")
    path.write_text(whole[:20])
    log = xid.KernelLogDevice(str(path), b"Xid")
    assert log.new_records() == []
    with path.open("a") as file:
        file.write(whole[20:])
    assert log.new_records() == [(7, "NVRM: Xid (PCI:0000:3b:00): 48, DBE")]
    log.close()


@pytest.mark.skipif(not os.access("/dev/kmsg", os.W_OK), reason="the kernel log is not ours")
def test_the_real_kernel_log() -> None:
    """What is written comes back, and the end of the log does not block."""
    log = xid.KernelLogDevice("/dev/kmsg", b"rgt test")
    log.new_records()
    with open("/dev/kmsg", "w") as file:
        file.write(f"rgt test {os.getpid()}\n")
    assert [text for _, text in log.new_records() if text == f"rgt test {os.getpid()}"]
    assert log.new_records() == []
    log.close()


def test_rows_of_dmesg() -> None:
    text = "[    0.000000] Linux\n<6>[   12.345678] NVRM: Xid (PCI:0000:3b:00): 48, DBE\nno time\n"
    assert xid.parse_dmesg(text) == [
        (0, "Linux"),
        (12345678, "NVRM: Xid (PCI:0000:3b:00): 48, DBE"),
    ]
