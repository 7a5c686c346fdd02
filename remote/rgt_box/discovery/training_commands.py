"""Parses a command line: what it runs, whether that trains, where it writes, and its name. Pure."""

from __future__ import annotations

import os
import re
import zlib

from rgt_box import files
from rgt_box.sampling.processes import AGENT, WRAPPERS, is_helper, program_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Iterator, NamedTuple

    class ParsedCommand(NamedTuple):
        """What a command line runs."""

        kind: str
        """python, kernel (a notebook), starter, wrapper, border, never or other."""
        script: str
        """Script (a path) or module (dotted) as given; "" without one."""
        args: "list[str]"
        """Arguments after the script."""
        why: str
        """Why the command line alone shows training; "" if it does not."""
else:
    from collections import namedtuple

    ParsedCommand = namedtuple("ParsedCommand", "kind script args why")

ANY = frozenset(("",))
"""Any arguments."""

STARTERS = {
    "accelerate": frozenset(("launch",)),
    "autotrain": ANY,
    "axolotl": frozenset(("train",)),
    "colossalai": frozenset(("run",)),
    "composer": ANY,
    "deepspeed": ANY,
    "fabric": frozenset(("run",)),
    "horovodrun": ANY,
    "lightning": frozenset(("run", "fit")),
    "litgpt": frozenset(
        ("pretrain", "finetune", "finetune_lora", "finetune_full", "finetune_adapter")
    ),
    "llamafactory-cli": frozenset(("train",)),
    "mpiexec": ANY,
    "mpirun": ANY,
    "nnUNetv2_train": ANY,
    "orterun": ANY,
    "prterun": ANY,
    "swift": frozenset(("sft", "pt", "rlhf")),
    "torchrun": ANY,
    "trl": frozenset(("sft", "dpo", "grpo", "kto", "rloo", "reward")),
    "tune": frozenset(("run",)),
    "xtuner": frozenset(("train",)),
    "yolo": frozenset(("train", "mode=train")),
}
"""Program → words; it trains if one of them follows. For modules see `MODULES`."""

UNSPECIFIC = frozenset(("mpirun", "mpiexec", "orterun", "prterun"))
"""Launchers of any program: the root if a training run is below them, but no evidence
themselves."""

MODULES = {
    "accelerate.commands.launch": "torchrun",
    "axolotl.cli.train": "torchrun",
    "composer.cli.launcher": "composer",
    "deepspeed.launcher.launch": "deepspeed",
    "deepspeed.launcher.runner": "deepspeed",
    "horovod.runner.launch": "horovodrun",
    "lightning": "lightning",
    "torch.distributed.launch": "torchrun",
    "torch.distributed.run": "torchrun",
    "torch_xla.distributed.xla_spawn": "torchrun",
    "trl": "trl",
}
"""Module run by ``python -m`` → the program it is equivalent to."""

TRANSPARENT = frozenset(
    (
        "bottleneck", "coverage", "cProfile", "debugpy", "ipdb", "kernprof", "line_profiler",
        "memray", "pdb",
        "profile", "pudb", "scalene", "torch.utils.bottleneck", "trace", "viztracer",
    )
)  # fmt: skip
"""Profilers and debuggers: they run the script that follows."""

CARRIERS = frozenset(
    (
        "apptainer", "catchsegv", "chrt", "conda", "dumb-init", "hatch", "mamba", "micromamba",
        "ncu", "nsys",
        "numactl", "pdm", "pipenv", "pixi", "poetry", "py-spy", "rye", "singularity", "stdbuf",
        "taskset", "tini",
        "unbuffer", "uv", "uvx", "xvfb-run",
    )
)  # fmt: skip
"""Programs that run a given command and wait for it, in addition to shells and the like."""

BORDERS = frozenset(
    (
        "abduco", "code-server", "conmon", "containerd-shim", "containerd-shim-runc-v2", "cron",
        "crond",
        "docker-init", "dtach", "init", "login", "runsv", "s6-supervise", "SCREEN", "screen",
        "slurmstepd", "sshd",
        "sshd-session", "supervisord", "systemd", "tmux", "zellij",
    )
)  # fmt: skip
"""Programs that bound a run: nothing above them belongs to it."""

