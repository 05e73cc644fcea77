"""Configuration of rollout, optimizer, GRPO, and the supervised training and evaluation around it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

from annotated_types import Ge, Gt, Le, Lt

from stages.base.bounds import NonNegative, Positive, PositiveFloat, Share
from stages.base.identity import NotInIdentity
from stages.base.layout import RoleLayout
from stages.grpo import trackers

if TYPE_CHECKING:
    TrackerName = str
else:
    TrackerName = Literal[trackers.NAMES]


@dataclass(frozen=True)
class LocalEngine:
    """The embedded MindSpore trainer."""

    name: Literal["local"]
    """local: the embedded MindSpore trainer."""
    device_target: Literal["CPU", "Ascend", "GPU"]
    """Device of sft, grpo and evaluate, as MindSpore's set_device names it; never run on any but CPU.
    Each of several workers takes the device that MindSpore's msrun gives it."""
    sft: Annotated[Literal["local", "mindformers"], NotInIdentity()]
    """Program of the supervised training before grpo: the embedded trainer (unless sft.enabled=false), or
    mindformers, before everything else (section mindformers). What it trains is grpo's input, with an
    identity of its own."""
    upstream: Mapping[str, Any]
    """With sft=mindformers: train.KEY, keys of mindformers' file that grpoflow does not model."""


@dataclass(frozen=True)
class RolloutConfig:
    """Sampling settings of completions.

    The temperature enters the loss, too; all other rules affect sampling alone, as in TRL.
    """

    num_generations: Annotated[int, Ge(2)]
    """Completions per prompt: the group G of GRPO. DeepSeekMath uses 64, TRL's default is 8."""
    max_tokens: Annotated[int, Ge(2)]
    """Longest completion in tokens, end token included; what is longer is cut."""
    min_tokens: NonNegative
    """The end token is impossible before a completion has so many tokens; 0: no such rule."""
    temperature: PositiveFloat
    """Divides the logits, when sampling and in the loss alike. 1: the policy as it is."""
    top_k: Positive | None
    """Sample among the k likeliest tokens only; null: among all."""
    top_p: Annotated[float, Gt(0), Le(1)] | None
    """Sample among the fewest tokens whose probabilities sum to p (nucleus); null: among all."""
    min_p: Annotated[float, Ge(0), Lt(1)] | None
    """Drop tokens less likely than min_p times the likeliest; null: none."""
    repetition_penalty: PositiveFloat
    """Divides positive logits of tokens that prompt or completion already hold and multiplies negative ones
    (CTRL, arXiv:1909.05858, section 4.1); 1: none."""
    correction: Literal["none", "tis", "mis"]
    """Correction of the difference between the weights that sample and those that are trained (engine=verl
    and areal only). tis: the loss of a token is weighted by the ratio of its probabilities, at most
    correction_max (truncated importance sampling). mis: tokens or completions outside of correction_min to
    correction_max are left out besides (masked)."""
    correction_level: Literal["token", "sequence"]
    """Whose probabilities the ratio compares: those of each token, or their product over the completion."""
    correction_max: Annotated[float, Ge(1)]
    """Largest ratio."""
    correction_min: Annotated[float, Gt(0), Le(1)] | None
    """Smallest ratio with rollout.correction=mis; null: 1 / correction_max."""
    agent: str | None = None
    """Several turns per completion (engine=verl only). tool: the model may call the functions of
    rollout.tools, and reads what they return before it goes on. module:Class: an agent loop of your own for
    verl. null: one turn."""
    tools: tuple[str, ...] = ()
    """Functions `module:function` that the model may call. Name, docstring and type hints are shown to it."""
    max_turns: Positive | None = None
    """Answers of the model in one completion; the last one may not call a function. null: as many as fit into
    rollout.max_tokens, which counts all turns and what functions return."""
    max_tool_calls: Positive = 1
    """Calls of one turn that are answered; further ones are ignored."""
    max_tool_characters: Positive = 256
    """Longest answer of a function in characters; the middle of a longer one is left out."""
    tools_length: Positive = 512
    """Tokens by which the descriptions of all functions may lengthen a prompt, beyond
    tokenize.max_prompt_length."""

    @property
    def prompt_growth(self) -> int:
        """Tokens by which tools may lengthen a prompt."""
        return self.tools_length if self.tools else 0


