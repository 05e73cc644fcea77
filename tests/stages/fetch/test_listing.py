"""Sources of models and datasets, and the files that a repository lists."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.base.errors import InputError
from stages.fetch.config import source_warnings
from stages.fetch.listing import Listed, check_paths, matching, model_files
from stages.fetch.sources import fetch_problems
from tests.stages.fetch.settings import dataset, fetch, model

TOKENIZER = ["merges.txt", "tokenizer.json", "tokenizer_config.json", "vocab.json"]
REPOSITORY = [
    ".gitattributes", "LICENSE", "README.md", "config.json", "figures/config.json", "generation_config.json",
    *TOKENIZER,
]  # fmt: skip


def listed(*paths):
    return [Listed(path, 1, None) for path in paths]


def chosen(*weights, with_tokenizer=True):
    return sorted(f.path for f in model_files(listed(*REPOSITORY, *weights), "here", with_tokenizer))


def test_of_a_model_only_what_is_needed():
    needed = ["config.json", "generation_config.json", *TOKENIZER]
    shards = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]
    index = "model.safetensors.index.json"
    assert chosen("model.safetensors", "pytorch_model.bin") == sorted([*needed, "model.safetensors"])
    assert chosen(*shards, index, "adapter.safetensors") == sorted([*needed, *shards, index])
    assert chosen(*shards, index, "model.safetensors") == sorted([*needed, "model.safetensors"])
    assert chosen("model.safetensors", "sub/model.safetensors", with_tokenizer=False) == [
        "config.json",
        "generation_config.json",
        "model.safetensors",
    ]
    with pytest.raises(InputError, match=r"here: holds neither model\.safetensors .* pickles are not read"):
        chosen("pytorch_model.bin")
    only_sentencepiece = listed("config.json", "model.safetensors", "tokenizer.model")
    with pytest.raises(InputError, match=r"here: needs a tokenizer\.json: SentencePiece's tokenizer\.model"):
        model_files(only_sentencepiece, "here", with_tokenizer=True)
    assert len(model_files(only_sentencepiece, "here", with_tokenizer=False)) == 2


def test_a_star_matches_within_its_directory_only():
    files = listed("a.json", "sub/b.json", "sub/deep/c.json")
    assert [f.path for f in matching(files, "here", "*.json")] == ["a.json"]
    assert [f.path for f in matching(files, "here", "sub/*.json")] == ["sub/b.json"]
    with pytest.raises(InputError, match=r"no file matches \*\.txt"):
        matching(files, "here", "*.txt")


@given(st.text(max_size=12))
def test_an_accepted_path_is_inside_the_directory(tmp_path_factory, path):
    root = tmp_path_factory.getbasetemp() / "root"
    try:
        check_paths(listed(path), "here")
    except InputError:
        return
    resolved = (root / path).resolve()
    assert root.resolve() in resolved.parents


HUB = {"base": "me/base", "instruct": "me/chat", "id": None, "revision": "master"}
ROWS = {"id": "me/rows", "revision": "v1"}
FILES = {"train": {"name": "data/*.jsonl", "sha256": None}, "test": None}


@pytest.mark.parametrize(
    "url", ["https://user:hunter2@h/x", "https://hunter2@h/x", "https://h/x?a=1&X-Amz-Signature=hunter2"]
)
def test_addresses_with_secrets_are_refused_without_telling_them(url):
    (problem,) = fetch_problems(fetch(endpoint=url))
    assert "hunter2" not in str(problem)


def test_what_may_change_is_warned_of():
    moving = source_warnings(model(source="modelscope", hub=HUB), dataset())
    assert [problem.path for problem in moving] == ["model.hub.revision"]
    assert (
        source_warnings(model(source="modelscope", hub=HUB | {"revision": "v1.0"}), dataset(path=None)) == []
    )
    unknown = {"train": {"name": "https://h/x", "sha256": None}, "test": None}
    result = source_warnings(model(), dataset(path=None, files=unknown))
    assert [problem.path for problem in result] == ["dataset.files.train.sha256"]
    rows = dataset(path=None, source="modelscope", files=FILES, hub=ROWS | {"revision": "main"})
    assert [problem.path for problem in source_warnings(model(), rows)] == ["dataset.hub.revision"]
