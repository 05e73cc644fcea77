from stages.fetch.user_files import external_files, split_files
from tests.stages.fetch.settings import FIXTURE, dataset, model


def test_files_of_a_directory_and_of_a_pair(tmp_path):
    assert split_files(dataset(path=str(FIXTURE))) == (FIXTURE / "train.jsonl", FIXTURE / "test.jsonl")
    item, two = tmp_path / "a.jsonl", tmp_path / "b.jsonl"
    assert split_files(dataset(path=str(item), test_path=str(two))) == (item, two)


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
