"""engine.upstream: which keys grpoflow renders, and what the checkouts' classes tell about all others."""

import copy
import functools
from pathlib import Path

import pytest
import yaml

from pipeline.config.load import load
from stages.engines.mindrlhf.engine import ENGINE
from stages.engines.mindrlhf.files import FILES, RENDERED, RENDERED_WITH_EXPERTS, all_configs
from stages.engines.mindrlhf.job import Job
from stages.engines.mindrlhf.stage import paths_of, render
from stages.engines.upstream_keys import leaves, rendered_problems
from tests.stages.engines.dependencies import SECTIONS, dependencies, put
from tests.stages.engines.mindformers.test_upstream import NETWORK, TEMPLATE

QWEN = ("engine=mindrlhf", "model.path=/models/qwen", "model=qwen2_5_7b", "layout=dp2_mp2_pp2")
CASES = (
    QWEN,
    (*QWEN, "engine.contract=0cd087455"),
    ("experiment=mindrlhf_deepseek_v3", "model.path=/models/deepseek"),
)
RUN = Path("/run")
MODEL = "model.train.model.model_config"
CONFIGS = """
from dataclasses import dataclass

@dataclass
class Optimizer:
    eps: float = 1.0e-8

@dataclass
class ActorConfig:
    load: str = "/path/"
    optimizer: Optimizer = Optimizer
    param_dict = {"load": load}

@dataclass
class RLConfig:
    reshard_mode: int = 0
    seed: int = None

@dataclass
class GRPOConfig:
    actor_config = ActorConfig
    rl_config = RLConfig

    def __init__(self, file_path):
        self.path = file_path
"""
KNOWN = {
    "grpo_config.rl_config.reshard_mode": 1, "grpo_config.rl_config.seed": 3,
    "grpo_config.actor_config.optimizer.eps": 1, f"{MODEL}.rms_norm": False,
}  # fmt: skip
UNKNOWN = {
    "grpo_config.rl_config.reshard_modes": 1, "grpo_config.rl_config.reshard_mode": "1",
    "grpo_config.actor_config.param_dict": {"a": 1}, "grpo_config.monitor_config.x": 1,
    f"{MODEL}.rms_norms": False,
}  # fmt: skip


@functools.cache
def plain(overrides):
    return load(overrides).plain()


def values(config):
    """Return the rendered values by their keys below engine.upstream, as far as groups allow them."""
    job = Job.from_config(config)
    files = all_configs(job, paths_of(job, RUN, Path("/data")), resume=False)
    found = dict(leaves(files.pop("grpo_config.yaml"), "grpo_config"))
    for role, file in FILES.items():
        for section in ("model_config", "moe_config"):
            group = f"model.{role}.{'model.' if section == 'model_config' else ''}{section}"
            content = files[file]["model"] if section == "model_config" else files[file]
            found |= dict(leaves(content.get(section, {}), group))
    return found


@functools.cache
def sources(overrides):
    """Return for each rendered key the keys of grpoflow on which its value depends."""
    config = copy.deepcopy(plain(overrides))
    for role in ("generate", "reference"):
        config["layout"][role]["pipeline_stage"] = 2  # offset has an effect with several stages only
    return dependencies(config, (*SECTIONS, "engine"), values)


@pytest.mark.parametrize("overrides", CASES, ids=lambda overrides: overrides[-1])
def test_every_value_that_follows_from_a_key_is_refused(overrides):
    refused = {**RENDERED, **(RENDERED_WITH_EXPERTS if "deepseek" in overrides[0] else {})}
    found = sources(overrides)
    assert {"grpo_config.rl_config.seed", f"{MODEL}.seq_length"} <= found.keys()
    free = [path for path in found if not list(rendered_problems("x", put({}, path, 1), refused))]
    assert free == []


def test_the_named_keys_are_those_that_the_values_follow_from():
    for path, reason in {**RENDERED, **RENDERED_WITH_EXPERTS}.items():
        keys = {
            key
            for overrides in CASES
            for name, names in sources(overrides).items()
            if f"{name}.".startswith(f"{path}.")
            for key in names
        }
        assert reason.startswith("=") or any(key.startswith(reason) for key in keys), (path, reason, keys)


def test_other_keys_reach_the_files():
    added = {"grpo_config.rl_config.tensorboard": True, f"{MODEL}.fused_rms_norm": False,
             "grpo_config.new_section": {"a": 1}}  # fmt: skip
    config = copy.deepcopy(plain(QWEN))
    for path, value in added.items():
        put(config, f"engine.upstream.{path}", value)
    texts = render(config, {"tokenize": Path("/data")}, RUN).files
    for name in ("grpo_config.yaml", "grpo_config_resume.yaml"):
        content = yaml.safe_load(texts[f"configs/{name}"])
        assert content["rl_config"]["tensorboard"] is True and content["new_section"] == {"a": 1}
    assert yaml.safe_load(texts["configs/finetune.yaml"])["model"]["model_config"]["fused_rms_norm"] is False


@pytest.fixture
def homes(tmp_path):
    """Return checkouts of mindrlhf and mindformers with the files that the schema is read from."""
    for file, text in (
        ("mindrlhf/configs/grpo_configs.py", CONFIGS),
        ("mindformers/tools/register/template.py", TEMPLATE),
        ("mindformers/models/llama/llama_config.py", NETWORK),
    ):
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text(text)
    return {"mindrlhf_home": str(tmp_path), "mindformers_home": str(tmp_path)}


def schema_of(**homes):
    config = copy.deepcopy(plain(QWEN))
    config["engine"] |= homes
    return ENGINE.schema(Job.from_config(config))


def refusals(schema, cases):
    """Return the keys that a schema refuses."""
    problems = {path: list(schema.problems("x", put({}, path, value), "x")) for path, value in cases.items()}
    return [path for path, found in problems.items() if found]


def test_checkouts_tell_their_keys_and_types(homes):
    schema = schema_of(**homes)
    assert refusals(schema, KNOWN) == [] and refusals(schema, UNKNOWN) == [*UNKNOWN]


def test_what_no_checkout_tells_is_accepted(homes):
    assert schema_of() is None
    config = schema_of(mindrlhf_home=homes["mindrlhf_home"])
    models = schema_of(mindformers_home=homes["mindformers_home"])
    assert refusals(config, UNKNOWN) == [path for path in UNKNOWN if path.startswith("grpo_config")]
    assert refusals(models, UNKNOWN) == [f"{MODEL}.rms_norms"]
