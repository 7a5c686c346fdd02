"""The cells of a queue as ``rgt queue BOX status`` prints them."""

from __future__ import annotations

import pytest

from rgt_tui.cli.work.queue_actions import queue_lines
from rgt_tui.model import QueueCell, QueueState

NOW = 1_000_000.0


@pytest.mark.parametrize(
    ("epochs", "said"), [(1, "a (lm, 1 epoch)"), (12, "a (lm, 12 epochs)"), (None, "a (lm)")]
)
def test_a_cell_is_one_line_also_where_its_epochs_are_not_known(
    epochs: int | None, said: str
) -> None:
    cell = QueueCell(name="a", cfg="a.yaml", task="lm", state="waiting", epochs=epochs)
    lines = queue_lines(QueueState(path="q", at=NOW, cells=(cell,)), NOW)
    assert lines[0].split(maxsplit=1) == ["waiting", said]
