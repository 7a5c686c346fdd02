"""Which words of a command line are secrets, and which only look like it."""

from __future__ import annotations

import shlex
import time

import pytest
from rgt_box.masking import mask_words, why_secret

SECRET = "x7Kq2"


@pytest.mark.parametrize(
    "line",
    [
        "python train.py --api-key §",
        "python train.py --api_key=§",
        "python train.py --apiKey §",
        "python train.py --wandb-key §",
        "python train.py --wandb_key=§",
        "python train.py --key §",
        "python train.py --key=§",
        "python train.py -key §",
        "python train.py --hf-token §",
        "python train.py --hub_token=§",
        "python train.py --token -§",
        "python train.py --password § --epochs 3",
        "python train.py --password=§&T;§",
        "python train.py --db.password §",
        "python train.py +wandb.api_key=§",
        "python train.py ++hub.token=§",
        "python train.py logger.wandb.key=§",
        "python train.py --aws-secret-access-key §",
        "python train.py --aws_access_key_id=§",
        "python train.py --credentials §",
        "env HF_TOKEN=§ WANDB_API_KEY=§ python train.py",
        "sh -c 'export HF_TOKEN=§; python train.py'",
        "sh -c 'export HF_TOKEN=\"§ and §\" && python train.py'",
        "bash -lc 'WANDB_API_KEY=§ python train.py --lr 1e-4'",
        "bash -c 'python train.py --wandb-key § --lr 1e-4'",
        "bash -c \"python train.py --password '§ §' --lr 1e-4\"",
        "bash -c 'wandb login § && python train.py'",
        "wandb login §",
        "wandb login --relogin §",
        "python train.py https://example.com/v1?api_key=§",
        "python train.py https://example.com/v1?a=1&api_key=§&b=2",
        "python train.py https://x.blob.core.windows.net/c?sv=2022&sig=§%3D",
        "python train.py https://s3.amazonaws.com/b?X-Amz-Credential=§&X-Amz-Security-Token=§&X-Amz-Signature=§",
        "python train.py s3://user:§@host/bucket",
        "python train.py postgresql://u:§/§@host/db",
        "git clone https://§0123456789abcdef@github.com/a/b",
        "curl -H 'Authorization: Bearer §' https://x",
        "curl -H 'Authorization: token §' https://x",
        "curl -H 'X-Api-Key: §' https://x",
        "curl -H 'PRIVATE-TOKEN: §' https://x",
        "curl -H 'Cookie: session=§; other=§' https://x",
        "curl -u me:§ https://x",
        "curl --user me:§ https://x",
        "docker run -e WANDB_API_KEY=§ image",
        "docker run --env=WANDB_API_KEY=§ image",
        "docker run -eWANDB_API_KEY=§ image",
        "vastai set api-key §",
        "sshpass -p § ssh box",
        "sshpass -p§ ssh box",
        'python train.py --config \'{"api_key": "§", "lr": 3}\'',
        "python train.py --config \"{'token': '§'}\"",
        "python -c \"import wandb; wandb.login(key='§')\"",
        "python train.py https://hooks.slack.com/services/T0/B0/§",
        "python train.py https://discord.com/api/webhooks/12/§",
        "python train.py --dsn=https://§@sentry.io/1",
        "sh -c 'echo -----BEGIN PRIVATE KEY-----\nS\n-----END'",
        "python train.py --secret 12345§",
        "python train.py --pass §",
    ],
)
def test_a_secret_is_hidden(line: str) -> None:
    told = " ".join(mask_words(shlex.split(line.replace("§", SECRET))))
    assert SECRET not in told, told
    assert "***" in told


@pytest.mark.parametrize(
    "shape",
    [
        "hf_AbCdEfGhIjKlMnOp", "sk-proj-AbCdEf123456", "sk-ant-api03-AbCdEf_12", "sk_live_4eC39HqLyjWDarj",
        "rpa_ABCDEFGHIJKLMN", "ghp_abcdefghijklmnop", "gho_abcdefghijklmnop", "github_pat_11ABCDEFG0abcdef",
        "glpat-abcdefghijklmnop", "xoxb-1234567890-abcdef", "nvapi-abcdefghijklmnop", "r8_abcdefghijklmnop",
        "npm_abcdefghijklmnop", "pypi-AgEIcHlwaS5vcmc", "gsk_abcdefghijklmnop", "wandb_v1_abcdefghijkl",
        "lsv2_pt_abcdefghijk", "AKIAIOSFODNN7EXAMPLE", "AIzaSyA1234567890abcdefghijklmnopqrstu",
        "SG.abcdefghijkl.mnopqrstuv", "ya29.abcdefghijkl",
        "eyJhbGciOiJIUzI1.eyJzdWIiOi.SflKxwRJ", "123456789:AAabcdefghijklmnopqrstuvwxyz0123456", "local-" + "a1" * 20,
    ],
)  # fmt: skip
def test_the_known_shapes_are_hidden_wherever_they_stand(shape: str) -> None:
    assert mask_words(["run", shape]) == ["run", "***"]
    assert mask_words(["sh", "-c", f"run {shape} now"]) == ["sh", "-c", "run *** now"]
    assert mask_words([f"--x={shape}"]) == ["--x=***"]


