from standin_config import Section


class RLConfig(Section):
    actor_resource = runtime_env_path = rule_reward = max_prompt_length = epochs = clip_ratio = None
    entropy_coeff = gamma = lam = kl_penalty = kl_ctrl_type = init_kl_coef = adv_estimator = None
    verifier_function = verifier_weight = shuffle_mini_batch = use_tensorboard = blocking = None
    guarantee_order = num_cpus_for_local_task = ref_forward_micro_batch_size = None
    actor_forward_micro_batch_size = n_samples_per_prompt = mini_batch_size = reference_resource = None
    reward_resource = integrated_mode_config = None
    use_integrated_worker = True
    num_cpus_for_placement_group = 8
