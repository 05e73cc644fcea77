import pytest

from tests.stages.report.synthetic import make_run


@pytest.fixture
def run(tmp_path):
    """Stage name -> artifact directory of a made-up finished run; free to be damaged."""
    return make_run(tmp_path / "store")
