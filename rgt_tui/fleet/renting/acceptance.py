"""Check whether a machine is worth its price, by measurements.

They are compared with the request and with earlier checks of similar machines.
"""

from __future__ import annotations

import enum
import math
import re
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from rgt_tui import files
from rgt_tui.fleet.errands import connected_agent, platform_settings
from rgt_tui.health import LIMITS
from rgt_tui.language import translate
from rgt_tui.model import BoxSpec, FrozenStruct, Profile, how_many, pct, size
from rgt_tui.model.gpu_names import describe_gpu_mismatch
from rgt_tui.profiles import load_profile
from rgt_tui.ssh import (
    CommandFailed,
    PausableDeadline,
    Unreachable,
    decode_answer,
    extract_record,
    find_torch,
    run_command,
)

SECONDS = 90.0
"""Default limit for all measurements."""
MOST_BYTES = 1 << 20
DISK_BYTES = 256 << 20
"""Maximum bytes written on the box; the test file is deleted."""
QUICK_BYTES = 16 << 20
DOUBTFUL, REFUSED = 0.7, 0.4
"""Thresholds as a share of the median of its peers."""
SLOW_ANSWER_S, SLOW_NET_MBS = 3.0, 1.0
KEPT = 400
"""Number of earlier checks kept, the newest."""


class RowVerdict(enum.StrEnum):
    """The verdict of a row."""

    OK = "ok"
    DOUBTFUL = "doubtful"
    REFUSE = "refuse"


class CheckRow(FrozenStruct):
    """One result of the check."""

    id: str
    verdict: RowVerdict
    text: str
    """The measured value and its reference."""
    advice: str = ""
    """What to do; empty = nothing."""


class NamedGpu(FrozenStruct):
    """A GPU with the driver's name for it."""

    name: str | None = None
    total: int | None = None
    error: str | None = None


class TrialDevice(FrozenStruct):
    """A GPU on which torch has computed, or failed to."""

    device: int = 0
    name: str | None = None
    tflops: float | None = None
    """From products of half-precision matrices."""
    to_gpu_gbs: float | None = None
    """GB/s from pinned memory."""
    from_gpu_gbs: float | None = None
    error: str | None = None


class TorchTrial(FrozenStruct):
    """Results of one Python's torch."""

    torch: str | None = None
    error: str | None = None
    built_for: str | None = None
    """Version of CUDA or ROCm; None = built for CPU only."""
    count: int | None = None
    devices: tuple[TrialDevice, ...] = ()
    seconds: float | None = None


class DiskTrial(FrozenStruct):
    """Measurements of a directory."""

    dir: str = ""
    error: str | None = None
    free: int | None = None
    total: int | None = None
    free_inodes: int | None = None
    inodes: int | None = None
    write_mbs: float | None = None
    read_mbs: float | None = None


class NetTrial(FrozenStruct):
    """Measurements of an address."""

    url: str = ""
    error: str | None = None
    status: int | None = None
    first_byte_s: float | None = None
    bytes: int | None = None
    mbs: float | None = None
    proxy: str | None = None
    """The proxy used, without user name and password; None = direct."""


class BoxMeasurements(FrozenStruct):
    """The box's measurements; the fields of ``rgt_box``'s ``measure``."""

    at: float
    gpus: tuple[NamedGpu, ...] = ()
    gpu_error: str | None = None
    torch: TorchTrial | None = None
    """None = no Python with torch was found."""
    disk: DiskTrial = DiskTrial()
    net: tuple[NetTrial, ...] = ()
    route_error: str | None = None
    """Why the proxy of jobs could not be set up; the addresses were then measured without it."""


class EarlierCheck(FrozenStruct, omit_defaults=True):
    """Measurements of an earlier check, of this or another box."""

    at: float
    box: str
    platform: str
    gpu: str = ""
    tflops: float | None = None
    to_gpu_gbs: float | None = None
    write_mbs: float | None = None
    read_mbs: float | None = None


class ExpectedGpus(FrozenStruct):
    """The requested GPUs; None = not specified."""

    gpu: str | None = None
    count: int | None = None


def expected_of(spec: BoxSpec) -> ExpectedGpus:
    """Return the GPUs with which the box was rented, according to the fleet file."""
    asked = spec.asked
    if asked is None:
        return ExpectedGpus()
    return ExpectedGpus(asked.gpu, asked.gpu_count if asked.gpu else None)


