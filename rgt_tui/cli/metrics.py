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
from rgt_tui.cli.opening import choose_boxes, open_fleet, watch_fleet_file
from rgt_tui.cli.printing import print_error
from rgt_tui.cli.watch_arguments import MetricsArguments
from rgt_tui.fleet.config import FleetConfig, FleetFileError
from rgt_tui.health import Assessment, assess_box
from rgt_tui.language import record_text, translate
from rgt_tui.model import (
    AccountBill,
    BoxHealth,
    BoxSpec,
    BoxState,
    FleetState,
    GpuReading,
    LinkState,
    Sample,
    UnlistedItem,
    clean_text,
)
from rgt_tui.profiles import run_cost

MIB = 1 << 20
# See `format_exposition`.
_HEAD = re.compile(rb"^(# [A-Z]+ \w+_TOTAL)_total ", re.MULTILINE)

Value = float | int | None


class BoxReading(NamedTuple):
    """One box, as input of the families below."""

    box: BoxState
    state: Assessment
    now: float

    @property
    def is_up(self) -> bool:
        """Whether the box is connected and its figures are fresh."""
        return self.box.link is LinkState.LIVE and not self.state.stale

    @property
    def fresh_sample(self) -> Sample | None:
        """The newest sample; None if it is old, so that it is not exported as current."""
        # An absent series ends an alert rule's data; an old value would go on as if it were
        # measured.
        if self.is_up:
            return self.box.sample
        return None


Rows = Iterator[tuple[dict[str, str], Value]]


class MetricFamily(NamedTuple):
    """One metric."""

    name: str
    kind: str
    help: str
    rows: Callable[[BoxReading], Rows]


def _rows_per_gpu(read: Callable[[GpuReading], Value]) -> Callable[[BoxReading], Rows]:
    def read_rows(seen: BoxReading) -> Rows:
        # Label names as in dcgm-exporter, so that its dashboards and rules work unchanged.
        for gpu in seen.fresh_sample.gpus if seen.fresh_sample else ():
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
            # Replayed from a trace: marked, so that no rule takes it for a card.
            if gpu.sim:
                labels["sim"] = "true"
            yield labels, read(gpu)

    return read_rows


def _to_mib(value: int | None) -> Value:
    if value is None:
        return None
    # dcgm-exporter's unit for memory, while all of rgt's own series are in bytes.
    return value / MIB


def _free_vram(gpu: GpuReading) -> Value:
    known = gpu.vram_used is not None and gpu.vram_total is not None
    if known:
        return _to_mib((gpu.vram_total or 0) - (gpu.vram_used or 0))
    return None


def _rows_per_disk(field: str) -> Callable[[BoxReading], Rows]:
    def read_rows(seen: BoxReading) -> Rows:
        for disk in seen.fresh_sample.disks if seen.fresh_sample else ():
            # A mount that hangs has no figures, and 0 free bytes would raise an alarm.
            if disk.error is None:
                yield {"mount": disk.mount, "kind": disk.kind or ""}, getattr(disk, field)

    return read_rows


def _single_row(read: Callable[[BoxReading], Value]) -> Callable[[BoxReading], Rows]:
    def read_rows(seen: BoxReading) -> Rows:
        yield {}, read(seen)

    return read_rows


def _sample_row(read: Callable[[Sample], Value]) -> Callable[[BoxReading], Rows]:
    return _single_row(lambda seen: read(seen.fresh_sample) if seen.fresh_sample else None)


def _rows_per_run(field: str) -> Callable[[BoxReading], Rows]:
    def read_rows(seen: BoxReading) -> Rows:
        for run in seen.box.runs if seen.is_up else ():
            value = getattr(run, field)
            if field == "step" and run.counts_rows:
                value = None  # the number of its rows is no step
            yield {"run": run.name}, value

    return read_rows


def _progress_rows(seen: BoxReading) -> Rows:
    for run in seen.box.runs if seen.is_up else ():
        # The step has not moved since rgt watches, so its age is unknown, not 0.
        if run.progressed_at is not None:
            yield {"run": run.name}, max(0.0, seen.now - run.progressed_at)


