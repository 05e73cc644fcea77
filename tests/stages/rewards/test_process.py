"""Calls of users' functions in a process of their own: what they get, together and within limits."""

import os
import time

import psutil
import pytest

from stages.base.errors import InputError
from stages.rewards import process
from stages.rewards.config import RewardConfig
from stages.rewards.score import check_failures, prepare, score_each
from tests.processes import wait_until

TEXTS = [str(number) for number in range(8)]
COLUMNS = {
    "prompts": [f"p{text}" for text in TEXTS],
    "level": list(range(8)),
    "tests": [[text] for text in TEXTS],
}


def scored(*functions, texts=TEXTS, columns=COLUMNS, timeout_s=60.0):
    names = tuple(f"my_rewards:{name}" for name in functions)
    config = RewardConfig(names, (1.0,) * len(names), None, timeout_s=timeout_s)
    result = score_each(config, texts, [f"s{text}" for text in texts], columns=columns)
    return result if len(names) > 1 else (result.parts[names[0]], result)


NOTE = "def f(c, s):\n    open('{}/calls', 'a').write('.')\n"


def test_a_function_is_called_once_with_all_completions(users, tmp_path):
    users(f"{NOTE.format(tmp_path)}    return [float(len(c))] * len(c)")
    assert scored("f")[0] == [8.0] * 8
    assert (tmp_path / "calls").read_text() == "."


SIGNATURES = {
    "c, s": "",
    "completions, solutions": "",
    "completions, truths": "",
    "completions, solutions, prompts": "prompts",
    "c, s, *, level": "level",
    "c, s, level, tests=None, other=3": "level tests",
    "c, s, **columns": "level prompts tests",
    "completions, solutions, **columns": "level prompts tests",
    "prompts, completions, solutions, **kwargs": "level prompts tests",
    "completions, **kwargs": "level prompts solutions tests",
    "*both, **columns": "level prompts tests",
}
"""Parameters -> the columns that a function gets."""


@pytest.mark.parametrize("parameters", SIGNATURES)
def test_a_function_gets_the_columns_that_it_accepts(users, parameters):
    users(
        f"""
def f({parameters}):
    given = locals()
    for name in ("columns", "kwargs"):
        given |= given.pop(name, {{}})
    texts = given.pop("both")[0] if "both" in given else given.pop("c", None) or given.pop("completions")
    truths = given.pop("s", None) or given.pop("truths", None) or given.get("solutions")
    assert texts == {TEXTS} and truths in (None, ["s" + text for text in texts]), (texts, truths)
    columns = {COLUMNS}
    named = {{name: value for name, value in given.items() if name in columns and value is not None}}
    assert all(columns[name] == value for name, value in named.items())
    if "s" not in given and "{parameters}".startswith("completions, **"):
        named["solutions"] = truths
    assert sorted(named) == {sorted(SIGNATURES[parameters].split())}, named
    return [1.0] * len(texts)
"""
    )
    values, result = scored("f")
    assert values == [1.0] * 8, result.messages


def test_a_parameter_without_a_column_is_refused_by_name(users):
    users("def f(c, s, unit_tests): return [1.0] * len(c)")
    with pytest.raises(InputError, match=r"my_rewards:f.*unit_tests.*prompts, level, tests"):
        scored("f")


def test_asynchronous_functions_run_together(users):
    """Each waits for the other."""
    users(
        """
import asyncio
here = {name: asyncio.Event() for name in "ab"}

async def meet(mine, other, values):
    here[mine].set()
    await asyncio.wait_for(here[other].wait(), 20)
    return values

async def a(c, s): return await meet("a", "b", [1.0] * len(c))
async def b(c, s): return await meet("b", "a", [2.0] * len(c))
def f(c, s): return [3.0] * len(c)
"""
    )
    assert [*scored("a", "f", "b").parts.values()] == [[1.0] * 8, [3.0] * 8, [2.0] * 8]


def test_none_is_a_failure(users):
    users("def f(c, s): return [None if text == '3' else 2.0 for text in c]")
    values, result = scored("f")
    assert values == [2.0, 2.0, 2.0, 0.0, 2.0, 2.0, 2.0, 2.0]
    assert result.faults == {"my_rewards:f": 1} and "None" in result.messages["my_rewards:f"]


STUCK = {
    "sleeps": "time.sleep(600)",
    "cancels alarms": "signal.alarm(0); signal.signal(signal.SIGALRM, signal.SIG_IGN); time.sleep(600)",
    "swallows errors": "stuck()",
    "blocks signals": "signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals()); time.sleep(600)",
    "keeps the interpreter": "ctypes.PyDLL(None).sleep(600)",
}
RANKS = """
import ctypes, signal, time

def stuck():
    while True:
        try:
            time.sleep(600)
        except BaseException:
            pass

def ranks(c, s):
    if "3" in c:
        {}
    return [float(sorted(c).index(text)) for text in c]
"""


