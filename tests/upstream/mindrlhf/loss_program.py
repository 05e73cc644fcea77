"""mindrlhf's loss and gradient norm of one batch: loss_program.py CONFIG BATCH.npz RESULT.npz, under msrun.

BATCH holds weight/NAME (mindformers' names), prompt, length, completion, mask, old, reference, advantage.
Packing, loss, gradient and update are mindrlhf's own: GRPOExperienceMaker without its __init__, TrainWorker.
Imports nothing of this project, so that mindrlhf's environment will do.
"""

import sys
from types import SimpleNamespace

import mindspore as ms
import numpy as np
from mindrlhf.configs.grpo_configs import GRPOConfig
from mindrlhf.trainer.spmd.grpo_experience_maker import GRPOExperienceMaker
from mindrlhf.worker.train_worker import TrainWorker
from mindspore.communication import init

PREFIX = "grpo_model_train.policy_model.model."


def main(config_file, batch_file, result_file):
    ms.set_context(mode=ms.GRAPH_MODE)
    init()
    config, batch = GRPOConfig(config_file), dict(np.load(batch_file))
    worker = TrainWorker(config, SimpleNamespace(model_name="qwen", tensor_writer=None))
    weights = {
        PREFIX + name[7:]: ms.Parameter(ms.Tensor(array))
        for name, array in batch.items()
        if name.startswith("weight/")
    }
    network = worker.model().grpo_model_train.policy_model
    left, unused = ms.load_param_into_net(network, weights)
    assert not unused and not [name for name in left if ".model." in name], (left, unused)
    rows = samples(config, batch, worker)
    worker.grpo_with_grad.set_train(True)
    network.model.set_train(True)
    columns = [np.stack([getattr(row, name) for row in rows]) for name in COLUMNS]
    loss, overflow, _, _, norm = worker.grpo_with_grad(*[ms.Tensor(column) for column in columns])
    lengths = columns[COLUMNS.index("sample_valid_length")]
    np.savez(
        result_file,
        loss=loss.asnumpy(),
        norm=norm.asnumpy().item(),
        overflow=overflow.asnumpy(),
        counted=(lengths != 1).sum(),
        advantages=maker(config, worker).compute_advantages(
            batch["rewards"], {}, batch["completion"].shape[1]
        ),
    )


COLUMNS = (
    "prompt_completion_ids", "responses_mask", "ref_per_token_logps", "advantages", "actual_sequence_length",
    "sample_index", "sample_valid_length", "old_per_token_logps",
)  # fmt: skip
"""In the order of TrainWorker.train."""


def maker(config, worker):
    """The experience maker, as far as packing needs it."""
    made = GRPOExperienceMaker.__new__(GRPOExperienceMaker)
    made.grpo_config, made.train, made.tensor_writer, made.make_exp_step = config, worker, None, 0
    made.tokenizer = SimpleNamespace(eos_token_id=config.generate_config.sampling_config.pad_token_id)
    return made


def samples(config, batch, worker):
    """The batch packed, with log-probabilities of the old policy and of the reference in their places."""
    P, G, T = batch["completion"].shape
    S = batch["prompt"].shape[1]
    shape = (P * G, S + T)
    ids, prompt_mask, mask = (np.zeros(shape, np.int32) for _ in range(3))
    logprobs = {name: np.zeros(shape, np.float32) for name in ("old", "reference")}
    for row in range(P * G):
        prompt, completion = divmod(row, G)
        length = batch["length"][prompt]
        ids[row, S - length : S] = batch["prompt"][prompt, :length]  # padded on the left, as there
        prompt_mask[row, S - length : S] = 1
        ids[row, S:] = batch["completion"][prompt, completion]
        mask[row, S:] = batch["mask"][prompt, completion]
        for name, array in logprobs.items():
            array[row, S:] = batch[name][prompt, completion]
    made = maker(config, worker)
    packs = made.pack_grpo_data(ids, prompt_mask, mask, batch["advantage"])
    (pack,) = packs  # all fit into one
    path = where(pack, prompt_mask, mask)
    known = {
        name: spread(pack, path, {"mask": mask, "values": array})[None] for name, array in logprobs.items()
    }
    made.add_experience(packs, known["reference"], known["old"])
    return worker.store


def where(pack, prompt_mask, mask):
    """(row, first position of its completion in the pack, tokens) of each sample, by walking the pack."""
    start, result = 0, []
    for row in range(len(mask)):
        if count := int(mask[row].sum()):  # mindrlhf leaves samples without a completion out
            first = start + int(prompt_mask[row].sum())
            result.append((row, first, count))
            start = first + count + 1
    ends = {first + count - 1 for _, first, count in result}
    assert ends <= set(np.flatnonzero(pack["responses_mask"]).tolist())
    return result


def spread(pack, position, rows):
    """An array of the pack: entry i belongs to the token at i + 1 (add_experience shifts the mask)."""
    result = np.zeros(len(pack["prompt_completion_ids"]), np.float32)
    for row, first, count in position:
        begin = np.flatnonzero(rows["mask"][row])[0]
        result[first - 1 : first - 1 + count] = rows["values"][row, begin : begin + count]
    return result


if __name__ == "__main__":
    main(*sys.argv[1:])