AGENT_KEYS = ("agent", "tools", "max_turns", "max_tool_calls", "max_tool_characters", "tools_length")
"""Keys of section rollout that only a run with several turns reads."""


@dataclass(frozen=True)
class AdamConfig:
    """AdamW and its learning rate."""

    learning_rate: PositiveFloat
    """Peak learning rate."""
    schedule: Literal["constant", "cosine", "linear"]
    """Course of the learning rate after warm-up."""
    warmup_steps: NonNegative
    """Optimizer updates, not rollouts, over which the rate rises linearly, from peak/warmup_steps to
    the peak."""
    final_share: Share
    """Learning rate of the last update as a share of the peak (cosine, linear); it never falls below. A
    warm-up that lasts until the last update leaves no time to fall."""
    weight_decay: Annotated[float, Ge(0)]
    """Decoupled weight decay of matrices; norms and biases have none."""
    adam_beta1: Annotated[float, Ge(0), Lt(1)]
    """Decay of the first moment."""
    adam_beta2: Annotated[float, Ge(0), Lt(1)]
    """Decay of the second moment."""
    adam_epsilon: PositiveFloat
    """Added to the root of the second moment."""
    max_grad_norm: PositiveFloat | None
    """Gradients are scaled down to this global norm; null: never."""


@dataclass(frozen=True)
class OptimizerConfig(AdamConfig):
    """AdamW over so many steps, for sft and train."""

    steps: Positive
    """Length of training. train: rollouts, each with train.num_iterations updates; sft: updates, at most. The
    learning rate falls over all updates: train.steps x train.num_iterations, or sft.steps."""

    @property
    def updates_per_step(self) -> int:
        """Optimizer updates of one step."""
        return 1

    @property
    def updates(self) -> int:
        """Optimizer updates of the complete training: the horizon of the learning rate."""
        return self.steps * self.updates_per_step


