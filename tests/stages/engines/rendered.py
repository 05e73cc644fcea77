"""Configurations of all engines, and digests of the files that are rendered for them.

test_rendered.py compares them with tests/data/rendered.json.

    python -m tests.stages.engines.rendered
        writes the digests anew; the commit that changes them explains the difference
    python -m tests.stages.engines.rendered OVERRIDE...
        prints the files of one configuration, to compare them with those of another commit
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from pipeline.config.load import load
from pipeline.plan.graph import stages
from tests.stages.engines.programs import render

DIGESTS = Path(__file__).parents[2] / "data" / "rendered.json"
MODEL = "model.path=/models/qwen"
SEVEN = ("model=qwen2_5_7b", MODEL)

EXPERIMENTS = (
    ("experiment=mindrlhf_7b", MODEL),
    ("experiment=mindrlhf_7b_tutorial", MODEL),
    ("experiment=mindrlhf_one_stage_7b", MODEL),
    ("experiment=mindrlhf_deepseek_v3", "model.path=/models/deepseek", "dataset=arith"),
    ("experiment=mindspeed_rl_7b", MODEL),
    ("experiment=verl_7b", MODEL),
    ("experiment=verl_7b", MODEL, "engine.device=cuda"),
    ("experiment=verl_async_7b", MODEL),
    ("experiment=verl_dapo_7b", MODEL),
    ("experiment=verl_gspo_30b_a3b", MODEL),
    ("experiment=areal_7b", MODEL),
)
VARIANTS = {
    ("engine=mindrlhf", "dataset=gsm8k", *SEVEN): """
        layout=dp1_mp4_pp2
        layout=dp2_mp2_pp2 engine.contract=0cd087455
        layout=dp2_mp2_pp1 engine.use_vllm=0 engine.load_ckpt_format=ckpt
        layout=dp2_mp4_pp1 engine.use_vllm=0 layout.generate.data_parallel=2 layout.generate.model_parallel=4
        layout=dp1_mp4_pp1 engine.load_ckpt_format=ms_safetensors engine.contract=0cd087455
        layout=dp1_mp4_pp2 engine.load_ckpt_format=ms_safetensors
        layout=dp1_mp4_pp2 layout.train.recompute=true layout.train.select_recompute=true
        layout=dp1_mp4_pp1 layout.train.use_seq_parallel=true engine.pack_num=2
        layout=dp1_mp2_pp1_cp2 train.num_iterations=2 train.epsilon_high=0.28
        layout=dp4_mp2_pp1 engine.enable_reshard_optimizer=true engine.reshard_mem_opt_level=1
        layout=dp4_mp2_pp1 engine.epochs=3 train.checkpoint_every=7 train.keep_checkpoints=2
        layout=dp1_mp4_pp2 +engine.upstream.grpo_config.rl_config.tensorboard=true
        layout=dp1_mp4_pp2 engine.contract=0cd087455 train.beta=0 train.final_share=0.5
        layout=dp1_mp4_pp2 engine.mindrlhf_home=tests/data/mindrlhf_standin/e8a8fc1
        layout=dp1_mp4_pp2 engine.mindformers_home=/src/mindformers engine.msadapter_home=/src/msadapter
        layout=dp1_mp4_pp2 +engine.env.A=b engine.container=[docker,exec,x] engine.python=/opt/python
        layout=dp1_mp4_pp2 layout.train.recompute=[7,7]
        layout=dp1_mp4_pp2 layout.train.select_recompute={feed_forward\\.mul:[14,14],.*\\.silu:true}
        layout=dp1_mp4_pp2 engine.micro_batch_interleave_num=2 engine.batch_size=2
        layout=dp1_mp4_pp2 model=qwen2_5_32b
        layout=dp1_mp2_pp1 model=qwen2_5_0_5b model.variant=base
        layout=dp1_mp2_pp1 model=qwen2_5_3b engine.tokenizer=file
        layout=dp1_mp4_pp1 reward=boxed train.ref_model_sync_steps=5 train.ref_model_mixup_alpha=1.0
        layout=dp1_mp4_pp2 rollout.top_p=0.9 rollout.top_k=20 rollout.temperature=0.7 train.beta=0.1
        layout=dp1_mp4_pp2 engine.sft=mindformers
    """,
    ("engine=mindrlhf_one_stage", "dataset=gsm8k", *SEVEN): """
        layout=dp1_mp4_pp2
        layout=dp2_mp2_pp2 train.beta=0.02 engine.epochs=2
        layout=dp4_mp1_pp1 rollout.temperature=0.8 rollout.top_k=5
        layout=dp1_mp4_pp1 engine.block_size=16 train.checkpoint_every=3
        layout=dp2_mp4_pp1 layout.train.recompute=true seed=3
        layout=dp1_mp4_pp2 engine.chunk_size=2 engine.batch_size=2
        layout=dp1_mp8_pp1 model=qwen2_5_72b
        layout=dp1_mp4_pp2 engine.sft=mindformers
    """,
    ("engine=mindrlhf", "engine.sft=mindformers", *SEVEN): """
        layout=dp1_mp4_pp2 tokenize.sft_length=4096
        layout=dp1_mp1_pp1 model=qwen2_5_0_5b tokenize.sft_length=2048
        layout=dp2_mp2_pp1 mindformers.schedule=constant mindformers.max_grad_norm=null
        layout=dp2_mp2_pp2 mindformers.schedule=linear mindformers.final_share=0.1
        layout=dp2_mp2_pp1 layout.train.recompute=true layout.train.optimizer_weight_shard_size=2
        layout=dp2_mp2_pp1 +mindformers.upstream.train.context.mode=1
        layout=dp1_mp2_pp1_cp2 mindformers.checkpoint_every=5 mindformers.keep_checkpoints=3
        layout=dp1_mp4_pp1 model=qwen2_5_14b mindformers.learning_rate=1e-6
        layout=dp1_mp2_pp1 model=qwen2_5_1_5b mindformers.batch_size=8 seed=9
    """,
    ("engine=mindspeed_rl", *SEVEN): """
        layout=dp2_mp2_pp2
        layout=dp4_mp2_pp1 engine.contract=667a547
        layout=dp4_mp4_pp1 engine.micro_batch_size=1 launcher.cards_per_node=16
        layout=dp1_mp4_pp4 layout.train.offset=[0,1,0,-1] launcher.cards_per_node=16
        layout=dp2_mp2_pp2 engine.verifier_function=[strict_format,step] engine.verifier_weight=[1.0,0.5]
        layout=dp2_mp2_pp2 engine.verifier_function=[acc] engine.contract=667a547
        layout=dp4_mp2_pp2 train.beta=0.05 +engine.runtime_env.HCCL_SOCKET_IFNAME=eth0
        layout=dp2_mp2_pp2 layout.train.recompute=true
        layout=dp2_mp2_pp2 layout.train.select_recompute=true train.schedule=linear train.final_share=0.1
        layout=dp2_mp2_pp2 train.num_iterations=2 engine.mini_batch_size=4 train.prompts_per_step=8
        layout=dp2_mp2_pp2 rollout.top_p=0.9 rollout.top_k=20 rollout.temperature=0.7
        layout=dp2_mp2_pp2 engine.ray_address=10.0.0.1:6379 engine.ray_options=["--num-cpus=64"]
        layout=dp2_mp2_pp2 engine.gpu_memory_utilization=0.6 engine.max_num_seqs=64
        layout=dp2_mp2_pp2 train.checkpoint_every=4 train.warmup_steps=4
        layout=dp2_mp2_pp2 engine.use_integrated_worker=false engine.reward_npus=4 engine.reward_load=/rm
        layout=dp2_mp2_pp2 +engine.upstream.rl_config.shuffle_mini_batch=true
        layout=dp2_mp2_pp2 engine.cpus_per_npu=4 seed=5
        layout=dp2_mp2_pp2 dataset=deepscaler model.variant=base
    """,
    ("engine=verl", *SEVEN, "layout=dp8_mp1_pp1", "layout.generate.model_parallel=2"): """
        layout=dp8_mp1_pp1
        layout=dp4_mp1_pp1_cp2
        engine.strategy=megatron layout=dp2_mp2_pp2
        engine.strategy=megatron layout=dp2_mp2_pp2 layout.train.opt_offload=true train.max_grad_norm=null
        engine.device=cpu layout=dp2_mp1_pp1
        engine.device=cpu layout=dp2_mp1_pp1 train.lora_rank=8
        train.lora_rank=16 layout=dp8_mp1_pp1
        train.loss_type=dapo train.beta=0.01
        train.loss_type=dr_grpo train.scale_advantages=false
        train.importance_sampling_level=sequence train.epsilon_low=0.0003 train.epsilon_high=0.0004
        train.schedule=cosine train.final_share=0.1 train.warmup_steps=4
        train.num_iterations=2 engine.mini_batch_size=2 train.warmup_steps=6
        engine.rollout=sglang rollout.top_p=0.9 rollout.top_k=20
        engine.param_offload=true layout.train.opt_offload=true layout.train.recompute=false
        engine.ray_address=10.0.0.1:6379
        engine.ray_address=10.0.0.1:6379 +engine.env.A=b engine.container=[docker,exec,x]
        launcher.cards_per_node=4
        reward.functions=[accuracy,format] reward.weights=[1.0,0.5]
        train.logged_completions=0 train.checkpoint_every=0
        train.adam_epsilon=1e-6 train.weight_decay=0.1 seed=11
        +engine.upstream.trainer.balance_batch=false
        +engine.upstream.actor_rollout_ref.rollout.enforce_eager=true
        train.resample_rounds=1 engine.device=cpu layout=dp2_mp1_pp1
        train.resample_rounds=1 train.validate_every=5 train.keep_best=true train.checkpoint_every=5
        engine.device=cpu engine.rollout=vllm layout=dp2_mp1_pp1 layout.generate.model_parallel=2
        engine.device=cpu engine.rollout=vllm layout=dp2_mp1_pp1 train.lora_rank=8
        rollout.correction=tis
        rollout.correction=mis rollout.correction_level=sequence rollout.correction_min=0.8
        engine.deterministic=true
        model=qwen3_8b
        model=llama3_1_8b
    """,
    ("engine=areal", *SEVEN, "layout=dp4_mp1_pp1"): """
        seed=2
        engine.mode=async engine.staleness=1 rollout.correction=tis
        engine.device=cpu layout=dp2_mp1_pp1
        engine.kl_in_reward=0.05 train.scale_advantages=false
        engine.rollout_cards=8 layout.generate.model_parallel=2 layout.generate.data_parallel=2
        launcher.cards_per_node=4 engine.ray_address=10.0.0.1:6379
        model=qwen3_8b train.importance_sampling_level=sequence engine.mini_batch_size=8
        +engine.upstream.actor.c_clip=3.0
    """,
}


def configurations() -> Iterator[tuple[str, ...]]:
    """Yield the overrides of each configuration."""
    yield from EXPERIMENTS
    for base, lines in VARIANTS.items():
        yield from ((*base, *line.split()) for line in lines.splitlines() if line.strip())


def texts(overrides: Sequence[str]) -> dict[str, str]:
    """Return the text of each file that the programs of a run read, and how they are started, by stage."""
    config = load(overrides)
    result = {}
    for stage in stages(config):
        if stage.program is None or stage.skipped is not None:
            continue
        inputs = {
            name: Path("/store") / name for name in ("tokenize", "fetch", "weights", "grpo", "fetch_dataset")
        }
        rendered = render(stage, config, inputs, Path("/run") / stage.name)
        start = json.dumps(dataclasses.asdict(rendered.start), indent=1, default=str)
        files = {name: text for name, text in rendered.files.items() if not name.endswith(".py")}
        result |= {f"{stage.name}/{name}": text for name, text in (*files.items(), ("start", start))}
    root = str(Path(__file__).parents[3])
    return {name: text.replace(root, "/project") for name, text in result.items()}


def digest(overrides: Sequence[str]) -> str:
    """Return the digest of all rendered files of a configuration."""
    listed = json.dumps(texts(overrides), sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(listed.encode("utf-8")).hexdigest()[:16]


def main(overrides: Sequence[str]) -> None:
    """Print the files of a configuration, or write the digests of all."""
    if overrides:
        for name, text in texts(overrides).items():
            print(f"==> {name}\n{text}")
        return
    found = {" ".join(overrides): digest(overrides) for overrides in configurations()}
    DIGESTS.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
