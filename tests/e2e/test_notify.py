from tests.e2e.conftest import CHEAP
from tests.pipeline.test_notify import hook, typed

__all__ = ["hook"]  # a fixture


def test_a_finished_run_is_told_with_its_result(hook, copy):
    done = typed("run", f"store={copy}", *CHEAP, GRPOFLOW_WEBHOOK=hook.url)
    assert done.returncode == 0, done.stderr
    ((_, output),) = hook.heard
    assert output["state"] == "finished" and f"run={output['id']} " in done.stdout
    shown = f"accuracy_grpo={output['result']['accuracy_grpo']:.4f}"
    assert shown in done.stdout and "gain" in output["text"]
