"""Sweeps: many points in one graph, in which shared stages run once and a failed point stops no other.

`Sweep` makes the plans of its points (points.py), one Luigi build, and STORE/sweeps/ID/ with sweep.json,
table.csv and index.html. The ID is a hash of the command line, so the same command continues the same sweep.
"""

from __future__ import annotations

import hashlib
import json
import shlex
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline.config.sections import RemoteConfig
from pipeline.errors import REPORTED, ConfigError, Exit, NotComposed, Problem, store_errors
from pipeline.fingerprint import canonical
from pipeline.plan import checks
from pipeline.plan.graph import Plan
from pipeline.plan.target import ALL_STAGES, Target
from pipeline.run import detached, notify, signals, summary
from pipeline.run.halving import METRICS, TRAINING, Halving, Rung, artifact_of
from pipeline.run.run import Run, prepare_plan
from pipeline.store import history
from pipeline.store.history import STOPPED, Record
from pipeline.store.store import Store
from pipeline.sweep.points import (
    Point,
    accuracy,
    check_shared_keys,
    differing_overrides,
    expand,
    json_lines,
    noise_note,
    show,
    show_merged,
    show_rungs,
    table,
    varied,
    without_secrets,
)
from pipeline.terminal import console, say
from stages.base.files import replace_file
from stages.base.redact import redact, redacted
from stages.report.charts import PLOTLY, plotly

if TYPE_CHECKING:
    from pipeline.run.sharing import Connection


QUEUED = 32
"""Jobs in the queue at the same time unless --jobs says otherwise: each has a process that waits for it and
asks the cluster's controller every few seconds."""


