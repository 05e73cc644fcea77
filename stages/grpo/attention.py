"""Grouped-query attention over prompts and over completions that share them.

Shapes as in model.py. Rows are ordered prompt, key/value head, completion: in that order the scores
of a whole group against its prompt's keys are one product without copying the keys G times, and both
halves of the scores are joined without a transposition.
"""

from __future__ import annotations

import mindspore as ms
from mindspore import Tensor, ops

from stages.grpo.operators import cut_columns, softmax

scores = ops.BatchMatMul(transpose_b=True)
weigh = ops.BatchMatMul()

HIDDEN = -1e9  # added to scores that must not count; finite, so that rows without any key stay finite


def prompt_mask(length: Tensor, S: int) -> Tensor:
    """0 on the first length [P] of S slots, HIDDEN on padding: [P, 1, 1, S]."""
    padding = ops.arange(S).reshape((1, S)) >= length.reshape((-1, 1))
    return (padding.astype(ms.float32) * HIDDEN).reshape((-1, 1, 1, S))


def causal_mask(T: int) -> Tensor:
    """HIDDEN where the key (column) comes after the query (row): [1, 1, T, T]."""
    after = ops.arange(T).reshape((1, T)) > ops.arange(T).reshape((T, 1))
    return (after.astype(ms.float32) * HIDDEN).reshape((1, 1, T, T))


def attend_within(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Each prompt's tokens attend to those before them.

    Args:
        q: [P*S, Q, D], scaled.
        k: [P*S, K, D].
        v: [P*S, K, D].
        mask: added to the scores [P, Q, S, S].

    Returns:
        attended [P*S, Q*D]; keys and values as [P*K, S, D].
    """
    P, S = mask.shape[0], mask.shape[-1]
    Q, K, D = q.shape[1], k.shape[1], q.shape[2]
    R = Q // K
    q = q.reshape((P, S, K, R, D)).transpose((0, 2, 3, 1, 4)).reshape((P * K, R * S, D))
    k = k.reshape((P, S, K, D)).transpose((0, 2, 1, 3)).reshape((P * K, S, D))
    v = v.reshape((P, S, K, D)).transpose((0, 2, 1, 3)).reshape((P * K, S, D))
    shares = softmax(scores(q, k).reshape((P, Q, S, S)) + mask)
    attended = weigh(shares.reshape((P * K, R * S, S)), v).reshape((P, Q, S, D))
    return attended.transpose((0, 2, 1, 3)).reshape((P * S, Q * D)), k, v


def attend_with_prompt(
    q: Tensor, k: Tensor, v: Tensor, keys: Tensor, values: Tensor, mask: Tensor, G: int
) -> Tensor:
    """Completions' tokens attend to their prompt and to their own tokens before them.

    Args:
        q: [P*G*T, Q, D], scaled.
        k: [P*G*T, K, D].
        v: [P*G*T, K, D].
        keys: the prompts' [P*K, S, D].
        values: the prompts' [P*K, S, D].
        mask: added to the scores [P, Q*G, T, S+T].
        G: completions per prompt.

    Returns:
        attended [P*G*T, Q*D].
    """
    P, T, S = mask.shape[0], mask.shape[2], keys.shape[1]
    Q, K, D = q.shape[1], k.shape[1], q.shape[2]
    R = Q // K
    q = q.reshape((P, G, T, K, R, D)).transpose((0, 3, 1, 4, 2, 5))
    k = k.reshape((P, G, T, K, D)).transpose((0, 3, 1, 2, 4)).reshape((P * K * G, T, D))
    v = v.reshape((P, G, T, K, D)).transpose((0, 3, 1, 2, 4)).reshape((P * K * G, T, D))
    to_prompt = scores(q.reshape((P * K, G * R * T, D)), keys).reshape((P, K * G * R, T, S))
    to_completion = scores(q.reshape((P * K * G, R * T, D)), k).reshape((P, K * G * R, T, T))
    of_prompt, of_completion = cut_columns(softmax(ops.concat((to_prompt, to_completion), -1) + mask), (S, T))
    attended = weigh(of_prompt.reshape((P * K, G * R * T, S)), values).reshape((P, K, G, R, T, D))
    attended = attended + weigh(of_completion.reshape((P * K * G, R * T, T)), v).reshape((P, K, G, R, T, D))
    return attended.transpose((0, 2, 4, 1, 3, 5)).reshape((P * G * T, Q * D))
