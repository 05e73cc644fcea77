"""The program of an AReaL run: `python -m grpoflow_areal.driver TASK --config FILE`.

It starts AReaL's PPOTrainer as examples/math/gsm8k_rl.py does, and adds what a resumable run needs:

- the rows of all steps as one epoch, in an order that depends on the seed alone; a resumed run begins with
  those of its first step, while AReaL's data loader would leave out what had been sent to the servers;
- metrics as JSON lines, with those that AReaL lacks (batches.py);
- two places for the state from which a run resumes, used in turn, since AReaL overwrites its state in place
  (utils/recover.py, dump): a kill during a write loses the steps since the other one;
- the model of the last step as a Hugging Face directory that appears when it is complete;
- one time limit for the start, because AReaL waits only 30 or 60 seconds for a worker that is slow, and
  forever for one whose configuration hangs (infra/scheduler/local.py, _wait_for_fork_ready,
  _configure_worker);
- an end of the run as soon as a worker has ended, for whose answer AReaL would wait forever.

Source: AReaL 1.0.4.
"""
# mypy: ignore-errors

import faulthandler
import functools
import json
import os
import random
import shutil
import sys
import threading
import time
from collections import deque
from pathlib import Path

import psutil
from areal import PPOTrainer
from areal.api import SaveLoadMeta, cli_args
from areal.api.cli_args import GRPOConfig, load_expr_config
from areal.infra.scheduler.local import LocalScheduler
from areal.utils import network

from grpoflow_areal.batches import Batches, Rows

WORKFLOW = "grpoflow_areal.workflow.Workflow"
WORKER = "grpoflow_areal.worker"
"""Module that a worker runs (files.py renders its command)."""
STATE = "state.json"
"""File in the checkpoints' directory that names the complete state: {"slot": NAME, "step": N}."""
SLOTS = ("a", "b")
POLL_S, SHOWN_LINES = 1.0, 40
"""Seconds between two looks at the workers, and lines of a worker's log that an error quotes."""


def read_state(checkpoints):
    """Return slot and step of the complete state; None without one."""
    file = Path(checkpoints) / STATE
    if not file.is_file():
        return None
    state = json.loads(file.read_text(encoding="utf-8"))
    return state["slot"], state["step"]


class States:
    """Lets a RecoverHandler write the places of the state in turn, and names the complete one."""

    def __init__(self, handler, checkpoints, slot):
        """Begin with a place: `slot` is the one to write next."""
        self._handler, self._directory, self._slot = handler, Path(checkpoints), slot
        self._dump, self._written = handler.dump, None
        handler.dump = self._dump_to_slot

    def _dump_to_slot(self, engine, step_info, *args, **named):
        self._handler.config.fileroot = str(self._directory / self._slot)
        before = self._handler.last_step_info
        self._dump(engine, step_info, *args, **named)
        if self._handler.last_step_info is not before:  # it was time for a state
            self._written = {"slot": self._slot, "step": step_info.global_step + 1}
            self._slot = SLOTS[1 - SLOTS.index(self._slot)]

    def name(self):
        """Name the state that was written last, by one rename; called when the step's metrics are written."""
        if self._written is None:
            return
        file = self._directory / STATE
        new = file.with_suffix(".new")
        new.write_text(json.dumps(self._written), encoding="utf-8")
        new.replace(file)
        self._written = None


def log_metrics(logger, file, more, after):
    """Write what AReaL logs of each step, and `more`, as a JSON line; then call `after`."""
    commit = logger.commit

    def commit_and_write(epoch, step, global_step, data):
        commit(epoch, step, global_step, data)
        values = {name: float(value) for name, value in {**data, **more}.items()}
        with open(file, "a", encoding="utf-8") as out:
            out.write(json.dumps({"step": global_step + 1, "data": values}) + "\n")
        after()

    logger.commit = commit_and_write


def save(trainer, final):
    """Write the policy as a Hugging Face directory."""
    partial = Path(final).with_name("final.partial")
    shutil.rmtree(partial, ignore_errors=True)
    meta = SaveLoadMeta(
        path=str(partial),
        weight_format="hf",
        with_optim=False,
        tokenizer=trainer.tokenizer,
        processor=trainer.processor,
        base_model_path=None,
    )
    partial.mkdir(parents=True)
    trainer.actor.save(meta)
    shutil.rmtree(final, ignore_errors=True)
    partial.rename(final)


