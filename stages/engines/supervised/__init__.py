"""engine=supervised: no GRPO; supervised training by mindformers is the whole run."""
