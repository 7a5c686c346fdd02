from __future__ import annotations

from tests.contract.cli.conftest import lab as lab
from tests.contract.cli.conftest import real_sshd as real_sshd
from tests.contract.cli.conftest import rgt as rgt
