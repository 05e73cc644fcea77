"""Luigi's settings: which scheduler a run uses, and what luigi.cfg may change.

`grpoflow` commands have a scheduler of their own in this process and read only the e-mails of luigi.cfg.
`luigi --module pipeline` obeys luigi.cfg, and uses a central scheduler (luigid) if luigi.cfg or the command
line names one.
"""

from __future__ import annotations

import logging
import socket
import sys
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import luigi
from luigi.cmdline_parser import CmdlineParser
from luigi.configuration import get_config
from luigi.rpc import RemoteScheduler, RPCError

from pipeline.errors import REPORTED, ConfigError, Exit, Problem, StoreError
from pipeline.plan.graph import StageSpec

CARDS = "cards"
"""Name of the resource of which a training stage occupies one per worker."""
JOBS, HERE = "jobs", "stages_here"
"""Names of the resources of which each stage of a sweep occupies one if stages run as Slurm jobs."""
RETURN_CODES = (
    "already_running", "missing_data", "not_run", "task_failed", "scheduling_error", "unhandled_exception",
)  # fmt: skip
OPTION = "--scheduler-"
"""Beginning of the command-line options that name a central scheduler."""


def set_defaults() -> None:
    """Set what `luigi --module pipeline RunGRPO` needs without a luigi.cfg, which takes precedence."""
    is_central = names_central_scheduler(sys.argv[1:])
    defaults: dict[str, dict[str, object]] = {
        # By default Luigi would try to reach luigid for a minute.
        "core": {"local_scheduler": not is_central, "no_lock": True},
        # Luigi exits 0 on failure by default.
        "retcode": dict.fromkeys(RETURN_CODES, int(Exit.FAILED)),  # as text: Python 3.10 writes Exit.FAILED
        # A stage without an artifact must fail.
        "worker": {"check_complete_on_run": True},
    }
    config = get_config()
    # Luigi's own scheduler is made before a run begins and its cards are known. It needs no limit, because
    # those stages of a run that occupy cards follow each other; a central scheduler has its own.
    config.set("resources", CARDS, str(sys.maxsize))
    if is_central and not config.has_option("core", "worker-keep-alive"):
        # A run waits while others occupy the cards; without this, Luigi ends as soon as it gets no task.
        defaults["worker"]["keep_alive"] = True
    for section, values in defaults.items():
        for key, value in values.items():
            if not config.has_option(section, key):
                config.set(section, key, str(value).lower() if isinstance(value, bool) else str(value))
    # Luigi itself reads the keys default-scheduler-…, and warns that nothing does
    warnings.filterwarnings("ignore", "The configuration contains the parameter 'default_scheduler_")
    for name in ("luigi", "luigi-interface"):
        logging.getLogger(name).addFilter(_filter_and_shorten)


def names_central_scheduler(arguments: Sequence[str]) -> bool:
    """Return True if the command line or luigi.cfg names the host, port or URL of a central scheduler."""
    config = get_config()
    keys = ("default-scheduler-{}", "default_scheduler_{}", "scheduler_{}", "scheduler-{}")
    names = [key.format(part) for key in keys for part in ("host", "port", "url")]
    return any(word.startswith(OPTION) for word in arguments) or any(
        str(config.get("core", name, "")) for name in names
    )


def is_central() -> bool:
    """Return True if the tasks of this process are scheduled by luigid."""
    return bool(CmdlineParser.get_instance()) and not luigi.interface.core().local_scheduler


_has_own_cards = False


def cards_here() -> str:
    """Return the name of the resource of which a stage occupies one per worker on this machine.

    A central scheduler may know the cards of each machine, so that several share it (see `check`).
    """
    return _name_of_cards_here() if _has_own_cards else CARDS


def _name_of_cards_here() -> str:
    return f"{CARDS}_{socket.gethostname().lower()}"  # luigi.cfg is read without upper case


_has_waited = False


