"""Check of `engine.upstream`: does the engine's program have these keys?

The program itself is asked: a script in its interpreter, or the classes of its checkout. The answer of an
interpreter is kept until the interpreter, its packages or the script change. Without either, plan accepts the
keys with a note.
"""

import functools
import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import stages
from launch.machine import checks
from pipeline.cache import recall, remember
from pipeline.config import inference
from pipeline.config.sections import Config
from pipeline.errors import Problem
from stages.engines.engine import Engine
from stages.engines.upstream_keys import Schema

VLLM_SCHEMA = Path(stages.__file__).parent / "inference" / "programs" / "schema.py"
"""Script that prints the arguments of vLLM."""
TIMEOUT_S = 180.0
"""Time limit of an answer; importing torch and verl from a network file system takes a minute."""


def problems(engine: Engine[Any], config: Config) -> Iterator[Problem]:
    """Yield a problem for each key of `upstream` that the program does not have or has with another type."""
    added = getattr(engine.settings_of(config), "upstream", {})
    if added and (schema := _schema(engine, config)) is not None:
        yield from schema.problems(f"{engine.section}.upstream", added, f"{engine.name}'s own configuration")


def notes(engine: Engine[Any], config: Config) -> Iterator[str]:
    """Yield a note if keys are set that nobody could check."""
    if getattr(engine.settings_of(config), "upstream", {}) and _schema(engine, config) is None:
        needed = f"{engine.section}.python" if engine.schema_script(engine.job(config)) else "a checkout"
        yield (
            f"{engine.section}.upstream: whether {engine.name} has these keys was not checked; that needs "
            f"{needed} on this machine"
        )


def inference_problems(config: Config) -> Iterator[Problem]:
    """Yield a problem for each key of evaluate.upstream that vLLM does not have or has with another type."""
    added = config.evaluate.upstream
    if added and (schema := _inference_schema(config)) is not None:
        yield from schema.problems("evaluate.upstream", added, "vLLM's own arguments")


def inference_notes(config: Config) -> Iterator[str]:
    """Yield a note if evaluate.upstream is set and nobody could check it."""
    evaluate = config.evaluate
    if evaluate.upstream and _inference_schema(config) is None:
        needed = "evaluate.python or engine.python on this machine"
        yield f"evaluate.upstream: whether vLLM has these arguments was not checked; that needs {needed}"


def _inference_schema(config: Config) -> Schema | None:
    """Return the arguments of vLLM; None if its interpreter cannot be asked on this machine."""
    settings: Any = config.engine
    configured = config.evaluate.python or getattr(settings, "python", None)
    container: Any = getattr(settings, "container", None)
    if configured is None or container or config.launcher.name != "local":
        return None
    python = checks.interpreter(configured)
    if python is None or not Path(python).is_file():
        return None
    text = _answer(python, (str(VLLM_SCHEMA),), inference.engine_path(config))
    return None if text is None else Schema.parse(text)


def _schema(engine: Engine[Any], config: Config) -> Schema | None:
    """Return the program's keys; None if it cannot be asked on this machine."""
    settings, job = engine.settings_of(config), engine.job(config)
    script = engine.schema_script(job)
    if script is None:
        return engine.schema(job)
    if settings.python is None or settings.container or config.launcher.name != "local":
        return None
    python = checks.interpreter(settings.python)
    if python is None or not Path(python).is_file():
        return None
    text = _answer(python, script, settings.env.get("PYTHONPATH", ""))
    return None if text is None else Schema.parse(text)


@functools.cache
def _answer(python: str, script: tuple[str, ...], python_path: str) -> str | None:
    """Return the last line that a script prints, from the cache if nothing has changed since."""
    content = hashlib.sha256(Path(script[0]).read_bytes()).hexdigest()
    key = checks.state_of(python, content, *script[1:], python_path)
    if isinstance(known := recall("program_keys", key), str):
        return known
    lines = (checks.script_output(python, script, python_path, TIMEOUT_S) or "").splitlines()
    if not lines:
        return None
    remember("program_keys", key, lines[-1])
    return lines[-1]
