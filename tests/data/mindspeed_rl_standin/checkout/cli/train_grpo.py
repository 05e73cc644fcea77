import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).absolute().parents[2]))

from standin_train import start

if __name__ == "__main__":
    start(Path(__file__).absolute().parents[1])
