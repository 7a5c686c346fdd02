"""The ``measure`` verb: benchmarks this box within a time limit, without leaving files."""

from __future__ import annotations

import errno
import json
import os
import pkgutil
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.parse
import urllib.request

from rgt_wire import USER_AGENT

from rgt_box import jsonline, options, place
from rgt_box.queue import cell_command, queue_file
from rgt_box.sampling.gpu import GpuSampler

TYPE_CHECKING = False
if TYPE_CHECKING:
    from rgt_wire import JsonObject

    Found = JsonObject

HELP = """
usage: measure [--dir DIR] [--bytes N] [--python PATH] [--index PATH] [--url URL ...] [--seconds S]
       measure ... --platform  < {"env": {NAME: VALUE}, "hooks": {"env": LINE, "proxy": LINE, "no_proxy": [NAME...]}}

Test this box and print one JSON object: the GPUs that its driver names; with --python, whether that Python's torch can
compute on them, how fast, and how fast bytes get there and back; how fast DIR can be written and read, and what is free
there; how soon and how fast each URL answers. All of it ends within --seconds (default: 80); nothing is left behind.

  --dir DIR      where the data will be (default: the home directory)
  --bytes N      write at most this many bytes there (default: 256 MiB, and 5% of what is free)
  --python PATH  a Python that has torch; without it the GPUs are not tested
  --index PATH   a Python whose pip names the package index that it would use, which is tested as well

  --platform     test with the environment, the mirrors and the proxy that the cells of jobs would get, and Hugging Face
                 as well; what `mirrors off` has turned off stays off

Example: rgt-box.pyz measure --dir /workspace --python /usr/bin/python3 --url https://huggingface.co/
"""

DISK_SECONDS = 3.0
"""Maximum seconds of writing, and of reading."""
DISK_BYTES = 256 << 20
BLOCK = 4 << 20
NET_SECONDS = 8.0
NET_BYTES = 8 << 20
HUB = "https://huggingface.co/"
SHOW_ENVIRONMENT = "import json, os; print('\\n' + json.dumps(dict(os.environ)), end='')"
MOST_OUTPUT = 1 << 20
INDEX = """
import sys
try:
    from pip._internal.configuration import Configuration
    found = Configuration(isolated=False); found.load()
    told = dict(found.items())
    flat = {}
    for value in told.values():
        flat.update(value if isinstance(value, dict) else {})
    flat.update({key: value for key, value in told.items() if isinstance(value, str)})
    url = next((flat[key] for key in (":env:.index-url", "install.index-url", "global.index-url") if key in flat), "")
    if not url:
        from pip._internal.models.index import PyPI
        url = PyPI.simple_url
    print("RGT\\t" + url)
except Exception:
    pass
"""
"""pip has no public API for the index it would use. If these internal names changed, no index is
tested."""


def main(argv: list[str]) -> int:
    """Run the verb; returns the exit status."""
    spec = {
        "--dir": "str",
        "--bytes": "int",
        "--python": "str",
        "--index": "str",
        "--url": "list",
        "--seconds": "float",
        "--platform": "flag",
    }
    found = options.parse_or_exit(argv, spec, HELP)
    seconds = 80.0
    until = time.monotonic() + (found["seconds"] or seconds)
    urls: list[str] = list(found["url"])
    route_error = None
    if found["platform"]:
        # Use the cells' environment for torch too: a module loaded by a hook may provide its
        # libraries.
        env, route_error = job_environment(
            jsonline.loads_dict(sys.stdin.buffer.read(1 << 20)) or {}
        )
        os.environ.clear()
        os.environ.update(env)
        urls.append(env.get("HF_ENDPOINT") or HUB)
    if found["index"]:
        index = find_package_index(found["index"])
    else:
        index = None
    report: Found = {"at": round(time.time(), 3), "index": index, "route_error": route_error}
    wanted = list(urls)
    if index:
        wanted.append(index)
    net: list[Found] = [{"url": url} for url in dict.fromkeys(wanted)]
    # Daemons: a download that hangs must not keep the verb from ending at its limit.
    asking = [threading.Thread(target=measure_download, args=(row,), daemon=True) for row in net]
    for thread in asking:
        thread.start()
    report.update(list_gpus())
    # Measure the disk before torch: importing torch would disturb the measurement.
    report["disk"] = measure_disk(
        found["dir"] or os.path.expanduser("~"), found["bytes"] or DISK_BYTES
    )
    if found["python"]:
        report["torch"] = run_torch_trial(found["python"], max(5.0, until - time.monotonic() - 5.0))
    else:
        report["torch"] = None
    for thread in asking:
        thread.join(max(0.1, until - time.monotonic()))
    report["net"] = [dict(row) for row in net]
    jsonline.print_frame(report)
    return 0


