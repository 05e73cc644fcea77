"""The evaluate stage with evaluate.program=local: the embedded decoder answers the held-out prompts.

Both models run through the same compiled graphs; only the weights change between them. A batch holds as
many completions whether they are greedy, one of each prompt, or samples, several that share their prompt. It
is decoded until its longest completion ends, so prompts whose answers are likely to be as long go together;
what is decoded together with a completion does not change it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stages.base.context import Context
from stages.grpo import answers
from stages.grpo.answers import MODELS, Generated
from stages.grpo.config import EvaluateConfig, RolloutConfig
from stages.grpo.data import Prompts, Vocabulary
from stages.grpo.model import CausalLM
from stages.grpo.parameters import fuse
from stages.grpo.rollout import Decoder
from stages.grpo.sampling import uniforms
from stages.models.config import ModelConfig
from stages.weights.dtypes import Array
from stages.weights.names import renamed
from stages.weights.sources import open_directory
from stages.weights.tensors import merge_ranks
from stages.weights.transfer import read_tensor


def run(context: Context) -> None:
    """Evaluate both models and write result.json and samples.jsonl.

    Raises:
        ConfigError: pass@k cannot be estimated from the samples that are drawn.
        InputError: weights or data are missing or do not fit.
    """
    shape, config = context.section(ModelConfig, "model"), context.section(EvaluateConfig, "evaluate")
    rollout = context.section(RolloutConfig, "rollout")
    prompts, vocabulary = answers.held_out(context, config)
    S = prompts.ids.shape[1]
    model = CausalLM(shape, positions=S + rollout.max_tokens)
    batch = min(config.batch_prompts, len(prompts))
    calls = len(MODELS) * -(-len(prompts) // batch)
    greedy = Decoder(model, rollout, batch, 1, S, vocabulary.special, calls)
    sampling = None
    if sampled := min(config.sample_prompts, len(prompts)):
        batch = min(max(1, config.batch_prompts // config.num_samples), sampled)
        calls = len(MODELS) * -(-sampled // batch)
        sampling = Decoder(model, rollout, batch, config.num_samples, S, vocabulary.special, calls)
    judged, expected = {}, prompts.lengths
    for number, name in enumerate(MODELS):
        model.load(fuse(shape, weights(context.inputs[name], context.inputs.get("strategy"), shape)))
        done = generate(greedy, sampling, prompts, vocabulary, config, context.seed, expected)
        expected = np.array(done.lengths)
        judged[name] = answers.judge(context, done, prompts, config)
        accuracy = judged[name].right.mean()
        context.progress(number + 1, len(MODELS), f"{name}: accuracy {accuracy:.3f}", "models")
    answers.write(context, prompts, judged, config)


def weights(artifact: Path, strategies: Path | None, shape: ModelConfig) -> dict[str, Array]:
    """Read the full parameters of an artifact: rank directories in train/, or a Hugging Face directory."""
    if strategies is not None and (artifact / "train").is_dir():
        return merge_ranks(artifact / "train", strategies / "train_strategy")
    tensors = renamed(open_directory(artifact), shape, artifact)
    return {name: read_tensor(tensor) for name, tensor in tensors.items()}


def generate(
    greedy: Decoder, sampling: Decoder | None, prompts: Prompts, vocabulary: Vocabulary,
    config: EvaluateConfig, seed: int, expected: NDArray[Any],
) -> Generated:  # fmt: skip
    """Complete all prompts greedily and the first ones by sampling; `expected` as in `complete`."""
    texts, lengths = complete(greedy, prompts, vocabulary, None, expected)
    if sampling is None:
        return Generated(texts, lengths, [])
    first = prompts.take(range(min(config.sample_prompts, len(prompts))))
    draws = uniforms((seed, len(first)), len(first) * config.num_samples, sampling.T)
    samples = complete(sampling, first, vocabulary, draws, np.array(lengths[: len(first)]))[0]
    return Generated(texts, lengths, samples)


def complete(
    decoder: Decoder, prompts: Prompts, vocabulary: Vocabulary, draws: NDArray[np.float32] | None,
    expected: NDArray[Any],
) -> tuple[list[str], list[int]]:  # fmt: skip
    """Return texts and lengths of decoder.G completions of each prompt, in the order of the prompts.

    Args:
        decoder: for any number of prompts.
        prompts: N of them.
        vocabulary: for the texts.
        draws: numbers that decide the draws [N*G, T]; None: greedy.
        expected: something that grows with the lengths of the completions [N]; prompts are decoded in its
            order.
    """
    P, G, T = decoder.P, decoder.G, decoder.T
    ids, tokens = np.zeros((len(prompts), G, T), np.int32), np.zeros((len(prompts), G), np.int32)
    by_prompt = None if draws is None else draws.reshape(len(prompts), G, T)
    order = np.argsort(expected, kind="stable")
    for start in range(0, len(prompts), P):
        batch = order[start : start + P]
        rows = np.resize(batch, P)  # the last is filled up: another shape would be compiled anew
        uniform = None if by_prompt is None else by_prompt[rows].reshape(P * G, T)
        done = decoder.generate(prompts.ids[rows], prompts.lengths[rows], uniform)
        ids[rows], tokens[rows] = done.ids.reshape(P, G, T), done.lengths.reshape(P, G)
    flat = tokens.reshape(-1)
    return vocabulary.texts(ids.reshape(-1, T), flat), flat.tolist()
