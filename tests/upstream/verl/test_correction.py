"""rollout.correction as verl computes it from the rendered settings, next to values computed by hand."""

import math
from itertools import chain
from pathlib import Path

import pytest

from pipeline.config.load import load
from stages.engines.verl import inference
from stages.engines.verl.job import Job
from tests.upstream.programs import ask

pytestmark = [pytest.mark.upstream, pytest.mark.core]
PROGRAM = Path(__file__).parent / "correct.py"
RATIOS = [
    [1.0, 1.7, 2.5, 0.45, 1.0],
    [1.1, 0.7, 1.0, 0.0, 0.0],
    [0.8, 0.8, 0.8, 0.8, 0.0],
    [3.0, 1.0, 0.5, 1.63, 1.2],
]
"""Trained over sampled probability of each token; 0: the completion has ended."""
# by hand: products of the rows are 1.9125, 0.77, 0.4096 and 2.934
CASES = {
    ("tis", "token", 2.0, None): (
        [
            [1.0, 1.7, 2.0, 0.45, 1.0],
            [1.1, 0.7, 1.0, 0, 0],
            [0.8, 0.8, 0.8, 0.8, 0],
            [2.0, 1.0, 0.5, 1.63, 1.2],
        ],
        [[1, 1, 1, 1, 1], [1, 1, 1, 0, 0], [1, 1, 1, 1, 0], [1, 1, 1, 1, 1]],
    ),
    ("tis", "sequence", 1.5, None): (
        [[1.5] * 5, [0.77] * 3 + [0, 0], [0.4096] * 4 + [0], [1.5] * 5],
        [[1, 1, 1, 1, 1], [1, 1, 1, 0, 0], [1, 1, 1, 1, 0], [1, 1, 1, 1, 1]],
    ),
    ("mis", "token", 1.6, 0.6): (
        [
            [1.0, 1.6, 1.6, 0.45, 1.0],
            [1.1, 0.7, 1.0, 0, 0],
            [0.8, 0.8, 0.8, 0.8, 0],
            [1.6, 1.0, 0.5, 1.6, 1.2],
        ],
        [[1, 0, 0, 0, 1], [1, 1, 1, 0, 0], [1, 1, 1, 1, 0], [0, 1, 0, 0, 1]],
    ),
    ("mis", "sequence", 2.0, 0.5): (
        [[1.9125] * 5, [0.77] * 3 + [0, 0], [0.4096] * 4 + [0], [2.0] * 5],
        [[1, 1, 1, 1, 1], [1, 1, 1, 0, 0], [0, 0, 0, 0, 0], [0, 0, 0, 0, 0]],
    ),
}
"""Kind, level, largest and smallest ratio -> weights, and which tokens are kept."""


def settings(kind, level, most, least):
    words = [
        f"rollout.correction={kind}",
        f"rollout.correction_level={level}",
        f"rollout.correction_max={most}",
    ]
    words += [] if least is None else [f"rollout.correction_min={least}"]
    job = Job.from_run(load(["experiment=verl_7b", "model.path=/models/m", *words]))
    return inference.algorithm(job)["rollout_correction"]


def differs(answer, expected):
    weights, kept = expected
    pairs = zip(chain(*answer["weights"]), chain(*weights), strict=True)
    return answer["kept"] != kept or any(abs(given - right) > 1e-6 for given, right in pairs)


def test_weights_and_rejected_tokens_equal_those_computed_by_hand(interpreter):
    rendered = [settings(*case) for case in CASES]
    mutants = [{**each, "rollout_is_threshold": each["rollout_is_threshold"] + 0.3} for each in rendered]
    mutants += [{**each, "rollout_rs": None} for each in rendered[2:]]
    # the bounds as they are, not their reciprocals
    mutants.append({**rendered[2], "rollout_rs_threshold": "0.6_1.6"})
    trained = [[math.log(ratio or 1.0) - 1.0 for ratio in row] for row in RATIOS]
    sampled = [[-1.0] * len(row) for row in RATIOS]
    mask = [[int(ratio > 0) for ratio in row] for row in RATIOS]
    request = {"settings": [*rendered, *mutants], "trained": trained, "sampled": sampled, "mask": mask}
    answers = ask(interpreter("verl"), PROGRAM, request)
    for case, answer, expected in zip(CASES, answers, CASES.values(), strict=False):
        assert not differs(answer, expected), (case, answer)
    expectations = [*CASES.values(), *list(CASES.values())[2:], CASES["mis", "token", 1.6, 0.6]]
    for mutant, answer, expected in zip(mutants, answers[len(rendered) :], expectations, strict=True):
        assert differs(answer, expected), mutant
