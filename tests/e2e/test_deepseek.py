"""DeepSeek-V3 from fetch to export: what is exported are the trained weights, bit for bit."""

from pipeline.run.run import prepare_plan
from stages.weights.convert import convert_directory
from tests.e2e.deepseek import trained
from tests.stages.weights.checkpoints import assert_same, read_directory
from tests.upstream.verl.product import grpoflow


def test_ranks_with_experts_are_exported_bit_for_bit(tmp_path):
    run = trained(tmp_path)
    done = grpoflow(tmp_path, "run", "--until", "export", *run)
    assert done.returncode == 0, done.stdout[-1000:] + done.stderr[-3000:]
    planned, store = prepare_plan(run)
    fetched, exported = (store.path(planned.spec(stage).key) for stage in ("fetch", "export"))
    assert read_directory(fetched).keys() == read_directory(exported).keys()
    convert_directory(exported, tmp_path / "again", False, None)
    assert_same(read_directory(tmp_path / "again"), read_directory(tmp_path / "trained"))
