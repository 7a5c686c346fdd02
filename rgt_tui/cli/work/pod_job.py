"""``rgt run`` and ``rgt queue run`` on a box that is a Job: create it, and show how its pod begins."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rgt_wire.kubernetes_job import yaml_lines

from rgt_tui.cli.commands import FAILED, OK, UNREACHABLE, USAGE
from rgt_tui.cli.opening import rgt_with
from rgt_tui.cli.printing import print_error, print_json, print_lines, wait_indicator
from rgt_tui.cli.work.work_arguments import (
    LaunchArguments,
    QueueArguments,
    RunArguments,
    parse_environment,
)
from rgt_tui.fleet.work.launching import CannotRun
from rgt_tui.fleet.work.pod_jobs import (
    JobOutcome,
    KubernetesJob,
    SweepManifests,
    job_manifest,
    sweep_manifests,
)
from rgt_tui.fleet.work.queue_split import QueueLine
from rgt_tui.language import translate
from rgt_tui.model import BoxSpec, format_duration, how_many
from rgt_tui.ssh import Unreachable, build_agent, connect_box

UNUSED = {
    "push": "the code belongs into the image or on a claim",
    "secret": "use a Secret of the cluster",
    "smoke": "rgt run on a pod that runs already can try it",
    "keep": "everything on a claim is kept",
    "again": "set another `job`",
    "on_start": "the cluster starts a pod of the Job again by itself",
    "name": "the Job's name is the key `job`",
}
"""Options of ``rgt run`` that a Job does not have, and what there is instead."""


async def run_pod_job(arguments: RunArguments, spec: BoxSpec, env: Mapping[str, str]) -> int:
    """Create the Job, wait for its pod for the time of ``--probe``, and with ``--wait`` for its end.

    Raises:
        BoxError: kubectl or the cluster refuses; the message names the step that was not done.
    """
    route = spec.kubectl
    assert route is not None
    # Refused, not ignored: a secret that silently does not arrive would fail the job an hour later.
    for option, instead in UNUSED.items():
        if getattr(arguments, option):
            print_error(
                translate(
                    "{name}: --{value} does not apply to a Job: {instead}",
                    name=spec.name,
                    value=option.replace("_", "-"),
                    instead=translate(instead),
                )
            )
            return USAGE
    if not route.claims:
        print_error(
            translate(
                "note: boxes.{name}.kubectl has no `claims`: what the Job writes is lost "
                "with its pod",
                name=spec.name,
            )
        )
    job = KubernetesJob(spec)
    try:
        # By digest: the cluster may start the pod again, and a tag may have moved by then.
        image = await job.resolve_image()
        manifest = job_manifest(
            route,
            image,
            arguments.words,
            env={**spec.env, **env},
            workdir=arguments.workdir,
            retries=arguments.retries,
        )
        await job.create_job(manifest)
    except CannotRun as error:
        print_error(f"{spec.name}: {error}")
        return USAGE
    folder = route.results_directory
    _print_rows(
        arguments,
        f"{spec.name}: image  {image}",
        translate(
            "{name}: job    {job} in {namespace} ({context}); $RGT_OUT is {folder}",
            name=spec.name,
            job=route.job,
            namespace=route.namespace,
            context=route.context,
            folder=folder,
        ),
    )
    with wait_indicator(translate("waiting for a pod of {job} …", job=route.job)):
        # --probe: the same wait for a beginning as on a machine.
        state, end = await _wait_for_pod(job, spec, arguments.probe)
    _print_rows(arguments, f"{spec.name}: pod    {state}")
    if arguments.wait and end is None:
        end = await _wait_for_end(job)
    if end is not None:
        _print_rows(arguments, f"{spec.name}: ended  {end.text}")
    elif not arguments.json:
        # On the claim, so that it can be read after the pod is gone.
        log = f"{folder}/run.log"
        print_lines(
            f"{spec.name}: next   {rgt_with(arguments.fleet)} logs {spec.name} {log} --follow"
        )
    code = OK
    if end is not None and not end.is_complete:
        code = FAILED
    if arguments.json:
        ended = None
        if end is not None:
            ended = end.text
        body = {"box": spec.name, "job": route.job, "image": image, "out": folder, "pod": state}
        print_json({**body, "end": ended, "exit": code})
    return code


async def start_reader(arguments: RunArguments, spec: BoxSpec) -> int:
    """Start a pod that mounts the claims of a Job that has ended, and wait for it."""
    if not spec.creates_job:
        print_error(
            translate("{name}: --reader is for a Job of Kubernetes that has ended", name=spec.name)
        )
        return USAGE
    job = KubernetesJob(spec)
    try:
        pod = await job.create_reader()
    except CannotRun as error:
        print_error(f"{spec.name}: {error}")
        return USAGE
    loop = asyncio.get_running_loop()
    until, state = loop.time() + arguments.probe, ""
    try:
        with wait_indicator(translate("waiting for a pod of {job} …", job=pod)):
            while not state:
                try:
                    connection = await connect_box(spec)
                except Unreachable as error:
                    if loop.time() > until:
                        print_error(
                            translate(
                                "{name}: did not run within {time}, and was deleted: {error}",
                                name=spec.name,
                                time=format_duration(arguments.probe),
                                error=error,
                            )
                        )
                        return UNREACHABLE
                    await asyncio.sleep(1.0)
                else:
                    connection.abort()
                    state = f"{connection.get_extra_info('rgt_label')} runs"
    finally:
        # Its time runs only from its start: one that finds no node would stay.
        if not state:
            await job.delete_reader()
    rgt = rgt_with(arguments.fleet)
    text = translate(
        "it ends by itself after {time}, or with the Job", time=format_duration(job.reader_s)
    )
    _print_rows(
        arguments,
        f"{spec.name}: pod    {state}; {text}",
        f"{spec.name}: next   {rgt} pull {spec.name}",
    )
    if arguments.json:
        print_json({"box": spec.name, "pod": pod, "exit": OK})
    return OK


def _print_rows(arguments: LaunchArguments, *rows: str) -> None:
    if not arguments.json:
        print_lines(*rows)
        sys.stdout.flush()


async def _wait_for_pod(
    job: KubernetesJob, spec: BoxSpec, seconds: float, pause_s: float = 1.0
) -> tuple[str, JobOutcome | None]:
    """Return the state of the Job's pod once it runs or the Job has ended, at the latest after `seconds`."""
    until = asyncio.get_running_loop().time() + seconds
    while True:
        try:
            connection = await connect_box(spec)
        except Unreachable as error:
            # A pod that is not there may also have ended already.
            end = await job.find_end()
            if end is not None:
                return "ended", end
            if asyncio.get_running_loop().time() > until:
                return translate("does not run yet: {error}", error=error), None
            await asyncio.sleep(pause_s)
        else:
            # Only to see that commands can run in it.
            connection.abort()
            return f"{connection.get_extra_info('rgt_label')} runs", None


