"""Pages of a run, of a sweep and of a comparison: content, hostile text, damaged artifacts, size.

Their structure and behaviour in a browser: test_browser.py.
"""

import json
import math
import re
import shutil
from dataclasses import replace

import pytest
from markupsafe import escape
from scipy.stats import norm

from stages.report import compare, sweep
from stages.report.artifacts import Artifacts
from stages.report.config import ReportConfig
from stages.report.details import artifacts, covered_s
from stages.report.gates import GatesConfig
from stages.report.page import Live, Origin, embedded, render
from stages.report.text import moment, neutral
from tests.stages.fetch.settings import write_lines
from tests.stages.report.synthetic import (
    CONFIG,
    SPANS,
    START,
    compared,
    completions,
    make_run,
    metrics,
    role,
    sweep_of,
    with_a_stopped_point,
)

SETTINGS = ReportConfig(language="en", title=None, samples=12, text_limit=1500)
HOSTILE = [
    "<script>alert(1)</script>", "]]><svg onload=alert(1)>", "</pre></article><h1>free</h1>", "<!-- ",
    "\u202egnp.exe", "nul\x00 esc\x1b[31m", '" onmouseover="alert(1)', "&lt;b&gt; &amp;",
    "\ud800 lone", "'><img src=x onerror=alert(1)>", "</style><style>*{display:none}", "שלום \u2066x\u2069",
]  # fmt: skip


def check(source):
    """Check that a page shows no text of HOSTILE as it is, has no address, and is small; return it."""
    assert len(source.encode("utf-8")) < 2_000_000
    forbidden = (*HOSTILE, "http://", "https://", "@import", "\u2066", "\x1b")
    assert not [text for text in forbidden if text in source]
    return source


def shown(text):
    return str(escape(neutral(text)))


def test_a_run_with_all_its_artifacts(run):
    source = check(render(run, SETTINGS))
    for text in ("51.2 %", "74.3 %", "+23.1", "91.4 %", "Tom has 3, 7, 8 and 2 apples"):
        assert text in source, text
    for title in ("Reward", "KL to the reference", "Entropy", "Completion length", "Loss", "Warm-up loss"):
        assert f'aria-label="{title}. ' in source
    assert "could not show" not in source


@pytest.mark.parametrize(
    ("parts", "formula"),
    [({"accuracy": 1.0, "answer_format": 0.0}, True), ({"base_acc": 1.0}, False), ({}, False)],
)
def test_the_formula_of_a_reward_is_told_where_its_parts_are_those_of_the_completions(run, parts, formula):
    """MindSpeed-RL trains with rewards of its own."""
    row = {"step": 1, "prompt": "a", "completion": "b", "reward": 1, "parts": parts}
    write_lines(run["grpo"] / "completions.jsonl", row)
    told = "The reward is 1 × accuracy + 0.2 × answer format." in render(run, SETTINGS)
    assert told is formula


def test_the_table_of_stages_leads_to_their_logs(run):
    logs = {"grpo": "../../.logs/grpo-0/stage.log", "sft": "../../.logs/sft-0/stage.log"}
    origin = Origin("r", "", "grpoflow run", logs)

    def rows(live):
        source = check(render(run, SETTINGS, live, origin=origin))
        table = source[source.index("h-now" if live else 'class="gantt"') :].partition("</table>")[0]
        assert ">Log</th>" in table
        return re.findall(
            r'<th scope="row">(\w+)</th>.*?<td>(?:<a href="([^"]+)"[^>]*>log</a>|–)</td></tr>', table
        )

    assert {stage: log for stage, log in rows(None) if log} == logs and len(rows(None)) == len(SPANS)
    live = Live(
        "Run 1", "running", "", True, ["stage", "state", "took"], [["sft", "done", "1 s"], ["x", "waiting"]]
    )
    assert rows(live) == [("sft", logs["sft"]), ("x", "")]
    assert ">Log</th>" not in render(run, SETTINGS)


@pytest.mark.parametrize(("limit", "decision"), [(0.0, "passed"), (1.0, "failed")])
def test_gates_are_shown_with_their_decision(run, limit, decision):
    gates = GatesConfig(min_accuracy=limit, max_kl=None, min_gain=None)
    table = check(render(run, SETTINGS, gates=gates)).partition('id="gates"')[2].partition("</table>")[0]
    caption, _, row = table.partition("<tbody>")
    assert "gates.min_accuracy" in row and f">{decision}<" in row and "gates.max_kl" not in row
    assert ("is not exported" in caption) == (decision == "failed")
    assert 'id="gates"' not in render(run, SETTINGS)