def job_environment(told: Found) -> tuple[dict[str, str], str | None]:
    """Return a cell's environment with the platform's proxy on, and why a hook failed, if it did.

    Args:
        told: ``env`` and ``hooks`` of the platform's profile.
    """
    off = set(queue_file.names_turned_off(place.state_dir()))
    given = told.get("env")
    if isinstance(given, dict):
        env = queue_file.environment(given)
    else:
        env = {}
    env = {name: value for name, value in env.items() if name not in off}
    env.update(os.environ)
    hooks = {
        key: line
        for key, line in cell_command.valid_hooks(told.get("hooks")).items()
        if key not in off
    }
    show = [sys.executable, "-c", SHOW_ENVIRONMENT]
    words = cell_command.wrap_with_hooks(show, hooks, env)
    if words == show:
        return env, None
    try:
        hook_seconds = 10.0
        done = subprocess.run(
            words, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            timeout=hook_seconds, check=False, cwd="/",
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError) as error:
        return env, f"the platform's hook for jobs: {error}"
    said = done.stderr.decode("utf-8", "replace").strip().splitlines()
    failed = next((line for line in reversed(said) if line.startswith("rgt: ")), None)
    shown = parse_object(done.stdout.decode("utf-8", "replace").rpartition("\n")[2])
    return ({**queue_file.environment(shown)} if shown else env), failed


def list_gpus() -> Found:
    """Return the GPUs that the driver lists."""
    try:
        gpu_wait = 10.0
        rows, error = GpuSampler(None, place.state_dir()).read_raw(gpu_wait)
    except Exception as trouble:  # a driver error must not stop the other tests
        return {"gpus": [], "gpu_error": f"{type(trouble).__name__}: {trouble}"}
    named = [
        {"name": gpu.get("name"), "total": gpu.get("vram_total"), "error": gpu.get("error")}
        for gpu in rows
    ]
    return {"gpus": named, "gpu_error": error}


def run_torch_trial(python: str, seconds: float) -> Found:
    """Run the torch test in a Python for up to `seconds`; returns its results so far."""
    source = pkgutil.get_data("rgt_box.commands", "torch_trial.py")
    if source is None:
        return {"error": "this agent was built without its torch test", "devices": []}
    words = [python, "-c", source.decode("utf-8"), str(seconds)]
    begun = time.monotonic()
    with tempfile.TemporaryFile() as out:
        try:
            child = subprocess.Popen(
                words,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                cwd="/",
                start_new_session=True,
            )
        except OSError as error:
            return {"error": f"{python} cannot be run: {error.strerror}", "devices": []}
        late = False
        try:
            status = child.wait(seconds)
        except subprocess.TimeoutExpired:
            late = True
            status = None
            kill_process_group(child)
        finally:
            if child.poll() is None:
                kill_process_group(child)
        out.seek(0)
        text = out.read(MOST_OUTPUT).decode("utf-8", "replace")
    rows = [row for row in map(parse_object, text.splitlines()) if row is not None]
    told: Found = dict(
        next((row for row in rows if "torch" in row), {"torch": None, "error": None})
    )
    told["count"] = told.pop("devices", None)
    told["devices"] = [row for row in rows if "device" in row]
    told["seconds"] = round(time.monotonic() - begun, 1)
    if late:
        told["error"] = told.get("error") or f"not done within {seconds:.0f} s"
    elif status and not told.get("error"):
        last = ""
        for line in text.splitlines():
            last = line.strip() or last
        told["error"] = f"it ended with {status}: {last[:200]}"
    return told


