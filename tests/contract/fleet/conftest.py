"""A real sshd on a box of its own."""

from __future__ import annotations

from tests.contract.ssh.conftest import lone_sshd

real_sshd = lone_sshd
