"""A job file is read strictly, and its card is a constraint."""

from __future__ import annotations

from pathlib import Path

import pytest

from rgt_tui.cli.work import sweeps
from rgt_tui.fleet.work import job_file
from rgt_tui.model import QueueCell, QueueState
from tests.system.tree import ROOT

RUN = 'run = "python train.py"\n'


def job_of(tmp_path: Path, text: str) -> job_file.PortableJob:
    path = tmp_path / "job.toml"
    path.write_text(text)
    return job_file.read_job_file(path)


def test_the_documented_file_is_read(tmp_path: Path) -> None:
    text = (ROOT / "docs/job.md").read_text().partition("```toml\n")[2].partition("```")[0]
    job = job_of(tmp_path, text)
    assert job.resources is not None
    assert (job.resources.gpu.wish_text, job.resources.gpu.count) == ("A100 24GB+", 1)
    assert (job.disk_gb, job.candidates) == (100, ["autodl", "gpushare", "runpod"])
    assert job.command_words == ["python train.py --config {cfg} --epochs {epochs} --out {out}"]
    assert job.environment == ["LR=0.0003", "HF_HUB_OFFLINE=1"]
    assert job.secrets == ["HF_TOKEN"] and job.results == ["best.pt", "metrics.jsonl"]
    assert [line.name for line in job.queue_lines()] == ["baseline", "no_aug"]
    assert [line.text for line in job.queue_lines(["no_aug"])] == [
        "configs/no_aug.yaml segmentation"
    ]


