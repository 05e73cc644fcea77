"""What a run of grpo_one_stage.py needs on each card.

Training's weights, gradients and moments lie on the host while completions are made, and generation and
reference while it trains; before the first update nothing has left the card yet.

Source: mindrlhf 2d0e84d, examples/grpo/qwen_grpo_tutorial/grpo_one_stage.py (load and offload around train
and transform) and mindrlhf/trainer/grpo_trainer.py (make_experience); 32599d0 keeps generation and reference
on the card while completions are made and scored.
"""

from stages.engines.mindrlhf.memory import in_transit, train_stages
from stages.engines.mindrlhf_one_stage.job import Job
from stages.models import memory
from stages.models.config import ITEM_BYTES
from stages.models.memory import RoleMemory, Term

MOMENTS = 8
"""Bytes of an element's two moments, in float32."""


def estimate(job: Job) -> tuple[RoleMemory, ...]:
    """train, generate, reference and reshard; a card needs the largest of them.

    Raises:
        ConfigError: a layout does not fit the model.
    """
    return (_train(job), _generate(job), _reference(job), _reshard(job))


def _train(job: Job) -> RoleMemory:
    rows = job.engine.batch_size * job.seq_length
    return memory.largest("train", train_stages(job.model, job.layout.train, rows))


def _generate(job: Job) -> RoleMemory:
    """Completions of one batch; the reference waits on the card."""
    model, layout, engine = job.model, job.layout.generate, job.engine
    item, dtype = ITEM_BYTES[model.param_init_type], model.param_init_type
    held = memory.elements(model, layout, "layout.generate")[0].held
    per_token = memory.cache_bytes_per_token(model, layout, model.torch_dtype)
    slots = engine.num_blocks * engine.block_size
    cache = f"{engine.num_blocks} blocks x {engine.block_size} tokens x {per_token:,} bytes"
    trained = max(stage.held for stage in memory.elements(model, job.layout.train, "layout.train"))
    first = (
        f"{trained:,} elements x ({item} + {MOMENTS} of moments): in the first step, as far as compiling has"
        " put them on the card; estimate"
    )
    return RoleMemory(
        "generate",
        0,
        (
            memory.weights(held, dtype),
            memory.sized("reference weights", held, dtype),
            memory.exact("KV cache", slots * per_token, cache),
            memory.working_set(model, layout, engine.chunk_size * job.tokenize.max_prompt_length),
            Term("training's weights", 0, trained * (item + MOMENTS), first),
        ),
    )


def _reference(job: Job) -> RoleMemory:
    model, layout, dtype = job.model, job.layout.generate, job.model.param_init_type
    held = memory.elements(model, layout, "layout.generate")[0].held
    tokens = job.batch * job.seq_length  # every replica scores the whole batch
    terms = [memory.weights(held, dtype), memory.working_set(model, layout, tokens)]
    terms.append(memory.logits(model, layout, tokens, 2))
    if job.window == "32599d0":
        terms.append(memory.sized("generation's weights", held, dtype))
    return RoleMemory("reference", 0, tuple(terms))


def _reshard(job: Job) -> RoleMemory:
    """Training's weights pass to generation, and to the reference where that follows; moments have left."""
    model, dtype = job.model, job.model.param_init_type
    held = memory.elements(model, job.layout.generate, "layout.generate")[0].held
    stages = [
        [
            memory.sized("train weights", stage.held, dtype),
            memory.sized("generate weights", held, dtype),
            memory.sized("reference weights", held, dtype),
            in_transit(model),
        ]
        for stage in memory.elements(model, job.layout.train, "layout.train")
    ]
    return memory.largest("reshard", stages)
