"""Results of mindrlhf's own functions for rendered settings.

    PYTHONPATH=MINDRLHF:MINDFORMERS python functions.py < REQUEST.json

REQUEST.json: name -> {"what": function of this module, and its settings}; see test_functions.py. The last
line of the output is JSON: name -> the result, or {"raised": type and text of the exception}.
"""

import contextlib
import json
import os
import sys
import tempfile
import types

import numpy as np

Section = types.SimpleNamespace


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


def puzzles(settings):
    """The rewards of answers to puzzles."""
    from mindrlhf.reward.kk_reward_fn import kk_reward

    return kk_reward(**settings["arguments"])


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
