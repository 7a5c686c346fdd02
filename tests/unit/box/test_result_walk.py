"""Which files count, and where they are counted: the rules, the mount table, and the walk over small trees."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rgt_box.commands import result_rules, result_walk, results
from rgt_box.commands.result_rules import folder_rule, looks_like_result
from rgt_box.commands.result_walk import FolderOwners, MountTable, ResultWalk


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/usr/local/lib/python3.10/dist-packages", "in package directories, in no package's list"),
        ("/workspace/venv/lib/python3.11", "Python environments"),
        ("/opt/conda/pkgs", "downloads"),
        ("/root/miniconda3/pkgs", "downloads"),
        ("/workspace/web/node_modules", "node_modules"),
        ("/usr/share", None),
        ("/usr/src/app", None),
        ("/usr/local/lib", None),
        ("/var", None),
        ("/var/lib/mine", None),
        ("/var/www", None),
        ("/workspace/repo/.git/objects", "objects of git"),
        ("/workspace/repo/.git/modules/sub/objects", "objects of git"),
        ("/workspace/.cache", "caches"),
        ("/tmp/torchinductor_root", "caches"),
        ("/workspace/hf/hub/models--meta--x", None),
        ("/workspace/hf/hub/models--meta--x/blobs", "downloads"),
        ("/etc", "files that the system writes"),
        ("/var/log", "files that the system writes"),
        ("/dev", "files that the system writes"),
        ("/dev/shm", None),
        ("/tmp/systemd-private-1-x.service", "files that the system writes"),
        ("/workspace", None),
        ("/workspace/objects", None),
        ("/workspace/pkgs", None),
        ("/workspace/etc", None),
        ("/workspace/torchinductor_root", None),
        ("/workspace/hub/mine", None),
        ("/workspace/lib/python3.10-runs", None),
        ("/root/.config", None),
        ("/opt", None),
        ("/tmp", None),
        ("/workspace/site-packages-mine", None),
        ("/", None),
    ],
)
def test_the_rule_of_a_directory(path: str, name: str | None) -> None:
    rule = folder_rule(path, None)
    assert (rule.name if rule else None) == name


def test_settings_are_those_of_a_home() -> None:
    assert folder_rule("/root/.config", None, at_home=True) == result_rules.SETTINGS
    assert folder_rule("/workspace/.config", None) is None


def test_a_rule_holds_below_until_a_package_or_a_place_beyond_it() -> None:
    system, caches = result_rules.SYSTEM, result_rules.CACHES
    assert folder_rule("/var/spool/x", system) == system
    assert folder_rule("/etc/x/.cache", system) == system
    assert folder_rule("/dev/shm", system) is None
    assert folder_rule("/root/.cache/x/site-packages", caches) == result_rules.UNLISTED
    assert folder_rule("/root/.cache/pip/wheels", caches) == result_rules.DOWNLOADS
    assert folder_rule("/srv/node_modules/x/.cache", result_rules.PACKAGES) == result_rules.PACKAGES


@pytest.mark.parametrize(
    ("name", "looks"),
    [
        ("model.pt", True),
        ("MODEL.PTH", True),
        ("model-00001-of-00002.safetensors", True),
        ("pytorch_model.bin", True),
        ("optimizer.bin", True),
        ("__0_0.distcp", True),
        ("events.out.tfevents.1700000000.box.1.0", True),
        ("metrics.jsonl", True),
        ("trainer_state.json", True),
        ("run-abc.wandb", True),
        ("data.bin", False),
        ("model.pt.tmp", False),
        ("notes.txt", False),
        ("pt", False),
        ("config.json", False),
    ],
)
def test_what_looks_like_a_result(name: str, looks: bool) -> None:
    assert looks_like_result(name) is looks


ROW = "36 35 98:0 /root {point} {here} shared:7 master:1 - {kind} /dev/x {below}"


def test_the_mount_table_is_read_as_the_kernel_writes_it() -> None:
    rows = [
        ROW.format(point="/", here="rw", kind="overlay", below="rw"),
        ROW.format(point="/proc", here="rw", kind="proc", below="rw"),
        ROW.format(
            point="/with\\040blank", here="ro,nosuid", kind="ext4", below="rw,errors=remount-ro"
        ),
        ROW.format(point="/broken", here="rw", kind="ext4", below="ro"),
        ROW.format(point="/image", here="ro", kind="ext4", below="ro"),
        ROW.format(point="/covered", here="rw", kind="proc", below="rw"),
        ROW.format(point="/covered", here="rw", kind="ext4", below="rw"),
        ROW.format(point="/memory", here="rw", kind="tmpfs", below="rw"),
        "nonsense",
        "1 2 3 4 5 6 -",
        "1 2 3 / /cut rw - proc proc",
        "",
    ]
    mounts = MountTable("\n".join(rows).encode())
    assert mounts.points == {
        b"/",
        b"/proc",
        b"/with blank",
        b"/broken",
        b"/image",
        b"/covered",
        b"/memory",
    }
    assert mounts.disks == {b"/", b"/broken", b"/image", b"/covered"}
    assert mounts.pseudo == {b"/proc"}
    assert mounts.read_only == {b"/with blank"}


Seen = dict[str, tuple[str, int]]


class Tree:
    """A tree, and looks at it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.owners = FolderOwners()
        self.walk = ResultWalk(self.owners)

    def put(self, *names: str) -> None:
        for name in names:
            path = self.root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(name)

    def look(self, **options: Any) -> Seen:
        self.walk = ResultWalk(
            self.owners, mounts=options.pop("mounts", MountTable(b"")), **options
        )
        self.walk.walk_roots([str(self.root)])
        found = result_walk.walk_answer(self.walk, 1.0, None)
        return {
            os.path.relpath(row["path"], self.root): (row["owner"], row["files"])
            for row in found["groups"]
        }

    def counted(self) -> int:
        skipped = sum(group.files for group in self.walk.skips.rules.values())
        return skipped + sum(group.files for group in self.walk.groups.values())

    def skipped(self) -> dict[str, tuple[int, int]]:
        return {rule: (group.files, group.bytes) for rule, group in self.walk.skips.rules.items()}


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path / "t")


