"""mindrlhf's own rewards: `python reward_program.py REWARD_DIRECTORY < REQUEST.json`.

Runs in the engine's interpreter, without grpoflow. Of mindformers, the files import only the logger, which is
replaced. Prints the rewards as a JSON list, or the name of the exception.
"""

import json
import logging
import runpy
import sys
import types
from pathlib import Path


def main(directory: Path) -> None:
    """Call the function `request["name"]` of a file with the request's arguments."""
    request = json.load(sys.stdin)
    sys.modules["mindformers"] = types.SimpleNamespace(logger=logging.getLogger("mindformers"))
    function = runpy.run_path(str(directory / request["file"]))[request["name"]]
    try:
        rewards = function(**request["arguments"])
    except IndexError as error:
        rewards = type(error).__name__
    print(json.dumps(rewards))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
