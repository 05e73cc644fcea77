"""Memory per card of a mindrlhf run. Its roles take turns: what one does not use is on the host.

Source: mindrlhf e8a8fc1, trainer/spmd/grpo_trainer.py and grpo_experience_maker.py (load and offload of
train, infer, ref and old_policy); mindformers 051d65f, core/optim/adamw.py (moments in float32).
"""

from collections.abc import Sequence
from dataclasses import replace

from stages.base.layout import RoleLayout
from stages.engines.engine import Load
from stages.engines.mindrlhf.job import Job, MindrlhfJob
from stages.models import memory
from stages.models.config import ITEM_BYTES, ModelConfig
from stages.models.families import network_of
from stages.models.memory import GIB, RoleMemory, Term


def estimate(job: Job) -> tuple[RoleMemory, ...]:
    """Return train, generate, reference and reshard; raises ConfigError if a layout does not fit."""
    return (train(job), _generate(job), _reference(job), _reshard(job))


def step_load(job: MindrlhfJob) -> Load:
    """Return the work of one step and the memory of a card."""
    tokens = job.packs * job.seq_length * job.train.num_iterations
    return Load(tokens, job.updates_per_step, job.engine.device_memory_gib * GIB)


def warnings(job: Job, roles: Sequence[RoleMemory]) -> list[str]:
    """Return a warning for each role that may not fit, with its largest term."""
    engine = job.engine
    lines = memory.warnings(roles, engine.device_memory_gib)
    if engine.use_vllm:
        lines += memory.server_warnings(roles, engine.gpu_memory_utilization, engine.device_memory_gib)
    return lines


def train(job: MindrlhfJob) -> RoleMemory:
    """Return the memory of the pipeline stage of training that needs most."""
    return memory.largest("train", train_stages(job))


def train_stages(job: MindrlhfJob) -> list[list[Term]]:
    """Return the memory terms of training on a card of each pipeline stage."""
    model, layout = job.model, job.layout.train
    item, dtype = ITEM_BYTES[model.param_init_type], model.param_init_type
    tokens = job.engine.batch_size * job.seq_length // layout.context_parallel
    stages = []
    for stage, held in enumerate(memory.elements(model, layout, "layout.train")):
        in_flight = min(layout.micro_batch_num, layout.pipeline_stage - stage)
        terms = [
            memory.weights(held.held, dtype),
            memory.sized("gradients", held.held, dtype),
            memory.moments(held.held, dtype, layout.opt_offload),
        ]
        if held.gathered > held.held:
            cut = item * (held.gathered - held.held)
            formula = (
                "what the parallel optimizer cut, put together to compute: one layer in bfloat16, at most "
                f"all {held.gathered - held.held:,} elements x {item}; estimate"
            )
            low = min(2 * held.gathered // held.layers, cut)
            terms.append(Term("gathered weights", low, cut, formula))
        terms.append(memory.activations(model, layout, tokens, held.layers, in_flight, stage))
        if stage == layout.pipeline_stage - 1:
            terms.append(memory.logits(model, layout, tokens, 3))
        stages.append(terms)
    return stages


def _reference(job: Job) -> RoleMemory:
    model, layout = job.model, job.layout.reference
    tokens = job.engine.ref_model_batch_size * job.seq_length // layout.context_parallel
    held = (element.held for element in memory.elements(model, layout, "layout.reference"))
    return memory.scoring(model, layout, tokens, held, model.param_init_type)


def _generate(job: Job) -> RoleMemory:
    model, layout, engine = job.model, job.layout.generate, job.engine
    held = memory.elements(model, layout, "layout.generate")[0].held
    weights = memory.weights(held, model.torch_dtype)
    per_token = memory.cache_bytes_per_token(model, layout, model.torch_dtype)
    if engine.use_vllm:
        working = memory.working_set(model, layout, job.max_model_len)
        share = engine.gpu_memory_utilization, engine.device_memory_gib
        cache = memory.server_cache((weights, working), per_token, job.max_model_len, *share)
        return RoleMemory("generate", 0, (weights, working, cache))
    working = memory.working_set(
        model, layout, engine.infer_model_batch_size * job.tokenize.max_prompt_length
    )
    cache = block_cache(model, layout, network_of(model).num_blocks, engine.block_size)
    return RoleMemory("generate", 0, (weights, working, cache))


def block_cache(model: ModelConfig, layout: RoleLayout, blocks: int, block_size: int) -> Term:
    """Return the memory of the cache with which MindFormers generates."""
    per_token = memory.cache_bytes_per_token(model, layout, model.torch_dtype)
    formula = f"{blocks} blocks x {block_size} tokens x {per_token:,} bytes"
    return memory.exact("KV cache", blocks * block_size * per_token, formula)


def _reshard(job: Job) -> RoleMemory:
    model, layout = job.model, job.layout
    roles = [("train", layout.train, model.param_init_type), ("generate", layout.generate, model.torch_dtype)]
    # mindrlhf has no old policy if one update uses all samples of a step (set_enable_old_policy)
    if job.rows_per_update != job.samples or job.train.num_iterations > 1:
        roles.append(("old policy", layout.train, model.param_init_type))
    if job.train.ref_model_sync_steps:
        roles.append(("reference", layout.reference, model.param_init_type))
    return reshard(model, roles, "host" if job.engine.reshard_mem_opt_level else "card")


def reshard(
    model: ModelConfig, roles: Sequence[tuple[str, RoleLayout, str]], place: memory.Place = "card"
) -> RoleMemory:
    """Return the memory of copying weights from training to other roles; the optimizer is on the host.

    `roles` has name, layout and dtype of each role whose weights are held in `place`.
    """
    item = ITEM_BYTES[model.param_init_type]
    largest = max(model.vocab_size, model.intermediate_size) * model.hidden_size
    formula = f"at most the largest, whole, twice: 2 x {largest:,} elements x {item}; estimate"
    transit = Term("one parameter in transit", 0, 2 * largest * item, formula)
    elements = {name: memory.elements(model, layout) for name, layout, _ in roles}
    stages, count = [], max(map(len, elements.values()))
    for stage in range(count):
        terms = []
        for name, _, dtype in roles:
            held = elements[name][stage * len(elements[name]) // count].held
            terms.append(replace(memory.sized(f"{name} weights", held, dtype), place=place))
        stages.append([*terms, transit])
    return memory.largest("reshard", stages)
