"""The probe's lines into samples, and its script's checksum."""

from __future__ import annotations

import contextlib
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rgt_box.sampling import gpu_without_nvml

from rgt_tui.model import WatchConfig, clean_decoded, clean_text
from rgt_tui.ssh.sh_probe import ProbeShell, build_script, cksum_of, wanted_mounts
from rgt_tui.ssh.sh_sample import GPU_COLUMNS, parse_greeting, parse_sample

V2 = """\
RGT { 7 1795271381
RGT h 24684100 23247016 1000 400
RGT m 2 168812544 max 259424256 33140736 3 4096 max
RGT m 2 2793996288 8589934592 7549779968 670412800 5 8192 1073741824
RGT l 2.67
RGT q max 100000
RGT q 150000 100000
RGT u 13320.66
somebody else writes to this terminal
RGT db 0 overlay rw overlay             264212084 26427744  79963168      25% /
RGT di 0 overlay       16777216 470482 16306734    3% /
RGT de 1 there is no such directory
RGT db 2 nfs4 ro server:/a share 1000 900 100 90% /mnt/a share
RGT di 2 server:/a share 0 0 0 - /mnt/a share
RGT g 0, NVIDIA A100-SXM4-80GB, 97, 40536, 81920, 61, 312.45, 400.00, 1410, [N/A], 00000000:07:00.0
RGT g 5, broken line""".splitlines()


def test_a_reading_of_version_2() -> None:
    found = parse_sample(V2, "sh-x", 9, 8, ("/", "/nope", "/mnt/a share", "/unread"))
    assert (found.boot, found.seq, found.at) == ("sh-x", 9, 1795271381.0)
    assert found.mem.cgroup == 2
    assert (found.mem.used, found.mem.limit, found.mem.oom_kills) == (2793996288, 8589934592, 5)
    assert found.mem.swap_limit == 1073741824
    assert found.mem.host_used == (24684100 - 23247016) * 1024
    assert found.mem.host_swap_used == 600 * 1024
    assert (found.cpu.quota, found.cpu.cores, found.cpu.usable, found.cpu.load1) == (
        1.5,
        8,
        1.5,
        2.67,
    )
    root, nope, share, unread = found.disks
    assert (root.bytes_total, root.bytes_free, root.inodes_used) == (
        264212084 * 1024,
        79963168 * 1024,
        470482,
    )
    assert nope.error == "there is no such directory"
    assert (share.bytes_used, share.inodes_total, share.read_only, share.kind) == (
        900 * 1024,
        None,
        True,
        "nfs4",
    )
    assert unread.error == "not read"
    gpu, odd = found.gpus
    assert (gpu.util, gpu.vram_used, gpu.power_w, gpu.clock_max_mhz) == (
        97.0,
        40536 << 20,
        312.45,
        None,
    )
    assert gpu.bus == "00000000:07:00.0"
    assert (odd.index, odd.util) == (5, None)
    assert "5, broken line" in (odd.error or ""), (
        "a card must not be lost because its row looks otherwise"
    )


def test_no_limit_of_version_1_is_none() -> None:
    lines = ["RGT { 1 5", "RGT m 1 100 9223372036854771712 200 50 0 - -"]
    found = parse_sample(lines, "b", 1, None, ())
    assert (found.mem.cgroup, found.mem.used, found.mem.limit) == (1, 100, None)


def test_a_card_that_does_not_answer_is_an_error_and_a_remark_is_no_card() -> None:
    row = "RGT g {}, A100, 97, 40536, 81920, 61, 312.45, 400.00, 1410, 1410, 00000000:07:00.0"
    lines = [
        "RGT { 1 5",
        row.format(0),
        "RGT g Unable to determine the device handle for GPU0000:3B:00.0: Unknown Error",
        row.format(2),
        "RGT g WARNING: infoROM is corrupted at gpu 0000:07:00.0",
    ]
    found = parse_sample(lines, "b", 1, None, ()).gpus
    assert [(gpu.index, gpu.error is None) for gpu in found] == [(0, True), (2, True), (1, False)]
    assert "Unable to determine" in (found[2].error or "")


def test_the_columns_are_those_of_the_agent() -> None:
    """Two parts that ship apart: what one of them asks for by another name would be read as another value."""
    names = [name for name, _, _ in gpu_without_nvml.SMI_COLUMNS]
    assert set(GPU_COLUMNS) <= set(names)
    assert [name for name in names if name in GPU_COLUMNS] == list(GPU_COLUMNS)


def test_a_driver_that_fails_is_said() -> None:
    lines = ["RGT { 1 5", "RGT ge NVIDIA-SMI has failed\x1b[31m because", "RGT ge it could not"]
    (gpu,) = clean_decoded(parse_sample(lines, "b", 1, None, ())).gpus
    assert gpu.error == "NVIDIA-SMI has failed because"


def test_what_is_missing_is_unknown_never_zero() -> None:
    found = parse_sample(["RGT { 1 5", "RGT h - - - -", "RGT l -", "RGT u -"], "b", 1, None, ("/",))
    assert found.mem.host_total is None
    assert found.cpu.load1 is None
    assert found.session.uptime_s is None
    assert found.disks[0].bytes_total is None


