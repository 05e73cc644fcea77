"""A small chat template with functions, in the manner of Qwen2.5's; used with and without verl."""

TEMPLATE = (
    "{%- if tools %}{{- '<|im_start|>system\\n' }}{% for tool in tools %}{{- tool | tojson }}{% endfor %}"
    "{{- '<|im_end|>\\n' }}{% endif %}"
    "{%- for message in messages %}{{- '<|im_start|>' + message.role + '\\n' }}"
    "{%- if message.role == 'tool' %}{{- '<tool_response>' + message.content + '</tool_response>' }}"
    "{%- else %}{{- message.content }}{% endif %}"
    "{%- for call in message.tool_calls or [] %}{%- set call = call.function %}"
    "{{- '<tool_call>{\"name\": \"' + call.name + '\", \"arguments\": ' + (call.arguments | tojson) + '}' }}"
    "{{- '</tool_call>' }}{% endfor %}{{- '<|im_end|>\\n' }}{% endfor %}"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{% endif %}"
)
