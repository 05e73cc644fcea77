"""Sections of the training YAML, checked: unknown keys, missing keys, and what must fit together."""

REQUIRED = {
    "megatron": (
        "tokenizer_name_or_path data_path global_batch_size seq_length train_iters save_interval load save "
        "micro_batch_size lr num_layers hidden_size ffn_hidden_size num_attention_heads padded_vocab_size"
    ),
    "rl": "actor_resource",
}


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


def sections(config, megatron, rl, generate, *, head):
    """The typed sections of a composed YAML, after every check."""
    known = {"megatron_training", "actor_config", "ref_config", "reward_config", "rl_config"}
    known |= {"generate_config", "model", "profiler_config", "msprobe_config"}
    require(set(config) <= known, f"unknown sections {sorted(set(config) - known)}")
    for name in ("megatron_training", "actor_config", "rl_config", "generate_config", "model"):
        require(name in config, f"section {name} is missing")

    def network(role):
        merged = {**config["megatron_training"], **config[role]}
        return megatron({**config["model"][merged.pop("model")], **merged})

    actor, options = network("actor_config"), rl(config["rl_config"])
    for kind, section in (("megatron", actor), ("rl", options)):
        for key in REQUIRED[kind].split():
            require(getattr(section, key) is not None, f"{kind}: {key} is missing")
    roles = {"actor": (actor, options.actor_resource)}
    if options.use_integrated_worker:
        for key in ("ref_config", "reward_config"):
            require(key not in config, f"{key} with use_integrated_worker")
        for key in ("reference_resource", "reward_resource"):
            require(getattr(options, key) is None, f"{key} with use_integrated_worker")
    else:
        require(options.integrated_mode_config is None, "integrated_mode_config without integrated worker")
        require(options.reference_resource is not None, "reference_resource is missing")
        roles["reference"] = (network("ref_config"), options.reference_resource)
        if options.reward_resource is not None:
            roles["reward"] = (network("reward_config"), options.reward_resource)
    check(roles, actor, options, generate(config["generate_config"]), head=head)
    return roles, options


def check(roles, actor, options, rollout, *, head):
    require(
        actor.ai_framework == "mindspore",
        f"ai_framework={actor.ai_framework}: there is no other back end here",
    )
    require(actor.stage == "ray_grpo", f"stage={actor.stage}")
    require(rollout.max_model_len >= actor.seq_length, "max_model_len < seq_length")
    require(rollout.infer_pipeline_parallel_size == 1, "inference has no pipeline")
    require(not head or (actor.bf16 and rollout.dtype == "bfloat16"), "bf16 only")
    require(len(options.verifier_function) == len(options.verifier_weight), "as many weights as verifiers")
    completions = actor.global_batch_size * options.n_samples_per_prompt
    for role, (network, resource) in roles.items():
        tensor, pipeline = network.tensor_model_parallel_size, network.pipeline_model_parallel_size
        model_cards = tensor * pipeline * network.context_parallel_size
        require(
            resource["num_npus"] % model_cards == 0, f"{role}: {resource['num_npus']} NPUs / {model_cards}"
        )
        replicas = resource["num_npus"] // model_cards
        require(network.global_batch_size % replicas == 0, f"{role}: global_batch_size / {replicas}")
        require(completions // replicas % network.micro_batch_size == 0, f"{role}: / micro_batch_size")
        require(network.num_layer_list or network.num_layers % pipeline == 0, f"{role}: layers / {pipeline}")
        groups = network.num_query_groups if network.group_query_attention else network.num_attention_heads
        require(
            network.num_attention_heads % tensor == 0 and groups % tensor == 0, f"{role}: heads / {tensor}"
        )
        require(network.padded_vocab_size % tensor == 0, f"{role}: padded_vocab_size / {tensor}")
    npus, tensor = options.actor_resource["num_npus"], rollout.infer_tensor_parallel_size
    require(npus % tensor == 0, f"{npus} NPUs / infer_tensor_parallel_size {tensor}")
    require(actor.global_batch_size % (npus // tensor) == 0, f"global_batch_size / {npus // tensor} engines")