NEVER = frozenset(
    (
        "aim", "airflow", "ansible", "apt", "aws", "azcopy", "benchmarks", "black", "bpytop",
        "celery", "certbot",
        "cloud-init", "conda", "dask", "dask-scheduler", "dask-worker", "datasette", "dnf", "dvc",
        "ensurepip",
        "fail2ban-server", "fastchat", "firewalld", "flask", "gcloud", "gdown", "glances",
        "gpustat", "gradio",
        "gsutil", "gunicorn", "hf", "http", "huggingface-cli", "hypercorn", "isort", "jedi",
        "jupyter",
        "jupyter-lab", "jupyter-labhub", "jupyter-notebook", "jupyter-server", "jupyter_server",
        "jupyterhub",
        "jupyterhub-singleuser", "jupyterlab", "kaggle", "litellm", "lmdeploy", "mamba", "mkdocs",
        "mlflow",
        "modal", "mypy", "netron", "networkd-dispatcher", "notebook", "nvitop", "nvtop", "ollama",
        "pip", "pip3",
        "pipx", "poetry", "pre-commit", "prefect", "py.test", "pycodestyle", "pylint", "pylsp",
        "pyright", "pytest",
        "raylet", "rclone", "rgt", "rgt_box", "rgt_tui", "ruff", "runpod", "s3cmd", "salt-minion",
        "sglang", "sky",
        "skypilot", "sphinx", "streamlit", "supervisorctl", "supervisord", "tensorboard",
        "tensorboard_data_server",
        "text_generation_server", "tox", "trackio", "tritonserver", "twine", "unattended-upgrade",
        "unattended-upgrade-shutdown", "unattended-upgrades", "unittest", "uvicorn", "vastai",
        "venv", "virtualenv",
        "vllm", "waagent", "wandb", "wandb-core", "wandb-service", "wsdump", "yt-dlp", "yum",
    )
)  # fmt: skip
"""Python programs that are never training, even if they are busy or hold a GPU, as an inference
server does."""

KERNELS = frozenset(("ipykernel", "ipykernel_launcher", "colab_kernel_launcher"))
"""Notebook kernels: training only while they hold a GPU."""

EXECUTORS = frozenset(("jupyter-execute", "jupyter-run", "nbclient", "papermill", "runipy"))
"""Programs that run a notebook from beginning to end; ``nbconvert`` does with ``--execute``."""

TRAINING = frozenset(
    (
        "cpt", "distill", "distillation", "dpo", "dreambooth", "finetune", "finetuner",
        "finetuning", "fit", "grpo",
        "kto", "lora", "nanogpt", "ppo", "pretrain", "pretraining", "qlora", "retrain", "rlhf",
        "sft", "tune",
    )
)  # fmt: skip
"""Parts of a script's name that show training, in addition to names that begin with ``train``."""

CHINESE_TRAINING = ("训练", "微调")
"""The same in Chinese: training, fine-tuning."""

SUBCOMMANDS = frozenset(
    (
        "train",
        "fit",
        "finetune",
        "fine-tune",
        "pretrain",
        "sft",
        "mode=train",
        "--train",
        "--do_train",
        "--do-train",
    )
)
"""Arguments that show training, if among the first few."""

EXAMPLES = re.compile(
    r"run_(?:clm|fim|mlm|plm|glue|qa|ner|swag|t5|seq2seq|summarization|translation|speech|mae|mim"
    r"|image|audio|flax|xnli)"
    r"\w*"
)
"""Scripts of Hugging Face's examples."""


def suggests_training(name: str) -> bool:
    """Return whether the base name of a script or module suggests training."""
    if EXAMPLES.fullmatch(name) or any(word in name for word in CHINESE_TRAINING):
        return True
    parts = [
        part
        for part in re.split(r"[^a-z]+", re.sub(r"([a-z])([A-Z])", r"\1_\2", name).lower())
        if part
    ]
    return any(
        part in TRAINING or part.startswith(("train", "pretrain", "finetun")) for part in parts
    )


PYTHON = re.compile(r"(?:i?python[\d.]*(?:-dbg|t)?|pypy[\d.]*)$", re.I)
_VALUED = re.compile(r"-[A-Za-z]*[WX]$")
_MODULE = re.compile(r"-[A-Za-z]*m$")
_CODE = re.compile(r"-[A-Za-z]*c$")
LOOK = 4
"""Number of arguments among which the subcommand may be."""


def parse_command(words: list[str]) -> ParsedCommand:
    """Parse a command line."""
    name = program_name(words)
    if not words:
        return ParsedCommand("never", "", [], "")
    if any(AGENT.search(word) for word in words[:5]) or is_helper(words):
        return ParsedCommand("never", "", [], "")
    if name in BORDERS:
        return ParsedCommand("border", "", [], "")
    if name in WRAPPERS or name in CARRIERS:
        return ParsedCommand("wrapper", "", words[1:], "")
    if PYTHON.match(name):
        return _parse_python(words)
    if name in NEVER:
        return ParsedCommand("never", "", [], "")
    return _parse_launcher(name, words[1:]) or ParsedCommand("other", words[0], words[1:], "")


