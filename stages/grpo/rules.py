"""Rules of training, sft and evaluate.

plan checks them for a configuration, the stages for their inputs.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from stages.base.checks import at_least, at_most, equal, multiple_of
from stages.base.errors import Problem
from stages.base.layout import ROLES, Role
from stages.grpo.config import EvaluateConfig, RolloutConfig, SftConfig, TrainConfig
from stages.rewards.config import DOTTED

if TYPE_CHECKING:
    from stages.grpo.trainer import TrainingJob
    from stages.sections import Sections

    Training = Sections | TrainingJob
    """A run, or the trainer's job."""


def training_problems(run: Training) -> Iterator[Problem]:
    """Yield problems of the algorithm's settings, whatever the engine."""
    train, trainer = run.train, "ours: stages/grpo/trainer.py"
    yield from at_most(
        "train.warmup_steps",
        train.warmup_steps,
        train.updates,
        "train.steps x train.num_iterations",
        "",
        "ours: stages/grpo/optimizer.py",
    )
    if train.validate_every:
        path, why = "train.validation_prompts", "train.validate_every is not 0"
        yield from at_least(path, train.validation_prompts, 1, "", why, trainer, "set it to 64")
    else:
        for key, value in (("keep_best", train.keep_best), ("patience", train.patience)):
            if value:
                rule = "needs checks on held-out prompts"
                yield Problem(f"train.{key}", value, rule, "set train.validate_every", trainer)
    if train.beta == 0:
        for key, limit in (("ref_model_sync_steps", train.ref_model_sync_steps), ("max_kl", train.max_kl)):
            if limit:
                rule = "needs a reference, which train.beta=0 leaves out"
                yield Problem(f"train.{key}", limit, rule, "set train.beta above 0", trainer)
    yield from _algorithm(train)
    yield from _loggers(train)
    yield from agent_problems(run.rollout)
    rollout, sampling = run.rollout, "ours: stages/grpo/sampling.py"
    most = rollout.max_tokens
    yield from at_most("rollout.min_tokens", rollout.min_tokens, most, "rollout.max_tokens", "", sampling)


def _algorithm(train: TrainConfig) -> Iterator[Problem]:
    """Yield problems of settings of the loss and of advantages that contradict each other."""
    source = "ours: stages/grpo/algorithm.py"
    if train.scale_advantages and train.advantages != "grpo":
        rule = f"must not be true with train.advantages={train.advantages}, which is not divided by it"
        remedy = "leave it null, or set train.advantages=grpo"
        yield Problem("train.scale_advantages", True, rule, remedy, f"{source}; {_PAPERS[train.advantages]}")
    if train.resample_rounds and train.advantages == "reinforce_plus_plus":
        rule = "must be 0 with train.advantages=reinforce_plus_plus, in which all groups have advantages"
        yield Problem("train.resample_rounds", train.resample_rounds, rule, "set it to 0", source)
    most = train.clip_ratio_c
    if most is not None and train.loss_type in ("cispo", "sapo"):
        rule = f"has no effect with train.loss_type={train.loss_type}, which is not PPO's clipped surrogate"
        yield Problem("train.clip_ratio_c", most, rule, "set it to null", source)
    elif most is not None and most < 1 + train.epsilon_high:
        rule = f"must be at least 1 + train.epsilon_high = {1 + train.epsilon_high:g}"
        yield Problem(
            "train.clip_ratio_c", most, rule, "raise it, or set it to null", "arXiv:1912.09729, eq. 5"
        )
    if train.use_bias_correction_kl and train.kl_estimator == "k2" and train.beta > 0:
        rule = "must be false with train.kl_estimator=k2, whose gradient is the divergence's without it"
        yield Problem("train.use_bias_correction_kl", True, rule, "set it to false", source)


_PAPERS = {
    "rloo": "arXiv:2402.14740, section 2",
    "dr_grpo": "arXiv:2503.20783, section 3.1",
    "reinforce_plus_plus": "arXiv:2501.03262",
}
"""train.advantages -> the paper."""


def algorithm_notes(train: TrainConfig) -> Iterator[str]:
    """Yield notes for the plan about settings that have less effect than they seem to have."""
    if train.beta > 0 and train.kl_estimator == "k1" and not train.use_bias_correction_kl:
        yield (
            "train.kl_estimator=k1: as a term of the loss it has a gradient of 0 on average and holds "
            "nothing back; k2 has the divergence's"
        )


