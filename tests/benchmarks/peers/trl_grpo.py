"""Train with TRL's GRPOTrainer: python trl_grpo.py SETTINGS.json RESULT.json, in an environment with TRL.

This project must be on PYTHONPATH for its reward functions, which import only the standard library and
annotated_types. SETTINGS: "model", "texts", "arguments" of GRPOConfig, and, to measure what is learned,
"solutions", "held_out", "every", "functions", "rates" and "train". RESULT: {"versions", "steps": [{"step_s",
"rollout_s"}], "lengths": mean lengths of completions, "peak_memory_gib", "checks": [[step, greedy accuracy on
the held-out prompts]]}.
"""

import json
import resource
import sys
import tempfile
import time

import torch
import transformers
import trl
from datasets import Dataset

FIXED = {
    "use_bias_correction_kl": False, "gradient_checkpointing": False, "bf16": False, "use_cpu": True,
    "save_strategy": "no", "logging_strategy": "no", "report_to": [], "disable_tqdm": True,
}  # fmt: skip


class Timed(trl.GRPOTrainer):
    """Trainer that measures the seconds of each step and of its generation."""

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.steps, self.lengths, self.rollout_s, self.began = [], [], 0.0, None

    def _generate_single_turn(self, *arguments, **options):
        began = time.perf_counter()
        result = super()._generate_single_turn(*arguments, **options)
        self.rollout_s += time.perf_counter() - began
        return result

    def training_step(self, *arguments, **options):
        self.began = self.began or time.perf_counter()  # a step is one call for each micro-batch
        return super().training_step(*arguments, **options)


class Steps(transformers.TrainerCallback):
    """Callback that ends the measurement of a step after the optimizer's update."""

    trainer = None

    def on_step_end(self, *_, **__):
        trainer = self.trainer
        step_s = time.perf_counter() - trainer.began
        trainer.steps.append({"step_s": step_s, "rollout_s": trainer.rollout_s})
        trainer.rollout_s, trainer.began = 0.0, None
        # here, since TRL empties its metrics when it logs them, at the end at the latest
        trainer.lengths.append(trainer._metrics["train"]["completions/mean_length"][-1])


class Checks(transformers.TrainerCallback):
    """Measurement of the greedy accuracy before the first step and every few steps."""

    def __init__(self, settings, tokenizer):
        self.texts, self.solutions = (
            settings[key][-settings["held_out"] :] for key in ("texts", "solutions")
        )
        self.every, self.max_tokens = settings["every"], settings["arguments"]["max_completion_length"]
        self.tokenizer, self.found = tokenizer, []

    def on_train_begin(self, args, state, control, model=None, **_):
        self.check(0, model)

    def on_step_end(self, args, state, control, model=None, **_):
        if state.global_step % self.every == 0:
            self.check(state.global_step, model)

    def check(self, step, model):
        from stages.rewards import functions

        model.eval()
        inputs = self.tokenizer(self.texts, return_tensors="pt", padding=True, padding_side="left")
        with torch.no_grad():
            ids = model.generate(**inputs, do_sample=False, max_new_tokens=self.max_tokens)
        answers = self.tokenizer.batch_decode(
            ids[:, inputs["input_ids"].shape[1] :], skip_special_tokens=True
        )
        right = [functions.number(*pair) for pair in zip(answers, self.solutions, strict=True)]
        self.found.append([step, sum(right) / len(right)])
        model.train()


def main(settings_file, result_file):
    with open(settings_file, encoding="utf-8") as file:
        settings = json.load(file)
    tokenizer = transformers.AutoTokenizer.from_pretrained(settings["model"], padding_side="left")
    model = transformers.AutoModelForCausalLM.from_pretrained(settings["model"], dtype=torch.float32)
    data, rewards, optimizers, checks = {"prompt": settings["texts"]}, [count_ones], (None, None), []
    if "held_out" in settings:
        kept = slice(-settings["held_out"])
        data = {"prompt": settings["texts"][kept], "solution": settings["solutions"][kept]}
        rewards, checks = [reward(name) for name in settings["functions"]], [Checks(settings, tokenizer)]
        optimizers = optimizer_of(model, settings["train"], settings["rates"])
    timing = Steps()
    with tempfile.TemporaryDirectory() as directory:
        args = trl.GRPOConfig(directory, **{**FIXED, **settings["arguments"]})
        trainer = timing.trainer = Timed(
            model, rewards, args, Dataset.from_dict(data), processing_class=tokenizer,
            optimizers=optimizers, callbacks=[*checks, timing],
        )  # fmt: skip
        trainer.train()
    minimum = (args.generation_kwargs or {}).get("min_new_tokens", 0)
    lengths = trainer.lengths
    assert lengths and all(length >= minimum for length in lengths), lengths
    result = {
        "versions": {item.__name__: item.__version__ for item in (trl, transformers, torch)},
        "steps": trainer.steps,
        "lengths": lengths,
        "peak_memory_gib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
        "checks": [row for check in checks for row in check.found],
    }
    with open(result_file, "w", encoding="utf-8") as file:
        json.dump(result, file)


def optimizer_of(model, train, rates):
    """Return AdamW with grpoflow's settings, and the learning rate of each step."""
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=train["learning_rate"], betas=(train["adam_beta1"], train["adam_beta2"]),
        eps=train["adam_epsilon"], weight_decay=train["weight_decay"],
    )  # fmt: skip
    return optimizer, torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: rates[step])


def count_ones(completions, **_):
    """Return rewards that differ between completions."""
    return [completion.count("1") / 10 for completion in completions]


def reward(name):
    """Return a reward function of grpoflow with the signature that TRL expects."""
    from stages.rewards import functions

    score = functions.ITEM_REWARDS[name]

    def scored(completions, solution, **_):
        return [score(*item) for item in zip(completions, solution, strict=True)]

    scored.__name__ = name
    return scored


if __name__ == "__main__":
    main(*sys.argv[1:])
