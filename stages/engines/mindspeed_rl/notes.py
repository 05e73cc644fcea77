"""Notes for the plan of engine=mindspeed_rl about behaviour that no rule forbids."""

from collections.abc import Iterator

from stages.engines import upstream
from stages.engines.mindspeed_rl import contract
from stages.engines.mindspeed_rl.job import Job

CHECKPOINT_KEYS = (
    "expert_model_parallel_size", "num_layers_per_virtual_pipeline_stage", "lora_target_modules",
)  # fmt: skip
"""Keys of Megatron that change the files or tensors of its checkpoints."""


def notes(job: Job) -> Iterator[str]:
    """Yield notes about the checkout, the layout of the reference, the loss and the learning rate."""
    engine, train = job.engine, job.train
    home = engine.mindspeed_rl_home
    if home is not None and (defect := contract.broken_port(home)):
        yield f"engine.mindspeed_rl_home: {'; '.join(defect)}"
    if engine.use_integrated_worker:
        yield "integrated worker: the reference runs in layout.train, layout.reference changes nothing"
    if job.actor.micro_batch_num != job.actor.pipeline_stage:
        yield (
            f"layout.train.micro_batch_num={job.actor.micro_batch_num} changes nothing: the number of "
            "micro-batches follows from engine.micro_batch_size"
        )
    if engine.micro_batch_size > 1:
        yield (
            f"engine.micro_batch_size={engine.micro_batch_size}: losses are means over the tokens of a "
            "micro-batch (grpo_actor_loss_func.py); train.loss_type=grpo holds exactly with 1"
        )
    if train.schedule != "constant" and job.decay_steps < train.steps:
        yield (
            f"train.schedule={train.schedule}: the rate reaches train.final_share after about "
            f"{job.decay_steps:g} of {train.steps} steps, for MindSpeed-RL's schedule counts completions "
            "against a horizon of prompts (megatron_config.py has no lr_decay_iters); use constant"
        )
    yield from upstream.notes("engine", engine.upstream)
    for path, value in upstream.leaves(engine.upstream):
        if path.rpartition(".")[2] in CHECKPOINT_KEYS:
            yield (
                f"engine.upstream.{path}={value}: changes Megatron's checkpoints, but convert, resume and "
                "export expect those of the layout"
            )
