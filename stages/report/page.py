"""Gathers everything that page.html shows and renders it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stages.base.layout import ROLES
from stages.report import tables
from stages.report.artifacts import Run, mapping
from stages.report.config import ReportConfig
from stages.report.curves import GRPO, SFT, draw_all, points
from stages.report.data_card import data_card
from stages.report.headline import pairs, tiles
from stages.report.layout_picture import Picture, picture
from stages.report.lengths import lengths
from stages.report.templates import environment, file_content
from stages.report.text import duration, moment, number, size
from stages.report.timeline import Timeline, timeline

# Sections in the order in which they say what the run was about.
SECTION_ORDER = (
    "model", "dataset", "layout", "tokenize", "sft_data", "convert", "split", "sft", "mindformers", "rollout",
    "reward", "train",
    "evaluate", "export",
)  # fmt: skip


@dataclass(frozen=True)
class Live:
    """Status of an unfinished run, shown at the top of its report."""

    run: str
    state: str
    goes_on: bool
    """The page asks for itself again."""
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    """One per stage: its name, its state, and the other columns."""


def render(
    inputs: Mapping[str, Path],
    config: ReportConfig,
    live: Live | None = None,
    defaults: Mapping[str, Any] | None = None,
    began: float | None = None,
) -> str:
    """Return the complete page as text.

    Args:
        inputs: stage name -> artifact directory; any may be missing or incomplete.
        config: section `report`.
        live: of a run that has not ended well: how far it is.
        defaults: the configuration without any override; None: not known.
        began: Unix time of the run's start, by which stages from the store are told; None: not known.
    """
    run = Run.load(inputs)
    metrics, warmup = run.rows("grpo", "metrics.jsonl"), run.rows("sft", "metrics.jsonl")
    completions, shown = run.rows("grpo", "completions.jsonl"), run.rows("evaluate", "samples.jsonl")
    evaluation, line = run.result("evaluate"), timeline(run.manifests, began)
    pictures = _pictures(run)
    verdicts = [tables.verdict(row) for row in shown]
    worker_0 = [value for _, value in points(metrics, "peak_memory_gib")]
    values = {
        "title": config.title or _title(run),
        "subtitle": _subtitle(run, line, pictures),
        "tiles": tiles(evaluation, "sft" in run.directories),
        "pairs": pairs(evaluation),
        "prompts": number(evaluation.get("prompts")),
        "curves": draw_all(GRPO, metrics, "g"),
        "training": tables.training(metrics),
        "grpo_result": tables.flat(run.result("grpo")),
        "lengths": lengths(completions, metrics),
        "warmup": draw_all(SFT, warmup, "s"),
        "sft_result": tables.flat(run.result("sft")),
        "timeline": line,
        "step_time": tables.step_time(metrics),
        "pictures": pictures,
        "train_peak_gib": max((*tables.rank_peaks(run).values(), *worker_0), default=None),
        "card": data_card(run.result("tokenize"), min(config.text_limit, 600)),
        "samples": tables.samples(shown, config.samples, config.text_limit),
        "samples_count": len(shown),
        "verdicts": [
            (name, verdicts.count(name)) for name in ("better", "same", "worse") if name in verdicts
        ],
        "drawn": tables.drawn(completions, min(3, config.samples), config.text_limit),
        "sections": _sections(run),
        "differing": tables.differing(run, defaults or {}),
        "has_defaults": bool(defaults),
        "environment": tables.environment(run),
        "artifacts": tables.artifacts(run),
        "notes": run.notes,
        "live": live,
        "style": file_content("style.css"),
    }
    return environment().get_template("page.html").render(values)


def _title(run: Run) -> str:
    names = [run.section(name).get("name") for name in ("model", "dataset", "layout")]
    return " · ".join(str(name)[:80] for name in names if name) or "A run"


def _subtitle(run: Run, line: Timeline, pictures: list[Picture]) -> list[str]:
    facts = []
    if line.ended is not None:
        facts.append(moment(line.ended))
    if line.started is not None:
        facts.append(f"{duration(line.wall_s)} from first to last stage")
    last = next((m for name in ("grpo", "sft", *run.manifests) if (m := run.manifests.get(name))), {})
    cards = next((len(picture.cards) for picture in pictures), 0)
    facts += [f"{cards} cards" if cards > 1 else "1 card"] if cards else []
    facts += [f"seed {last['seed']}"] if last.get("seed") is not None else []
    facts += [str(last["host"])[:80]] if last.get("host") else []
    facts += [f"commit {str(last['git_commit'])[:10]}"] if last.get("git_commit") else []
    return facts


def _pictures(run: Run) -> list[Picture]:
    layout, layers = run.section("layout"), number(run.section("model").get("num_hidden_layers"))
    drawings = []
    for role in ROLES:
        held = {rank: size(count) for rank, count in tables.rank_bytes(run, role).items()}
        peaks = tables.rank_peaks(run) if role == "train" else {}
        shown = {rank: f"peak {peak:.2f} GiB" for rank, peak in peaks.items()}
        values = mapping(layout.get(role))
        drawn = picture(role, values, None if layers is None else int(layers), held, shown)
        if drawn:
            drawings.append(drawn)
        elif layout.get(role):
            run.notes.append(f"layout.{role}: not a layout that can be drawn.")
    return drawings


def _sections(run: Run) -> list[tuple[str, list[str], list[tuple[str, ...]], list[str]]]:
    """(section, columns, rows, stages that read it); plain top-level keys such as seed come first."""
    readers: dict[str, list[str]] = {}
    loose: dict[str, Any] = {}
    for stage, manifest in run.manifests.items():
        for name, value in mapping(manifest.get("config")).items():
            if isinstance(value, dict):
                readers.setdefault(name, []).append(stage)
            else:
                loose[name] = value
    ordered = [name for name in SECTION_ORDER if name in readers]
    ordered += sorted(set(readers) - set(ordered))
    sections = [(name, *tables.config(run.section(name)), readers[name]) for name in ordered]
    return ([("run", *tables.config(loose), [])] if loose else []) + sections
