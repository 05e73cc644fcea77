from xml.etree import ElementTree

import pytest

from stages.base.errors import ConfigError
from stages.report.layout_file import layout_svg
from tests.stages.weights.checkpoints import make_layout, make_model

TEXT = "{http://www.w3.org/2000/svg}text"


def test_the_file_is_self_contained_and_names_every_rank_with_its_bytes():
    """hidden 32, vocabulary 96, four layers: stage 0 holds the embedding, stage 1 norm and head."""
    text = layout_svg(make_model(), make_layout(model_parallel=2, pipeline_stage=2))
    root = ElementTree.fromstring(text)
    texts = [node.text for node in root.iter(TEXT)]
    assert [f"rank {rank}" in texts for rank in range(5)] == [True] * 4 + [False]
    assert "stage 0: embedding, layers 0–1" in texts and "stage 1: layers 2–3, norm, head" in texts
    assert sum(item.endswith("MiB") for item in texts) == 4
    assert "--ink:" in text and "var(--ink)" in text and "http" not in text.replace(root.tag[1:-4], "")


def test_too_many_cards_are_refused():
    with pytest.raises(ConfigError, match="at most 64 cards are drawn"):
        layout_svg(make_model(), make_layout(data_parallel=65))
