"""Which command lines train, what they are called, and which of their words are secret."""

from __future__ import annotations

import pytest
from rgt_box.discovery import training_commands
from rgt_box.masking import mask_words


@pytest.mark.parametrize(
    ("line", "kind", "script", "trains"),
    [
        ("python train.py --lr 1", "python", "train.py", True),
        (
            "/opt/conda/bin/python3.11 -u -X dev /x/finetune_llama.py",
            "python",
            "/x/finetune_llama.py",
            True,
        ),
        ("python -m mypkg.training.sft", "python", "mypkg.training.sft", True),
        ("python -m rgt_train --config a", "python", "rgt_train", True),
        ("python3 /x/rgt_train/__main__.py", "python", "/x/rgt_train/__main__.py", True),
        ("python run_clm.py --do_train", "python", "run_clm.py", True),
        ("python main.py fit --config x.yaml", "python", "main.py", True),
        ("python main.py", "python", "main.py", False),
        ("python constrain.py", "python", "constrain.py", False),
        ("python -u 训练.py --lr 1", "python", "训练.py", True),
        ("python 数据.py", "python", "数据.py", False),
        ("python -c while_True", "python", "-c", False),
        ("python -m cProfile -o out train.py", "python", "train.py", True),
        ("python -m debugpy --listen 5678 train.py", "python", "train.py", True),
        (
            "/usr/bin/python /usr/bin/torchrun --nproc_per_node 8 main.py",
            "starter",
            "main.py",
            True,
        ),
        (
            "python -m torch.distributed.run --nproc_per_node=2 -m pkg.main",
            "starter",
            "pkg.main",
            True,
        ),
        ("python /v/bin/accelerate launch main.py", "starter", "main.py", True),
        ("python /v/bin/accelerate config", "python", "/v/bin/accelerate", False),
        ("python /v/bin/llamafactory-cli train x.yaml", "starter", "llamafactory-cli", True),
        ("python /v/bin/llamafactory-cli api x.yaml", "python", "/v/bin/llamafactory-cli", False),
        ("yolo train model=yolo11n.pt", "starter", "yolo", True),
        ("mpirun -np 8 python train.py", "starter", "train.py", False),
        (
            "python /v/bin/jupyter-nbconvert --to notebook --execute nb/Train-GPT.ipynb",
            "python",
            "nb/Train-GPT.ipynb",
            True,
        ),
        (
            "python /v/bin/jupyter-nbconvert --execute --output out.ipynb report.ipynb --to html",
            "python",
            "report.ipynb",
            False,
        ),
        ("python /v/bin/jupyter nbconvert --execute a.ipynb", "python", "a.ipynb", False),
        ("python -m papermill finetune.ipynb out.ipynb -p lr 1", "python", "finetune.ipynb", True),
        ("python -m nbconvert --execute a.ipynb", "python", "a.ipynb", False),
        (
            "python /v/bin/jupyter-nbconvert --to html train.ipynb",
            "python",
            "/v/bin/jupyter-nbconvert",
            False,
        ),
        ("python -m ipykernel_launcher -f k.json", "kernel", "ipykernel_launcher", False),
        ("python /v/bin/tensorboard --logdir train", "never", "", False),
        (
            "python -m vllm.entrypoints.openai.api_server",
            "never",
            "vllm.entrypoints.openai.api_server",
            False,
        ),
        ("python -m pip install trainer", "never", "pip", False),
        ("python -m pytest tests/train", "never", "pytest", False),
        ("python -m wandb.sdk.service.train", "never", "wandb.sdk.service.train", False),
        ("python", "never", "", False),
        (
            "python3 -I -S /root/.cache/rgt/rgt-box-0123456789abcdef.pyz record train",
            "never",
            "",
            False,
        ),
        ("bash -c python_train.py", "wrapper", "", False),
        ("uv run train.py", "wrapper", "", False),
        ("srun python train.py", "wrapper", "", False),
        ("tmux: server", "border", "", False),
        ("slurmstepd: [12.batch]", "border", "", False),
        ("vim train.py", "wrapper", "", False),
        ("./train_gpt2cu", "other", "./train_gpt2cu", False),
        ("", "never", "", False),
    ],
)
def test_what_a_command_line_runs(line: str, kind: str, script: str, trains: bool) -> None:
    words = ["tmux: server"] if line == "tmux: server" else line.split()
    found = training_commands.parse_command(words)
    assert (found.kind, found.script, bool(found.why)) == (kind, script, trains)


