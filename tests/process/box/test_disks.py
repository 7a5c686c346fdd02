from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from rgt_box import background
from rgt_box.sampling import disks
from rgt_box.sampling.disks import DiskSampler, SampledMount

from tests.process.box.harness import Agent, private_mount, until


def test_bytes_and_inodes_of_a_real_tmpfs(agent: Agent, tmp_path: Path) -> None:
    mount = tmp_path / "disk"
    mount.mkdir()
    enter = private_mount(
        f"mount -t tmpfs -o size=1m,nr_inodes=100 none {mount}",
        f"mkdir -p {mount}/.cache/viz {mount}/runs",
        f"for n in $(seq 90); do : > {mount}/.cache/viz/$n; done",
        f": > {mount}/runs/a",
    )
    done = subprocess.run(
        enter + agent.command("sample", "--mount", str(mount)),
        env=agent.env,
        capture_output=True,
        check=True,
        timeout=60,
    )
    (disk,) = [disk for disk in json.loads(done.stdout)["disks"] if disk["mount"] == str(mount)]
    assert (disk["bytes_total"], disk["inodes_total"], disk["inodes_used"]) == (1 << 20, 100, 95)
    assert disk["hogs"][0]["path"] == f"{mount}/.cache/viz"
    assert disk["hogs"][0]["inodes"] == 90


TABLE = """\
overlay / overlay rw,relatime 0 0
proc /proc proc rw 0 0
tmpfs /dev/shm tmpfs rw 0 0
/dev/sda1 /etc/hosts ext4 rw 0 0
/dev/sda1 /var/lib/docker ext4 rw 0 0
/dev/sda2 /boot ext4 rw 0 0
/dev/nvme1n1 /data ext4 rw 0 0
/dev/nvme1n1 /data/again ext4 rw 0 0
nas:/vol /mnt/my\\040share nfs4 rw 0 0
nas:/old /mnt/archive nfs4 ro,relatime 0 0
tank/home /home zfs rw 0 0
tank/home/me /home/me zfs rw 0 0
lxcfs /somewhere fuse.lxcfs rw 0 0
s3fs /bucket fuse.s3fs rw 0 0
/dev/loop3 /snap/core/1 squashfs ro 0 0
"""


def test_every_data_mount_is_found_once_and_nothing_of_the_system() -> None:
    assert disks.data_mounts(TABLE) == ["/bucket", "/data", "/home", "/mnt/my share"]
    same = TABLE.replace("overlay / overlay", "/dev/nvme1n1 / ext4")
    assert "/data" not in disks.data_mounts(same), "it is the root disk"


def test_a_data_mount_that_nobody_names_is_sampled(agent: Agent, tmp_path: Path) -> None:
    """As a generic box is watched: a volume of its own that no run has named yet."""
    mount = tmp_path / "volume"
    mount.mkdir()
    image = tmp_path / "image"
    made = subprocess.run(
        ["sh", "-c", f"truncate -s 16M {image} && mkfs.ext4 -q {image}"],
        capture_output=True,
        check=False,
    )
    enter = private_mount(f"mount -o loop {image} {mount}")
    tried = subprocess.run([*enter, "true"], capture_output=True, check=False)
    if made.returncode or tried.returncode:
        pytest.skip("no loop device can be mounted here")
    done = subprocess.run(
        enter + agent.command("sample", "--mount", "*"),
        env=agent.env,
        capture_output=True,
        check=True,
        timeout=60,
    )
    assert str(mount) in [disk["mount"] for disk in json.loads(done.stdout)["disks"]]


def test_a_missing_mount_has_an_error_and_the_others_are_read() -> None:
    sampler = DiskSampler()
    sampler.configure(["/no/such/mount"], [])
    root, missing = sampler.read()
    assert root["bytes_total"] > 0
    assert (missing["mount"], missing["error"]) == ("/no/such/mount", "No such file or directory")
    assert set(missing) == {"mount", "kind", "error"}


