from __future__ import annotations

from pathlib import Path

import pytest
from rgt_box.sampling import cgroup, sampler
from rgt_box.sampling.cgroup import (
    CpuSampler,
    MemorySampler,
    ThreadWatch,
    oom_event,
    oversubscribed,
    parse_max,
    throttled_pct,
)

V1_MOUNTS = """
30 20 0:26 / /sys/fs/cgroup/memory rw,nosuid shared:9 - cgroup cgroup rw,memory
31 20 0:27 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct
32 20 0:28 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw
"""


def test_version_1_wins_where_the_controller_is_mounted_there() -> None:
    own = cgroup.parse_own("4:memory:/docker/abc\n1:cpu,cpuacct:/docker/abc\n0::/x\n")
    mounts = cgroup.parse_mounts(V1_MOUNTS)
    memory, cpu = (
        cgroup.find_controller("memory", own, mounts),
        cgroup.find_controller("cpu", own, mounts),
    )
    assert memory is not None and cpu is not None
    assert (memory.version, cpu.version) == (1, 1)
    assert (
        memory.levels == ["/sys/fs/cgroup/memory"] or memory.levels[-1] == "/sys/fs/cgroup/memory"
    )
    assert cgroup.find_controller("pids", own, [mounts[0]]) is None


@pytest.mark.parametrize(
    ("root", "path", "expected"),
    [
        ("/", "/a/b", ["/m/a/b", "/m/a", "/m"]),
        ("/", "/", ["/m"]),
        ("/docker/abc", "/docker/abc", ["/m"]),
        ("/docker/abc", "/docker/abc/child", ["/m/child", "/m"]),
        ("/docker/abc", "/", ["/m"]),
        ("/", "/../../user.slice", ["/m"]),
        ("/docker/ab", "/docker/abc", ["/m"]),
    ],
)
def test_levels_from_the_own_cgroup_up_to_the_mount(
    root: str, path: str, expected: list[str]
) -> None:
    assert cgroup.levels_up_to_mount(root, "/m", path) == expected


def test_escapes_of_the_mount_tables() -> None:
    assert cgroup.unescape_octal(r"/with\040blank\134and") == "/with blank\\and"
    assert cgroup.parse_mounts("garbage\n\n") == []


