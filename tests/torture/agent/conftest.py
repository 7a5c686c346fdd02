from __future__ import annotations

from tests.contract.ssh.conftest import real_sshd as real_sshd
