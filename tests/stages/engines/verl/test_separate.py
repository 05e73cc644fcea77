"""engine.mode: what is rendered for training and generation on separate cards, and what is refused."""

import json

import pytest

from pipeline.config.load import load
from pipeline.plan.graph import plan
from stages.base.errors import ConfigError
from stages.engines.verl import files, results, separate, train
from stages.engines.verl.job import Job
from tests.stages.engines.verl.test_inference import BASE, CPU, rendered

ASYNC = "engine.mode=fully_async"
TWO_NODES = "launcher=ssh launcher.hosts=[a,b]"


def job(*overrides):
    return Job.from_run(load([*BASE, *overrides]))


def test_without_a_mode_nothing_is_rendered():
    assert separate.configuration(job()) == {}
    made = rendered()
    assert "v1" not in made["trainer"] and "nnodes" not in made["actor_rollout_ref"]["rollout"]


@pytest.mark.parametrize(
    "overrides, threshold, updates, rollout",
    [
        (["engine.mode=one_step_off"], 2, 1, (1, 4)),
        ([ASYNC], 8, 1, (1, 4)),
        ([ASYNC, "engine.staleness=2", "engine.mini_batch_size=8", "engine.rollout_cards=2"], 3, 4, (1, 2)),
        ([ASYNC, "layout=dp8_mp1_pp1", "launcher.cards_per_node=8", "engine.rollout_cards=16"], 8, 1, (2, 8)),
    ],
)  # fmt: skip
def test_verls_trainer_for_separate_cards_is_rendered(overrides, threshold, updates, rollout):
    made, run = rendered(*overrides), job(*overrides)
    trainer = made["trainer"]["v1"]
    assert trainer["trainer_mode"] == "separate_async"
    assert trainer["separate_async"] == {"num_warmup_batches": 1, "parameter_sync_step": updates}
    assert trainer["sampler"]["max_off_policy_threshold"] == threshold
    # the condition that verl asserts: data.train_batch_size == parameter_sync_step * ppo_mini_batch_size
    size = made["actor_rollout_ref"]["actor"]["ppo_mini_batch_size"]
    assert made["data"]["train_batch_size"] == updates * size
    section = made["actor_rollout_ref"]["rollout"]
    assert (section["nnodes"], section["n_gpus_per_node"]) == rollout
    assert section["checkpoint_engine"]["backend"] == "nccl"
    assert (made["trainer"]["nnodes"], made["trainer"]["n_gpus_per_node"]) == (1, run.train_cards)
    assert run.cards == run.train_cards + rollout[0] * rollout[1]


def test_a_cpu_has_a_transfer_of_its_own_and_no_ordered_buffer():
    overrides = (CPU, ASYNC, "layout=dp2_mp1_pp1", "engine.rollout_cards=3")
    made = rendered(*overrides)
    section = made["actor_rollout_ref"]["rollout"]
    assert section["checkpoint_engine"]["backend"] == separate.CPU_BACKEND
    assert section["checkpoint_engine"]["custom_backend_module"] == "grpoflow_verl_cpu.weights"
    assert section["tensor_model_parallel_size"] == 1 and section["n_gpus_per_node"] == 3
    assert "custom_sampler" not in made["trainer"]["v1"]["sampler"]
    assert "--num-cpus=23" in files.ray_options(job(*overrides))  # 8 of the driver, 3 for each of 5 workers


def test_the_cards_that_generate_are_part_of_the_run(tmp_path):
    config = load([*BASE, ASYNC, "engine.rollout_cards=2"])
    planned = plan(config, lambda path: "x")
    assert planned.cards == 6 == planned.spec("grpo").stage.workers
    inputs = {name: tmp_path / name for name in ("fetch", "tokenize")}
    start = train.render(config.plain(), inputs, tmp_path).start
    assert start.workers == 6
    # checkpoints are those of the cards that train
    fault = results.checkpoint_defect(Job.from_run(config), make_checkpoint(tmp_path, 4))
    assert fault is None


def make_checkpoint(directory, workers):
    import zipfile

    actor = directory / "global_step_1" / "actor"
    actor.mkdir(parents=True)
    (actor.parent / "data.pt").write_bytes(b"x")
    for part in results.PARTS:
        for rank in range(workers):
            with zipfile.ZipFile(actor / f"{part}_world_size_{workers}_rank_{rank}.pt", "w") as archive:
                archive.writestr("x", "x")
    return actor.parent


def fingerprint(*overrides):
    return plan(load([*BASE, *overrides]), lambda path: "x").spec("grpo").key.fingerprint


