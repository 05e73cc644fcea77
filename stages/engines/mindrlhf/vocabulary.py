"""Vocabulary of a model, as far as it is known before its files are fetched, and mindrlhf's tokenizer for it.

mindrlhf's class for Qwen2.5 has the ids of special tokens as constants, and decodes every id above
LAST_TEXT_ID as LAST_TEXT_ID (qwen2_5_tokenizer.py:451 at e8a8fc1, qwen2_tokenizer.py:319 at 0cd087455), so
that a stop token becomes a letter. Its fast tokenizer reads tokenizer.json and does neither: e8a8fc1 uses it
with tokenizer_type=deepseek (models/model_utils.py:66), 0cd087455 with custom_model_name=llama
(grpo_trainer.py:237).
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from stages.models.config import ModelConfig
from stages.models.families import family_of
from stages.models.families.qwen2 import ENDOFTEXT
from stages.rewards.probe import Leftover

ENDOFTEXT_TEXT = "<|endoftext|>"
QWEN_SPECIAL = range(ENDOFTEXT, 151665)
"""Ids of Qwen2.5's special tokens; the first is that of ENDOFTEXT_TEXT (tokenizer_config.json)."""
LAST_TEXT_ID = 151634
LAST_TEXT = "\u24a0"
"""Text of LAST_TEXT_ID."""


def tokenizer_of(model: ModelConfig) -> Literal["qwen", "file"]:
    """Return mindrlhf's tokenizer for a model."""
    tutorial = family_of(model).mindrlhf
    if model.source == "builtin" or tutorial is None or not tutorial.constant_ids:
        return "file"
    ids = (model.bos_token_id, model.pad_token_id, *(model.eos_token_id or ()))
    known = _special_tokens(model)
    foreign = any(token is not None and token not in QWEN_SPECIAL for token in ids)
    return "file" if foreign or (known and known.get(ENDOFTEXT_TEXT) != QWEN_SPECIAL[0]) else "qwen"


def leftover(model: ModelConfig, tokenizer: str) -> Leftover | None:
    """Return the part of a stop token that remains in the text that mindrlhf rewards.

    vLLM and mindformers return the token; the padding token alone is cut off (grpo_experience_maker.py,
    _remove_right_padding).
    """
    ids = model.token_ids
    if tokenizer != "qwen" or not any(index > LAST_TEXT_ID and index != ids.pad for index in ids.eos):
        return None
    source = f"qwen2_5_tokenizer.py:451, qwen2_tokenizer.py:319: ids above {LAST_TEXT_ID} are read as it"
    remedy = "use engine=mindrlhf with engine.tokenizer=file, which reads the model's tokenizer.json"
    return Leftover(LAST_TEXT, source, remedy)


def special_tokens(model: ModelConfig) -> Mapping[str, str]:
    """Return unk, bos, eos and pad for mindrlhf's fast tokenizer, whose class has none: it adds unknown ones.

    The family's own, or ENDOFTEXT_TEXT for a vocabulary that is known to be another: a built-in model's, too.
    """
    tutorial = family_of(model).mindrlhf
    usual = {} if tutorial is None else tutorial.special_tokens
    known = _special_tokens(model)
    is_foreign = model.source == "builtin" or (known and usual.get("eos") not in known)
    return dict.fromkeys(("unk", "bos", "eos", "pad"), ENDOFTEXT_TEXT) if is_foreign or not usual else usual


def has_padding_token(model: ModelConfig) -> bool:
    """Return True if the tokenizer has the token that pads samples, or if there is no tokenizer file."""
    known = _special_tokens(model)
    return not known or special_tokens(model)["eos"] in known


def _special_tokens(model: ModelConfig) -> dict[str, int]:
    """Return the id of each special token in tokenizer_config.json; empty if the file is not here."""
    directory = model.tokenizer_path or model.path
    if not directory:
        return {}
    try:
        file = Path(directory) / "tokenizer_config.json"
        listed = json.loads(file.read_text(encoding="utf-8"))["added_tokens_decoder"]
        return {values["content"]: int(index) for index, values in listed.items()}
    except (OSError, ValueError, AttributeError, TypeError, KeyError):
        return {}  # fetch reads the file again and reports its problems
