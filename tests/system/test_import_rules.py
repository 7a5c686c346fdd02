"""Who may import whom: the contracts, what really gets loaded, the bare agent, no cycles, one gate."""

from __future__ import annotations

import ast
import inspect
import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import grimp
import pytest
from rgt_box.__main__ import VERBS

from tests.process.box.harness import pythons
from tests.system.tree import PACKAGES, ROOT, modules_of, parse, product_files, shown

REMOTE = ROOT / "remote"
UI_TOOLKITS = ("textual", "rich")
HEAVY = ("torch", "numpy", "asyncssh", "httpx")


def contracts() -> list[dict[str, Any]]:
    with (ROOT / "pyproject.toml").open("rb") as file:
        return list(tomllib.load(file)["tool"]["importlinter"]["contracts"])


def test_import_linter_contracts_are_kept() -> None:
    code = "import sys; from importlinter.cli import lint_imports; sys.exit(lint_imports(no_cache=True))"
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "remote")}
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_package_has_its_place_in_the_layers() -> None:
    """A new package must be put into a layer, otherwise no rule holds for it."""
    layers = next(contract for contract in contracts() if contract["type"] == "layers")
    placed = set(re.findall(r"rgt_tui\.(\w+)", " ".join(layers["layers"])))
    present = {path.parent.name for path in PACKAGES["rgt_tui"].glob("*/__init__.py")}
    assert present <= placed, f"packages in no layer: {sorted(present - placed)}"


def test_every_package_below_the_ui_is_forbidden_the_toolkits() -> None:
    """The same for the contract on Textual and Rich: only `ui`, and `cli` which starts it, are left out."""
    rule = next(
        contract
        for contract in contracts()
        if contract.get("forbidden_modules") == list(UI_TOOLKITS)
    )
    named = {name.removeprefix("rgt_tui.") for name in rule["source_modules"]}
    present = {path.parent.name for path in PACKAGES["rgt_tui"].glob("*/__init__.py")}
    assert present - {"ui", "cli"} <= named


LOADED_BY = """
import importlib, json, sys
modules, forbidden = json.load(sys.stdin)
# httpx imports its own command line, and rich with it, wherever rich happens to be installed. That is not our doing.
sys.modules["httpx._main"] = None
culprits = {}
seen = set()
for name in modules:
    importlib.import_module(name)
    loaded = {top for top in forbidden if top in sys.modules} - seen
    if loaded:
        culprits[name] = sorted(loaded)
        seen |= loaded
print(json.dumps(culprits))
"""
"""Imports one module after the other and says which one brought a forbidden package with it."""


