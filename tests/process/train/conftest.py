from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.process.train.harness import Zygote, zygote


@pytest.fixture(scope="session")
def trainers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Zygote]:
    with zygote(tmp_path_factory.mktemp("trainers") / "fifos") as running:
        yield running
