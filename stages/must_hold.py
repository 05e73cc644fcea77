"""What each stage's artifact must hold: without it a stage has done nothing, whatever its exit code says.

Read by the store when it commits, and whenever it looks whether an artifact is whole. Light on purpose: a
plan with nothing to do imports this and no stage.
"""

from collections.abc import Callable, Iterator, Mapping, Set
from fnmatch import fnmatchcase
from typing import Any

Config = Mapping[str, Any]
"""The part of the configuration that a stage reads: section -> values."""
MAY_BE_EMPTY = (".jsonl", ".db")
"""Endings of files that may have no byte."""

RESULT = "result.json"
HUGGING_FACE = ("config.json", "*.safetensors")


def _convert(config: Config) -> Iterator[str]:
    # a map of names where no weights are copied; the last is what MindSpeed-LLM's converter makes
    yield "name_map.json|*.safetensors|*.ckpt|mcore/*"


def _tokenize(config: Config) -> Iterator[str]:
    yield from (RESULT, "test.mindrecord", "test.mindrecord.db")
    yield from ("train.mindrecord|*.idx", "train.mindrecord.db|*.bin")  # or Megatron's, for MindSpeed-RL


def _strategy(config: Config) -> Iterator[str]:
    yield from (
        f"train_strategy/ckpt_strategy_rank_{rank}.ckpt" for rank in range(_cards(config["layout"]["train"]))
    )


def _split(config: Config) -> Iterator[str]:
    for role in config["split"]["roles"]:
        yield from _ranks(role, config["layout"][role])


def _sft(config: Config) -> Iterator[str]:
    yield RESULT
    if "mindformers" in config:
        yield from HUGGING_FACE
    else:
        yield "metrics.jsonl"
        yield from (f"{role}/rank_0/model.safetensors" for role in ("train", "generate", "reference"))


def _grpo(config: Config) -> Iterator[str]:
    yield RESULT
    if config["engine"]["name"] == "mindspeed_rl":
        yield "mcore/*"
        return
    if config["engine"]["name"] == "local":
        yield from ("metrics.jsonl", "completions.jsonl")
    yield from _ranks("train", config["layout"]["train"])


def _export(config: Config) -> Iterator[str]:
    yield from HUGGING_FACE
    if "tokenize" in config:  # an earlier version made weights alone
        yield from ("chat_template.jinja", "generation_config.json", "README.md")


def _always(*patterns: str) -> Callable[[Config], Iterator[str]]:
    return lambda config: iter(patterns)


MUST_HOLD: Mapping[str, Callable[[Config], Iterator[str]]] = {
    "fetch": _always(*HUGGING_FACE, "tokenizer.json"),
    "fetch_dataset": _always(RESULT, "train*"),
    "convert": _convert,
    "tokenize": _tokenize,
    "strategy": _strategy,
    "split": _split,
    "sft": _sft,
    "grpo": _grpo,
    "evaluate": _always(RESULT, "samples.jsonl"),
    "export": _export,
    "report": _always(RESULT, "index.html"),
}
"""Stage -> patterns of relative paths, each of which a file must match; `a|b`: one of the two."""


def lacking(stage: str, config: Config, files: Mapping[str, int]) -> str | None:
    """The first thing that an artifact should hold and does not; None: it has all, or nobody knows its stage.

    Args:
        stage: the stage's name.
        config: the part of the configuration that it read, also of an earlier version.
        files: relative path -> bytes of every file.
    """
    try:
        patterns = list(MUST_HOLD.get(stage, _always())(config))
    except (KeyError, TypeError):  # sections of another version
        patterns = [RESULT] if stage in ("sft", "grpo") else []
    filled = {name for name, size in files.items() if size or name.endswith(MAY_BE_EMPTY)}
    directories = {name.rpartition("/")[0] for name in filled}
    for pattern in patterns:
        if not any(_holds(one, filled, directories) for one in pattern.split("|")):
            return pattern.replace("|", " or ")
    return None


def _holds(pattern: str, names: Set[str], directories: Set[str]) -> bool:
    """Without looking at all names for every one of hundreds of ranks."""
    directory, _, last = pattern.rpartition("/")
    if last == "*" and directory in directories:
        return True
    return pattern in names or ("*" in pattern and any(fnmatchcase(name, pattern) for name in names))


def _ranks(directory: str, layout: Mapping[str, int]) -> Iterator[str]:
    return (f"{directory}/rank_{rank}/*" for rank in range(_cards(layout)))


def _cards(layout: Mapping[str, int]) -> int:
    degrees = ("data_parallel", "model_parallel", "pipeline_stage", "context_parallel")
    cards = 1
    for degree in degrees:
        cards *= layout[degree]
    return cards
