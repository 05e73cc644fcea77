"""Rules of engine=mindrlhf_one_stage beyond those that mindrlhf has, too.

Sources are files of mindrlhf 2d0e84d to 9202c8f.
"""

from collections.abc import Iterator

from stages.base.rules import Broken, Rules, at_least, be
from stages.engines.mindrlhf import common_rules
from stages.engines.mindrlhf.notes import common_notes
from stages.engines.mindrlhf_one_stage.config import CONTRACT
from stages.engines.mindrlhf_one_stage.job import Job

RULES = Rules[Job]("mindrlhf_one_stage")
REWARDS = {"accuracy": 1.0, "format": 1.0}
"""The script's only rewards and their weights (grpo_one_stage.py, main)."""


def notes(job: Job) -> Iterator[str]:
    """Yield notes for the plan about behaviour that no rule forbids."""
    yield from common_notes(job, CONTRACT, job.num_rollouts)
    yield "it saves weights once, at its end: a run that is stopped begins anew"
    yield "its reference is laid out as layout.generate; layout.reference is not used"
    yield (
        "its tokenizer has Qwen2.5's special ids as constants (qwen2_tokenizer.py, ENDOFTEXTID): a model "
        "with another vocabulary is trained with wrong padding, or ends with an IndexError"
    )


RULES.include(common_rules.RULES, lambda job: job)
RULES.must(
    "cards",
    at_least(
        2, why="get_rank() and cut checkpoints need use_parallel", remedy="choose a layout of several cards"
    ),
    "grpo_one_stage.py",
    value=lambda job: job.layout.train.cards,
)
RULES.must(
    "layout.{}.enable_parallel_optimizer",
    be(False, "the generation's YAML alone decides"),
    "grpo_one_stage.py, build_context",
    each=lambda job: job.roles,
)
RULES.must(
    "engine.num_blocks",
    at_least(
        lambda job: job.engine.chunk_size * -(-job.seq_length // job.engine.block_size),
        why="what chunk_size sequences take",
    ),
    "mindformers block_tables.py",
)
for _path, _required, _why, _source in (
    ("train.schedule", "cosine", "its rate falls as a cosine", "utils/utils.py, LearningRate"),
    ("train.num_iterations", 1, "it trains once on each step's completions", "grpo_one_stage.py"),
    ("train.weight_decay", 0.1, "it always decays by 0.1", "utils/configs.py, set_weight_decay"),
    ("rollout.min_p", None, "mindformers' generation knows no min_p", "generation_config.py"),
):
    RULES.must(_path, be(_required, _why), _source)


@RULES.row("train.final_share", "utils/utils.py, LearningRate")
def _lower_end(job: Job) -> Broken:
    """Require a share below 1."""
    if job.train.final_share < 1:
        return None
    return "must be below 1: its cosine needs a lower end", "set it to 0.0"


@RULES.row("reward.functions", "grpo_one_stage.py")
def _its_rewards(job: Job) -> Broken:
    """Require the rewards accuracy and format, each with weight 1."""
    if dict(zip(job.reward.functions, job.reward.weights, strict=False)) == REWARDS:
        return None
    rule = "must be accuracy and format, each with weight 1: no others there"
    return rule, "use reward=think, or train with another engine"
