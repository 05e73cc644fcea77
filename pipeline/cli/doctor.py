"""`grpoflow doctor`: can this machine run the engines? Changes nothing; asks the network only when told."""

import functools
import json
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
from launch.nodes.run import hosts_of, lacking
from pipeline import engines, rehearsal
from pipeline.cli.command import Commands
from pipeline.config.load import Config, load
from pipeline.engines.machines import installed as needed
from pipeline.errors import ConfigError, Exit, Problem
from pipeline.plan import checkouts
from pipeline.plan.graph import stages
from pipeline.rehearsal.machine import missing_packages
from stages.base.engine import Checkout, Engine
from stages.fetch.redact import redact

HUB = "https://modelscope.cn"
NO_ENGINES = {"machine": "machine", "rehearse": "grpoflow rehearse"}
"""Groups of checks that no engine's verdict is named after, and their headings."""
MARKS = {"ok": "ok     ", "problem": "PROBLEM", "unknown": "unknown"}


def register(commands: Commands) -> None:
    """Add `doctor`."""
    parser = commands.add(
        "doctor",
        doctor,
        "check what the engines need of this machine, with a verdict each (exit 1: the chosen one can't run)",
        "engine=mindrlhf engine.mindrlhf_home=DIR engine.python=PYTHON",
        "--online --json",
    )
    parser.add_argument("--json", action="store_true", help="for programs")
    parser.add_argument("--online", action="store_true", help="ask the model hub whether it answers")
    parser.add_argument(
        "--checkout",
        action="append",
        default=[],
        metavar="NAME=DIR",
        help="look at a checkout of mindrlhf, one_stage, mindformers or mindspeed_rl too",
    )


def doctor(options: Namespace) -> int:
    """Show every check; exit 1 when the chosen engine is not ready."""
    config = load(options.overrides, options.config_dir)
    chosen = [engine.name for engine in engines.chosen(config)]
    found = examine(config, options.online, homes(options.checkout))
    verdicts = {
        name: verdict(found["machine"] + checks) for name, checks in found.items() if name not in NO_ENGINES
    }
    if options.json:
        checks = {name: [asdict(check) for check in group] for name, group in found.items()}
        print(json.dumps({"engine": config.engine.name, "verdicts": verdicts, "checks": checks}, indent=1))
    else:
        _show(found, verdicts, chosen)
    ready = all(verdicts[name] != "not ready" for name in chosen)
    return Exit.DONE if ready else Exit.FAILED


def _show(found: Mapping[str, list[Check]], verdicts: Mapping[str, str], chosen: Sequence[str]) -> None:
    """The machine and the chosen engines check by check; of each other engine what stands in its way."""
    for group, members in found.items():
        if group not in (*NO_ENGINES, *chosen):
            lacks = ", ".join(check.name for check in members if check.status == "problem")
            print(f"engine={group}: {verdicts[group]}{': ' if lacks else ''}{lacks}")
            continue
        print(NO_ENGINES.get(group) or f"engine={group}: {verdicts[group]}")
        for check in members:
            print(f"  {MARKS[check.status]} {check.name}: {check.found}")
            if check.remedy:
                print(f"          {check.remedy}")


def homes(pairs: list[str]) -> dict[str, str]:
    """--checkout NAME=DIR, several times.

    Raises:
        ConfigError: no such name.
    """
    known = [checkout.name for engine in engines.outside() for checkout in engine.checkouts]
    found = {}
    for pair in pairs:
        name, _, directory = pair.partition("=")
        if name not in known or not directory:
            rule = f"must be NAME=DIR, of {', '.join(dict.fromkeys(known))}"
            raise ConfigError([Problem("--checkout", pair, rule)])
        found[name] = directory
    return found


def examine(config: Config, online: bool, given: Mapping[str, str] | None = None) -> dict[str, list[Check]]:
    """Checks of the machine and of each engine: the chosen one as configured, others by their defaults."""
    written = sum(stage.bytes_written or 0 for stage in stages(config) if stage.skipped is None)
    machine = [look.disk(Path(config.store).absolute(), written), look.port(config.launcher.master_port)]
    if config.launcher.name == "ssh":
        machine += look.hosts(hosts_of(config.launcher), config.launcher.ssh)
        store = Path(config.store).absolute()
        told = lacking(config.launcher, config.cards, needed(config), store)
        machine += [Check(f"host {host}", "problem", what) for host, what in told]
    if online:
        endpoint = config.fetch.endpoint or os.environ.get("MODELSCOPE_ENDPOINT") or HUB
        machine.append(look.reachable(endpoint, redact(endpoint)))
    if config.engine.name != "local":
        machine += _host_memory(config)
    versions, cards = functools.cache(_versions), devices.look()
    found = {"machine": machine, "local": list(_local(config))}
    for engine in engines.outside():
        found[engine.name] = list(_outside(engine, config, given or {}, versions, cards))
    if any(engine.name in rehearsal.ENGINES for engine in engines.parts(config)):
        found["rehearse"] = [_rehearsing(config)]
    return found


