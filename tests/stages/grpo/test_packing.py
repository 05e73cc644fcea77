"""What is computed of a batch without its padding."""

import numpy as np
import pytest

from stages.grpo.packing import FULL, LEAST, packed, sizes, slots

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
    ids, position, length, prompt, completion, slot, before, target, token, *every = packed(
        PROMPT, LENGTH, COMPLETION, TOKENS, (N, M)
    )
    for rows, size, real in zip(every, (N, M), (read, wanted), strict=True):
        np.testing.assert_array_equal(rows, [min(row, size - 1) for row in range(len(real))])
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


def test_sizes_leave_one_slot_of_padding_unless_hardly_any_would_be_saved():
    full = 0
    for tokens in np.random.default_rng(1).integers(0, 1081, 200):
        read, wanted = (np.arange(n) < tokens * n // 1080 for n in (1440, 1080))
        held, shape = (read.sum(), wanted.sum()), sizes(read, wanted)
        if held[0] > FULL * 1440 or held[1] > FULL * 1080:
            assert shape == (1440, 1080)
            full += 1
        else:
            assert shape == (held[0] + 1, max(held[1] + 1, -(-1080 // LEAST)))
    assert 0 < full < 200
