"""Start-up files that end or replace the login shell, take long, or print much: commands run, or the line is named."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rgt_tui.cli.set_up.doctor_box import BoxDoctor
from rgt_tui.cli.set_up.doctor_here import DoctorFinding, DoctorStatus
from rgt_tui.model import BoxSpec, Frame, Hello, Sample, WatchConfig
from rgt_tui.ssh import (
    CommandFailed,
    CommandNotRun,
    HostKeyPolicy,
    NoCommands,
    PasswordExpired,
    StreamedResult,
    build_agent,
    connect,
    deploy_agent,
    find_ending_line,
    pass_through,
    quote_words,
    read_trace,
    run_command,
    start_watch,
)
from rgt_tui.ssh.login_shell import (
    MARKER,
    WAITS,
    mark_command,
    name_replacing_program,
)
from rgt_tui.ssh.remote_command import CommandSession
from tests.contract.ssh.servers import spec_of, sshd

BASHRC = {
    "zsh": "export SHELL=/usr/bin/zsh\nexec zsh -l\n",
    "fish": "# shells\nexec fish\n",
    "tmux": '# mux\nif [ -z "$TMUX" ]; then exec tmux new -A -s main; fi\n',
    "dash": "# posix\nexec dash\n",
    "login": '# again\n[ -n "$AGAIN" ] || { export AGAIN=1; exec bash --login; }\n',
    "exit": "# quiet\ncase $- in *i*) ;; *) exit ;; esac\n",
    "nested": '# again\n[ -n "$AGAIN" ] || { export AGAIN=1; bash; }\n',
    "reads": "# asks\nread -r answer\n",
    "selects": "# asks\nselect env in a b; do break; done\n",
}
"""What ends or replaces the shell is in line 2 of each."""
REPLACED = r"~/\.bashrc line 2 \(.*put \[\["
"""What the error of a command says that did not run."""
SOURCES_BASHRC = '[ -n "$BASH_VERSION" ] && . "$HOME/.bashrc"\n'
"""As in the .profile that Debian gives every user."""


@contextlib.contextmanager
def box(folder: Path, *, wrapper: str = "", **start_up_files: str) -> Iterator[BoxSpec]:
    """A box with these start-up files in its home, whose sshd passes every command to the wrapper, if any."""
    home = folder / "home"
    home.mkdir()
    for name, text in start_up_files.items():
        (home / f".{name}").write_text(text)
    options = ""
    if wrapper:
        (folder / "wrapper").write_text(f"#!/bin/sh\n{wrapper}\n")
        (folder / "wrapper").chmod(0o755)
        options = f"ForceCommand {folder}/wrapper\n"
    options += (
        f'SetEnv "HOME={home}" "XDG_CACHE_HOME={home}/.cache" "PATH={os.environ["PATH"]}"\n'
        f"Subsystem sftp internal-sftp -d {home}\n"
    )
    with sshd(folder, options) as port:
        yield spec_of(folder, port)


async def shell_finding(spec: BoxSpec) -> DoctorFinding:
    found = await BoxDoctor(spec, HostKeyPolicy.ASK).run_checks(120)
    return next(finding for finding in found if finding.id.endswith(".shell"))


async def run_alone(spec: BoxSpec, command: str) -> StreamedResult:
    """Run a command over a connection of its own."""
    connection = await connect(spec)
    try:
        return await pass_through(connection, command)
    finally:
        connection.abort()


async def deploy_alone(spec: BoxSpec) -> None:
    """Put the agent on the box over a connection of its own."""
    async with await connect(spec) as connection:
        await deploy_agent(connection, build_agent())


async def watch_once(spec: BoxSpec, python: str = sys.executable) -> tuple[str, ...]:
    """Return what does not work on a box that brings a sample, watched with that `python`."""
    frames: list[Frame] = []
    sampled = asyncio.Event()

    def keep(frame: Frame) -> None:
        frames.append(frame)
        if isinstance(frame, Sample):
            sampled.set()

    async with await connect(spec) as connection:
        watching = await start_watch(
            connection, build_agent(), (python,), WatchConfig(), keep, lambda _: None
        )
        await asyncio.wait_for(sampled.wait(), 90)
        watching.channel.close()
        if watching.deployed is not None:
            await run_command(connection, watching.deployed.build_command("record", "--stop"))
    assert isinstance(frames[0], Hello)
    return watching.limited


@pytest.mark.parametrize("name", BASHRC)
async def test_a_replaced_shell_is_no_obstacle(
    name: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    program = name if name in ("zsh", "fish", "tmux", "dash") else "bash"
    if not shutil.which(program):
        pytest.skip(f"there is no {program}")
    with box(tmp_path, bashrc=BASHRC[name]) as spec:
        assert await watch_once(spec) == ()
        done, finding = await asyncio.gather(
            run_alone(spec, "echo ran; exit 7"), shell_finding(spec)
        )
    assert (done.status, capfd.readouterr().out) == (7, "ran\n")
    assert finding.status is DoctorStatus.WARN
    assert "~/.bashrc line 2 (" in finding.text, finding.text
    assert "$- == *i*" in finding.advice


@pytest.mark.parametrize("name", ["tmux", "exit", "reads"])
async def test_a_command_that_did_not_run_never_succeeds(name: str, tmp_path: Path) -> None:
    with box(tmp_path, bashrc=BASHRC[name], profile=SOURCES_BASHRC) as spec:
        # Each waits for the same limits of time, so all three at once.
        ran, deployed, finding = await asyncio.gather(
            run_alone(spec, "echo ran"),
            deploy_alone(spec),
            shell_finding(spec),
            return_exceptions=True,
        )
    assert isinstance(ran, CommandNotRun) and re.search(REPLACED, str(ran)), ran
    assert isinstance(deployed, CommandNotRun), deployed
    assert isinstance(finding, DoctorFinding), finding
    assert finding.status is DoctorStatus.FAIL
    assert "~/.bashrc line 2" in finding.text


LOGIN_WRAPPER = 'if [ -n "$SSH_ORIGINAL_COMMAND" ]; then exec bash -l -c "$SSH_ORIGINAL_COMMAND"; fi\nexec bash -l'
"""Starts every command in a login shell, SFTP included, so that no file can be read over SFTP."""
LOGIN_FILES = {
    "bash_profile": ({"bash_profile": "# shells\nexec {}\n", "profile": "exec zsh\n"}, "bash_profile"),
    "bash_login": ({"bash_login": "# shells\n{}; exit\n", "profile": "exec zsh\n"}, "bash_login"),
    "profile": ({"profile": "# shells\nexec {}\n"}, "profile"),
    "sourced": (
        {"bash_profile": "A=1\n. ~/.profile\n", "profile": "# shells\nexec {}\n", "bash_login": "exec zsh\n"},
        "profile",
    ),
    "sourced elsewhere": (
        {"bash_profile": "export A=1\n. ~/.own_shell\n", "own_shell": "# shells\nexec {}\n"},
        "own_shell",
    ),
}  # fmt: skip
"""Start-up files of a login shell, and which one replaces it, in line 2."""


@pytest.mark.parametrize(
    ("name", "program"),
    [(name, program) for name in LOGIN_FILES for program in ("fish -l", "dash")],
)
async def test_a_login_shell_is_replaced_in_the_file_that_it_reads(
    name: str, program: str, tmp_path: Path
) -> None:
    if not shutil.which(program.split()[0]):
        pytest.skip(f"there is no {program}")
    files, cause = LOGIN_FILES[name]
    texts = {file: text.format(program) for file, text in files.items()}
    with box(tmp_path, wrapper=LOGIN_WRAPPER, bashrc="alias a=b\n", **texts) as spec:
        finding = await shell_finding(spec)
    assert f"~/.{cause} line 2 (" in finding.text and program in finding.text, finding.text


async def test_no_script_is_run_by_a_program_that_replaces_the_shell(tmp_path: Path) -> None:
    eats = f"# eats\nexec sh -c 'cat >>{tmp_path}/eaten'\n"
    with box(tmp_path, wrapper=LOGIN_WRAPPER, bash_profile=eats) as spec:
        async with await connect(spec) as connection:
            with pytest.raises(CommandNotRun):
                await deploy_agent(connection, build_agent())
    # Of the marked lines for a shell's standard input it may have read some.
    eaten = (tmp_path / "eaten").read_text(errors="replace")
    assert " exec sh -c " in eaten
    assert "RGT-SHELL" not in eaten


async def test_a_file_that_is_sourced_is_searched_for_the_line_too(tmp_path: Path) -> None:
    files = {"bashrc": "A=1\nsource ~/.my_env\n", "my_env": "B=2\nexit 0\n"}
    with box(tmp_path, profile=SOURCES_BASHRC, **files) as spec:
        finding = await shell_finding(spec)
    assert finding.status is DoctorStatus.FAIL
    assert "~/.my_env line 2 (exit 0)" in finding.text, finding.text


async def test_the_slow_line_of_a_login_shell_is_named(tmp_path: Path) -> None:
    files = {"bash_profile": "# conda\nsleep 2.2\n", "bashrc": "sleep 0.1\n"}
    with box(tmp_path, wrapper=LOGIN_WRAPPER, **files) as spec:
        finding = await shell_finding(spec)
    assert "before each command: ~/.bash_profile line 2 (sleep 2.2)" in finding.text, finding.text


async def test_zsh_takes_commands_where_every_start_up_file_is_replaced(tmp_path: Path) -> None:
    with box(tmp_path, bashrc="exec zsh -l\n", profile=SOURCES_BASHRC) as spec:
        assert await watch_once(spec) == ()


async def test_a_flood_before_a_command_is_dropped_and_named(tmp_path: Path) -> None:
    with box(tmp_path, bashrc="# conda\nyes banner | head -c 6000000\n") as spec:
        async with await connect(spec) as connection:
            done = await run_command(connection, "echo ran", most_bytes=1000)
            await deploy_agent(connection, build_agent())
        finding = await shell_finding(spec)
    assert done.out == b"ran\n"
    assert finding.status is DoctorStatus.WARN
    assert "print 6.0 MB before each command: ~/.bashrc line 2 (" in finding.text


async def test_a_slow_start_up_file_is_named(tmp_path: Path) -> None:
    with box(tmp_path, bashrc="# conda\nsleep 2.2\n") as spec:
        finding = await shell_finding(spec)
    assert finding.status is DoctorStatus.WARN
    assert "before each command: ~/.bashrc line 2 (sleep 2.2)" in finding.text


# sshd does not end a shell whose client has gone: the kernel ends the busy one, else it would slow
# down every test that follows.
@pytest.mark.parametrize("line", ["sleep 1000", "yes", "ulimit -t 5; while :; do :; done"])
async def test_a_start_up_file_without_an_end_is_the_cause(line: str, tmp_path: Path) -> None:
    with box(tmp_path, bashrc=f"{line}\n") as spec:
        connection = await connect(spec)
        with pytest.raises(CommandFailed, match=r"did not begin within 2 s .*start-up files"):
            await run_command(connection, "echo ran", seconds=2.0)
        connection.abort()


async def test_nothing_is_typed_into_the_prompt_for_a_new_password(tmp_path: Path) -> None:
    script = (
        "#!/bin/sh\n"
        'echo "WARNING: Your password has expired."\n'
        f'if [ -t 0 ]; then printf "Current password: "; read -r typed && echo "$typed" >{tmp_path}/typed; exit 1; fi\n'
        'echo "Password change required but no TTY available."; exit 1\n'
    )
    (tmp_path / "shell").write_text(script)
    (tmp_path / "shell").chmod(0o755)
    with sshd(tmp_path, f"ForceCommand {tmp_path}/shell\n") as port:
        spec = spec_of(tmp_path, port)
        with pytest.raises(PasswordExpired, match="ssh -t"):
            await watch_once(spec)
        finding = await shell_finding(spec)
    assert not (tmp_path / "typed").exists()
    assert finding.status is DoctorStatus.FAIL
    assert "password has expired" in finding.text


@pytest.mark.parametrize("asks", ["当前的密码：", "Proceed? [y/N]", "\033[?1049h menu > "])
async def test_a_terminal_that_asks_gets_no_answer(asks: str, tmp_path: Path) -> None:
    (tmp_path / "shell").write_text(
        "#!/bin/sh\n"
        'if [ ! -t 0 ]; then echo "needs a PTY"; exit 1; fi\n'
        f"printf %s '{asks}'; read -r typed && echo \"$typed\" >{tmp_path}/typed\n"
    )
    (tmp_path / "shell").chmod(0o755)
    with (
        sshd(tmp_path, f"ForceCommand {tmp_path}/shell\n") as port,
        pytest.raises(NoCommands),
    ):
        await watch_once(spec_of(tmp_path, port))
    assert not (tmp_path / "typed").exists()


SHELLS: dict[str, tuple[str, ...]] = {
    name: (name,) for name in ("bash", "dash", "zsh", "fish", "tcsh", "mksh")
}
SHELLS["ash"] = ("busybox", "ash")
ODD_WORDS = ("a'b c!d", "$x `y`", r"\n \\ \'", "\\", "!", "*?[a]", "结果", "~", '"', "")


@pytest.mark.parametrize("name", SHELLS)
def test_every_shell_runs_the_same_command_given_or_read(name: str) -> None:
    if not shutil.which(SHELLS[name][0]):
        pytest.skip(f"there is no {name}")
    script = "import sys; sys.stdout.buffer.write(ascii(sys.argv[1:]).encode())"
    command = mark_command(quote_words(sys.executable, "-Xutf8", "-c", script, *ODD_WORDS))
    wanted = f"\n{MARKER}\n{list(ODD_WORDS)!a}".encode()
    given = subprocess.run([*SHELLS[name], "-c", command], capture_output=True, check=False)
    assert (given.stdout, given.stderr) == (wanted, b"")
    line = f" exec {quote_words('sh', '-c', command)}\n"
    read = subprocess.run(SHELLS[name], input=line.encode(), capture_output=True, check=False)
    assert (read.stdout, read.stderr) == (wanted, b"")


def test_the_ending_line_of_start_up_files() -> None:
    def line_of(text: str) -> int | None:
        found = find_ending_line([("~/.bashrc", text)])
        return found.line if found is not None else None

    assert line_of("# exec zsh\nalias a=b\n") is None
    assert line_of("exec 3>&1\nexec > >(tee log)\n") is None
    assert line_of("a=1\n[ -z $X ] && exec /usr/bin/fish\n") == 2
    assert line_of("exit_code=0\nif true; then\n  newgrp docker\nfi\n") == 3
    assert line_of("case $- in\n  *i*) ;;\n  *) return;;\nesac\nexec zsh\n") is None, "guarded"
    assert line_of("[ -t 1 ] && exec zsh\n") is None, "guarded"
    assert line_of("[[ $- != *i* ]] && exit\n") == 1
    assert line_of("module load cuda\nscreen -RR\n") == 2
    assert line_of("a=1\nset -eu\nfalse\n") == 2
    assert line_of("a=1\nset -o nounset\necho $B\n") == 2
    assert line_of("set -o vi\nset -x\n") is None
    assert line_of("set -e\nexec zsh\n") == 2, "exec is less doubtful"
    assert line_of("a=1\nread -p 'Which env? ' env\n") == 2
    assert line_of("a=1\nselect env in a b; do break; done\n") == 2
    assert (
        line_of("read -r a </proc/loadavg\ncat /etc/motd\nls | while read -r b; do :; done\n")
        is None
    )


def test_the_line_of_start_up_files_that_never_ends() -> None:
    def line_of(text: str) -> int | None:
        found = find_ending_line([("~/.bashrc", text)], WAITS)
        return found.line if found is not None else None

    assert line_of("alias a=b\nuntil [ -e /mnt/x ]; do sleep 1; done\n") == 2
    assert line_of("sleep 1\nyes\n") == 2
    assert line_of("a=1\nmount /data\n") == 2
    assert line_of("ls | while read -r a; do :; done\nexport PATH=/opt/ssh/bin:$PATH\n") is None


def test_a_program_that_replaced_the_shell_is_known_by_its_words() -> None:
    assert name_replacing_program("open terminal failed: not a terminal") == "tmux"
    assert (
        name_replacing_program("its output: fish: Missing end to balance this for loop") == "fish"
    )
    assert name_replacing_program("Error: Your SSH client doesn't support PTY") is None


def test_a_trace_without_a_cause_names_none() -> None:
    trace = read_trace(
        "RGT-HOME /h\n+RGT 1.0 /h/.bashrc:1 alias a=b\n+RGT 1.1 :1 echo RGT-END\nRGT-END\necho RGT-EATEN\n"
    )
    assert trace.ending is None


async def test_a_box_can_be_watched_with_nothing_put_on_it(tmp_path: Path) -> None:
    with box(tmp_path) as spec:
        limited = await watch_once(spec, "none")
    assert 'nothing is put on this box, because `python` is "none"' in limited[0]
    assert list((tmp_path / "home").iterdir()) == []


@contextlib.contextmanager
def forced_box(folder: Path, script: str) -> Iterator[BoxSpec]:
    """A box whose sshd passes every command to a script."""
    (folder / "forced").write_text(f"#!/bin/sh\nlog={folder}/commands\n{script}\n")
    (folder / "forced").chmod(0o755)
    with sshd(folder, f"ForceCommand {folder}/forced\n") as port:
        yield spec_of(folder, port)


FORCED = {
    "refuses several commands": "case $SSH_ORIGINAL_COMMAND in *\\;*) echo refused >&2; exit 3;; esac\n"
    'printf "%s\\n" "$SSH_ORIGINAL_COMMAND" >>$log; exec sh -c "$SSH_ORIGINAL_COMMAND"',
    "splits words": 'printf "%s\\n" "$SSH_ORIGINAL_COMMAND" >>$log; exec $SSH_ORIGINAL_COMMAND',
    "restricted shell": 'printf "%s\\n" "$SSH_ORIGINAL_COMMAND" >>$log\n'
    'exec env PATH=/nowhere "$(command -v bash)" --norc -r -c "$SSH_ORIGINAL_COMMAND"',
}


@pytest.mark.parametrize("name", FORCED)
async def test_a_forced_command_or_restricted_shell_runs_the_command_once(
    name: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with forced_box(tmp_path, FORCED[name]) as spec:
        async with await connect(spec) as connection:
            for _ in range(2):
                done = await pass_through(connection, "echo user-command")
                assert done.status == 0
    assert capfd.readouterr().out == "user-command\nuser-command\n"
    assert (tmp_path / "commands").read_text().count("user-command") == 2


async def test_a_forced_command_that_refuses_everything_is_an_error(tmp_path: Path) -> None:
    with forced_box(tmp_path, "echo refused >&2; exit 3") as spec:
        async with await connect(spec) as connection:
            for _ in range(2):
                with pytest.raises(CommandNotRun, match="refused"):
                    await pass_through(connection, "echo user-command")


async def test_an_error_after_the_caller_gave_up_is_not_logged() -> None:
    logged: list[str] = []
    asyncio.get_running_loop().set_exception_handler(
        lambda _, context: logged.append(str(context["message"]))
    )
    session = CommandSession()
    session.connection_lost(CommandNotRun("the login shell ended"))
    with pytest.raises(CommandNotRun):
        await session.ended
    session = CommandSession()
    session.connection_lost(CommandNotRun("the login shell ended"))
    del session
    gc.collect()
    assert not logged


@pytest.mark.parametrize("shell", ["bash", "fish", "tcsh"])
async def test_a_syntax_error_is_reported_as_the_shell_reports_it(
    shell: str, tmp_path: Path
) -> None:
    if not shutil.which(shell):
        pytest.skip(f"there is no {shell}")
    with forced_box(tmp_path, f'exec {shell} -c "$SSH_ORIGINAL_COMMAND"') as spec:
        async with await connect(spec) as connection:
            with pytest.raises(
                CommandNotRun, match=r"did not run this command.*its output: "
            ) as caught:
                await pass_through(connection, "echo user-command; if (")
            assert "runs no commands" not in str(caught.value)
            assert (await pass_through(connection, "exit 7")).status == 7


RBASH = 'exec rbash -c "$SSH_ORIGINAL_COMMAND"'
RESTRICTED_SHELLS = {
    "paths": RBASH,
    "no sh": f"mkdir -p bin; ln -sf /bin/ls bin; PATH=$PWD/bin; {RBASH.replace('rbash', '/bin/rbash')}",
    "nologin": "echo 'This account is currently not available.'; exit 1",
    "git-shell": "echo \"fatal: unrecognized command 'sh -s'\" >&2; exit 128",
    "bash": "echo 'bash: line 1: cd: restricted' >&2; exit 1",
    "other name": "echo 'main: line 1: x: restricted: cannot redirect output' >&2; exit 1",
    "mksh": "echo 'W: mksh: /bin/sh: restricted' >&2; exit 1",
    "zsh": "echo 'zsh:cd:1: restricted' >&2; exit 1",
    "rssh": "echo 'This account is restricted by rssh.'; exit 1",
}
MENUS = {
    "menu": "echo 'welcome to the menu'",
    "refuses": "echo 'only backups here' >&2; exit 1",
    "silent": "exit 0",
    "shell": "exec bash",
}


@pytest.mark.parametrize("name", RESTRICTED_SHELLS)
async def test_a_restricted_shell_is_named_as_such(name: str, tmp_path: Path) -> None:
    with box(tmp_path, wrapper=f"cd {tmp_path}; {RESTRICTED_SHELLS[name]}") as spec:
        found = await BoxDoctor(spec, HostKeyPolicy.ASK).run_checks(120)
    (failed,) = [finding for finding in found if finding.status is DoctorStatus.FAIL]
    assert failed.id.endswith(".shell")
    assert "restricted" in failed.text
    assert "`user`" in failed.advice
    assert "inodes" not in failed.advice
    assert "[[" not in failed.text + failed.advice


BANNERS = (
    "Use of this system is restricted by company policy.",
    "group scratch: restricted, see wiki",
)


@pytest.mark.parametrize("banner", BANNERS)
@pytest.mark.parametrize("ends", ["exec dash", "exit"])
async def test_a_banner_is_no_restricted_shell(banner: str, ends: str, tmp_path: Path) -> None:
    with box(tmp_path, bashrc=f"echo '{banner}'\n{ends}\n") as spec:
        finding = await shell_finding(spec)
    assert "login shell is restricted" not in finding.text


async def test_the_text_of_a_restricted_shell_before_a_working_fallback(tmp_path: Path) -> None:
    with box(tmp_path, bashrc="echo 'bash: cd: restricted'\nexec dash\n") as spec:
        await deploy_alone(spec)


@pytest.mark.parametrize("name", MENUS)
async def test_a_forced_command_comes_before_start_up_files(name: str, tmp_path: Path) -> None:
    with box(tmp_path, wrapper=MENUS[name]) as spec:
        finding = await shell_finding(spec)
    assert finding.status is not DoctorStatus.OK
    said = f"{finding.text} {finding.advice}"
    assert said.index("ForceCommand") < said.index("start-up file"), said
