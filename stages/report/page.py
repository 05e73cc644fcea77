"""The report page: values of all its sections, rendered by page.html.

All pages of this package are rendered here: every value is escaped, and an undefined one is an error. The
Content-Security-Policy of a page allows its own script, which stands in the page, and files next to the page,
of which PLOTLY is the only one. Data for the script stand in the page as JSON, in which no character can end
the element.
"""

import base64
import hashlib
import json
import time
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Undefined
from markupsafe import Markup

from stages.report.artifacts import Artifacts, mapping
from stages.report.charts import GRPO, PLOTLY, SFT, charts, data
from stages.report.completions import MAX_PARTS, held_out, read_steps
from stages.report.config import ReportConfig
from stages.report.details import (
    Span,
    artifacts,
    counts,
    covered_s,
    data_card,
    differences,
    environment,
    outcomes,
    sections,
    spans,
    step_time,
    value_rows,
    verdict,
    verdicts,
    worked_s,
    worker_memory,
)
from stages.report.gates import GatesConfig, judge
from stages.report.graph import Shown, bars, declared, graph
from stages.report.headline import pairs, tiles
from stages.report.language import language, page_language, texts_of, translate
from stages.report.text import duration, figure, moment, neutral, number, percent, shorten, size, words

HERE = Path(__file__).parent
MAX_STATIC = 4
"""Prompts with their completions that can be read without a script."""


@dataclass(frozen=True)
class Live:
    """Status of an unfinished run, shown at the top of its report."""

    run: str
    state: str
    """running, finished, failed, …"""
    told: str
    """What is known besides: since when it runs, or why it failed."""
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
    gates: GatesConfig | None = None,
) -> str:
    """Return the complete page as HTML, in the language of its configuration.

    Args:
        inputs: stage name -> artifact directory; any may be missing or incomplete.
        config: section `report`.
        live: progress of a run that has not finished.
        defaults: the configuration without any override; None if unknown.
        began: Unix time of the run's start, which identifies reused stages; None if unknown.
        origin: the run; None if unknown.
        gates: section `gates`, if the run has gates.
    """
    with page_language(config.language):
        return _render(Artifacts.load(inputs), config, live, defaults, began, origin, gates)


def _render(
    run: Artifacts,
    config: ReportConfig,
    live: Live | None,
    defaults: Mapping[str, Any] | None,
    began: float | None,
    origin: Origin | None,
    gates: GatesConfig | None,
) -> str:
    metrics, warmup = run.rows("grpo", "metrics.jsonl"), run.rows("sft", "metrics.jsonl")
    samples = run.rows("evaluate", "samples.jsonl")
    evaluation, stages = run.result("evaluate"), spans(run.manifests, began)
    training, before = charts(GRPO, metrics), charts(SFT, warmup)
    steps = _steps(run, config)
    placed, gaps = bars(stages)
    trained = {stage: run.result(stage) for stage in ("sft", "grpo")}
    shown, held_out_weights = samples[: config.samples], _weights(run.config(), _parts_of_samples(samples))
    values = {
        "title": config.title or _title(run),
        "subtitle": _subtitle(run, stages, began, live is not None),
        "origin": origin,
        "live": live,
        "logs": origin.logs if origin is not None else {},
        "plotly": PLOTLY if live is None else f"/{PLOTLY}",
        "graph": graph(_reads(run, live), _shown(run, stages, live, origin)),
        "tiles": tiles(evaluation, "sft" in run.directories),
        "gates": [] if gates is None else judge(gates, evaluation, trained["grpo"], metrics),
        "pairs": pairs(evaluation),
        "prompts": number(evaluation.get("prompts")),
        "curves": training,
        "grpo_result": value_rows(trained["grpo"]),
        "warmup": before,
        "chart_data": data([*training, *before]),
        "sft_result": value_rows(trained["sft"]),
        "stages": list(zip(stages, placed, strict=True)),
        "gaps": gaps,
        "worker_memory": worker_memory(trained),
        "worked_s": worked_s(stages),
        "all_s": covered_s((span.started, span.ended) for span in stages),
        "step_time": step_time(metrics),
        "samples": shown[:MAX_STATIC],
        "text_limit": config.text_limit,
        "samples_count": len(samples),
        "held_out": {"rows": held_out(shown, config.text_limit), "weights": held_out_weights},
        "verdicts": verdicts(samples),
        "counts": counts(evaluation, samples),
        "outcomes": outcomes(evaluation),
        "steps": steps,
        "formula": _formula(steps["weights"]),
        "last_groups": steps["steps"][-1]["groups"][:1] if steps["steps"] else [],
        "card": data_card(run.result("tokenize")),
        "sections": sections(run),
        "differences": differences(run, defaults or {}),
        "has_defaults": bool(defaults),
        "environment": environment(run),
        "artifacts": artifacts(run),
        "notes": run.notes,
    }
    return render_page("page.html", values, ("charts.js", "completions.js", "page.js"))


def _steps(run: Artifacts, config: ReportConfig) -> dict[str, Any]:
    """Return the completions of training steps for the page; a file that cannot be read becomes a note."""
    if "grpo" in run.directories and config.samples:
        try:
            steps = read_steps(run.directories["grpo"] / "completions.jsonl", config.text_limit)
            return {**steps, "weights": _weights(run.config(), _parts_of_steps(steps["steps"]))}
        except FileNotFoundError:
            run.note("{file}: not there.", "grpo", "completions.jsonl")
        except OSError as error:
            name = type(error).__name__
            run.note("{file}: could not be read ({error}).", "grpo", "completions.jsonl", error=name)
    return {"steps": [], "logged": 0, "weights": {}}