class Workers:
    """The processes that AReaL's scheduler starts on this machine."""

    def __init__(self, timeout_s):
        """Let the scheduler wait `timeout_s` for each worker, instead of 30 or 60 seconds."""
        self._timeout_s, self._schedulers = timeout_s, []
        self._programs = {}
        """Process id of a worker's shell -> the worker's own process."""
        self.ready, self.done = threading.Event(), threading.Event()
        """Set when all workers are ready, and when they are no longer needed."""
        create, forked = LocalScheduler.__init__, LocalScheduler._wait_for_fork_ready

        def create_and_keep(scheduler, *args, **named):
            create(scheduler, *args, **{"startup_timeout": timeout_s, **named})
            self._schedulers.append(scheduler)

        LocalScheduler.__init__ = create_and_keep
        LocalScheduler._wait_for_fork_ready = staticmethod(functools.partial(forked, timeout=timeout_s))

    def watch(self):
        """End this process if a worker ends before `done`, or if they are not ready in time."""
        began = time.monotonic()
        while not self.done.wait(POLL_S):
            for worker in self._ended():
                self._fail(f"AReaL's worker {worker.worker.id} has ended", worker.log_file)
            if not self.ready.is_set() and time.monotonic() - began > self._timeout_s:
                faulthandler.dump_traceback(all_threads=True)
                limit = f"engine.start_timeout_s={self._timeout_s:.0f} seconds"
                self._fail(f"the workers were not ready after {limit}; their logs are in areal/logs")

    def _ended(self):
        """Return the workers that have ended; forked ones have no process here."""
        roles = [role for scheduler in self._schedulers for role in list(scheduler._workers.values())]
        started = [worker for role in roles for worker in role if worker.process is not None]
        return [worker for worker in started if self._has_ended(worker.process)]

    def _has_ended(self, shell):
        """Return True if a worker has ended. AReaL knows the process of its shell only.

        The shell pipes the worker's output to tee (AReaL 1.0.4, infra/utils/proc.py), which reads on as long
        as a server that the worker started has the pipe.
        """
        if shell.poll() is not None:
            return True
        try:
            if shell.pid not in self._programs:
                for child in psutil.Process(shell.pid).children():
                    if WORKER in child.cmdline():
                        self._programs[shell.pid] = child
                return False
            program = self._programs[shell.pid]
            return not program.is_running() or program.status() == psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:  # what has ended is found at the next look
            return False

    def _fail(self, message, log=None):
        if log is not None and os.path.exists(log):
            with open(log, encoding="utf-8", errors="replace") as lines:
                print("".join(deque(lines, maxlen=SHOWN_LINES)), file=sys.stderr)
        print(f"error: {message}", file=sys.stderr, flush=True)
        os._exit(1)


def configuration(file):
    """Return AReaL's configuration from a YAML file.

    AReaL gives Hydra the way from its own file to this one, which is wrong if there are links on it
    (api/cli_args.py, parse_cli_args).
    """
    cli_args.__file__ = os.path.realpath(cli_args.__file__)
    config, _ = load_expr_config(["--config", os.path.realpath(file)], GRPOConfig)
    return config


def main(argv):
    """Train, and save the model."""
    task = json.loads(Path(argv[0]).read_text(encoding="utf-8"))
    # AReaL seeds `random`: runs with one seed would take the same ports
    network.random = random.SystemRandom()
    os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])  # python3
    for left in (task["names"], task["episodes"]):  # addresses and completions of an earlier attempt
        shutil.rmtree(left, ignore_errors=True)
    Path(task["episodes"]).mkdir()
    config = configuration(argv[2])
    config.gconfig.stop_token_ids = task["end_ids"]
    checkpoints, state = task["checkpoints"], read_state(task["checkpoints"])
    Path(checkpoints).mkdir(parents=True, exist_ok=True)
    complete = None if state is None else state[0]
    for slot in set(SLOTS) - {complete}:  # a write that was killed
        shutil.rmtree(Path(checkpoints) / slot, ignore_errors=True)
    config.recover.fileroot = str(Path(checkpoints) / (complete or SLOTS[0]))
    workers = Workers(task["start_timeout_s"])
    threading.Thread(target=workers.watch, daemon=True).start()
    began, rows = time.monotonic(), Rows(task)
    with PPOTrainer(config, train_dataset=rows, valid_dataset=None) as trainer:
        workers.ready.set()
        print(f"ready after {time.monotonic() - began:.0f} s", flush=True)
        try:
            train(trainer, config, rows, argv[0], task)
        finally:
            workers.done.set()


def train(trainer, config, rows, file, task):
    """Train from the complete state, if there is one, and save the model; `file` has the task."""
    checkpoints, state = task["checkpoints"], read_state(task["checkpoints"])
    slot, done = state or (SLOTS[1], 0)
    states = States(trainer.recover_handler, checkpoints, SLOTS[1 - SLOTS.index(slot)])
    batches = Batches(rows, task, done)
    trainer.train_dataloader = batches
    trainer.actor.prepare_batch = batches.watch(trainer.actor.prepare_batch)
    logs = Path(os.environ.get("GRPOFLOW_LOG_DIR", task["root"]))
    log_metrics(trainer.stats_logger, logs / f"{task['metrics']}.jsonl", batches.metrics, states.name)
    trainer.train(
        workflow=WORKFLOW,
        workflow_kwargs={"task": file, "gconfig": config.gconfig, "tokenizer": config.tokenizer_path},
    )
    save(trainer, task["final"])


if __name__ == "__main__":
    main(sys.argv[1:])
