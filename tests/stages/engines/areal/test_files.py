"""What is rendered for AReaL, and the cards that a run occupies."""

import json

import pytest
import yaml

from pipeline.config.load import load
from pipeline.plan.graph import plan
from stages.engines import get
from stages.engines.areal import files
from stages.engines.areal.job import Job, Paths
from stages.engines.upstream_keys import leaves

BASE = ("engine=areal", "model=qwen2_5_7b", "model.path=/models/qwen", "layout=dp4_mp1_pp1")


def job(*overrides):
    return Job.from_run(load([*BASE, *overrides]))


def rendered(tmp_path, *overrides):
    made = job(*overrides)
    return yaml.safe_load(files.text(made, Paths(tmp_path, tmp_path / "train.jsonl")))


def test_a_pass_on_a_cpu_holds_one_sequence(tmp_path):
    values = rendered(tmp_path, "engine.device=cpu", "train.prompts_per_step=8", "rollout.num_generations=4")
    for model in ("actor",):
        assert values[model]["attn_impl"] == "sdpa"
        assert values[model]["mb_spec"]["n_mbs"] == 8 * 4 // 4  # sequences of each of the four workers
    assert rendered(tmp_path)["actor"]["attn_impl"] == "flash_attention_2"


def test_completions_of_older_weights_and_their_weighting(tmp_path):
    values = rendered(tmp_path)
    assert values["rollout"]["max_head_offpolicyness"] == 0
    assert values["actor"]["use_decoupled_loss"] is False and values["actor"]["rejection_sampling"] is None
    values = rendered(tmp_path, "engine.mode=async", "train.prompts_per_step=8")
    assert values["rollout"]["max_head_offpolicyness"] == 2
    assert values["rollout"]["max_concurrent_rollouts"] == 3 * 8
    assert values["actor"]["use_decoupled_loss"] is True and values["actor"]["rejection_sampling"] is None


@pytest.mark.parametrize("mode", ["sync", "async"])
@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        (["rollout.correction=tis"], {"action": "clamp", "upper": 2.0, "lower": 1e-9}),
        (["rollout.correction=mis", "rollout.correction_max=4"],
         {"action": "mask", "upper": 4.0, "lower": 0.25}),
        (["rollout.correction=mis", "rollout.correction_min=0.1"],
         {"action": "mask", "upper": 2.0, "lower": 0.1}),
    ],
)  # fmt: skip
def test_a_correction_weights_tokens_in_both_modes(tmp_path, mode, overrides, expected):
    actor = rendered(tmp_path, f"engine.mode={mode}", *overrides)["actor"]
    assert actor["rejection_sampling"] == {"level": "token", "metric": "ratio", **expected}
    assert actor["use_decoupled_loss"] and actor["recompute_logprob"]


def test_a_reference_is_loaded_only_for_the_kl_in_rewards(tmp_path):
    assert "ref" not in rendered(tmp_path)
    values = rendered(tmp_path, "engine.kl_in_reward=0.1")
    assert values["ref"]["scheduling_strategy"] == {"type": "colocation", "target": "actor"}
    assert values["actor"]["kl_ctl"] == 0.1


@pytest.mark.parametrize(
    ("overrides", "cards", "servers"),
    [
        ((), 8, 4),
        (("engine.rollout_cards=2",), 6, 2),
        (
            ("engine.rollout_cards=8", "layout.generate.model_parallel=2", "layout.generate.data_parallel=2"),
            12,
            4,
        ),
    ],
)
def test_generation_has_cards_of_its_own(overrides, cards, servers):
    config = load([*BASE, *overrides])
    made = Job.from_run(config)
    assert (made.cards, made.servers) == (cards, servers)
    planned = plan(config, lambda file: "0")
    assert planned.cards == cards
    assert planned.spec("grpo").stage.workers == cards


