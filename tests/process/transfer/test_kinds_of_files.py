"""Each kind of file that is no checkpoint of torch's: by its name to the process that looks, and what is said of it."""

from __future__ import annotations

import io
import pickle
from pathlib import Path
from typing import Any

import numpy as np

from rgt_tui.transfer import verification
from rgt_tui.transfer.directory_contents import plan_examination
from tests.system.tree import ROOT
from tests.unit.transfer.hostile_files import TODAY, without_checksums

FIXTURES = ROOT / "tests/fixtures/array_files"


class Own:
    """A class that is in no list."""


def npy(array: Any) -> bytes:
    out = io.BytesIO()
    np.save(out, array)
    return out.getvalue()


def npz(array: Any) -> bytes:
    out = io.BytesIO()
    np.savez(out, a=array)
    return out.getvalue()


def test_each_kind_is_looked_at_by_its_name_and_said(tmp_path: Path) -> None:
    (tmp_path / "a.npy").write_bytes(npy(np.zeros(3)))
    (tmp_path / "b.NPZ").write_bytes(npz(np.zeros(3)))
    (tmp_path / "c.gguf").write_bytes((FIXTURES / "little.gguf").read_bytes())
    (tmp_path / "d.hdf5").write_bytes((FIXTURES / "latest.h5").read_bytes())
    (tmp_path / "e.pickle").write_bytes(pickle.dumps(Own(), 2))
    (tmp_path / "f.npz").write_bytes(npz(np.array([{}], dtype=object)))
    (tmp_path / "g.npy").write_bytes(b"no array")
    (tmp_path / "h.pt").write_bytes(without_checksums(TODAY))
    found = verification.verify_directory(tmp_path, with_torch=False)
    unproven = {problem.path: problem.reason for problem in found.unproven}
    assert "length is right" in unproven["a.npy"]
    assert "content cannot be proven" in unproven["c.gguf"]
    assert "its content was not checked" in unproven["d.hdf5"]
    assert "not checked: its pickle names" in unproven["e.pickle"]
    assert "arrays of Python objects: 'a'" in unproven["f.npz"]
    assert "saved without checksums" in unproven["h.pt"]
    assert [(problem.path, "does not begin" in problem.reason) for problem in found.errors] == [
        ("g.npy", True)
    ]
    assert (found.only_hashed, [group.path for group in found.checkpoints]) == (
        0,
        ["c.gguf", "h.pt"],
    )
    assert (
        plan_examination({"model.gguf": "", "config.json": ""}).groups[0].kind
        == "files of one directory"
    )
