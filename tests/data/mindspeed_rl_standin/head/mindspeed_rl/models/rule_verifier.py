rule_verifier_function = {
    "acc": None, "format": None, "step": None, "strict_format": None, "base_acc": None, "math_17k_acc": None,
    "acc_for_dapo": None, "acc_for_ppo": None, "math_verify_reward": None, "retool_reward": None,
}  # fmt: skip
