import importlib.metadata
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from pipeline.cli import COMMANDS, main
from pipeline.run.build import diagnosis
from pipeline.store import history
from stages.fetch.tokenizer_files import write_trained
from stages.tokenize.records import check_pair, read_columns
from stages.weights.sources import rank_directories
from tests.stages.weights.checkpoints import make_model, write_hf

TOOLS = ["strategy", "convert", "split", "merge", "reshard", "export"]
SHAPE = ["model.hidden_size=8", "model.num_hidden_layers=1", "model.num_attention_heads=2"]
SHAPE += ["model.num_key_value_heads=2", "model.intermediate_size=16", "model.vocab_size=32"]
SHAPE += ["model.tie_word_embeddings=false"]


pytestmark = pytest.mark.usefixtures("cache")


def test_every_command_has_help_with_examples(capsys):
    def shown(*words):
        with pytest.raises(SystemExit) as exit:
            main([*words])
        assert exit.value.code == 0
        return capsys.readouterr().out

    assert shown("--help") == shown("help") and shown("help", "plan") == shown("plan", "--help")
    assert [name for name in COMMANDS if f"\n  {name} " not in shown("--help")] == []
    for command in (*(set(COMMANDS) - {"weights"}), *(f"weights {tool}" for tool in TOOLS)):
        assert f"grpoflow {command}" in shown(*command.split(), "--help").split("examples:")[1]
    assert shown("--version").startswith(f"grpoflow {importlib.metadata.version('grpoflow')}\n")


WRONG = {
    "ui --port": ["nan", "inf", "1e999", "", "x", "1.5", "-1", "9" * 30],
    "weights split a b out --ranks": ["", "x", "3-1", "1,,2", "0-99999999999", "0-1048576", "9" * 5000],
    "weights export a b c dtype": ["bfloat16"],  # commands without configuration
    "diagnose . seed": ["1"],
    "completion bash seed": ["1"],
}


@pytest.mark.parametrize("words", WRONG)
def test_a_number_out_of_bounds_and_an_override_where_none_is_read_are_refused(words, capsys):
    option = words.split()[-1]
    message = f"argument {option}: " if option[0] == "-" else "unrecognized arguments"
    for value in WRONG[words]:
        with pytest.raises(SystemExit) as exit:
            main(f"{words}={value}".split())
        assert exit.value.code == 2 and message in capsys.readouterr().err
    assert main(["diagnose", str(FAILED / "default_ciphers"), "store=elsewhere"]) == 0


def test_the_name_of_a_run_can_be_set_and_removed(tmp_path, capsys):
    run = "20260101-000000-aaaa"
    history.record(tmp_path, run, "started", overrides=[], config={}, artifacts={})
    for name in ("best", ""):
        assert main(["runs", f"--name={run}={name}", f"store={tmp_path}"]) == 0
        assert history.find(tmp_path, run).name == (name or None)
    for name in ("last", "lr=1e-6"):  # commands would take them for something else
        assert main(["runs", f"--name={run}={name}", f"store={tmp_path}"]) == 2
        assert f"--name={name}: may neither be" in capsys.readouterr().err


def test_commands_on_an_absent_store(tmp_path, capsys):
    store = f"store={tmp_path / 'absent'}"
    assert main(["verify", "--deep", store]) == 0
    assert main(["gc", store]) == 0
    assert main(["runs", "--json", store]) == 0
    assert main(["show", "last", store]) == 2
    assert not (tmp_path / "absent").exists()


def tiny_hugging_face(directory):
    """Write a one-layer Qwen2 of the shape SHAPE; return its tensors."""
    sizes = {item.removeprefix("model.").partition("=")[0]: item.partition("=")[2] for item in SHAPE[:-1]}
    model = make_model(torch_dtype="float32", **{name: int(size) for name, size in sizes.items()})
    return {name: bits.view(np.float32) for name, bits in write_hf(directory, model).items()}


@pytest.mark.parametrize("command", ["runs", "gc", "verify"])
def test_a_store_is_read_without_a_configuration(command, tmp_path, shown, monkeypatch):
    root = tmp_path / "store"
    monkeypatch.setenv("GRPOFLOW_REMOTE", "no url")
    assert "train.steps" not in shown(command, f"store={root}", "remote=none", "train.steps=-1").err
    with monkeypatch.context() as alone:
        alone.setattr("pipeline.config.compose.compose", None)
        shown(command, f"store={root}")
        alone.setenv("GRPOFLOW_STORE", str(root))
        shown(command)
    assert "did you mean" in shown(command, "remote=none", "stor=x", code=2).err  # not the default store
    for store in ("s3://bucket/x", "5", "null"):
        assert "error: store" in shown(command, "remote=none", f"store={store}", code=2).err