@pytest.mark.parametrize(
    ("short", "wish", "count"),
    [("A100:80GB:2", "A100 80GB", 2), ("24GB+", "24GB+", 1), ("RTX 4090:4", "RTX 4090", 4)],
)
def test_the_short_form_of_a_gpu(tmp_path: Path, short: str, wish: str, count: int) -> None:
    job = job_of(tmp_path, f'{RUN}disk = "2TB"\n[resources]\ngpu = "{short}"\n')
    assert job.resources is not None
    assert (job.resources.gpu.wish_text, job.resources.gpu.count) == (wish, count)
    assert job.disk_gb == 2000


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("run = ", "job.toml: not TOML: "),
        (f"{RUN}runs = 1\n", "job.toml: runs: unknown key; did you mean run?"),
        (f"{RUN}xyzzy = 1\n", "xyzzy: unknown key; known keys: run, resources, name"),
        (f'{RUN}[resources]\ngpus = "A100"\n', "resources.gpus: unknown key; did you mean gpu?"),
        (
            f'{RUN}[resources.gpu]\nname = "A100"\nmem = "24GB+"\n',
            "resources.gpu.mem: unknown key; did you mean memory?",
        ),
        ('smoke = "x"\n', "job.toml: job: Object missing required field `run`"),
        ("run = 3\n", "job.toml: run: Expected `str | array`, got `int`"),
        ("run = []\n", "job.toml: run: write the command"),
        (f'{RUN}name = "a b"\n', "job.toml: name: use letters"),
        (f'{RUN}[resources]\ndisk = "9GB"\n', "resources: Object missing required field `gpu`"),
        (f'{RUN}[resources]\ngpu = "A100"\ndisk = "much"\n', "resources.disk: write it as 100GB"),
        (f'{RUN}[resources.gpu]\nmemory = "lots"\n', "resources.gpu.memory: write it as 24GB+"),
        (f"{RUN}[resources.gpu]\ncount = 1\n", "resources.gpu: name a model or a memory"),
        (f'{RUN}[resources]\ngpu = "A100:99"\n', "resources.gpu.count: 1 to 64"),
        (f'{RUN}candidates = ["moon"]\n', "candidates: there is no platform 'moon'; rgt rents at"),
        (f"{RUN}env = 3\n", "job.toml: env: Expected `object`"),
    ],
)
def test_a_wrong_file_names_key_and_next_step(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(job_file.JobFileError) as caught:
        job_of(tmp_path, text)
    assert said in str(caught.value) and str(tmp_path) in str(caught.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(job_file.JobFileError, match=r"none\.toml: cannot be read: No such file"):
        job_file.read_job_file(tmp_path / "none.toml")


def test_cells_that_do_not_exist(tmp_path: Path) -> None:
    job = job_of(tmp_path, f'{RUN}cells = ["a.yaml", "b.yaml seg 3"]\n')
    with pytest.raises(job_file.JobFileError, match="no cell is called c; there are: a, b"):
        job.queue_lines(["c"])
    with pytest.raises(job_file.JobFileError, match="has no cell"):
        job_of(tmp_path, RUN).queue_lines()
    assert [line.text for line in job.queue_lines()] == ["a.yaml run", "b.yaml seg 3"]


def test_a_file_over_the_limit_is_refused_and_not_read_in_part(tmp_path: Path) -> None:
    with pytest.raises(job_file.JobFileError, match="cannot be read: it is larger than 1,048,576"):
        job_of(tmp_path, f"{RUN}\n" + "# a cell\n" * 200_000 + 'cells = ["a.yaml"]\n')


def test_a_cell_without_a_task_may_end_in_a_comment(tmp_path: Path) -> None:
    rows = ["a.yaml  # the baseline", "b.yaml# near", "c.yaml seg # a task", "# none"]
    lines = job_of(tmp_path, f"{RUN}cells = {rows}\n").queue_lines()
    assert [(line.name, line.task) for line in lines] == [("a", "run"), ("b", "run"), ("c", "seg")]
    assert lines[0].text == "a.yaml run # the baseline"


def test_platforms_of_a_country_and_the_rule_for_space(tmp_path: Path) -> None:
    """The job request of the skill that many know names the platforms of China by one word."""
    job = job_of(tmp_path, f'{RUN}candidates = ["autodl", "china", "runpod"]\n')
    china = ["gpushare", "matpool", "featurize", "lanrui"]
    assert job.candidates == ["autodl", *china, "runpod"]
    assert job_of(tmp_path, f'{RUN}prune = "keep-best"\ncells = ["a.yaml"]\n').prune == "keep-best"
    for text, said in (
        (f'{RUN}prune = "keep-best"\n', "prune: only of a sweep"),
        (f'{RUN}prune = "all"\ncells = ["a.yaml"]\n', "prune: Invalid enum value 'all'"),
    ):
        with pytest.raises(job_file.JobFileError, match=said):
            job_of(tmp_path, text)


def test_cells_with_results_are_found_in_queues_and_in_pulled_files(tmp_path: Path) -> None:
    lines = job_of(tmp_path, f'{RUN}cells = ["a.yaml", "b.yaml", "c.yaml", "d.yaml"]').queue_lines()
    sweep = sweeps.RequestedSweep(name="sweep", lines=lines, gpu=None, secret_names=[])
    (tmp_path / "pulled/lab/root/runs/sweep/b").mkdir(parents=True)
    (tmp_path / "pulled/lab/root/runs/sweep/b/best.pt").touch()
    (tmp_path / "pulled/lab/root/runs/sweep/c").mkdir()  # empty: nothing was pulled
    # Pulled while it ran; it has failed since: it has no results.
    (tmp_path / "pulled/lab/root/runs/sweep/d").mkdir()
    (tmp_path / "pulled/lab/root/runs/sweep/d/metrics.jsonl").touch()
    cells = tuple(
        QueueCell(name=name, cfg=f"{name}.yaml", task="run", state=state)
        for name, state in (("a", "done"), ("d", "failed"), ("other", "done"))
    )
    queues = {
        "lab": [QueueState(path="~/jobs/sweep", at=1.0, cells=cells)],
        "b2": [QueueState(path="~/jobs/another", at=1.0, cells=(*cells[:1], cells[1]))],
    }
    assert sweeps.find_existing_results(sweep, queues, tmp_path / "pulled") == {
        "a": "done on lab",
        "b": f"pulled to {tmp_path}/pulled/lab/root/runs/sweep/b",
    }


GIB = 2**30


@pytest.mark.parametrize(
    ("gpu", "cards", "verdict"),
    [
        (
            job_file.GpuRequest("A100", 1, "24GB+"),
            [("NVIDIA A100-SXM4-40GB", 40 * GIB)],
            job_file.CardVerdict.FITS,
        ),
        (job_file.GpuRequest("A100"), [("NVIDIA A100-SXM4-80GB", None)], job_file.CardVerdict.FITS),
        (
            job_file.GpuRequest("", 1, "24GB+"),
            [("NVIDIA GeForce RTX 4090", 24_564 << 20)],
            job_file.CardVerdict.FITS,
        ),
        (
            job_file.GpuRequest("", 1, "24GB+"),
            [("NVIDIA GeForce RTX 3060", 12 * GIB)],
            job_file.CardVerdict.SMALLER,
        ),
        (
            job_file.GpuRequest("A100", 2),
            [("NVIDIA A100-SXM4-40GB", 40 * GIB)],
            job_file.CardVerdict.SMALLER,
        ),
        (
            job_file.GpuRequest("A100", 1, "80GB"),
            [("NVIDIA A100-SXM4-40GB", 40 * GIB)],
            job_file.CardVerdict.SMALLER,
        ),
        (
            job_file.GpuRequest("A100"),
            [("NVIDIA GeForce RTX 4090", 24_564 << 20)],
            job_file.CardVerdict.SMALLER,
        ),
        (
            job_file.GpuRequest("A100"),
            [("NVIDIA H100 80GB HBM3", 80 * GIB)],
            job_file.CardVerdict.OTHER,
        ),
        (
            job_file.GpuRequest("A100"),
            [("NVIDIA A100 MIG 1g.5gb", 5 * GIB)],
            job_file.CardVerdict.SMALLER,
        ),
        (
            job_file.GpuRequest("", 1, "8GB+"),
            [("Card of tomorrow", None)],
            job_file.CardVerdict.UNKNOWN,
        ),
        (
            job_file.GpuRequest("Card of tomorrow"),
            [("Other", 5 * GIB)],
            job_file.CardVerdict.UNKNOWN,
        ),
        (job_file.GpuRequest("A100"), [], job_file.CardVerdict.UNKNOWN),
    ],
)
def test_the_card_is_a_constraint(
    gpu: job_file.GpuRequest, cards: list[tuple[str, int | None]], verdict: job_file.CardVerdict
) -> None:
    assert job_file.judge_cards(gpu, cards)[0] is verdict, job_file.judge_cards(gpu, cards)
