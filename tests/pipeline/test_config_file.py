"""A file for --config that says something twice, holds nothing, or never ends is refused with its line."""

import pytest

from pipeline.cli import main


def refused(tmp_path, capsys, text):
    """What is said of a file; nothing of a store is left."""
    file, store = tmp_path / "my.yaml", tmp_path / "store"
    file.write_text(text)
    for command in ("sweep --plan", "config", "plan"):
        assert main([*command.split(), "--config", str(file), f"store={store}"]) == 2, text
        told = capsys.readouterr()
        assert (
            (told.out == "" or "sweep" in command)
            and told.err.startswith(("error: ", "left out"))
            and "Traceback" not in told.err
        )
    assert not store.exists()
    return told.err.replace(str(tmp_path), "")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("train:\n  beta: 0.1\nsft:\n  steps: 3\ntrain:\n  steps: 4\n",
         "/my.yaml:5: train is given twice, first in line 1"),
        ("train:\n  beta: 0.1\n  steps: 3\n  beta: 0.2\n",
         "/my.yaml:4: train.beta is given twice, first in line 2"),
        ("seed: 1\nseed: 1\n", "/my.yaml:2: seed is given twice, first in line 1"),
        ('{"seed": 1, "train": {"beta": 1,\n "beta": 2}}',
         "/my.yaml:2: train.beta is given twice, first in line 1"),
        ("dataset:\n  arith:\n    max_addends: 3\n    max_addends: 4\n",
         "/my.yaml:4: dataset.arith.max_addends is given twice"),
        ("train: {beta: 1}\ntrain.beta: 2\n", "/my.yaml:2: train.beta is given twice, first in line 1"),
        ("defaults:\n- model: tiny\n  model: tiny_llama\n",
         "/my.yaml:3: model is given twice, first in line 2"),
        ("defaults:\n- model: tiny\n- model: tiny_llama\n",
         "/my.yaml:3: model is given twice, first in line 2"),
    ],
)  # fmt: skip
def test_what_is_given_twice_is_refused_with_both_lines(text, told, tmp_path, capsys):
    assert told in refused(tmp_path, capsys, text)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("train:\n", "/my.yaml:1: train is empty"),
        ("seed: 1\nmodel:\nlayout: ~\n", "/my.yaml:2: model is empty"),
        ("layout:\n  train:\n", "cards"),
        ("train: &a\n  beta: *a\n", "/my.yaml:1: train.beta refers to itself"),
        ("train: &a [*a]\n", "train"),
        ("&a x: &b {y: *b}\n", "refers to itself"),
        ("train: &a {b: &b {c: *a}}\n", "refers to itself"),
        ("a: &a [1,1,1,1,1,1,1,1,1,1]\n" + "".join(
            f"{b}: &{b} [{','.join(['*' + a] * 10)}]\n" for a, b in zip("abcdefghi", "bcdefghij", strict=True)
        ), "is too large"),
        ("seed: 2020-01-01\n", "seed"),
        ("seed: !!binary aGVsbG8=\n", "seed"),
        ("seed: !!set {a, b}\n", "seed"),
        ("seed: !!python/object:os.system {}\n", "cannot be read"),
        ("? [a, b]\n: 1\n", "/my.yaml"),
        ("1: 2\n", "1"),
        ("a b: 2\n", "a b"),
        ("train: 5\n", "train"),
        ("train: []\n", "train"),
        ("train: {}\nmodel: {name: x}\n", "model.name"),
        ("[" * 5000, "/my.yaml"),
        ("a: " + "{a: " * 3000 + "1" + "}" * 3000, "/my.yaml"),
        ("seed: 1\n---\nseed: 2\n", "cannot be read"),
        ("seed: \x07\n", "cannot be read"),
        ("defaults: 5\n", "/my.yaml"),
        ("defaults: [tiny]\n", "/my.yaml"),
        ("defaults: [{model: null}]\n", "model"),
        ("", "/my.yaml"),
        ("5\n", "/my.yaml"),
    ],
)  # fmt: skip
def test_what_is_no_configuration_is_refused_in_words(text, told, tmp_path, capsys):
    assert told in refused(tmp_path, capsys, text)


def test_aliases_and_merge_keys_may_be_used(tmp_path, capsys):
    file = tmp_path / "my.yaml"
    file.write_text("sft: &a\n  steps: 7\ntrain:\n  <<: *a\n  beta: 0.5\n")
    assert main(["config", "--config", str(file)]) == 0
    told = capsys.readouterr().out
    assert told.count("  steps: 7\n") == 2 and "  beta: 0.5\n" in told
