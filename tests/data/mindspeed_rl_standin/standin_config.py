"""Sections of the training YAML: unknown keys end the run, and so do values that do not fit together."""

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


def section(name, values, known):
    """Return a section's values, by default those of `known`."""
    given = {key.replace("-", "_"): value for key, value in values.items()}
    require(given.keys() <= known.keys(), f"{name} has no key {sorted(given.keys() - known.keys())}")
    return SimpleNamespace(**{**known, **given})


def sections(config, home):
    """Return the roles, each with its network and resources, and the options of a composed YAML."""
    record = RECORDS / f"{'05a90d7' if is_newer(home) else '667a547'}.yaml"
    classes = yaml.safe_load(record.read_text(encoding="utf-8"))["classes"]
    known = {"megatron_training", "actor_config", "ref_config", "reward_config", "rl_config"}
    known |= {"generate_config", "model", "profiler_config", "msprobe_config"}
    require(set(config) <= known, f"unknown sections {sorted(set(config) - known)}")

    def network(role):
        merged = {**config["megatron_training"], **config[role]}
        values = {**config["model"][merged.pop("model")], **merged}
        return section(role, values, classes["MegatronConfig"])

    actor, options = network("actor_config"), section("rl_config", config["rl_config"], classes["RLConfig"])
    roles = {"actor": (actor, options.actor_resource)}
    if not options.use_integrated_worker:
        roles["reference"] = (network("ref_config"), options.reference_resource)
        if options.reward_resource is not None:
            roles["reward"] = (network("reward_config"), options.reward_resource)
    section("generate_config", config["generate_config"], classes["GenerateConfig"])
    require(actor.ai_framework == "mindspore", "there is no other back end here")
    return roles, options