def kill_process_group(child: subprocess.Popen[bytes]) -> None:
    """Kill a child's process group and wait for the child."""
    try:
        os.killpg(child.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    child.wait()


def parse_object(line: str) -> Found | None:
    """Return the JSON object in an output line; None for any other output."""
    if not line.startswith("{"):
        return None
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if isinstance(found, dict):
        return found
    return None


def measure_disk(folder: str, wanted: int) -> Found:
    """Measure writing and reading with an unnamed file, so that no file remains."""
    told: Found = {"dir": folder, "error": None}
    try:
        room = os.statvfs(folder)
        told.update(
            free=room.f_bavail * room.f_frsize,
            total=room.f_blocks * room.f_frsize,
            # A file system without an inode limit reports 0 inodes.
            free_inodes=room.f_favail if room.f_files else None,
            inodes=room.f_files or None,
        )
        # Maximum share of the free space that is written.
        disk_share = 0.05
        most = min(wanted, int(told["free"] * disk_share))
        if most < BLOCK:
            told["error"] = "too little space is free to test it"
            return told
        with tempfile.TemporaryFile(dir=folder, prefix=".rgt-measure-", buffering=0) as file:
            fd = file.fileno()
            written, passed = write_random_data(fd, most)
            told["write_mbs"] = round(written / max(passed, 1e-6) / 1e6, 1)
            # The data was just written, so it would be read from memory.
            evict_from_page_cache(fd)
            os.lseek(fd, 0, os.SEEK_SET)
            read, passed = read_all(fd)
            told["read_mbs"] = round(read / max(passed, 1e-6) / 1e6, 1)
            told["bytes"] = written
    except OSError as error:
        told["error"] = f"{folder}: {error.strerror or type(error).__name__}"
    return told


def write_random_data(fd: int, most: int) -> tuple[int, float]:
    """Write random data for up to `DISK_SECONDS` and fsync it; returns bytes and seconds."""
    # Random, because a file system that compresses would store zeros at no cost.
    block = os.urandom(BLOCK)
    begun = time.monotonic()
    written = 0
    while written + len(block) <= most and time.monotonic() - begun < DISK_SECONDS:
        written += os.write(fd, block)
    # Otherwise the speed of memory would be measured.
    os.fsync(fd)
    return written, time.monotonic() - begun


def read_all(fd: int) -> tuple[int, float]:
    """Read for up to `DISK_SECONDS`; returns bytes and seconds."""
    begun = time.monotonic()
    read = 0
    while time.monotonic() - begun < DISK_SECONDS:
        part = os.read(fd, BLOCK)
        if not part:
            break
        read += len(part)
    return read, time.monotonic() - begun


def evict_from_page_cache(fd: int) -> None:
    """Ask the kernel to drop a file from its page cache; ignored if not supported."""
    try:
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    except (AttributeError, OSError) as error:
        if isinstance(error, OSError) and error.errno not in (errno.EINVAL, errno.ENOSYS):
            raise


def find_package_index(python: str) -> str | None:
    """Return the package index that a Python's pip would use; None if unknown."""
    try:
        done = subprocess.run(
            [python, "-c", INDEX], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=NET_SECONDS, check=False, cwd="/",
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return None
    for line in done.stdout[:MOST_OUTPUT].decode("utf-8", "replace").splitlines():
        if line.startswith("RGT\thttp"):
            return line[4:].strip()
    return None


def find_proxy(url: str) -> str | None:
    """Return host:port of the proxy that applies to a URL; None if it is reached directly."""
    parts = urllib.parse.urlsplit(url)
    if urllib.request.proxy_bypass(parts.hostname or ""):
        return None
    proxy = urllib.request.getproxies().get(parts.scheme)
    # Strip the scheme and any user name and password.
    if proxy:
        return re.sub(r"^(?:\w+://)?(?:.*@)?|/+$", "", proxy)
    return None


def measure_download(row: Found) -> None:
    """Download the start of a page through the box's proxies; record first-byte time and speed."""
    begun = time.monotonic()
    row["proxy"] = find_proxy(row["url"])
    try:
        request = urllib.request.Request(row["url"], headers={"User-Agent": USER_AGENT})
        with urllib.request.urlopen(request, timeout=NET_SECONDS) as answer:
            row["status"] = answer.status
            # The first byte includes name resolution, TLS and the server's own time; the speed is
            # measured after it.
            read = len(answer.read(1))
            row["first_byte_s"] = round(time.monotonic() - begun, 3)
            second = time.monotonic()
            while read < NET_BYTES and time.monotonic() - begun < NET_SECONDS:
                part = answer.read(1 << 16)
                if not part:
                    break
                read += len(part)
            row["bytes"] = read
            row["mbs"] = round(read / max(time.monotonic() - second, 1e-6) / 1e6, 2)
    except urllib.error.HTTPError as error:
        row["status"] = error.code
        row["first_byte_s"] = round(time.monotonic() - begun, 3)
    except Exception as error:  # name resolution, TLS and proxies fail in many ways
        reason = getattr(error, "reason", None) or error
        words = " ".join(str(reason).split())
        row["error"] = words[:200] or type(error).__name__
