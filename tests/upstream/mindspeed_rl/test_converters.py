"""Upstream's own converter inside our convert and export stages: there and back, bit for bit."""

import json
from dataclasses import replace

import pytest

from pipeline.config.load import load
from stages.engines.mindspeed_rl import convert, export
from stages.fetch.builtin import write_model
from stages.fetch.tokenizer_files import ending_ids, write_trained
from stages.weights.sources import open_directory
from stages.weights.tensors import load as load_weights
from tests.upstream.mindspeed_rl import alone

pytestmark = pytest.mark.upstream
SHAPE = [
    "model=qwen2_5_7b", "model.hidden_size=64", "model.num_hidden_layers=4", "model.num_attention_heads=4",
    "model.num_key_value_heads=2", "model.intermediate_size=96", "model.vocab_size=512",
]  # fmt: skip
LAYOUTS = {
    "tp1pp1": ["layout=dp1_mp1_pp1"],
    "tp2pp2": ["layout=dp1_mp2_pp2"],
    "uneven_tied": ["layout=dp1_mp1_pp2", "layout.train.offset=[1,-1]", "model.tie_word_embeddings=true"],
}


def make_model(config, directory, dtype):
    """Write a model like fetch: random bfloat16 weights and config.json, with a user's file modes.

    Config.json names the dtype under the key `dtype`; transformers has another one from 4.56 on.
    """
    directory.mkdir()
    write_trained(["1 + 1"], config.model.vocab_size, directory)
    write_model(replace(config.model, source="builtin"), ending_ids(directory), 7, directory)
    file = directory / "config.json"
    values = json.loads(file.read_text())
    file.write_text(json.dumps({**values, dtype: values.pop("torch_dtype")}))
    for number, file in enumerate(sorted(directory.iterdir())):
        file.chmod((0o644, 0o600)[number % 2])
    return directory


def state(directory):
    result = {}
    for file in sorted(directory.rglob("*")):
        status = file.lstat()
        content = file.read_bytes() if file.is_file() else b""
        output = (status.st_mode, status.st_uid, status.st_gid, status.st_mtime_ns, content)
        result[str(file.relative_to(directory))] = output
    return result


def there_and_back(config, root, dtype="torch_dtype"):
    """Convert and export a model, and check that neither changes its inputs."""
    fetched = make_model(config, root / "model", dtype)
    before = state(fetched)
    mcore = alone.run(convert, config, {"fetch": fetched}, root / "convert")
    converted = state(mcore)
    home = alone.run(export, config, {"grpo": mcore, "fetch": fetched}, root / "export")
    assert state(fetched) == before and state(mcore) == converted
    assert dtypes(fetched) == dtypes(home) == dict.fromkeys(dtypes(home), "BF16")
    old, new = load_weights(fetched), load_weights(home)
    assert old.keys() == new.keys()
    for name, value in old.items():
        assert value.shape == new[name].shape and value.tobytes() == new[name].tobytes(), name


def dtypes(directory):
    return {name: stored.dtype for name, stored in open_directory(directory).items()}


def recipe(upstream, layout):
    return load([*upstream.overrides, *SHAPE, "model.path=/models/qwen", *LAYOUTS[layout]])


@pytest.mark.core
def test_there_and_back_with_uneven_stages(upstream, tmp_path):
    there_and_back(recipe(upstream, "uneven_tied"), tmp_path, dtype="dtype")


@pytest.mark.parametrize("layout", ["tp1pp1", "tp2pp2"])
def test_there_and_back(upstream, layout, tmp_path):
    there_and_back(recipe(upstream, layout), tmp_path)
