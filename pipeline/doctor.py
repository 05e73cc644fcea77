"""`grpoflow doctor`: can this machine run the engines? Changes nothing; asks the network only when told."""

from __future__ import annotations

import json
import os
import sys
from argparse import Namespace
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from launch import doctor as look
from launch.doctor import Check
from launch.environment import RULES, installed
from pipeline import engines
from pipeline.config import Config, load
from pipeline.errors import ConfigError
from pipeline.graph import stages
from stages.fetch.redact import redact
from stages.mindrlhf.config import VERSIONS, MindrlhfEngine

EXIT_READY, EXIT_NOT_READY = 0, 1
HUB = "https://modelscope.cn"
MARKS = {"ok": "ok     ", "problem": "PROBLEM", "unknown": "unknown"}


def doctor(options: Namespace) -> int:
    """Show every check; exit 1 when the chosen engine is not ready."""
    config = load(options.overrides, options.config_dir)
    found = examine(config, options.online)
    verdicts = {
        name: verdict(found["machine"] + checks) for name, checks in found.items() if name != "machine"
    }
    if options.json:
        checks = {name: [asdict(check) for check in group] for name, group in found.items()}
        print(json.dumps({"engine": config.engine.name, "verdicts": verdicts, "checks": checks}, indent=1))
    else:
        for group, members in found.items():
            print(group if group == "machine" else f"engine={group}: {verdicts[group]}")
            for check in members:
                print(f"  {MARKS[check.status]} {check.name}: {check.found}")
                if check.remedy:
                    print(f"          {check.remedy}")
    return EXIT_READY if verdicts[config.engine.name] != "not ready" else EXIT_NOT_READY


def examine(config: Config, online: bool) -> dict[str, list[Check]]:
    """Checks of the machine, and of each engine: the chosen one as configured, the other by its defaults."""
    written = sum(stage.bytes_written or 0 for stage in stages(config) if stage.skipped is None)
    machine = [look.disk(Path(config.store).absolute(), written), look.port(config.launcher.master_port)]
    if online:
        endpoint = config.fetch.endpoint or os.environ.get("MODELSCOPE_ENDPOINT") or HUB
        machine.append(look.reachable(endpoint, redact(endpoint)))
    return {"machine": machine, "local": list(_local(config)), "mindrlhf": list(_mindrlhf(config))}


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


def _mindrlhf(config: Config) -> Iterator[Check]:
    engine = config.engine if isinstance(config.engine, MindrlhfEngine) else None
    yield look.devices(min(config.cards, config.launcher.cards_per_node))
    yield _checkout(engine)
    if engine is not None and engine.container:
        yield Check("python", "unknown", f"runs behind {engine.container[0]}", "run grpoflow doctor in there")
        return
    python = look.interpreter(engine.python if engine else None)
    windows = look.MINDRLHF + (look.VLLM if engine is None or engine.use_vllm else ())
    found = look.versions(python, [*(name for name, *_ in windows), "mindformers"]) if python else None
    if python is None or found is None:
        told = f"{python or 'no python on PATH but our own'}: does not answer"
        yield Check("python", "problem", told, "engine.python: an interpreter with mindspore and mindformers")
        return
    yield look.python_version(found["python"] or "")
    yield from look.packages(windows, found.get, python)
    yield _mindformers(engine, found["mindformers"])


def _checkout(engine: MindrlhfEngine | None) -> Check:
    """The version of mindrlhf, by what its files accept."""
    from stages.mindrlhf import contract

    if engine is None or engine.mindrlhf_home is None:
        remedy = f"engine.mindrlhf_home: a checkout of mindspore-ai/mindrlhf at {' or '.join(VERSIONS)}"
        return Check("mindrlhf", "problem", "engine.mindrlhf_home is not set", remedy)
    try:
        return Check(
            "mindrlhf", "ok", f"{engine.mindrlhf_home}: contract {contract.of(engine.mindrlhf_home)}"
        )
    except ConfigError as error:
        return Check("mindrlhf", "problem", engine.mindrlhf_home, str(error))


def _mindformers(engine: MindrlhfEngine | None, have: str | None) -> Check:
    """A checkout, or the interpreter's own."""
    remedy = (
        "engine.mindformers_home: a checkout of mindformers at 6a52b43 or 051d65f, as mindrlhf's users pin"
    )
    if engine is not None and engine.mindformers_home is not None:
        home = Path(engine.mindformers_home)
        if (home / "mindformers" / "__init__.py").is_file():
            return Check("mindformers", "ok", f"checkout {home}")
        return Check("mindformers", "problem", f"{home}: no checkout of mindformers", remedy)
    return Check("mindformers", "ok" if have else "problem", have or "not installed", "" if have else remedy)
