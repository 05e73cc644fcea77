"""Options of the run report."""

from dataclasses import dataclass
from typing import Annotated, Literal

from annotated_types import Ge, Le


@dataclass(frozen=True)
class ReportConfig:
    """Section `report`. The upper bounds keep the page below 2 MB for any completions."""

    language: Literal["en", "zh"]
    """Language of the run's pages: English, or Chinese, in which names of metrics, keys and stages stay. A
    page of several runs has that of the first one, the list of runs that of the newest."""
    title: str | None
    """Heading of the page; None: model, dataset and layout."""
    samples: Annotated[int, Ge(0), Le(10_000)]
    """Prompts of evaluate's samples.jsonl that the page shows with their answers before and after: as many as
    fit into 300 kB, those that training fixed or broke first. 0: the page shows no completions."""
    text_limit: Annotated[int, Ge(100), Le(3000)]
    """Characters shown of one prompt or completion; longer ones lose their middle."""