def test_the_mode_is_fingerprinted_if_it_is_not_sync():
    modes = {fingerprint(), fingerprint("engine.mode=one_step_off"), fingerprint(ASYNC)}
    further = ("engine.staleness=2", "engine.rollout_cards=2")
    assert len({*modes, *(fingerprint(ASYNC, each) for each in further)}) == 5


def test_staleness_and_waiting_are_metrics():
    data = {
        "training/off_policy/trajectory_staleness_worst/mean": 0.75,
        "training/off_policy/trajectory_staleness_worst/max": 2,
        "timing_s/gen": 3.0,
        "timing_s/step": 12.0,
    }
    row = results.read_metrics(json.dumps({"step": 4, "data": data}))
    assert (row["staleness"], row["staleness_max"]) == (0.75, 2)
    assert separate.with_waiting(row, job())["rollout_s"] == 3.0
    waiting = separate.with_waiting(row, job(ASYNC))
    assert waiting["wait_share"] == 0.25 and "rollout_s" not in waiting


CASES = [  # refused key, part of the source, breaking and passing overrides
    ("engine.staleness", "trainer_sync.py", "engine.staleness=1", ASYNC),
    ("engine.rollout_cards", "trainer_sync.py", "engine.rollout_cards=4", f"{ASYNC} engine.rollout_cards=4"),
    ("engine.partial_rollout", "trainer_sync.py", "engine.partial_rollout=true",
     "engine.partial_rollout=false"),
    ("engine.partial_rollout", "llm_server.py", f"{ASYNC} engine.partial_rollout=false",
     f"{ASYNC} engine.partial_rollout=true"),
    ("engine.staleness", "separate_async", "engine.mode=one_step_off engine.staleness=2",
     "engine.mode=one_step_off engine.staleness=1"),
    ("engine.staleness", "separate_async", f"{ASYNC} engine.staleness=0", f"{ASYNC} engine.staleness=1"),
    ("train.lora_rank", "separate.py", f"{ASYNC} train.lora_rank=8", "train.lora_rank=8"),
    ("engine.deterministic", "separate_async", f"{ASYNC} engine.deterministic=true",
     "engine.deterministic=true"),
    ("engine.mini_batch_size", "fsdp2_sharded_save_to_cpu", f"{ASYNC} {CPU} engine.mini_batch_size=8",
     f"{ASYNC} engine.mini_batch_size=8"),
    ("engine.param_offload", "engine_workers.py",
     f"{ASYNC} engine.param_offload=true engine.mini_batch_size=8", f"{ASYNC} engine.param_offload=true"),
    ("engine.param_offload", "engine_workers.py",
     f"{ASYNC} engine.param_offload=true engine.mini_batch_size=8",
     f"{ASYNC} engine.param_offload=true engine.mini_batch_size=8 +engine.upstream.{separate.BYPASS}=true"),
    ("engine.rollout_cards", "llm_server.py",
     f"{ASYNC} engine.rollout_cards=3 layout.generate.model_parallel=2 layout.generate.data_parallel=2",
     f"{ASYNC} engine.rollout_cards=4 layout.generate.model_parallel=2 layout.generate.data_parallel=2"),
    ("layout.generate.model_parallel", "plugin",
     f"{ASYNC} {CPU} layout.generate.model_parallel=2 layout.generate.data_parallel=2", f"{ASYNC} {CPU}"),
    ("engine.rollout_cards", "RayResourcePool",
     f"{ASYNC} engine.rollout_cards=6 launcher.cards_per_node=4 {TWO_NODES}",
     f"{ASYNC} engine.rollout_cards=4 launcher.cards_per_node=4 {TWO_NODES}"),
    ("layout.train.data_parallel", "RayResourcePool",
     f"{ASYNC} engine.rollout_cards=6 launcher.cards_per_node=6 {TWO_NODES}",
     f"{ASYNC} engine.rollout_cards=2 launcher.cards_per_node=6 {TWO_NODES}"),
]  # fmt: skip


@pytest.mark.parametrize(("key", "source", "breaking", "passing"), CASES, ids=lambda text: text[:60])
def test_each_rule_refuses_one_configuration_and_accepts_another(key, source, breaking, passing):
    with pytest.raises(ConfigError) as refused:
        load([*BASE, *breaking.split()])
    found = [each for each in refused.value.problems if each.path == key and source in each.source]
    assert found and found[0].rule and found[0].remedy
    load([*BASE, *passing.split()])