def test_ray_starts_workers_elsewhere(tmp_path):
    assert rendered(tmp_path)["scheduler"]["type"] == "local"
    assert rendered(tmp_path, "launcher=slurm")["scheduler"]["type"] == "ray"
    job = (
        "launcher=ray",
        "launcher.ray_address=http://head:8265",
    )  # on one machine, or on the cluster itself
    assert rendered(tmp_path, *job)["scheduler"]["type"] == "local"
    on_cluster = rendered(tmp_path, *job, "engine.ray_address='head:6379'")
    assert on_cluster["scheduler"]["type"] == "ray"
    assert rendered(tmp_path, "launcher.cards_per_node=4")["scheduler"]["type"] == "ray"


CHANGES = {
    "seed": "seed=7",
    "total_train_steps": "train.steps=9",
    "rollout.backend": "engine.rollout_cards=2",
    "rollout.max_head_offpolicyness": "engine.mode=async",
    "rollout.consumer_batch_size": "train.prompts_per_step=4",
    "rollout.setup_timeout": "engine.start_timeout_s=60",
    "rollout.request_timeout": "engine.request_timeout_s=7200",
    "gconfig.n_samples": "rollout.num_generations=2",
    "gconfig.max_new_tokens": "rollout.max_tokens=20",
    "gconfig.temperature": "rollout.temperature=0.5",
    "gconfig.top_p": "rollout.top_p=0.5",
    "gconfig.top_k": "rollout.top_k=5",
    "actor.backend": "layout=dp8_mp1_pp1",
    "actor.gradient_checkpointing": "layout.train.recompute=true",
    "actor.mb_spec.max_tokens_per_mb": "engine.micro_batch_tokens=2048",
    "actor.optimizer.lr": "train.learning_rate=1e-6",
    "actor.optimizer.weight_decay": "train.weight_decay=0.5",
    "actor.optimizer.beta1": "train.adam_beta1=0.5",
    "actor.optimizer.beta2": "train.adam_beta2=0.5",
    "actor.optimizer.eps": "train.adam_epsilon=1e-6",
    "actor.optimizer.min_lr_ratio": "train.final_share=0.5",
    "actor.optimizer.lr_scheduler_type": "train.schedule=constant",
    "actor.optimizer.warmup_steps_proportion": "train.warmup_steps=1",
    "actor.optimizer.gradient_clipping": "train.max_grad_norm=0.5",
    "actor.ppo_n_minibatches": "engine.mini_batch_size=8",
    "actor.eps_clip": "train.epsilon_low=0.1",
    "actor.eps_clip_higher": "train.epsilon_high=0.5",
    "actor.reward_norm.std_level": "train.scale_advantages=false",
    "actor.kl_ctl": "engine.kl_in_reward=0.2",
    "actor.importance_sampling_level": "train.importance_sampling_level=sequence",
    "vllm.gpu_memory_utilization": "engine.gpu_memory_utilization=0.5",
}  # AReaL's key -> an override that must change it


@pytest.mark.parametrize(("key", "override"), CHANGES.items())
def test_a_key_follows_grpoflows(tmp_path, key, override):
    before, after = (dict(leaves(rendered(tmp_path, *more))) for more in ((), (override,)))
    assert before.get(key) != after[key]
    named = next(name for name in files.RENDERED if key == name or key.startswith(f"{name}."))
    assert files.RENDERED[named].startswith("=") or files.RENDERED[named] in override or key in (
        "rollout.max_head_offpolicyness", "actor.backend"
    )  # fmt: skip


def test_the_task_names_what_the_driver_reads(tmp_path):
    made = job("train.logged_completions=0", "reward.functions=[accuracy]", "reward.weights=[1.0]")
    task = json.loads(files.task(made, Paths(tmp_path, tmp_path / "train.jsonl")))
    assert task["completions"] is None
    assert task["scoring"]["reward"]["functions"] == ["accuracy"]


def test_the_trained_families_have_a_graph_without_conversion():
    engine, run = get("areal"), load(list(BASE))
    names = {stage.name: stage.skipped for stage in engine.stages(run)}
    assert names["export"] is None and names["grpo"] is None
    assert all(names[stage] for stage in ("convert", "strategy", "split", "sft"))
