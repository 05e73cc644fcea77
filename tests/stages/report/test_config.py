from pathlib import Path

import pytest
import yaml

from stages.base.errors import ConfigError
from stages.base.reader import read
from stages.report.config import ReportConfig

DEFAULT = Path(__file__).parents[3] / "conf" / "report" / "default.yaml"


def test_the_default_is_valid():
    assert read(ReportConfig, yaml.safe_load(DEFAULT.read_text())).title is None


@pytest.mark.parametrize(
    ("key", "value"), [("samples", 21), ("samples", -1), ("text_limit", 99), ("text_limit", 3001)]
)
def test_bounds_keep_the_page_small(key, value):
    with pytest.raises(ConfigError, match=key):
        read(ReportConfig, {"title": None, "samples": 3, "text_limit": 500, key: value})
