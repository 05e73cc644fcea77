import numpy as np

from pipeline.config.load import load as compose
from stages.grpo.parallel import Mesh, reshard
from stages.weights.strategy.files import read_strategy
from stages.weights.strategy.stage import write_strategy
from stages.weights.tensors import slices_of
from tests.stages.grpo import small


class Exchange:
    """Stands for the AllGather between workers: knows what each of them holds."""

    def __init__(self, shards):
        self.flat = np.stack(
            [np.concatenate([array.reshape(-1) for array in rank.values()]) for rank in shards]
        )

    def arrays(self, array):
        assert array.shape == self.flat[0].shape
        return self.flat


LAYOUTS = {
    "train": ["layout=dp2_mp2_pp1"],
    "data4": ["layout=dp4_mp1_pp1"],
    "whole_embedding": ["layout=dp2_mp2_pp1", "layout.train.vocab_emb_dp=true"],
}


def test_there_and_back_again_is_exact_on_four_cards(tmp_path):
    """Training dp2 mp2 to generating dp4 (and mp2 with a complete embedding), and back."""
    model = small.model_config(tie_word_embeddings=False)
    full = small.weights(model)
    layouts = {name: compose(overrides).layout.train for name, overrides in LAYOUTS.items()}
    for name, layout in layouts.items():
        write_strategy(model, layout, tmp_path / name)
    strategies = {name: read_strategy(tmp_path / name) for name in LAYOUTS}
    shards = {
        name: [slices_of(full, strategy, rank) for rank in range(4)] for name, strategy in strategies.items()
    }

    def carried(source, target, rank, held):
        mesh, pair = Mesh.of(layouts[source], rank), (strategies[source], strategies[target])
        return reshard(held[rank], *pair, mesh, rank, Exchange([held[item] for item in mesh.model_ranks]))

    for target in ("data4", "whole_embedding"):
        there = [carried("train", target, rank, shards["train"]) for rank in range(4)]
        for rank in range(4):
            back = carried(target, "train", rank, there)
            for name in full:
                np.testing.assert_array_equal(there[rank][name], shards[target][rank][name])
                np.testing.assert_array_equal(back[name], shards["train"][rank][name])
        assert any(there[0][name].shape != shards["train"][0][name].shape for name in full)
