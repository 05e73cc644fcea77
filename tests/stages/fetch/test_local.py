import json
import os
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from stages.base.errors import ConfigError, InputError
from stages.fetch.builtin import write_model
from stages.fetch.local import link_model
from stages.fetch.user_files import external_files
from tests.stages.fetch.settings import FIXTURE, dataset, model

IDS = {"bos": 300, "eos": [302, 300], "pad": 300}


@pytest.fixture
def source(tmp_path):
    root = tmp_path / "source"
    root.mkdir()
    write_model(model(), IDS, 0, root)
    return root


@pytest.fixture
def output(tmp_path):
    root = tmp_path / "output"
    root.mkdir()
    return root


def link(model, output):
    link_model(Path(model.path), model, output)


def local(source, **changes):
    return model(source="local", path=str(source), **changes)


def test_each_file_is_linked(source, output):
    (source / "README.md").touch()
    link(local(source), output)
    assert sorted(os.listdir(output)) == ["config.json", "generation_config.json", "model.safetensors"]
    assert all(file.is_symlink() and file.resolve().parent == source for file in output.iterdir())


def test_shards_are_linked_with_their_index(source, output):
    (source / "model.safetensors").unlink()
    save_file({"a": np.zeros(2, np.float32)}, source / "model-00001-of-00001.safetensors")
    index = {"weight_map": {"a": "model-00001-of-00001.safetensors"}}
    (source / "model.safetensors.index.json").write_text(json.dumps(index))
    link(local(source), output)
    assert (output / "model-00001-of-00001.safetensors").is_symlink()
    assert (output / "model.safetensors.index.json").is_symlink()


def test_each_disagreement_with_config_json_is_reported(source, output):
    with pytest.raises(ConfigError) as caught:
        link(local(source, hidden_size=32, vocab_size=600, rope_theta=1e6), output)
    reported = {problem.path for problem in caught.value.problems}
    assert reported == {"model.hidden_size", "model.vocab_size", "model.rope_theta"}
    assert "hidden_size=16" in str(caught.value)


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.pt"])
def test_pickles_are_refused_with_a_hint(source, output, name):
    (source / "model.safetensors").rename(source / name)
    with pytest.raises(InputError, match=f"{name}.*safe_serialization=True"):
        link(local(source), output)


def test_no_directory_and_no_weights_are_errors(source, output):
    with pytest.raises(InputError, match=r"model\.path"):
        link(local(source / "none"), output)
    (source / "model.safetensors").unlink()
    with pytest.raises(InputError, match="holds no safetensors weights"):
        link(local(source), output)


def test_external_files_are_those_that_the_stages_read(tmp_path):
    assert external_files(dataset()) == ()
    assert external_files(dataset(path=str(FIXTURE))) == (FIXTURE / "train.jsonl", FIXTURE / "test.jsonl")
    assert external_files(model()) == ()
    for name in ("config.json", "model.safetensors", "pytorch_model.bin", "README.md", "vocab.json"):
        (tmp_path / name).touch()
    files = external_files(model(source="local", path=str(tmp_path)))
    assert {file.name for file in files} == {"config.json", "model.safetensors", "vocab.json"}
    files = external_files(model(tokenizer_path=str(tmp_path)))
    assert [file.name for file in files] == ["vocab.json"]
    (tmp_path / "chat_template.jinja").touch()
    for settings in ({"source": "local", "path": str(tmp_path)}, {"tokenizer_path": str(tmp_path)}):
        assert tmp_path / "chat_template.jinja" in external_files(model(**settings))
