"""The places in mindrlhf and mindformers that a rehearsal stands on; a checkout is asked before it is used.

Whoever edits a checkout, or takes another commit, may move what on_path/grpoflow_cpu replaces. A replacement
that misses its place would leave a rehearsal that proves something else than it says: so it is refused.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from stages.base.errors import Problem
from stages.engines.mindrlhf.config import VERSIONS, Version

Repository = Literal["mindrlhf", "mindformers"]
SETTING: Mapping[Repository, str] = {
    "mindrlhf": "engine.mindrlhf_home",
    "mindformers": "engine.mindformers_home",
}
_VLLM = "mindrlhf/third_party/vllm"
_PATCHES, _STATE = (f"{_VLLM}/vllm_v_general/{name}.py" for name in ("__init__", "parallel_state"))
_TRAINER = "mindrlhf/trainer/spmd/grpo_trainer.py"
_TRAIN, _INFER, _RESHARD = (f"mindrlhf/worker/{name}_worker.py" for name in ("train", "infer", "transform"))
_STRATEGY = "mindrlhf/utils/strategy_utils.py"
_TOKENIZER = "mindrlhf/models/qwen2_5/qwen2_5_tokenizer.py"
_TOKENIZER_BEFORE = "mindrlhf/models/qwen2/qwen2_tokenizer.py"
_INITIALIZE = "initialize_parallel_state"


@dataclass(frozen=True)
class Place:
    """Words that must stand within a class or function of a file."""

    file: str
    within: str
    """Qualified name; empty: the module."""
    words: str
    lines: dict[str, int]
    """Commit -> line, as it was read; what is checked is `within`, which survives a shifted line."""
    why: str
    """The function of grpoflow_cpu that stands on it."""
    repository: Repository = "mindrlhf"


def _rlhf(file: str, within: str, words: str, why: str, *lines: int | None) -> Place:
    """A place in mindrlhf, with its lines in VERSIONS' order; None: that version has none."""
    known = zip(VERSIONS, lines, strict=True)
    return Place(file, within, words, {commit: line for commit, line in known if line is not None}, why)


def _formers(file: str, within: str, words: str, why: str, line: int) -> Place:
    return Place(f"mindformers/{file}", within, words, {"051d65f": line}, why, "mindformers")


