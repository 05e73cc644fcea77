"""Digests of the output of every stage, which detect an output that changed without a raised version.

With the pinned packages most stages write the same bytes on every machine. Of a MindRecord index, only the
rows are compared, because SQLite's pages depend on its version. The outputs of sft, grpo and evaluate depend
on floating-point sums, which differ between processors: their digest covers files, keys, and the
names, dtypes and shapes of tensors; numbers are compared with a tolerance. For outside engines, it covers
the files that they read, and the artifacts made from files that a run leaves. Times, measured memory and
paths are ignored.

    STAGE_DIGESTS_WRITE=1 python -m pytest -p no:xdist -k without_its_version
        writes tests/data/stage_digests.json; fails if an output changed and its version was not raised
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import sqlite3
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file as tensors_of

from pipeline.plan.graph import StageSpec
from pipeline.store.store import MANIFEST
from stages import engines
from stages.base.context import Context
from stages.catalog import STAGES

ENGINES = map(engines.get, (*engines.NAMES, engines.SUPERVISED))
PROGRAMS = {program.name: program.version for engine in ENGINES for program in engine.programs}
GOLDEN = Path(__file__).parents[1] / "data" / "stage_digests.json"
WRITE = "STAGE_DIGESTS_WRITE"
"""Variable that lets tests write what they would compare."""
COMMAND = f"{WRITE}=1 python -m pytest -p no:xdist -k without_its_version"
REMEDY = f"raise it in stages/catalog.py, or that of a Program in the engine's engine.py, and run {COMMAND}"
WEIGHTS = ("model.initializer_range=0.02", "model.rope_theta=10000")
"""Overrides of the model in GOLDEN, independent of the defaults."""
REWARD = "reward.functions=[accuracy,answer_format]"
"""Reward in GOLDEN, which export's model card names, independent of the defaults."""
LEARNING_RATE = 2.0e-04
"""Learning rate of grpo in GOLDEN."""
RELATIVE, ABSOLUTE = 2e-3, 2e-4
MEASURED = re.compile(r"(\w*_)?s|\w*memory\w*|earlier|logs")
"""Keys whose values are times, memory sizes, or paths of a run."""
REPOSITORY = Path(__file__).parents[2]


def of_stages() -> dict[str, dict[str, Any]]:
    """Return version and digest of each stage for a tiny model and a few rows."""
    from pipeline.config.load import load
    from pipeline.plan.graph import plan
    from stages.__main__ import entry
    from stages.base.files import file_digest
    from tests.pipeline.test_accepted import BEFORE_TRAINING, TINY

    result: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory)
        (root / "grpo").symlink_to("split")  # which nothing trains
        made = load(("engine=local", *TINY, *WEIGHTS, REWARD))
        train = replace(made.train, learning_rate=LEARNING_RATE)
        for spec in plan(replace(made, train=train), file_digest).specs:
            if spec.name not in (*BEFORE_TRAINING, "export"):
                continue
            context = make_context(spec, root)
            entry(spec.name)(context)
            output = context.output
            files = [file for file in sorted(output.rglob("*")) if file.is_file()]
            parts = {file.relative_to(output).as_posix(): part(file) for file in files}
            result[spec.name] = {"version": STAGES[spec.name].version, "digest": digest(parts)}
        result["report"] = {"version": STAGES["report"].version, "digest": digest(_report(root))}
    return result


def make_context(spec: StageSpec, root: Path) -> Context:
    """Return the context of a stage whose inputs and output are directories of `root`."""
    output, work = root / spec.name, root / ".work"
    for directory in (output, work):
        directory.mkdir(exist_ok=True)
    config = json.loads(json.dumps(spec.config))  # as a stage's process reads it
    inputs = {name: root / key.stage for name, key in spec.inputs.items()}
    return Context(spec.name, config, inputs, output, work, root / "progress.jsonl")


