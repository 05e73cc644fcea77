"""The program of an AReaL run: `python -m grpoflow_areal.driver TASK --config FILE`.

It starts AReaL's PPOTrainer as examples/math/gsm8k_rl.py does, and adds what a resumable run needs:

- the rows of all steps as one epoch, in an order that depends on the seed alone; a resumed run begins with
  those of its first step, while AReaL's data loader would leave out what had been sent to the servers;
- metrics as JSON lines, with those that AReaL lacks (batches.py);
- two places for the state from which a run resumes, used in turn, since AReaL overwrites its state in place
  (utils/recover.py, dump): a kill during a write loses the steps since the other one;
- the model of the last step as a Hugging Face directory that appears when it is complete;
- one time limit for the start, because AReaL waits forever for a worker that died, and only 30 or 60 seconds
  for one that is slow (infra/scheduler/local.py, _configure_worker, _wait_for_fork_ready).

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
from pathlib import Path

from areal import PPOTrainer
from areal.api import SaveLoadMeta, cli_args
from areal.api.cli_args import GRPOConfig, load_expr_config
from areal.infra.scheduler.local import LocalScheduler
from areal.utils import network

from grpoflow_areal.batches import Batches, Rows

WORKFLOW = "grpoflow_areal.workflow.Workflow"
STATE = "state.json"
"""File in the checkpoints' directory that names the complete state: {"slot": NAME, "step": N}."""
SLOTS = ("a", "b")


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


def end_unless(ready, timeout_s):
    """End this process after `timeout_s` unless the event is set."""
    if ready.wait(timeout_s):
        return
    message = f"the workers were not ready after engine.start_timeout_s={timeout_s:.0f} seconds"
    print(f"error: {message}; their logs are below areal/logs in the work directory", file=sys.stderr)
    faulthandler.dump_traceback(all_threads=True)
    os._exit(1)


def wait_for_workers(timeout_s):
    """Let AReaL's scheduler wait so long for each worker, instead of 30 or 60 seconds."""
    create, ready = LocalScheduler.__init__, LocalScheduler._wait_for_fork_ready
    LocalScheduler.__init__ = functools.partialmethod(create, startup_timeout=timeout_s)
    LocalScheduler._wait_for_fork_ready = staticmethod(functools.partial(ready, timeout=timeout_s))


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
    slot, done = state or (SLOTS[0], 0)
    config.recover.fileroot = str(Path(checkpoints) / slot)
    if state is None:
        shutil.rmtree(config.recover.fileroot, ignore_errors=True)
    wait_for_workers(task["start_timeout_s"])
    ready = threading.Event()
    threading.Thread(target=end_unless, args=(ready, task["start_timeout_s"]), daemon=True).start()
    began, rows = time.monotonic(), Rows(task)
    with PPOTrainer(config, train_dataset=rows, valid_dataset=None) as trainer:
        ready.set()
        print(f"ready after {time.monotonic() - began:.0f} s", flush=True)
        states = States(trainer.recover_handler, checkpoints, SLOTS[1 - SLOTS.index(slot)] if state else slot)
        batches = Batches(rows, task, done)
        trainer.train_dataloader = batches
        trainer.actor.prepare_batch = batches.watch(trainer.actor.prepare_batch)
        logs = Path(os.environ.get("GRPOFLOW_LOG_DIR", task["root"]))
        log_metrics(trainer.stats_logger, logs / f"{task['metrics']}.jsonl", batches.metrics, states.name)
        trainer.train(
            workflow=WORKFLOW,
            workflow_kwargs={"task": argv[0], "gconfig": config.gconfig, "tokenizer": config.tokenizer_path},
        )
        save(trainer, task["final"])


if __name__ == "__main__":
    main(sys.argv[1:])
