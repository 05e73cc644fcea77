"""What is computed of a batch without its padding."""

import numpy as np
import pytest

from stages.grpo.packing import PARTS, packed, sizes, slots

P, S, G, T = 3, 5, 2, 4
PROMPT = np.arange(P * S).reshape(P, S) + 100
COMPLETION = np.arange(P * G * T).reshape(P, G, T) + 200
LENGTH, TOKENS = np.array([5, 1, 3]), np.array([[4, 1], [0, 2], [3, 3]])


@pytest.mark.parametrize("spare", [(1, 1), (4, 3), (None, None)])
def test_every_token_is_read_once_where_it_belongs_and_leads_back(spare):
    read, wanted = slots(LENGTH, S, TOKENS, T)
    N, M = (
        real.sum() + more if more else len(real) for real, more in zip((read, wanted), spare, strict=True)
    )
    ids, position, length, prompt, completion, slot, before, target, token = packed(
        PROMPT, LENGTH, COMPLETION, TOKENS, (N, M)
    )
    assert len(ids) == len(position) == len(slot) == N and len(before) == len(target) == M
    assert length is LENGTH and len(set(slot)) == N
    inputs, row = COMPLETION[..., :-1], np.concatenate([prompt.ravel(), completion.ravel()])
    np.testing.assert_array_equal(ids, np.concatenate([PROMPT.ravel(), inputs.ravel()])[slot])
    assert set(np.flatnonzero(read)) <= set(slot)
    np.testing.assert_array_equal(slot[row[slot]], slot)
    assert not read[
        slot[row[np.setdiff1d(np.arange(len(read)), slot)]]
    ].any()  # to padding, whose gradient is 0
    for p, s in zip(*np.nonzero(np.arange(S) < LENGTH[:, None]), strict=True):
        assert position[prompt[p, s]] == s
    for p, g, t in zip(*np.nonzero(np.arange(T) < TOKENS[..., None]), strict=True):
        m = token[p * G + g, t]
        assert target[m] == COMPLETION[p, g, t]
        assert before[m] == (completion[p, g, t - 1] if t else prompt[p, LENGTH[p] - 1])
        if t < TOKENS[p, g] - 1:
            assert position[completion[p, g, t]] == LENGTH[p] + t


def test_sizes_leave_padding_or_hold_everything_and_are_all_workers():
    random = np.random.default_rng(0)
    shapes = set()
    for tokens in random.integers(0, 40 * 27 + 1, (200, 2)):
        read, wanted = (np.arange(n) < tokens[:, None] * n // 1080 for n in (40 * 36, 40 * 27))
        N, M = sizes(read, wanted)
        assert read.sum(1).max() < N <= 40 * 36 or N == 40 * 36
        assert wanted.sum(1).max() < M <= 40 * 27 or M == 40 * 27
        spare = (N - 1) / (40 * 36) - tokens.max() / 1080
        assert spare <= 1 / PARTS
        shapes.add((N, M))
    assert len(shapes) <= PARTS
