import itertools
import json
import re
import shutil

import pytest

from stages.report.config import ReportConfig
from stages.report.page import Origin, render
from stages.report.text import neutral
from tests.stages.report.reading import Page
from tests.stages.report.synthetic import (
    CONFIG,
    SPANS,
    START,
    completions,
    make_run,
    metrics,
    role,
    write_lines,
)

CONFIG_12 = ReportConfig(title=None, samples=12, text_limit=1500)
HOSTILE = [
    "<script>alert(1)</script>", "]]><svg onload=alert(1)>", "</pre></article><h1>free</h1>", "<!-- ",
    "{{ 7 * 7 }}", "\u202egnp.exe", "nul\x00 esc\x1b[31m", '" onmouseover="alert(1)', "&lt;b&gt; &amp;",
    "\ud800 lone", "a" * 100_000,
    "'><img src=x onerror=alert(1)>", "</style><style>*{display:none}", "שלום \u2066x\u2069",
]  # fmt: skip


def check(source, scripts=0):
    """Check that a page is safe, self-contained, well-formed, accessible and small; return it parsed.

    Scripts of type text/plain are rows of a table. Links may point to the page itself, CSV data and reports.
    """
    assert len(source.encode("utf-8")) < 2_000_000
    page = Page(source)
    assert page.unbalanced == []
    tags = [tag for tag, _ in page.elements]
    types = [attrs.get("type") for tag, attrs in page.elements if tag == "script"]
    assert types.count(None) == scripts and set(types) <= {None, "text/plain"}
    assert not {"iframe", "object", "embed", "base", "form"} & set(tags)
    assert all(re.fullmatch(r"data:image/svg\+xml;base64,[\w+/=]+", src) for src in page.attributes("src"))
    assert not page.attributes("srcset")
    assert tags.count("h1") == 1 and tags.count("style") == 1 and tags.count("main") == 1
    assert not [name for _, attrs in page.elements for name in attrs if name.startswith("on")]
    ids = page.attributes("id")
    assert len(ids) == len(set(ids))
    for link in page.attributes("href"):
        assert (
            link in ("data:,", "table.csv")
            or re.fullmatch(r"(\.\./)+\.logs/[\w/-]+\.log", link)
            or re.fullmatch(r"data:text/csv;charset=utf-8,[\w%.,:-]+", link)
            or link[1:] in ids
            or re.fullmatch(r"\.\./\.\./report/\w+/index\.html", link)
        )
    assert "http://" not in source and "https://" not in source and "@import" not in source
    for tag, attrs in page.elements:
        if tag == "svg":
            assert attrs["role"] == "img" and attrs["aria-label"]
        if tag == "img":
            assert attrs["src"] and attrs["alt"]
    assert tags.count("table") == tags.count("caption")
    levels = [int(tag[1]) for tag in tags if tag in ("h1", "h2", "h3", "h4")]
    assert all(b <= a + 1 for a, b in itertools.pairwise(levels)), "a heading level is skipped"
    return page


def test_a_complete_run(run):
    page = check(render(run, CONFIG_12))
    labels = page.attributes("alt")
    for title in ("Reward", "KL to the reference", "Entropy", "Completion length", "Loss", "Warm-up loss"):
        assert any(label.startswith(f"{title}. ") for label in labels), title
    for text in ("tiny · arith · dp1_mp2_pp1", "51.2 %", "74.3 %", "+23.1", "91.4 %", "2.7.0",
                 "workstation", "epsilon_high", "07c0ffee07c0ffee",
                 "Tom has 3, 7, 8 and 2 apples", "3 min 29 s", "1.25 GiB",
                 "prompt_ids 31 / 38 / 44"):  # fmt: skip
        assert text in page.text, text
    assert "could not show" not in page.text
    assert "reward 0.200 · accuracy 0 · answer format 1" in page.text  # of the first sample, before
    assert "reward 1.20 · accuracy 1 · answer format 1" in page.text


