"""A real sshd on a box of its own."""

from tests.contract.ssh.conftest import lone_sshd as real_sshd

__all__ = ["real_sshd"]
