"""What other ways to save lose under kills that this trainer does not mind; see `others`."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.process.train import frameworks
from tests.process.train.harness import Zygote
from tests.torture.train import others
from tests.torture.train.conftest import FULL
from tests.torture.train.launched import Launched

FORMS = {"forked": (["plain", "ours"], others.FEW), "all": (list(others.NAMES), others.KILLS)}
"""Who is compared in CI, without importing anything, and by `make torture`; and how often each is killed."""


@pytest.mark.full  # a comparison: what our own way to save does is tested by the other files
@pytest.mark.parametrize("form", FORMS if FULL else ["forked"])
@pytest.mark.timeout(3600)
def test_the_same_kills(trainers: Zygote, form: str) -> None:
    def fork(name: str, out: Path) -> Launched:
        return trainers.launch_script(others.SCRIPT, name, str(out), background=True)

    if form == "all":
        frameworks.require()
    names, kills = FORMS[form]
    seed = random.SystemRandom().randrange(2**32)
    print(f"\nseed {seed}\n{others.HEAD}", flush=True)
    for name, score in others.compare(names, kills, seed, others.launch if form == "all" else fork):
        told = "\n  ".join([others.row(name, score), *sorted(set(score.errors))])
        print(told, flush=True)
        assert score.kills == kills, told
        if name == "ours":
            assert score.equal == score.runs and not score.failed and not score.restarted, told
