"""A rehearsal refuses a checkout in which what it replaces has moved."""

from __future__ import annotations

from pathlib import Path

import pytest

from stages.engines.mindrlhf.rehearsal.places import Place, Repository, check

PLACES = (
    Place("mindrlhf/worker.py", "Worker.start", "LLM(", {"e8a8fc1": 3}, "vllm.LLM"),
    Place("mindrlhf/old.py", "", "CONSTANT = 1", {"0cd087455": 1}, "elsewhere"),
    Place("mindformers/mask.py", "mask", "def mask(", {"051d65f": 1}, "plain", "mindformers"),
)
WORKER = "class Worker:\n    def start(self):\n        self.engine = LLM()\n"


@pytest.fixture
def homes(tmp_path: Path) -> dict[Repository, Path]:
    (tmp_path / "mindrlhf").mkdir()
    (tmp_path / "mindrlhf" / "worker.py").write_text(WORKER)
    (tmp_path / "mindformers").mkdir()
    (tmp_path / "mindformers" / "mask.py").write_text("def mask():\n    pass\n")
    return {"mindrlhf": tmp_path, "mindformers": tmp_path}


def test_a_checkout_with_every_place_of_its_version_is_taken(homes: dict[Repository, Path]) -> None:
    assert list(check(homes, "e8a8fc1", places=PLACES)) == []


@pytest.mark.parametrize(
    ("edited", "told"),
    [
        ("class Worker:\n    def begin(self):\n        self.engine = LLM()\n", "has no Worker.start"),
        ("class Worker:\n    def start(self):\n        pass\n\nLLM()\n", "Worker.start has no `LLM(`"),
        ("class Worker:\n    def start(self)\n", "cannot be read"),
    ],
    ids=["renamed", "elsewhere", "no Python"],
)
def test_a_moved_place_is_refused_with_file_place_and_setting(
    homes: dict[Repository, Path], edited: str, told: str
) -> None:
    file = homes["mindrlhf"] / "mindrlhf" / "worker.py"
    file.write_text(edited)
    (problem,) = check(homes, "e8a8fc1", places=PLACES)
    assert problem.path == "engine.mindrlhf_home"
    assert str(file) in problem.rule
    assert told in problem.rule
    assert "e8a8fc1:3" in problem.rule


def test_a_lines_number_may_shift(homes: dict[Repository, Path]) -> None:
    (homes["mindrlhf"] / "mindrlhf" / "worker.py").write_text("# one line more\n" + WORKER)
    assert list(check(homes, "e8a8fc1", places=PLACES)) == []
