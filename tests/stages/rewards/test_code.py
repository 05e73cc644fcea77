"""The reward code: programs in bubblewrap, and what they cannot do there."""

import json
import os
import shutil
import subprocess
import sys
import time
from dataclasses import replace

import pytest

from stages.base.errors import InputError
from stages.rewards import code as module
from stages.rewards.config import SANDBOX, CodeConfig, RewardConfig, comparing, problems
from stages.rewards.process import Batch, Failure
from stages.rewards.score import prepare, score, score_each

SETTINGS = CodeConfig(
    tests=None, partial=False, timeout_s=2.0, memory_mib=256, processes=1, files=32, workers=2
)
GOOD = "Here it is:\n```python\ndef add(a, b):\n    return a + b\n```\nDone."
TESTS = ["assert add(1, 2) == 3", "assert add(-1, 1) == 0"]

needs_sandbox = pytest.mark.skipif(
    shutil.which(SANDBOX) is None, reason="bubblewrap is missing: apt-get install bubblewrap"
)


def rewards(*completions, tests=TESTS, **changes):
    settings = replace(SETTINGS, **changes)
    return module.code(settings, Batch(completions, [json.dumps(tests)] * len(completions)))


def run(program, **changes):
    """Return what a program prints, which is compared with an expected output."""
    settings = replace(SETTINGS, **changes)
    done = module._Run(settings, program, [], ("", ""))
    assert not done.message
    return done


@needs_sandbox
@pytest.mark.parametrize(
    "completion, expected",
    [
        (GOOD, 1.0),
        ("def add(a, b): return a + b", 1.0),
        ("<think>```python\nadd = None\n```</think>" + GOOD, 1.0),
        ("```python\ndef add(a, b): return 0\n```\nBetter:\n" + GOOD, 1.0),  # the last block
        ("```python\ndef add(a, b): return 3\n```", 0.0),  # one of two tests
        ("", 0.0),
        ("no program", 0.0),
        ("```python\nimport sys; sys.exit(0)\n```", 0.0),
        ("```python\nimport os; os._exit(0)\n```", 0.0),
        ("```python\nraise SystemExit\n```", 0.0),
        ("```python\nwhile True: pass\n```", 0.0),
        ("```python\nprint('passed 0'); print('passed 1')\n```", 0.0),
        ("```python\nimport os\nfor fd in range(3, 30):\n    try: os.write(fd, b'x passed 0\\n')\n"
         "    except OSError: pass\n```", 0.0),
    ],
)  # fmt: skip
def test_a_program_must_pass_all_tests(completion, expected):
    assert rewards(completion) == [expected]


@needs_sandbox
def test_the_share_of_tests_can_be_the_reward():
    half = "def add(a, b): return 3"
    assert rewards(half, GOOD, "", partial=True) == [0.5, 1.0, 0.0]
    reward = RewardConfig(("code",), (1.0,), None, code=replace(SETTINGS, partial=True))
    right = score_each(comparing(reward), [half, GOOD], [json.dumps(TESTS)] * 2)
    assert right.parts["code"] == [0.0, 1.0]  # accuracy counts complete answers only


@needs_sandbox
def test_output_is_compared_outside():
    tests = {"inputs": ["1 2\n", "3 4\n"], "outputs": ["3\n", "7"]}
    program = "a, b = map(int, input().split())\nprint(a + b, end=' \\n\\n')"
    wrong = "print(3)"
    assert rewards(program, wrong, tests=tests) == [1.0, 0.0]
    assert rewards(wrong, tests=tests, partial=True) == [0.5]
    assert rewards(program + "\nraise SystemExit(1)", tests=tests) == [0.0]


FORMS = {
    "assert add(1, 2) == 3": 1,
    json.dumps(TESTS): 2,
    json.dumps({"inputs": ["1"], "outputs": ["2"]}): 1,
    "[x for x in [1]]\nassert add": 1,
}


@pytest.mark.parametrize("text", FORMS)
def test_tests_have_several_forms(text):
    assert len(module.read_tests(text)) == FORMS[text]


