"""A snapshot is the state of its step, whatever the training does while it is being copied and written."""

from __future__ import annotations

import mmap
import os
import select
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from rgt_train import Options, Run, UsageError
from rgt_train.boundary import OptimizerHooks
from rgt_train.checkpoint import (
    PARANOID,
    STEP,
    AsyncSaver,
    CheckpointStore,
    RunState,
    SaveOutcome,
    SaveRequest,
    TornSnapshot,
    counted_averages,
    snapshot,
)
from rgt_train.data.position import Progress

from tests.process.train.harness import TIMEOUT, assert_same

Build = Callable[..., "Bench"]


class Bench:
    """A small model with everything, a persister, and the state at the last `begin`."""

    def __init__(self, out: Path, *, hooked: bool = True, background: bool = True) -> None:
        torch.manual_seed(0)
        nn = torch.nn
        self.first, self.norm, last = nn.Linear(64, 64), nn.BatchNorm1d(64), nn.Linear(64, 1)
        last.weight.requires_grad_(False)
        self.model = nn.Sequential(self.first, self.norm, last)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.1)
        self.ema = torch.optim.swa_utils.AveragedModel(self.model)
        self.state = RunState(
            {"model": self.model},
            {"optimizer": self.optimizer, "ema": self.ema},
            Progress(),
            {},
            {},
        )
        self.state.steady, self.state.hooked = {"optimizer", "ema"}, hooked
        self.state.optimizers = {"optimizer"}
        out.mkdir(exist_ok=True)
        self.pids: list[int] = []
        self.persister = AsyncSaver(
            CheckpointStore(out, 1), started=self.pids.append, background=background
        )
        if hooked:
            self.hooks = OptimizerHooks([self.optimizer], self.persister.before_change)
            assert self.hooks.sees_all_changes
        self.at_begin: dict[str, Any] = {}
        self.steps = 0
        self.train()

    def train(self) -> None:
        """One step."""
        self.optimizer.zero_grad()
        self.model(torch.randn(8, 64)).square().mean().backward()
        self.optimizer.step()
        self.ema.update_parameters(self.model)
        self.steps += 1

    def accept_build(self) -> None:
        """Take the model as it is now for the one that the run began with."""
        self.state._built = self.state._look_at_build()

    def whole(self) -> dict[str, Any]:
        """A copy of all tensors of the state."""
        parts = self.state.collect_state([]).parts
        return {f"{part.spec.file}:{part.spec.key}": part.tensor.clone() for part in parts}

    def begin(self) -> None:
        """Begin a save."""
        self.at_begin = self.whole()
        self.persister.begin_save(SaveRequest(STEP, self.steps), self.state)

    def end(self) -> SaveOutcome:
        """Wait for its end."""
        outcome = self.persister.wait()
        assert outcome is not None
        return outcome

    def check(self, outcome: SaveOutcome) -> None:
        """Assert that what is on the disk is the state at `begin`."""
        from rgt_train.checkpoint import LoadedCheckpoint

        assert outcome.error is None, outcome.error
        assert outcome.checkpoint is not None
        loaded = LoadedCheckpoint(outcome.checkpoint.path)
        files = [name for name in loaded.manifest["files"] if name.endswith(".safetensors")]
        found = {
            f"{file}:{key}": t.clone()
            for file in files
            for key, t in loaded.tensors_of(file).items()
        }
        loaded.close()
        assert_same({key: found[key] for key in self.at_begin}, self.at_begin)


@pytest.fixture
def build(tmp_path: Path) -> Iterator[Build]:
    made: list[Bench] = []

    def make(**options: bool) -> Bench:
        made.append(Bench(tmp_path / "run", **options))
        return made[-1]

    yield make
    for bench in made:
        bench.persister.close()


