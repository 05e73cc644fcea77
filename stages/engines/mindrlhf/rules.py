"""What mindrlhf asserts, does not check and then gets silently wrong, and what a user should know.

Sources are files of mindrlhf e8a8fc1; 0cd087455 and each family's tutorial behave the same unless a rule says
otherwise. Rules of every engine (heads, card counts) are in pipeline/config/rules.py.
"""

import math
from collections.abc import Iterator
from pathlib import Path

from stages.base.checks import at_least, at_most, divides, equal, multiple_of
from stages.base.errors import Problem
from stages.engines.layout_rules import mindformers_layout_problems
from stages.engines.mindrlhf import contract, vocabulary
from stages.engines.mindrlhf.files import RENDERED_WITH_EXPERTS, grpo_config
from stages.engines.mindrlhf.job import Job, MindrlhfJob, Paths
from stages.engines.upstream_keys import rendered_problems
from stages.grpo.rules import correction_problems
from stages.models.families import family_of
from stages.models.layouts import warnings as layout_warnings

ANSWER_PREFIX = "Assistant:"
"""Text in a prompt after which mindrlhf's kk_reward looks for <think> and <answer>."""


def problems(job: Job) -> Iterator[Problem]:
    """Yield what mindrlhf would refuse, ignore silently or die of."""
    yield from common_problems(job)
    yield from _checkout(job)
    yield from _generation(job)
    yield from _tokens(job)
    yield from _packing(job)
    yield from _resharding(job)
    yield from _training(job)
    yield from _rewards(job)
    if family_of(job.model).experts is not None:
        yield from rendered_problems("engine.upstream", job.engine.upstream, RENDERED_WITH_EXPERTS)


def common_problems(job: MindrlhfJob) -> Iterator[Problem]:
    """Yield the problems that the one-stage script has, too."""
    yield from mindformers_layout_problems(job.model, {role: job.layout.role(role) for role in job.roles})
    yield from _shared_layout(job)
    yield from _shared_lengths(job)
    yield from _shared_batches(job)
    yield from _plain_grpo(job)


def _shared_layout(job: MindrlhfJob) -> Iterator[Problem]:
    """Yield problems of weights and layouts."""
    train = job.layout.train
    source = "grpo_trainer.py, rename_safetensors_weights; finetune_qwen2_5_7b.yaml"
    yield from equal("model.qkv_concat", job.model.qkv_concat, False, "", source)
    yield from equal(
        "layout.generate.pipeline_stage",
        job.layout.generate.pipeline_stage,
        1,
        "generation must not be pipelined",
        "infer_worker.py, reshard_optimizer.py; one stage: its README.md",
        "set it to 1 and raise model_parallel or data_parallel",
    )
    yield from equal(
        "layout.train.opt_offload",
        train.opt_offload,
        False,
        "the optimizer of this setting needs the norm of the gradients (mindrlhf/utils/adam.py:161), which "
        "the training cell does not pass to it",
        "mindformers wrapper/wrapper.py:281; at 0cd087455 and before mindrlhf/wrapper/wrapper.py, "
        "enable_offload",
        "set it to false; between updates mindrlhf always moves the optimizer to the host",
    )
    yield from at_least(
        "layout.train.micro_batch_num",
        train.micro_batch_num,
        train.pipeline_stage,
        "pipeline_stage",
        "so many micro-batches fill the pipeline",
        "MindSpore's cell_wrapper.py, PipelineCell",
        "set it to pipeline_stage, or null",
    )
    if train.pipeline_stage > 1:
        yield from multiple_of(
            "engine.batch_size",
            job.engine.batch_size,
            job.engine.micro_batch_interleave_num,
            "engine.micro_batch_interleave_num",
            "it cuts each micro-batch into so many parts",
            "train_worker.py:319; MindSpore's cell_wrapper.py, MicroBatchInterleaved",
        )


