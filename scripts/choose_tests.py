"""Chooses by evidence which tests `make test` leaves to `make test-all`, and writes their list, tests/rest.txt.

    .venv/bin/python scripts/choose_tests.py measure FOLDER      runs the suite twice, some 40
    minutes on two cores .venv/bin/python scripts/choose_tests.py choose FOLDER
    .venv/bin/python scripts/choose_tests.py prove FOLDER rgt_tui/gate rgt_tui/store/history.py
    --most 40

`measure` notes what each test costs and which arcs of the product it runs, in the test's process
and in all that it
starts: agent, trainer and commands as well. `choose` keeps every cheap test, and of the others
    those that run arcs
which fewer than `WITNESSES` kept tests run, the most arcs for a second first, until each arc has
its witnesses or the seconds are spent. `prove` makes one small fault at a time in the modules that
are named, and runs the tests that run
its line: first those of `make test`, then, if none of them fails, the others.
"""

from __future__ import annotations

import argparse
import ast
import heapq
import json
import os
import random
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
REST = ROOT / "tests" / "rest.txt"

CHEAP = 0.05
"""CPU seconds up to which a test is kept: 12,000 of the 15,000 cost less, two minutes together."""

WITNESSES = 3
"""Tests that run an arc, if there are that many: a single one may assert something else."""

CRITICAL = (
    "rgt_tui/gate/",
    "rgt_tui/store/",
    "rgt_tui/transfer/ledger.py",
    "rgt_tui/fleet/box_session.py",
    "rgt_box/autostop/",
    "rgt_box/queue/",
    "rgt_train/checkpoint/",
)
"""Modules in which a fault loses results or money: each of their arcs gets three times as many
tests.
"""

UNSEEN = 0.08
"""CPU seconds for each second that a test takes: servers and agents are not counted as its
children.
"""

CORES_OF_A_TEST = 2
"""Cores that one test can keep busy at most."""

ALWAYS = "tests/system/test_"
"""How the names of tests begin that stay whatever they run: they look at the tree, its documents
and its packages.
"""

TRACED = ("remote/rgt_box/__init__.py", "remote/rgt_train/__init__.py")
"""Files that load the tracer while it measures: the agent runs without site-packages."""

AT_ONCE = 60
"""Tests that are run on a fault at most, the cheapest first."""

PLUGIN = "rgt_trace_tests"


@contextmanager
def tracer_installed(folder: Path) -> Iterator[None]:
    """Put the tracer where pytest, every Python of .venv and the agent find it, and take it away again."""
    packages = Path(
        sys.prefix,
        "lib",
        f"python{sys.version_info.major}.{sys.version_info.minor}",
        "site-packages",
    )
    text = (
        (ROOT / "scripts" / "trace_tests.py")
        .read_text()
        .replace('FOLDER = ""', f"FOLDER = {str(folder)!r}", 1)
    )
    plugin, hook = packages / f"{PLUGIN}.py", packages / f"{PLUGIN}.pth"
    load = f"exec(open({str(plugin)!r}).read(), {{}})"
    before = {path: path.read_text() for path in (*(ROOT / name for name in TRACED), REST)}
    try:
        plugin.write_text(text)
        hook.write_text(
            "import os; any('popen-gw' in v or k == 'PYTEST_XDIST_WORKER' for k, v in "
            f"os.environ.items()) and {load}\n"
        )
        for name in TRACED:
            with (ROOT / name).open("a") as file:
                file.write(
                    f"\n\nimport sys as _sys\n\nif 'pytest' not in _sys.modules:\n    {load}\n"
                )
        REST.write_text("")  # what was left out before is measured, too
        yield
    finally:
        for path, source in before.items():
            path.write_text(source)
        plugin.unlink(missing_ok=True)
        hook.unlink(missing_ok=True)


def measure(folder: Path, tests: Sequence[Path] = ()) -> None:
    """Run the suite, or some of its tests, once for the costs and once for the arcs."""
    folder.mkdir(parents=True)
    folder.chmod(0o777)  # some tests run as another user
    chosen = [*map(str, tests)] or ["--core"]
    runner = [sys.executable, str(ROOT / "scripts" / "run_tests.py"), *chosen]
    for kind in ("costs", "arcs"):
        with tracer_installed(folder):
            environment = os.environ | {"PYTEST_ADDOPTS": f"-p {PLUGIN}", "RGT_TRACE": kind}
            # Tests of the tree and of the packed agent fail beside the tracer: what they ran counts
            # all the same.
            subprocess.run(runner, env=environment, check=False)


