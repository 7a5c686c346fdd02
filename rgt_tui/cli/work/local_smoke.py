"""``rgt run --smoke-here``: run the smoke command on this CPU, in a copy of the pushed code."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from rgt_tui.cli.printing import print_json, print_lines, wait_indicator
from rgt_tui.cli.work.work_arguments import RunArguments
from rgt_tui.files import locked_file, open_regular, replace_file, state_directory
from rgt_tui.fleet.work.launching import describe_phase, finding_lines, job_name_of
from rgt_tui.health import log_finding
from rgt_tui.model import Secret
from rgt_tui.transfer import SourceError, SourceTree

NO_GPU = {"CUDA_VISIBLE_DEVICES": "", "HIP_VISIBLE_DEVICES": "", "ROCR_VISIBLE_DEVICES": ""}
PASSED = "smokes.json"
"""Digests in the state directory of what passed here, so that it is not run again."""
MOST_TAIL, TAIL_LINES = 16 << 10, 40


def run_local_smoke(
    arguments: RunArguments,
    tree: SourceTree | None,
    env: Mapping[str, str],
    secrets: Mapping[str, Secret],
) -> bool:
    """Run the smoke command of ``rgt run`` here, and print its result; return False if it failed.

    Raises:
        ValueError: There is no smoke command, or no code for it.
        SourceError: The code cannot be copied.
    """
    if tree is None or not arguments.smoke:
        raise ValueError(
            "--smoke-here runs the command of --smoke in a copy of the code of --push: give both"
        )
    digest = hashlib.sha256(
        msgspec.json.encode(
            [tree.tree_digest, arguments.smoke, arguments.workdir, sorted(env.items())]
        )
    ).hexdigest()
    passed = _load_passed()
    row: dict[str, Any] = {"ok": True, "before": True}
    if digest not in passed:
        with wait_indicator("running the smoke command here …"):
            row = _run_smoke(
                arguments,
                tree,
                {**env, **{name: value.reveal() for name, value in secrets.items()}},
            )
        for name, value in secrets.items():
            # The output is read line by line, so a key of several lines is never in it as a whole.
            for part in filter(None, map(str.strip, value.reveal().splitlines())):
                row["tail"] = [line.replace(part, f"*** ({name})") for line in row["tail"]]
        if row["ok"]:
            _note_passed(digest)
    if row["ok"]:
        finding = None
    else:
        finding = log_finding(tuple(row["tail"]))
    if arguments.json:
        if not row["ok"]:
            print_json({"box": arguments.box, "smoke_here": row, "finding": finding, "exit": 1})
        return bool(row["ok"])
    lines = describe_phase({**row, "phase": "smoke", "known": True}) + (
        finding_lines(finding) if finding else []
    )
    print_lines(*(f"here: {line}" for line in lines))
    sys.stdout.flush()
    return bool(row["ok"])


def _run_smoke(arguments: RunArguments, tree: SourceTree, env: Mapping[str, str]) -> dict[str, Any]:
    """Run it; return the agent's smoke row: ``ok``, ``seconds``, ``reason``, ``tail``."""
    began, reason = time.monotonic(), None
    with tempfile.TemporaryDirectory(prefix="rgt-smoke-", ignore_cleanup_errors=True) as folder:
        code, out, log = Path(folder, "code"), Path(folder, "out"), Path(folder, "log")
        out.mkdir()
        try:
            _copy_code(tree, code)
        except OSError as error:
            raise SourceError(
                f"no copy for --smoke-here: {error.filename}: {error.strerror}"
            ) from error
        workdir = code / (arguments.workdir or "")
        if not workdir.is_dir():
            raise ValueError(
                f"--smoke-here: there is no directory {arguments.workdir} in {arguments.push}"
            )
        own = {
            "RGT_SMOKE": "1",
            "RGT_OUT": str(out),
            "RGT_CELL": arguments.name or job_name_of(arguments.words),
        }
        shell = shutil.which("bash") or "/bin/sh"
        with log.open("wb") as output, _collected_signals() as asked:
            child = subprocess.Popen(
                [shell, "-c", arguments.smoke or ""],
                cwd=workdir,
                env={**os.environ, **NO_GPU, "PYTHONUNBUFFERED": "1", **own, **env},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
            try:
                ends = time.monotonic() + arguments.smoke_seconds
                # Seconds between two checks whether the command has ended, or rgt was asked to.
                poll_seconds = 0.05
                while (status := child.poll()) is None and not asked and time.monotonic() < ends:
                    time.sleep(poll_seconds)
                if status is None:
                    reason = f"did not end within {arguments.smoke_seconds:g} s"
                elif status:
                    if status > 0:
                        reason = f"exit {status}"
                    else:
                        reason = f"killed by signal {-status}"
            finally:
                with contextlib.suppress(OSError):
                    os.killpg(child.pid, signal.SIGKILL)  # also processes that it left running
                child.wait()
            if signal.SIGINT in asked:
                raise KeyboardInterrupt
            if asked:
                raise SystemExit(128 + asked[0])
        tail = log.read_bytes()[-MOST_TAIL:].decode("utf-8", "replace").splitlines()[-TAIL_LINES:]
    seconds = round(time.monotonic() - began, 1)
    return {"ok": reason is None, "seconds": seconds, "reason": reason, "tail": tail}


@contextlib.contextmanager
def _collected_signals() -> Iterator[list[int]]:
    """Collect the signals that ask rgt to end.

    Raising at once could lose a command that was just started, before its process is known: it
    would keep running, and its directory would remain.
    """
    asked: list[int] = []

    def collect_signal(number: int, _: object) -> None:
        asked.append(number)

    before = {
        number: signal.signal(number, collect_signal)
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
    }
    try:
        yield asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _copy_code(tree: SourceTree, code: Path) -> None:
    """Copy the code as a push would, so that files left out there are missing here, too."""
    code.mkdir()
    for file in tree.files:
        target = code / file.path
        target.parent.mkdir(parents=True, exist_ok=True)
        if file.mended is None:
            shutil.copyfile(file.source, target)
        else:
            target.write_bytes(file.mended)
        target.chmod(0o755 if file.executable else 0o644)
    for path, destination in tree.links:
        target = code / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.symlink_to(destination)


def _load_passed() -> list[str]:
    try:
        with open_regular(state_directory(os.environ) / PASSED, follow=False) as file:
            return msgspec.json.decode(file.read(), type=list[str])
    except (OSError, msgspec.DecodeError):
        return []


def _note_passed(digest: str) -> None:
    path = state_directory(os.environ) / PASSED
    with contextlib.suppress(OSError), locked_file(path):
        most_passed = 200
        replace_file(path, msgspec.json.encode([*_load_passed(), digest][-most_passed:]))
