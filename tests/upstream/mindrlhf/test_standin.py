"""The stand-in of tests/data beside mindrlhf itself: same overrides and kill, the same to be seen outside."""

import json
import re

import pytest
from safetensors import safe_open

from stages.engines.mindrlhf import logs
from tests.e2e.outside import artifact, rows
from tests.upstream.mindrlhf.runs import STEPS, finish, record

pytestmark = [pytest.mark.upstream, pytest.mark.core, pytest.mark.timeout(1800)]
READ = (logs._PLAN, logs._BEGIN, logs._METRICS, logs._SAVED, logs.UPDATE, logs._SPEED)
ONLY_UPSTREAM = re.compile(r"strategy/.*|run/.*")
"""What the stand-in does not write: strategies, which grpoflow then takes from the layout, and other logs."""
ONLY_STANDIN = re.compile(r"checkpoints/\.barrier/.*")
"""How its workers wait for each other."""


@pytest.fixture(scope="module")
def killed_standin(standin, tmp_path_factory):
    hangs = "+engine.env.STANDIN='hang@2'"  # else the kill might come too late
    return record(standin("e8a8fc1"), tmp_path_factory.mktemp("standin"), first=[hangs])


@pytest.fixture(scope="module")
def older_standin(standin, tmp_path_factory):
    return finish(standin("0cd087455"), tmp_path_factory.mktemp("older_standin"))


def shape(line):
    """A log line without what differs from run to run: stamp, source file, numbers, the path of a file."""
    line = re.sub(r"^[-\d]{10} [:,\d]{12}", "STAMP", line.rstrip())
    line = re.sub(r"\[[^\[\]]*\.py:\d+\]", "[SOURCE]", line)
    line = re.sub(r"/\S*/(checkpoints|completions)/", r"WORK/\1/", line)
    head, separator, text = line.partition(" - INFO - ")
    if logs._METRICS.search(text):
        text = re.sub(rf"(?<=: ){logs.NUMBER}(?=[,}}])", "N", text)
    elif logs.UPDATE.search(text) or logs._SPEED.search(text):
        text = re.sub(rf"(?<=[ \[]){logs.NUMBER}", "N", text)
    return head + separator + text


def shapes(log):
    """The lines that grpoflow reads, in order."""
    lines = [line for line in log.splitlines() if logs.FINISHED in line or any(p.search(line) for p in READ)]
    return [shape(line) for line in lines]


def tensors(file):
    """Return the metadata of a safetensors file, and dtype and shape of each tensor by name."""
    with safe_open(file, "np") as stream:
        slices = {name: stream.get_slice(name) for name in stream.keys()}  # noqa: SIM118
        return stream.metadata(), {
            name: (item.get_dtype(), item.get_shape()) for name, item in slices.items()
        }


def names(root, leave_out):
    result = {str(path.relative_to(root)) for path in root.rglob("*") if not path.is_dir()}
    return {name for name in result if not leave_out.fullmatch(name)}


def test_log_lines(killed, killed_standin):
    assert len(shapes(killed.before)) >= 1 + 2 * 6
    assert shapes(killed_standin.before) == shapes(killed.before)
    assert shapes(killed_standin.after) == shapes(killed.after)


def test_log_lines_of_the_older_version(older, older_standin):
    assert len(shapes(older.log)) == 2 + 6 * STEPS
    assert shapes(older_standin.log) == shapes(older.log)


def test_file_names(killed, killed_standin):
    assert names(killed_standin.left, ONLY_STANDIN) == names(killed.left, ONLY_UPSTREAM)


@pytest.mark.parametrize("part", ["train", "optimizer", "ref"])
def test_checkpoints(part, killed, killed_standin):
    actual, reference = (item.left / "checkpoints" / part / "rank_0" for item in (killed_standin, killed))
    files = sorted(reference.glob("*.safetensors"))
    assert len(files) == 2
    for file in files:
        assert tensors(actual / file.name) == tensors(file)
    assert json.loads((actual / "meta.json").read_text()) == json.loads((reference / "meta.json").read_text())


def test_checkpoints_of_the_older_version(older, older_standin):
    actual, reference = (
        artifact(item.store, "grpo") / "train/rank_0/policy_model_rank_0-1_3.safetensors"
        for item in (older_standin, older)
    )
    assert tensors(actual) == tensors(reference)


def types(row):
    return {key: type(value) for key, value in row.items()}


def test_metrics_and_completions(killed, killed_standin):
    for file in ("metrics.jsonl", "completions.jsonl"):
        actual, reference = (rows(item.store, "grpo", file)[0] for item in (killed_standin, killed))
        assert types(actual) == types(reference)
    name = "completions/prompt_completions_step_0.json"
    actual, reference = (json.loads((item.left / name).read_text())[0] for item in (killed_standin, killed))
    assert types(actual) == types(reference)