def _rehearsing(config: Config) -> Check:
    """Whether this machine has an interpreter that can rehearse: its packages; no card is needed."""
    python = look.interpreter(config.engine.python if config.engine.name != "local" else None)
    lacks = next(iter(missing_packages(python)), None)
    if lacks is None:
        return Check("interpreter", "ok", f"{python}: mindspore, and what mindformers stands on")
    return Check("interpreter", "problem", f"{python or 'none'}: {lacks.rule}", lacks.remedy)


def verdict(checks: list[Check]) -> str:
    """ready, not ready, or ready as far as it could be looked at."""
    if any(check.status == "problem" for check in checks):
        return "not ready"
    return "ready as far as known" if any(check.status == "unknown" for check in checks) else "ready"


def _local(config: Config) -> Iterator[Check]:
    yield look.python_version(".".join(map(str, sys.version_info[:3])))
    yield from look.packages(RULES, installed, sys.executable)
    if config.engine.name == "local":
        workers = config.layout.train.cards
        yield look.memory(workers * sum(role.low for role in engines.of("local").memory(config)))


def _host_memory(config: Config) -> Iterator[Check]:
    """What the pipeline's own stages take at least of this machine's memory beside an outside engine.

    convert, split and export stream. evaluate holds the model in float32 on the CPU, and the weights as they
    are stored while it loads them.
    """
    if any(stage.name == "evaluate" and stage.skipped is None for stage in stages(config)):
        check = look.memory(4 * config.model.num_parameters + config.model.weight_bytes)
        why = f"{check.remedy}: evaluate runs here, with the whole model"
        yield check if check.status == "ok" else replace(check, remedy=why)


def _versions(python: str) -> Mapping[str, str | None] | None:
    """Every distribution that any engine needs, asked once of an interpreter."""
    names = {"mindformers"}
    for engine in engines.outside():
        windows = [
            *engine.also(None),
            *(window for known in engine.known.values() for window in known.packages),
        ]
        names.update(name for name, *_ in windows)
    return look.versions(python, sorted(names))


def _outside(
    engine: Engine,
    config: Config,
    given: Mapping[str, str],
    versions: Callable[[str], Mapping[str, str | None] | None],
    cards: devices.Seen,
) -> Iterator[Check]:
    chosen = engine.settings(config) if engine in engines.chosen(config) else None
    needed = min(config.cards, config.launcher.cards_per_node)
    memory = getattr(chosen, "device_memory_gib", None)
    yield from devices.checks(cards, needed, memory, engine.only_910)
    container = getattr(chosen, "container", ())
    python = None if container else look.interpreter(getattr(chosen, "python", None))
    found = versions(python) if python else None
    first = engine.checkouts[0]
    contract = first.contract(_home(first, given, chosen)) or getattr(chosen, "contract", None)
    for checkout in engine.needed(contract):
        installed = (found or {}).get(checkout.package) if checkout.package else None
        yield checkouts.check(checkout, _home(checkout, given, chosen), installed)
    if container:
        yield Check("python", "unknown", f"runs behind {container[0]}", "run grpoflow doctor in there")
        return
    known = engine.works_with(contract)
    yield look.cann(known.cann, home=os.environ.get("ASCEND_HOME_PATH"))
    yield look.driver(known.driver)
    if python is None or found is None:
        told = f"{python or 'no python on PATH but our own'}: does not answer"
        yield Check("python", "problem", told, "engine.python: an interpreter with mindspore and mindformers")
        return
    yield look.python_version(found["python"] or "")
    yield from look.packages((*known.packages, *engine.also(chosen)), found.get, python)


def _home(checkout: Checkout, given: Mapping[str, str], chosen: Any) -> str | None:
    """Where a checkout is: --checkout's directory, or what the chosen engine's configuration names."""
    home: str | None = given.get(checkout.name)
    return home or getattr(chosen, checkout.key, None)
