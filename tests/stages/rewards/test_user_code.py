import sys

import pytest

from stages.base.errors import ConfigError
from stages.rewards.config import RewardConfig
from stages.rewards.user_code import files_of


@pytest.fixture
def directory(tmp_path, monkeypatch):
    """An empty working directory, where a stage looks for modules first."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(root, **sources):
    for name, text in sources.items():
        file = root / (name.replace("__", "/") + ".py")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")


def names(*functions):
    files = files_of(RewardConfig(functions, (1.0,) * len(functions), None))
    return [str(file.relative_to(file.parents[1])) if file.stem == "init" else file.name for file in files]


def test_built_in_functions_have_no_files(directory):
    assert names("accuracy", "maths") == []


def test_a_module_and_its_local_imports_are_included(directory):
    write(
        directory,
        mine="import json, numpy\nimport helper\nfrom deep.inner import value\n",
        helper="def late():\n    import lazy\n",
        lazy="import importlib\nimportlib.import_module('by_name')\n",
        by_name="import mine\n",
        unused="",
        deep__inner="from . import sibling\nfrom .other import *\nfrom .. import above\n",
        deep__sibling="",
        deep__other="",
    )
    (directory / "deep" / "__init__.py").write_text("import at_package\n")
    write(directory, at_package="")
    result = names("mine:f")
    assert sorted(result) == sorted(
        ["mine.py", "helper.py", "lazy.py", "by_name.py", "__init__.py", "inner.py", "sibling.py", "other.py",
         "at_package.py"]
    )  # fmt: skip
    assert names("mine:f", "mine:g") == result


def test_directories_on_the_path_are_included_but_not_installed_packages(directory, monkeypatch):
    elsewhere, installed = directory / "elsewhere", directory / "lib" / "site-packages"
    write(elsewhere, shared="")
    write(installed, package="import package_b\n", package_b="")
    write(directory, mine="import shared, package, re\n")
    monkeypatch.setattr(sys, "path", [*sys.path, str(elsewhere), str(installed)])
    assert names("mine:f") == ["mine.py", "shared.py"]
    assert names("package:f") == ["package.py"]


def test_a_missing_module_is_named(directory):
    with pytest.raises(ConfigError, match=r"reward\.functions\[1\]=nosuch:f: module nosuch not found"):
        names("accuracy", "nosuch:f")
    write(directory, pack____init__="")
    with pytest.raises(ConfigError, match=r"module pack\.inner not found"):
        names("pack.inner:f")