def _loggers(train: TrainConfig) -> Iterator[Problem]:
    """Yield a problem for each tracker that is named twice or is not installed."""
    for index, logger in enumerate(train.loggers):
        path = f"train.loggers[{index}]"
        if logger in train.loggers[:index]:
            yield Problem(path, logger, "is named twice", "name it once", "ours: stages/grpo/trainer.py")
        if importlib.util.find_spec(logger) is None:
            remedy = f"pip install 'grpoflow[{'mlflow' if logger == 'mlflow' else 'loggers'}]'"
            yield Problem(path, logger, f"needs the package {logger}", remedy, "ours: stages/grpo/trackers")


def evaluate_problems(config: EvaluateConfig) -> Iterator[Problem]:
    """Yield problems of the section evaluate."""
    if config.sample_prompts > 0:
        why, source = "pass@k is estimated from these", "arXiv:2107.03374, eq. 1"
        yield from at_most("evaluate.k", config.k, config.num_samples, "evaluate.num_samples", why, source)


def sft_problems(config: SftConfig) -> Iterator[Problem]:
    """Yield problems of the section sft."""
    source = "ours: stages/grpo/sft.py"
    yield from at_most("sft.warmup_steps", config.warmup_steps, config.steps, "sft.steps", "", source)
    parts = config.micro_batch_num
    yield from multiple_of("sft.batch_size", config.batch_size, parts, "sft.micro_batch_num", "", source)


def example_problems(config: SftConfig, rows: int) -> Iterator[Problem]:
    """Yield a problem if the `rows` examples that sft.check_prompts leaves do not fill a batch."""
    if config.batch_size > rows:
        rule = f"must be at most the {rows} examples that sft.check_prompts={config.check_prompts} leaves"
        remedy = f"use at most {rows}" if rows else "lower sft.check_prompts, or take more rows"
        yield Problem("sft.batch_size", config.batch_size, rule, remedy, "ours: stages/grpo/sft.py")


def prompt_problems(train: TrainConfig, rows: int) -> Iterator[Problem]:
    """Yield a problem if the training prompts, `rows` with those for validation, do not fill a step."""
    step, source = train.prompts_per_step, "ours: stages/grpo/stage.py"
    if step > rows:
        yield from at_most("train.prompts_per_step", step, rows, "the training prompts", "", source)
        return
    left, most = rows - train.validation_prompts, rows - step
    if train.validate_every and left < step:
        rule = f"leaves {max(0, left)} of {rows} prompts, fewer than train.prompts_per_step={step}"
        remedy = f"use at most {most}" if most > 0 else "take more rows, or set train.validate_every=0"
        yield Problem("train.validation_prompts", train.validation_prompts, rule, remedy, source)


def trainer_problems(run: Training) -> Iterator[Problem]:
    """Yield problems of engine=local's grpo."""
    yield from equal(
        "train.lora_rank",
        run.train.lora_rank,
        0,
        "engine=local trains all weights",
        "ours: stages/grpo/model.py",
    )
    why = "the network that is trained samples"
    yield from correction_problems(run.rollout, why, "ours: stages/grpo/trainer.py")
    for role in ROLES:
        layout = run.layout.role(role)
        for key, degree in (
            ("pipeline_stage", layout.pipeline_stage),
            ("context_parallel", layout.context_parallel),
            ("expert_parallel", layout.expert_parallel),
        ):
            yield from equal(
                f"layout.{role}.{key}",
                degree,
                1,
                "engine=local is data_parallel x model_parallel only",
                "ours: stages/grpo/parallel.py",
                "use a layout with dp and mp only",
            )
        yield from equal(
            f"layout.{role}.enable_parallel_optimizer",
            layout.enable_parallel_optimizer,
            False,
            "engine=local keeps each shard whole",
            "ours: stages/grpo/optimizer.py",
        )
    # with train.beta=0 there is no reference
    roles: tuple[Role, ...] = ROLES if run.train.beta > 0 else ("train", "generate")
    for role in roles:
        yield from _shares(run, role)


