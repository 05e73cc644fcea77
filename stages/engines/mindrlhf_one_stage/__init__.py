"""The engine mindrlhf_one_stage: mindrlhf's single script of February and March 2025, files and results."""