@given(st.lists(st.text(max_size=40).map(lambda text: f"RGT {text}"), max_size=12))
def test_garbage_is_a_reading_or_an_error(lines: list[str]) -> None:
    with contextlib.suppress(ValueError):
        parse_sample(["RGT { 1 5", *lines], "b", 1, None, ("/",))


def test_a_reading_without_a_time_is_none() -> None:
    with pytest.raises(ValueError, match="time"):
        parse_sample(["RGT { 1 -"], "b", 1, None, ())


def test_the_greeting() -> None:
    hello = parse_greeting("RGT hello eb41-88\x1b[m 2 v\x07m 123")
    assert (hello.boot, hello.cores, clean_text(hello.host), hello.pid) == (
        "sh-eb41-88m",
        2,
        "vm",
        123,
    )
    with pytest.raises(ValueError, match="greet"):
        parse_greeting("hello")


@given(st.binary(max_size=300))
def test_the_checksum_is_that_of_cksum(data: bytes) -> None:
    said = subprocess.run(["cksum"], input=data, capture_output=True, check=True).stdout.split()
    assert (int(said[0]), int(said[1])) == (cksum_of(data), len(data))


@pytest.mark.parametrize(
    "shell", [("dash", "-n"), ("bash", "--posix", "-n"), ("busybox", "sh", "-n")]
)
def test_the_script_is_one_for_every_shell(shell: tuple[str, ...]) -> None:
    mounts = wanted_mounts(WatchConfig(mounts=("/a b", "/it's", "relative", "/bad\nname", "/")))
    assert mounts == ("/", "/a b", "/it's")
    text = build_script(mounts)
    assert text.isascii()
    assert "\t" not in text
    assert max(map(len, text.splitlines())) < 900
    done = subprocess.run(shell, input=text, text=True, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


PROCS = """\
RGT { 7 1790000100
RGT pt 1790000000 100 4096
RGT p 90 1 S 2000 4 1000 /opt/conda/bin/python3 -u train.py --wandb-key S3CRET
RGT p 91 90 S 2100 1 500 /opt/conda/bin/python3 -u train.py --wandb-key S3CRET
RGT p 92 1 R 3000 1 500 bash -c HF_TOKEN=x python train.py
RGT p 93 1 R 3000 1 500 grep -aHE python|train /proc/1/cmdline
RGT p 94 1 R 3000 1 500 python3 -m torch.distributed.run --nproc-per-node 8 main.py
RGT p 95 1 R 3000 1 500 python3 main.py fit --config c.yaml
RGT p 96 1 R 3000 1 500 /usr/local/bin/torchrun main.py
RGT p 97 1 R 3000 1 500 python3 /usr/bin/tensorboard --logdir train
RGT p 98 1 R 3000 1 500 python3 serve.py train.json
RGT p 99 1 R 3000 1
RGT p nine 1 R 3000 1 500 python train.py
RGT p 90 1 R 3000 1 500 a second line of a command train.py""".splitlines()


def test_what_looks_like_a_training_is_listed_without_its_arguments() -> None:
    found = parse_sample(PROCS, "b", 1, None, ())
    assert [(proc.pid, proc.cmd) for proc in found.procs] == [
        (90, "/opt/conda/bin/python3 -u train.py …"),
        (94, "python3 -m torch.distributed.run …"),
        (95, "python3 main.py …"),
        (96, "/usr/local/bin/torchrun …"),
    ]
    first = found.procs[0]
    assert (first.started, first.age_s, first.state) == (1790000020.0, 80.0, "S")
    assert (first.threads, first.rss) == (4, 1000 * 4096)
    assert found.unseen is not None


def test_a_pattern_of_the_person_s_own_decides_alone() -> None:
    found = parse_sample(PROCS, "b", 1, None, (), r"serve\.py")
    assert [proc.pid for proc in found.procs] == [98]


@pytest.mark.parametrize(("line", "words"), [
    ("", "/proc is not readable"), ("RGT pt - 100 4096", "/proc is not readable"),
    ("RGT pt 1790000000 100", "/proc is not readable"),
    ("RGT pt 1790000000 100 4096 hidden", "other users"), ("RGT pt 1790000000 100 4096", "for certain"),
])  # fmt: skip
def test_no_process_of_a_shell_is_unknown_never_none(line: str, words: str) -> None:
    found = parse_sample(["RGT { 1 5", line], "b", 1, None, ())
    assert found.procs == ()
    assert "cannot see" in (found.unseen or "")
    assert words in (found.unseen or "")


@pytest.mark.parametrize("end", [b"\x07", b"\x1b\\"], ids=["bell", "string terminator"])
async def test_the_title_of_a_terminal_is_no_part_of_its_question(end: bytes) -> None:
    shell = ProbeShell()
    shell.data_received(b"hello\r\n\x1b]0;root@box" + end + b"Which image? ", None)
    assert await shell.find_question(5.0) == "Which image?"