def _shared_lengths(job: MindrlhfJob) -> Iterator[Problem]:
    """Yield problems of the row length of training, which may be derived."""
    path, length = "engine.seq_length", job.seq_length
    yield from multiple_of(
        path,
        length,
        job.sequence_parts,
        "{}",
        "the parts that the layouts cut a sequence into",
        "ours: MindSpore cuts evenly",
        "leave it null",
    )
    yield from at_least(
        path,
        length,
        job.sample_length,
        "the longest sample of tokenize.max_prompt_length and rollout.max_tokens",
        "longer samples are cut, or end the run",
        "grpo_experience_maker.py, create_pack_group; one stage: utils/configs.py, combine_grpo_config",
        "leave it null, or shorten them",
    )
    yield from at_most(
        path,
        length,
        job.model.max_position_embeddings,
        "model.max_position_embeddings",
        "",
        "ours: config.json says what it was trained for",
        "shorten tokenize.max_prompt_length or rollout.max_tokens, or lower engine.pack_num; of fewer than "
        "2048 positions train with engine=local",
    )


def _shared_batches(job: MindrlhfJob) -> Iterator[Problem]:
    """Yield problems of a step whose prompts do not fill generated batches and updates."""
    path, prompts = "train.prompts_per_step", job.train.prompts_per_step
    if not job.fills_batches:
        label = "engine.chunk_size x layout.generate.data_parallel"
        source = (
            "grpo_experience_maker.py, _init_grpo_experience_dataset; "
            "one stage: grpo_trainer.py, make_experience"
        )
        yield from multiple_of(path, prompts, job.batch, label, "", source)
        return
    yield from multiple_of(
        path,
        prompts,
        job.prompts_per_update,
        "the {} prompts whose completions fill updates",
        "what remains after the last update (engine.batch_size x data_parallel rows, in a pipeline x "
        "micro_batch_num) is dropped silently",
        "train_worker.py; one stage: utils/configs.py, init_grpo_dataset",
    )


def _plain_grpo(job: MindrlhfJob) -> Iterator[Problem]:
    """Yield problems of keys of `train` that mindrlhf does not implement, or as a constant."""
    train, loss, trainer = job.train, "grpo_models.py", "grpo_trainer.py"
    start = "train_worker.py; grpo_one_stage.py"
    why = "mindrlhf averages within each completion, then over completions"
    yield from equal("train.loss_type", train.loss_type, "grpo", why, loss)
    level = "mindrlhf weighs token by token"
    path = "train.importance_sampling_level"
    yield from equal(path, train.importance_sampling_level, "token", level, loss)
    why = "mindrlhf does not correct its KL term"
    yield from equal("train.use_bias_correction_kl", train.use_bias_correction_kl, False, why, loss)
    why = "mindrlhf trains on completions that were cut off, too"
    yield from equal("train.mask_truncated_completions", train.mask_truncated_completions, False, why, loss)
    why = "mindrlhf always divides by the group's standard deviation"
    yield from equal("train.scale_advantages", train.scale_advantages, True, why, trainer)
    why = "mindrlhf's only estimator"
    yield from equal(
        "train.advantages", train.advantages, "grpo", why, "grpo_experience_maker.py; " + trainer
    )
    why = "its loss has no entropy"
    yield from equal("train.entropy_coeff", train.entropy_coeff, 0.0, why, loss)
    why = "its KL term is k3, compute_approx_kl"
    yield from equal("train.kl_estimator", train.kl_estimator, "k3", why, loss)
    yield from equal("train.clip_ratio_c", train.clip_ratio_c, None, "mindrlhf has no dual clip", loss)
    why = "mindrlhf samples each step once"
    yield from equal("train.resample_rounds", train.resample_rounds, 0, why, trainer)
    why = "mindrlhf has no check on held-out prompts; evaluate has"
    yield from equal("train.validate_every", train.validate_every, 0, why, trainer)
    why = "mindrlhf trains all weights"
    yield from equal("train.lora_rank", train.lora_rank, 0, why, trainer)
    yield from equal("train.max_kl", train.max_kl, None, "mindrlhf does not stop by KL", trainer)
    why = "mindrlhf cannot resume from another run's checkpoint"
    yield from equal("train.resume_from", train.resume_from, None, why, start)
    why = "mindrlhf gives its numbers to TensorBoard alone"
    yield from equal("train.loggers", train.loggers, (), why, start)
    why = "mindrlhf's loss has no weights for it"
    yield from correction_problems(job.rollout, why, loss)
    why = "the training cell clips at 1.0"
    yield from equal("train.max_grad_norm", train.max_grad_norm, 1.0, why, "wrapper.py, max_grad_norm")
    if train.ref_model_sync_steps:
        yield from equal(
            "train.ref_model_mixup_alpha",
            train.ref_model_mixup_alpha,
            1.0,
            "mindrlhf copies the policy as it is",
            "transform_worker.py, sync_ref_model; grpo_one_stage.py",
        )


