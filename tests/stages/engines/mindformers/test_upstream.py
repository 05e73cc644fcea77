"""mindformers.upstream: which keys grpoflow renders, and what a checkout's classes tell about all others."""

from pathlib import Path

import pytest
import yaml

from pipeline.config.load import load
from stages.engines.mindformers.engine import ENGINE
from stages.engines.mindformers.files import RENDERED, finetune
from stages.engines.mindformers.job import Job, Paths
from stages.engines.mindformers.stage import render
from stages.engines.upstream_keys import leaves, rendered_problems
from tests.stages.engines.dependencies import SECTIONS, dependencies, put

BASE = ("engine=mindrlhf", "engine.sft=mindformers", "model=qwen2_5_7b", "model.path=/models/qwen")
LAYOUTS = ("layout=dp2_mp2_pp2", "layout=dp4_mp2_pp1")
RUN = Path("/run")
TEMPLATE = """
class Config:
    _raise_error_for_unexpected_key = True

class GeneralConfig(Config):
    seed = 1
    remote_save_url = None
    _name = "general_config"

class RunnerConfig(Config):
    stop_step = 0
    sink_mode = True
    max_size = 2 * 1024

class ContextConfig(Config):
    mode = 0
    _raise_error_for_unexpected_key = False

class SpecConfig(Config):
    _raise_error_for_unexpected_key = False

class WrapperConfig(SpecConfig):
    scale_sense = {"scale_window": 1000}

class ListConfig(Config):
    pass

class CallbackConfig(ListConfig):
    first = {"type": "MFLossMonitor"}

SECTION_CLASSES = {
    "general_config": GeneralConfig,
    "runner_config": RunnerConfig,
    "context": ContextConfig,
    "runner_wrapper": WrapperConfig,
    "callbacks": CallbackConfig,
}
"""
NETWORK = """
class LlamaConfig(PretrainedConfig):
    def __init__(self, seq_length: int = 2048, rms_norm: bool = True, quant=default_quant(), **kwargs):
        pass
"""
KNOWN = {
    "remote_save_url": "x", "runner_config.stop_step": 3, "runner_config.max_size": 1,
    "runner_config.sink_mode": 2, "context.anything": "x", "runner_wrapper.scale_sense.scale_window": 3,
    "model.model_config.rms_norm": False, "model.model_config.quant": {"a": 1},
}  # fmt: skip
UNKNOWN = {
    "remote_save": "x", "runner_config.stop_steps": 3, "runner_config.stop_step": "3", "runner_config": 1,
    "monitor_config.monitor_on": True, "model.model_config.rms_norm": 1,
}  # fmt: skip


def config(*overrides):
    return load([*BASE, *overrides]).plain()


def values(plain):
    content = finetune(Job.from_config(plain), Paths(RUN, Path("/data"), Path("/start")), resume=False)
    return dict(leaves(content, "train"))


@pytest.fixture
def home(tmp_path):
    """Return a checkout with the two files that the schema is read from."""
    for file, text in (
        ("mindformers/tools/register/template.py", TEMPLATE),
        ("mindformers/models/llama/llama_config.py", NETWORK),
    ):
        (tmp_path / file).parent.mkdir(parents=True)
        (tmp_path / file).write_text(text)
    return tmp_path


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_value_that_follows_from_a_key_is_refused_and_names_a_key(layout):
    found = dependencies(config(layout), (*SECTIONS, "mindformers"), values)
    assert {"train.seed", "train.lr_schedule.lr_end"} <= found.keys()
    free = [path for path in found if not list(rendered_problems("x", put({}, path, 1), RENDERED))]
    assert free == []


def test_the_named_keys_are_those_that_the_values_follow_from():
    found = [dependencies(config(layout), (*SECTIONS, "mindformers"), values) for layout in LAYOUTS]
    for path, reason in RENDERED.items():
        keys = {key for one in found for name, names in one.items() if name.startswith(path) for key in names}
        assert reason.startswith("=") or any(key.startswith(reason) for key in keys), (path, reason, keys)


def test_other_keys_reach_the_file_and_the_task_of_the_data_set():
    added = (
        "+engine.upstream.train.monitor_config.monitor_on=true",
        "+engine.upstream.train.train_dataset.x=3",
    )
    texts = render(config(LAYOUTS[0], *added), {"tokenize": Path("/data")}, RUN).files
    content = yaml.safe_load(texts["finetune.yaml"])
    assert content["monitor_config"] == {"monitor_on": True}
    assert content["train_dataset"] == content["train_dataset_task"]["dataset_config"]
    assert content["train_dataset"]["x"] == 3 and content["train_dataset"]["drop_remainder"] is True


def schema_of(home):
    return ENGINE.schema(Job.from_run(load([*BASE, *([f"mindformers.home={home}"] if home else [])])))


def test_a_checkout_tells_its_keys_and_their_types(home):
    schema = schema_of(home)
    for cases, refused in ((KNOWN, False), (UNKNOWN, True)):
        for path, value in cases.items():
            added = put({}, f"train.{path}", value)
            assert bool(list(schema.problems("mindformers.upstream", added, "x"))) is refused, path


def test_without_a_checkout_or_its_files_nothing_is_known(tmp_path):
    assert schema_of(None) is schema_of(tmp_path) is None
