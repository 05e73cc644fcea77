"""Checkouts without the code that a rehearsal replaces."""

import pytest

from stages.engines.rehearsal import SourceLocation, moved

LOCATIONS = (
    SourceLocation("worker.py", "import acl\n", "acl is hidden", ("e8a8fc1",)),
    SourceLocation("old.py", "CONSTANT = 1", "elsewhere", ("0cd087455",)),
)


@pytest.mark.parametrize(
    ("worker", "version", "missing"),
    [
        ("\nimport acl\n", "e8a8fc1", None),
        ("import acl as runtime\n", "e8a8fc1", "worker.py must contain `import acl`"),
        ("import acl\n", "0cd087455", "old.py must contain `CONSTANT = 1`"),
    ],
)
def test_each_location_of_a_version_must_be_in_the_checkout(tmp_path, worker, version, missing):
    (tmp_path / "worker.py").write_text(worker)
    problems = list(moved(tmp_path, "engine.mindrlhf_home", LOCATIONS, version))
    assert [problem.path for problem in problems] == ["engine.mindrlhf_home"] * (missing is not None)
    assert all(str(missing) in problem.rule for problem in problems)
