"""The recorded fields of upstream's programs are those of their classes."""

import pytest

from tests.upstream.records import RECORDS, text

pytestmark = [pytest.mark.upstream, pytest.mark.core]


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: f"{record.file.parts[-3]} {record.file.stem}")
def test_the_record_is_that_of_the_classes(record, checkout):
    assert record.file.read_text(encoding="utf-8") == text(record.content(checkout(record.source)))
