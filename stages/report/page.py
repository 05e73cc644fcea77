"""The report page: values of all its sections, rendered by page.html.

All pages of this package are rendered here: every value is escaped, and an undefined one is an error.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Undefined
from markupsafe import Markup

from stages.report.artifacts import Artifacts, mapping
from stages.report.config import ReportConfig
from stages.report.curves import GRPO, SFT, draw_all
from stages.report.details import (
    Span,
    artifacts,
    data_card,
    differences,
    environment,
    last_step,
    outcomes,
    sections,
    spans,
    step_time,
    value_rows,
    verdict,
    verdicts,
    worked_s,
)
from stages.report.headline import pairs, tiles
from stages.report.text import duration, figure, moment, neutral, number, percent, shorten, size, words

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Live:
    """Status of an unfinished run, shown at the top of its report."""

    run: str
    state: str
    refreshes: bool
    """The browser reloads the page every ten seconds."""
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    """One per stage: its name, its state, and the other columns."""


@dataclass(frozen=True)
class Origin:
    """The run that a report belongs to."""

    run: str
    name: str
    command: str
    logs: Mapping[str, str]
    """Stage -> URL of its log, relative to the page."""


def render(
    inputs: Mapping[str, Path],
    config: ReportConfig,
    live: Live | None = None,
    defaults: Mapping[str, Any] | None = None,
    began: float | None = None,
    origin: Origin | None = None,
) -> str:
    """Return the complete page as HTML.

    Args:
        inputs: stage name -> artifact directory; any may be missing or incomplete.
        config: section `report`.
        live: progress of a run that has not finished.
        defaults: the configuration without any override; None if unknown.
        began: Unix time of the run's start, which identifies reused stages; None if unknown.
        origin: the run; None if unknown.
    """
    run = Artifacts.load(inputs)
    metrics, warmup = run.rows("grpo", "metrics.jsonl"), run.rows("sft", "metrics.jsonl")
    completions, held_out = run.rows("grpo", "completions.jsonl"), run.rows("evaluate", "samples.jsonl")
    evaluation, stages = run.result("evaluate"), spans(run.manifests, began)
    values = {
        "title": config.title or _title(run),
        "subtitle": _subtitle(run, stages, began, live is not None),
        "origin": origin,
        "live": live,
        "tiles": tiles(evaluation, "sft" in run.directories),
        "pairs": pairs(evaluation),
        "prompts": number(evaluation.get("prompts")),
        "curves": draw_all(GRPO, metrics),
        "grpo_result": value_rows(run.result("grpo")),
        "warmup": draw_all(SFT, warmup),
        "sft_result": value_rows(run.result("sft")),
        "stages": stages,
        "worked_s": worked_s(stages),
        "step_time": step_time(metrics),
        "samples": held_out[: config.samples],
        "text_limit": config.text_limit,
        "samples_count": len(held_out),
        "verdicts": verdicts(held_out),
        "outcomes": outcomes(evaluation),
        "last_step": last_step(completions)[: min(2, config.samples)],
        "card": data_card(run.result("tokenize")),
        "sections": sections(run),
        "differences": differences(run, defaults or {}),
        "has_defaults": bool(defaults),
        "environment": environment(run),
        "artifacts": artifacts(run),
        "notes": run.notes,
    }
    return render_page("page.html", values)


def _title(run: Artifacts) -> str:
    config = run.config()
    names = [mapping(config.get(name)).get("name") for name in ("model", "dataset", "layout")]
    return " · ".join(str(name)[:80] for name in names if name) or "A run"


def _subtitle(run: Artifacts, stages: Sequence[Span], began: float | None, live: bool) -> list[str]:
    facts = []
    ended = [span.ended for span in stages if not span.reused]
    if live and began is not None:
        facts.append(f"started {moment(began)}")
    elif ended:
        facts.append(moment(max(ended)))
    elif began is not None:  # all stages were reused
        facts.append(moment(began))
    if (seconds := worked_s(stages)) is not None:
        facts.append(f"{duration(seconds)} in stages")
    last = next((m for name in ("grpo", "sft", *run.manifests) if (m := run.manifests.get(name))), {})
    facts += [f"seed {last['seed']}"] if last.get("seed") is not None else []
    facts += [str(last["host"])[:80]] if last.get("host") else []
    facts += [f"commit {str(last['git_commit'])[:10]}"] if last.get("git_commit") else []
    return facts


def render_page(template: str, values: Mapping[str, Any]) -> str:
    """Return a page of this package as HTML, with the style sheet that all of them share."""
    environment = Environment(
        loader=FileSystemLoader(HERE),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_neutralized,
    )
    filters = (duration, figure, moment, parts, percent, size, text, verdict, words)
    environment.filters.update({function.__name__: function for function in filters})
    return environment.get_template(template).render(values, style=file_content("style.css"))


def file_content(name: str) -> Markup:
    """Return a file of this package for inclusion in a page."""
    return Markup((HERE / name).read_text(encoding="utf-8"))  # noqa: S704 (our own file)


def text(value: object, limit: int) -> str:
    """Return a text of a model or user, shortened to `limit` characters; empty if it is missing."""
    return "" if value is None or isinstance(value, Undefined) else shorten(str(value), limit)


def parts(value: object) -> list[tuple[str, Any]]:
    """Return the rewards of the first eight reward functions."""
    return list(mapping(value).items())[:8]


def _neutralized(value: Any) -> Any:
    """Make control characters visible in every text before it is escaped."""
    return neutral(value) if isinstance(value, str) and not isinstance(value, Markup) else value
