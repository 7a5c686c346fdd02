"""The trainer, put on a real box over a real sshd, and launched there."""

from __future__ import annotations

import asyncio
import io
import shlex
import zipfile
from pathlib import Path

import msgspec
import pytest

from rgt_tui.ssh import (
    DeployedTrainer,
    DeployFailed,
    build_trainer,
    connect,
    deploy_trainer,
    remote_root,
)
from rgt_tui.ssh.deployment import best_python, version_of
from tests.contract.ssh.conftest import RealSshd

replace = msgspec.structs.replace


def test_the_zipapp_is_the_whole_source_and_the_same_every_time() -> None:
    first, second = build_trainer(), build_trainer()
    assert first == second
    assert first.filename == f"rgt-train-{first.digest[:16]}.pyz"
    names = set(zipfile.ZipFile(io.BytesIO(first.data)).namelist())
    root = remote_root()
    wanted = {
        str(path.relative_to(root))
        for name in ("rgt_train", "rgt_wire")
        for path in (root / name).rglob("*.py")
    }
    assert names == wanted | {"__main__.py"}


async def test_it_is_written_once_and_trains_there(real_sshd: RealSshd) -> None:
    """The smoke test, a real run with shipped config and checkpoints, and the same launch again."""
    bundle = build_trainer()
    python = real_sshd.spec.python or ""
    async with await connect(real_sshd.spec) as connection:
        first = await deploy_trainer(connection, "real", bundle, (python,))
        before = Path(first.path).stat()
        assert await deploy_trainer(connection, "real", bundle, (python,)) == first
        after = Path(first.path).stat()
        assert (before.st_ino, before.st_mtime_ns) == (after.st_ino, after.st_mtime_ns)
        assert Path(first.path).read_bytes() == bundle.data
        assert first.training_problem is None and first.python == python
        assert [p.name for p in Path(first.path).parent.iterdir() if ".tmp" in p.name] == []

        async def there(words: str) -> str:
            done = await connection.run(f"cd ~ && OMP_NUM_THREADS=1 {words}", errors="replace")
            assert done.exit_status == 0, (done.stdout, done.stderr)
            return str(done.stdout)

        run = f"{shlex.quote(first.python)} {first.path}"
        assert "smoke: 2 steps ok" in await there(f"{run} --config prod --smoke 2")
        launch = f"{first.launch} --epochs 1 --set steps_per_epoch=12 --set save_every=5"
        assert "done: step 12" in await there(launch)
        assert "already finished: step 12" in await there(launch)
        assert "exported" in await there(f"{run} export RUN --to model.safetensors")
        told = await there(
            f"{first.library} {shlex.quote(first.python)} -c 'from rgt_train import Run; print(Run.__module__)'"
        )
        assert told == "rgt_train.run\n"


async def test_a_damaged_transfer_is_found_on_the_box(real_sshd: RealSshd) -> None:
    bundle = build_trainer()
    damaged = replace(bundle, filename="rgt-train-damaged.pyz", data=bundle.data[:-1])
    async with await connect(real_sshd.spec) as connection:
        with pytest.raises(DeployFailed, match="damaged"):
            await deploy_trainer(connection, "real", damaged, (real_sshd.spec.python or "",))
    assert not list((real_sshd.folder / "home/.cache/rgt").glob("rgt-train-damaged*"))


async def test_two_at_once_write_one_file(real_sshd: RealSshd) -> None:
    bundle = replace(build_trainer(), filename="rgt-train-twice.pyz")

    async def one() -> DeployedTrainer:
        connection = await connect(real_sshd.spec)
        try:
            return await deploy_trainer(connection, "real", bundle, (real_sshd.spec.python or "",))
        finally:
            connection.abort()

    left, right = await asyncio.gather(one(), one())
    assert left == right
    assert Path(left.path).read_bytes() == bundle.data


def test_the_python_that_has_torch_is_chosen() -> None:
    text = "RGT\t/a/python\t\nnoise\nRGT\t/old/python\t2.1.0\nRGT\t/good/python\t2.13.0+cu126\nRGT\t/b\t2.9\n"
    assert best_python(text, "/x") == ("/good/python", "2.13.0+cu126")
    assert best_python("RGT\t/old/python\t2.1.0\n", "/x") == ("/old/python", "2.1.0")
    assert best_python("RGT\t/a/python\t\n", "/x") == ("/x", None)
    assert best_python("RGT\t/a\x1b[31m/python\t2.9\n", "/x")[0].isprintable()


def test_what_keeps_it_from_training_is_said() -> None:
    good = DeployedTrainer("lab", "/p.pyz", "0" * 64, "/py", "2.4.1", "launch", "library")
    assert good.training_problem is None
    assert "older than 2.4" in (replace(good, torch="1.13.1").training_problem or "")
    assert "no Python there has torch" in (replace(good, torch=None).training_problem or "")
    assert version_of("2.13.0+cpu") == (2, 13, 0)
    assert version_of("2.5.0a0+git1") == (2, 5)
    assert version_of("nightly") == ()
