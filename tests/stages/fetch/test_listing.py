import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.base.errors import InputError
from stages.fetch.listing import Listed, check_paths, matching, model_files

TOKENIZER = ["merges.txt", "tokenizer.json", "tokenizer_config.json", "vocab.json"]
REPOSITORY = [
    ".gitattributes",
    "LICENSE",
    "README.md",
    "config.json",
    "figures/config.json",
    "generation_config.json",
    *TOKENIZER,
]


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


def test_no_weights_is_an_error_that_knows_pickles():
    with pytest.raises(InputError, match=r"here: holds neither model\.safetensors .* is a pickle"):
        chosen("pytorch_model.bin")
    with pytest.raises(InputError, match=r"it holds \.gitattributes, LICENSE"):
        chosen()


def test_a_star_matches_within_its_directory_only():
    files = listed("a.json", "sub/b.json", "sub/deep/c.json")
    assert [f.path for f in matching(files, "*.json", "here")] == ["a.json"]
    assert [f.path for f in matching(files, "sub/*.json", "here")] == ["sub/b.json"]
    with pytest.raises(InputError, match=r"no file matches \*\.txt"):
        matching(files, "*.txt", "here")


@given(st.text(max_size=12))
def test_an_accepted_path_is_inside_the_directory(tmp_path_factory, path):
    root = tmp_path_factory.getbasetemp() / "root"
    try:
        check_paths(listed(path), "here")
    except InputError:
        return
    resolved = (root / path).resolve()
    assert root.resolve() in resolved.parents