class Gate:
    """Holds the copying thread until it is opened."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.reached, self.opened = threading.Event(), threading.Event()
        real = snapshot.copy_all

        def held(pairs: Any) -> None:
            if threading.current_thread() is not threading.main_thread():
                self.reached.set()
                assert self.opened.wait(TIMEOUT)
            real(pairs)

        monkeypatch.setattr(snapshot, "copy_all", held)


@pytest.mark.parametrize("paranoid", ["0", "1"])
def test_training_goes_on_and_the_snapshot_does_not_change(
    build: Build, monkeypatch: pytest.MonkeyPatch, paranoid: str
) -> None:
    monkeypatch.setenv(PARANOID, paranoid)
    bench = build()
    for _ in range(
        4
    ):  # the same memory again and again: nothing of the save before may be left in it
        bench.begin()
        for _ in range(3):
            bench.train()
        bench.check(bench.end())


def test_the_step_waits_for_the_copy_and_buffers_are_copied_at_once(
    build: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench, gate = build(), Gate(monkeypatch)
    mean = bench.norm.running_mean
    assert mean is not None
    before = mean.clone()
    bench.begin()
    assert gate.reached.wait(TIMEOUT)
    bench.optimizer.zero_grad()
    bench.model(torch.randn(8, 64)).square().mean().backward()  # forward and backward are free
    assert not torch.equal(before, mean)
    weight = bench.first.weight.detach().clone()
    stepped = threading.Event()

    def step() -> None:
        bench.optimizer.step()
        stepped.set()

    thread = threading.Thread(target=step)
    thread.start()
    assert not stepped.wait(0.05)
    assert torch.equal(weight, bench.first.weight)
    gate.opened.set()
    thread.join(TIMEOUT)
    assert not torch.equal(weight, bench.first.weight)
    outcome = bench.end()
    bench.check(outcome)
    assert outcome.waited_s > 0
    assert outcome.stall_s > outcome.waited_s


def test_a_change_behind_the_optimizers_back_is_noticed(
    build: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench, gate = build(), Gate(monkeypatch)
    bench.begin()
    with torch.no_grad():
        bench.first.weight.clamp_(-0.01, 0.01)
    gate.opened.set()
    torn = bench.end()
    assert isinstance(torn.error, TornSnapshot)
    assert torn.error.names == ["0.weight"]
    (note,) = torn.notes
    assert note.startswith(
        "0.weight changed between run.step and the next optimizer.step(): that save is dropped, and from now on it is "
        "copied on the training thread. "
    )
    bench.begin()
    with torch.no_grad():
        bench.first.weight.clamp_(-0.001, 0.001)
    bench.check(bench.end())


def test_a_change_that_torch_counts_only_after_the_copy_has_ended_is_noticed(
    build: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An operation in place changes the memory first and is counted at its end: the copying thread may look between."""
    monkeypatch.setattr(
        snapshot.ContentWitness, "find_changed", lambda self, tensors: []
    )  # it was where no sample was
    bench, gate = build(), Gate(monkeypatch)
    bench.begin()
    assert gate.reached.wait(TIMEOUT)
    bench.first.weight.data.add_(1)  # not counted: an operation that still goes on
    gate.opened.set()
    flight = bench.persister._flight
    assert flight is not None
    assert flight.submitted.wait(TIMEOUT)
    with torch.no_grad():
        bench.first.weight.add_(0)  # its end
    torn = bench.end()
    assert isinstance(torn.error, TornSnapshot)
    assert os.listdir(os.path.join(bench.persister._store.root)) == [], (
        "the writer has published nothing"
    )
    bench.begin()
    bench.train()
    bench.check(bench.end())


@pytest.mark.parametrize("little", [snapshot.LITTLE, 0])
def test_a_change_that_torch_does_not_count_is_noticed(
    build: Build, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, little: int
) -> None:
    """By ``.data``, before the copying thread comes to it; compared in full, and by samples."""
    monkeypatch.setattr(snapshot, "LITTLE", little)
    bench, gate = build(), Gate(monkeypatch)
    bench.begin()
    assert gate.reached.wait(TIMEOUT)
    bench.first.weight.data.mul_(0.5)
    gate.opened.set()
    torn = bench.end()
    assert isinstance(torn.error, TornSnapshot)
    assert torn.error.names == ["0.weight"]
    assert not list(tmp_path.glob("run/checkpoints/*")), "nothing was written"
    bench.begin()
    bench.first.weight.data.mul_(0.5)
    bench.check(bench.end())


