"""Rendered files and arguments of both versions; tests/upstream/mindrlhf reads them with its classes."""

import pytest

from stages.engines.mindrlhf.files import all_configs
from stages.engines.mindrlhf.stage import arguments
from stages.engines.outside import dump
from tests.stages.engines.mindrlhf.jobs import DATA, job_of, paths


def check_samples(grpo, pp):
    """Completions fill whole batches, and the longest fits; counted from the files alone."""
    rl, actor, infer, ref = (grpo[f"{name}_config"] for name in ("rl", "actor", "generate", "ref"))
    degrees = actor["parallel_config"]
    samples = rl["num_rollouts"] * rl["chunk_size"] * infer["parallel_config"]["data_parallel"]
    packs = samples * rl["num_generations"] / rl["pack_num"]
    update = rl["batch_size"] * degrees["data_parallel"] * (degrees["micro_batch_num"] if pp > 1 else 1)
    assert packs >= update and packs % update == 0
    assert packs % (ref["ref_model_batch_size"] * ref["parallel_config"]["data_parallel"]) == 0
    assert packs % (rl["batch_size"] * degrees["data_parallel"]) == 0
    longest = infer["max_prompt_length"] + infer["sampling_config"]["max_tokens"]
    assert rl["pack_num"] * (longest + 1) <= rl["seq_length"] <= infer["max_model_len"]
    if "qwen" in rl["model_name"]:
        assert rl["seq_length"] >= 2048  # transformer.py:1261


@pytest.mark.parametrize("contract", ["0cd087455", "e8a8fc1"])
def test_arguments_are_those_of_the_version(contract):
    job = job_of("model=qwen2_5_7b", "layout=dp1_mp4_pp2", f"engine.contract={contract}")
    main = (DATA / "mindrlhf_standin" / contract / "examples/grpo/qwen_grpo_tutorial/main.py").read_text()
    for argument in arguments(job, paths(job), resume=True):
        assert f'"{argument.partition("=")[0]}"' in main


@pytest.mark.parametrize(
    ("name", "overrides"),
    [
        ("7b_8cards", ["model=qwen2_5_7b", "layout=dp1_mp4_pp2"]),
        ("7b_2cards", ["model=qwen2_5_7b", "layout=dp1_mp2_pp1"]),
        ("32b_32cards", ["model=qwen2_5_32b", "layout=dp1_mp8_pp4", "layout.train.recompute=true"]),
    ],
)
def test_rendered_files_equal_the_golden_ones(name, overrides):
    job = job_of(*overrides)
    for file, values in all_configs(job, paths(job), resume=False).items():
        golden = DATA / "mindrlhf_golden" / name / file
        assert dump(values) == golden.read_text(), f"{golden} differs; is the change meant?"
