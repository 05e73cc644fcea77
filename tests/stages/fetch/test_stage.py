import json

import pytest
from safetensors import serialize_file

from stages.base.errors import ConfigError, InputError
from stages.fetch import stage
from stages.fetch.builtin import write_config
from stages.fetch.local import check_config, check_model
from stages.fetch.user_files import external_files
from stages.tokenizer import load
from stages.weights.header import read_header
from stages.weights.sources import open_directory
from tests.stages.fetch.settings import (
    FIXTURE,
    arith_values,
    assert_separate,
    context,
    dataset,
    fetch_values,
    gsm8k_values,
    model,
    model_values,
)
from tests.stages.weights.checkpoints import make_model
from tests.stages.weights.test_families import MODELS

FILES = {
    "config.json", "generation_config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json",
    "vocab.json", "merges.txt",
}  # fmt: skip
SHARD, INDEX = "model-00001-of-00001.safetensors", "model.safetensors.index.json"


def fetch(tmp_path, data=None, name="fetch", **changes):
    config = {"model": model_values(**changes), "seed": 0}
    if data:
        config["dataset"] = data
    run = context(tmp_path / name, "fetch", config)
    stage.run(run)
    return run.output


@pytest.fixture
def first(tmp_path):
    """A model directory with a tokenizer."""
    return fetch(tmp_path, arith_values(), name="first")


def test_a_local_model_is_linked_with_its_tokenizer_or_another(tmp_path, first):
    (first / "tokenizer.json").unlink()
    (first / "README.md").touch()
    local = {"source": "local", "path": str(first)}
    linked = fetch(tmp_path, name="own", **local)
    assert {file.name for file in linked.iterdir()} == FILES
    assert (linked / "model.safetensors").is_symlink() and (linked / "vocab.json").is_symlink()
    second = fetch(tmp_path, arith_values(), name="donor", vocab_size=300)
    mixed = fetch(tmp_path, name="mixed", tokenizer_path=str(second), **local)
    assert (mixed / "vocab.json").read_bytes() == (second / "vocab.json").read_bytes()
    assert not (mixed / "vocab.json").is_symlink()


def test_shards_are_linked_with_their_index(tmp_path, first):
    (first / "model.safetensors").rename(first / SHARD)
    weight_map = dict.fromkeys(read_header(first / SHARD).tensors, SHARD)
    (first / INDEX).write_text(json.dumps({"weight_map": weight_map}))
    output = fetch(tmp_path, source="local", path=str(first))
    assert all((output / name).is_symlink() for name in (SHARD, INDEX))


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.pt", None])
def test_a_directory_without_safetensors_is_refused(tmp_path, first, name):
    (first / "model.safetensors").rename(first / (name or "weights"))
    remedy = r"holds neither model\.safetensors .*; pickles are not read"
    with pytest.raises(InputError, match=remedy):
        fetch(tmp_path, source="local", path=str(first))


def test_what_mindformers_converted_is_refused_with_the_directory_to_give(tmp_path, first):
    (first / "model.safetensors").rename(first / SHARD)
    (first / "param_name_map.json").write_text("{}")
    with pytest.raises(InputError, match="give the directory that it read"):
        fetch(tmp_path, source="local", path=str(first))


def test_published_8_bit_weights_are_refused_with_the_script_that_casts_them(tmp_path):
    made = make_model(**MODELS["deepseek_v3"])
    write_config(made, {"bos": 0, "eos": [1], "pad": 1}, tmp_path)
    entry = {"dtype": "float8_e4m3fn", "shape": [2], "data": bytes(2)}
    serialize_file({"lm_head.weight": entry}, str(tmp_path / "model.safetensors"), {"format": "pt"})
    with pytest.raises(InputError, match=r"lm_head\.weight.*F8_E4M3.*fp8_cast_bf16\.py"):
        check_model(tmp_path, made)


def test_a_key_of_a_group_that_disagrees_with_config_json_is_named_alone(tmp_path):
    made = make_model(**MODELS["deepseek_v3"])
    write_config(made, {"bos": 0, "eos": [1], "pad": 1}, tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    with pytest.raises(ConfigError) as refused:
        check_config(config | {"kv_lora_rank": 16}, made, tmp_path / "config.json")
    (problem,) = refused.value.problems
    assert (problem.path, problem.value) == ("model.deepseek_v3.kv_lora_rank", 12)
    assert "kv_lora_rank=16" in problem.rule


def test_a_directory_without_a_tokenizer_is_named(tmp_path, first):
    for name in ("tokenizer.json", "vocab.json", "merges.txt"):
        (first / name).unlink()
    with pytest.raises(InputError, match=rf"{first}: holds no tokenizer"):
        fetch(tmp_path, source="local", path=str(first))


def test_external_files_are_those_that_the_stages_read(tmp_path):
    assert external_files(dataset()) == external_files(model()) == ()
    assert external_files(dataset(path=str(FIXTURE))) == (FIXTURE / "train.jsonl", FIXTURE / "test.jsonl")
    tokenizer = ["chat_template.jinja", "vocab.json"]
    for name in ("config.json", "model.safetensors", "pytorch_model.bin", "README.md", *tokenizer):
        (tmp_path / name).touch()
    files = external_files(model(source="local", path=str(tmp_path)))
    assert {file.name for file in files} == {*tokenizer, "config.json", "model.safetensors"}
    assert sorted(file.name for file in external_files(model(tokenizer_path=str(tmp_path)))) == tokenizer


def test_the_chat_template_file_is_copied_with_the_tokenizer(tmp_path, first):
    """transformers saves it beside the settings; without it plain ChatML would be taken, and nobody told."""
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
        ({}, r"me/chat@v1.*: no file matches config\.json"),
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
    weight_map = dict.fromkeys(open_directory(first.output), SHARD)
    del repository["chat_template.jinja"]
    repository[SHARD] = repository.pop("model.safetensors")
    repository[INDEX] = json.dumps({"weight_map": weight_map}).encode()
    stage.run(second)
    expected = (FILES - {"model.safetensors"}) | {SHARD, INDEX, "result.json"}
    assert {file.name for file in second.output.iterdir()} == expected


def test_an_artifact_shares_no_file_with_the_users_cache(tmp_path, published):
    repository, config = published
    cached = context(tmp_path / "cached", "fetch", config(cache_dir=str(tmp_path / "cache")))
    stage.run(cached)
    assert (cached.output / "model.safetensors").read_bytes() == repository["model.safetensors"]
    assert_separate(tmp_path / "cache", cached.output)
    private = context(tmp_path / "private", "fetch", config())
    stage.run(private)
    assert (private.output / "model.safetensors").stat().st_nlink == 2, "a copy of the stage's own download"


def test_a_tokenizer_can_be_trained_on_a_downloaded_dataset(tmp_path):
    fetched = tmp_path / "dataset"
    fetched.mkdir()
    (fetched / "train.jsonl").write_bytes((FIXTURE / "train.jsonl").read_bytes())
    config = {"model": model_values(vocab_size=600), "dataset": gsm8k_values(None), "seed": 0}
    run = context(tmp_path / "fetch", "fetch", config, fetch_dataset=fetched)
    stage.run(run)
    assert load(run.output).encode(" many").tokens == ["Ġmany"]
