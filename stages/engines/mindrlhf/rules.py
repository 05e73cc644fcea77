"""Rules of engine=mindrlhf: what mindrlhf asserts, and what it does not check and then gets silently wrong.

Sources are files of mindrlhf e8a8fc1; 0cd087455 and each family's tutorial behave the same unless a rule says
otherwise. Rules of every engine (heads, card counts) are in pipeline/config/rules.py, rules that hold for the
one-stage script, too, in common_rules.py, rules of generation in generation_rules.py.
"""

import math
from pathlib import Path

from stages.base.rules import Broken, Rules, at_least, be, divide
from stages.engines import upstream
from stages.engines.mindrlhf import common_rules, contract, generation_rules
from stages.engines.mindrlhf.files import grpo_config
from stages.engines.mindrlhf.job import SHORTEST_ROW, Job, Paths
from stages.engines.mindrlhf.upstream import fields
from stages.models.families import family_of

HEADER = "Assistant:"
"""Text in a prompt after which mindrlhf's kk_reward looks for <think> and <answer>."""
RULES = Rules[Job]("mindrlhf")


@RULES.row("engine.use_vllm", "infer_worker.py: vLLM loads safetensors only")
def _ckpt_without_vllm(job: Job) -> Broken:
    """Refuse vLLM with engine.load_ckpt_format=ckpt, which it cannot load."""
    if job.engine.load_ckpt_format != "ckpt" or not job.engine.use_vllm:
        return None
    return (
        "must be 0 with engine.load_ckpt_format=ckpt",
        "use hf_safetensors or ms_safetensors; or engine.use_vllm=0 with layout.generate.data_parallel of at "
        "least 2",
    )


@RULES.row("engine.load_ckpt_format", "ours: stages/models")
def _known_weights(job: Job) -> Broken:
    """Refuse engine.load_ckpt_format=ckpt for families whose weights cannot be converted to it."""
    family = family_of(job.model)
    if job.engine.load_ckpt_format != "ckpt" or not job.tutorial.converts:
        return None
    rule = f"must not be ckpt for {family.title}, whose weights nothing here converts"
    return rule, "use ms_safetensors with weights that mindformers' own convert_weight.py made"


@RULES.row("engine.contract", "ours: main.py of other versions does not run")
def _contract_of_tutorial(job: Job) -> Broken:
    """Require a version of mindrlhf that has the program of the model's family."""
    contracts = job.tutorial.contracts
    if not contracts or job.version in contracts:
        return None
    accepted, title = " or ".join(contracts), family_of(job.model).title
    return f"must be {accepted} for {title}, whose program is {job.tutorial.main}", f"check out {accepted}"


RULES.include(common_rules.RULES, lambda job: job)
# Assumptions of resharding's numbering of the generation's cards:
RULES.must(
    "layout.generate.model_parallel",
    divide("layout.train.model_parallel", why="engine.enable_reshard_optimizer=true cuts no finer"),
    "reshard_optimizer.py, source tp and destination tp",
    name="reshard_model_parallel",
    when=lambda job: job.engine.enable_reshard_optimizer,
)
RULES.must(
    "layout.generate.context_parallel",
    be(
        lambda job: job.layout.train.context_parallel,
        "layout.train's with engine.enable_reshard_optimizer=true, which counts cards without it",
        "use layout.train's, or set engine.enable_reshard_optimizer=false",
    ),
    "reshard_optimizer.py, world_size",
    name="reshard_context_parallel",
    when=lambda job: job.engine.enable_reshard_optimizer,
)
RULES.include(generation_rules.RULES, lambda job: job)


def _reference_batch(job: Job) -> int:
    return job.engine.ref_model_batch_size * job.layout.reference.data_parallel


@RULES.row("engine.pack_num", "grpo_models.py:207")
def _masked_samples(job: Job) -> Broken:
    """Require engine.pack_num=1 if the network does not separate packed samples."""
    if job.engine.pack_num == 1 or job.tutorial.masks_samples:
        return None
    reason = "its network does not know where a sample ends, so that packed samples see each other"
    return f"must be 1 for {family_of(job.model).title}: {reason}", "set it to 1"


@RULES.row(
    "engine.seq_length",
    "grpo_experience_maker.py, create_pack_group and compute_ref_log_probs",
    unless=("masked_samples",),
)
def _whole_packs(job: Job) -> Broken:
    """Require that engine.pack_num of the longest samples fit into a sequence, if packs fill batches."""
    packed = job.engine.pack_num * job.sample_length
    filled = math.lcm(job.rows_per_update, _reference_batch(job))
    if not packed > job.seq_length >= job.sample_length or filled == 1:
        return None
    rule = (
        f"{job.engine.pack_num} of the longest samples, {packed} tokens, must fit: else the number of packs "
        "varies from step to step, and those that fill no batch are dropped, or keep log-probabilities of 0"
    )
    return rule, f"leave it null, use at least {packed}, or lower engine.pack_num", job.seq_length


