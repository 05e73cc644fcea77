"""Micro-batches of completions of similar lengths or in shared rows, beside computing all slots."""

import numpy as np
import pytest

from stages.base.layout import RoleLayout
from stages.grpo import packing
from stages.grpo.collectives import Gather
from stages.grpo.config import parts_for, shares_rows
from stages.grpo.loss import PolicyLoss
from stages.grpo.packing import shared_rows, slots_for
from stages.grpo.parallel import SINGLE, Mesh
from stages.grpo.roles import LogProbs, RoleModel
from tests.stages.grpo import small
from tests.stages.grpo.test_skipped import PARTS, G, P, T, after, make_batch, make_learner

LONGEST = [2, 7, 4, 2, 7, 4]
"""With SHORTEST=2 the slots are 7, 4 or 2."""
ADVANTAGES = [[1, -1, 0.5], [0.3, 2, -1], [1, -1, 0.1], [-2, 1, 1], [0.2, 0.1, -0.7], [1, 1, -2]]
SETTINGS = {"beta": 0.1, "num_iterations": 2, "loss_type": "grpo", "max_grad_norm": None}


def test_slots_are_few_and_hold_the_longest_completion():
    assert {slots_for(tokens, 512, 128) for tokens in range(1, 513)} == {512, 256, 128}
    for tokens in range(513):
        slots = slots_for(tokens, 512, 128)
        assert tokens <= slots and slots / 2 < max(tokens, 128)
    assert [slots_for(1, slots, 128) for slots in (28, 128, 129, 255, 1000)] == [28, 128, 129, 128, 250]
    assert [slots_for(tokens, 1001, 256) for tokens in (1001, 502, 501, 1)] == [1001, 1001, 501, 501]


def test_prompts_with_similar_completions_go_together(monkeypatch):
    config = small.train_config(**SETTINGS)
    batch = make_batch(config, ADVANTAGES, LONGEST)

    def prompts(micro_batches):
        for micro in micro_batches:
            np.testing.assert_array_equal(micro.completion_nC, micro.prompt_n[:, None] * G + np.arange(G))
        return [micro.prompt_n.tolist() for micro in micro_batches]

    same = prompts(batch.micro_batches(SINGLE, PARTS))
    assert same == [[0, 1], [2, 3], [4, 5]]  # all slots are computed, in the order of the prompts
    monkeypatch.setattr(packing, "SHORTEST", 2)
    micro_batches = batch.micro_batches(SINGLE, PARTS)
    assert prompts(micro_batches) == [[1, 4], [2, 5], [0, 3]]
    assert prompts(batch.micro_batches(SINGLE, 1)) == [[1, 4, 2, 5, 0, 3]]
    assert prompts(batch.micro_batches(Mesh(2, 1, 1, 0), 3)) == [[4], [5], [3]]
    for micro, slots in zip(micro_batches, (7, 4, 2), strict=True):
        taken, rows, chosen = batch.take(micro), micro.completion_nC.reshape(-1), micro.prompt_n
        np.testing.assert_array_equal(taken.completion_PGT, batch.completion_PGT[chosen, :, :slots])
        np.testing.assert_array_equal(taken.prompt_PS, batch.prompt_PS[chosen])
        np.testing.assert_array_equal(taken.prompt_length_P, batch.prompt_length_P[chosen])
        np.testing.assert_array_equal(taken.advantage_B1, batch.advantage_B1[rows])
        for name in ("weight_BT", "mask_BT", "old_logprobs_BT", "ref_logprobs_BT"):
            np.testing.assert_array_equal(getattr(taken, name), getattr(batch, name)[rows, :slots])


def used_slots(micro, tokens_B):
    """For each slot [n, rows, width] how many tokens lie there."""
    rows = micro.rows
    used = np.zeros((len(micro.prompt_n), rows.count, rows.width), int)
    for part, c in zip(*np.nonzero(micro.completion_nC >= 0), strict=True):
        start, inputs = rows.start_nC[part, c], tokens_B[micro.completion_nC[part, c]] - 1
        assert start + inputs <= rows.width
        used[part, rows.row_nC[part, c], start : start + inputs] += 1
    return used


