"""What a rank holds, in plain NumPy: split the array, pick by the rank's coordinates."""

import numpy as np

from stages.models.tensor_layout import TensorLayout


def rank_part(full: np.ndarray, layout: TensorLayout, rank: int) -> np.ndarray:
    cards = int(np.prod(layout.dev_matrix))
    coordinates = np.unravel_index(np.arange(cards), layout.dev_matrix)
    position, part = rank % cards, full
    split_axes = []
    for dimension, axis in enumerate(layout.tensor_map):
        if axis >= 0:
            path = len(layout.dev_matrix) - 1 - axis
            split_axes.append(path)
            part = np.split(part, layout.dev_matrix[path], axis=dimension)[coordinates[path][position]]
    if layout.opt_weight_shard_size:
        peers = [
            card
            for card in range(cards)
            if all(coordinates[p][card] == coordinates[p][position] for p in split_axes)
        ]
        count = len(peers) if layout.opt_weight_shard_size == -1 else layout.opt_weight_shard_size
        part = np.split(part, count, axis=0)[peers.index(position) % count]
    return part
