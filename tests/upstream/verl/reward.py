"""A reward that a random model's completions differ in."""


def compute_score(data_source, solution_str, ground_truth, extra_info=None, **kwargs):
    """Return the share of digits."""
    return sum(character.isdigit() for character in solution_str) / max(1, len(solution_str))
