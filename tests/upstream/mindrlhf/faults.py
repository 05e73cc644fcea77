"""Results of mindrlhf's and mindformers' own code for given settings: one function each.

    PYTHONPATH=MINDRLHF:MINDFORMERS python faults.py < REQUEST.json

REQUEST.json: name -> {"what": function of this module, and its settings}; see test_faults.py. The last line
of the output is JSON: name -> the result, or {"raised": type and text of the exception}.
"""

import contextlib
import importlib
import json
import os
import sys
import tempfile
import types

import numpy as np

Section = types.SimpleNamespace


def mask(settings):
    """Rows of packed samples (LlamaModel builds this cell with use_eod_attn_mask_compression)."""
    from mindformers.modules.transformer.transformer import LowerTriangularMaskWithDynamic

    cell = LowerTriangularMaskWithDynamic(
        seq_length=settings["seq_length"], use_flash_attention=True, use_attn_mask_compression=True
    )
    return list(cell.lower_triangle_mask.shape)


def loss(settings):
    """GRPOModel's loss, compiled as a graph, with the full monitor or without."""
    import mindspore as ms
    from mindrlhf.models.grpo_models import GRPOModel

    class Policy(ms.nn.Cell):
        dp = 1

        def __init__(self):
            super().__init__()
            self.scale = ms.Parameter(ms.Tensor(1.0, ms.float32), name="scale")

        def construct(self, ids, position, valid, slots, first, past, samples, lengths, full, ref):
            return samples.astype(ms.float32) * self.scale

    ms.set_context(mode=ms.GRAPH_MODE)
    rl = Section(
        beta=0.0, enable_oldpolicy=True, enable_full_monitor=settings["full_monitor"],
        epsilon_high=0.2, epsilon_low=0.2, num_iterations=2,
    )  # fmt: skip
    sampling = Section(sampling_config=Section(pad_token_id=0))
    model, width = GRPOModel(Section(rl_config=rl, generate_config=sampling), Policy()), 8
    ids = ms.Tensor(np.ones((1, width + 1)), ms.int32)
    ones = ms.Tensor(np.ones((1, width)), ms.float32)
    length, index = ms.Tensor([[width]], ms.int32), ms.Tensor(np.zeros((1, width)), ms.int32)
    return float(model(ids, index + 1, ones, ones, length, index, length, ones))


def rate(settings):
    """The learning rate of each update, made as mindrlhf/worker/train_worker.py makes it."""
    import mindspore as ms
    from mindrlhf.utils.utils import LearningRate

    ms.set_context(mode=ms.PYNATIVE_MODE)
    made = LearningRate(
        settings["lr"], settings["min_lr"], settings["warmup_step"], settings["decay_steps"],
        use_cosine=settings["lr_decay_style"] == "cosine",
    )  # fmt: skip
    rates = [made(ms.Tensor(update, ms.int32)) for update in range(settings["updates"])]
    return [float(np.asarray(value.asnumpy()).reshape(-1)[0]) for value in rates]


def reward(settings):
    """The rewards of one function."""
    module = importlib.import_module(f"mindrlhf.reward.{settings['module']}")
    return getattr(module, settings["name"])(**settings["arguments"])


def optimizer(settings):
    """The optimizer of opt_offload, called as the training cell calls it: self.optimizer(grads)."""
    import mindspore as ms
    from mindrlhf.utils.adam import AdamWeightDecayOp

    network = ms.nn.Dense(2, 2)
    update = AdamWeightDecayOp(network.trainable_params())

    class Step(ms.nn.Cell):
        def __init__(self):
            super().__init__()
            self.network, self.update, self.weights = network, update, update.parameters
            self.grad = ms.ops.GradOperation(get_by_list=True)

        def construct(self, rows):
            return self.update(self.grad(self.network, self.weights)(rows))

    ms.set_context(mode=ms.GRAPH_MODE)
    return bool(Step()(ms.Tensor(np.ones((1, 2)), ms.float32)))


def _network(width):
    """Mindformers' own sampling loop over a network that prefers no token to another."""
    import mindspore as ms
    from mindformers import LlamaConfig
    from mindformers.generation import GenerationMixin, logits_process

    logits_process.run_using_numpy = lambda: True  # sorting has no CPU kernel

    class Network(GenerationMixin):
        phase, block_mgr = "predict", None

        def __init__(self):
            settings = {"do_sample": True, "top_k": 0, "top_p": 1.0, "temperature": 1.0}
            super().__init__()
            self.config = LlamaConfig(
                seq_length=width, vocab_size=64, hidden_size=8, num_heads=1, num_layers=1,
                pad_token_id=0, eos_token_id=[1], use_past=False, **settings,
            )  # fmt: skip

        def set_train(self, mode):
            return self

        def prepare_inputs_for_generation(self, input_ids, **kwargs):
            return {"input_ids": ms.Tensor(input_ids, ms.int32)}

        def __call__(self, input_ids, **kwargs):
            return ms.Tensor(np.zeros((input_ids.size, 64)), ms.float32)

    return Network()


