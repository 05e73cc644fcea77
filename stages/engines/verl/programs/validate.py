"""Check of a rendered configuration by verl: `PYTHON validate.py CONFIGS NAME` in verl's interpreter.

It composes NAME.yaml with ppo_trainer, checks it as main_ppo does, and builds the typed configurations.
"""
# mypy: ignore-errors

import sys
from pathlib import Path

import verl
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf
from verl.trainer.ppo.utils import need_critic, need_reference_policy
from verl.utils.config import omega_conf_to_dataclass, validate_config

configs, name = sys.argv[1:]
trainer = Path(verl.__file__).parent / "trainer" / "config"
with initialize_config_dir(configs, version_base=None):
    config = compose(name, overrides=[f"hydra.searchpath=[file://{trainer}]"])
OmegaConf.resolve(config)
# leaves out only the check of LoRA's rank, which imports vLLM; grpoflow has a rule instead
config.actor_rollout_ref.model.lora.merge = True
validate_config(config, need_reference_policy(config), need_critic(config))
roles = config.actor_rollout_ref
for part in (roles.actor, roles.rollout, config.algorithm):
    print(type(omega_conf_to_dataclass(part)).__name__)