def _cell_rows(seen: BoxReading) -> Rows:
    for queue in seen.box.queues if seen.is_up else ():
        states = [cell.state for cell in queue.cells]
        # All states, also with 0: a rule on `failed` needs the series before the first failure.
        for state in ("waiting", "running", "done", "failed", "interrupted"):
            yield {"queue": queue.path, "state": state}, states.count(state)


def _state_rows(seen: BoxReading) -> Rows:
    # One series per state, 1 or 0, as a StateSet of OpenMetrics.
    for health in BoxHealth:
        yield {"state": health.value}, int(seen.state.health is health)


def _alert_rows(seen: BoxReading) -> Rows:
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


def _meter_row(read: Callable[[BoxReading], Value]) -> Callable[[BoxReading], Rows]:
    def read_rows(seen: BoxReading) -> Rows:
        meter = seen.box.meter
        yield (
            # The currency is a label, because sums over currencies would be wrong.
            {"currency": meter.currency, "kind": meter.kind.value, "source": meter.source},
            read(seen),
        )

    return read_rows


def _run_costs(seen: BoxReading) -> Rows:
    for run in seen.box.runs if seen.is_up else ():
        cost = run_cost(seen.box, run.name, seen.now)
        if cost is not None:
            price = cost.per_1000_steps
            labels = {
                "run": run.name,
                "currency": price.currency,
                "at_least": str(price.at_least).lower(),
            }
            yield labels, price.value


def _meter_age(seen: BoxReading) -> Value:
    at = seen.box.meter.at
    if at is None:
        return None
    return max(0.0, seen.now - at)


def _training_processes(sample: Sample) -> Value:
    # The process table could not be read: "none" is not known.
    if sample.unseen is not None and not sample.procs:
        return None
    return len(sample.procs)