def completions(settings):
    """Return how many different completions MindFormers generates per prompt with these replicas."""
    from mindrlhf.configs.grpo_configs import VllmMode
    from mindrlhf.trainer.spmd import grpo_experience_maker as making
    from mindrlhf.worker.infer_worker import InferWorker

    replicas, generations, tokens, length = settings["replicas"], settings["generations"], 6, 4
    prompts = np.arange(2, 2 + 2 * replicas * length).reshape(-1, length) % 50 + 2  # chunk_size 2
    batch, result = np.concatenate([prompts] * generations), []
    for replica in range(replicas):
        making.get_dp_rank = lambda count, own=replica: own
        worker, network = InferWorker.__new__(InferWorker), _network(length + tokens)
        worker.use_vllm, worker.dp_rank_id, worker.infer_pp_stage = VllmMode(settings["use_vllm"]), replica, 1
        policy = Section(model=network, generate=network.generate)
        worker.grpo_model_infer = Section(grpo_model=Section(pad_token_id=0, policy_model=policy))
        sampling = Section(max_tokens=tokens, min_tokens=0, pad_token_id=0)
        worker.grpo_config = Section(
            generate_config=Section(sampling_config=sampling, max_prompt_length=length)
        )
        maker = making.GRPOExperienceMaker.__new__(making.GRPOExperienceMaker)
        rows = maker._split_for_data_parallel(batch, replicas)
        parts = (
            [rows] if settings["use_vllm"] else [rows[begin : begin + 2] for begin in range(0, len(rows), 2)]
        )
        result += [row for part in parts for row in worker.generate(part, max_tokens=tokens)[0].tolist()]
    count = len(prompts)
    return [len({str(result[i]) for i in range(first, len(result), count)}) for first in range(count)]


def packs(settings):
    """Into how many rows samples of the longest length are put."""
    from mindrlhf.trainer.spmd.grpo_experience_maker import GRPOExperienceMaker

    maker = GRPOExperienceMaker.__new__(GRPOExperienceMaker)
    maker.grpo_config = Section(rl_config=Section(seq_length=settings["seq_length"]))
    # a prompt and a completion of these lengths, and one end token: create_pack_group counts end - start + 2
    sample = {"prompt_start_idx": 0, "response_end_index": settings["sample_length"] - 2}
    return len(maker.create_pack_group([sample] * settings["samples"], settings["pack_num"]))


def text(settings):
    """Return the text that the configured tokenizer decodes from ids, and its padding id."""
    tokenizer = _tokenizer(settings)
    decoded = tokenizer.decode([np.array(ids) for ids in settings["ids"]], skip_special_tokens=True)
    return {"text": decoded, "eos": tokenizer.eos_token_id, "largest": max(tokenizer.get_vocab().values())}


def _tokenizer(settings):
    kind, path = settings["type"], settings["tokenizer_dir"]
    if settings["version"] == "e8a8fc1":
        from mindrlhf.models import TokenizerFactory

        rl = Section(tokenizer_dir=path, tokenizer_type=kind)
        generate = Section(model_config=settings["predict"])
        return TokenizerFactory.init_tokenizer(Section(rl_config=rl, generate_config=generate))
    if kind == "qwen":  # 0cd087455's grpo_trainer.py:226-242 decides in the middle of a method
        from mindrlhf.models.qwen2.qwen2_tokenizer import Qwen2Tokenizer

        files = (os.path.join(path, name) for name in ("vocab.json", "merges.txt"))
        return Qwen2Tokenizer(*files, add_bos_token=False, add_eos_token=False)
    from mindformers import MindFormerConfig
    from mindformers.models.build_tokenizer import build_tokenizer

    settings = MindFormerConfig(settings["predict"]).processor.tokenizer
    settings.tokenizer_file = settings.vocab_file = path
    return build_tokenizer(settings)


def main():
    """Answer the request; output of the libraries goes to stderr."""
    results = {}
    os.chdir(tempfile.mkdtemp())  # for logs and graphs of MindSpore
    with contextlib.redirect_stdout(sys.stderr):
        for name, settings in json.load(sys.stdin).items():
            try:
                results[name] = globals()[settings["what"]](settings)
            except Exception as error:
                results[name] = {"raised": f"{type(error).__name__}: {error}"}
    print(json.dumps(results))


if __name__ == "__main__":
    main()
