"""Trainings on this machine's CPU before they cost money: ``rgt smoke``, ``rgt run --smoke-here``."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from rgt_wire.checkpoint_names import ALIASES, CHECKPOINTS, is_weights, read_name

from rgt_tui.cli.commands import FAILED, OK, USAGE
from rgt_tui.cli.printing import print_error, print_json, print_lines, wait_indicator
from rgt_tui.cli.triage_files import as_json, as_text, triage_log
from rgt_tui.cli.work.work_arguments import RunArguments, SmokeArguments, parse_environment
from rgt_tui.files import locked_file, open_regular, replace_file, state_directory
from rgt_tui.fleet.work.job_file import JobFileError, read_job_file
from rgt_tui.fleet.work.launching import describe_phase, finding_lines, job_name_of
from rgt_tui.handbook import all_pages
from rgt_tui.health import log_finding
from rgt_tui.language import translate
from rgt_tui.model import FrozenStruct, Secret
from rgt_tui.transfer import ALWAYS_LEFT_OUT, IgnoreRules, SourceError, SourceTree, read_tree

NO_GPU = {"CUDA_VISIBLE_DEVICES": "", "HIP_VISIBLE_DEVICES": "", "ROCR_VISIBLE_DEVICES": ""}
LOGGERS_OFF = {
    "WANDB_MODE": "disabled",
    "SWANLAB_MODE": "disabled",
    "DISABLE_MLFLOW_INTEGRATION": "TRUE",
    "HF_HUB_DISABLE_TELEMETRY": "1",
}
"""Environment that keeps a smoke out of experiment trackers."""
LOG, NOTES = "smoke.log", "limits"
OWN_OPTION = re.compile(
    r"(?:--|\+{0,2}trainer\.)(?:smoke(?:[-_]test)?|fast[-_]dev[-_]run|max[-_](?:train[-_])?(?:steps"
    r"|iters|batches)"
    r"|limit[-_](?:train[-_])?batches|num[-_]steps|steps|debug|dry[-_]run"
    r"|overfit[-_]one[-_]batch)(?:=.*)?"
)
"""Options by which a command limits itself."""
WANTS_GPU = re.compile(
    r"No CUDA GPUs are available|no NVIDIA driver|not compiled with CUDA|No supported gpu backend"
    r"|sees no CUDA device|is_available\(\) is False",
    re.IGNORECASE,
)
"""Errors of a script that cannot run without a GPU."""
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
            translate(
                "--smoke-here runs the command of --smoke in a copy of the code of --push: give "
                "both"
            )
        )
    # Everything that decides the outcome; values of secrets do not, and no digest of them is
    # stored.
    digest = hashlib.sha256(
        msgspec.json.encode(
            [tree.tree_digest, arguments.smoke, arguments.workdir, sorted(env.items())]
        )
    ).hexdigest()
    passed = _load_passed()
    # Passed before with the same code: shown as such, because minutes are saved.
    row: dict[str, Any] = {"ok": True, "before": True}
    if digest not in passed:
        with wait_indicator(translate("running the smoke command here …")):
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
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="rgt-smoke-", ignore_cleanup_errors=True) as folder:
        code, out, log = Path(folder, "code"), Path(folder, "out"), Path(folder, "log")
        out.mkdir()
        try:
            _copy_code(tree, code)
        except OSError as error:
            raise SourceError(
                translate(
                    "no copy for --smoke-here: {filename}: {strerror}",
                    filename=error.filename,
                    strerror=error.strerror,
                )
            ) from error
        workdir = code / (arguments.workdir or "")
        if not workdir.is_dir():
            raise ValueError(
                translate(
                    "--smoke-here: there is no directory {workdir} in {push}",
                    workdir=arguments.workdir,
                    push=arguments.push,
                )
            )
        own = {
            "RGT_SMOKE": "1",
            "RGT_OUT": str(out),
            "RGT_CELL": arguments.name or job_name_of(arguments.words),
        }
        # As on the box, whose smoke command is a line for bash, too.
        shell = shutil.which("bash") or "/bin/sh"
        status = run_limited(
            [shell, "-c", arguments.smoke or ""],
            workdir,
            {**os.environ, **NO_GPU, **LOGGERS_OFF, "PYTHONUNBUFFERED": "1", **own, **env},
            log,
            arguments.smoke_seconds,
        )
        tail = log.read_bytes()[-MOST_TAIL:].decode("utf-8", "replace").splitlines()[-TAIL_LINES:]
    seconds = round(time.monotonic() - began, 1)
    reason = describe_status(status, arguments.smoke_seconds)
    return {"ok": reason is None, "seconds": seconds, "reason": reason, "tail": tail}


class FrameworkLimit(FrozenStruct):
    """A framework whose training was limited (`smoke_hook`)."""

    framework: str
    call: str
    changed: dict[str, Any]


def run_smoke(arguments: SmokeArguments) -> int:
    """Run a command here, limited to a few batches; return its exit status."""
    if arguments.job is not None:
        try:
            _apply_job_file(arguments, arguments.job)
        except JobFileError as error:
            print_error(error)
            return USAGE
    if not arguments.words:
        print_error(translate("which command? write it after --: rgt smoke -- python train.py"))
        return USAGE
    workdir = Path(arguments.workdir or ".").absolute()
    try:
        env = parse_environment(arguments.env)
        if arguments.batches < 1:
            raise ValueError("--batches 0: at least 1")
        if (arguments.overfit_one_batch or 2) < 2:
            raise ValueError(translate("--overfit-one-batch: at least 2 steps"))
        if not workdir.is_dir():
            raise ValueError(
                translate("--in {workdir}: there is no such directory", workdir=arguments.workdir)
            )
    except ValueError as error:
        print_error(error)
        return USAGE
    # The trainer has an option of its own, so the hook is not needed for it.
    trainer = limit_trainer(arguments)
    words = trainer or arguments.words
    started = words
    if len(words) == 1:
        # One word is a shell line, as on the box.
        started = [shutil.which("bash") or "/bin/sh", "-c", *words]
    with tempfile.TemporaryDirectory(prefix="rgt-smoke-", ignore_cleanup_errors=True) as path:
        folder = Path(path)
        if arguments.overfit_one_batch:
            # Read by rgt_train.callbacks, in a script whose command line rgt cannot change.
            env["RGT_OVERFIT_ONE_BATCH"] = str(arguments.overfit_one_batch)
        batches = arguments.overfit_one_batch or arguments.batches
        full = _smoke_environment(batches, folder, env, hooked=trainer is None)
        began = time.monotonic()
        try:
            project = _copy_project(workdir, folder / "project")
            status = run_limited(
                started,
                project,
                full,
                folder / LOG,
                arguments.seconds,
                _show_output,
            )
        except SourceError as error:
            print_error(error)
            return USAGE
        except OSError as error:
            print_error(
                translate(
                    "{words}: cannot be started: {strerror}",
                    words=words[0],
                    strerror=error.strerror,
                )
            )
            return USAGE
        return _report_smoke(arguments, words, folder, status, time.monotonic() - began)


def _apply_job_file(arguments: SmokeArguments, path: str) -> None:
    """Complete the arguments with a job file: its smoke command, or else its command.

    Raises:
        JobFileError: It cannot be used, or its only command is that of a sweep.
    """
    job = read_job_file(Path(path))
    if not arguments.words and job.smoke is not None:
        # A smoke command is a shell line, hence one word. The box fills in the field, too.
        python = shutil.which("python") or shutil.which("python3") or sys.executable
        arguments.words = [job.smoke.replace("{py}", shlex.quote(python))]
    elif not arguments.words and job.cells:
        raise JobFileError(
            translate(
                "{path}: smoke: missing; a sweep's command has fields, so name one here", path=path
            )
        )
    arguments.words = arguments.words or job.command_words
    folder = Path(path).parent / (job.push or "") / (job.workdir or "")
    arguments.workdir = arguments.workdir or str(folder)
    arguments.env = [*job.environment, *arguments.env]


def _smoke_environment(
    batches: int, folder: Path, env: Mapping[str, str], *, hooked: bool
) -> dict[str, str]:
    """Return the environment of a smoke, and prepare the directory that it names.

    `hooked` = known frameworks are limited (`smoke_hook`).
    """
    out, hook = folder / "out", folder / "hook"
    out.mkdir()
    hook.mkdir()
    own = {
        "RGT_SMOKE": "1",
        "RGT_OUT": str(out),
        "RGT_CELL": "smoke",
        "RGT_SMOKE_BATCHES": str(batches),
        "RGT_SMOKE_NOTES": str(folder / NOTES),
        "PYTHONUNBUFFERED": "1",
    }
    # --env last: a person may want a tracker or a GPU all the same.
    full = {**os.environ, **NO_GPU, **LOGGERS_OFF, **own, **env}
    if hooked:
        # Python imports sitecustomize by itself, in every process of the training.
        shutil.copyfile(Path(__file__).with_name("smoke_hook.py"), hook / "sitecustomize.py")
        full["PYTHONPATH"] = os.pathsep.join(filter(None, (str(hook), full.get("PYTHONPATH"))))
    return full


def limit_trainer(arguments: SmokeArguments) -> list[str] | None:
    """Return a command of ``python -m rgt_train`` with the trainer's own option for a smoke.

    None for another command.
    """
    words = arguments.words
    line = " ".join(words)
    # Only at the end of a line: after `;` or `|` an option would belong to another command.
    if not re.search(r"-m rgt_train(?! export)\b[^;&|]*$", line):
        return None
    options = ["--smoke", str(arguments.batches)]
    if arguments.overfit_one_batch:
        options = ["--overfit-one-batch", str(arguments.overfit_one_batch)]
    if options[0] in line:
        return list(words)
    if len(words) == 1:
        return [f"{line} {' '.join(options)}"]
    return [*words, *options]


def _report_smoke(
    arguments: SmokeArguments, words: Sequence[str], folder: Path, status: int | None, took: float
) -> int:
    """Print how a smoke was limited, how it ended, and the failure; return the exit status."""
    log, reason = folder / LOG, describe_status(status, arguments.seconds)
    # As of timeout(1); below, 128 + signal as a shell reports it.
    timed_out = 124
    if status is None:
        code = timed_out
    elif status < 0:
        code = 128 - status
    else:
        code = status
    found, advice = triage_log(log, all_pages())
    text = log.read_text("utf-8", "replace")
    verdict = re.search(r"^overfit: .*", text, re.MULTILINE)
    # Success without a verdict means that the option reached no trainer.
    if arguments.overfit_one_batch and verdict is None and code == OK:
        code = FAILED
        reason = translate(
            "nothing was trained on one batch alone: let the script train with resume() "
            "or overfit_one_batch() of rgt_train.callbacks"
        )
    needs_gpu = False
    if reason is None:
        found = []
    else:
        needs_gpu = WANTS_GPU.search(text) is not None
    limits = _read_limits(folder / NOTES)
    own = next(
        (word for word in " ".join(words).split() if OWN_OPTION.fullmatch(word)),
        None,
    )
    sys.stderr.flush()
    if arguments.json:
        triage = as_json(LOG, found, advice)
        print_json(
            {
                "words": words,
                "limits": limits,
                "own_option": own,
                "overfit": verdict and verdict[0],
                "seconds": round(took, 1),
                "reason": reason,
                "needs_gpu": needs_gpu,
                "findings": triage["findings"],
                "advice": triage["advice"],
                "exit": code,
            }
        )
        return code
    lines = _describe_limits(limits, own, arguments.batches)
    if verdict is not None:
        lines.append(f"smoke: {verdict[0]}")
    if reason is None:
        lines.append(translate("smoke: passed on the CPU in {took:.1f} s", took=took))
    else:
        lines.append(
            translate("smoke: FAILED: {reason}, after {took:.1f} s", reason=reason, took=took)
        )
    if status is None:
        lines.append(
            translate("smoke: nothing had failed until then: --seconds TIME sets the limit")
        )
    if needs_gpu:
        lines.append(
            translate(
                "smoke: it requires a GPU, which is hidden here: let it use the CPU if "
                "torch.cuda.is_available() is false"
            )
        )
    elif reason is not None:
        lines += as_text(LOG, found, advice)
    print_lines(*lines)
    sys.stdout.flush()
    return code


def _read_limits(notes: Path) -> list[FrameworkLimit]:
    try:
        # No file: no framework of `LIMITS` was called.
        lines = notes.read_bytes().splitlines()
    except OSError:
        return []
    found = [msgspec.json.decode(line, type=FrameworkLimit) for line in lines]
    # Each rank or worker notes the same call.
    return list({(each.framework, each.call): each for each in found}.values())


def _describe_limits(
    limits: Sequence[FrameworkLimit], own_option: str | None, batches: int
) -> list[str]:
    lines = []
    for each in limits:
        changes = ", ".join(
            f"{name}={value}" for name, value in each.changed.items() if value and name != "out"
        )
        lines.append(
            translate(
                "smoke: limited  {framework}: {call} with {changes}",
                framework=each.framework,
                call=each.call,
                changes=changes,
            )
        )
    if not lines and own_option is not None:
        lines.append(
            translate("smoke: limited  by the command's own {own_option}", own_option=own_option)
        )
    if not lines:
        lines.append(
            translate(
                "smoke: the command ran as it is: rgt knows no framework in it that it can limit "
                "to {batches} batches. Add an option of its own, such as --max-steps 2",
                batches=batches,
            )
        )
    return lines


def _show_output(data: bytes) -> None:
    sys.stderr.buffer.write(data)
    sys.stderr.buffer.flush()


def run_limited(
    words: Sequence[str],
    workdir: Path,
    env: Mapping[str, str],
    log: Path,
    seconds: float,
    show: Callable[[bytes], object] | None = None,
) -> int | None:
    """Run a command here until it ends, and end the processes that it leaves running.

    Args:
        words: The command.
        workdir: Its working directory.
        env: Its complete environment.
        log: File for its output.
        seconds: Time limit.
        show: Called with each new part of the output.

    Returns:
        Its exit status, negative for a signal; None = it was ended at the time limit.

    Raises:
        OSError: It cannot be started.
    """
    with (
        log.open("wb") as output,
        # A file and not a pipe: the command must not wait for rgt, or end with it.
        log.open("rb") as written,
        _collected_signals() as asked,
    ):
        child = subprocess.Popen(
            words,
            cwd=workdir,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            # So that the whole group can be ended, and Ctrl-C reaches rgt only.
            start_new_session=True,
        )
        try:
            ends = time.monotonic() + seconds
            # Seconds between two checks whether the command has ended, or rgt was asked to.
            poll_seconds = 0.05
            while (status := child.poll()) is None and not asked and time.monotonic() < ends:
                if show is not None:
                    show(written.read())
                time.sleep(poll_seconds)
        finally:
            with contextlib.suppress(OSError):
                os.killpg(child.pid, signal.SIGKILL)  # also processes that it left running
            child.wait()
        if show is not None:
            show(written.read())
    # Only now, when the command is gone and the handlers of before are back.
    if signal.SIGINT in asked:
        raise KeyboardInterrupt
    if asked:
        raise SystemExit(128 + asked[0])
    return status


def describe_status(status: int | None, seconds: float) -> str | None:
    """Return why a command failed: its exit status, or the time limit; None = it did not."""
    if status is None:
        return translate("did not end within {seconds:g} s", seconds=seconds)
    if status < 0:
        return translate("killed by signal {status}", status=-status)
    if status:
        return f"exit {status}"
    return None


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


def _copy_project(workdir: Path, copy: Path) -> Path:
    """Copy a project, so that a smoke replaces no result and leaves none that a push would send.

    What a push leaves out, such as data, is linked; directories with checkpoints are not there.

    Raises:
        SourceError: A file cannot be read.
    """
    tree = read_tree(workdir, IgnoreRules(ALWAYS_LEFT_OUT), secrets_too=True, may_be_empty=True)
    _copy_code(tree, copy)
    for left_out in tree.left_out:
        source, target = workdir / left_out.path, copy / left_out.path
        if target.parent.is_dir() and not os.path.lexists(target) and not _has_checkpoint(source):
            # Data sets and the like are linked: copying them could take longer than the smoke
            # itself.
            target.symlink_to(source)
    return copy


def _has_checkpoint(path: Path, most: int = 20_000) -> bool:
    """Return whether a path is a checkpoint of a training, or has one among its first entries."""
    names = [path.name]
    if not path.is_symlink():
        for _, folders, files in os.walk(path):
            names += [*folders, *files]
            # A data set of millions of files would take minutes to search.
            if len(names) > most:
                break
    found = [name for name in map(read_name, names) if is_weights(name)]
    return any(
        name.step is not None or name.epoch is not None or name.words & (CHECKPOINTS | ALIASES)
        for name in found
    )


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
    # Only a saving of time: without it, the smoke runs again.
    with contextlib.suppress(OSError), locked_file(path):
        most_passed = 200
        replace_file(path, msgspec.json.encode([*_load_passed(), digest][-most_passed:]))
