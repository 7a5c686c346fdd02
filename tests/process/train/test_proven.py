"""The trainers of others, with our callbacks: SIGTERM ends with 75, and a launch goes on from what is whole."""

from __future__ import annotations

import json
import os
import re
import shutil
import zlib
from pathlib import Path

import pytest
from rgt_train.callbacks.proven import FOLDER, newest_good, record_checksums
from rgt_train.checkpoint import manifest

from tests.process.train import frameworks
from tests.process.train.harness import events, losses, wipe

HF = """
import os, signal, sys, torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments
from rgt_train.callbacks import RgtCallback

class Signal(TrainerCallback):
    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step == int(sys.argv[2]): os.kill(os.getpid(), getattr(signal, sys.argv[1]))

torch.manual_seed(0)
model = GPT2LMHeadModel(GPT2Config(vocab_size=32, n_positions=16, n_embd=16, n_layer=1, n_head=2))
data = [{"input_ids": (torch.arange(8) + i) % 32, "labels": (torch.arange(8) + i) % 32} for i in range(64)]
arguments = TrainingArguments("run", max_steps=12, per_device_train_batch_size=4, logging_steps=1, save_steps=3,
    report_to="none", seed=5, use_cpu=True, disable_tqdm=True)
trainer = Trainer(model, arguments, train_dataset=data, callbacks=[Signal(), RgtCallback()])
trainer.train(resume_from_checkpoint=RgtCallback.newest_good("run"))
"""
LIGHTNING = """
import os, signal, sys, torch
import lightning as L
from lightning.pytorch.callbacks import Callback, ModelCheckpoint
from rgt_train.callbacks import RgtLightningCallback

class Net(L.LightningModule):
    def __init__(self): super().__init__(); self.net = torch.nn.Linear(4, 1)
    def training_step(self, batch, number): return (self.net(batch) ** 2).mean()
    def configure_optimizers(self): return torch.optim.SGD(self.parameters(), lr=0.1)

class Signal(Callback):
    def on_train_batch_end(self, trainer, *rest):
        if trainer.global_step == int(sys.argv[2]): os.kill(os.getpid(), getattr(signal, sys.argv[1]))

L.seed_everything(7, verbose=False)
loader = torch.utils.data.DataLoader(torch.randn(48, 4), batch_size=4)
trainer = L.Trainer(max_epochs=1, default_root_dir="run", log_every_n_steps=1, logger=False, accelerator="cpu",
    callbacks=[Signal(), ModelCheckpoint("run/kept", every_n_train_steps=3, save_top_k=-1), RgtLightningCallback()],
    enable_progress_bar=False, enable_model_summary=False)
trainer.fit(Net(), loader, ckpt_path=RgtLightningCallback.newest_good("run"))
"""


MIRRORED_FIRST = """
        import time
        while state.global_step == 10 and not os.path.isdir("mirror/step-00000003-a1"):
            time.sleep(0.01)  # the copy of step 3 goes on by itself
"""


def launch(script: str, place: Path, name: str = "SIGTERM", step: int = 0) -> tuple[int, str]:
    done = frameworks.run(script, place, name, str(step), check=False)
    return done.returncode, done.stdout + done.stderr


