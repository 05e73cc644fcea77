"""The report page: values of all its sections, rendered by page.html."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stages.report import provenance
from stages.report.artifacts import Run, mapping
from stages.report.config import ReportConfig
from stages.report.configuration import differences, flat, sections
from stages.report.curves import GRPO, SFT, draw_all
from stages.report.data_card import data_card
from stages.report.headline import pairs, tiles
from stages.report.samples import last_step, outcomes, verdicts
from stages.report.templates import render_page
from stages.report.text import duration, moment, number
from stages.report.timeline import Span, spans, step_time, worked_s


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
    run = Run.load(inputs)
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
        "grpo_result": flat(run.result("grpo")),
        "warmup": draw_all(SFT, warmup),
        "sft_result": flat(run.result("sft")),
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
        "environment": provenance.environment(run),
        "artifacts": provenance.artifacts(run),
        "notes": run.notes,
    }
    return render_page("page.html", values)


def _title(run: Run) -> str:
    config = run.config()
    names = [mapping(config.get(name)).get("name") for name in ("model", "dataset", "layout")]
    return " · ".join(str(name)[:80] for name in names if name) or "A run"


def _subtitle(run: Run, stages: Sequence[Span], began: float | None, live: bool) -> list[str]:
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
