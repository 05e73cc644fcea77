import pytest

from stages.tokenize.config import check_tokenize
from tests.stages.fetch.settings import tokenize


@pytest.mark.parametrize("name", ["arith", "gsm8k"])
@pytest.mark.parametrize("compat", ["none", "mindrlhf"])
def test_the_shipped_settings_are_sound(name, compat):
    assert check_tokenize(tokenize(name, compat=compat)) == []


@pytest.mark.parametrize(("key", "value"), [("chat_template", True), ("id_dtype", "int32")])
def test_what_rlhf_data_cannot_do_is_refused_in_compat_mode(key, value):
    (problem,) = check_tokenize(tokenize(compat="mindrlhf", **{key: value}))
    assert problem.path == f"tokenize.{key}"
    assert check_tokenize(tokenize(**{key: value})) == []