def addresses(profile: Profile) -> tuple[str, ...]:
    """Return the platform's mirrors.

    The box adds Hugging Face and the package index itself, as its jobs reach them.
    """
    texts = [*profile.network.mirrors, *profile.overrides.env.values()]
    found = [match for text in texts for match in re.findall(r"https?://[^\s,;'\")]+", text)]
    # Each costs some seconds of a box that is billed already.
    return tuple(dict.fromkeys(found))[:6]


def data_folder(spec: BoxSpec, profile: Profile) -> str | None:
    """Return where the runs of a box write, as opposed to durable storage.

    None = its home directory.
    """
    if profile.overrides.data_dir is not None:
        return profile.overrides.data_dir
    mounts = [mount for mount in spec.mounts if mount.startswith("/") and mount != "/"]
    # Not below durable storage: its speed is not that of the directory where runs write.
    scratch = [
        mount
        for mount in mounts
        if not f"{spec.durable or ''}/".startswith(f"{mount.rstrip('/')}/")
    ]
    return next(iter((*scratch, *mounts)), None)


async def measure_box(
    spec: BoxSpec,
    *,
    seconds: float = SECONDS,
    quick: bool = False,
    accept_new_host_keys: bool = False,
) -> BoxMeasurements:
    """Connect to a box and measure it.

    Args:
        spec: The box.
        seconds: Limit for the measurements.
        quick: Skip the network, and write little.
        accept_new_host_keys: Write the key of an unknown host to known_hosts.

    Raises:
        BoxError: it could not be reached, or its answer is unusable.
    """
    profile = load_profile(spec.profile)
    # A Python that the fleet file names is the one that will train.
    pythons = (spec.python,) if spec.python else profile.overrides.python
    # Part of these seconds for the login, the agent, and finding a Python with torch.
    login_seconds = 15.0
    left = max(10.0, seconds - login_seconds)
    words = [
        "measure",
        "--seconds",
        f"{left:g}",
        "--bytes",
        str(QUICK_BYTES if quick else DISK_BYTES),
    ]
    folder = data_folder(spec, profile)
    if folder:
        words += ["--dir", folder]
    if not quick:
        words += ["--platform", *(word for url in addresses(profile) for word in ("--url", url))]
    platform = msgspec.json.encode(platform_settings(profile))
    try:
        async with (
            # It pauses while a person is asked for a host key or a password.
            PausableDeadline(seconds + login_seconds),
            connected_agent(spec, accept_new_host_keys=accept_new_host_keys) as (
                connection,
                deployed,
            ),
        ):
            python, torch = await find_torch(connection, pythons, deployed.python)
            if torch is not None:
                words += ["--python", python]
            if not quick:
                words += ["--index", python]
            command = deployed.build_command(*words)
            done = await run_command(
                connection,
                command,
                data=platform,
                seconds=left + login_seconds,
                most_bytes=MOST_BYTES,
                name="measuring",
            )
    except TimeoutError as error:
        raise Unreachable(
            translate("not done within {seconds:g} s", seconds=seconds + login_seconds)
        ) from error
    # The answer is the last record; libraries may print before it.
    for line in reversed(done.out.splitlines()):
        if told := extract_record(line):
            try:
                return decode_answer(told, BoxMeasurements, "the measurement")
            except CommandFailed:
                break
    raise CommandFailed(
        translate(
            "the agent's answer cannot be used: {words}",
            words=done.words[:200] or translate("it said nothing"),
        )
    )


def judge_measurements(
    found: BoxMeasurements, expected: ExpectedGpus, earlier: Sequence[EarlierCheck], platform: str
) -> tuple[CheckRow, ...]:
    """Return a row for each result of a check. Pure function.

    Args:
        found: The box's measurements.
        expected: The requested GPUs.
        earlier: Checks before this one, of all boxes.
        platform: Profile of the box.
    """
    rows = [
        _judge_gpus(found, expected),
        _judge_cuda(found, expected),
        *_judge_speeds(found, earlier),
    ]
    rows += [
        *_judge_disk(found.disk, [one for one in earlier if one.platform == platform]),
        *map(_judge_net, found.net),
    ]
    if found.route_error is not None:
        rows.append(
            CheckRow(
                "network route",
                RowVerdict.DOUBTFUL,
                found.route_error,
                "rgt mirrors shows what jobs start with",
            )
        )
    return tuple(rows)