def write(folder: Path, **contents: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in contents.items():
        (folder / name.replace("__", ".")).write_text(text)


def test_memory_of_version_2_takes_the_tightest_level(tmp_path: Path) -> None:
    write(tmp_path, memory__current="900\n", memory__max="1000\n", memory__stat="anon 1\ninactive_file 50\n",
          memory__events="low 0\noom 3\noom_kill 2\n", memory__peak="950\n")  # fmt: skip
    write(
        tmp_path / "leaf",
        memory__current="10\n",
        memory__max="max\n",
        memory__stat="",
        memory__events="",
    )
    place = cgroup.CgroupFolders(2, [str(tmp_path / "leaf"), str(tmp_path)])
    found = MemorySampler(place).read()
    expected = {"cgroup": 2, "used": 900, "limit": 1000, "cache": 50, "peak": 950, "oom_kills": 2}
    assert {key: found[key] for key in expected} == expected
    assert found["host_total"] > found["host_used"] > 0


def test_memory_of_version_1_and_its_way_to_say_no_limit(tmp_path: Path) -> None:
    write(tmp_path, memory__usage_in_bytes="77", memory__limit_in_bytes="9223372036854771712",
          memory__stat="inactive_file 1\ntotal_inactive_file 5\n", memory__max_usage_in_bytes="99",
          memory__oom_control="oom_kill_disable 0\nunder_oom 0\noom_kill 4\n")  # fmt: skip
    found = MemorySampler(cgroup.CgroupFolders(1, [str(tmp_path)])).read()
    assert (found["used"], found["cache"], found["peak"], found["oom_kills"]) == (77, 5, 99, 4)
    assert "limit" not in found


def test_no_cgroup_still_gives_the_host() -> None:
    found = MemorySampler(None).read()
    assert set(found) == {"host_total", "host_used"}


def test_an_oom_kill_is_an_event_only_when_the_counter_rises() -> None:
    assert oom_event(None, {"oom_kills": 3}) is None
    assert oom_event(3, {"oom_kills": 3}) is None
    assert oom_event(3, {}) is None
    text = oom_event(3, {"oom_kills": 5, "limit": 2**31})
    assert (
        text == "the kernel killed 2 processes: out of memory at the container's limit of 2.0 GiB"
    )


@pytest.mark.parametrize(
    ("data", "cores"),
    [(b"200000 100000\n", 2.0), (b"max 100000\n", None), (b"", None), (b"1 0", None)],
)
def test_cpu_max(data: bytes, cores: float | None) -> None:
    assert parse_max(data) == cores


def test_throttling_is_a_share_of_the_periods_since_the_last_reading() -> None:
    assert throttled_pct(None, (10, 5)) is None
    assert throttled_pct((10, 5), (30, 10)) == 25.0
    assert throttled_pct((10, 5), (10, 5)) is None


def test_cpu_quota_is_the_smallest_of_all_levels(tmp_path: Path) -> None:
    write(tmp_path, cpu__cfs_quota_us="400000", cpu__cfs_period_us="100000")
    write(tmp_path / "leaf", cpu__cfs_quota_us="-1", cpu__cfs_period_us="100000",
          cpu__stat="nr_periods 10\nnr_throttled 5\n")  # fmt: skip
    sampler = CpuSampler(cgroup.CgroupFolders(1, [str(tmp_path / "leaf"), str(tmp_path)]))
    first = sampler.read()
    assert (first["quota"], "throttled_pct" in first) == (4.0, False)
    assert first["cores"] >= 1 and first["load1"] >= 0
    write(tmp_path / "leaf", cpu__stat="nr_periods 20\nnr_throttled 6\n")
    assert sampler.read()["throttled_pct"] == 10.0


def test_swap_of_version_2_apart_from_the_host_s(tmp_path: Path) -> None:
    write(
        tmp_path,
        memory__current="900",
        memory__max="1000",
        memory__swap__current="70",
        memory__swap__max="max",
    )
    write(
        tmp_path,
        meminfo="MemTotal: 1000 kB\nMemAvailable: 400 kB\nSwapTotal: 64 kB\nSwapFree: 60 kB\n",
    )
    found = MemorySampler(
        cgroup.CgroupFolders(2, [str(tmp_path)]), str(tmp_path / "meminfo")
    ).read()
    assert (found["swap_used"], "swap_limit" in found) == (70, False)
    assert (found["host_swap_used"], found["host_swap_total"]) == (4096, 65536)
    write(tmp_path, memory__swap__max="512", meminfo="MemTotal: 1000 kB\nSwapTotal: 0 kB\n")
    found = MemorySampler(
        cgroup.CgroupFolders(2, [str(tmp_path)]), str(tmp_path / "meminfo")
    ).read()
    assert (found["swap_limit"], "host_swap_total" in found) == (512, False)


def test_swap_of_version_1_is_what_memsw_has_more(tmp_path: Path) -> None:
    write(tmp_path, memory__usage_in_bytes="77", memory__limit_in_bytes="1000",
          memory__memsw__usage_in_bytes="100", memory__memsw__limit_in_bytes="1500")  # fmt: skip
    found = MemorySampler(cgroup.CgroupFolders(1, [str(tmp_path)])).read()
    assert (found["swap_used"], found["swap_limit"]) == (23, 500)
    write(tmp_path, memory__memsw__usage_in_bytes="70")
    assert MemorySampler(cgroup.CgroupFolders(1, [str(tmp_path)])).read()["swap_used"] == 0


@pytest.mark.parametrize(("version", "kills"), [(1, 5), (2, 3)])
def test_version_1_counts_a_kill_only_in_the_victim_s_group(
    tmp_path: Path, version: int, kills: int
) -> None:
    leaf = tmp_path / "leaf"
    for folder, count in ((tmp_path, 3), (leaf, 2)):
        limit = "1000" if folder == tmp_path else "9223372036854771712" if version == 1 else "max"
        write(folder, memory__usage_in_bytes="7", memory__limit_in_bytes=limit)
        write(folder, memory__current="7", memory__max=limit)
        write(
            folder, memory__oom_control=f"oom_kill {count}\n", memory__events=f"oom_kill {count}\n"
        )
    found = MemorySampler(cgroup.CgroupFolders(version, [str(leaf), str(tmp_path)])).read()
    assert (found["limit"], found["oom_kills"]) == (1000, kills)


def test_a_kill_in_version_2_is_an_event_of_the_sample(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = tmp_path / "group"
    write(group, memory__current="900", memory__max="1073741824", memory__events="oom_kill 4\n")
    monkeypatch.setattr(
        cgroup, "locate_own_controller", lambda _: cgroup.CgroupFolders(2, [str(group)])
    )
    whole = sampler.BoxSampler(str(tmp_path))
    whole.configure({}, [])
    fields, events = whole.read(wait=5.0)
    assert (fields["mem"]["oom_kills"], [e for e in events if e["kind"] == "oom-kill"]) == (4, [])
    write(group, memory__events="oom_kill 5\n")
    (event,) = [event for event in whole.read()[1] if event["kind"] == "oom-kill"]
    assert event["text"].endswith("out of memory at the container's limit of 1.0 GiB")
    # The next recorder is told the last count, and notices what happened between the two.
    later = sampler.BoxSampler(str(tmp_path), oom_kills=3)
    later.configure({}, [])
    (event,) = [event for event in later.read()[1] if event["kind"] == "oom-kill"]
    assert event["text"].startswith("the kernel killed 2 processes")


@pytest.mark.parametrize(
    ("version", "row"), [(1, "throttled_time 2500000000"), (2, "throttled_usec 2500000")]
)
def test_throttled_time_and_usable_cores(tmp_path: Path, version: int, row: str) -> None:
    write(tmp_path, cpu__max="50000 100000", cpu__cfs_quota_us="50000", cpu__cfs_period_us="100000",
          cpu__stat=f"nr_periods 10\nnr_throttled 5\n{row}\n")  # fmt: skip
    cpu = CpuSampler(cgroup.CgroupFolders(version, [str(tmp_path)]))
    found = cpu.read()
    assert (found["quota"], found["usable"], found["throttled_s"]) == (0.5, 0.5, 2.5)
    write(tmp_path, cpu__max="max 100000", cpu__cfs_quota_us="-1")
    found = cpu.read()
    assert ("quota" in found, found["usable"]) == (False, found["cores"])


@pytest.mark.parametrize(
    ("threads", "cpu", "busy", "expected"),
    [
        (64, {"usable": 2.0, "quota": 2.0, "throttled_pct": 45.0}, 200.0, True),
        (64, {"usable": 2.0, "quota": 2.0, "throttled_pct": 5.0}, 200.0, False),
        (8, {"usable": 2.0, "quota": 2.0, "throttled_pct": 90.0}, 200.0, False),
        (64, {"usable": 4}, 380.0, True),
        (64, {"usable": 4}, 90.0, False),
        (64, {}, 400.0, False),
    ],
)
def test_more_threads_than_cores_only_matter_when_they_hurt(
    threads: int, cpu: dict[str, float], busy: float, expected: bool
) -> None:
    assert oversubscribed([{"threads": threads, "cpu_pct": busy}, {}], cpu) is expected


def test_oversubscription_is_told_once_per_episode() -> None:
    watch, procs = ThreadWatch(), [{"threads": 64}]
    bad, good = {"usable": 2.0, "oversubscribed": True}, {"usable": 2.0}
    assert [watch.poll(procs, bad, now) for now in (0.0, 5.0)] == [None, None]
    assert watch.poll(procs, good, 6.0) is None
    assert [watch.poll(procs, bad, now) for now in (7.0, 16.0)] == [None, None]
    text = "the training has 64 threads for 2 usable cores, and they slow each other down"
    assert [watch.poll(procs, bad, now) for now in (17.0, 18.0, 40.0)] == [text, None, None]
    assert watch.poll(procs, good, 50.0) is None
    assert [watch.poll(procs, bad, now) for now in (51.0, 70.0)] == [None, None]
    assert watch.poll(procs, good, 131.0) is None
    assert [watch.poll(procs, bad, now) for now in (140.0, 150.0)] == [None, text]


def test_what_the_host_gave_to_others_is_a_share_of_the_time_between_two_readings() -> None:
    before = cgroup.processor_ticks(b"cpu  100 0 50 800 10 0 0 40 0 0\ncpu0 1 2 3")
    now = cgroup.processor_ticks(b"cpu  150 0 70 900 10 0 0 70 0 0\n")
    assert before[7] == 40
    assert cgroup.stolen_pct(before, now) == 15.0
    assert cgroup.stolen_pct([], now) is None
    assert cgroup.stolen_pct(now, now) is None
    assert cgroup.processor_ticks(b"") == []


def test_rows_that_are_picked_are_read_as_all_of_them_are() -> None:
    for path in map(Path, ("/proc/meminfo", "/proc/vmstat")):
        data = path.read_bytes()
        every = cgroup.parse_fields(data)
        names = tuple(list(every)[:3] + list(every)[-1:] + ["Missing"])
        assert cgroup.pick_fields(data, names).keys() == {name for name in names if name in every}
    text = b"total_cache 5\ncache 7\nSwapTotal:\t8 kB\nSwap: x\nrss 12x\npgmajfault 0\n"
    names = ("cache", "SwapTotal", "Swap", "rss", "pgmajfault")
    whole = cgroup.parse_fields(text)
    assert cgroup.pick_fields(text, names) == {name: whole[name] for name in names if name in whole}
    assert cgroup.pick_fields(text, ("cache",)) == {"cache": 7}
    assert cgroup.pick_fields(b"", names) == {}