class Sweep:
    """Points of one command line."""

    def __init__(
        self,
        overrides: Sequence[str],
        config_dir: Path | None = None,
        target: Target = ALL_STAGES,
        cards: int | None = None,
        jobs: int | None = None,
    ) -> None:
        """Plan the points, and print the warnings and the reasons of points that are left out.

        `cards` is the number of cards that stages occupy together, those in jobs included; None: on this
        machine as many as the largest point needs, and in jobs any number. `jobs` is the number of jobs in
        the queue of Slurm or Ray at the same time; None for QUEUED.

        Raises:
            ConfigError: no point can be composed, or points differ in a key that they must share; or `jobs`
                is given and no stage runs as a job.
        """
        self._overrides, self._config_dir, self._target = list(overrides), config_dir, target
        self._cards, self._jobs = cards, jobs
        self._started = time.time()
        self._store: Store | None = None
        identity = [*self._overrides, *([str(target)] if target.is_part else [])]
        identity += [f"--config-dir={config_dir.resolve()}"] if config_dir else []
        self.id = hashlib.sha256(canonical(identity).encode()).hexdigest()[:8]
        self.points = [Point(number, point) for number, point in enumerate(expand(overrides, config_dir))]
        self._not_composed: list[NotComposed] = []
        self._plans = {point.number: plan for point in self.points if (plan := self._plan(point)) is not None}
        self._check_composed()
        self._runs: dict[int, Run] = {}
        """Point number -> its run."""
        check_shared_keys(self._plans.values())
        if jobs is not None and self._plans and not self._has_jobs():
            rule = "limits jobs of stages, and no stage runs as one"
            remedy = "add launcher=slurm launcher.stages=all, or use --cards"
            raise ConfigError([Problem("--jobs", jobs, rule, remedy)])
        self._halving = self._begin_halving()
        for point in self.points:
            if (rung := self._stop_of(point)) is not None:
                point.state, point.message, point.rung = STOPPED, str(rung), asdict(rung)
        self._report_invalid(self.points)
        self._warn()

    def show_plan(self, as_json: bool) -> int:
        """Print the merged graph, or a line of JSON per point; return the exit code."""
        going = {point.number: self._plans[point.number] for point in self.points if point.state == "pending"}
        if as_json:
            print(json_lines(without_secrets(self.points), going, self._store))
        elif self._store is not None:
            show_merged(going, self._store, console())
            if self._halving is not None:
                show_rungs(list(self._plans.values()), len(self._plans) - len(going))
        return Exit.DONE if self._plans else Exit.INVALID

    def run(self) -> int:
        """Build what is missing, write the sweep's files, and return the exit code."""
        if not self._plans:
            return Exit.INVALID
        valid = [point for point in self.points if point.number in self._plans]
        try:
            self._build(valid)
        finally:  # after an interrupt too: what is finished is recorded
            self._settle([point for point in valid if point.state != "invalid"])
            self._write()
        return self._exit_code()

    def _exit_code(self) -> int:
        """Return the exit code of a sweep that ended, and notify the webhook."""
        states = Counter(point.state for point in self.points)
        if set(states) == {"invalid"}:
            return Exit.INVALID
        done = set(states) <= {"finished", "invalid", STOPPED}
        best = max((point.result for point in self.points if point.result), key=accuracy, default={})
        name = redact(shlex.join(self._overrides))
        notify.notify("sweep", name, "finished" if done else "failed", points=dict(states), result=best)
        return Exit.DONE if done else Exit.FAILED

    def _report_invalid(self, points: Sequence[Point]) -> None:
        """Print the invalid points, which are left out, with the reason."""
        shown = without_secrets(points)
        keys = varied(shown)
        for point in shown:
            if point.state == "invalid":
                say(f"left out {differing_overrides(point, keys)}: {point.message}", stderr=True)

    def _warn(self) -> None:
        """Print the warnings of points with stages to run, each warning once with its points."""
        warned: dict[str, list[int]] = {}
        probed: checks.Probed = {}
        for number, plan in self._plans.items():
            if self._store and plan.missing(self._store):
                for warning in checks.warnings(plan, self._store, probed=probed):
                    warned.setdefault(warning, []).append(number)
        for warning, numbers in warned.items():
            which = (
                "all points" if len(numbers) == len(self._plans) else f"points {', '.join(map(str, numbers))}"
            )
            say(f"warning: {which}: {warning}", stderr=True)

    def _begin_halving(self) -> Halving | None:
        """Return the rungs of this sweep's trainings, without writing anything; None without sweep.stop."""
        plans = list(self._plans.values())
        if not plans or self._store is None or plans[0].config.sweep.stop is None:
            return None
        return Halving(self._store.root, self.id, plans[0].config.sweep)

    def _stop_of(self, point: Point) -> Rung | None:
        """Return the rung at which an incomplete training of a point was stopped; None if there is none."""
        plan = self._plans.get(point.number)
        if plan is None or self._halving is None or self._store is None:
            return None
        if (run := self._runs.get(point.number)) is not None:
            return run.stop()
        rung = self._halving.stop_of(plan)
        if rung is None or TRAINING in plan.rebuilt or self._store.problem(plan.spec(TRAINING).key) is None:
            return None
        return rung

    def _note_rungs(self) -> None:
        """Compare with trainings that other runs have completed, and not with those that are made again."""
        if self._halving is None or self._store is None:
            return
        self._halving.forget([plan for plan in self._plans.values() if TRAINING in plan.rebuilt])
        for plan in self._plans.values():
            if TRAINING not in plan.rebuilt and (name := artifact_of(plan)) is not None:
                self._halving.note(plan, self._store.root / name / METRICS)

    def _plan(self, point: Point) -> Plan | None:
        """Return the plan of a point; None, with the reason in the point, if it is invalid."""
        try:
            plan, self._store = prepare_plan(point.overrides, self._config_dir, target=self._target)
        except REPORTED as error:
            self._not_composed += [error] if isinstance(error, NotComposed) else []
            point.state, point.message = "invalid", "; ".join(str(error).splitlines())
            return None
        needed = plan.cards
        if self._cards is not None and needed > self._cards:
            rule = f"more than this sweep's --cards {self._cards}"
            point.state, point.message = "invalid", f"cards={needed}: {rule}; choose a smaller layout"
            return None
        point.artifacts = {spec.name: str(spec.key) for spec in plan.requested}
        return plan

    def _check_composed(self) -> None:
        """Raise the error of all points once if they have the same, for example a mistyped key."""
        errors = self._not_composed
        if len(errors) == len(self.points) and len({str(error) for error in errors}) == 1:
            raise errors[0]

    def _build(self, points: Sequence[Point]) -> None:
        """Build the points as one Luigi graph, without those that cannot begin."""
        from pipeline import tasks

        signals.install()  # Luigi's tasks do this only for runs that they begin themselves
        connections: dict[RemoteConfig, Connection] = {}
        self._note_rungs()
        for point in points:
            if point.state != STOPPED:
                self._begin(point, connections)
        self._report_invalid(points)
        if self._store is not None and self._runs:
            detached.has_begun(self._store.root, self.id)
        cards = self._cards or max(plan.cards for plan in self._plans.values())
        queue = None
        if self._has_jobs():
            queue = tasks.Queue(self._jobs or QUEUED, takes_cards=self._cards is not None)
        try:
            tasks.build(list(self._runs.values()), workers=cards, cards=cards, queue=queue)
        except KeyboardInterrupt:
            self._end_waiting()
            raise

    def _has_jobs(self) -> bool:
        """Return True if a stage of a point runs as a job."""
        return any(
            plan.config.launcher.runs_as_job(spec.name)
            for plan in self._plans.values()
            for spec in plan.requested
        )

    def _end_waiting(self) -> None:
        """Record the end of points that waited; one whose stage was interrupted has recorded that itself."""
        assert self._store is not None
        root = self._store.root
        known = history.runs(root)
        for run in self._runs.values():
            if run.id in known and known[run.id].state in ("running", "died"):
                message = "interrupted before it began a stage; repeat the command to go on"
                history.record(root, run.id, "interrupted", stage="", message=message)

    def _begin(self, point: Point, connections: dict[RemoteConfig, Connection]) -> None:
        """Begin the run of a point; if it cannot begin, write the reason into the point."""
        assert self._store is not None
        try:
            plan, label = self._plans[point.number], f"[{point.number}] "
            run = Run(
                plan,
                self._store,
                point.overrides,
                label,
                connections,
                self._config_dir,
                self.id,
                halving=self._halving,
            )
        except REPORTED as error:
            point.state, point.message = "invalid", "; ".join(str(error).splitlines())
        else:
            self._runs[point.number], point.run = run, run.id

    def _settle(self, points: Sequence[Point]) -> None:
        """Set state and result of each point; a failed stage fails all points that share it."""
        assert self._store is not None
        known = history.runs(self._store.root)
        failed: dict[str, str] = {}
        for point in points:
            run = known.get(point.run or "")
            if run is not None and run.state == "failed" and run.failed_stage in point.artifacts:
                failed[point.artifacts[run.failed_stage]] = run.message or f"{run.failed_stage} failed"
        for point in points:
            if (rung := self._stop_of(point)) is not None:
                self._settle_stopped(point, rung, known)
                continue
            plan = self._plans[point.number]
            made = self._runs.get(point.number)
            missing = [spec.name for spec in (plan.requested if made is None else made.missing())]
            if not missing:
                point.state, point.result = "finished", summary.results(plan, self._store)
                continue
            causes = [failed[key] for stage in missing if (key := point.artifacts[stage]) in failed]
            point.state = "failed" if causes else "pending"
            point.message = causes[0] if causes else f"not built: {', '.join(missing)}"

    def _settle_stopped(self, point: Point, rung: Rung, known: Mapping[str, Record]) -> None:
        """Set the state of a point that was stopped early, and of its run if its process was killed."""
        assert self._store is not None
        point.state, point.message, point.rung = STOPPED, str(rung), asdict(rung)
        if point.run is None:
            own = (run for run in known.values() if run.sweep == self.id and run.artifacts == point.artifacts)
            point.run = next((run.id for run in reversed([*own])), None)
        if point.run is not None and known[point.run].state in ("running", "died"):
            values = {"stage": TRAINING, "message": point.message}
            history.record(self._store.root, point.run, STOPPED, **values)

    def _write(self) -> None:
        """Write sweep.json, table.csv and index.html, without secrets."""
        if self._store is None:
            return
        directory = self._store.root / "sweeps" / self.id
        points = without_secrets(self.points)
        values = {
            "id": self.id,
            "overrides": redacted(self._overrides),
            "target": str(self._target),
            "started": self._started,
            "written": time.time(),
            "points": [asdict(point) for point in points],
        }
        from pipeline.sweep.page import page  # takes long to import, and --plan does not need it

        contents = {
            "sweep.json": json.dumps(values, indent=1),
            "table.csv": table(points),
            "index.html": page(values, points, self._store.root, self._config_dir),
        }
        with store_errors(directory):
            directory.mkdir(parents=True, exist_ok=True)
            for name, text in contents.items():
                replace_file(directory / name, text.encode())
            add_plotly(directory)
        show(points, console())
        if note := noise_note(points):
            say(note)
        states = Counter(point.state for point in points)
        counts = ", ".join(f"{count} {state}" for state, count in states.items())
        print(f"sweep {self.id}: {len(points)} points ({counts})")
        print(f"table {directory / 'table.csv'}")
        print(f"page {directory / 'index.html'}")


def add_plotly(directory: Path) -> None:
    """Write the file that draws a page's charts next to the page, unless it is there."""
    file, content = directory / PLOTLY, plotly()
    if not file.exists() or file.stat().st_size != len(content):
        replace_file(file, content)