def test_a_weight_that_is_replaced_is_saved_as_it_was(
    build: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench, gate = build(), Gate(monkeypatch)
    bench.begin()
    bench.first.weight.data = bench.first.weight.data * 0.5
    gate.opened.set()
    bench.check(bench.end())


@pytest.mark.parametrize(
    "what", ["frozen", "without a gradient", "of no optimizer", "of a group made later"]
)
def test_only_what_an_optimizer_has_stepped_is_copied_beside_the_training(
    build: Build, what: str
) -> None:
    bench = build()
    other = torch.nn.Parameter(torch.ones(3), requires_grad=what != "frozen")
    bench.model.register_parameter("other", other)
    if what != "of no optimizer":
        bench.optimizer.add_param_group({"params": [other]})
    bench.accept_build()
    if what == "of a group made later":
        other.grad = torch.ones(3)
        bench.optimizer.step()
        other.grad = None  # its moments are there
    steady = {part.spec.key for part in bench.state.collect_state([]).parts if part.steady}
    assert ("other" in steady) == (what == "of a group made later")
    assert {"0.weight", "optimizer/state/0/exp_avg"} <= steady
    assert "2.weight" not in steady, "it is frozen"


@pytest.mark.parametrize(
    ("shape", "dtype"),
    [((3,), torch.float64), ((), torch.int64), ((0, 4), torch.float32), ((7, 5, 3), torch.bfloat16),
     ((1000, 2), torch.bool), ((2, 3000), torch.complex64), ((40, 3, 8, 8), torch.float32)],
)  # fmt: skip
@pytest.mark.parametrize("little", [snapshot.LITTLE, 0])
def test_what_tensors_held_is_known(
    monkeypatch: pytest.MonkeyPatch, shape: tuple[int, ...], dtype: torch.dtype, little: int
) -> None:
    monkeypatch.setattr(snapshot, "LITTLE", little)
    monkeypatch.setattr(snapshot, "WINDOW", 64)
    tensor = torch.ones(shape, dtype=dtype)
    if len(shape) == 4:
        tensor = tensor.to(memory_format=torch.channels_last)
    copy = torch.ones(shape, dtype=dtype)
    for turn in range(20):
        witness = snapshot.ContentWitness([torch.zeros(1), tensor, torch.zeros(2)], turn)
        assert witness.whole == (little > 0)
        assert witness.find_changed([torch.zeros(1), copy, torch.zeros(2)]) == []
        assert witness.find_changed([torch.zeros(1), copy * 0, torch.zeros(2)]) == (
            [1] if tensor.numel() else []
        )


def test_samples_come_to_every_tensor_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshot, "LITTLE", 0)
    monkeypatch.setattr(snapshot, "WINDOWS", 4)
    before, after = [torch.zeros(3) for _ in range(11)], [torch.ones(3) for _ in range(11)]
    seen = [snapshot.ContentWitness(before, turn).find_changed(after) for turn in range(3)]
    assert max(map(len, seen)) <= 4
    assert sorted(number for numbers in seen for number in numbers) == list(range(11))


