import json

import pytest

from stages.base.errors import ConfigError, InputError
from stages.fetch import stage
from stages.tokenizer import load
from stages.weights.sources import open_directory
from tests.stages.fetch.settings import (
    FIXTURE,
    arith_values,
    context,
    fetch_values,
    gsm8k_values,
    model_values,
)

FILES = {
    "config.json", "generation_config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json",
    "vocab.json", "merges.txt",
}  # fmt: skip


def fetch(tmp_path, data=None, name="fetch", **changes):
    config = {"model": model_values(**changes), "seed": 0}
    if data:
        config["dataset"] = data
    run = context(tmp_path / name, "fetch", config)
    stage.run(run)
    return run.output


def test_a_local_model_may_bring_its_tokenizer_or_take_another(tmp_path):
    first = fetch(tmp_path, arith_values(), name="first")
    (first / "tokenizer.json").unlink()
    local = {"source": "local", "path": str(first)}
    linked = fetch(tmp_path, name="own", **local)
    assert {file.name for file in linked.iterdir()} == FILES
    assert (linked / "model.safetensors").is_symlink()
    assert (linked / "vocab.json").is_symlink()
    second = fetch(tmp_path, arith_values(), name="donor", vocab_size=300)
    mixed = fetch(tmp_path, name="mixed", tokenizer_path=str(second), **local)
    assert (mixed / "vocab.json").read_bytes() == (second / "vocab.json").read_bytes()
    assert not (mixed / "vocab.json").is_symlink()


def test_the_chat_template_file_is_copied_with_the_tokenizer(tmp_path):
    """transformers saves it beside the settings; without it plain ChatML would be taken, and nobody told."""
    first = fetch(tmp_path, arith_values(), name="first")
    (first / "chat_template.jinja").write_text("{{ messages[0].content }}", encoding="utf-8")
    local = {"source": "local", "path": str(first)}
    for settings in (local, {"tokenizer_path": str(first)}, {**local, "tokenizer_path": str(first)}):
        output = fetch(tmp_path, name=f"with_{len(settings)}_{settings.get('source')}", **settings)
        assert (output / "chat_template.jinja").read_text(encoding="utf-8") == "{{ messages[0].content }}"


@pytest.fixture
def published(tmp_path, hub):
    """Files of a repository on the hub, which tests change, and the sections of its fetch."""
    made = fetch(tmp_path, arith_values(), name="made")
    repository = hub.repositories["model/me/chat"] = {file.name: file.read_bytes() for file in made.iterdir()}
    where = {"base": "me/base", "instruct": "me/chat", "id": None, "revision": "v1"}

    def config(cache_dir=None, **changes):
        section = model_values(source="modelscope", hub=where, variant="instruct", **changes)
        return {"model": section, "fetch": fetch_values(endpoint=hub.url, cache_dir=cache_dir)}

    return repository, config


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rms_norm_eps": 1e-5}, r"model\.rms_norm_eps=1e-05: disagrees with .*: rms_norm_eps=1e-06"),
        ({}, r"me/chat@v1.*: holds no config\.json"),
    ],
)
def test_config_json_is_checked_before_the_weights_are_downloaded(tmp_path, hub, published, changes, message):
    repository, config = published
    if not changes:
        del repository["config.json"]
    with pytest.raises((ConfigError, InputError), match=message):
        stage.run(context(tmp_path, "fetch", config(**changes)))
    assert "model.safetensors" not in {seen.file for seen in hub.requests}


def test_files_that_a_repository_has_no_more_are_not_taken_from_the_cache(tmp_path, published):
    repository, config = published
    repository["chat_template.jinja"] = b"{{ messages[0].content }}"
    settings = config(cache_dir=str(tmp_path / "cache"))
    first, second = (context(tmp_path / name, "fetch", settings) for name in ("first", "second"))
    stage.run(first)
    assert (first.output / "chat_template.jinja").is_file()
    shard, index = "model-00001-of-00001.safetensors", "model.safetensors.index.json"
    weight_map = dict.fromkeys(open_directory(first.output), shard)
    del repository["chat_template.jinja"]
    repository[shard] = repository.pop("model.safetensors")
    repository[index] = json.dumps({"weight_map": weight_map}).encode()
    stage.run(second)
    expected = (FILES - {"model.safetensors"}) | {shard, index, "result.json"}
    assert {file.name for file in second.output.iterdir()} == expected


def test_a_tokenizer_can_be_trained_on_a_downloaded_dataset(tmp_path):
    fetched = tmp_path / "dataset"
    fetched.mkdir()
    (fetched / "train.jsonl").write_bytes((FIXTURE / "train.jsonl").read_bytes())
    config = {"model": model_values(vocab_size=600), "dataset": gsm8k_values(None), "seed": 0}
    run = context(tmp_path / "fetch", "fetch", config, fetch_dataset=fetched)
    stage.run(run)
    assert load(run.output).encode(" many").tokens == ["Ġmany"]
