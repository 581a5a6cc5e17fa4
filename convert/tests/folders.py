"""Tiny folders of every architecture: numbers of config.json and shapes of tensors.

`reference.py` fills them and runs llama.cpp's converter on them.
"""

W, L, H, KV, F, V = 64, 2, 4, 2, 96, 320
D = W // H


def base(arch, **more):
    return dict(
        architectures=[arch], num_hidden_layers=L, hidden_size=W, intermediate_size=F,
        num_attention_heads=H, num_key_value_heads=KV, max_position_embeddings=128,
        rms_norm_eps=1e-6, rope_theta=10000.0, vocab_size=V, bos_token_id=1, eos_token_id=2) | more


def attn(p="self_attn.", h=H, kv=KV, d=D, bias=False, w=W, o="o_proj"):
    t = {f"{p}q_proj.weight": (h * d, w), f"{p}k_proj.weight": (kv * d, w),
         f"{p}v_proj.weight": (kv * d, w), f"{p}{o}.weight": (w, h * d)}
    if bias:
        t |= {f"{p}q_proj.bias": (h * d,), f"{p}k_proj.bias": (kv * d,), f"{p}v_proj.bias": (kv * d,)}
    return t


def mlp(p="mlp.", f=F, names=("gate_proj", "up_proj", "down_proj")):
    g, u, d = names
    return {f"{p}{g}.weight": (f, W), f"{p}{u}.weight": (f, W), f"{p}{d}.weight": (W, f)}


def norms(*names, w=W, bias=False):
    t = {f"{n}.weight": (w,) for n in names}
    return t | ({f"{n}.bias": (w,) for n in names} if bias else {})


PRE = norms("input_layernorm", "post_attention_layernorm")
SANDWICH = PRE | norms("pre_feedforward_layernorm", "post_feedforward_layernorm")
QKN = norms("self_attn.q_norm", "self_attn.k_norm", w=D)


def model(layers, prefix="model.layers.", head=True, top=None):
    """Tensors of layers, one dictionary for each or one for all."""
    layers = layers if isinstance(layers, list) else [layers] * L
    t = {f"{prefix}{i}.{n}": s for i, layer in enumerate(layers) for n, s in layer.items()}
    t |= top if top is not None else {"model.embed_tokens.weight": (V, W), "model.norm.weight": (W,)}
    return t | ({"lm_head.weight": (V, W)} if head and top is None else {})


def experts(p="mlp.experts.", n=4, f=32, names=("gate_proj", "up_proj", "down_proj")):
    g, u, d = names
    return {f"{p}{i}.{k}.weight": s for i in range(n) for k, s in ((g, (f, W)), (u, (f, W)), (d, (W, f)))}


def classic(p, bias=True):
    return norms("input_layernorm", "post_attention_layernorm", bias=bias) | {
        f"{p}.query_key_value.weight": (3 * W, W), f"{p}.query_key_value.bias": (3 * W,),
        f"{p}.dense.weight": (W, W), f"{p}.dense.bias": (W,), "mlp.dense_h_to_4h.weight": (4 * W, W),
        "mlp.dense_h_to_4h.bias": (4 * W,), "mlp.dense_4h_to_h.weight": (W, 4 * W), "mlp.dense_4h_to_h.bias": (W,)}


def mamba2(p="mamba.", inner=2 * W, groups=1, state=16, heads=8, norm=True):
    conv = inner + 2 * groups * state
    t = {f"{p}in_proj.weight": (inner + conv + heads, W), f"{p}conv1d.weight": (conv, 1, 4), f"{p}conv1d.bias": (conv,),
         f"{p}dt_bias": (heads,), f"{p}A_log": (heads,), f"{p}D": (heads,), f"{p}out_proj.weight": (W, inner)}
    return t | ({f"{p}norm.weight": (inner,)} if norm else {})


def mamba1(p="mixer.", inner=2 * W, state=16, rank=4):
    return {f"{p}in_proj.weight": (2 * inner, W), f"{p}conv1d.weight": (inner, 1, 4), f"{p}conv1d.bias": (inner,),
            f"{p}x_proj.weight": (rank + 2 * state, inner), f"{p}dt_proj.weight": (inner, rank), f"{p}dt_proj.bias": (inner,),
            f"{p}A_log": (inner, state), f"{p}D": (inner,), f"{p}out_proj.weight": (W, inner)}


LIN = dict(linear_conv_kernel_dim=4, linear_key_head_dim=16, linear_num_key_heads=2, linear_num_value_heads=4,
           linear_value_head_dim=16, head_dim=D, moe_intermediate_size=32, shared_expert_intermediate_size=48,
           num_experts=4, num_experts_per_tok=2, mtp_num_hidden_layers=1,
           rope_parameters=dict(rope_theta=1e6, rope_type="default", partial_rotary_factor=0.25))


def qwen_next(qkvz):
    shared = PRE | {"mlp.gate.weight": (4, W), "mlp.shared_expert_gate.weight": (1, W)} | mlp("mlp.shared_expert.", 48) | experts()
    lin = {"linear_attn.conv1d.weight": (128, 1, 4), "linear_attn.A_log": (4,), "linear_attn.dt_bias": (4,),
           "linear_attn.norm.weight": (16,), "linear_attn.out_proj.weight": (W, 64)}
    lin |= ({"linear_attn.in_proj_qkvz.weight": (192, W), "linear_attn.in_proj_ba.weight": (8, W)} if qkvz else
            {"linear_attn.in_proj_qkv.weight": (128, W), "linear_attn.in_proj_z.weight": (64, W),
             "linear_attn.in_proj_a.weight": (4, W), "linear_attn.in_proj_b.weight": (4, W)})
    full = attn() | QKN | {"self_attn.q_proj.weight": (2 * H * D, W)}
    t = model([lin | shared, full | shared])
    t |= {f"mtp.layers.0.{n}": s for n, s in (full | shared).items()}
    return t | {"mtp.fc.weight": (W, 2 * W), "mtp.norm.weight": (W,), "mtp.pre_fc_norm_embedding.weight": (W,),
                "mtp.pre_fc_norm_hidden.weight": (W,)}


