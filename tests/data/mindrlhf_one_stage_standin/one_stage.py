"""Work of the stand-in; see README.md. Needs mindspore and pyyaml."""

import os
import sys
import time
from pathlib import Path

import yaml

sys.path.insert(0, str(Path(__file__).parents[1] / "mindrlhf_standin"))

from standin import PREFIX, STEP, count_rows, misbehave

MODEL = {"run_mode", "use_parallel", "model", "parallel_config"}
TRAIN, INFER = MODEL | {"recompute_config"}, MODEL | {"seed", "parallel", "context"}


def run(arguments, config):
    """Worker or scheduler, as msrun started it."""
    if os.environ.get("MS_ROLE") == "MS_SCHED":
        return
    rank, cards = int(os.environ["RANK_ID"]), int(os.environ["MS_WORKER_NUM"])
    assert (arguments.use_parallel, arguments.enable_compile_cache) == ("True", "False"), arguments
    for path in (arguments.vocab_path, arguments.merges_file_path):
        assert Path(path).is_file(), path
    infer, train = (
        yaml.safe_load(Path(path).read_text(encoding="utf-8"))
        for path in (arguments.sft_path_infer, arguments.sft_path_train)
    )
    assert infer.keys() <= INFER and train.keys() <= TRAIN, (infer.keys(), train.keys())
    degrees = {}
    for role, values in (("infer", infer), ("train", train)):
        layout = degrees[role] = values["parallel_config"]
        assert layout["data_parallel"] * layout["model_parallel"] * layout["pipeline_stage"] == cards
    assert degrees["infer"]["pipeline_stage"] == 1
    lengths = infer["model"]["model_config"]
    assert lengths["seq_length"] == train["model"]["model_config"]["seq_length"]
    load(Path(arguments.load_sft_checkpoint_infer), rank)
    load(Path(arguments.load_ref_checkpoint), rank)
    weights = load(Path(arguments.load_sft_checkpoint_train), rank)

    rows = count_rows(arguments.mind_dataset_dir)
    batch = config.chunk_size * degrees["infer"]["data_parallel"]
    samples = batch * config.num_generations * config.num_rollouts
    piped = degrees["train"]["pipeline_stage"] > 1
    micro = degrees["train"]["micro_batch_num"] if piped else 1
    update = config.batch_size * degrees["train"]["data_parallel"] * micro
    assert samples % update == 0 and samples // update % config.sink_size == 0
    assert arguments.pre_store_data == update
    experience(0.99)  # on trial
    done = 0
    for epoch in range(config.epochs):
        for step in range(rows // config.num_rollouts):
            misbehave(done, rank)
            print(f"--------- epoch:{epoch} step:{step} ---------")
            done += 1
            experience(done / 128)
            for number in range(samples // update):
                print(f"steps {number + 1}, end at 10:00:00, elapsed time 0.5 s\n{'-' * 31} ")
                rate = f"lr: [{config.start_lr * done}] | is overflow: False | loss scale: 4096.0"
                print(f" loss: {1.0 / done + rank} | {rate}", flush=True)
            print("train over")
            weights = {name: value + value.dtype.type(STEP) for name, value in weights.items()}
            time.sleep(0.01)
    save(weights, Path(arguments.save_ckpt_dir) / "train" / f"rank_{rank}", config.epochs)
    print("save checkpoint done!")


def experience(score):
    print("Make experience begin at 10:00:00 \n------------------------------- ", flush=True)
    print("all_elements_compeltion_len mean: 20.5")
    print("Avg scores: ", score, flush=True)
    print("Make experience, end at 10:00:00, elapsed time 1.5 s------------------------------- ", flush=True)
    print("generate over")


def load(directory, rank):
    """Load the newest .ckpt of the rank's directory, like mindformers' load_distributed_checkpoint."""
    import mindspore

    (file,) = (directory / f"rank_{rank}").glob("*.ckpt")
    return {name: value.asnumpy() for name, value in mindspore.load_checkpoint(str(file)).items()}


def save(weights, directory, epochs):
    import mindspore

    directory.mkdir(parents=True)
    listed = [{"name": PREFIX + name, "data": mindspore.Tensor(value)} for name, value in weights.items()]
    mindspore.save_checkpoint(
        listed, str(directory / f"policy_model_epoch_{epochs}.ckpt"), integrated_save=False
    )
