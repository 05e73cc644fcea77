"""The chat template of an exported model: one question through it is the prompt that training asked with."""

from stages.tokenize.encode import Encoder

QUESTIONS_ONLY = "this model was trained on bare questions: it knows the roles user and assistant alone"


def chat_template(encoder: Encoder) -> str:
    """Jinja text, for transformers and what reads its templates.

    A model that was trained through its own template keeps it, behind lines that add the system turn where
    the conversation has none, tokenize.prompt_suffix to what the user says, and enable_thinking where nobody
    tells it. One that was trained on bare questions gets the question and the suffix alone (behind what the
    tokenizer puts before every text); an answer is followed by the end token.

    Ids are training's for every question that spells no special token: there those are plain characters,
    which no template can ask of transformers.
    """
    if encoder.template is None:
        return _without_template(encoder)
    config, lines = encoder.config, list[str]()
    if config.enable_thinking is not None:
        default = str(config.enable_thinking).lower()
        lines.append(f"set enable_thinking = enable_thinking if enable_thinking is defined else {default}")
    if config.system_prompt or config.prompt_suffix:
        lines.append("set asked = namespace(messages=[])")
        if config.system_prompt:
            system = f"[{{'role': 'system', 'content': {literal(config.system_prompt)}}}]"
            lines += ["if messages[0].role != 'system'", f"set asked.messages = {system}", "endif"]
        lines.append("for message in messages")
        if config.prompt_suffix:
            content = f"message.content + {literal(config.prompt_suffix)}"
            lines += ["if message.role == 'user' and message.content is string"]
            lines += [f"set message = dict(message, content={content})", "endif"]
        lines += [
            "set asked.messages = asked.messages + [message]",
            "endfor",
            "set messages = asked.messages",
        ]
    return "".join(f"{{%- {line} %}}\n" for line in lines) + encoder.template.source


def _without_template(encoder: Encoder) -> str:
    name = encoder.tokenizer.id_to_token
    first = "".join(map(name, encoder.first))
    suffix = "" if encoder.compat else encoder.config.prompt_suffix
    lines = [
        "{%- for message in messages %}",
        "{%- if message.role == 'user' %}",
        f"{{{{- message.content{_plus(suffix)} }}}}",
        "{%- elif message.role == 'assistant' %}",
        f"{{{{- message.content{_plus(name(encoder.ids.eos[0]) or '')} }}}}",
        "{%- else %}",
        f"{{{{- raise_exception({literal(QUESTIONS_ONLY)}) }}}}",
        "{%- endif %}",
        "{%- endfor %}",
    ]
    return "\n".join([f"{{{{- {literal(first)} }}}}", *lines] if first else lines)


def _plus(text: str) -> str:
    return f" + {literal(text)}" if text else ""


def literal(text: str) -> str:
    """Quote a Jinja string, in which Jinja interprets Python's escapes and raw line breaks."""
    for raw, escaped in (("\\", "\\\\"), ('"', '\\"'), ("\n", "\\n"), ("\r", "\\r")):
        text = text.replace(raw, escaped)
    return f'"{text}"'
