"""The documents: commands work, pages are complete, and both languages have the same structure."""

import re
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml
from packaging.specifiers import SpecifierSet
from safetensors.numpy import save

from docs import generated
from launch.diagnose.failures import GRPOFLOW_ERROR, failures
from pipeline import cli
from pipeline.cli import main, make_parsers
from pipeline.config import file as configuration
from pipeline.config.compose import BUILT_IN
from pipeline.config.load import load
from pipeline.errors import ConfigError
from pipeline.store import history
from stages.base.keys import flat
from stages.engines.mindrlhf.config import VERSIONS as MINDRLHF
from stages.engines.mindrlhf_one_stage.config import CONTRACT as ONE_STAGE
from stages.engines.mindspeed_rl import engine as mindspeed_rl
from stages.engines.mindspeed_rl.config import CONTRACT as MINDSPEED_RL
from stages.engines.mindspeed_rl.files import runtime_env
from stages.engines.programs import known_versions
from stages.fetch.builtin import write_config
from tests.pipeline.artifacts import complete
from tests.stages.engines.mindspeed_rl.jobs import SEVEN, job_of

ROOT = Path(__file__).parents[1]
FENCE = re.compile(
    r"^(?:<!-- (?P<mark>[^\n]*?) -->\n)?```(?P<kind>[^\n]*)\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL
)
PROMPT = re.compile(r"^\$ ((?:.*\\\n)*.*)$", re.MULTILINE)


@dataclass(frozen=True)
class Command:
    """A line that begins with $, including its continuation lines."""

    page: str
    text: str
    mark: str
    """The comment above its block; empty: a test runs the command."""


def read(file: Path) -> str:
    return file.read_text(encoding="utf-8")


def pairs() -> dict[str, tuple[Path, Path]]:
    """Return every page in English and Chinese, README first; two pages include a file of the root."""
    docs = ROOT / "docs"
    names = [str(file.relative_to(docs)) for file in sorted(docs.rglob("*.md"))]
    english = {name: docs / name for name in names if not name.startswith("zh/")}
    english |= {"contributing.md": ROOT / "CONTRIBUTING.md", "security.md": ROOT / "SECURITY.md"}
    readme = {"README.md": (ROOT / "README.md", ROOT / "README_CN.md")}
    return readme | {name: (file, docs / "zh" / name) for name, file in english.items()}


def commands(page: str, text: str) -> list[Command]:
    """Return the commands of a page, without comments."""
    result = []
    for block in FENCE.finditer(text):
        for match in PROMPT.findall(block["body"]):
            text = re.sub(r"\s+", " ", match.replace("\\\n", " "))
            result.append(Command(page, re.sub(r" #.*$", "", text).strip(), block["mark"] or ""))
    return result


PAIRS = pairs()
COMMANDS = [command for name, (page, _) in PAIRS.items() for command in commands(name, read(page))]
EXECUTED = [command for command in COMMANDS if not command.mark]
MARK = re.compile(r"run by: (tests/\S+)::(test_\w+)|not run: .{10,}")


@pytest.fixture
def directory(tmp_path):
    """A directory with the files that the commands name: a model, a dataset and a store with two runs."""
    (tmp_path / "HF_DIR").mkdir()
    write_config(load(["model=qwen2_5_7b"]).model, {"bos": None, "eos": [1], "pad": 0}, tmp_path / "HF_DIR")
    (tmp_path / "HF_DIR/model.safetensors").write_bytes(save({}))
    (tmp_path / "GSM8K_DIR").symlink_to(ROOT / "tests/data/gsm8k")
    (tmp_path / "deepscaler.json").write_text('[{"problem": "1 + 1?", "answer": "2"}]')
    example = dict(re.findall(r"^```(json|python|yaml)\n(.*?)^```$", read(ROOT / "docs/own.md"), re.M | re.S))
    for kind, name in (("json", "sums.jsonl"), ("python", "my_rewards.py"), ("yaml", "mine.yaml")):
        (tmp_path / name).write_text(example[kind])
    (tmp_path / "store").mkdir()
    for run in ("RUN_A", "RUN_B"):
        config = {"model": {"name": "tiny"}, "seed": 1}
        history.record(tmp_path / "store", run, "started", overrides=["seed=1"], config=config, artifacts={})
    return tmp_path


