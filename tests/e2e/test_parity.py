"""The exported model is the trained model: transformers reads every key, and both give the same logits."""

import json
from pathlib import Path

import numpy as np
import pytest

from tests.e2e.conftest import Finished

PROMPTS = 8


@pytest.mark.long  # in the default suite, by answers: test_serving.py
@pytest.mark.parity
def test_the_exported_model_is_the_trained_model(finished: tuple[Path, Finished], capsys) -> None:
    ms = pytest.importorskip("mindspore")
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    from stages.base.reader import read
    from stages.grpo.model import CausalLM
    from stages.grpo.parameters import fuse
    from stages.models.config import ModelConfig
    from stages.tokenize.records import read_columns
    from stages.weights.tensors import merge_ranks

    place = {
        stage: next((finished[0] / stage).glob("[0-9a-f]*"))
        for stage in ("grpo", "strategy", "export", "tokenize")
    }
    shape = read(
        ModelConfig, json.loads((place["grpo"] / "manifest.json").read_text())["config"]["model"], "model"
    )
    records = read_columns(place["tokenize"] / "test.mindrecord", ["prompt_ids"])["prompt_ids"][:PROMPTS]
    tokenizer = transformers.AutoTokenizer.from_pretrained(place["export"])
    lengths = (records != tokenizer.pad_token_id).sum(1)
    assert (lengths > 5).all()

    ours = CausalLM(shape, positions=records.shape[1] + 2)
    ours.load(fuse(shape, merge_ranks(place["grpo"] / "train", place["strategy"] / "train_strategy")))

    @ms.jit
    def forward(prompt, length, completion):
        hidden = ours.hidden(prompt, length, completion)
        return ours.all_logits(hidden[: prompt.shape[0] * prompt.shape[1]])

    blank = np.zeros((PROMPTS, 1, 2), np.int32)
    inputs = [ms.Tensor(array.astype(np.int32)) for array in (records, lengths, blank)]
    got = forward(*inputs).asnumpy().reshape(PROMPTS, records.shape[1], -1)

    theirs, loading = transformers.Qwen2ForCausalLM.from_pretrained(
        place["export"], output_loading_info=True, dtype=torch.float32
    )
    assert not loading["missing_keys"] and not loading["unexpected_keys"] and not loading["mismatched_keys"]
    largest = []
    for p in range(PROMPTS):
        with torch.no_grad():
            wanted = theirs(torch.tensor(records[p : p + 1, : lengths[p]]).long()).logits[0].numpy()
        largest.append(float(np.abs(got[p, : lengths[p]] - wanted).max()))
    with capsys.disabled():
        print(
            "\nlargest difference of logits to transformers, prompt by prompt:",
            ", ".join(f"{difference:.1e}" for difference in largest),
        )
    assert max(largest) < 1e-4
