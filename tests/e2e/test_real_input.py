import os
from pathlib import Path

import pytest

from stages.weights.header import read_header
from tests.e2e.conftest import damage, run_plain

SHARED = Path(os.environ.get("GRPOFLOW_SHARED", Path(__file__).parents[3] / "shared")) / "data"


@pytest.mark.long
def test_gsm8k_with_the_real_tokenizer(tmp_path):
    """Every artifact is right; the model is too small to answer anything."""
    if not (SHARED / "gsm8k" / "train.jsonl").exists():
        pytest.skip("needs GSM8K and the Qwen2.5 tokenizer: set GRPOFLOW_SHARED")
    paths = [f"dataset.path={SHARED / 'gsm8k'}", f"model.tokenizer_path={SHARED / 'qwen2.5-tokenizer'}"]
    run_plain(tmp_path / "store", "experiment=gsm8k_smoke", *paths, code=0)
    assert damage(tmp_path / "store") == []
    (exported,) = (tmp_path / "store" / "export").glob("[0-9a-f]*")
    shape = read_header(exported / "model.safetensors").tensors["model.embed_tokens.weight"].shape
    assert shape == (151936, 64)
    for name in ("vocab.json", "merges.txt"):
        assert (exported / name).read_bytes() == (SHARED / "qwen2.5-tokenizer" / name).read_bytes()