@pytest.mark.parametrize("page", dict.fromkeys(command.page for command in EXECUTED))
def test_commands_of_a_page_succeed(page, directory, monkeypatch, capsys):
    monkeypatch.chdir(directory)
    monkeypatch.delenv("GRPOFLOW_STORE", raising=False)
    for command in EXECUTED:
        if command.page == page:
            text, _, file = command.text.partition(" > ")
            program, *words = shlex.split(text)
            assert Path(program).name == "grpoflow", "other programs are marked with the test that runs them"
            capsys.readouterr()
            assert main(words) in (0, 10), (command.text, capsys.readouterr())
            if file:
                Path(file).write_text(capsys.readouterr().out)


def outputs(page):
    """Return the output below each command of a page that a test runs."""
    result = {}
    for block in FENCE.finditer(read(page)):
        for text, output in re.findall(
            r"^\$ ((?:.*\\\n)*.*)\n((?:(?!\$ ).*\n)*)", block["body"], re.MULTILINE
        ):
            if output and not block["mark"]:
                words = re.sub(r"\s+", " ", text.replace("\\\n", " "))
                result[re.sub(r" #.*$", "", words).strip()] = output
    return result


def without_figures(text):
    """Return an output whose numbers, digests and columns may differ between machines and runs."""
    text = re.sub(r"\b[0-9a-f]{16}\b", "DIGEST", text)
    text = re.sub(r"\d+ (min|h) \d+ (s|min)\b", "# s", text)
    return re.sub(r"[ \t]+", " ", re.sub(r"\d[\d.,]*", "#", text))


def pattern(output):
    """Return a regular expression in which … stands for anything, and for any number of lines."""
    lines = [re.escape(line).replace("…", ".*") + r"\s*\n" for line in without_figures(output).splitlines()]
    return "".join(r"(?:.*\n)*?" if line == r".*\s*\n" else line for line in lines)


@pytest.mark.parametrize("command", outputs(ROOT / "docs/quickstart.md"))
def test_the_quick_start_shows_what_its_commands_print(command, directory, monkeypatch, capsys):
    monkeypatch.chdir(directory)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    complete([], started=0.0, ended=10.0)
    capsys.readouterr()
    assert main(shlex.split(command)[1:]) in (0, 10)
    printed = re.sub(r"\x1b\[[0-9;]*m", "", capsys.readouterr().out)
    expected = outputs(ROOT / "docs/quickstart.md")[command]
    assert re.fullmatch(pattern(expected), without_figures(printed)), printed
    assert outputs(ROOT / "docs/zh/quickstart.md")[command] == expected


def test_the_quick_start_shows_outputs_of_most_commands():
    shown = outputs(ROOT / "docs/quickstart.md")
    run = [command.text for command in EXECUTED if command.page == "quickstart.md"]
    assert len(shown) >= 7 and [text for text in run if text not in shown] == []


@pytest.mark.parametrize("command", COMMANDS, ids=[f"{command.page}: {command.text}" for command in COMMANDS])
def test_commands_parse_and_have_a_reason_if_they_are_not_run(command):
    match = MARK.fullmatch(command.mark) if command.mark else None
    assert match or not command.mark, command.mark
    if match and match[1]:
        assert f"def {match[2]}(" in read(ROOT / match[1])
    if command.text.startswith("grpoflow "):
        _, remaining = make_parsers()[0].parse_known_args(shlex.split(command.text.partition(" > ")[0])[1:])
        assert all("=" in word for word in remaining)


OVERRIDES = {
    tuple(word for word in shlex.split(command.text, comments=True)[1:] if "=" in word and word[0] != "-")
    for command in COMMANDS
    if command.text.startswith("grpoflow ")
}
"""Overrides of the commands."""


