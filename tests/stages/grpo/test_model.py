import mindspore as ms
import numpy as np
import pytest

from stages.grpo.batch import Batch
from stages.grpo.model import Qwen2
from stages.grpo.parameters import EMBEDDING, HEAD, fuse
from stages.grpo.rollout import Decoder
from stages.grpo.sampling import uniforms
from tests.stages.grpo import small

HF_NAMES = {
    "attention.wq": "self_attn.q_proj",
    "attention.wk": "self_attn.k_proj",
    "attention.wv": "self_attn.v_proj",
    "attention.wo": "self_attn.o_proj",
    "feed_forward.w1": "mlp.gate_proj",
    "feed_forward.w3": "mlp.up_proj",
    "feed_forward.w2": "mlp.down_proj",
    "attention_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
}


def hf_name(name):
    """transformers' name of a checkpoint's tensor."""
    for ours, theirs in HF_NAMES.items():
        name = name.replace(ours, theirs)
    return name.replace("tok_embeddings.embedding_weight", "embed_tokens.weight").replace("norm_out", "norm")


def transformers_twin(model, weights):
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    config = transformers.Qwen2Config(
        hidden_size=model.hidden_size,
        num_hidden_layers=model.num_hidden_layers,
        num_attention_heads=model.num_attention_heads,
        num_key_value_heads=model.num_key_value_heads,
        intermediate_size=model.intermediate_size,
        vocab_size=model.vocab_size,
        rms_norm_eps=model.rms_norm_eps,
        max_position_embeddings=model.max_position_embeddings,
        tie_word_embeddings=model.tie_word_embeddings,
        rope_parameters={"rope_type": "default", "rope_theta": model.rope_theta},
        rope_theta=model.rope_theta,
        eos_token_id=1,
        pad_token_id=0,
        bos_token_id=None,
        attn_implementation="eager",
    )
    twin = transformers.Qwen2ForCausalLM(config).eval()
    state = {hf_name(name): torch.from_numpy(array) for name, array in weights.items()}
    missing, unexpected = twin.load_state_dict(state, strict=False)
    assert not unexpected and set(missing) <= {"lm_head.weight"}
    return twin, torch


@pytest.mark.parity
@pytest.mark.parametrize("tied", [True, False])
def test_logprobs_equal_transformers(tied, capsys):
    model, P, S, G, T = small.model_config(tie_word_embeddings=tied, num_attention_heads=8), 8, 9, 3, 7
    weights = small.weights(model)
    ours = Qwen2(model, positions=S + T)
    ours.load(fuse(model, weights))
    twin, torch = transformers_twin(model, weights)
    prompt, length = small.prompts(model, P, S)
    completion = np.random.default_rng(1).integers(2, model.vocab_size, (P, G, T)).astype(np.int32)
    got, entropy = (
        values.asnumpy().reshape(P, G, T)
        for values in ours(*Batch(prompt, length, completion).tensors(), 0.7)
    )
    largest = 0.0
    for p in range(P):
        for g in range(G):
            ids = torch.tensor(np.concatenate([prompt[p, : length[p]], completion[p, g]]))[None].long()
            with torch.no_grad():
                logits = twin(ids).logits[0, length[p] - 1 : -1] / 0.7
            wanted = torch.log_softmax(logits, -1)
            chosen = wanted.gather(1, torch.tensor(completion[p, g]).long()[:, None])[:, 0].numpy()
            largest = max(largest, float(np.abs(got[p, g] - chosen).max()))
            np.testing.assert_allclose(entropy[p, g], -(wanted.exp() * wanted).sum(-1).numpy(), atol=1e-4)
    with capsys.disabled():
        print(f"\nlargest difference of log-probabilities to transformers (tied={tied}): {largest:.2e}")
    assert largest < 1e-4


def test_cached_decoding_equals_the_full_forward():
    """Each token is the one that the training forward's distribution gives at the number drawn for it."""
    model, P, S, G, T = small.model_config(), 3, 6, 4, 10
    ours = Qwen2(model, positions=S + T)
    ours.load(fuse(model, small.weights(model)))
    prompt, length = small.prompts(model, P, S)
    draws = uniforms((3,), P * G, T)
    done = Decoder(ours, small.rollout_config(), P, G, S, eos=(1,), pad=0).generate(prompt, length, draws)
    logits = every_logit(ours, prompt, length, done.ids.reshape(P, G, T)).astype(np.float64)
    cumulative = np.cumsum(np.exp(logits - logits.max(-1, keepdims=True)), -1)
    cumulative /= cumulative[..., -1:]
    checked = 0
    for row, t in zip(*np.nonzero(np.arange(T) < done.lengths[:, None]), strict=True):
        if np.abs(cumulative[row, t] - draws[row, t]).min() > 1e-5:  # else rounding may decide
            assert done.ids[row, t] == np.searchsorted(cumulative[row, t], draws[row, t])
            checked += 1
    assert checked > 0.9 * done.lengths.sum()
    assert (done.ids[np.arange(T) >= done.lengths[:, None]] == 0).all()


def every_logit(network, prompt, length, completion):
    """Logits [P*G, T, V] that predict each token of completion [P, G, T]."""
    P, G, T = completion.shape
    S = prompt.shape[1]

    @ms.jit
    def forward(prompt, length, completion):
        return network.all_logits(network.hidden(prompt, length, completion))

    logits = forward(*Batch(prompt, length, completion).tensors()).asnumpy()
    first = logits[: P * S].reshape(P, S, -1)[np.arange(P), length - 1]
    rest = logits[P * S :].reshape(P * G, T, -1)
    return np.concatenate([np.repeat(first, G, 0)[:, None], rest[:, :-1]], 1)


def test_padding_of_prompts_changes_nothing():
    model, P, S, G, T = small.model_config(num_hidden_layers=1), 4, 6, 2, 5
    ours = Qwen2(model, positions=S + 3 + T)
    ours.load(fuse(model, small.weights(model)))
    prompt, length = small.prompts(model, P, S)
    completion = np.random.default_rng(1).integers(2, model.vocab_size, (P, G, T)).astype(np.int32)
    wider = np.pad(prompt, ((0, 0), (0, 3)), constant_values=50)
    short = ours(*Batch(prompt, length, completion).tensors(), 1.0)[0].asnumpy()
    np.testing.assert_allclose(
        ours(*Batch(wider, length, completion).tensors(), 1.0)[0].asnumpy(), short, atol=2e-5
    )


def test_names_cover_the_checkpoint():
    model = small.model_config(tie_word_embeddings=False)
    assert EMBEDDING in small.weights(model) and HEAD in small.weights(model)
    assert sum(array.size for array in fuse(model, small.weights(model)).values()) == sum(
        array.size for array in small.weights(model).values()
    )
