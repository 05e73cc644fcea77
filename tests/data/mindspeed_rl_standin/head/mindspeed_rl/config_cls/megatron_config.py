from standin_config import Section


class MegatronConfig(Section):
    ai_framework = bf16 = data_path = global_batch_size = seq_length = train_iters = save_interval = None
    load = save = finetune = stage = micro_batch_size = lr = lr_decay_style = min_lr = weight_decay = None
    lr_warmup_fraction = clip_grad = adam_beta1 = adam_beta2 = no_load_optim = no_load_rng = None
    no_save_optim = num_layers = hidden_size = ffn_hidden_size = num_attention_heads = rotary_base = None
    max_position_embeddings = make_vocab_size_divisible_by = padded_vocab_size = None
    untie_embeddings_and_output_weights = add_qkv_bias = disable_bias_linear = None
    group_query_attention = num_query_groups = position_embedding_type = norm_epsilon = None
    normalization = swiglu = qk_layernorm = kv_channels = rope_scaling_type = rope_scaling_factor = None
    original_max_position_embeddings = low_freq_factor = high_freq_factor = use_mcore_models = None
    attention_softmax_in_fp32 = use_fused_rmsnorm = sequence_parallel = use_flash_attn = None
    no_masked_softmax_fusion = no_gradient_accumulation_fusion = use_fused_swiglu = None
    use_fused_rotary_pos_emb = use_distributed_optimizer = tokenizer_type = tokenizer_name_or_path = None
    attention_dropout = init_method_std = hidden_dropout = distributed_backend = no_shared_storage = None
    split = no_shuffle = full_shuffle_instruction_dataset = seed = recompute_granularity = None
    recompute_method = recompute_num_layers = num_layer_list = swap_optimizer = None
    reset_attention_mask = no_pad_to_seq_lengths = None
    tensor_model_parallel_size = pipeline_model_parallel_size = context_parallel_size = 1
    dataset_additional_keys = ()
