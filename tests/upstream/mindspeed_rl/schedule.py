"""Megatron's learning rates of a rendered run: `python schedule.py FILE < REQUEST.json`.

Runs in the engine's interpreter, without grpoflow. The scheduler is Megatron's own, built as
megatron/training/training.py (get_optimizer_param_scheduler) does and stepped as MindSpeed-RL's
base_training_engine.py (update) does.
"""

import importlib.util
import json
import sys
import types
from pathlib import Path


def print_nothing(*args, **options):
    """Stand in for Megatron's log and for its print_rank_0."""


def main(file: Path) -> None:
    """Print the rate of each update as a JSON list; `file` holds Megatron's OptimizerParamScheduler."""
    for name in (
        "megatron",
        "megatron.core",
        "megatron.core.optimizer",
        "megatron.core.utils",
        "megatron.utils",
    ):
        module = sys.modules[name] = types.ModuleType(name)
        module.MegatronOptimizer = object
        module.log_single_rank = module.print_rank_0 = print_nothing
    spec = importlib.util.spec_from_file_location("megatron.scheduling", file)
    scheduling = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(scheduling)
    config = json.load(sys.stdin)
    actor, training, rl = config["actor_config"], config["megatron_training"], config["rl_config"]
    horizon = training["train_iters"] * training["global_batch_size"]
    optimizer = types.SimpleNamespace(param_groups=[{}])
    values = {
        "init_lr": 0.0, "max_lr": actor["lr"], "min_lr": actor["min_lr"],
        "lr_warmup_steps": actor["lr_warmup_fraction"] * horizon, "lr_decay_steps": horizon,
        "lr_decay_style": actor["lr_decay_style"], "start_wd": 0.0, "end_wd": 0.0, "wd_incr_steps": horizon,
        "wd_incr_style": "constant",
    }  # fmt: skip
    scheduler = scheduling.OptimizerParamScheduler(optimizer, **values)
    per_update = rl["mini_batch_size"] * rl["n_samples_per_prompt"]  # config_cls/rl_config.py
    updates = training["global_batch_size"] // rl["mini_batch_size"] * rl["epochs"] * training["train_iters"]
    rates = []
    for _ in range(updates):
        rates.append(optimizer.param_groups[0]["lr"])
        scheduler.step(increment=per_update)
    print(json.dumps(rates))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
