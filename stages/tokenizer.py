"""Qwen2's byte-level BPE through the Rust `tokenizers` library, from and to Hugging Face's files."""

import dataclasses
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

from stages.base import files
from stages.base.errors import InputError
from stages.base.tags import tags_of
from stages.models.config import ModelConfig

ENDOFTEXT, IM_START, IM_END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
ADDED_TOKENS = "added tokens with an id, content and flags each"
SPECIAL_TOKENS = (ENDOFTEXT, IM_START, IM_END)

# transformers uses this split for Qwen2 whatever tokenizer.json says.
# Source: huggingface/transformers, models/qwen2/tokenization_qwen2.py, PRETOKENIZE_REGEX.
QWEN2_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)


@dataclass(frozen=True)
class SpecialIds:
    """Begin, end and padding ids."""

    bos: int | None
    """Begin id; encode.py takes the ids before a text from the tokenizer itself."""
    eos: tuple[int, ...]
    """Ids that end a completion."""
    pad: int


def assemble(model: models.BPE) -> Tokenizer:
    """Put Qwen2's normaliser, split and decoder around a BPE model over byte-level characters."""
    tokenizer = Tokenizer(model)
    tokenizer.normalizer = normalizers.NFC()
    split = pre_tokenizers.Split(Regex(QWEN2_SPLIT), behavior="isolated", invert=False)
    bytes_only = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, bytes_only])
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    return tokenizer


def special_token(content: str) -> AddedToken:
    """Create a token that is never split."""
    return AddedToken(content, single_word=False, lstrip=False, rstrip=False, normalized=False, special=True)


def train(texts: Iterable[str], vocab_size: int) -> Tokenizer:
    """Train a byte-level BPE; the same texts give the same ids everywhere.

    `vocab_size` (at least 259) limits the ids, of which the last are the three special tokens.
    """
    from tokenizers import trainers

    tokenizer = assemble(models.BPE())
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size - len(SPECIAL_TOKENS),
        min_frequency=2,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.add_special_tokens([special_token(content) for content in SPECIAL_TOKENS])
    return tokenizer


def build(directory: Path, drop_hash_merges: bool = False) -> Tokenizer:
    """Build the tokenizer from vocab.json, merges.txt and (where present) tokenizer_config.json.

    Args:
        directory: holds the files.
        drop_hash_merges: leave out the merges that begin with '#', as mindrlhf's Qwen2_5Tokenizer does
            (it takes them for comments; 95 of Qwen2.5's), so that "####" becomes four tokens.
            Source: mindrlhf e8a8fc1, models/qwen2_5/qwen2_5_tokenizer.py:314.

    Raises:
        InputError: a file is missing or malformed.
    """
    paths = [directory / name for name in ("vocab.json", "merges.txt")]
    for path in paths:
        if not path.is_file():
            require_files(directory)
            raise InputError(path, None, "is missing", "give tokenizer.json, or vocab.json and merges.txt")
    try:
        vocab, merges = models.BPE.read_file(*map(str, paths))
        model = models.BPE(vocab, [m for m in merges if not (drop_hash_merges and m[0].startswith("#"))])
    except Exception as error:  # the library raises bare Exception
        raise InputError(directory, None, f"vocab.json and merges.txt do not fit: {error}") from error
    tokenizer, config_file = assemble(model), directory / "tokenizer_config.json"
    listed = files.read_optional_object(config_file).get("added_tokens_decoder", {})
    if not listed:
        tokenizer.add_special_tokens([special_token(content) for content in SPECIAL_TOKENS])
        return tokenizer
    with files.understood(config_file, ADDED_TOKENS):
        added = {int(index): _added_token(values) for index, values in listed.items()}
    for index, token in sorted(added.items()):
        tokenizer.add_tokens([token])
        actual = tokenizer.token_to_id(token.content)
        if actual != index:
            rule = f"{token.content} gets id {actual}"
            remedy = "take vocab.json and tokenizer_config.json from the same model"
            raise InputError(f"{config_file}: added_tokens_decoder", index, rule, remedy)
    return tokenizer


def _added_token(values: Any) -> AddedToken:
    values["content"].encode()  # half of a surrogate pair ends the library in a panic
    names = ("single_word", "lstrip", "rstrip", "normalized", "special")
    return AddedToken(values["content"], **{name: bool(values[name]) for name in names})


def missing_files(names: Iterable[str]) -> tuple[str, str] | None:
    """Return rule and remedy if a directory's file names include no tokenizer that can be read."""
    held = set(names)
    if "tokenizer.json" in held or {"vocab.json", "merges.txt"} <= held:
        return None
    sentencepiece = sorted(name for name in held if name.endswith(".model"))
    if sentencepiece:
        rule = f"needs a tokenizer.json: SentencePiece's {sentencepiece[0]} is not read"
        remedy = "write one there with transformers: AutoTokenizer.from_pretrained(DIR).save_pretrained(DIR)"
        return rule, remedy
    rule = "holds no tokenizer: neither tokenizer.json nor vocab.json and merges.txt"
    return rule, "add the files, or set model.tokenizer_path to a directory with them"