def test_stages_that_ended_before_the_run_count_as_reused(run):
    fetched = START + SPANS["convert"][1] + 0.05  # all up to convert; the next one ends 0.9 s later
    source = check(render(run, SETTINGS, began=fetched))
    assert "4 stage(s) came from the store" in source and source.count("(reused)") == 4


def header(source):
    return source[source.index("<header>") : source.index("</header>")]


def test_the_date_of_a_report_is_that_of_its_run(run):
    last = START + SPANS["evaluate"][1]
    day = 86_400.0
    assert moment(last) in header(render(run, SETTINGS, began=START))
    later = header(render(run, SETTINGS, began=START + day))  # all stages were reused
    assert moment(START + day) in later and moment(last) not in later and "in stages" not in later
    live = Live("Run 1", "running", "", True, ["stage", "state"], [])
    for began in (START + day, START + SPANS["grpo"][1] + 60):
        shown_there = header(render(run, SETTINGS, live, began=began))
        assert f"started {moment(began)}" in shown_there and moment(last) not in shown_there


def test_time_between_stages_is_not_counted(run):
    for stage, (start, end) in {"grpo": (1000.0, 1010.0), "evaluate": (2000.0, 2020.0)}.items():
        manifest = json.loads((run[stage] / "manifest.json").read_text())
        (run[stage] / "manifest.json").write_text(
            json.dumps(manifest | {"started": START + start, "ended": START + end})
        )
    inputs = {stage: run[stage] for stage in ("split", "grpo", "evaluate")}  # split took 0.7 s
    assert "31 s in stages" in header(render(inputs, SETTINGS))
    assert covered_s([(0, 4), (1, 2), (3, 6), (10, 11)]) == 7 and covered_s([]) == 0


def test_inputs_are_named_by_the_stages_that_made_them(run):
    fingerprints = {}
    for stage in run:
        manifest = json.loads((run[stage] / "manifest.json").read_text())
        fingerprints[stage] = manifest["fingerprint"]
        if stage == "evaluate":
            roles = {"before": "sft", "after": "grpo", "tokenize": "tokenize", "fetch": "fetch"}
            manifest["inputs"] = {role: fingerprints[made] for role, made in roles.items()} | {
                "more": "f" * 64
            }
            (run[stage] / "manifest.json").write_text(json.dumps(manifest))
    made_from = {row["stage"]: row["inputs"] for row in artifacts(Artifacts.load(run))}
    assert made_from["evaluate"] == ["sft", "grpo", "tokenize", "fetch", "more"]
    assert "<td>sft, grpo, tokenize, fetch, more</td>" in check(render(run, SETTINGS))


def test_the_numbers_of_fixed_and_broken_answers_are_those_of_all_prompts_and_of_the_samples(run):
    source = check(render(run, SETTINGS))
    assert "Of all recorded: 7 fixed, 0 broken, 13 both right, 0 both wrong." in source
    assert "held-out prompts:" not in source, "not recorded"
    result = json.loads((run["evaluate"] / "result.json").read_text())
    result["outcomes"] = {"fixed": 250, "broken": 19, "both_right": 493, "both_wrong": 238}
    (run["evaluate"] / "result.json").write_text(json.dumps(result))
    expected = "Of all 1,000 held-out prompts: 250 fixed, 19 broken, 493 both right, 238 both wrong."
    assert expected in check(render(run, SETTINGS))


@pytest.mark.parametrize("present", [(), ("fetch", "strategy"), tuple(SPANS)[:-3], tuple(SPANS)])
def test_unfinished_and_damaged_runs_have_a_page(run, present):
    inputs = {name: run[name] for name in present}
    if "grpo" in inputs:
        write_lines(run["grpo"] / "metrics.jsonl")
        shutil.rmtree(run["tokenize"])
    source = check(render(inputs, SETTINGS))
    assert all(f"{name}: not part of this run." in source for name in SPANS if name not in inputs)


@pytest.mark.parametrize("junk", [b"", b"{", b"[1]", b"[" * 100_000, b'{"step": "x", "prompt": {"a": []}}'])
def test_junk_in_every_file(run, junk):
    for directory in run.values():
        for file in directory.iterdir():
            file.write_bytes(junk)
    check(render(run, SETTINGS))
    loaded = Artifacts.load(run)
    assert junk.endswith(b"}") or loaded.result("evaluate") == {}
    (run["grpo"] / "metrics.jsonl").write_bytes(b'{"step": 1}\n{"step": 2\n\n7\n{"step": 3}\n{"st')
    assert [row["step"] for row in loaded.rows("grpo", "metrics.jsonl")] == [1, 3]
    assert loaded.notes[-1] == "grpo/metrics.jsonl: 3 broken line(s) left out."


