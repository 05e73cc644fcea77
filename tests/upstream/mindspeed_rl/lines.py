"""Single lines of upstream, run by themselves: `python lines.py HOME < REQUEST.json`; the last line answers.

Runs in the engine's interpreter with replacements for an NPU on PYTHONPATH, and needs nothing of grpoflow.
Modules are imported without the packages around them, which need Megatron.
"""

from __future__ import annotations

import json
import sys
from importlib import import_module
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any


def import_isolated(home: Path) -> None:
    """Import packages without their __init__."""
    for name in (f"mindspeed_rl{end}" for end in ("", ".datasets", ".utils")):
        module = sys.modules[name] = ModuleType(name)
        module.__path__ = [str(home.joinpath(*name.split(".")))]
        module.__spec__ = ModuleSpec(name, None, is_package=True)


def retained_rows(prefix: str, limit: int) -> list[dict[str, int]]:
    """Lengths of the rows that training reads."""
    read: Any = import_module("mindspeed_rl.datasets.indexed_dataset").get_packed_indexed_dataset
    result = read(prefix, limit)
    return [{name: len(row) for name, row in result[number].items()} for number in range(len(result))]


def encode(home: Path, tokenizer: str, name: str, questions: list[str]) -> list[list[int]]:
    """Prompts in a template of the checkout, as R1AlpacaStyleInstructionHandler makes them."""
    path = str(home / "configs/model/templates.json")
    tools: Any = import_module("mindspeed_rl.utils.tokenizer")
    templates: Any = import_module("mindspeed_rl.datasets.templates")
    chosen = tools.get_tokenizer(tokenizer, prompt_type=name, prompt_type_path=path).tokenizer
    template, prompts = templates.get_model_template(name, path), []
    for question in questions:
        message = [{"role": "user", "content": question}, {"role": "assistant", "content": "4"}]
        ((source, _),) = template.encode_multiturn(chosen, message, "", "")
        prompts.append(source)
    return prompts


def line(values: dict[str, float], iteration: int, steps: int) -> str:
    """Return the log line of an iteration."""
    loggers: Any = import_module("mindspeed_rl.utils.loggers")
    return str(loggers.Loggers("line").handle_msg(values, "INFO", iteration, steps))


def rates(file: str, config: dict[str, Any]) -> list[float]:
    """Return the learning rate of each update of a rendered run.

    The scheduler is Megatron's own, built as megatron/training/training.py (get_optimizer_param_scheduler)
    does and stepped as MindSpeed-RL's base_training_engine.py (update) does.
    """
    for end in ("", ".core", ".core.optimizer", ".core.utils", ".utils"):
        module: Any = ModuleType(f"megatron{end}")
        sys.modules[module.__name__] = module
        module.MegatronOptimizer = object
        module.log_single_rank = module.print_rank_0 = print_nothing
    scheduling = SourceFileLoader("megatron.scheduling", file).load_module()
    actor, training, rl = config["actor_config"], config["megatron_training"], config["rl_config"]
    horizon = training["train_iters"] * training["global_batch_size"]
    optimizer = SimpleNamespace(param_groups=[{}])
    values = {
        "init_lr": 0.0, "max_lr": actor["lr"], "min_lr": actor["min_lr"],
        "lr_warmup_steps": actor["lr_warmup_fraction"] * horizon, "lr_decay_steps": horizon,
        "lr_decay_style": actor["lr_decay_style"], "start_wd": 0.0, "end_wd": 0.0, "wd_incr_steps": horizon,
        "wd_incr_style": "constant",
    }  # fmt: skip
    scheduler = scheduling.OptimizerParamScheduler(optimizer, **values)
    per_update = rl["mini_batch_size"] * rl["n_samples_per_prompt"]  # config_cls/rl_config.py
    updates = training["global_batch_size"] // rl["mini_batch_size"] * rl["epochs"] * training["train_iters"]
    result = []
    for _ in range(updates):
        result.append(optimizer.param_groups[0]["lr"])
        scheduler.step(increment=per_update)
    return result


def print_nothing(*args: Any, **options: Any) -> None:
    """Stand in for Megatron's log and for its print_rank_0."""


def main(home: Path, request: dict[str, Any]) -> dict[str, Any]:
    """Answers by the request's names."""
    import_isolated(home)
    return {
        "kept": retained_rows(**request["kept"]),
        "prompts": {name: encode(home, name=name, **request["encode"]) for name in request["templates"]},
        "line": line(**request["line"]),
        "rates": {name: rates(request["scheduler"], config) for name, config in request["rates"].items()},
    }


if __name__ == "__main__":
    print("\n" + json.dumps(main(Path(sys.argv[1]), json.load(sys.stdin))))