def read_costs(folder: Path) -> dict[str, float]:
    """Return node id → CPU seconds."""
    costs: dict[str, float] = {}
    for path in folder.glob("costs-*"):
        for line in path.read_text().splitlines():
            test, cpu, took = json.loads(line)
            # The children of a server that forks for many tests are counted when it ends, in one of
            # them.
            costs[test] = min(cpu, CORES_OF_A_TEST * took) + UNSEEN * took
    return costs


def read_arcs(folder: Path, costs: Mapping[str, float]) -> tuple[Counter[int], dict[str, set[int]]]:
    """Return arc → how many cheap tests run it, and for each other test its arcs.

    Arcs of `CRITICAL` modules have negative numbers. A test that was not in the run for the costs
    is cheap: it stays.
    """
    numbers: dict[str, int] = {}
    cheap: dict[str, set[int]] = defaultdict(set)
    others: dict[str, set[int]] = {test: set() for test, cost in costs.items() if cost > CHEAP}
    for path in folder.glob("arcs-*"):
        for line in path.open(errors="replace"):
            test, _, arc = line.rstrip("\n").rpartition("\t")
            number = numbers.setdefault(arc, len(numbers) + 1)
            if arc.startswith(CRITICAL):
                number = -number
            (others[test] if test in others else cheap[test]).add(number)
    return Counter(number for arcs in cheap.values() for number in arcs), others


def choose(
    run_by: Counter[int], arcs: Mapping[str, set[int]], costs: Mapping[str, float], seconds: float
) -> set[str]:
    """Return which of the expensive tests stay.

    Args:
        run_by: Arc → how many of the tests that stay anyway run it.
        arcs: Node id → arcs of each expensive test.
        costs: Node id → CPU seconds.
        seconds: What those that stay may cost together.
    """
    run_by = Counter(run_by)
    kept: set[str] = set()

    def worth(test: str) -> float:
        # The first witness of an arc counts ten times as much as the second, and so on.
        seen_by = [run_by[arc] / 3 if arc < 0 else run_by[arc] for arc in arcs[test]]
        return sum(10.0**-count for count in seen_by if count < WITNESSES) / costs[test]

    queue = [(-worth(test), test) for test in sorted(arcs)]
    heapq.heapify(queue)
    while queue:
        _, test = heapq.heappop(queue)
        now = worth(test)
        if queue and now < -queue[0][0]:
            heapq.heappush(queue, (-now, test))
        elif now > 0 and costs[test] <= seconds:
            kept.add(test)
            run_by.update(arcs[test])
            seconds -= costs[test]
    return kept


def make_faults(path: Path) -> list[tuple[int, str]]:
    """Return (line, the module's text with one fault in it): another comparison, a condition turned round, no call."""
    text = path.read_text()
    faults: list[tuple[int, str]] = []
    swaps: dict[type[ast.cmpop], ast.cmpop] = {
        ast.Lt: ast.LtE(), ast.LtE: ast.Lt(), ast.Gt: ast.GtE(), ast.GtE: ast.Gt(),
        ast.Eq: ast.NotEq(),
        ast.NotEq: ast.Eq(), ast.Is: ast.IsNot(), ast.IsNot: ast.Is(), ast.In: ast.NotIn(),
        ast.NotIn: ast.In(),
    }  # fmt: skip
    for node in ast.walk(ast.parse(text)):
        new: ast.AST
        if isinstance(node, ast.Compare) and len(node.ops) == 1:
            old: ast.AST = node
            new = ast.Compare(node.left, [swaps[type(node.ops[0])]], node.comparators)
        elif isinstance(node, ast.If | ast.While | ast.IfExp):
            old, new = node.test, ast.UnaryOp(ast.Not(), node.test)
        elif isinstance(node, ast.BoolOp):
            old, new = (
                node,
                ast.BoolOp(ast.Or() if isinstance(node.op, ast.And) else ast.And(), node.values),
            )
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call | ast.Await):
            old, new = node, ast.Pass()
        else:
            continue
        piece = ast.get_source_segment(text, old)
        # Where the same text stands in the module twice, the fault could land in the other place.
        if piece and text.count(piece) == 1:
            fault = ast.unparse(new)
            faults.append(
                (
                    node.lineno,
                    text.replace(piece, fault if isinstance(new, ast.Pass) else f"({fault})"),
                )
            )
    return faults


