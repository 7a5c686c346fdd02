from __future__ import annotations

from tests.unit.box.conftest import agent as agent
from tests.unit.box.conftest import agent_file as agent_file
