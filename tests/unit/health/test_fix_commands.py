"""Which steps of a fix rgt runs itself: the handbook's own that only look, and explicit removals."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from rgt_tui.handbook import shipped_pages
from rgt_tui.health import CopiedOnly, LookTrial, RemovalTrial, plan_trial, split_stages
from tests.ui.boxes import inode_finding, trouble_box

BOX = trouble_box()


def test_the_steps_of_a_full_disk_look_and_remove() -> None:
    check, inspect, remove = (fix.command or "" for fix in inode_finding().fixes)
    assert plan_trial(BOX, check) == LookTrial((("df", "-i", "--", "/workspace"),))
    assert plan_trial(BOX, inspect) == LookTrial(
        (("ls", "-A", "--", "/workspace/.cache/viz"), ("head",))
    )
    found = plan_trial(BOX, remove)
    assert isinstance(found, RemovalTrial)
    assert (found.path, found.last_word) == ("/workspace/.cache/viz", "viz")


@pytest.mark.parametrize(
    "command",
    [
        "df -i -- '/workspace'; reboot",
        "df -i -- '/workspace' > /etc/passwd",
        "df -i -- $(reboot)",
        "df -i -- '/a' '/b'",
        "df -i -- /workspace",  # not quoted: not as rgt writes it
        "df -i -- '/work\nspace'",
        "df -i -- '/workspace' | tee /tmp/x",
        "rm -rf -- '/workspace/.cache/viz' '/workspace/ckpt'",
        "rm -rf -- '/workspace/.cache/viz'/../../",
        "rm -rf '/workspace/.cache/viz'",
        "shutdown -h now",
        "nvidia-smi -pl 100",
        "",
    ],
)
def test_what_the_handbook_does_not_say_itself_is_only_copied(command: str) -> None:
    assert plan_trial(BOX, command) == CopiedOnly("not a command of the handbook itself: copy it")


def test_a_path_of_the_box_stays_one_quoted_word() -> None:
    hostile = "/workspace/.cache/x'; touch /tmp/owned; '"
    quoted = "'" + hostile.replace("'", "'\"'\"'") + "'"
    found = plan_trial(BOX, f"ls -A -- {quoted} | head")
    assert found == LookTrial((("ls", "-A", "--", hostile), ("head",)))
    found = plan_trial(BOX, f"rm -rf -- {quoted}")
    assert found == RemovalTrial(hostile)


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("/workspace/ckpt", "no cache"),
        ("/cache", "top-level"),
        ("/jobs/demo/logs/lstm-b.log/tmp", "log"),
        ("/workspace/a/../ckpt", "exact"),
    ],
)
def test_nothing_of_value_is_removed(path: str, why: str) -> None:
    found = plan_trial(BOX, f"rm -rf -- '{path}'")
    assert isinstance(found, CopiedOnly), path
    assert why in found.reason


def test_a_directory_of_results_of_the_fleet_file_is_not_removed() -> None:
    command = "rm -rf -- '/workspace/.cache/viz'"
    box = replace(BOX, spec=replace(BOX.spec, results=("/workspace/.cache",)))
    assert isinstance(plan_trial(box, command), CopiedOnly)


@pytest.mark.parametrize(
    "text",
    ["a; b", "a && b", "a > b", "a < b", "$(a)", "`a`", "a $B", "ls *", "ls ~", "A=1 ls", "a |", "'a",
     '"$A"', "a & b", "ls {a,b}", "ls [ab]", "a\\ b", "a # b", "a\nb"],
)  # fmt: skip
def test_what_only_a_shell_understands_is_not_split(text: str) -> None:
    assert split_stages(text) is None


def test_no_step_of_the_handbook_that_changes_something_runs() -> None:
    changing = (
        "kill",
        "rm",
        "sed",
        "export",
        "python",
        "apt-get",
        "docker",
        "conda",
        "sudo",
        "git",
    )
    ran = []
    for page in shipped_pages().values():
        for fix in page.fixes:
            if fix.command and isinstance(found := plan_trial(BOX, fix.command), LookTrial):
                ran += [words[0] for words in found.stages]
    assert {"df", "ulimit", "nvidia-smi", "cat", "dmesg", "ps"} <= set(ran)
    assert not set(changing) & set(ran)


@pytest.mark.parametrize(
    "command", ["dmesg -C", "sort -o /etc/passwd", "tail -f /x", "nvidia-smi -r", "uniq /a /b",
                "ulimit -n 5", "cat /dev/nvidia0", "grep -f /etc/shadow x", "grep -e x /etc/shadow"]
)  # fmt: skip
def test_options_that_write_or_wait_are_not_allowed(
    command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rgt_tui.health.fix_commands.is_handbook_command", lambda command: True)
    assert isinstance(plan_trial(BOX, command), CopiedOnly)
