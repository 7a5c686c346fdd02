"""Bytes into lines, whatever their cuts."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rgt_tui.ssh import LineSplitter


@given(
    st.lists(st.binary(min_size=1, max_size=9).map(lambda b: b.replace(b"\n", b".")), max_size=12),
    st.data(),
)
def test_any_cut_gives_the_same_lines(lines: list[bytes], data: st.DataObject) -> None:
    stream = b"".join(line + b"\n" for line in lines)
    splitter, got = LineSplitter(), []
    while stream:
        size = data.draw(st.integers(1, len(stream)))
        got += splitter.split_lines(stream[:size])
        stream = stream[size:]
    assert got == lines


@given(st.integers(1, 40))
def test_an_oversized_line_is_dropped_once_and_the_next_one_arrives(size: int) -> None:
    splitter, got = LineSplitter(limit=8), []
    stream = b"ok\n" + b"x" * 20 + b"\nafter\n"
    for start in range(0, len(stream), size):
        got += splitter.split_lines(stream[start : start + size])
    assert got == [b"ok", b"after"]
    assert splitter.oversized == 1


def test_memory_stays_bounded_without_a_line_feed() -> None:
    splitter = LineSplitter(limit=100)
    for _ in range(50):
        splitter.split_lines(b"x" * 90)
    assert len(splitter._rest) <= 100
    assert splitter.oversized == 1