@pytest.mark.parametrize("way", STUCK)
def test_what_hangs_is_ended_at_its_limit_and_found(users, way):
    """The other completions are scored together, not one by one: each alone has rank 0."""
    users(RANKS.format(STUCK[way]))
    began = time.monotonic()
    values, result = scored("ranks", timeout_s=1.0)
    assert time.monotonic() - began < 20
    assert values == [0.0, 1.0, 2.0, 0.0, 3.0, 4.0, 5.0, 6.0]
    assert result.faults == result.late == {"my_rewards:ranks": 1} and result.single == {}
    assert scored("ranks", texts=["a", "b"], columns={})[0] == [0.0, 1.0]


def test_a_function_that_never_answers_costs_three_calls(users, tmp_path):
    users(f"import time\n{NOTE.format(tmp_path)}    time.sleep(600)")
    _, result = scored("f", timeout_s=0.5)
    assert (tmp_path / "calls").read_text() == "." * (1 + process.HOPELESS)
    config = RewardConfig(("my_rewards:f",), (1.0,), None, timeout_s=0.5)
    with pytest.raises(InputError, match=r"raise reward\.timeout_s") as caught:
        check_failures(config, result, 8, "completions")
    assert "max_failures" not in str(caught.value)


def test_scoring_one_by_one_has_a_limit(users):
    users("import time\ndef f(c, s):\n    time.sleep(0.4 * len(c))\n    return [1.0] * len(c)")
    texts = [str(number) for number in range(40)]
    began = time.monotonic()
    values, result = scored("f", texts=texts, columns={}, timeout_s=1.0)
    assert time.monotonic() - began < 2 + 1.0 * (1 + process.SINGLE_CALLS) + 1.0 + 4
    assert 1 <= sum(values) <= process.SINGLE_CALLS / 0.4
    assert result.faults["my_rewards:f"] == 40 - sum(values) == result.late["my_rewards:f"]


def test_values_of_single_calls_are_marked(users):
    users("def f(c, s): return [1.0 / (len(c) == 1)]")
    values, result = scored("f")
    assert values == [1.0] * 8 and result.faults == {"my_rewards:f": 0}
    assert result.single["my_rewards:f"].startswith("ZeroDivisionError")


@pytest.mark.parametrize("end", ["os._exit(3)", "os.kill(os.getpid(), 11)"])
def test_a_function_that_ends_its_process_fails_for_that_completion(users, end):
    users(f"import os\ndef f(c, s):\n    if '3' in c: {end}\n    return [float(len(c))] * len(c)")
    values, result = scored("f")
    assert values == [7.0, 7.0, 7.0, 0.0, 7.0, 7.0, 7.0, 7.0]
    assert result.messages["my_rewards:f"].startswith("ended its process") and result.late == {
        "my_rewards:f": 0
    }


def test_the_process_lives_as_long_as_no_limit_is_exceeded(users):
    users(
        "import os\ncalls = []\n"
        "def f(c, s):\n    calls.append(c)\n    return [float(len(calls)), os.getpid()]"
    )
    (first, pid), _ = scored("f", texts=["a", "b"], columns={})
    (second, same), _ = scored("f", texts=["a", "b"], columns={})
    assert (first, second, same) == (1.0, 2.0, pid) and pid != os.getpid()
    process.PROCESS.close()
    assert not psutil.pid_exists(int(pid))


def test_what_functions_leave_behind_ends_with_the_process(users):
    users(
        """
import subprocess, threading, time
threading.Thread(target=time.sleep, args=(600,)).start()

def f(c, s):
    return [float(subprocess.Popen(["sleep", "600"]).pid)]
"""
    )
    ((pid,), _) = scored("f", texts=["a"], columns={})
    assert psutil.pid_exists(int(pid))
    process.PROCESS.close()
    wait_until(lambda: not psutil.pid_exists(int(pid)) or psutil.Process(int(pid)).status() == "zombie")


def test_what_functions_print_reaches_the_log(users, capfd):
    users(
        "import sys\ndef f(c, s):\n    print('to stdout')\n"
        "    print('to stderr', file=sys.stderr)\n    return [0.0]"
    )
    scored("f", texts=["a"], columns={})
    out, err = capfd.readouterr()
    assert out == "" and "to stdout" in err and "to stderr" in err


def test_functions_are_imported_before_they_are_called(users):
    users("import nothing_of_this_name")
    with pytest.raises(InputError, match="can't be imported: ModuleNotFoundError"):
        prepare(RewardConfig(("my_rewards:f",), (1.0,), None))
    assert prepare(RewardConfig(("accuracy",), (1.0,), None)) == []
    parameters = {"f": "completions, solutions", "g": "c, s, prompts, *, level=0", "h": "c, s, **columns"}
    users("".join(f"def {name}({each}): pass\n" for name, each in parameters.items()))
    config = RewardConfig(tuple(f"my_rewards:{name}" for name in "fgh"), (1.0,) * 3, None)
    assert [each.names for each in prepare(config)] == [frozenset(), {"prompts", "level"}, None]
