"""`grpoflow doctor`: checks whether this machine can run the engines; the network only with --online."""

import functools
import os
import sys
from argparse import Namespace
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from launch.machine import checks as look
from launch.machine import devices
from launch.machine.checks import Check
from launch.machine.environment import RULES, installed
from launch.nodes.run import hosts_of, missing
from pipeline import engines
from pipeline.cli.command import Commands
from pipeline.config.load import load
from pipeline.config.sections import Config
from pipeline.engines.machines import node_paths
from pipeline.errors import Exit
from pipeline.plan import checkouts
from pipeline.plan.graph import stages
from pipeline.rehearsal import machine
from pipeline.terminal import as_json
from stages.base.engine import Checkout, Engine
from stages.base.redact import redact

HUB = "https://modelscope.cn"
NO_ENGINES = {"machine": "machine", "rehearse": "grpoflow rehearse"}
"""Groups of checks that are not engines, and their headings."""
MARKS = {"ok": "ok     ", "problem": "PROBLEM", "unknown": "unknown"}


def register(commands: Commands) -> None:
    """Add `doctor`."""
    parser = commands.add(
        "doctor",
        doctor,
        "check if this machine can run the engines (exit 1: not the chosen one)",
        "engine=mindrlhf engine.mindrlhf_home=DIR engine.python=PYTHON",
        "--online --json",
    )
    parser.add_argument("--json", action="store_true", help="machine-readable output")
    parser.add_argument("--online", action="store_true", help="also check that the model hub responds")


def doctor(options: Namespace) -> int:
    """Show all checks; exit 1 if the chosen engine is not ready."""
    config = load(options.overrides, options.config_dir)
    chosen = [engine.name for engine in engines.chosen(config)]
    groups = examine(config, options.online)
    verdicts = {
        name: verdict(groups["machine"] + checks) for name, checks in groups.items() if name not in NO_ENGINES
    }
    if options.json:
        checks = {name: [asdict(check) for check in group] for name, group in groups.items()}
        print(as_json({"engine": config.engine.name, "verdicts": verdicts, "checks": checks}))
    else:
        _show(groups, verdicts, chosen)
    ready = all(verdicts[name] != "not ready" for name in chosen)
    return Exit.DONE if ready else Exit.FAILED


def _show(groups: Mapping[str, list[Check]], verdicts: Mapping[str, str], chosen: Sequence[str]) -> None:
    """Print all checks of the machine and of the chosen engines, and the problems of the other engines."""
    for group, members in groups.items():
        if group not in (*NO_ENGINES, *chosen):
            problems = ", ".join(check.name for check in members if check.status == "problem")
            print(f"engine={group}: {verdicts[group]}{': ' if problems else ''}{problems}")
            continue
        print(NO_ENGINES.get(group) or f"engine={group}: {verdicts[group]}")
        for check in members:
            print(f"  {MARKS[check.status]} {check.name}: {check.found}")
            if check.remedy:
                print(f"          {check.remedy}")


def examine(config: Config, online: bool) -> dict[str, list[Check]]:
    """Check the machine and each engine: the chosen one as configured, the others with their defaults."""
    written = sum(stage.bytes_written or 0 for stage in stages(config) if stage.skipped is None)
    machine = [look.disk(Path(config.store).absolute(), written), look.port(config.launcher.master_port)]
    if config.launcher.name == "ssh":
        machine += look.hosts(hosts_of(config.launcher), config.launcher.ssh)
        store = Path(config.store).absolute()
        problems = missing(config.launcher, config.cards, node_paths(config, engines.chosen(config)), store)
        machine += [Check(f"host {host}", "problem", problem) for host, problem in problems]
    if online:
        endpoint = config.fetch.endpoint or os.environ.get("MODELSCOPE_ENDPOINT") or HUB
        machine.append(look.reachable(endpoint, redact(endpoint)))
    if config.engine.name != "local":
        machine += _host_memory(config)
    versions, cards = functools.cache(_versions), devices.look()
    groups = {"machine": machine, "local": list(_local(config))}
    for engine in engines.outside():
        groups[engine.name] = list(_outside(engine, config, versions, cards))
    if any(engine.rehearsal for engine in engines.parts(config)):
        groups["rehearse"] = [_rehearsing(config)]
    return groups


