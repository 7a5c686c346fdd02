"""Event files made bit by bit: every way to write a number, damage, restarts, and the NaN that hides as a zero."""

from __future__ import annotations

import functools
import struct
from pathlib import Path

import pytest
from rgt_box.metrics import open_reader, tensorboard
from rgt_wire import event_records

from tests.unit.metrics import makers
from tests.unit.metrics.makers import Follower, blob, event, number, simple, tensor, tfrecord


def follower(path: Path, limit: int = 5000) -> Follower:
    return Follower(functools.partial(open_reader, "tensorboard", str(path)), limit)


def content(dtype: int, data: bytes, shape: bytes = b"") -> bytes:
    return number(1, dtype) + blob(2, shape) + blob(4, data)


def packed(form: str, *values: float) -> bytes:
    return b"".join(struct.pack(form, value) for value in values)


TENSORS = {
    "float content": (content(1, packed("<f", 0.5)), 0.5),
    "double content": (content(2, packed("<d", 0.1)), 0.1),
    "int32 content": (content(3, packed("<i", -7)), -7.0),
    "int64 content": (content(9, packed("<q", -(2**40))), -(2.0**40)),
    "half content": (content(19, packed("<e", 1.5)), 1.5),
    "bfloat16 content": (content(14, packed("<f", -3.0)[2:]), -3.0),
    "uint8 content": (content(4, b"\xff"), 255.0),
    "bool content": (content(10, b"\1"), 1.0),
    "shape of one": (content(1, packed("<f", 0.5), blob(2, number(1, 1))), 0.5),
    "packed float": (number(1, 1) + blob(5, packed("<f", 2.5)), 2.5),
    "unpacked float": (number(1, 1) + b"\x2d" + packed("<f", 2.5), 2.5),
    "packed double": (number(1, 2) + blob(6, packed("<d", 2.25)), 2.25),
    "packed int": (number(1, 3) + blob(7, makers.varint(-5)), -5.0),
    "unpacked int64": (number(1, 9) + number(10, -5), -5.0),
    "half bits": (number(1, 19) + blob(13, makers.varint(0x3E00)), 1.5),
    "bfloat16 bits": (number(1, 14) + blob(13, makers.varint(0xC040)), -3.0),
    "string": (number(1, 7) + blob(8, b"hello"), None),
    "two floats": (number(1, 1) + blob(5, packed("<f", 1, 2)), None),
    "two in content": (content(1, packed("<f", 1, 2)), None),
    "four in content": (content(1, packed("<f", 1, 2, 3, 4)), None),
    "wrong size": (content(2, packed("<f", 1)), None),
    "complex": (content(8, bytes(8)), None),
    "empty": (number(1, 1), None),
}


@pytest.mark.parametrize("name", TENSORS)
def test_tensors(name: str) -> None:
    body, value = TENSORS[name]
    found = tensorboard.decode_event(event(3, tensor("a", body))).values
    assert found == ([] if value is None else [("a", value)])


def test_plugins() -> None:
    body = content(1, packed("<f", 0.5))
    assert tensorboard.decode_event(event(3, tensor("a", body, plugin=""))).values == [("a", 0.5)]
    assert tensorboard.decode_event(event(3, tensor("a", body, plugin="text"))).values == []
    assert tensorboard.decode_event(event(3, blob(1, b"h") + blob(5, bytes(30)))).values == []


def test_the_fields_of_an_event() -> None:
    found = tensorboard.decode_event(event(-2, simple("a", 1.0), simple("µ", 2.0), wall=5.0))
    assert found == (5.0, -2, False, [("a", 1.0), ("µ", 2.0)])
    assert tensorboard.decode_event(number(2, 9) + blob(7, number(1, 1))).start
    assert not tensorboard.decode_event(number(2, 9) + blob(7, number(1, 2))).start
    assert tensorboard.decode_event(event(1, simple("x" * 400, 1.0))).values == []


@pytest.mark.parametrize("data", [b"\x08", b"\x0a\x05ab", b"\x0b", b"\xff" * 11, b"\x09\x00"])
def test_what_is_no_message(data: bytes) -> None:
    with pytest.raises((ValueError, IndexError)):
        list(tensorboard.iterate_fields(data, 0, len(data)))


def test_checksums() -> None:
    assert event_records.crc32c(b"123456789") == 0xE3069283
    assert event_records.crc32c(bytes(32)) == 0x8A9136AA
    assert event_records.masked_crc(b"some data") == makers.masked(b"some data")


@pytest.mark.parametrize(
    ("tag", "kind"),
    [
        ("loss", "step"),
        ("lm loss vs samples", "samples"),
        ("Train/Samples/train_loss", "samples"),
        ("epoch_loss", "epoch"),
        ("loss/epoch_average", "epoch"),
        ("train/epoch", "step"),
    ],
)
def test_what_the_step_counts(tag: str, kind: str) -> None:
    assert tensorboard.x_kind_of_tag(tag) == kind


def test_damage_is_told_and_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "events.out.tfevents.1.a"
    records = [tfrecord(event(step, simple("loss", float(step)))) for step in range(6)]
    bad_data = records[1][:20] + b"\xee" + records[1][21:]
    bad_header = b"\xee" + records[3][1:]
    no_event = tfrecord(b"\x0f\x0f")
    path.write_bytes(
        records[0] + bad_data + records[2] + bad_header + records[4] + no_event + records[5]
    )
    each = follower(path)
    each.poll()
    assert [point[2] for point in each.points] == [0, 2, 4, 5]
    assert each.problems[:2] == ["record damaged", "record header damaged"]
    assert each.problems[2].startswith("no event")


