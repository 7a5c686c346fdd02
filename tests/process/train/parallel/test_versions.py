"""What one version of Python, torch or rgt has written, another one reads."""

from __future__ import annotations

import json
import pickle
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from types import ModuleType
from typing import Any

import pytest
import torch
from rgt_train import cli
from rgt_train.checkpoint import manifest, read_tensors
from rgt_train.export import export_weights
from rgt_train.ranks import dcp_reader, replicated
from torch.distributed._shard.sharded_tensor import metadata as old_metadata
from torch.distributed.checkpoint import metadata as new_metadata
from torch.distributed.checkpoint.state_dict_saver import save as save_sharded

from tests.process.train.harness import ROOT, Zygote, losses, metrics, zygote
from tests.process.train.parallel import train_worker
from tests.process.train.parallel.forked import forked
from tests.system.tree import unpack

WRITTEN = ROOT / "tests" / "fixtures" / "checkpoints"
WORDS = ("--width", "8", "--epochs", "1")


def unpacked(name: str, place: Path) -> Path:
    out = place / name
    unpack(WRITTEN / f"{name}.tar.gz", out)
    return out


def kind_of(name: str) -> tuple[int, str]:
    return (2, "fsdp") if name.startswith("fsdp2") else (1, "none")


def state(out: Path, name: str) -> Any:
    return json.loads((out / f"{name}-0.json").read_text())


RUNS = sorted(path.name.removesuffix(".tar.gz") for path in WRITTEN.glob("*.tar.gz"))
LOOPS = [name for name in RUNS if not name.startswith("task-")]
"""Written by the loop of `train_worker`; those of a task have a test of their own."""


@pytest.mark.parametrize("name", LOOPS)
def test_a_run_of_another_version_goes_on(trainers: Zygote, tmp_path: Path, name: str) -> None:
    out = unpacked(name, tmp_path)
    left = state(out, "left")
    assert left["step"] > 0
    world, kind = kind_of(name)
    ranks = forked(
        trainers, world, train_worker.__file__, str(out), "--parallel", kind, "--width", "8"
    )
    assert ranks.wait() == [0] * world, ranks.text()
    came = state(out, "came")
    assert (came["step"], came["state"]) == (left["step"], left["state"]), "loaded is what was left"


@pytest.mark.parametrize("name", ["fsdp2-python3.11.2", "fsdp2-python3.11.7"])
def test_weights_of_another_version_are_exported(tmp_path: Path, name: str) -> None:
    out = unpacked(name, tmp_path)
    export_weights(str(out), str(tmp_path / "w.safetensors"))
    found = read_tensors(memoryview((tmp_path / "w.safetensors").read_bytes()))
    left = state(out, "left")["state"]
    assert {f"model/{key}": replicated.hash_tensor(tensor) for key, tensor in found.items()} == {
        key: value for key, value in left.items() if key.startswith("model/")
    }


@pytest.mark.parametrize("name", ["fsdp2-python3.11.7", "plain-python3.11.7"])
@pytest.mark.parametrize("value", [{"$": "lattice", "of": 1}, {"$": "dtype", "of": "float3"}])
def test_what_a_newer_version_wrote_ends_the_launch_and_stays(
    trainers: Zygote, tmp_path: Path, name: str, value: dict[str, Any]
) -> None:
    """It is intact: to pass it over, or to begin anew, would lose it."""
    out = unpacked(name, tmp_path)
    (place,) = (out / "checkpoints").iterdir()
    document = json.loads((place / "state.json").read_text())
    part = next(part for part in document["objects"] if part.startswith("scheduler"))
    document["objects"][part]["new"] = value
    (place / "state.json").write_text(json.dumps(document))
    body = manifest.read_manifest(place)
    body["files"]["state.json"] = manifest.file_facts(
        memoryview((place / "state.json").read_bytes())
    )
    facts = {key: body[key] for key in body if key not in ("files", "step", "format", "digest")}
    (place / "manifest.json").write_bytes(
        manifest.build_manifest(body["step"], body["files"], facts)
    )
    world, kind = kind_of(name)
    ranks = forked(
        trainers, world, train_worker.__file__, str(out), "--parallel", kind, "--width", "8"
    )
    assert ranks.wait() == [2] * world, ranks.text()
    assert (
        f"the checkpoint holds an unknown {'dtype' if value['$'] == 'dtype' else 'kind'}"
        in ranks.text()
    )
    assert "Traceback" not in ranks.text()
    manifest.verify_checkpoint(place)