def test_a_mount_that_was_made_read_only_says_so(agent: Agent, tmp_path: Path) -> None:
    mount = tmp_path / "disk"
    mount.mkdir()
    enter = private_mount(f"mount -t tmpfs -o size=1m none {mount}", f"mount -o remount,ro {mount}")
    done = subprocess.run(
        enter + agent.command("sample", "--mount", str(mount)),
        env=agent.env,
        capture_output=True,
        check=True,
        timeout=60,
    )
    found = {disk["mount"]: disk for disk in json.loads(done.stdout)["disks"]}
    assert (found[str(mount)]["read_only"], found[str(mount)]["kind"]) == (True, "tmpfs")
    assert found["/"]["read_only"] is False


@pytest.fixture
def stuck() -> Iterator[threading.Event]:
    event = threading.Event()
    yield event
    event.set()


def test_a_mount_that_hangs_is_reported_and_asked_by_one_thread_only(
    stuck: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disks, "TIMEOUT", 0.02)
    monkeypatch.setattr(disks, "PERIOD", 0.0)
    calls: list[str] = []

    def statvfs(path: str) -> os.statvfs_result:
        calls.append(path)
        stuck.wait()
        return os.statvfs("/")

    mount = SampledMount("/mnt/nfs", "nfs4", statvfs)
    disk = until(lambda: (found := mount.read(0.0)).get("error") and found, "the timeout")
    assert (disk["mount"], disk["kind"], set(disk)) == (
        "/mnt/nfs",
        "nfs4",
        {"mount", "kind", "error"},
    )
    assert re.fullmatch(r"no answer for \d+ s", disk["error"])
    until(lambda: calls, "the thread's call")
    for _ in range(5):
        mount.read(0.0)
    assert calls == ["/mnt/nfs"]
    stuck.set()
    until(lambda: "bytes_total" in mount.read(0.0), "the recovery")


def test_the_mount_that_a_run_writes_to_is_added_once() -> None:
    table = [("/", "ext4"), ("/workspace", "nfs"), ("/workspace2", "xfs")]
    assert disks.find_mount("/workspace/jobs/../out/a", table) == ("/workspace", "nfs")
    assert disks.find_mount("/workspace2", table) == ("/workspace2", "xfs")
    assert disks.find_mount("/elsewhere", table) == ("/", "ext4")
    sampler = DiskSampler()
    sampler.configure(["/tmp/", "/tmp", "relative"], ["/"])
    assert [disk["mount"] for disk in sampler.read()] == ["/", "/tmp"]


def test_a_directory_says_on_which_mount_it_lies(tmp_path: Path) -> None:
    """A platform's durable path is an ordinary directory of the root disk where nothing is mounted there."""
    holder = disks.find_mount(str(tmp_path.resolve()), disks.mount_table())[0]
    sampler = DiskSampler()
    sampler.configure([str(tmp_path)], [])
    root, found = sampler.read()
    assert (found["mount"], found["on"]) == (str(tmp_path), holder)
    assert "on" not in root, "a mount of its own lies on nothing else"


def test_a_file_system_without_a_fixed_number_of_inodes() -> None:
    real = os.statvfs("/")
    fields = list(real)
    fields[5] = fields[6] = fields[7] = 0
    found = disks.statvfs_figures(os.statvfs_result(fields))
    assert (found["inodes_total"], found["inodes_used"]) == (None, None)


def tree(root: Path, **counts: int) -> None:
    for name, count in counts.items():
        folder = root / name.replace("__", "/")
        folder.mkdir(parents=True, exist_ok=True)
        for number in range(count):
            (folder / str(number)).touch()


def chosen(root: Path) -> list[tuple[str, int]]:
    found = disks.find_inode_hogs(str(root))
    return [(os.path.relpath(hog["path"], root), hog["inodes"]) for hog in found]


def test_a_directory_that_holds_many_entries_beats_its_parents(tmp_path: Path) -> None:
    tree(tmp_path, cache__viz=390, runs__a=12, runs__b=12)
    assert chosen(tmp_path) == [("cache/viz", 390), ("runs", 26)]


