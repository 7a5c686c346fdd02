"""What goes wrong silently in language-model training, one test each, by the numbers L1 to L10 of the checklist.

L9 (preference optimisation) has no test: nothing here optimises preferences.
"""

from __future__ import annotations

import functools
import math
import operator
from typing import Any

import pytest
import torch
from rgt_train import tasks
from rgt_train.config import merge_config
from rgt_train.tasks.char_lm import (
    ALPHABET,
    END,
    IGNORE,
    NO_SEGMENT,
    PAD,
    CharLM,
    CharTransformer,
    TokenRows,
    attention_mask,
    generate_ids,
    pack_documents,
    perplexity,
    score_rows,
    strided_windows,
)

torch.set_num_threads(1)  # small tensors: more threads only wait for each other
SMALL = {"width": "16", "layers": "2", "heads": "2", "context": "16", "corpus": "4000"}


def char_lm(**values: object) -> CharLM:
    made = tasks.make_task(
        merge_config([], {"task": "char_lm", **SMALL, **{k: str(v) for k, v in values.items()}})
    )
    assert isinstance(made, CharLM)
    return made


def model(context: int = 16) -> CharTransformer:
    torch.manual_seed(0)
    return CharTransformer(PAD + 1, 16, 2, 2, context, 0.0).eval()


def logits(net: CharTransformer, rows: TokenRows) -> torch.Tensor:
    with torch.no_grad():
        result: torch.Tensor = net(rows.tokens, rows.positions, rows.segments)
    return result


DOCUMENTS = [[3, 4, 5, 6], [7, 8], [9, 10, 11, 12, 13]]


def test_L1_training_pads_right_and_generation_pads_left() -> None:  # noqa: N802
    rows = pack_documents(DOCUMENTS, 8, END, PAD, pack=False)
    for row in range(len(rows)):
        real = (rows.segments[row] != NO_SEGMENT).long()
        assert real.tolist() == sorted(real.tolist(), reverse=True)  # padding only behind
    net = model()
    prompts = [[END, 3], [END, 4, 5, 6, 7, 8], [END]]
    together = generate_ids(net, prompts, 7, PAD)
    assert together == [generate_ids(net, [prompt], 7, PAD)[0] for prompt in prompts]
    assert PAD not in functools.reduce(operator.iadd, together, [])


def test_L2_prompts_and_padding_have_no_label() -> None:  # noqa: N802
    rows = pack_documents(DOCUMENTS, 8, END, PAD, pack=False, prompts=[2, 0, 3])
    assert rows.labels[0].tolist() == [IGNORE, IGNORE, 5, 6, END, IGNORE, IGNORE, IGNORE]
    assert rows.labels[1].tolist() == [7, 8, END] + [IGNORE] * 5
    net = model()
    before, count, _ = score_rows(net, rows)
    assert count == rows.scored_count == 3 + 3 + 3
    changed = TokenRows(rows.tokens.clone(), rows.labels, rows.positions, rows.segments)
    changed.tokens[rows.segments == NO_SEGMENT] = 5  # other padding: the same loss
    after, _, _ = score_rows(net, changed)
    assert torch.equal(before, after)
    prompt_head = logits(net, rows)[0, 0]  # no gradient reaches what predicts the prompt
    assert prompt_head.shape == (PAD + 1,)
    with pytest.raises(ValueError, match="3 documents have 1 prompts"):
        pack_documents(DOCUMENTS, 8, END, PAD, pack=False, prompts=[1])


def test_L3_the_padding_id_is_no_character() -> None:  # noqa: N802
    assert len(ALPHABET) == PAD
    task = char_lm()
    assert int(task._train.tokens.max()) <= PAD
    padded = task._train.tokens == PAD
    assert torch.equal(padded, task._train.segments == NO_SEGMENT)
    with pytest.raises(ValueError, match=f"document 1 holds the padding id {PAD}"):
        pack_documents([[1], [2, PAD]], 8, END, PAD, pack=True)