def rwkv6():
    a, f = "attention.", "feed_forward."
    t = norms("ln1", "ln2", bias=True) | {f"{a}time_maa_{x}": (1, 1, W) for x in "xwkvrg"}
    t |= {f"{a}time_maa_w1": (W, 160), f"{a}time_maa_w2": (5, 32, W), f"{a}time_decay": (1, 1, W), f"{a}time_decay_w1": (W, 64),
          f"{a}time_decay_w2": (64, W), f"{a}time_faaaa": (H, D), f"{a}ln_x.weight": (W,), f"{a}ln_x.bias": (W,)}
    t |= {f"{a}{x}.weight": (W, W) for x in ("receptance", "key", "value", "gate", "output")}
    return t | {f"{f}time_maa_k": (1, 1, W), f"{f}time_maa_r": (1, 1, W), f"{f}key.weight": (F, W),
                f"{f}receptance.weight": (W, W), f"{f}value.weight": (W, F)}


def rwkv6qwen2():
    a = "self_attn."
    t = PRE | mlp() | {f"{a}time_maa_{x}": (1, 1, W) for x in "xwkvrg"}
    t |= {f"{a}time_maa_w1": (W, 160), f"{a}time_maa_w2": (5, 32, W), f"{a}time_decay": (1, 1, W),
          f"{a}time_decay_w1": (W, 64), f"{a}time_decay_w2": (64, W), f"{a}gate.weight": (W, W)}
    return t | attn(bias=True)


def rwkv7(layer, a="attn.", f="ffn.", low="_lora.lora"):
    t = norms("attn_norm", "ffn_norm", bias=True) | {f"{a}x_{x}": (1, 1, W) for x in "rwkvag"}
    for x, r in (("w", 64), ("a", 64), ("v", 32), ("g", 128)):
        if x == "v" and layer == 0:
            continue
        t |= {f"{a}{x}_lora.lora.0.weight": (r, W), f"{a}{x}_lora.lora.2.weight": (W, r)}
        t |= {f"{a}{x}_lora.lora.2.bias": (W,)} if x != "g" else {}
    t |= {f"{a}{x}_proj.weight": (W, W) for x in "rkvo"} | {f"{a}k_k": (W,), f"{a}k_a": (W,), f"{a}r_k": (H, D)}
    return t | norms(f"{a}g_norm", bias=True) | {f"{f}x_k": (W,), f"{f}key.weight": (4 * W, W), f"{f}value.weight": (W, 4 * W)}


def arwkv7(layer):
    a = "self_attn.time_mixer."
    t = PRE | mlp() | {f"{a}x_{x}": (1, 1, W) for x in "rwkvag"}
    for x, r in (("w", 64), ("a", 64), ("v", 32), ("g", 128)):
        if x == "v" and layer == 0:
            continue
        t |= {f"{a}{x}1": (W, r), f"{a}{x}2": (r, W)} | ({f"{a}{x}0": (1, 1, W)} if x != "g" else {})
    t |= {f"{a}{x}.weight": (W, W) for x in ("receptance", "key", "value", "output")}
    return t | {f"{a}k_k": (1, 1, W), f"{a}k_a": (1, 1, W), f"{a}r_k": (H, D)} | norms(f"{a}ln_x", bias=True)


def bert(p="encoder.layer."):
    t = {}
    for x in ("attention.self.query", "attention.self.key", "attention.self.value", "attention.output.dense"):
        t |= {f"{x}.weight": (W, W), f"{x}.bias": (W,)}
    t |= norms("attention.output.LayerNorm", "output.LayerNorm", bias=True)
    t |= {"intermediate.dense.weight": (F, W), "intermediate.dense.bias": (F,), "output.dense.weight": (W, F), "output.dense.bias": (W,)}
    return model(t, p, top={"embeddings.word_embeddings.weight": (V, W), "embeddings.position_embeddings.weight": (128, W),
                            "embeddings.token_type_embeddings.weight": (2, W)} | norms("embeddings.LayerNorm", bias=True))


def t5(gated):
    t = {"shared.weight": (V, W), "encoder.final_layer_norm.weight": (W,), "decoder.final_layer_norm.weight": (W,), "lm_head.weight": (V, W)}
    for stack, n in (("encoder", 1), ("decoder", 2)):
        for i in range(L):
            p = f"{stack}.block.{i}.layer."
            for j, kind in enumerate(["SelfAttention", "EncDecAttention"][:n]):
                t |= {f"{p}{j}.{kind}.{x}.weight": (W, W) for x in "qkvo"} | {f"{p}{j}.layer_norm.weight": (W,)}
            if i == 0:
                t[f"{p}0.SelfAttention.relative_attention_bias.weight"] = (32, H)
            t |= {f"{p}{n}.DenseReluDense.{x}.weight": (F, W) for x in (("wi_0", "wi_1") if gated else ("wi",))}
            t |= {f"{p}{n}.DenseReluDense.wo.weight": (W, F), f"{p}{n}.layer_norm.weight": (W,)}
    return t


