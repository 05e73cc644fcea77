"""engine=verl with the real verl: its configuration, its rewards, and a run from fetch to report."""

import json
import subprocess
from pathlib import Path

import numpy as np
import pytest

from pipeline.config.compose import BUILT_IN
from pipeline.config.load import load
from stages.base.keys import leaves
from stages.engines.upstream_keys import Schema
from stages.engines.verl import files, rewards
from stages.engines.verl.job import PROGRAMS, RECIPE, Job, Paths
from stages.rewards.score import score
from tests.upstream.verl.product import grpoflow, tiny_run

pytestmark = [pytest.mark.upstream, pytest.mark.timeout(1800)]
VALIDATE = PROGRAMS / "validate.py"
HERE = Path(__file__).parent
OF_ONE_STRATEGY = """megatron fsdp_config ulysses_sequence_parallel_size lr_scheduler_type min_lr_ratio
    lr_decay_style min_lr lora_rank"""
"""Keys that either FSDP or Megatron does not have."""
EXPERIMENTS = sorted(path.stem for path in (BUILT_IN / "experiment").glob("verl_*.yaml"))
FAMILIES = ("qwen2_5_7b", "qwen3_8b", "qwen3_30b_a3b", "llama3_1_8b")


def run(*command, **options):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, **options)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.mark.parametrize("engine", [pytest.param("dp", marks=pytest.mark.core), "megatron"])
def test_verl_has_every_key_that_is_rendered_and_refuses_others(interpreter, engine):
    schema = Schema.parse(run(interpreter("verl"), PROGRAMS / "schema.py", engine).splitlines()[-1])
    strategy = "fsdp2" if engine == "dp" else "megatron"
    config = load(["experiment=verl_7b", "model.path=/models/m", f"engine.strategy={strategy}"])
    rendered = files.configuration(Job.from_run(config), Paths(Path("/run"), Path("/data/train.parquet")))
    assert list(schema.problems("engine.upstream", _known_types(schema, rendered), "verl")) == []
    others = set(OF_ONE_STRATEGY.split())
    known = [key for key in files.RENDERED if not others & set(key.split("."))]
    assert [key for key in known if not _has(schema, key)] == []
    misspelt = {"trainer": {"balance_bach": True}}
    of_ray = {"ray_kwargs": {"ray_init": {"_temp_dir": "/scratch", "runtime_env": {"pip": ["a"]}}}}
    assert list(schema.problems("engine.upstream", of_ray, "verl")) == []
    (problem,) = schema.problems("engine.upstream", misspelt, "verl")
    assert problem.remedy == "did you mean trainer.balance_batch?"


def _has(schema, key):
    return any(f"{name}.".startswith(f"{key}.") for name in schema.defaults)


def _known_types(schema, rendered):
    """Return the rendered values, with null replaced by the default, whose type it has."""
    result = {}
    for path, value in leaves(rendered):
        *groups, name = path.split(".")
        section = result
        for group in groups:
            section = section.setdefault(group, {})
        section[name] = schema.defaults.get(path) if value is None else value
    return result


@pytest.mark.parametrize(
    "overrides",
    [pytest.param((f"model={FAMILIES[0]}",), marks=pytest.mark.core),
     *[(f"model={name}",) for name in FAMILIES[1:]], ("train.lora_rank=8",),
     ("rollout.correction=mis", "rollout.correction_level=sequence", "train.resample_rounds=1",
      "train.validate_every=5", "engine.deterministic=true"),
     ("engine.device=cpu", "engine.rollout=vllm", "train.validate_every=5"), ("engine.device=cuda",),
     ("train.beta=0", "train.schedule=cosine", "train.max_grad_norm=null"),
     ("train.preset=rloo", "train.entropy_coeff=0.01", "train.clip_ratio_c=3"),
     ("train.preset=cispo",), ("train.loss_type=sapo", "train.advantages=reinforce_plus_plus"),
     ("engine.loss_mode=clip_cov", "engine.adv_estimator=opo"),
     ("layout.train.data_parallel=8",
      "layout.train.context_parallel=2", "engine.rollout=sglang", "launcher.cards_per_node=8")],
    ids=" ".join,
)  # fmt: skip
def test_verl_accepts_the_rendered_configuration(interpreter, tmp_path, overrides):
    run_job = Job.from_run(load(["experiment=verl_7b", "model.path=/models/m", *overrides]))
    text = files.text(run_job, Paths(Path("/run"), Path("/data/train.parquet")))
    (tmp_path / f"{RECIPE}.yaml").write_text(text)
    assert "FSDPActorConfig" in run(interpreter("verl"), VALIDATE, tmp_path, RECIPE)


