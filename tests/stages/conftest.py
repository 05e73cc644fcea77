"""Modules with reward functions of a user."""

import pytest

from stages.rewards.process import PROCESS


@pytest.fixture
def users(tmp_path, monkeypatch):
    """A function that writes the module my_rewards, which the scoring process then imports."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def write(source):
        (tmp_path / "my_rewards.py").write_text(source)
        PROCESS.close()

    yield write
    PROCESS.close()
