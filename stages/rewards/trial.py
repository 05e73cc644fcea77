"""A trial of user reward functions on a few completions, before the run starts.

It runs in a separate process, like a stage, because user code may do anything.
"""

from stages.base.context import Context
from stages.base.errors import InputError
from stages.fetch.config import DatasetConfig
from stages.rewards.config import RewardConfig
from stages.rewards.probe import answers, broken, sample_rows
from stages.rewards.score import check_failures, score_each
from stages.tokenize.config import TokenizeConfig
from stages.tokenize.text import ground_truth

ROWS = 4


def run(context: Context) -> None:
    """Score right and wrong answers of the first rows, and empty completions.

    Raise InputError if a function can't be imported, or fails for more than a tenth of the answers (with
    reward.max_failures set: for all of them).
    """
    dataset, tokenize = context.section(DatasetConfig, "dataset"), context.section(TokenizeConfig, "tokenize")
    reward = context.section(RewardConfig, "reward")
    fetched = context.inputs.get("fetch_dataset")
    rows = sample_rows(dataset, tokenize, context.seed, fetched, ROWS)
    known = [(row, truth) for row in rows if (truth := ground_truth(row, dataset, tokenize))]
    if not known:
        raise InputError("dataset.solution", dataset.solution, "gives none of the first rows a ground truth")
    forms = [(truth, (*answers(row, truth).values(), broken(row, "0")["wrong"])) for row, truth in known]
    lines = [line for _, each in forms for line in each]
    truths = [truth for truth, each in forms for _ in each]
    columns = score_each(reward, lines, truths, map(len, lines))
    if reward.max_failures is None:
        check_failures(reward, columns, len(lines), "trial answers")
    for name, faults in columns.faults.items():
        if faults == len(lines):
            rule = f"failed for all {faults} trial answers: {columns.messages[name]}"
            raise InputError("reward.functions", name, rule, "correct the function")
    empty = score_each(reward, [""] * len(known), [truth for _, truth in known], [0] * len(known))
    for name, faults in empty.faults.items():
        if faults:
            context.warn(f"reward {name}: fails for a completion without any text: {empty.messages[name]}")