def tests_of(folder: Path, module: str) -> dict[int, set[str]]:
    """Return line → node ids of the tests that run it, for a module by the name that arcs have for it."""
    found: dict[int, set[str]] = defaultdict(set)
    for path in folder.glob("arcs-*"):
        for line in path.open(errors="replace"):
            test, _, arc = line.rstrip("\n").rpartition("\t")
            if arc.startswith(f"{module}:"):
                found[int(arc.rpartition(">")[2])].add(test)
    return found


def has_failure(tests: Iterable[str]) -> bool:
    """Run some tests and tell whether one fails."""
    command = [sys.executable, "-m", "pytest", "-xq", "-p", "no:cacheprovider", *tests]
    return subprocess.run(command, cwd=ROOT, capture_output=True, check=False).returncode != 0


def prove(folder: Path, paths: Sequence[Path], most: int, seed: int) -> int:
    """Count the faults that `make test` finds, and those that only `make test-all` does."""
    if subprocess.run(["git", "diff", "--quiet", "--", *paths], cwd=ROOT, check=False).returncode:
        raise SystemExit("choose_tests: commit these modules first: faults are written into them")
    costs, rest = read_costs(folder), set(REST.read_text().splitlines())
    count: Counter[str] = Counter()
    for path in sorted(
        {each for given in paths for each in (given.rglob("*.py") if given.is_dir() else [given])}
    ):
        module = str(path.relative_to("remote") if path.parts[0] == "remote" else path)
        by_line, before = tests_of(folder, module), path.read_text()
        faults = [fault for fault in make_faults(path) if by_line.get(fault[0])]
        for line, text in random.Random(seed).sample(faults, min(most, len(faults))):
            tests = sorted(by_line[line], key=lambda test: costs.get(test, 0.0))
            try:
                path.write_text(text)
                first, then = (
                    [test for test in tests if (test in rest) == later][:AT_ONCE]
                    for later in (False, True)
                )
                if has_failure(first):
                    found = "make test"
                elif then and has_failure(then):
                    found = "make test-all"
                else:
                    found = "none"
            finally:
                path.write_text(before)
            count[found] += 1
            print(f"{path}:{line}  {found}", flush=True)
    print(", ".join(f"found by {found}: {number}" for found, number in count.most_common()))
    return 0


def main() -> int:
    """Do one of the steps."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("step", choices=("measure", "choose", "prove"))
    parser.add_argument("folder", type=Path)
    parser.add_argument(
        "paths", type=Path, nargs="*", help="prove: modules; measure: tests, instead of all"
    )
    parser.add_argument(
        "--seconds", type=float, default=400.0, help="CPU time that expensive tests may cost"
    )
    parser.add_argument("--most", type=int, default=10, help="faults in each module")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    if given.step == "measure":
        measure(given.folder.resolve(), given.paths)
        return 0
    if given.step == "prove":
        return prove(given.folder, given.paths, given.most, given.seed)
    costs = {
        test: cost for test, cost in read_costs(given.folder).items() if not test.startswith(ALWAYS)
    }
    run_by, arcs = read_arcs(given.folder, costs)
    kept = choose(run_by, arcs, costs, given.seconds)
    left = sorted(set(arcs) - kept)
    REST.write_text("".join(f"{test}\n" for test in left))
    all_arcs = set(run_by).union(*arcs.values())
    still = set(run_by).union(*(arcs[test] for test in kept))
    spent = sum(costs[test] for test in kept)
    print(
        f"{len(costs) - len(arcs)} cheap tests and {len(kept)} of {len(arcs)} others stay "
        f"({spent:.0f} CPU seconds)"
    )
    share = f"{len(still)} of {len(all_arcs)} arcs ({len(still) / len(all_arcs):.1%})"
    print(f"{len(left)} wait for make test-all; {share} are run")
    return 0


if __name__ == "__main__":
    sys.exit(main())
