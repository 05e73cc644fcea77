"""A model that can be taught, and mindrlhf's checkouts ready to be run on a CPU."""

import sys
from collections.abc import Callable

import pytest

from stages.engines.mindformers.rehearsal import shim
from tests.e2e.outside import DATA
from tests.upstream.mindrlhf import boxed_model
from tests.upstream.mindrlhf.runs import Recipe, finish, record
from tests.upstream.sources import UPSTREAM

Upstream = Callable[[str], Recipe]


@pytest.fixture(scope="session")
def boxed(tmp_path_factory):
    """See boxed_model.py; kept in ./upstream where that is there."""
    retained = UPSTREAM / "models"
    return boxed_model.make(retained if UPSTREAM.is_dir() else tmp_path_factory.mktemp("models"))


@pytest.fixture(scope="session")
def upstream(request, checkout, interpreter, tmp_path_factory):
    """mindrlhf itself at a commit, with what stands in for a card.

    The model, which takes a minute, is made only for a checkout that is there.
    """
    script = tmp_path_factory.mktemp("shim") / "answers.json"  # without it: the model's own answers only

    def recipe(version):
        engine = [
            f"engine.mindformers_home={checkout('mindformers-051d65f')}",
            f"engine.python={interpreter('mindspore')}",
            *[f"+engine.env.{name}='{value}'" for name, value in shim.environment(script, {}).items()],
        ]
        home = checkout(f"mindrlhf-{version}")
        return Recipe(request.getfixturevalue("boxed"), home, engine)

    return recipe


@pytest.fixture(scope="session")
def standin(boxed):
    """The program of tests/data that stands in for it where a CPU cannot do what is asked."""

    def recipe(version):
        return Recipe(boxed, DATA / "mindrlhf_standin" / version, [f"engine.python={sys.executable}"])

    return recipe


@pytest.fixture(scope="session")
def killed(upstream, tmp_path_factory):
    """A run of e8a8fc1 that was killed with all its workers when step 2 began, and the same command again."""
    return record(upstream("e8a8fc1"), tmp_path_factory.mktemp("killed"))


@pytest.fixture(scope="session")
def older(upstream, tmp_path_factory):
    """A run of 0cd087455."""
    return finish(upstream("0cd087455"), tmp_path_factory.mktemp("older"))
