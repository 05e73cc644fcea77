"""The export stage: trained rank directories as a Hugging Face directory.

It also contains training's chat template and tokenizer, evaluate's sampling options and a model card.
"""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stages.base.context import Context
from stages.base.files import read_object, read_optional_object
from stages.base.reader import read
from stages.export.card import model_card
from stages.export.template import chat_template
from stages.fetch.config import BASE_TEMPLATE, TEMPLATE, DatasetConfig, licence_files
from stages.fetch.tokenizer_files import write_vocabulary
from stages.grpo.config import EvaluateConfig, RolloutConfig
from stages.models.config import ModelConfig
from stages.tokenize.chat import default_template
from stages.tokenize.config import TokenizeConfig
from stages.tokenize.encode import Encoder
from stages.tokenize.stage import make_encoder
from stages.tokenizer import SpecialIds
from stages.weights.config import ExportConfig
from stages.weights.export import export
from stages.weights.sources import open_ranks
from stages.weights.strategy.files import read_strategy

SAMPLING = ("do_sample", "temperature", "top_k", "top_p", "min_p", "repetition_penalty", "max_new_tokens",
            "min_new_tokens", "max_length", "min_length")  # fmt: skip
"""Sampling keys of generation_config.json; the base model's values do not apply to the trained model."""


def run(context: Context) -> None:
    """Write a Hugging Face directory with grpo's weights."""
    model, config = context.section(ModelConfig, "model"), context.section(ExportConfig, "export")
    strategy = read_strategy(context.inputs["strategy"] / "train_strategy")
    tensors = open_ranks(context.inputs["grpo"] / "train", strategy)
    progress = context.progress_in_bytes("export")
    export(tensors, context.inputs["fetch"], context.output, model, config.dtype, progress=progress)
    make_usable(context.config, context.inputs, context.output)


def make_usable(
    config: Mapping[str, Any], inputs: Mapping[str, Path], out: Path, encoder: Encoder | None = None
) -> None:
    """Add chat template, tokenizer, token ids, sampling options, card and licence to an exported directory.

    Args:
        config: sections EXPORT_SECTIONS; and `command`, the run's overrides, if known.
        inputs: the artifact fetch; grpo and evaluate if they are complete.
        out: the directory, with weights and the fetched model's other files.
        encoder: encoder of the training prompts; None for that of section tokenize.
    """
    model = read(ModelConfig, config["model"], "model")
    tokenize = read(TokenizeConfig, config["tokenize"], "tokenize")
    dataset = read(DatasetConfig, config["dataset"], "dataset")
    encoder = encoder or make_encoder(inputs["fetch"], model, dataset, tokenize)
    if encoder.compat:
        write_tokenizer(encoder, out)
    write_template(chat_template(encoder), out)
    sampled = read(EvaluateConfig, config["evaluate"], "evaluate").sample_prompts > 0
    rollout = read(RolloutConfig, config["rollout"], "rollout")
    _write(out / "generation_config.json", generation(out, encoder.ids, rollout, sampled))
    _write(out / "config.json", read_object(out / "config.json") | special_ids_of(encoder.ids))
    licences = licence_files(model)
    for file in licences:
        if file.name != "README.md":
            shutil.copyfile(file, out / file.name)
    card = model_card(config, inputs, licences, untemplated=encoder.template is None)
    (out / "README.md").write_text(card, encoding="utf-8")


def write_template(template: str, out: Path) -> None:
    """Write the chat template for new and old readers; save the base model's as a sibling file."""
    settings_file, file = out / "tokenizer_config.json", out / TEMPLATE
    settings = read_optional_object(settings_file)
    base = file.read_text(encoding="utf-8") if file.is_file() else default_template(settings)
    if base and base != template and not (out / BASE_TEMPLATE).exists():
        (out / BASE_TEMPLATE).write_text(base, encoding="utf-8")
    file.write_text(template, encoding="utf-8")
    _write(settings_file, settings | {"chat_template": template})


def generation(out: Path, ids: SpecialIds, rollout: RolloutConfig, sampled: bool) -> dict[str, Any]:
    """Return generation_config.json: the base's in `out`, with training's ids and evaluate's sampling.

    `sampled` is False if evaluate was greedy.
    """
    base = read_optional_object(out / "generation_config.json")
    values = {key: value for key, value in base.items() if key not in SAMPLING}
    values |= {"bos_token_id": ids.bos, "eos_token_id": list(ids.eos), "pad_token_id": ids.pad}
    values |= {"do_sample": sampled, "max_new_tokens": rollout.max_tokens}
    if rollout.min_tokens:
        values["min_new_tokens"] = rollout.min_tokens
    if rollout.repetition_penalty != 1:
        values["repetition_penalty"] = rollout.repetition_penalty
    if sampled:  # 0 and 1.0 switch off defaults of transformers
        values |= {"temperature": rollout.temperature, "top_k": rollout.top_k or 0}
        values |= {"top_p": rollout.top_p or 1.0}
        values |= {"min_p": rollout.min_p} if rollout.min_p else {}
    return values


def special_ids_of(ids: SpecialIds) -> dict[str, Any]:
    """Return training's ids for config.json, which programs without generation_config.json read."""
    end = ids.eos[0] if len(ids.eos) == 1 else list(ids.eos)
    begin = {} if ids.bos is None else {"bos_token_id": ids.bos}
    return begin | {"eos_token_id": end, "pad_token_id": ids.pad}


def write_tokenizer(encoder: Encoder, out: Path) -> None:
    """Write the tokenizer without the merges that compat=mindrlhf leaves out."""
    encoder.tokenizer.save(str(out / "tokenizer.json"))
    write_vocabulary(out)


def _write(file: Path, values: Mapping[str, Any]) -> None:
    file.write_text(json.dumps(values, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