def test_the_configuration_of_each_command_and_experiment_can_be_saved_and_read_again(tmp_path):
    experiments = [(f"experiment={file.stem}",) for file in (BUILT_IN / "experiment").glob("*.yaml")]
    saved, compared = tmp_path / "saved.yaml", 0
    for overrides in sorted({*OVERRIDES, *experiments}):
        try:
            config = load(overrides)
        except ConfigError:  # placeholders such as CHECKOUT, sweeps
            continue
        saved.write_text(configuration.text(overrides, config.plain()))
        assert load(configuration.read(saved, [], None)) == config, overrides
        compared += 1
    assert compared > 25


def test_every_shell_block_has_its_commands_behind_a_prompt():
    for name, (file, _) in PAIRS.items():
        for block in FENCE.finditer(read(file)):
            assert block["kind"] != "sh", name
            assert block["kind"] != "console" or block["body"].startswith("$ "), name
    assert len(COMMANDS) > 60 and len(EXECUTED) > 25


def test_the_failure_table_is_complete_in_both_languages():
    chinese = yaml.safe_load(read(ROOT / "docs/zh/failures.yaml"))
    assert [*chinese] == [failure.name for failure in failures() if failure is not GRPOFLOW_ERROR]
    signs = [f"`{failure.sign}`" for failure in failures() if failure is not GRPOFLOW_ERROR]
    for language in ("en", "zh_CN"):
        table = generated.troubles(language)
        assert [sign for sign in signs if table.count(f"{sign}\n") != 1] == []
        assert table.index("### mindrlhf") < table.index("### verl") < table.index("### MindSpeed-RL")


def test_references_have_every_key_and_every_command():
    text = generated.configuration("en")
    roles = re.compile(r"^layout\.(generate|reference)\.")
    keys = {key for key in flat(load([]).plain()) if not roles.match(key)}
    named = {key for key in keys if f"`{key}`" in text or f"`{key}." in text}
    mappings = {key for key in keys if f"`{key.rpartition('.')[0]}`" in text}  # names chosen by the user
    assert keys == named | mappings and len(named) > 180
    documented = re.findall(r"^## grpoflow (\S+)", generated.commands("en"), re.MULTILINE)
    assert list(dict.fromkeys(documented)) == [*cli.COMMANDS]


@pytest.mark.parametrize(("page", "least"), [("migration.md", 25), ("troubleshooting.md", 7)])
def test_pages_name_keys_that_exist(page, least):
    recipes = ("mindrlhf_7b", "mindrlhf_one_stage_7b", "mindspeed_rl_7b")
    keys = [key for recipe in recipes for key in flat(load([f"experiment={recipe}"]).plain())]
    keys.append("engine.env.NAME")
    pattern = r"`((?:train|rollout|engine|layout|tokenize|reward)\.[\w.]+)[`=]"
    named = re.findall(pattern, read(ROOT / "docs" / page))
    unknown = [name for name in named if not any(f"{key}.".startswith(f"{name}.") for key in keys)]
    assert len(named) >= least and unknown == []


def sections(text):
    """Split the text at its headings."""
    return re.split(r"^#+ ", FENCE.sub("", text), flags=re.MULTILINE)


def shapes(text):
    """Count table rows, list items, steps, indented lines and pictures per section."""
    marks = (r"^\|", r"^- ", r"^\d+\. ", r"^    \S", r"!\[")
    return [
        tuple(len(re.findall(mark, section, re.MULTILINE)) for mark in marks) for section in sections(text)
    ]


@pytest.mark.parametrize("name", PAIRS)
def test_english_and_chinese_have_the_same_commands_and_shape(name):
    english, chinese = map(read, PAIRS[name])
    typed = [
        [(command.text, command.mark) for command in commands(name, text)] for text in (english, chinese)
    ]
    assert typed[0] == typed[1]
    generated = [re.findall(r"^<!-- generated: \w+ -->$", text, re.MULTILINE) for text in (english, chinese)]
    assert generated[0] == generated[1]
    levels = [re.findall(r"^(#+) ", FENCE.sub("", text), re.MULTILINE) for text in (english, chinese)]
    assert levels[0] == levels[1]
    for before, after, title in zip(shapes(english), shapes(chinese), sections(english), strict=True):
        assert before == after, title[:60]


