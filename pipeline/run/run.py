"""A run: it executes a plan, fills the store and reports progress and results."""

from __future__ import annotations

import functools
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from launch.errors import EnvironmentProblem
from pipeline import engines
from pipeline.config.load import load, without_locations
from pipeline.errors import (
    REPORTED,
    ConfigError,
    Exit,
    RemoteError,
    StoreError,
    check_working_directory,
)
from pipeline.fingerprint import DIGESTS, DigestCache
from pipeline.plan import rehearsed
from pipeline.plan.check import check
from pipeline.plan.graph import Plan, StageSpec, plan
from pipeline.plan.target import Target
from pipeline.run import forced, notify, signals, summary
from pipeline.run.progress import Display, Listener
from pipeline.store import history, leases
from pipeline.store.store import Store
from pipeline.terminal import console
from stages.base.redact import redact

if TYPE_CHECKING:
    from pipeline.run.sharing import Sharing


def prepare_plan(
    overrides: Sequence[str],
    config_dir: Path | None = None,
    deep: bool = False,
    weights: bool = True,
    target: Target | None = None,
) -> tuple[Plan, Store]:
    """Compose and check the configuration, and plan; write nothing but the digest cache.

    Args:
        overrides: Hydra overrides.
        config_dir: directory with the user's config groups.
        deep: hash the user's files again instead of trusting their modification times.
        weights: require weights in model.path; False: config.json and tokenizer are enough.
        target: requested stages; None: the entire graph.

    Returns:
        The plan, and the configured store, which may not exist yet.

    Raises:
        ConfigError: the configuration is invalid.
    """
    config = load(overrides, config_dir)
    store = Store(Path(config.store))
    cache = DigestCache(store.root / DIGESTS)
    digest = functools.partial(cache.digest, deep=deep)
    planned = plan(config, digest, target)
    check(planned, store, weights)
    return replace(planned, notes=(*planned.notes, *rehearsed.notes(planned, store))), store


def begin(overrides: Sequence[str], config_dir: Path | None, target: Target) -> Run:
    """Compose, plan and begin a run; end the process on invalid input."""
    signals.install()
    try:
        check_working_directory()
        planned, store = prepare_plan(overrides, config_dir, target=target)
        return Run(planned, store, overrides)
    except ConfigError as error:
        for problem in error.problems:
            print(f"error: {problem}", file=sys.stderr)
    except REPORTED as error:
        print(f"error: {error}", file=sys.stderr)
    sys.exit(Exit.INVALID)


