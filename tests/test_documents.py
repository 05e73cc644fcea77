"""What the documents type works, and the pages made of the code hold all of it."""

import json
import re
import shlex
import shutil
import struct
from pathlib import Path

import pytest
import yaml
from safetensors.numpy import save

from docs import generated, links, pictures
from launch.diagnose.failures import GRPOFLOW_ERROR, failures
from pipeline import cli
from pipeline.cli import main, make_parser
from pipeline.config.compose import flat
from pipeline.config.load import load
from pipeline.store import history
from tests.documents import FENCE, ROOT, all_commands, pages

COMMANDS = all_commands()
TYPED = [one for one in COMMANDS if not one.mark]
MARK = re.compile(r"run by: (tests/\S+)::(test_\w+)|not run: .{10,}")


def read(file):
    return file.read_text(encoding="utf-8")


@pytest.fixture
def place(tmp_path):
    """What the commands name, in a directory of its own: a model, questions, and a store with two runs."""
    (tmp_path / "HF_DIR").mkdir()
    shape = load(["model=qwen2_5_7b"]).plain()["model"]
    keys = (
        "vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
        "num_key_value_heads", "max_position_embeddings", "rms_norm_eps", "rope_theta", "tie_word_embeddings",
        "torch_dtype",
    )  # fmt: skip
    config = {
        "architectures": ["Qwen2ForCausalLM"],
        "model_type": "qwen2",
        **{key: shape[key] for key in keys},
    }
    (tmp_path / "HF_DIR/config.json").write_text(json.dumps(config))
    (tmp_path / "HF_DIR/model.safetensors").write_bytes(save({}))
    (tmp_path / "GSM8K_DIR").symlink_to(ROOT / "tests/data/gsm8k")
    (tmp_path / "deepscaler.json").write_text('[{"problem": "1 + 1?", "answer": "2"}]')
    (tmp_path / "store").mkdir()
    for run in ("RUN_A", "RUN_B"):
        config = {"model": {"name": "tiny"}, "seed": 1}
        history.record(tmp_path / "store", run, "started", overrides=["seed=1"], config=config, artifacts={})
    return tmp_path


@pytest.mark.parametrize("page", dict.fromkeys(one.page for one in TYPED))
def test_the_commands_of_a_page_do_what_it_says(page, place, monkeypatch, capsys):
    monkeypatch.chdir(place)
    monkeypatch.delenv("GRPOFLOW_STORE", raising=False)
    for command in TYPED:
        if command.page == page:
            text, _, file = command.text.partition(" > ")
            program, *words = shlex.split(text)
            assert Path(program).name == "grpoflow", "other programs are marked with the test that runs them"
            capsys.readouterr()
            assert main(words) in (0, 10), (command.text, capsys.readouterr())
            if file:
                Path(file).write_text(capsys.readouterr().out)


@pytest.mark.parametrize("command", COMMANDS, ids=[f"{one.page}: {one.text}" for one in COMMANDS])
def test_what_is_not_run_here_says_why_and_is_understood(command):
    said = MARK.fullmatch(command.mark) if command.mark else None
    assert said or not command.mark, command.mark
    if said and said[1]:
        assert f"def {said[2]}(" in read(ROOT / said[1])
    if command.text.startswith("grpoflow "):
        _, rest = make_parser().parse_known_args(shlex.split(command.text.partition(" > ")[0])[1:])
        assert all("=" in word for word in rest)


def test_every_shell_block_has_its_commands_behind_a_prompt():
    for name, file in {"README.md": ROOT / "README.md", **pages()}.items():
        for block in FENCE.finditer(read(file)):
            assert block["kind"] != "sh", name
            assert block["kind"] != "console" or block["body"].startswith("$ "), name
    assert len(COMMANDS) > 60 and len(TYPED) > 25


def test_examples_of_help_are_understood():
    parser = make_parser()
    for name, one in generated.parsers().items():
        text = "\n".join(generated.examples(one)).replace("\\\n", " ")
        for line in text.splitlines():
            words = [word for word in shlex.split(line, comments=True)[1:] if word not in ("…", "...")]
            _, rest = parser.parse_known_args(words)
            assert all("=" in word for word in rest), (name, line)


def test_every_failure_is_told_in_both_languages_with_the_same_groups():
    chinese = yaml.safe_load(read(ROOT / "docs/zh/failures.yaml"))
    assert [*chinese] == [one.name for one in failures() if one is not GRPOFLOW_ERROR]
    signs = [f"`{one.sign}`" for one in failures() if one is not GRPOFLOW_ERROR]
    for language in ("en", "zh_CN"):
        told = generated.troubles(language)
        assert [sign for sign in signs if sign not in told] == []


def test_references_have_every_key_and_every_command():
    text = generated.configuration("en")
    roles = re.compile(r"^layout\.(generate|reference)\.")
    keys = {key for key in flat(load([]).plain()) if not roles.match(key)}
    named = {key for key in keys if f"`{key}`" in text or f"`{key}." in text}
    mappings = {key for key in keys if f"`{key.rpartition('.')[0]}`" in text}  # names of the user's own
    assert keys == named | mappings and len(named) > 180
    assert re.findall(r"^## grpoflow (\S+)$", generated.commands("en"), re.MULTILINE) == [*cli.COMMANDS]


def test_links_of_built_pages_are_checked(tmp_path):
    (tmp_path / "a.html").write_text('<p id="here"><a href="b.html#there">x</a><a href="#here">x</a>')
    (tmp_path / "b.html").write_text('<p id="there"><a href="https://example.com/x">x</a>')
    assert links.broken(tmp_path) == []
    bad = ["b.html#nowhere", "c.html", "#nowhere", "http://example.com", "https://"]
    (tmp_path / "c.html").write_text(
        "".join(f'<a href="{link}">x</a>' for link in bad).replace("c.html", "d.html")
    )
    assert [line.partition(": ")[2] for line in links.broken(tmp_path)] == [
        link.replace("c.html", "d.html") for link in bad
    ]


@pytest.mark.browser
@pytest.mark.skipif(shutil.which("chromium") is None, reason="chromium is missing: apt-get install chromium")
def test_a_picture_is_of_the_top_of_a_page(tmp_path):
    (tmp_path / "page.html").write_text("<h1>here</h1>")
    pictures.shoot(tmp_path / "page.html", tmp_path / "page.png", 720)
    assert struct.unpack(">II", (tmp_path / "page.png").read_bytes()[16:24]) == (pictures.WIDTH, 720)