def _report(root: Path) -> str:
    from stages.report.config import ReportConfig
    from stages.report.page import render
    from tests.stages.report.synthetic import make_run

    config = ReportConfig(language="en", title=None, samples=12, text_limit=1500)
    return render(make_run(root / "store"), config)


def digest(values: Any) -> str:
    """Return the SHA-256 of plain values."""
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()


def part(file: Path) -> Any:
    """Return the part of a file that must not change unnoticed."""
    if file.name.endswith(".mindrecord.db"):
        with sqlite3.connect(file) as index:
            return list(index.iterdump())
    return hashlib.sha256(file.read_bytes()).hexdigest()


def check(name: str, output: Path, *roots: Path, exact: bool = True) -> None:
    """Check that the output of a stage, or of an outside engine, equals its entry in GOLDEN.

    An engine with several entries is followed by /PART. Paths of `roots` are replaced by ROOT. Without
    `exact`, numbers are compared with a tolerance and texts are ignored.
    """
    parts, values = contents(output, roots, exact)
    stage = name.partition("/")[0]
    version = PROGRAMS[stage] if stage in PROGRAMS else STAGES[stage].version
    entry = {"version": version, "digest": digest(parts)}
    compare({name: entry if exact else {**entry, "values": values}})


def compare(now: Mapping[str, Mapping[str, Any]]) -> None:
    """Check that entries equal those in GOLDEN, or write those with a new version there."""
    known = json.loads(GOLDEN.read_text()) if GOLDEN.exists() else {}
    result = list(problems(now, known))
    if os.environ.get(WRITE):
        result = [problem for problem in result if "has no digest" not in problem]
        entries = {**known, **(now if not result else {})}
        GOLDEN.write_text(json.dumps(entries, indent=1, sort_keys=True) + "\n")
    assert result == []


def contents(output: Path, roots: Sequence[Path], exact: bool) -> tuple[dict[str, Any], list[float]]:
    """Return the compared content of each file, and the numbers that are compared with a tolerance."""
    parts: dict[str, Any] = {}
    values: list[float] = []
    for file in sorted(output.rglob("*")):
        name = file.relative_to(output).as_posix()
        # hosts and times, and numbers of each step, which tests/stages/grpo/test_records.py checks
        if not file.is_file() or file.name == MANIFEST or name.startswith(("tensorboard/", "completions/")):
            continue
        if file.suffix in (".json", ".jsonl", ".yaml"):
            text = file.read_text()
            for root in (*roots, REPOSITORY):
                text = text.replace(str(root), "ROOT")
            rows: list[Any] = text.splitlines() if file.suffix == ".jsonl" else [text]
            if file.suffix != ".yaml":
                rows = [json.loads(row, object_hook=unmeasured) for row in rows]
            parts[name] = rows if exact else [kinds(rows[0]), len(rows)]
            values += numbers(rows) if name in ("metrics.jsonl", "result.json") else []
        elif file.suffix == ".safetensors" and not exact:
            tensors = sorted(tensors_of(file).items())
            parts[name] = [[key, str(item.dtype), item.shape] for key, item in tensors]
            values += [float(np.abs(item).mean()) for _, item in tensors]
        else:
            parts[name] = part(file)
    return parts, values


def unmeasured(values: dict[str, Any]) -> dict[str, Any]:
    """Return the values of a JSON object without measured ones."""
    return {key: value for key, value in values.items() if not MEASURED.fullmatch(key)}


def kinds(value: Any) -> Any:
    """Return JSON values with each value replaced by its type."""
    if isinstance(value, dict):
        return {key: kinds(item) for key, item in value.items()}
    if isinstance(value, list):
        return [kinds(item) for item in value]
    return "number" if isinstance(value, (int, float)) else type(value).__name__


