"""``rgt mirror BOX DIR URL``: results of a box in an object store, sent by the box or through this machine."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from rgt_tui.cli import running
from rgt_tui.cli.commands import FAILED, OK
from rgt_tui.cli.printing import print_error
from rgt_tui.cli.teardown.pull import PullDisplay
from rgt_tui.cli.work.work_arguments import MirrorArguments
from rgt_tui.fleet import DiaryPage, connected_agent, noted_transfer
from rgt_tui.fleet.pulls.pull_stream import PullFailed, PullRequest
from rgt_tui.fleet.pulls.pulling import pull_box
from rgt_tui.fleet.work.agent_answers import (
    Row,
    parse_row,
    query_agent,
    row_count,
    row_text,
    stream_rows,
)
from rgt_tui.language import translate
from rgt_tui.model import BoxSpec, how_many, size
from rgt_tui.profiles import estimate_transfer_cost, load_profile
from rgt_tui.ssh import BoxTransport, CommandFailed, find_python_with, quote_words
from rgt_tui.transfer.copying import PullProgress, TransferRate, destination_path, time_to_go

# Only for advice: whether a library is there, its own import decides below.
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

    async def send_rows(
        self, verb: str, folder: str, rows: list[Row], each: Callable[[Row], None]
    ) -> None:
        """Send some files; `each` gets the program's rows as they arrive.

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
        broken: list[str] = []
        answered: list[str] = []

        def apply_row(row: Row) -> None:
            # A row without a path is about the store itself: wrong bucket, no key, no network.
            if "path" not in row:
                broken.append(row_text(row, "error"))
                return
            if "status" in row:
                answered.append(row_text(row, "status"))
            each(row)

        if self._python is not None:
            try:
                _, last = await stream_rows(
                    self._connection,
                    quote_words(self._python, *words),
                    apply_row,
                    data=data,
                    seconds=self._seconds,
                    name=translate("sending to the object store"),
                )
            except CommandFailed as error:
                raise StoreFailed(str(error) + translate(": the same command continues")) from error
        else:
            last = await self._send_from_here(words, data, apply_row)
        if broken:
            raise StoreFailed(self.explain_error(broken[0]))
        # Each file has an answer, so a missing one means that the program ended early.
        if len(answered) < len(rows):
            last = translate("it ended early: {last}", last=last or "no message")
            raise StoreFailed(self.explain_error(last))

    def explain_error(self, error: str) -> str:
        """Return an error of the store with what to do about it; other errors say that themselves."""
        sender = translate("the box")
        if self._python is None:
            sender = translate("this machine")
        keys = translate(
            "keys are read from {sender}: its environment or ~/.aws, and AWS_ENDPOINT_URL for a "
            "store that is not AWS",
            sender=sender,
        )
        steps = {
            "there is no bucket": translate("create it, or correct the URL"),
            # Without first letters: libraries write both Credentials and credentials.
            "redential": keys,
            "PermissionError": keys,
            "Forbidden": keys,
            "onnect": translate(
                "{sender} does not reach the store: check its network and AWS_ENDPOINT_URL",
                sender=sender,
            ),
        }
        for needle, step in steps.items():
            if needle in error:
                return f"{error}: {step}"
        # The name of an exception: the store's library failed, which the next run may not.
        if error.partition(": ")[0].isidentifier():
            error += translate(": the same command continues")
        return error

    async def _send_from_here(
        self, words: Sequence[str], data: bytes, each: Callable[[Row], None]
    ) -> str:
        """Run the program here; return the last line of its standard error."""
        with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as errors:
            given.write(data)
            given.seek(0)
            # A session of its own: Ctrl-C must not end it before it has removed its unfinished
            # parts.
            child = await asyncio.create_subprocess_exec(
                *(sys.executable, "-P", *words),
                stdin=given,
                stdout=asyncio.subprocess.PIPE,
                stderr=errors,
                start_new_session=True,
            )
            assert child.stdout is not None
            try:
                async with asyncio.timeout(self._seconds):
                    async for line in child.stdout:
                        row = parse_row(line)
                        if row is not None:
                            each(row)
                    await child.wait()
            except TimeoutError:
                said = translate("not done within {seconds:g} s (--timeout)", seconds=self._seconds)
                raise StoreFailed(said + translate(": the same command continues")) from None
            finally:
                if child.returncode is None:
                    await _stop_upload(child)
            errors.seek(0)
            lines = errors.read().decode(errors="replace").strip().splitlines()
        return "".join(lines[-1:])


async def _stop_upload(child: asyncio.subprocess.Process, patience_s: float = 10.0) -> None:
    """Ask the program to end, which removes unfinished uploads; kill it if it does not."""
    child.terminate()
    try:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(child.communicate(), patience_s)
    # Also at a second Ctrl-C, which cancels this wait.
    finally:
        if child.returncode is None:
            child.kill()
            # Until then it may still write, while the same command is started again.
            await child.wait()


