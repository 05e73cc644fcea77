"""Keys of the section that upstream's class of the same name reads, with their defaults."""

from standin_config import Section


class RLConfig(Section):
    def __init__(self, config_dict):
        self.runtime_env_path = "configs/envs/runtime_env.yaml"
        self.rule_reward = True
        self.beta = 0.1
        self.actor_resource = None
        self.reference_resource = None
        self.reward_resource = None
        self.num_samples_per_step = 1
        self.max_prompt_length = 512
        self.epochs = 1
        self.clip_ratio = 0.2
        self.entropy_coeff = 0.0
        self.gamma = 1.0
        self.lam = 0.95
        self.advantage_whiten = True
        self.kl_penalty = "low_var_kl"
        self.kl_ctrl_type = "fixed"
        self.init_kl_coef = 0.01
        self.kl_horizon = 1000
        self.kl_target = 100.0
        self.adv_estimator = "group_norm"
        self.verifier_function = ["base_acc"]
        self.verifier_weight = [1.0]
        self.verifier_parallel = 1
        self.verifier_timeout = 30
        self.integrated_mode_config = None
        self.shuffle_mini_batch = False
        self.enable_sharding_validate = False
        self.tp_split_expert = False
        self.use_tensorboard = False
        self.use_wandb = False
        self.wandb_project = ""
        self.wandb_exp_name = ""
        self.wandb_save_dir = ""
        self.blocking = True
        self.guarantee_order = False
        self.num_cpus_for_local_task = 1
        self.num_cpus_for_placement_group = 8
        self.use_integrated_worker = True
        self.ref_forward_micro_batch_size = None
        self.actor_forward_micro_batch_size = None
        self.actor_rollout_dispatch_size = None
        self.actor_logprob_dispatch_size = None
        self.ref_dispatch_size = None
        self.reward_dispatch_size = None
        self.adv_dispatch_size = None
        self.actor_update_dispatch_size = None
        self.is_multimodal = False
        self.use_remove_padding = False
        self.n_samples_per_prompt = 1
        self.mini_batch_size = 1
        self.update(config_dict)