@pytest.mark.parametrize("seed", range(20))
def test_completions_share_rows_without_overlapping(seed):
    random = np.random.default_rng(seed)
    T = int(random.integers(512, 1100))
    tokens = np.minimum(random.geometric(1 / 120, (12, 8)), T).astype(np.int32)
    tokens[random.random((12, 8)) < 0.1] = 0
    tokens[3] = 0
    micro_batches = shared_rows(np.arange(2, 12), tokens, 3, T)
    found = np.concatenate([micro.completions for micro in micro_batches])
    expected = np.flatnonzero(tokens.reshape(-1))
    np.testing.assert_array_equal(np.sort(found), expected[expected >= 2 * 8])
    for micro in micro_batches:
        assert micro.completion_nC.shape == (3, 8) and micro.rows.width == micro.slots - 1
        assert tokens.reshape(-1)[micro.completions].max() <= micro.slots
        assert micro.rows.count * micro.rows.width <= T
        assert used_slots(micro, tokens.reshape(-1)).max() <= 1
        prompts = np.broadcast_to(micro.prompt_n[:, None], (3, 8)).reshape(-1)[micro.results]
        np.testing.assert_array_equal(micro.completions // 8, prompts)
    sizes = [micro.slots for micro in micro_batches]
    assert sizes == sorted(sizes, reverse=True) and set(sizes) <= {T, -(-T // 2), -(-T // 4)}
    used = sum(used_slots(micro, tokens.reshape(-1)).sum() for micro in micro_batches)
    assert used > 0.5 * sum(3 * micro.rows.count * micro.rows.width for micro in micro_batches[:-1])


def test_rows_of_half_the_slots_lie_behind_each_other_in_whole_rows():
    tokens = np.array([[300, 60, 50], [200, 180, 0], [512, 2, 1]], np.int32)
    first, second = shared_rows(np.arange(3), tokens, 2, 512)
    assert (first.slots, first.rows.count) == (512, 1) and (second.slots, second.rows.count) == (512, 1)
    # part by part, the longest completion first; 511 tokens are inputs, so that no other fits beside them
    assert first.completion_nC.tolist() == [[0, 1, 2], [6, 8, -1]]
    assert first.rows.start_nC.tolist() == [[0, 299, 358], [0, 511, 0]]
    assert second.completion_nC.tolist() == [[7, -1, -1], [3, 4, -1]]
    assert second.rows.start_nC.tolist() == [[0, 0, 0], [0, 255, 0]]
    (alone,) = shared_rows(np.array([1]), tokens, 2, 512)
    assert (alone.slots, alone.rows.count) == (256, 2)
    assert alone.completion_nC.tolist() == [[3, 4, -1], [-1] * 3]
    assert alone.rows.row_nC.tolist() == [[0, 1, 0], [0] * 3]


def test_rows_are_shared_if_completions_may_be_longer_than_prompts():
    for slots in (64, 255, 415, 416, 512, 4096):
        assert shares_rows(208, 8, slots) == (slots >= 416)
    assert [shares_rows(100, group, 512) for group in (1, 2, 16)] == [False, True, True]
    assert not shares_rows(1000, 8, 512)  # most of the work would be prompts that are computed again
    assert [parts_for(*sizes) for sizes in ((2, 8), (1, 2), (8, 16))] == [4, 1, 32]


@pytest.mark.parametrize("groups", ["whole", "sharing rows"])
def test_the_gradient_is_the_one_of_all_slots(groups, monkeypatch):
    config = small.train_config(**SETTINGS)
    batch = make_batch(config, ADVANTAGES, LONGEST)
    learner = make_learner(config)
    moment, _, update = after(learner, batch)
    layout = RoleLayout(
        **{**{field: 1 for field in RoleLayout.__dataclass_fields__}, "micro_batch_num": PARTS}
    )
    found = LogProbs(RoleModel(learner.model, SINGLE, None, ()), layout, 0.9, Gather(None))
    logprobs = found(batch)
    monkeypatch.setattr(packing, "SHORTEST", 2)
    if groups == "sharing rows":
        monkeypatch.setattr(packing, "LONG", 2)
        monkeypatch.setattr(packing, "shares_rows", lambda S, group, slots: True)
        shapes = {(micro.slots, len(micro.results)) for micro in batch.micro_batches(SINGLE, PARTS)}
        assert len(shapes) > 2 and max(completions for _, completions in shapes) > 1
    cut_logprobs = found(batch)
    cut_moment, _, cut_update = after(make_learner(config), batch)

    assert not np.array_equal(cut_moment, moment)  # the sums are others
    np.testing.assert_allclose(cut_moment, moment, rtol=0, atol=1e-6 * np.linalg.norm(moment))
    assert cut_update.grad_norm == pytest.approx(update.grad_norm, rel=1e-6) and update.grad_norm > 0.01
    np.testing.assert_allclose(
        cut_update.sums_PK, update.sums_PK, atol=1e-6 * np.abs(update.sums_PK).max(), rtol=1e-5
    )
    assert np.abs(update.sums_PK[:, PolicyLoss.sums.index("loss")]).min() > 0
    valid = batch.mask_BT > 0
    for actual, expected in ((cut_update.logprobs_PGT, update.logprobs_PGT), (cut_logprobs, logprobs)):
        actual, expected = (values.reshape(P * G, T)[valid] for values in (actual, expected))
        # Roundings of float32: 5.7e-6 on an AMD EPYC with AVX-512, where the largest is 9.4.
        np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-6 * np.abs(expected).max())
