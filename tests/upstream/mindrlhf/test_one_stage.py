"""mindrlhf's single script of March 2025: it is recognised, and the stand-in has its arguments and fields."""

import ast
from pathlib import Path

import pytest

from pipeline.errors import ConfigError
from stages.engines.mindrlhf_one_stage.config import CONTRACT
from stages.engines.mindrlhf_one_stage.job import ENTRY, recognise

pytestmark = [pytest.mark.upstream, pytest.mark.core]
STANDIN = Path(__file__).parents[2] / "data/mindrlhf_one_stage_standin/2d0e84d"
CONFIGS = Path("mindrlhf/configs/grpo_configs.py")


def arguments(home):
    """Return the arguments that the script declares, with what is said of each apart from its help text."""
    calls = [node for node in ast.walk(ast.parse((home / ENTRY).read_text("utf-8"))) if is_argument(node)]
    return {
        ast.literal_eval(call.args[0]): {
            word.arg: ast.unparse(word.value)
            for word in call.keywords
            if word.arg != "help" and ast.unparse(word) not in ("type=str", "default=None")
        }
        for call in calls
    }


def is_argument(node):
    return isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "add_argument"


def fields(home):
    """Return the fields of GRPOConfig and their defaults."""
    tree = ast.parse((home / CONFIGS).read_text("utf-8"))
    (cls,) = (node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "GRPOConfig")
    return {
        node.target.id: ast.literal_eval(node.value) for node in cls.body if isinstance(node, ast.AnnAssign)
    }


def test_the_checkout_is_recognised(checkout):
    assert recognise(str(checkout("mindrlhf-2d0e84d"))) == CONTRACT


def test_a_later_checkout_is_refused(checkout):
    with pytest.raises(ConfigError, match=f"check out {CONTRACT}"):
        recognise(str(checkout("mindrlhf-0cd087455")))


def test_the_standin_declares_the_same_arguments(checkout):
    theirs = arguments(checkout("mindrlhf-2d0e84d"))
    assert len(theirs) > 10
    assert arguments(STANDIN) == theirs


def test_the_standin_has_fields_of_the_dataclass(checkout):
    theirs, standin = fields(checkout("mindrlhf-2d0e84d")), fields(STANDIN)
    assert len(standin) > 10
    assert standin.items() <= theirs.items()
