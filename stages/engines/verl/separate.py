"""Training and generation on separate cards, at the same time (engine.mode).

Both modes are verl's trainer separate_async under main_ppo. The cards that train hold servers, too: they
generate before the first step and for validation, and sleep otherwise. Without them (hybrid_engine=false)
verl 0.9.1 ends with a TypeError (trainer_separate_async.py, _setup: logger.info with flush). Its earlier
programs in verl/experimental, one_step_off_policy and fully_async_policy, are not used: they are built on the
trainer that verl 0.9.1 calls deprecated.
Sources (verl 0.9.1, paths in verl/): trainer/ppo/v1/trainer_separate_async.py and replay_buffer.py,
workers/rollout/llm_server.py, checkpoint_engine; docs/advance/v1_async_trainer.md of its repository.
"""

from collections.abc import Iterator
from typing import Any

from stages.base.checks import equal, multiple_of
from stages.base.errors import Problem
from stages.base.keys import leaves
from stages.engines.outside import Row
from stages.engines.ray_rules import card_note, rollout_card_problems
from stages.engines.upstream_keys import Rendered
from stages.engines.verl.job import Job

Values = dict[str, Any]
WARMUP_BATCHES = 1
"""Steps whose prompts are sent to the rollout before training begins."""
CPU_BACKEND = "grpoflow_ray"
"""Transfer of weights on a CPU (plugin/grpoflow_verl_cpu/weights.py)."""
CARD_BACKEND = "nccl"
"""Transfer of weights between cards; on Ascend verl registers HCCL under this name."""
TRAINER = "trainer/ppo/v1/trainer_separate_async.py"
BYPASS = "algorithm.rollout_correction.bypass_mode"

RENDERED: Rendered = {
    "trainer.v1.trainer_mode": "engine.mode",
    "trainer.v1.separate_async.parameter_sync_step": "engine.mini_batch_size",
    "trainer.v1.sampler.max_off_policy_threshold": "engine.staleness",
    "trainer.v1.sampler.max_off_policy_strategy": "=engine.staleness is a strict limit",
    "trainer.v1.separate_async.hybrid_rollout.enable_switch": "=grpoflow was not read with it",
    "actor_rollout_ref.hybrid_engine": "=verl 0.9.1 ends with an error without it",
    "actor_rollout_ref.rollout.nnodes": "engine.rollout_cards",
    "actor_rollout_ref.rollout.n_gpus_per_node": "engine.rollout_cards",
}
"""Keys of verl that these functions render (files.py, RENDERED)."""


def configuration(job: Job) -> Values:
    """Return the parts of verl's configuration that differ from mode=sync; nothing with it."""
    if not job.is_async:
        return {}
    engine: Values = {"backend": CPU_BACKEND if job.on_cpu else CARD_BACKEND}
    if job.on_cpu:
        engine["custom_backend_module"] = "grpoflow_verl_cpu.weights"
    rollout = {
        "nnodes": job.nodes_of(job.rollout_cards),
        "n_gpus_per_node": min(job.rollout_cards, job.engine.cards_per_node),
        "checkpoint_engine": engine,
    }
    trainer: Values = {
        "trainer_mode": "separate_async",
        "separate_async": {"num_warmup_batches": WARMUP_BATCHES, "parameter_sync_step": job.updates},
        # verl counts the version that generates, too
        "sampler": {"max_off_policy_threshold": job.staleness + 1, "max_off_policy_strategy": "drop"},
    }
    return {"actor_rollout_ref": {"rollout": rollout}, "trainer": {"v1": trainer}}


