"""Micro-batches of completions of similar lengths, beside micro-batches in which all slots are computed."""

import numpy as np
import pytest

from stages.base.layout import RoleLayout
from stages.grpo import batch as module
from stages.grpo.batch import Batch, slots_for
from stages.grpo.collectives import Gather
from stages.grpo.config import parts_of_groups
from stages.grpo.loss import PolicyLoss
from stages.grpo.parallel import SINGLE, Mesh
from stages.grpo.roles import LogProbs, RoleModel
from tests.stages.grpo import small
from tests.stages.grpo.test_skipped import PARTS, G, P, T, after, make_batch, make_learner

LONGEST = [2, 7, 4, 2, 7, 4]
"""With SHORTEST=2 the slots are 7, 6, 4, 3 or 2."""
ADVANTAGES = [[1, -1, 0.5], [0.3, 2, -1], [1, -1, 0.1], [-2, 1, 1], [0.2, 0.1, -0.7], [1, 1, -2]]
SETTINGS = {"beta": 0.1, "num_iterations": 2, "loss_type": "grpo", "max_grad_norm": None}


def test_slots_are_few_and_hold_the_longest_completion():
    every = {slots_for(tokens, 512) for tokens in range(1, 513)}
    assert every == {512, 384, 256, 192, 128}
    for tokens in range(513):
        assert tokens <= slots_for(tokens, 512) and slots_for(tokens, 512) / 2 < max(tokens, 128)
    assert [slots_for(1, slots) for slots in (28, 128, 129, 200, 1000)] == [28, 128, 129, 150, 188]
    assert [slots_for(tokens, 1000) for tokens in (1000, 751, 750, 501, 375, 188)] == [
        1000, 1000, 750, 750, 375, 188
    ]  # fmt: skip


def test_prompts_with_similar_completions_go_together(monkeypatch):
    config = small.train_config(**SETTINGS)
    batch = make_batch(config, ADVANTAGES, LONGEST)

    def prompts(parts):
        for part in parts:
            np.testing.assert_array_equal(part, part[:, :1] + np.arange(G))
        return [(part[:, 0] // G).tolist() for part in parts]

    same = prompts(batch.micro_batches(SINGLE, PARTS))
    assert same == [[0, 1], [2, 3], [4, 5]]  # all slots are computed, in the order of the prompts
    monkeypatch.setattr(module, "SHORTEST", 2)
    parts = batch.micro_batches(SINGLE, PARTS)
    assert prompts(parts) == [[1, 4], [2, 5], [0, 3]]
    assert prompts(batch.micro_batches(SINGLE, 1)) == [[1, 4, 2, 5, 0, 3]]
    assert prompts(batch.micro_batches(Mesh(2, 1, 1, 0), 3)) == [[4], [5], [3]]
    for part, slots in zip(parts, (7, 4, 2), strict=True):
        taken, rows, chosen = batch.take(part), part.reshape(-1), part[:, 0] // G
        np.testing.assert_array_equal(taken.completion_PGT, batch.completion_PGT[chosen, :, :slots])
        np.testing.assert_array_equal(taken.prompt_PS, batch.prompt_PS[chosen])
        np.testing.assert_array_equal(taken.advantage_B1, batch.advantage_B1[rows])
        for name in ("weight_BT", "mask_BT", "old_logprobs_BT", "ref_logprobs_BT"):
            np.testing.assert_array_equal(getattr(taken, name), getattr(batch, name)[rows, :slots])
    plain = Batch(batch.prompt_PS, batch.prompt_length_P, batch.completion_PGT)
    assert plain.take(parts[2]).completion_PGT.shape == (2, G, T)


def test_parts_of_groups_have_completions_of_similar_lengths(monkeypatch):
    batch = make_batch(small.train_config(**SETTINGS), ADVANTAGES, LONGEST)
    tokens = batch.tokens_PG.reshape(-1)
    monkeypatch.setattr(module, "SHORTEST", 2)
    monkeypatch.setattr(module, "parts_of_groups", lambda S, group, slots: group)
    parts = batch.micro_batches(SINGLE, PARTS)
    assert [part.shape for part in parts] == [(P // PARTS, 1)] * PARTS * G  # of as many prompts as before
    assert sorted(np.concatenate(parts).reshape(-1)) == list(range(P * G))
    longest = [slots_for(int(tokens[part].max()), T) for part in parts]
    assert longest == sorted(longest, reverse=True) and len(set(longest)) > 2
    for part in parts:
        taken = batch.take(part)
        np.testing.assert_array_equal(taken.tokens_PG, tokens[part])
        np.testing.assert_array_equal(taken.prompt_PS, batch.prompt_PS[part[:, 0] // G])
        whole = batch.completion_PGT.reshape(P * G, 1, T)[part[:, 0]]
        np.testing.assert_array_equal(taken.completion_PGT, whole[..., : taken.completion_PGT.shape[-1]])
    left_out = np.arange(P * G) % G > 0  # only the first completion of each group stays
    assert len(batch.without(left_out).micro_batches(SINGLE, PARTS)) == PARTS
    of_both = [batch.micro_batches(Mesh(2, 1, 1, rank), 3) for rank in (0, 1)]
    assert [len(parts) for parts in of_both] == [3 * G, 3 * G]
    assert sorted(np.concatenate(of_both[1]).reshape(-1)) == list(range(P * G // 2, P * G))


def test_groups_are_cut_if_completions_may_be_longer_than_prompts():
    assert [parts_of_groups(208, 8, slots) for slots in (64, 255, 256, 415, 416, 512, 4096)] == [
        1, 1, 2, 2, 4, 4, 4
    ]  # fmt: skip
    assert [parts_of_groups(100, group, 512) for group in (1, 2, 3, 4, 6, 16)] == [1, 2, 1, 4, 2, 4]
    assert parts_of_groups(1000, 8, 512) == 1  # the prompts would be computed twice


@pytest.mark.parametrize("groups", ["whole", pytest.param("in parts", marks=pytest.mark.long)])
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
    monkeypatch.setattr(module, "SHORTEST", 2)
    if groups == "in parts":
        monkeypatch.setattr(module, "parts_of_groups", lambda S, group, slots: group)
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
        np.testing.assert_allclose(actual, expected, rtol=0, atol=2e-6 if groups == "whole" else 4e-6)
