import shutil

import numpy as np
import pytest

from stages.base.errors import InputError
from stages.tokenize.records import RecordWriter, read_columns


def write(directory, rows, length=8, name="a.mindrecord", dtype="int64"):
    directory.mkdir(exist_ok=True)
    values = np.arange(rows * length).reshape(rows, length)
    columns = {"prompt_ids": values, "labels": -values}
    with RecordWriter(directory / name, dict.fromkeys(columns, length), dtype, rows) as writer:
        writer.write(columns)
    return directory / name, columns


@pytest.mark.parametrize(
    ("rows", "length", "dtype"), [(1, 8, "int64"), (700, 5, "int32"), (300, 3000, "int64")]
)
def test_rows_come_back_in_order(tmp_path, rows, length, dtype):
    file, columns = write(tmp_path, rows, length, dtype=dtype)
    result = read_columns(file, ["labels", "prompt_ids"])
    for name, values in columns.items():
        assert result[name].dtype == np.dtype(dtype)
        assert (result[name] == values).all()
        assert result[name].shape == values.shape


def test_a_directory_can_be_moved_but_a_file_cannot_be_renamed(tmp_path):
    file, columns = write(tmp_path / "one", 20)
    shutil.move(tmp_path / "one", tmp_path / "two")
    assert (read_columns(tmp_path / "two" / file.name, ["labels"])["labels"] == columns["labels"]).all()
    for ending in ("", ".db"):
        shutil.copy(tmp_path / "two" / f"{file.name}{ending}", tmp_path / f"b.mindrecord{ending}")
    with pytest.raises(InputError, match="the stored name"):
        read_columns(tmp_path / "b.mindrecord", ["labels"])


def test_the_index_of_another_file_is_refused_before_the_reader_crashes(tmp_path):
    first, _ = write(tmp_path / "one", 300)
    for rows, length in ((200, 8), (300, 9)):
        second, _ = write(tmp_path / f"other{rows}_{length}", rows, length)
        shutil.copy(f"{second}.db", f"{first}.db")
        with pytest.raises(InputError, match="does not belong to"):
            read_columns(first, ["labels"])
