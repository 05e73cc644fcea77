"""mindrlhf's loss and gradient norm beside TRL's, and so beside ours: on the batch of tests/data/trl.

tests/stages/grpo/test_trl.py holds our loss and gradients to the same numbers of TRL's.
docs/engines/mindrlhf.md says where mindrlhf differs, and why.
"""

import json
import os
import subprocess
from pathlib import Path

import numpy as np
import pytest

from launch.process import job as launch_job
from stages.engines.mindformers.rehearsal import shim
from stages.engines.mindrlhf.files import all_configs
from stages.engines.mindrlhf.stage import paths_of
from stages.engines.outside import dump
from stages.grpo.algorithm import group_advantages
from tests.stages.engines.mindrlhf.jobs import job_of
from tests.stages.grpo import small
from tests.stages.grpo.test_trl import CASES, GOLDEN, model_config

pytestmark = [pytest.mark.upstream, pytest.mark.timeout(1800)]
PROGRAM = Path(__file__).with_name("loss_program.py")
REWARDS = np.array([[1, 0, 0, 1], [0.5, 0.25, 0, 1], [1, 1, 1, 1]], np.float32)
NORM = "model.norm.weight"
KEYS = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads",
        "vocab_size", "rms_norm_eps", "rope_theta")  # fmt: skip


def configs(directory, version, case):
    """Our files of a run with the golden batch's model; one pack an update."""
    model, expected = model_config("qwen2"), CASES[case]
    job = job_of(
        "model=tiny",
        "model.source=local",
        f"model.path={directory}",
        *[f"model.{key}={getattr(model, key)}" for key in KEYS],
        f"model.tie_word_embeddings={model.tie_word_embeddings}",
        "model.eos_token_id=[1]",
        "model.pad_token_id=0",
        "model.bos_token_id=0",
        "layout=dp1_mp1_pp1",
        f"engine.contract={version}",
        "engine.pack_num=12",
        "tokenize.max_prompt_length=8",
        "rollout.max_tokens=8",
        "engine.ref_model_batch_size=1",
        "train.prompts_per_step=3",
        "rollout.num_generations=4",
        f"train.beta={expected['beta']}",
    )
    paths = paths_of(job, directory, directory / "train.mindrecord")
    paths.configs.mkdir()
    for name, values in all_configs(job, paths, resume=False).items():
        (paths.configs / name).write_text(dump(values))
    return paths.configs / "grpo_config.yaml"


def write_batch(file, golden, temperature):
    """The golden batch for the program.

    mindrlhf knows no temperature in its log-probabilities (grpo_models.py:114, logprobs_of_labels); the last
    norm's weight divided by it does the same to the logits.
    """
    names = small.hf_names(model_config("qwen2"))
    weights = {f"weight/{name}": golden[f"weight/{stored}"] for name, stored in names.items()}
    (norm,) = (f"weight/{name}" for name, stored in names.items() if stored == NORM)
    weights[norm] = weights[norm] / np.float32(temperature)
    keys = ("prompt", "length", "completion", "mask", "old", "reference", "advantage")
    np.savez(file, rewards=REWARDS.T.ravel(), **weights, **{key: golden[key] for key in keys})


@pytest.mark.parametrize("case", ["grpo", "grpo_without_kl"])
def test_loss_and_gradient_norm_are_trls(case, checkout, interpreter, tmp_path):
    version = "e8a8fc1"  # the older one makes experience in one function, from prompts to samples
    golden = dict(np.load(GOLDEN / "qwen2.npz"))
    temperature = json.loads(str(golden["settings"]))["temperature"]
    write_batch(tmp_path / "batch.npz", golden, temperature)
    config = configs(tmp_path, version, case)
    result = run(
        config, checkout(f"mindrlhf-{version}"), checkout("mindformers-051d65f"), interpreter("mindspore")
    )

    mask = golden["mask"].reshape(-1, golden["mask"].shape[-1])
    counted = int((mask.sum(1) > 1).sum())  # grpo_models.py:350, real_sample_num: one token is taken for none
    assert result["counted"] == counted == 9 < len(mask)
    share = len(mask) / counted
    gradients = {key: value for key, value in golden.items() if key.startswith(f"{case}/gradient/")}
    gradients[f"{case}/gradient/{NORM}"] = gradients[f"{case}/gradient/{NORM}"] * temperature
    norm = np.sqrt(sum(float((value.astype(np.float64) ** 2).sum()) for value in gradients.values()))
    assert float(result["loss"]) == pytest.approx(float(golden[f"{case}/loss"]) * share, rel=1e-4)
    assert float(result["norm"]) == pytest.approx(norm * share, rel=1e-4)
    assert not result["overflow"]

    # compute_advantages adds 1e-6 to the deviation (grpo_experience_maker.py:584); TRL and we add 1e-4
    deviation = REWARDS.std(1, ddof=1, keepdims=True)
    expected = group_advantages(REWARDS, scale=True) * (deviation + 1e-4) / (deviation + 1e-6)
    assert pytest.approx(expected, rel=1e-5, abs=1e-6) == result["advantages"].reshape(4, 3).T


def run(config, mindrlhf, mindformers, python):
    """Return the results of mindrlhf in its own process under msrun."""
    path = config.parents[1]
    paths = {"PYTHONPATH": f"{mindrlhf}:{mindformers}"}
    environment = launch_job.msrun_environment(
        python,
        {"PATH": os.environ["PATH"], "HOME": str(path), **shim.environment(path / "answers.json", paths)},
    )
    command = launch_job.msrun(
        [str(PROGRAM), str(config), str(path / "batch.npz"), str(path / "result.npz")],
        python=python,
        workers=1,
        master_addr="127.0.0.1",
        master_port=launch_job.find_port("127.0.0.1", None),
        log_dir=path / "logs",
    )
    done = subprocess.run(command, env=environment, capture_output=True, text=True, cwd=path, timeout=500)
    log = path / "logs" / "worker_0.log"
    assert done.returncode == 0, log.read_text()[-3000:] if log.exists() else done.stdout[-3000:]
    return dict(np.load(path / "result.npz"))
