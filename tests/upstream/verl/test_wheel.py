"""The verl under test is the published wheel, without a change."""

import base64
import csv
import hashlib

import pytest

pytestmark = [pytest.mark.upstream, pytest.mark.core]


def test_every_file_of_verl_has_the_hash_that_the_wheel_records(interpreter):
    (record,) = interpreter("verl").parents[1].glob("lib/python3.*/site-packages/verl-0.9.1.dist-info/RECORD")
    packages = record.parents[1]
    with record.open(newline="") as file:
        rows = [row for row in csv.reader(file) if row[0].startswith("verl/") and row[1]]
    assert len(rows) > 400
    for name, recorded, _ in rows:
        digest = hashlib.sha256((packages / name).read_bytes()).digest()
        assert recorded == "sha256=" + base64.urlsafe_b64encode(digest).rstrip(b"=").decode(), name
    installed = {str(path.relative_to(packages)) for path in (packages / "verl").rglob("*.py")}
    assert installed == {name for name, *_ in rows if name.endswith(".py")}
