"""MindRecord files equal MindSpore's, and damaged ones are refused."""

import shutil
import sqlite3

import numpy as np
import pytest

from stages.base.errors import InputError
from stages.tokenize.mindrecord import MindRecordFile
from stages.tokenize.records import read_columns

PAGE, HEADER = 1 << 15, 1 << 14
EDGES = [
    0, -1, 1, 127, 128, -128, -129, 255, 32767, 32768, -32768, -32769,
    2**31 - 1, 2**31, -(2**31), -(2**31) - 1, 2**40, 2**63 - 1, -(2**63),
]  # fmt: skip


def write_file(file, columns, page=PAGE):
    dtype = str(next(iter(columns.values())).dtype)
    with MindRecordFile(file, list(columns), dtype, page, HEADER) as records:
        for start in range(0, len(next(iter(columns.values()))), 100):
            records.write({name: values[start : start + 100] for name, values in columns.items()})


def write_with_mindspore(file, columns, page=PAGE):
    writer_module = pytest.importorskip("mindspore.mindrecord")
    writer = writer_module.FileWriter(str(file), shard_num=1)
    writer.set_header_size(HEADER)
    writer.set_page_size(page)
    dtype = str(next(iter(columns.values())).dtype)
    writer.add_schema({name: {"type": dtype, "shape": [-1]} for name in columns})
    rows = len(next(iter(columns.values())))
    writer.write_raw_data([{name: values[i] for name, values in columns.items()} for i in range(rows)])
    writer.commit()


def read(file, columns, **arguments):
    from mindspore.dataset import MindDataset

    dataset = MindDataset(str(file), columns_list=list(columns), num_parallel_workers=1, **arguments)
    return list(dataset.create_dict_iterator(num_epochs=1, output_numpy=True))


def index(file):
    with sqlite3.connect(f"{file}.db") as connection:
        return connection.execute("SELECT * FROM INDEXES").fetchall()


def random_ids(rows, length, dtype=np.int64, filled=0, seed=0):
    values = np.random.default_rng(seed).integers(-70_000, 70_000, (rows, length))
    values[:, length - filled :] = 151_643
    return values.astype(dtype)


SMALL = {
    "edges": {"b": np.array([EDGES, EDGES[::-1]]), "a": np.array([[1], [2]])},
    "padded": {"x": random_ids(200, 59, filled=50), "y": np.zeros((200, 13), np.int64)},
    "two pages": {"x": random_ids(250, 64), "y": random_ids(250, 3)},
    "int32": {"x": random_ids(90, 30, np.int32, filled=7), "y": random_ids(90, 4, np.int32, filled=4)},
    "one column": {"x": random_ids(40, 30, filled=20)},
}


@pytest.mark.parametrize("columns", SMALL.values(), ids=SMALL.keys())
def test_a_small_file_is_byte_for_byte_mindspores(tmp_path, columns):
    for name, write in (("ours", write_file), ("theirs", write_with_mindspore)):
        (tmp_path / name).mkdir()
        write(tmp_path / name / "a.mindrecord", columns)
    first, second = tmp_path / "ours" / "a.mindrecord", tmp_path / "theirs" / "a.mindrecord"
    assert first.read_bytes() == second.read_bytes()
    assert index(first) == index(second)


LARGE = {
    "many pages": ({"x": random_ids(3000, 64), "y": random_ids(3000, 3)}, PAGE),
    "several raw pages": ({"x": random_ids(6000, 2), "y": random_ids(6000, 1)}, PAGE),
    "long rows": ({"x": random_ids(300, 4096, filled=4000), "y": random_ids(300, 2048)}, 1 << 17),
    "nothing saved": ({"x": np.full((10, 5), 2**40), "y": np.full((10, 1), -(2**62))}, PAGE),
}


@pytest.mark.parametrize("columns", SMALL.values(), ids=SMALL.keys())
def test_our_reader_reads_what_mindspore_wrote(tmp_path, columns):
    file = tmp_path / "a.mindrecord"
    write_with_mindspore(file, columns)
    for name, values in read_columns(file, list(columns)).items():
        assert (values == columns[name]).all() and values.dtype == columns[name].dtype


@pytest.mark.parametrize(("columns", "page"), LARGE.values(), ids=LARGE.keys())
def test_mindspore_reads_back_what_was_written(tmp_path, columns, page):
    file = tmp_path / "a.mindrecord"
    write_file(file, columns, page)
    result = read(file, columns, shuffle=False)
    for name, values in columns.items():
        assert (np.array([row[name] for row in result]) == values).all()
        assert result[0][name].dtype == values.dtype
    ours = read_columns(file, list(columns))
    assert all((ours[name] == values).all() for name, values in columns.items())


def write(directory, rows, length=8, name="a.mindrecord", dtype="int64"):
    directory.mkdir(exist_ok=True)
    values = np.arange(rows * length).reshape(rows, length)
    columns = {"prompt_ids": values, "labels": -values}
    with MindRecordFile.for_rows(directory / name, dict.fromkeys(columns, length), dtype, rows) as writer:
        writer.write(columns)
    return directory / name, columns


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


def test_a_damaged_row_is_refused(tmp_path):
    file, _ = write(tmp_path, 50)
    content = bytearray(file.read_bytes())
    content[HEADER + 8 + 8 + 4] ^= 0xFF  # sizes of the first values of the first row
    file.write_bytes(content)
    with pytest.raises(InputError, match="values are missing"):
        read_columns(file, ["labels"])