def numbers(value: Any) -> list[float]:
    """Return the numbers in JSON values, ordered by keys."""
    if isinstance(value, (dict, list)):
        below = [item for _, item in sorted(value.items())] if isinstance(value, dict) else value
        return [number for item in below for number in numbers(item)]
    return [float(value)] if isinstance(value, (int, float)) else []


def of_engines() -> dict[str, dict[str, Any]]:
    """Return version and digest of the files that each outside engine reads."""
    from pipeline.config.load import load
    from stages.engines.areal.files import configuration as areal_configuration
    from stages.engines.areal.job import Job as ArealJob
    from stages.engines.areal.job import Paths as ArealPaths
    from stages.engines.mindformers import job as mindformers
    from stages.engines.mindformers.files import finetune
    from stages.engines.mindrlhf.files import all_configs
    from stages.engines.mindrlhf_one_stage import files as one_stage_files
    from stages.engines.mindspeed_rl.files import runtime_env, train_config
    from stages.engines.verl import export
    from stages.engines.verl.files import configuration
    from stages.engines.verl.job import Job, Paths
    from tests.stages.engines.mindrlhf import jobs as mindrlhf
    from tests.stages.engines.mindrlhf_one_stage import jobs as one_stage
    from tests.stages.engines.mindspeed_rl import jobs as mindspeed_rl

    seven = ("model=qwen2_5_7b", "layout=dp1_mp4_pp2")
    first = mindrlhf.job_of(*seven)
    supervised = load(["engine=mindrlhf", "engine.sft=mindformers", "model.path=/models/qwen", *seven])
    second = mindformers.Job.from_run(supervised)
    paths = mindformers.Paths(Path("/run"), Path("/records/sft.mindrecord"), Path("/run/weights"))
    third = one_stage.job_of(*one_stage.SEVEN, "train.prompts_per_step=2")
    fourth = mindspeed_rl.job_of(*mindspeed_rl.SEVEN)
    verl = load(["experiment=verl_7b", "model.path=/models/qwen"])
    areal = load(["experiment=areal_7b", "model.path=/models/qwen"])
    inputs_of_engines = {
        "mindrlhf": all_configs(first, mindrlhf.paths(first), resume=False),
        "mindformers": finetune(second, paths, resume=False),
        "mindrlhf_one_stage": [
            one_stage_files.finetune(third),
            one_stage_files.predict(third),
            one_stage_files.grpo_config(third),
        ],
        "mindspeed_rl_grpo": [train_config(fourth, mindspeed_rl.paths(), False), runtime_env(fourth)],
        "areal_grpo": areal_configuration(
            ArealJob.from_run(areal), ArealPaths(Path("/run"), Path("/data/train.jsonl"))
        ),
        "verl_grpo": configuration(Job.from_run(verl), Paths(Path("/run"), Path("/data"))),
        "verl_export": list(export.render(verl.plain(), {"grpo": Path("/grpo")}, Path("/run")).start.program),
    }
    return {
        name: {"version": PROGRAMS[name], "digest": digest(values)}
        for name, values in inputs_of_engines.items()
    }


def problems(now: Mapping[str, Mapping[str, Any]], known: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """Yield outputs that changed without a new version, and golden digests that are out of date."""
    for name, result in now.items():
        before = known.get(name)
        if before is None or result["version"] > before["version"]:
            yield f"{name}: version {result['version']} has no digest; run {COMMAND}"
        elif result["version"] < before["version"]:
            yield f"{name}: version {result['version']} was {before['version']}: versions only rise"
        elif result["digest"] != before["digest"] or not close(result, before):
            yield f"{name}: its output changed, its version {result['version']} did not; {REMEDY}"


def close(current: Mapping[str, Any], before: Mapping[str, Any]) -> bool:
    """Return True if two entries have the same numbers up to the order of summation."""
    pairs = zip(current.get("values", ()), before.get("values", ()), strict=True)
    return all(math.isclose(item, second, rel_tol=RELATIVE, abs_tol=ABSOLUTE) for item, second in pairs)