@dataclass(frozen=True)
class TrainConfig(OptimizerConfig):
    """GRPO (Shao et al. 2024, arXiv:2402.03300); names as in TRL's GRPOConfig, or else verl's."""

    preset: Annotated[str | None, NotInIdentity()]
    """Published algorithm whose settings are the defaults of some keys of this section: a file of
    conf/train/preset, or your own of that group. A key that is given beats the preset, and a preset that is
    given beats an experiment. Learning rate, batch and lengths, which depend on the model, are not part of
    it."""
    prompts_per_step: Positive
    """Prompts of one step; completions = prompts_per_step x rollout.num_generations."""
    num_iterations: Positive
    """Updates on the same completions (mu in the paper). 1: on-policy; the ratio is 1, so that nothing is
    clipped, and importance_sampling_level matters only for the KL with use_bias_correction_kl."""
    epsilon_low: Annotated[float, Gt(0), Le(1)]
    """The probability ratio is clipped at 1 - epsilon_low; 1: not from below. sapo has no bounds."""
    epsilon_high: PositiveFloat
    """... and at 1 + epsilon_high. DAPO (arXiv:2503.14476) raises it alone; ScaleRL (arXiv:2510.13786) uses 4
    with cispo, which TRL calls epsilon_high=5.0."""
    clip_ratio_c: Annotated[float, Gt(1)] | None
    """Dual clip (arXiv:1912.09729): with a negative advantage the ratio is clipped at this, too, at least
    1 + epsilon_high; verl's default is 3. null: not."""
    beta: Annotated[float, Ge(0)]
    """Weight of the KL divergence from the reference; 0: the reference is not even loaded."""
    use_bias_correction_kl: bool
    """Multiply the KL by the probability ratio, so that its gradient is that of the divergence itself
    (DeepSeek-V3.2, arXiv:2512.02556; TRL's default). false: as GRPO's paper has it."""
    kl_estimator: Literal["k1", "k2", "k3"]
    """Estimate of the KL per token (joschu.net/blog/kl-approx.html) from x, the log-probability minus the
    reference's. k1: x, whose gradient is 0 on average unless use_bias_correction_kl is true; k2: x^2 / 2,
    whose gradient is the divergence's; k3: exp(-x) + x - 1, as GRPO's paper has it."""
    entropy_coeff: Annotated[float, Ge(0)]
    """Weight of the entropy of the next token, which is subtracted from the loss and averaged as the token
    losses are; 0: none."""
    loss_type: Literal["grpo", "dapo", "dr_grpo", "cispo", "sapo"]
    """Loss of a token, and averaging of token losses. grpo: clipped surrogate, within each completion, then
    over completions; dapo: the same over all tokens; dr_grpo (arXiv:2503.20783): the same over completions x
    max_tokens; cispo (arXiv:2506.13585): the log-probability times the clipped ratio, over all tokens; sapo
    (arXiv:2511.20347): a sigmoid of the ratio, averaged as with grpo."""
    sapo_temperature_pos: PositiveFloat
    """With loss_type=sapo, how fast the gradient falls as the ratio leaves 1, for positive advantages."""
    sapo_temperature_neg: PositiveFloat
    """The same for other advantages; the paper has it slightly larger."""
    importance_sampling_level: Literal["token", "sequence"]
    """token: a probability ratio per token; sequence: one per completion (GSPO, arXiv:2507.18071), with
    bounds of a few 1e-4."""
    advantages: Literal["grpo", "rloo", "reinforce_plus_plus", "dr_grpo"]
    """Estimator of advantages. grpo: the reward minus the group's mean, divided by the group's standard
    deviation; dr_grpo (arXiv:2503.20783): not divided; rloo (arXiv:2402.14740): the reward minus the mean of
    the group's other completions; reinforce_plus_plus (arXiv:2501.03262): minus the mean of the step's
    tokens, divided by their standard deviation."""
    scale_advantages: bool
    """With advantages=grpo, divide by the group's standard deviation; null: true with grpo, else false."""
    mask_truncated_completions: bool
    """Leave completions that were cut at rollout.max_tokens out of the loss (DAPO, section 3.4)."""
    resample_rounds: NonNegative
    """Dynamic sampling (DAPO, section 3.2): while a step lacks groups whose rewards differ, it samples
    prompts_per_step further prompts, at most so many times; 0: never."""
    ref_model_sync_steps: NonNegative
    """Steps between moves of the reference towards the policy (TR-DPO, arXiv:2404.09656); 0: it stays."""
    ref_model_mixup_alpha: Annotated[float, Gt(0), Le(1)]
    """Share of the policy in the reference after such a move; TRL's default is 0.6."""
    lora_rank: NonNegative
    """Rank of adapters that are trained instead of the weights (LoRA, arXiv:2106.09685; engine=verl only);
    0: all weights are trained."""
    max_kl: PositiveFloat | None
    """Training stops as diverged when the KL to the reference exceeds this; null: only NaN stops it."""
    checkpoint_every: NonNegative
    """Steps between checkpoints; 0: none."""
    keep_checkpoints: Positive
    """Complete checkpoints that stay during training; older ones are removed. With engine=local and
    checkpoint_every above 0 that of the last step stays afterwards, for runs with more steps."""
    resume_from: Annotated[str | None, NotInIdentity()]
    """A checkpoint of another run of the same model (…/checkpoints/step_000020), of any layout: training goes
    on after its step as if it were this run's own; null: from the start."""
    completions_every: Positive
    """Steps between those whose completions are written: texts to completions.jsonl, and with engine=local
    tokens and log-probabilities to completions/step_NNNNNN.npz (about 10 bytes per sampled token)."""
    logged_completions: NonNegative
    """Completions of such a step in completions.jsonl, from the first; the .npz file holds all of them. The
    default is those of four prompts. A token takes about 4 bytes: 32 completions of 400 tokens take 50 kB per
    step. 0: neither is written."""
    validate_every: NonNegative
    """Steps between checks of the greedy accuracy on held-out prompts; 0: never."""
    validation_prompts: NonNegative
    """The last rows of the training data, held out for these checks when validate_every is not 0."""
    keep_best: bool
    """The result is the model of the best check instead of the last step's."""
    patience: Positive | None
    """Stop after so many checks in a row without a better accuracy; null: never early."""
    loggers: Annotated[tuple[TrackerName, ...], NotInIdentity()]
    """Packages that are given every number of metrics.jsonl besides TensorBoard; a finished run is not logged
    afterwards. Offline, into the artifact (wandb/, swanlab/, mlflow/), unless WANDB_MODE, SWANLAB_MODE or
    MLFLOW_TRACKING_URI says otherwise."""

    @property
    def updates_per_step(self) -> int:
        """Optimizer updates of one step: one per iteration over its completions."""
        return self.num_iterations


