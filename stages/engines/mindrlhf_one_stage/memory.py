"""Memory per card of a run of grpo_one_stage.py.

While completions are generated, training's weights, gradients and moments are on the host, and while it
trains, generation and reference are; before the first update nothing has left the card yet.

Source: mindrlhf 2d0e84d, examples/grpo/qwen_grpo_tutorial/grpo_one_stage.py (load and offload around train
and transform) and mindrlhf/trainer/grpo_trainer.py (make_experience); 32599d0 keeps generation and reference
on the card while completions are generated and scored.
"""

from stages.engines.mindrlhf.memory import block_cache, reshard, train_stages
from stages.engines.mindrlhf_one_stage.job import Job
from stages.models import memory
from stages.models.config import ITEM_BYTES
from stages.models.memory import RoleMemory, Term

MOMENTS = 8
"""Bytes of an element's two moments, in float32."""


def estimate(job: Job) -> tuple[RoleMemory, ...]:
    """Return train, generate, reference and reshard; a card needs the largest of them.

    Raises:
        ConfigError: a layout does not fit the model.
    """
    model, layout, engine, dtype = job.model, job.layout.generate, job.engine, job.model.param_init_type
    train = train_stages(model, job.layout.train, engine.batch_size * job.seq_length)
    held = memory.elements(model, layout, "layout.generate")[0].held
    trained = max(stage.held for stage in memory.elements(model, job.layout.train, "layout.train"))
    item = ITEM_BYTES[dtype]
    first = (
        f"{trained:,} elements x ({item} + {MOMENTS} of moments): in the first step, as far as compiling has"
        " put them on the card; estimate"
    )
    generate = (
        memory.weights(held, dtype),
        memory.sized("reference weights", held, dtype),
        block_cache(model, layout, engine.num_blocks, engine.block_size),
        memory.working_set(model, layout, engine.chunk_size * job.tokenize.max_prompt_length),
        Term("training's weights", 0, trained * (item + MOMENTS), first),
    )
    tokens = job.batch * job.seq_length  # every replica scores the complete batch
    reference = [
        memory.weights(held, dtype),
        memory.working_set(model, layout, tokens),
        memory.logits(model, layout, tokens, 2),
    ]
    if job.window == "32599d0":
        reference.append(memory.sized("generation's weights", held, dtype))
    copied = [("train", job.layout.train, dtype), ("generate", layout, dtype), ("reference", layout, dtype)]
    return (
        memory.largest("train", train),
        RoleMemory("generate", 0, generate),
        RoleMemory("reference", 0, tuple(reference)),
        reshard(model, copied),
    )
