import sys
from importlib import metadata

import pytest

from stages.base.errors import ConfigError
from stages.rewards.config import RewardConfig
from stages.rewards.user_code import user_code
from tests.pipeline.plans import planned


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
    code = user_code(RewardConfig(functions, (1.0,) * len(functions), None))
    files = code.external if code is not None else ()
    return [str(file.relative_to(file.parents[1])) if file.stem == "init" else file.name for file in files]


def test_built_in_functions_have_no_files(directory):
    assert names("accuracy", "knights", "format") == []


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


@pytest.mark.parametrize(
    ("source", "function"),
    [
        ("pipeline/rw.py", "pipeline.rw:f"),
        ("conf/deep/rw.py", "conf.deep.rw:f"),
        ("stages.py", "stages:f"),
        ("launch/__init__.py", "launch:f"),
        ("grpoflow/mine/__init__.py", "grpoflow.mine:f"),
    ],
)
@pytest.mark.parametrize("on_path", [False, True])
def test_a_module_with_the_name_of_one_of_ours_is_refused(source, function, on_path, tmp_path, monkeypatch):
    """Otherwise it would be executed, or ours instead of it, without being part of the fingerprint."""
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    root = tmp_path / "elsewhere" if on_path else tmp_path / "work"
    if on_path:
        monkeypatch.setattr(sys, "path", [*sys.path, str(root)])
    file = root / source
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("def f(c, s): return [0.0]\n")
    with pytest.raises(
        ConfigError, match=rf"reward\.functions\[0\]={function}: {file} is not imported"
    ) as one:
        names(function)
    (root / "mine.py").write_text(f"from {function.replace(':', ' import ')}\n")
    with pytest.raises(ConfigError, match=f"{file} is not imported"):
        names("mine:f")
    assert len(one.value.problems) == 1


def test_our_own_modules_may_be_imported(directory):
    """A file next to ours, in a checkout, is the user's; a directory without modules hides nothing."""
    (directory / "conf").mkdir()
    (directory / "pipeline").mkdir()
    write(directory, mine="import stages.rewards.functions, conf\nfrom pipeline import errors\n")
    assert names("mine:f", "stages.rewards.functions:accuracy") == ["mine.py"]


def packages(*functions, files=()):
    config = RewardConfig(functions, (1.0,) * len(functions), None, files=files)
    code = user_code(config)
    return {} if code is None else dict(code.packages)


def test_packages_that_the_files_import_are_recorded_by_version(directory):
    write(
        directory,
        mine="import helper, json, os.path, nosuch\ndef late():\n    from yaml import safe_load\n",
        helper="import numpy.linalg\nimport stages.rewards.functions\n",
    )
    versions = {name: metadata.version(name) for name in ("numpy", "pyyaml")}
    assert packages("mine:f") == versions
    write(directory, bare="import helper_of_bare", helper_of_bare="import re")
    assert packages("bare:f", "accuracy") == {}
    maths = {"math-verify": metadata.version("math-verify")}
    assert packages("maths") == maths and packages("mine:f", "maths") == maths | versions


def test_files_that_functions_read_are_named_or_refused(directory):
    write(directory, mine="")
    (directory / "data.json").touch()
    config = RewardConfig(("mine:f",), (1.0,), None, files=("data.json",))
    assert [file.name for file in user_code(config).external] == ["mine.py", "data.json"]
    with pytest.raises(ConfigError, match=r"reward\.files\[1\]=no\.json: does not exist"):
        packages("mine:f", files=("data.json", "no.json"))
    with pytest.raises(ConfigError, match=r"reward\.files\[0\]=.*: is a directory"):
        packages("mine:f", files=(str(directory),))


def test_directories_without_init_files_are_packages(directory):
    write(directory, team__rewards__inner="from .. import shared\n", team__shared="")
    assert names("team.rewards.inner:f") == ["inner.py", "shared.py"]


def test_versions_and_files_are_part_of_fingerprints(directory, monkeypatch):
    """Of the stages that run rewards, and of what reads their artifacts."""

    def fingerprints(*functions):
        weights = [1.0] * len(functions)
        typed = [f"reward.functions=[{','.join(functions)}]", f"reward.weights={weights}", *files]
        plan = planned(*typed)
        return {spec.name: spec.key.fingerprint for spec in plan.specs}

    def changed(before, *functions):
        now = fingerprints(*functions)
        return [name for name in now if now[name] != before[name]]

    write(directory, mine="import yaml", plain="import re")
    (directory / "table.json").write_text("1")
    files = ["reward.files=[table.json]"]
    readers = ["grpo", "evaluate", "export", "report"]
    before, plain = fingerprints("mine:f"), fingerprints("plain:f")
    (directory / "table.json").write_text("2")
    assert changed(before, "mine:f") == changed(plain, "plain:f") == readers
    files = []
    before, plain, maths = fingerprints("mine:f"), fingerprints("plain:f"), fingerprints("maths")
    version = metadata.version
    monkeypatch.setattr(metadata, "version", lambda name: f"{version(name)}.post1")
    assert changed(before, "mine:f") == changed(maths, "maths") == readers
    assert changed(plain, "plain:f") == []