@pytest.mark.parametrize("device", ["npu", "cuda"])
@pytest.mark.parametrize("experiment", EXPERIMENTS)
def test_verl_accepts_each_experiment(interpreter, tmp_path, experiment, device):
    overrides = [f"experiment={experiment}", "model.path=/models/m", f"engine.device={device}"]
    text = files.text(Job.from_run(load(overrides)), Paths(Path("/run"), Path("/data/train.parquet")))
    (tmp_path / f"{RECIPE}.yaml").write_text(text)
    assert "FSDPActorConfig" in run(interpreter("verl"), VALIDATE, tmp_path, RECIPE)


TEXTS = ["3 + 4\n#### 7", "#### 8", "nothing", "12 #### 7,000"]
TRUTHS = ["7", "7", "7", "7000"]
LENGTHS = [9, 5, 28, 20]
USER = "def shorter(completions, solutions):\n    return [1 / (1 + len(text)) for text in completions]\n"
REWARDS = (
    ("reward.functions=[accuracy,answer_format]", "reward.weights=[1.0,0.1]"),
    ("reward.functions=[number,answer_format]", "reward.weights=[1.0,0.1]"),
    ("reward=dapo", "reward.length.max_tokens=28"),
    ("reward=cosine", "reward.length.max_tokens=28"),
    ("reward.functions=[users_reward:shorter,qwen_accuracy]", "reward.weights=[0.3,1.0]"),
)


@pytest.mark.parametrize(
    "overrides",
    [pytest.param(REWARDS[0], marks=pytest.mark.core), *REWARDS[1:]],
    ids=lambda overrides: overrides[0],
)
def test_rewards_are_those_of_the_local_engine(interpreter, tmp_path, monkeypatch, overrides):
    users = tmp_path / "users"
    users.mkdir()
    (users / "users_reward.py").write_text(USER)
    monkeypatch.syspath_prepend(str(users))
    config = load(["experiment=verl_7b", "model.path=/models/m", *overrides])
    for name, text in rewards.files(Job.from_run(config), Paths(tmp_path, tmp_path)).items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    rows = json.dumps(list(zip(TEXTS, TRUTHS, LENGTHS, strict=True)))
    printed = run(interpreter("verl"), HERE / "score.py", rows, tmp_path / "configs/rewards.py", cwd=tmp_path)
    expected = score(config.reward, TEXTS, TRUTHS, LENGTHS).total
    (made,) = json.loads(printed.splitlines()[-1])
    assert np.float32(made).tolist() == expected.tolist()


def test_a_run_from_fetch_to_report_is_cached_and_a_part_of_a_sweep(interpreter, tmp_path):
    overrides = tiny_run(interpreter("verl"), tmp_path)
    first = grpoflow(tmp_path, "run", *overrides)
    assert first.returncode == 0, first.stderr[-3000:]
    (grpo,) = (tmp_path / "store" / "grpo").iterdir()
    rows = [json.loads(line) for line in (grpo / "metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows] == [1, 2]
    assert {"reward", "loss", "kl", "grad_norm", "completion_length", "step_s"} <= rows[0].keys()
    began = grpo.stat().st_mtime_ns
    assert grpoflow(tmp_path, "run", *overrides).returncode == 0
    done = grpoflow(tmp_path, "sweep", *overrides, "train.learning_rate=2.5e-4,1e-3")
    assert done.returncode == 0, done.stderr[-3000:]
    points = sorted((tmp_path / "store" / "grpo").iterdir(), key=lambda path: path != grpo)
    assert len(points) == 2
    assert grpo.stat().st_mtime_ns == began  # the sweep's first point is the run
    final = [json.loads((path / "metrics.jsonl").read_text().splitlines()[-1]) for path in points]
    assert final[0]["lr"] != final[1]["lr"]
    verified = grpoflow(tmp_path, "verify", "--deep", f"store={tmp_path / 'store'}")
    assert verified.returncode == 0, verified.stdout + verified.stderr