def _judge_gpus(found: BoxMeasurements, expected: ExpectedGpus) -> CheckRow:
    names = [gpu.name or "unnamed" for gpu in found.gpus]
    if names:
        text = f"{len(names)} × {', '.join(dict.fromkeys(names))}"
    else:
        text = translate("no GPU")
    text += f" ({found.gpu_error})" if found.gpu_error else ""
    if expected.gpu is None:
        wanted = ""
    else:
        wanted = translate(
            ", requested {count} × {gpu}", count=expected.count or 1, gpu=expected.gpu
        )
    # A broken card is reported before a wrong one: both mean another machine.
    broken = [f"{gpu.name}: {gpu.error}" for gpu in found.gpus if gpu.error]
    end = translate("not as requested: destroy it, and rent another")
    if broken:
        return CheckRow(
            "gpu",
            RowVerdict.REFUSE,
            f"{text}; {'; '.join(broken)}",
            translate("destroy it, and rent another"),
        )
    if describe_gpu_mismatch(
        expected.gpu, expected.count, [(gpu.name or "unnamed", gpu.total) for gpu in found.gpus]
    ):
        return CheckRow("gpu", RowVerdict.REFUSE, f"{text}{wanted}", end)
    if not names:
        return CheckRow(
            "gpu", RowVerdict.OK, translate("{words}; none was requested", words=text), ""
        )
    return CheckRow("gpu", RowVerdict.OK, f"{text}{wanted}")


def _judge_cuda(found: BoxMeasurements, expected: ExpectedGpus) -> CheckRow:
    torch, cards = found.torch, len(found.gpus)
    # A box without a GPU, if none was asked for, has nothing to prove here.
    wanted = bool(cards) or expected.gpu is not None
    host = translate(
        "the driver lists the GPU, but CUDA does not work: destroy it, and rent another"
    )
    # Doubtful, not refused: a missing torch is the image's fault and not the machine's.
    if torch is None:
        if not wanted:
            return CheckRow(
                "cuda", RowVerdict.OK, translate("no GPU, and no Python with torch"), ""
            )
        text = translate("no Python with torch was found, so it is unproven that the GPUs compute")
        return CheckRow(
            "cuda",
            RowVerdict.DOUBTFUL,
            text,
            translate("install torch, and check again before you pay for long"),
        )
    if torch.torch is None:
        if wanted:
            verdict = RowVerdict.DOUBTFUL
        else:
            verdict = RowVerdict.OK
        return CheckRow(
            "cuda",
            verdict,
            f"torch cannot be imported: {torch.error}",
            translate("fix its installation, and check again"),
        )
    if not wanted:
        return CheckRow(
            "cuda",
            RowVerdict.OK,
            translate("torch {torch}; there is no GPU to compute on", torch=torch.torch),
            "",
        )
    if torch.built_for is None:
        advice = translate("install a torch that was built for CUDA, and check again")
        return CheckRow(
            "cuda",
            RowVerdict.DOUBTFUL,
            translate("torch {torch} was built for the CPU alone", torch=torch.torch),
            advice,
        )
    broken = [f"GPU {one.device}: {one.error}" for one in torch.devices if one.error]
    # "not done" is the time limit, which proves nothing.
    if torch.count is None and torch.error and not torch.error.startswith("not done"):
        return CheckRow("cuda", RowVerdict.REFUSE, f"torch {torch.torch}: {torch.error}", host)
    if broken:
        return CheckRow(
            "cuda", RowVerdict.REFUSE, f"torch {torch.torch}: {'; '.join(broken)}", host
        )
    # The driver may list cards on which CUDA cannot compute.
    if torch.count is not None and torch.count < max(cards, expected.count or 0):
        text = translate(
            "torch {torch} sees {count} of {expected} GPUs",
            torch=torch.torch,
            count=torch.count,
            expected=max(cards, expected.count or 0),
        )
        return CheckRow("cuda", RowVerdict.REFUSE, text, host)
    if torch.error or torch.count is None or len(torch.devices) < torch.count:
        text = f"torch {torch.torch}: {torch.error or translate('not every GPU was tested')}"
        return CheckRow(
            "cuda",
            RowVerdict.DOUBTFUL,
            text,
            translate("check again; if it hangs again, destroy it, and rent another"),
        )
    return CheckRow(
        "cuda",
        RowVerdict.OK,
        translate(
            "torch {torch} computes on {gpus}",
            torch=torch.torch,
            gpus=how_many(torch.count, "GPU"),
        ),
    )


