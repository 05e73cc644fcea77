"""Checks of Megatron's indexed data sets; tests/upstream/mindspeed_rl compares templates with upstream's."""

import pytest

from stages.base.errors import InputError
from stages.engines.mindspeed_rl.tokenize import sequences
from tests.stages.engines.mindspeed_rl.jobs import write_index


def test_rows_of_an_index_are_counted(tmp_path):
    write_index(tmp_path / "data", [[1, 2, 3], [4], []])
    assert sequences(tmp_path / "data.idx") == 3


@pytest.mark.parametrize("damage", ["magic", "index", "tokens", "absent"])
def test_a_damaged_data_set_is_refused(tmp_path, damage):
    write_index(tmp_path / "data", [[1, 2, 3], [4]])
    index, tokens = tmp_path / "data.idx", tmp_path / "data.bin"
    if damage == "magic":
        index.write_bytes(b"X" + index.read_bytes()[1:])
    elif damage == "index":
        index.write_bytes(index.read_bytes()[:-8])
    elif damage == "tokens":
        tokens.write_bytes(tokens.read_bytes()[:-4])
    else:
        tokens.unlink()
    with pytest.raises(InputError, match="complete index"):
        sequences(index)