@pytest.mark.parametrize("form", ["without gaps", "with gaps"])
def test_a_sample_is_small_and_is_elsewhere_at_the_next_save(
    monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    monkeypatch.setattr(snapshot, "LITTLE", 0)
    monkeypatch.setattr(snapshot, "WINDOW", 400)
    before = torch.zeros(100, 10) if form == "without gaps" else torch.zeros(10, 100).T
    after = torch.zeros(100, 10)
    after[37, 3] = 1
    seen = [snapshot.ContentWitness([before], turn).find_changed([after]) for turn in range(60)]
    assert [0] in seen
    assert seen.count([]) > 40, "ten rows of a hundred are looked at"


def test_a_nan_is_no_change() -> None:
    held = torch.tensor([float("nan"), 0.0])
    witness = snapshot.ContentWitness([held])
    assert witness.find_changed([held.clone()]) == []
    assert witness.find_changed([torch.tensor([float("nan"), -0.0])]) == [0]


def test_a_save_that_failed_before_it_was_judged_is_no_trouble_for_the_next(
    build: Build, tmp_path: Path
) -> None:
    bench = build()
    blocked = tmp_path / "run" / "checkpoints"
    blocked.write_text("in the way")
    bench.begin()
    helper = bench.persister._client._helper
    assert helper is not None
    select.select([helper.sock], [], [], TIMEOUT)  # the writer has told that it failed
    assert isinstance(bench.end().error, OSError)
    blocked.unlink()
    for _ in range(2):
        bench.begin()
        bench.train()
        bench.check(bench.end())


def test_a_missing_hook_would_be_noticed_too(build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    bench, gate = build(), Gate(monkeypatch)
    bench.hooks.close()
    bench.begin()
    bench.train()
    gate.opened.set()
    torn = bench.end()
    assert isinstance(torn.error, TornSnapshot)
    assert {"0.weight", "optimizer/state/0/exp_avg", "ema/module.0.weight"} <= set(torn.error.names)


def test_without_hooks_everything_is_copied_at_once(
    build: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench, gate = build(hooked=False), Gate(monkeypatch)
    bench.begin()
    bench.train()
    bench.check(bench.end())
    assert not gate.reached.is_set(), "no thread copies anything"


def test_the_trainer_itself_writes_where_it_is_told_to(build: Build) -> None:
    bench = build(background=False)
    bench.begin()
    bench.train()
    bench.check(bench.end())


def test_state_of_another_shape_gets_new_memory(build: Build) -> None:
    bench = build()
    bench.begin()
    bench.check(bench.end())
    bench.first.register_buffer("late", torch.arange(5000))
    bench.accept_build()
    bench.begin()
    bench.check(bench.end())
    assert "model.safetensors:0.late" in bench.at_begin


def test_a_writer_that_dies_is_replaced_and_at_last_done_without(
    build: Build, tmp_path: Path
) -> None:
    bench = build()
    bench.begin()
    bench.check(bench.end())
    for number in (1, 2):
        bench.persister._client.start()
        os.kill(bench.pids[-1], signal.SIGSTOP)  # in the middle of what it gets next
        bench.begin()
        bench.persister.before_change()
        os.kill(bench.pids[-1], signal.SIGKILL)
        outcome = bench.end()
        assert "the writer process died (SIGKILL)" in str(outcome.error)
        assert len(bench.pids) == number
        bench.train()
        assert (number == 1) == (outcome.notes == ())
    assert "it died 2 times in a row" in outcome.notes[0]
    bench.begin()
    bench.check(bench.end())
    assert len(bench.pids) == 2


def test_a_writer_that_died_between_two_saves_is_replaced(build: Build) -> None:
    bench = build()
    for _ in range(3):
        bench.begin()
        bench.train()
        bench.check(bench.end())
        helper = bench.persister._client._helper
        assert helper is not None
        helper.process.kill()
        helper.process.wait()
    assert len(set(bench.pids)) == 3


def test_a_snapshot_can_be_written_again(build: Build, tmp_path: Path) -> None:
    bench = build()
    blocked = tmp_path / "run" / "checkpoints"
    blocked.write_text("in the way")
    bench.begin()
    bench.train()
    failed = bench.end()
    assert isinstance(failed.error, OSError)
    assert failed.error.errno is not None
    blocked.unlink()
    bench.persister.write_again(give_up=False)
    bench.train()
    bench.check(bench.end())


def test_what_cannot_be_stored_is_told_by_its_name(build: Build) -> None:
    bench = build()
    bench.model.register_buffer("sparse", torch.eye(3).to_sparse())
    bench.accept_build()
    with pytest.raises(UsageError, match=r"sparse is a torch\.sparse_coo tensor"):
        bench.begin()
    assert not bench.persister.busy


class Average:
    """Averaged weights as many keep them: changed by ``.data``, which torch does not count."""

    def __init__(self) -> None:
        self.weights = torch.zeros(64)

    def update(self) -> None:
        """Take in a step."""
        self.weights.data.add_(1)

    def state_dict(self) -> dict[str, Any]:
        """Return them."""
        return {"weights": self.weights}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Put them back."""
        self.weights.copy_(state["weights"])


def test_averaged_weights_that_change_unnoticed_are_copied_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from rgt_train.checkpoint import LoadedCheckpoint

    model, ema, gate = torch.nn.Linear(4, 1), Average(), Gate(monkeypatch)
    run = Run(
        tmp_path, model=model, optimizer=torch.optim.SGD(model.parameters(), lr=0.1), ema=ema, samples=4,
        epochs=1, options=Options(save_every=2, log_every=0),
    )  # fmt: skip
    with run:
        for _ in range(2):
            model(torch.ones(1, 4)).sum().backward()  # only what is trained is copied by the thread
            ema.update()
            run.step(1.0)
        assert gate.reached.wait(TIMEOUT)
        ema.update()  # of step 3
        gate.opened.set()
    loaded = LoadedCheckpoint(os.path.join(tmp_path, "checkpoints", "step-00000002-a1"))
    assert loaded.tensors_of("trainer.safetensors")["ema/weights"].tolist() == [2.0] * 64
    loaded.close()


def test_a_load_reads_every_byte_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from rgt_train.checkpoint import LoadedCheckpoint, diskio

    model = torch.nn.Linear(500, 500)
    with Run(tmp_path, model=model, max_steps=1, options=Options(log_every=0)) as run:
        for _epoch in run.epochs():
            for _step in run.steps():
                run.step(1.0)
    read: list[int] = []
    real = diskio.read_into

    def counting(fd: int, offset: int, target: memoryview) -> int:
        read.append(real(fd, offset, target))
        return read[-1]

    monkeypatch.setattr(diskio, "read_into", counting)
    monkeypatch.setattr(mmap, "mmap", None)  # nor maps it, to read it again
    place = tmp_path / "checkpoints" / "step-00000001-a1"
    loaded = LoadedCheckpoint(str(place))
    assert sum(read) == sum(facts["size"] for facts in loaded.manifest["files"].values())
    held = loaded.tensors_of("model.safetensors")["weight"]
    loaded.close()
    (place / "model.safetensors").unlink()
    assert torch.equal(held, model.weight)


def test_which_averaged_weights_are_known_to_be_counted() -> None:
    from rgt_train.loop import Ema

    model = torch.nn.Linear(2, 1)
    parts: dict[str, Any] = {
        "ours": Ema(model, 0.9), "torch": torch.optim.swa_utils.AveragedModel(model), "own": Average(),
    }  # fmt: skip
    assert counted_averages(parts) == {"ours", "torch"}
    before = [t._version for t in parts["ours"].module.parameters()]
    parts["ours"].update_parameters(model)
    assert all(
        t._version > v for t, v in zip(parts["ours"].module.parameters(), before, strict=True)
    )


def copied(bench: Bench) -> snapshot.SnapshotCopy:
    """Wait until the copying thread has ended; nobody has judged the copy yet."""
    flight = bench.persister._flight
    assert flight is not None and flight.copy is not None
    assert flight.copy._over.wait(TIMEOUT)
    assert not flight.copy.is_judged
    return flight.copy


def backward(bench: Bench) -> None:
    bench.optimizer.zero_grad()
    bench.model(torch.randn(8, 64)).square().mean().backward()


def hooks_of(bench: Bench) -> int:
    parameters: list[Any] = list(bench.model.parameters())
    return sum(len(parameter._post_accumulate_grad_hooks or ()) for parameter in parameters)


def test_a_backward_pass_is_enough_to_publish(build: Build) -> None:
    bench = build()
    bench.begin()
    copy = copied(bench)
    assert hooks_of(bench) == 5, "of all that get gradients, where they are few"
    backward(bench)
    assert copy.is_judged
    bench.optimizer.step()
    assert hooks_of(bench) == 0
    bench.check(bench.end())


def test_a_change_before_the_backward_pass_is_seen_in_it(build: Build) -> None:
    bench = build()
    bench.begin()
    copy = copied(bench)
    with torch.no_grad():
        bench.first.weight.clamp_(-0.01, 0.01)
    backward(bench)
    assert copy.is_judged
    outcome = bench.end()
    assert isinstance(outcome.error, TornSnapshot)
    assert hooks_of(bench) == 5, "until the next step or save"
    bench.begin()
    bench.check(bench.end())
    bench.persister.close()
    assert hooks_of(bench) == 0


def test_a_compiled_optimizer_step_is_compiled_once(tmp_path: Path) -> None:
    """The hooks of the run change at each step, and look at each tensor of a save."""
    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    run = Run(
        tmp_path, model=model, optimizer=optimizer, max_steps=4, options=Options(save_every=1)
    )

    @torch.compile(backend="eager")
    def update() -> None:
        optimizer.step()

    compiled: list[int] = []
    with run:
        for _epoch in run.epochs():
            for _step in run.steps():
                model(torch.ones(1, 2)).sum().backward()
                update()
                compiled.append(torch._dynamo.utils.counters["frames"]["total"])
                run.step(1.0)
    assert compiled[1] == compiled[-1]