def _parse_python(words: list[str]) -> ParsedCommand:
    script, args, is_module = python_script(words)
    if script == "-c":
        return ParsedCommand("python", script, args, "")
    if not script:
        return ParsedCommand("never", "", [], "")  # an interactive prompt
    base = os.path.basename(script)
    if base.endswith(".py"):
        stem = base[:-3]
    else:
        stem = base
    if is_module:
        top = script.split(".")[0]
    else:
        top = stem
    if top in KERNELS:
        return ParsedCommand("kernel", script, args, "")
    notebook = executed_notebook(top if is_module else stem, args)
    if notebook:
        return _parse_script(notebook, args)
    if script in TRANSPARENT or stem in TRANSPARENT:
        inner = launched_script(args)
        if inner:
            return _parse_script(inner, args[args.index(inner) + 1 :])
        return ParsedCommand("python", script, args, "")
    if is_module and script in MODULES:
        return _parse_launcher(MODULES[script], args) or ParsedCommand("python", script, args, "")
    if stem in CARRIERS:
        return ParsedCommand("wrapper", script, args, "")
    if top in NEVER or stem in NEVER:
        return ParsedCommand("never", script, args, "")
    if is_module or base.endswith(".py"):
        started = None
    else:
        started = _parse_launcher(stem, args)
    return started or _parse_script(script, args, is_module)


def executed_notebook(program: str, args: list[str]) -> str:
    """Return the notebook that a program runs from beginning to end, as a script; "" if none."""
    if program == "jupyter" and args:
        program, args = "jupyter-" + args[0], args[1:]
    converts = program in ("nbconvert", "jupyter-nbconvert") and "--execute" in args
    if not converts and program not in EXECUTORS:
        return ""
    for before, word in zip(["", *args], args):
        if word.endswith(".ipynb") and not word.startswith("-") and before != "--output":
            return word
    return ""


def _parse_script(script: str, args: list[str], is_module: bool = False) -> ParsedCommand:
    why = ""
    if is_module:
        parts = script.split(".")[-2:]
    else:
        parts = [os.path.splitext(os.path.basename(script))[0]]
        if parts == ["__main__"]:
            parts = [os.path.basename(os.path.dirname(script))]
    if any(suggests_training(part) for part in parts):
        why = "its name says so"
    elif any(arg in SUBCOMMANDS for arg in args[:LOOK]) or any(
        arg in ("--do_train", "--do-train") for arg in args
    ):
        why = "its arguments say so"
    return ParsedCommand("python", script, args, why)


def _parse_launcher(name: str, args: list[str]) -> ParsedCommand | None:
    """Return the command of a launcher; None if it does not start training."""
    wanted = STARTERS.get(name)
    if wanted is None or not (wanted is ANY or any(arg in wanted for arg in args[:LOOK])):
        return None
    script = launched_script(args)
    if script:
        rest = args[args.index(script) + 1 :]
    else:
        rest = args
    if name in UNSPECIFIC:
        why = ""
    else:
        why = f"{name} starts it"
    return ParsedCommand("starter", script or name, rest, why)


def python_script(words: list[str]) -> tuple[str, list[str], bool]:
    """Return (script, its arguments, is module) of a Python command line.

    The script is ``-c`` for code, and "" without one.
    """
    at = 1
    while at < len(words):
        word = words[at]
        if _MODULE.match(word):
            return (words[at + 1] if at + 1 < len(words) else ""), words[at + 2 :], True
        if _CODE.match(word):
            return "-c", words[at + 2 :], False
        if not word.startswith("-"):
            return word, words[at + 1 :], False
        at += 2 if _VALUED.match(word) or word == "--check-hash-based-pycs" else 1
    return "", [], False


def launched_script(args: list[str]) -> str:
    """Return the script that a launcher runs: the first ``.py``, or the word after ``-m``."""
    for at, arg in enumerate(args):
        if arg.endswith(".py") and not arg.startswith("-"):
            return arg
        if arg in ("-m", "--module") and at + 1 < len(args):
            return args[at + 1]
    return ""


