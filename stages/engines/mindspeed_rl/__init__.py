"""GRPO by Ascend/MindSpeed-RL on Ray, with its MindSpore back end."""
