"""The engine mindrlhf_one_stage: a variant of mindrlhf, its single script of March 2025."""
