"""mindrlhf's own configuration classes read what we render; they need nothing but PyYAML."""

import dataclasses
import importlib.util

import pytest
import yaml

from pipeline.config.load import load
from stages.engines.mindrlhf.config import VERSIONS
from stages.engines.mindrlhf.engine import ENGINE
from stages.engines.mindrlhf.files import grpo_config
from stages.engines.mindrlhf.job import Job
from stages.engines.mindrlhf.stage import rendered
from stages.engines.upstream_keys import leaves
from tests.stages.engines.mindrlhf.jobs import paths

pytestmark = [pytest.mark.upstream, pytest.mark.core]
SEVEN = ("engine=mindrlhf", "model=qwen2_5_7b", "layout=dp1_mp4_pp2")
DEEPSEEK = "experiment=mindrlhf_deepseek_v3"
RECIPES = (
    (*SEVEN, "train.logged_completions=0", "engine.epochs=2"),
    ("engine=mindrlhf", "model=qwen2_5_32b", "layout=dp1_mp8_pp4", "layout.train.recompute=true"),
    ("engine=mindrlhf", "model=qwen2_5_1_5b", "layout=dp2_mp2_pp1", "engine.load_ckpt_format=ms_safetensors"),
    (*SEVEN, "+engine.upstream.grpo_config.rl_config.sink_size=2"),
    (DEEPSEEK, "+engine.upstream.grpo_config.profiler_config.profile_ranks='0'"),
)


def values(made, rendered):
    """Return the values of upstream's objects under the rendered keys."""
    if not isinstance(rendered, dict):
        return made
    of = made.get if isinstance(made, dict) else lambda key: getattr(made, key)
    return {key: values(of(key), value) for key, value in rendered.items()}


@pytest.fixture(params=VERSIONS)
def version(request):
    return request.param


@pytest.fixture
def read(version, checkout, tmp_path):
    """Return a function that makes mindrlhf's GRPOConfig from a file of ours."""
    source = checkout(f"mindrlhf-{version}") / "mindrlhf/configs/grpo_configs.py"
    spec = importlib.util.spec_from_file_location(f"grpo_configs_{version}", source)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)

    def make(text):
        (tmp_path / "grpo_config.yaml").write_text(text)
        return module.GRPOConfig(str(tmp_path / "grpo_config.yaml"))

    return make


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe[-1])
def test_its_classes_hold_what_was_rendered(version, recipe, read):
    if recipe[0] == DEEPSEEK and version != "e8a8fc1":
        pytest.skip("its tutorial is not in this version")
    job = Job.from_run(load(["model.path=/models/qwen", *recipe, f"engine.contract={version}"]))
    files = rendered(job, paths(job)).files
    for name in ("grpo_config", "grpo_config_resume"):
        text = files[f"configs/{name}.yaml"]
        made, expected = read(text), yaml.safe_load(text)
        assert values(made, expected) == expected
        for section in expected:
            assert dataclasses.is_dataclass(getattr(made, section)), section


def test_every_rendered_key_is_known_to_the_schema(version, checkout):
    home = checkout(f"mindrlhf-{version}")
    job = Job.from_run(load(["model.path=/models/qwen", *SEVEN, f"engine.mindrlhf_home={home}"]))
    known = ENGINE.schema(job)
    assert known is not None and job.version == version
    keys = {path for path, _ in leaves(grpo_config(job, paths(job), resume=False), "grpo_config")}
    assert keys <= known.defaults.keys()
