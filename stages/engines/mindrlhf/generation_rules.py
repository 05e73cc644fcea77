"""What becomes of generation in mindrlhf: seeds, vLLM's limits, and the tokenizer that reads completions.

Places as in stages/engines/mindrlhf/rules.py.
"""

from __future__ import annotations

from collections.abc import Iterator

from stages.base.errors import Problem
from stages.engines.mindrlhf import vocabulary
from stages.engines.mindrlhf.job import Job


def check(job: Job) -> Iterator[Problem]:
    """What never learns, dies, or reads completions wrongly."""
    if job.engine.use_vllm == 0:
        yield from _seeds(job)
    else:
        yield from _vllm(job)
    yield from _tokens(job)


def _seeds(job: Job) -> Iterator[Problem]:
    if job.distinct_completions > 1:
        return
    most = job.rollout.num_generations
    apart = f"layout.generate.data_parallel between 2 and {most} (with as many cards)"
    yield Problem(
        "engine.use_vllm",
        0,
        "never learns with layout.generate.data_parallel=1: each of the "
        f"{most} completions of a prompt is sampled with one seed, its replica's "
        "(infer_worker.py:358; mindformers text_generator.py:814), so that all are equal and advantages 0",
        f"use {apart}" if job.engine.load_ckpt_format == "ckpt" else f"use engine.use_vllm=1, or {apart}",
    )


def _vllm(job: Job) -> Iterator[Problem]:
    engine = job.engine
    if engine.use_vllm == 2 and job.version == "e8a8fc1":
        yield Problem(
            "engine.use_vllm",
            2,
            "fails on e8a8fc1: what MindFormers generated is read as if vLLM had (infer_worker.py:388)",
            "use 1, or 0 with layout.generate.data_parallel of at least 2",
        )
    longest = job.tokenize.max_prompt_length + job.rollout.max_tokens
    if longest > job.max_model_len:
        yield Problem(
            "engine.max_model_len",
            job.max_model_len,
            f"tokenize.max_prompt_length + rollout.max_tokens = {longest} must fit "
            "(vllm config.py: it refuses longer sequences)",
            "leave it null",
        )
    if job.max_model_len > job.model.max_position_embeddings:
        yield Problem(
            "engine.max_model_len",
            job.max_model_len,
            f"at most model.max_position_embeddings={job.model.max_position_embeddings} (vllm config.py)",
            f"use at most {job.model.max_position_embeddings}",
        )
    if engine.max_num_seqs > job.max_model_len:
        yield Problem(
            "engine.max_num_seqs",
            engine.max_num_seqs,
            f"at most max_num_batched_tokens, which is max_model_len={job.max_model_len} (vllm config.py, "
            "SchedulerConfig)",
            f"use at most {job.max_model_len}",
        )


def _tokens(job: Job) -> Iterator[Problem]:
    model, ids = job.model, job.model.token_ids
    if job.engine.tokenizer == "qwen" and vocabulary.tokenizer_of(vars(model)) == "file":
        yield Problem(
            "engine.tokenizer",
            "qwen",
            f"must be file for a vocabulary other than Qwen2.5's: {ids.pad} for <|endoftext|> and more are "
            "constants of mindrlhf's own class (qwen2_5_tokenizer.py, ENDOFTEXTID), with which samples are "
            "padded, and an id that it does not know ends the run with an IndexError",
            "leave it auto",
        )
    if model.source == "builtin":
        return  # its vocabulary is trained on the spot; the stage reads the ids from the tokenizer
    if job.hands_tokenizer_over and not vocabulary.has_endoftext(vars(model)):
        yield Problem(
            "model.path",
            model.path,
            "its tokenizer must know <|endoftext|>, with which samples are padded (ours: a token that "
            "mindrlhf adds to the vocabulary has no row in the weights)",
            "use a model of Qwen's families",
        )
    for name, values in (("bos", (ids.bos,)), ("pad", (ids.pad,)), ("eos", ids.eos)):
        path = f"{name}_token_id"
        for value in values if getattr(model, path) is None else ():  # those given every engine checks
            if value >= model.vocab_size:
                rule = f"must be below vocab_size={model.vocab_size} (ours: config.json has no more)"
                yield Problem(f"model.{path}", value, rule, "give the tokenizer's own id")
