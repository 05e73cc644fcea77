"""Rules of verl: what it checks after taking the cards, ignores silently, or cannot do.

Each source is a file of verl 0.9.1. Rules of all engines are in pipeline/config/rules.py.
"""

from collections.abc import Iterator
from pathlib import Path

from stages.base.layout import ROLES
from stages.base.rules import Broken, Rules, divide
from stages.engines import layout_rules
from stages.engines import upstream as engine_upstream
from stages.engines.layout_rules import Laid
from stages.engines.tables import add_rules, plain
from stages.engines.verl.job import CPUS_PER_WORKER, Job
from stages.engines.verl.upstream import fields
from stages.rewards.config import BUILTIN

RULES = Rules[Job]("verl")
plain(
    RULES,
    "verl",
    {
        "workers/utils/losses.py": "use_bias_correction_kl mask_truncated_completions",
        "trainer/ppo/v1/trainer_base.py": "resample_rounds validate_every max_kl resume_from",
        "ours: stages/engines/verl/train.py": "loggers",
    },
)
add_rules(RULES, Path(__file__).with_suffix(".yaml"))


@RULES.row("train.schedule", "workers/engine/fsdp/transformer_impl.py")
def _schedule(job: Job) -> Broken:
    """Require a constant or cosine schedule with engine.strategy=fsdp2."""
    if job.engine.strategy == "megatron" or job.train.schedule != "linear":
        return None
    return "must be constant or cosine with engine.strategy=fsdp2", "use cosine"


RULES.must(
    "layout.generate.model_parallel",
    divide("engine.cards_per_node", why="a server of the rollout stays on one machine"),
    "workers/rollout/replica.py",
    when=lambda job: job.nodes > 1,
)


@RULES.row("layout.train.data_parallel", "single_controller/ray/base.py, RayResourcePool")
def _equal_nodes(job: Job) -> Broken:
    """Require the same number of cards on each machine."""
    per_node = job.engine.cards_per_node
    if job.nodes == 1 or job.cards % per_node == 0:
        return None
    rule = f"makes {job.cards} cards, which do not fill machines with launcher.cards_per_node={per_node}"
    return rule, "verl needs as many cards on each machine"


@RULES.row("train.prompts_per_step", "utils/config.py; workers/engine_workers.py", each=("step", "update"))
def _divisible_batches(job: Job, part: str) -> Broken:
    """Require that the cards can share the completions of a step and of an update."""
    prompts = job.train.prompts_per_step if part == "step" else job.mini_batch_size
    count = prompts * job.rollout.num_generations
    if count % job.cards == 0:
        return None
    return f"gives {count} completions per {part}, which {job.cards} cards cannot share", "use a multiple"


RULES.include(
    layout_rules.RULES,
    lambda job: Laid(job.model, {role: job.layout.role(role) for role in ROLES}),
)
engine_upstream.add_rule(RULES, "engine", fields, "trainer/config/ppo_trainer.yaml")


def notes(job: Job) -> Iterator[str]:
    """Yield notes for the plan about what no rule forbids."""
    train = job.train
    if job.engine.strategy == "megatron":
        yield "engine.strategy=megatron is rendered, but grpoflow has never run it"
    if train.num_iterations > 1 and (train.schedule != "constant" or train.warmup_steps):
        yield "verl changes the learning rate once per step, not once per update"
    if train.warmup_steps:
        yield "verl's warm-up begins with a learning rate of 0: the first step trains nothing"
    if train.weight_decay:
        yield f"train.weight_decay={train.weight_decay}: verl applies it to norms and biases, too"
    if any(name not in BUILTIN for name in job.reward.functions):
        yield "verl calls reward functions with one completion at a time, not with all of a step"
    if not job.on_cpu:
        yield f"Ray reserves {CPUS_PER_WORKER} CPUs for each card; with fewer the run waits forever"
    yield from engine_upstream.notes("engine", job.engine.upstream)
