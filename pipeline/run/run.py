"""A run: it executes a plan, fills the store and reports progress and results."""

from __future__ import annotations

import contextlib
import functools
import signal
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline.config.load import load
from pipeline.config.sections import RemoteConfig
from pipeline.errors import REPORTED, GateFailed, RemoteError, StageFailed, StoreError
from pipeline.fingerprint import cached_digest
from pipeline.plan import checks, gates, resume
from pipeline.plan.graph import Plan, StageSpec, downstream, plan
from pipeline.plan.process import disk_shortage
from pipeline.plan.target import Target
from pipeline.run import detached, notify, signals, summary
from pipeline.run.halving import METRICS, TRAINING, Halving, Rung, StoppedEarly
from pipeline.run.progress import Display
from pipeline.run.reward_trial import try_rewards
from pipeline.store import history, leases
from pipeline.store.attempt import last_written, newest_attempt
from pipeline.store.store import JOB_LOCK, Key, Store
from pipeline.terminal import console, say
from stages.base.redact import redact

if TYPE_CHECKING:
    from pipeline.run.sharing import Connection, Sharing


def prepare_plan(
    overrides: Sequence[str],
    config_dir: Path | None = None,
    weights: bool = True,
    target: Target | None = None,
) -> tuple[Plan, Store]:
    """Compose and check the configuration, and plan; write nothing but the digest cache.

    Without `weights`, config.json and tokenizer in model.path are enough. The store may not exist yet. Raise
    ConfigError if the configuration is invalid.
    """
    config = load(overrides, config_dir)
    store = Store(Path(config.store))
    planned = plan(config, cached_digest, target)
    checks.check(planned, store, weights)
    return planned, store


@functools.cache
def first_digest(root: Path, key: Key) -> str | None:
    """Return the manifest digest of an artifact that --force rebuilds, as of this process's first request.

    Points of a sweep share it, so each artifact is rebuilt once per process.
    """
    return Store(root).manifest_digest(key)


def begin(
    overrides: Sequence[str],
    config_dir: Path | None,
    target: Target,
    check: Callable[[Sequence[StageSpec], Sequence[StageSpec]], None] | None = None,
    prints_result: bool = True,
) -> Run:
    """Compose, check and plan a run, and record its start: `grpoflow run` and Luigi's RunGRPO begin here.

    Args:
        overrides: Hydra overrides.
        config_dir: directory with the user's own groups.
        target: the requested stages.
        check: further check, of the requested stages and of those that are missing.
        prints_result: print the table of stages and the result line at the end.

    Raises:
        an error in REPORTED: the run is invalid; nothing was recorded.
    """
    planned, store = prepare_plan(overrides, config_dir, target=target)
    if check is not None:
        check(planned.requested, planned.missing(store))
    return Run(planned, store, overrides, config_dir=config_dir, prints_result=prints_result)