FAMILIES: tuple[MetricFamily, ...] = (
    MetricFamily("DCGM_FI_DEV_GPU_UTIL", "gauge", "GPU utilization (in %).",
                 _rows_per_gpu(lambda gpu: gpu.util)),
    MetricFamily("DCGM_FI_DEV_FB_USED", "gauge", "Framebuffer memory used (in MiB).",
                 _rows_per_gpu(lambda gpu: _to_mib(gpu.vram_used))),
    MetricFamily("DCGM_FI_DEV_FB_FREE", "gauge", "Framebuffer memory free (in MiB).",
                 _rows_per_gpu(_free_vram)),
    MetricFamily("DCGM_FI_DEV_FB_TOTAL", "gauge", "Framebuffer memory (in MiB).",
                 _rows_per_gpu(lambda gpu: _to_mib(gpu.vram_total))),
    MetricFamily("DCGM_FI_DEV_GPU_TEMP", "gauge", "GPU temperature (in C).",
                 _rows_per_gpu(lambda gpu: gpu.temp_c)),
    MetricFamily("DCGM_FI_DEV_POWER_USAGE", "gauge", "Power draw (in W).",
                 _rows_per_gpu(lambda gpu: gpu.power_w)),
    MetricFamily("DCGM_FI_DEV_POWER_MGMT_LIMIT", "gauge", "Power limit (in W).",
        _rows_per_gpu(lambda gpu: gpu.power_limit_w)),
    MetricFamily("DCGM_FI_DEV_SM_CLOCK", "gauge", "SM clock frequency (in MHz).",
                 _rows_per_gpu(lambda gpu: gpu.clock_mhz)),
    # A gauge of the last number, as dcgm-exporter has it: it says which error, not how many.
    MetricFamily("DCGM_FI_DEV_XID_ERRORS", "gauge", "Number of the last Xid.",
                 _rows_per_gpu(lambda gpu: gpu.xid)),
    MetricFamily("DCGM_FI_DEV_ECC_SBE_VOL_TOTAL", "counter", "Corrected memory errors.",
        _rows_per_gpu(lambda gpu: gpu.ecc_corrected)),
    MetricFamily(
        "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", "counter", "Uncorrected memory errors.",
        _rows_per_gpu(lambda gpu: gpu.ecc_uncorrected)
    ),
    MetricFamily("rgt_box_up", "gauge", "1 while a box is reached and its figures are fresh.",
                 _single_row(lambda s: int(s.is_up))),
    MetricFamily("rgt_box_state", "gauge", "1 for the state that a box is in.", _state_rows),
    MetricFamily("rgt_sample_age_seconds", "gauge", "Age of the newest sample.",
                 _single_row(lambda s: s.state.sample_age)),
    MetricFamily("rgt_alert", "gauge", "1 for each active alert.", _alert_rows),
    MetricFamily("rgt_meter_per_hour", "gauge", "Current price per hour.",
                 _meter_row(lambda seen: seen.box.meter.per_hour)),
    MetricFamily("rgt_meter_spent", "gauge", "Cost of the box so far.",
                 _meter_row(lambda seen: seen.box.meter.spent)),
    MetricFamily(
        # Separate series, because a lower bound must not look like a price.
        "rgt_meter_per_hour_at_least", "gauge", "1 where a part of the price is not known.",
        _meter_row(lambda seen: None if seen.box.meter.per_hour is None else int(seen.box.meter.at_least)),
    ),
    MetricFamily(
        "rgt_meter_spent_at_least", "gauge", "1 where rgt_meter_spent is a lower bound.",
        _meter_row(lambda seen: None if seen.box.meter.spent is None else int(seen.box.meter.spent_at_least)),
    ),
    MetricFamily(
        "rgt_meter_books_differ", "gauge",
        "The provider's charge minus rgt's own count, where the two differ.",
        _meter_row(lambda seen: seen.box.meter.books_differ),
    ),
    MetricFamily("rgt_run_cost_per_1000_steps", "gauge",
                 "Cost of the box per 1,000 steps of a run.", _run_costs),
    MetricFamily("rgt_meter_age_seconds", "gauge", "Age of the provider's reading.",
                 _single_row(_meter_age)),
    MetricFamily("rgt_memory_used_bytes", "gauge", "Charged to the container, with cache.",
                 _sample_row(lambda s: s.mem.used)),
    MetricFamily("rgt_memory_cache_bytes", "gauge", "Of that, inactive file cache.",
                 _sample_row(lambda s: s.mem.cache)),
    MetricFamily("rgt_memory_limit_bytes", "gauge", "The container's limit.",
                 _sample_row(lambda s: s.mem.limit)),
    MetricFamily("rgt_oom_kills", "gauge", "Processes killed for lack of memory.",
                 _sample_row(lambda s: s.mem.oom_kills)),
    MetricFamily("rgt_cpu_usable_cores", "gauge", "Cores that can be used.",
                 _sample_row(lambda s: s.cpu.usable)),
    MetricFamily("rgt_cpu_throttled_percent", "gauge", "Throttled periods.",
        _sample_row(lambda s: s.cpu.throttled_pct)),
    MetricFamily("rgt_disk_total_bytes", "gauge", "Size of a file system.",
                 _rows_per_disk("bytes_total")),
    MetricFamily("rgt_disk_used_bytes", "gauge", "Used of it.", _rows_per_disk("bytes_used")),
    MetricFamily("rgt_disk_free_bytes", "gauge", "Free to an unprivileged user.",
                 _rows_per_disk("bytes_free")),
    MetricFamily("rgt_inodes_total", "gauge", "Inodes of a file system.",
                 _rows_per_disk("inodes_total")),
    MetricFamily("rgt_inodes_used", "gauge", "Used of them.", _rows_per_disk("inodes_used")),
    MetricFamily("rgt_training_processes", "gauge", "Processes that train.",
                 _sample_row(_training_processes)),
    MetricFamily("rgt_cells", "gauge", "Cells of a queue by their state.", _cell_rows),
    MetricFamily("rgt_run_step", "gauge", "Newest step of a run.", _rows_per_run("step")),
    MetricFamily("rgt_run_total_steps", "gauge", "Planned steps of a run.",
                 _rows_per_run("total_steps")),
    MetricFamily("rgt_run_epoch", "gauge", "Newest epoch of a run.", _rows_per_run("epoch")),
    MetricFamily("rgt_run_loss", "gauge", "Newest training loss.", _rows_per_run("loss")),
    MetricFamily("rgt_run_best", "gauge", "Lowest validation loss.", _rows_per_run("best")),
    MetricFamily("rgt_run_throughput", "gauge", "Tokens, images or samples a second.",
                 _rows_per_run("throughput")),
    MetricFamily("rgt_run_progress_age_seconds", "gauge", "Time since the step last advanced.",
                 _progress_rows),
)  # fmt: skip
"""In the order of the output. A row without a value is left out: absent, never 0."""