MLA = dict(q_lora_rank=24, kv_lora_rank=32, qk_nope_head_dim=16, qk_rope_head_dim=8, v_head_dim=16)
LATENT = {"self_attn.q_a_proj.weight": (24, W), "self_attn.q_a_layernorm.weight": (24,), "self_attn.q_b_proj.weight": (H * 24, 24),
          "self_attn.kv_a_proj_with_mqa.weight": (40, W), "self_attn.kv_a_layernorm.weight": (32,),
          "self_attn.kv_b_proj.weight": (H * 32, 32), "self_attn.o_proj.weight": (W, H * 16)}
DS = base("DeepseekV2ForCausalLM", **MLA, num_key_value_heads=H, n_routed_experts=4, num_experts_per_tok=2, n_shared_experts=1,
          moe_intermediate_size=32, first_k_dense_replace=1, routed_scaling_factor=2.5, norm_topk_prob=True, n_group=2, topk_group=1,
          scoring_func="sigmoid", rope_scaling=dict(type="yarn", factor=4.0, original_max_position_embeddings=32, mscale_all_dim=0.707, beta_fast=32, beta_slow=1))
MOE = dict(num_experts=4, num_experts_per_tok=2, moe_intermediate_size=32)
GRANITE = dict(attention_multiplier=0.5, embedding_multiplier=3.0, residual_multiplier=0.25, logits_scaling=2.0)
HYBRID = dict(mamba_d_conv=4, mamba_d_state=16, mamba_n_groups=1, mamba_n_heads=8, mamba_expand=2, mamba_d_head=16, layer_types=["mamba", "attention"])
NEMO = dict(mamba_num_heads=8, mamba_head_dim=16, conv_kernel=4, ssm_state_size=16, n_groups=2, head_dim=D, layer_norm_epsilon=1e-5, expand=2,
            num_hidden_layers=3, mlp_hidden_act="relu2")


def nemo_layers(net):
    return [norms("norm") | mamba2("mixer.", groups=2), norms("norm") | net, norms("norm") | attn("mixer.")]


G4 = dict(head_dim=D, global_head_dim=32, num_kv_shared_layers=0, hidden_size_per_layer_input=16, layer_types=["sliding_attention", "full_attention"],
          sliding_window=16, final_logit_softcapping=30.0, use_double_wide_mlp=True, moe_intermediate_size=None, expert_intermediate_size=32,
          num_experts=4, top_k_experts=2, num_global_key_value_heads=1,
          rope_parameters=dict(full_attention=dict(rope_type="proportional", rope_theta=1e6, partial_rotary_factor=0.25),
                               sliding_attention=dict(rope_type="default", rope_theta=1e4)))


def gemma4():
    extra = {"layer_scalar": (1,), "per_layer_input_gate.weight": (16, W), "per_layer_projection.weight": (W, 16), "router.proj.weight": (4, W),
             "router.scale": (W,), "router.per_expert_scale": (4,), "experts.gate_up_proj": (4, 64, W), "experts.down_proj": (4, W, 32)}
    extra |= norms("post_per_layer_input_norm", "pre_feedforward_layernorm_2", "post_feedforward_layernorm_1", "post_feedforward_layernorm_2")
    full = attn(kv=1, d=32) | norms("self_attn.q_norm", "self_attn.k_norm", w=32)
    t = model([attn() | QKN | SANDWICH | mlp() | extra, full | SANDWICH | mlp() | extra], head=False)
    return t | {"model.embed_tokens_per_layer.weight": (V, 2 * 16), "model.per_layer_model_projection.weight": (32, W),
                "model.per_layer_projection_norm.weight": (16,)}


KIMI = base("KimiLinearForCausalLM", **(MLA | dict(q_lora_rank=None)), num_key_value_heads=H, num_experts=4, num_experts_per_token=2, moe_intermediate_size=32,
            num_shared_experts=1, first_k_dense_replace=1, routed_scaling_factor=2.0, moe_router_activation_func="sigmoid",
            linear_attn_config=dict(full_attn_layers=[2], kda_layers=[1], head_dim=16, num_heads=H, short_conv_kernel_size=4))


def kimi():
    a = "self_attn."
    kda = {f"{a}{x}_proj.weight": (W, W) for x in "qkvo"} | {f"{a}{x}_conv1d.weight": (W, 1, 4) for x in "qkv"}
    kda |= {f"{a}f_a_proj.weight": (16, W), f"{a}f_b_proj.weight": (W, 16), f"{a}g_a_proj.weight": (16, W), f"{a}g_b_proj.weight": (W, 16),
            f"{a}b_proj.weight": (H, W), f"{a}A_log": (1, 1, H, 1), f"{a}dt_bias": (W,), f"{a}o_norm.weight": (16,)}
    mla = {"self_attn.q_proj.weight": (H * 24, W)} | {k: v for k, v in LATENT.items() if "q_" not in k}
    b = "block_sparse_moe."
    moe = {f"{b}gate.weight": (4, W), f"{b}gate.e_score_correction_bias": (4,)} | mlp(f"{b}shared_experts.", 32) | experts(f"{b}experts.", names=("w1", "w3", "w2"))
    return model([PRE | kda | mlp(), PRE | mla | moe])