def _checkout(job: Job) -> Iterator[Problem]:
    """Yield problems of the family's program, and of a checkout whose classes lack rendered keys."""
    engine, tutorial, title = job.engine, job.tutorial, family_of(job.model).title
    if tutorial.contracts and job.version not in tutorial.contracts:
        accepted = " or ".join(tutorial.contracts)
        rule = f"must be {accepted} for {title}, whose program is {tutorial.main}"
        source = "ours: main.py of other versions does not run"
        yield Problem("engine.contract", engine.contract, rule, f"check out {accepted}", source)
    if tutorial.generates_apart:
        yield from equal(
            "engine.load_ckpt_format",
            engine.load_ckpt_format,
            "ms_safetensors",
            f"for {title} training reads no Hugging Face weights (it has no convert_map_dict), and "
            "vLLM reads no rank directories",
            "mindformers models/modeling_utils.py:1513; infer_worker.py:189",
        )
    home = engine.mindrlhf_home
    if home is None or not (Path(home) / contract.CONFIGS).is_file() or any(_registered_rewards(job)):
        return
    rendered = grpo_config(job, Paths(*[Path()] * 6), resume=False)
    if unknown := contract.unknown_keys(home, rendered):
        rule = f"its dataclasses do not know {', '.join(unknown[:3])}, which contract {job.version} has"
        source = contract.CONFIGS.name
        yield Problem("engine.mindrlhf_home", home, rule, f"check out {job.version}", source)


def _generation(job: Job) -> Iterator[Problem]:
    """Yield problems of the program that generates, and of its lengths."""
    engine = job.engine
    if job.is_newer:
        yield from at_most(
            "engine.use_vllm",
            engine.use_vllm,
            1,
            "",
            "e8a8fc1 reads MindFormers' output as if vLLM had generated it",
            "infer_worker.py:388",
            "use 1, or 0 with layout.generate.data_parallel of at least 2",
        )
    if engine.load_ckpt_format == "ckpt":
        yield from equal(
            "engine.use_vllm",
            engine.use_vllm,
            0,
            "vLLM loads safetensors only",
            "infer_worker.py",
            "use hf_safetensors or ms_safetensors; or engine.use_vllm=0 with layout.generate.data_parallel "
            "of at least 2",
        )
    if job.tutorial.generates_apart and not engine.use_vllm:
        rule = (
            f"must be 1 for {family_of(job.model).title}: mindformers' network for generation has other "
            "parameters than that for training, whose weights it would be given"
        )
        source = "infer_worker.py:484; mindformers research/deepseek3/deepseek3_train2infer.py"
        yield Problem("engine.use_vllm", engine.use_vllm, rule, "set it to 1", source)
    if engine.use_vllm:
        yield from _lengths_of_vllm(job)
    elif job.distinct_completions == 1:
        most = job.rollout.num_generations
        rule = (
            f"never learns with layout.generate.data_parallel=1: each of the {most} completions of a prompt "
            "is sampled with one seed, its replica's, so that all are equal and advantages 0"
        )
        remedy = f"use layout.generate.data_parallel between 2 and {most} (with as many cards)"
        if engine.load_ckpt_format != "ckpt":
            remedy += ", or engine.use_vllm=1"
        source = "infer_worker.py:358; mindformers text_generator.py:814"
        yield Problem("engine.use_vllm", engine.use_vllm, rule, remedy, source)


def _lengths_of_vllm(job: Job) -> Iterator[Problem]:
    """Yield problems of the longest sequence, which may be derived."""
    path, longest = "engine.max_model_len", job.max_model_len
    yield from at_least(
        path,
        longest,
        job.generated_length,
        "tokenize.max_prompt_length + rollout.max_tokens",
        "",
        "vllm config.py: it refuses longer sequences",
        "leave it null",
    )
    positions = job.model.max_position_embeddings
    yield from at_most(path, longest, positions, "model.max_position_embeddings", "", "vllm config.py")
    yield from at_most(
        "engine.max_num_seqs",
        job.max_num_seqs,
        longest,
        "max_num_batched_tokens, which is max_model_len={}",
        "",
        "vllm config.py, SchedulerConfig",
    )


