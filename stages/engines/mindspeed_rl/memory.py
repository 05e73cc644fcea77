"""Memory of a card in a MindSpeed-RL run.

Roles take turns: what a role does not use of weights, gradients and optimizer is on the host
(generate_config.offload_train_*).

Source: Ascend/MindSpeed-RL 667a547, workers/integrated_worker.py and resharding/megatron_off_loader.py;
NVIDIA/Megatron-LM core_v0.12.1, megatron/core/optimizer/distrib_optimizer.py (bfloat16 weights, float32
gradients, float32 master weights and moments).
"""

from dataclasses import replace

from stages.base.layout import RoleLayout
from stages.engines.mindspeed_rl.job import Job
from stages.models import memory
from stages.models.memory import RoleMemory

_DTYPE = "bfloat16"


def estimate(job: Job) -> tuple[RoleMemory, ...]:
    """Return train, generate and reference; raises ConfigError if a layout does not fit the model."""
    return (_train(job), _generate(job), _reference(job))


def _plain(layout: RoleLayout) -> RoleLayout:
    """Return a layout with complete weights on each replica, as Megatron and vLLM have them."""
    return replace(layout, enable_parallel_optimizer=False)


def _per_stage(job: Job) -> list[tuple[int, int]]:
    """Return the elements and layers on a card of each pipeline stage.

    Megatron keeps tied embeddings on the first and, as output layer, on the last stage
    (megatron/core/models/common/language_module/language_module.py, setup_embeddings_and_output_layer).
    """
    model, layout = job.model, _plain(job.layout.train)
    sizes = [(element.held, element.layers) for element in memory.elements(model, layout, "layout.train")]
    if model.tie_word_embeddings and layout.pipeline_stage > 1:
        held, layers = sizes[-1]
        sizes[-1] = (held + model.vocab_size * model.hidden_size // layout.model_parallel, layers)
    return sizes


def _train(job: Job) -> RoleMemory:
    model, layout = job.model, job.layout.train
    micro = job.engine.micro_batch_size
    tokens = micro * job.seq_length
    batches = max(1, job.mini_batch_size * job.rollout.num_generations // (layout.data_parallel * micro))
    shares = layout.data_parallel if layout.enable_parallel_optimizer else 1
    stages = []
    for stage, (held, layers) in enumerate(_per_stage(job)):
        state, in_flight = 12 * held // shares, min(batches, layout.pipeline_stage - stage)
        terms = [
            memory.weights(held, _DTYPE),
            memory.exact("gradients", 4 * held, f"{held:,} elements x 4 (float32)"),
            memory.exact(
                "optimizer",
                state,
                f"float32 weights and 2 moments: {held:,} elements x 12 / {shares} replicas",
            ),
            memory.activations(model, layout, tokens, layers, in_flight, stage),
        ]
        if stage == layout.pipeline_stage - 1:
            terms.append(memory.logits(model, layout, tokens, 3))
        stages.append(terms)
    return memory.largest("train", stages)


def _reference(job: Job) -> RoleMemory:
    model, layout = job.model, job.layout.train
    tokens = job.forward_micro_batch_size * job.seq_length
    return memory.scoring(model, layout, tokens, (held for held, _ in _per_stage(job)), _DTYPE)


def _generate(job: Job) -> RoleMemory:
    model, layout, engine = job.model, _plain(job.layout.generate), job.engine
    weights = memory.weights(memory.elements(model, layout, "layout.generate")[0].gathered, _DTYPE)
    working = memory.working_set(model, layout, job.max_num_batched_tokens)
    per_token = memory.cache_bytes_per_token(model, layout, _DTYPE)
    share = engine.gpu_memory_utilization, engine.device_memory_gib
    cache = memory.server_cache((weights, working), per_token, job.max_model_len, *share)
    return RoleMemory("generate", 0, (weights, working, cache))
