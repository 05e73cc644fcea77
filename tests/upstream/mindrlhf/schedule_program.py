"""mindrlhf's learning rates: `python schedule_program.py UTILS < REQUEST.json`.

Runs in the engine's interpreter, without grpoflow. UTILS is mindrlhf/utils/utils.py, of which the class
LearningRate alone is executed: the rest of the file needs a card.
"""

import ast
import json
import sys
from pathlib import Path

import mindspore as ms
import numpy as np
from mindspore import Tensor, ops
from mindspore.common import dtype as mstype
from mindspore.nn.learning_rate_schedule import (
    CosineDecayLR,
    LearningRateSchedule,
    PolynomialDecayLR,
    WarmUpLR,
)


def main(utils: Path) -> None:
    """Print the rate of each update as a JSON list."""
    request = json.load(sys.stdin)
    tree = ast.parse(utils.read_text(encoding="utf-8"))
    body = [node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "LearningRate"]
    names = {
        "CosineDecayLR": CosineDecayLR, "LearningRateSchedule": LearningRateSchedule, "P": ops,
        "Tensor": Tensor,
        "PolynomialDecayLR": PolynomialDecayLR, "WarmUpLR": WarmUpLR, "np": np, "mstype": mstype,
        "__name__": "utils",
    }  # fmt: skip
    exec(compile(ast.Module(body, []), str(utils), "exec"), names)
    ms.set_context(mode=ms.PYNATIVE_MODE)
    schedule = request["lr_schedule"]
    rate = names["LearningRate"](  # as mindrlhf/worker/train_worker.py makes it
        learning_rate=schedule["lr"], end_learning_rate=schedule["min_lr"],
        warmup_steps=schedule["warmup_step"], decay_steps=schedule["decay_steps"],
        use_cosine=schedule["lr_decay_style"] == "cosine",
    )  # fmt: skip
    rates = [rate(Tensor(update, mstype.int32)) for update in range(request["updates"])]
    print(json.dumps([float(np.asarray(value.asnumpy()).reshape(-1)[0]) for value in rates]))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
