"""Sections of the training YAML: unknown keys end the run. What must fit together upstream is asked."""


class Section:
    """A section: a class's attributes are the known keys that tests ask for, with their defaults."""

    def __init__(self, values):
        for key, value in values.items():
            if not hasattr(self, key.replace("-", "_")):
                raise ValueError(f"{type(self).__name__} has no key {key}")
            setattr(self, key.replace("-", "_"), value)


def require(condition, rule):
    if not condition:
        raise ValueError(rule)


def sections(config, megatron, rl, generate):
    """The typed sections of a composed YAML, of known keys."""
    known = {"megatron_training", "actor_config", "ref_config", "reward_config", "rl_config"}
    known |= {"generate_config", "model", "profiler_config", "msprobe_config"}
    require(set(config) <= known, f"unknown sections {sorted(set(config) - known)}")
    for name in ("megatron_training", "actor_config", "rl_config", "generate_config", "model"):
        require(name in config, f"section {name} is missing")

    def network(role):
        merged = {**config["megatron_training"], **config[role]}
        return megatron({**config["model"][merged.pop("model")], **merged})

    actor, options = network("actor_config"), rl(config["rl_config"])
    roles = {"actor": (actor, options.actor_resource)}
    if not options.use_integrated_worker:
        roles["reference"] = (network("ref_config"), options.reference_resource)
        if options.reward_resource is not None:
            roles["reward"] = (network("reward_config"), options.reward_resource)
    generate(config["generate_config"])
    require(actor.ai_framework == "mindspore", "there is no other back end here")
    return roles, options