FALCON = base("FalconH1ForCausalLM", head_dim=D, mamba_d_ssm=128, mamba_n_groups=1, mamba_d_state=16, mamba_d_head=16, mamba_n_heads=8, mamba_d_conv=4,
              mamba_expand=2, attention_in_multiplier=0.5, attention_out_multiplier=0.75, ssm_in_multiplier=1.25, ssm_out_multiplier=0.5,
              mlp_multipliers=[0.5, 1.5], ssm_multipliers=[0.5, 0.75, 1.25, 1.5, 0.25], key_multiplier=0.7, lm_head_multiplier=0.1, embedding_multiplier=5.0, hidden_act="silu")
FAL = norms("input_layernorm", "pre_ff_layernorm") | attn() | mlp("feed_forward.")
LLAMA = attn() | PRE | mlp()
G3 = dict(head_dim=D, sliding_window=16, query_pre_attn_scalar=16)
MIX = {"block_sparse_moe.gate.weight": (4, W)} | experts("block_sparse_moe.experts.", names=("w1", "w3", "w2"))
LFM = {"operator_norm.weight": (W,), "ffn_norm.weight": (W,)}
CONV = {"conv.conv.weight": (W, 1, 3), "conv.in_proj.weight": (3 * W, W), "conv.out_proj.weight": (W, W)}
LATT = attn(o="out_proj") | norms("self_attn.q_layernorm", "self_attn.k_layernorm", w=D)
LTOP = {"model.embed_tokens.weight": (V, W), "model.embedding_norm.weight": (W,)}
OSS = PRE | attn(bias=True) | {"self_attn.o_proj.bias": (W,), "self_attn.sinks": (H,), "mlp.router.weight": (4, W), "mlp.router.bias": (4,),
                               "mlp.experts.gate_up_proj_bias": (4, 128), "mlp.experts.down_proj_bias": (4, W)}
OSSQ = {"mlp.experts.gate_up_proj_blocks": (4, 128, 2, 16), "mlp.experts.gate_up_proj_scales": (4, 128, 2),
        "mlp.experts.down_proj_blocks": (4, W, 2, 16), "mlp.experts.down_proj_scales": (4, W, 2)}
OSSF = {"mlp.experts.gate_up_proj": (4, W, 128), "mlp.experts.down_proj": (4, 64, W)}
OSSC = base("GptOssForCausalLM", head_dim=D, sliding_window=16, num_local_experts=4, num_experts_per_tok=2, intermediate_size=64,
            rope_scaling=dict(rope_type="yarn", factor=32.0, original_max_position_embeddings=64, beta_fast=32.0, beta_slow=1.0))
GPT2 = norms("ln_1", "ln_2", bias=True) | {"attn.c_attn.weight": (W, 3 * W), "attn.c_attn.bias": (3 * W,), "attn.c_proj.weight": (W, W), "attn.c_proj.bias": (W,),
        "mlp.c_fc.weight": (W, 4 * W), "mlp.c_fc.bias": (4 * W,), "mlp.c_proj.weight": (4 * W, W), "mlp.c_proj.bias": (W,)}
JAMBA = norms("input_layernorm", "pre_ff_layernorm")
PLAMO_N = norms("pre_mixer_norm", "post_mixer_norm", "pre_mlp_norm", "post_mlp_norm") | {"mlp.gate_up_proj.weight": (2 * F, W), "mlp.down_proj.weight": (W, F)}
PLAMO_M = {"mixer.in_proj.weight": (256, W), "mixer.conv1d.weight": (128, 1, 4), "mixer.bcdt_proj.weight": (40, 128), "mixer.dt_proj.weight": (8, 8),
           "mixer.dt_bias": (8,), "mixer.A_log": (8,), "mixer.D": (8,), "mixer.out_proj.weight": (W, 128), "mixer.dt_norm_weight": (8,), "mixer.B_norm_weight": (16,), "mixer.C_norm_weight": (16,)}
PLAMO_A = {"mixer.qkv_proj.weight": (128, W), "mixer.o_proj.weight": (W, W), "mixer.q_weight": (H, D), "mixer.k_weight": (KV, D)}
MODERN = {"attn_norm.weight": (W,), "attn.Wqkv.weight": (3 * W, W), "attn.Wo.weight": (W, W), "mlp_norm.weight": (W,), "mlp.Wi.weight": (2 * F, W), "mlp.Wo.weight": (W, F)}
NOMIC = {"attn.Wqkv.weight": (3 * W, W), "attn.out_proj.weight": (W, W), "mlp.fc11.weight": (F, W), "mlp.fc12.weight": (F, W), "mlp.fc2.weight": (W, F)} | norms("norm1", "norm2", bias=True)
NTOP = {"embeddings.word_embeddings.weight": (V, W), "embeddings.token_type_embeddings.weight": (2, W)} | norms("emb_ln", bias=True)