def require_files(directory: Path) -> None:
    """Raise InputError if a directory holds no tokenizer that can be read."""
    if missing := missing_files(file.name for file in directory.iterdir()):
        raise InputError(directory, None, *missing)


def load(directory: Path) -> Tokenizer:
    """Load the tokenizer of a directory from tokenizer.json, else as `build` does.

    Raises:
        InputError: the files are missing or malformed.
    """
    path = directory / "tokenizer.json"
    if not path.exists():
        return build(directory)
    try:
        tokenizer = Tokenizer.from_str(files.read_text(path))
    except Exception as error:  # the library raises bare Exception
        raise InputError(path, None, f"is not a tokenizer: {error}") from error
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return tokenizer


def keep_tags(tokenizer: Tokenizer) -> Tokenizer:
    """Return a tokenizer whose decoding keeps tags such as <think>, also where they are special tokens.

    Reward functions read them. A model's tokenizer may list them with its end and padding tokens, which
    decoding leaves out.
    """
    values = json.loads(tokenizer.to_str())
    added = values["added_tokens"]
    tags = tags_of(token["content"] for token in added)
    if not any(token["special"] and token["content"] in tags for token in added):
        return tokenizer
    for token in added:
        token["special"] = token["special"] and token["content"] not in tags
    return Tokenizer.from_str(json.dumps(values))


def special_ids(directory: Path, model: ModelConfig | None) -> SpecialIds:
    """Return the ids from the model section, else from the directory's files, else by the tokens' names.

    Raise InputError if no end or padding id can be found, or one is no row of the embedding.
    """
    named = [directory / name for name in ("generation_config.json", "config.json", "tokenizer_config.json")]
    generation, config, settings = map(files.read_optional_object, named)
    ids = token_ids(directory, settings)
    named_pad = settings.get("pad_token")
    named_pad = named_pad.get("content") if isinstance(named_pad, dict) else named_pad
    configured = dataclasses.asdict(model) if model else {}
    rows = config.get("vocab_size", configured.get("vocab_size"))

    def first(key: str, name: str = "", setting: Any = None) -> tuple[int, ...]:
        """Return the ids of a key, `setting` being that of tokenizer_config.json; else that of a token."""
        candidates = {
            f"model.{key}": configured.get(key),
            f"{named[2]}: pad_token": setting,
            f"{named[0]}: {key}": generation.get(key),
            f"{named[1]}: {key}": config.get(key),
            f"{directory}: {name}": ids.get(name),
        }
        for where, value in candidates.items():
            if value is not None:
                return _checked_ids(where, key, value, rows)
        return ()

    bos, eos = first("bos_token_id"), first("eos_token_id", IM_END)
    pad = first("pad_token_id", ENDOFTEXT, ids.get(named_pad) if isinstance(named_pad, str) else None)
    if not eos or not pad:
        remedy = "set model.eos_token_id and model.pad_token_id"
        raise InputError(directory, None, f"names no {'padding' if eos else 'end'} token", remedy)
    return SpecialIds(bos[0] if bos else None, eos, pad[0])


def _checked_ids(where: object, key: str, value: Any, rows: Any) -> tuple[int, ...]:
    """Return one id, or at least one end id; each must be a row of the embedding."""
    listed = value if isinstance(value, (list, tuple)) and key == "eos_token_id" else [value]
    most = rows if type(rows) is int else math.inf
    if not listed or not all(type(index) is int and 0 <= index < most for index in listed):
        kind = "an id or a list of at least one" if key == "eos_token_id" else "an id"
        below = f" and below vocab_size={rows}" if type(rows) is int else ""
        raise InputError(where, value, f"must be {kind}, from 0{below}", f"correct it, or set model.{key}")
    return tuple(listed)


def special_tokens(tokenizer: Tokenizer) -> dict[str, int]:
    """Return text -> id of the special tokens."""
    added = tokenizer.get_added_tokens_decoder()
    return {token.content: index for index, token in added.items() if token.special}


def token_ids(directory: Path, settings: Mapping[str, Any]) -> dict[str, int]:
    """Return the ids of added tokens, from tokenizer_config.json if it lists them, else tokenizer.json.

    Raises:
        InputError: they are malformed.
    """
    listed = settings.get("added_tokens_decoder")
    file = directory / ("tokenizer_config.json" if listed else "tokenizer.json")
    if not listed and not file.is_file():
        return {token.content: index for index, token in build(directory).get_added_tokens_decoder().items()}
    with files.understood(file, ADDED_TOKENS):
        if listed:
            return {str(values["content"]): int(index) for index, values in listed.items()}
        added = files.read_object(file).get("added_tokens", [])
        return {str(values["content"]): int(values["id"]) for values in added}
