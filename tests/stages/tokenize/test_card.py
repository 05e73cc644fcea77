from array import array

from stages.tokenize.card import summary


def test_summary_of_known_lengths():
    result = summary(array("I", [1, 2, 3, 4, 100]))
    assert result["mean"] == 22.0
    assert result["percentiles"]["0"] == 1
    assert result["percentiles"]["50"] == 3
    assert result["percentiles"]["100"] == 100
    assert sum(result["histogram"]["rows"]) == 5
    assert result["histogram"]["edges"][0] == 1.0
    assert result["histogram"]["edges"][-1] == 100.0


def test_equal_lengths_make_one_bin():
    assert summary(array("I", [7, 7]))["histogram"]["rows"] == [2]
