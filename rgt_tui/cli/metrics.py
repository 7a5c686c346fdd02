"""``rgt metrics``: the fleet's figures for Prometheus, and the HTTP server that it scrapes."""

from __future__ import annotations

import asyncio
import ipaddress
import json
import math
import re
import socket
import socketserver
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple
from urllib.parse import urlsplit

from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4, Metric, generate_latest
from prometheus_client.registry import Collector

from rgt_tui.cli import running
from rgt_tui.cli.commands import FAILED, OK, USAGE
from rgt_tui.cli.gathering import gather_named, make_fleet, running_fleet
from rgt_tui.cli.opening import chosen, followed, open_fleet
from rgt_tui.cli.printing import complain
from rgt_tui.cli.watch_arguments import MetricsArguments
from rgt_tui.fleet.config import FleetConfig, FleetFileError
from rgt_tui.health import Assessment, assess
from rgt_tui.model import (
    AccountBill,
    BoxSpec,
    BoxState,
    FleetState,
    Gpu,
    Health,
    Link,
    Sample,
    Unlisted,
    clean,
)
from rgt_tui.profiles import run_cost

MIB = 1 << 20
_HEAD = re.compile(rb"^(# [A-Z]+ \w+_TOTAL)_total ", re.MULTILINE)

Value = float | int | None


class Seen(NamedTuple):
    """One box, as input of the families below."""

    box: BoxState
    state: Assessment
    now: float

    @property
    def up(self) -> bool:
        """Whether the box is connected and its figures are fresh."""
        return self.box.link is Link.LIVE and not self.state.stale

    @property
    def sample(self) -> Sample | None:
        """The newest sample; None if it is old, so that it is not exported as current."""
        if self.up:
            return self.box.sample
        return None


Rows = Iterator[tuple[dict[str, str], Value]]


class Family(NamedTuple):
    """One metric."""

    name: str
    kind: str
    help: str
    rows: Callable[[Seen], Rows]


def _gpu(read: Callable[[Gpu], Value]) -> Callable[[Seen], Rows]:
    def rows(seen: Seen) -> Rows:
        for gpu in seen.sample.gpus if seen.sample else ():
            labels = {
                "gpu": str(gpu.index),
                "UUID": (gpu.uuid or ""),
                "device": f"nvidia{gpu.index}",
                "modelName": gpu.name,
            }
            labels |= {
                "pci_bus_id": gpu.bus or "",
                "hostname": seen.box.hello.host if seen.box.hello else "",
            }
            if gpu.sim:
                labels["sim"] = "true"
            yield labels, read(gpu)

    return rows


def _mib(value: int | None) -> Value:
    if value is None:
        return None
    return value / MIB


def _free(gpu: Gpu) -> Value:
    known = gpu.vram_used is not None and gpu.vram_total is not None
    if known:
        return _mib((gpu.vram_total or 0) - (gpu.vram_used or 0))
    return None


def _disk(field: str) -> Callable[[Seen], Rows]:
    def rows(seen: Seen) -> Rows:
        for disk in seen.sample.disks if seen.sample else ():
            if disk.error is None:
                yield {"mount": disk.mount, "kind": disk.kind or ""}, getattr(disk, field)

    return rows


def _one(read: Callable[[Seen], Value]) -> Callable[[Seen], Rows]:
    def rows(seen: Seen) -> Rows:
        yield {}, read(seen)

    return rows


def _sampled(read: Callable[[Sample], Value]) -> Callable[[Seen], Rows]:
    return _one(lambda seen: read(seen.sample) if seen.sample else None)


def _run(field: str) -> Callable[[Seen], Rows]:
    def rows(seen: Seen) -> Rows:
        for run in seen.box.runs if seen.up else ():
            yield {"run": run.name}, getattr(run, field)

    return rows


def _progress(seen: Seen) -> Rows:
    for run in seen.box.runs if seen.up else ():
        if run.progressed_at is not None:
            yield {"run": run.name}, max(0.0, seen.now - run.progressed_at)