def problems(job: Job) -> Iterator[Problem]:
    """Yield problems of engine.mode and of the cards that generate."""
    engine = job.engine
    if not job.is_async:
        for key in ("staleness", "rollout_cards"):
            why = "with engine.mode=sync the cards that train also generate, with the newest weights"
            source = "trainer/ppo/v1/trainer_sync.py"
            yield from equal(f"engine.{key}", getattr(engine, key), None, why, source)
        if engine.partial_rollout:
            rule = "must be false with engine.mode=sync: no update interrupts a completion"
            source = "trainer/ppo/v1/trainer_sync.py"
            yield Problem("engine.partial_rollout", True, rule, "leave it null", source)
        return
    if engine.partial_rollout is False:
        rule = (
            f"must be true with engine.mode={engine.mode}: verl's trainer always continues such completions"
        )
        source = "workers/rollout/llm_server.py, FullyAsyncLLMServerClient"
        yield Problem("engine.partial_rollout", False, rule, "leave it null", source)
    if engine.mode == "one_step_off" and job.staleness != 1:
        rule = "must be 1 with engine.mode=one_step_off: a step trains on completions of the step before"
        yield Problem("engine.staleness", job.staleness, rule, "choose engine.mode=fully_async", TRAINER)
    if job.staleness < 1:
        rule = "must be at least 1: generation is ahead of training"
        yield Problem("engine.staleness", job.staleness, rule, "choose engine.mode=sync", TRAINER)
    yield from equal(
        "train.lora_rank",
        job.train.lora_rank,
        0,
        f"grpoflow renders LoRA for engine.mode=sync only, not for {engine.mode}",
        "ours: stages/engines/verl/separate.py",
    )
    yield from equal(
        "engine.deterministic",
        engine.deterministic,
        False,
        "when new weights arrive depends on time",
        TRAINER,
    )
    if job.on_cpu and job.updates > 1:
        rule = (
            f"gives {job.updates} updates per step: verl keeps the weights of the first by copying them to "
            "the CPU, where they already are, so that updates would change the copy"
        )
        source = "utils/fsdp_utils.py, fsdp2_sharded_save_to_cpu"
        yield Problem("engine.mini_batch_size", job.mini_batch_size, rule, "set it to null", source)
    if engine.param_offload and job.updates > 1 and dict(leaves(engine.upstream)).get(BYPASS) is not True:
        rule = (
            f"must be false with {job.updates} updates per step: verl copies weights that are not on the card"
        )
        remedy = f"set it to false, or +engine.upstream.{BYPASS}=true"
        yield Problem("engine.param_offload", True, rule, remedy, "experimental/separation/engine_workers.py")
    yield from _cards(job)


def _cards(job: Job) -> Iterator[Problem]:
    """Yield problems of the numbers of cards, and of their machines."""
    engine, size = job.engine, job.layout.generate.model_parallel
    yield from rollout_card_problems(job, job.rollout_cards, "workers/rollout/llm_server.py")
    if job.on_cpu and job.rollout_program == "transformers":
        yield from equal(
            "layout.generate.model_parallel",
            size,
            1,
            "the plugin's server holds a whole model",
            "ours: stages/engines/verl/plugin",
        )
    if job.rollout_cards > engine.cards_per_node:
        yield from multiple_of(
            "engine.rollout_cards",
            job.rollout_cards,
            engine.cards_per_node,
            "launcher.cards_per_node",
            "verl needs as many cards on each machine",
            "single_controller/ray/base.py, RayResourcePool",
        )


def notes(job: Job) -> Iterator[str]:
    """Yield notes for the plan."""
    if not job.is_async:
        return
    cards = card_note(job.train_cards, job.rollout_cards)
    yield f"{cards}; completions are at most {job.staleness} versions old, older ones are replaced"
    if job.rollout.correction == "none":
        yield (
            f"engine.mode={job.engine.mode}: tokens of older weights count like new ones; "
            "rollout.correction=tis weights them"
        )
    if not job.on_cpu:
        yield f"engine.mode={job.engine.mode} is rendered for cards, but grpoflow has run it on a CPU only"


def with_waiting(row: Row, job: Job) -> Row:
    """Return a step's metrics with the share of the time in which training waited for completions.

    verl's timing_s/gen is this time with separate cards; with mode=sync it is that of generation.
    """
    if not job.is_async or "rollout_s" not in row or not row.get("step_s"):
        return row
    waited = row["rollout_s"]
    return {
        **{key: value for key, value in row.items() if key != "rollout_s"},
        "wait_share": waited / row["step_s"],
    }