def loaded_by(modules: Iterable[str], forbidden: Iterable[str]) -> Mapping[str, list[str]]:
    done = subprocess.run(
        [sys.executable, "-c", LOADED_BY],
        input=json.dumps([list(modules), list(forbidden)]),
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    culprits: dict[str, list[str]] = json.loads(done.stdout.splitlines()[-1])
    return culprits


def below_the_ui() -> list[str]:
    return [name for name in modules_of("rgt_tui") if not (name + ".").startswith("rgt_tui.ui.")]


def test_nothing_below_the_ui_loads_a_toolkit_or_torch() -> None:
    assert loaded_by(below_the_ui(), (*UI_TOOLKITS, "torch")) == {}


def test_the_command_line_starts_without_the_heavy_libraries() -> None:
    """`rgt --help` and the first frame wait for what the entry imports."""
    entry = "rgt_tui.cli.entry"
    assert entry in modules_of("rgt_tui"), "pyproject.toml names it as the program"
    assert loaded_by([entry], (*UI_TOOLKITS, *HEAVY)) == {}


def test_the_dashboard_draws_its_first_frame_without_the_heavy_libraries() -> None:
    app = "rgt_tui.ui.app"
    assert app in modules_of("rgt_tui")
    assert loaded_by([app], HEAVY) == {}


def test_the_dashboard_draws_its_first_frame_before_the_handbook_is_read() -> None:
    asked = "import rgt_tui.ui.app; from rgt_tui.handbook import shipped_pages as read; print(read.cache_info().misses)"
    done = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "0"


AFTER_THE_FIRST_FRAME = (
    "rgt_tui.health.conditions",
    "rgt_tui.health.assessment",
    "rgt_tui.health.danger_clocks",
    "rgt_tui.health.worst_case",
    "rgt_tui.fleet.config",
    "rgt_tui.fleet.engine",
    "rgt_tui.providers",
    "rgt_tui.ssh",
    "rgt_tui.store",
    "rgt_tui.handbook",
    "rgt_tui.profiles.loader",
    "rgt_tui.profiles.run_advice",
    "rgt_tui.profiles.survival",
    "rgt_tui.fleet.history.spoken_times",
    "rgt_tui.ui.screens.box",
    "rgt_tui.ui.screens.log",
    "rgt_tui.ui.plot.board",
    "hashlib",
    "tomllib",
)
"""What judges, connects and remembers, and what other screens need: nothing of it is seen on an empty fleet screen."""


def test_what_the_first_frame_does_not_show_is_loaded_after_it() -> None:
    shown = (
        "rgt_tui.cli.entry",
        "rgt_tui.cli.demo",
        "rgt_tui.demo.sandboxes",
        "rgt_tui.cli.dashboard",
        "rgt_tui.ui.app",
    )
    assert loaded_by(shown, AFTER_THE_FIRST_FRAME) == {}
    assert set(AFTER_THE_FIRST_FRAME[:-2]) <= set(modules_of("rgt_tui")), "one has another name now"


NOT_FOR_A_LOG = (
    "rgt_tui.handbook.sample_evidence",
    "rgt_tui.profiles.loader",
    "rgt_tui.profiles.platform_page",
    "rgt_tui.profiles.seen",
    "rgt_tui.profiles.survival",
    "rgt_tui.transfer",
)
"""For the samples of a box, for platforms, and for pickled dumps."""


def test_triage_of_a_log_loads_what_it_uses() -> None:
    assert loaded_by(["rgt_tui.cli.entry", "rgt_tui.cli.triage_files"], NOT_FOR_A_LOG) == {}
    assert set(NOT_FOR_A_LOG[:-1]) <= set(modules_of("rgt_tui")), "one has another name now"


def test_no_name_that_is_imported_on_first_use_is_also_a_module() -> None:
    """The import of the module would take the place of the name."""
    faces = [path for path in product_files(".py") if "= imported_later(" in path.read_text()]
    assert len(faces) > 5
    for path in faces:
        package = import_module(".".join(path.parent.relative_to(ROOT).parts))
        load = vars(package).get("__getattr__")
        if load is not None:
            names = inspect.getclosurevars(load).nonlocals["found"]
            assert [name for name in names if (path.parent / f"{name}.py").exists()] == [], path


def test_the_trainer_is_not_loaded_by_the_client() -> None:
    assert loaded_by(modules_of("rgt_tui"), ("torch", "rgt_box", "rgt_train")) == {}


NOT_EVERY_BOX = (
    "rgt_box.autostop",
    "rgt_box.discovery",
    "rgt_box.queue",
    "rgt_box.sampling.flight_dumps",
    "rgt_box.sampling.nccl_ras",
    "rgt_box.sampling.rank_waits",
    "rgt_box.sampling.rank_waits",
    "rgt_box.streams.job_files",
)
"""What a recorder needs where something is armed, a queue is watched, or ranks train; a box holds it for days."""


def test_a_recorder_loads_when_it_is_needed_what_not_every_box_needs() -> None:
    assert loaded_by(["rgt_box.recorder.daemon"], NOT_EVERY_BOX) == {}
    assert set(NOT_EVERY_BOX) <= set(modules_of("rgt_box")), "one has another name now"


# The faces of the packages that go to a box.


def uses_of_others(root: str) -> dict[str, set[str]]:
    """Return package → its modules that other packages of `root` import, or that a verb of the agent names."""
    packages = {
        ".".join(path.parent.relative_to(REMOTE).parts): path.parent
        for path in REMOTE.glob(f"{root}/*/__init__.py")
    }
    used: dict[str, set[str]] = {package: set() for package in packages}
    named = [(module, "") for module, _ in VERBS.values()]
    for path in REMOTE.glob(f"{root}/**/*.py"):
        mine = ".".join(path.parent.relative_to(REMOTE).parts)
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module:
                named += [
                    (name, mine)
                    for name in (node.module, *(f"{node.module}.{one.name}" for one in node.names))
                ]
            elif isinstance(node, ast.Import):
                named += [(one.name, mine) for one in node.names]
    for name, mine in named:
        package, _, module = name.rpartition(".")
        if (
            package in packages
            and mine != package
            and (packages[package] / f"{module}.py").is_file()
        ):
            used[package].add(module)
    return used


def face_of(package: str) -> set[str]:
    """Return the modules that ``__all__`` of a package names; it is read, not imported, since that needs torch."""
    return modules_named(REMOTE / package.replace(".", "/") / "__init__.py")


def modules_named(face: Path) -> set[str]:
    """Return the modules beside a package's ``__init__`` that its ``__all__`` names."""
    for node in ast.parse(face.read_text()).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return {
                name
                for name in ast.literal_eval(node.value)
                if (face.parent / f"{name}.py").is_file()
            }
    return set()


@pytest.mark.parametrize("root", ["rgt_box", "rgt_train"])
def test_packages_of_the_box_use_each_other_through_their_faces(root: str) -> None:
    """A module that no other package needs can be changed without a look at them."""
    used = uses_of_others(root)
    assert len(used) > 5
    behind = {package: names - face_of(package) for package, names in used.items()}
    assert {package: names for package, names in behind.items() if names} == {}, (
        "name them in __all__"
    )
    idle = {package: face_of(package) - names for package, names in used.items()}
    assert {package: names for package, names in idle.items() if names} == {}, (
        "no other package uses these"
    )


def test_packages_of_the_client_that_name_modules_are_used_by_these_alone() -> None:
    """Some are loaded late, or need numpy: their face names modules, where that of others has what is in them."""
    faces: dict[str, set[str]] = {}
    for path in ROOT.glob("rgt_tui/**/__init__.py"):
        named = modules_named(path)
        if named and "from rgt_tui" not in path.read_text():
            faces[".".join(path.parent.relative_to(ROOT).parts)] = named
    assert len(faces) >= 10
    used: dict[str, set[str]] = {package: set() for package in faces}
    for path in ROOT.glob("rgt_tui/**/*.py"):
        mine = ".".join(path.parent.relative_to(ROOT).parts)
        for name in (full for said in names_in(path) for full in (said, f"{mine}.{said}")):
            package, _, module = name.rpartition(".")
            if (
                package in used
                and package != mine
                and (ROOT / (name.replace(".", "/") + ".py")).is_file()
            ):
                used[package].add(module)
    assert used == faces


def names_in(path: Path) -> Iterable[str]:
    """Return what a module imports, and what it may name to import it late, in full or from its own package on."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield from (node.module, *(f"{node.module}.{one.name}" for one in node.names))
        elif isinstance(node, ast.Import):
            yield from (one.name for one in node.names)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


# The agent on whatever Python a rented box has.

BARE_IMPORT = """
import sys
sys.path.insert(0, sys.argv[1])
import importlib, os
for name in sys.argv[2:]:
    importlib.import_module(name)
standard = os.path.realpath(os.path.dirname(os.__file__))
ours = os.path.realpath(sys.argv[1])
for name, module in sorted(sys.modules.items()):
    path = getattr(module, "__file__", None)
    if path is None or name == "__main__":
        continue
    path = os.path.realpath(path)
    foreign = "site-packages" in path or "dist-packages" in path
    if foreign or not path.startswith((standard + os.sep, ours + os.sep)):
        print(name, path)
"""
"""Imports the agent's modules and prints every loaded module that is neither ours nor the library's."""


@pytest.mark.parametrize("python", pythons())
def test_the_agent_imports_on_every_python_with_nothing_installed(python: str) -> None:
    done = subprocess.run(
        [
            python,
            "-S",
            "-E",
            "-I",
            "-B",
            "-c",
            BARE_IMPORT,
            str(ROOT / "remote"),
            *modules_of("rgt_box"),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, ""), done.stdout + done.stderr


# Cycles.


def cycles(graph: Mapping[str, Iterable[str]]) -> list[list[str]]:
    """The groups of modules that import each other: Tarjan's strongly connected components."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(name: str) -> None:
        index[name] = low[name] = len(index)
        stack.append(name)
        for target in graph.get(name, ()):
            if target not in index:
                visit(target)
                low[name] = min(low[name], low[target])
            elif target in stack:
                low[name] = min(low[name], index[target])
        if low[name] == index[name]:
            group = stack[stack.index(name) :]
            del stack[stack.index(name) :]
            if len(group) > 1:
                found.append(sorted(group))

    for name in sorted(graph):
        if name not in index:
            visit(name)
    return found


def test_cycles_are_found() -> None:
    assert cycles({"a": ["b"], "b": ["c"], "c": ["b"], "d": ["a"]}) == [["b", "c"]]
    assert cycles({"a": ["b", "c"], "b": ["c"], "c": []}) == []


def test_no_import_cycle_even_for_type_checkers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "remote"))
    graph = grimp.build_graph(*PACKAGES, exclude_type_checking_imports=False, cache_dir=None)
    edges = {name: sorted(graph.find_modules_directly_imported_by(name)) for name in graph.modules}
    assert cycles(edges) == []


