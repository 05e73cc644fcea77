"""Rules of engine=mindrlhf: what mindrlhf asserts, and what it does not check and then gets silently wrong.

Sources are files of mindrlhf e8a8fc1; 0cd087455 and each family's tutorial behave the same unless a rule says
otherwise. Rules of every engine (heads, card counts) are in pipeline/config/rules.py.
"""

import math
from pathlib import Path

from stages.base.rules import Broken, Rules
from stages.engines import upstream
from stages.engines.layout_rules import MINDFORMERS, Laid
from stages.engines.mindrlhf import contract, vocabulary
from stages.engines.mindrlhf.files import fields, grpo_config
from stages.engines.mindrlhf.job import Job, MindrlhfJob, Paths
from stages.engines.tables import LOSS, add_rules, plain
from stages.models.families import family_of

HEADER = "Assistant:"
"""Text in a prompt after which mindrlhf's kk_reward looks for <think> and <answer>."""
TABLE = Path(__file__).with_name("rules.yaml")
COMMON = Rules[MindrlhfJob]("mindrlhf_common")
"""Rules that also hold for the one-stage script."""
GENERATION = Rules[Job]("mindrlhf_generation")
RULES = Rules[Job]("mindrlhf")

COMMON.include(MINDFORMERS, lambda job: Laid(job.model, {role: job.layout.role(role) for role in job.roles}))
add_rules(COMMON, TABLE)
plain(
    COMMON,
    "mindrlhf",
    {
        "grpo_models.py": f"loss_type {LOSS}",
        "grpo_trainer.py": "scale_advantages resample_rounds validate_every lora_rank max_kl",
        "train_worker.py; grpo_one_stage.py": "resume_from loggers",
    },
)
add_rules(GENERATION, TABLE)


@GENERATION.row("engine.use_vllm", "infer_worker.py:358; mindformers text_generator.py:814")
def _same_seed(job: Job) -> Broken:
    """Require replicas or vLLM, so that the completions of a prompt differ."""
    if job.engine.use_vllm or job.distinct_completions > 1:
        return None
    most = job.rollout.num_generations
    rule = (
        f"never learns with layout.generate.data_parallel=1: each of the {most} completions of a prompt is "
        "sampled with one seed, its replica's, so that all are equal and advantages 0"
    )
    apart = f"layout.generate.data_parallel between 2 and {most} (with as many cards)"
    return rule, f"use {apart}{'' if job.engine.load_ckpt_format == 'ckpt' else ', or engine.use_vllm=1'}"


@GENERATION.row("engine.tokenizer", "qwen2_5_tokenizer.py, ENDOFTEXTID")
def _constants_of_qwen(job: Job) -> Broken:
    """Require engine.tokenizer=file for a vocabulary other than Qwen2.5's."""
    if job.engine.tokenizer != "qwen" or vocabulary.tokenizer_of(vars(job.model)) != "file":
        return None
    rule = (
        f"must be file for a vocabulary other than Qwen2.5's: {job.model.token_ids.pad} for <|endoftext|> "
        "and more are constants of mindrlhf's own class, with which samples are padded, and an id that it "
        "does not know ends the run with an IndexError"
    )
    return rule, "leave it auto"


# A builtin model's vocabulary is trained in fetch; the stage reads the ids from its tokenizer.
@GENERATION.row("model.path", "ours: a token that mindrlhf adds to the vocabulary has no row in the weights")
def _endoftext(job: Job) -> Broken:
    """Require a tokenizer that knows <|endoftext|>."""
    known = not job.reads_tokenizer_json or vocabulary.has_endoftext(vars(job.model))
    if known or job.model.source == "builtin":
        return None
    rule = "its tokenizer must know <|endoftext|>, with which samples are padded"
    return rule, "use a model of Qwen's families"


@GENERATION.row("model.{}_token_id", "ours: config.json has no more", each=("bos", "pad", "eos"))
def _usual_token_id(job: Job, name: str) -> Broken:
    """Require the family's usual token ids to be below model.vocab_size."""
    model, usual = job.model, getattr(job.model.token_ids, name)
    if model.source == "builtin" or getattr(model, f"{name}_token_id") is not None:
        return None  # ids in the configuration are checked for every engine
    beyond = [index for index in (usual if name == "eos" else (usual,)) if index >= model.vocab_size]
    rule, remedy = f"must be below vocab_size={model.vocab_size}", "give the tokenizer's own id"
    return (rule, remedy, beyond[0]) if beyond else None


@RULES.row("engine.load_ckpt_format", "ours: stages/models")
def _known_weights(job: Job) -> Broken:
    """Refuse engine.load_ckpt_format=ckpt for families whose weights cannot be converted to it."""
    if job.engine.load_ckpt_format != "ckpt" or not job.tutorial.converts:
        return None
    rule = f"must not be ckpt for {family_of(job.model).title}, whose weights nothing here converts"
    return rule, "use ms_safetensors with weights that mindformers' own convert_weight.py made"


@RULES.row("engine.contract", "ours: main.py of other versions does not run")
def _contract_of_tutorial(job: Job) -> Broken:
    """Require a version of mindrlhf that has the program of the model's family."""
    contracts = job.tutorial.contracts
    if not contracts or job.version in contracts:
        return None
    accepted, title = " or ".join(contracts), family_of(job.model).title
    return f"must be {accepted} for {title}, whose program is {job.tutorial.main}", f"check out {accepted}"


RULES.include(COMMON, lambda job: job)
RULES.include(GENERATION, lambda job: job)
add_rules(RULES, TABLE)


@RULES.row(
    "engine.seq_length",
    "grpo_experience_maker.py, create_pack_group and compute_ref_log_probs",
    unless=("masked_samples",),
)
def _whole_packs(job: Job) -> Broken:
    """Require that engine.pack_num of the longest samples fit into a sequence, if packs fill batches."""
    packed = job.engine.pack_num * job.sample_length
    filled = math.lcm(job.rows_per_update, job.rows_per_reference_batch)
    if not packed > job.seq_length >= job.sample_length or filled == 1:
        return None
    rule = (
        f"{job.engine.pack_num} of the longest samples, {packed} tokens, must fit: else the number of packs "
        "varies from step to step, and those that fill no batch are dropped, or keep log-probabilities of 0"
    )
    return rule, f"leave it null, use at least {packed}, or lower engine.pack_num", job.seq_length


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