def test_hostile_text_is_shown_as_text(run):
    rows = [dict.fromkeys(("prompt", "solution", "before", "after"), text) for text in HOSTILE]
    write_lines(run["evaluate"] / "samples.jsonl", rows)
    drawn = [{"step": 1, "prompt": text, "completion": text, "parts": {text: 1}} for text in HOSTILE[:3]]
    write_lines(run["grpo"] / "completions.jsonl", drawn)
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
    write_lines(run["grpo"] / "metrics.jsonl", [{"step": i, f"reward/{HOSTILE[i]}": 1.0} for i in range(3)])
    origin = Origin(HOSTILE[0], HOSTILE[6], HOSTILE[7], {HOSTILE[1]: "../../.logs/grpo-0/stage.log"})
    config = ReportConfig(title=HOSTILE[0] + "\u202e", samples=20, text_limit=1500)
    page = check(render(run, config, origin=origin))
    shown = "\n".join(page.pres)
    for text in HOSTILE:
        if len(text) < 1500:
            assert page.pres.count(neutral(text)) >= 4, text
    assert "98,500 characters left out" in shown
    for character in ("\u202e", "\x00", "\x1b", "\u2066"):
        assert character not in page.source
    assert page.text.count(f"run {HOSTILE[0]} ({neutral(HOSTILE[6])})") == 1 and HOSTILE[7] in page.pres
    assert page.elements[0][0] == "html" and HOSTILE[0] in page.text


@pytest.mark.parametrize("junk", [b"", b"{}", b"[]", b'{"step": "x", "prompt": {"a": []}}'])
def test_junk_in_every_file(run, junk):
    for directory in run.values():
        for file in directory.iterdir():
            file.write_bytes(junk)
    check(render(run, CONFIG_12))


def test_the_largest_page_is_smaller_than_two_megabytes(tmp_path):
    layout = {"name": "dp8_mp8_pp1", "train": role(8, 8), "generate": role(8, 8), "reference": role(64, 1)}
    run = make_run(tmp_path, {**CONFIG, "layout": layout})
    functions = {f"reward/{'f' * 50}{i}": i / 7 for i in range(6)}
    write_lines(run["grpo"] / "metrics.jsonl", [{**row, **functions} for row in metrics(5_000)])
    write_lines(
        run["sft"] / "metrics.jsonl", [{"step": i, "loss": i % 7, "accuracy_check": 0.1} for i in range(9000)]
    )
    worst = {name: '"' * 100_000 for name in ("prompt", "solution", "before", "after")}
    write_lines(run["evaluate"] / "samples.jsonl", [worst] * 20)
    write_lines(
        run["grpo"] / "completions.jsonl", completions() + [{"step": 99, "completion": '"' * 10_000}] * 8
    )
    card = {f"f{i}": {"samples": [{f"k{j}": '"' * 9999 for j in range(9)}]} for i in range(20)}
    (run["tokenize"] / "result.json").write_text(json.dumps({"files": card}))
    origin = Origin("r" * 80, '"' * 300, '"' * 100_000, {})
    check(render(run, ReportConfig(title=None, samples=20, text_limit=3000), origin=origin))


def test_stages_that_ended_before_the_run_count_as_reused(run):
    fetched = START + SPANS["convert"][1] + 0.05  # all up to convert; the next one ends 0.9 s later
    page = check(render(run, CONFIG_12, began=fetched))
    assert "4 stage(s) came from the store" in page.text and page.text.count("(reused)") == 4
    nothing = check(render(run, CONFIG_12, began=START + 1e6)).text
    assert "10 stage(s) came from the store" in nothing and "from first to last stage" not in nothing


@pytest.mark.parametrize("present", [(), ("fetch", "strategy"), tuple(SPANS)[:-3], tuple(SPANS)])
def test_unfinished_and_damaged_runs_have_a_page(run, present):
    inputs = {name: run[name] for name in present}
    if "grpo" in inputs:
        write_lines(run["grpo"] / "metrics.jsonl", [])
        shutil.rmtree(run["tokenize"])
    page = check(render(inputs, CONFIG_12))
    absent = [f"{name}: not part of this run." for name in SPANS if name not in inputs]
    assert all(note in page.text for note in absent)