def test_a_sweep_begins_with_its_best_point_and_draws_a_shared_training_once():
    inputs = sweep_of(8)
    for row in inputs["metrics"]["grpo/b0"]:
        del row["kl"]
    source = check(sweep.render(**inputs))
    # (7 i mod 8) / 16 is highest for i = 1 (7/16); 6 failed and 7 is invalid.
    for text in ("Best: point 1", "93.8 %", "+53.8", '"../../report/c1/index.html"',
                 ">grpoflow sweep seed=0,1<", ">grpoflow run report.title=run_1<"):  # fmt: skip
        assert text in source, text
    assert source.count('<tr class="best">') == 2, "among the points, and above those set beside it"
    assert "../../report/c6/index.html" not in source, "a report that is not there"
    reward = source[source.index('aria-label="Reward. ') :].split(">")[0]
    assert "0, 1: train.beta=0.00: " in reward and "2, 3: train.beta=0.01: " in reward
    assert reward.count("at step 80; lowest") == 4, "four trainings of eight points, one line each"
    kl = source[source.index("<h3>KL") :].split("</figcaption>")[0]  # a run has one colour in every chart
    second = '<li data-line="1"><i class="swatch k2 d1"></i>2, 3: train.beta=0.01'
    assert "0, 1: " not in kl and second in kl


def test_a_sweep_says_where_points_were_stopped_early_and_how_to_go_on():
    source = check(sweep.render(**with_a_stopped_point(sweep_of(8))))
    row = source[source.index('<section id="without"') :].partition("</section>")[0]
    assert "rung 2, after step 10: accuracy 12.5 %, 50.0 % needed (6 trainings)" in row
    assert "<code>grpoflow run report.title=run_5</code>" in row
    assert "the command in their row trains one to the end" in row and "1 stopped early" in source
    assert source.count(">stopped early</a>") == 1
    assert "stopped early" not in sweep.render(**sweep_of(8))


@pytest.mark.parametrize(
    ("accuracies", "prompts", "close", "lead", "importance"),
    [
        ((0.120, 0.119, 0.118), 1000, 2, True, True), ((0.50, 0.49, 0.30), 1000, 1, True, False),
        ((0.9, 0.5, 0.3), 1000, 0, False, False), ((0.0, 0.0, 0.0), 16, 2, True, False),
        ((0.51, 0.50, 0.49), 100_000, 0, False, False),
    ],
)  # fmt: skip
def test_a_sweep_says_which_differences_are_within_noise(accuracies, prompts, close, lead, importance):
    inputs = sweep_of(3)
    inputs["sweep_points"] = [
        replace(point, state="finished", artifacts={}, result={
            "accuracy_sft": 0.01, "accuracy_grpo": accuracy, "prompts": prompts,
        })
        for point, accuracy in zip(inputs["sweep_points"], accuracies, strict=True)
    ]  # fmt: skip
    source = check(sweep.render(**inputs))
    assert source.count("<td>finished, within noise</td>") == close
    assert ("Its lead is within noise" in source) is lead
    assert ("Their differences are within noise" in source) is importance


AS_HIGH = str(escape("its reward is as high as the best point's: training does not explain it"))