def spoil(path: Path) -> None:
    """Flip a bit in the middle of a file."""
    raw = bytearray(path.read_bytes())
    raw[len(raw) // 2] ^= 1
    path.write_bytes(raw)


def test_hugging_face_ends_with_75_and_goes_on_from_what_is_whole(tmp_path: Path) -> None:
    plain, place = tmp_path / "plain", tmp_path / "killed"
    for folder in (plain, place):
        folder.mkdir()
    assert launch(HF, plain)[0] == 0
    code, text = launch(HF, place, "SIGTERM", 5)
    assert code == 75, text
    assert "SIGTERM: stopping as soon as the step is over" in text
    out = place / "run"
    assert [event["reason"] for event in events(out, "stop")] == ["SIGTERM"]
    code, text = launch(HF, place, "SIGKILL", 11)
    assert code == -9, text
    assert "resuming from run/checkpoint-5, step 5" in text
    spoil(out / "checkpoint-9" / "model.safetensors")
    (out / "checkpoint-10").mkdir()  # as a kill in the middle of a save leaves it
    code, text = launch(HF, place)
    assert code == 0, text
    assert "passed over run/checkpoint-9: model.safetensors is not what was written" in text
    assert [event["step"] for event in events(out, "resume")] == [5, 6]
    assert losses(out) == losses(plain / "run")


def test_lightning_ends_with_75_and_goes_on_from_what_is_whole(tmp_path: Path) -> None:
    code, text = launch(LIGHTNING, tmp_path, "SIGTERM", 5)
    assert code == 75, text
    out = tmp_path / "run"
    assert [event["reason"] for event in events(out, "stop")] == ["SIGTERM"]
    code, text = launch(LIGHTNING, tmp_path, "SIGKILL", 11)
    assert code == -9, text
    assert "resuming from run/stopped/step=5.ckpt, step 5" in text
    spoil(out / "kept" / "epoch=0-step=9.ckpt")
    code, text = launch(LIGHTNING, tmp_path)
    assert code == 0, text
    assert (
        "passed over run/kept/epoch=0-step=9.ckpt: epoch=0-step=9.ckpt is not what was written"
        in text
    )
    assert [event["step"] for event in events(out, "resume")] == [5, 6]


def test_of_two_stops_one_checkpoint_stays_and_a_signal_at_the_last_step_stops_nothing(
    tmp_path: Path,
) -> None:
    for step in (5, 8):
        code, text = launch(LIGHTNING, tmp_path, "SIGTERM", step)
        assert code == 75, text
    out = tmp_path / "run"
    assert [path.name for path in (out / "stopped").iterdir()] == ["step=8.ckpt"]
    code, text = launch(LIGHTNING, tmp_path, "SIGTERM", 12)
    assert code == 0, text
    assert (len(events(out, "stop")), len(events(out, "done"))) == (2, 1)


def test_hugging_face_is_done_where_a_signal_comes_at_the_last_step(tmp_path: Path) -> None:
    code, text = launch(HF, tmp_path, "SIGTERM", 12)
    assert code == 0, text
    assert (events(tmp_path / "run", "stop"), len(events(tmp_path / "run", "done"))) == ([], 1)


def checkpoint(out: Path, step: int) -> Path:
    folder = out / f"checkpoint-{step}"
    (folder / "inner").mkdir(parents=True)
    (folder / "inner" / "weights").write_bytes(bytes([step]) * 1000)
    return folder


def test_the_newest_whole_one_is_chosen(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = [checkpoint(tmp_path, step) for step in (2, 10, 9)]
    for step, path in zip((2, 10, 9), made, strict=True):
        record_checksums(tmp_path, step, path)
    assert newest_good(tmp_path, iter(())) == str(made[1])
    (made[1] / "more").touch()
    assert newest_good(tmp_path, iter(())) == str(made[2])
    assert "passed over" in capsys.readouterr().out
    spoil(made[2] / "inner" / "weights")
    assert newest_good(tmp_path, iter(())) == str(made[0])
    moved = tmp_path.rename(tmp_path.with_name("moved"))
    assert newest_good(moved, iter(())) == str(moved / "checkpoint-2")


def test_none_that_is_good_is_no_fresh_start(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert newest_good(tmp_path, iter(())) is None
    path = checkpoint(tmp_path, 3)
    with pytest.raises(
        SystemExit, match=r"checkpoint-3: no checksums were noted.*Name the one"
    ) as ended:
        newest_good(tmp_path, iter([str(path)]))
    assert ended.value.code == 2
    record_checksums(tmp_path, 3, path)
    spoil(path / "inner" / "weights")
    with pytest.raises(SystemExit, match="weights is not what was written"):
        newest_good(tmp_path, iter([str(path)]))
    assert len(capsys.readouterr().err.splitlines()) == 2
    path.rename(tmp_path / "aside")
    assert newest_good(tmp_path, iter(())) is None, "moved away, to begin anew"


FIRST_SAVE = {
    "hugging face": (HF, "run/checkpoint-3", "model.safetensors"),
    "lightning": (LIGHTNING, "run/kept/epoch=0-step=3.ckpt", ""),
}


@pytest.mark.parametrize("kind", list(FIRST_SAVE))
def test_a_kill_in_the_very_first_save_starts_over(tmp_path: Path, kind: str) -> None:
    script, half, file = FIRST_SAVE[kind]
    path = tmp_path / half / file
    path.parent.mkdir(parents=True)
    path.write_bytes(b"half")
    code, text = launch(script, tmp_path)
    assert code == 0, text
    assert f"{half} was not finished by the first save, moved to run/.rgt/unproven/" in text
    assert max(losses(tmp_path / "run")) == 12


def killed_in_the_first_save(out: Path) -> Path:
    """Leave what a launch leaves that was killed after its first save, before it was recorded."""
    (out / "metrics.jsonl").write_text('{"event": "start", "step": 0}\n{"step": 1, "loss": 2.0}\n')
    (out / "run.json").write_text(json.dumps({"first": {"step": 0, "time": 1.0}}))
    return checkpoint(out, 3)


def test_a_whole_first_save_without_checksums_is_moved_away(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = killed_in_the_first_save(tmp_path)
    assert newest_good(tmp_path, iter([str(path)])) is None
    assert "starting from step 0" in capsys.readouterr().out
    assert (tmp_path / ".rgt" / "unproven" / "checkpoint-3" / "inner" / "weights").exists()
    assert newest_good(tmp_path, iter([str(path)])) is None, "another rank finds it gone"


@pytest.mark.parametrize("spoilt", ["older", "a save was finished", "resumed"])
def test_checkpoints_that_are_not_of_the_first_save_are_not_moved(
    tmp_path: Path, spoilt: str
) -> None:
    path = killed_in_the_first_save(tmp_path)
    metrics = tmp_path / "metrics.jsonl"
    if spoilt == "older":
        os.utime(path, (0.0, 0.0))
    elif spoilt == "resumed":
        metrics.write_text('{"event": "resume", "step": 2}\n')
    else:
        metrics.write_text(metrics.read_text() + '{"event": "checkpoint", "step": 2}\n')
    with pytest.raises(SystemExit, match="no checksums were noted"):
        newest_good(tmp_path, iter([str(path)]))
    assert path.exists()


def test_notes_go_with_their_checkpoints_and_a_torn_one_proves_nothing(tmp_path: Path) -> None:
    first, second = checkpoint(tmp_path, 1), checkpoint(tmp_path, 2)
    record_checksums(tmp_path, 1, first)
    first.rename(tmp_path / "gone")
    record_checksums(tmp_path, 2, second)
    (note,) = (tmp_path / FOLDER).iterdir()
    assert note.name == "checkpoint-2.json"
    note.write_bytes(note.read_bytes()[:-9])
    with pytest.raises(SystemExit):
        newest_good(tmp_path, iter([str(second)]))


def test_hugging_face_comes_back_from_the_mirror_of_a_wiped_disk(tmp_path: Path) -> None:
    """Killed, the run directory deleted, launched again by the same command: the bits of the uninterrupted run."""
    script = with_mirror(
        HF, "RgtCallback(", "trainer.train(", 'torch.save(model.state_dict(), "final.pt")'
    )
    plain, place = tmp_path / "plain", tmp_path / "killed"
    for folder in (plain, place):
        folder.mkdir()
    assert launch(script, plain)[0] == 0
    mirrored_log = (plain / "mirror" / "metrics.jsonl").read_bytes()
    assert mirrored_log == (plain / "run" / "metrics.jsonl").read_bytes(), "its end is there, too"
    killed = script.replace(
        "        if state.global_step == int",
        MIRRORED_FIRST + "        if state.global_step == int",
    )
    code, text = launch(killed, place, "SIGKILL", 11)
    assert code == -9, text
    mirrored = {path.name for path in (place / "mirror").glob("step-*")}
    wipe(place / "run")
    code, text = launch(script, place)
    assert code == 0, text
    (fetched,) = (int(step) for step in re.findall(r"fetched step-(\d+)-a1 from the mirror", text))
    assert fetched in (3, 6, 9) and f"step-{fetched:08d}-a1" in mirrored
    assert f"resuming from run/checkpoint-{fetched}, step {fetched}" in text
    assert [event["step"] for event in events(place / "run", "resume")] == [fetched]
    assert (place / "final.pt").read_bytes() == (plain / "final.pt").read_bytes()
    kept = sorted(path.name for path in (place / "mirror").iterdir() if path.is_dir())
    assert len(kept) == 2 and kept[1] == "step-00000012-a2", "as many as were asked for"
    damaged = place / "mirror" / kept[1] / "model.safetensors"
    spoil(damaged)
    shutil.rmtree(place / "run")
    code, text = launch(script, place)
    assert code == 0, text
    assert f"passed over {place}/mirror/{kept[1]} is damaged" in text
    assert f"resuming from run/checkpoint-{int(kept[0][5:13])}, step" in text
    assert (place / "final.pt").read_bytes() == (plain / "final.pt").read_bytes()


def test_lightning_comes_back_from_the_mirror_of_a_wiped_disk(tmp_path: Path) -> None:
    final = 'torch.save(module.state_dict(), "final.pt")'
    script = with_mirror(LIGHTNING, "RgtLightningCallback(", "trainer.fit(", final)
    script = script.replace("trainer, Net()", "trainer, module := Net()").replace(
        "every_n_train_steps=3, save_top_k=-1",
        'monitor="loss", mode="max", every_n_epochs=1, save_top_k=1',
    )
    script = script.replace("max_epochs=1", "max_epochs=4").replace("randn(48", "randn(12")
    script = script.replace(
        "return (self.net(batch) ** 2).mean()",
        'loss = (self.net(batch) ** 2).mean(); self.log("loss", loss, on_epoch=True); return loss',
    )
    plain, place = tmp_path / "plain", tmp_path / "killed"
    for folder in (plain, place):
        folder.mkdir()
    assert launch(script, plain)[0] == 0
    code, text = launch(script, place, "SIGTERM", 6)
    assert code == 75, text
    shutil.rmtree(place / "run")
    code, text = launch(script, place)
    assert code == 0, text
    assert "fetched step-00000006-a1 from the mirror" in text
    assert "resuming from run/stopped/step=6.ckpt, step 6" in text
    assert re.search(
        r"fetched step-00000003-a1 from the mirror .*kept/epoch=0-step=3\.ckpt", text
    ), "the best, too"
    assert [event["step"] for event in events(place / "run", "resume")] == [6]
    assert (place / "final.pt").read_bytes() == (plain / "final.pt").read_bytes()


def with_mirror(script: str, callback: str, start: str, final: str) -> str:
    """Return a script that trains into a mirror, waits for it before it is killed, and goes on by `resume`."""
    lines = (
        script.replace(callback + ")", callback + 'mirror=os.path.abspath("mirror"))')
        .strip()
        .splitlines()
    )
    lines[-1] = re.sub(
        r", (ckpt_path|resume_from_checkpoint)=.*|resume_from_checkpoint=.*", ")", lines[-1]
    )
    lines[-1] = lines[-1].replace(start, "resume(trainer, ").replace("(trainer, )", "(trainer)")
    return "\n".join(["from rgt_train.callbacks import resume", *lines, final])


def test_a_checkpoint_is_on_the_disk_for_sure_before_its_checksums_are_noted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, kept, done = checkpoint(tmp_path, 3), os.fsync, []

    def fsync(fd: int) -> None:
        done.append(Path(os.readlink(f"/proc/self/fd/{fd}")))
        kept(fd)

    monkeypatch.setattr(os, "fsync", fsync)
    record_checksums(tmp_path, 3, path)
    first_note = next(place for place, synced in enumerate(done) if FOLDER in str(synced))
    assert {path / "inner" / "weights", path / "inner", tmp_path} <= set(done[:first_note])


def in_mirror(mirror: Path, step: int, name: str = "weights", path: str = "") -> Path:
    """Put a copy of a checkpoint there; return it."""
    copy, content = mirror / f"step-{step:08d}-a1", bytes([step]) * 10
    copy.mkdir(parents=True)
    (copy / name).write_bytes(content)
    facts = {"size": 10, "crc32": [f"{zlib.crc32(content):08x}"], "chunk": 16 << 20}
    note = manifest.build_manifest(
        step, {name: facts}, {"path": path or f"checkpoint-{step}", "single": False}
    )
    (copy / manifest.NAME).write_bytes(note)
    return copy


def test_only_what_is_newer_comes_from_the_mirror_and_the_newest_whole_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, mirror = tmp_path / "out", tmp_path / "mirror"
    record_checksums(out, 4, checkpoint(out, 4))
    for step in (3, 4):
        in_mirror(mirror, step)
    assert newest_good(out, iter(()), str(mirror)) == str(out / "checkpoint-4")
    assert (out / "checkpoint-4" / "inner" / "weights").stat().st_size == 1000, (
        "the one that was here"
    )
    assert "fetched" not in capsys.readouterr().out
    for step in (5, 6, 7):
        in_mirror(mirror, step)
    spoil(mirror / "step-00000007-a1" / "weights")
    assert newest_good(out, iter(()), str(mirror)) == str(out / "checkpoint-6")
    assert not (out / "checkpoint-5").exists()


def test_no_name_in_a_mirror_leads_out_of_the_checkpoint(tmp_path: Path) -> None:
    in_mirror(tmp_path / "mirror", 3, "..%2F..%2F..%2Felsewhere")
    with pytest.raises(SystemExit, match="is not below the run directory"):
        newest_good(tmp_path / "out", iter(()), str(tmp_path / "mirror"))
    assert not list(tmp_path.rglob("elsewhere"))


def test_what_a_mirror_says_is_not_believed(tmp_path: Path) -> None:
    """A path that leaves the run directory, and a mirror that does not answer."""
    out, mirror = tmp_path / "out", tmp_path / "mirror"
    assert newest_good(out, iter(()), str(mirror)) is None
    (mirror / "step-00000003-a1").mkdir()
    (mirror / "step-00000003-a1" / "weights").write_bytes(b"x" * 10)
    facts = {"size": 10, "crc32": [f"{zlib.crc32(b'x' * 10):08x}"], "chunk": 16 << 20}
    note = manifest.build_manifest(3, {"weights": facts}, {"path": "../elsewhere", "single": False})
    (mirror / "step-00000003-a1" / manifest.NAME).write_bytes(note)
    with pytest.raises(SystemExit, match=r"'\.\./elsewhere' is not below the run directory"):
        newest_good(out, iter(()), str(mirror))
    assert not (tmp_path / "elsewhere").exists()
    note = manifest.build_manifest(3, {"weights": facts}, {"path": "checkpoint-3", "single": False})
    (mirror / "step-00000003-a1" / manifest.NAME).write_bytes(note)
    assert newest_good(out, iter(()), str(mirror)) == str(out / "checkpoint-3")
    shutil.rmtree(mirror)
    mirror.touch()
    assert newest_good(out, iter(()), "/nowhere/at/all") == str(out / "checkpoint-3"), (
        "with what is here"
    )
    with pytest.raises(SystemExit, match="does not answer"):
        newest_good(tmp_path / "new", iter(()), "/nowhere/at/all")


def test_a_note_of_the_first_version_is_read(tmp_path: Path) -> None:
    path = checkpoint(tmp_path, 3)
    facts = {"bytes": 1000, "crc32": f"{zlib.crc32(bytes([3]) * 1000):08x}"}
    (tmp_path / FOLDER).mkdir(parents=True)
    body = {"step": 3, "path": "checkpoint-3", "files": {"inner/weights": facts}}
    (tmp_path / FOLDER / "checkpoint-3.json").write_text(json.dumps(body))
    assert newest_good(tmp_path, iter([str(path)])) == str(path)
    spoil(path / "inner" / "weights")
    with pytest.raises(SystemExit, match="inner/weights is not what was written"):
        newest_good(tmp_path, iter([str(path)]))
