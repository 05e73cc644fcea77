"""Stage tokenize of engine=mindspeed_rl: training data by its preprocess_data.py, test data by grpoflow.

preprocess_data.py reads rows {"problem", "answer"} with the bare ground truth as answer (its verifiers
compare with all of it), without held-out rows. Unusable rows (no ground truth, or a prompt longer than
tokenize.max_prompt_length) are left out and count against dataset.max_bad_share.
test.mindrecord holds prompts of the same template, so that evaluate and training ask alike.
Source: Ascend/MindSpeed-RL 667a547, cli/preprocess_data.py, mindspeed_rl/datasets/data_handler.py
(R1AlpacaStyleInstructionHandler), templates.py and indexed_dataset.py.
"""

import json
import shutil
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from stages.base.context import Context
from stages.base.errors import ConfigError, InputError, Problem
from stages.base.reader import read
from stages.engines.mindspeed_rl import contract
from stages.engines.mindspeed_rl.files import dataset_config
from stages.engines.mindspeed_rl.job import CONFIG_NAME, engine_of, home_of
from stages.engines.outside import Rendered, dump, make_start, read_start, write_start
from stages.fetch.config import DatasetConfig
from stages.fetch.records import Row
from stages.models.config import ModelConfig
from stages.tokenize.chat import ChatTemplate
from stages.tokenize.config import TokenizeConfig
from stages.tokenize.counts import warnings
from stages.tokenize.encode import Encoder
from stages.tokenize.source import Rows, read_batches, splits
from stages.tokenize.stage import make_encoder, tokenize_user_examples
from stages.tokenize.stream import question_keys, tokenize_file, usable_rows
from stages.tokenize.tally import Tally
from stages.tokenize.text import ground_truth
from stages.tokenizer import special_tokens

PREFIX = "data"
COLUMNS = ("input_ids", "attention_mask", "labels")
_MAGIC = b"MMIDIDX\x00\x00"
_HEAD = struct.Struct("<QBQQ")
"""Version, dtype code, rows, documents."""


def data_files(prefix: Path) -> list[Path]:
    """Return the files that preprocess_data.py writes for an output_prefix."""
    return [
        prefix.with_name(f"{prefix.name}_packed_{column}_document.{suffix}")
        for column in COLUMNS
        for suffix in ("bin", "idx")
    ]


def render(config: Mapping[str, Any], inputs: Mapping[str, Path], work: Path) -> Rendered:
    """Return how to start the program, and the dataset YAML."""
    engine = engine_of(config)
    values = dataset_config(engine, inputs["fetch"], work, work / "out" / PREFIX)
    home = home_of(engine)
    command = (
        Path(home) / contract.PREPROCESS,
        CONFIG_NAME,
        f"--config-path={work / 'configs'}",
        f"hydra.run.dir={work / 'hydra'}",
    )
    start = make_start(engine, command, work, {}, [home], workers=0)
    return Rendered(start, {f"configs/{CONFIG_NAME}.yaml": dump(values)})


def prepare(context: Context) -> None:
    """Write rows and YAML; raises InputError if more rows than dataset.max_bad_share are unusable."""
    config, work = context.config, context.work
    for name in ("out", "run"):  # may hold files of an earlier attempt
        shutil.rmtree(work / name, ignore_errors=True)
        (work / name).mkdir()
    rendered = render(config, context.inputs, work)
    if engine_of(config).mindspeed_rl_home is None:  # run --render: the template is in the checkout
        write_start(work, rendered)
        return
    encoder = encoder_of(context, context.section(DatasetConfig, "dataset"))
    train, _ = splits(context.inputs["fetch_dataset"], encoder.dataset, encoder.columns)
    tally = Tally("train.json")
    rows = list(_usable_rows(encoder, tally, train))
    tally.rows_out, left_out = len(rows), tally.dropped.total()
    tally.check(train.files[0], encoder.dataset.max_bad_share)
    lines = ",\n".join(rows)
    (work / "train.json").write_text(f"[{lines}]\n", encoding="utf-8")
    for warning in warnings({"train": tally.to_json()}):
        context.warn(warning)
    write_start(work, rendered, rows=tally.rows_out, left_out=left_out)
    context.progress(0, tally.rows_out, f"{tally.rows_out} rows, {left_out} left out", "rows")


def _usable_rows(encoder: Encoder, tally: Tally, train: Rows[Row]) -> Iterator[str]:
    """Yield the usable rows as JSON; count the others in `tally`."""
    for file, rows in read_batches(train, lambda row: row.prompt, tally):
        for row in usable_rows(encoder, tally, file, rows):
            answer = ground_truth(row, encoder.dataset, encoder.config)
            yield json.dumps({"problem": row.prompt, "answer": answer}, ensure_ascii=False)


