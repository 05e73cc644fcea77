"""rollout.correction as AReaL's own loss computes it from the rendered settings, against numpy."""

from pathlib import Path

import numpy as np
import pytest

from pipeline.config.load import load
from stages.engines.areal import files
from stages.engines.areal.job import Job, Paths
from tests.upstream.programs import ask

pytestmark = [pytest.mark.upstream, pytest.mark.core, pytest.mark.timeout(600)]
TOKENS = 64
CASES = {
    "none": (),
    "tis": ("rollout.correction=tis",),
    "tis_3": ("rollout.correction=tis", "rollout.correction_max=3"),
    "mis": ("rollout.correction=mis",),
    "mis_bounds": ("rollout.correction=mis", "rollout.correction_max=3", "rollout.correction_min=0.2"),
}


def weights(rollout, ratio):
    """Return the weight of each token by its ratio of trained to sampled probability."""
    if rollout.correction == "none":
        return np.ones_like(ratio)
    if rollout.correction == "tis":
        return np.minimum(ratio, rollout.correction_max)
    least = 1 / rollout.correction_max if rollout.correction_min is None else rollout.correction_min
    return np.where((ratio >= least) & (ratio <= rollout.correction_max), ratio, 0.0)


def test_weights_and_rejected_tokens_are_those_of_the_correction(interpreter):
    random = np.random.default_rng(0)
    trained = random.normal(-2, 0.5, TOKENS)
    sampled, advantages = trained - random.normal(0, 1, TOKENS), random.normal(0, 1, TOKENS)
    tokens = {"trained": trained.tolist(), "sampled": sampled.tolist(), "advantages": advantages.tolist()}
    requests, expected = [], []
    for overrides in CASES.values():
        run = load(["experiment=areal_7b", "model.path=/m", "rollout.correction=none", *overrides])
        actor = files.configuration(Job.from_run(run), Paths(Path("/run"), Path("/data")))["actor"]
        requests.append({"settings": actor["rejection_sampling"], **tokens})
        expected.append(weights(run.rollout, np.exp(trained - sampled)))
    answers = ask(interpreter("areal"), Path(__file__).with_name("correct.py"), requests)
    for answer, weight in zip(answers, expected, strict=True):
        assert answer["gradient"] == pytest.approx(-advantages * weight / TOKENS, rel=1e-5, abs=1e-9)
        assert answer["loss"] == pytest.approx(-(advantages * weight).mean(), rel=1e-5)
        assert answer["weighted"] == np.count_nonzero(weight)
    assert [answer["weighted"] for answer in answers][:3] == [TOKENS] * 3
    assert 0 < answers[3]["weighted"] < answers[4]["weighted"] < TOKENS
