"""Memory of a card in a verl run with FSDP2. With engine.mode=sync all cards train and generate.

verl holds float32 weights and computes in bfloat16. What is offloaded returns to the card for an update, so
that engine.param_offload and layout.train.opt_offload make room for generation and the reference only. The
reference's own weights stay on the host. A server that sleeps is counted as nothing. All completions are
assumed to be as long as they may be.
Sources (verl 0.9.1, paths in verl/): workers/engine/fsdp/transformer_impl.py (_build_fsdp_module),
workers/engine/base.py (BaseEngineCtx), trainer/config/engine/fsdp.yaml. docs/engines/verl.md compares the
estimate with what verl has published; none of it was measured on an NPU.
"""

from collections.abc import Sequence

from stages.engines import fsdp_memory
from stages.engines.verl.job import Job
from stages.models import memory
from stages.models.memory import RoleMemory, Term

BFLOAT16_BYTES = 2
LOGITS, ENTROPY = 3, 2
"""Float32 copies of the logits at most: in the loss, and besides in its entropy term."""


def estimate(job: Job) -> tuple[RoleMemory, ...]:
    """Return train and generate, and reference if there is one; nothing for Megatron and for a CPU."""
    if job.on_cpu or job.engine.strategy != "fsdp2":
        return ()
    roles = (_train(job), _generate(job))
    # with LoRA the reference is the trained model without its adapters
    has_reference = job.train.beta > 0 and not job.train.lora_rank
    return (*roles, _reference(job)) if has_reference else roles


def warnings(job: Job, roles: Sequence[RoleMemory]) -> list[str]:
    """Return warnings about roles that may not fit into a card, and a server that gets too little of it."""
    engine = job.engine
    lines = memory.warnings(roles, engine.device_memory_gib)
    return lines + memory.server_warnings(roles, engine.gpu_memory_utilization, engine.device_memory_gib)


def _share(job: Job) -> int:
    """Return the elements of weights that a training card stores."""
    return fsdp_memory.share(job.model.num_parameters, job.train_cards)


def _trained(job: Job) -> int:
    """Return the elements that a training card updates."""
    if job.train.lora_rank:
        adapters = fsdp_memory.adapter_elements(job.model, job.train.lora_rank)
        return fsdp_memory.share(adapters, job.train_cards)
    return _share(job)


def _tokens(job: Job, completions: int) -> int:
    """Return the tokens of a pass on a card, of which Ulysses divides each completion."""
    return -(-completions * job.sample_length // job.layout.train.context_parallel)


def _train(job: Job) -> RoleMemory:
    model, layout = job.model, job.layout.train
    tokens = _tokens(job, job.engine.micro_batch_size)
    terms = (
        memory.weights(_share(job), "float32"),
        *fsdp_memory.updated(_trained(job)),
        fsdp_memory.gathered(model, BFLOAT16_BYTES),
        memory.activations(model, layout, tokens, model.num_hidden_layers, 1),
        memory.logits(model, layout, tokens, LOGITS + ENTROPY * (job.train.entropy_coeff > 0)),
    )
    return RoleMemory("train", 0, terms)


def _state(job: Job) -> list[Term]:
    """Return what training leaves on its cards while they do something else."""
    held, trained = _share(job), _trained(job)
    weights: memory.Place = "host" if job.engine.param_offload else "card"
    moments: memory.Place = "host" if job.layout.train.opt_offload else "card"
    return [
        memory.exact("trained weights", 4 * held, f"{held:,} elements x 4 (float32)", weights),
        memory.exact("optimizer", 8 * trained, f"2 moments x {trained:,} elements x 4 (float32)", moments),
    ]


def _reference(job: Job) -> RoleMemory:
    model, layout, held = job.model, job.layout.train, _share(job)
    tokens = _tokens(job, job.forward_micro_batch_size)
    terms = (
        memory.exact("weights", 4 * held, f"{held:,} elements x 4 (float32)", "host"),
        *_state(job),
        fsdp_memory.gathered(model, BFLOAT16_BYTES),
        memory.working_set(model, layout, tokens),
        memory.logits(model, layout, tokens, 2),
    )
    return RoleMemory("reference", 0, terms)


def _generate(job: Job) -> RoleMemory:
    """Return the memory of a server, on a card that also trains.

    With engine.mode those cards generate before the first step and for validation; the others hold no state
    of training.
    """
    model, layout, engine = job.model, job.layout.generate, job.engine
    held = -(-model.num_parameters // layout.model_parallel)
    weights = memory.weights(held, "bfloat16")
    working = memory.working_set(model, layout, job.sample_length)
    per_token = memory.cache_bytes_per_token(model, layout, "bfloat16")
    share = engine.gpu_memory_utilization, engine.device_memory_gib
    cache = memory.server_cache((weights, working), per_token, job.sample_length, *share)
    return RoleMemory("generate", 0, (weights, working, cache, *_state(job)))
