"""Artifacts without a run, and stages that take no time."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest
from safetensors.numpy import save

from launch.process.child import Outcome
from pipeline.plan.graph import Plan, StageSpec
from pipeline.run import build
from pipeline.run.run import prepare_plan
from pipeline.store.attempt import attempt
from pipeline.store.durable import missing_file
from pipeline.store.store import Key, Manifest, Store
from stages.catalog import STAGES


def data_card(records: int) -> dict[str, Any]:
    """Return the card of a tokenized file that uses all rows."""
    return {"records": records, "rows_in": records, "rows_out": records, "dropped": {}, "truncated": {}}


RESULT = {
    "prompts": 1, "accuracy_sft": 0, "accuracy_grpo": 0.5, "gain": 0.5,
    "files": {name: data_card(9_999) for name in ("train", "sft")},
}  # fmt: skip
"""Content of result.json that suits every stage."""


def manifest_of(key: Key, **values: Any) -> Manifest:
    """Return a manifest with `values` and otherwise empty fields."""
    nothing: dict[str, Any] = {
        "code_version": 1, "config": {}, "inputs": {}, "external": {}, "versions": {}, "git_commit": None,
        "seed": None, "started": 0.0, "ended": 1.0, "host": "", "peak_memory_gib": 0.0, "required": (),
    }  # fmt: skip
    return Manifest(key.stage, key.fingerprint, **{**nothing, **values})


def required(patterns: Iterable[str], files: Iterable[str] = ()) -> dict[str, bytes]:
    """Return the required files that are not in `files`: empty weights, otherwise a few bytes."""
    patterns, more = list(patterns), dict[str, bytes]()
    while (lack := missing_file(patterns, {name: {"size": 1} for name in (*files, *more)})) is not None:
        name = lack.partition(" or ")[0].replace("*", "x")
        more[name] = save({}) if name.endswith(".safetensors") else b"{}"
    return more


def required_of(spec: Mapping[str, Any], files: Iterable[str] = ()) -> dict[str, bytes]:
    """Return the required files of a stage of engine=local by the content of its spec.json."""
    return required(STAGES[spec["stage"]].required_files(spec["config"]), files)


def commit(store: Store, key: Key, files: Mapping[str, str | bytes | Path], **values: Any) -> Path:
    """Commit `files` (relative path -> content, or target of a link) and the files that are `required`."""
    files = {**required(values.get("required", ()), files), **files}
    with store.lock(key), attempt(store, key) as slot:
        for name, content in files.items():
            file = slot.staging / name
            file.parent.mkdir(parents=True, exist_ok=True)
            if isinstance(content, Path):
                file.symlink_to(content)
            else:
                file.write_bytes(content if isinstance(content, bytes) else content.encode())
        path = store.commit(slot.staging, manifest_of(key, **values))
        slot.done()
    return path


def commit_spec(store: Store, spec: StageSpec, files: Mapping[str, str | bytes], **values: Any) -> Path:
    """Commit `files` as the artifact of a stage of a plan."""
    known = {
        "code_version": spec.version,
        "config": dict(spec.config),
        "inputs": {name: key.fingerprint for name, key in spec.inputs.items()},
        "external": dict(spec.external),
        "required": spec.required,
    }
    return commit(store, spec.key, files, **{**known, **values})


def complete(
    overrides: list[str], *stages: str, files: Mapping[str, Mapping[str, str]] | None = None, **values: Any
) -> tuple[Plan, Store]:
    """Commit an artifact for each stage of a plan, or for `stages`; `files`: stage -> name -> content."""
    plan, store = prepare_plan(overrides)
    for spec in plan.specs:
        if not stages or spec.name in stages:
            content = {"result.json": json.dumps(RESULT), **(files or {}).get(spec.name, {})}
            commit_spec(store, spec, content, **values)
    return plan, store


def write_checkpoint(path: Path, step: int, content: bytes, *sets: str) -> Path:
    """Write a checkpoint like the trainer's, with this content in each set; return its first file."""
    entry, files = {"size": len(content), "sha256": hashlib.sha256(content).hexdigest()}, []
    for name in sets:
        files.append(path / name / "rank_0" / "model.safetensors")
        files[-1].parent.mkdir(parents=True)
        files[-1].write_bytes(content)
    listed = {file.relative_to(path).as_posix(): entry for file in files}
    state = {"step": step, "updates": step, "position": 12, "best": {}, "files": listed}
    (path / "state.json").write_text(json.dumps(state))
    return files[0]


def flip(file: Path, offset: int) -> None:
    """Flip a bit of a file that is protected against writing."""
    file.chmod(0o644)
    content = bytearray(file.read_bytes())
    content[offset] ^= 16
    file.write_bytes(content)


def replace_stages(monkeypatch: pytest.MonkeyPatch, work: Callable[[dict[str, Any], Path], object]) -> None:
    """Let `work`, given the content of spec.json and the directory of logs, do the work of each stage."""

    def run(command: object, *, log_dir: Path, **ignored: object) -> Outcome:
        work(json.loads((log_dir / "spec.json").read_text()), log_dir)
        return Outcome(0.0, 1.0, 0.0)

    monkeypatch.setattr(build.job, "run", run)
