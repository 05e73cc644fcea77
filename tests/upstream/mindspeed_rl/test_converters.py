"""Both windows' own converters inside our convert and export stages: there and back, bit for bit."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pipeline.config import Config, load
from stages.fetch.builtin import write_model
from stages.mindspeed_rl import convert, export
from stages.weights.sources import open_directory
from stages.weights.tensors import load as load_weights
from tests.upstream.mindspeed_rl import alone
from tests.upstream.mindspeed_rl.conftest import Window

pytestmark = pytest.mark.upstream
SHAPE = [
    "model=qwen2_5_7b", "model.hidden_size=64", "model.num_hidden_layers=4", "model.num_attention_heads=4",
    "model.num_key_value_heads=2", "model.intermediate_size=96", "model.vocab_size=512",
]  # fmt: skip
IDS = {"bos": None, "eos": [1], "pad": 0}
LAYOUTS = {
    "tp1pp1": ["layout=dp1_mp1_pp1"],
    "tp2pp2": ["layout=dp1_mp2_pp2"],
    "uneven": ["layout=dp1_mp1_pp2", "layout.train.offset=[1,-1]"],
    "tied": ["layout=dp1_mp1_pp2", "model.tie_word_embeddings=true"],
}


def recipe(window: Window, name: str, *more: str) -> Config:
    return load([*window.overrides, *SHAPE, "model.path=/models/qwen", *LAYOUTS[name], *more])


def make_model(config: Config, directory: Path) -> Path:
    """As fetch leaves it: random bfloat16 weights and a config.json."""
    directory.mkdir()
    write_model(replace(config.model, source="builtin"), IDS, 7, directory)
    return directory


def state(directory: Path) -> dict[str, tuple[object, ...]]:
    found = {}
    for file in sorted(directory.rglob("*")):
        status = file.lstat()
        content = file.read_bytes() if file.is_file() else b""
        told = (status.st_mode, status.st_uid, status.st_gid, status.st_mtime_ns, content)
        found[str(file.relative_to(directory))] = told
    return found


def there_and_back(window: Window, name: str, root: Path, *more: str) -> None:
    config = recipe(window, name, *more)
    fetched = make_model(config, root / "model")
    for number, file in enumerate(sorted(fetched.iterdir())):
        file.chmod((0o644, 0o600)[number % 2])
    before = state(fetched)
    mcore = alone.run(convert, config, {"fetch": fetched}, root / "convert")
    converted = state(mcore)
    home = alone.run(export, config, {"grpo": mcore, "fetch": fetched}, root / "export")
    assert state(fetched) == before and state(mcore) == converted
    assert dtypes(fetched) == dtypes(home) == dict.fromkeys(dtypes(home), "BF16")
    old, new = load_weights(fetched), load_weights(home)
    for tensor, value in old.items():
        assert np.array_equal(value.view(np.uint32), new[tensor].view(np.uint32)), tensor


def dtypes(directory: Path) -> dict[str, str]:
    return {name: stored.dtype for name, stored in open_directory(directory).items()}


@pytest.mark.core
def test_there_and_back_with_uneven_stages(newest: Window, tmp_path: Path) -> None:
    there_and_back(newest, "uneven", tmp_path)


@pytest.mark.parametrize("name", ["tp1pp1", "tp2pp2", "tied"])
def test_there_and_back(window: Window, name: str, tmp_path: Path) -> None:
    there_and_back(window, name, tmp_path)


def test_there_and_back_with_uneven_stages_in_the_older_window(older: Window, tmp_path: Path) -> None:
    there_and_back(older, "uneven", tmp_path)


def test_a_config_that_names_its_dtype_the_new_way_stays_bfloat16(newest: Window, tmp_path: Path) -> None:
    config = recipe(newest, "tp1pp1")
    fetched = make_model(config, tmp_path / "model")
    file = fetched / "config.json"
    values = json.loads(file.read_text())
    file.write_text(json.dumps({**values, "dtype": values.pop("torch_dtype")}))
    mcore = alone.run(convert, config, {"fetch": fetched}, tmp_path / "convert")
    alone.run(export, config, {"grpo": mcore, "fetch": fetched}, tmp_path / "export")
    (result,) = (tmp_path / "export/work/hf").glob("mg2h*")
    assert set(dtypes(result).values()) == {"BF16"}
