"""The engine areal: GRPO by AReaL, which generates and trains on separate cards."""
