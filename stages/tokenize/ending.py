"""Checks of the tags that reward functions read against a model's tokenizer and the end of its prompts."""

import re
from collections.abc import Iterator
from pathlib import Path

from stages.base.errors import Problem
from stages.base.files import read_object, read_optional_object
from stages.base.tags import opened, tags_of
from stages.rewards.config import RewardConfig
from stages.tokenize.config import TokenizeConfig
from stages.tokenize.text import Turn, system_turns
from stages.tokenizer import token_ids

READ = {
    "format": ("<think>", "</think>", "<answer>", "</answer>"),
    "knights": ("<think>", "</think>", "<answer>", "</answer>"),
    "think": ("</think>",),
}
"""Reward function -> tags without which it can't be earned."""
CLOSED = re.compile(r"</think>\s*\Z")


def tag_problems(
    directory: Path, config: TokenizeConfig, reward: RewardConfig, engine: str, keeps_tags: bool
) -> Iterator[Problem]:
    """Yield a problem for each reward function that can't be earned because of its tags.

    Args:
        directory: the model's, with its tokenizer.
        config: how prompts are made.
        reward: the functions.
        engine: engine.name.
        keeps_tags: Engine.keeps_tags.

    Raises:
        InputError: tokenizer or chat template are missing or malformed.
    """
    functions = [name for name in reward.functions if name in READ]
    if not functions:
        return
    special = _special_tags(directory)
    end = _end_of_prompt(directory, config) if config.chat_template else ""
    opening = opened(end).strip()
    for name in functions:
        lost = sorted(special.intersection(READ[name]))
        if CLOSED.search(end):
            rule = "can't be earned: the chat template ends the prompt with a closed </think>"
            remedy = "set tokenize.enable_thinking=true, or use a reward that reads no <think>"
            yield Problem("reward.functions", name, rule, remedy)
        elif lost and not keeps_tags:
            rule = f"can't be earned: {lost[0]} is a special token, which engine={engine} leaves out"
            remedy = "list it with special=false in tokenizer.json and tokenizer_config.json of a copy"
            yield Problem("reward.functions", name, rule, remedy)
        elif opening in READ[name] and not keeps_tags:
            rule = f"can't be earned: the prompt ends with {opening}, and engine={engine} reads what follows"
            yield Problem("reward.functions", name, rule, "use a chat template that does not open the tag")


def _special_tags(directory: Path) -> set[str]:
    """Return the tags that the tokenizer lists as special tokens."""
    listed = read_optional_object(directory / "tokenizer_config.json").get("added_tokens_decoder", {})
    tokens = list(listed.values())
    if not tokens and (directory / "tokenizer.json").is_file():
        tokens = read_object(directory / "tokenizer.json").get("added_tokens", [])
    special = {token["content"] for token in tokens if token.get("special")}
    return tags_of(token["content"] for token in tokens) & special


def _end_of_prompt(directory: Path, config: TokenizeConfig) -> str:
    from stages.tokenize.chat import QUESTION, load_template  # here: a plan without a template needs no Jinja

    settings = read_optional_object(directory / "tokenizer_config.json")
    template = load_template(directory, token_ids(directory, settings), config.enable_thinking)
    return template.render([*system_turns(config), Turn("user", QUESTION)], generation=True)
