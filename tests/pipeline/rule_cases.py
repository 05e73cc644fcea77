"""A breaking and a passing configuration for each rule, grouped by the base configuration that they change.

A line contains the id of the rule, the breaking overrides and, after ->, the nearest passing overrides; without
them, the base configuration is the passing one.
"""

# ruff: noqa: E501  (a table: one line for a case)

import re

from stages.engines.tables import PLAIN

MINDRLHF = ("engine=mindrlhf", "model.path=/models/qwen")
MINDSPEED_RL = ("engine=mindspeed_rl", "model=qwen2_5_7b", "model.path=/models/qwen", "layout=dp2_mp2_pp2")
VERL = (
    "engine=verl",
    "model=qwen2_5_7b",
    "model.path=/models/qwen",
    "layout=dp4_mp1_pp1",
    "train.warmup_steps=4",
)
ONE_STAGE = (
    "engine=mindrlhf_one_stage",
    "model=qwen2_5_7b",
    "model.path=/models/qwen",
    "layout=dp1_mp4_pp2",
    "train.prompts_per_step=2",
    "rollout.num_generations=4",
)
UNSUPPORTED = {
    "loss_type": "dapo", "scale_advantages": "false", "importance_sampling_level": "sequence",
    "use_bias_correction_kl": "true", "mask_truncated_completions": "true", "resample_rounds": "1",
    "validate_every": "1", "lora_rank": "4", "max_kl": "1.0", "resume_from": "/x",
    "loggers": "[wandb]",
}  # fmt: skip
"""A value of each key of PLAIN that no outside engine supports."""


def plain(room: str, *but: str) -> str:
    """Return the lines for the rules of an engine about the keys of PLAIN."""
    return "\n".join(f"{room}.{key}  train.{key}={UNSUPPORTED[key]}" for key in PLAIN if key not in but)


VERL_PLAIN = (
    "use_bias_correction_kl", "mask_truncated_completions", "resample_rounds", "validate_every", "max_kl",
    "resume_from", "loggers",
)  # fmt: skip
"""Keys of PLAIN that verl does not implement."""

