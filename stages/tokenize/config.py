"""Configuration of the tokenize stage."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Literal

from stages.base.bounds import Positive
from stages.base.checks import equal
from stages.base.errors import Problem
from stages.base.identity import NotInIdentity


@dataclass(frozen=True)
class TokenizeConfig:
    """Settings for turning questions and answers into token ids."""

    kind: Literal["grpo", "alpaca", "conversations", "wiki", "wikipedia"]
    """Kind of the rows. grpo: questions with checkable answers (columns prompt_ids, pretrain_ids,
    loss_mask). For supervised training by mindformers: alpaca (instruction, input, output) and conversations
    (ShareGPT's from/value under "conversations", or role/content under "messages") become input_ids and
    labels; wiki (text in WikiText's format) and wikipedia (Parquet) become blocks of input_ids."""
    compat: Literal["none", "mindrlhf", "mindformers"]
    """mindrlhf: records equal to those of its rlhf_data.py: keys question and answer, no template and no
    suffix, merges that begin with '#' left out, everything truncated, loss_mask padded with the pad id.
    mindformers, for all other kinds: input_ids equal to those of its preprocessing scripts, which leave out
    the same merges, and whose alpaca_converter.py joins instruction and input by a colon."""
    max_prompt_length: Positive
    """Tokens of prompt_ids. A row with a longer prompt is left out and counts against dataset.max_bad_share;
    it is never cut, except with compat=mindrlhf."""
    seq_length: Positive
    """Tokens of pretrain_ids (the ground truth) and loss_mask. Longer ground truths: as longer prompts."""
    sft_length: Positive
    """Tokens of one supervised example: prompt, answer and end token. Rows hold one id more, for mindformers'
    models cut the last id off the inputs and the first off the labels."""
    over_long: Literal["drop", "truncate"]
    """Treatment of a supervised example longer than sft_length; counted either way. Prompts and ground
    truths are never truncated, except with compat=mindrlhf, which truncates as rlhf_data.py does."""
    chat_template: bool
    """Render questions with the tokenizer's own chat template (instruct models)."""
    system_prompt: str
    """System turn for the chat template, where a conversation brings none; empty: what the template makes of
    that (Qwen2.5's inserts a system turn of its own)."""
    prompt_suffix: str
    """Appended to every question (kind=grpo); a line break, so that the answer starts on a line of its own,
    or an instruction such as "Put the answer in \\boxed{}."."""
    id_dtype: Literal["int64", "int32"]
    """Column type; int64 is rlhf_data.py's."""
    enable_thinking: bool | None = None
    """Value for the chat template: Qwen3's puts an empty <think></think> before the answer where it
    is false. null: nothing, and the template decides."""
    repeat: Positive = 1
    """How often kind=wiki writes its text, without a break between."""
    samples_num: Positive | None = None
    """Blocks of kind=wikipedia, which begins again where the text ends; null: those of the text once."""
    shards: Positive = 1
    """Files among which `grpoflow tokenize` divides the blocks of wiki and wikipedia."""


@dataclass(frozen=True)
class SftDataConfig:
    """The user's examples for supervised training (stage sft, for every engine)."""

    path: Annotated[str | None, NotInIdentity()]
    """JSON lines, a JSON array or Parquet; null: the training questions with their complete answers."""
    kind: Literal["alpaca", "conversations"]
    """Kind of its rows, see tokenize.kind; the chat template is always used."""


SYSTEM_PROMPT = "You are a helpful assistant."
"""The text in conf/tokenize, which has no effect there without a chat template."""


def unused_texts(config: TokenizeConfig, examples: SftDataConfig) -> Iterator[Problem]:
    """Yield a warning for each text, other than conf's, that no prompt contains."""
    renders = config.chat_template or examples.path is not None
    if not renders and config.system_prompt not in ("", SYSTEM_PROMPT):
        remedy = "set tokenize.chat_template=true, or use tokenize.prompt_suffix"
        rule = "is not used: there is no chat template"
        yield Problem("tokenize.system_prompt", config.system_prompt, rule, remedy)
    if config.compat == "mindrlhf" and config.prompt_suffix.strip():
        rule = "is not used: tokenize.compat=mindrlhf takes the question alone"
        yield Problem("tokenize.prompt_suffix", config.prompt_suffix, rule, "set tokenize.compat=none")


LATEX = frozenset({
    "nabla", "natural", "ncong", "ne", "nearrow", "neg", "neq", "newline", "nexists", "ngeq", "ngtr", "ni",
    "nleq", "nless", "nmid", "noindent", "not", "notin", "nparallel", "nu", "num", "nwarrow",
    "tag", "tan", "tanh", "tau", "tbinom", "text", "textbf", "textit", "textrm", "tfrac", "therefore",
    "theta", "tilde", "times", "to", "top", "triangle",
})  # fmt: skip
"""Commands of LaTeX that begin like the escapes \\n and \\t."""


def escapes(config: TokenizeConfig) -> Iterator[Problem]:
    """Yield a warning for each text with a backslash and n or t instead of a line break or a tab.

    Neither the shell nor Hydra replaces these two characters.
    """
    for key in ("system_prompt", "prompt_suffix"):
        text = getattr(config, key)
        found = next((word for word in re.findall(r"\\([nt][A-Za-z]*)", text) if word not in LATEX), None)
        if found is not None:
            shown = f"\\{found[0]}"
            rule = f"holds the two characters {shown}, not a {'line break' if found[0] == 'n' else 'tab'}"
            remedy = f"""in the shell write $'tokenize.{key}="…{shown}…"', in YAML double quotes"""
            yield Problem(f"tokenize.{key}", text, rule, remedy)


BLOCKS = ("wiki", "wikipedia")
"""Kinds whose text becomes blocks of equal length (stages/tokenize/blocks.py)."""
BLOCK_KEYS = ("repeat", "samples_num", "shards")
"""Keys that are read for these kinds only."""


def _block_problems(config: TokenizeConfig) -> Iterator[Problem]:
    """Yield a problem for each key that has no effect for the kind of the rows."""
    source = "ours: stages/tokenize/blocks.py"
    for key, value, unset, of in (
        ("repeat", config.repeat, 1, ("wiki",)),
        ("samples_num", config.samples_num, None, ("wikipedia",)),
        ("shards", config.shards, 1, BLOCKS),
    ):
        if value != unset and config.kind not in of:
            rule = f"has no effect with tokenize.kind={config.kind}"
            remedy = f"leave it out: it is for {' and '.join(of)}"
            yield Problem(f"tokenize.{key}", value, rule, remedy, source)
    if config.compat == "mindformers" and config.kind == "grpo":
        rule = "must not be mindformers with tokenize.kind=grpo: its scripts write supervised examples"
        yield Problem("tokenize.compat", config.compat, rule, "set it to none", source)


def problems(config: TokenizeConfig) -> Iterator[Problem]:
    """Yield problems of the section tokenize."""
    if config.compat == "mindrlhf":
        source, remedy = "mindrlhf's rlhf_data.py", "set tokenize.compat=none"
        reason = "with tokenize.compat=mindrlhf: "
        path, value = "tokenize.kind", config.kind
        yield from equal(path, value, "grpo", f"{reason}it writes no other kind", source, remedy)
        path, uses = "tokenize.chat_template", config.chat_template
        yield from equal(path, uses, False, f"{reason}it uses no chat template", source, remedy)
        path, dtype = "tokenize.id_dtype", config.id_dtype
        yield from equal(path, dtype, "int64", f"{reason}it writes int64", source, remedy)
    yield from _block_problems(config)
    if config.chat_template:
        return
    if config.enable_thinking is not None:
        rule, remedy = "must be null: no chat template is used", "set tokenize.chat_template=true"
        source = "ours: stages/tokenize/chat.py"
        yield Problem("tokenize.enable_thinking", config.enable_thinking, rule, remedy, source)
    if config.kind in ("alpaca", "conversations"):
        rule, source = (
            "must be true: conversations need a chat template",
            "ours: stages/tokenize/supervised.py",
        )
        yield Problem("tokenize.chat_template", False, rule, "set it to true", source)
