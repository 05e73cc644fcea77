"""Upstream's own validation of rendered configurations: many at once: `python validate.py < REQUEST.json`.

Runs in the engine's interpreter, with the checkout and on_path on PYTHONPATH, and needs nothing of grpoflow.
Hydra composes each train.yaml as train_grpo.py does; then come its parse_training_config (the configuration
classes and validate_rl_args) and, for every role, its initialize_megatron up to where Megatron's
validate_args, with MindSpeed's features around it, has returned. Per configuration one JSON line on stdout;
what upstream prints goes to stderr.

Two things differ from a run: `ai_framework` is taken off Megatron's part, because the MindSpore back end's
patches need MSAdapter, and the number of Ray's nodes is given. MindSpeed patches Megatron by the arguments
that it meets first, so configurations with other options (not other values) get a process of their own, as
many at a time as there are cores.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
import traceback
from pathlib import Path
from typing import Any

import yaml

ROLES = {"actor": "actor_resource", "ref": "reference_resource", "reward": "reward_resource"}
_ANSWERED = (
    "world_size", "data_parallel_size", "num_layers", "seq_length", "tensor_model_parallel_size",
    "pipeline_model_parallel_size", "context_parallel_size", "padded_vocab_size", "num_query_groups",
    "sequence_parallel", "use_distributed_optimizer", "recompute_granularity",
)  # fmt: skip
"""Megatron's arguments that are reported after validation."""
PATCH_NOTHING = {
    "finetune", "no_load_optim", "no_load_rng",  # of a run that begins, and of one that goes on
    "untie_embeddings_and_output_weights", "clip_grad", "lr_warmup_fraction",
}  # fmt: skip
"""Options that neither MindSpeed's features nor its older adaptor ask for when they patch (both windows)."""
LONGEST = 2000
"""Characters of an error: a line must fit a pipe's buffer, as several processes write."""


class Validated(Exception):
    """Megatron has accepted the arguments that it carries."""


def main(home: Path, directories: list[str], nodes: int) -> None:
    """Validate the train.yaml of every directory."""
    answers = os.dup(1)
    os.dup2(2, 1)
    program = _load(home / "cli" / "train_grpo.py")
    validators: Any = sys.modules["mindspeed_rl.config_cls.validate_config"]
    if hasattr(validators, "get_node_nums"):
        validators.get_node_nums = lambda: nodes
    groups: dict[tuple[str, ...], list[str]] = {}
    for directory in directories:
        groups.setdefault(_options(Path(directory)), []).append(directory)
    waiting = list(groups.values())
    running: dict[int, list[str]] = {}
    while waiting or running:
        while waiting and len(running) < (os.cpu_count() or 1):
            group = waiting.pop()
            running[_start(program, group, answers)] = group
        child, status = os.wait()
        for directory in running.pop(child):
            if status:
                _report(answers, directory, error=f"the process ended with status {status}")


def _load(file: Path) -> Any:
    spec = importlib.util.spec_from_file_location("train_grpo", file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["train_grpo"] = module
    spec.loader.exec_module(module)
    return module


def _compose(directory: str) -> Any:
    hydra = importlib.import_module("hydra")
    with hydra.initialize_config_dir(directory, version_base=None):
        return hydra.compose("train")


def _require_known(config: Any, parsed: Any) -> None:
    """Refuse unknown keys, for which the older version's base_config.py only prints a warning."""
    shape = config["model"][config["megatron_training"]["model"]]
    sections = {"actor_config": {**shape, **config["megatron_training"], **config["actor_config"]}}
    sections |= {name: dict(config[name]) for name in ("rl_config", "generate_config")}
    unknown = [
        f"{section}.{key}"
        for section, keys in sections.items()
        for key in keys
        if key != "model" and not hasattr(parsed[section], str(key).replace("-", "_"))
    ]
    if unknown:
        raise ValueError(f"unknown keys, which this version skips with a warning: {', '.join(unknown)}")


def _options(directory: Path) -> tuple[str, ...]:
    """Return MindSpeed's options for choosing patches, read from the file alone."""
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    text = (directory / "train.yaml").read_text(encoding="utf-8")
    values = yaml.load(text, loader)  # noqa: S506 (both are safe)
    options = {**values["megatron_training"], **values["actor_config"]}
    options |= values["model"][options["model"]]
    chosen = {name for name, value in options.items() if value not in (None, False)}
    return tuple(sorted(chosen - PATCH_NOTHING))


def _start(program: Any, group: list[str], answers: int) -> int:
    """Start a process that validates a group; return its id."""
    sys.stdout.flush()
    if child := os.fork():
        return child
    code = 1
    try:
        for directory in group:
            answer: dict[str, Any]
            try:
                answer = {"roles": _validate(program, directory)}
            except BaseException:  # argparse ends in SystemExit
                answer = {"error": traceback.format_exc()[-LONGEST:]}
            _report(answers, directory, **answer)
        code = 0
    finally:
        sys.stdout.flush()
        os._exit(code)


def _validate(program: Any, directory: str) -> dict[str, Any]:
    config = _compose(directory)
    parsed = program.parse_training_config(config)
    _require_known(config, parsed)
    roles = {}
    for role, resource in ROLES.items():
        megatron, cards = parsed[f"{role}_config"], getattr(parsed["rl_config"], resource)
        if cards is not None and (role == "actor" or megatron is not parsed["actor_config"]):
            roles[role] = _initialize(program, megatron, cards.num_npus)
    return roles


def _initialize(program: Any, config: Any, cards: int) -> dict[str, Any]:
    """initialize_megatron's beginning, in the first worker."""
    os.environ.update(RANK="0", WORLD_SIZE=str(cards), LOCAL_RANK="0", LOCAL_WORLD_SIZE=str(cards))
    os.environ.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", "1")
    config.ai_framework = None
    arguments = sys.argv
    try:
        _stop_after_validation()
        program.initialize_megatron(config=config)
    except Validated as done:
        (accepted,) = done.args
        return {name: getattr(accepted, name, None) for name in _ANSWERED}
    finally:
        sys.argv = arguments
    raise AssertionError("initialize_megatron went on without set_global_variables")


def _stop_after_validation() -> None:
    """Megatron keeps its arguments next, in a function that initialize_megatron looks up there."""

    def stop(accepted: Any, *remaining: Any, **options: Any) -> None:
        raise Validated(accepted)

    def patch(module: Any) -> None:
        module.set_global_variables = stop

    name = "megatron.training.global_vars"
    if name in sys.modules:
        patch(sys.modules[name])
    else:
        _when_imported(name, patch)


def _when_imported(name: str, patch: Any) -> None:
    """Megatron must be imported by upstream itself: MindSpeed patches come first."""

    class Finder:
        def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> Any:
            if fullname != name:
                return None
            sys.meta_path.remove(self)
            spec = importlib.util.find_spec(fullname)
            assert spec is not None and spec.loader is not None
            execute = spec.loader.exec_module

            def execute_and_patch(module: Any) -> None:
                execute(module)
                patch(module)

            spec.loader.exec_module = execute_and_patch  # type: ignore[method-assign]
            return spec

    sys.meta_path.insert(0, Finder())


def _report(answers: int, directory: str, **answer: Any) -> None:
    line = json.dumps({"directory": directory, **answer}, ensure_ascii=False) + "\n"
    os.write(answers, line.encode())


if __name__ == "__main__":
    sys.path.pop(0)  # this directory, whose modules are none of upstream's
    request = json.load(sys.stdin)
    main(Path(request["home"]), request["directories"], request["nodes"])
