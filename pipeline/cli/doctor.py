"""`grpoflow doctor`: checks whether this machine can run the chosen engine."""

import os
import shlex
import sys
from argparse import Namespace
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from launch.config import LauncherConfig
from launch.errors import LaunchError
from launch.machine import checks as look
from launch.machine.checks import Check
from launch.machine.environment import package_checks
from launch.nodes.run import missing
from pipeline.cli.command import Commands, add_json
from pipeline.config.load import load
from pipeline.config.sections import Config
from pipeline.errors import ConfigError, Exit, Problem
from pipeline.plan import checkouts
from pipeline.plan.graph import stages
from pipeline.plan.machines import SLURM, node_paths
from pipeline.terminal import as_json, command_lines, say, terminal_width
from stages import engines
from stages.engines.engine import Engine

MARKS = {"ok": "ok     ", "problem": "PROBLEM", "unknown": "unknown"}
INDENT = 8
"""Spaces before what follows the first line of a check."""


def register(commands: Commands) -> None:
    """Add `doctor`."""
    parser = commands.add(
        "doctor",
        doctor,
        "check if this machine can run the chosen engine (exit 1: it cannot)",
        "engine=mindrlhf engine.mindrlhf_home=DIR engine.python=PYTHON",
    )
    add_json(parser)
    parser.add_argument(
        "--constraints",
        action="store_true",
        help="only print the engine's package versions as a pip requirements or constraints file",
    )


def doctor(options: Namespace) -> int:
    """Show all checks; exit 1 if an engine of the configuration is not ready."""
    config = load(options.overrides, options.config_dir)
    if options.constraints:
        print("\n".join(constraints(config)))
        return Exit.DONE
    groups = examine(config)
    verdicts = {
        name: verdict(groups["machine"] + checks) for name, checks in groups.items() if name != "machine"
    }
    if options.json:
        names = ("name", "status", "found", "remedy")
        checks = {
            group: [{name: getattr(check, name) for name in names} for check in members]
            for group, members in groups.items()
        }
        print(as_json({"engine": config.engine.name, "verdicts": verdicts, "checks": checks}))
    else:
        _show(groups, verdicts)
    return Exit.FAILED if "not ready" in verdicts.values() else Exit.DONE


def constraints(config: Config) -> Iterator[str]:
    """Yield the lines of a pip file with the versions that the engines of the configuration work with."""
    for engine in engines.computing(config):
        if not engine.programs:
            raise ConfigError([Problem("engine", engine.name, "runs in grpoflow's own environment")])
        yield f"# engine={engine.name}"
        for name, versions, reason in engine.environment(engine.settings_of(config)).packages:
            yield f"{name}{versions}  # {reason}"


def _show(groups: Mapping[str, list[Check]], verdicts: Mapping[str, str]) -> None:
    """Print all checks, then one pip command per interpreter that lacks packages."""
    missing: dict[str, list[str]] = {}
    for group, members in groups.items():
        say(f"engine={group}: {verdicts[group]}" if group in verdicts else group)
        for check in members:
            say(f"  {MARKS[check.status]} {check.name}: {check.found}", indent=" " * INDENT)
            if text := check.rule or check.remedy:
                say(" " * (INDENT + 2) + text, indent="")
            if check.requirement:
                missing.setdefault(check.python, []).append(check.requirement)
    for python, requirements in missing.items():
        packages = dict.fromkeys(map(shlex.quote, requirements))
        say(f"packages that {python} lacks:")
        width = terminal_width() if sys.stdout.isatty() else None
        print("\n".join(command_lines([python, "-m", "pip", "install", *packages], width)))


