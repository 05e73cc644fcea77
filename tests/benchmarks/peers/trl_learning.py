"""Train with TRL's GRPOTrainer: python trl_learning.py SETTINGS.json RESULT.json, in an environment with TRL.

This project must be on PYTHONPATH for its reward functions, which import only the standard library and
annotated_types. RESULT: {"versions", "checks": [[step, greedy accuracy on the held-out prompts]]}.
"""

import json
import sys
import tempfile

import torch
import transformers
import trl
from datasets import Dataset

from stages.rewards import functions


class Checks(transformers.TrainerCallback):
    """Measurement of the greedy accuracy before the first step and every few steps."""

    def __init__(self, texts, solutions, every, max_tokens, tokenizer):
        self.texts, self.solutions, self.every, self.max_tokens = texts, solutions, every, max_tokens
        self.tokenizer, self.found = tokenizer, []

    def on_train_begin(self, args, state, control, model=None, **_):
        self.check(0, model)

    def on_step_end(self, args, state, control, model=None, **_):
        if state.global_step % self.every == 0:
            self.check(state.global_step, model)

    def check(self, step, model):
        model.eval()
        inputs = self.tokenizer(self.texts, return_tensors="pt", padding=True, padding_side="left")
        with torch.no_grad():
            ids = model.generate(**inputs, do_sample=False, max_new_tokens=self.max_tokens)
        answers = self.tokenizer.batch_decode(
            ids[:, inputs["input_ids"].shape[1] :], skip_special_tokens=True
        )
        right = [functions.accuracy(*pair) for pair in zip(answers, self.solutions, strict=True)]
        self.found.append([step, sum(right) / len(right)])
        model.train()


def main(settings_file, result_file):
    with open(settings_file, encoding="utf-8") as file:
        settings = json.load(file)
    tokenizer = transformers.AutoTokenizer.from_pretrained(settings["model"], padding_side="left")
    train, rollout, retained = settings["train"], settings["rollout"], -settings["held_out"]
    size = train["prompts_per_step"] * rollout["num_generations"]
    with tempfile.TemporaryDirectory() as directory:
        args = trl.GRPOConfig(
            directory,
            seed=settings["seed"],
            per_device_train_batch_size=size,
            num_generations=rollout["num_generations"],
            max_completion_length=rollout["max_tokens"],
            temperature=rollout["temperature"],
            top_p=1.0,
            top_k=0,
            max_steps=train["steps"],
            num_iterations=train["num_iterations"],
            beta=train["beta"],
            epsilon=train["epsilon_low"],
            epsilon_high=train["epsilon_high"],
            loss_type=train["loss_type"],
            scale_rewards="group" if train["scale_advantages"] else "none",
            max_grad_norm=train["max_grad_norm"],
            reward_weights=settings["weights"],
            use_bias_correction_kl=False,
            gradient_checkpointing=False,
            bf16=False,
            use_cpu=True,
            save_strategy="no",
            logging_strategy="no",
            report_to=[],
            disable_tqdm=True,
        )
        model = transformers.AutoModelForCausalLM.from_pretrained(settings["model"], dtype=torch.float32)
        optimizer = torch.optim.AdamW(
            model.parameters(), lr=train["learning_rate"], betas=(train["adam_beta1"], train["adam_beta2"]),
            eps=train["adam_epsilon"], weight_decay=train["weight_decay"],
        )  # fmt: skip
        rates = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: settings["rates"][step])
        checks = Checks(
            settings["texts"][retained:], settings["solutions"][retained:], settings["every"],
            rollout["max_tokens"], tokenizer,
        )  # fmt: skip
        data = {"prompt": settings["texts"][:retained], "solution": settings["solutions"][:retained]}
        trainer = trl.GRPOTrainer(
            model,
            [reward(name) for name in settings["functions"]],
            args,
            Dataset.from_dict(data),
            processing_class=tokenizer,
            optimizers=(optimizer, rates),
            callbacks=[checks],
        )
        trainer.train()
    result = {
        "versions": {item.__name__: item.__version__ for item in (trl, transformers, torch)},
        "checks": checks.found,
    }
    with open(result_file, "w", encoding="utf-8") as file:
        json.dump(result, file)


def reward(name):
    """Return a reward function of grpoflow with the signature that TRL expects."""
    score = functions.ITEM_REWARDS[name]

    def scored(completions, solution, **_):
        return [score(*item) for item in zip(completions, solution, strict=True)]

    scored.__name__ = name
    return scored


if __name__ == "__main__":
    main(*sys.argv[1:])
