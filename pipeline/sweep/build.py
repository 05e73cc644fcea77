"""A sweep: many points, one graph. Stages that points share run once, and no point stops another.

Hydra expands the command line (expand.py) into override lists, one per point (its launcher plugin calls
`Sweep`); here they become plans, then one Luigi build, then STORE/sweeps/ID/ with sweep.json, table.csv and
index.html. The ID follows from the command line, so the same command goes on with the same sweep.
"""

import hashlib
import json
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from pipeline.config.compose import VALUE, Composer
from pipeline.errors import REPORTED, ConfigError
from pipeline.fingerprint import canonical
from pipeline.plan.brought import fitting, take_in
from pipeline.plan.graph import Plan
from pipeline.plan.target import WHOLE, Target
from pipeline.run import signals, summary
from pipeline.run.run import Run, prepare_plan
from pipeline.store import history
from pipeline.store.store import Store
from pipeline.sweep.points import Point, describe, json_lines, show, show_merged, table, varied
from pipeline.terminal import console


@dataclass(frozen=True)
class Asked:
    """What is asked for of a sweep's points."""

    cards: int | None = None
    """Cards of this machine; None: as many as the largest point needs."""
    plan_only: bool = False
    """Show the merged graph and start nothing."""
    as_json: bool = False
    """Show it for programs."""
    config_dir: Path | None = None
    """Directory with config groups of the user's own."""
    target: Target = WHOLE
    brought: Sequence[Path] = ()
    """Artifacts of another store that points may take."""


