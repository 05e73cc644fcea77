def scored(sequences, answers):
    return [1.0 if answer in text else 0.0 for text, answer in zip(sequences, answers, strict=True)]


rule_verifier_function = {
    "acc": scored,
    "format": scored,
    "step": scored,
    "strict_format": scored,
    "base_acc": scored,
    "math_17k_acc": scored,
    "acc_for_dapo": scored,
    "acc_for_ppo": scored,
    "math_verify_reward": scored,
    "retool_reward": scored,
}
NAMES = tuple(rule_verifier_function)
