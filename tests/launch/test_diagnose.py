"""Diagnosis of logs of real failures (tests/data/logs/README.md) and of healthy runs."""

import json
import os
import re
import shutil
import sys
from pathlib import Path

import pytest

from launch.diagnose.diagnosis import diagnose, logs_of
from launch.diagnose.failures import GRPOFLOW_ERROR, failures
from launch.diagnose.log import HEAD_BYTES, TAIL_BYTES
from launch.errors import ProcessFailed
from launch.process import child

LOGS = Path(__file__).parents[1] / "data" / "logs"
EXPECTED = {
    # directory: (entry of the table or None, log of the worker that failed first)
    "antlr_does_not_fit": ("antlr", "stage.log"),
    "checkpoint_is_a_directory": ("directory_as_checkpoint", "stage.log"),
    "connection_reset": ("peer", "stage.log"),
    "default_ciphers": ("default_ciphers", "stage.log"),
    "disk_full": ("disk_full", "stage.log"),
    "disk_full_by_safetensors": ("disk_full", "stage.log"),
    "heads_do_not_divide": ("heads", "stage.log"),
    "http_port_in_use": ("port", "stage.log"),
    "hub_certificate": ("hub_certificate", "stage.log"),
    "hub_proxy": ("proxy", "stage.log"),
    "hub_unknown_host": ("name_resolution", "stage.log"),
    "kernel_out_of_memory": ("killed", "stage.log"),
    "killed": ("killed", "stage.log"),
    "lost_machine": ("machine_lost", "start.log"),
    "lost_worker": ("node_lost", "worker_1.log"),
    "memory_error": ("host_memory", "stage.log"),
    "meta_json": ("meta_json", "stage.log"),
    "mindrecord_missing": ("mindrecord", "stage.log"),
    "mindspeed_rl_msadapter": ("mindspeed_rl_msadapter", "worker_0.log"),
    "mindspeed_rl_msadapter_667a547": ("mindspeed_rl_msadapter", "worker_0.log"),
    "mindspeed_rl_arguments": ("mindspeed_rl_arguments", "stage.log"),
    "mindspeed_rl_plugin": ("mindspeed_rl_plugin", "stage.log"),
    "mindspeed_rl_rank": ("mindspeed_rl_rank", "worker_0.log"),
    "mindspeed_rl_static_self": ("mindspeed_rl_port", "worker_0.log"),
    "mindrlhf_arguments": ("mindrlhf_arguments", "stage.log"),
    "mindrlhf_constant_rate": ("constant_rate", "stage.log"),
    "mindrlhf_debugging": ("vllm_debugging", "stage.log"),
    "mindrlhf_full_monitor": ("full_monitor", "stage.log"),
    "mindrlhf_offloaded_optimizer": ("offloaded_optimizer", "stage.log"),
    "mindrlhf_short_row": ("short_row", "stage.log"),
    "mindrlhf_vocabulary": ("vocabulary", "stage.log"),
    "mindrlhf_world_size": ("world_size", "worker_0.log"),
    "mindrlhf_without_index": ("index_json", "worker_0.log"),
    "msprobe": ("msprobe", "worker_0.log"),
    "msrun_alone": ("msrun_ended", "stage.log"),
    "msrun_not_found": ("msrun_missing", "stage.log"),
    "nan": ("nan", "grpo.log"),
    "no_ascend": ("ascend_library", "stage.log"),
    "no_ascend_library": ("ascend_library", "stage.log"),
    "no_einops": ("module", "stage.log"),
    "no_mindformers": ("mindformers_module", "stage.log"),
    "no_mindrlhf": ("mindrlhf_module", "stage.log"),
    "no_mindspeed_rl": ("mindspeed_rl_module", "stage.log"),
    "no_mindspore": ("mindspore_module", "stage.log"),
    "no_peft": ("mindspeed_rl_package", "stage.log"),
    "no_tbe": ("operator_library", "stage.log"),
    "no_vllm": ("vllm", "stage.log"),
    "no_wheel_for_this_python": ("wheel", "stage.log"),
    "no_workers": ("worker_num", "stage.log"),
    "npu_aicore": ("operator_compile", "worker_0.log"),
    "npu_device_busy": ("device_busy", "worker_0.log"),
    "npu_device_memory_on_one_of_four": ("device_memory", "worker_3.log"),
    "npu_driver": ("driver", "worker_0.log"),
    "npu_generation_memory": ("device_memory", "worker_0.log"),
    "npu_hccl_timeout": ("hccl_timeout", "worker_2.log"),
    "npu_rank_table": ("rank_table", "worker_0.log"),
    "numpy_2": ("numpy_2", "stage.log"),
    "numpy_2_abi": ("numpy_2", "stage.log"),
    "one_of_two_failed": (None, "worker_1.log"),
    "one_of_two_killed": ("killed", "worker_1.log"),
    "one_of_two_left": ("msrun_ended", "worker_1.log"),
    "one_of_two_out_of_disk": ("disk_full", "worker_1.log"),
    "one_worker": ("one_worker", "launcher.log"),
    "permission": ("read_only", "stage.log"),
    "port_in_use": ("port", "scheduler.log"),
    "reduce_scatter_on_cpu": ("cpu_operator", "worker_0.log"),
    "rms_norm_on_cpu": ("cpu_operator", "stage.log"),
    "safetensors_0_8": ("safetensors_0_8", "stage.log"),
    "scheduler_not_reached": ("cluster", "stage.log"),
    "segmentation_fault": ("segmentation_fault", "stage.log"),
    "semi_auto_parallel_on_cpu": ("backend", "worker_0.log"),
    "set_env_missing": ("set_env", "stage.log"),
    "shapes_differ": ("shape", "stage.log"),
    "ssh_refused": ("ssh", "stage.log"),
    "ssh_unknown_host": ("name_resolution", "stage.log"),
    "std_bad_alloc": ("host_memory", "stage.log"),
    "terminated": ("terminated", "stage.log"),
    "tokenizer_missing": ("tokenizer", "stage.log"),
    "too_many_files": ("open_files", "stage.log"),
    "transformers_do_not_fit": ("import_name", "stage.log"),
    "truncated_safetensors": ("damaged_weights", "stage.log"),
    "unknown_argument": ("arguments", "stage.log"),
    "unknown_yaml_key": ("yaml_key", "stage.log"),
    "verl_actor_died": ("verl_actor_died", "worker_0.log"),
    "verl_cards": ("verl_cards", "worker_0.log"),
    "verl_ray_memory": ("verl_ray_memory", "worker_0.log"),
    "wrong_address": ("wrong_address", "stage.log"),
    "wrong_type_of_config": ("told", "stage.log"),
}