def test_the_nearest_owner_counts(tree: Tree) -> None:
    tree.put("run/a", "run/deep/b", "run/inner/c", "run/inner/deep/d", "e")
    tree.owners.claim_path(str(tree.root / "run"), "run outer")
    tree.owners.claim_path(str(tree.root / "run/inner"), "cell inner")
    tree.owners.claim_path(str(tree.root / "run/inner"), "run too late")
    tree.owners.claim_path(str(tree.root / "absent"), "run absent")
    tree.owners.claim_path("relative", "run relative")
    tree.owners.claim_path("/", "run everything")
    assert tree.look() == {"run": ("run outer", 2), "run/inner": ("cell inner", 2), ".": ("", 1)}


def test_what_is_somebodys_counts_also_below_packages(tree: Tree) -> None:
    tree.put("node_modules/tool/x.pt", "node_modules/tool/runs/r1/y.pt", "node_modules/z")
    tree.owners.claim_path(str(tree.root / "node_modules/tool/runs/r1"), "run r1")
    assert tree.look() == {"node_modules/tool/runs/r1": ("run r1", 1)}
    assert tree.skipped() == {"node_modules": (2, len("node_modules/tool/x.pt" + "node_modules/z"))}


def test_a_file_that_is_somebodys_makes_its_directory_theirs_and_no_more(tree: Tree) -> None:
    tree.put("logs/a.log", "logs/other", "logs/deep/b")
    tree.owners.claim_path(str(tree.root / "logs/a.log"), "run a")
    assert tree.look() == {"logs": ("run a", 2), "logs/deep": ("", 1)}


def test_a_directory_of_everybody_is_nobodys_alone(tree: Tree) -> None:
    tree.owners.claim_path("/tmp", "run x")
    tree.owners.claim_path("/", "run x")
    assert tree.owners.whole == {} and tree.owners.alone == {}