SPEEDS = (
    ("gemm", "TFLOP/s", "tflops"),
    ("pcie", "GB/s", "to_gpu_gbs"),
)
DISK_SPEEDS = (("disk-write", "write_mbs"), ("disk-read", "read_mbs"))
"""Row id, unit and field of a measurement; the earlier checks have the same fields."""
SPEED_NAMES = {
    "gemm": "matrix products",
    "pcie": "to the GPU",
    "disk-write": "written",
    "disk-read": "read",
}


def _judge_speeds(found: BoxMeasurements, earlier: Sequence[EarlierCheck]) -> Iterator[CheckRow]:
    devices = [one for one in (found.torch.devices if found.torch else ()) if one.error is None]
    # A GPU slower than this share of the fastest one slows down all of them.
    uneven = 0.8
    for id_, unit, field in SPEEDS:
        known = [
            (value, one)
            for one in devices
            if (value := _finite_or_none(getattr(one, field))) is not None
        ]
        if not known:
            continue
        # The slowest, because all ranks wait for it in each step.
        slowest, card = min(known, key=lambda pair: pair[0])
        fastest = max(value for value, _ in known)
        verdict, against = _compare_with_peers(
            slowest, _peer_values(earlier, field, card.name or ""), unit
        )
        slow = ""
        if len(known) > 1:
            slow = translate(" at the slowest of {count}", count=len(known))
        text = f"{translate(SPEED_NAMES[id_])} {slowest:.1f} {unit}{slow}{against}"
        # Within one machine, so that a first check without peers finds it, too.
        if verdict is RowVerdict.OK and slowest < uneven * fastest:
            verdict, text = (
                RowVerdict.DOUBTFUL,
                translate("{words}; the fastest has {fastest:.1f}", words=text, fastest=fastest),
            )
        advice = translate(
            "heat, a power cap, or a shared GPU: rgt shows them while it watches; "
            "otherwise rent another"
        )
        yield CheckRow(id_, verdict, text, "" if verdict is RowVerdict.OK else advice)


def _peer_values(
    earlier: Sequence[EarlierCheck], field: str, gpu: str | None = None
) -> list[float]:
    alike = [one for one in earlier if gpu is None or one.gpu == gpu]
    return [value for one in alike if (value := _finite_or_none(getattr(one, field))) is not None]


def _compare_with_peers(value: float, peers: Sequence[float], unit: str) -> tuple[RowVerdict, str]:
    """Compare a speed with the median of earlier checks."""
    if not peers:
        return RowVerdict.OK, translate("; the first of its kind that was checked")
    # The median: one bad machine among the earlier ones does not lower the bar.
    median = statistics.median(peers)
    if median > 0:
        share = value / median
    else:
        share = math.inf
    if share < REFUSED:
        verdict = RowVerdict.REFUSE
    elif share < DOUBTFUL:
        verdict = RowVerdict.DOUBTFUL
    else:
        verdict = RowVerdict.OK
    return verdict, translate(
        "; the median of {peers} earlier is {median:.1f} {unit}",
        peers=len(peers),
        median=median,
        unit=unit,
    )


