"""Why a file fails a check: recorded in English, and shown in the person's language."""

from __future__ import annotations

import json
import re
import struct
import subprocess
import sys
from pathlib import Path

CHINESE = re.compile(r"[\u4e00-\u9fff]")
SENTENCE = re.compile(r"(?:[A-Za-z][a-z']+ ){2,}[A-Za-z][a-z']+")
HEADER = json.dumps({"w": {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]}}).encode()
FILES = {
    "cut.safetensors": struct.pack("<Q", 1000) + b"{}",
    "short.safetensors": struct.pack("<Q", len(HEADER)) + HEADER + bytes(8),
    "whole.safetensors": struct.pack("<Q", len(HEADER)) + HEADER + bytes(16),
    "head.npy": b"\x93NUMPY\x01\x00",
    "new.gguf": b"GGUF\x09\0\0\0" + bytes(20),
    "cut.pt": b"PK\x03\x04broken",
    "code.pkl": b"\x80\x04cos\nsystem\n.",
    "cut.jsonl": b'{"a":1}\n{"a"',
    "other.h5": b"nothing",
    "empty.pt": b"",
    "tiny.safetensors": b"abc",
}


def test_a_reason_is_recorded_in_english_and_shown_in_chinese(tmp_path: Path) -> None:
    for name, data in FILES.items():
        (tmp_path / name).write_bytes(data)
    done = subprocess.run(
        [sys.executable, "-m", "rgt_tui", "verify", "--no-torch", str(tmp_path)],
        env={"LANG": "zh_CN.UTF-8", "PATH": "/usr/bin:/bin", "HOME": "/nonexistent"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (1, "")
    kept = json.loads((tmp_path / "PULL_REFUSED.json").read_text())
    assert len(kept["errors"]) == len(FILES) - 1
    assert not CHINESE.search(json.dumps(kept, ensure_ascii=False))
    lines = done.stdout.splitlines()
    assert len(lines) == len(FILES) + 2
    assert [line for line in lines if not CHINESE.search(line) or SENTENCE.search(line)] == []
