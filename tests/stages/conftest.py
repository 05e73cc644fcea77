import sys

import pytest


@pytest.fixture
def transform_checkpoints(monkeypatch):
    """MindSpore's. Its children pickle what no module names, and so ask every module for it by getattr.

    Those of transformers import half a library then, or fail for a package that is not there.
    """
    mindspore = pytest.importorskip("mindspore")
    for name in list(sys.modules):
        if name.partition(".")[0] == "transformers":
            monkeypatch.delitem(sys.modules, name)
    return mindspore.transform_checkpoints
