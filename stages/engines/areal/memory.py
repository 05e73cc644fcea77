"""Memory of a card in an AReaL run. Training and generation have cards of their own.

Layers are computed in bfloat16, on a CPU in float32. A reference shares the cards of training; nothing is
moved to the host.
Source: AReaL 1.0.4, engine/fsdp_engine.py (optimizer_dtype, grad_reduce_dtype); no estimate was measured on
an NPU.
"""

from collections.abc import Sequence

from stages.engines import fsdp_memory
from stages.engines.areal.job import Job
from stages.engines.engine import Load
from stages.models import memory
from stages.models.memory import GIB, RoleMemory, Term, shown


def estimate(job: Job) -> tuple[RoleMemory, ...]:
    """Return train and generate, and reference if there is one."""
    roles = (_train(job), _generate(job))
    return (*roles, _reference(job)) if job.engine.kl_in_reward else roles


def warnings(job: Job, roles: Sequence[RoleMemory], have: int) -> list[str]:
    """Return warnings about roles that may not fit: into a card, or on a CPU into this machine's memory."""
    if not job.on_cpu:
        return memory.warnings(roles, job.engine.device_memory_gib)
    workers = {"train": job.train_cards, "reference": job.train_cards, "generate": job.servers}
    low, high = (sum(workers[role.role] * getattr(role, end) for role in roles) for end in ("low", "high"))
    if high <= have:
        return []
    verdict = "do not fit" if low > have else "may not fit"
    return [
        f"memory: workers and servers with {shown(low, high)} together {verdict} into this machine's "
        f"{shown(have, have)}; use a smaller model or a shorter rollout.max_tokens"
    ]


def step_load(job: Job, have: int) -> Load:
    """Return the work of one step and the memory of a card, or of a worker on this machine."""
    tokens, updates = job.samples * job.sample_length, job.train.prompts_per_step // job.mini_batch_size
    card = have // job.cards if job.on_cpu else job.engine.device_memory_gib * GIB
    return Load(tokens, updates, card)


def _share(job: Job) -> int:
    """Return the elements of weights that a training card stores."""
    return fsdp_memory.share(job.model.num_parameters, job.train_cards)


def _tokens(job: Job) -> int:
    """Return the tokens of a pass."""
    return job.sample_length if job.on_cpu else job.engine.micro_batch_tokens


def _gathered(job: Job) -> Term:
    """Return the memory of the layers that are put together to compute."""
    return fsdp_memory.gathered(job.model, 4 if job.on_cpu else 2)


def _frozen(job: Job) -> list[Term]:
    """Return the reference's weights, which stay on the cards of training."""
    return [memory.sized("reference weights", _share(job), "float32")] if job.engine.kl_in_reward else []


def _train(job: Job) -> RoleMemory:
    model, layout, held = job.model, job.layout.train, _share(job)
    terms = [
        memory.weights(held, "float32"),
        *fsdp_memory.updated(held),
        *_frozen(job),
        _gathered(job),
        memory.activations(model, layout, _tokens(job), model.num_hidden_layers, 1),
        memory.logits(model, layout, _tokens(job), 3),
    ]
    return RoleMemory("train", 0, tuple(terms))


def _reference(job: Job) -> RoleMemory:
    model, layout, held = job.model, job.layout.train, _share(job)
    terms = [
        *_frozen(job),
        memory.exact("state of training", 12 * held, f"weights and 2 moments: {held:,} elements x 12"),
        _gathered(job),
        memory.working_set(model, layout, _tokens(job)),
        memory.logits(model, layout, _tokens(job), 2),
    ]
    return RoleMemory("reference", 0, tuple(terms))


def _generate(job: Job) -> RoleMemory:
    model, layout = job.model, job.layout.generate
    dtype = "float32" if job.on_cpu else "bfloat16"
    parts = 1 if job.on_cpu else layout.model_parallel
    held = -(-model.num_parameters // parts)
    per_token = memory.cache_bytes_per_token(model, layout, dtype)
    sequences = job.samples * (job.staleness + 1) if job.on_cpu else 1
    size = sequences * job.sample_length * per_token
    formula = f"{sequences} x {job.sample_length:,} tokens x {per_token:,} bytes" + (
        "" if job.on_cpu else "; vLLM takes what engine.gpu_memory_utilization leaves"
    )
    low = job.sample_length * per_token
    terms = (
        memory.sized("weights", held, dtype),
        memory.working_set(model, layout, job.sample_length),
        Term("KV cache", low, max(low, size), formula),
    )
    return RoleMemory("generate", 0, terms)
