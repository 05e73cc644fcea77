"""Which groups verl's own replay buffer gives to an update; runs in verl's interpreter.

The trainer makes the buffer from a rendered configuration; a dict stands for the store of completions.
Request on stdin: configs (directory of a rendered configuration), name, and cases, each with changes (values
that replace rendered ones, by key), groups, further (groups that answer requests for more), step and batch. A
group is [step of its weights, rewards]. The answer of each case: chosen and evicted groups by number, how
many were asked for, and verl's metrics; or the error.
"""

import json
import sys

import torch
from omegaconf import OmegaConf, open_dict
from turns import compose_rendered
from verl.trainer.ppo.v1 import replay_buffer
from verl.trainer.ppo.v1.trainer_separate_async import PPOTrainerSeparateAsync
from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync

TRAINERS = {"sync": PPOTrainerSync, "separate_async": PPOTrainerSeparateAsync}
PARTITION = "train"


class Store:
    """What the buffer asks the transfer queue for."""

    def __init__(self):
        self.tags, self.rewards, self.cleared, self.count = {}, {}, [], 0

    def add(self, groups):
        for step, rewards in groups:
            prompt = f"group{self.count}"
            self.count += 1
            self.tags[prompt] = {"is_prompt": True, "status": "finished", "global_steps": step}
            for position, reward in enumerate(rewards):
                key = f"{prompt}_{position}_0"
                self.tags[key], self.rewards[key] = {"global_steps": step}, reward

    def kv_list(self, partition_id=None):
        return {PARTITION: {key: dict(tag) for key, tag in self.tags.items()}}

    def kv_clear(self, partition_id, keys):
        self.cleared += [key for key in keys if key in self.tags]
        for key in keys:
            self.tags.pop(key, None)

    def kv_batch_get(self, keys, partition_id, select_fields):
        (field,) = select_fields
        if field == "rm_scores":  # of each token; the reward is that of the last one
            return {field: [torch.tensor([0.0, self.rewards[key]]) for key in keys]}
        return {field: [{"reward_extra_info": {}} for _ in keys]}  # reward_manager.py, run_single


def number(key):
    return int(key.split("_")[0].removeprefix("group"))


def play(config, case):
    config = config.copy()
    with open_dict(config):
        for key, value in case["changes"].items():
            OmegaConf.update(config, key, value)
    store, further, asked = Store(), list(case["further"]), []
    store.add(case["groups"])
    replay_buffer.tq = store

    def refill(count):
        asked.append(count)
        given = further[:count]
        del further[:count]
        if len(given) < count:
            raise EOFError("no further groups")
        store.add(given)

    mode = config.trainer.v1.trainer_mode
    trainer = TRAINERS[mode].__new__(TRAINERS[mode])
    trainer.config, trainer.trainer_mode, trainer._add_prompts_to_generate = config, mode, refill
    try:
        buffer = trainer._build_replay_buffer()
        buffer.poll_interval = 0
        batch, metrics = buffer.sample(
            global_steps=case["step"], partition_id=PARTITION, batch_size=case["batch"]
        )
    except (EOFError, RuntimeError, ValueError) as error:
        return {"error": str(error)}
    chosen = sorted({number(key) for key in batch.keys})
    prompts = {number(key) for key in store.cleared if "_" not in key}
    counts = {key: value for key, value in metrics.items() if not isinstance(value, dict)}
    return {"chosen": chosen, "evicted": sorted(prompts - {*chosen}), "asked": sum(asked), "metrics": counts}


if __name__ == "__main__":
    request = json.load(sys.stdin)
    config = compose_rendered(request["configs"], request["name"])
    print(json.dumps([play(config, case) for case in request["cases"]]))