def test_a_cache_of_many_small_directories_is_named_as_a_whole(tmp_path: Path) -> None:
    tree(tmp_path, **{f"hub__blobs__{n:02x}": 8 for n in range(40)}, data=100)
    assert chosen(tmp_path) == [("hub/blobs", 360), ("data", 100)]


def test_siblings_that_each_hold_many_are_named_each(tmp_path: Path) -> None:
    tree(tmp_path, x__a=300, x__b=200, x__c=150)
    assert chosen(tmp_path) == [("x/a", 300), ("x/b", 200), ("x/c", 150)]


def test_a_scan_is_bounded(tmp_path: Path) -> None:
    tree(tmp_path, a=500)
    top = disks.FolderNode(str(tmp_path))
    disks.fill_tree(top, 100, 10.0)
    assert top.inodes <= 100


def test_links_are_not_followed_and_vanished_directories_are_no_error(tmp_path: Path) -> None:
    tree(tmp_path, a=20)
    (tmp_path / "loop").symlink_to(tmp_path)
    assert chosen(tmp_path)[0] == ("a", 20)
    with pytest.raises(OSError, match="No such file"):
        disks.find_inode_hogs(str(tmp_path / "gone"))


def test_what_a_background_job_dies_of_is_its_value_s_error() -> None:
    def fail() -> None:
        raise RuntimeError("driver/library mismatch")

    assert background.Background(fail, 0.0, 120.0).poll(60.0) == (
        None,
        "RuntimeError: driver/library mismatch",
    )


@pytest.mark.parametrize(
    ("moment", "told"), [(60.0, (True, None)), (0.0, (None, "no answer for 600 s"))]
)
def test_a_job_that_was_stopped_together_with_its_watcher_does_not_hang(
    monkeypatch: pytest.MonkeyPatch, moment: float, told: tuple[bool | None, str | None]
) -> None:
    now, gate = [100.0], threading.Event()
    monkeypatch.setattr(background, "time", SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setattr(background, "MOMENT", moment)
    job = background.Background(gate.wait, 0.0, 5.0)
    assert job.poll() == (None, None)
    now[0] = 700.0
    awake = threading.Timer(0.1 if moment else 60.0, gate.set)
    awake.start()
    assert job.poll() == told
    awake.cancel()
    gate.set()


def test_a_link_to_a_network_mount_is_no_local_directory(tmp_path: Path) -> None:
    """Only what lies on local file systems is looked at: /far does not exist here, so touching it would show."""
    (tmp_path / "data").symlink_to("/far/share/x")
    (tmp_path / "near").symlink_to("data/../data")
    (tmp_path / "loop").symlink_to("loop")
    table = [("/", "ext4"), ("/far/share", "nfs4")]
    real = os.path.realpath(tmp_path)
    assert disks.resolve_links(f"{real}/data/deeper", table) == "/far/share/x/deeper"
    assert disks.find_mount(disks.resolve_links(f"{real}/near", table), table) == (
        "/far/share",
        "nfs4",
    )
    assert disks.resolve_links(f"{real}/loop", table) == f"{real}/loop"
    assert disks.resolve_links(f"{real}/no/such", table) == f"{real}/no/such"
    assert disks.resolve_links("/", table) == "/"


WATCH_MOUNTS = """
import subprocess, sys
sys.path.insert(0, sys.argv[1])
from rgt_box.sampling.disks import DiskSampler
sampler = DiskSampler()
sampler.configure([sys.argv[2]], [])
print(sampler.read()[1]["kind"] == "tmpfs")
subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "none", sys.argv[2]], check=True)
print(sampler.read()[1]["kind"], sampler.read()[1]["bytes_total"])
subprocess.run(["umount", sys.argv[2]], check=True)
print(sampler.read()[1].get("bytes_total") == 2 << 20)
"""


def test_a_mount_that_covers_a_sampled_directory_is_noticed_at_once(tmp_path: Path) -> None:
    remote = os.path.dirname(os.path.dirname(background.__file__))
    done = subprocess.run(
        [*private_mount("true"), sys.executable, "-c", WATCH_MOUNTS, remote, str(tmp_path)],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert done.stdout.splitlines() == ["False", "tmpfs 2097152", "False"]