def test_points_are_set_beside_the_best_by_the_end_of_their_training():
    """The ends are means over the last tenth of the steps: of 20 steps, over two."""
    inputs = sweep_of(4)
    for number, name in enumerate(("grpo/b0", "grpo/b1")):
        rewards = [0.0] * 18 + [0.5 + number, 0.7 + number]
        inputs["metrics"][name] = [{"step": step, "reward": each} for step, each in enumerate(rewards)]
    results = ({"accuracy_grpo": 0.9}, {"accuracy_grpo": 0.8}, {"accuracy_grpo": 0.75})
    inputs["sweep_points"] = [
        replace(
            point, state="finished", result={**result, "outcomes": {"fixed": 41 + point.number, "broken": 7}},
            chosen={"train.beta": f"0.{point.number}", "same": "x"},
        )
        for point, result in zip(inputs["sweep_points"], results, strict=False)
    ]  # fmt: skip
    source = check(sweep.render(**inputs))
    table = source[source.index('id="against"') : source.index('id="importance"')]
    rows = [re.sub(r"<[^>]+>", "|", row) for row in table.split("<tbody>")[1].split("</tr>")[:3]]
    texts = [[part.strip() for part in row.split("|") if part.strip()] for row in rows]
    assert texts[0] == ["0", "90.0 %", "best", "0.600", "41", "7"]
    assert texts[1] == ["1", "80.0 %", "−10.0", "train.beta=0.1", AS_HIGH, "0.600", "+0", "42", "7"]
    assert texts[2] == ["2", "75.0 %", "−15.0", "train.beta=0.2", AS_HIGH, "1.60", "+1", "43", "7"]
    heads = re.findall(r"<th scope=\"col\"[^>]*>([^<]+)</th>", table)
    known = ["Point", "Greedy, after", "What differs", "What may explain it", "Reward, last tenth"]
    assert heads == [*known, "fixed", "broken"]
    for point in inputs["sweep_points"]:
        point.result.pop("outcomes", None)
    source = check(sweep.render(**inputs))
    table = source[source.index('id="against"') : source.index('id="importance"')]
    assert re.findall(r"<th scope=\"col\"[^>]*>([^<]+)</th>", table) == known, "columns without a number"
    assert "fixed and broken" not in table


def test_importance_has_only_keys_that_can_influence_the_accuracy():
    def importance(inputs):
        source = check(sweep.render(**inputs))
        return source[source.index('id="importance"') : source.index('id="curves"')]

    inputs = sweep_of(8)
    section = importance(inputs)
    assert '<th scope="row">train.beta</th>' in section and "report.title" not in section
    inputs["sweep_points"] = [
        replace(point, chosen={"report.title": point.chosen["report.title"]})
        for point in inputs["sweep_points"]
    ]
    assert "No key that differs between the points can influence the accuracy" in importance(inputs)


def test_a_sweep_without_results():
    source = check(sweep.render(**{**sweep_of(0), "manifests": {}, "metrics": {}}))
    assert "No point has recorded a GRPO step" in source and "No point has a result yet" in source


def test_a_comparison_has_results_curves_and_differing_values_of_all_runs():
    source = check(compare.render(compared(3)))
    reward = source[source.index('aria-label="Reward. ') :].split(">")[0]
    assert [f"seed={i}: " in reward for i in range(4)] == [True, True, True, False]
    assert "Only one value differs." in source
    results = source[source.index('id="results"') : source.index('id="curves"')]
    assert results.count("40.0 %") == 3, "greedy accuracy before GRPO"
    changed = {**CONFIG, "train": {**CONFIG["train"], "beta": 0.5}, "extra": {"key": True}}
    expected = [["train.beta", "0.01", "0.5"], ["extra.key", "–", "true"]]
    assert compare.differences([CONFIG, changed]) == expected
    assert compare.differences([CONFIG, dict(CONFIG)]) == []


@pytest.mark.parametrize("prompts", [100, 10_000, None])
def test_a_comparison_says_what_is_best_and_which_differences_are_within_noise(prompts):
    accuracies = (0.50, None, 0.66, 0.60)
    runs = [
        replace(run, result={} if share is None else {
            "accuracy_sft": 0.4, "accuracy_grpo": share, "prompts": prompts,
            "pass_at_k": {"k": 8, "sft": 0.7, "grpo": 0.9 - share / 2},
        })
        for run, share in zip(compared(4), accuracies, strict=True)
    ]  # fmt: skip
    source = check(compare.render(runs))
    table = source[source.index('id="results"') : source.index('id="curves"')]
    rows = [re.findall(r'<td class="num"[^>]*>(.*?)</td>', row) for row in table.split("<tr>")[2:]]
    verdicts = [row[3] for row in rows]
    if prompts is None:
        assert verdicts == ["−16.0", "–", "best", "−6.0"]
    else:
        halves = []
        for share in (
            0.50,
            0.60,
        ):  # one success and one failure more each (Agresti and Caffo), two comparisons
            variances = [
                p * (1 - p)
                for p in ((0.66 * prompts + 1) / (prompts + 2), (share * prompts + 1) / (prompts + 2))
            ]
            halves.append(100 * norm.isf(0.025 / 2) * math.sqrt(sum(variances) / (prompts + 2)))
        said = ["lower", "within noise"] if prompts == 100 else ["lower", "lower"]
        assert verdicts == [
            f"−16.0 ± {halves[0]:.1f}: {said[0]}",
            "–",
            "best",
            f"−6.0 ± {halves[1]:.1f}: {said[1]}",
        ]
    stars = [[cell.startswith("<strong>★ ") for cell in row] for row in rows]
    assert [row[0] for row in stars] == [False] * 4, "before GRPO nothing is best"
    assert [row[1] for row in stars] == [row[2] for row in stars] == [False, False, True, False]
    assert [row[4] for row in stars] == [True, False, False, False], "pass@8"
    assert "Agresti and Caffo" in table
    alone = compare.render([replace(runs[0], result=each) for each in (runs[0].result, {})])
    assert "★" not in alone and "Against the best" not in alone


