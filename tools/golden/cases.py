"""The tiny checkpoints of tests/golden: one entry per behaviour that differs.

Each case: the transformers class, its config, and how it is stored. `seed` starts the search
for weights whose greedy path and expert choices have clear margins (see make_golden.py).
"""

SMALL = dict(
    vocab_size=112, hidden_size=32, intermediate_size=56, num_hidden_layers=3,
    num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=256,
    rms_norm_eps=1e-5, bos_token_id=1, eos_token_id=2, pad_token_id=0,
)
LLAMA3_ROPE = dict(rope_type="llama3", rope_theta=500.0, factor=8.0, low_freq_factor=1.0,
                   high_freq_factor=4.0, original_max_position_embeddings=48)
ERNIE_ROPE = dict(rope_type="default", rope_theta=5000.0)
ERNIE_MOE = dict(num_hidden_layers=4, moe_num_experts=8, moe_k=3, moe_intermediate_size=24,
                 moe_num_shared_experts=2, moe_layer_start_index=1, moe_layer_end_index=-1,
                 rope_parameters=ERNIE_ROPE)
# All sizes of attention differ, and so do both scales of yarn.
DEEPSEEK = dict(hidden_size=48, num_key_value_heads=4, q_lora_rank=16, kv_lora_rank=20,
                qk_nope_head_dim=12, qk_rope_head_dim=8, v_head_dim=10, n_routed_experts=16,
                num_experts_per_tok=4, n_shared_experts=2, moe_intermediate_size=20,
                first_k_dense_replace=1)
GROUPS = dict(n_group=4, topk_group=2)
YARN = dict(rope_type="yarn", rope_theta=10000.0, factor=8.0, original_max_position_embeddings=32,
            beta_fast=32, beta_slow=1, mscale=0.7, mscale_all_dim=1.3)
DEEPSEEK_V3 = dict(DEEPSEEK, **GROUPS, norm_topk_prob=True, routed_scaling_factor=2.5, rope_parameters=YARN)
# The sizes that kernels are made for.
LARGE_LATENT = dict(DEEPSEEK_V3, num_hidden_layers=1, first_k_dense_replace=0, hidden_size=64,
                    num_attention_heads=2, num_key_value_heads=2, q_lora_rank=32, kv_lora_rank=512,
                    qk_nope_head_dim=128, qk_rope_head_dim=64, v_head_dim=128, n_routed_experts=8,
                    num_experts_per_tok=2, n_shared_experts=1)

CASES = {
    # name: (model class, config, options)
    "llama": ("LlamaForCausalLM", dict(), {}),
    "llama3_rope": ("LlamaForCausalLM",
                    dict(rope_parameters=LLAMA3_ROPE, tie_word_embeddings=True, num_key_value_heads=1), {}),
    "llama_linear_bias": ("LlamaForCausalLM",
                          dict(rope_parameters=dict(rope_type="linear", rope_theta=10000.0, factor=4.0),
                               attention_bias=True, mlp_bias=True, head_dim=24), {}),
    "llama_bf16_sharded": ("LlamaForCausalLM", dict(), dict(dtype="bfloat16", shard="24KB")),
    "llama_fp16_old_config": ("LlamaForCausalLM", dict(rope_parameters=LLAMA3_ROPE),
                              dict(dtype="float16", old_config=True)),
    "mistral": ("MistralForCausalLM", dict(sliding_window=24), {}),
    "mistral_no_window": ("MistralForCausalLM", dict(sliding_window=None, head_dim=10), {}),
    "mixtral": ("MixtralForCausalLM", dict(num_local_experts=4, num_experts_per_tok=2,
                                           intermediate_size=40, sliding_window=None), {}),
    "qwen2": ("Qwen2ForCausalLM", dict(use_sliding_window=True, sliding_window=20, max_window_layers=1), {}),
    "qwen2_tied_bf16": ("Qwen2ForCausalLM", dict(tie_word_embeddings=True), dict(dtype="bfloat16")),
    "qwen3": ("Qwen3ForCausalLM", dict(head_dim=16, tie_word_embeddings=True), {}),
    "qwen3_bias": ("Qwen3ForCausalLM", dict(head_dim=8, attention_bias=True), {}),
    "qwen3_moe": ("Qwen3MoeForCausalLM",
                  dict(num_experts=8, num_experts_per_tok=3, moe_intermediate_size=20, head_dim=12,
                       norm_topk_prob=True, mlp_only_layers=[1]), {}),
    "qwen3_moe_sparse_step": ("Qwen3MoeForCausalLM",
                              dict(num_experts=6, num_experts_per_tok=2, moe_intermediate_size=20, head_dim=8,
                                   norm_topk_prob=False, decoder_sparse_step=2, num_hidden_layers=4),
                              dict(stacked_experts=True)),
    "ernie45": ("Ernie4_5ForCausalLM", dict(head_dim=16, rope_parameters=ERNIE_ROPE), dict(paddle=True)),
    "ernie45_bias": ("Ernie4_5ForCausalLM",
                     dict(head_dim=16, use_bias=True, tie_word_embeddings=False, rope_parameters=ERNIE_ROPE),
                     dict(paddle=True)),
    "ernie45_moe": ("Ernie4_5_MoeForCausalLM", ERNIE_MOE, dict(paddle=True, dtype="bfloat16")),
    # As published: a gate and a correction bias in float32 beside bf16 weights. Rows of the gate
    # differ by less than bf16 can represent, so that rounding them changes most choices.
    "ernie45_moe_bf16_f32gate": ("Ernie4_5_MoeForCausalLM", ERNIE_MOE,
                                 dict(dtype="bfloat16", float_gate=True)),
    "ernie45_moe_interval": ("Ernie4_5_MoeForCausalLM",
                             dict(ERNIE_MOE, moe_layer_interval=2, moe_layer_start_index=0,
                                  moe_num_shared_experts=0, tie_word_embeddings=False), dict(paddle=True)),
    "deepseek_v3": ("DeepseekV3ForCausalLM", DEEPSEEK_V3, {}),
    "deepseek_v3_plain": ("DeepseekV3ForCausalLM",
                          dict(DEEPSEEK, **GROUPS, q_lora_rank=None, n_shared_experts=1,
                               norm_topk_prob=False), dict(old_config=True)),
    # Scores below 0: experts of dropped groups must not count as 0.
    "deepseek_v3_low_bias": ("DeepseekV3ForCausalLM", DEEPSEEK_V3, dict(bias_shift=-1.0)),
    # The norms of low-rank vectors keep an eps of their own.
    "deepseek_v3_eps": ("DeepseekV3ForCausalLM", dict(DEEPSEEK_V3, rms_norm_eps=1e-2), {}),
    "deepseek_v3_large_latent": ("DeepseekV3ForCausalLM", LARGE_LATENT, dict(dtype="bfloat16")),
    "deepseek_v2_greedy": ("DeepseekV2ForCausalLM",
                           dict(DEEPSEEK, q_lora_rank=None, head_dim=8, topk_method="greedy", n_group=1,
                                topk_group=1, routed_scaling_factor=1.0,
                                rope_parameters=dict(YARN, mscale=0.707, mscale_all_dim=0.707)), {}),
    "deepseek_v2_groups": ("DeepseekV2ForCausalLM",
                           dict(DEEPSEEK, **GROUPS, head_dim=8, topk_method="group_limited_greedy",
                                routed_scaling_factor=16.0, rope_parameters=YARN), {}),
}
