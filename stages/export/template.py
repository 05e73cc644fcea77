"""The chat template of an exported model: it turns one question into the prompt of training."""

import json

from stages.tokenize.encode import Encoder

QUESTIONS_ONLY = "this model was trained on bare questions: it knows the roles user and assistant alone"


def chat_template(encoder: Encoder) -> str:
    """Return the Jinja template for transformers.

    A model trained with its own template keeps it. Lines before it add the system prompt to conversations
    without one, tokenize.prompt_suffix to the user's messages, and a default for enable_thinking. A model
    trained on bare questions gets the question and the suffix (after the tokenizer's first tokens); the end
    token follows an answer.

    The ids are training's for each question that contains no special token: training encodes special tokens
    in questions as plain characters, which a template cannot do in transformers.
    """
    if encoder.template is None:
        return _without_template(encoder)
    config, lines = encoder.config, list[str]()
    if config.enable_thinking is not None:
        default = str(config.enable_thinking).lower()
        lines.append(f"set enable_thinking = enable_thinking if enable_thinking is defined else {default}")
    if config.system_prompt or config.prompt_suffix:
        lines.append("set conversation = namespace(messages=[])")
        if config.system_prompt:
            system = f"[{{'role': 'system', 'content': {literal(config.system_prompt)}}}]"
            lines += ["if messages[0].role != 'system'", f"set conversation.messages = {system}", "endif"]
        lines.append("for message in messages")
        if config.prompt_suffix:
            content = f"message.content + {literal(config.prompt_suffix)}"
            lines += ["if message.role == 'user' and message.content is string"]
            lines += [f"set message = dict(message, content={content})", "endif"]
        lines += [
            "set conversation.messages = conversation.messages + [message]",
            "endfor",
            "set messages = conversation.messages",
        ]
    return "".join(f"{{%- {line} %}}\n" for line in lines) + encoder.template.source


def _without_template(encoder: Encoder) -> str:
    name = encoder.tokenizer.id_to_token
    first = "".join(map(name, encoder.first))
    suffix = "" if encoder.compat else encoder.config.prompt_suffix
    lines = [
        "{%- for message in messages %}",
        "{%- if message.role == 'user' %}",
        f"{{{{- message.content{_appended(suffix)} }}}}",
        "{%- elif message.role == 'assistant' %}",
        f"{{{{- message.content{_appended(name(encoder.ids.eos[0]) or '')} }}}}",
        "{%- else %}",
        f"{{{{- raise_exception({literal(QUESTIONS_ONLY)}) }}}}",
        "{%- endif %}",
        "{%- endfor %}",
    ]
    return "\n".join([f"{{{{- {literal(first)} }}}}", *lines] if first else lines)


def _appended(text: str) -> str:
    return f" + {literal(text)}" if text else ""


def literal(text: str) -> str:
    """Quote a Jinja string; JSON's escapes are also Jinja's."""
    return json.dumps(text, ensure_ascii=False)