def test_hostile_text_of_sweeps_and_comparisons_is_shown_as_text():
    text = " ".join(HOSTILE)
    for source in (
        sweep.render(**sweep_of(8, value=text, message=text, command=text)),
        compare.render(compared(2, label=text, command=text)),
    ):
        assert check(source).count(shown(text)) >= 2


def test_hostile_text_of_a_run_is_shown_as_text(run):
    texts = [*HOSTILE, "a" * 100_000]
    rows = [dict.fromkeys(("prompt", "solution", "before", "after"), text) for text in texts]
    write_lines(run["evaluate"] / "samples.jsonl", *rows)
    drawn = [{"step": 1, "prompt": text, "completion": text, "parts": {text: 1}} for text in HOSTILE[:3]]
    write_lines(run["grpo"] / "completions.jsonl", *drawn)
    card = {"files": {text[:50]: {"samples": [{text[:50]: text}], text[:50]: text} for text in HOSTILE[:4]}}
    (run["tokenize"] / "result.json").write_text(json.dumps(card))
    for stage, markup in zip(("grpo", "sft", "evaluate", "fetch"), HOSTILE, strict=False):
        text = f"{markup}\u202e\x00\x1b"
        manifest = json.loads((run[stage] / "manifest.json").read_text())
        manifest.update(host=text, git_commit=text, fingerprint=text, seed=text, inputs={text: text})
        manifest["config"][text] = {text: text}
        manifest["files"][text] = {"size": 1}
        manifest["versions"][text] = text
        (run[stage] / "manifest.json").write_text(json.dumps(manifest))
    write_lines(run["grpo"] / "metrics.jsonl", *[{"step": i, f"reward/{HOSTILE[i]}": 1.0} for i in range(3)])
    origin = Origin(HOSTILE[0], HOSTILE[5], HOSTILE[6], {HOSTILE[1]: "../../.logs/grpo-0/stage.log"})
    config = ReportConfig(language="en", title=HOSTILE[0] + "\u202e", samples=20, text_limit=1500)
    source = check(render(run, config, origin=origin))
    assert [text for text in HOSTILE[:4] if source.count(shown(text)) < 4] == [], "in the page"
    carried = [str(embedded(neutral(text)))[1:-1] for text in HOSTILE]
    assert [text for text in carried if source.count(text) < 4] == [], "for the script"
    assert "98,500 characters left out" in source
    assert f"run {shown(HOSTILE[0])} ({shown(HOSTILE[5])})" in source


def test_the_largest_pages_are_smaller_than_two_megabytes(tmp_path):
    roles = {"train": role(8, 8), "generate": role(8, 8), "reference": role(64, 1)}
    run = make_run(tmp_path, {**CONFIG, "layout": {"name": "dp8_mp8_pp1", **roles}})
    functions = {f"reward/{'f' * 50}{i}": i / 7 for i in range(6)}
    write_lines(run["grpo"] / "metrics.jsonl", *[{**row, **functions} for row in metrics(5_000)])
    worst = {name: '"' * 100_000 for name in ("prompt", "solution", "before", "after")}
    write_lines(run["evaluate"] / "samples.jsonl", *[worst] * 20)
    last = [{"step": 99, "completion": '"' * 10_000}] * 8
    write_lines(run["grpo"] / "completions.jsonl", *completions() + last)
    card = {f"f{i}": {"samples": [{f"k{j}": '"' * 9999 for j in range(9)}]} for i in range(20)}
    (run["tokenize"] / "result.json").write_text(json.dumps({"files": card}))
    origin = Origin("r" * 80, '"' * 300, '"' * 100_000, {})
    check(render(run, ReportConfig(language="en", title=None, samples=20, text_limit=3000), origin=origin))
    long = '"' * 5000
    source = check(sweep.render(**sweep_of(1200, steps=50, value=long, message=long)))
    assert "more are in table.csv" not in source and "more are not drawn" in source
    check(compare.render(compared(compare.MAX_RUNS, steps=500, label=long, command=10 * long)))
