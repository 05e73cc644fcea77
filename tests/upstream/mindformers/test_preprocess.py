"""Records of `grpoflow tokenize` equal those of mindformers' preprocessing scripts."""

import json
import random
import subprocess
from pathlib import Path

import pytest

from pipeline import cli
from stages.fetch.tokenizer_files import write_trained
from stages.tokenize.records import read_columns
from tests.upstream.programs import ask, run

pytestmark = [pytest.mark.upstream, pytest.mark.core]
CONFIG = "tokenizer_config.json"
PROGRAM = Path(__file__).parent / "preprocess_program.py"
LENGTH, LONGER = 24, 120
SPECIAL = 151643
"""Id of <|endoftext|>, a constant of mindformers' tokenizer; the two of chat turns follow it, as in ours."""
WIKI = """
 = Robert Boulter =

 He was an actor , born @-@ so to say @-@ in 1 @,@ 234 @.@ 5 . " It 's a test " , he said ; ' quoted ' : yes !

 = = Career = =

 ## Not a heading #### with { braces } [ brackets ] ( and ) at 20 ° C , cafe\u0301 , caf\u00e9 N times .
 boys ' toys ?

 = = = = Four = = = =

 Another one with 中文 文本 .
 Second line of it . <unk> <|endoftext|>

"""
ALPACA = [
    {"instruction": "Name a colour.", "input": "", "output": "Red"},
    {"instruction": "Add.", "input": "1 and 2", "output": "3"},
    {"instruction": "Count", "input": "to four ## please", "output": "one two three four " * 9},
]


@pytest.fixture
def vocabulary(tmp_path):
    directory = tmp_path / "tokenizer"
    directory.mkdir()
    write_trained([WIKI, "system\nYou are a helpful assistant.", "user\nassistant\n"] * 4, 700, directory)
    return directory


@pytest.fixture
def theirs(checkout, interpreter, vocabulary, tmp_path):
    home, python = checkout("mindformers-051d65f"), interpreter("mindspore")

    def records(kind, source, number=None, length=LENGTH):
        request = {"kind": kind, "source": str(source), "number": number}
        first = min(map(int, json.loads((vocabulary / CONFIG).read_text())["added_tokens_decoder"]))
        rows = ask(python, PROGRAM, request, home, vocabulary, length)
        return [[index if index < SPECIAL else index - SPECIAL + first for index in row] for row in rows]

    return records


@pytest.fixture
def ours(vocabulary, tmp_path, capsys):
    def records(kind, source, *overrides, length=LENGTH):
        out, length = tmp_path / "out", f"tokenize.sft_length={length}"
        line = ["tokenize", "--input", source, "--tokenizer", vocabulary, "--out", out, f"tokenize={kind}"]
        assert cli.main([*map(str, line), length, *overrides]) == 0
        capsys.readouterr()
        files = sorted(out.glob("*.mindrecord"))
        return [row for file in files for row in read_columns(file, ["input_ids"])["input_ids"].tolist()]

    return records


def test_blocks_of_wikitext(theirs, ours, tmp_path):
    source = tmp_path / "wiki.train.tokens"
    source.write_text(WIKI * 3, encoding="utf-8")
    expected = theirs("wiki", source, 2)
    assert len(expected) > 20
    assert ours("wiki", source, "tokenize.repeat=2", "tokenize.shards=3") == expected


def test_blocks_of_wikipedia(theirs, ours, interpreter, tmp_path):
    """Two files, read more than once; lines of every length, so that some blocks end with a line."""
    words, choose = ["born", "##", "café", "中文", "yes", "1 234"], random.Random(5)
    texts = [
        ["\n".join("  ".join(choose.choices(words, k=choose.randint(1, 12))) + " " for _ in range(20)), " \n"]
        for _ in range(2)
    ]
    source = tmp_path / "parquet"
    source.mkdir()
    program = tmp_path / "write.py"
    program.write_text(
        "import json, sys\nimport pyarrow as pa\nimport pyarrow.parquet as pq\n"
        "for n, rows in enumerate(json.load(sys.stdin)):\n"
        "    table = pa.table({'text': rows, 'id': list(range(len(rows)))})\n"
        "    pq.write_table(table, f'{sys.argv[1]}/{n}.parquet')\n"
    )
    run(interpreter("mindspore"), program, source, stdin=json.dumps(texts))
    expected = theirs("wikipedia", source, 60)
    assert len(expected) == 60 and expected.index(expected[0], 1) > 1  # begins again
    assert ours("wikipedia", source, "tokenize.samples_num=60") == expected


def test_questions_and_answers(theirs, ours, checkout, interpreter, tmp_path):
    """alpaca_converter.py and then `qa`; labels are ours, because theirs repeat the input."""
    source, converted = tmp_path / "alpaca.json", tmp_path / "conversation.jsonl"
    source.write_text(json.dumps(ALPACA), encoding="utf-8")
    script = checkout("mindformers-051d65f") / "research/qwen2/alpaca_converter.py"
    paths = [f"--data_path={source}", f"--output_path={converted}"]
    subprocess.run([interpreter("mindspore"), script, *paths], check=True)
    expected = theirs("qa", converted, length=LONGER)
    assert len({tuple(row) for row in expected}) == len(ALPACA)
    overrides = ("tokenize.compat=mindformers", "tokenize.over_long=truncate")
    assert ours("alpaca", source, *overrides, length=LONGER) == expected
