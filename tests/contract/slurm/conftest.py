from __future__ import annotations

from tests.process.box.conftest import agent as agent
