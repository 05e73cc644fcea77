"""The four tokenizer files of Hugging Face's Qwen2 repositories: training, copying and completing them."""

import json
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from stages.base.errors import InputError
from stages.base.files import read_object, understood
from stages.fetch.config import TOKENIZER_AND_TEMPLATE
from stages.tokenizer import (
    ENDOFTEXT,
    IM_END,
    IM_START,
    SPECIAL_TOKENS,
    build,
    load,
    require_files,
    token_ids,
    train,
)

# ChatML with Qwen2.5's default system message, in its plain form (no tools).
CHAT_TEMPLATE = (
    "{%- if messages[0]['role'] != 'system' %}"
    "{{- '<|im_start|>system\\nYou are a helpful assistant.<|im_end|>\\n' }}"
    "{%- endif %}"
    "{%- for message in messages %}"
    "{{- '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}"
    "{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}"
)


def write_trained(texts: Iterable[str], vocab_size: int, output: Path) -> None:
    """Train a tokenizer with at most `vocab_size` ids on `texts` and write its files."""
    tokenizer = train(texts, vocab_size)
    tokenizer.save(str(output / "tokenizer.json"))
    write_vocabulary(output)
    _write_settings(tokenizer, output)


def take(source: Path, output: Path) -> None:
    """Copy the tokenizer of `source` with its chat template into `output` and complete it there.

    Raises:
        InputError: `source` holds no complete tokenizer, or its files contradict each other.
    """
    if not source.is_dir():
        raise InputError(source, None, "is not a directory", "set model.tokenizer_path")
    require_files(source)
    for name in TOKENIZER_AND_TEMPLATE:
        if (source / name).is_file():
            shutil.copyfile(source / name, output / name)
    complete(output)


def complete(output: Path) -> None:
    """Write the missing ones of the four files.

    Raises:
        InputError: an existing file is malformed.
    """
    if not (output / "tokenizer.json").exists():
        build(output).save(str(output / "tokenizer.json"))
    tokenizer = load(output)
    if not (output / "vocab.json").exists() or not (output / "merges.txt").exists():
        write_vocabulary(output)
    if not (output / "tokenizer_config.json").exists():
        _write_settings(tokenizer, output)


def check_fit(output: Path, vocab_size: int) -> None:
    """Refuse a tokenizer with more ids than model.vocab_size, the rows of the embedding."""
    size = max(load(output).get_vocab(with_added_tokens=True).values(), default=-1) + 1
    if size > vocab_size:
        remedy = f"set model.vocab_size={size} or more (Qwen2.5: 151936)"
        rule = f"must be at least the tokenizer's {size} ids"
        raise InputError("model.vocab_size", vocab_size, rule, remedy)


def ending_ids(output: Path) -> dict[str, Any]:
    """Return bos, eos and pad for a built-in model's config files."""
    ids = token_ids(output, read_object(output / "tokenizer_config.json"))
    missing = [token for token in SPECIAL_TOKENS if token not in ids]
    if missing:
        remedy = "give a Qwen2 or Qwen2.5 tokenizer"
        raise InputError(output, missing[0], "is missing from the tokenizer", remedy)
    return {"bos": ids[ENDOFTEXT], "eos": [ids[IM_END], ids[ENDOFTEXT]], "pad": ids[ENDOFTEXT]}


def write_vocabulary(output: Path) -> None:
    """Write vocab.json and merges.txt from tokenizer.json."""
    file = output / "tokenizer.json"
    model = read_object(file).get("model", {})
    with understood(file, "a BPE model, as Qwen2's does"):
        vocab = dict(sorted(model["vocab"].items(), key=lambda item: item[1]))
        merges = [merge if isinstance(merge, str) else " ".join(merge) for merge in model["merges"]]
    texts = {
        "vocab.json": json.dumps(vocab, ensure_ascii=False),
        "merges.txt": "\n".join(["#version: 0.2", *merges]) + "\n",
    }
    for name, text in texts.items():
        (output / name).unlink(missing_ok=True)  # writing to a link would change the user's file
        (output / name).write_text(text, encoding="utf-8")


def _write_settings(tokenizer: Tokenizer, output: Path) -> None:
    """Write tokenizer_config.json of a Qwen2 tokenizer."""
    file = output / "tokenizer_config.json"
    for token in SPECIAL_TOKENS:
        if tokenizer.token_to_id(token) is None:
            rule = f"is missing, and cannot be derived for a tokenizer without {token}"
            raise InputError(file, None, rule, "copy it from the model's repository")
    flags = ("lstrip", "normalized", "rstrip", "single_word", "special")
    added = {
        str(index): {"content": token.content, **{flag: getattr(token, flag) for flag in flags}}
        for index, token in sorted(tokenizer.get_added_tokens_decoder().items())
    }
    settings = {
        "add_bos_token": False,
        "add_prefix_space": False,
        "added_tokens_decoder": added,
        "additional_special_tokens": [IM_START, IM_END],
        "bos_token": None,
        "chat_template": CHAT_TEMPLATE,
        "clean_up_tokenization_spaces": False,
        "eos_token": IM_END,
        "errors": "replace",
        "model_max_length": 131072,
        "pad_token": ENDOFTEXT,
        "split_special_tokens": False,
        "tokenizer_class": "Qwen2Tokenizer",
        "unk_token": None,
    }
    file.write_text(json.dumps(settings, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
