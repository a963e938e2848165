"""The exercises on GPT-2 and Llama, against the models of Hugging Face."""

import pytest
import torch

from transformer_lib.course.checks import EXERCISES

transformers = pytest.importorskip("transformers")


def drawn(model):
    """The same model with random weights that matter, biases and norms included."""
    torch.manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.4)
    return model.eval()


@torch.no_grad()
def test_gpt2_gives_the_logits_of_hugging_face():
    config = transformers.GPT2Config(
        vocab_size=50,
        n_positions=20,
        n_embd=24,
        n_layer=3,
        n_head=4,
        bos_token_id=1,
        eos_token_id=1,
    )
    model = drawn(transformers.GPT2LMHeadModel(config))
    weights = {name.removeprefix("transformer."): x for name, x in model.state_dict().items()}
    tokens = torch.randint(50, (2, 9))
    ours = EXERCISES["gpt2_logits"].reference(tokens, weights, 4)
    torch.testing.assert_close(ours, model(tokens).logits, atol=1e-5, rtol=1e-5)


def as_neighbors(weight, heads):
    """From Hugging Face's order of rotated channels, in two halves, to the published one."""
    d_k = len(weight) // heads
    return weight.view(heads, 2, d_k // 2, -1).transpose(1, 2).reshape(weight.shape)


@torch.no_grad()
def test_a_layer_of_llama_gives_the_states_of_hugging_face():
    config = transformers.LlamaConfig(
        hidden_size=16, intermediate_size=24, num_hidden_layers=1, num_attention_heads=4,
        num_key_value_heads=2, vocab_size=9, rms_norm_eps=1e-5, attn_implementation="eager",
    )  # fmt: skip
    model = drawn(transformers.LlamaModel(config))
    layer, model.norm = model.layers[0], torch.nn.Identity()
    weights = {
        "attention_norm": layer.input_layernorm.weight,
        "wq": as_neighbors(layer.self_attn.q_proj.weight, 4),
        "wk": as_neighbors(layer.self_attn.k_proj.weight, 2),
        "wv": layer.self_attn.v_proj.weight,
        "wo": layer.self_attn.o_proj.weight,
        "ffn_norm": layer.post_attention_layernorm.weight,
        "w1": layer.mlp.gate_proj.weight,
        "w3": layer.mlp.up_proj.weight,
        "w2": layer.mlp.down_proj.weight,
    }
    x = torch.randn(2, 7, 16)
    ours = EXERCISES["mended_block"].reference(x, weights, torch.arange(7), 4)
    theirs = model(inputs_embeds=x).last_hidden_state
    torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-5)
