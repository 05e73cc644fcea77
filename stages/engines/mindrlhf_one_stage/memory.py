"""Memory per card of a run of grpo_one_stage.py: training and generation with its reference take turns.

Source: mindrlhf 2d0e84d, examples/grpo/qwen_grpo_tutorial/grpo_one_stage.py (load and offload around train
and transform) and mindrlhf/trainer/grpo_trainer.py (make_experience).
"""

from stages.engines.mindrlhf.memory import block_cache, reshard, train
from stages.engines.mindrlhf_one_stage.job import Job
from stages.models import memory
from stages.models.memory import RoleMemory


def estimate(job: Job) -> tuple[RoleMemory, ...]:
    """Return train, generate, reference and reshard; a card needs the largest of them.

    Raises:
        ConfigError: a layout does not fit the model.
    """
    model, layout, engine, dtype = job.model, job.layout.generate, job.engine, job.model.param_init_type
    held = memory.elements(model, layout, "layout.generate")[0].held
    generate = (
        memory.weights(held, dtype),
        memory.sized("reference weights", held, dtype),
        block_cache(model, layout, engine.num_blocks, engine.block_size),
        memory.working_set(model, layout, engine.chunk_size * job.tokenize.max_prompt_length),
    )
    tokens = job.batch * job.seq_length  # every replica scores the complete batch
    copied = [("train", job.layout.train, dtype), ("generate", layout, dtype), ("reference", layout, dtype)]
    return (
        train(job),
        RoleMemory("generate", 0, generate),
        memory.scoring(model, layout, tokens, [held], dtype),
        reshard(model, copied),
    )