def collect(context: Context) -> None:
    """Check and import what the program wrote; write the test's prompts."""
    record, engine = read_start(context.work), engine_of(context.config)
    files = data_files(context.work / "out" / PREFIX)
    counts = {file.name: sequences(file) for file in files if file.suffix == ".idx"}
    if set(counts.values()) != {record["rows"]}:
        rule = f"must hold the {record['rows']} rows that were given to preprocess_data.py: {counts}"
        raise InputError(files[0].parent, None, rule, "read its log")
    for file in files:
        shutil.copyfile(file, context.output / file.name)
    encoder = encoder_of(context, context.section(DatasetConfig, "dataset"))
    train, test = splits(context.inputs["fetch_dataset"], encoder.dataset, encoder.columns)
    target = context.output / "test.mindrecord"
    cards = tokenize_file(encoder, test, target, training=question_keys(train))
    for warning in warnings(cards):
        context.warn(warning)
    if engine.sft == "mindformers":
        cards |= _write_examples(context, encoder, train)
    result = {
        "files": cards,
        "train": {"rows": record["rows"], "left_out": record["left_out"], "prefix": PREFIX},
        "prompt_type": engine.prompt_type,
    }
    context.write_result(result)


def _write_examples(context: Context, encoder: Encoder, train: Rows[Row]) -> dict[str, Any]:
    """Write sft.mindrecord, on which mindformers trains before everything else."""
    target = context.output / "sft.mindrecord"
    if "sft_data" in context.config:
        return tokenize_user_examples(context, target)
    records = context.work / "train.mindrecord"  # a by-product
    for file in (records, records.with_suffix(".mindrecord.db")):
        file.unlink(missing_ok=True)
    return tokenize_file(encoder, train, records, sft=target)


def sequences(index: Path) -> int:
    """Return the rows of an .idx file of int32 values; raises InputError if it does not fit its .bin."""
    values, begin = index.with_suffix(".bin"), len(_MAGIC) + _HEAD.size
    try:
        data, size = index.read_bytes(), values.stat().st_size
        _, _, rows, documents = _HEAD.unpack_from(data, len(_MAGIC))
        lengths = struct.unpack_from(f"<{rows}i", data, begin)
    except (OSError, struct.error) as error:
        rule = f"must be a readable, complete index ({error})"
        raise InputError(index, None, rule, "read preprocess_data.py's log") from error
    is_complete = data.startswith(_MAGIC) and len(data) == begin + rows * 12 + documents * 8
    if not is_complete or size != 4 * sum(lengths):
        rule = f"must be a complete index of the {size} bytes in {values.name}"
        raise InputError(index, None, rule, "read preprocess_data.py's log")
    return int(rows)


def encoder_of(context: Context, dataset: DatasetConfig) -> Encoder:
    """Return an encoder with the engine's template; raises ConfigError for stop words that are no tokens."""
    engine = engine_of(context.config)
    assert engine.mindspeed_rl_home is not None
    config = read(TokenizeConfig, context.config["tokenize"], "tokenize")
    model = context.section(ModelConfig, "model")
    plain = make_encoder(context.inputs["fetch"], model, dataset, config)
    template = contract.templates(engine.mindspeed_rl_home)[engine.prompt_type]
    for word in template.get("stop_words") or ():
        if plain.tokenizer.token_to_id(word) is None:
            rule = (
                f"its stop word {word} is no token of this model: preprocess_data.py would add it with an "
                "untrained id (utils/tokenizer.py, replace_token_from_template)"
            )
            remedy = "choose a template for this model: qwen_r1"
            raise ConfigError([Problem("engine.prompt_type", engine.prompt_type, rule, remedy)])
    file = Path(engine.mindspeed_rl_home) / contract.TEMPLATES
    chat = ChatTemplate(jinja(template), special_tokens(plain.tokenizer), file)
    return Encoder(plain.tokenizer, plain.ids, dataset, config, chat)


def jinja(template: Mapping[str, Any]) -> str:
    """Return a template of templates.json as a chat template of one question: prefix, system turn, user turn.

    Slots that are not text stand for tokens that Qwen2.5's templates do not use.
    Source: mindspeed_rl/datasets/templates.py: Template._encode.
    """
    system = "".join(template.get("default_system") or "")
    text = _slots(template, "format_prefix", "")
    text += _slots(template, "format_system", system) if system else ""
    before, _, after = _slots(template, "format_user", "{{content}}").partition("{{content}}")
    return f"{{{{ {json.dumps(text + before)} }}}}{{{{ messages[-1].content }}}}{{{{ {json.dumps(after)} }}}}"


def _slots(template: Mapping[str, Any], part: str, content: str) -> str:
    default = ["{{content}}"] if part in ("format_user", "format_system") else []
    slots = (template.get(part) or {}).get("slots", default)
    return "".join(slot for slot in slots if isinstance(slot, str)).replace("{{content}}", content)
