"""Outputs appear complete or not at all; a full disk is one clear error."""

import pytest

from stages.base.errors import InputError
from stages.weights.outputs import complete_directory


def test_a_directory_appears_when_complete(tmp_path):
    with complete_directory(tmp_path / "deep" / "out") as directory:
        (directory / "file").write_text("x")
        assert not (tmp_path / "deep" / "out").exists()
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["out"]
    assert (tmp_path / "deep" / "out").stat().st_mode & 0o777 == 0o755


def test_a_failure_leaves_nothing(tmp_path):
    with pytest.raises(KeyboardInterrupt), complete_directory(tmp_path / "out") as directory:
        (directory / "file").write_text("x")
        raise KeyboardInterrupt
    assert list(tmp_path.iterdir()) == []


def test_second_writer_of_a_directory_is_refused_before_it_writes(tmp_path):
    target = tmp_path / "out"
    with complete_directory(target) as directory:
        (directory / "file").write_text("first")
        with pytest.raises(InputError, match="is being written"), complete_directory(target):
            pytest.fail("both write")
        assert (directory / "file").read_text() == "first"
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_existing_target_is_not_overwritten(tmp_path):
    target = tmp_path / "out"
    with pytest.raises(InputError, match="exists already"), complete_directory(target) as directory:
        (directory / "file").write_text("ours")
        target.mkdir()
        (target / "file").write_text("theirs")
    for existing in (target, target / "file"):
        with pytest.raises(InputError, match="exists already"), complete_directory(existing):
            pytest.fail("it exists")
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    assert (target / "file").read_text() == "theirs"