def test_both_readmes_name_the_same_keys():
    for english, chinese in zip(*(sections(read(file)) for file in PAIRS["README.md"]), strict=True):
        keys = [set(re.findall(r"`([^`]+)`", re.sub(r"\s*\n\s*", " ", text))) for text in (english, chinese)]
        assert keys[0] == keys[1], english[:60]
    assert all(len(read(file).splitlines()) <= 150 for file in PAIRS["README.md"])


@pytest.mark.parametrize("file", [page for pair in PAIRS.values() for page in pair], ids=str)
def test_links_exist_and_pictures_are_small(file):
    links = re.findall(r"\]\(([^)]+)\)", FENCE.sub("", read(file)))
    for link in links:
        if "://" in link:
            assert re.fullmatch(r"https://[\w.-]+\.\w+(/\S*)?", link)
        elif not link.startswith("#"):
            target = file.parent / link.partition("#")[0]
            assert target.exists(), link
            assert not link.endswith(".png") or target.stat().st_size < 300_000


@pytest.mark.parametrize(("name", "least"), [("README.md", 5), ("evidence.md", 15), ("security.md", 11)])
def test_each_row_and_each_guarantee_names_tests_that_exist(name, least):
    for file in PAIRS[name]:
        text = read(file)
        if name == "security.md":
            entries = re.split(r"^- ", sections(text)[2], flags=re.MULTILINE)[1:]
        else:
            table = next(part for part in sections(text) if "tests/" in part)
            entries = re.findall(r"^\| .*\|$", table, re.MULTILINE)[1:]
        assert len(entries) >= least
        for entry in entries:
            named = re.findall(r"tests/[\w/]+\.py", entry)
            assert named, entry[:60]
            assert [test for test in named if not (ROOT / test).is_file()] == []


PINNED = ("mindspore", "ray", "antlr4-python3-runtime")
INSTALL = dict(re.findall(r"## engine=(\w+)\n(.*?)(?=\n## |\Z)", read(ROOT / "docs/install.md"), re.DOTALL))
"""Engine -> its section of docs/install.md."""


def rows(engine):
    lines = [line for line in INSTALL[engine].splitlines() if line.startswith("|") and "---" not in line]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def columns():
    names, *values = zip(*rows("mindspeed_rl"), strict=True)
    return {column[0]: dict(zip(names, column, strict=True)) for column in values}


def test_the_page_install_has_every_contract_of_every_engine():
    assert [row[0] for row in rows("mindrlhf")[1:]] == list(MINDRLHF)
    assert [row[0] for row in rows("mindrlhf_one_stage")[1:]] == [ONE_STAGE]
    assert list(columns()) == [MINDSPEED_RL]
    assert all(
        row[2].startswith(row[0]) for name in ("mindrlhf", "mindrlhf_one_stage") for row in rows(name)[1:]
    )


def test_mindspeed_rl_gets_the_versions_that_doctor_checks():
    pins, job = columns()[MINDSPEED_RL], job_of(*SEVEN)
    packages = mindspeed_rl.ENGINE.environment(job.engine).packages
    requested = {name: expected for name, expected, _ in packages}
    assert [name for name in PINNED if pins[name] not in SpecifierSet(requested[name])] == []
    variables = runtime_env(job)["env_vars"]
    assert pins["VLLM_VERSION"] == variables["VLLM_VERSION"]


def test_mindrlhf_gets_the_versions_that_doctor_checks():
    for name, expected, _ in known_versions("mindrlhf", "machine").packages:
        assert f"{name}{expected}" in INSTALL["mindrlhf"]
    assert "vllm-0.8.4.dev0" in INSTALL["mindrlhf"] and "vllm_mindspore-0.3.0" in INSTALL["mindrlhf"]