def restored(case, target):
    """A copy with the times at which the logs were last written, which git does not keep."""
    shutil.copytree(case, target)
    times = target / "last_written.json"
    for name, when in json.loads(times.read_text()).items() if times.exists() else ():
        os.utime(target / name, (when, when))
    return target


@pytest.mark.parametrize("case", sorted((LOGS / "failed").iterdir()), ids=lambda case: case.name)
def test_failures_are_recognised(case, tmp_path):
    failure, log = EXPECTED[case.name]
    result = diagnose(restored(case, tmp_path / "logs"))
    assert result.first is not None
    assert (result.first.failure.name if result.first.failure else None) == failure
    assert result.culprit is not None and result.culprit.name == log
    assert result.known == (failure is not None)


def test_every_entry_of_the_table_has_a_log():
    assert set(EXPECTED) == {case.name for case in (LOGS / "failed").iterdir()}
    assert {name for name, _ in EXPECTED.values()} - {None} == {item.name for item in failures()}


@pytest.mark.parametrize("case", sorted((LOGS / "healthy").iterdir()), ids=lambda case: case.name)
def test_healthy_logs_raise_no_alarm(case):
    result = diagnose(case)
    assert result.logs
    assert result.first is None, result.lines()


def test_of_several_causes_the_earliest_counts(tmp_path):
    for rank, second in ((0, 5), (1, 2), (2, 9)):
        text = f"OSError: [Errno 28] No space left on device\n2026-01-01 10:00:0{second},000 - end\n"
        (tmp_path / f"worker_{rank}.log").write_text(text)
    assert diagnose(tmp_path).culprit == tmp_path / "worker_1.log"


