"""Gates of a plan: which stages wait for them, whether they can be decided, and what they decided."""

from collections.abc import Iterator

from pipeline.config.sections import Config
from pipeline.errors import Problem
from pipeline.fingerprint import cached_digest
from pipeline.plan.graph import Plan, StageSpec, downstream, plan
from pipeline.store.store import Store
from stages import engines
from stages.base.files import read_object
from stages.catalog import RESULT
from stages.grpo.metrics import read_rows
from stages.report.gates import Verdict, judge

GATED = "export"
"""Stage that is built only if all gates pass."""


def problems(planned: Plan) -> Iterator[Problem]:
    """Yield a problem for each gate that this run could not decide."""
    config = planned.config
    for key, limit in config.gates.limits.items():
        stage = "grpo" if key == "max_kl" else "evaluate"
        path, source = f"gates.{key}", "ours: stages/report/gates.py"
        if stage in planned.skipped:
            rule = f"needs a result of {stage}, which is left out: {planned.skipped[stage]}"
            yield Problem(path, limit, rule, "leave the gate out", source)
        elif key == "max_kl" and (why := _without_kl(config)):
            yield Problem(path, limit, f"needs the KL to the reference: {why}", "leave the gate out", source)


def _without_kl(config: Config) -> str | None:
    """Return why grpo writes no KL to the reference; None if it does."""
    if not engines.get(config.engine.name).logs_kl:
        return f"engine={config.engine.name} does not log it"
    return "train.beta=0 computes no reference" if config.train.beta == 0 else None


def gated(planned: Plan) -> frozenset[str]:
    """Return the requested stages that are not built if a gate fails; none without gates."""
    if not planned.config.gates.limits:
        return frozenset()
    return downstream([GATED], planned.graph) & {spec.name for spec in planned.requested}


def deciding(planned: Plan) -> tuple[str, ...]:
    """Return the stages whose artifacts decide the gates."""
    limits = planned.config.gates.limits
    return (*(["grpo"] if "max_kl" in limits else []), *(["evaluate"] if set(limits) - {"max_kl"} else []))


def verdicts(planned: Plan, store: Store) -> list[Verdict] | None:
    """Return the decisions about a run's gates; None as long as an artifact that decides is missing."""
    stages = deciding(planned)
    specs = {name: planned.spec(name) for name in stages}
    if any(store.problem(spec.key) is not None for spec in specs.values()):
        return None
    evaluation = _result(specs["evaluate"], store) if "evaluate" in specs else {}
    training = _result(specs["grpo"], store) if "grpo" in specs else {}
    metrics = read_rows(store.path(specs["grpo"].key) / "metrics.jsonl") if "grpo" in specs else []
    return judge(planned.config.gates, evaluation, training, metrics)


def failures(planned: Plan, store: Store) -> list[str]:
    """Return a message for each gate that failed; none while they are undecided."""
    return [str(verdict) for verdict in verdicts(planned, store) or () if not verdict.passed]


def report_without_export(planned: Plan) -> StageSpec | None:
    """Return the report of a run whose gates failed; None if this run has no report."""
    if all(spec.name != "report" for spec in planned.requested):
        return None
    reason = "a gate failed"
    return plan(planned.config, cached_digest, left_out=(GATED, reason)).spec("report")


def _result(spec: StageSpec, store: Store) -> dict[str, object]:
    return read_object(store.path(spec.key) / RESULT)
