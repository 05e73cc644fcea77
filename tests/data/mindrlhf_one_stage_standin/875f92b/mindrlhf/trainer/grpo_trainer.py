"""What tells the versions apart; see ../../../README.md."""


class GRPOTrainer:
    def make_experience(self, num_generations=16, rank_id=0):
        raise NotImplementedError
