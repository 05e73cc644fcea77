"""A trial of user reward functions on a few completions, before the run starts.

It runs in a separate process, like a stage. The functions run in a further one (process.py), which is killed
at the end: threads or processes that they leave behind keep nothing waiting.
"""

from stages.base.context import Context
from stages.base.errors import InputError
from stages.fetch.config import DatasetConfig
from stages.rewards.config import RewardConfig
from stages.rewards.probe import answers, arguments, broken, sample_rows
from stages.rewards.score import check_failures, columns_of, outcomes_of
from stages.tokenize.config import TokenizeConfig
from stages.tokenize.text import ground_truth

ROWS = 4


def run(context: Context) -> None:
    """Score right and wrong answers of the first rows, and empty completions, all together as in a step.

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
    forms = [
        (row, truth, line)
        for row, truth in known
        for line in (*answers(row, truth).values(), broken(row, "0")["wrong"])
    ]
    count = len(forms)
    forms += [(row, truth, "") for row, truth in known]
    lines, truths = [line for *_, line in forms], [truth for _, truth, _ in forms]
    named = arguments([row for row, *_ in forms], tokenize)
    scored = outcomes_of(reward, lines, truths, map(len, lines), named)
    columns = columns_of({name: each.take(slice(count)) for name, each in scored.items()})
    if reward.max_failures is None:
        check_failures(reward, columns, count, "trial answers")
    for name, faults in columns.faults.items():
        if faults == count:
            rule = f"failed for all {faults} trial answers: {columns.messages[name]}"
            is_late = columns.late[name] == faults
            remedy = f"raise reward.timeout_s={reward.timeout_s:g}" if is_late else "correct the function"
            raise InputError("reward.functions", name, rule, remedy)
    empty = columns_of({name: each.take(slice(count, None)) for name, each in scored.items()})
    for name, faults in empty.faults.items():
        if faults:
            context.warn(f"reward {name}: fails for a completion without any text: {empty.messages[name]}")
