"""``rgt mirror BOX DIR URL``: results of a box in an object store, sent by the box or through this machine."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from rgt_tui.cli.commands import FAILED, OK
from rgt_tui.cli.printing import print_error
from rgt_tui.cli.work.work_arguments import MirrorArguments
from rgt_tui.fleet import connected_agent
from rgt_tui.fleet.pulls.pull_stream import PullFailed, PullRequest
from rgt_tui.fleet.pulls.pulling import pull_box
from rgt_tui.fleet.work.agent_answers import Row, parse_row, query_agent, row_count, row_text
from rgt_tui.language import translate
from rgt_tui.model import BoxSpec
from rgt_tui.profiles import estimate_transfer_cost, how_many, load_profile, size
from rgt_tui.ssh import BoxTransport, find_python_with, quote_words, run_command
from rgt_tui.transfer.copying import destination_path

# The usual ones; fsspec knows more, and its class is asked below, not this table.
PACKAGES = {"s3": "s3fs", "gs": "gcsfs", "gcs": "gcsfs", "az": "adlfs", "abfs": "adlfs"}
"""The package that gives fsspec each kind of store."""
# "" in sys.path is the directory of the box's login shell: a module there could shadow fsspec.
START = "import sys; sys.path[:1] = [p for p in sys.path[:1] if p]; exec(sys.argv.pop(1))"
"""Runs the program in its argument, without importing from the current directory."""


class StoreFailed(Exception):
    """The object store cannot be used; the message says why."""


class ObjectUpload:
    """Runs the program that sends files, on the box or here.

    Args:
        connection: To the box.
        python: The Python there that has the store's library; None = this one, here.
        url: Address of the store.
        seconds: How long it may take.
    """

    def __init__(
        self, connection: BoxTransport, python: str | None, url: str, seconds: float
    ) -> None:
        self._connection, self._python = connection, python
        self._url, self._seconds = url, seconds

    async def send_rows(self, verb: str, folder: str, rows: list[Row]) -> list[Row]:
        """Return the answers about some files.

        Raises:
            StoreFailed: The store does not answer.
            BoxError: The box was lost.
        """
        from rgt_tui.transfer import object_upload

        # Sent with each call: it runs in the box's own Python, and nothing is installed there.
        source = Path(object_upload.__file__).read_text(encoding="utf-8")
        words = ("-c", START, source, self._url, folder, verb)
        # Over stdin: a list of thousands of files is too long for a command line.
        data = b"".join(msgspec.json.encode(row) + b"\n" for row in rows)
        if self._python is not None:
            done = await run_command(
                self._connection,
                quote_words(self._python, *words),
                data=data,
                seconds=self._seconds,
                # A row per file: a million of them fit.
                most_bytes=1 << 28,
                name="sending to the object store",
            )
            out, errors = done.out, done.words
        else:
            child = await asyncio.create_subprocess_exec(
                # A process of its own here, too, so that a store's library that hangs can be
                # killed.
                *(sys.executable, "-P", *words),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
            )
            try:
                out, raw = await asyncio.wait_for(child.communicate(data), self._seconds)
            except TimeoutError:
                raise StoreFailed(
                    translate("did not end within {seconds:g} s", seconds=self._seconds)
                ) from None
            finally:
                if child.returncode is None:
                    child.kill()
                    # Collected before the loop ends: a store may hang, and no zombie is left.
                    await child.wait()
            errors = raw.decode(errors="replace")
        found = [row for row in map(parse_row, out.splitlines()) if row is not None]
        # A row without a path is about the store itself: wrong bucket, no key, no network.
        broken = [row_text(row, "error") for row in found if "path" not in row]
        if broken:
            raise StoreFailed(broken[0])
        # Each file has an answer, so a missing one means that the program ended early.
        if len(found) < len(rows):
            last = (errors.strip().splitlines() or ["no message"])[-1]
            raise StoreFailed(
                translate("it ended early, and the next run continues: {last}", last=last)
            )
        return found


async def mirror_to_store(
    arguments: MirrorArguments, spec: BoxSpec, show: Callable[[Row], None]
) -> int:
    """Send a directory of a box to an object store; return the exit status.

    Args:
        arguments: The command line.
        spec: The box.
        show: Prints a row.
    """
    accept = arguments.accept_new_host_key
    async with connected_agent(spec, accept_new_host_keys=accept) as (connection, deployed):
        scheme = arguments.target.partition("://")[0]
        # Imports the store's package, too: fsspec alone is installed by many libraries.
        code = f"import fsspec; fsspec.get_filesystem_class({scheme!r})"
        python = None
        if arguments.through != "laptop":
            # The agent's own Python is often the system's, while fsspec is in the training's
            # environment.
            pythons = tuple(name for name in (spec.python, deployed.python) if name)
            python = await find_python_with(connection, pythons, code)
        missing = _find_obstacle(arguments, scheme, python, await _runs_here(python, code))
        if missing:
            print_error(f"{spec.name}: {missing}")
            return FAILED
        listed = await query_agent(
            connection,
            deployed,
            # Hashes first: by them, objects that are the same are recognised, and read-backs
            # compared.
            ["manifest", "--", arguments.source],
            seconds=arguments.timeout,
        )
        if listed.last_row.get("end") is not True:
            print_error(f"{spec.name}: {listed.words}")
            return listed.status or FAILED
        upload = ObjectUpload(connection, python, arguments.target, arguments.timeout)
        try:
            return await _send_listed(arguments, spec, upload, listed.rows, python, show)
        except (StoreFailed, PullFailed) as error:
            print_error(f"{spec.name}: {arguments.target}: {error}")
            return FAILED


async def _runs_here(python: str | None, code: str) -> bool:
    if python is not None:
        return False
    words = (sys.executable, "-P", "-c", code)
    quiet = asyncio.subprocess.DEVNULL
    child = await asyncio.create_subprocess_exec(*words, stdin=quiet, stdout=quiet, stderr=quiet)
    return await child.wait() == 0


def _find_obstacle(
    arguments: MirrorArguments, scheme: str, python: str | None, here: bool
) -> str | None:
    """Return why nothing can be sent, with what to install; None if it can."""
    if python is not None or (here and arguments.through != "box"):
        return None
    package = PACKAGES.get(scheme, f"fsspec's package for {scheme}://")
    if arguments.through == "box":
        return translate(
            "no Python on the box has {package}: pip install it there", package=package
        )
    return translate(
        "neither a Python on the box nor rgt's own has {package}: pip install it there or here",
        package=package,
    )


async def _send_listed(
    arguments: MirrorArguments,
    spec: BoxSpec,
    upload: ObjectUpload,
    listed: Sequence[Row],
    python: str | None,
    show: Callable[[Row], None],
) -> int:
    # The agent has resolved ~ and links of the directory that was named.
    root = next((row_text(row, "root") for row in listed if "root" in row), arguments.source)
    answers: list[Row] = []
    files: dict[str, Row] = {}
    for row in listed:
        path = row_text(row, "path")
        # A name that is not UTF-8 cannot be the key of an object.
        if "sha256" in row and "path_b64" not in row:
            names = ("path", "size", "sha256", "mtime")
            files[path] = {name: row[name] for name in names}
        elif "path" in row:
            error = row_text(row, "error") or "is a link: not followed"
            if "path_b64" in row:
                error = "its name is not UTF-8"
            answers.append({"path": path, "status": "failed", "error": error})
    # The price of the traffic is only that of files which the store lacks.
    plan = await upload.send_rows("plan", root, list(files.values()))
    todo = [files[row_text(row, "path")] for row in plan if row.get("status") == "would"]
    answers += [row for row in plan if row.get("status") != "would"]
    count = sum(row_count(row, "size") for row in todo)
    _say_plan(spec, python, len(files), len(todo), count)
    if arguments.dry_run:
        answers += [row for row in plan if row.get("status") == "would"]
    # Nothing to send: nothing is pulled, either.
    elif todo:
        folder = root
        if python is None:
            folder = await _pull_first(arguments, spec, root)
        verb = "send"
        if arguments.growing:
            verb = "send-growing"
        answers += await upload.send_rows(verb, folder, todo)
    for row in answers:
        show(row)
    states = [row_text(row, "status") for row in answers]
    through = "laptop"
    # The box can send, so nothing is needed here.
    if python is not None:
        through = "box"
    done = [row for row in answers if row.get("status") in ("copied", "same")]
    show(
        {
            "end": True,
            "verified": len(done),
            **{name: states.count(name) for name in ("copied", "same", "failed", "would")},
            "bytes": sum(row_count(row, "size") for row in done),
            "through": through,
        }
    )
    if "failed" in states:
        return FAILED
    return OK


def _say_plan(spec: BoxSpec, python: str | None, files: int, count: int, total: int) -> None:
    if python is not None:
        route = translate("sent by the box itself, with {python}", python=python)
    else:
        route = translate("sent through this machine: pulled first, then uploaded from here")
    told = translate(
        "{name}: {files}; to send: {count:,}, {total}; {route}",
        name=spec.name,
        files=how_many(files, "file"),
        count=count,
        total=size(total),
        route=route,
    )
    # On stderr: stdout has a row per file.
    print_error(told)
    if count:
        traffic = estimate_transfer_cost(load_profile(spec.profile), total).words
        print_error(translate("{name}: traffic: {traffic}", name=spec.name, traffic=traffic))


async def _pull_first(arguments: MirrorArguments, spec: BoxSpec, root: str) -> str:
    """Pull the directory to where `rgt pull` puts it; return its copy here."""
    # The same place as `rgt pull`, so that files that are here already are not fetched again.
    destination = (Path("pulled") / spec.name).absolute()
    request = PullRequest(
        paths=(root,),
        destination=destination,
        accept_new_host_keys=arguments.accept_new_host_key,
    )
    report = await pull_box(spec, request)
    # Sent anyway as far as it got: a file that is missing here fails as a row of its own.
    if not report.is_complete:
        for refused in report.incomplete[:5]:
            print_error(f"{spec.name}: not pulled: {refused.path}: {refused.reason}")
    return str(destination_path(destination, root))


def check_words(arguments: MirrorArguments) -> str | None:
    """Return the mistake in the options of a mirror; None without one."""
    if "://" in arguments.target:
        return None
    for name, given in (
        ("--dry-run", arguments.dry_run),
        ("--growing", arguments.growing),
        ("--through", arguments.through),
    ):
        if given:
            return translate("{name} is for a URL such as s3://bucket/prefix", name=name)
    return None
