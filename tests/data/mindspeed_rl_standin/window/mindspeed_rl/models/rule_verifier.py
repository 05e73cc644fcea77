def scored(sequences, answers):
    return [1.0 if answer in text else 0.0 for text, answer in zip(sequences, answers, strict=True)]


rule_verifier_function = {
    "acc": scored,
    "format": scored,
    "step": scored,
    "strict_format": scored,
    "base_acc": scored,
}
NAMES = tuple(rule_verifier_function)
