"""Sampling of verl's rollout on a CPU next to transformers' processors and a forward pass without a cache."""

import importlib.util
import sys
from pathlib import Path

import pytest

from stages import engines

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.parity
FILE = Path(engines.__file__).parent / "verl" / "plugin" / "grpoflow_verl_cpu" / "sampling.py"
PROMPT, STOP = [3, 1, 4, 1, 5], {0, 7}


@pytest.fixture(scope="module")
def sampling():
    """Return the module without its package, which imports verl."""
    spec = importlib.util.spec_from_file_location("verl_sampling", FILE)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclass looks its module up
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(1)
    config = transformers.Qwen3Config(
        vocab_size=32, hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=1, head_dim=8, initializer_range=0.4,
    )  # fmt: skip
    return transformers.Qwen3ForCausalLM(config).eval()


def sample(sampling, model, positions, num_tokens=32, **changes):
    defaults = {"temperature": 1.0, "top_p": 1.0, "top_k": -1, "max_tokens": 12}
    settings = sampling.Settings(**{**defaults, **changes})
    generators = [sampling.make_generator(42, 0, PROMPT, "row", position) for position in positions]
    return sampling.sample_block(model, PROMPT, generators, settings, STOP, num_tokens)


def distribution(logits, temperature, top_k, top_p):
    """Return the log-probabilities after transformers' processors."""
    processors = [transformers.TemperatureLogitsWarper(temperature)]
    processors += [transformers.TopKLogitsWarper(top_k)] if top_k > 0 else []
    processors += [transformers.TopPLogitsWarper(top_p)]
    for process in processors:
        logits = process(None, logits)
    return logits.log_softmax(-1)


@pytest.mark.parametrize("top_p", [1.0, 0.9, 0.3, 1e-6])
@pytest.mark.parametrize("top_k", [-1, 0, 1, 5, 100])
@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_the_distribution_is_that_of_transformers(sampling, temperature, top_k, top_p):
    logits = torch.randn(50, 40, generator=torch.Generator().manual_seed(3)) * 3
    ours = sampling.log_distribution(logits, sampling.Settings(temperature, top_p, top_k, 1))
    torch.testing.assert_close(ours, distribution(logits, temperature, top_k, top_p), rtol=1e-5, atol=1e-5)


def test_tokens_have_the_frequencies_of_the_distribution(sampling):
    probabilities = torch.tensor([0.5, 0.0, 0.2, 0.299, 0.001, 0.0])
    uniform = torch.rand(200_000, generator=torch.Generator().manual_seed(5))
    tokens = sampling.choose(probabilities.log().expand(len(uniform), -1), uniform, 1.0)
    frequencies = tokens.bincount(minlength=6) / len(uniform)
    assert frequencies[1] == frequencies[5] == 0
    torch.testing.assert_close(frequencies, probabilities, rtol=0, atol=0.004)
    edges = torch.tensor([0.0, 1 - 2**-24])
    assert sampling.choose(probabilities.log().expand(2, -1), edges, 1.0).tolist() == [0, 4]


@pytest.mark.parametrize("changes", [{}, {"temperature": 0.7, "top_k": 8, "top_p": 0.8}])
def test_log_probabilities_equal_a_forward_pass_without_a_cache(sampling, model, changes):
    settings = {"temperature": 1.0, "top_k": -1, "top_p": 1.0, **changes}
    completions = sample(sampling, model, range(8), **changes)
    assert len({tuple(tokens) for tokens, _ in completions}) == 8
    for tokens, logprobs in completions:
        with torch.no_grad():
            logits = model(torch.tensor([PROMPT + tokens])).logits[0, len(PROMPT) - 1 : -1]
        expected = distribution(logits, **settings)[torch.arange(len(tokens)), torch.tensor(tokens)]
        torch.testing.assert_close(torch.tensor(logprobs), expected, rtol=1e-4, atol=1e-5)


def test_a_completion_ends_with_its_first_stop_token_or_at_the_limit(sampling, model):
    completions = sample(sampling, model, range(16))
    for tokens, logprobs in completions:
        assert len(tokens) == len(logprobs) <= 12
        assert not STOP & set(tokens[:-1])
        assert tokens[-1] in STOP or len(tokens) == 12
    assert {tokens[-1] in STOP for tokens, _ in completions} == {True, False}


def test_rows_of_a_padded_vocabulary_are_never_sampled(sampling, model):
    completions = sample(sampling, model, range(64), num_tokens=20)
    assert len({token for tokens, _ in completions for token in tokens}) > 15
    assert all(token < 20 for tokens, _ in completions for token in tokens)
    assert any(token >= 20 for tokens, _ in sample(sampling, model, range(64)) for token in tokens)
    tokens, logprobs = completions[0]
    with torch.no_grad():
        logits = model(torch.tensor([PROMPT + tokens])).logits[0, len(PROMPT) - 1 : -1, :20]
    expected = logits.log_softmax(-1)[torch.arange(len(tokens)), torch.tensor(tokens)]
    torch.testing.assert_close(torch.tensor(logprobs), expected, rtol=1e-4, atol=1e-5)


def test_greedy_completions_are_those_of_transformers(sampling, model):
    ((tokens, _),) = sample(sampling, model, [0], temperature=0.0)
    expected = model.generate(
        torch.tensor([PROMPT]), max_new_tokens=12, do_sample=False, eos_token_id=sorted(STOP), pad_token_id=0
    )
    assert tokens == expected[0, len(PROMPT) :].tolist()


def test_samples_depend_on_their_identity_only(sampling, model):
    first, again = sample(sampling, model, range(4)), sample(sampling, model, range(4))
    assert first == again
    assert len({tuple(tokens) for tokens, _ in first}) == 4
    other_rows = sample(sampling, model, [3, 9, 8, 7])
    assert other_rows[0][0] == first[3][0]  # the log-probabilities may differ in the last bit
    identities = [(42, 0, PROMPT, "1", 0), (42, 1, PROMPT, "1", 0), (42, 0, PROMPT, "2", 0)]
    identities += [(42, 0, PROMPT, "1", 1), (43, 0, PROMPT, "1", 0), (42, 0, PROMPT[1:], "1", 0)]
    generators = [sampling.make_generator(*identity) for identity in identities]
    assert len({torch.rand(1, generator=generator).item() for generator in generators}) == len(identities)
