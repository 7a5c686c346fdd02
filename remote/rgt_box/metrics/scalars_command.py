"""The ``scalars`` verb: lists what can be plotted from a file or a directory tree."""

from __future__ import annotations

import math
import os
import sys

from rgt_box import confined_child, options
from rgt_box.metrics import sqlite_child
from rgt_box.metrics.discover import MetricSource, SourceFinder
from rgt_box.metrics.formats import identify_kind, open_source, preference
from rgt_box.metrics.merging import SourceSeries, merge_curves, read_all
from rgt_box.metrics.metric_names import choose_tags
from rgt_box.metrics.rows import json_number

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Iterator

    from rgt_wire import JsonObject

    from rgt_box.metrics.merging import Key, PointSeries, SeriesStore
    from rgt_box.metrics.reader_base import ReadProblem

HELP = """
usage: scalars PATH [--json]

List the scalars of a file, or of everything below a directory: one line per series.

  --json   one JSON object per series:
           {"file", "source", "tag", "metric", "x", "points", "nonfinite", "last": [x, y]}
           metric: loss, eval_loss, lr, grad_norm, throughput, epoch or null; x: step, epoch, samples or row;
           a y that is not finite is the string "nan", "inf" or "-inf"

Exit status: 0 found something, 1 found nothing, 2 wrong command line or no such path.
"""

FOUND, NOTHING, WRONG = 0, 1, 2


class SourceReading:
    """One source, read to its current end.

    Attributes:
        source: Its location.
        name: Its kind, including the format of a console.
        store: Its series.
        problems: Its first problems.
    """

    def __init__(self, source: MetricSource) -> None:
        # Nothing is read after this, so rows that wait for a later line are wanted now.
        reader = open_source(source.kind, source.path, ended=True)
        self.source = source
        self.store: SeriesStore
        self.problems: list[ReadProblem]
        self.store, self.problems = read_all(reader)
        self.name = reader.source

    @property
    def has_points(self) -> bool:
        """Whether any of its series has a point."""
        return any(series.xs for series in self.store.series.values())

    def source_series(self) -> SourceSeries:
        """Return the input for `merge_curves`."""
        return SourceSeries(
            self.source.path,
            self.name,
            self.source.run,
            preference(self.source.kind),
            self.store.series,
            tensorboard_directory(self.source),
        )

    def iterate_series(self) -> Iterator[tuple[Key, PointSeries, str | None]]:
        """Yield every series with its key and canonical metric."""
        tags: dict[str, set[str]] = {}
        for group, tag, _ in self.store.series:
            tags.setdefault(group, set()).add(tag)
        metrics = {}
        folder = tensorboard_directory(self.source)
        for group, names in tags.items():
            for metric, tag in choose_tags(sorted(names), folder).items():
                metrics[group, tag] = metric
        for key in sorted(self.store.series):
            if self.store.series[key].xs:
                yield key, self.store.series[key], metrics.get(key[:2])


def tensorboard_directory(source: MetricSource) -> str:
    """Return the base name of the directory that holds the source's files."""
    if source.kind == "tensorboard_dir":
        path = source.path
    else:
        path = os.path.dirname(source.path)
    return os.path.basename(path)


def int_if_whole(x: float) -> float:
    """Return x as an integer if it is a whole number."""
    if math.isfinite(x) and x == int(x):
        return int(x)
    return x


def as_json(
    reading: SourceReading, key: Key, series: PointSeries, metric: str | None
) -> JsonObject:
    """Return one series as a row of ``--json``."""
    group, tag, kind = key
    several = group and any(other != group for other, _, _ in reading.store.series)
    return {
        "file": reading.source.path,
        "source": reading.name,
        "tag": f"{group}:{tag}" if several else tag,
        "metric": metric,
        "x": kind,
        "points": len(series.xs),
        "nonfinite": sum(1 for y in series.ys if not math.isfinite(y)),
        "last": [int_if_whole(series.xs[-1]), json_number(series.ys[-1])],
    }


def find_sources_at(path: str) -> tuple[list[MetricSource], str]:
    """Return the sources at `path`, and why some of them may be missing.

    Raises:
        OSError: when `path` cannot be read.
    """
    if not os.path.isdir(path):
        kind = identify_kind(path)
        name = os.path.basename(os.path.dirname(os.path.abspath(path)))
        return (
            [] if kind is None else [MetricSource(path, kind, name, os.stat(path).st_mtime)]
        ), ""
    # A directory that cannot be read is an error; the walk itself skips those below it silently.
    os.listdir(path)
    finder = SourceFinder(path)
    found = finder.scan()
    return found, finder.cut