def _tokens(job: Job) -> Iterator[Problem]:
    """Yield problems of the vocabulary and of special ids."""
    model, ids = job.model, job.model.token_ids
    if job.engine.tokenizer == "qwen" and vocabulary.tokenizer_of(model) == "file":
        rule = (
            f"must be file for a vocabulary other than Qwen2.5's: {ids.pad} for <|endoftext|> and more are "
            "constants of mindrlhf's own class, with which samples are padded, and an id that it does not "
            "know ends the run with an IndexError"
        )
        source = "qwen2_5_tokenizer.py, ENDOFTEXTID"
        yield Problem("engine.tokenizer", "qwen", rule, "leave it auto", source)
    if model.source == "builtin":
        return  # its vocabulary is trained in fetch; the stage reads the ids from its tokenizer
    reads_file = job.reads_tokenizer_json or bool(job.tutorial.special_tokens)
    if reads_file and not vocabulary.has_padding_token(model):
        own = job.tutorial.special_tokens.get("eos")
        token = vocabulary.ENDOFTEXT_TEXT if own is None else f"{own} or {vocabulary.ENDOFTEXT_TEXT}"
        rule = f"its tokenizer must know {token}, with which samples are padded"
        source = "ours: a token that mindrlhf adds to the vocabulary has no row in the weights"
        remedy = f"use a model with {family_of(model).title}'s tokenizer"
        yield Problem("model.path", model.path, rule, remedy, source)
    for name, given, usual in (
        ("bos", model.bos_token_id, (ids.bos,)),
        ("pad", model.pad_token_id, (ids.pad,)),
        ("eos", model.eos_token_id, ids.eos),
    ):
        beyond = [index for index in usual if index >= model.vocab_size]
        if given is None and beyond:  # ids in the configuration are checked for every engine
            rule = f"must be below vocab_size={model.vocab_size}"
            source = "ours: config.json has no more"
            path = f"model.{name}_token_id"
            yield Problem(path, beyond[0], rule, "give the tokenizer's own id", source)


def _packing(job: Job) -> Iterator[Problem]:
    """Yield problems of the samples in a row, and of rows in a reference batch."""
    path, packs = "engine.pack_num", job.engine.pack_num
    if not job.tutorial.masks_samples and packs != 1:
        why = "this family's network does not know where a sample ends, so that packed samples see each other"
        yield from equal(path, packs, 1, why, "grpo_models.py:207")
    else:
        yield from _whole_packs(job)
    yield from at_least(
        "engine.seq_length",
        job.seq_length,
        job.shortest_row,
        "{}",
        "rows that hold several samples take a compressed mask of that size, and mindformers refuses shorter "
        "ones",
        "modules/transformer/transformer.py:1261",
        "leave it null, or set it to 2048: shorter samples are padded",
    )
    if job.fills_batches:
        source = "grpo_experience_maker.py, create_pack_group"
        yield from divides(path, packs, job.samples, "the {} samples of a step", "", source)
        yield from multiple_of(
            "train.prompts_per_step",
            job.train.prompts_per_step,
            job.prompts_per_reference_batch,
            "the {} prompts whose completions fill reference batches",
            "log-probabilities of what remains after the last one (engine.ref_model_batch_size x "
            "layout.reference.data_parallel rows) stay 0",
            "ref_worker.py, compute_ref_log_probs",
        )


def _whole_packs(job: Job) -> Iterator[Problem]:
    """Yield a problem if the longest samples of a pack do not fit, though packs must fill batches."""
    packed = job.engine.pack_num * job.sample_length
    filled = math.lcm(job.rows_per_update, job.rows_per_reference_batch)
    if packed > job.seq_length >= job.sample_length and filled > 1:
        rule = (
            f"{job.engine.pack_num} of the longest samples, {packed} tokens, must fit: else the number of "
            "packs varies from step to step, and those that fill no batch are dropped, or keep "
            "log-probabilities of 0"
        )
        remedy = f"leave it null, use at least {packed}, or lower engine.pack_num"
        source = "grpo_experience_maker.py, create_pack_group and compute_ref_log_probs"
        yield Problem("engine.seq_length", job.seq_length, rule, remedy, source)


