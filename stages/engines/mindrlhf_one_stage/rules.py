"""Rules of engine=mindrlhf_one_stage: what grpo_one_stage.py needs and does not check.

Sources are files of mindrlhf 32599d0 to 9202c8f. Rules of every engine (heads, card counts) are in
pipeline/config/rules.py.
"""

import math
from collections.abc import Iterator

from stages.base.rules import Broken, Rules, at_least, at_most, be, multiple_of
from stages.engines.layout_rules import Laid
from stages.engines.mindrlhf import layout_rules
from stages.engines.mindrlhf.notes import assumed_contract
from stages.engines.mindrlhf_one_stage.config import WINDOWS
from stages.engines.mindrlhf_one_stage.job import ROLES, Job
from stages.engines.plain_grpo import LOSS, plain
from stages.models.layouts import warnings

RULES = Rules[Job]("mindrlhf_one_stage")
REWARDS = {"accuracy": 1.0, "format": 1.0}
"""The script's only rewards and their weights (grpo_one_stage.py, main)."""


def notes(job: Job) -> Iterator[str]:
    """Yield notes for the plan about behaviour that no rule forbids."""
    yield from assumed_contract(job.engine.mindrlhf_home, job.window, WINDOWS[0])
    yield (
        f"grpo_one_stage.py trains engine.epochs={job.engine.epochs} x (the number of training prompts // "
        f"{job.num_rollouts}) steps; train.steps={job.train.steps} is only the length of its learning rate's "
        "decay"
    )
    yield "it saves weights once, at its end: a run that is stopped begins anew"
    yield "its reference is laid out as layout.generate; layout.reference is not used"
    yield (
        "its tokenizer has Qwen2.5's special ids as constants (qwen2_tokenizer.py, ENDOFTEXTID): a model "
        "with another vocabulary is trained with wrong padding, or ends with an IndexError"
    )
    if job.window == "32599d0":
        yield (
            "32599d0 loads no weights into its reference (grpo_trainer.py, load_checkpoint: their prefix "
            "is not its network's), so that its KL is one to a random model; 875f92b repairs it"
        )
    for role in ROLES:
        yield from (f"layout.{role}: {text}" for text in warnings(job.model, job.layout.role(role)))


RULES.must("model.qkv_concat", be(False), "its finetune_qwen2_5_7b.yaml")
RULES.must(
    "cards",
    at_least(
        2, why="get_rank() and cut checkpoints need use_parallel", remedy="choose a layout of several cards"
    ),
    "grpo_one_stage.py",
    value=lambda job: job.layout.train.cards,
)
RULES.include(
    layout_rules.RULES,
    lambda job: Laid(job.model, {role: job.layout.role(role) for role in ROLES}, job.seq_length),
)
RULES.must(
    "layout.{}.enable_parallel_optimizer",
    be(False, "the generation's YAML alone decides"),
    "grpo_one_stage.py, build_context",
    each=ROLES,
)
RULES.must(
    "train.prompts_per_step",
    be(
        lambda job: job.batch,
        "engine.chunk_size x layout.generate.data_parallel, for before 2d0e84d a step is one batch",
    ),
    "grpo_trainer.py, make_experience",
    name="one_batch",
    when=lambda job: job.window != "2d0e84d",
)
RULES.must(
    "train.prompts_per_step",
    multiple_of(lambda job: job.batch, "engine.chunk_size x layout.generate.data_parallel"),
    "grpo_trainer.py, make_experience",
    unless=("one_batch",),
)


@RULES.row(
    "train.prompts_per_step", "utils/configs.py, init_grpo_dataset", unless=("one_batch", "prompts_per_step")
)
def _updates(job: Job) -> Broken:
    update = job.rows_per_update
    if job.samples % update == 0:
        return None
    rule = (
        f"its {job.samples} samples must be a multiple of {update}, an update (engine.batch_size x "
        "data_parallel x micro_batch_num): the compiled graph takes no smaller one"
    )
    step = update // math.gcd(update, job.train.prompts_per_step)
    group = -(-job.rollout.num_generations // step) * step
    return rule, f"use rollout.num_generations={group}, or lower engine.batch_size"


RULES.must(
    "engine.seq_length",
    at_least(
        lambda job: job.sample_length,
        "tokenize.max_prompt_length + rollout.max_tokens",
        "prompts get what max_decode_length leaves",
        "leave it null, or shorten them",
    ),
    "utils/configs.py, combine_grpo_config",
    value=lambda job: job.seq_length,
)
RULES.must(
    "engine.seq_length",
    at_most("model.max_position_embeddings", remedy="shorten tokenize.max_prompt_length"),
    "ours: trained so",
    name="positions",
    value=lambda job: job.seq_length,
)
RULES.must(
    "engine.num_blocks",
    at_least(
        lambda job: job.engine.chunk_size * -(-job.seq_length // job.engine.block_size),
        why="what chunk_size sequences take",
    ),
    "mindformers block_tables.py",
)
plain(
    RULES,
    "the script",
    {
        "grpo_models.py": f"loss_type {LOSS}",
        "grpo_trainer.py": "scale_advantages resample_rounds max_kl",
        "grpo_one_stage.py": "validate_every resume_from",
    },
)
for _path, _required, _why, _source in (
    ("train.schedule", "cosine", "its rate falls as a cosine", "utils/utils.py, LearningRate"),
    ("train.num_iterations", 1, "it trains once on each step's completions", "grpo_one_stage.py"),
    ("train.max_grad_norm", 1.0, "its training cell clips at 1.0", "wrapper.py"),
    ("train.weight_decay", 0.1, "it always decays by 0.1", "utils/configs.py, set_weight_decay"),
    ("rollout.min_p", None, "mindformers' generation knows no min_p", "generation_config.py"),
):
    RULES.must(_path, be(_required, _why), _source)
RULES.must(
    "train.ref_model_mixup_alpha",
    be(1.0, "the script copies the policy as it is"),
    "grpo_one_stage.py",
    when=lambda job: job.train.ref_model_sync_steps > 0,
)


@RULES.row("train.final_share", "utils/utils.py, LearningRate")
def _lower_end(job: Job) -> Broken:
    if job.train.final_share < 1:
        return None
    return "must be below 1: its cosine needs a lower end", "set it to 0.0"


@RULES.row("reward.functions", "grpo_one_stage.py")
def _its_rewards(job: Job) -> Broken:
    if dict(zip(job.reward.functions, job.reward.weights, strict=False)) == REWARDS:
        return None
    rule = "must be accuracy and format, each with weight 1: no others there"
    return rule, "use reward=think, or train with another engine"