_DIR = re.compile(
    r"(?:.*[-_.])?(?:out(?:put)?s?|log(?:ging|s)?|save|work|exp(?:eriment)?|ckpts?|checkpoints?"
    r"|runs?|results?|tensorboard"
    r"|tb|default[-_]root|metrics?)[-_]?(?:dir(?:ectory)?|path|folder|root)|out|output|outdir|o"
    r"|save|hydra\.run\.dir",
    re.I,
)
_CONTINUED = re.compile(
    r"-{0,2}(?:auto[-_]?)?(?:resume|continue|restore|load|ckpt|checkpoint|init[-_]from|overwrite"
    r"|local[-_]rank"
    r"|(?:start|begin|initial|first|last|from)[-_]?(?:epoch|step"
    r"|iter(?:ation)?))(?:[-_](?!dir)\w+)*",
    re.I,
)
_NAME = re.compile(r"-{0,2}(?:run|exp(?:eriment)?|wandb|job)?[-_]?(?:name|tag|id)", re.I)
_CONFIG = re.compile(r"-{0,2}(?:config|cfg)(?:[-_](?:file|path|name))?", re.I)
_FILE = re.compile(r"[\w./\-]+\.(?:ya?ml|toml|json|py|gin|cfg)$")


def iterate_options(args: list[str]) -> Iterator[tuple[str, str]]:
    """Yield (option, value): ``--a=b``, ``--a b`` and ``a=b``; a switch has the value ""."""
    at = 0
    while at < len(args):
        name, sign, value = args[at].partition("=")
        at += 1
        if not sign and name.startswith("-") and at < len(args) and not args[at].startswith("-"):
            value = args[at]
            at += 1
        yield name, value


def written_dirs(args: list[str], cwd: str) -> list[str]:
    """Return output directories named in the arguments, except parents of the working directory."""
    found = []
    for name, value in iterate_options(args):
        if value and _DIR.fullmatch(name.lstrip("-")) and "\0" not in value:
            path = os.path.normpath(os.path.join(cwd, os.path.expanduser(value)))
            if os.path.isabs(path) and not files.is_below(cwd, path):
                found.append(path)
    return list(dict.fromkeys(found))[:8]


def identifying_args(args: list[str]) -> list[str]:
    """Return the arguments that identify a training run; resume options are left out."""
    return [
        "{}={}".format(*pair) for pair in iterate_options(args) if not _CONTINUED.fullmatch(pair[0])
    ]


def likely_name(args: list[str]) -> str:
    """Return a user's likely name for a run: the name, output or config argument; "" if none."""
    found = list(iterate_options(args))
    for name, value in found:
        if value and name.startswith("-") and _NAME.fullmatch(name):
            return value
    for name, value in found:
        if value and _DIR.fullmatch(name.lstrip("-")):
            return os.path.basename(os.path.normpath(value))
    for name, value in found:
        if _CONFIG.fullmatch(name):
            text = value
        elif value:
            text = ""
        else:
            text = name
        if text and (_CONFIG.fullmatch(name) or _FILE.match(text)):
            return os.path.splitext(os.path.basename(text))[0]
    return ""


MOST = 40
_OTHER = re.compile(r"[^\w.\-+]+")


def clean_name_part(text: str) -> str:
    """Return a part of a name, limited in length to letters, digits and ``. - + _``."""
    return _OTHER.sub("_", text)[:MOST].strip("_") or "run"


def script_label(command: ParsedCommand, cwd: str | None) -> str:
    """Return ``DIRECTORY/SCRIPT``; only the script if the directory is unknown."""
    script = os.path.basename(command.script)
    if script == "-c":
        stem = "python"
    elif script.endswith((".py", ".ipynb")):
        stem = script.rpartition(".")[0]
    else:
        stem = script
    if stem == "__main__":
        stem = os.path.basename(os.path.dirname(command.script)) or stem
    folder = os.path.basename((cwd or "").rstrip("/"))
    if folder:
        return f"{clean_name_part(folder)}/{clean_name_part(stem)}"
    return clean_name_part(stem)


def training_key(command: ParsedCommand, cwd: str | None) -> int:
    """Return a number that stays the same when the same training is restarted or resumed."""
    script = os.path.basename(command.script)
    text = "\0".join([cwd or "", script, *identifying_args(command.args)])
    return zlib.crc32(text.encode("utf-8", "replace"))


def choose_run_name(
    command: ParsedCommand, cwd: str | None, taken: dict[str, int], alive: set[str]
) -> str:
    """Return a name for a run that has just been found.

    Args:
        command: Its command.
        cwd: Its working directory.
        taken: Name → key of every remembered run, oldest first.
        alive: Names of the runs that are alive.
    """
    mine = training_key(command, cwd)
    for name in reversed(list(taken)):
        if taken[name] == mine and name not in alive:
            return name
    first = script_label(command, cwd)
    tries = [first]
    more = ""
    if likely_name(command.args):
        more = clean_name_part(likely_name(command.args))
    if more and more != "run":
        tries.append(f"{first}:{more}")
    tries += ["%s~%d" % (tries[-1], number) for number in range(2, len(taken) + 3)]
    return next(name for name in tries if name not in taken)
