"""The way to a box: every hop that is logged in on, first to last.

A chain ``ProxyJump a,b`` is what ``ssh -J a,b`` does: `a` is reached as its own entry says (its own ProxyJump or
ProxyCommand included), `b` through `a` and in no other way, whatever the entry of `b` says.
"""

from __future__ import annotations

from rgt_tui.ssh.config.errors import ConfigError
from rgt_tui.ssh.config.host import Host, Jump
from rgt_tui.ssh.config.resolve import Surroundings, Wanted, resolve


def route(wanted: Wanted, around: Surroundings) -> tuple[Host, ...]:
    """Return the hops; the last one is the box. It may run commands of ``Match exec``: call it in a thread.

    Raises:
        ConfigError: a file is wrong, or the chain leads in a circle.
    """
    return _route(wanted, around, ())


def _route(wanted: Wanted, around: Surroundings, above: tuple[Host, ...]) -> tuple[Host, ...]:
    host = resolve(wanted, around)
    if any((host.host, host.port, host.user) == (other.host, other.port, other.user) for other in above):
        circle = " → ".join(hop.alias for hop in (*above, host))
        raise ConfigError(
            f"ssh_config: ProxyJump leads in a circle: {circle}; give the jump host an entry of its own with "
            "`ProxyJump none`"
        )
    if not host.jumps:
        return (host,)
    first, *others = host.jumps
    hops = _route(_wanted(first), around, (*above, host))
    through = tuple(resolve(_wanted(jump, proxied=True), around) for jump in others)
    return (*hops, *through, host)


def _wanted(jump: Jump, *, proxied: bool = False) -> Wanted:
    return Wanted(jump.host, port=jump.port, user=jump.user, proxied=proxied)
