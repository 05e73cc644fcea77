import sys
from pathlib import Path

HOME = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(HOME), str(HOME.parent)]

import hydra  # noqa: E402
from standin_data import preprocess  # noqa: E402

NAME = sys.argv.pop(1)


@hydra.main(config_path="../configs/datasets", config_name=NAME)
def main(config):
    preprocess(config, HOME, head=True)


if __name__ == "__main__":
    main()
