"""`grpoflow doctor`: can this machine run the engines? Changes nothing; asks the network only when told."""

from __future__ import annotations

import functools
import json
import os
import sys
from argparse import Namespace
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from launch import doctor as look
from launch import windows
from launch.doctor import Check
from launch.engine import hosts_of, lacking
from launch.environment import RULES, installed
from launch.install_script import ENGINES as SCRIPTED
from launch.install_script import script
from launch.windows import Window
from pipeline import engines
from pipeline.checkouts import CHECKOUTS, Checkout
from pipeline.config import Config, load
from pipeline.engines.machines import installed as needed
from pipeline.errors import ConfigError, Problem
from pipeline.graph import stages
from stages.fetch.redact import redact

EXIT_READY, EXIT_NOT_READY = 0, 1
HUB = "https://modelscope.cn"
MARKS = {"ok": "ok     ", "problem": "PROBLEM", "unknown": "unknown"}


@dataclass(frozen=True)
class Outside:
    """What doctor knows of an engine that is a program of its own."""

    packages: tuple[Window, ...]
    checkouts: tuple[Checkout, ...]


OUTSIDE: Mapping[str, Outside] = {
    "mindrlhf": Outside(windows.MINDRLHF, (CHECKOUTS["mindrlhf"], CHECKOUTS["mindformers"])),
    "mindrlhf_one_stage": Outside(windows.ONE_STAGE, (CHECKOUTS["one_stage"], CHECKOUTS["mindformers"])),
    "mindspeed_rl": Outside(windows.MINDSPEED_RL, (CHECKOUTS["mindspeed_rl"],)),
    "mindformers": Outside(windows.MINDFORMERS, (CHECKOUTS["mindformers"],)),
}
"""mindformers stands for supervised training by it, before mindrlhf (engine.sft=mindformers)."""


def doctor(options: Namespace) -> int:
    """Show every check; exit 1 when the chosen engine is not ready."""
    config = load(options.overrides, options.config_dir)
    if options.fix_script:
        name = config.engine.name if config.engine.name in SCRIPTED else "mindrlhf"
        print(script(name, str(getattr(config.engine, "contract", ""))), end="")
        return EXIT_READY
    found = examine(config, options.online, homes(options.checkout))
    verdicts = {
        name: verdict(found["machine"] + checks) for name, checks in found.items() if name != "machine"
    }
    if options.json:
        checks = {name: [asdict(check) for check in group] for name, group in found.items()}
        print(json.dumps({"engine": config.engine.name, "verdicts": verdicts, "checks": checks}, indent=1))
    else:
        _show(found, verdicts, config.engine.name)
    return EXIT_READY if verdicts[config.engine.name] != "not ready" else EXIT_NOT_READY


def _show(found: Mapping[str, list[Check]], verdicts: Mapping[str, str], chosen: str) -> None:
    """The machine and the chosen engine check by check; of each other engine what stands in its way."""
    for group, members in found.items():
        if group not in ("machine", chosen):
            lacks = ", ".join(check.name for check in members if check.status == "problem")
            print(f"engine={group}: {verdicts[group]}{': ' if lacks else ''}{lacks}")
            continue
        print(group if group == "machine" else f"engine={group}: {verdicts[group]}")
        for check in members:
            print(f"  {MARKS[check.status]} {check.name}: {check.found}")
            if check.remedy:
                print(f"          {check.remedy}")


def homes(pairs: list[str]) -> dict[str, str]:
    """--checkout NAME=DIR, several times.

    Raises:
        ConfigError: no such name.
    """
    found = {}
    for pair in pairs:
        name, _, directory = pair.partition("=")
        if name not in CHECKOUTS or not directory:
            raise ConfigError([Problem("--checkout", pair, f"must be NAME=DIR, of {', '.join(CHECKOUTS)}")])
        found[name] = directory
    return found


def examine(config: Config, online: bool, given: Mapping[str, str] | None = None) -> dict[str, list[Check]]:
    """Checks of the machine, and of each engine: the chosen one as configured, the others by their defaults.

    Args:
        config: the configuration.
        online: ask the model hub too.
        given: checkouts to look at besides those that the configuration names.
    """
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
    versions = functools.cache(_versions)
    found = {"machine": machine, "local": list(_local(config))}
    for name, engine in OUTSIDE.items():
        found[name] = list(_outside(name, engine, config, given or {}, versions))
    return found


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


def _versions(python: str) -> Mapping[str, str | None] | None:
    """Every distribution that any engine needs, asked once of an interpreter."""
    names = {name for engine in OUTSIDE.values() for name, *_ in engine.packages}
    return look.versions(python, sorted({*names, *(name for name, *_ in windows.VLLM), "mindformers"}))


def _outside(
    name: str,
    engine: Outside,
    config: Config,
    given: Mapping[str, str],
    versions: Callable[[str], Mapping[str, str | None] | None],
) -> Iterator[Check]:
    chosen: Any = config.engine if config.engine.name == name else None
    yield look.devices(min(config.cards, config.launcher.cards_per_node))
    container = getattr(chosen, "container", ())
    python = None if container else look.interpreter(getattr(chosen, "python", None))
    found = versions(python) if python else None
    for checkout in engine.checkouts:
        home = given.get(checkout.name) or getattr(chosen, checkout.setting, None)
        yield checkout.check(home, (found or {}).get(checkout.package) if checkout.package else None)
    if container:
        yield Check("python", "unknown", f"runs behind {container[0]}", "run grpoflow doctor in there")
        return
    yield look.cann(home=os.environ.get("ASCEND_HOME_PATH"))
    yield look.driver()
    if python is None or found is None:
        told = f"{python or 'no python on PATH but our own'}: does not answer"
        yield Check("python", "problem", told, "engine.python: an interpreter with mindspore and mindformers")
        return
    yield look.python_version(found["python"] or "")
    yield from look.packages(engine.packages, found.get, python)
    if name == "mindrlhf" and getattr(chosen, "use_vllm", True):
        yield from look.packages(windows.VLLM, found.get, python)