def _cells(seen: Seen) -> Rows:
    for queue in seen.box.queues if seen.up else ():
        states = [cell.state for cell in queue.cells]
        for state in ("waiting", "running", "done", "failed", "interrupted"):
            yield {"queue": queue.path, "state": state}, states.count(state)


def _states(seen: Seen) -> Rows:
    for health in Health:
        yield {"state": health.value}, int(seen.state.health is health)


def _alerts(seen: Seen) -> Rows:
    for alert in seen.state.alerts:
        yield (
            {
                "kind": alert.kind,
                "id": alert.id,
                "level": alert.level,
                "muted": str(alert.muted).lower(),
            },
            1,
        )


def _meter(read: Callable[[Seen], Value]) -> Callable[[Seen], Rows]:
    def rows(seen: Seen) -> Rows:
        meter = seen.box.meter
        yield (
            {"currency": meter.currency, "kind": meter.kind.value, "source": meter.source},
            read(seen),
        )

    return rows


def _run_costs(seen: Seen) -> Rows:
    for run in seen.box.runs if seen.up else ():
        cost = run_cost(seen.box, run.name, seen.now)
        if cost is not None:
            price = cost.per_1000_steps
            labels = {
                "run": run.name,
                "currency": price.currency,
                "at_least": str(price.at_least).lower(),
            }
            yield labels, price.value


def _meter_age(seen: Seen) -> Value:
    at = seen.box.meter.at
    if at is None:
        return None
    return max(0.0, seen.now - at)


def _training_processes(sample: Sample) -> Value:
    if sample.unseen is not None and not sample.procs:
        return None
    return len(sample.procs)