class MirrorProgress:
    """Counts the files and bytes that the program reports.

    Args:
        display: Shows them.
        page: Records them for other rgts; None = not recorded.
        clock: A monotonic clock in seconds.
    """

    def __init__(
        self,
        display: PullDisplay,
        page: DiaryPage | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.display = display
        self.page = page
        self.answers: list[Row] = []
        """Rows that say what became of a file."""
        self._clock = clock
        self.begin_phase("connecting", [])

    def begin_phase(self, phase: str, rows: Sequence[Row]) -> None:
        """Begin to count the bytes of some files from zero."""
        self._sizes = {row_text(row, "path"): row_count(row, "size") for row in rows}
        self._rate, self._finished, self._open = TransferRate(), 0, 0
        self._look = PullProgress(
            phase=phase, files=len(rows), bytes=sum(self._sizes.values(), start=0)
        )
        self.show_progress(self._look)

    @property
    def verified_rows(self) -> list[Row]:
        """Answers about files that are in the store."""
        return [row for row in self.answers if row.get("status") in ("copied", "same")]

    @property
    def failed_rows(self) -> list[Row]:
        """Answers about files that are not."""
        return [row for row in self.answers if row.get("status") == "failed"]

    def count_listed(self, row: Row) -> None:
        """Count a file that the box has read."""
        if "sha256" in row:
            look = self._look
            self._look = msgspec.structs.replace(
                look,
                phase="listing",
                files_done=look.files_done + 1,
                bytes_done=look.bytes_done + row_count(row, "size"),
            )
            self.show_progress(self._look)

    def show_progress(self, look: PullProgress) -> None:
        """Show and record a progress, such as that of a pull."""
        self.display.show_progress(look)
        if self.page is not None:
            self.page.record_progress(look)

    def apply_row(self, row: Row) -> None:
        """Count a row of the program."""
        path, look = row_text(row, "path"), self._look
        files, problems = look.files_done, look.problems
        if "status" in row:
            self.answers.append(row)
            self._finished += self._sizes.get(path, 0)
            self._open = 0
            files += 1
            problems += row["status"] == "failed"
        else:
            # A file under way counts by its own position, which replaces the last one.
            self._open = self._bytes_done(row, self._sizes.get(path, 0))
        done = self._finished + self._open
        rate = self._rate.add_reading(self._clock(), done)
        self._look = msgspec.structs.replace(
            look,
            files_done=files,
            problems=problems,
            bytes_done=done,
            rate=rate,
            eta=time_to_go(look.bytes - done, rate),
            path=path,
        )
        self.show_progress(self._look)

    def _bytes_done(self, row: Row, total: int) -> int:
        """Return how much of a file is done: to send it is half of the work, to read it back the rest."""
        read = min(row_count(row, "read"), total)
        # Then the object is only read back, so that is all of the work.
        if self._look.phase == "comparing":
            return read
        if "read" in row:
            return (total + read) // 2
        return min(row_count(row, "sent"), total) // 2


async def mirror_to_store(
    arguments: MirrorArguments, spec: BoxSpec, show: Callable[[Row], None]
) -> int:
    """Send a directory of a box to an object store; return the exit status.

    Args:
        arguments: The command line.
        spec: The box.
        show: Prints a row.
    """
    display = PullDisplay(spec.name, as_json=arguments.json, quiet=True)
    progress = MirrorProgress(display)
    place = f"{spec.name}: {arguments.target}"
    try:
        with display:
            end = await running.run_until_signalled(_send_results(arguments, spec, progress))
    except KeyboardInterrupt:
        done = how_many(len(progress.verified_rows), "file")
        print_error(
            translate(
                "{place}: stopped; {done} verified there. The same command continues",
                place=place,
                done=done,
            )
        )
        raise
    except (StoreFailed, PullFailed) as error:
        # Also after a failure: these files were answered, and are in the store.
        for row in progress.answers:
            show(row)
        print_error(f"{place}: {error}")
        return FAILED
    for row in progress.answers:
        show(row)
    show(end)
    if end["failed"]:
        return FAILED
    return OK


async def _send_results(arguments: MirrorArguments, spec: BoxSpec, progress: MirrorProgress) -> Row:
    """Connect, list and send; return the last row."""
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
        if python is None and (arguments.through == "box" or not await _runs_here(code)):
            box_python = spec.python or deployed.python
            raise StoreFailed(_missing_library(arguments, spec, scheme, box_python))
        listed: list[Row] = []

        def count_listed(row: Row) -> None:
            listed.append(row)
            progress.count_listed(row)

        answer = await query_agent(
            connection,
            deployed,
            # Hashes first: by them, objects that are the same are recognised, and read-backs
            # compared.
            ["manifest", "--", arguments.source],
            seconds=arguments.timeout,
            each=count_listed,
        )
        if not listed or listed[-1].get("end") is not True:
            raise StoreFailed(answer.words)
        upload = ObjectUpload(connection, python, arguments.target, arguments.timeout)
        return await _send_listed(arguments, spec, upload, listed, python, progress)


async def _runs_here(code: str) -> bool:
    words = (sys.executable, "-P", "-c", code)
    quiet = asyncio.subprocess.DEVNULL
    child = await asyncio.create_subprocess_exec(*words, stdin=quiet, stdout=quiet, stderr=quiet)
    return await child.wait() == 0


def _missing_library(arguments: MirrorArguments, spec: BoxSpec, scheme: str, python: str) -> str:
    """Return which package is missing, with the commands that install it."""
    package = PACKAGES.get(scheme)
    if package is None:
        return translate(
            "no Python with fsspec and its package for {scheme}:// was found: is the URL right?",
            scheme=scheme,
        )
    there = f"rgt exec {spec.name} -- {python} -m pip install {package}"
    if arguments.through == "box":
        return translate(
            "no Python on the box has {package}: {there}", package=package, there=there
        )
    return translate(
        "neither a Python on the box nor rgt's own has {package}. To send from the box: {there}; "
        "from here: {python} -m pip install {package}",
        package=package,
        there=there,
        python=sys.executable,
    )


async def _send_listed(
    arguments: MirrorArguments,
    spec: BoxSpec,
    upload: ObjectUpload,
    listed: Sequence[Row],
    python: str | None,
    progress: MirrorProgress,
) -> Row:
    # The agent has resolved ~ and links of the directory that was named.
    root = next((row_text(row, "root") for row in listed if "root" in row), arguments.source)
    files: dict[str, Row] = {}
    for row in listed:
        path = row_text(row, "path")
        # A name that is not UTF-8 cannot be the key of an object.
        if "sha256" in row and "path_b64" not in row:
            names = ("path", "size", "sha256", "mtime")
            files[path] = {name: row[name] for name in names}
        elif "path" in row:
            error = row_text(row, "error") or translate("is a link: not followed")
            if path == ".":
                raise StoreFailed(f"{arguments.source}: {error}")
            if "path_b64" in row:
                error = translate("its name is not UTF-8")
            progress.answers.append({"path": path, "status": "failed", "error": error})
    progress.begin_phase("comparing", list(files.values()))
    verb = "compare"
    if arguments.dry_run:
        verb = "plan"
    await upload.send_rows(verb, root, list(files.values()), progress.apply_row)
    planned = [row for row in progress.answers if row.get("status") == "would"]
    todo = [files[row_text(row, "path")] for row in planned]
    # The price of the traffic is only that of files which the store lacks.
    count = sum(row_count(row, "size") for row in todo)
    _say_plan(spec, python, len(files), len(todo), count)
    if todo and not arguments.dry_run:
        progress.answers = [row for row in progress.answers if row.get("status") != "would"]
        async with noted_transfer(spec.name, "mirror", (root,), arguments.target) as page:
            progress.page = page
            folder = root
            if python is None:
                folder = await _pull_first(arguments, spec, root, todo, progress)
            progress.begin_phase("sending", todo)
            verb = "send"
            if arguments.growing:
                verb = "send-growing"
            await upload.send_rows(verb, folder, todo, progress.apply_row)
            failed = progress.failed_rows
            text = translate(
                "{files} verified", files=how_many(len(progress.verified_rows), "file")
            )
            if failed:
                text = f"{failed[0]['path']}: {failed[0]['error']}"
            page.record_result(text, whole=not failed)
    through = "box"
    if python is None:
        through = "laptop"
    states = [row_text(row, "status") for row in progress.answers]
    for row in progress.failed_rows:
        row["error"] = upload.explain_error(row["error"])
    return {
        "end": True,
        "verified": len(progress.verified_rows),
        **{name: states.count(name) for name in ("copied", "same", "failed", "would")},
        "bytes": sum(row_count(row, "size") for row in progress.verified_rows),
        "through": through,
    }


def _say_plan(spec: BoxSpec, python: str | None, files: int, count: int, total: int) -> None:
    if python is not None:
        route = translate("sent by the box itself, with {python}", python=python)
    else:
        route = translate(
            "sent through this machine: pulled to {folder} first", folder=f"./pulled/{spec.name}"
        )
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


async def _pull_first(
    arguments: MirrorArguments,
    spec: BoxSpec,
    root: str,
    todo: Sequence[Row],
    progress: MirrorProgress,
) -> str:
    """Pull the files to where `rgt pull` puts them; return the directory's copy here."""
    # The same place as `rgt pull`, so that files that are here already are not fetched again.
    destination = (Path("pulled") / spec.name).absolute()
    paths = tuple(f"{root}/{row_text(row, 'path')}" for row in todo)
    is_long = sum(map(len, paths)) > 50_000  # a longer command line may be refused
    if is_long or [row_text(row, "path") for row in todo] == [Path(root).name]:
        paths = (root,)
    request = PullRequest(
        paths=paths,
        destination=destination,
        accept_new_host_keys=arguments.accept_new_host_key,
    )
    report = await pull_box(spec, request, progress.show_progress)
    # Sent anyway as far as it got: a file that is missing here fails as a row of its own.
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
