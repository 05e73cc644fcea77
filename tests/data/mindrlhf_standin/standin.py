"""What both versions share; see README.md. Needs numpy, pyyaml and safetensors only."""

import json
import os
import sqlite3
import time
from pathlib import Path

import numpy as np
import yaml
from safetensors.numpy import load_file, save_file

PREFIX = "grpo_model_train.policy_model.model."
MONITORED = ("old_log_ratio", "kl_loss", "actor_loss", "clipfrac")
"""Scalars that CausalLMHybrid of the newer version holds, and saves with the weights."""
STEP = 2.0**-10
"""What each step adds to every weight."""
RENAMED = (
    ("model.embed_tokens.weight", "model.tok_embeddings.embedding_weight"),
    ("self_attn.q_proj", "attention.wq"), ("self_attn.k_proj", "attention.wk"),
    ("self_attn.v_proj", "attention.wv"), ("self_attn.o_proj", "attention.wo"),
    ("mlp.gate_proj", "feed_forward.w1"), ("mlp.up_proj", "feed_forward.w3"),
    ("mlp.down_proj", "feed_forward.w2"), ("input_layernorm", "attention_norm"),
    ("post_attention_layernorm", "ffn_norm"), ("model.norm.", "model.norm_out."),
)  # fmt: skip


def log(text):
    stamp, directory = time.strftime("%Y-%m-%d %H:%M:%S"), os.environ.get("LOCAL_DEFAULT_PATH", "./output")
    print(f"{stamp},000 - mindformers{directory}/log[{__file__}:1] - INFO - {text}", flush=True)


def shares(full, layers, layout, rank):
    """The slices of full parameters (mindformers' names) that a rank holds."""
    parts, stages = layout["model_parallel"], layout["pipeline_stage"]
    stage = rank // (layout["data_parallel"] * parts)

    def holds(name):
        if ".layers." in name:
            return int(name.split(".")[2]) // (layers // stages) == stage
        return stage == (0 if "tok_embeddings" in name else stages - 1)

    def cut(name, value):
        if "norm" in name:
            return value.copy()
        axis = 1 if name.endswith(("wo.weight", "w2.weight")) else 0
        return np.ascontiguousarray(np.split(value, parts, axis)[rank % parts])

    return {name: cut(name, value) for name, value in full.items() if holds(name)}


def count_rows(file):
    """Rows of a MindRecord file, by its index."""
    database = sqlite3.connect(f"file:{file}.db?mode=ro", uri=True)
    return database.execute("SELECT COUNT(*) FROM INDEXES").fetchone()[0]


def cards_of(degrees):
    return degrees["data_parallel"] * degrees["model_parallel"] * degrees["pipeline_stage"]


def misbehave(step, rank):
    mode, _, position = os.environ.get("STANDIN", "").partition("@")
    at, _, culprit = position.partition(":")
    if not mode or str(step) != at:
        return
    if mode == "hang":
        time.sleep(600)
    if mode == "die" and str(rank) == culprit:
        raise RuntimeError("EL0004: out of memory, said worker " + culprit)
    if mode == "die":
        time.sleep(600)  # waits for the lost worker, as a collective operation would


def await_all(directory, pattern, count):
    """No worker runs ahead, as with collectives."""
    deadline = time.monotonic() + 60
    while len(list(directory.glob(pattern))) < count:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{directory}/{pattern}: a worker is missing")
        time.sleep(0.02)


def run(arguments):
    """Worker or scheduler, as msrun started it."""
    if "STANDIN_MEET" in os.environ:
        from mindspore.communication import get_group_size, get_rank, init

        init()
        if os.environ["MS_ROLE"] == "MS_WORKER":
            log(f"met as rank {get_rank()} of {get_group_size()}")
            os.environ["RANK_ID"] = str(get_rank())
    if os.environ.get("MS_ROLE") == "MS_SCHED":
        return
    if "STANDIN_ONCE" in os.environ and arguments.resume_training:
        os.environ.pop("STANDIN", None)
    config = yaml.safe_load(Path(arguments.config).read_text(encoding="utf-8"))
    Run(arguments, config, int(os.environ["RANK_ID"])).train()


