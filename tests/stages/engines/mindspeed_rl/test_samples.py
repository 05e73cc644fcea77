from stages.engines.mindspeed_rl.samples import SampleReader

TIME = "2026-11-21 15:20:01,000 - INFO - [2026-11-21 15:20:01] INFO"


def lines(pid, question, answer, label):
    """As Ray prints what the scoring process logs: each line with the process before it."""
    calls = ["=" * 50, ">>>>>>>>>> User:\n", question, ">>>>>>>>>> Assistant:\n", answer]
    calls += [">>>>>>>>>> labels", label, "=" * 50]
    text = "\n".join(f"{TIME} {call}" for call in calls)
    return [f"\x1b[36m(RuleReward pid={pid})\x1b[0m {line}" for line in text.split("\n")]


def read(given):
    reader = SampleReader()
    return [found for line in given if (found := reader.read(line)) is not None]


def test_a_sample_is_question_answer_and_label():
    given = lines(7, "system\nWhat is\n\n1 + 1?", "<think>2</think>\n\\boxed{2}", "2")
    assert read(given) == [
        {"prompt": "system\nWhat is\n\n1 + 1?", "completion": "<think>2</think>\n\\boxed{2}", "solution": "2"}
    ]


def test_two_processes_that_talk_at_once_are_kept_apart():
    first, second = lines(7, "a", "b", "c"), lines(8, "d", "e", "f")
    mixed = [line for pair in zip(first, second, strict=True) for line in pair]
    assert [sample["completion"] for sample in read(mixed)] == ["b", "e"]


def test_other_messages_are_no_text():
    given = lines(7, "a", "b", "c")
    given.insert(5, f"(RuleReward pid=7) {TIME} compute_verifier_score: verifier start")
    given.insert(6, "(RuleReward pid=7) of something")
    given += ["(train pid=9) iteration: 1 / 4 | x : 1.0 |", "plain", f"(RuleReward pid=7) {TIME} " + "=" * 50]
    (found,) = read(given)
    assert found["prompt"] == "a"


def test_a_sample_that_begins_in_the_middle_is_left_out():
    assert read(lines(7, "a", "b", "c")[5:]) == []