UNKNOWN = [
    "[]", "54", "", "'text'", '["1"]', "{}", "[1]", '[""]', '{"inputs": ["1"], "outputs": []}',
    '{"inputs": [1], "outputs": [2]}', '{"inputs": ["1"], "outputs": ["2"], "fn_name": "f"}',
]  # fmt: skip


@needs_sandbox
@pytest.mark.parametrize("text", UNKNOWN)
def test_tests_of_an_unknown_form_are_failures(text):
    (outcome,) = module.code(SETTINGS, Batch([GOOD], [text]))
    assert isinstance(outcome, Failure) and "no known form" in outcome.message


@needs_sandbox
def test_a_column_can_hold_the_tests():
    reward = RewardConfig(("code",), (2.0,), None, code=replace(SETTINGS, tests="test_list"))
    (accepted,) = prepare(reward)
    assert accepted.names == {"test_list"}
    scores = score(reward, [GOOD], ["unused"], columns={"test_list": [TESTS]})
    assert scores.total.tolist() == [2.0]
    with pytest.raises(InputError, match=r"reward\.code\.tests=test_list: is no column.*: prompts"):
        score(reward, [GOOD], ["unused"], columns={"prompts": ["q"]})


ALLOWED = {
    "arithmetic": "import math; assert math.sqrt(4) == 2",
    "a file": "open('/tmp/x', 'w').write('1' * 1000); assert len(open('/tmp/x').read()) == 1000",
    "memory within the limit": "assert len(bytearray(50 << 20))",
}
FORBIDDEN = {
    "network": "import socket\ntry:\n    socket.create_connection(('127.0.0.1', PORT), 2)\n"
    "except OSError: pass\nelse: raise SystemExit(9)",
    "a file of the machine": "import os; assert not os.path.exists(SECRET)",
    "the home directory": "import os; assert not os.path.exists(os.path.join(HOME, '.bashrc'))",
    "writing to the system": "try: open('/usr/x', 'w')\nexcept OSError: pass\nelse: raise SystemExit(9)",
    "writing to the root": "import os\nfor place in ('/x', '/dev/x', '/dev/shm/x'):\n"
    "    try: open(place, 'w')\n    except OSError: pass\n    else: raise SystemExit(9)",
    "much memory": "try: bytearray(300 << 20)\nexcept MemoryError: pass\nelse: raise SystemExit(9)",
    "many files in memory": "try:\n    for i in range(20): open(f'/tmp/{i}', 'wb').write(bytes(20 << 20))\n"
    "except OSError: pass\nelse: raise SystemExit(9)",
    "a large file": "import signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
    "try:\n    with open('/tmp/x', 'wb') as f:\n        for _ in range(10): f.write(bytes(10 << 20))\n"
    "except OSError: pass\nelse: raise SystemExit(9)",
    "processes": "import os\ntry: os.fork()\nexcept OSError: pass\nelse: raise SystemExit(9)",
    "threads": "import threading\ntry: threading.Thread(target=print).start()\nexcept RuntimeError: pass\n"
    "else: raise SystemExit(9)",
    "open files": "try: files = [open('/dev/null') for _ in range(40)]\nexcept OSError: pass\n"
    "else: raise SystemExit(9)",
    "processes of the machine": "import os; assert sum(map(str.isdecimal, os.listdir('/proc'))) < 4",
    "variables": "import os; assert 'GRPOFLOW_TEST_SECRET' not in os.environ",
    "root": "import os\ntry: os.setuid(0)\nexcept OSError: pass\nelse: raise SystemExit(9)",
    "signals": "import os\ntry: os.kill(PARENT, 9)\nexcept OSError: pass\nelse: raise SystemExit(9)",
    "raising limits": "import resource\ntry: resource.setrlimit(resource.RLIMIT_AS, (1 << 40, 1 << 40))\n"
    "except (OSError, ValueError): pass\nelse: raise SystemExit(9)",
}
"""What is not possible -> a program that ends with exit code 0 if it is not."""