def test_a_sharded_run_with_nothing_good_ends_on_every_rank_and_deletes_nothing(
    trainers: Zygote, tmp_path: Path
) -> None:
    out = unpacked("fsdp2-python3.11.7", tmp_path)
    (place,) = (out / "checkpoints").iterdir()
    data = bytearray((place / "__1_0.distcp").read_bytes())
    data[len(data) // 2] ^= 1
    (place / "__1_0.distcp").write_bytes(data)
    for _ in range(2):
        ranks = forked(
            trainers, 2, train_worker.__file__, str(out), "--parallel", "fsdp", "--width", "8"
        )
        assert ranks.wait() == [2, 2], ranks.text()
        assert (
            f"no checkpoint in {out} is good, and none was deleted: checkpoint {place} is damaged"
            in ranks.text()
        )
        assert (place / "__1_0.distcp").read_bytes() == data


def other_python() -> str:
    """Return a Python of this minor and another patch version: what is compiled for one runs on the other.

    Where there is none it is this one: the archives are of two versions in any case.
    """
    name = f"python3.{sys.version_info.minor}"
    for folder in ("/usr/bin", "/usr/local/bin", "/opt/python/bin", ROOT / ".interpreters"):
        found = shutil.which(name, path=folder)
        if found is None:
            continue
        version = subprocess.run(
            [found, "-V"], capture_output=True, text=True, check=True
        ).stdout.split()[1]
        if version != sys.version.split()[0]:
            return found
    return sys.executable


@pytest.fixture(scope="module")
def others(trainers: Zygote, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Zygote]:
    """Forks trainers under the other Python, with the packages of this one."""
    python = other_python()
    if python == sys.executable:
        yield trainers
        return
    with zygote(tmp_path_factory.mktemp("others") / "fifos", python=python) as running:
        assert running.alive, f"{python} does not import what it forks"
        yield running


def launch(trainers: Zygote, out: Path, *words: str) -> tuple[list[int], str]:
    """Run two ranks to their end."""
    ranks = forked(
        trainers,
        2,
        train_worker.__file__,
        str(out),
        "--parallel",
        "fsdp",
        *WORDS,
        *words,
        background=False,
    )
    return ranks.wait(), ranks.text()


@pytest.fixture(scope="module")
def whole(trainers: Zygote, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """How a run ends that nobody interrupts."""
    out = tmp_path_factory.mktemp("whole") / "run"
    ranks = forked(trainers, 2, train_worker.__file__, str(out), "--parallel", "fsdp", *WORDS)
    assert ranks.wait() == [0, 0], ranks.text()
    return state(out, "final")


@pytest.mark.parametrize("first", ["other", "this"])
def test_a_killed_sharded_run_goes_on_under_another_patch_version(
    trainers: Zygote, others: Zygote, tmp_path: Path, whole: Any, first: str
) -> None:
    """Debian 12 has Python 3.11.2, which pickles enums otherwise than 3.11.7: every such run began anew."""
    order = [others, trainers]
    if first == "this":
        order.reverse()
    codes, text = launch(order[0], tmp_path, "--die-once", "12")
    assert codes[1] == -9, text
    codes, text = launch(order[1], tmp_path)
    assert codes == [0, 0], text
    assert "resume: at step 10 of 23 from" in text
    assert state(tmp_path, "final") == whole


class TestSpellings:
    """How versions that are not at hand write the same metadata file."""

    @pytest.fixture
    def written(self, tmp_path: Path) -> Path:
        tensors = {
            "flat": torch.ones(3),
            "wide": torch.ones(1, 2, 2, 2).to(memory_format=torch.channels_last),
        }
        save_sharded(tensors, checkpoint_id=str(tmp_path / "sharded"), no_dist=True)
        return tmp_path / "sharded"

    def plain(self, written: Path) -> Any:
        return pickle.loads((written / ".metadata").read_bytes())

    def test_as_this_one(self, written: Path) -> None:
        found = dcp_reader.parse_metadata((written / ".metadata").read_bytes())
        theirs = self.plain(written)
        assert found.state_dict_metadata == theirs.state_dict_metadata
        assert found.storage_data == theirs.storage_data
        assert found.version == theirs.version

    @pytest.mark.parametrize("member", list(new_metadata._MEM_FORMAT_ENCODING))
    def test_enums_by_name(
        self, written: Path, monkeypatch: pytest.MonkeyPatch, member: Any
    ) -> None:
        enum = new_metadata._MEM_FORMAT_ENCODING
        theirs = self.plain(written)
        formats = [torch.contiguous_format, torch.channels_last, torch.preserve_format]
        theirs.state_dict_metadata["flat"].properties.memory_format = formats[member.value]
        monkeypatch.setattr(enum, "__reduce_ex__", lambda self, _: (getattr, (enum, self.name)))
        data = pickle.dumps(theirs)
        assert b"getattr" in data
        assert dcp_reader.parse_metadata(data).state_dict_metadata == theirs.state_dict_metadata

    def test_paths_of_python_3_13(self, written: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        module = ModuleType("pathlib._local")
        kind: Any = type("PosixPath", (PurePosixPath,), {"__module__": "pathlib._local"})
        module.PosixPath = kind  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "pathlib._local", module)
        theirs = self.plain(written)
        theirs.storage_meta.checkpoint_id = kind("run/x")
        data = pickle.dumps(theirs)
        assert b"pathlib._local" in data
        assert dcp_reader.parse_metadata(data).storage_data == theirs.storage_data

    def test_properties_of_older_torch(self, written: Path) -> None:
        theirs = self.plain(written)
        theirs.storage_meta = None
        for entry in theirs.state_dict_metadata.values():
            entry.properties = old_metadata.TensorProperties(dtype=torch.bfloat16)
        del theirs.version
        data = pickle.dumps(theirs)
        assert b"torch.distributed._shard.sharded_tensor.metadata" in data
        found: dict[str, Any] = dict(dcp_reader.parse_metadata(data).state_dict_metadata)
        assert {entry.properties.dtype for entry in found.values()} == {torch.bfloat16}


def test_a_task_of_before_goes_on_with_the_optimizer_and_the_averages_of_torch(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It had an AdamW and averages of its own: the losses of the uninterrupted run, as near as rounding is."""
    out = unpacked("task-diffusion-python3.11.7", tmp_path)
    values = {
        "width": 8,
        "layers": 1,
        "points": 128,
        "batch": 8,
        "timesteps": 10,
        "sample_steps": 2,
        "modes": 3,
    }
    words = [word for key, value in values.items() for word in ("--set", f"{key}={value}")]
    words += [
        "--task",
        "diffusion",
        "--seed",
        "3",
        "--epochs",
        "2",
        "--steps-per-epoch",
        "8",
        "--log-every",
        "1",
    ]
    assert cli.main([*words, "--save-every", "4", "--out", str(out)]) == 0
    told = capsys.readouterr().out
    assert "resume: restored model, optimizer, ema, data position (epoch 2, step 3 of it)" in told
    assert "not restored" not in told
    wanted = {12: 0.381343454, 13: 0.776874483, 14: 0.856197119, 15: 0.269674838, 16: 0.321133494}
    assert losses(out) == pytest.approx(wanted, rel=1e-4)
    (judged,) = (line["val_loss"] for line in metrics(out) if "val_loss" in line)
    assert judged == pytest.approx(1.426976234, rel=1e-4)  # by the averaged weights