async def _wait_for_end(job: KubernetesJob, pause_s: float = 5.0) -> JobOutcome:
    """Wait for the end of the Job; a cluster that does not answer meanwhile is asked again."""
    while True:
        try:
            end = await job.find_end()
        except Unreachable:
            end = None
        if end is not None:
            return end
        await asyncio.sleep(pause_s)


async def create_pod_sweep(
    arguments: QueueArguments,
    spec: BoxSpec,
    name: str,
    lines: Sequence[QueueLine],
    save_job: Callable[[str], None],
) -> int:
    """Create the indexed Job of a sweep, or print its manifest; wait for its first pod.

    Args:
        arguments: The command line.
        spec: The box.
        name: Name of the sweep.
        lines: Its cells.
        save_job: Adds the created job directory to the fleet file.

    Raises:
        BoxError: kubectl or the cluster refuses.
    """
    job = KubernetesJob(spec)
    try:
        image = await job.resolve_image()
        sweep = sweep_manifests(
            spec, image, arguments.words, lines, await asyncio.to_thread(build_agent), name=name,
            env=parse_environment(arguments.env), workdir=arguments.workdir,
            retries=arguments.retries, keep=arguments.keep, at_once=arguments.parallel or 1,
        )  # fmt: skip
        if arguments.dry_run:
            return _print_manifests(arguments, spec, sweep)
        await job.create_sweep(sweep)
    except (CannotRun, ValueError) as error:
        print_error(f"{spec.name}: {error}")
        return USAGE
    save_job(sweep.folder)
    rules = sweep.job["spec"]
    metadata = sweep.job["metadata"]
    rows = [
        f"image  {image}",
        translate(
            "job    {job} in {namespace}: {cells}, {parallel} at a time; state and results below "
            "{folder}",
            job=metadata["name"],
            namespace=metadata["namespace"],
            cells=how_many(rules["completions"], "cell"),
            parallel=rules["parallelism"],
            folder=sweep.folder.rpartition("/jobs/")[0],
        ),
    ]
    _print_rows(arguments, *(f"{spec.name}: {row}" for row in rows))
    with wait_indicator(translate("waiting for a pod of {job} …", job=metadata["name"])):
        state, end = await _wait_for_pod(job, spec, arguments.probe)
    code = OK
    if end is not None:
        state = f"ended: {end.text}"
        if not end.is_complete:
            code = FAILED
    rgt = rgt_with(arguments.fleet)
    rows = [
        f"pod    {state}",
        f"next   {rgt} queue {spec.name} status --job {name}",
        f"next   {rgt} logs {spec.name} {lines[0].name} --follow",
    ]
    _print_rows(arguments, *(f"{spec.name}: {row}" for row in rows))
    if arguments.json:
        body = {"box": spec.name, "job": sweep.folder, "image": image, "pod": state, "exit": code}
        print_json({**body, "cells": [line.name for line in lines]})
    return code


def _print_manifests(arguments: QueueArguments, spec: BoxSpec, sweep: SweepManifests) -> int:
    """Print the objects as YAML, without the agent's bytes."""
    files = dict(sweep.files)
    (packed,) = files.pop("binaryData")
    shown: tuple[Mapping[str, Any], ...] = (sweep.job, files)
    if arguments.json:
        print_json({"box": spec.name, "manifests": shown})
    else:
        print_lines(*yaml_lines(shown[0]), "---", *yaml_lines(shown[1]))
        print_lines(f"# binaryData: {packed}, the agent")
    print_error(translate("dry run: nothing was created"))
    return OK
