"""What the stages before training write, as digests: a changed output without a raised version is seen.

With the pinned packages these write the same bytes on every machine; of MindRecord's index the rows count,
for SQLite's own pages depend on its version. Of outside engines it is the files that they are given. What
sft, grpo, evaluate, export and report write rests on floating-point sums, which differ between processors:
not digested.

    python -m tests.pipeline.stage_digests    writes tests/data/stage_digests.json anew; refused where an
                                              output changed and its version was not raised
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pipeline.graph import OUTSIDE_VERSIONS, VERSIONS

GOLDEN = Path(__file__).parents[1] / "data" / "stage_digests.json"
COMMAND = "python -m tests.pipeline.stage_digests"
REMEDY = f"raise it in pipeline/graph.py and run {COMMAND}"


def of_stages() -> dict[str, dict[str, Any]]:
    """Stage -> version and digest, of a tiny model and a few rows."""
    from pipeline.config import load
    from pipeline.fingerprint import file_digest
    from pipeline.graph import plan
    from stages.__main__ import entry
    from stages.context import Context
    from tests.pipeline.test_accepted import BEFORE_TRAINING, TINY

    found: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory)
        for spec in plan(load(("engine=local", *TINY)), file_digest).specs:
            if spec.name not in BEFORE_TRAINING:
                continue
            output = root / spec.name
            output.mkdir()
            inputs = {name: root / key.stage for name, key in spec.inputs.items()}
            config = json.loads(json.dumps(spec.config))
            entry(spec.name)(Context(spec.name, config, inputs, output, root, root / "progress.jsonl"))
            files = [file for file in sorted(output.rglob("*")) if file.is_file()]
            parts = {file.relative_to(output).as_posix(): part(file) for file in files}
            found[spec.name] = {"version": VERSIONS[spec.name], "digest": digest(parts)}
    return found


def digest(values: Any) -> str:
    """SHA-256 of plain values."""
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()


def part(file: Path) -> Any:
    """What of a file must not change unnoticed."""
    if file.name.endswith(".mindrecord.db"):
        with sqlite3.connect(file) as index:
            return list(index.iterdump())
    return hashlib.sha256(file.read_bytes()).hexdigest()


def of_engines() -> dict[str, dict[str, Any]]:
    """Outside engine -> version and digest of the files that it is given."""
    from stages.mindformers.finetune_yaml import finetune
    from stages.mindrlhf.start import all_configs
    from stages.mindrlhf_one_stage import files
    from stages.mindspeed_rl.train_yaml import runtime_env, train_config
    from tests.stages.mindformers import jobs as mindformers
    from tests.stages.mindrlhf import jobs as mindrlhf
    from tests.stages.mindrlhf_one_stage import jobs as one_stage
    from tests.stages.mindspeed_rl import jobs as mindspeed_rl

    seven = ("model=qwen2_5_7b", "layout=dp1_mp4_pp2")
    first, second = mindrlhf.job_of(*seven), mindformers.job_of(*seven)
    third = one_stage.job_of(*one_stage.SEVEN, "train.prompts_per_step=2")
    fourth = mindspeed_rl.job_of(*mindspeed_rl.SEVEN)
    given = {
        "mindrlhf": all_configs(first, mindrlhf.places(first), resume=False),
        "mindformers": finetune(second, mindformers.PLACES, resume=False),
        "mindrlhf_one_stage": [files.finetune(third), files.predict(third), files.hyper_parameters(third)],
        "mindspeed_rl_grpo": [train_config(fourth, mindspeed_rl.places(), False), runtime_env(fourth)],
    }
    return {
        name: {"version": OUTSIDE_VERSIONS[name], "digest": digest(values)} for name, values in given.items()
    }


def problems(now: Mapping[str, Mapping[str, Any]], known: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """Outputs that changed while their version did not, and golden digests that are out of date."""
    for name, found in now.items():
        before = known.get(name)
        if before is None or found["version"] > before["version"]:
            yield f"{name}: version {found['version']} has no digest; run {COMMAND}"
        elif found["version"] < before["version"]:
            yield f"{name}: version {found['version']} was {before['version']}: versions only rise"
        elif found["digest"] != before["digest"]:
            yield f"{name}: its output changed, its version {found['version']} did not; {REMEDY}"


def main() -> int:
    """Write the golden file anew; 1 where that would hide a change."""
    now = {**of_stages(), **of_engines()}
    known = json.loads(GOLDEN.read_text()) if GOLDEN.exists() else {}
    refused = [told for told in problems(now, known) if "has no digest" not in told]
    if refused:
        print("\n".join(refused), file=sys.stderr)
        return 1
    GOLDEN.write_text(json.dumps(now, indent=1, sort_keys=True) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