def _parts_of_steps(steps: Sequence[Mapping[str, Any]]) -> set[str]:
    """Return the names of the reward functions that judged the completions of steps."""
    rows = (row for step in steps for group in step["groups"] for row in group["rows"])
    return {name for row in rows for name in mapping(row.get("parts"))}


def _parts_of_samples(samples: Sequence[Mapping[str, Any]]) -> set[str]:
    """Return the names of the reward functions that judged the held-out answers."""
    every = (mapping(row.get(f"{side}_parts")) for row in samples for side in ("before", "after"))
    return {shorten(str(name), 60) for parts in every for name in parts}


def _weights(config: Mapping[str, Any], parts: Set[str]) -> dict[str, float]:
    """Return reward function -> weight; {} if other functions judged, so that the reward is no sum of these.

    Args:
        config: the run's configuration.
        parts: names of the functions that judged.
    """
    reward = mapping(config.get("reward"))
    names, weights = reward.get("functions"), reward.get("weights")
    if not isinstance(names, list) or not isinstance(weights, list) or len(names) != len(weights):
        return {}
    known = {shorten(str(name), 60): number(weight) for name, weight in zip(names, weights, strict=True)}
    if not parts or not parts <= known.keys() or len(known) > MAX_PARTS:
        return {}
    return {name: weight for name, weight in known.items() if weight is not None}


def _formula(weights: Mapping[str, float]) -> str:
    """Return the reward as a sum of its weighted parts; empty if they are not known."""
    return " + ".join(f"{weight:g} × {words(name)}" for name, weight in weights.items())


def _reads(run: Artifacts, live: Live | None) -> dict[str, list[str]]:
    """Return stage -> stages whose artifacts it reads; by the catalog where a stage has not finished."""
    names = [row[0] for row in live.rows] if live is not None and live.rows else [*run.directories, "report"]
    recorded = {row["stage"]: row["inputs"] for row in artifacts(run) if row["fingerprint"]}
    expected = declared(names)
    return {
        name: [made for made in recorded.get(name, expected[name]) if made in names] or expected[name]
        for name in names
    }


def _shown(
    run: Artifacts, stages: Sequence[Span], live: Live | None, origin: Origin | None
) -> dict[str, Shown]:
    logs = origin.logs if origin is not None else {}
    if live is not None and live.rows:
        took = live.columns.index("took") if "took" in live.columns else 2
        return {
            row[0]: Shown(row[1], row[took] if len(row) > took else "", logs.get(row[0], ""))
            for row in live.rows
        }
    shown = {"report": Shown("this page")}
    for span in stages:
        seconds = duration(span.ended - span.started)
        shown[span.stage] = Shown("cached" if span.reused else "built", seconds, logs.get(span.stage, ""))
    return shown


def _title(run: Artifacts) -> str:
    config = run.config()
    names = [mapping(config.get(name)).get("name") for name in ("model", "dataset", "layout")]
    return " · ".join(str(name)[:80] for name in names if name) or translate("A run")


def _subtitle(run: Artifacts, stages: Sequence[Span], began: float | None, live: bool) -> list[str]:
    facts = []
    ended = [span.ended for span in stages if not span.reused]
    if live and began is not None:
        so_far = duration(time.time() - began)
        facts.append(translate("started {when}, {seconds} so far", when=moment(began), seconds=so_far))
    elif ended:
        facts.append(translate("finished {when}", when=moment(max(ended))))
    elif began is not None:  # all stages were reused
        facts.append(translate("started {when}, and reused all stages", when=moment(began)))
    if (seconds := worked_s(stages)) is not None:
        facts.append(translate("{seconds} in stages", seconds=duration(seconds)))
    last = next((m for name in ("grpo", "sft", *run.manifests) if (m := run.manifests.get(name))), {})
    facts += [f"{translate('seed')} {last['seed']}"] if last.get("seed") is not None else []
    facts += [str(last["host"])[:80]] if last.get("host") else []
    facts += [f"{translate('commit')} {str(last['git_commit'])[:10]}"] if last.get("git_commit") else []
    return facts


def render_page(template: str, values: Mapping[str, Any], scripts: Sequence[str]) -> str:
    """Return a page of this package as HTML, with the style sheet that all of them share.

    `scripts`: files of this package that the page runs; its policy allows no other script in the page.
    """
    environment = Environment(
        loader=FileSystemLoader(HERE),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_neutralized,
    )
    filters = (duration, embedded, figure, moment, parts, percent, size, text, verdict, words)
    environment.filters.update({function.__name__: function for function in filters})
    environment.globals["translate"] = translate
    script = Markup("").join(map(file_content, ("translate.js", *scripts)))
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return environment.get_template(template).render(
        values,
        style=file_content("style.css"),
        script=script,
        script_digest=digest,
        texts=texts_of(script),
        language={"en": "en", "zh": "zh-CN"}[language()],
    )


def embedded(values: object) -> Markup:
    """Return JSON for a <script type="application/json">; its texts must be neutral already."""
    content = json.dumps(values, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    for character in "<>&\u2028\u2029":
        content = content.replace(character, f"\\u{ord(character):04x}")
    return Markup(content.encode("utf-8", "replace").decode())  # noqa: S704 (nothing of it is markup)


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
