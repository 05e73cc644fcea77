"""What every stage writes, boiled down to digests, so that a changed output without a raised version is seen.

fetch, fetch_dataset, convert, tokenize, strategy and split write the same bytes on every machine (with the
pinned packages). What sft, grpo, evaluate and export compute depends on the processor's vector units, and
the report shows it: of these, names, dtypes, shapes, keys, kinds of values and the page's elements are
digested, and the first loss is compared as a number. Of outside engines it is the files that they are given.

    python -m tests.pipeline.stage_digests    writes tests/data/stage_digests.json anew; refused where an
                                              output changed and its version was not raised
"""

from __future__ import annotations

import hashlib
import json
import re
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from pipeline.graph import OUTSIDE_VERSIONS, VERSIONS
from pipeline.store import MANIFEST

GOLDEN = Path(__file__).parents[1] / "data" / "stage_digests.json"
COMPUTED = ("sft", "grpo", "evaluate", "export", "report")
COMMAND = "python -m tests.pipeline.stage_digests"
REMEDY = f"raise it in pipeline/graph.py and run {COMMAND}"
MACHINES = 1e-3
"""Relative difference of the first loss between machines."""


def of_store(store: Path) -> dict[str, dict[str, Any]]:
    """Stage -> version, digest and numbers, of a finished run's artifacts."""
    found = {}
    for stage, version in VERSIONS.items():
        (artifact,) = (path.parent for path in store.glob(f"{stage}/[0-9a-f]*/{MANIFEST}"))
        files = [file for file in sorted(artifact.rglob("*")) if file.is_file() and file.name != MANIFEST]
        parts = {
            file.relative_to(artifact).as_posix(): part(file, exact=stage not in COMPUTED)
            for file in files
            if "tensorboard" not in file.parts
        }
        found[stage] = {"version": version, "digest": digest(parts), "numbers": numbers(artifact)}
    return found


def digest(values: Any) -> str:
    """SHA-256 of plain values."""
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()


def part(file: Path, exact: bool) -> Any:
    """What of a file must not change unnoticed."""
    if file.name.endswith(".mindrecord.db"):  # SQLite's own pages depend on its version
        with sqlite3.connect(file) as index:
            return list(index.iterdump())
    if exact:
        return hashlib.sha256(file.read_bytes()).hexdigest()
    if file.suffix == ".safetensors":
        from stages.weights.header import read_header

        header = read_header(file)
        tensors = {name: [one.dtype, list(one.shape)] for name, one in header.tensors.items()}
        return [tensors, dict(header.metadata)]
    if file.suffix == ".json":
        return kinds(json.loads(file.read_text()))
    if file.suffix == ".jsonl":
        return kinds([json.loads(line) for line in file.read_text().splitlines()][:1])
    if file.suffix == ".html":
        return sorted(set(elements(file.read_text())))
    return None


def kinds(value: Any) -> Any:
    """A JSON value with its keys, and of what else it holds only the kinds."""
    if isinstance(value, Mapping):
        return {key: kinds(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [kinds(inner) for inner in value[:1]]
    return "number" if type(value) in (int, float) else type(value).__name__


def elements(page: str) -> Iterator[str]:
    """Elements of a page with their classes, and its headings and table heads."""
    found: list[str] = []

    class Reader(HTMLParser):
        heading = False

        def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
            self.heading = tag in ("h2", "h3", "th")
            found.append(f"{tag}.{dict(attributes).get('class')}")

        def handle_data(self, data: str) -> None:
            if self.heading and data.strip():
                found.append(re.sub(r"[\d.]+", "0", data.strip()))
            self.heading = False

    Reader().feed(page)
    yield from found


def numbers(artifact: Path) -> dict[str, float]:
    """The first loss and learning rate; later ones differ more and more between machines."""
    file = artifact / "metrics.jsonl"
    if not file.exists():
        return {}
    first = json.loads(file.read_text().splitlines()[0])
    return {name: first[name] for name in ("loss", "lr", "grad_norm", "entropy") if name in first}


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
        name: {"version": OUTSIDE_VERSIONS[name], "digest": digest(values), "numbers": {}}
        for name, values in given.items()
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
        else:
            for key, value in before["numbers"].items():
                if abs(found["numbers"].get(key, float("inf")) - value) > MACHINES * abs(value):
                    yield f"{name}: {key} was {value}, is {found['numbers'].get(key)}; {REMEDY}"


def main() -> int:
    """Write the golden file anew; 1 where that would hide a change."""
    from tests.e2e.conftest import command

    with tempfile.TemporaryDirectory() as directory:
        store = Path(directory) / "store"
        subprocess.run(command(store), check=True, stdout=sys.stderr)
        now = {**of_store(store), **of_engines()}
    known = json.loads(GOLDEN.read_text()) if GOLDEN.exists() else {}
    refused = [told for told in problems(now, known) if "has no digest" not in told]
    if refused:
        print("\n".join(refused), file=sys.stderr)
        return 1
    GOLDEN.write_text(json.dumps(now, indent=1, sort_keys=True) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