FAMILIES: tuple[Family, ...] = (
    Family("DCGM_FI_DEV_GPU_UTIL", "gauge", "GPU utilization (in %).", _gpu(lambda gpu: gpu.util)),
    Family("DCGM_FI_DEV_FB_USED", "gauge", "Framebuffer memory used (in MiB).", _gpu(lambda gpu: _mib(gpu.vram_used))),
    Family("DCGM_FI_DEV_FB_FREE", "gauge", "Framebuffer memory free (in MiB).", _gpu(_free)),
    Family("DCGM_FI_DEV_FB_TOTAL", "gauge", "Framebuffer memory (in MiB).", _gpu(lambda gpu: _mib(gpu.vram_total))),
    Family("DCGM_FI_DEV_GPU_TEMP", "gauge", "GPU temperature (in C).", _gpu(lambda gpu: gpu.temp_c)),
    Family("DCGM_FI_DEV_POWER_USAGE", "gauge", "Power draw (in W).", _gpu(lambda gpu: gpu.power_w)),
    Family("DCGM_FI_DEV_POWER_MGMT_LIMIT", "gauge", "Power limit (in W).", _gpu(lambda gpu: gpu.power_limit_w)),
    Family("DCGM_FI_DEV_SM_CLOCK", "gauge", "SM clock frequency (in MHz).", _gpu(lambda gpu: gpu.clock_mhz)),
    Family("DCGM_FI_DEV_XID_ERRORS", "gauge", "Number of the last Xid.", _gpu(lambda gpu: gpu.xid)),
    Family("DCGM_FI_DEV_ECC_SBE_VOL_TOTAL", "counter", "Corrected memory errors.", _gpu(lambda gpu: gpu.ecc_corrected)),
    Family(
        "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", "counter", "Uncorrected memory errors.", _gpu(lambda gpu: gpu.ecc_uncorrected)
    ),
    Family("rgt_box_up", "gauge", "1 while a box is reached and its figures are fresh.", _one(lambda s: int(s.up))),
    Family("rgt_box_state", "gauge", "1 for the state that a box is in.", _states),
    Family("rgt_sample_age_seconds", "gauge", "Age of the newest sample.", _one(lambda s: s.state.sample_age)),
    Family("rgt_alert", "gauge", "1 for each active alert.", _alerts),
    Family("rgt_meter_per_hour", "gauge", "Current price per hour.", _meter(lambda seen: seen.box.meter.per_hour)),
    Family("rgt_meter_spent", "gauge", "Cost of the box so far.", _meter(lambda seen: seen.box.meter.spent)),
    Family(
        "rgt_meter_per_hour_at_least", "gauge", "1 where a part of the price is not known.",
        _meter(lambda seen: None if seen.box.meter.per_hour is None else int(seen.box.meter.at_least)),
    ),
    Family(
        "rgt_meter_spent_at_least", "gauge", "1 where rgt_meter_spent is a lower bound.",
        _meter(lambda seen: None if seen.box.meter.spent is None else int(seen.box.meter.spent_at_least)),
    ),
    Family(
        "rgt_meter_books_differ", "gauge", "The provider's charge minus rgt's own count, where the two differ.",
        _meter(lambda seen: seen.box.meter.books_differ),
    ),
    Family("rgt_run_cost_per_1000_steps", "gauge", "Cost of the box per 1,000 steps of a run.", _run_costs),
    Family("rgt_meter_age_seconds", "gauge", "Age of the provider's reading.", _one(_meter_age)),
    Family("rgt_memory_used_bytes", "gauge", "Charged to the container, with cache.", _sampled(lambda s: s.mem.used)),
    Family("rgt_memory_cache_bytes", "gauge", "Of that, inactive file cache.", _sampled(lambda s: s.mem.cache)),
    Family("rgt_memory_limit_bytes", "gauge", "The container's limit.", _sampled(lambda s: s.mem.limit)),
    Family("rgt_oom_kills", "gauge", "Processes killed for lack of memory.", _sampled(lambda s: s.mem.oom_kills)),
    Family("rgt_cpu_usable_cores", "gauge", "Cores that can be used.", _sampled(lambda s: s.cpu.usable)),
    Family("rgt_cpu_throttled_percent", "gauge", "Throttled periods.", _sampled(lambda s: s.cpu.throttled_pct)),
    Family("rgt_disk_total_bytes", "gauge", "Size of a file system.", _disk("bytes_total")),
    Family("rgt_disk_used_bytes", "gauge", "Used of it.", _disk("bytes_used")),
    Family("rgt_disk_free_bytes", "gauge", "Free to an unprivileged user.", _disk("bytes_free")),
    Family("rgt_inodes_total", "gauge", "Inodes of a file system.", _disk("inodes_total")),
    Family("rgt_inodes_used", "gauge", "Used of them.", _disk("inodes_used")),
    Family("rgt_training_processes", "gauge", "Processes that train.", _sampled(_training_processes)),
    Family("rgt_cells", "gauge", "Cells of a queue by their state.", _cells),
    Family("rgt_run_step", "gauge", "Newest step of a run.", _run("step")),
    Family("rgt_run_total_steps", "gauge", "Planned steps of a run.", _run("total_steps")),
    Family("rgt_run_epoch", "gauge", "Newest epoch of a run.", _run("epoch")),
    Family("rgt_run_loss", "gauge", "Newest training loss.", _run("loss")),
    Family("rgt_run_best", "gauge", "Lowest validation loss.", _run("best")),
    Family("rgt_run_throughput", "gauge", "Tokens, images or samples a second.", _run("throughput")),
    Family("rgt_run_progress_age_seconds", "gauge", "Time since the step last advanced.", _progress),
)  # fmt: skip
"""In the order of the output. A row without a value is left out: absent, never 0."""


class AccountFamily(NamedTuple):
    """One metric of an account of the fleet."""

    name: str
    help: str
    rows: Callable[[AccountBill, float], Rows]


def _unlisted(read: Callable[[Unlisted], Value]) -> Callable[[AccountBill, float], Rows]:
    def rows(bill: AccountBill, now: float) -> Rows:
        for thing in bill.things:
            named = {
                "what": thing.what,
                "id": thing.id,
                "name": thing.name,
                "currency": thing.currency,
            }
            yield named, read(thing)

    return rows


