"""Prompt and ground truth of a row as text."""

from dataclasses import dataclass

from stages.fetch.config import ColumnsConfig, DatasetConfig
from stages.fetch.records import Row
from stages.tokenize.config import TokenizeConfig

MARKER = "#### "
COMPAT_COLUMNS = ColumnsConfig(prompt="question", answer="answer")


@dataclass(frozen=True)
class Turn:
    """One message of a conversation."""

    role: str
    """system, user, assistant or tool."""
    content: str


def columns(dataset: DatasetConfig, config: TokenizeConfig) -> ColumnsConfig:
    """Return the keys to read from JSON rows; mindrlhf always reads question and answer."""
    return COMPAT_COLUMNS if config.compat == "mindrlhf" else dataset.columns


def user_text(row: Row, config: TokenizeConfig) -> str:
    """Return the user's text, which is the complete prompt if there is no chat template."""
    return row.prompt if config.compat == "mindrlhf" else row.prompt + config.prompt_suffix


def system_turns(config: TokenizeConfig) -> list[Turn]:
    """Return the system turn, if there is one."""
    return [Turn("system", config.system_prompt)] if config.system_prompt else []


def ground_truth(row: Row, dataset: DatasetConfig, config: TokenizeConfig) -> str:
    """Return the text of pretrain_ids, which rewards compare with; empty if the row has none."""
    if dataset.solution == "answer":
        return row.answer
    if dataset.solution == "prompt_and_answer":
        return row.prompt + row.answer
    if config.compat == "mindrlhf":
        return row.answer.split(MARKER)[-1]
    _, marker, after = row.answer.rpartition(MARKER)
    return after.strip() if marker else ""