def test_L4_packed_documents_do_not_see_each_other() -> None:  # noqa: N802
    net = model()
    packed = pack_documents(DOCUMENTS, 16, END, PAD, pack=True)
    assert len(packed) == 1
    assert packed.segments[0].tolist() == [0] * 5 + [1] * 3 + [2] * 6 + [NO_SEGMENT] * 2
    assert packed.positions[0, :14].tolist() == [*range(5), *range(3), *range(6)]
    alone = pack_documents(DOCUMENTS, 16, END, PAD, pack=False)
    together = logits(net, packed)[0]
    starts = (0, 5, 8)
    for number, start in enumerate(starts):
        size = len(DOCUMENTS[number]) + 1
        torch.testing.assert_close(
            together[start : start + size], logits(net, alone)[number, :size]
        )
    other = pack_documents([[20, 21, 22, 23], *DOCUMENTS[1:]], 16, END, PAD, pack=True)
    assert torch.equal(
        logits(net, other)[0, 5:], together[5:]
    )  # not a single bit of the neighbour gets through
    leaky = TokenRows(
        packed.tokens, packed.labels, packed.positions, torch.zeros_like(packed.segments)
    )
    assert not torch.allclose(
        logits(net, leaky)[0, 5:8], together[5:8]
    )  # with one segment it would


def test_L4_most_rows_hold_several_documents() -> None:  # noqa: N802
    """As shipped; otherwise the masks between documents would stand there for nothing."""
    made = tasks.make_task(merge_config([], {"task": "char_lm"}))
    assert isinstance(made, CharLM)
    rows = made._train
    several = rows.segments.max(dim=1).values > 0
    assert float(several.float().mean()) > 0.5
    assert not (rows.segments == NO_SEGMENT).any(), "and none is padded"
    row = rows.select_rows([int(several.int().argmax())])
    length = rows.tokens.shape[1]
    net = model(context=length)
    cut = int((row.segments[0] == 0).sum())
    first = TokenRows(row.tokens.clone(), row.labels, row.positions, row.segments)
    first.tokens[0, :cut] = 20
    assert torch.equal(logits(net, first)[0, cut:], logits(net, row)[0, cut:])


def test_L4_a_document_goes_on_in_the_next_row() -> None:  # noqa: N802
    rows = pack_documents(DOCUMENTS, 6, END, PAD, pack=True, prompts=[0, 0, 3])
    assert rows.segments.tolist() == [[0] * 5 + [1], [0] * 2 + [1] * 4, [0] * 2 + [NO_SEGMENT] * 4]
    assert rows.positions.tolist() == [[*range(5), 0], [0, 1, *range(4)], [0, 1, 0, 0, 0, 0]]
    wanted = [3, 4, 5, 6, END, 7, 8, END, IGNORE, IGNORE, IGNORE, 12, 13, END, *[IGNORE] * 4]
    assert rows.labels.flatten().tolist() == wanted


def test_L4_labels_do_not_cross_documents() -> None:  # noqa: N802
    packed = pack_documents(DOCUMENTS, 16, END, PAD, pack=True)
    text = [[END, *document, END] for document in DOCUMENTS]
    wanted = [token for document in text for token in document[1:]]
    assert packed.labels[0].tolist() == [*wanted, IGNORE, IGNORE]
    assert packed.scored_count == sum(len(document) + 1 for document in DOCUMENTS)


def test_L4_a_long_document_is_cut_into_pieces_and_nothing_is_lost() -> None:  # noqa: N802
    long = [list(range(1, 21))]
    rows = pack_documents(long, 8, END, PAD, pack=True)
    labels = [int(label) for label in rows.labels.flatten() if label != IGNORE]
    assert labels == [*range(1, 21), END]
    assert int(rows.positions.max()) == 7


def test_L4_padding_attends_to_no_document() -> None:  # noqa: N802
    mask = attention_mask(torch.tensor([[0, 0, 1, NO_SEGMENT, NO_SEGMENT]]))[0, 0]
    assert mask.int().tolist() == [
        [1, 0, 0, 0, 0],
        [1, 1, 0, 0, 0],
        [0, 0, 1, 0, 0],
        [0, 0, 0, 1, 0],
        [0, 0, 0, 1, 1],
    ]