def test_a_header_of_zeros_at_the_end_may_still_be_filled(tmp_path: Path) -> None:
    path = tmp_path / "events.out.tfevents.1.a"
    first, second = (tfrecord(event(step, simple("loss", 1.0))) for step in (1, 2))
    path.write_bytes(first + bytes(len(second)))
    each = follower(path)
    batch = each.poll()
    assert (len(each.points), batch.more, each.problems) == (1, False, ["record header damaged"])
    assert each.poll().problems == []
    path.write_bytes(first + second)
    each.poll()
    assert len(each.points) == 2


def test_an_absurd_length_with_a_right_checksum(tmp_path: Path) -> None:
    path = tmp_path / "events.out.tfevents.1.a"
    header = struct.pack("<Q", 1 << 60)
    good = tfrecord(event(1, simple("loss", 1.0)))
    path.write_bytes(good + header + struct.pack("<I", makers.masked(header)) + good)
    each = follower(path)
    each.poll()
    assert (len(each.points), each.problems) == (2, [f"record of {1 << 60} bytes"])


def test_histograms_cost_no_checksum(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "events.out.tfevents.1.a"
    histogram = tfrecord(event(1, blob(1, b"h") + blob(5, bytes(30000))))
    path.write_bytes(histogram + tfrecord(event(2, simple("loss", 1.0))))
    sizes: list[int] = []
    real = event_records.masked_crc

    def masked(data: bytes) -> int:
        sizes.append(len(data))
        return real(data)

    monkeypatch.setattr(tensorboard, "masked_crc", masked)
    each = follower(path)
    each.poll()
    assert (len(each.points), max(sizes) < 100) == (1, True)


@pytest.mark.parametrize("hole", [7, 12, 20, 5000, 200000])
@pytest.mark.parametrize("length", [100, 256, 512, 65536])
def test_a_hole_of_zeros_is_passed_over(tmp_path: Path, hole: int, length: int) -> None:
    path = tmp_path / "events.out.tfevents.1.a"
    first, second = (event(step, simple("loss", 1.0)) for step in (1, 2))
    second += blob(
        90, bytes(length - len(second) - (3 if length < 140 else 4 if length < 9999 else 5))
    )
    assert len(second) == length
    path.write_bytes(tfrecord(first) + bytes(hole) + tfrecord(second) + tfrecord(first))
    each = follower(path)
    each.poll()
    assert [point[2] for point in each.points] == [1, 2, 1]


def test_images_are_passed_over_unread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "events.out.tfevents.1.a"
    large = tensorboard.LARGE + 5
    header = struct.pack("<Q", large)
    image = header + struct.pack("<I", makers.masked(header)) + bytes(large + 4)
    good = tfrecord(event(1, simple("loss", 1.0)))
    path.write_bytes(image + good + image[:-1])
    sizes: list[int] = []
    real = event_records.masked_crc

    def masked(data: bytes) -> int:
        sizes.append(len(data))
        return real(data)

    monkeypatch.setattr(tensorboard, "masked_crc", masked)
    each = follower(path)
    each.poll()
    assert (len(each.points), max(sizes) < 100, each.problems) == (1, True, [])


def test_a_session_that_starts_again_hides_what_comes_after(tmp_path: Path) -> None:
    path = tmp_path / "events.out.tfevents.1.a"
    data = makers.scalars(*[("loss", step, 1.0) for step in range(9)], ("eval", 8, 1.0))
    data += tfrecord(number(2, 5) + blob(7, number(1, 1)))
    path.write_bytes(data + makers.scalars(("loss", 5, 2.0)))
    each = follower(path)
    each.poll()
    assert each.store.series["", "loss", "step"].xs == [0, 1, 2, 3, 4, 5]
    assert each.store.series["", "eval", "step"].xs == []


def test_the_zero_that_hides_a_nan(tmp_path: Path) -> None:
    path = tmp_path / "events.out.tfevents.1.a"
    nan = float("nan")
    rows = [("train/loss", 5, 1.0), ("train/grad_norm", 5, 1.0), ("train/loss", 10, 0.0)]
    path.write_bytes(makers.scalars(*rows))
    each = follower(path, 1)
    each.poll()
    assert [point[3] for point in each.points] == [1.0, 1.0]  # the zero waits for its gradient norm
    rows += [
        ("train/learning_rate", 10, 0.1),
        ("train/grad_norm", 10, nan),
        ("train/loss", 15, 0.0),
    ]
    rows += [("train/grad_norm", 15, 2.0), ("train/loss", 20, 0.0), ("train/loss", 25, 3.0)]
    path.write_bytes(makers.scalars(*rows))
    each.poll()
    assert [point[3] for point in each.points if point[0] == "train/loss"] == [
        1.0,
        "nan",
        0.0,
        0.0,
        3.0,
    ]


def test_a_zero_of_a_file_without_gradient_norms_is_a_zero(tmp_path: Path) -> None:
    path = tmp_path / "events.out.tfevents.1.a"
    path.write_bytes(makers.scalars(("train/loss", 1, 1.0), ("train/loss", 2, 0.0)))
    each = follower(path)
    each.poll()
    assert [point[3] for point in each.points] == [1.0, 0.0]


def test_the_order_of_files() -> None:
    names = [
        "events.out.tfevents.20.b",
        "events.out.tfevents.3.z",
        "events.out.tfevents.20.a",
        "x.tfevents",
    ]
    assert sorted(names, key=tensorboard.event_file_key) == [names[3], names[1], names[2], names[0]]
