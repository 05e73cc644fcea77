"""mindrlhf's own configuration classes read what we render; they need nothing but PyYAML."""

import dataclasses
import importlib.util

import pytest

from stages.engines.mindrlhf.config import VERSIONS
from stages.engines.mindrlhf.files import all_configs
from stages.engines.mindrlhf.stage import rendered
from stages.engines.outside import dump
from tests.stages.engines.mindrlhf.jobs import job_of, paths

pytestmark = [pytest.mark.upstream, pytest.mark.core]
RECIPES = (
    ["model=qwen2_5_7b", "layout=dp1_mp4_pp2"],
    ["model=qwen2_5_32b", "layout=dp1_mp8_pp4", "layout.train.recompute=true"],
    ["model=qwen2_5_1_5b", "layout=dp2_mp2_pp1", "engine.load_ckpt_format=ms_safetensors"],
    ["model=qwen2_5_7b", "layout=dp1_mp4_pp2", "train.logged_completions=0", "engine.epochs=2"],
)


def grpo_config(home, text, directory):
    """mindrlhf's GRPOConfig made from a file of ours."""
    source = home / "mindrlhf/configs/grpo_configs.py"
    spec = importlib.util.spec_from_file_location(f"grpo_configs_of_{home.name.replace('-', '_')}", source)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    file = directory / "grpo_config.yaml"
    file.write_text(text)
    return module.GRPOConfig(str(file))


def values(made, rendered):
    """Return the values of upstream's objects under the rendered keys."""
    if not isinstance(rendered, dict):
        return made
    of = made.get if isinstance(made, dict) else lambda key: getattr(made, key)
    return {key: values(of(key), value) for key, value in rendered.items()}


@pytest.mark.parametrize("resume", [False, True])
@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: " ".join(recipe[:3]))
@pytest.mark.parametrize("version", VERSIONS)
def test_its_classes_hold_what_was_rendered(version, recipe, resume, checkout, tmp_path):
    home = checkout(f"mindrlhf-{version}")
    job = job_of(*recipe, f"engine.contract={version}")
    rendered = all_configs(job, paths(job), resume)["grpo_config.yaml"]
    made = grpo_config(home, dump(rendered), tmp_path)
    assert values(made, rendered) == rendered
    for section in rendered:
        assert dataclasses.is_dataclass(getattr(made, section)), section


def test_its_classes_hold_the_keys_of_engine_upstream(checkout, tmp_path):
    job = job_of(
        "model=qwen2_5_7b",
        "layout=dp1_mp4_pp2",
        "+engine.upstream.grpo_config.profiler_config.profile_ranks='0'",
        "+engine.upstream.grpo_config.rl_config.sink_size=2",
    )
    text = rendered(job, paths(job)).files["configs/grpo_config.yaml"]
    made = grpo_config(checkout("mindrlhf-e8a8fc1"), text, tmp_path)
    assert (made.profiler_config.profile_ranks, made.rl_config.sink_size) == ("0", 2)


@pytest.mark.parametrize("version", VERSIONS)
def test_an_unknown_key_ends_it(version, checkout, tmp_path):
    with pytest.raises(TypeError, match="unexpected keyword argument 'new_key'"):
        grpo_config(checkout(f"mindrlhf-{version}"), "rl_config: {new_key: 1}\n", tmp_path)