def test_run_prints_a_line_of_json(tmp_path, printed):
    strategy = ["run", "--only", "strategy", f"store={tmp_path}", "layout=dp1_mp1_pp1"]
    for _ in range(2):  # built, then cached
        ended = printed(*strategy)
        assert ended["state"] == "finished" and (tmp_path / ended["artifacts"]["strategy"]).is_dir()
        assert history.find(tmp_path, "last").id == ended["run"]
    assert "train.stepz" in printed("run", "train.stepz=1", code=2)["error"]


def test_the_weight_tools_round_trip(tmp_path, monkeypatch):
    def tool(words, *overrides):
        assert main(["weights", *words.split(), *overrides]) == 0

    monkeypatch.chdir(tmp_path)
    source = tiny_hugging_face(tmp_path / "hf")
    tool("strategy --out a --role train", *SHAPE, "layout.train.data_parallel=2")
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "ckpt_strategy_rank_mine.ckpt").write_text("not a rank's")
    tool("strategy --out b", *SHAPE)  # the next removes the files of this layout
    tool("strategy --out b", *SHAPE, "layout=dp1_mp1_pp1")
    strategies = {"merged_ckpt_strategy.ckpt", *(f"ckpt_strategy_rank_{rank}.ckpt" for rank in (0, "mine"))}
    assert {file.name for file in (tmp_path / "b").iterdir()} == strategies
    tool("convert hf ms")
    tool("split ms a ranks")
    assert sorted(rank_directories(tmp_path / "ranks")) == [0, 1, 2, 3]
    tool("split hf a some --ranks 1,3 --format ckpt --dtype fp32")
    assert sorted(rank_directories(tmp_path / "some")) == [1, 3]
    assert [file.suffix for file in (tmp_path / "some" / "rank_1").iterdir()] == [".ckpt"]
    tool("reshard ranks a b other")
    tool("merge other b merged")
    tool("export merged hf back")
    back = load_file(tmp_path / "back" / "model.safetensors")
    assert back.keys() == source.keys()
    for name, tensor in source.items():
        np.testing.assert_array_equal(back[name], tensor)


def test_an_output_that_cannot_be_written_is_reported(tmp_path, shown):
    (tmp_path / "file").touch()
    tiny_hugging_face(tmp_path / "hf")
    out = str(tmp_path / "file" / "out")
    for words in (["strategy", "--out", out], ["convert", str(tmp_path / "hf"), out]):
        assert f"error: {tmp_path / 'file'}" in shown("weights", *words, code=1).err


def test_an_interrupted_tool_removes_its_partial_output(tmp_path, monkeypatch):
    def interrupted(source, out, *more, **options):
        (out / "model.safetensors").write_bytes(b"x")
        assert out == tmp_path / "deep" / ".out.part"
        raise KeyboardInterrupt

    monkeypatch.setattr("stages.weights.convert.convert", interrupted)
    tiny_hugging_face(tmp_path / "hf")
    with pytest.raises(KeyboardInterrupt):
        main(["weights", "convert", str(tmp_path / "hf"), str(tmp_path / "deep" / "out")])
    assert list((tmp_path / "deep").iterdir()) == []


def test_probe_exits_with_1_if_the_reward_cannot_be_earned(shown):
    assert main(["probe"]) == 0
    assert "problems" in shown("probe", "reward=boxed", code=1).out


def test_probe_imports_a_reward_from_the_working_directory(tmp_path):
    (tmp_path / "near.py").write_text(
        "def any_text(completions, solutions):\n    return [1.0] * len(solutions)\n"
    )
    script = [str(Path(sys.executable).with_name("grpoflow")), "probe", "--json"]
    script += ["reward.functions=[near:any_text]", "reward.weights=[1.0]"]
    done = subprocess.run(script, cwd=tmp_path, capture_output=True, text=True)
    assert json.loads(done.stdout)["functions"]["near:any_text"]["failures"] == 0, done.stderr


@pytest.fixture
def tokenize(tmp_path):
    """Tokenize a file of rows with a small tokenizer; return the exit code."""
    write_trained(["say hi"] * 4, 300, tmp_path)

    def run(name, text, *more):
        (tmp_path / name).write_text(text)
        paths = ["--input", tmp_path / name, "--tokenizer", tmp_path, "--out", tmp_path / "out"]
        return main(["tokenize", *map(str, paths), *more])

    return run


