"""Sections of the training YAML with upstream's defaults; unknown keys end the run."""

import runpy
from types import SimpleNamespace


class Section:
    """One section: subclasses set the defaults and then call `update`."""

    def update(self, values):
        given = {key.replace("-", "_"): value for key, value in values.items()}
        unknown = sorted(given.keys() - vars(self).keys())
        require(not unknown, f"unknown keys {unknown}")
        vars(self).update(given)


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
    merged = {**config["megatron_training"], **config["actor_config"]}
    values = {**config["model"][merged.pop("model")], **merged}
    network = _section(home, "megatron_config", "MegatronConfig", values)
    return network, _section(home, "rl_config", "RLConfig", config["rl_config"])


def _section(home, module, name, values):
    cls = runpy.run_path(str(home / f"mindspeed_rl/config_cls/{module}.py"))[name]
    return SimpleNamespace(**vars(cls(values)))  # Ray's workers cannot import the class