def test_L5_more_than_the_trained_context_is_refused() -> None:  # noqa: N802
    net = model(context=8)
    assert len(generate_ids(net, [[END, 3]], 7, PAD)[0]) == 7
    with pytest.raises(ValueError, match="need a context of 9, the model was trained with 8"):
        generate_ids(net, [[END, 3]], 8, PAD)


def test_L6_the_z_loss_pulls_the_normaliser_towards_one() -> None:  # noqa: N802
    def drift(z_loss: float) -> float:
        task = char_lm(z_loss=z_loss)
        torch.manual_seed(0)
        net = task.model()
        with torch.no_grad():
            net.head.bias += 20.0  # type: ignore[operator, union-attr]
        optimizer = torch.optim.SGD([net.head.bias], lr=1.0)  # type: ignore[arg-type, union-attr]
        for step in range(40):
            loss = task.loss(net, [step, step + 1], int, torch.device("cpu"))
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
        with torch.no_grad():
            return float(score_rows(net, task._train.select_rows(range(8)))[2].abs().mean())

    assert drift(1.0) < 0.5 * drift(0.0)
    net = char_lm().model()
    with torch.no_grad():  # and it is no part of what is validated
        plain, weighed = (
            float(char_lm(z_loss=z).loss(net.eval(), [0], int, torch.device("cpu")))
            for z in (0.0, 1.0)
        )
    assert plain == weighed


class Uniform(torch.nn.Module):
    """Knows nothing: each of the ids is as likely as any other."""

    def forward(
        self, tokens: torch.Tensor, positions: torch.Tensor, segments: torch.Tensor
    ) -> torch.Tensor:
        return torch.zeros(*tokens.shape, PAD + 1)


def test_L7_perplexity_counts_scored_characters_once() -> None:  # noqa: N802
    text = [END, *range(1, 30), *range(1, 27)]
    for length, stride in ((16, 16), (16, 8), (16, 3), (64, 8)):
        rows = strided_windows(text, length, stride, PAD)
        labels = [int(label) for label in rows.labels.flatten() if label != IGNORE]
        assert labels == text[1:], (length, stride)
    for rows in (
        strided_windows(text, 16, 8, PAD),
        pack_documents(DOCUMENTS, 32, END, PAD, pack=True),
    ):
        nll, count, _ = score_rows(Uniform(), rows)
        assert perplexity(float(nll), count) == pytest.approx(
            PAD + 1, rel=1e-4
        )  # padding and overlap would move it
    task = char_lm()
    total = sum(count for _, count in task.validation(Uniform(), torch.device("cpu")))
    assert total == task._held_out.scored_count


def test_L7_the_validation_loss_weighs_characters_and_not_batches() -> None:  # noqa: N802
    task = char_lm(layout="pad")
    net = task.model().eval()
    with torch.no_grad():
        batches = list(task.validation(net, torch.device("cpu")))
        whole = score_rows(net, task._held_out)
    assert len({count for _, count in batches}) > 1
    mean = sum(loss for loss, _ in batches) / sum(count for _, count in batches)
    assert mean == pytest.approx(float(whole[0]) / whole[1], rel=1e-5)


def test_L8_a_layout_that_is_not_known_is_refused() -> None:  # noqa: N802
    with pytest.raises(Exception, match="layout cannot be 'chat'"):
        char_lm(layout="chat")


def test_L8_every_batch_teaches_something() -> None:  # noqa: N802
    for layout in ("pack", "pad"):
        rows = char_lm(layout=layout)._train
        assert ((rows.labels != IGNORE).sum(dim=1) > 0).all()
    share = {
        layout: float((char_lm(layout=layout)._train.labels != IGNORE).float().mean())
        for layout in ("pack", "pad")
    }
    assert share["pack"] >= share["pad"]


def test_L10_nothing_is_fetched(monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: N802
    """No model or data set of a hub, so no token either; `test_tasks` runs them without a network, too."""

    def refuse(*arguments: Any) -> None:
        raise AssertionError(f"connects to {arguments}")

    monkeypatch.setattr("socket.socket.connect", refuse)
    task = char_lm()
    assert math.isfinite(task.loss(task.model(), [0, 1], int, torch.device("cpu")).item())