def _judge_disk(disk: DiskTrial, peers: Sequence[EarlierCheck]) -> Iterator[CheckRow]:
    if disk.error is not None:
        yield CheckRow(
            "disk",
            RowVerdict.REFUSE,
            disk.error,
            translate("name a data disk that can be written (`mounts`), or rent another"),
        )
        return
    slow_disk_mbs = 20.0
    for id_, field in DISK_SPEEDS:
        value = _finite_or_none(getattr(disk, field))
        if value is None:
            continue
        verdict, against = _compare_with_peers(value, _peer_values(peers, field), "MB/s")
        if verdict is RowVerdict.REFUSE:
            verdict = RowVerdict.DOUBTFUL  # a slow disk may be shared, and idle in an hour
        if value < slow_disk_mbs:
            verdict = RowVerdict.DOUBTFUL
        if verdict is RowVerdict.OK:
            advice = ""
        else:
            advice = translate("checkpoints and data will be slow; another directory may do better")
        yield CheckRow(
            id_,
            verdict,
            f"{disk.dir}: {value:.0f} MB/s {translate(SPEED_NAMES[id_])}{against}",
            advice,
        )
    for id_, free, total in (
        ("space", disk.free, disk.total),
        ("inodes", disk.free_inodes, disk.inodes),
    ):
        if free is None or not total:
            continue
        used = 100.0 * (1.0 - free / total)
        if used >= LIMITS.disk_error_pct:
            verdict = RowVerdict.REFUSE
        elif used >= LIMITS.disk_warn_pct:
            verdict = RowVerdict.DOUBTFUL
        else:
            verdict = RowVerdict.OK
        if id_ == "space":
            shown = size(free)
        else:
            shown = f"{free:,} inodes"
        yield CheckRow(
            id_,
            verdict,
            translate("{dir}: {shown} free, {pct} used", dir=disk.dir, shown=shown, pct=pct(used)),
            "" if verdict is RowVerdict.OK else translate("free space, or choose a larger disk"),
        )


def _judge_net(net: NetTrial) -> CheckRow:
    where = net.url.partition("://")[2].partition("/")[0] or net.url
    advice = translate("rgt profiles names the platform's mirrors and proxy")
    route = ""
    if net.proxy:
        route = translate(", through the proxy {proxy}", proxy=net.proxy)
    if net.error is not None or net.first_byte_s is None:
        trouble = net.error or translate("it has not answered in time")
        return CheckRow(f"network {where}", RowVerdict.DOUBTFUL, trouble + route, advice)
    speed = ""
    # Below 1 MiB the time is that of the connection, not of the data.
    if net.mbs is not None and (net.bytes or 0) >= 1 << 20:
        speed = f", {net.mbs:.1f} MB/s"
    status = ""
    if net.status != 200:
        status = translate(", status {status}", status=net.status)
    text = translate(
        "first byte after {first_byte_s:.2f} s{speed}{status}{route}",
        first_byte_s=net.first_byte_s,
        speed=speed,
        status=status,
        route=route,
    )
    slow = net.first_byte_s > SLOW_ANSWER_S or (bool(speed) and (net.mbs or 0.0) < SLOW_NET_MBS)
    return CheckRow(
        f"network {where}",
        RowVerdict.DOUBTFUL if slow else RowVerdict.OK,
        text,
        advice if slow else "",
    )


def _finite_or_none(value: float | None) -> float | None:
    if value is not None and math.isfinite(value) and value > 0:
        return value
    return None


def checks_path(env: Mapping[str, str]) -> Path:
    """Return the file of earlier checks."""
    return files.state_directory(env) / "checks.json"


def load_checks(path: Path) -> tuple[EarlierCheck, ...]:
    """Return the earlier checks; empty if unreadable, in which case nothing is compared."""
    try:
        with files.open_regular(path) as file:
            return msgspec.json.decode(file.read(), type=tuple[EarlierCheck, ...])
    except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return ()


def remembered(spec: BoxSpec, found: BoxMeasurements) -> EarlierCheck:
    """Return the record of a check for comparison with later ones."""
    devices = [one for one in (found.torch.devices if found.torch else ()) if one.error is None]

    # The slowest GPU of a box, as it is judged.
    def least_of(read: Callable[[TrialDevice], float | None]) -> float | None:
        return min(
            (value for one in devices if (value := _finite_or_none(read(one))) is not None),
            default=None,
        )

    return EarlierCheck(
        at=found.at,
        box=spec.name,
        platform=spec.profile,
        gpu=(devices[0].name if devices else "") or "",
        tflops=least_of(lambda one: one.tflops),
        to_gpu_gbs=least_of(lambda one: one.to_gpu_gbs),
        write_mbs=_finite_or_none(found.disk.write_mbs),
        read_mbs=_finite_or_none(found.disk.read_mbs),
    )


def keep_check(path: Path, one: EarlierCheck) -> None:
    """Store a check; it replaces the earlier one of its box, and the oldest are dropped.

    Raises:
        OSError: it cannot be written.
    """
    with files.locked_file(path):
        # Read within the lock: two checks at the same time would lose one.
        others = [known for known in load_checks(path) if known.box != one.box]
        files.replace_file(path, msgspec.json.encode([*others, one][-KEPT:]))
