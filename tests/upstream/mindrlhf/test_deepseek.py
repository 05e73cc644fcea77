"""mindrlhf hands DeepSeek-V3's trained weights to generation, whose parameters are others."""

import json
from pathlib import Path

import numpy as np
import pytest
import yaml

from stages.engines.mindformers.rehearsal import shim
from stages.models.families import network_of
from stages.models.family import NetworkInputs, TokenIds
from stages.weights.convert import convert_directory
from tests.stages.weights.checkpoints import make_layout, make_model
from tests.stages.weights.test_families import MODELS, write
from tests.upstream.mindformers.test_logits import LENGTH, deepseek_case
from tests.upstream.programs import run

pytestmark = [pytest.mark.upstream, pytest.mark.core]
PROGRAM = Path(__file__).with_name("deepseek_program.py")


def test_all_weights_arrive_but_the_bias_of_the_routers(checkout, interpreter, tmp_path):
    """It looks for the name that the bias has with use_gmm (transform_worker.py:131), which is off."""
    model = make_model(**MODELS["deepseek_v3"], torch_dtype="float32", param_init_type="float32")
    write(tmp_path / "hf", model)
    convert_directory(tmp_path / "hf", tmp_path / "converted", False, None)
    case = deepseek_case(model, np.ones(LENGTH, np.int64))
    case |= {name: str(tmp_path / name) for name in ("converted", "work")} | {
        "huggingface": str(tmp_path / "hf")
    }
    (tmp_path / "work").mkdir()
    (tmp_path / "case.json").write_text(json.dumps(case))
    network, inputs = network_of(model), NetworkInputs(model, make_layout(), LENGTH, TokenIds(2, (1,), 0))
    config = {"model_config": network.predicting(inputs), "arch": dict(network.arch)}
    predict = {"run_mode": "predict", "model": config, "moe_config": network.experts.predicting(inputs)}
    (tmp_path / "predict.yaml").write_text(yaml.safe_dump(predict))
    homes = [str(checkout(name)) for name in ("mindrlhf-e8a8fc1", "mindformers-051d65f")]
    env = shim.environment(tmp_path / "answers.json", {"PYTHONPATH": ":".join(homes)})
    python = interpreter("mindspore")
    env |= {"MINDFORMERS_MODEL_CONFIG": str(tmp_path / "predict.yaml")}
    env |= {"PATH": f"{python.parent}:/usr/bin:/bin"}
    start = ("--worker_num=1", "--local_worker_num=1", "--master_port=9931", "--join=True", "--log_dir=logs")
    run(python, python.with_name("msrun"), *start, PROGRAM, "case.json", env=env, cwd=tmp_path)
    result = json.loads((tmp_path / "work/result.json").read_text())
    biases = [name for name in result["missing"] if name.endswith("router.e_score_correction_bias")]
    assert result["different"] == result["missing"] == biases and len(biases) == 3
