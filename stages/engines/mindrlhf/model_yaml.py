"""Model YAML files for mindformers, one per role: finetune, reference, predict.

Source: mindformers 051d65f; mindrlhf e8a8fc1, model_configs. Tutorials for experts have a form of their own.
"""

from collections.abc import Mapping
from typing import Any

from stages.base.layout import RoleLayout
from stages.engines.mindformers.model_sections import (
    parallel_config,
    predicting,
    recompute_config,
    sampling,
    training,
)
from stages.engines.mindrlhf.job import Job, Paths
from stages.engines.mindrlhf.vocabulary import ENDOFTEXT_TEXT
from stages.models.families import network_of

Values = dict[str, Any]


def model_configs(job: Job, paths: Paths) -> dict[str, Values]:
    """Return the content of the files by name."""
    return {
        "finetune.yaml": _training_role(job, job.layout.train, paths),
        "reference.yaml": _training_role(job, job.layout.reference, paths),
        "predict.yaml": _predict(job, paths),
    }


def _training_role(job: Job, layout: RoleLayout, paths: Paths) -> Values:
    config, experts = training(job.model, layout, job.seq_length), job.tutorial.experts
    if experts is not None:
        return {"run_mode": "train", **_model(job, config), "moe_config": experts(job.model, True)}
    config |= {"do_sample": False, "compute_in_2d": True}
    return {"run_mode": "finetune", **_model(job, config), **_run(job, layout, paths)}


def _predict(job: Job, paths: Paths) -> Values:
    layout, experts, blocks = job.layout.generate, job.tutorial.experts, network_of(job.model).num_blocks
    sampled = sampling(job.rollout, job.engine.block_size, blocks)
    model = _model(job, predicting(job.model, layout, job.seq_length, sampled))
    if experts is None:
        return {"run_mode": "predict", **model, **_run(job, layout, paths)}
    return {
        "run_mode": "predict",
        "load_ckpt_format": "safetensors",
        **model,
        "moe_config": experts(job.model, False),
        "processor": _fast_tokenizer(job.tutorial.special_tokens, paths),
    }


def _model(job: Job, config: Values) -> Values:
    return {"model": {"model_config": config, "arch": dict(network_of(job.model).arch)}}


def _run(job: Job, layout: RoleLayout, paths: Paths) -> Values:
    return {
        "parallel_config": parallel_config(layout),
        "recompute_config": recompute_config(job.model, layout),
        "processor": _processor(job, paths),
    }


def _fast_tokenizer(special: Mapping[str, str], paths: Paths) -> Values:
    file = str(paths.tokenizer / "tokenizer.json")
    tokens = {f"{name}_token": text for name, text in special.items()}
    return {
        "return_tensors": "ms",
        "tokenizer": {"type": "LlamaTokenizerFast", **tokens, "vocab_file": file, "tokenizer_file": file},
        "type": "LlamaProcessor",
    }


def _processor(job: Job, paths: Paths) -> Values:
    if job.reads_tokenizer_json:
        # the end token is what mindrlhf pads packed samples with (pack_grouped_data)
        return _fast_tokenizer(dict.fromkeys(("unk", "bos", "eos", "pad"), ENDOFTEXT_TEXT), paths)
    return {
        "return_tensors": "ms",
        "tokenizer": {
            "type": "Qwen2Tokenizer",
            "model_max_length": job.max_model_len,
            "vocab_file": str(paths.tokenizer / "vocab.json"),
            "merges_file": str(paths.tokenizer / "merges.txt"),
            "unk_token": "<|endoftext|>",
            "pad_token": "<|endoftext|>",
            "eos_token": "<|im_end|>" if job.model.variant == "instruct" else "<|endoftext|>",
        },
        "type": "Qwen2Processor",
    }