PLACES = (
    _rlhf(_TRAINER, "GRPOTrainer", "get_ascend_soc_version()", "mindspore_cpu.name_a_card", 166, None),
    _rlhf(_STATE, _INITIALIZE, "get_ascend_soc_version()", "mindspore_cpu.name_a_card", None, 123),
    _rlhf(_STATE, _INITIALIZE, "ascend.device_count()", "mindspore_cpu.count_workers_as_cards", 125, None),
    _rlhf(_RESHARD, "TransformWorker", "comm_func.barrier()", "mindspore_cpu.gather_on_cpu", 231, 230),
    _rlhf(
        _INFER,
        "InferWorker._allgather_data",
        "comm_func.all_gather_into_tensor(",
        "mindspore_cpu.gather_on_cpu",
        268,
        264,
    ),
    _rlhf(
        _STRATEGY,
        "generate_state_dict",
        "generate_state_dict(network)",
        "mindspore_cpu.write_strategy_files",
        54,
        45,
    ),
    _rlhf(
        _STRATEGY,
        "save_strategy_file",
        "(state_dict, reshard_optimizer, strategy_file_name)",
        "mindspore_cpu.write_strategy_files",
        78,
        68,
    ),
    _rlhf(_TRAIN, "TrainWorker", "strategy_ckpt_config={", "mindspore_cpu.compute_whole", 183, 183),
    _rlhf(
        _INFER,
        "InferWorker.generate_strategy",
        'stage_name = "other"',
        "mindspore_cpu.write_strategy_files",
        423,
        419,
    ),
    _rlhf(
        "mindrlhf/models/base_model.py",
        "BaseModel.select_actor_model",
        "ParallelQwenForCausalLM(model_config)",
        "mindrlhf_cpu.generate_without_cache",
        53,
        55,
    ),
    _rlhf(_TOKENIZER, "", "ENDOFTEXTID = 151643", "mindrlhf_cpu.ids_of_tiny_vocabulary", 70, None),
    _rlhf(_TOKENIZER_BEFORE, "", "ENDOFTEXTID = 151643", "mindrlhf_cpu.ids_of_tiny_vocabulary", None, 51),
    _rlhf(f"{_VLLM}/__init__.py", "", 'version("vllm")', "hooks.VLLM_VERSION", 23, 23),
    _rlhf(_INFER, "InferWorker", "self.inference_engine = LLM(", "vllm.LLM", 197, 196),
    _rlhf(_INFER, "InferWorker", "= model_runner.model.network", "vllm.LLM", 215, 214),
    _rlhf(_INFER, "InferWorker", "SamplingParams(", "vllm.SamplingParams", 229, 228),
    _rlhf(_INFER, "InferWorker", "prompt_token_ids=token_ids", "vllm.LLM.generate", 536, 518),
    _rlhf(_INFER, "InferWorker", "Qwen2ForCausalLM.load_weights =", "network.Qwen2ForCausalLM", 167, None),
    _rlhf(_PATCHES, "", "GPUModelRunner.initialize_kv_cache =", "vllm.GPUModelRunner", 28, 28),
    _rlhf(
        _TRAINER,
        "GRPOTrainer",
        'os.environ["MINDFORMERS_MODEL_CONFIG"] =',
        "network.Qwen2ForCausalLM",
        185,
        160,
    ),
    _formers(
        "version_control.py",
        "check_rmsnorm_big_kernel_valid",
        "check_rmsnorm_big_kernel_valid()",
        "mindformers_cpu.plain_rms_norm",
        288,
    ),
    _formers(
        "models/llama/llama_layer.py",
        "LlamaRMSNorm",
        "check_rmsnorm_big_kernel_valid()",
        "mindformers_cpu.plain_rms_norm",
        194,
    ),
    _formers(
        "modules/flash_attention.py",
        "FlashAttention.construct",
        "actual_seq_qlen=None, actual_seq_kvlen=None",
        "mindformers_cpu.plain_attention",
        301,
    ),
    _formers(
        "models/llama/llama_transformer.py",
        "LLamaAttention",
        'self.input_layout = "TND"',
        "attention.FlashAttention",
        419,
    ),
    _formers(
        "models/llama/llama_config.py",
        "LlamaConfig.__init__",
        "use_rope_slice: bool = False",
        "mindformers_cpu.single_precision",
        166,
    ),
    _formers(
        "modules/layers.py",
        "RotaryEmbedding",
        "def slice_half(self, x)",
        "mindformers_cpu.single_precision",
        1514,
    ),
    _formers(
        "generation/logits_process.py",
        "run_using_numpy",
        "def run_using_numpy()",
        "mindformers_cpu.sample_with_numpy",
        37,
    ),
)


def check(
    homes: Mapping[Repository, Path],
    version: Version | None,
    settings: Mapping[Repository, str] = SETTING,
    places: Sequence[Place] = PLACES,
) -> Iterator[Problem]:
    """Places that are not where a rehearsal needs them.

    Args:
        homes: the checkouts that are executed.
        version: mindrlhf's contract, which decides the places that it has.
        settings: what names the checkouts in the configuration.
        places: what to look for.
    """
    for place in places:
        if place.repository not in homes:
            continue
        if place.repository == "mindrlhf" and version not in place.lines:
            continue
        file = homes[place.repository] / place.file
        missing = _missing(file, place)
        if missing:
            where = ", ".join(f"{commit}:{line}" for commit, line in place.lines.items())
            name = f"{place.within or 'the module'}: {place.words}"
            rule = f"{file}: {missing}; the rehearsal replaces what stands there ({place.why}; {where})"
            remedy = f"rehearse with an unedited checkout; or see what became of `{name}`"
            yield Problem(settings[place.repository], str(homes[place.repository]), rule, remedy)


def _missing(file: Path, place: Place) -> str:
    """What is not there; empty: all is."""
    try:
        source = file.read_text(encoding="utf-8")
        tree = ast.parse(source)
    except (OSError, SyntaxError, UnicodeDecodeError) as error:
        return f"cannot be read ({error})"
    node: ast.AST = tree
    for name in filter(None, place.within.split(".")):
        found = [child for child in ast.iter_child_nodes(node) if getattr(child, "name", None) == name]
        if not found:
            return f"has no {place.within}"
        node = found[0]
    text = source if node is tree else ast.get_source_segment(source, node) or ""
    return "" if place.words in text else f"{place.within or 'it'} has no `{place.words}`"