RULES.must(
    "engine.pack_num",
    divide(lambda job: job.samples, "the {} samples of a step"),
    "grpo_experience_maker.py, create_pack_group",
    when=common_rules.fills_batches,
)
RULES.must(
    "train.prompts_per_step",
    common_rules.multiple_of_rows(
        _reference_batch,
        "a reference batch (engine.ref_model_batch_size x layout.reference.data_parallel): the tail's "
        "log-probabilities stay 0",
    ),
    "ref_worker.py, compute_ref_log_probs",
    name="reference_batches",
    when=common_rules.fills_batches,
)
RULES.must(
    "engine.seq_length",
    at_least(
        lambda job: job.shortest_row,
        why="rows that hold several samples take a compressed mask of that size, and mindformers refuses "
        "shorter ones",
        remedy=f"leave it null, or set it to {SHORTEST_ROW}: shorter samples are padded",
    ),
    "modules/transformer/transformer.py:1261",
    name="compressed_mask",
    value=lambda job: job.seq_length,
)
RULES.must(
    "train.checkpoint_every",
    at_least(1, remedy="set it to the steps between checkpoints"),
    "grpo_trainer.py, save_ckpt_interval",
)


@RULES.row("train.{}", "mindrlhf/utils/utils.py, LearningRate", each=("schedule", "final_share"))
def _falling_rate(job: Job, key: str) -> Broken:
    """Require a learning rate that falls."""
    constant = job.train.schedule == "constant"
    if not (constant if key == "schedule" else job.train.final_share == 1 and not constant):
        return None
    return (
        "the learning rate must fall: mindrlhf builds a CosineDecayLR whatever the schedule is, which "
        "refuses a last rate that equals the first",
        "use train.schedule=linear with train.final_share=0.99 and a large train.steps for a rate that "
        "hardly falls",
    )


RULES.must(
    "engine.full_monitor",
    be(
        False,
        "e8a8fc1 reads old_log_ratio from GRPOModel, which has none, and fails in the first update; "
        "0cd087455 has no such key. Neither logs KL and clip share",
    ),
    "grpo_models.py:377; 0cd087455: grpo_configs.py",
)


@RULES.row(
    "reward.functions[{}]",
    "grpo_experience_maker.py, _init_reward_fn",
    each=lambda job: range(len(job.reward.functions)),
)
def _registered_reward(job: Job, index: int) -> Broken:
    """Require a reward function that mindrlhf has."""
    name = job.reward.functions[index]
    if name in job.verifiers:
        return None
    rule = f"mindrlhf has no such reward; it has {', '.join(job.verifiers)}"
    if name == "accuracy":
        rule = (
            "mindrlhf replaces accuracy_reward by qwen_accuracy_reward for Qwen models, which counts only "
            "numbers in \\boxed{}"
        )
    remedy = "use reward=boxed, or train with engine=local"
    if ":" in name:
        remedy += "; or write it into your checkout, as qwen_accuracy_reward (mindrlhf/reward/reward_fn.py)"
    return rule, remedy


@RULES.row("tokenize.prompt_suffix", "kk_reward_fn.py, extract_solution")
def _header(job: Job) -> Broken:
    """Require the header after which mindrlhf looks for the answer of a puzzle."""
    if "knights" not in job.reward.functions or HEADER in job.tokenize.prompt_suffix:
        return None
    rule = (
        f"must contain {HEADER!r} for the reward knights: mindrlhf reads the answer after it, because a chat "
        "template's header consists of special tokens, which it removes; without it no answer is right"
    )
    return rule, "end it with this text"


@RULES.row("engine.mindrlhf_home", contract.CONFIGS.name, unless=("registered_reward",))
def _known_keys(job: Job) -> Broken:
    """Require a checkout whose configuration classes have the keys of its version."""
    home = job.engine.mindrlhf_home
    if home is None or not (Path(home) / contract.CONFIGS).is_file():
        return None
    unknown = contract.unknown_keys(home, grpo_config(job, Paths(*[Path()] * 6), resume=False))
    rule = f"its dataclasses do not know {', '.join(unknown[:3])}, which contract {job.version} has"
    return (rule, f"check out {job.version}") if unknown else None


upstream.add_rule(RULES, "engine", fields, contract.CONFIGS.name)