def _rehearsing(config: Config) -> Check:
    """Check that an interpreter has the packages for rehearsals, which need no card."""
    python = look.interpreter(getattr(config.engine, "python", None))
    required = machine.MINDFORMERS_PACKAGES, machine.MINDFORMERS_INSTALL
    problem = next(machine.missing_packages("engine.python", python, *required), None)
    if problem is None:
        return Check("interpreter", "ok", f"{python}: mindspore and the dependencies of mindformers")
    return Check("interpreter", "problem", f"{python or 'none'}: {problem.rule}", problem.remedy)


def verdict(checks: list[Check]) -> str:
    """Summarize checks: ready, not ready, or ready as far as known."""
    if any(check.status == "problem" for check in checks):
        return "not ready"
    return "ready as far as known" if any(check.status == "unknown" for check in checks) else "ready"


def _local(config: Config) -> Iterator[Check]:
    yield look.python_version(".".join(map(str, sys.version_info[:3])))
    yield from look.packages(RULES, installed, sys.executable)
    if config.engine.name == "local":
        workers = config.layout.train.cards
        yield look.memory(workers * sum(role.low for role in engines.get("local").memory(config)))


def _host_memory(config: Config) -> Iterator[Check]:
    """Check the memory that the pipeline's stages need on this machine when an external engine trains.

    convert, split and export stream. evaluate holds the model in float32 on the CPU, and while loading also
    the stored weights.
    """
    if any(stage.name == "evaluate" and stage.skipped is None for stage in stages(config)):
        check = look.memory(4 * config.model.num_parameters + config.model.weight_bytes)
        why = f"{check.remedy}: evaluate runs here, with the whole model"
        yield check if check.status == "ok" else replace(check, remedy=why)


def _versions(python: str) -> Mapping[str, str | None] | None:
    """Return the versions of all distributions that any engine needs, from one call of an interpreter."""
    names = {"mindformers"}
    for engine in engines.outside():
        windows = [
            *engine.optional_packages(None),
            *(window for known in engine.known.values() for window in known.packages),
        ]
        names.update(name for name, *_ in windows)
    return look.versions(python, sorted(names))


def _outside(
    engine: Engine,
    config: Config,
    versions: Callable[[str], Mapping[str, str | None] | None],
    cards: devices.Seen,
) -> Iterator[Check]:
    chosen = engine.settings(config) if engine in engines.chosen(config) else None
    needed = min(config.cards, config.launcher.cards_per_node)
    memory = getattr(chosen, "device_memory_gib", None)
    yield from devices.checks(cards, needed, memory, engine.requires_ascend_910)
    container = getattr(chosen, "container", ())
    python = None if container else look.interpreter(getattr(chosen, "python", None))
    installed_versions = versions(python) if python else None
    contract = getattr(chosen, "contract", None)
    for first in engine.checkouts[:1]:
        contract = first.contract(_home(first, chosen)) or contract
    for checkout in engine.needed(contract):
        version = (installed_versions or {}).get(checkout.package) if checkout.package else None
        yield checkouts.check(checkout, _home(checkout, chosen), version)
    if container:
        yield Check("python", "unknown", f"runs behind {container[0]}", "run grpoflow doctor in there")
        return
    known = engine.works_with(contract)
    if known is not None:
        yield look.cann(known.cann, home=os.environ.get("ASCEND_HOME_PATH"))
        yield look.driver(known.driver)
    if python is None or installed_versions is None:
        state = f"{python or 'no python on PATH but our own'}: does not answer"
        yield Check(
            "python", "problem", state, "engine.python: an interpreter with mindspore and mindformers"
        )
        return
    yield look.python_version(installed_versions["python"] or "")
    packages = (*(known.packages if known else ()), *engine.optional_packages(chosen))
    yield from look.packages(packages, installed_versions.get, python)


def _home(checkout: Checkout, settings: Any) -> str | None:
    """Return the configured directory of a checkout; None if it or its engine is not configured."""
    home: str | None = getattr(settings, checkout.key, None)
    return home
