"""verl's losses and advantages, as grpoflow renders them, beside the embedded trainer's for the same keys."""

import copy
from pathlib import Path
from typing import get_args, get_type_hints

import numpy as np
import pytest

from pipeline.config.load import load
from stages.engines.verl import files
from stages.engines.verl.config import VerlEngine
from stages.engines.verl.job import Job, Paths
from stages.grpo import algorithm
from tests.stages.grpo.test_policy_loss import MAX_TOKENS, batch, ours  # noqa: F401 - batch is a fixture
from tests.upstream.programs import ask

pytestmark = [pytest.mark.upstream, pytest.mark.core, pytest.mark.timeout(900)]
SCRIPT = Path(__file__).parent / "losses.py"
BASE = (
    "engine=verl", "model=qwen2_5_7b", "model.path=/m", "layout=dp1_mp1_pp1", "train.num_iterations=2",
    "train.warmup_steps=0", f"rollout.max_tokens={MAX_TOKENS}",
)  # fmt: skip
ACTOR, ALGORITHM = "actor", "algorithm"
CASES = {  # overrides, and what must not be rendered instead: section, key, value
    "vanilla": ("", (ACTOR, "clip_ratio_high", 0.1)),
    "dapo": ("train.loss_type=dapo train.epsilon_high=0.28", (ACTOR, "loss_agg_mode", "token-sum")),
    "dr_grpo": ("train.loss_type=dr_grpo train.advantages=dr_grpo", (ACTOR, "loss_scale_factor", None)),
    "gspo": ("train.preset=gspo", (ACTOR, "policy_loss", {"loss_mode": "vanilla"})),
    "gspo_token_mean": (
        "train.preset=gspo train.loss_type=dapo",
        (ACTOR, "policy_loss", {"loss_mode": "geo_mean"}),
    ),
    "cispo": ("train.loss_type=cispo", (ACTOR, "policy_loss", {"loss_mode": "vanilla"})),
    "cispo_preset": ("train.preset=cispo", (ACTOR, "loss_agg_mode", "seq-mean-token-mean")),
    "sapo": ("train.loss_type=sapo", (ACTOR, "policy_loss", {"loss_mode": "cispo"})),
    "sapo_temperatures": (
        "train.loss_type=sapo train.sapo_temperature_pos=2 train.sapo_temperature_neg=3",
        (ACTOR, "tau_neg", 1.05),
    ),
    "sapo_with_kl": ("train.loss_type=sapo train.beta=0.1", (ACTOR, "loss_agg_mode", "token-mean")),
    "dual_clip": ("train.clip_ratio_c=1.3", (ACTOR, "clip_ratio_c", 3.0)),
    "entropy": ("train.entropy_coeff=0.2", (ACTOR, "entropy_coeff", 0.0)),
    "entropy_dr_grpo": ("train.entropy_coeff=0.2 train.loss_type=dr_grpo", (ACTOR, "entropy_coeff", -0.2)),
    "k1": ("train.beta=0.3 train.kl_estimator=k1", (ACTOR, "kl_loss_type", "abs")),
    "k2": ("train.beta=0.3 train.kl_estimator=k2 train.loss_type=dapo", (ACTOR, "kl_loss_type", "kl")),
    "k3": ("train.beta=0.3 train.loss_type=dr_grpo", (ACTOR, "kl_loss_type", "mse")),
    "rloo": ("train.preset=rloo", (ALGORITHM, "adv_estimator", "grpo")),
    "reinforce_plus_plus": (
        "train.advantages=reinforce_plus_plus",
        (ALGORITHM, "adv_estimator", "reinforce_plus_plus_baseline"),
    ),
    "not_scaled": ("train.scale_advantages=false", (ALGORITHM, "norm_adv_by_std_in_grpo", True)),
}  # fmt: skip
REWARDS = np.array([[1.0, 0.0, 0.5, 0.25], [0.0, 0.0, 2.0, 1.0], [1.0, 1.0, 1.0, 1.0]], np.float32)
LENGTHS = np.array([[3, 9, 1, 4], [2, 7, 7, 5], [6, 1, 2, 8]])


def loaded(overrides):
    plain = [] if "preset" in overrides else ["train.loss_type=grpo", "train.beta=0"]
    return load([*BASE, *plain, *overrides.split()])


def rendered(overrides):
    job = Job.from_run(loaded(overrides))
    values = files.configuration(job, Paths(Path("/run"), Path("/data")))
    return {ACTOR: values["actor_rollout_ref"]["actor"], ALGORITHM: values["algorithm"]}


@pytest.fixture(scope="module")
def verl(interpreter, batch):  # noqa: F811
    """What verl computes for each case, first as rendered, then with the mutant; and its names."""
    given = {name: values.astype(np.float32).tolist() for name, values in batch.items()}
    requests = []
    for name, (overrides, (section, key, value)) in CASES.items():
        sections = rendered(overrides)
        mutant = copy.deepcopy(sections)
        mutant[section][key] = value
        assert sections != mutant, name
        shared = {"batch": given, "rewards": REWARDS.tolist(), "lengths": LENGTHS.tolist()}
        requests += [{**sections, **shared}, {**mutant, **shared}]
    return ask(interpreter("verl"), SCRIPT, requests)


def differences(answer, expected, advantages, mask):
    """Largest differences of loss, gradients and advantages, each as a share of the largest value."""
    loss, *gradients, _ = expected
    found = [abs(answer["loss"] - loss) / max(abs(loss), 1e-3)]
    for key, gradient in zip(("of_logprob", "of_entropy"), gradients, strict=True):
        theirs = 0 if answer[key] is None else np.array(answer[key])
        found.append(np.abs((gradient - theirs) * mask).max() / max(np.abs(gradient).max(), 1e-3))
    found.append(np.abs(np.array(answer["advantages"]) - advantages).max() / np.abs(advantages).max())
    return found


@pytest.mark.parametrize("name", CASES)
def test_verl_computes_what_the_embedded_trainer_does(name, verl, batch):  # noqa: F811
    overrides = CASES[name][0]
    train = loaded(overrides).train
    expected = ours(batch, train)
    advantages = algorithm.advantages(train.advantages, REWARDS, train.scale_advantages, LENGTHS)
    position = 2 * list(CASES).index(name)
    actual, mutant = verl["answers"][position : position + 2]
    # verl adds 1e-6 to the group's deviation, engine=local 1e-4 as TRL does
    assert max(differences(actual, expected, advantages, batch["mask"])) < 5e-4
    assert max(differences(mutant, expected, advantages, batch["mask"])) > 5e-3


def choices(hint):
    return {name for option in get_args(hint) for name in get_args(option)}


def test_every_loss_and_estimator_of_verl_is_a_choice_or_left_out_for_a_reason(verl):
    hints = get_type_hints(VerlEngine)
    losses = {"vanilla", "gspo", "cispo", "sapo"} | choices(hints["loss_mode"])
    assert set(verl["losses"]) - losses == {"bypass_mode"}  # of rollout correction, which chooses it itself
    assert losses <= set(verl["losses"])
    estimators = set(files.ESTIMATORS.values()) | choices(hints["adv_estimator"])
    needs_more = {
        "gae", "remax", "gdpo",  # a critic, greedy completions, rewards by their names
        "optimal_token_baseline", "tir_optimal_token_baseline",  # calculate_sum_pi_squared
        "grpo_vectorized", "rloo_vectorized",  # the same as those without
    }  # fmt: skip
    assert set(verl["estimators"]) - estimators == needs_more
    assert estimators <= set(verl["estimators"])