class AccountFamily(NamedTuple):
    """One metric of an account of the fleet."""

    name: str
    help: str
    rows: Callable[[AccountBill, float], Rows]


def _rows_per_unlisted(
    read: Callable[[UnlistedItem], Value],
) -> Callable[[AccountBill, float], Rows]:
    def read_rows(bill: AccountBill, now: float) -> Rows:
        for thing in bill.things:
            # The box comes first in every row of this family, so all rows have the same labels.
            named = {
                "what": thing.what,
                "id": thing.id,
                # In English: with another language it would be another series.
                "name": record_text(thing.name),
                "currency": thing.currency,
            }
            yield named, read(thing)

    return read_rows


def _listed_age(
    what: str, read: Callable[[AccountBill], float | None]
) -> Callable[[AccountBill, float], Rows]:
    def read_rows(bill: AccountBill, now: float) -> Rows:
        at = read(bill)
        yield {"what": what}, None if at is None else max(0.0, now - at)

    return read_rows


ACCOUNT_FAMILIES: tuple[AccountFamily, ...] = (
    AccountFamily(
        "rgt_unlisted",
        "1 for each resource of an account that is in no box of the fleet; 0 if it costs nothing "
        "now.",
        _rows_per_unlisted(lambda thing: int(thing.bills)),
    ),
    AccountFamily(
        "rgt_unlisted_per_hour", "Its price per hour; absent if unknown.",
        _rows_per_unlisted(lambda thing: thing.per_hour),
    ),
    AccountFamily(
        "rgt_account_machines_age_seconds",
        "Time since the account's machines were last listed completely.",
        _listed_age("machines", lambda bill: bill.machines_at),
    ),
    AccountFamily(
        "rgt_account_leftovers_age_seconds",
        "The same for volumes, addresses, snapshots and the like.",
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
        for family, rows in iterate_series(self._state, self._now):
            metric = Metric(family.name, family.help, family.kind)
            for labels, value in rows:
                metric.add_sample(family.name, labels, value)
            yield metric


def format_exposition(state: FleetState, now: float) -> bytes:
    """Return the exposition text of a fleet at `now` (client clock)."""
    # dcgm-exporter's counters end in _TOTAL; the client library would append _total in their header
    # lines.
    return _HEAD.sub(rb"\1 ", generate_latest(Exposition(state, now)))


def iterate_series(
    state: FleetState, now: float
) -> Iterator[tuple[MetricFamily, list[tuple[dict[str, str], float]]]]:
    """Yield every family that has values, with its labels and values; label texts are cleaned."""
    boxes = [BoxReading(box, assess_box(box, now), now) for box in state.boxes]
    for family in FAMILIES:
        rows: dict[tuple[str, ...], tuple[dict[str, str], float]] = {}
        for seen in boxes:
            for labels, value in family.rows(seen):
                named = {
                    key: clean_text(text)
                    for key, text in {"box": seen.box.spec.name, **labels}.items()
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
                named = {key: clean_text(text) for key, text in whole.items()}
                if value is not None:
                    rows.setdefault(tuple(named.values()), (named, value))
        if rows:
            yield (
                MetricFamily(each.name, "gauge", each.help, lambda seen: iter(())),
                list(rows.values()),
            )


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
        class BoundHandler(_MetricsHandler):
            make = staticmethod(text)

        # By class, because the base class makes an IPv4 socket for every address.
        kind = _MetricsHttpServer
        if ":" in host:
            kind = _MetricsServer6
        self._server = kind((host, port), BoundHandler)
        self.port = int(self._server.server_address[1])
        # A daemon thread: a scrape that hangs must not keep the process alive.
        self._thread = threading.Thread(
            target=self._server.serve_forever, name="metrics", daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        """Stop listening."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _MetricsHttpServer(ThreadingHTTPServer):
    # For the same reason `stop` does not wait for running scrapes.
    block_on_close = False

    def server_bind(self) -> None:
        # The base class would look up the address's host name, which may take half a minute.
        socketserver.TCPServer.server_bind(self)

    def handle_error(self, *_: object) -> None:
        """Ignore errors: scrapers may hang up early, and our own errors were answered."""


class _MetricsServer6(_MetricsHttpServer):
    address_family = socket.AF_INET6


class _MetricsHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # Without a version in the request line, Python assumes 0.9 and sends no headers.
    default_request_version = "HTTP/1.1"
    # A client that connects and sends nothing would else occupy a thread without a limit.
    timeout = 10.0
    make: Callable[[], bytes]

    def do_GET(self) -> None:
        # Required by RFC 9112 of every server.
        if self.request_version == "HTTP/1.1" and not self.headers.get("Host"):
            self._send_answer(HTTPStatus.BAD_REQUEST, b"the Host header is missing\n")
        elif urlsplit(self.path).path != PATH:
            self._send_answer(HTTPStatus.NOT_FOUND, f"there is only {PATH}\n".encode())
        else:
            try:
                text = self.make()
            # a reading that cannot be exported must not end the exporter
            except Exception as error:
                self._send_answer(
                    HTTPStatus.INTERNAL_SERVER_ERROR, f"{type(error).__name__}: {error}\n".encode()
                )
            else:
                self._send_answer(HTTPStatus.OK, text, CONTENT_TYPE_PLAIN_0_0_4)

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_POST(self) -> None:
        self._send_answer(HTTPStatus.METHOD_NOT_ALLOWED, b"only GET and HEAD\n")

    def _send_answer(
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
        # Prometheus reads text only; a JSON stream without an end is `rgt watch --json`.
        if arguments.json and not arguments.once:
            raise FleetFileError(
                translate("--json needs --once; the server sends only Prometheus text")
            )
        config = open_fleet(arguments, trusted=True)
        specs = choose_boxes(config, arguments.boxes)
    except FleetFileError as error:
        print_error(error)
        return USAGE

    return running.run_coroutine(
        (_print_once if arguments.once else _serve_metrics)(specs, config, arguments),
        boxes=len(specs),
    )


async def _print_once(
    specs: Sequence[BoxSpec], config: FleetConfig, arguments: MetricsArguments
) -> int:
    state = await gather_named(specs, config, arguments)
    now = time.time()
    if not arguments.json:
        # The format is UTF-8 in every locale.
        sys.stdout.flush()
        sys.stdout.buffer.write(format_exposition(state, now))
        return OK
    for family, rows in iterate_series(state, now):
        for labels, value in rows:
            shown = value if math.isfinite(value) else str(value)
            sys.stdout.write(
                json.dumps({"name": family.name, "labels": labels, "value": shown}) + "\n"
            )
    return OK


async def _serve_metrics(
    specs: Sequence[BoxSpec], config: FleetConfig, arguments: MetricsArguments
) -> int:
    over = asyncio.Event()
    running.until_signalled(over)
    fleet = make_fleet(
        specs,
        accept_new_host_keys=arguments.accept_new_host_key,
        alerts=config.alerts,
        whole=len(specs) == len(config.boxes),
        following=watch_fleet_file(arguments, config, arguments.boxes),
    )
    host, port = arguments.listen
    try:
        # Before connecting: a taken port is reported at once, and no box is touched.
        server = MetricsServer(host, port, lambda: format_exposition(fleet.state, fleet.now()))
    except OSError as error:
        print_error(
            f"cannot listen on {host}:{port}: {error.strerror}; choose another with --listen"
        )
        return FAILED
    # IPv6 in a URL needs brackets (RFC 3986).
    shown = f"[{host}]" if ":" in host else host
    print_error(f"listening on http://{shown}:{server.port}{PATH}{_exposure_warning(host)}")
    async with running_fleet(fleet):
        try:
            await over.wait()
        finally:
            server.stop()
    return OK


def _exposure_warning(host: str) -> str:
    """Return a warning if other machines can read the figures at this address."""
    try:
        local = ipaddress.ip_address(host).is_loopback
    except ValueError:
        # A name may resolve to any address, so only this one is taken as local.
        local = host == "localhost"
    if local:
        return ""
    return translate(
        " (anyone who can reach this machine can read it, including names, prices and losses)"
    )
