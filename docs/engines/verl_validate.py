"""Compose overrides with verl's own ppo_trainer.yaml, and validate: `python verl_validate.py OVERRIDES.txt`.

Runs in an environment with verl (see verl.md); no accelerator is asked for.
"""

from __future__ import annotations

import sys
from pathlib import Path

import verl
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf
from verl.trainer.ppo.utils import need_critic, need_reference_policy
from verl.utils.config import omega_conf_to_dataclass, validate_config

lines = Path(sys.argv[1]).read_text(encoding="utf-8").splitlines()
overrides = [override for line in lines if (override := line.partition("#")[0].strip())]
with initialize_config_dir(str(Path(verl.__file__).parent / "trainer" / "config"), version_base=None):
    config = compose("ppo_trainer", overrides=overrides)
OmegaConf.resolve(config)
validate_config(config, need_reference_policy(config), need_critic(config))
roles = config.actor_rollout_ref
for part in (roles.actor, roles.rollout, config.algorithm):
    print(type(omega_conf_to_dataclass(part)).__name__)
