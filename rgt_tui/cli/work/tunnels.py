"""``rgt tunnel``: ports of a box on this machine's loopback."""

from __future__ import annotations

import asyncio
import sys

from rgt_tui.cli import running
from rgt_tui.cli.commands import FAILED, OK, USAGE
from rgt_tui.cli.opening import open_box
from rgt_tui.cli.printing import complain, print_json, print_lines, waiting
from rgt_tui.cli.work.work_arguments import TunnelArguments
from rgt_tui.fleet.work.tunneling import CannotListen, Tunnels
from rgt_tui.model import LOOPBACK, BoxSpec, Tunnel, parse_tunnel


def run_tunnel(arguments: TunnelArguments) -> int:
    """Carry ports until Ctrl-C; return the exit status."""
    spec = open_box(arguments, trusted=True)
    try:
        tunnels = [parse_tunnel(text) for text in arguments.ports or spec.tunnels]
    except ValueError as error:
        complain(error)
        return USAGE
    if not tunnels:
        complain(f'which port? rgt tunnel {spec.name} 6006, or tunnels = ["6006"] in the fleet file')
        return USAGE
    return running.run_on_box(spec.name, _tunnel(arguments, spec, tunnels))


async def _tunnel(arguments: TunnelArguments, spec: BoxSpec, tunnels: list[Tunnel]) -> int:
    over, up = asyncio.Event(), asyncio.Event()
    running.until_signalled(over)
    accept = arguments.accept_new_host_key
    work = Tunnels(
        spec, tunnels, lambda words: complain(f"{spec.name}: {words}"), accept_new_host_keys=accept
    )
    try:
        try:
            ports = await work.listen()
        except CannotListen as error:
            complain(error.strerror)
            return FAILED
        carrying = asyncio.ensure_future(work.run(up.set))
        stopped, ready = asyncio.ensure_future(over.wait()), asyncio.ensure_future(up.wait())
        with waiting(f"connecting to {spec.name} …"):
            await asyncio.wait({carrying, stopped, ready}, return_when=asyncio.FIRST_COMPLETED)
        if ready.done():
            tell(arguments, spec, ports)
        await asyncio.wait({carrying, stopped}, return_when=asyncio.FIRST_COMPLETED)
        for task in (stopped, ready):
            task.cancel()
        if carrying.done():
            carrying.result()
        carrying.cancel()
        await asyncio.gather(carrying, return_exceptions=True)
        return OK
    finally:
        await work.close()


def tell(arguments: TunnelArguments, spec: BoxSpec, ports: list[tuple[Tunnel, int]]) -> None:
    """Print where each tunnel begins."""
    for tunnel, port in ports:
        url = f"http://{LOOPBACK}:{port}/" if tunnel.host else f"socks5://{LOOPBACK}:{port}"
        if arguments.json:
            body = {"box": spec.name, "url": url, "local": port, "wanted": tunnel.local, "to": str(tunnel)}
            print_json(body)
        else:
            taken = "" if port == tunnel.local else f"  ({tunnel.local} is taken here)"
            print_lines(f"{spec.name}: {url}  →  {tunnel.end}{taken}")
    sys.stdout.flush()
