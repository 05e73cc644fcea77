"""The rendered files, for layouts of notes that people follow too: train dp1 mp4 pp2, generate dp2 mp4."""

import ast
from dataclasses import replace

import pytest

from pipeline.config.load import load
from stages.base.context import Context
from stages.base.errors import InputError
from stages.engines.mindrlhf_one_stage.stage import collect, files, rendered
from stages.weights.ckpt import build_ckpt
from tests.pipeline.stage_digests import check
from tests.stages.engines.mindrlhf_one_stage.jobs import HOME, PATHS, SEVEN, job_of

GOLDEN = HOME.parents[1] / "mindrlhf_one_stage_golden"


def test_every_hyper_parameter_is_a_field_of_the_script_s_dataclass():
    source = ast.parse((HOME / "mindrlhf/configs/grpo_configs.py").read_text())
    (cls,) = (node for node in source.body if isinstance(node, ast.ClassDef))
    fields = {node.target.id for node in cls.body if isinstance(node, ast.AnnAssign)}
    assert files(job_of(*SEVEN), PATHS)["grpo_config"].keys() <= fields


def test_rendered_files_equal_the_golden_ones(tmp_path):
    job, paths = job_of(*SEVEN), replace(PATHS, root=tmp_path)
    rendered(job, paths).write(paths.root)
    for golden in sorted(GOLDEN.iterdir()):
        text = (paths.configs / golden.name).read_text()
        assert text == golden.read_text(), f"{golden} differs; is the change meant?"
    assert len(list(GOLDEN.iterdir())) == 3


def test_results_are_imported_and_change_only_with_their_version(tmp_path):
    job, output, work = job_of(*SEVEN), tmp_path / "output", tmp_path / "work"
    config = load(["engine=mindrlhf_one_stage", "model.path=/models/qwen", *SEVEN]).plain()
    (work / "configs").mkdir(parents=True)
    output.mkdir()
    (work / "metrics.jsonl").write_text('{"step": 1, "time_s": 1.0, "reward": 0.5}\n')
    for rank in range(job.layout.train.cards):
        folder = work / "checkpoints" / "train" / f"rank_{rank}"
        folder.mkdir(parents=True)
        ((_, frame),), _, size = build_ckpt([("model.norm_out.weight", "F32", (2,))])
        (folder / f"policy_model_epoch_{job.engine.epochs}.ckpt").write_bytes(frame.ljust(size, b"\0"))
    context = Context(
        "grpo", config, dict.fromkeys(("fetch", "tokenize"), tmp_path), output, work, tmp_path / "p"
    )
    collect(context)
    assert len(list(output.glob("train/rank_*/*.ckpt"))) == 8
    check("mindrlhf_one_stage/collect", output, tmp_path)
    (folder / f"policy_model_epoch_{job.engine.epochs}.ckpt").unlink()
    with pytest.raises(InputError, match="exit code 0, but wrote no checkpoint"):
        collect(context)
