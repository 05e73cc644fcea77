"""The engine mindrlhf: GRPO by mindspore-ai/mindrlhf under msrun."""
