rule_verifier_function = {
    "acc": None, "format": None, "step": None, "strict_format": None, "base_acc": None,
}  # fmt: skip