@pytest.mark.parametrize(
    "line",
    [
        "python train.py --token 512 --epochs 3",
        "python train.py --max_tokens=2048 --tokenizer gpt2 --tokenizer-name x",
        "python train.py --auth false --use_auth_token=True",
        "python train.py --image-key jpg --text_key=caption --data.label_key y",
        "python train.py --author bob --keyboard x --monkey=banana --pass-through y",
        "python train.py --key-frames 5 --passes 3 --secretary z",
        "docker run -u 1000:1000 -p 80:80 image",
        "sudo -u alice python train.py",
        "git clone git@github.com:a/b",
        "ssh://root@host/x",
        "python train.py --revision 0123456789abcdef0123456789abcdef01234567",
        "torchrun --rdzv-endpoint=host:29500 --rdzv_id 7 train.py",
        "bash -c 'python train.py --lr 1e-4 && echo done: 5'",
        "python train.py https://example.com/v1?a=1&b=2",
        "python -p 3 train.py",
        "python train.py --token-file /root/token --key-file=server.pem",
    ],
)
def test_what_only_looks_like_one_is_shown(line: str) -> None:
    words = shlex.split(line)
    assert mask_words(words) == words


@pytest.mark.parametrize(
    ("variable", "why"),
    [
        ("HF_TOKEN=abcdefgh1", "name"), ("WANDB_API_KEY=0123456789abcdef", "name"), ("DB_PASSWORD=x", "name"),
        ("AWS_SECRET_ACCESS_KEY=wJalrXUtnFEMI/K7MDENG", "name"), ("A=hf_aB3dE5fG7haB3d", "shape"),
        ("URL=postgres://u:pw@host/db", "shape"), ("HOOK=https://hooks.slack.com/services/T0/B0/x", "shape"),
        ("MAX_TOKENS=512", ""), ("TOKENIZERS_PARALLELISM=false", ""), ("SORT_KEY=length", ""), ("HF_TOKEN=", ""),
        ("PAD_TOKEN=<pad>", ""), ("LAST_TOKEN=max", ""), ("GOOGLE_APPLICATION_CREDENTIALS=/root/key.json", ""),
        ("PWD=/workspace/code", ""), ("LR=3e-4", ""), ("HF_HOME=/data/hf", ""), ("AUTH=none", ""), ("KEY_DIM=64", ""),
    ],
)  # fmt: skip
def test_a_variable_is_a_secret_by_its_name_or_its_shape(variable: str, why: str) -> None:
    name, _, value = variable.partition("=")
    assert why_secret(name, value) == why


def test_only_the_secret_is_hidden() -> None:
    script = "export HF_TOKEN=abc A=1; python train.py --wandb-key abc --lr 1e-4 'https://x?api_key=abc&y=2'"
    wanted = "export HF_TOKEN=*** A=1; python train.py --wandb-key *** --lr 1e-4 'https://x?api_key=***&y=2'"
    assert mask_words(["sh", "-c", script]) == ["sh", "-c", wanted]
    assert mask_words(["a", "--token", "--lr", "3"]) == ["a", "--token", "--lr", "3"]
    assert mask_words(["sshpass", "-px", "ssh"]) == ["sshpass", "-p***", "ssh"]
    assert mask_words(["a", "--token"]) == ["a", "--token"]
    assert mask_words([]) == []
    assert mask_words(["curl", "-H", "X-Api-Key: abc", "x"]) == [
        "curl",
        "-H",
        "X-Api-Key: ***",
        "x",
    ]


@pytest.mark.parametrize(
    "piece",
    [
        "a", "a.", "key", "-", "token=", "--token ", "://", "a://", "a:", "bearer ",
        "wandb login ", "wandb login --a ", "eyJ", '"', "'",
    ],
)  # fmt: skip
def test_a_hostile_command_line_costs_no_time(piece: str) -> None:
    words = [(piece * 4096)[:4096]]
    started = time.thread_time()
    mask_words(words)
    assert time.thread_time() - started < 1.0
