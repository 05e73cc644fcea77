"""A rehearsal refuses a checkout in which what it stands on has moved."""

import pytest

from stages.engines.mindspeed_rl.rehearsal.locations import LOCATIONS as MINDSPEED_RL
from stages.engines.rehearsal import SourceLocation, moved

LOCATIONS = (
    SourceLocation("worker.py", "Worker.start", "LLM(", "vllm.LLM", {"e8a8fc1": 3, "0cd087455": None}),
    SourceLocation("old.py", "", "CONSTANT = 1", "elsewhere", {"0cd087455": 1}),
)
WORKER = "class Worker:\n    def start(self):\n        self.engine = LLM()\n"


def problems(home, worker, version="e8a8fc1"):
    (home / "worker.py").write_text(worker)
    return list(moved(home, "engine.mindrlhf_home", LOCATIONS, version))


def test_a_checkout_with_every_place_of_its_version_is_taken(tmp_path):
    assert problems(tmp_path, WORKER) == []
    assert problems(tmp_path, "# a line's number may shift\n" + WORKER) == []
    (problem,) = problems(tmp_path, "", "0cd087455")
    assert "old.py: cannot be read" in problem.rule


@pytest.mark.parametrize(
    ("edited", "told"),
    [
        ("class Worker:\n    def begin(self):\n        self.engine = LLM()\n", "has no Worker.start"),
        ("class Worker:\n    def start(self):\n        pass\n\nLLM()\n", "Worker.start has no `LLM(`"),
        ("class Worker:\n    def start(self)\n", "cannot be read"),
    ],
    ids=["renamed", "elsewhere", "no Python"],
)
def test_a_moved_place_is_refused_with_file_place_and_setting(tmp_path, edited, told):
    (problem,) = problems(tmp_path, edited)
    assert problem.path == "engine.mindrlhf_home"
    for words in (str(tmp_path / "worker.py"), told, "vllm.LLM; e8a8fc1:3"):
        assert words in problem.rule


def test_an_import_under_another_name_is_another_import(tmp_path):
    (location,) = (location for location in MINDSPEED_RL if "acl" in location.words)
    file = tmp_path / location.file
    file.parent.mkdir(parents=True)
    for line, count in (("import acl\n", 0), ("import acl as runtime\n", 1)):
        file.write_text(line)
        assert len(list(moved(tmp_path, "home", [location], "05a90d7"))) == count
