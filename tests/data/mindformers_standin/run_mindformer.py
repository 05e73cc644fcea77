"""A stand-in for mindformers' run_mindformer.py; see README.md. Needs pyyaml and safetensors."""

import argparse
import json
import os
import sys
import time
from pathlib import Path

import numpy as np
import yaml
from safetensors.numpy import load_file, save_file

sys.path.insert(0, str(Path(__file__).parents[1] / "mindrlhf_standin"))

from standin import STEP, await_all, count_rows, log, misbehave, shares


def boolean(text):
    return {"true": True, "false": False}[text.lower()]


class Run:
    """One worker."""

    def __init__(self, config, rank):
        self.config, self.rank, self.layout = config, rank, config["parallel_config"]
        self.layers = config["model"]["model_config"]["num_layers"]
        runner = config["runner_config"]
        piped = self.layout["pipeline_stage"] > 1
        micro = self.layout["micro_batch_num"] if piped else runner["gradient_accumulation_steps"]
        self.batch = runner["batch_size"] * self.layout["data_parallel"] * micro
        self.cards = int(os.environ["MS_WORKER_NUM"])
        degrees = ("data_parallel", "model_parallel", "context_parallel", "pipeline_stage")
        if config["use_parallel"]:
            assert np.prod([self.layout[name] for name in degrees]) == self.cards
        data = config["train_dataset"]
        assert data["input_columns"] == ["input_ids", "labels"], data
        self.steps = count_rows(data["data_loader"]["dataset_dir"]) // self.batch
        (self.saver,) = (item for item in config["callbacks"] if item["type"] == "CheckpointMonitor")
        assert self.saver["checkpoint_format"] == config["load_ckpt_format"] == "safetensors"
        self.folder = Path(config["output_dir"]) / "checkpoint" / f"rank_{rank}"
        self.folder.mkdir(parents=True, exist_ok=True)
        self.prefix = f"{self.saver['prefix']}_rank_{rank}"
        if any(self.folder.glob(f"{self.prefix}*")):  # as MindSpore's ModelCheckpoint: another name then
            self.prefix += "_1"
        self.barrier = Path(config["output_dir"]) / "barrier"
        self.barrier.mkdir(exist_ok=True)
        for left in self.barrier.glob(f"*-{rank}"):  # an earlier attempt's
            left.unlink()
        self.step = 0
        self.weights, self.moments = self.load()
        met = f"loaded_{os.environ['MS_SCHED_PORT']}"  # before any saves: all have read all meta.json
        (self.barrier / f"{met}-{rank}").touch()
        await_all(self.barrier, f"{met}-*", self.cards)

    def load(self):
        """load_checkpoint_with_safetensors: which kinds of path go with which settings."""
        path, parallel = Path(self.config["load_checkpoint"]), self.config["use_parallel"]
        ranked = path.parent.name.startswith("rank_") if path.is_file() else any(path.glob("rank_*"))
        if ranked and not parallel:
            raise ValueError("when input checkpoint file is rank dir, Please set use_parallel: True")
        if path.is_file() and parallel:
            raise ValueError("When load checkpoint is a single file and use_parallel is True")
        if not ranked and path.is_dir() and parallel and not self.config["auto_trans_ckpt"]:
            raise ValueError("please set auto_trans_ckpt: True to enable automatic slicing function")
        if ranked:
            assert not self.config["auto_trans_ckpt"]
            folders = [path / f"rank_{rank}" for rank in range(self.cards)]
            metas = [json.loads((folder / "meta.json").read_text()) for folder in folders]
            assert len({(meta["last_epoch"], meta["last_step"]) for meta in metas}) == 1, metas
            path = path / f"rank_{self.rank}" / metas[self.rank]["last_ckpt_file"]
        files = [path] if path.is_file() else sorted(path.glob("*.safetensors"))
        full = {}
        for file in files:
            full |= load_file(file)
        if self.config["resume_training"]:
            self.step = int(full.pop("step_num")[0])
            for name in ("epoch_num", "global_step", "loss_scale"):
                full.pop(name)
            moments = {name: full.pop(name) for name in list(full) if name.startswith("adam_")}
            return full, moments
        weights = shares(full, self.layers, self.layout, self.rank)
        return weights, {f"adam_{kind}.{name}": value for kind in "mv" for name, value in weights.items()}

    def train(self):
        epochs = self.config["runner_config"]["epochs"]
        log(".........Starting Training Model..........")
        total = epochs * self.steps
        if self.step >= total:
            raise ValueError("The argument 'epoch' must be greater than 'initial_epoch'")
        while self.step < total:
            misbehave(self.step, self.rank)
            self.step += 1
            self.weights = {name: value + value.dtype.type(STEP) for name, value in self.weights.items()}
            epoch, step = (self.step - 1) // self.steps + 1, (self.step - 1) % self.steps + 1
            loss = 1 / self.step + self.rank  # with a pipeline only the last worker's counts
            log(
                f"{{ Epoch:[{epoch:3d}/{epochs:3d}], step:[{step:5d}/{self.steps:5d}], loss: {loss:5.3f}, "
                f"per_step_time: 50ms, lr: {1e-6 * self.step}, overflow cond: False, loss_scale: 4096, "
                f"global_norm: [{self.step}.5], train_throughput_per_npu: 1.000T"
            )
            log(f"  {100 * self.step / total:4.1f}% |{'':50s}| 20.00000 samples/s/p  0:00:10 }}")
            time.sleep(0.05)
            if self.step % self.saver["save_checkpoint_steps"] == 0 or self.step == total:
                self.checkpoint()
        log(".........Training Over!.............")

    def checkpoint(self):
        """With sink_size 1 each step is an epoch of MindSpore's, and so it is named."""
        log("......Saving ckpt......")
        file = self.folder / f"{self.prefix}-{self.step}_1.safetensors"
        counters = {**dict.fromkeys(("epoch_num", "step_num", "global_step"), self.step), "loss_scale": 4096}
        numbers = {name: np.array([value], np.int32) for name, value in counters.items()}
        saved = sorted(self.folder.glob("*.safetensors"), key=lambda path: path.stat().st_mtime_ns)
        for old in saved[: max(0, len(saved) + 1 - self.saver["keep_checkpoint_max"])]:
            old.unlink()
        save_file({**self.weights, **self.moments, **numbers}, file)
        meta = {"last_epoch": self.step, "last_step": 1, "last_ckpt_file": file.name}
        temporary = self.folder / "meta.new"
        temporary.write_text(json.dumps(meta))
        temporary.replace(self.folder / "meta.json")
        (self.barrier / f"{self.step}-{self.rank}").touch()
        await_all(self.barrier, f"{self.step}-*", self.cards)


def main():
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--config", required=True)
    parser.add_argument("--run_mode")
    parser.add_argument("--use_parallel", type=boolean)
    parser.add_argument("--load_checkpoint")
    parser.add_argument("--auto_trans_ckpt", type=boolean)
    parser.add_argument("--resume_training", type=boolean)
    parser.add_argument("--train_dataset_dir")
    parser.add_argument("--output_dir")
    parser.add_argument("--seed", type=int)
    arguments = parser.parse_args()
    if os.environ.get("MS_ROLE") == "MS_SCHED":
        return
    config = yaml.safe_load(Path(arguments.config).read_text(encoding="utf-8"))
    passed = vars(arguments)
    config["train_dataset"]["data_loader"]["dataset_dir"] = passed.pop("train_dataset_dir")
    config |= {name: value for name, value in passed.items() if value is not None and name != "config"}
    assert config["run_mode"] in ("train", "finetune"), config["run_mode"]
    Run(config, int(os.environ["RANK_ID"])).train()


if __name__ == "__main__":
    main()
