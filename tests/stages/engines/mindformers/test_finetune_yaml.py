"""The rendered file of two shapes; tests/upstream/mindformers runs upstream with such a file."""

import pytest

from stages.engines.mindformers.finetune_yaml import finetune
from stages.engines.outside import dump
from tests.stages.engines.mindformers.jobs import DATA, PATHS, job_of


@pytest.mark.parametrize(
    ("name", "overrides"),
    [
        ("7b_8cards", ["model=qwen2_5_7b", "layout=dp1_mp4_pp2", "tokenize.sft_length=4096"]),
        ("0_5b_1card", ["model=qwen2_5_0_5b", "layout=dp1_mp1_pp1", "tokenize.sft_length=2048"]),
    ],
)
def test_rendered_files_equal_the_golden_ones(name, overrides):
    golden = DATA / "mindformers_golden" / f"{name}.yaml"
    text = dump(finetune(job_of(*overrides), PATHS, resume=False))
    assert text == golden.read_text(), f"{golden} differs; is the change meant?"