def _filter_and_shorten(record: logging.LogRecord) -> bool:
    """Return True for messages of Luigi that are shown: errors that were not reported yet, and waiting."""
    global _has_waited
    error = record.exc_info[1] if record.exc_info else None
    if isinstance(error, RPCError):
        record.msg = f"Luigi's scheduler stopped answering: {error}; type the same command to go on"
        record.args, record.exc_info = (), None
    elif record.funcName == "retry_logging" and record.levelno == logging.WARNING:
        record.exc_info = None
        return True
    elif record.funcName == "_sleeper" and not _has_waited:  # the worker stays alive without a task
        _has_waited = True
        text = "waiting for Luigi's scheduler: other runs occupy its cards, or it is paused"
        record.msg, record.args, record.levelno, record.levelname = text, (), logging.WARNING, "WARNING"
        return True
    return record.levelno >= logging.ERROR and not isinstance(error, REPORTED)


class OwnScheduling:
    """Scheduler and workers inside this process, with Luigi's defaults whatever luigi.cfg says."""

    def __init__(self, cards: int, jobs: int = 0) -> None:
        """Limit what tasks occupy together to `cards`, and to `jobs` Slurm jobs beside `cards` stages here.

        0 jobs: the number of workers is the only limit.
        """
        self._resources = {CARDS: cards, **({JOBS: jobs, HERE: cards} if jobs else {})}

    def create_local_scheduler(self) -> Any:
        """Return a scheduler that knows these limits."""
        settings = _built_in(luigi.scheduler.scheduler) | {"prune_on_get_work": True}
        return luigi.scheduler.Scheduler(resources=self._resources, **settings)

    def create_worker(self, scheduler: Any, worker_processes: int, assistant: bool = False) -> Any:
        """Return a worker that ends when nothing is left to run."""
        settings = _built_in(luigi.worker.worker) | {"check_complete_on_run": True}
        return luigi.worker.Worker(scheduler, worker_processes=worker_processes, **settings)


def _built_in(section: Any) -> dict[str, Any]:
    """Return the values that the keys of one of Luigi's sections have without a luigi.cfg."""
    return {name: parameter._default for name, parameter in section.get_params()}


def waits_for_tasks() -> bool:
    """Return True if Luigi's worker waits for tasks that it cannot run yet."""
    return bool(luigi.worker.worker().keep_alive)


def notes() -> Iterator[str]:
    """Yield what luigi.cfg or an option of the worker changes for this run."""
    settings = luigi.worker.worker()
    if settings.timeout:
        text = f"[worker] timeout={settings.timeout} in luigi.cfg: Luigi ends each stage after"
        yield f"{text} {settings.timeout} s; leave it out for stages that take longer"
    if names_central_scheduler(sys.argv[1:]) and not settings.keep_alive:
        text = "[worker] keep_alive=false in luigi.cfg: this run ends instead of waiting when others occupy"
        yield f"{text} the cards; leave it out to wait"


def check(requested: Sequence[StageSpec], missing: Sequence[StageSpec]) -> None:
    """Check Luigi's settings for a run with `requested` stages, of which some are `missing`.

    Raises:
        ConfigError: the run needs more tasks or cards than luigi.cfg or the central scheduler allow.
        StoreError: the central scheduler does not answer.
    """
    problems = []
    # a task for the run, and for each stage one that builds it and one that waits while another process does
    most, needed = luigi.worker.worker().task_limit, (1 + is_central()) * len(requested) + 1
    if most is not None and most < needed:
        remedy = "raise it in luigi.cfg, or leave it out"
        problems.append(Problem("[worker] task_limit", most, f"this run has {needed} tasks", remedy))
    cards = max((spec.stage.workers for spec in missing if spec.stage.computes), default=0)
    core = luigi.interface.core()
    if cards and not core.local_scheduler:
        url = core.scheduler_url or f"http://{core.scheduler_host}:{core.scheduler_port}/"
        try:
            known = RemoteScheduler(url).resource_list()
        except RPCError as error:
            remedy = "start luigid, or use --local-scheduler"
            raise StoreError(f"Luigi's scheduler at {url} does not answer; {remedy}") from error
        global _has_own_cards
        totals = {entry["name"]: entry["num_total"] for entry in known or ()}
        _has_own_cards = _name_of_cards_here() in totals
        total = totals.get(cards_here(), 1)
        if total < cards:
            rule = f"Luigi's scheduler at {url} has {total}, a stage of this run occupies {cards}"
            remedy = f"write {cards_here()} = {cards} or more below [resources] in its luigi.cfg"
            remedy += ", and restart luigid"
            problems.append(Problem(cards_here(), cards, rule, remedy))
    if problems:
        raise ConfigError(problems)
