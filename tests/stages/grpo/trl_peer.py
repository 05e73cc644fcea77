"""TRL's GRPOTrainer on one given batch: python trl_peer.py BATCH.npz RESULT.npz, in an environment with TRL.

BATCH holds weight/NAME (Hugging Face names), prompt, length, completion, mask, old, reference, advantage
and `settings` (JSON: the model's shape, temperature, and one entry per case). RESULT holds CASE/loss,
CASE/gradient/NAME and `made_by`. Imports nothing of this project, so that any environment will do.
"""

import json
import sys
import tempfile

import numpy as np
import tokenizers
import torch
import transformers
import trl
from datasets import Dataset


def main(batch_file, result_file):
    batch = dict(np.load(batch_file))
    settings = json.loads(str(batch["settings"]))
    result = {
        "made_by": ", ".join(f"{item.__name__} {item.__version__}" for item in (trl, transformers, torch))
    }
    for name, case in settings["cases"].items():
        trainer = build(batch, settings, case)
        loss = trainer._compute_loss(trainer.model, inputs(batch, case))
        trainer.model.zero_grad()
        loss.backward()
        result[f"{name}/loss"] = loss.detach().numpy()
        for parameter, value in trainer.model.named_parameters():
            result[f"{name}/gradient/{parameter}"] = value.grad.numpy().copy()
    np.savez_compressed(result_file, **result)


def build(batch, settings, case):
    config = transformers.AutoConfig.for_model(**settings["model"], attn_implementation="eager")
    model = transformers.AutoModelForCausalLM.from_config(config).float()
    state = {name[7:]: torch.from_numpy(array) for name, array in batch.items() if name.startswith("weight/")}
    missing, unexpected = model.load_state_dict(state, strict=False)
    assert not unexpected and set(missing) <= {"lm_head.weight"}
    words = {f"w{i}": i for i in range(settings["model"]["vocab_size"])}
    words = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="w2"))
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=words, pad_token="w0", eos_token="w1", padding_side="left"
    )
    B = len(batch["advantage"])
    with tempfile.TemporaryDirectory() as directory:
        model.save_pretrained(directory)  # from where GRPOTrainer loads its reference
        model = transformers.AutoModelForCausalLM.from_pretrained(
            directory, dtype=torch.float32, attn_implementation="eager"
        )
        args = trl.GRPOConfig(
            directory,
            per_device_train_batch_size=B,
            num_generations=batch["completion"].shape[1],
            max_completion_length=settings["max_tokens"],
            temperature=settings["temperature"],
            gradient_checkpointing=False,
            bf16=False,
            use_cpu=True,
            report_to=[],
            **case["config"],
        )
        data = Dataset.from_dict({"prompt": ["w3"] * B})
        trainer = trl.GRPOTrainer(model, lambda completions, **_: [0.0] * len(completions), args, data,
                                  processing_class=tokenizer)  # fmt: skip
    trainer.current_gradient_accumulation_steps = 1
    trainer.model.train()
    return trainer


def inputs(batch, case):
    """Return the inputs of the loss of GRPOTrainer: prompts padded on the left, one row per completion."""
    P, G, T = batch["completion"].shape
    S = batch["prompt"].shape[1]
    prompt, mask = np.zeros((P, S), np.int64), np.zeros((P, S), np.int64)
    for i, length in enumerate(batch["length"]):
        prompt[i, S - length :] = batch["prompt"][i, :length]
        mask[i, S - length :] = 1
    stored = torch.from_numpy(batch["mask"].reshape(P * G, T)).long()
    result = {
        "prompt_ids": torch.from_numpy(prompt.repeat(G, 0)),
        "prompt_mask": torch.from_numpy(mask.repeat(G, 0)),
        "completion_ids": torch.from_numpy(batch["completion"].reshape(P * G, T)).long(),
        "completion_mask": stored,
        "advantages": torch.from_numpy(batch["advantage"]),
        "ref_per_token_logps": torch.from_numpy(batch["reference"].reshape(P * G, T)),
        "num_items_in_batch": stored.sum().float(),
    }
    if case["off_policy"]:
        result["old_per_token_logps"] = torch.from_numpy(batch["old"].reshape(P * G, T))
    return result


if __name__ == "__main__":
    main(*sys.argv[1:])