def _shares(run: Training, role: Role) -> Iterator[Problem]:
    """Yield a problem if a role has other cards than train, or cannot share the prompts of a step."""
    cards, layout, prompts = run.layout.train.cards, run.layout.role(role), run.train.prompts_per_step
    if layout.cards != cards:
        rule, remedy = f"must occupy {cards} cards as train does", "leave its degrees null"
        yield Problem(f"layout.{role}", layout.name, rule, remedy, "ours: stages/grpo/trainer.py")
    parts, key = layout.data_parallel, f"layout.{role}.data_parallel"
    if role != "generate":  # which samples all its prompts at once
        parts, key = parts * layout.micro_batch_num, f"{key} x micro_batch_num"
    source = "ours: stages/grpo/rollout.py, batch.py"
    yield from multiple_of("train.prompts_per_step", prompts, parts, key, "", source)


def correction_problems(rollout: RolloutConfig, why: str, source: str) -> Iterator[Problem]:
    """Yield problems of rollout.correction for an engine that has none, because of `why`."""
    yield from equal("rollout.correction", rollout.correction, "none", why, source)


def lower_bound_problems(rollout: RolloutConfig, source: str) -> Iterator[Problem]:
    """Yield a problem if rollout.correction_min has no effect."""
    if rollout.correction != "mis":
        why = "only rollout.correction=mis has a lower bound"
        yield from equal("rollout.correction_min", rollout.correction_min, None, why, source)


TOOL = "tool"
"""rollout.agent that lets the model call the functions of rollout.tools."""


def agent_code(rollout: RolloutConfig) -> dict[str, str]:
    """Return the user's code for completions of several turns: key of the configuration -> module:name."""
    names = {f"rollout.tools[{index}]": name for index, name in enumerate(rollout.tools)}
    if rollout.agent not in (None, TOOL):
        names["rollout.agent"] = str(rollout.agent)
    return names


def agent_problems(rollout: RolloutConfig) -> Iterator[Problem]:
    """Yield problems of rollout.agent and of the keys that need it, whatever the engine."""
    source = "ours: stages/grpo/rules.py"
    if rollout.agent is None:
        for key, value in (("tools", list(rollout.tools)), ("max_turns", rollout.max_turns)):
            if value:
                rule = "has no effect without rollout.agent: a completion is one turn"
                remedy = "add rollout.agent=tool, or leave it out"
                yield Problem(f"rollout.{key}", value, rule, remedy, source)
        return
    for key, name in agent_code(rollout).items():
        if not DOTTED.fullmatch(name):
            is_agent = key == "rollout.agent"
            rule = f"must be {'tool, or ' if is_agent else ''}module:{'Class' if is_agent else 'function'}"
            example = "tool" if is_agent else "calculator:add"
            yield Problem(key, name, rule, f"for example {example}", source)
    functions = [name.partition(":")[2] for name in rollout.tools]
    for index, function in enumerate(functions):
        if function in functions[:index]:
            rule, remedy = f"is another function with the name {function}", "rename it: calls name it"
            yield Problem(f"rollout.tools[{index}]", rollout.tools[index], rule, remedy, source)
    if rollout.agent == TOOL and rollout.max_turns == 1:
        rule = "must be at least 2 with rollout.agent=tool: the model would never read a function's answer"
        yield Problem("rollout.max_turns", 1, rule, "use 2, or set it to null", source)


def check_resumed(train: TrainConfig, state: Mapping[str, Any]) -> Iterator[Problem]:
    """Check by its state.json that a checkpoint of another run is grpo's, with steps left to train."""
    step = int(state["step"])
    if "position" not in state:
        rule = "is no checkpoint of a grpo stage: its state.json has no position in the prompts"
        yield Problem("train.resume_from", train.resume_from, rule, "name a checkpoint that grpo wrote")
    elif train.beta > 0 and not train.ref_model_sync_steps and _has_reference(state):
        rule = "has a reference that moved: with train.ref_model_sync_steps=0 it would not be used"
        yield Problem("train.resume_from", train.resume_from, rule, "set train.ref_model_sync_steps")
    elif step >= train.steps:
        rule = f"is of step {step}: train.steps={train.steps} leaves nothing to train"
        remedy = f"set train.steps to more than {step}, or name an earlier one"
        yield Problem("train.resume_from", train.resume_from, rule, remedy)


def _has_reference(state: Mapping[str, Any]) -> bool:
    """Return True if a checkpoint's state.json lists the weights of a reference."""
    return any(name.startswith("reference/") for name in state.get("files", ()))
