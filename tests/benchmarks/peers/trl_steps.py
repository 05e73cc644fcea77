"""Time steps of TRL's GRPOTrainer: python trl_steps.py SETTINGS.json RESULT.json, in an environment with TRL.

Imports nothing of this project. RESULT: {"versions", "steps": [{"step_s", "rollout_s"}], "peak_memory_gib"}.
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


class Timed(trl.GRPOTrainer):
    """Trainer that measures the seconds of each step and of its generation."""

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.steps, self.rollout_s, self.began = [], 0.0, None

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


def main(settings_file, result_file):
    with open(settings_file, encoding="utf-8") as file:
        settings = json.load(file)
    tokenizer = transformers.AutoTokenizer.from_pretrained(settings["model"], padding_side="left")
    P, G, T = settings["prompts"], settings["generations"], settings["tokens"]
    config = settings["train"]
    with tempfile.TemporaryDirectory() as directory:
        args = trl.GRPOConfig(
            directory,
            per_device_train_batch_size=P * G // settings["micro_batches"],
            gradient_accumulation_steps=settings["micro_batches"],
            num_generations=G,
            max_completion_length=T,
            generation_kwargs={"min_new_tokens": T},
            max_steps=settings["steps"],
            temperature=1.0,
            beta=config["beta"],
            loss_type=config["loss_type"],
            learning_rate=config["learning_rate"],
            adam_beta1=config["adam_beta1"],
            adam_beta2=config["adam_beta2"],
            max_grad_norm=config["max_grad_norm"],
            use_bias_correction_kl=False,
            gradient_checkpointing=False,
            bf16=False,
            use_cpu=True,
            save_strategy="no",
            logging_strategy="no",
            report_to=[],
            disable_tqdm=True,
            model_init_kwargs={"dtype": "float32"},
        )
        data = Dataset.from_dict({"prompt": settings["texts"]})
        callback = Steps()
        trainer = Timed(
            settings["model"], reward, args, data, processing_class=tokenizer, callbacks=[callback]
        )
        callback.trainer = trainer
        trainer.train()
    lengths = trainer._metrics["train"]["completions/mean_length"]
    assert all(length == T for length in lengths), lengths
    result = {
        "versions": {item.__name__: item.__version__ for item in (trl, transformers, torch)},
        "steps": trainer.steps,
        "peak_memory_gib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
    }
    with open(result_file, "w", encoding="utf-8") as file:
        json.dump(result, file)


def reward(completions, **_):
    """Return rewards that differ between completions."""
    return [completion.count("1") / 10 for completion in completions]


if __name__ == "__main__":
    main(*sys.argv[1:])
