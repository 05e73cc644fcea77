"""Line by line: what the guides have people write, and what grpoflow renders for the matching recipe."""

import ast
import re
import shlex
from pathlib import Path

import pytest
import yaml

from pipeline.config.load import load
from stages.base.keys import leaves
from tests.stages.engines.guides import ABSENT, GUIDES, same
from tests.stages.engines.rendered import texts

pytestmark = [pytest.mark.upstream, pytest.mark.core]


def arguments(words):
    """Return the arguments NAME -> value of a command, written as --NAME=VALUE or --NAME VALUE."""
    found, rest = {}, iter(words)
    for word in rest:
        if word.startswith("--"):
            name, given, value = word[2:].partition("=")
            found[f"command.{name}"] = value if given else next(rest, "")
    return found


def defaults(text):
    """Return the defaults of the only dataclass of a Python file."""
    (cls,) = (node for node in ast.parse(text).body if isinstance(node, ast.ClassDef))
    found = {}
    for node in cls.body:
        if isinstance(node, ast.AnnAssign | ast.Assign):
            target = node.target if isinstance(node, ast.AnnAssign) else node.targets[0]
            found[target.id] = ast.literal_eval(node.value)
    return found


def shipped(guide, home):
    """Return the keys of a guide's files and the arguments of its command."""
    found = {}
    for name, file in guide.files.items():
        text = (home / file).read_text("utf-8")
        found |= dict(leaves(defaults(text) if file.endswith(".py") else yaml.safe_load(text), name))
    if guide.included:
        file, section, key = guide.included
        found |= dict(leaves(yaml.safe_load((home / file).read_text("utf-8"))[section], key))
    if guide.command:
        script = (home / guide.command).read_text("utf-8")
        line = re.search(rf"{guide.program}(.*?)(?:>|$)", script.replace("\\\n", " "), re.MULTILINE)[1]
        found |= arguments(shlex.split(line))
    return found


def rendered(guide):
    """Return the same of what grpoflow renders."""
    made, found = texts(guide.recipe), {}
    for name in guide.files:
        (text,) = (
            text
            for file, text in made.items()
            if file.startswith(f"{guide.stage}/") and Path(file).stem == name
        )
        found |= dict(leaves(yaml.safe_load(text), name))
    if guide.command:
        start = yaml.safe_load(made[f"{guide.stage}/start"])
        found |= arguments(start["program"])
    return found


@pytest.mark.parametrize("name", GUIDES)
def test_every_difference_is_intended(name, checkout):
    guide = GUIDES[name]
    theirs, ours = shipped(guide, checkout(guide.checkout)), rendered(guide)
    assert len(theirs) > 50
    differing = {
        key: (theirs.get(key, ABSENT), ours.get(key, ABSENT))
        for key in theirs | ours
        if not same(ours.get(key, ABSENT), theirs.get(key, ABSENT))
    }
    listed = guide.differences
    unlisted = {
        key: pair
        for key, pair in differing.items()
        if not any(f"{key}.".startswith(f"{group}.") for group in listed)
    }
    assert unlisted == {}
    idle = [group for group in listed if not any(f"{key}.".startswith(f"{group}.") for key in differing)]
    assert idle == []


def test_the_tutorials_command_names_both_rewards():
    start = rendered(GUIDES["mindrlhf"])
    assert start["command.verifier_function"] == "qwen_accuracy_reward,format_reward"
    assert start["command.verifier_weight"] == "1.0,1.0"
    assert load(GUIDES["mindrlhf"].recipe).reward.weights == (1.0, 1.0)