def _listed_age(
    what: str, read: Callable[[AccountBill], float | None]
) -> Callable[[AccountBill, float], Rows]:
    def rows(bill: AccountBill, now: float) -> Rows:
        at = read(bill)
        yield {"what": what}, None if at is None else max(0.0, now - at)

    return rows


ACCOUNT_FAMILIES: tuple[AccountFamily, ...] = (
    AccountFamily(
        "rgt_unlisted", "1 for each resource of an account that is in no box of the fleet; 0 if it costs nothing now.",
        _unlisted(lambda thing: int(thing.bills)),
    ),
    AccountFamily(
        "rgt_unlisted_per_hour", "Its price per hour; absent if unknown.",
        _unlisted(lambda thing: thing.per_hour),
    ),
    AccountFamily(
        "rgt_account_machines_age_seconds", "Time since the account's machines were last listed completely.",
        _listed_age("machines", lambda bill: bill.machines_at),
    ),
    AccountFamily(
        "rgt_account_leftovers_age_seconds", "The same for volumes, addresses, snapshots and the like.",
        _listed_age("leftovers", lambda bill: bill.leftovers_at),
    ),
)  # fmt: skip
"""Things in the accounts that no box names, in the order of the output."""


class Exposition(Collector):
    """The figures of a fleet, for `prometheus_client`.

    Args:
        state: The fleet's state.
        now: Client clock.
    """

    def __init__(self, state: FleetState, now: float) -> None:
        self._state, self._now = state, now

    def collect(self) -> Iterator[Metric]:
        """Yield every family that has values."""
        for family, rows in series(self._state, self._now):
            metric = Metric(family.name, family.help, family.kind)
            for labels, value in rows:
                metric.add_sample(family.name, labels, value)
            yield metric


def exposition(state: FleetState, now: float) -> bytes:
    """Return the exposition text of a fleet at `now` (client clock)."""
    # dcgm-exporter's counters end in _TOTAL; the client library would append _total in their header
    # lines.
    return _HEAD.sub(rb"\1 ", generate_latest(Exposition(state, now)))


def series(
    state: FleetState, now: float
) -> Iterator[tuple[Family, list[tuple[dict[str, str], float]]]]:
    """Yield every family that has values, with its labels and values; label texts are cleaned."""
    boxes = [Seen(box, assess(box, now), now) for box in state.boxes]
    for family in FAMILIES:
        rows: dict[tuple[str, ...], tuple[dict[str, str], float]] = {}
        for seen in boxes:
            for labels, value in family.rows(seen):
                named = {
                    key: clean(text) for key, text in {"box": seen.box.spec.name, **labels}.items()
                }
                if value is not None:
                    # A duplicate series would make Prometheus reject the whole scrape.
                    rows.setdefault(tuple(named.values()), (named, value))
        if rows:
            yield family, list(rows.values())
    for each in ACCOUNT_FAMILIES:
        rows = {}
        for bill in state.accounts:
            for labels, value in each.rows(bill, now):
                whole = {"provider": bill.kind, "account": bill.account, **labels}
                named = {key: clean(text) for key, text in whole.items()}
                if value is not None:
                    rows.setdefault(tuple(named.values()), (named, value))
        if rows:
            yield Family(each.name, "gauge", each.help, lambda seen: iter(())), list(rows.values())


PATH = "/metrics"


