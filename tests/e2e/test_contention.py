import shutil
from pathlib import Path

import pytest

from tests.e2e import contention

GRAPHS = ([], [], ["report.title=other"], ["report.samples=3"])


@pytest.mark.parametrize("locks", [True, pytest.param(False, marks=pytest.mark.long)])
def test_concurrent_runs_build_each_artifact_once(finished, tmp_path, locks):
    store = Path(shutil.copytree(finished[0], tmp_path / "store", symlinks=True))
    for stage in ("fetch_dataset", "tokenize", "strategy", "split", "report"):
        shutil.rmtree(store / stage)
    missing, ran = contention.round_of(store, locks=locks, like=finished[0], graphs=GRAPHS)
    assert missing == 7  # two graphs share all, and two have a report of their own
    assert ran == missing if locks else ran > missing