# The gate alone makes permits.

MAY_NAME_IT = {"isinstance", "issubclass"}


PERMITS = {"Permit", "RentPermit"}


def permit_makers(tree: ast.Module) -> list[int]:
    """The lines that build a permit: a call, a subclass, a call handed the class (convert, decode)."""
    names = set(PERMITS)
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            names |= {
                alias.asname for alias in node.names if alias.name in PERMITS and alias.asname
            }

    def is_permit(node: ast.expr) -> bool:
        if isinstance(node, ast.Name):
            return node.id in names
        return isinstance(node, ast.Attribute) and node.attr in PERMITS

    lines = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            called = node.func.id if isinstance(node.func, ast.Name) else ""
            handed = [*node.args, *(keyword.value for keyword in node.keywords)]
            if is_permit(node.func) or (called not in MAY_NAME_IT and any(map(is_permit, handed))):
                lines.append(node.lineno)
        elif isinstance(node, ast.ClassDef) and any(map(is_permit, node.bases)):
            lines.append(node.lineno)
    return lines


@pytest.mark.parametrize(
    ("source", "lines"),
    [
        ("permit = Permit(box='a')", [1]),
        ("permit = evidence.Permit(box='a')", [1]),
        ("from m import Permit as P\nx = P()", [2]),
        ("x = msgspec.convert({}, Permit)", [1]),
        ("x = msgspec.json.decode(b'', type=Permit)", [1]),
        ("class Mine(Permit): pass", [1]),
        ("x = RentPermit(box='a')", [1]),
        ("from m import RentPermit as P\nx = P()", [2]),
        ("def destroy(permit: Permit) -> None:\n    assert isinstance(permit, Permit)", []),
    ],
)
def test_permit_makers_are_found(source: str, lines: list[int]) -> None:
    assert permit_makers(ast.parse(source)) == lines


def test_only_the_gate_builds_a_permit() -> None:
    gate = PACKAGES["rgt_tui"] / "gate"
    makers = [
        f"{shown(path)}:{line}"
        for path in product_files(".py")
        # Each way to build one names its class; to parse all other modules takes three seconds.
        if not path.is_relative_to(gate) and b"Permit" in path.read_bytes()
        for line in permit_makers(parse(path))
    ]
    assert makers == []
