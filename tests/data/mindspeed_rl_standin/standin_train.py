"""cli/train_grpo.py: real Ray, an actor for each NPU, no mathematics."""

import datetime
import os
import sys
import time
from pathlib import Path

import hydra
import numpy as np
import ray
import yaml
from omegaconf import OmegaConf
from standin_config import require, sections, verifiers
from standin_weights import MODEL, OPTIMIZER, TRACKER, Parts, latest, read, write


def start(home):
    @hydra.main(config_path=str(home / "configs"), config_name="train", version_base=None)
    def run(config):
        drive(OmegaConf.to_container(config, resolve=True), home)

    run()


def drive(config, home):
    """Join Ray and hand the complete configuration to one task, as the real driver does."""
    require("RAY_ADDRESS" in os.environ, "RAY_ADDRESS is not set: this would start a Ray of its own")
    environment = yaml.safe_load(Path(config["rl_config"]["runtime_env_path"]).read_text())
    require("RANK" in environment["env_vars"], "the scheduler of MindSpore's workers reads RANK")
    variables = {name: value for name, value in os.environ.items() if name.startswith("STANDIN")}
    environment["env_vars"] |= {**variables, "PYTHONPATH": str(home.parent)}
    ray.init(runtime_env=environment)
    ray.get(ray.remote(train).remote(*sections(config, home), verifiers(home)))


def say(text, iteration=None, steps=None):
    stamp = str(datetime.datetime.now(tz=datetime.timezone.utc)).split(".")[0]
    middle = "INFO " if iteration is None else f"iteration: {iteration} / {steps} | "
    print(f"{stamp},000 - INFO - [{stamp}] {middle}{text}", file=sys.stderr, flush=True)


def train(actor, options, verifiers):
    require(Path(actor.tokenizer_name_or_path, "tokenizer_config.json").is_file(), "there is no tokenizer")
    for key in ("input_ids", "attention_mask", *actor.dataset_additional_keys):
        require(Path(f"{actor.data_path}_packed_{key}_document.idx").is_file(), f"no column {key}")
    npus = options.actor_resource["num_npus"]
    card = Worker.options(num_cpus=options.num_cpus_for_placement_group, resources={"NPU": 1})
    workers = [card.remote(actor, rank, npus, options) for rank in range(npus)]
    iteration = max(ray.get([worker.load.remote() for worker in workers]))
    say(f"sync start grpo training at iteration: {iteration}/{actor.train_iters} ...")
    while iteration < actor.train_iters:
        divergence = ray.get([worker.step.remote(iteration + 1) for worker in workers])
        iteration += 1
        say(figures(iteration, divergence, options, verifiers), iteration, actor.train_iters)
        if iteration % actor.save_interval == 0:
            ray.get([worker.save.remote(iteration) for worker in workers])
            (Path(actor.save) / TRACKER).write_text(str(iteration))
    say("after grpo training is done")


def figures(iteration, divergence, options, verifiers):
    reward = iteration / 8
    values = {"timing/all": 1.0, "timing/update": 0.25, "timing/rollout": 0.5, "actor/entropy": 1.0}
    values |= {"actor/kl_loss": float(np.mean(divergence)) / 1000, "actor/pg_loss": 1 / iteration}
    for name in options.verifier_function:
        if name in verifiers:  # an unknown one is passed over without a word
            values[f"grpo/{name}_rewards/mean"] = reward
    values |= {"grad_norm": 0.5, "grpo/lr": 1e-6}
    values |= {"grpo/score/mean": reward, "grpo/score/max": 1.0, "grpo/score/min": 0.0}
    values |= {f"grpo/rewards/{key}": values[f"grpo/score/{key}"] for key in ("mean", "max", "min")}
    values |= {"response_length/mean": 20.5, "response_length/max": 28.0, "response_length/min": 3.0}
    values |= {"prompt_length/mean": 12.0, "prompt_length/max": 14.0, "prompt_length/min": 10.0}
    values |= {"e2e_tps": 250.0, "update_tps": 900.0, "vllm_tps": 500.0}
    return "".join(
        f"{key} : {format(value, 'e' if 'lr' in key else '.4f')} | " for key, value in values.items()
    )[:-2]


@ray.remote
class Worker:
    """The program of one NPU."""

    def __init__(self, network, rank, world, options):
        self.network, self.rank, self.options = network, rank, options
        tensor, pipeline = network.tensor_model_parallel_size, network.pipeline_model_parallel_size
        parts = Parts(network.num_layers, tensor, pipeline, network.num_layer_list)
        stage, remainder = divmod(rank, world // pipeline)
        self.part = parts.name(remainder % tensor, stage)
        self.saves = remainder // tensor == 0

    def load(self):
        network = self.network
        directory, iteration = latest(network.load)
        self.weights = read(directory / self.part / MODEL)
        if not network.finetune:
            require(not network.no_load_rng, "to go on needs the random state: no_load_rng=false")
            if not network.no_load_optim:
                read(directory / self.part / OPTIMIZER)
        original = (self.options.integrated_mode_config or {}).get("ref_model_load_path")
        rule = "no ref_model_load_path: the reference would be the trained policy"
        require(network.finetune or original, rule)
        self.reference = read(latest(original or network.load)[0] / self.part / MODEL)
        return 0 if network.finetune else iteration

    def step(self, iteration):
        if os.environ.get("STANDIN") == f"die@{iteration}:{self.rank}":
            raise RuntimeError(f"EL0004: out of memory, said worker {self.rank}")
        self.weights = {name: value + 1 for name, value in self.weights.items()}
        time.sleep(0.05)
        return float(np.mean([np.mean(self.weights[n] - self.reference[n]) for n in self.weights]))

    def save(self, iteration):
        if self.saves:
            folder = Path(self.network.save) / f"iter_{iteration:07d}" / self.part
            write(folder / MODEL, self.weights)
            if not self.network.no_save_optim:
                write(folder / OPTIMIZER, {f"adam_m.{name}": value for name, value in self.weights.items()})
