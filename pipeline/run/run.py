"""One run: a plan, the store that it fills, and what is told about it."""

from __future__ import annotations

import functools
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from launch.errors import EnvironmentProblem
from pipeline import engines
from pipeline.config.compose import Composer
from pipeline.config.compose_cache import compose_cached
from pipeline.config.load import load_noted, without_places
from pipeline.errors import REPORTED, ConfigError, Exit, RemoteError, StoreError
from pipeline.fingerprint import DIGESTS, DigestCache
from pipeline.plan import at_hand, rehearsed
from pipeline.plan.graph import Plan, StageSpec, anew, plan
from pipeline.plan.target import Target
from pipeline.run import notify, signals, summary
from pipeline.run.progress import Display, Listener
from pipeline.store import history, leases
from pipeline.store.store import Key, Store
from pipeline.terminal import console

if TYPE_CHECKING:
    from pipeline.run.sharing import Sharing

LABEL = re.compile(r"\+{0,2}(model|dataset)\.name=")


def prepare_plan(
    overrides: Sequence[str],
    config_dir: Path | None = None,
    deep: bool = False,
    weights: bool = True,
    target: Target | None = None,
    composer: Composer | None = None,
) -> tuple[Plan, Store]:
    """Compose, check and plan; touches nothing but the digest cache.

    Args:
        overrides: Hydra overrides.
        config_dir: the user's own config groups.
        deep: read the user's files again, whatever their times say.
        weights: model.path must hold them; False: config.json and tokenizer are enough.
        target: what is asked for; None: the whole graph.
        composer: as `load` takes it.

    Raises:
        ConfigError: the configuration is invalid.
    """
    config, gave_way = load_noted(overrides, config_dir, composer)
    store = Store(Path(config.store))
    cache = DigestCache(store.root / DIGESTS)
    digest = functools.partial(cache.digest, deep=deep)
    forced = target.force if target else ()
    editions = store.editions()

    def edition(first: Key) -> int:
        return _next(store.root, first) if first.stage in forced else editions.get(first.flat, 0)

    compose = composer.compose if composer else functools.partial(compose_cached, config_dir=config_dir)
    labels = _names(overrides, compose)
    planned = plan(config, digest, labels, target, edition, composer.kept if composer else None)
    at_hand.check(planned, store, weights)
    return replace(planned, notes=(*gave_way, *planned.notes, *rehearsed.notes(planned, store))), store


@functools.cache
def _next(root: Path, first: Key) -> int:
    """The edition that this process builds: the same for all points of a sweep, whenever they are planned.

    What the store does not have whole is built in any case, and need not have another name.
    """
    store = Store(root)
    number = store.editions().get(first.flat, 0)
    return number + (store.problem(anew(first, number)) is None)


def _names(overrides: Sequence[str], compose: Callable[[Sequence[str]], dict[str, Any]]) -> dict[str, str]:
    """The names that count where an override gives another one: those of the chosen groups.

    They are labels, but stand in the fingerprints of stores in use.
    """
    others = [override for override in overrides if not LABEL.match(override)]
    if len(others) == len(overrides):
        return {}
    values = compose(others)
    return {section: str(values[section]["name"]) for section in ("model", "dataset")}


def begin(overrides: Sequence[str], config_dir: Path | None, target: Target) -> Run:
    """Compose, plan and begin a run; ends the process on invalid input."""
    signals.install()
    try:
        planned, store = prepare_plan(overrides, config_dir, target=target)
        return Run(planned, store, overrides)
    except ConfigError as error:
        for problem in error.problems:
            print(f"error: {problem}", file=sys.stderr)
    except REPORTED as error:
        print(f"error: {error}", file=sys.stderr)
    sys.exit(Exit.INVALID)