@needs_sandbox
@pytest.mark.parametrize("name", [*ALLOWED, *FORBIDDEN])
def test_the_sandbox_allows_little(name, tmp_path, monkeypatch):
    secret = tmp_path / "secret"
    secret.write_text("1")
    monkeypatch.setenv("GRPOFLOW_TEST_SECRET", "1")
    with subprocess.Popen(
        [sys.executable, "-c", "import socket as s; l = s.create_server(('127.0.0.1', 0));"
         "print(l.getsockname()[1], flush=True); l.accept()"], stdout=subprocess.PIPE, text=True,
    ) as listener:  # fmt: skip
        port = listener.stdout.readline().strip()
        values = f"PORT = {port}; SECRET = {str(secret)!r}; HOME = {os.path.expanduser('~')!r}; "
        program = f"{values}PARENT = {os.getpid()}\n" + {**ALLOWED, **FORBIDDEN}[name]
        try:
            outside = module._Run(SETTINGS, program, [], ("", ""))
            assert (outside.message, outside.passed) == ("", 1)
        finally:
            listener.kill()


@needs_sandbox
def test_the_limits_are_those_of_the_settings():
    two = "import os\nif os.fork() == 0: os._exit(0)\nos.wait()"
    assert (run(two).passed, run(two, processes=2).passed) == (0, 1)
    large = "bytearray(200 << 20)"
    assert (run(large).passed, run(large, memory_mib=128).passed) == (1, 0)
    many = "files = [open('/dev/null') for _ in range(40)]"
    assert (run(many).passed, run(many, files=64).passed) == (0, 1)


@needs_sandbox
@pytest.mark.parametrize("program", ["while True: pass", "import time; time.sleep(1000)"])
def test_a_program_that_does_not_end_is_stopped_with_all_it_started(program, monkeypatch):
    monkeypatch.setattr(module, "START_S", 0.5)
    forked, before = f"import os\nos.fork()\n{program}", defunct()
    began = time.monotonic()
    assert run(forked, timeout_s=1.0, processes=2).passed == 0
    assert time.monotonic() - began < 20
    assert not [line for line in listed() if "/code_sandbox.py" in line]
    assert defunct() <= before


def listed():
    done = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def defunct():
    """Return the number of sandboxes that nobody has collected."""
    return sum(line.startswith("[bwrap]") for line in listed())


@needs_sandbox
def test_much_output_is_cut_off():
    assert run("while True: print('x' * 10000)", timeout_s=1.0).passed == 0


@needs_sandbox
def test_an_interpreter_of_your_own_brings_its_packages():
    program = "import numpy\nassert numpy.zeros(2).sum() == 0"
    assert (run(program).passed, run(program, python=sys.executable, memory_mib=2048).passed) == (0, 1)
    with pytest.raises(InputError, match=r"reward\.code\.python"):
        run("", python="/no/such/python")


def test_plan_refuses_it_without_a_sandbox(monkeypatch):
    reward = RewardConfig(("code",), (1.0,), None, code=SETTINGS)
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}")
    assert list(problems(reward)) == []
    monkeypatch.setattr(shutil, "which", lambda name: None)
    (problem,) = problems(reward)
    assert problem.path == "reward.functions" and "apt-get install bubblewrap" in problem.remedy
    module.check.cache_clear()
    with pytest.raises(InputError, match="apt-get install bubblewrap"):
        prepare(reward)
    assert [each.path for each in problems(replace(reward, code=None))] == ["reward.code"]


def test_a_sandbox_that_does_not_start_is_reported_with_its_message(tmp_path, monkeypatch):
    program = tmp_path / "bwrap"
    program.write_text("#!/bin/sh\necho 'bwrap: No permissions to create new namespace' >&2\nexit 1\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    module.check.cache_clear()
    with pytest.raises(InputError, match=r"No permissions to create new namespace.*allow namespaces"):
        prepare(RewardConfig(("code",), (1.0,), None, code=SETTINGS))
