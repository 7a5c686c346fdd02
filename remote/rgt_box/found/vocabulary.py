"""Words by which a command line is known: what starts a training, what only speaks of one, what never is one."""

from __future__ import annotations

import re

ANY = frozenset(("",))
"""Whatever follows."""

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
    "litgpt": frozenset(("pretrain", "finetune", "finetune_lora", "finetune_full", "finetune_adapter")),
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
"""Program → words of which one follows when it trains. A module is known by its last part, see `MODULES`."""

UNSPECIFIC = frozenset(("mpirun", "mpiexec", "orterun", "prterun"))
"""Programs that start anything: the root of a training where one is below them, and nothing by themselves."""

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
"""``python -m`` of these → the program that it is."""

TRANSPARENT = frozenset(
    (
        "bottleneck", "coverage", "cProfile", "debugpy", "ipdb", "kernprof", "line_profiler", "memray", "pdb",
        "profile", "pudb", "scalene", "torch.utils.bottleneck", "trace", "viztracer",
    )
)  # fmt: skip
"""What runs the script that follows, and only looks at it."""

CARRIERS = frozenset(
    (
        "apptainer", "catchsegv", "chrt", "conda", "dumb-init", "hatch", "mamba", "micromamba", "ncu", "nsys",
        "numactl", "pdm", "pipenv", "pixi", "poetry", "py-spy", "rye", "singularity", "stdbuf", "taskset", "tini",
        "unbuffer", "uv", "uvx", "xvfb-run",
    )
)  # fmt: skip
"""Programs that start what they are told and wait for it, beside the shells and the like."""

BORDERS = frozenset(
    (
        "abduco", "code-server", "conmon", "containerd-shim", "containerd-shim-runc-v2", "cron", "crond",
        "docker-init", "dtach", "init", "login", "runsv", "s6-supervise", "SCREEN", "screen", "slurmstepd", "sshd",
        "sshd-session", "supervisord", "systemd", "tmux", "zellij",
    )
)  # fmt: skip
"""Programs above which nothing belongs to a training."""

NEVER = frozenset(
    (
        "aim", "airflow", "ansible", "apt", "aws", "azcopy", "benchmarks", "black", "bpytop", "celery", "certbot",
        "cloud-init", "conda", "dask", "dask-scheduler", "dask-worker", "datasette", "dnf", "dvc", "ensurepip",
        "fail2ban-server", "fastchat", "firewalld", "flask", "gcloud", "gdown", "glances", "gpustat", "gradio",
        "gsutil", "gunicorn", "hf", "http", "huggingface-cli", "hypercorn", "isort", "jedi", "jupyter",
        "jupyter-lab", "jupyter-labhub", "jupyter-notebook", "jupyter-server", "jupyter_server", "jupyterhub",
        "jupyterhub-singleuser", "jupyterlab", "kaggle", "litellm", "lmdeploy", "mamba", "mkdocs", "mlflow",
        "modal", "mypy", "netron", "networkd-dispatcher", "notebook", "nvitop", "nvtop", "ollama", "pip", "pip3",
        "pipx", "poetry", "pre-commit", "prefect", "py.test", "pycodestyle", "pylint", "pylsp", "pyright", "pytest",
        "raylet", "rclone", "rgt", "rgt_box", "rgt_tui", "ruff", "runpod", "s3cmd", "salt-minion", "sglang", "sky",
        "skypilot", "sphinx", "streamlit", "supervisorctl", "supervisord", "tensorboard", "tensorboard_data_server",
        "text_generation_server", "tox", "trackio", "tritonserver", "twine", "unattended-upgrade",
        "unattended-upgrade-shutdown", "unattended-upgrades", "unittest", "uvicorn", "vastai", "venv", "virtualenv",
        "vllm", "waagent", "wandb", "wandb-core", "wandb-service", "wsdump", "yt-dlp", "yum",
    )
)  # fmt: skip
"""Python programs that are never a training, also when they are busy or hold a GPU (an inference server does)."""

KERNELS = frozenset(("ipykernel", "ipykernel_launcher", "colab_kernel_launcher"))
"""A notebook: a training only while it holds a GPU."""

TRAINING = frozenset(
    (
        "cpt", "distill", "distillation", "dpo", "dreambooth", "finetune", "finetuner", "finetuning", "fit", "grpo",
        "kto", "lora", "nanogpt", "ppo", "pretrain", "pretraining", "qlora", "retrain", "rlhf", "sft", "tune",
    )
)  # fmt: skip
"""Parts of a script's name that tell a training, beside what begins with ``train``."""

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
"""Arguments that tell a training, among the first few."""

EXAMPLES = re.compile(
    r"run_(?:clm|fim|mlm|plm|glue|qa|ner|swag|t5|seq2seq|summarization|translation|speech|mae|mim|image|audio|flax|xnli)"
    r"\w*"
)
"""Scripts of Hugging Face's examples."""


def speaks_of_training(name: str) -> bool:
    """Tell whether the base name of a script or module does so."""
    if EXAMPLES.fullmatch(name):
        return True
    parts = [part for part in re.split(r"[^a-z]+", re.sub(r"([a-z])([A-Z])", r"\1_\2", name).lower()) if part]
    return any(part in TRAINING or part.startswith(("train", "pretrain", "finetun")) for part in parts)
