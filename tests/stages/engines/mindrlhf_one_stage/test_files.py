"""The rendered files, for layouts of notes that people follow too: train dp1 mp4 pp2, generate dp2 mp4."""

import ast

import pytest

from pipeline.config.load import load
from stages.base.context import Context
from stages.base.errors import InputError
from stages.engines.mindrlhf_one_stage.config import WINDOWS
from stages.engines.mindrlhf_one_stage.files import hyper_parameters
from stages.engines.mindrlhf_one_stage.stage import collect, rendered
from stages.weights.ckpt import build_ckpt
from tests.pipeline.stage_digests import check
from tests.stages.engines.mindrlhf_one_stage.jobs import HOME, PATHS, SEVEN, job_of

GOLDEN = HOME.parent / "mindrlhf_one_stage_golden"


def fields(version):
    """Return the fields of the mock's dataclass, which are independent of the code under test."""
    source = ast.parse((HOME / version / "mindrlhf/configs/grpo_configs.py").read_text())
    (cls,) = (node for node in source.body if isinstance(node, ast.ClassDef))
    return {
        node.target.id
        for node in cls.body
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    }


@pytest.mark.parametrize("version", WINDOWS)
def test_every_hyper_parameter_is_one_of_the_version_s(version):
    one_batch = "train.prompts_per_step=2"
    job = job_of(*SEVEN, f"engine.contract={version}", one_batch)
    assert hyper_parameters(job).keys() <= fields(version)


def test_rendered_files_equal_the_golden_ones(tmp_path):
    job, paths = job_of(*SEVEN), PATHS.__class__(tmp_path, PATHS.dataset, PATHS.tokenizer, PATHS.weights)
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