# Name: config, tensors, kind of vocabulary.
FOLDERS = {
    "llama": (base("LlamaForCausalLM", head_dim=D, rope_scaling=dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=64)), model(LLAMA), "bpe"),
    "llama_spm": (base("LlamaForCausalLM"), model(attn(bias=True) | PRE | mlp()), "spm"),
    "llama_fallback": (base("LlamaForCausalLM"), model(LLAMA), "fallback"),
    "llama_yarn": (base("LlamaForCausalLM", rope_scaling=dict(type="yarn", factor=4.0, original_max_position_embeddings=32)), model(LLAMA), "bpe"),
    "mistral": (base("MistralForCausalLM", sliding_window=16), model(LLAMA), "spm"),
    "mixtral": (base("MixtralForCausalLM", num_local_experts=4, num_experts_per_tok=2), model(attn() | PRE | MIX), "spm"),
    "smollm3": (base("SmolLM3ForCausalLM"), model(LLAMA, head=False), "bpe"),
    "arcee": (base("ArceeForCausalLM"), model(attn() | PRE | {"mlp.up_proj.weight": (F, W), "mlp.down_proj.weight": (W, F)}), "bpe"),
    "llama4": (base("Llama4ForCausalLM", intermediate_size_mlp=128, interleave_moe_layer_step=1, num_local_experts=4, num_experts_per_tok=1, head_dim=D),
               model(attn() | PRE | {"feed_forward.router.weight": (4, W), "feed_forward.experts.gate_up_proj": (4, W, 64), "feed_forward.experts.down_proj": (4, 32, W)} | mlp("feed_forward.shared_expert.", 32)), "bpe"),
    "minicpm": (base("MiniCPMForCausalLM", scale_emb=12, scale_depth=1.4, dim_model_base=32), model(LLAMA), "spm"),
    "minicpm3": (base("MiniCPM3ForCausalLM", **MLA, rope_scaling=dict(type="longrope", long_factor=[1.0, 1.5, 2.0, 3.0], short_factor=[1.0, 1.1, 1.2, 1.3], original_max_position_embeddings=32)), model(LATENT | PRE | mlp(), head=False), "spm"),
    "olmo": (base("OlmoForCausalLM", clip_qkv=8.0), model(attn() | mlp(), top={"model.embed_tokens.weight": (V, W), "lm_head.weight": (V, W)}), "bpe"),
    "olmo2": (base("Olmo2ForCausalLM", sliding_window=16), model(attn() | norms("self_attn.q_norm") | norms("self_attn.k_norm", w=KV * D) | norms("post_attention_layernorm", "post_feedforward_layernorm") | mlp()), "bpe"),
    "olmoe": (base("OlmoeForCausalLM", num_experts=4, num_experts_per_tok=2), model(attn() | PRE | norms("self_attn.q_norm") | norms("self_attn.k_norm", w=KV * D) | {"mlp.gate.weight": (4, W)} | experts()), "bpe"),
    "seed_oss": (base("SeedOssForCausalLM", head_dim=D), model(attn(bias=True) | PRE | mlp()), "bpe"),
    "nemotron": (base("NemotronForCausalLM", norm_eps=1e-5, partial_rotary_factor=0.5), model(attn() | norms("input_layernorm", "post_attention_layernorm", bias=True) | {"mlp.up_proj.weight": (F, W), "mlp.down_proj.weight": (W, F)}, top={"model.embed_tokens.weight": (V, W), "lm_head.weight": (V, W)} | norms("model.norm", bias=True)), "spm"),
    "exaone4": (base("Exaone4ForCausalLM", sliding_window=16, sliding_window_pattern="LG", layer_types=["sliding_attention", "full_attention"]), model(attn() | QKN | norms("post_attention_layernorm", "post_feedforward_layernorm") | mlp(), head=False), "bpe"),
    "qwen2": (base("Qwen2ForCausalLM"), model(attn(bias=True) | PRE | mlp()), "bpe"),
    "qwen3": (base("Qwen3ForCausalLM", head_dim=D, rope_scaling=dict(rope_type="linear", factor=4.0)), model(LLAMA | QKN), "bpe"),
    "qwen2moe": (base("Qwen2MoeForCausalLM", **MOE, shared_expert_intermediate_size=48), model(attn(bias=True) | PRE | {"mlp.gate.weight": (4, W), "mlp.shared_expert_gate.weight": (1, W)} | mlp("mlp.shared_expert.", 48) | experts()), "bpe"),
    "qwen3moe": (base("Qwen3MoeForCausalLM", **MOE, head_dim=D), model(attn() | QKN | PRE | {"mlp.gate.weight": (4, W)} | experts()), "bpe"),
    "qwen3moe_stacked": (base("Qwen3MoeForCausalLM", **MOE, head_dim=D), model(attn() | QKN | PRE | {"mlp.gate.weight": (4, W), "mlp.experts.gate_up_proj": (4, 64, W), "mlp.experts.down_proj": (4, W, 32)}), "bpe"),
    "qwen2vl": (base("Qwen2VLForConditionalGeneration", rope_scaling=dict(type="mrope", mrope_section=[2, 3, 3])), model(attn(bias=True) | PRE | mlp()) | {"visual.patch_embed.proj.weight": (4, 3)}, "bpe"),
    "qwen3next": (base("Qwen3NextForCausalLM", **LIN), qwen_next(True), "bpe"),
    "qwen35moe": (base("Qwen3_5MoeForCausalLM", **LIN), qwen_next(False), "bpe"),
    "gemma": (base("GemmaForCausalLM", head_dim=D), model(LLAMA, head=False), "spm"),
    "gemma2": (base("Gemma2ForCausalLM", head_dim=D, attn_logit_softcapping=50.0, final_logit_softcapping=30.0, sliding_window=16), model(attn() | SANDWICH | mlp(), head=False), "spm"),
    "gemma3": (base("Gemma3ForCausalLM", **G3, rope_local_base_freq=10000.0), model(attn() | QKN | SANDWICH | mlp(), head=False), "spm"),
    "gemma4": (base("Gemma4ForCausalLM", **G4), gemma4(), "fallback"),
    "phi2": (base("PhiForCausalLM", layer_norm_eps=1e-5, partial_rotary_factor=0.5), model(norms("input_layernorm", bias=True) | {f"self_attn.{x}.{k}": s for x in ("q_proj", "k_proj", "v_proj", "dense") for k, s in (("weight", (W, W)), ("bias", (W,)))} | {"mlp.fc1.weight": (4 * W, W), "mlp.fc1.bias": (4 * W,), "mlp.fc2.weight": (W, 4 * W), "mlp.fc2.bias": (W,)}, top={"model.embed_tokens.weight": (V, W), "lm_head.weight": (V, W), "lm_head.bias": (V,)} | norms("model.final_layernorm", bias=True)), "bpe"),
    "phi3": (base("Phi3ForCausalLM", original_max_position_embeddings=64, sliding_window=16, rope_scaling=dict(type="longrope", long_factor=[1.0 + i for i in range(8)], short_factor=[1.0 + i / 8 for i in range(8)])), model(PRE | {"self_attn.qkv_proj.weight": (128, W), "self_attn.o_proj.weight": (W, W), "mlp.gate_up_proj.weight": (2 * F, W), "mlp.down_proj.weight": (W, F)}), "spm"),
    "gpt2": (dict(architectures=["GPT2LMHeadModel"], n_ctx=128, n_positions=128, n_embd=W, n_head=H, n_layer=L, layer_norm_epsilon=1e-5, vocab_size=V), model(GPT2, "transformer.h.", top={"transformer.wte.weight": (V, W), "transformer.wpe.weight": (128, W)} | norms("transformer.ln_f", bias=True)), "bpe"),
    "bloom": (dict(architectures=["BloomForCausalLM"], n_embed=W, n_head=H, n_layer=L, layer_norm_epsilon=1e-5, vocab_size=V, seq_length=128), model(classic("self_attention"), "transformer.h.", top={"transformer.word_embeddings.weight": (V, W)} | norms("transformer.ln_f", "transformer.word_embeddings_layernorm", bias=True)), "bpe"),
    "gptneox": (dict(architectures=["GPTNeoXForCausalLM"], hidden_size=W, num_attention_heads=H, num_hidden_layers=L, intermediate_size=4 * W, layer_norm_eps=1e-5, rotary_pct=0.25, max_position_embeddings=128, vocab_size=V, use_parallel_residual=False), model(classic("attention"), "gpt_neox.layers.", top={"gpt_neox.embed_in.weight": (V, W), "embed_out.weight": (V, W)} | norms("gpt_neox.final_layer_norm", bias=True)), "bpe"),
    "mpt": (dict(architectures=["MPTForCausalLM"], d_model=W, n_heads=H, n_layers=L, max_seq_len=128, vocab_size=V, attn_config=dict(clip_qkv=4.0, alibi=True, alibi_bias_max=8)), model(norms("norm_1", "norm_2") | {"attn.Wqkv.weight": (3 * W, W), "attn.out_proj.weight": (W, W), "ffn.up_proj.weight": (4 * W, W), "ffn.down_proj.weight": (W, 4 * W)}, "transformer.blocks.", top={"transformer.wte.weight": (V, W), "transformer.norm_f.weight": (W,)}), "bpe"),
    "falcon": (dict(architectures=["FalconForCausalLM"], hidden_size=W, num_attention_heads=H, num_kv_heads=2, num_hidden_layers=L, layer_norm_epsilon=1e-5, vocab_size=V, new_decoder_architecture=True), model(norms("ln_mlp", "ln_attn", bias=True) | {"self_attention.query_key_value.weight": (128, W), "self_attention.dense.weight": (W, W), "mlp.dense_h_to_4h.weight": (4 * W, W), "mlp.dense_4h_to_h.weight": (W, 4 * W)}, "transformer.h.", top={"transformer.word_embeddings.weight": (V, W), "lm_head.weight": (V, W)} | norms("transformer.ln_f", bias=True)), "bpe"),
    "stablelm": (base("StableLmForCausalLM", layer_norm_eps=1e-5, partial_rotary_factor=0.25, use_parallel_residual=False), model(attn() | norms("input_layernorm", bias=True) | mlp(), top={"model.embed_tokens.weight": (V, W), "lm_head.weight": (V, W)} | norms("model.norm", bias=True)), "bpe"),
    "starcoder2": (base("Starcoder2ForCausalLM", norm_epsilon=1e-5, sliding_window=16), model(attn(bias=True) | norms("input_layernorm", "post_attention_layernorm", bias=True) | {"mlp.c_fc.weight": (F, W), "mlp.c_fc.bias": (F,), "mlp.c_proj.weight": (W, F), "mlp.c_proj.bias": (W,)}, head=False), "bpe"),
    "commandr": (base("CohereForCausalLM", logit_scale=0.0625, layer_norm_eps=1e-5, model_max_length=256), model(attn() | norms("input_layernorm") | mlp() | {"self_attn.q_norm.weight": (H, D), "self_attn.k_norm.weight": (KV, D)}, head=False), "bpe"),
    "cohere2": (base("Cohere2ForCausalLM", logit_scale=0.25, layer_norm_eps=1e-5, sliding_window=16, rotary_pct=1.0), model(attn() | norms("input_layernorm") | mlp(), head=False), "bpe"),
    "glm4": (base("Glm4ForCausalLM", head_dim=D, partial_rotary_factor=0.5), model(attn(bias=True) | PRE | norms("post_self_attn_layernorm", "post_mlp_layernorm") | {"mlp.gate_up_proj.weight": (2 * F, W), "mlp.down_proj.weight": (W, F)}), "glm"),
    "granite": (base("GraniteForCausalLM", **GRANITE), model(LLAMA, head=False), "bpe"),
    "granitemoe": (base("GraniteMoeSharedForCausalLM", **GRANITE, num_local_experts=4, num_experts_per_tok=2, shared_intermediate_size=48), model(attn() | PRE | {"block_sparse_moe.router.layer.weight": (4, W), "block_sparse_moe.input_linear.weight": (4, 2 * F, W), "block_sparse_moe.output_linear.weight": (4, W, F), "shared_mlp.input_linear.weight": (96, W), "shared_mlp.output_linear.weight": (W, 48)}, head=False), "bpe"),
    "granitehybrid": (base("GraniteMoeHybridForCausalLM", **GRANITE, **HYBRID, num_local_experts=4, num_experts_per_tok=2, shared_intermediate_size=48), model([PRE | x | {"block_sparse_moe.router.layer.weight": (4, W), "block_sparse_moe.input_linear.weight": (4, 2 * F, W), "block_sparse_moe.output_linear.weight": (4, W, F), "shared_mlp.input_linear.weight": (96, W), "shared_mlp.output_linear.weight": (W, 48)} for x in (mamba2(), attn())], head=False), "bpe"),
    "granitehybrid_dense": (base("GraniteMoeHybridForCausalLM", **GRANITE, **HYBRID, num_local_experts=0, shared_intermediate_size=48), model([PRE | x | {"shared_mlp.input_linear.weight": (96, W), "shared_mlp.output_linear.weight": (W, 48)} for x in (mamba2(), attn())], head=False), "bpe"),
    "deepseek2": (DS, model([PRE | LATENT | mlp(), PRE | LATENT | {"mlp.gate.weight": (4, W), "mlp.gate.e_score_correction_bias": (4,)} | mlp("mlp.shared_experts.", 32) | experts()]), "bpe"),
    "kimi_linear": (KIMI, kimi(), "bpe"),
    "gptoss": (OSSC | dict(quantization_config=dict(quant_method="mxfp4")), model(OSS | OSSQ), "bpe"),
    "gptoss_float": (OSSC, model(OSS | OSSF), "bpe"),
    "lfm2": (base("Lfm2ForCausalLM", norm_eps=1e-5, layer_types=["conv", "full_attention"], conv_L_cache=3, block_ff_dim=100, block_auto_adjust_ff_dim=True, block_ffn_dim_multiplier=1.0, block_multiple_of=32), model([LFM | x | mlp("feed_forward.", names=("w1", "w3", "w2")) for x in (CONV, LATT)], top=LTOP), "bpe"),
    "lfm2moe": (base("Lfm2MoeForCausalLM", norm_eps=1e-5, layer_types=["conv", "full_attention"], conv_L_cache=3, moe_intermediate_size=32, num_dense_layers=1, num_experts=4, num_experts_per_tok=2), model([LFM | CONV | mlp("feed_forward.", names=("w1", "w3", "w2")), LFM | LATT | {"feed_forward.gate.weight": (4, W), "feed_forward.expert_bias": (4,)} | experts("feed_forward.experts.", names=("w1", "w3", "w2"))], top=LTOP), "bpe"),
    "mamba": (dict(architectures=["MambaForCausalLM"], hidden_size=W, num_hidden_layers=L, vocab_size=V, state_size=16, conv_kernel=4, intermediate_size=2 * W, time_step_rank=4, layer_norm_epsilon=1e-5), model(norms("norm") | mamba1(), "backbone.layers.", top={"backbone.embeddings.weight": (V, W), "backbone.norm_f.weight": (W,), "lm_head.weight": (V, W)}), "bpe"),
    "mamba2": (dict(architectures=["Mamba2ForCausalLM"], hidden_size=W, num_hidden_layers=L, vocab_size=V, state_size=16, conv_kernel=4, expand=2, head_dim=16, n_groups=1, layer_norm_epsilon=1e-5), model(norms("norm") | mamba2("mixer."), "backbone.layers.", top={"backbone.embeddings.weight": (V, W), "backbone.norm_f.weight": (W,), "lm_head.weight": (V, W)}), "bpe"),
    "jamba": (base("JambaForCausalLM", mamba_d_conv=4, mamba_d_state=16, mamba_expand=2, mamba_dt_rank=4, attn_layer_offset=1, attn_layer_period=2, expert_layer_offset=1, expert_layer_period=2, num_experts=4, num_experts_per_tok=2), model([JAMBA | mamba1("mamba.") | norms("mamba.dt_layernorm", w=4) | norms("mamba.b_layernorm", "mamba.c_layernorm", w=16) | mlp("feed_forward."), JAMBA | attn() | {"feed_forward.router.weight": (4, W)} | experts("feed_forward.experts.")], top={"model.embed_tokens.weight": (V, W), "model.final_layernorm.weight": (W,), "lm_head.weight": (V, W)}), "spm"),
    "falcon_h1": (FALCON, model(FAL | mamba2(), top={"model.embed_tokens.weight": (V, W), "model.final_layernorm.weight": (W,), "lm_head.weight": (V, W)}), "bpe"),
    "nemotron_h": (base("NemotronHForCausalLM", **NEMO, hybrid_override_pattern="M-*"), model(nemo_layers({"mixer.up_proj.weight": (F, W), "mixer.down_proj.weight": (W, F)}), "backbone.layers.", top={"backbone.embeddings.weight": (V, W), "backbone.norm_f.weight": (W,), "lm_head.weight": (V, W)}), "bpe"),
    "nemotron_h_moe": (base("NemotronHForCausalLM", **NEMO, hybrid_override_pattern="ME*", n_routed_experts=4, num_experts_per_tok=2, n_shared_experts=1, moe_intermediate_size=32, moe_shared_expert_intermediate_size=48, norm_topk_prob=True, routed_scaling_factor=2.5, n_group=1, topk_group=1), model(nemo_layers({"mixer.gate.weight": (4, W), "mixer.gate.e_score_correction_bias": (4,), "mixer.shared_experts.up_proj.weight": (48, W), "mixer.shared_experts.down_proj.weight": (W, 48)} | {f"mixer.experts.{i}.{k}.weight": s for i in range(4) for k, s in (("up_proj", (32, W)), ("down_proj", (W, 32)))}), "backbone.layers.", top={"backbone.embeddings.weight": (V, W), "backbone.norm_f.weight": (W,), "lm_head.weight": (V, W)}), "bpe"),
    "plamo2": (dict(architectures=["Plamo2ForCausalLM"], hidden_size=W, num_hidden_layers=L, vocab_size=V, num_attention_heads=H, num_key_value_heads=KV, hidden_size_per_head=D, mamba_d_state=16, mamba_d_conv=4, mamba_num_heads=8, mamba_step=2, intermediate_size=F, max_position_embeddings=128, rms_norm_eps=1e-6), model([PLAMO_N | PLAMO_M, PLAMO_N | PLAMO_A], "model.layers.layers."), "plamo"),
    "rwkv6": (dict(architectures=["Rwkv6ForCausalLM"], hidden_size=W, num_hidden_layers=L, vocab_size=V, head_size=D, layer_norm_epsilon=1e-5, rescale_every=1, intermediate_size=F), model(rwkv6(), "rwkv.blocks.", top={"rwkv.embeddings.weight": (V, W), "head.weight": (V, W)} | norms("rwkv.ln_out", "rwkv.blocks.0.pre_ln", bias=True)), "rwkv"),
    "rwkv6qwen2": (base("RWKV6Qwen2ForCausalLM"), model(rwkv6qwen2()), "bpe"),
    "rwkv7": (dict(architectures=["RWKV7ForCausalLM"], hidden_size=W, num_hidden_layers=L, vocab_size=V, head_dim=D, norm_eps=1e-5, intermediate_size=4 * W, decay_low_rank_dim=64, a_low_rank_dim=64, v_low_rank_dim=32, gate_low_rank_dim=128), model([rwkv7(0) | norms("pre_norm", bias=True), rwkv7(1)], top={"model.embeddings.weight": (V, W), "lm_head.weight": (V, W)} | norms("model.norm", bias=True)), "rwkv"),
    "arwkv7": (base("RwkvHybridForCausalLM", head_size=D, wkv_has_gate=True, wkv_version=7), model([arwkv7(0), arwkv7(1)]), "bpe"),
    "bert": (base("BertModel", layer_norm_eps=1e-12, type_vocab_size=2), bert() | {"embeddings.position_ids": (1, 128), "pooler.dense.weight": (W, W)}, "wordpiece"),
    "roberta": (base("RobertaModel", layer_norm_eps=1e-5, type_vocab_size=2, pad_token_id=1), bert() , "bpe"),
    "nomic_bert": (dict(architectures=["NomicBertModel"], n_embd=W, n_head=H, n_layer=L, n_inner=F, n_positions=8192, vocab_size=V, layer_norm_epsilon=1e-12, rotary_emb_base=1000, type_vocab_size=2, activation_function="swiglu", causal=False, qkv_proj_bias=False, mlp_fc1_bias=False, mlp_fc2_bias=False, prenorm=False, rotary_emb_fraction=1.0, rotary_emb_interleaved=False, rotary_emb_scale_base=None), model(NOMIC, "encoder.layers.", top=NTOP), "wordpiece"),
    "modern_bert": (base("ModernBertModel", layer_norm_eps=1e-5, local_attention=32, global_attn_every_n_layers=3, global_rope_theta=160000.0, local_rope_theta=10000.0, hidden_activation="gelu"), model(MODERN, "layers.", top={"embeddings.tok_embeddings.weight": (V, W), "embeddings.norm.weight": (W,), "final_norm.weight": (W,)}), "bpe"),
    "t5": (dict(architectures=["T5ForConditionalGeneration"], d_model=W, d_ff=F, d_kv=D, num_heads=H, num_layers=L, num_decoder_layers=L, vocab_size=V, layer_norm_epsilon=1e-6, relative_attention_num_buckets=32, decoder_start_token_id=0, n_positions=128), t5(False), "unigram"),
    "t5_gated": (dict(architectures=["T5ForConditionalGeneration"], d_model=W, d_ff=F, d_kv=D, num_heads=H, num_layers=L, vocab_size=V, layer_norm_epsilon=1e-6, relative_attention_num_buckets=32, decoder_start_token_id=0), t5(True), "unigram"),
    "t5encoder": (dict(architectures=["T5EncoderModel"], d_model=W, d_ff=F, d_kv=D, num_heads=H, num_layers=L, vocab_size=V, layer_norm_epsilon=1e-6, relative_attention_num_buckets=32, decoder_start_token_id=0), {k: v for k, v in t5(False).items() if not k.startswith(("decoder", "lm_head"))}, "unigram"),
}
