"""Sections of the training YAML with upstream's defaults; unknown keys end the run."""

import runpy
from pathlib import Path
from types import SimpleNamespace

import yaml

RECORDS = Path(__file__).resolve().parents[3] / "stages" / "engines" / "mindspeed_rl" / "fields"
"""Fields of upstream's classes, which tests/upstream/test_records.py compares with the classes."""


def require(condition, rule):
    if not condition:
        raise ValueError(rule)


def is_newer(home):
    """Return True for 05a90d7, which has no converter."""
    return not (home / "cli" / "convert_ckpt.py").is_file()


def verifiers(home):
    return runpy.run_path(str(home / "mindspeed_rl/models/rule_verifier.py"))["rule_verifier_function"]


def sections(config, home):
    """Return the policy's network, and the options of a composed YAML."""
    record = RECORDS / f"{'05a90d7' if is_newer(home) else '667a547'}.yaml"
    classes = yaml.safe_load(record.read_text(encoding="utf-8"))["classes"]
    merged = {**config["megatron_training"], **config["actor_config"]}
    values = {**config["model"][merged.pop("model")], **merged}
    return _section(values, classes["MegatronConfig"]), _section(config["rl_config"], classes["RLConfig"])


def _section(values, known):
    given = {key.replace("-", "_"): value for key, value in values.items()}
    require(given.keys() <= known.keys(), f"unknown keys {sorted(given.keys() - known.keys())}")
    return SimpleNamespace(**{**known, **given})