def list_other_texts(path: str) -> list[MetricSource]:
    """Return the newest text files of a directory whose names say nothing, such as ``run1``.

    Their contents decide, as if each of them had been named.
    """
    most_files, most_bytes = 20, 64 << 20
    found = []
    with os.scandir(path) as entries:
        for entry in entries:
            if os.path.splitext(entry.name)[1] not in ("", ".txt", ".text", ".dat"):
                continue
            if entry.is_file() and entry.stat().st_size <= most_bytes:
                found.append((entry.stat().st_mtime, entry.path))
    return [
        source
        for _, text in sorted(found, reverse=True)[:most_files]
        for source in find_sources_at(text)[0]
    ]


def table_lines(readings: list[SourceReading], root: str) -> list[str]:
    """Return the lines of the table; ``*`` marks the series from which a curve is drawn."""
    curves = merge_curves([reading.source_series() for reading in readings])
    drawn = {
        (part.path, part.tag, curve.x_kind) for curve in curves.values() for part in curve.parts
    }
    rows = [
        ("", "METRIC", "TAG", "X", "POINTS", "NOT FINITE", "LAST X", "LAST Y", "SOURCE", "FILE")
    ]
    for reading in readings:
        for key, series, metric in reading.iterate_series():
            line = as_json(reading, key, series, metric)
            x, y = line["last"]
            if not isinstance(y, str):
                y = f"{y:.6g}"
            file = reading.source.path
            mark = ""
            if metric and (file, key[1], key[2]) in drawn:
                mark = "*"
            shown = file
            if os.path.isdir(root):
                shown = os.path.relpath(file, root)
            rows.append(
                (
                    mark,
                    metric or "-",
                    printable_text(line["tag"]),
                    line["x"],
                    str(line["points"]),
                    str(line["nonfinite"] or "-"),
                    f"{x:.10g}",
                    y,
                    line["source"],
                    printable_text(shown),
                )
            )
    widths = [max(map(len, column)) for column in zip(*rows)]
    lines = []
    for row in rows:
        cells = [cell.ljust(width) for cell, width in zip(row, widths)]
        lines.append("  ".join(cells).rstrip())
    return lines


def printable_text(text: str) -> str:
    """Return a name without unprintable characters, such as terminal escapes."""
    return "".join(letter if letter.isprintable() else "\ufffd" for letter in text)


def main(argv: list[str]) -> int:
    """Run the verb.

    Args:
        argv: Words after the verb.

    Returns:
        0 when a series was found, 1 when none was found or the output failed, 2 for a wrong command
            line or a path that cannot be read.
        2 for a wrong command line or a path that cannot be read.
    """
    paths = [word for word in argv if not word.startswith("-")]
    given = options.parse_or_exit(
        [word for word in argv if word.startswith("-")], {"--json": "flag"}, HELP
    )
    if len(paths) != 1:
        _print_error("one PATH is needed (see --help)")
        return WRONG
    path = paths[0]
    # There is only one read, so wait for the child's full limit.
    sqlite_child.child.patience = confined_child.WALL + 1.0
    try:
        found, cut = find_sources_at(path)
    except OSError as error:
        _print_error(f"{path}: {error.strerror or error}")
        return WRONG
    all_readings = [SourceReading(source) for source in found]
    sqlite_child.child.close()
    # Before those without points are dropped: they are the ones with something to report.
    _report_problems(path, all_readings, cut)
    readings = [reading for reading in all_readings if reading.has_points]
    if not readings and os.path.isdir(path):
        others = [SourceReading(source) for source in list_other_texts(path)]
        readings = [reading for reading in others if reading.has_points]
    if not readings:
        return NOTHING
    try:
        for line in _json_lines(readings) if given["json"] else table_lines(readings, path):
            sys.stdout.buffer.write(line.encode("utf-8", "replace") + b"\n")
        # A full disk is often only found here, where the buffer is written.
        sys.stdout.flush()
    except OSError as error:
        # Otherwise the interpreter reports the error again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if not isinstance(error, BrokenPipeError):  # the reader closed the pipe on purpose
            _print_error(f"rgt: cannot write to standard output: {error.strerror}")
        return NOTHING
    return FOUND


def _json_lines(readings: list[SourceReading]) -> Iterator[str]:
    import json

    for reading in readings:
        for key, series, metric in reading.iterate_series():
            yield json.dumps(as_json(reading, key, series, metric), allow_nan=False)


def _print_error(text: str) -> None:
    sys.stderr.write(printable_text(text).encode("ascii", "replace").decode() + "\n")


def _report_problems(path: str, readings: list[SourceReading], cut: str) -> None:
    """Report on stderr the parts that could not be read."""
    empty = True
    for reading in readings:
        for problem in reading.problems[:3]:
            _print_error("%s: at %d: %s" % (problem.path, problem.offset, problem.reason))
        empty = empty and not any(series.xs for series in reading.store.series.values())
    if cut:
        _print_error(f"{path}: search incomplete (limit on {cut})")
    if empty:
        if os.path.isdir(path):
            what = "anything below it"
        else:
            what = "this file"
        _print_error(f"{path}: no reader for {what}: no scalars found")


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