def examine(config: Config) -> dict[str, list[Check]]:
    """Check the machine, grpoflow's packages and the engines of the configuration."""
    written = sum(stage.bytes_written or 0 for stage in stages(config) if stage.skipped is None)
    store = Path(config.store).absolute()
    machine = [look.disk(store, written), look.port(config.launcher.master_port)]
    if config.launcher.name == "ssh":
        problems = missing(config.launcher.ssh, config.launcher.hosts, node_paths(config), store)
        machine += [Check(f"host {host}", "problem", problem) for host, problem in problems]
    if config.launcher.name == "slurm":
        machine += [
            look.program(name, "launcher=slurm: start runs where jobs can be submitted") for name in SLURM
        ]
    if config.launcher.name == "ray":
        machine.append(_dashboard(config.launcher))
    if config.engine.name != "local":
        machine += _host_memory(config)
    local = [look.python_version(".".join(map(str, sys.version_info[:3])))]
    local += package_checks(
        {package for stage in stages(config) if stage.skipped is None for package in stage.imports}
    )
    if config.engine.name == "local":
        workers = config.layout.train.cards
        trainer = engines.get("local")
        local.append(look.memory(workers * sum(role.low for role in trainer.memory(trainer.job(config)))))
    groups = {"machine": machine, "local": local}
    for engine in engines.chosen(config):
        if engine.programs:
            groups[engine.name] = list(_outside(engine, config))
    return groups


def _dashboard(launcher: LauncherConfig) -> Check:
    """Check that the Ray cluster for the jobs of stages answers."""
    from launch.nodes import ray_job  # here: it imports requests

    address = ray_job.address_of(launcher)
    try:
        return Check("ray", "ok", f"Ray {ray_job.version(address)} at {address}")
    except LaunchError as error:
        return Check("ray", "problem", str(error), "launcher.ray_address: the dashboard of a running cluster")


def verdict(checks: list[Check]) -> str:
    """Summarize checks: ready, not ready, or ready as far as known."""
    if any(check.status == "problem" for check in checks):
        return "not ready"
    return "ready as far as known" if any(check.status == "unknown" for check in checks) else "ready"


def _host_memory(config: Config) -> Iterator[Check]:
    """Check the memory that the pipeline's stages need on this machine when an external engine trains.

    convert, split and export stream. evaluate.program=local holds the model in float32 on the CPU, and while
    loading also the stored weights.
    """
    if config.evaluate.program == "local" and any(
        stage.name == "evaluate" and stage.skipped is None for stage in stages(config)
    ):
        check = look.memory(4 * config.model.num_parameters + config.model.weight_bytes)
        why = f"{check.remedy}: evaluate runs here, with the whole model"
        yield check if check.status == "ok" else replace(check, remedy=why)


def _outside(engine: Engine[Any], config: Config) -> Iterator[Check]:
    settings: Any = engine.settings_of(config)
    device = getattr(settings, "device", "npu")
    on_cpu = device == "cpu"
    if not on_cpu:
        occupied = (stage.workers for stage in stages(config) if stage.computes and stage.skipped is None)
        needed = min(max((config.cards, *occupied)), config.launcher.cards_per_node)
        yield look.gpus(needed) if device == "cuda" else look.cards(needed)
    versions, checked = engine.environment(settings), engine.needed(config)
    packages = versions.packages
    if versions.lock is not None:
        yield Check("install", "ok", versions.lock.command)
    python = None if settings.container else look.interpreter(settings.python)
    names = [name for name, *_ in packages] + [checkout.package for checkout in checked if checkout.package]
    installed_versions = look.versions(python, names) if python else None
    for checkout in checked:
        version = (installed_versions or {}).get(checkout.package) if checkout.package else None
        yield checkouts.check(checkout, getattr(settings, checkout.key), version)
    if settings.container:
        name = settings.container[0]
        yield look.program(name, f"{engine.section}.container starts with it")
        yield Check("python", "unknown", f"runs behind {name}", "run grpoflow doctor in there")
        return
    if versions.cann is not None and versions.driver is not None and not on_cpu:
        yield look.cann(versions.cann, home=os.environ.get("ASCEND_HOME_PATH"))
        yield look.driver(versions.driver)
    if python is None or installed_versions is None:
        state = f"{python or 'no python on PATH but our own'}: does not answer"
        yield Check(
            "python", "problem", state, f"engine.python: an interpreter with {' and '.join(engine.imports)}"
        )
        return
    yield look.python_version(installed_versions["python"] or "")
    yield from look.packages(packages, installed_versions.get, python)
