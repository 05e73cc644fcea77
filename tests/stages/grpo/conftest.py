import mindspore as ms
import pytest


@pytest.fixture(autouse=True, scope="session")
def graph_mode():
    ms.set_context(mode=ms.GRAPH_MODE)
