"""What is rendered for generation, validation, correction and the transfer of weights."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from pipeline.config.load import load
from stages import engines
from stages.base.errors import ConfigError
from stages.engines.verl import files, inference, results, train
from stages.engines.verl.job import TRAIN_DATA, Job, Paths
from stages.engines.verl.rewards import VALIDATION
from stages.engines.verl.rules import problems
from stages.engines.verl.shrink import shrink
from stages.grpo.rules import prompt_problems

BASE = ("engine=verl", "model=qwen2_5_7b", "model.path=/models/qwen", "layout=dp4_mp1_pp1")
CPU = "engine.device=cpu"


def rendered(*overrides):
    job = Job.from_run(load([*BASE, *overrides]))
    inputs = {"tokenize": Path("/tokenize"), "fetch": Path("/fetch")}
    return files.configuration(job, train.paths_of(job.train, inputs, Path("/work")))


def rollout(*overrides):
    return rendered(*overrides)["actor_rollout_ref"]["rollout"]


def test_without_validation_verl_does_not_check():
    made = rendered()
    assert made["data"]["train_files"] == made["data"]["val_files"] == f"/tokenize/{TRAIN_DATA}"
    assert made["trainer"]["test_freq"] == -1
    assert made["trainer"]["val_before_train"] is False


def test_held_out_prompts_are_answered_greedily():
    made = rendered("train.validate_every=5", "rollout.temperature=0.7", "rollout.top_p=0.9")
    assert made["data"]["train_files"] == f"/work/data/{TRAIN_DATA}"
    assert made["data"]["val_files"] == "/work/data/validation.parquet"
    assert made["data"]["val_max_samples"] == -1
    assert made["trainer"]["test_freq"] == 5
    greedy = made["actor_rollout_ref"]["rollout"]["val_kwargs"]
    assert greedy == {"temperature": 0, "top_p": 1.0, "top_k": -1, "do_sample": False, "n": 1}


def test_the_last_rows_are_held_out_and_marked(tmp_path):
    arrow, parquet = (pytest.importorskip(name) for name in ("pyarrow", "pyarrow.parquet"))
    rows = [{"prompt": str(n), "extra_info": {"index": n, "split": "train"}} for n in range(10)]
    source, data, held_out = (
        tmp_path / name for name in ("all.parquet", "data/train.parquet", "data/v.parquet")
    )
    parquet.write_table(arrow.Table.from_pylist(rows), source)
    settings = SimpleNamespace(validate_every=1, validation_prompts=3, prompts_per_step=4)
    train.hold_out(source, settings, data, held_out)
    assert parquet.read_table(data).to_pylist() == rows[:7]
    marked = [{**row, "extra_info": {**row["extra_info"], "split": VALIDATION}} for row in rows[7:]]
    assert parquet.read_table(held_out).to_pylist() == marked
    settings.validation_prompts = 7
    with pytest.raises(ConfigError, match=r"leaves 3 of 10 prompts"):
        train.hold_out(source, settings, data, held_out)


def test_the_best_check_is_the_first_of_the_highest():
    rows = [{"step": step, "validation_accuracy": value} for step, value in ((2, 0.5), (4, 0.75), (6, 0.75))]
    assert results.best(results.checks_of([{"step": 1}, *rows])) == 4
    assert results.best({}) is None


def line(step, **data):
    return json.dumps({"step": step, "data": data})


def test_the_accuracy_of_a_check_is_read_whatever_the_dataset_is_called():
    data = {"val-core/a/b c/acc/mean@1": 0.25, "val-aux/a/reward/mean@1": 0.5, "timing_s/testing": 2.0}
    expected = {"step": 3, "validation_accuracy": 0.25, "validation_s": 2.0}
    assert results.read_metrics(line(3, **data)) == expected


def test_the_checkpoint_of_the_best_check_is_kept(tmp_path, monkeypatch):
    job = Job.from_run(
        load([*BASE, "train.keep_best=true", "train.checkpoint_every=1", "train.keep_checkpoints=1"])
    )
    monkeypatch.setattr(results, "checkpoint_defect", lambda job, path: None)
    root = tmp_path / "checkpoints"
    log = tmp_path / "metrics.log"
    watcher = train.Watcher(log, tmp_path, job, lambda *shown: None)
    for step, accuracy in enumerate((0.2, 0.9, 0.4, 0.4), start=1):
        (root / f"global_step_{step}").mkdir(parents=True)
        (root / "latest_checkpointed_iteration.txt").write_text(str(step))
        watcher.read(line(step, **{"val-core/x/acc/mean@1": accuracy}))
    assert sorted(path.name for path in root.glob("global_*")) == ["global_step_2", "global_step_4"]
    again = train.Watcher(log, tmp_path, job, lambda *shown: None)  # a resumed run knows earlier checks
    again.read(line(3, **{"val-core/x/acc/mean@1": 0.95}))
    (root / "global_step_3").mkdir()
    (root / "latest_checkpointed_iteration.txt").write_text("4")
    again.read(line(4))
    assert sorted(path.name for path in root.glob("global_*")) == ["global_step_3", "global_step_4"]


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        (["rollout.correction=tis"], {"rollout_is": "token", "rollout_is_threshold": 2.0}),
        (
            ["rollout.correction=tis", "rollout.correction_level=sequence", "rollout.correction_max=5"],
            {"rollout_is": "sequence", "rollout_is_threshold": 5.0},
        ),
        (
            ["rollout.correction=mis"],
            {"rollout_is": "token", "rollout_is_threshold": 2.0, "rollout_rs": "token_k1",
             "rollout_rs_threshold": "0.5_2.0"},
        ),
        (
            ["rollout.correction=mis", "rollout.correction_level=sequence", "rollout.correction_min=0.8"],
            {"rollout_is": "sequence", "rollout_is_threshold": 2.0, "rollout_rs": "seq_sum_k1",
             "rollout_rs_threshold": "0.5_1.25"},
        ),
    ],
)  # fmt: skip
def test_correction(overrides, expected):
    assert rendered(*overrides)["algorithm"]["rollout_correction"] == expected
    assert "rollout_correction" not in rendered()["algorithm"]


@pytest.mark.parametrize(
    ("engine", "layout"),
    [("mindrlhf", "dp1_mp4_pp2"), ("mindrlhf_one_stage", "dp1_mp4_pp2"), ("mindspeed_rl", "dp2_mp2_pp2"),
     ("local", "dp1_mp1_pp1")],
)  # fmt: skip
def test_other_engines_refuse_correction(engine, layout):
    words = [f"engine={engine}", "model=qwen2_5_7b", "model.path=/m", "dataset=gsm8k", f"layout={layout}"]
    with pytest.raises(ConfigError) as refused:
        load([*words, "rollout.correction=tis"])
    assert [each.path for each in refused.value.problems if each.path.startswith("rollout.corr")] == [
        "rollout.correction"
    ]


def test_groups_are_filtered_by_verls_own_buffer():
    made = rendered("train.resample_rounds=2", CPU)
    assert made["algorithm"]["filter_groups"] == {"enable": True, "metric": "reward"}
    assert "v1" not in made["trainer"]  # a custom sampler would not filter
    assert "custom_sampler" in rendered(CPU)["trainer"]["v1"]["sampler"]
    row = results.read_metrics(line(1, **{"training/filter_groups/evicted_samples": 3}))
    job = Job.from_run(load([*BASE, "train.resample_rounds=1", "train.prompts_per_step=8"]))
    assert results.with_sampled_groups(row, job) == {"step": 1, "sampled_groups": 11.0}


@pytest.mark.parametrize(
    ("overrides", "size"),
    [
        ([], None),  # 151,936 x 3,584 in float32: 2,078 MiB
        (["model=qwen2_5_1_5b"], None),
        (["model=qwen3_8b"], 2374),
        (["model=qwen2_5_1_5b", CPU], 891),
        (["model=qwen2_5_0_5b", CPU], 520),
    ],
)
def test_the_largest_tensor_fits_into_the_buffer(overrides, size):
    if not overrides:
        size = 2079 if inference.largest_tensor_mib(Job.from_run(load(BASE))) == 2079 else 2078
    made = rollout(*overrides, "model.path=/m")
    assert made.get("checkpoint_engine", {}).get("update_weights_bucket_megabytes") == size


def test_each_device_has_a_program_that_generates():
    assert load(BASE).engine.rollout == "vllm"
    assert load([*BASE, CPU]).engine.rollout == "transformers"
    assert rollout(CPU)["name"] == "hf"
    made = rollout(CPU, "engine.rollout=vllm", "layout=dp2_mp1_pp1", "layout.generate.model_parallel=2")
    assert made["name"] == "vllm"
    assert (made["tensor_model_parallel_size"], made["dtype"]) == (2, "float32")
    assert (made["enable_sleep_mode"], made["free_cache_engine"], made["enforce_eager"]) == (
        False,
        False,
        True,
    )
    # keys and values in float32, 28 layers, 2 of 4 heads of 128, 256 completions of 3 blocks and one more
    assert made["engine_kwargs"]["vllm"]["kv_cache_memory_bytes"] % (2 * 4 * 28 * 2 * 128 * 128) == 0


def test_nvidia_cards_differ_in_the_device_and_in_the_packages(tmp_path):
    made, inputs = {}, {name: tmp_path / name for name in ("fetch", "tokenize")}
    for device in ("npu", "cuda"):
        config = load([*BASE, f"engine.device={device}"])
        made[device] = train.render(config.plain(), inputs, tmp_path)
    npu, cuda = (made[device].files for device in ("npu", "cuda"))
    assert {name for name in npu if npu[name] != cuda[name]} == {"configs/grpo.yaml"}
    changed = npu["configs/grpo.yaml"].replace("device: npu", "device: cuda")
    assert changed == cuda["configs/grpo.yaml"] != npu["configs/grpo.yaml"]
    assert [made[device].start.ray.resource for device in made] == ["NPU", "GPU"]
    environment = engines.get("verl").environment(load([*BASE, "engine.device=cuda"]).engine)
    packages = {name for name, *_ in environment.packages}
    assert {"torch", "vllm"} <= packages and not {"torch_npu", "vllm-ascend"} & packages
    assert environment.cann is environment.lock is None
    with pytest.raises(ConfigError, match=r"engine\.device=cuda: verl"):
        load([*BASE, "engine.device=cuda", "engine.rollout=transformers"])


def test_vllm_on_a_cpu_is_declared_as_the_distribution_that_verl_asks_for():
    job = load([*BASE, CPU, "engine.rollout=vllm"])
    made = train.render(job.plain(), {"tokenize": Path("/t"), "fetch": Path("/f")}, Path("/work"))
    name = "vllm_metadata/vllm-0.27.1+cpu.dist-info"
    assert "Name: vllm\nVersion: 0.27.1+cpu" in made.files[f"{name}/METADATA"]
    assert "[vllm.general_plugins]" in made.files[f"{name}/entry_points.txt"]
    assert "/work/vllm_metadata" in made.start.python_path
    assert made.start.env["VLLM_CPU_OMP_THREADS_BIND"] == "nobind"
    npu = train.render(load(BASE).plain(), {"tokenize": Path("/t"), "fetch": Path("/f")}, Path("/work"))
    assert not any("vllm" in file for file in npu.files)
    assert npu.start.python_path == ()


def test_deterministic_training_gives_each_sample_a_seed():
    made = rendered("engine.deterministic=true")["actor_rollout_ref"]
    assert made["actor"]["fsdp_config"]["full_determinism"] is True
    assert made["ref"]["fsdp_config"]["full_determinism"] is True
    assert made["rollout"]["agent"]["agent_loop_config_path"].endswith("plugin/seeded_loops.yaml")
    assert "full_determinism" not in made["rollout"]
    assert "agent" not in rollout()


def rows(*values):
    return [{"step": step, "rollout_logprob_diff": value} for step, value in enumerate(values, start=1)]


def test_a_rollout_of_other_weights_is_reported():
    npu, cpu = (Job.from_run(load([*BASE, f"engine.device={device}"])) for device in ("npu", "cpu"))
    assert list(results.mismatch_warnings(rows(0.01, 0.04), npu)) == []
    (warning,) = results.mismatch_warnings(rows(0.01, 0.3, 0.1), npu)
    assert "in 2 steps, up to 0.3 in step 2" in warning
    assert list(results.mismatch_warnings([{"step": 1}], cpu)) == []
    (warning,) = results.mismatch_warnings(rows(1e-6, float("nan"), 0.002), cpu)
    assert "in 2 steps, up to nan in step 2" in warning


def test_paths_without_validation_are_those_of_the_artifact():
    job = Job.from_run(load(BASE))
    inputs = {"tokenize": Path("/tokenize")}
    assert train.paths_of(job.train, inputs, Path("/work")) == Paths(
        Path("/work"), Path(f"/tokenize/{TRAIN_DATA}")
    )


def test_a_rehearsal_checks_held_out_prompts_and_generates_with_transformers():
    words = [
        "train.validate_every=20",
        "train.keep_best=true",
        "engine.deterministic=true",
        "rollout.correction=mis",
    ]
    small = shrink(load([*BASE, *words]).plain(), Path("/small"), workers=1)
    job = Job.from_config(small)
    assert (job.rollout_program, job.train.validate_every, job.engine.deterministic) == (
        "transformers",
        1,
        False,
    )
    assert list(problems(job)) == []
    rows = small["dataset"]["train_rows"]
    assert list(prompt_problems(job.train, rows)) == []
    assert list(prompt_problems(job.train, job.train.validation_prompts + 1)) != []
