from stages.report.data_card import data_card
from tests.stages.report.synthetic import CARD


def test_files_stand_side_by_side():
    card = data_card(CARD, 100)
    assert card.files == ("train", "sft", "test")
    assert ("rows in", "4,000", "4,000", "1,000") in card.counts and (
        "truncated",
        "none",
        "none",
        "none",
    ) in card.counts
    assert card.lengths[0].figures == ("31.2", "24", "31", "38", "44") and max(card.lengths[0].bars) == 1
    assert card.samples[0][1][0] == ("prompt", "Tom has 3 and 4 apples.")
    assert ("tokenizer · size", "512") in card.rest


def test_an_unknown_shape_is_still_shown():
    card = data_card({"files": 3, "unknown_share": 0.25, "counts": [1, 2, 3, 4, 5, 6, 7]}, 100)
    assert card.rest == (("files", "3"), ("unknown share", "25.0 %"), ("counts", "7 values, 1 to 7"))
    assert not data_card({}, 100)
    odd = data_card(
        {"files": {"train": {"lengths": {"x": {"histogram": {"rows": ["a", None, 2]}}}, "samples": "s"}}}, 9
    )
    assert odd.lengths[0].bars == (0, 0, 1) and odd.lengths[0].figures[0] == "–"