def test_an_unknown_error_is_reported_as_unknown(tmp_path):
    text = "Traceback (most recent call last):\n  File \"x.py\", line 1\nKeyError: 'lr'\n"
    (tmp_path / "stage.log").write_text(f"all well\n{text}")
    result = diagnose(tmp_path)
    assert not result.known and result.first is not None
    assert (result.first.line, result.first.text) == (4, "KeyError: 'lr'")


def test_of_several_attempts_the_newest_is_read(tmp_path):
    for number in (1, 2):
        attempt = tmp_path / f"attempt_{number}"
        attempt.mkdir()
        (attempt / "worker_0.log").write_text("")
        os.utime(attempt, (number, number))
    (tmp_path / "stage.log").write_text("")  # what comes before and after the engine's run
    assert logs_of(tmp_path) == [tmp_path / "attempt_2" / "worker_0.log", tmp_path / "stage.log"]


@pytest.mark.parametrize(
    ("program", "failure"),
    [
        ("import os; os.kill(os.getpid(), 9)", "killed"),
        ("import os; os.kill(os.getpid(), 15)", "terminated"),
        ("import os; os.kill(os.getpid(), 11)", "segmentation_fault"),
        ("import no_such_module", "module"),
        ("open('/dev/full', 'w').write('x' * 9999)", "disk_full"),
    ],
)
def test_ends_that_launch_logs_are_recognised(program, failure, tmp_path):
    with pytest.raises(ProcessFailed):
        child.run([sys.executable, "-c", program], job=f"diagnose-{tmp_path}", log=tmp_path / "stage.log")
    first = diagnose(tmp_path).first
    assert first is not None and first.failure is not None
    assert first.failure.name == failure


def test_the_last_attempt_in_a_log_counts(tmp_path):
    full = "OSError: [Errno 28] No space left on device\n\ngrpoflow: ended with exit code 1\n"
    (tmp_path / "stage.log").write_text(f"{full}loading\n\ngrpoflow: ended by signal 9 (SIGKILL)\n")
    first = diagnose(tmp_path).first
    assert first is not None and first.failure is not None and first.failure.name == "killed"
    (tmp_path / "stage.log").write_text(f"loading\ngrpoflow: ended with exit code 1\n{full}")
    first = diagnose(tmp_path).first
    assert first is not None and (first.failure.name if first.failure else "", first.line) == ("disk_full", 3)


def test_the_end_of_a_log_of_gigabytes_is_read(tmp_path):
    log = tmp_path / "worker_0.log"
    with log.open("wb") as file:
        lines = 0
        while file.tell() < HEAD_BYTES + TAIL_BYTES + 2**20:
            file.write(b"step\n" * 4096)
            lines += 4096
        file.write(b"MemoryError\n")
    first = diagnose(tmp_path).first
    assert first is not None and first.text == "MemoryError"
    assert abs(first.line - (lines + 1)) <= 1  # the cut may lie within a line


def test_every_entry_can_be_shown():
    for failure in failures():
        used = set(re.findall(r"(?<!\{)\{(\w+)\}", failure.cause + failure.remedy))
        assert used <= set(re.compile(failure.pattern).groupindex), failure.name
        assert failure is GRPOFLOW_ERROR or (failure.sign and failure.cause and failure.remedy)
