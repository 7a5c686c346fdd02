"""A file that a cell writes at once is not older than the cell."""

from __future__ import annotations

from pathlib import Path

from rgt_box.queue import queue_state


def test_no_file_is_older_than_the_time_at_which_its_writer_began(tmp_path: Path) -> None:
    for number in range(500):
        began = queue_state.clock_seconds()
        written = tmp_path / str(number)
        written.touch()
        assert written.stat().st_mtime >= began
