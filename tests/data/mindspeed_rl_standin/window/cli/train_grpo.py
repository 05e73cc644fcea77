import sys
from pathlib import Path

HOME = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(HOME), str(HOME.parent)]

import hydra  # noqa: E402
import standin_train  # noqa: E402
from mindspeed_rl.config_cls.generate_config import GenerateConfig  # noqa: E402
from mindspeed_rl.config_cls.megatron_config import MegatronConfig  # noqa: E402
from mindspeed_rl.config_cls.rl_config import RLConfig  # noqa: E402
from mindspeed_rl.models.rule_verifier import NAMES  # noqa: E402


@hydra.main(config_path="../configs", config_name="grpo_qwen25_7b_A3", version_base=None)
def main(config):
    standin_train.main(config, HOME, (MegatronConfig, RLConfig, GenerateConfig), NAMES, head=False)


if __name__ == "__main__":
    main()