def _resharding(job: Job) -> Iterator[Problem]:
    """Yield problems of what resharding assumes about the embedding and the generation's cards."""
    model, shape, pipeline = job.model, job.tutorial.embedding, job.layout.train.pipeline_stage
    if shape is not None and pipeline > 1 and (model.vocab_size, model.hidden_size) != shape:
        rule = (
            f"must be 1 for an embedding of {model.vocab_size} x {model.hidden_size}: when weights go to "
            f"generation, the later stages expect {shape[0]} x {shape[1]}, a constant"
        )
        source = "transform_worker.py:190; transform_param.py, merge_params_in_pipeline_stages"
        yield Problem("layout.train.pipeline_stage", pipeline, rule, "set it to 1", source)
    if not job.engine.enable_reshard_optimizer:
        return
    train, generate = job.layout.train, job.layout.generate
    yield from divides(
        "layout.generate.model_parallel",
        generate.model_parallel,
        train.model_parallel,
        "layout.train.model_parallel",
        "engine.enable_reshard_optimizer=true cuts no finer",
        "reshard_optimizer.py, source tp and destination tp",
    )
    yield from equal(
        "layout.generate.context_parallel",
        generate.context_parallel,
        train.context_parallel,
        "layout.train's with engine.enable_reshard_optimizer=true, which counts cards without it",
        "reshard_optimizer.py, world_size",
        "use layout.train's, or set engine.enable_reshard_optimizer=false",
    )


def _training(job: Job) -> Iterator[Problem]:
    """Yield problems of checkpoints, monitoring and the learning rate."""
    train = job.train
    yield from at_least(
        "train.checkpoint_every",
        train.checkpoint_every,
        1,
        "",
        "",
        "grpo_trainer.py, save_ckpt_interval",
        "set it to the steps between checkpoints",
    )
    yield from equal(
        "engine.full_monitor",
        job.engine.full_monitor,
        False,
        "e8a8fc1 reads old_log_ratio from GRPOModel, which has none, and fails in the first update; "
        "0cd087455 has no such key. Neither logs KL and clip share",
        "grpo_models.py:377; 0cd087455: grpo_configs.py",
    )
    if train.schedule == "constant" or train.final_share == 1:
        constant = train.schedule == "constant"
        path = "train.schedule" if constant else "train.final_share"
        value = train.schedule if constant else train.final_share
        rule = (
            "the learning rate must fall: mindrlhf builds a CosineDecayLR whatever the schedule is, which "
            "refuses a last rate that equals the first"
        )
        remedy = (
            "use train.schedule=linear with train.final_share=0.99 and a large train.steps for a rate that "
            "hardly falls"
        )
        yield Problem(path, value, rule, remedy, "mindrlhf/utils/utils.py, LearningRate")


def _rewards(job: Job) -> Iterator[Problem]:
    """Yield problems of rewards, and of the prompt in which one looks for the answer."""
    yield from _registered_rewards(job)
    if "knights" in job.reward.functions and ANSWER_PREFIX not in job.tokenize.prompt_suffix:
        rule = (
            f"must contain {ANSWER_PREFIX!r} for the reward knights: mindrlhf reads the answer after it, "
            "because a chat template's header consists of special tokens, which it removes; without it no "
            "answer is right"
        )
        path, suffix = "tokenize.prompt_suffix", job.tokenize.prompt_suffix
        yield Problem(path, suffix, rule, "end it with this text", "kk_reward_fn.py, extract_solution")


def _registered_rewards(job: Job) -> Iterator[Problem]:
    """Yield a problem for each reward function that mindrlhf does not have."""
    for index, name in enumerate(job.reward.functions):
        if name in job.verifiers:
            continue
        rule = f"mindrlhf has no such reward; it has {', '.join(job.verifiers)}"
        if name == "accuracy":
            rule = (
                "mindrlhf replaces accuracy_reward by qwen_accuracy_reward for Qwen models, which counts "
                "only numbers in \\boxed{}"
            )
        remedy = "use reward=boxed, or train with engine=local"
        if ":" in name:
            remedy += (
                "; or write it into your checkout, as qwen_accuracy_reward (mindrlhf/reward/reward_fn.py)"
            )
        source = "grpo_experience_maker.py, _init_reward_fn"
        yield Problem(f"reward.functions[{index}]", name, rule, remedy, source)


