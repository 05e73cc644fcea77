"""engine.upstream: rendered keys are refused, all others reach the YAML, and a checkout tells its keys."""

import copy
from collections import defaultdict
from pathlib import Path

import pytest
import yaml

from pipeline.config.load import load
from stages.base.errors import ConfigError
from stages.engines.mindspeed_rl import contract, train
from stages.engines.mindspeed_rl.engine import ENGINE
from stages.engines.mindspeed_rl.files import RENDERED, train_config
from stages.engines.mindspeed_rl.job import Job
from stages.engines.upstream_keys import leaves, rendered_problems
from tests.stages.engines.dependencies import SECTIONS, dependencies
from tests.stages.engines.mindspeed_rl.jobs import WINDOWS, paths

BASE = ("engine=mindspeed_rl", "model.path=/models/qwen", "layout=dp2_mp2_pp2")
CASES = {
    "05a90d7": ("model=qwen2_5_7b",),
    "experts": ("model=qwen3_30b_a3b", "train.schedule=linear", "train.final_share=0.1"),
    "separate": ("model=qwen3_8b", "engine.use_integrated_worker=false"),
    "667a547": ("model=qwen2_5_7b", "engine.contract=667a547"),
}


def values(config):
    """Return the rendered values by path; every Megatron section takes the keys of the model's shape, too."""
    rendered = train_config(Job.from_config(config), paths(), resume=False)
    (shape,) = rendered.pop("model").values()
    return dict(leaves(rendered | {"megatron_training": {**shape, **rendered["megatron_training"]}}))


@pytest.fixture(scope="module")
def sources():
    """Return for each rendered key grpoflow's keys on which its value depends."""
    result = defaultdict(set)
    for overrides in CASES.values():
        config = load([*BASE, *overrides]).plain()
        for path, keys in dependencies(config, (*SECTIONS, "engine"), values).items():
            result[path] |= keys
    return result


def covering(path):
    """Return the entry of RENDERED for a key, or for a group that contains it."""
    return next((key for key in RENDERED if f"{path}.".startswith(f"{key}.")), None)


def test_upstream_cannot_replace_what_is_rendered_from_a_key(sources):
    replaceable = {path: keys for path, keys in sources.items() if keys and covering(path) is None}
    assert replaceable == {}


def test_each_refusal_names_a_key_that_the_rendered_value_depends_on(sources):
    actual = defaultdict(set)
    for path, keys in sources.items():
        if (entry := covering(path)) is not None:
            actual[entry] |= keys
    assert len(actual) > 60
    wrong = {
        entry: keys
        for entry, keys in actual.items()
        if not RENDERED[entry].startswith("=") and RENDERED[entry] not in keys
    }
    assert wrong == {}


@pytest.mark.parametrize(
    ("added", "remedy"),
    [
        ("rl_config.init_kl_coef=0.1", "set train.beta"),
        ("megatron_training.num_layers=2", "set model.num_hidden_layers"),
        ("actor_config={lr: 0.1}", "set train.learning_rate"),
        ("rl_config.actor_resource.num_npus=4", "set layout.train.data_parallel"),
        ("generate_config.sampling_config.seed=3", "leave it out"),
        ("model.qwen2_5_7b.num_layers=2", "leave it out"),
    ],
)
def test_a_key_that_grpoflow_renders_is_refused(added, remedy):
    with pytest.raises(ConfigError) as refused:
        load([*BASE, "model=qwen2_5_7b", f"+engine.upstream.{added}"])
    assert [problem.remedy for problem in refused.value.problems] == [remedy]


def different(default):
    """Return a value of the default's type that differs from it."""
    kinds = {bool: lambda: not default, int: lambda: default + 1, float: lambda: default + 0.5}
    kinds |= {str: lambda: f"{default}x", list: lambda: [*default, "x"]}
    return kinds.get(type(default), lambda: 7)()


def nested(by_path):
    result: dict = {}
    for path, value in by_path.items():
        *groups, name = path.split(".")
        section = result
        for group in groups:
            section = section.setdefault(group, {})
        section[name] = value
    return result


@pytest.mark.parametrize("version", WINDOWS)
def test_every_other_key_of_the_checkout_reaches_the_rendered_file(version):
    home = f"engine.mindspeed_rl_home={WINDOWS[version]}"
    config = load([*BASE, "model=qwen2_5_7b", home, "engine.use_integrated_worker=false"])
    schema = ENGINE.schema(ENGINE.job(config))
    assert schema is not None and len(schema.defaults) > 700
    free = {path: different(value) for path, value in schema.defaults.items() if covering(path) is None}
    added = nested(free)
    assert list(schema.problems("engine.upstream", added, "config_cls")) == []
    assert list(rendered_problems("engine.upstream", added, RENDERED)) == []
    plain = copy.deepcopy(config.plain())
    plain["engine"]["upstream"] = added
    text = train.render(plain, {}, Path("/run")).files["configs/train.yaml"]
    rendered = dict(leaves(yaml.safe_load(text)))
    assert {path: rendered[path] for path in free} == free


@pytest.mark.parametrize(
    ("added", "remedy"),
    [
        ({"rl_config": {"entropy_coef": 0.1}}, "did you mean rl_config.entropy_coeff?"),
        ({"rl_config": {"entropy_coeff": "x"}}, "give a value of this type"),
        ({"rl_config": {"entropy_coeff": 1}}, None),
        ({"megatron_training": {"lora_r": 2}}, None),
        ({"rl_config": {"num_cpus_for_local_task": 0.5}}, None),  # Ray takes parts of a CPU, too
    ],
)
def test_keys_are_checked_by_the_checkouts_own_classes(added, remedy):
    schema = contract.schema(str(WINDOWS["05a90d7"]))
    found = [problem.remedy for problem in schema.problems("engine.upstream", added, "config_cls")]
    assert found == ([] if remedy is None else [remedy])


def test_without_a_checkout_unknown_keys_are_accepted_with_a_note():
    config = load([*BASE, "model=qwen2_5_7b", "+engine.upstream.rl_config.entropy_coef=0.1"])
    assert ENGINE.schema(ENGINE.job(config)) is None
    assert any("rl_config.entropy_coef=0.1" in note for note in ENGINE.all_notes(config))


@pytest.mark.parametrize("content", ["", "def f(:", "class RLConfig:\n    pass\n"])
def test_classes_that_cannot_be_read_are_reported(tmp_path, content):
    for file in set(contract.CLASSES.values()):
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text((WINDOWS["05a90d7"] / file).read_text())
    contract.schema(str(tmp_path))
    (tmp_path / contract.RL_CONFIG).write_text(content)
    with pytest.raises(ConfigError, match=str(contract.RL_CONFIG)):
        contract.schema(str(tmp_path))


def test_constructors_are_read_as_far_as_they_take_keys(tmp_path):
    source = """
class {name}:
    def __init__(self, config_dict):
        self.tokens = 2 * 1024 ** 2
        self.same = self.tokens
        self.computed = len("abc")
        self.looked_up = config_dict.get("looked_up", 5)
        self.update(config_dict)
        self.replaced = 1
        self.later = int(config_dict.get("later", 0.5))
"""
    for name, file in contract.CLASSES.items():
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        with (tmp_path / file).open("a") as stream:
            stream.write(source.format(name=name))
    schema = contract.schema(str(tmp_path))
    start = "rl_config."
    read = {key[len(start) :]: value for key, value in schema.defaults.items() if key.startswith(start)}
    assert read == {
        "tokens": 2 * 1024**2, "same": 2 * 1024**2, "computed": None, "looked_up": 5, "later": 0.5
    }  # fmt: skip