def test_a_link_to_a_run_directory_makes_the_real_one_its(tree: Tree) -> None:
    tree.put("real/a")
    (tree.root / "link").symlink_to("real")
    tree.owners.claim_path(str(tree.root / "link"), "run a")
    assert tree.look() == {"real": ("run a", 1)}


@pytest.mark.parametrize(("count", "merged"), [(16, False), (17, True)])
def test_many_beside_each_other_are_one(tree: Tree, count: int, merged: bool) -> None:
    tree.put(
        *(f"data/set/{number}/deep/x" for number in range(count)),
        *(f"data/set/{number}/y" for number in range(count)),
    )
    found = tree.look()
    assert (found == {"data/set": ("", 2 * count)}) is merged
    assert tree.counted() == 2 * count


def test_what_has_an_owner_is_never_one_with_others(
    tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree.put(*(f"out/{number}/x" for number in range(30)))
    for number in range(30):
        tree.owners.claim_path(str(tree.root / f"out/{number}"), f"cell {number}")
    monkeypatch.setattr(result_walk, "MOST_GROUPS", 3)
    monkeypatch.setattr(result_walk, "HELD_GROUPS", 3)
    assert tree.look() == {f"out/{number}": (f"cell {number}", 1) for number in range(30)}


def test_no_owner_takes_in_what_is_nobodys(tree: Tree) -> None:
    tree.put("job/log.txt", *(f"job/{number}/x" for number in range(20)))
    tree.owners.claim_path(str(tree.root / "job/log.txt"), "job j")
    found = tree.look()
    assert found["job"] == ("job j", 1)
    assert len(found) == 21


@pytest.mark.parametrize(("most", "held"), [(5, 4096), (5, 20), (300, 4)])
def test_too_many_in_all_count_with_those_above_and_none_is_lost(
    tree: Tree, monkeypatch: pytest.MonkeyPatch, most: int, held: int
) -> None:
    names = [f"{a}/{b}/{c}/x{n}" for a in "abc" for b in "defg" for c in "hi" for n in range(3)]
    tree.put("top", *names)
    before = tree.look()
    assert len(before) == 25
    whole = result_walk.FileGroup()
    for group in tree.walk.groups.values():
        whole.merge_group(group)
    monkeypatch.setattr(result_walk, "MOST_GROUPS", most)
    monkeypatch.setattr(result_walk, "HELD_GROUPS", held)
    after = tree.look()
    assert len(after) < 25 and tree.counted() == 73
    folded = result_walk.FileGroup()
    for group in tree.walk.groups.values():
        folded.merge_group(group)
    assert folded.fingerprint() == whole.fingerprint()
    assert tree.look() == after, "the same files are always grouped alike"


def test_a_data_set_next_to_a_log_is_not_the_result_of_its_run(tree: Tree) -> None:
    tree.put("work/train.log", *(f"work/class{number}/x" for number in range(400)))
    tree.owners.claim_path(str(tree.root / "work/train.log"), "run gpt")
    found = tree.look()
    assert sum(count for owner, count in found.values() if owner) == 1
    assert sum(count for owner, count in found.values() if not owner) == 400


def test_what_a_smoke_left_is_no_result(tree: Tree) -> None:
    tree.put("runs/.rgt-smoke-x1y2/sub/best.pt", "runs/a/best.pt")
    tree.owners.claim_path(str(tree.root / "runs"), "cell a")
    assert sum(count for _, count in tree.look().values()) == 1


@pytest.mark.parametrize(("most", "held"), [(300, 4096), (5, 4096), (300, 4), (1, 2)])
def test_a_file_counts_with_the_deepest_directory_of_the_list_that_contains_it(
    tree: Tree, monkeypatch: pytest.MonkeyPatch, most: int, held: int
) -> None:
    """A pull relies on it: else a training's code next to its log is pulled, and never complete."""
    names = [f"work/p{number}/x" for number in range(20)]
    names += ["work/gpt/train.log", "work/gpt/out/a", "work/gpt/config/b", "work/gpt/data/set/c"]
    names += [f"work/tgn/{number}/x" for number in range(20)] + ["work/tgn/run.log"]
    tree.put(*names)
    tree.owners.claim_path(str(tree.root / "work/gpt/train.log"), "run gpt")
    tree.owners.claim_path(str(tree.root / "work/gpt/out"), "run gpt")
    tree.owners.claim_path(str(tree.root / "work/tgn/run.log"), "run tgn")
    monkeypatch.setattr(result_walk, "MOST_GROUPS", most)
    monkeypatch.setattr(result_walk, "HELD_GROUPS", held)
    found = tree.look()
    expected = dict.fromkeys(found, 0)
    for name in names:
        expected[next(str(at) for at in Path(name).parents if str(at) in found)] += 1
    assert {path: count for path, (_, count) in found.items()} == expected
    listed: list[dict[str, Any]] = []
    again = results.FileListingWalk(tree.owners, mounts=MountTable(b""))
    chosen = {path for path, group in tree.walk.groups.items() if group.owner}
    results.write_files(
        again,
        [str(tree.root)],
        set(tree.walk.groups),
        chosen,
        lambda line: listed.append(json.loads(line.lstrip(b"\x1e"))),
    )
    owned = sum(count for owner, count in found.values() if owner)
    assert sum("stamp" in row for row in listed) == owned
    assert tree.look() == found, "the same files are always grouped alike"


def test_what_is_too_long_to_be_named_counts_with_what_is_above(
    tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree.put("a/x", "a/long-name/y", "a/long-name/longer-still/z")
    monkeypatch.setattr(result_walk, "LONGEST", len(str(tree.root)) + 4)
    assert tree.look() == {"a": ("", 3)}


def test_what_a_person_leaves_out_is_counted_by_the_glob_and_what_survives_is_not_walked(
    tree: Tree,
) -> None:
    tree.put("a/x.tmp", "a/y", "b/deep/z", "volume/v")
    ignore = ("*.tmp", str(tree.root / "b"))
    mounts = table(tree, volume="8:1")
    survives = (str(tree.root / "volume"),)
    assert tree.look(ignore=ignore, survives=survives, mounts=mounts) == {"a": ("", 1)}
    assert tree.skipped() == {
        "ignored: *.tmp": (1, len("a/x.tmp")),
        f"ignored: {tree.root}/b": (1, len("b/deep/z")),
        f"outlives the instance: {tree.root}/volume": (0, 0),
    }


def table(tree: Tree, kind: str = "xfs", **devices: str) -> MountTable:
    """Return a mount table with the device of each directory of the tree, and 0:1 of the root."""
    rows = [
        ("/", "overlay", "0:1"),
        *((str(tree.root / name), kind, at) for name, at in devices.items()),
    ]
    return MountTable(
        "".join(f"1 0 {at} / {path} rw - {what} x rw\n" for path, what, at in rows).encode()
    )


@pytest.mark.parametrize(("kind", "device"), [("xfs", "0:1"), ("tmpfs", "8:1"), (None, "")])
def test_what_is_only_said_to_outlive_the_instance_is_walked(
    tree: Tree, kind: str | None, device: str
) -> None:
    tree.put("volume/v")
    mounts = table(tree) if kind is None else table(tree, kind, volume=device)
    assert tree.look(survives=(str(tree.root / "volume"),), mounts=mounts) == {"volume": ("", 1)}


def test_a_disk_that_is_mounted_within_storage_that_survives_is_walked(tree: Tree) -> None:
    tree.put("volume/v", "volume/again/v", "volume/scratch/old", "volume/scratch/below/x", "y")
    names = {
        "volume": "8:1",
        "volume/again": "8:1",
        "volume/again/deep": "9:2",
        "volume/scratch": "9:1",
    }
    tree.put("volume/again/deep/z")
    survives = (str(tree.root / "volume"),)
    for since in (None, 4e9):
        found = tree.look(survives=survives, mounts=table(tree, **names), since=since)
        lost = ("volume/again/deep", "volume/scratch", "volume/scratch/below")
        assert {path: found.get(path) for path in lost} == dict.fromkeys(lost, ("", 1))
        assert not {"volume", "volume/again"} & found.keys()


def test_a_volume_that_is_said_to_be_at_the_root_is_walked(tree: Tree) -> None:
    tree.put("x")
    assert tree.look(survives=("/", str(tree.root)), mounts=table(tree)) == {".": ("", 1)}


def test_what_a_push_notes_down_is_no_result_and_hides_none(tree: Tree) -> None:
    tree.put("rgt-code/.rgt-push/exp-0123456789ab.json", "rgt-code/.rgt-push/publish.lock")
    tree.put(
        "rgt-code/exp-0123456789ab/train.py", "rgt-code/.rgt-push/in-x/model.pt", "run/.rgt-push/a"
    )
    tree.owners.claim_path(str(tree.root / "run"), "run r")
    assert tree.look() == {
        "rgt-code/.rgt-push/in-x": ("", 1),
        "rgt-code/exp-0123456789ab": ("", 1),
        "run": ("run r", 1),
    }
    assert tree.skipped()["records of rgt push"][0] == 2


def test_an_environment_is_told_by_what_lies_in_it_unless_it_is_a_runs(tree: Tree) -> None:
    tree.put(
        "env/pyvenv.cfg",
        "env/bin/python",
        "env/out.pt",
        "conda/conda-meta/history",
        "run/pyvenv.cfg",
    )
    tree.put(
        "env/out/a.png",
        "env/share/doc/x",
        "env/share/mine/y",
        "env/lib/python3.11/x.py",
        "conda/etc/x",
    )
    tree.owners.claim_path(str(tree.root / "run"), "run r")
    assert tree.look() == {
        "env": ("", 1),
        "env/out": ("", 1),
        "env/share/mine": ("", 1),
        "run": ("run r", 1),
    }
    assert tree.skipped()["Python environments"][0] == 6


def test_files_that_a_package_lists_are_its_own_wherever_they_are_and_no_others(tree: Tree) -> None:
    packages = "venv/lib/python3.11/site-packages"
    rows = (
        "torch/weights.pt,sha256=x,1",
        '"torch/a,b.txt",,',
        "torch-2.dist-info/RECORD,,",
        "../../../bin/torchrun,,",
    )
    tree.put(
        f"{packages}/torch/weights.pt", f"{packages}/torch/a,b.txt", f"{packages}/torch/mine.pt"
    )
    tree.put(
        "venv/pyvenv.cfg",
        "venv/bin/torchrun",
        "outside.txt",
        f"{packages}/torch-2.dist-info/RECORD",
    )
    (tree.root / packages / "torch-2.dist-info/RECORD").write_text(
        "\n".join((*rows, "../../../../outside.txt,,"))
    )
    tree.put(
        "usr/bin/tool", "usr/lib/x/mine.csv", "usr/lib/x/theirs.pt", "var/lib/dpkg/info/tool.list"
    )
    (tree.root / "bin").symlink_to("usr/bin")
    (tree.root / "var/lib/dpkg/info/tool.list").write_text(
        "/.\n/bin/tool\n/usr/lib/x\n/usr/lib/x/theirs.pt\n"
    )
    tree.put("conda/conda-meta/x.json", "conda/share/x/[1].txt", "conda/share/x/mine.txt")
    (tree.root / "conda/conda-meta/x.json").write_text(
        '{"depends": [], "files": ["share/x/[1].txt"], "name": "x"}'
    )
    assert tree.look() == {
        f"{packages}/torch": ("", 1),
        ".": ("", 1),
        "conda/share/x": ("", 1),
        "usr/lib/x": ("", 1),
    }
    assert tree.skipped()["packages, by their lists of files"][0] == 7


def test_what_is_older_than_the_machine_is_listed_and_only_where_it_came_with_the_image(
    tree: Tree,
) -> None:
    tree.put("old/x", "run/y", "logs/z.log", "disk/v", "results/w", "written/in-place")
    for name in ("old/x", "run/y", "logs/z.log", "disk/v", "results/w"):
        os.utime(tree.root / name, (1, 1))
    tree.owners.claim_path(str(tree.root / "run"), "run r")
    tree.owners.claim_path(str(tree.root / "logs/z.log"), "run r")
    mounts = MountTable(b"")
    mounts.points.add(os.fsencode(tree.root / "disk"))
    assert tree.look(since=os.stat(tree.root / "results/w").st_ctime + 3600, mounts=mounts) == {
        "run": ("run r", 1),
        "logs": ("run r", 1),
        "disk": ("", 1),
        "written": ("", 1),
    }
    assert tree.skipped() == {"older than the machine": (2, len("old/x" + "results/w"))}
    older = tree.walk.skips.rules["older than the machine"]
    assert os.path.basename(older.newest[1]) in (b"x", b"w") and older.newest[0] > 0


def test_old_files_of_a_read_only_mount_are_older_than_the_machine_also_below_another_rule(
    tree: Tree,
) -> None:
    tree.put(".pyenv/versions/3.11/best.pt", ".pyenv/mine.pt", ".pyenv/versions/3.11/disk/own.pt")
    mount = tree.root / ".pyenv/versions/3.11"
    mounts = MountTable(b"")
    mounts.points |= {os.fsencode(mount), os.fsencode(mount / "disk")}
    mounts.read_only.add(os.fsencode(mount))
    created = os.stat(mount / "best.pt").st_ctime + 3600
    assert tree.look(mounts=mounts, since=created) == {
        ".pyenv": ("", 1),
        ".pyenv/versions/3.11/disk": ("", 1),
    }
    assert tree.skipped() == {"older than the machine": (1, len(".pyenv/versions/3.11/best.pt"))}


def test_rgts_own_is_no_result_whatever_it_is_called(tree: Tree) -> None:
    tree.put("state/ring/000.pt", "job/runner.lock", "job/x")
    own = (str(tree.root / "state"), str(tree.root / "job/runner.lock"))
    assert tree.look(own=own) == {"job": ("", 1)}
    assert tree.skipped()["rgt's own"][0] == 2


def test_what_the_system_keeps_to_itself_is_no_problem(
    tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree.put(".cache/closed/x", "ignored/closed/x", "plain/closed/x")
    opened: Callable[..., int] = os.open

    def refuse(path: Any, *args: Any, **options: Any) -> int:
        if path == b"closed":
            raise PermissionError(13, "Permission denied")
        return opened(path, *args, **options)

    monkeypatch.setattr(os, "open", refuse)
    assert tree.look(ignore=(str(tree.root / "ignored"),)) == {"plain/closed": ("", 0)}
    assert tree.walk.problems == [f"{tree.root}/plain/closed: Permission denied"]
    assert set(tree.walk.skips.rules) == {
        "caches, not readable by this user",
        f"ignored: {tree.root}/ignored",
    }


def test_a_disk_among_packages_is_looked_at(tree: Tree) -> None:
    tree.put(
        "node_modules/x.pt",
        "node_modules/disk/y.pt",
        "node_modules/shown/z.pt",
        "dist-packages/shown/z.pt",
    )
    mounts = MountTable(b"")
    mounts.points |= {os.fsencode(tree.root / "node_modules" / name) for name in ("disk", "shown")}
    mounts.points.add(os.fsencode(tree.root / "dist-packages/shown"))
    mounts.disks.add(os.fsencode(tree.root / "node_modules/disk"))
    mounts.read_only |= {
        os.fsencode(tree.root / name / "shown") for name in ("node_modules", "dist-packages")
    }
    assert tree.look(mounts=mounts) == {
        "node_modules/disk": ("", 1),
        "dist-packages/shown": ("", 1),
    }


def test_a_group_ends_at_a_mount(tree: Tree) -> None:
    tree.put(
        "a/x", "a/disk/y", "run/x", "run/disk/y", *(f"many/{n}/x" for n in range(20)), "many/disk/y"
    )
    tree.owners.claim_path(str(tree.root / "run"), "run r")
    mounts = MountTable(b"")
    mounts.points |= {os.fsencode(tree.root / name / "disk") for name in ("a", "run", "many")}
    assert tree.look(mounts=mounts) == {
        "a": ("", 1), "a/disk": ("", 1), "run": ("run r", 1), "run/disk": ("run r", 1), "many": ("", 20),
        "many/disk": ("", 1),
    }  # fmt: skip


def test_pseudo_file_systems_are_not_entered_and_read_only_ones_for_results_alone(
    tree: Tree,
) -> None:
    tree.put("proc/x.pt", "shown/x.pt", "shown/y.txt")
    mounts = MountTable(b"")
    mounts.points |= {os.fsencode(tree.root / name) for name in ("proc", "shown")}
    mounts.pseudo.add(os.fsencode(tree.root / "proc"))
    mounts.read_only.add(os.fsencode(tree.root / "shown"))
    assert tree.look(mounts=mounts) == {"shown": ("", 1)}
    assert tree.skipped() == {"mounted read-only": (1, len("shown/y.txt"))}


def test_what_is_too_deep_is_a_problem(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    tree.put("a/b/c/d/e", "a/f")
    monkeypatch.setattr(result_walk, "DEEPEST", 3)
    assert tree.look() == {"a": ("", 1), "a/b": ("", 0)}
    assert tree.walk.problems == [f"{tree.root}/a/b: directories are nested too deeply"]


def test_problems_are_counted_where_they_are_too_many_to_be_told(
    tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree.put("a/1/x", "a/2/x", "a/3/x")
    monkeypatch.setattr(result_walk, "DEEPEST", 2)
    monkeypatch.setattr(result_walk, "MOST_PROBLEMS", 1)
    tree.look()
    assert tree.walk.problems[1:] == ["and 2 more that cannot be read"]


def test_a_directory_that_becomes_a_link_is_not_followed(
    tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody who may write to a directory cannot lead the walk out of it between its look and its step."""
    outside = tree.root.parent / "outside"
    outside.mkdir()
    (outside / "secret.pt").write_text("x")
    tree.put("theirs/trap/x")
    opened: Callable[..., int] = os.open

    def open_late(path: Any, *args: Any, **options: Any) -> int:
        if path == b"trap":
            (tree.root / "theirs/trap/x").unlink()
            (tree.root / "theirs/trap").rmdir()
            (tree.root / "theirs/trap").symlink_to(outside)
        return opened(path, *args, **options)

    monkeypatch.setattr(os, "open", open_late)
    assert tree.look() == {}
    assert tree.walk.problems == []


def test_what_goes_away_while_we_look_is_no_problem(
    tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree.put("a/x", "b/x")
    opened: Callable[..., int] = os.open

    def open_late(path: Any, *args: Any, **options: Any) -> int:
        if path == b"a":
            (tree.root / "a/x").unlink()
            (tree.root / "a").rmdir()
        return opened(path, *args, **options)

    monkeypatch.setattr(os, "open", open_late)
    assert tree.look() == {"b": ("", 1)}
    assert tree.walk.problems == []


def test_a_directory_that_fails_is_a_problem_whatever_the_error(
    tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree.put("a/x", "b/x")
    scan: Callable[..., Any] = os.scandir

    def broken(fd: int) -> Any:
        if os.readlink(f"/proc/self/fd/{fd}").endswith("/a"):
            raise OSError(5, "Input/output error")
        return scan(fd)

    monkeypatch.setattr(os, "scandir", broken)
    assert tree.look() == {"a": ("", 0), "b": ("", 1)}
    assert tree.walk.problems == [f"{tree.root}/a: Input/output error"]
    assert tree.walk.groups[os.fsencode(tree.root / "a")].problem == tree.walk.problems[0]


def test_no_descriptor_is_left_open(tree: Tree) -> None:
    tree.put("a/b/c", "a/d/e")
    before = os.listdir("/proc/self/fd")
    tree.look()
    assert set(os.listdir("/proc/self/fd")) <= set(before)  # garbage of other tests may close some


def test_globs_of_whole_trees_are_one_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RGT_STATE_DIR", str(tmp_path / "state"))
    for name in ("out/a/x", "out/b/c/y", "out.d/z"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    owners = results.build_owners([], [], [str(tmp_path / "out/**")])
    assert owners.whole == {os.fsencode(tmp_path / "out"): f"results {tmp_path}/out/**"}
    assert owners.alone == {}
    owners = results.build_owners([], [], [str(tmp_path / "out*"), str(tmp_path / "out/a/x")])
    assert set(owners.whole) == {os.fsencode(tmp_path / name) for name in ("out", "out.d")}
    assert set(owners.alone) == {os.fsencode(tmp_path / "out/a")}


@pytest.mark.parametrize("since", [-1.0, float("nan"), float("inf"), 1e12])
def test_a_date_that_cannot_be_is_refused(since: float) -> None:
    assert "--since" in results.find_option_error({"since": since})
    assert (
        results.find_option_error({"since": 0.0})
        == results.find_option_error({"since": None})
        == ""
    )


LARGE = 2 << 20
INPUTS = (
    "corpus.tar", "data.zip", "dataset.tar.gz", "train_data.jsonl", "Dataset.parquet",
    "train.npy", "x_val.npz", "val.bin", "train-00000-of-00005.parquet", "test_images.tar",
    "train_labels.zip", "raw_data.tgz", "data.lmdb", "train_tokens.bin",
)  # fmt: skip
OTHER_FILES = (
    "train.log", "train_log.txt", "results.tar", "study.db", "submission.csv",
    "generated.mp4", "checkpoint.tar.gz", "train.pt", "nohup.out", "train.out", "train.err",
    "test.h5", "val_set.safetensors", "train_1.pth", "train.log.1", "data.log.gz", "log.txt",
    "train.tar", "training.tar.gz", "train.jsonl", "test.csv", "images.zip", "samples.npy",
    "x.npy", "tokens.npy", "labels.npy", "data.pt", "dataset.ckpt", "data_results.tar",
    "test_preds.npy", "train.loss.npy", "data.db", "model_data.bin", "shard_0.bin",
    "best.zip", "a.tar", "1.tar", "data", "train", "data.", ".data.tar",
    "\u7ed3\u679c_data.tar", "\u6570\u636e.tar", "data.pth.tar",
)  # fmt: skip


@pytest.mark.parametrize("name", INPUTS)
def test_a_file_whose_name_says_data_is_an_input(name: str) -> None:
    assert result_rules.is_input(name, LARGE)
    assert not result_rules.is_input(name, 1 << 20)


@pytest.mark.parametrize("name", OTHER_FILES)
def test_any_other_file_may_be_a_result_of_an_earlier_training(name: str) -> None:
    assert not result_rules.is_input(name, LARGE)


def test_results_of_an_earlier_training_next_to_a_log_are_counted(tree: Tree) -> None:
    earlier = (
        "train.log", "train_log.txt", "results.tar", "study.db", "submission.csv",
        "generated.mp4", "checkpoint.tar.gz", "train.pt", "nohup.out",
    )  # fmt: skip
    tree.put("run2.log", "corpus.tar", *earlier)
    for name in ("corpus.tar", *earlier):
        os.truncate(tree.root / name, LARGE)
    tree.owners.claim_path(str(tree.root / "run2.log"), "run b", begun=time.time() + 100)
    assert tree.look() == {".": ("run b", 10)}
    assert tree.skipped() == {result_rules.INPUTS.name: (1, LARGE)}