@pytest.mark.parametrize(
    ("line", "kept"),
    [
        ("train.py --api-key=abc", "train.py --api-key=***"),
        ("train.py --hf_token abc --lr 1", "train.py --hf_token *** --lr 1"),
        ("train.py --wandb.api_key abc", "train.py --wandb.api_key ***"),
        ("env WANDB_API_KEY=abc python", "env WANDB_API_KEY=*** python"),
        ("env AWS_SECRET_ACCESS_KEY=abc python", "env AWS_SECRET_ACCESS_KEY=*** python"),
        ("train.py --password hunter2", "train.py --password ***"),
        ("curl https://me:pw@host/x", "curl https://me:***@host/x"),
        ("train.py hf_abcdefghijkl", "train.py ***"),
        ("train.py sk-proj-abcdefgh123", "train.py ***"),
        ("train.py --max_token 512 --token 7", "train.py --max_token 512 --token 7"),
        ("train.py --tokenizer gpt2 --lr 1e-4", "train.py --tokenizer gpt2 --lr 1e-4"),
        ("train.py --use_auth_token --lr 1", "train.py --use_auth_token --lr 1"),
    ],
)
def test_secrets_are_masked(line: str, kept: str) -> None:
    assert " ".join(mask_words(line.split())) == kept


def test_a_header_is_masked() -> None:
    assert mask_words(["curl", "-H", "Authorization: Bearer abc"])[2] == "Authorization: ***"


def named(line: str, cwd: str | None, taken: dict[str, int], alive: set[str]) -> str:
    command = training_commands.parse_command(line.split())
    name = training_commands.choose_run_name(command, cwd, taken, alive)
    taken[name] = training_commands.training_key(command, cwd)
    alive.add(name)
    return name


def test_names_tell_directory_and_script_and_stay_over_a_restart() -> None:
    taken: dict[str, int] = {}
    alive: set[str] = set()
    assert named("python train.py --lr 1", "/x/exp", taken, alive) == "exp/train"
    assert named("python train.py --lr 2 --run_name big", "/x/exp", taken, alive) == "exp/train:big"
    assert named("python train.py --lr 3", "/x/exp", taken, alive) == "exp/train~2"
    assert named("python train.py --lr 1", "/x/exp", taken, alive) == "exp/train~3"
    alive.clear()
    again = "/usr/bin/python3 -u train.py --lr 2 --run_name big --resume ckpt/last.pt"
    assert named(again, "/x/exp", taken, alive) == "exp/train:big"
    assert named("python train.py --lr 9", "/x/exp", taken, alive) == "exp/train~4"
    assert named("python train.py --lr 1", None, taken, alive) == "train"


@pytest.mark.parametrize(
    "words",
    [
        "--start_step 41",
        "--start-epoch=3",
        "--initial_epoch 3",
        "--begin-epoch 3",
        "--first_step 41",
        "--last_epoch 2",
        "--from-step=41",
        "--start_iter 41",
        "--resume",
    ],
)
def test_where_a_training_goes_on_is_no_part_of_what_it_is(words: str) -> None:
    first = training_commands.parse_command(["python", "train.py", "--lr", "1"])
    again = training_commands.parse_command(f"python train.py --lr 1 {words}".split())
    assert training_commands.training_key(first, "/x") == training_commands.training_key(
        again, "/x"
    )


@pytest.mark.parametrize(
    "words", ["--steps 41", "--max_steps 41", "--epochs 3", "--from_scratch", "--first 41"]
)
def test_how_long_it_trains_is_a_part_of_it(words: str) -> None:
    first = training_commands.parse_command(["python", "train.py", "--lr", "1"])
    again = training_commands.parse_command(f"python train.py --lr 1 {words}".split())
    assert training_commands.training_key(first, "/x") != training_commands.training_key(
        again, "/x"
    )


def test_ranks_that_outlive_their_starter_keep_its_name() -> None:
    starter = training_commands.parse_command(
        ["python", "/v/bin/torchrun", "--nproc_per_node", "2", "train.py", "--lr", "1"]
    )
    rank = training_commands.parse_command(
        ["/v/bin/python", "-u", "train.py", "--lr", "1", "--local-rank=0"]
    )
    assert training_commands.training_key(starter, "/x") == training_commands.training_key(
        rank, "/x"
    )


def test_a_name_holds_no_odd_characters() -> None:
    command = training_commands.parse_command(["python", "/x/train\x1b[31m me.py"])
    assert training_commands.script_label(command, "/x/my exp\n") == "my_exp/train_31m_me"


def test_the_arguments_tell_where_it_writes() -> None:
    args = [
        "--output_dir",
        "out",
        "--logdir=/logs/a",
        "trainer.default_root_dir=lr",
        "--lr",
        "1",
        "--train_dir",
        "/data/x",
        "--o",
        "/",
        "--save-dir",
        "..",
        "--save",
        "ckpt",
    ]
    assert training_commands.written_dirs(args, "/x/exp") == [
        "/x/exp/out", "/logs/a", "/x/exp/lr", "/x/exp/ckpt",
    ]  # fmt: skip
    assert training_commands.likely_name(["--config", "conf/big.yaml"]) == "big"
    assert training_commands.likely_name(["conf/small.yaml", "--lr", "1"]) == "small"
    assert training_commands.likely_name(["--lr", "1"]) == ""
