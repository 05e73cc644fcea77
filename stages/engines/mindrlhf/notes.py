"""Notes for the plan of engine=mindrlhf about behaviour that no rule forbids."""

from collections.abc import Iterator

from stages.engines import upstream
from stages.engines.mindrlhf.job import Job, MindrlhfJob
from stages.models.layouts import warnings


def common_notes(job: MindrlhfJob, prompts: object, decay: str = "") -> Iterator[str]:
    """Yield notes about the number of steps and layouts.

    Args:
        job: job of either engine.
        prompts: prompts of a step.
        decay: more text about the decay of the learning rate.
    """
    yield (
        f"mindrlhf trains engine.epochs={job.engine.epochs} x (the number of training prompts // {prompts}) "
        f"steps; train.steps={job.train.steps} is only the length of its learning rate's decay{decay}"
    )
    for role in job.roles:
        yield from (f"layout.{role}: {text}" for text in warnings(job.model, job.layout.role(role)))


def notes(job: Job) -> Iterator[str]:
    """Yield notes about steps, weights, and values that mindrlhf does not pass on."""
    updates = job.updates_per_step
    decay = (
        f": {job.train.updates} updates (decay_steps), about {updates} in each step" if updates > 1 else ""
    )
    yield from common_notes(job, "train.prompts_per_step", decay)
    if job.version == "0cd087455" and job.train.num_iterations == 1 and updates > 1:
        yield (
            f"engine.contract=0cd087455: with train.num_iterations=1 the {updates} updates of a step are "
            "made without ratio and clipping, so that train.epsilon_low and epsilon_high have no effect "
            "(grpo_models.py, construct)"
        )
    layout = job.layout.train
    if layout.pipeline_stage == 1 and layout.micro_batch_num > 1:
        yield (
            f"layout.train.micro_batch_num={layout.micro_batch_num}: mindrlhf reads it in a pipeline "
            "only (train_worker.py, compile); engine.batch_size is the number of rows at once"
        )
    yield from job.tutorial.notes
    yield from upstream.notes("engine", job.engine.upstream)
    if job.train.weight_decay != 0.1:
        yield (
            f"train.weight_decay={job.train.weight_decay}: mindrlhf decays by 0.1 whatever is asked "
            "(utils/configs.py, set_weight_decay)"
        )
    yield from _generation(job)


def _generation(job: Job) -> Iterator[str]:
    rollout, engine = job.rollout, job.engine
    replicas = job.layout.generate.data_parallel
    if rollout.temperature != 1:
        yield (
            f"rollout.temperature={rollout.temperature:g}: mindrlhf samples with it, but its loss does not "
            "divide the logits by it (grpo_models.py, logprobs_of_labels)"
        )
    ids = job.model.token_ids
    if job.model.source != "builtin" and set(ids.eos) == {ids.pad}:
        yield (
            f"model.eos_token_id={ids.pad} is the padding id, which mindrlhf's masks leave out "
            "(infer_worker.py, post_process_infer_outputs): the policy does not learn where to end; use an "
            "instruct model"
        )
    if rollout.min_p:
        yield (
            f"rollout.min_p={rollout.min_p}: mindrlhf never hands it on, whoever generates "
            "(infer_worker.py, SamplingParams and generate)"
        )
    if engine.use_vllm == 0 and job.distinct_completions < rollout.num_generations:
        yield (
            f"engine.use_vllm=0: of the {rollout.num_generations} completions of a prompt only "
            f"{job.distinct_completions} differ, one per generation replica, because every call is seeded "
            "with its replica's number (infer_worker.py:358; mindformers text_generator.py:814): "
            f"layout.generate.data_parallel={rollout.num_generations} makes all of them differ"
        )
    yield (
        f"seed={job.seed} does not change what is sampled: its seed is the replica's number, 0 to "
        f"{replicas - 1} (infer_worker.py)"
    )
    if engine.use_vllm:
        yield (
            "vLLM's start asserts WORLD_SIZE (vllm_v_general/parallel_state.py:136), which neither "
            "mindrlhf's run_grpo_vllm.sh nor msrun sets: where nothing else does, give "
            f"+engine.env.WORLD_SIZE='{job.layout.train.cards}'"
        )