def notes(job: Job) -> Iterator[str]:
    """Yield notes about steps, weights, and values that mindrlhf does not pass on."""
    yield _steps(job)
    yield from _notes_of_training(job)
    yield from _notes_of_generation(job)
    yield from layout_notes(job)
    yield from job.tutorial.notes


def _steps(job: Job) -> str:
    train, updates = job.train, job.updates_per_step
    steps = (
        f"mindrlhf trains engine.epochs={job.engine.epochs} x (the number of training prompts // "
        f"train.prompts_per_step) steps; train.steps={train.steps} is only the length of its learning rate's "
        "decay"
    )
    if updates == 1:
        return steps
    return f"{steps}: {train.updates} updates (decay_steps), about {updates} in each step"


def _notes_of_training(job: Job) -> Iterator[str]:
    train, layout, updates = job.train, job.layout.train, job.updates_per_step
    if not job.is_newer and train.num_iterations == 1 and updates > 1:
        yield (
            f"engine.contract=0cd087455: with train.num_iterations=1 the {updates} updates of a step are "
            "made without ratio and clipping, so that train.epsilon_low and epsilon_high have no effect "
            "(grpo_models.py, construct)"
        )
    if layout.pipeline_stage == 1 and layout.micro_batch_num > 1:
        yield (
            f"layout.train.micro_batch_num={layout.micro_batch_num}: mindrlhf reads it in a pipeline only "
            "(train_worker.py, compile); engine.batch_size is the number of rows at once"
        )
    if train.weight_decay != 0.1:
        yield (
            f"train.weight_decay={train.weight_decay}: mindrlhf decays by 0.1 whatever is asked "
            "(utils/configs.py, set_weight_decay)"
        )
    if job.rollout.temperature != 1:
        yield (
            f"rollout.temperature={job.rollout.temperature:g}: mindrlhf samples with it, but its loss does "
            "not divide the logits by it (grpo_models.py, logprobs_of_labels)"
        )
    ids = job.model.token_ids
    if job.model.source != "builtin" and set(ids.eos) == {ids.pad}:
        yield (
            f"model.eos_token_id={ids.pad} is the padding id, which mindrlhf's masks leave out "
            "(infer_worker.py, post_process_infer_outputs): the policy does not learn where to end; use an "
            "instruct model"
        )


def _notes_of_generation(job: Job) -> Iterator[str]:
    engine, rollout = job.engine, job.rollout
    if rollout.min_p:
        yield (
            f"rollout.min_p={rollout.min_p}: mindrlhf never hands it on, whoever generates (infer_worker.py, "
            "SamplingParams and generate)"
        )
    group = rollout.num_generations
    if engine.use_vllm == 0 and job.distinct_completions < group:
        yield (
            f"engine.use_vllm=0: of the {group} completions of a prompt only {job.distinct_completions} "
            "differ, one per generation replica, because every call is seeded with its replica's number "
            "(infer_worker.py:358; mindformers text_generator.py:814): "
            f"layout.generate.data_parallel={group} makes all of them differ"
        )
    yield (
        f"seed={job.seed} does not change what is sampled: its seed is the replica's number, 0 to "
        "layout.generate.data_parallel-1 (infer_worker.py)"
    )
    if engine.use_vllm > 0:
        yield (
            "vLLM's start asserts WORLD_SIZE (vllm_v_general/parallel_state.py:136), which neither "
            "mindrlhf's run_grpo_vllm.sh nor msrun sets: where nothing else does, give "
            f"+engine.env.WORLD_SIZE='{job.layout.train.cards}'"
        )


def layout_notes(job: MindrlhfJob) -> Iterator[str]:
    """Yield the notes about layouts, also of the one-stage script."""
    parts = job.engine.micro_batch_interleave_num
    if parts > 1 and job.layout.train.pipeline_stage == 1:
        yield (
            f"engine.micro_batch_interleave_num={parts}: mindrlhf reads it in a pipeline only "
            "(train_worker.py:319; one stage: utils/configs.py)"
        )
    elif parts > 1:
        yield (
            f"engine.micro_batch_interleave_num={parts}: MindSpore adds the losses of the parts, so that "
            "loss and gradients before clipping are as many times as large (cell_wrapper.py)"
        )
    for role in job.roles:
        yield from (f"layout.{role}: {text}" for text in layout_warnings(job.model, job.layout.role(role)))
