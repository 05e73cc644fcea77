"""Checkouts, log and result of mindrlhf's single script; test_golden.py has its files."""

import ast
import shutil

import pytest

from pipeline.config.load import load
from stages.base.context import Context
from stages.base.errors import ConfigError, InputError
from stages.engines.mindrlhf_one_stage.files import arguments, grpo_config
from stages.engines.mindrlhf_one_stage.job import ARGUMENTS, ENTRY, TRAINER, recognise
from stages.engines.mindrlhf_one_stage.logs import LogReader
from stages.engines.mindrlhf_one_stage.stage import collect, rendered
from stages.grpo.metrics import OUTSIDE, SCHEMA
from stages.weights.ckpt import build_ckpt
from tests.pipeline.stage_digests import check
from tests.stages.engines.mindrlhf_one_stage.jobs import HOME, PATHS, SEVEN, job_of

LATEST = """\
Make experience begin at 10:00:00
all_elements_compeltion_len mean: 9.0
Avg scores:  0.9
Make experience, end at 10:00:03, elapsed time 3.0 s-------------------------------
train over is not what is said here
--------- epoch:0 step:0 ---------
Make experience begin at 10:00:10
all_elements_compeltion_len mean: 312.25
all_mean_grouped_rewards:  [0.5, 1.5]
Avg scores:  1.0
Make experience, end at 10:00:20, elapsed time 10.0 s-------------------------------
steps 1, end at 10:00:22, elapsed time 2.0 s
 loss: 0.25 | lr: [1.e-07] | is overflow: False | loss scale: 4096.0
steps 2, end at 10:00:24, elapsed time 2.0 s
 loss: 0.75 | lr: [2.e-07] | is overflow: True | loss scale: 2048.0
train over
""".splitlines()
"""What the script prints, including the trial before training."""


def test_the_checkout_is_recognised_and_knows_our_arguments_and_hyper_parameters():
    job = job_of(*SEVEN, f"engine.mindrlhf_home={HOME}")
    assert job.engine.contract == "2d0e84d"
    script, program = HOME / ENTRY, rendered(job, PATHS).start.program
    declared = script.read_text()
    assert program[1] == str(script)
    assert all(f'"{name}"' in declared for name in program[3::2])
    source = ast.parse((HOME / "mindrlhf/configs/grpo_configs.py").read_text())
    (cls,) = (node for node in source.body if isinstance(node, ast.ClassDef))
    assert tuple(arguments(job, PATHS)) == ARGUMENTS
    assert grpo_config(job).keys() <= {item.target.id for item in cls.body if "target" in item._fields}


@pytest.mark.parametrize(
    ("file", "removed", "missing"),
    [
        (ENTRY, "--sft_path_infer", "--sft_path_infer"),
        (ENTRY, "--pre_store_data", "--pre_store_data"),  # from 875f92b on
        (TRAINER, "num_rollouts", "num_rollouts of make_experience"),  # from 2d0e84d on
    ],
)
def test_older_versions_are_refused(tmp_path, file, removed, missing):
    home = shutil.copytree(HOME, tmp_path / "home")
    (home / file).write_text((home / file).read_text().replace(removed, "--other"))
    with pytest.raises(ConfigError) as refused:
        recognise(str(home))
    (problem,) = refused.value.problems
    assert missing in problem.rule and "2d0e84d" in problem.remedy


def test_a_newer_checkout_is_refused(tmp_path):
    for home in (HOME.parents[1] / "mindrlhf_standin" / "e8a8fc1", tmp_path):
        with pytest.raises(ConfigError, match="must be readable"):
            recognise(str(home))


def test_the_trial_generation_is_not_counted_as_a_step():
    reader = LogReader(9)
    rows = [row for line in LATEST if (row := reader.read(line))]
    assert rows == [
        (
            {
                "step": 1, "reward": 1.0, "completion_characters": 312.25, "loss": 0.5, "lr": 2e-7,
                "overflow": 0.5, "updates": 2.0, "step_s": 14.0,
            },
            9,
        )
    ]  # fmt: skip
    assert rows[0][0].keys() <= SCHEMA.keys() | OUTSIDE.keys()


@pytest.mark.parametrize("score", ["nan", "1e-3", "0"])
def test_scores_in_every_form(score):
    reader = LogReader(1)
    for line in ("--------- epoch:0 step:0 ---------", f"Avg scores:  {score}"):
        assert reader.read(line) is None
    row, _ = reader.read("train over") or ({}, 1)
    assert str(row["reward"]) == str(float(score))


def test_results_are_imported_and_change_only_with_their_version(tmp_path):
    job, output, work = job_of(*SEVEN), tmp_path / "output", tmp_path / "work"
    config = load(["engine=mindrlhf_one_stage", "model.path=/models/qwen", *SEVEN]).plain()
    (work / "configs").mkdir(parents=True)
    output.mkdir()
    (work / "metrics.jsonl").write_text('{"step": 1, "time_s": 1.0, "reward": 0.5}\n')
    for rank in range(job.layout.train.cards):
        folder = work / "checkpoints" / "train" / f"rank_{rank}"
        folder.mkdir(parents=True)
        plan = build_ckpt([("model.norm_out.weight", "F32", (2,))])
        file = folder / f"policy_model_epoch_{job.engine.epochs}.ckpt"
        file.write_bytes(plan.frames[0][1].ljust(plan.size, b"\0"))
    inputs = dict.fromkeys(("fetch", "tokenize"), tmp_path)
    context = Context("grpo", config, inputs, output, work, tmp_path / "progress")
    collect(context)
    assert len(list(output.glob("train/rank_*/*.ckpt"))) == 8
    check("mindrlhf_one_stage/collect", output, tmp_path)
    (folder / f"policy_model_epoch_{job.engine.epochs}.ckpt").unlink()
    with pytest.raises(InputError, match="exit code 0, but wrote no checkpoint"):
        collect(context)
