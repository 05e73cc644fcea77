"""The program of an AReaL run: `python -m grpoflow_areal.driver TASK --config FILE`.

It starts AReaL's PPOTrainer as examples/math/gsm8k_rl.py does, and adds what a resumable run needs:

- the rows of all steps as one epoch, in an order that depends on the seed alone;
- metrics as JSON lines;
- two places for the state from which a run resumes, used in turn, since AReaL overwrites its state in place
  (utils/recover.py, dump): a kill during a write loses the steps since the other one;
- the model of the last step as a Hugging Face directory that appears when it is complete;
- a time limit for the start, because AReaL waits forever for a worker that died (infra/scheduler/local.py,
  _configure_worker).

Source: AReaL 1.0.4.
"""
# mypy: ignore-errors

import faulthandler
import json
import os
import random
import shutil
import sys
import threading
import time
from pathlib import Path

from areal import PPOTrainer
from areal.api import SaveLoadMeta
from areal.api.cli_args import GRPOConfig, load_expr_config
from areal.utils import network

WORKFLOW = "grpoflow_areal.workflow.Workflow"
STATE = "state.json"
"""File in the checkpoints' directory that names the complete state: {"slot": NAME, "step": N}."""
SLOTS = ("a", "b")


class Rows:
    """The rows of all steps: epochs over the training data, each in another order."""

    def __init__(self, task):
        with open(task["data"], encoding="utf-8") as file:
            self._rows = [json.loads(line) for line in file]
        self._order = []
        for epoch in range(-(-task["steps"] * task["prompts_per_step"] // len(self._rows))):
            order = list(range(len(self._rows)))
            random.Random(f"{task['seed']} {epoch}").shuffle(order)  # noqa: S311
            self._order += order
        del self._order[task["steps"] * task["prompts_per_step"] :]

    def __len__(self):
        return len(self._order)

    def __getitem__(self, index):
        return self._rows[self._order[index]]


def read_state(checkpoints):
    """Return slot and step of the complete state; None without one."""
    file = Path(checkpoints) / STATE
    if not file.is_file():
        return None
    state = json.loads(file.read_text(encoding="utf-8"))
    return state["slot"], state["step"]


def write_state(checkpoints, slot, step):
    """Name the complete state, by one rename."""
    file = Path(checkpoints) / STATE
    new = file.with_suffix(".new")
    new.write_text(json.dumps({"slot": slot, "step": step}), encoding="utf-8")
    new.replace(file)


def alternate(handler, checkpoints, slot):
    """Let a RecoverHandler write the places of the state in turn; `slot` is the one to write next."""
    dump, following = handler.dump, {SLOTS[0]: SLOTS[1], SLOTS[1]: SLOTS[0]}

    def dump_and_name(engine, step_info, *args, **named):
        nonlocal slot
        handler.config.fileroot = str(Path(checkpoints) / slot)
        before = handler.last_step_info
        dump(engine, step_info, *args, **named)
        if handler.last_step_info is not before:  # it was time for a state
            write_state(checkpoints, slot, step_info.global_step + 1)
            slot = following[slot]

    handler.dump = dump_and_name


def log_metrics(logger, file):
    """Write what AReaL logs of each step as a JSON line, too."""
    commit = logger.commit

    def commit_and_write(epoch, step, global_step, data):
        commit(epoch, step, global_step, data)
        values = {name: float(value) for name, value in data.items()}
        with open(file, "a", encoding="utf-8") as out:
            out.write(json.dumps({"step": global_step + 1, "data": values}) + "\n")

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


def main(argv):
    """Train, and save the model."""
    task = json.loads(Path(argv[0]).read_text(encoding="utf-8"))
    network.random = (
        random.SystemRandom()
    )  # AReaL seeds `random`: runs with one seed would take the same ports
    os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])  # python3
    shutil.rmtree(task["names"], ignore_errors=True)  # addresses of an earlier attempt's servers
    config, _ = load_expr_config(argv[1:], GRPOConfig)
    config.gconfig.stop_token_ids = task["end_ids"]
    checkpoints, state = task["checkpoints"], read_state(task["checkpoints"])
    Path(checkpoints).mkdir(parents=True, exist_ok=True)
    slot = state[0] if state else SLOTS[0]
    config.recover.fileroot = str(Path(checkpoints) / slot)
    if state is None:
        shutil.rmtree(config.recover.fileroot, ignore_errors=True)
    ready = threading.Event()
    threading.Thread(target=end_unless, args=(ready, task["start_timeout_s"]), daemon=True).start()
    began = time.monotonic()
    with PPOTrainer(config, train_dataset=Rows(task), valid_dataset=None) as trainer:
        ready.set()
        print(f"ready after {time.monotonic() - began:.0f} s", flush=True)
        after = SLOTS[1 - SLOTS.index(slot)] if state else slot
        alternate(trainer.recover_handler, checkpoints, after)
        logs = os.environ.get("GRPOFLOW_LOG_DIR", task["root"])
        log_metrics(trainer.stats_logger, Path(logs) / f"{task['metrics']}.jsonl")
        trainer.train(
            workflow=WORKFLOW,
            workflow_kwargs={"task": argv[0], "gconfig": config.gconfig, "tokenizer": config.tokenizer_path},
        )
        save(trainer, task["final"])


if __name__ == "__main__":
    main(sys.argv[1:])