class Run:
    """A run in this process: leased from its start to the process's end."""

    def __init__(
        self,
        plan: Plan,
        store: Store,
        overrides: Sequence[str],
        label: str = "",
        beside: Sharing | None = None,
    ) -> None:
        """Check that this machine can run `plan`, and begin.

        Args:
            plan: the graph, and what of it is asked for.
            store: where artifacts are.
            overrides: what the history keeps of the command line.
            label: stands before what is told of it.
            beside: the remote of another run of the same build.

        Raises:
            EnvironmentProblem: a package is missing or of a version that is known to break.
            ConfigError: the engine lacks something that plan does without.
            StoreError: the store cannot be written.
        """
        self.plan, self.store = plan, store
        self._tried, self._command = False, without_places(overrides, plan.config.engine.name)
        self.sharing: Sharing | None = None
        """What it takes from a remote, where it has one."""
        self.id = history.new_run_id()
        names = [spec.name for spec in plan.asked]
        cached = [name for name in names if self.is_complete(name)]
        if len(cached) < len(names) and plan.config.remote.url:
            from pipeline.run.sharing import Sharing

            self.sharing = Sharing(plan, store, whole=bool(label), other=beside)
        shared = None if self.sharing is None else self.sharing.shared
        stays = [] if shared is None else list(shared.stays)
        if len(cached) + len(stays) + (len(shared.pull) if shared else 0) < len(names):
            _check_environment()
            if not plan.target.is_part or any(spec.program is not None for spec in plan.asked):
                missing = list(engines.needs(plan.config))
                if missing:
                    raise ConfigError(missing)
            if not label:  # a sweep tells once what is true of many points
                _warn(plan, store)
            if any(spec.computes for spec in plan.asked):
                self._tried = self._try_rewards()
        store.open()
        with leases.exclusive(store.root):
            self._lease = leases.take(store.root, self.id)
            self.started = history.record(
                store.root,
                self.id,
                "started",
                overrides=list(overrides),
                target=str(plan.target),
                force=",".join(plan.target.force),
                config=plan.config.plain(),
                artifacts={spec.name: str(spec.key) for spec in plan.asked},
            )
        self.display = Display(names, cached, label)
        for name in stays:
            self.display.stay(name)
        if self.sharing is not None:
            made = [spec for spec in plan.asked if spec.name not in (*cached, *stays)]
            self.sharing.push(self.id, made, self.display)
        for name in cached:
            self._keep_edition(name)

    def _keep_edition(self, stage: str) -> None:
        """What was built anew counts for all plans from now on; until it is whole, the one before does."""
        spec = self.plan.spec(stage)
        if spec.first is not None:
            self.store.set_edition(spec.first, spec.edition)

    def _try_rewards(self) -> bool:
        """Whether the user's own rewards need not be tried any more."""
        from pipeline.run.reward_trial import try_rewards  # here: a run with nothing to do needs none of it

        return try_rewards(self.plan, self.store)

    def is_complete(self, stage: str) -> bool:
        """Whether the stage's artifact is whole, or is on the remote and nothing here reads it whole."""
        stays = self.sharing is not None and stage in self.sharing.shared.stays
        return stays or self.store.problem(self.plan.spec(stage).key) is None

    def is_done(self) -> bool:
        """Whether all that is asked for is there, which nobody removes as long as this process lives."""
        return all(self.is_complete(spec.name) for spec in self.plan.asked)

    def build(self, stage: str, listener: Listener | None = None) -> None:
        """Pull or run one stage, and tell its progress and its end; `listener` hears the progress too."""
        self.display.listener = listener
        try:
            self._make(stage)
        except REPORTED as error:
            self._failed(stage, str(error))
            if self._has_forced():
                forced = ", ".join(self.plan.target.force)
                print(f"note: {forced}: built anew, and counts; go on without --force", file=sys.stderr)
            raise
        except KeyboardInterrupt:
            again = "type the same command to go on"
            if self._has_forced():
                again += ", without --force: that is done"
            message = f"interrupted; finished stages and checkpoints are kept: {again}"
            self._failed(stage, message, "interrupted")
            raise

    def _has_forced(self) -> bool:
        """Whether what was to be built anew is: with --force it would be built once more."""
        return bool(self.plan.target.force) and all(map(self.is_complete, self.plan.target.force))

    def _make(self, stage: str) -> None:
        """Pull a stage's artifact, or build it."""
        from pipeline.run.build import build  # here, because a run with nothing to do needs none of it

        spec, sharing = self.plan.spec(stage), self.sharing
        if sharing is not None and sharing.bring(stage, spec, self.display):
            state = "pulled"
        else:
            self._have_inputs(spec)
            if spec.computes and not self._tried:
                self._tried = self._try_rewards()
            if "tokenize" in spec.inputs:  # which has told by now how many rows there are
                at_hand.check(self.plan, self.store)
            views = no_views if sharing is None else sharing.views
            how = (self.store, self.plan.config.launcher, self.display, self.started)
            try:
                ran = build(spec, *how, views, self._command)
            except RemoteError as error:
                assert sharing is not None  # else nothing asks a remote
                sharing.connection.lose(error)
                self._have_inputs(spec)
                ran = build(spec, *how, command=self._command)
            state = "done" if ran else "cached"
        self._keep_edition(stage)
        self.display.finish(stage, state)

    def _have_inputs(self, spec: StageSpec) -> None:
        """Bring here, or build, what was to stay on a remote, and cannot."""
        for stage in dict.fromkeys(key.stage for key in spec.inputs.values()):
            viewed = bool(spec.reads) and self.sharing is not None and self.sharing.may_view(stage)
            if self.sharing is not None and not viewed and self.store.problem(self.plan.spec(stage).key):
                self._make(stage)

    def has_told_its_end(self) -> bool:
        """Whether it has failed or finished by its record, which forks of this process write too."""
        known = history.runs(self.store.root).get(self.id)
        return known is None or known.state in ("finished", "failed", "interrupted")

    def give_up(self, stage: str, reason: str) -> None:
        """End without having built `stage`, which did not fail either."""
        self._failed(stage, f"{stage} was not built: {reason}")

    def _failed(self, stage: str, message: str, state: str = "failed") -> None:
        self.display.finish(stage, state)
        told = message.splitlines()[0]
        try:
            history.record(self.store.root, self.id, state, stage=stage, message=told)
        except StoreError as error:  # a full disk, say: the failure itself must be told all the same
            print(f"warning: {error}", file=sys.stderr, flush=True)
        if self.sharing is not None:
            self.sharing.end(self.id, interrupted=state == "interrupted")
        self._notify(state, stage=stage, message=told)
        print(f"error: {message}", file=sys.stderr, flush=True)

    def _notify(self, state: str, **more: Any) -> None:
        if not self.display.label:  # of a sweep, one message tells
            notify.tell("run", self.id, state, **more)

    def report(self) -> None:
        """Print the summary and the result line, and remember the result."""
        if not self.display.label:  # a point of a sweep has its line in the sweep's table
            states = {name: self._seen(name, state) for name, state in self.display.states.items()}
            elsewhere = {} if self.sharing is None else self.sharing.elsewhere
            summary.show(self.plan, self.store, states, console(), elsewhere)
        result = summary.results(self.plan, self.store)
        history.record(self.store.root, self.id, "finished", result=result)
        if self.sharing is not None:
            self.sharing.end(self.id)
        self._notify("finished", result=result)
        print(summary.last_line(self.plan, self.store, self.id), flush=True)

    def _seen(self, stage: str, state: str) -> str:
        """A stage's state; with several workers its end was seen by another process than this one."""
        if state != "waiting":
            return state
        pulled = self.sharing is not None and self.sharing.came_from_there(self.plan.spec(stage))
        return "pulled" if pulled else "done"


def no_views(spec: StageSpec, work: Path) -> dict[str, Path]:
    """Without a remote, all inputs are in the store."""
    return {}


def _warn(plan: Plan, store: Store) -> None:
    """Tell, before hours are spent, what `plan` shows as warnings, and what was not rehearsed."""
    from pipeline.plan import cautions  # here, because a run with nothing to do needs none of it

    for note in rehearsed.notes(plan, store):
        print(f"note: {note}", file=sys.stderr, flush=True)

    for warning in cautions.warnings(plan, store):
        print(f"warning: {warning}", file=sys.stderr, flush=True)


def _check_environment() -> None:
    from launch.machine import environment

    problems = environment.problems()
    if problems:
        raise EnvironmentProblem("\n".join(problems))