class Run:
    """One worker."""

    def __init__(self, arguments, config, rank):
        self.rank, self.rl, self.actor, self.infer = (
            rank, config["rl_config"], config["actor_config"], config["generate_config"]
        )  # fmt: skip
        self.newer = hasattr(arguments, "model_name")
        self.save = Path(arguments.save_checkpoint_dir)
        self.layout = self.actor["parallel_config"]
        self.cards = cards_of(self.layout)
        for role in ("ref_config", "generate_config"):
            degrees = config[role]["parallel_config"]
            assert cards_of(degrees) == self.cards
        tokenizer = Path(arguments.tokenizer_dir)
        kind = getattr(arguments, "tokenizer_type", None) or arguments.custom_model_name
        files = {"qwen": ("vocab.json", "merges.txt"), "deepseek": ("tokenizer.json",), "llama": ("",)}[kind]
        assert all((tokenizer / name).is_file() for name in files), tokenizer
        model = yaml.safe_load(Path(self.actor["model_config"]).read_text(encoding="utf-8"))
        self.layers = model["model"]["model_config"]["num_layers"]
        batch = self.rl["chunk_size"] * self.infer["parallel_config"]["data_parallel"]
        self.steps = count_rows(arguments.dataset_file) // batch // self.rl["num_rollouts"]
        self.epoch = self.step = 0
        if arguments.resume_training:
            self.reload(Path(arguments.actor_checkpoint_path), Path(arguments.ref_checkpoint_path))
        else:
            self.weights = self.load(Path(arguments.actor_checkpoint_path))
        self.start = (self.epoch, self.step)
        self.barrier = self.save / ".barrier"
        self.barrier.mkdir(parents=True, exist_ok=True)
        for left in self.barrier.glob(f"*-{self.rank}"):  # an earlier attempt's
            left.unlink()

    def load(self, directory):
        """Load this rank's slices of a model directory; write the files that mindrlhf writes."""
        if self.rl["load_ckpt_format"] == "ckpt":
            import mindspore

            (file,) = (directory / f"rank_{self.rank}").glob("*.ckpt")
            return {name: value.asnumpy() for name, value in mindspore.load_checkpoint(str(file)).items()}
        if self.rank == 0:
            (directory / "param_name_map.json").write_text("{}")
        index = directory / "model.safetensors.index.json"
        if self.rl["load_ckpt_format"] == "hf_safetensors":
            files = sorted(set(json.loads(index.read_text())["weight_map"].values()))
        else:
            files = sorted(path.name for path in directory.glob("*.safetensors"))
        full = {}
        for file in files:
            full |= {self.renamed(name): value for name, value in load_file(directory / file).items()}
        return shares(full, self.layers, self.layout, self.rank)

    def renamed(self, name):
        for upstream_name, hf_name in RENAMED:
            name = name.replace(upstream_name, hf_name)
        return name

    def reload(self, train, reference):
        """Resume from the checkpoint that meta.json names, like reload_ckpt."""
        for root in (train, train.parent / "optimizer", reference):
            os.environ["LOCAL_DEFAULT_PATH"] = str(root)  # mindformers then logs to it
            meta = json.loads((root / f"rank_{self.rank}" / "meta.json").read_text())
            loaded = load_file(root / f"rank_{self.rank}" / meta["last_ckpt_file"])
            if root == train:
                self.epoch, self.step = int(loaded.pop("epoch_num")), int(loaded.pop("step_num"))
                self.weights = {name.removeprefix(PREFIX): item for name, item in loaded.items() if item.ndim}

    def train(self):
        samples = self.rl["num_generations"]
        log(f"Start training epoch num:{self.rl['epochs']}, step num:{self.steps}, generation num:{samples}")
        made = 0
        while self.epoch < self.rl["epochs"]:
            while self.step < self.steps:
                if self.step % self.rl["save_ckpt_interval"] == 0 and (self.epoch, self.step) != self.start:
                    self.checkpoint(self.epoch, self.step)
                log(f"epoch: {self.epoch}, step: {self.step} start")
                misbehave(self.epoch * self.steps + self.step, self.rank)
                self.one(made)
                made, self.step = made + 1, self.step + 1
            self.step, self.epoch = 0, self.epoch + 1
        self.checkpoint(self.rl["epochs"], self.steps)
        log("run grpo train end")

    def one(self, made):
        """One step's log lines, and its change of the weights."""
        done = self.epoch * self.steps + self.step + 1
        if self.rank == 0 and self.rl["save_prompt_completions_data"]:
            folder = Path(self.rl["save_prompt_completions_dir"])
            folder.mkdir(exist_ok=True, parents=True)
            file = folder / f"prompt_completions_step_{made}.json"
            while file.exists():
                file = file.with_name(f"{file.stem}-1.json")
            row = {
                "question": "1+1?", "answer": f"\\boxed{{{done}}}", "parsed_answer": str(done),
                "solution": "$2$", "reward": 0.5, "completion_length": 3,
            }  # fmt: skip
            file.write_text(json.dumps([row]))
            log(f"Saved data to {file}")
        metrics = {
            "response_length_mean": 20.5, "response_length_max": 28, "response_length_min": 5,
            "response_length_clip_ratio": 0.25, "prompt_length_mean": 23.5, "prompt_length_max": 25,
            "prompt_length_min": 22, "reward_mean": np.float32(done / 8), "reward_max": np.float32(1.0),
            "reward_min": np.float32(0.0), "advantage_mean": 0.0, "advantage_max": 1.5,
            "advantage_min": -1.5,
        }  # fmt: skip
        if self.newer:
            log(f"Metrics of total step {made}: {metrics}")
        log(f"total step {made} metrics: {metrics}")
        self.weights = {name: value + value.dtype.type(STEP) for name, value in self.weights.items()}
        loss, rate = 1.0 / done + self.rank, 1e-7 * done
        for _ in range(2):
            if self.newer:
                message = f"loss: {loss} | lr: {rate} | is overflow: False | loss scale: 1.0"
                log(f"{message} | grad norm: [{done}.]")
            else:
                log(f" loss: {loss} | lr: [{rate}] | is overflow: False | loss scale: 4096.0")
        log("step processed tokens 1000.0, tokens/s/p 250.0")
        log(f"total processed tokens {1000.0 * (made + 1)}, total tokens/s/p 250.0")
        time.sleep(0.05)

    def checkpoint(self, epoch, step):
        counters = {"epoch_num": np.array(epoch), "step_num": np.array(step)}
        policy = {PREFIX + name: value for name, value in self.weights.items()}
        reference = {f"model.{name}": value for name, value in self.weights.items()}
        parts = {"train": {**policy, **counters}, "optimizer": self.optimizer(policy, epoch, step)}
        if (epoch, step) != (self.rl["epochs"], self.steps):
            parts["ref"] = reference
        if self.newer:
            monitored = {name: np.zeros((), np.float32) for name in MONITORED}
            parts["train"].update({PREFIX.removesuffix("model.") + name: v for name, v in monitored.items()})
            reference.update(monitored)
        names = {"train": "policy_model", "optimizer": "optimizer", "ref": "ref"}
        for part, tensors in parts.items():
            folder = self.save / part / f"rank_{self.rank}"
            folder.mkdir(parents=True, exist_ok=True)
            file = folder / f"{names[part]}_rank_{self.rank}-{epoch}_{step}.safetensors"
            save_file(tensors, file, metadata={"format": "ms"})
            saved = sorted(folder.glob("*.safetensors"), key=lambda path: path.stat().st_mtime_ns)
            for old in saved[: -self.rl["save_max_ckpt_num"]]:
                old.unlink()
            meta = json.dumps({"last_epoch": epoch, "last_step": step, "last_ckpt_file": file.name})
            with os.fdopen(os.open(folder / "meta.json", os.O_WRONLY | os.O_CREAT, 0o600), "w") as stream:
                stream.write(meta)  # not truncated: a longer predecessor's end stays
        (self.barrier / f"{epoch}_{step}-{self.rank}").touch()
        await_all(self.barrier, f"{epoch}_{step}-*", self.cards)

    def optimizer(self, policy, epoch, step):
        """Adam's state: both moments, the weights once more, and the count of updates."""
        updates = np.array([2 * (epoch * self.steps + step)], np.int32)
        moments = {f"adam_{kind}.{name}": value for kind in "mv" for name, value in policy.items()}
        return {**moments, **policy, "global_step": updates}