class MetricsServer:
    """Serves in its own threads until it is stopped.

    Args:
        host: An address of this machine.
        port: 0 = any free one; `port` has the result.
        text: Makes the response.

    Raises:
        OSError: Cannot listen on the address.
    """

    def __init__(self, host: str, port: int, text: Callable[[], bytes]) -> None:
        class Handler(_Handler):
            make = staticmethod(text)

        self._server = _Server((host, port), Handler, bind_and_activate=False)
        self._server.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._server.socket = socket.socket(self._server.address_family, socket.SOCK_STREAM)
        try:
            self._server.server_bind()
            self._server.server_activate()
        except OSError:
            self._server.server_close()
            raise
        self.port = int(self._server.server_address[1])
        self._thread = threading.Thread(
            target=self._server.serve_forever, name="metrics", daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        """Stop listening."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Server(ThreadingHTTPServer):
    block_on_close = False

    def server_bind(self) -> None:
        # The base class would look up the address's host name, which may take half a minute.
        socketserver.TCPServer.server_bind(self)

    def handle_error(self, *_: object) -> None:
        """Ignore errors: scrapers may hang up early, and our own errors were answered."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    default_request_version = "HTTP/1.1"
    timeout = 10.0
    make: Callable[[], bytes]

    def do_GET(self) -> None:
        if self.request_version == "HTTP/1.1" and not self.headers.get("Host"):
            self._answer(HTTPStatus.BAD_REQUEST, b"the Host header is missing\n")
        elif urlsplit(self.path).path != PATH:
            self._answer(HTTPStatus.NOT_FOUND, f"there is only {PATH}\n".encode())
        else:
            try:
                text = self.make()
            # a reading that cannot be exported must not end the exporter
            except Exception as error:
                self._answer(
                    HTTPStatus.INTERNAL_SERVER_ERROR, f"{type(error).__name__}: {error}\n".encode()
                )
            else:
                self._answer(HTTPStatus.OK, text, CONTENT_TYPE_PLAIN_0_0_4)

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_POST(self) -> None:
        self._answer(HTTPStatus.METHOD_NOT_ALLOWED, b"only GET and HEAD\n")

    def _answer(
        self, status: HTTPStatus, body: bytes, kind: str = "text/plain; charset=utf-8"
    ) -> None:
        self.close_connection = True  # a request body is not read
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Connection", "close")
        if status is HTTPStatus.METHOD_NOT_ALLOWED:
            self.send_header("Allow", "GET, HEAD")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def version_string(self) -> str:
        return "rgt"

    def log_message(self, *_: object) -> None:
        """Log nothing for scrapes."""


def run_metrics(arguments: MetricsArguments) -> int:
    """Serve or print; return the exit code."""
    try:
        if arguments.json and not arguments.once:
            raise FleetFileError("--json needs --once; the server sends only Prometheus text")
        config = open_fleet(arguments, trusted=True)
        specs = chosen(config, arguments.boxes)
    except FleetFileError as error:
        complain(error)
        return USAGE

    return running.run(
        (_once if arguments.once else _serve)(specs, config, arguments), boxes=len(specs)
    )


async def _once(specs: Sequence[BoxSpec], config: FleetConfig, arguments: MetricsArguments) -> int:
    state = await gather_named(specs, config, arguments)
    now = time.time()
    if not arguments.json:
        sys.stdout.write(exposition(state, now).decode())
        return OK
    for family, rows in series(state, now):
        for labels, value in rows:
            shown = value if math.isfinite(value) else str(value)
            sys.stdout.write(
                json.dumps({"name": family.name, "labels": labels, "value": shown}) + "\n"
            )
    return OK


async def _serve(specs: Sequence[BoxSpec], config: FleetConfig, arguments: MetricsArguments) -> int:
    over = asyncio.Event()
    running.until_signalled(over)
    fleet = make_fleet(
        specs,
        accept_new_host_keys=arguments.accept_new_host_key,
        alerts=config.alerts,
        whole=len(specs) == len(config.boxes),
        following=followed(arguments, config, arguments.boxes),
    )
    host, port = arguments.listen
    try:
        server = MetricsServer(host, port, lambda: exposition(fleet.state, fleet.now()))
    except OSError as error:
        complain(f"cannot listen on {host}:{port}: {error.strerror}; choose another with --listen")
        return FAILED
    shown = f"[{host}]" if ":" in host else host
    complain(f"listening on http://{shown}:{server.port}{PATH}{_exposed(host)}")
    async with running_fleet(fleet):
        try:
            await over.wait()
        finally:
            server.stop()
    return OK


def _exposed(host: str) -> str:
    """Return a warning if other machines can read the figures at this address."""
    try:
        local = ipaddress.ip_address(host).is_loopback
    except ValueError:
        local = host == "localhost"
    if local:
        return ""
    return " (anyone who can reach this machine can read it, including names, prices and losses)"
