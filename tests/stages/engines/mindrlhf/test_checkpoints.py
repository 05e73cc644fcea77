import json
import os
import shutil
import subprocess
import sys

import numpy as np
import pytest
from safetensors.numpy import save_file

from launch.nodes.start import Start
from stages.base.errors import InputError
from stages.engines.mindformers import checkpoints
from stages.engines.mindformers.checkpoints import Moment, prepare_resume
from stages.engines.mindformers.stage import final_checkpoint
from stages.engines.mindrlhf.files import grpo_config
from stages.engines.mindrlhf.logs import FINISHED
from stages.engines.outside import Rendered, read_start, write_start
from tests.stages.engines.mindrlhf.jobs import job_of, paths

NAMES = {"train": "policy_model", "optimizer": "optimizer", "ref": "ref"}


def save(root, part, rank, at):
    folder = root / part / f"rank_{rank}"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{NAMES[part]}_rank_{rank}-{at}.safetensors"
    save_file({"x": np.zeros(64)}, path)
    meta = json.dumps({"last_epoch": int(at.split("_")[0]), "last_step": 0, "last_ckpt_file": path.name})
    with os.fdopen(os.open(folder / "meta.json", os.O_WRONLY | os.O_CREAT), "w") as file:
        file.write(meta)  # as mindrlhf does: without truncating
    return path


def save_all(root, at, parts=("train", "optimizer", "ref")):
    for part in parts:
        for rank in (0, 1):
            save(root, part, rank, at)


@pytest.mark.parametrize("damage", ["cut", "longer", "empty", "absent", "no optimizer", "half a reference"])
def test_an_incomplete_checkpoint_is_removed_and_the_previous_checkpoint_is_used(tmp_path, damage):
    save_all(tmp_path, "0_5")
    save_all(tmp_path, "0_10", ("train",) if damage == "no optimizer" else ("train", "optimizer"))
    last = tmp_path / "train" / "rank_1" / "policy_model_rank_1-0_10.safetensors"
    size = last.stat().st_size
    if damage in ("cut", "longer", "empty"):
        os.truncate(last, {"cut": size - 1, "longer": size + 1, "empty": 0}[damage])
    elif damage == "absent":
        last.unlink()
    elif damage == "half a reference":
        save(tmp_path, "ref", 0, "0_10")
    assert prepare_resume(tmp_path, 2) == Moment(0, 5)
    assert not list(tmp_path.rglob("*-0_10.safetensors"))


@pytest.mark.parametrize(("keep", "expected"), [(1, 2), (3, 3)])
def test_a_kill_during_a_save_leaves_a_complete_checkpoint(keep, expected):
    job = job_of("model=qwen2_5_7b", "layout=dp1_mp4_pp2", f"train.keep_checkpoints={keep}")
    assert grpo_config(job, paths(job), False)["rl_config"]["save_max_ckpt_num"] == expected


def test_the_copy_next_to_the_scripts_decides_without_grpoflow(tmp_path):
    copy, root = tmp_path / "checkpoints.py", tmp_path / "run"
    shutil.copyfile(checkpoints.__file__, copy)
    command = [sys.executable, "-I", str(copy), str(root), "2"]  # -I: neither our directory nor PYTHONPATH

    def decide():
        requested = [
            subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=tmp_path) for _ in range(3)
        ]
        output = [item.communicate()[0].strip() for item in requested]  # as the scripts of three nodes
        assert len(set(output)) == 1 and len({item.returncode for item in requested}) == 1
        return [requested[0].returncode, output[0]]

    assert decide() == [3, "begins"]
    assert (root / checkpoints.RESUMED).read_text() == "null"
    save(root, "train", 0, "0_5")
    assert decide() == [3, "begins"]
    save_all(root, "0_1865")
    save_all(root, "1_0")
    save(root, "train", 0, "1_5")
    assert decide() == [0, "resumes from checkpoint 1_0"]
    assert json.loads((root / checkpoints.RESUMED).read_text()) == [1, 0]
    assert json.loads((root / "train/rank_0/meta.json").read_text())["last_epoch"] == 1
    assert not [path for path in root.rglob("*") if path.is_file() and "safetensors" not in path.suffix
                and path.name not in ("meta.json", checkpoints.RESUMED)]  # fmt: skip


def test_a_finished_run_has_the_last_line_and_a_new_checkpoint_of_all_ranks(tmp_path):
    root, log = tmp_path / "checkpoints", tmp_path / "worker_0.log"
    started = {"logs": str(tmp_path), "earlier": {}}

    def prove():
        return final_checkpoint(started, FINISHED, root, "train", 2)

    with pytest.raises(InputError, match="the only proof of a finished run"):
        prove()
    log.write_text("INFO - run grpo train end\n")
    with pytest.raises(InputError, match="no new checkpoint of all ranks"):
        prove()
    save_all(root, "1_8")
    assert prove() == Moment(1, 8)
    write_start(tmp_path, Rendered(Start((), 0, None, {}, (), (), (), "")), root)
    started["earlier"] = read_start(tmp_path)["earlier"]
    with pytest.raises(InputError, match="no new checkpoint of all ranks"):
        prove()
    for path in root.rglob("policy_model_*"):  # written anew, by a clock that was put back an hour
        path.write_bytes(path.read_bytes())
        os.utime(path, (path.stat().st_mtime - 3600,) * 2)
    assert prove() == Moment(1, 8)