class Run:
    """Run in this process; it holds a lease until the process ends."""

    def __init__(
        self,
        plan: Plan,
        store: Store,
        overrides: Sequence[str],
        label: str = "",
        connections: dict[RemoteConfig, Connection] | None = None,
        config_dir: Path | None = None,
        sweep: str = "",
        prints_result: bool = True,
        halving: Halving | None = None,
    ) -> None:
        """Check that this machine can run `plan`, and record the start of the run.

        `overrides` and `config_dir` are recorded. A sweep point has a `label`, the prefix of its progress
        lines, the id of its `sweep`, and shares the `connections` of the sweep, to which it adds its own, and
        the `halving` that may stop its training.

        Raises:
            LaunchError, ConfigError: this machine cannot build what is missing.
            StoreError: the store cannot be written.
        """
        self.plan, self.store = plan, store
        self._config_dir, self._prints_result, self._sweep = config_dir, prints_result, sweep
        self._overrides = tuple(overrides)
        self._halving = halving
        self.sharing: Sharing | None = None
        """Remote of the run; None if there is none, or if all artifacts are in the store."""
        self.replaced = {name: first_digest(store.root, plan.spec(name).key) for name in plan.rebuilt}
        """Stages of --force and downstream -> manifest digest of the artifact to rebuild; None: absent."""
        self._gated = gates.gated(plan)
        self._trained = downstream([TRAINING], plan.graph) if halving is not None else frozenset()
        """Stages that are left out if the training is stopped early, with the training."""
        self._gate_report = ""
        """STAGE/DIGITS of the report that shows a failed gate; empty if there is none."""
        self.id = history.new_run_id()
        self.is_reported = False
        """True once this process has printed and recorded the result."""
        self._began = time.time()
        self.display = Display(label)
        missing = self.missing()
        self._expected_s: dict[str, float] = {}
        if missing and not label:  # a point of a sweep waits for stages of others
            from pipeline.plan.explain import (
                expected_durations,  # imported late, like what only building needs
            )

            self._expected_s = expected_durations(plan, store, [spec.name for spec in missing])
            self.display.expect(self._expected_s, lambda: [spec.name for spec in self.missing()])
        self._cached = {spec.name for spec in plan.requested if spec not in missing}
        self._untried_rewards = "fetch_dataset" not in self._cached
        self._uncounted_rows = "tokenize" not in self._cached
        to_build = missing
        if missing and plan.config.remote.url:
            from pipeline.run.sharing import Connection, Sharing  # imported late: it loads fsspec

            known, remote = {} if connections is None else connections, plan.config.remote
            known[remote] = known.get(remote) or Connection(remote)
            self.sharing = Sharing(plan, missing, store, self.display, known[remote])
            copies = {*self.sharing.remote_only, *self.sharing.to_pull}
            to_build = [spec for spec in missing if spec.name not in copies]
        if to_build:
            checks.check_machine(plan, to_build)
            if not label:  # a sweep prints the warnings of all points itself, once each
                self._warn(to_build)
            try_rewards(plan, store)
        store.open()
        if not missing and not label and not leases.is_locked(store.root / leases.RUNS_LOCK):
            self._record_start(overrides, self.id, {})  # ends at once, so it needs no lease
        else:
            with leases.exclusive(store.root):
                # leases has only a weak reference, so the run keeps the lock
                lease, self._lock = leases.share(store.root, self.id)
                self._record_start(overrides, lease, detached.this_process())

    def _warn(self, to_build: Sequence[StageSpec]) -> None:
        """Print the plan's notes and warnings."""
        for note in (*checks.notes(self.plan.config), *resume.notes(self.plan, self.store)):
            say(f"note: {note}", stderr=True)
        shortages = filter(None, (disk_shortage(spec, self.store) for spec in to_build))
        for warning in (*checks.warnings(self.plan, self.store), *shortages):
            say(f"warning: {warning}", stderr=True)

    def _record_start(self, overrides: Sequence[str], lease: str, process: dict[str, Any]) -> None:
        """Write the start of the run to the history."""
        history.record(
            self.store.root,
            self.id,
            "started",
            overrides=list(overrides),
            config=self.plan.config.plain(),
            artifacts={spec.name: str(spec.key) for spec in self.plan.requested},
            lease=lease,
            target=str(self.plan.target),
            force=",".join(self.plan.target.force),
            config_dir=str(self._config_dir or ""),
            expected_s=self._expected_s,
            sweep=self._sweep,
            process=process,
        )

    def is_complete(self, stage: str) -> bool:
        """Return True if the stage need not run: its artifact is complete, or only needed on the remote.

        A stage that --force rebuilds is complete once its artifact has another manifest. Stages that gates
        hold back are incomplete until all gates have passed, even if an earlier run has built them. If the
        training was stopped early, neither it nor what follows needs to run.
        """
        if self._is_built(stage) and (stage not in self._gated or self._gates_passed()):
            return True
        return stage in self._trained and self.stop() is not None

    def stop(self) -> Rung | None:
        """Return the rung at which the training was stopped early; None if it was not, or is complete."""
        rung = None if self._halving is None else self._halving.stop_of(self.plan)
        return None if rung is None or self._is_built(TRAINING) else rung

    def _gates_passed(self) -> bool:
        if not all(map(self._is_built, gates.deciding(self.plan))):
            return False
        verdicts = gates.verdicts(self.plan, self.store)
        return verdicts is not None and all(verdict.passed for verdict in verdicts)

    def _is_built(self, stage: str) -> bool:
        if self.sharing is not None and stage in self.sharing.remote_only:
            return True
        key = self.plan.spec(stage).key
        if self.store.problem(key) is not None:
            return False
        digest = self.replaced.get(stage)
        return digest is None or self.store.manifest_digest(key) != digest

    def is_built_elsewhere(self, stage: str) -> bool:
        """Return True if another process, on any machine, is building a stage that is not complete."""
        spec = self.plan.spec(stage)
        purpose = JOB_LOCK if self.plan.config.launcher.runs_as_job(stage) else ""
        return not self.is_complete(stage) and self.store.is_being_built(spec.key, purpose)

    def missing(self) -> list[StageSpec]:
        """Return the requested stages that are not complete."""
        return [spec for spec in self.plan.requested if not self.is_complete(spec.name)]

    def build(self, stage: str) -> None:
        """Pull or run a stage, and report its progress and its end."""
        try:
            if stage in self._gated:
                self._check_gates()
            self._pull_or_build(stage)
        except GateFailed as error:
            self._report_failure(stage, str(error))
            raise
        except StoppedEarly as stopped:
            self._report_stopped(stopped.rung)
        except REPORTED as error:
            advice = resume.after_failure(self.store, self.plan.spec(stage))
            self._report_failure(stage, "\n".join(filter(None, [str(error), advice])))
            raise
        except KeyboardInterrupt as error:
            if not signals.in_fork() and getattr(error, "number", None) != signal.SIGHUP:
                self.cancel_jobs()  # those of forks are cancelled by Luigi's process
            message = "interrupted; finished stages and checkpoints are kept: repeat the command to resume"
            self._report_failure(stage, message, "interrupted")
            raise

    def _check_gates(self) -> None:
        """Raise GateFailed, after the report that shows it is built, if a gate failed."""
        for name in gates.deciding(self.plan):
            if self.sharing is not None and self.store.problem(self.plan.spec(name).key) is not None:
                self._pull_or_build(name)
        failed = gates.failures(self.plan, self.store)
        if not failed:
            return
        message = f"{'; '.join(failed)}; export is not built"
        report = gates.report_without_export(self.plan)
        if report is not None:
            from pipeline.run.build import build  # imported late: fully cached runs do not need it

            self._ensure_inputs(report)
            launcher, views = self.plan.config.launcher, None if self.sharing is None else self.sharing.views
            if self.store.problem(report.key) is not None:
                build(report, self.store, launcher, self.display, self.id, None, views)
            self._gate_report = str(report.key)
            message += f"\nreport: {self.store.path(report.key) / 'index.html'}"
        raise GateFailed(message)

    def _pull_or_build(self, stage: str) -> None:
        """Pull a stage's artifact, or build it."""
        spec, sharing = self.plan.spec(stage), self.sharing
        if sharing is not None and sharing.pull(spec):
            state = "pulled"
        else:
            state = "done" if self._build_with_retries(spec) else "cached"
        self.display.finish(stage, state)
        if stage == TRAINING and self._halving is not None:
            self._halving.note(self.plan, self.store.path(spec.key) / METRICS)

    def _build_with_retries(self, spec: StageSpec) -> bool:
        """Build a stage, again after failures that launcher.retries allows; return False if another did."""
        retries = self.plan.config.launcher.retries
        for retry in range(1, retries + 1):
            try:
                return self._build_once(spec)
            except StageFailed as error:
                if not error.may_pass:
                    raise
                cause = " ".join(error.cause.split())
                self.display.warn(
                    spec.name, f"{cause}; log {error.log}; started again ({retry} of {retries})"
                )
        return self._build_once(spec)

    def _build_once(self, spec: StageSpec) -> bool:
        """Build a stage in this process or as a job; return False if another process has built it."""
        from pipeline.run.build import build  # imported late: fully cached runs do not need it

        sharing, launcher, replaces = self.sharing, self.plan.config.launcher, self.replaced.get(spec.name)
        as_job = launcher.runs_as_job(spec.name)
        check_metrics = functools.partial(self._check_metrics, spec)
        self._ensure_inputs(spec, complete=as_job)
        self._check_made(spec)
        if as_job:
            from pipeline.run import stage_job

            directory = None if self._config_dir is None else str(self._config_dir.absolute())
            job = stage_job.Job(
                spec.name, spec.key.fingerprint, self._overrides, directory, self.id, replaces
            )
            return stage_job.build_as_job(
                spec, self.store, job, self.plan.config, self.display, check_metrics
            )
        start = functools.partial(
            build, spec, self.store, launcher, self.display, self.id, replaces, check_metrics=check_metrics
        )
        try:
            return start(None if sharing is None else sharing.views)
        except RemoteError as error:
            assert sharing is not None  # only remote inputs raise RemoteError
            sharing.connection.lose(error)
            self._ensure_inputs(spec)
            return start()

    def _check_metrics(self, spec: StageSpec, metrics: Path) -> None:
        """Raise StoppedEarly if the stage is a training of a sweep that falls behind the others."""
        if spec.name == TRAINING and self._halving is not None:
            self._halving.check(self.plan, metrics)

    def cancel_jobs(self) -> None:
        """Cancel the jobs of this run's stages."""
        specs = [spec for spec in self.missing() if self.plan.config.launcher.runs_as_job(spec.name)]
        if specs:
            from pipeline.run import stage_job

            stage_job.cancel(specs, self.store, self.id, self.plan.config)

    def _check_made(self, spec: StageSpec) -> None:
        """Check, once and before the first stage that needs it, what the run's own data stages have made."""
        if spec.stage.computes and self._untried_rewards:
            try_rewards(self.plan, self.store)
            self._untried_rewards = False
        if "tokenize" in spec.inputs and self._uncounted_rows:
            checks.check_rows(self.plan, self.store)
            self._uncounted_rows = False

    def _ensure_inputs(self, spec: StageSpec, complete: bool = False) -> None:
        """Pull or build missing inputs, except remote-only ones of which single files can be downloaded.

        Those are pulled, too, if the stage needs `complete` inputs.
        """
        if self.sharing is None:
            return
        can_download = bool(spec.stage.reads) and not self.sharing.connection.lost and not complete
        viewed = self.sharing.remote_only if can_download else {}
        for key in dict.fromkeys(spec.inputs.values()):
            if key.stage not in viewed and self.store.problem(key) is not None:
                self._pull_or_build(key.stage)

    def report_unbuilt(self) -> None:
        """Record the run as failed if stages are missing although no end is recorded, also by a fork."""
        missing = self.missing()
        known = history.runs(self.store.root).get(self.id)
        if not missing or known is None or known.state != "running":
            return
        log = newest_attempt(self.store.root, str(missing[0].key))
        if log is not None and last_written(log) / 1e9 >= known.started:
            cause = "its process ended without a message, perhaps killed for lack of memory; see its log"
        else:
            cause = "Luigi ended without starting it; type the same command to go on"
        self._report_failure(missing[0].name, f"{missing[0].name} was not built: {cause}")

    def report_end(self, stage: str, cause: str) -> None:
        """Record and print why a stage was ended from outside, after its own process has reported that."""
        history.record(self.store.root, self.id, "failed", stage=stage, message=cause)
        say(f"error: {stage}: {cause}", stderr=True)

    def _report_failure(self, stage: str, message: str, state: str = "failed") -> None:
        message = redact(message)
        self.display.finish(stage, state)
        summary_line = message.splitlines()[0]
        try:
            more: dict[str, Any] = self._durations(stage)
            if self._gate_report:
                more["artifacts"] = {"report": self._gate_report}
            history.record(self.store.root, self.id, state, stage=stage, message=summary_line, **more)
        except StoreError as error:  # for example a full disk; the failure itself is still reported below
            say(f"warning: {error}", stderr=True)
        if self.sharing is not None and state != "interrupted":
            self.sharing.end(self.id)
        self._notify(state, stage=stage, message=summary_line)
        say(f"error: {message}", stderr=True)

    def _report_stopped(self, rung: Rung) -> None:
        """Record that the training was stopped early, in this process or for another point that shares it."""
        self.is_reported = True
        if history.runs(self.store.root)[self.id].state == history.STOPPED:
            return
        self.display.print_line(f"{TRAINING}: {history.STOPPED} at {rung}")
        took = self._durations(TRAINING)
        history.record(self.store.root, self.id, history.STOPPED, stage=TRAINING, message=str(rung), **took)
        if self.sharing is not None:
            self.sharing.end(self.id)

    def _durations(self, failed: str | None = None) -> dict[str, float]:
        """Return how long the stages of a sweep's point ran; {} for a run of its own, which waits for none.

        Stages that the point shares with others count for each of them. The last attempt of the stage that
        `failed`, or was stopped, counts if it was made in this process.
        """
        if not self.display.label:
            return {}
        from stages.report.details import covered_s  # imported late: other runs do not need it

        intervals = []
        for spec in self.plan.requested:
            with contextlib.suppress(StoreError):
                manifest = self.store.manifest(spec.key)
                if manifest.ended >= self._began:
                    intervals.append((manifest.started, manifest.ended))
        if failed is not None and (elapsed_s := self.display.elapsed_s(failed)) is not None:
            intervals.append((time.time() - elapsed_s, time.time()))
        return {"took_s": round(covered_s(intervals), 3)}

    def _notify(self, state: str, **more: Any) -> None:
        if not self.display.label:  # a sweep sends one notification for all its points
            notify.notify("run", self.id, state, **more)

    def report(self) -> None:
        """Print the summary and the result line, and record the result."""
        if (rung := self.stop()) is not None:
            self._report_stopped(rung)
            return
        result = summary.results(self.plan, self.store)
        if self._prints_result and not self.display.label:  # a sweep prints one table for all its points
            states = {spec.name: self._state(spec) for spec in self.plan.requested}
            summary.show(self.plan, self.store, states, result, console())
        history.record(self.store.root, self.id, "finished", result=result, **self._durations())
        if self.sharing is not None:
            self.sharing.end(self.id)
        self._notify("finished", result=result)
        if note := summary.outdated_note(self.plan, self.store, self.replaced):
            say(f"note: {note}", stderr=True)
        if self._prints_result:
            print(summary.last_line(self.plan, self.store, result, self.id), flush=True)
        self.is_reported = True

    def _state(self, spec: StageSpec) -> str:
        """Return a stage's state: cached, remote, pulled or done, also if a fork of this process built it."""
        if spec.name in self._cached:
            return "cached"
        return "done" if self.sharing is None else self.sharing.state(spec)
