import shutil
from pathlib import Path

import pytest

from tests.e2e import contention
from tests.e2e.conftest import Finished


@pytest.mark.parametrize("locks", [True, False])
def test_processes_that_want_the_same_at_once(
    finished: tuple[Path, Finished], tmp_path: Path, locks: bool
) -> None:
    store = Path(shutil.copytree(finished[0], tmp_path / "store", symlinks=True))
    for stage in ("fetch_dataset", "tokenize", "strategy", "split", "evaluate", "report"):
        shutil.rmtree(store / stage)
    missing, ran = contention.round_of(store, locks=locks, like=finished[0])
    assert missing == 9  # evaluate and report of one graph, report of another are theirs alone
    assert ran == missing if locks else ran > missing
