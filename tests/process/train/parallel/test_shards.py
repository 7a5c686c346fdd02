from __future__ import annotations

import json
import pickle
from pathlib import Path

import pytest
import torch
from rgt_train import UsageError
from rgt_train.checkpoint import CheckpointDamaged
from rgt_train.ranks import dcp_reader, sharded_state
from torch.distributed.checkpoint.state_dict_loader import load as load_sharded
from torch.distributed.checkpoint.state_dict_saver import save as save_sharded

from tests.process.train.harness import Zygote
from tests.process.train.parallel import shard_worker
from tests.process.train.parallel.forked import forked


def run(trainers: Zygote, count: int, scenario: str, folder: Path) -> list[dict[str, int]]:
    ranks = forked(trainers, count, shard_worker.__file__, scenario, str(folder))
    assert ranks.wait() == [0] * count, ranks.text()
    return [
        json.loads((folder / f"{scenario}-{count}-{rank}.json").read_text())
        for rank in range(count)
    ]


def test_two_ranks_save_and_one_two_and_four_load_the_same_bits(
    trainers: Zygote, tmp_path: Path
) -> None:
    saved = run(trainers, 2, "save", tmp_path)
    assert saved[0] == saved[1]
    assert len(saved[0]) == 4 + 3 * 4, "weights and biases; step and two moments of each"
    for count in (1, 2, 4):
        assert run(trainers, count, "load", tmp_path) == [saved[0]] * count


def test_plain_values_are_apart_from_tensors() -> None:
    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9)
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    tensors, plain = sharded_state.collect_values(
        {"model": model}, {"optimizer": ("model", optimizer)}
    )
    assert {key for key in tensors if key.startswith("model/")} == {"model/weight", "model/bias"}
    assert "optimizer/state.weight.momentum_buffer" in tensors
    assert plain["optimizer/param_groups.weight.lr"] == 0.5
    json.dumps(plain)


def test_what_does_not_fit_is_listed() -> None:
    model = torch.nn.Linear(2, 2)
    tensors, plain = sharded_state.collect_values({"model": model}, {})
    other = torch.nn.Sequential(torch.nn.Linear(2, 2))
    with pytest.raises(UsageError, match=r"missing 0\.bias, 0\.weight; unexpected bias, weight"):
        sharded_state.load_values({"model": other}, {}, tensors, plain)
    assert (
        sharded_state.names_text([str(n) for n in range(11)]) == "0, 1, 2, 3, 4, 5, 6, 7 and 3 more"
    )


@pytest.mark.parametrize("data", [b"", b"garbage", pickle.dumps({"a": 1})])
def test_damaged_metadata_is_said_to_be(data: bytes) -> None:
    with pytest.raises(CheckpointDamaged, match=r"\.metadata"):
        dcp_reader.parse_metadata(data)


def test_every_kind_of_tensor_comes_back(tmp_path: Path) -> None:
    kinds = (torch.float32, torch.bfloat16, torch.float64, torch.int64, torch.bool)
    state = {str(kind): torch.arange(5).to(kind) for kind in kinds}
    save_sharded(dict(state), checkpoint_id=str(tmp_path), no_dist=True)
    found = {name: torch.zeros_like(tensor) for name, tensor in state.items()}
    load_sharded(dict(found), storage_reader=dcp_reader.SafeReader(tmp_path), no_dist=True)
    assert all(torch.equal(found[name], state[name]) for name in state)