class Run:
    """Run in this process; it holds a lease until the process ends."""

    def __init__(
        self,
        plan: Plan,
        store: Store,
        overrides: Sequence[str],
        label: str = "",
        previous: Sharing | None = None,
    ) -> None:
        """Check that this machine can run `plan`, and record the start of the run.

        Args:
            plan: the graph and its requested stages.
            store: the artifact store.
            overrides: overrides to record in the history.
            label: prefix of progress lines of a sweep point; empty for a single run.
            previous: remote of an earlier run of the same sweep, whose connection is reused.

        Raises:
            EnvironmentProblem: a package is missing, or its version is known not to work.
            ConfigError: something that the engine needs for running is missing.
            StoreError: the store cannot be written.
        """
        self.plan, self.store = plan, store
        self._rewards_checked, self._command = False, without_locations(overrides, plan.config.engine.name)
        self.sharing: Sharing | None = None
        """Remote of the run; None if there is none, or if all artifacts are in the store."""
        self.replaced = {
            name: forced.manifest_digest(store.root, plan.spec(name).key) for name in plan.rebuilt
        }
        """Stages of --force and downstream -> manifest digest of the artifact to rebuild; None: absent."""
        self.id = history.new_run_id()
        names = [spec.name for spec in plan.requested]
        cached = [name for name in names if self.is_complete(name)]
        if len(cached) < len(names) and plan.config.remote.url:
            from pipeline.run.sharing import Sharing

            self.sharing = Sharing(plan, store, pull_all=bool(label), previous=previous)
        shared = None if self.sharing is None else self.sharing.shared
        remote_only = [] if shared is None else list(shared.remote_only)
        if len(cached) + len(remote_only) + (len(shared.pull) if shared else 0) < len(names):
            _check_environment()
            if not plan.target.is_part or any(spec.program is not None for spec in plan.requested):
                missing = list(engines.needs(plan.config))
                if missing:
                    raise ConfigError(missing)
            if not label:  # a sweep prints the warnings of all points itself, once each
                _warn(plan, store)
            if any(spec.computes for spec in plan.requested):
                self._rewards_checked = self._try_rewards()
        store.open()
        if len(cached) == len(names) and not label and not leases.is_collecting(store.root):
            self._record_start(overrides, self.id)  # ends at once, so it needs no lease
        else:
            with leases.exclusive(store.root):
                self._lease = leases.share(store.root, self.id)
                self._record_start(overrides, self._lease.name)
        self.display = Display(names, cached, label)
        for name in remote_only:
            self.display.mark_remote(name)
        if self.sharing is not None:
            built = [spec for spec in plan.requested if spec.name not in (*cached, *remote_only)]
            self.sharing.prepare_push(built, self.display)

    def _record_start(self, overrides: Sequence[str], lease: str) -> None:
        """Write the start of the run to the history."""
        self.started = history.record(
            self.store.root,
            self.id,
            "started",
            overrides=list(overrides),
            config=self.plan.config.plain(),
            artifacts={spec.name: str(spec.key) for spec in self.plan.requested},
            lease=lease,
            target=str(self.plan.target),
            force=",".join(self.plan.target.force),
        )

    def _try_rewards(self) -> bool:
        """Return True if the user's reward functions already passed a trial run."""
        from pipeline.run.reward_trial import try_rewards  # imported late: fully cached runs do not need it

        return try_rewards(self.plan, self.store)

    def is_complete(self, stage: str) -> bool:
        """Return True if the stage need not run: its artifact is complete, or only needed on the remote.

        A stage that --force rebuilds is complete once its artifact has another manifest.
        """
        if self.sharing is not None and stage in self.sharing.shared.remote_only:
            return True
        key = self.plan.spec(stage).key
        if self.store.problem(key) is not None:
            return False
        digest = self.replaced.get(stage)
        return digest is None or self.store.manifest_digest(key) != digest

    def is_done(self) -> bool:
        """Return True if all requested artifacts are complete; gc keeps them while this process lives."""
        return all(self.is_complete(spec.name) for spec in self.plan.requested)

    def build(self, stage: str, listener: Listener | None = None) -> None:
        """Pull or run a stage, and report its progress and its end, also to `listener`."""
        self.display.listener = listener
        try:
            self._pull_or_build(stage)
        except REPORTED as error:
            self._report_failure(stage, str(error))
            self._note_pending()
            raise
        except KeyboardInterrupt:
            message = "interrupted; finished stages and checkpoints are kept: repeat the command to resume"
            self._report_failure(stage, message, "interrupted")
            self._note_pending()
            raise

    def _note_pending(self) -> None:
        pending = {name for name in self.replaced if not self.is_complete(name)}
        if note := forced.pending_note(self.plan, pending):
            print(f"note: {note}", file=sys.stderr)

    def _pull_or_build(self, stage: str) -> None:
        """Pull a stage's artifact, or build it."""
        from pipeline.run.build import build  # imported late: fully cached runs do not need it

        spec, sharing = self.plan.spec(stage), self.sharing
        if sharing is not None and sharing.pull(stage, spec, self.display):
            state = "pulled"
        else:
            self._ensure_inputs(spec)
            if spec.computes and not self._rewards_checked:
                self._rewards_checked = self._try_rewards()
            if "tokenize" in spec.inputs:  # the numbers of rows are known only now
                check(self.plan, self.store)
            views = no_views if sharing is None else sharing.views
            how = (self.store, self.plan.config.launcher, self.display, self.started)
            try:
                ran = build(spec, *how, views, self._command, self.replaced.get(stage))
            except RemoteError as error:
                assert sharing is not None  # only remote inputs raise RemoteError
                sharing.connection.lose(error)
                self._ensure_inputs(spec)
                ran = build(spec, *how, command=self._command, replaces=self.replaced.get(stage))
            state = "done" if ran else "cached"
            if ran and sharing is not None:
                sharing.committed(spec)
        self.display.finish(stage, state)

    def _ensure_inputs(self, spec: StageSpec) -> None:
        """Pull or build missing inputs, except remote-only ones of which single files can be downloaded."""
        for stage in dict.fromkeys(key.stage for key in spec.inputs.values()):
            viewed = bool(spec.reads) and self.sharing is not None and self.sharing.may_view(stage)
            if self.sharing is not None and not viewed and self.store.problem(self.plan.spec(stage).key):
                self._pull_or_build(stage)

    def has_recorded_end(self) -> bool:
        """Return True if the history contains the run's end, which forks of this process record too."""
        known = history.runs(self.store.root).get(self.id)
        return known is None or known.state in ("finished", "failed", "interrupted")

    def give_up(self, stage: str, reason: str) -> None:
        """Record the run as failed because `stage` was not built."""
        self._report_failure(stage, f"{stage} was not built: {reason}")

    def _report_failure(self, stage: str, message: str, state: str = "failed") -> None:
        message = redact(message)
        self.display.finish(stage, state)
        summary_line = message.splitlines()[0]
        try:
            history.record(self.store.root, self.id, state, stage=stage, message=summary_line)
        except StoreError as error:  # for example a full disk; the failure itself is still reported below
            print(f"warning: {error}", file=sys.stderr, flush=True)
        if self.sharing is not None:
            self.sharing.end(self.id, interrupted=state == "interrupted")
        self._notify(state, stage=stage, message=summary_line)
        print(f"error: {message}", file=sys.stderr, flush=True)

    def _notify(self, state: str, **more: Any) -> None:
        if not self.display.label:  # a sweep sends one notification for all its points
            notify.notify("run", self.id, state, **more)

    def report(self) -> None:
        """Print the summary and the result line, and record the result."""
        if not self.display.label:  # a sweep prints one table for all its points
            states = {name: self._final_state(name, state) for name, state in self.display.states.items()}
            remote_manifests = {} if self.sharing is None else self.sharing.remote_manifests
            summary.show(self.plan, self.store, states, console(), remote_manifests)
        result = summary.results(self.plan, self.store)
        history.record(self.store.root, self.id, "finished", result=result)
        if self.sharing is not None:
            self.sharing.end(self.id)
        self._notify("finished", result=result)
        if note := forced.outdated_note(self.plan, self.store, self.replaced):
            print(f"note: {note}", file=sys.stderr)
        print(summary.last_line(self.plan, self.store, self.id), flush=True)

    def _final_state(self, stage: str, state: str) -> str:
        """Return a stage's state; derive it from the store if a fork of this process built the stage."""
        if state != "waiting":
            return state
        pulled = self.sharing is not None and self.sharing.was_pulled(self.plan.spec(stage))
        return "pulled" if pulled else "done"


def no_views(spec: StageSpec, work: Path) -> dict[str, Path]:
    """Return no downloaded inputs: without a remote, all inputs are in the store."""
    return {}


def _warn(plan: Plan, store: Store) -> None:
    """Print the warnings that `plan` shows, and which rehearsals are missing, before the run begins."""
    from pipeline.plan import cautions  # imported late: fully cached runs do not need it

    for note in rehearsed.notes(plan, store):
        print(f"note: {note}", file=sys.stderr, flush=True)

    for warning in cautions.warnings(plan, store):
        print(f"warning: {warning}", file=sys.stderr, flush=True)


def _check_environment() -> None:
    from launch.machine import environment

    problems = environment.problems()
    if problems:
        raise EnvironmentProblem("\n".join(problems))
