"""Where people's results lie on boxes, and where packages do: all of the first count, and none of the second."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from rgt_tui.model import BoxResults
from tests.process.box.harness import Agent

RESULTS = (
    # Docker: the working directories of common images, and entry points at the root.
    "usr/src/app/out/eval_final.json",
    "usr/src/app/predictions.csv",
    "usr/local/app/ckpt_00010",
    "usr/local/src/trainer/samples/0001.png",
    "app/outputs/lora_rank8.bin",
    "code/out.txt",
    "srv/train/report.html",
    "opt/app/logs/loss.csv",
    "opt/ml/model/weights.bin",
    "model-output/final",
    "result.tar",
    # Virtual environments of venv, uv and conda in the project itself, whose own files lie next to them.
    "work/venv-here/out/sample.png",
    "work/venv-here/predictions.csv",
    "work/venv-here/share/plots/loss.svg",
    "work/venv-here/ckpt_00010",
    "work/uv-here/eval_final.json",
    "work/uv-here/runs/a/args.yaml",
    "work/conda-here/out/lora_rank8.bin",
    "work/conda-here/var/results.db",
    "work/conda-here/envs-notes.txt",
    "opt/conda/out/a.png",
    # Written into an installed package, as by code that saves next to itself.
    "work/venv-here/lib/python3.11/site-packages/mine/out/best.pt",
    "work/venv-here/lib/python3.11/site-packages/mine/out/best.pth",
    "usr/local/lib/python3.10/dist-packages/mine/runs/metrics.jsonl",
    # Next to files of Python itself that look like results.
    "root/.pyenv/versions/3.11.7/lib/python3.11/lib2to3/best.pickle",
    "usr/local/lib/python3.10/test/ckpt_00010.zip",
    # User interfaces that are installed in /opt, and their output.
    "opt/ComfyUI/output/ComfyUI_00001_.png",
    "opt/stable-diffusion-webui/outputs/txt2img-images/2026-11-01/0.png",
    "opt/text-generation-webui/loras/mine/adapter.txt",
    "workspace/kohya_ss/logs/a.txt",
    # Notebooks.
    "home/jovyan/notebooks/Untitled.ipynb",
    "root/Untitled1.ipynb",
    "content/drive-out/table.xlsx",
    "kaggle/working/submission.csv",
    # Next to, and inside, the cache of Hugging Face.
    "workspace/hf/my-finetune/config.json",
    "workspace/hf/hub/my-finetune/README.md",
    "root/.cache/huggingface/hub/mine/model.safetensors",
    "root/.cache/torch/hub/checkpoints/best.pt",
    # Data disks, scratch, memory and homes.
    "mnt/out/a.bin",
    "mnt/data/run1/loss.txt",
    "data/exp/summary.json",
    "scratch/me/x.dat",
    "storage/out.csv",
    "media/disk/out.csv",
    "dev/shm/fast/ckpt_00010",
    "tmp/run/out.csv",
    "var/tmp/run/out.csv",
    "var/lib/mine/out.csv",
    "var/www/html/plot.png",
    "home/ubuntu/run/out.csv",
    "home/me/.hidden-run/out.csv",
    "root/out.csv",
    "root/.best.pt",
    # A clone with what was built and written in it.
    "root/repo/build/artifact.whl",
    "root/repo/.venv-out/x",
    "root/repo/outputs/2026-11-01/12-00-00/train.log",
    "root/repo/wandb/offline-run-1/run-abc.wandb",
    "root/repo/lightning_logs/version_0/hparams.yaml",
    "root/repo/node_modules-of-mine/x.csv",
    "usr/lib/mine/out.csv",
    "usr/share/mine/table.csv",
    "etc/mine/best.pt",
)
CONTENT = {
    "usr/local/lib/python3.10/dist-packages/numpy-2.0.dist-info/RECORD": "numpy/core.so,,\nnumpy/test/data.npy,,\n"
    "../../../bin/f2py,,\nnumpy-2.0.dist-info/RECORD,,\n",
    "var/lib/dpkg/info/tool.list": "/.\n/usr\n/usr/bin/tool\n/lib/tool/model.onnx\n/usr/share/tool/table.csv\n",
    "opt/conda/conda-meta/qt-6.json": json.dumps(
        {"files": ["plugins/qt/x.so", "share/qt/a.npy"], "name": "qt"}
    ),
    "lib/apk/db/installed": "P:musl\nF:usr/libexec/apk\nR:tool.bin\n",
}
PACKAGES = (
    *CONTENT,
    "usr/local/lib/python3.10/dist-packages/numpy/core.so",
    "usr/local/lib/python3.10/dist-packages/numpy/test/data.npy",
    "usr/local/bin/f2py",
    "usr/local/lib/python3.10/os.py",
    "usr/bin/tool",
    "usr/lib/tool/model.onnx",
    "usr/share/tool/table.csv",
    "usr/libexec/apk/tool.bin",
    "opt/conda/plugins/qt/x.so",
    "opt/conda/share/qt/a.npy",
    "opt/conda/lib/libfoo.so",
    "opt/conda/pkgs/qt-6.conda",
    "opt/conda/bin/python",
    "work/conda-here/conda-meta/history",
    "work/conda-here/etc/profile.d/x.sh",
    "work/uv-here/pyvenv.cfg",
    "work/uv-here/bin/activate",
    "work/uv-here/lib/python3.12/site-packages/_virtualenv.py",
    "work/uv-here/lib/python3.12/site-packages/_virtualenv.pth",
    "usr/lib/python3/dist-packages/easy-install.pth",
    "root/repo/node_modules/x/index.js",
    "root/repo/__pycache__/a.cpython-311.pyc",
    "root/repo/.mypy_cache/3.11/a.json",
    "root/.nvm/versions/node/v22/bin/node",
    "root/.pyenv/versions/3.12/lib/libpython.a",
    "root/.pyenv/versions/3.11.7/lib/python3.11/lib2to3/Grammar3.11.7.final.0.pickle",
    "root/.pyenv/versions/3.11.7/lib/python3.11/lib2to3/PatternGrammar3.11.7.final.0.pickle",
    "usr/local/lib/python3.10/test/zip_cp437_header.zip",
    "root/.local/share/uv/python/cpython-3.13/lib/python3.13/test/archivetestdata/zip_cp437_header.zip",
    "root/.cache/pip/http-v2/a/b",
    "root/.cache/uv/archive-v0/x/y.so",
    "root/.cache/huggingface/hub/models--meta--x/blobs/0123456789abcdef",
    "root/.cache/torch/hub/checkpoints/resnet50-0676ba61.pth",
    "root/.npm/_cacache/index",
    "root/.cargo/registry/cache/x.crate",
    "root/go/pkg/mod/x/a.go",
    "root/.local/share/uv/python/cpython-3.12/lib/x.so",
    "root/.ssh/known_hosts",
    "root/.bashrc",
    "etc/passwd",
    "var/log/syslog",
    "var/lib/dpkg/status",
    "var/cache/apt/archives/a.deb",
    "run/lock/x",
    ".dockerenv",
)


def put(path: Path, text: str = "x") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.fixture
def box(tmp_path: Path) -> Path:
    root = tmp_path / "box"
    (root / "usr/lib").mkdir(parents=True)
    (root / "lib").symlink_to("usr/lib")
    subprocess.run(
        [sys.executable, "-m", "venv", "--without-pip", root / "work/venv-here"], check=True
    )
    for name in (*RESULTS, *PACKAGES):
        put(root / name, CONTENT.get(name, "x"))
    return root


def listed(agent: Agent, box: Path) -> BoxResults:
    env = agent.env | {"RGT_ROOTS": str(box), "HOME": str(box / "root")}
    done = subprocess.run(agent.command("results"), capture_output=True, env=env, check=True)
    return msgspec.json.decode(done.stdout, type=BoxResults)


def test_results_count_wherever_they_are_and_packages_nowhere(agent: Agent, box: Path) -> None:
    assert len(RESULTS) >= 40 and len(PACKAGES) >= 20
    found = listed(agent, box)
    assert found.problems == ()
    places = {group.path for group in found.groups}
    missing = [
        name
        for name in RESULTS
        if not any(str(box / name).startswith(f"{path}/") for path in places)
    ]
    assert missing == []
    surplus = [
        group
        for group in found.groups
        if group.newest_path not in {str(box / name) for name in RESULTS}
    ]
    assert surplus == []
    assert sum(group.files for group in found.groups) == len(RESULTS)
    venv = [
        path
        for path in (box / "work/venv-here").rglob("*")
        if path.is_file() and not path.is_symlink()
    ]
    own = [path for path in venv if str(path.relative_to(box)) not in RESULTS]
    assert sum(item.files for item in found.skipped) == len(PACKAGES) + len(own)


@pytest.mark.parametrize("name", RESULTS[::8])
def test_a_result_that_changes_changes_the_list(agent: Agent, box: Path, name: str) -> None:
    """The number of files alone would not tell one that counts from another that does not."""
    before = listed(agent, box).generation
    with open(box / name, "a") as file:
        file.write("more")
    assert listed(agent, box).generation != before


def test_what_pip_really_installs_is_in_its_list(agent: Agent, tmp_path: Path) -> None:
    """Pip itself, which venv installs without a network: pip writes the RECORD."""
    root = tmp_path / "box"
    subprocess.run([sys.executable, "-m", "venv", root / "srv/project"], check=True)
    put(root / "srv/project/out/table.csv")
    put(root / "srv/project/lib/notes-of-mine.pt")
    found = listed(agent, root)
    assert [(group.path, group.files) for group in found.groups] == [
        (str(root / "srv/project/lib"), 1),
        (str(root / "srv/project/out"), 1),
    ]
    (by_list,) = [
        item for item in found.skipped if item.rule == "packages, by their lists of files"
    ]
    assert by_list.files > 300 and by_list.proved