class Sweep:
    """The points of one command line, in as many batches as the sweeper hands over."""

    def __init__(self, wanted: Sequence[str], asked: Asked) -> None:
        """A sweep that has not begun."""
        self._wanted, self._asked = list(wanted), asked
        self._composer: Composer | None = None
        self._points: list[Point] = []
        self._started = time.time()
        self._store: Store | None = None
        identity = [*self._wanted, *([str(asked.target)] if asked.target.is_part else [])]
        self.id = hashlib.sha256(canonical(identity).encode()).hexdigest()[:8]

    def run(self, batch: Sequence[list[str]]) -> list[Point]:
        """Plan a batch, run what is missing, and write down what came of it."""
        self._compose_choices(batch)
        points = [Point(len(self._points) + n, overrides) for n, overrides in enumerate(batch)]
        self._points += points
        plans = {point.number: plan for point in points if (plan := self._planned(point)) is not None}
        keys = varied(points)
        for point in points:
            if point.state == "invalid":
                print(f"left out {describe(point, keys)}: {point.message}", file=sys.stderr)
        self._warn(plans)
        if self._asked.brought and plans and self._store is not None:
            self._bring(list(plans.values()), self._store)
        if self._asked.plan_only:
            if self._asked.as_json:
                print(json_lines(points, plans, self._store))
            else:
                show_merged(points, plans, self._store, console())
            return points
        valid = [point for point in points if point.number in plans]
        try:
            if valid:
                self._build(valid, plans)
        finally:  # an interrupt too: what is finished is written down
            if valid:
                self._settle(valid, plans)
            self._write()
        return points

    def _compose_choices(self, batch: Sequence[Sequence[str]]) -> None:
        """One point for each choice of a group: a misspelt one ends the sweep before it begins.

        Raises:
            ConfigError: one cannot be composed.
        """
        self._composer = self._composer or Composer(self._asked.config_dir)
        known: set[str] = set()
        for number, overrides in enumerate(batch):
            choices = {override for override in overrides if not VALUE.match(override)}
            if number == 0 or choices - known:
                self._composer.compose(overrides)
                known |= choices

    def _bring(self, plans: Sequence[Plan], store: Store) -> None:
        lines = (
            [
                f"{spec.name}: would be taken from {place}"
                for place, spec in fitting(plans, self._asked.brought).items()
            ]
            if self._asked.plan_only
            else take_in(store, plans, self._asked.brought)
        )
        for line in lines:
            print(line, file=sys.stderr, flush=True)

    def _warn(self, plans: dict[int, Plan]) -> None:
        """What may go wrong in points that have something to do, each warning once with its points."""
        from pipeline.plan import cautions  # here, because a sweep with nothing to do needs none of it

        assert self._store is not None or not plans
        warned: dict[str, list[int]] = {}
        kept = self._composer.kept if self._composer else None
        for number, plan in plans.items():
            if self._store and any(self._store.problem(spec.key) is not None for spec in plan.asked):
                for warning in cautions.warnings(plan, self._store, kept=kept):
                    warned.setdefault(warning, []).append(number)
        for warning, numbers in warned.items():
            which = "all points" if len(numbers) == len(plans) else f"points {', '.join(map(str, numbers))}"
            print(f"warning: {which}: {warning}", file=sys.stderr, flush=True)

    def _planned(self, point: Point) -> Plan | None:
        try:
            self._composer = self._composer or Composer(self._asked.config_dir)
            plan, self._store = prepare_plan(
                point.overrides, self._asked.config_dir, target=self._asked.target, composer=self._composer
            )
        except ConfigError as error:
            point.state, point.message = "invalid", "; ".join(str(problem) for problem in error.problems)
            return None
        except REPORTED as error:
            point.state, point.message = "invalid", str(error)
            return None
        needed = plan.config.cards
        if self._asked.cards is not None and needed > self._asked.cards:
            point.state = "invalid"
            point.message = (
                f"cards={needed}: more than this sweep's --cards {self._asked.cards}; choose a smaller layout"
            )
            return None
        point.artifacts = {spec.name: str(spec.key) for spec in plan.asked}
        return plan

    def _build(self, points: Sequence[Point], plans: dict[int, Plan]) -> None:
        import luigi

        from pipeline.tasks import RunGRPO, adopt

        signals.install()  # the runs are adopted: no task prepares them, which would do this
        luigi.task_register.Register.clear_instance_cache()  # a search may propose a point again
        config_dir = str(self._asked.config_dir) if self._asked.config_dir else None
        needed = max(plan.config.cards for plan in plans.values())
        roots, sharing = [], None
        for point in points:
            assert self._store is not None
            label = f"[{point.number}] "
            run = Run(plans[point.number], self._store, point.overrides, label, sharing)
            sharing = run.sharing or sharing
            point.run = run.id
            overrides = json.dumps(point.overrides)
            adopt(overrides, config_dir, run)
            roots.append(RunGRPO(overrides=overrides, config_dir=config_dir, **self._asked.target.options()))
        cards = self._asked.cards or needed
        luigi.configuration.get_config().set("resources", "cards", str(cards))
        luigi.build(roots, workers=cards, local_scheduler=True, log_level="ERROR")

    def _settle(self, points: Sequence[Point], plans: dict[int, Plan]) -> None:
        """What came of each point; a stage that failed is told by one run and fails all that share it."""
        assert self._store is not None
        known = history.runs(self._store.root)
        failed: dict[str, str] = {}
        for point in points:
            run = known.get(point.run or "")
            if run is not None and run.state == "failed" and run.failed_stage in point.artifacts:
                failed[point.artifacts[run.failed_stage]] = run.message or f"{run.failed_stage} failed"
        for point in points:
            plan = plans[point.number]
            missing = [spec.name for spec in plan.asked if self._store.problem(spec.key) is not None]
            if not missing:
                point.state, point.result = "finished", summary.results(plan, self._store)
                continue
            causes = [failed[key] for stage in missing if (key := point.artifacts[stage]) in failed]
            point.state = "failed" if causes else "pending"
            point.message = causes[0] if causes else f"not built: {', '.join(missing)}"

    def _write(self) -> None:
        """sweep.json, table.csv and index.html, each replaced as a whole."""
        if self._store is None:
            return
        place = self._store.root / "sweeps" / self.id
        place.mkdir(parents=True, exist_ok=True)
        values = {
            "id": self.id,
            "overrides": self._wanted,
            "target": str(self._asked.target),
            "started": self._started,
            "written": time.time(),
            "points": [asdict(point) for point in self._points],
        }
        _replace(place / "sweep.json", json.dumps(values, indent=1))
        _replace(place / "table.csv", table(self._points))
        from pipeline.sweep.page import page  # here: it draws, which --plan need not load

        drawn = page(values, varied(self._points), self._store.root, self._asked.config_dir)
        _replace(place / "index.html", drawn)
        show(self._points, console())
        states = Counter(point.state for point in self._points)
        counts = ", ".join(f"{count} {state}" for state, count in states.items())
        print(f"sweep {self.id}: {len(self._points)} points ({counts})")
        print(f"table {place / 'table.csv'}")
        print(f"page {place / 'index.html'}")


def _replace(file: Path, text: str) -> None:
    temporary = file.with_name(f".{file.name}")
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(file)
