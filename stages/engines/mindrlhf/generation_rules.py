"""Rules for generation in mindrlhf: seeds, vLLM's limits, tokenizers; sources as in rules.py."""

from stages.base.rules import Broken, Rules, at_least, at_most
from stages.engines.mindrlhf import vocabulary
from stages.engines.mindrlhf.job import Job

RULES = Rules[Job]("mindrlhf_generation")


@RULES.row("engine.use_vllm", "infer_worker.py:358; mindformers text_generator.py:814")
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


@RULES.row("engine.use_vllm", "infer_worker.py:388")
def _debugging(job: Job) -> Broken:
    """Refuse engine.use_vllm=2 on the version where it fails."""
    if job.engine.use_vllm != 2 or job.version != "e8a8fc1":
        return None
    rule = "fails on e8a8fc1, which reads MindFormers' output as if vLLM had generated it"
    return rule, "use 1, or 0 with layout.generate.data_parallel of at least 2"


RULES.must(
    "engine.max_model_len",
    at_least(
        lambda job: job.sample_length - 1,
        "tokenize.max_prompt_length + rollout.max_tokens",
        "",
        "leave it null",
    ),
    "vllm config.py: it refuses longer sequences",
    when=lambda job: job.engine.use_vllm > 0,
    value=lambda job: job.max_model_len,
)
RULES.must(
    "engine.max_model_len",
    at_most("model.max_position_embeddings"),
    "vllm config.py",
    name="positions_of_vllm",
    when=lambda job: job.engine.use_vllm > 0,
    value=lambda job: job.max_model_len,
)
RULES.must(
    "engine.max_num_seqs",
    at_most(lambda job: job.max_model_len, "max_num_batched_tokens, which is max_model_len={}"),
    "vllm config.py, SchedulerConfig",
    when=lambda job: job.engine.use_vllm > 0,
)


@RULES.row("engine.tokenizer", "qwen2_5_tokenizer.py, ENDOFTEXTID")
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
@RULES.row("model.path", "ours: a token that mindrlhf adds to the vocabulary has no row in the weights")
def _endoftext(job: Job) -> Broken:
    """Require a tokenizer that knows <|endoftext|>."""
    known = not job.reads_tokenizer_json or vocabulary.has_endoftext(vars(job.model))
    if known or job.model.source == "builtin":
        return None
    rule = "its tokenizer must know <|endoftext|>, with which samples are padded"
    return rule, "use a model of Qwen's families"


@RULES.row("model.{}_token_id", "ours: config.json has no more", each=("bos", "pad", "eos"))
def _usual_token_id(job: Job, name: str) -> Broken:
    """Require the family's usual token ids to be below model.vocab_size."""
    model, usual = job.model, getattr(job.model.token_ids, name)
    if model.source == "builtin" or getattr(model, f"{name}_token_id") is not None:
        return None  # ids in the configuration are checked for every engine
    beyond = [index for index in (usual if name == "eos" else (usual,)) if index >= model.vocab_size]
    rule, remedy = f"must be below vocab_size={model.vocab_size}", "give the tokenizer's own id"
    return (rule, remedy, beyond[0]) if beyond else None