TABLES: dict[tuple[str, ...], str] = {
    ("engine=local",): """
run.store  store=''  ->  store=x
run.store  store='~/x'  ->  store=x
run.sbatch  launcher.sbatch=['--job-name=x']  ->  launcher.sbatch=['--nodelist=x']
run.sbatch  launcher.sbatch=['-N','2']  ->  launcher.sbatch=['--no-requeue']
run.remote_stage  remote.stages=[tokenise]  ->  remote.stages=[tokenize]
run.hidden_size  model.hidden_size=130  ->  model.hidden_size=128
run.even_heads  model.hidden_size=132  ->  model.hidden_size=136
run.num_key_value_heads  model.num_key_value_heads=3 layout=dp2_mp1_pp1  ->  model.num_key_value_heads=4 layout=dp2_mp1_pp1
run.occupied  cards=4 layout=dp1_mp2_pp1
run.key_value_heads  layout=dp1_mp4_pp1  ->  layout=dp1_mp2_pp1
run.offset  layout.train.offset=[1]  ->  layout.train.offset=[0]
run.divisible  model.intermediate_size=641  ->  model.intermediate_size=642
model.vocab_size  model.vocab_size=258  ->  model.vocab_size=259 layout=dp1_mp1_pp1
ids.eos_token_id  model.eos_token_id=[]  ->  model.eos_token_id=[511]
ids.token_id  model.bos_token_id=512  ->  model.bos_token_id=511
ids.token_id  model.eos_token_id=[0,512]  ->  model.eos_token_id=[0,511]
ids.token_id  model.pad_token_id=512  ->  model.pad_token_id=0
tokenize.enable_thinking  tokenize.enable_thinking=true  ->  tokenize.enable_thinking=true tokenize.chat_template=true
run.window  model.sliding_window=59  ->  model.sliding_window=4096
run.longest  rollout.max_tokens=2025  ->  rollout.max_tokens=2024
run.kind  tokenize=alpaca
evaluate.k  evaluate.k=9 evaluate.num_samples=8  ->  evaluate.k=9 evaluate.num_samples=9
evaluate.k  evaluate.k=9 evaluate.num_samples=8 evaluate.sample_prompts=1  ->  evaluate.k=9 evaluate.sample_prompts=0
trainer.lora_rank  train.lora_rank=4  ->  train.lora_rank=0
trainer.two_degrees  layout=dp1_mp1_pp2  ->  layout=dp2_mp1_pp1
trainer.two_degrees  layout=dp1_mp1_pp1_cp2  ->  layout=dp2_mp1_pp1
trainer.two_degrees  layout.train.expert_parallel=2
trainer.enable_parallel_optimizer  layout.train.enable_parallel_optimizer=true
local.qkv_concat  model.qkv_concat=true
family.trained  model=deepseek_v3 model.path=/m
family.section  model.family=deepseek_v3
family.qkv_concat  model=tiny_qwen3 model.qkv_concat=true
shape.high_freq_factor  model=tiny_llama model.rope_scaling.high_freq_factor=1.0  ->  model=tiny_llama
trainer.cards  layout.reference.data_parallel=2
trainer.shares  layout.train.micro_batch_num=3  ->  layout.train.micro_batch_num=4
local.format  split.format=ckpt
split.roles  split.roles=[]
split.once  split.roles=[train,train]
local.split_roles  split.roles=[generate]
local.split_roles  split.roles=[train] sft.enabled=false  ->  split.roles=[train,reference] sft.enabled=false
local.split_roles  split.roles=[reference] sft.enabled=false train.beta=0  ->  split.roles=[train] sft.enabled=false train.beta=0
held_out.prompts  train.validate_every=5 train.validation_prompts=5969  ->  train.validate_every=5 train.validation_prompts=5968
sft.warmup_steps  sft.warmup_steps=701  ->  sft.warmup_steps=700
sft.batch_size  sft.micro_batch_num=3  ->  sft.micro_batch_num=4
sft_examples.examples  sft.check_prompts=5969  ->  sft.check_prompts=5968
trainer.shares  train.prompts_per_step=3  ->  train.prompts_per_step=4
train.warmup_steps  train.warmup_steps=33  ->  train.warmup_steps=32
train.validation_prompts  train.validate_every=5 train.validation_prompts=0  ->  train.validate_every=5 train.validation_prompts=1
train.loggers  train.loggers=[wandb,wandb]  ->  train.loggers=[wandb]
train.checks  train.keep_best=true train.validate_every=0  ->  train.keep_best=true train.validate_every=5
train.checks  train.patience=2 train.validate_every=0  ->  train.patience=2 train.validate_every=5
train.reference  train.max_kl=1.0 train.beta=0  ->  train.max_kl=1.0 train.beta=0.01
train.reference  train.ref_model_sync_steps=5 train.beta=0  ->  train.ref_model_sync_steps=5 train.beta=0.01
train.min_tokens  rollout.min_tokens=33 rollout.max_tokens=32  ->  rollout.min_tokens=32 rollout.max_tokens=32
reward.functions  reward.functions=[] reward.weights=[]  ->  reward.functions=[accuracy] reward.weights=[1.0]
reward.weights  reward.functions=[accuracy] reward.weights=[1.0,2.0]  ->  reward.functions=[accuracy] reward.weights=[1.0]
reward.known  reward.functions=[acuracy] reward.weights=[1.0]  ->  reward.functions=[my.module:function] reward.weights=[1.0]
reward.once  reward.functions=[accuracy,accuracy] reward.weights=[1.0,1.0]  ->  reward.functions=[accuracy,format] reward.weights=[1.0,1.0]
reward.length  reward.functions=[cosine] reward.weights=[1.0]  ->  reward=cosine
reward.two_numbers  reward=cosine reward.length.correct=[1.0]  ->  reward=cosine
tokenize.kind  tokenize=alpaca tokenize.compat=mindrlhf  ->  tokenize.compat=mindrlhf
tokenize.turns  tokenize.kind=alpaca tokenize.chat_template=false
tokenize.chat_template  tokenize.compat=mindrlhf tokenize.chat_template=true  ->  tokenize.compat=mindrlhf tokenize.chat_template=false
tokenize.id_dtype  tokenize.compat=mindrlhf tokenize.id_dtype=int32  ->  tokenize.compat=mindrlhf tokenize.id_dtype=int64
model.source  model.source=local  ->  model.source=local model.path=/m
model.source  model=tiny model.path=x  ->  model.path=x model.source=local
model.source  model.hub={base:a/b,instruct:a/b,id:a/b,revision:v1}
model.source  model.source=modelscope
model.id  model=qwen2_5_0_5b model.hub.id=no layout=dp1_mp2_pp1  ->  model=qwen2_5_0_5b model.hub.id=me/mine layout=dp1_mp2_pp1
model.revision  model=qwen2_5_0_5b model.hub.revision=a..b layout=dp1_mp2_pp1  ->  model=qwen2_5_0_5b model.hub.revision=v1 layout=dp1_mp2_pp1
fetch.endpoint  fetch.endpoint=http://u:p@example.org  ->  fetch.endpoint=http://example.org
dataset.source  dataset.arith=null
dataset.min_addends  dataset.arith.min_addends=6 dataset.arith.max_addends=5  ->  dataset.arith.min_addends=5 dataset.arith.max_addends=5
dataset.source  dataset=arith dataset.hub={id:me/mine,revision:v1}
dataset.source  dataset.source=builtin dataset.files={train:{name:x.jsonl,sha256:null},test:null}
dataset.builtin_rows  dataset.test_rows=null  ->  dataset.test_rows=1000
dataset.builtin_rows  dataset.train_rows=null  ->  dataset.train_rows=288
""",
    (*MINDRLHF, "model=qwen2_5_7b", "layout=dp1_mp4_pp2"): """
run.occupied  layout.reference.data_parallel=1
run.occupied  layout.generate.data_parallel=1
run.key_value_heads  layout.generate.model_parallel=8 layout.generate.data_parallel=1
mindrlhf_run.split_roles  engine.load_ckpt_format=ckpt engine.use_vllm=0 split.roles=[train]  ->  engine.load_ckpt_format=ckpt engine.use_vllm=0
mindrlhf_generation.usual_token_id  model.vocab_size=151645  ->  model.vocab_size=151648
mindrlhf.ckpt_without_vllm  engine.load_ckpt_format=ckpt  ->  engine.load_ckpt_format=ckpt engine.use_vllm=0
mindrlhf_common.qkv_concat  model.qkv_concat=true
run.weights_of_sft  sft.enabled=true
mindrlhf_common.pipeline_stage  layout.generate.pipeline_stage=2 layout.generate.data_parallel=1
mindrlhf_common.micro_batch_num  layout.train.micro_batch_num=1
engine_layouts.no_experts  layout.train.expert_parallel=2
mindrlhf.reshard_model_parallel  engine.enable_reshard_optimizer=true layout=dp4_mp2_pp1 layout.generate.model_parallel=4  ->  engine.enable_reshard_optimizer=true layout=dp4_mp2_pp1 layout.generate.model_parallel=2
mindrlhf_common.seq_length  engine.seq_length=2049 layout.train.use_seq_parallel=true  ->  engine.seq_length=2052 layout.train.use_seq_parallel=true
mindrlhf_common.prompts_per_step  train.prompts_per_step=3  ->  train.prompts_per_step=4
mindrlhf.pack_num  engine.pack_num=3  ->  engine.pack_num=4
mindrlhf_common.updates  train.prompts_per_step=2 rollout.num_generations=2 layout.train.micro_batch_num=8  ->  train.prompts_per_step=2 rollout.num_generations=4 layout.train.micro_batch_num=8
mindrlhf_common.updates  layout.train.micro_batch_num=3  ->  layout.train.micro_batch_num=4
mindrlhf.reference_batches  engine.ref_model_batch_size=3  ->  engine.ref_model_batch_size=4
mindrlhf_common.updates  engine.batch_size=3 layout.train.micro_batch_num=2  ->  engine.batch_size=2 layout.train.micro_batch_num=2
mindrlhf_common.longest_sample  engine.seq_length=1024  ->  engine.seq_length=2048
mindrlhf.compressed_mask  engine.seq_length=2047  ->  engine.seq_length=2048
mindrlhf_common.positions  model.max_position_embeddings=1024  ->  model.max_position_embeddings=2048
mindrlhf.whole_packs  engine.pack_num=2 engine.seq_length=2049  ->  engine.pack_num=2 engine.seq_length=2050
mindrlhf_generation.max_model_len  engine.max_model_len=1023  ->  engine.max_model_len=1024
mindrlhf_generation.positions_of_vllm  engine.max_model_len=32769  ->  engine.max_model_len=32768
mindrlhf_generation.max_num_seqs  engine.max_num_seqs=2049  ->  engine.max_num_seqs=2048
mindrlhf_generation.debugging  engine.use_vllm=2  ->  engine.use_vllm=2 engine.contract=0cd087455
mindrlhf_generation.same_seed  engine.use_vllm=0 layout=dp1_mp4_pp1  ->  engine.use_vllm=0 layout=dp2_mp4_pp1
mindrlhf_generation.same_seed  engine.use_vllm=0 engine.load_ckpt_format=ckpt layout=dp1_mp4_pp1  ->  engine.use_vllm=0 engine.load_ckpt_format=ckpt layout=dp2_mp4_pp1
mindrlhf_generation.constants_of_qwen  engine.tokenizer=qwen model.eos_token_id=[5]  ->  engine.tokenizer=auto model.eos_token_id=[5]
mindrlhf.full_monitor  engine.full_monitor=true
mindrlhf.full_monitor  engine.full_monitor=true engine.contract=0cd087455  ->  engine.contract=0cd087455
mindrlhf.falling_rate  train.schedule=constant  ->  train.schedule=linear
mindrlhf.falling_rate  train.final_share=1.0  ->  train.final_share=0.99
mindrlhf_common.opt_offload  layout.train.opt_offload=true
mindrlhf_common.positions  engine.seq_length=32769  ->  engine.seq_length=32768
ids.token_id  model.pad_token_id=152064  ->  model.pad_token_id=152063
ids.token_id  model.bos_token_id=153643  ->  model.bos_token_id=151643
ids.token_id  model.eos_token_id=[153643]  ->  model.eos_token_id=[151645]
mindrlhf.registered_reward  reward.functions=[answer_format]
mindrlhf.registered_reward  reward.functions=[accuracy]
mindrlhf.header  reward=knights tokenize.prompt_suffix=x  ->  reward=knights tokenize.prompt_suffix="Assistant:"
mindrlhf_common.ref_model_mixup_alpha  train.ref_model_sync_steps=5  ->  train.ref_model_sync_steps=5 train.ref_model_mixup_alpha=1.0
mindrlhf.checkpoint_every  train.checkpoint_every=0  ->  train.checkpoint_every=1
mindrlhf.known_keys  engine.mindrlhf_home=tests/data/mindrlhf_standin/0cd087455 engine.contract=e8a8fc1  ->  engine.mindrlhf_home=tests/data/mindrlhf_standin/0cd087455
mindrlhf_common.max_grad_norm  train.max_grad_norm=0.5
mindrlhf.upstream  +engine.upstream.grpo_config.rl_config.beta=0.1  ->  train.beta=0.1
mindrlhf.upstream  +engine.upstream.grpo_config.profiler_config.profile=1  ->  +engine.upstream.grpo_config.profiler_config.profile=true
mindrlhf.upstream  +engine.upstream.model.train.model.model_config.offset=1  ->  +engine.upstream.model.train.model.model_config.fused_rms_norm=false
run.attention_heads  layout=dp1_mp8_pp1
"""
    + plain("mindrlhf_common"),
    (*MINDRLHF, "model=qwen2_5_7b", "layout=dp1_mp1_pp2", "model.num_hidden_layers=56"): """
run.offset  layout.train.offset=[28,-28]  ->  layout.train.offset=[1,-1]
""",
    (*MINDRLHF, "model=qwen2_5_7b", "model.num_hidden_layers=2"): """
run.pipeline_stage  layout=dp1_mp1_pp4  ->  layout=dp1_mp1_pp2
""",
    ("experiment=mindrlhf_deepseek_v3", "model.path=/models/deepseek"): """
family.section  model.family=qwen2
mindrlhf.known_weights  engine.load_ckpt_format=ckpt engine.use_vllm=0
mindrlhf.contract_of_tutorial  engine.contract=0cd087455
mindformers_layouts.experts_among_replicas  layout.train.expert_parallel=3
mindrlhf.masked_samples  engine.pack_num=2
mindformers.family  engine.sft=mindformers
mindformers_layouts.shared_experts  model.deepseek_v3.n_routed_experts=255 layout.train.expert_parallel=2
""",
    (*MINDRLHF, "model=qwen2_5_1_5b"): """
mindformers_layouts.tied_context  layout=dp2_mp2_pp1_cp2  ->  layout=dp2_mp2_pp1_cp2 layout.train.vocab_emb_dp=true
""",
    (*MINDRLHF, "model=qwen2_5_7b"): """
mindrlhf.reshard_context_parallel  engine.enable_reshard_optimizer=true layout=dp2_mp4_pp1_cp2  ->  engine.enable_reshard_optimizer=true layout=dp4_mp4_pp1
""",
    ("dataset=gsm8k",): """
dataset.source  dataset.source=local  ->  dataset.source=local dataset.path=/data
dataset.source  dataset.source=url dataset.files=null
dataset.source  dataset.source=modelscope
dataset.files  dataset.hub={id:me/mine,revision:v1} dataset.files=null  ->  dataset=deepscaler
dataset.listed_digest  dataset.hub={id:me/mine,revision:v1}  ->  dataset.hub={id:me/mine,revision:v1} dataset.files.train.sha256=null dataset.files.test.sha256=null
dataset.test_rows  dataset.files.test=null  ->  dataset.files.test=null dataset.test_rows=100
dataset.test_path  dataset.test_path=x
dataset.source  dataset.source=url dataset.hub={id:me/mine,revision:v1}  ->  dataset.source=url
dataset.sha256  dataset.files.train.sha256=abc  ->  dataset.files.train.sha256=0000000000000000000000000000000000000000000000000000000000000000
dataset.name  dataset.files.train.name=ftp://example.org/x  ->  dataset.files.train.name=https://example.org/train.jsonl
dataset.name  dataset.files.train.name='https://example.org/x?token=1'  ->  dataset.files.train.name=https://example.org/train.jsonl
dataset.id  dataset.source=modelscope dataset.hub={id:no,revision:v1} dataset.files={train:{name:x.jsonl,sha256:null},test:null} dataset.test_rows=10  ->  dataset.source=modelscope dataset.hub={id:me/mine,revision:v1} dataset.files={train:{name:x.jsonl,sha256:null},test:null} dataset.test_rows=10
dataset.revision  dataset.source=modelscope dataset.hub={id:me/mine,revision:a..b}  ->  dataset=deepscaler
""",
    (*MINDRLHF, "engine.sft=mindformers", "model=qwen2_5_7b", "layout=dp1_mp4_pp2"): """
mindformers.batch_size  mindformers.examples_per_card=3  ->  mindformers.examples_per_card=4
mindformers.filled  mindformers.batch_size=1  ->  mindformers.batch_size=2
mindformers.vocab_emb_dp  layout.train.vocab_emb_dp=true
mindformers.sft_length  layout.train.use_seq_parallel=true tokenize.sft_length=1025  ->  layout.train.use_seq_parallel=true tokenize.sft_length=1028
mindformers.positions  tokenize.sft_length=32769  ->  tokenize.sft_length=32768
mindformers.head_dim  model.head_dim=64
mindformers.rope_scaling  model.rope_scaling={factor:8.0,low_freq_factor:1.0,high_freq_factor:4.0,original_max_position_embeddings:64}
mindformers.compat  tokenize.compat=mindrlhf
mindformers.upstream  +engine.upstream.train.runner_config.epochs=2  ->  +engine.upstream.train.runner_config.stop_step=2
mindformers.upstream  +mindformers.upstream.train.lr_schedule.warmup_steps=2  ->  +mindformers.upstream.train.lr_schedule.warmup_ratio=0.1
""",
    MINDSPEED_RL: """
family.rope_scaling  model.rope_scaling={factor:8.0,low_freq_factor:1.0,high_freq_factor:4.0,original_max_position_embeddings:64}
family.trained  model=deepseek_v3
family.head_dim  model.head_dim=64  ->  model.head_dim=128
mindspeed_rl.rope_theta  model.rope_theta=1000000.5  ->  model.rope_theta=500000.0
mindspeed_rl.qkv_concat  model.qkv_concat=true
run.weights_of_sft  sft.enabled=true
mindspeed_rl.model_parallel  model.vocab_size=152065
mindspeed_rl.generation_is_not_cut  layout.generate.pipeline_stage=2 layout.generate.data_parallel=2 layout.generate.model_parallel=2
mindspeed_rl.generation_is_not_cut  layout.generate.context_parallel=2 layout.generate.data_parallel=2 layout.generate.model_parallel=2
engine_layouts.no_experts  layout.generate.expert_parallel=2
engine_layouts.no_experts  layout.train.expert_parallel=2
mindspeed_rl.ulysses  layout=dp1_mp2_pp1_cp4  ->  layout=dp1_mp2_pp1_cp2
mindspeed_rl.whole_experts  model=qwen3_30b_a3b layout.train.expert_parallel=2  ->  model=qwen3_30b_a3b layout.train.expert_parallel=1
mindspeed_rl.vocab_emb_dp  layout.train.vocab_emb_dp=true
mindspeed_rl.enable_parallel_optimizer  layout.train.opt_offload=true layout.train.enable_parallel_optimizer=false  ->  layout.train.opt_offload=true layout.train.enable_parallel_optimizer=true
mindspeed_rl.seq_length  engine.seq_length=4097  ->  engine.seq_length=4098
mindspeed_rl.integrated  engine.reference_npus=8  ->  engine.use_integrated_worker=false engine.reference_npus=8
mindspeed_rl.whole_models  engine.use_integrated_worker=false engine.reference_npus=6  ->  engine.use_integrated_worker=false engine.reference_npus=8
mindspeed_rl.integrated  engine.reward_npus=8 engine.reward_load=/rm  ->  engine.use_integrated_worker=false engine.reward_npus=8 engine.reward_load=/rm
mindspeed_rl.whole_models  engine.use_integrated_worker=false engine.reward_npus=6 engine.reward_load=/rm  ->  engine.use_integrated_worker=false engine.reward_npus=8 engine.reward_load=/rm
mindspeed_rl.reward_model  engine.use_integrated_worker=false engine.reward_load=/rm  ->  engine.use_integrated_worker=false engine.reward_npus=4 engine.reward_load=/rm
mindspeed_rl.reward_model  engine.use_integrated_worker=false engine.reward_npus=4  ->  engine.use_integrated_worker=false engine.reward_npus=4 engine.reward_load=/rm
mindspeed_rl.whole_replicas  train.prompts_per_step=5  ->  train.prompts_per_step=8
mindspeed_rl.micro_batches  engine.micro_batch_size=7  ->  engine.micro_batch_size=1
mindspeed_rl.mini_batch_size  engine.mini_batch_size=3  ->  engine.mini_batch_size=2
mindspeed_rl.mini_of_micro  train.prompts_per_step=8 engine.mini_batch_size=1 rollout.num_generations=4 engine.micro_batch_size=4  ->  train.prompts_per_step=8 engine.mini_batch_size=2 rollout.num_generations=4 engine.micro_batch_size=4
mindspeed_rl.forward_micro_batch_size  engine.forward_micro_batch_size=7  ->  engine.forward_micro_batch_size=1
mindspeed_rl.longest_sample  engine.seq_length=4094  ->  engine.seq_length=4096
mindspeed_rl.max_model_len  engine.max_model_len=4095  ->  engine.max_model_len=4096
mindspeed_rl.max_num_seqs  engine.max_num_batched_tokens=512  ->  engine.max_num_batched_tokens=1024
mindspeed_rl.positions  engine.seq_length=32770  ->  engine.seq_length=32768
mindspeed_rl_recipe.checkpoint_every  train.checkpoint_every=0  ->  train.checkpoint_every=1
mindspeed_rl_recipe.warmup  train.warmup_steps=63  ->  train.warmup_steps=62
mindspeed_rl_recipe.known_verifier  engine.verifier_function=[acc2] engine.verifier_weight=[1.0]
mindspeed_rl_recipe.some_verifier  engine.verifier_function=[] engine.verifier_weight=[]
mindspeed_rl_recipe.weights  engine.verifier_weight=[1.0,2.0]  ->  engine.verifier_weight=[2.0]
mindspeed_rl_recipe.prompt_type  engine.prompt_type=qwen_r9
mindspeed_rl_recipe.loss_type  train.loss_type=dapo
mindspeed_rl_recipe.epsilon_high  train.epsilon_high=0.3
mindspeed_rl_recipe.adam_epsilon  train.adam_epsilon=1e-6
mindspeed_rl_recipe.ref_model_sync_steps  train.ref_model_sync_steps=5
mindspeed_rl_recipe.min_tokens  rollout.min_tokens=1
mindspeed_rl_recipe.repetition_penalty  rollout.repetition_penalty=1.1
mindspeed_rl_recipe.chat_template  tokenize.chat_template=true
mindspeed_rl_recipe.prompt_suffix  tokenize.prompt_suffix=x
mindspeed_rl_recipe.compat  tokenize.compat=mindrlhf
mindspeed_rl_recipe.over_long  tokenize.over_long=truncate
mindspeed_rl.upstream  +engine.upstream.rl_config.entropy_coef=0.1  ->  +engine.upstream.rl_config.entropy_coeff=0.1
mindspeed_rl.upstream  +engine.upstream.rl_config.entropy_coeff=x  ->  +engine.upstream.rl_config.entropy_coeff=1
mindspeed_rl.upstream  +engine.upstream.megatron_training.num_layers=2  ->  +engine.upstream.megatron_training.lora_r=2
mindspeed_rl.upstream  +engine.upstream.ref_config.num_workers=4  ->  +engine.upstream.ref_config.num_workers=4 engine.use_integrated_worker=false
mindspeed_rl_machines.other_rewards  reward.functions=[accuracy]  ->  reward.functions=[qwen_accuracy]
mindspeed_rl_machines.other_rewards  reward.weights=[0.5]  ->  reward.weights=[1.0]
mindspeed_rl_machines.prompts_per_step  launcher.cards_per_node=2 train.prompts_per_step=6  ->  launcher.cards_per_node=2 train.prompts_per_step=8
"""
    + plain("mindspeed_rl_recipe", "loss_type"),
    (*MINDSPEED_RL, "engine.contract=667a547"): """
mindspeed_rl.converter_of_family  model=qwen3_8b
mindspeed_rl.use_remove_padding  engine.use_remove_padding=true
mindspeed_rl.opt_offload  layout.train.opt_offload=true
mindspeed_rl.context_parallel  layout=dp1_mp2_pp2_cp2
mindspeed_rl.saves_at_the_end  train.checkpoint_every=7  ->  train.checkpoint_every=10
""",
    VERL: """
verl.ref_model_sync_steps  train.ref_model_sync_steps=5
verl.min_tokens  rollout.min_tokens=1
verl.min_p  rollout.min_p=0.1
verl.repetition_penalty  rollout.repetition_penalty=1.1
verl.compat  tokenize.compat=mindrlhf
verl.schedule  train.schedule=linear  ->  train.schedule=constant
verl.warmup_steps  train.num_iterations=3  ->  train.num_iterations=2
verl.fsdp  layout=dp2_mp2_pp1
verl.fsdp  layout=dp2_mp1_pp2
verl.context_parallel  engine.device=cpu layout=dp2_mp1_pp1_cp2  ->  layout=dp2_mp1_pp1_cp2
verl.generation_is_not_cut  layout.generate.pipeline_stage=2 layout.generate.data_parallel=2
verl.generation_is_not_cut  layout.generate.context_parallel=2 layout.generate.data_parallel=2
verl.whole_experts  model=qwen3_30b_a3b layout.train.expert_parallel=2  ->  model=qwen3_30b_a3b
verl.lora_rank  train.lora_rank=4 engine.strategy=megatron layout=dp1_mp2_pp2  ->  engine.strategy=megatron layout=dp1_mp2_pp2
verl.vllm_lora_rank  train.lora_rank=513  ->  train.lora_rank=512
verl.vllm_lora_rank  train.lora_rank=600  ->  train.lora_rank=600 engine.rollout=sglang
verl.strategy  engine.device=cpu engine.strategy=megatron  ->  engine.strategy=megatron layout=dp1_mp2_pp2
verl.model_parallel  layout.generate.model_parallel=4 layout.generate.data_parallel=1 launcher.cards_per_node=2  ->  layout.generate.model_parallel=2 layout.generate.data_parallel=2 launcher.cards_per_node=2
verl.equal_nodes  launcher.cards_per_node=3  ->  launcher.cards_per_node=2
verl.divisible_batches  train.prompts_per_step=3 rollout.num_generations=2  ->  train.prompts_per_step=4 rollout.num_generations=2
verl.divisible_batches  engine.mini_batch_size=1 rollout.num_generations=2  ->  engine.mini_batch_size=2 rollout.num_generations=2
verl.mini_batch_size  engine.mini_batch_size=5  ->  engine.mini_batch_size=8
engine_layouts.no_experts  layout.train.expert_parallel=2
verl.upstream  +engine.upstream.trainer.steps=3  ->  +engine.upstream.trainer.balance_batch=false
"""
    + "\n".join(f"verl.{key}  train.{key}={UNSUPPORTED[key]}" for key in VERL_PLAIN),
    ONE_STAGE: """
mindrlhf_common.qkv_concat  model.qkv_concat=true
family.trained  model=deepseek_v3
run.weights_of_sft  sft.enabled=true
mindrlhf_one_stage.cards  layout=dp1_mp1_pp1
mindrlhf_common.pipeline_stage  layout.generate.pipeline_stage=2 layout.generate.data_parallel=1
mindrlhf_one_stage.enable_parallel_optimizer  layout.train.enable_parallel_optimizer=true
mindrlhf_common.seq_length  engine.seq_length=1153 layout.train.use_seq_parallel=true  ->  engine.seq_length=1156 layout.train.use_seq_parallel=true
mindrlhf_common.prompts_per_step  train.prompts_per_step=3  ->  train.prompts_per_step=4
mindrlhf_common.updates  layout.train.micro_batch_num=3
mindrlhf_common.longest_sample  engine.seq_length=1023  ->  engine.seq_length=1024
mindrlhf_common.positions  engine.seq_length=32769  ->  engine.seq_length=32768
mindrlhf_one_stage.num_blocks  engine.num_blocks=31  ->  engine.num_blocks=32
mindrlhf_one_stage.schedule  train.schedule=constant
mindrlhf_one_stage.num_iterations  train.num_iterations=2
mindrlhf_common.max_grad_norm  train.max_grad_norm=0.5
mindrlhf_one_stage.weight_decay  train.weight_decay=0.0
mindrlhf_common.ref_model_mixup_alpha  train.ref_model_sync_steps=5  ->  train.ref_model_sync_steps=5 train.ref_model_mixup_alpha=1.0
mindrlhf_common.opt_offload  layout.train.opt_offload=true
mindrlhf_one_stage.lower_end  train.final_share=1.0  ->  train.final_share=0.5
mindrlhf_one_stage.min_p  rollout.min_p=0.1
mindrlhf_one_stage.its_rewards  reward.weights=[1.0,0.5]
"""
    + plain("mindrlhf_common"),
}  # fmt: skip
CASES: list[tuple[str, tuple[str, ...], tuple[str, ...]]] = []
"""Id of the rule, breaking overrides, passing overrides."""
for _base, _table in TABLES.items():
    for _line in filter(None, _table.splitlines()):
        _id, _breaks, *_keeps = (part.strip() for part in re.split(r"\s\s+(?:->\s+)?", _line))
        CASES.append((_id, (*_base, *_breaks.split()), (*_base, *" ".join(_keeps).split())))