def test_tokenize_names_a_tokenizer_that_does_not_exist(tmp_path, capsys):
    (tmp_path / "rows.jsonl").write_text('{"question": "a", "answer": "1"}\n')
    absent = tmp_path / "absent"
    paths = ["--input", str(tmp_path / "rows.jsonl"), "--out", str(tmp_path / "out")]
    assert main(["tokenize", *paths, "--tokenizer", str(absent), "dataset=gsm8k"]) == 2
    assert f"--tokenizer={absent}: must be a directory; name the directory" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_tokenize_reads_a_json_array_of_instructions(tmp_path, tokenize, capsys):
    rows = json.dumps([{"instruction": "say", "input": "", "output": "hi"}, {"instruction": "say"}])
    alpaca = ["tokenize=alpaca", "tokenize.sft_length=200", "model.pad_token_id=100000"]
    assert tokenize("rows.json", rows, *alpaca) == 1
    assert "rows.json:2 (row): has no key 'output'" in capsys.readouterr().err
    assert tokenize("rows.json", rows, *alpaca, "dataset.max_bad_share=0.5") == 0
    card = json.loads(capsys.readouterr().out)["rows"]
    assert (card["rows_in"], card["rows_out"]) == (2, 1)
    assert check_pair(tmp_path / "out" / "rows.mindrecord") == 1
    ids = read_columns(tmp_path / "out" / "rows.mindrecord", ["input_ids"])["input_ids"]
    assert ids[0, -1] == 100_000  # the model section's; Llama's tokenizers name no padding token
    assert tokenize("rows.json", rows, "--sft", "tokenize=alpaca") == 2


def test_report_opens_the_browser(tmp_path, monkeypatch, capsys):
    store = tmp_path / "a store"
    page = store / "report" / "0123" / "index.html"
    page.parent.mkdir(parents=True)
    page.touch()
    history.record(store, "one", "started", overrides=[], config={}, artifacts={"report": "report/0123"})
    opened: list[str] = []
    for browser, code in ((opened.append, 1), (lambda address: not opened.append(address), 0)):
        monkeypatch.setattr("webbrowser.open", browser)
        assert main(["report", "one", f"store='{store}'"]) == 0
        assert main(["report", "one", "--open", f"store='{store}'"]) == code
    assert opened == [f"file://{tmp_path}/a%20store/report/0123/index.html"] * 2
    assert capsys.readouterr().out == f"{page}\n" * 4


def test_report_compares_runs(tmp_path, shown):
    for i in range(14):
        config = {"seed": i, "train": {"beta": 0.01}}
        history.record(tmp_path, f"run{i}", "started", overrides=[f"seed={i}"], config=config, artifacts={})
    history.record(tmp_path, "run1", "named", name="second")
    store = f"store={tmp_path}"
    page = Path(shown("report", "run0", "--compare", "second", "run7", "run0", store).out.strip())
    assert page.is_relative_to(tmp_path / "comparisons")
    text = page.read_text()
    assert "second · run1" in text and "grpoflow run seed=7" in text
    assert "beta" not in text, "a value that does not differ"
    assert "compares 2 to 12 different runs" in shown("report", "--compare", "last", store, code=2).err
    assert main(["report", "--compare", *(f"run{i}" for i in range(13)), store]) == 2


@pytest.mark.parametrize(
    ("typed", "completion"),
    [("model=ti", "model=tiny"), ("train.be", "train.beta="), ("train.loss_type=", "train.loss_type=dapo")],
)
def test_completion_through_a_shell(typed, completion, tmp_path):
    pytest.importorskip("argcomplete")
    line, out = f"grpoflow plan {typed}", tmp_path / "completions"
    shell = {
        "_ARGCOMPLETE": "1", "_ARGCOMPLETE_IFS": "\n", "_ARGCOMPLETE_SHELL": "fish", "COMP_LINE": line,
        "COMP_POINT": str(len(line)), "COMP_TYPE": "9", "_ARGCOMPLETE_STDOUT_FILENAME": str(out),
    }  # fmt: skip
    subprocess.run([sys.executable, "-m", "pipeline.cli"], env={**os.environ, **shell}, timeout=120)
    assert completion in {word.partition("\t")[0].strip() for word in out.read_text().split("\n")}


def test_the_shell_code_is_printed():
    pytest.importorskip("argcomplete")
    assert [main(["completion", shell]) for shell in ("bash", "zsh", "fish")] == [0, 0, 0]


FAILED = Path(__file__).parents[1] / "data" / "logs" / "failed"


def test_diagnose_exits_with_0_if_it_knows_the_failure(tmp_path, printed):
    shown = printed("diagnose", str(FAILED / "npu_hccl_timeout"))
    assert shown["waited_for"] == [2] and shown["culprit"].endswith("worker_2.log")
    assert {finding["kind"] for finding in shown["findings"]} == {"follows"}
    (tmp_path / "worker_0.log").write_text("step 1\n")
    assert main(["diagnose", str(tmp_path)]) == 1
    assert main(["diagnose", str(tmp_path / "absent")]) == 2


def test_an_error_of_the_stage_is_not_repeated(tmp_path):
    (tmp_path / "stage.log").write_text("error: model.path=x: must be a directory\n")
    assert diagnosis(tmp_path) == []