def greedy(max_tokens: int) -> RolloutConfig:
    """Return settings for greedy decoding; only the length of a rollout matters for it."""
    return RolloutConfig(
        num_generations=2, max_tokens=max_tokens, min_tokens=0, temperature=1.0, top_k=None, top_p=None,
        min_p=None, repetition_penalty=1.0, correction="none", correction_level="token", correction_max=2.0,
        correction_min=None,
    )  # fmt: skip


def shard_key(layout: RoleLayout) -> tuple[int, int, bool]:
    """Return the values that decide which part of the weights a worker of the local trainer holds."""
    return layout.data_parallel, layout.model_parallel, layout.vocab_emb_dp


LONG = 256
"""Slots for a completion's tokens from which on completions share rows of an update."""


def shares_rows(prompt_slots: int, group_size: int, slots: int) -> bool:
    """Return True if an update puts several completions of a prompt into one row of attention (packing.py).

    A row has as many slots as the longest completion needs, and each part of a group computes its prompt
    again. So rows are shared if completions may be long and prompts are at most half as long.
    """
    return group_size > 1 and slots >= LONG and 2 * prompt_slots <= slots


def parts_for(prompts: int, group_size: int) -> int:
    """Return the parts of groups, of one completion's slots each, in a micro-batch of some `prompts`.

    A quarter of the completions' slots suffices: lengths with a long tail are a quarter of the limit on
    average.
    """
    return max(1, prompts * group_size // 4)


def early_slots(slots: int) -> int:
    """Return the slots of the first caches of completions of up to `slots` tokens; a quarter, rounded up.

    Each step reads the whole caches, of which the first tokens need a part.
    """
    return -(-slots // 4)


def smaller_batches(completions: int) -> list[int]:
    """Return the numbers of completions to go on with as others end, descending; each is a graph of its own.

    A half, a quarter and an eighth, rounded up, but not below 16: the matrix products of fewer rows round
    their sums in another way on some processors (measured on an AMD EPYC with AVX-512).
    """
    return [size for part in (2, 4, 8) if (size := -(-completions // part)) >= 16]


@dataclass(frozen=True)
class SftConfig(OptimizerConfig):
    """Supervised training on whole answers, until the model is right often enough for GRPO to start."""

    enabled: bool
    """false: grpo starts from split's weights."""
    batch_size: Positive
    """Examples per update."""
    micro_batch_num: Positive
    """Parts of a batch whose gradients are summed before an update; bounds the memory for logits."""
    stop_accuracy: Annotated[float, Gt(0), Le(1)] | None
    """Stop once the greedy accuracy on check_prompts training prompts reaches this; null: run all steps.
    Answers are compared as numbers."""
    stop_checks: Positive
    """Checks in a row whose mean must reach stop_accuracy; one alone jumps too much from step to step."""
    check_every: Positive
    """Updates between checks of the greedy accuracy."""
    checkpoint_every: NonNegative
    """Updates between checkpoints, from which a killed run goes on; 0: none."""
    max_tokens: Annotated[int, Ge(2)]
    """Longest answer in checks, in tokens; rollout.max_tokens unless said otherwise."""
    check_prompts: Positive
    """Prompts of each check: the last rows of the training data, which sft leaves out."""


@dataclass(frozen=True)
class InferenceLayout:
    """Distribution of a model that only answers over the cards."""

    tensor_parallel: Positive
    """Cards that share each matrix, all in one machine; must divide the number of attention heads."""
    replicas: Positive
    """Copies of the model, which share the batches: one process each."""

    @property
    def cards(self) -> int:
        """Number of cards that it occupies."""
        return self.tensor_parallel * self.replicas


@dataclass(frozen=True)
class EvaluateConfig:
    """Accuracy on held-out prompts, before and after grpo."""

    num_prompts: Positive | None
    """Held-out prompts for greedy accuracy, from the first; null: all. The reward function number decides
    what is right, or maths, knights or accuracy if the reward uses it (for qwen_accuracy: accuracy)."""
    sample_prompts: NonNegative
    """Held-out prompts for pass@k and mean@k, from the first; 0: skip both."""
    k: Annotated[int, Ge(2)]
    """Attempts that pass@k allows."""
    num_samples: Annotated[int, Ge(2)]
    """Completions sampled per prompt, at least k: pass@k is estimated from them (arXiv:2107.03374, eq. 1)."""
    batch_prompts: Positive
    """Completions decoded at once; at least num_samples, those of one prompt. With program=vllm also what a
    killed run repeats at most."""
    logged_samples: NonNegative
    """Rows of samples.jsonl, about 1 kB each: the first prompts with their answers before and after."""
    program: Literal["local", "vllm"]
    """Program that generates the answers: the embedded decoder, on this machine's CPU in float32, or vLLM on
    the cards; null: vllm with an outside engine if engine.python has it, else local."""
    python: Annotated[str | None, NotInIdentity(every_node=True)]
    """Interpreter with vLLM: path, name, or a wrapper script; null: engine.python. It gets the engine's
    env_scripts, env and container."""
    env: Annotated[Mapping[str, str], NotInIdentity()]
    """Environment variables of vLLM; they override those of engine.env."""
    layout: Annotated[InferenceLayout, NotInIdentity()]
    """Cards of vLLM; null degrees follow from layout.generate, or are 1 on a CPU."""
    dtype: Literal["auto", "float32", "bfloat16", "float16"] | None
    """Type that vLLM computes in; auto: that of the weights, but bfloat16 for float32; null: float32 on a
    CPU, else auto."""
    max_model_len: Annotated[Positive | None, NotInIdentity()]
    """Longest sequence in tokens for which vLLM reserves memory; null: the longest prompt and
    rollout.max_tokens."""
    gpu_memory_utilization: Annotated[float | None, NotInIdentity(), Gt(0), Le(1)]
    """Share of each card's memory that vLLM may take, on a CPU of the machine's; null: 0.9 of a card, or what
    batch_prompts completions need on a CPU."""
    silence_timeout_s: Annotated[PositiveFloat | None, NotInIdentity()]
    """Seconds without a line in any log of vLLM after which it is stopped as hung; null: never."""
    upstream: Mapping[str, Any]
    """More arguments of vllm.LLM."""


VLLM_KEYS = ("program", "dtype", "upstream")
"""Keys of section evaluate that change what vLLM answers; fingerprints of local answers leave them out."""
