"""The encoder against independent computations: loops, transformers' models, torch's FLOP counter."""

import copy, json, math, subprocess, sys, time
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
import torch.nn.functional as F
from torch._dynamo.testing import CompileCounter
from torch.utils.flop_counter import FlopCounterMode
from transformers import (
    BertConfig,
    BertForMaskedLM,
    BertLMHeadModel,
    BertModel,
    ElectraConfig,
    ElectraForMaskedLM,
    ElectraForPreTraining,
    ElectraModel,
    GPT2Config,
    GPT2Model,
    RobertaConfig,
    RobertaForMaskedLM,
    PreTrainedModel,
    RobertaModel,
    Trainer,
    TrainingArguments,
    XLMRobertaConfig,
    XLMRobertaForMaskedLM,
    XLMRobertaModel,
)

from xlnb.base.core import ConfigError, torch_generator
from xlnb.encoder import encoder as E
from xlnb.encoder.encoder import (
    CheckpointError,
    Encoder,
    EncoderConfig,
    EncoderPreTrainedModel,
    attend,
    checkpoint_shapes,
    compile_blocks,
    config_for,
    forward_flops,
    from_copies,
    load,
    new_model,
    parameter_count,
    relative_buckets,
)
from xlnb.encoder.foreign import load_foreign
from xlnb.encoder.initialisation import masked_lm_from
from xlnb.encoder.loading import layer_states
from xlnb.encoder.heads import (
    EncoderForCausalLM,
    EncoderForMaskedLM,
    EncoderForReplacedTokens,
    EncoderForTokenClassification,
    PartneredForSequenceClassification,
    head_flops,
    share_embeddings,
)
from xlnb.training.objectives import rtd_loss

pytestmark = pytest.mark.filterwarnings("ignore:flex_attention called without")  # said on purpose

VOCAB = 50
LENGTHS = [11, 4, 7]
KINDS = ("none", "plain", "gated")


def toy(vocab_size=VOCAB, **changes):
    shape = dict(
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=24,
        norm="pre",
        initializer_range=0.25,
    )
    far = dict(
        max_position_embeddings=40,
        relative_positions="gated",
        relative_buckets=8,
        relative_max_distance=10,
    )
    return config_for("tiny", vocab_size, **{**shape, **far, **changes})


def build(model_class, config, seed=0):
    "In double precision, with every weight away from its initial value: no term may vanish by accident."
    model = new_model(model_class, config, seed).double().eval()
    for name, p in model.named_parameters():
        p.data += 0.2 * torch.randn(p.shape, generator=torch_generator(seed, name), dtype=p.dtype)
    return model


def padded_batch(lengths=LENGTHS, side="right"):
    ids = torch.randint(
        4, VOCAB, (len(lengths), max(lengths)), generator=torch_generator("ids", *lengths)
    )
    place = torch.arange(max(lengths))
    mask = torch.stack(
        [place < n if side == "right" else place >= max(lengths) - n for n in lengths]
    ).long()
    return {"input_ids": ids * mask + (1 - mask), "attention_mask": mask}


def packed(batch):
    token = batch["attention_mask"].bool()
    return (
        batch["input_ids"][token][None],
        F.pad(batch["attention_mask"].sum(1).cumsum(0), (1, 0)),
        token,
    )


def restarting(batch):
    "Positions that start again at the fourth token of every sequence."
    place = torch.arange(batch["input_ids"].shape[1]).expand_as(batch["input_ids"])
    return torch.where(place < 3, place, place - 3)


ROUNDING = 1e-5  # float32: where the weights lie in memory may decide how a product is added up


def close(a, b, tolerance=1e-10):
    torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance)


def same_weights(a, b):
    for (name, x), (other, y) in zip(a.state_dict().items(), b.state_dict().items(), strict=True):
        assert name == other and torch.equal(x, y), name


# ---- attention
# -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("norm", ["post", "pre"])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_fused_and_eager_agree_in_outputs_and_gradients(kind, causal, norm):
    model = build(Encoder, toy(relative_positions=kind, norm=norm))
    batch = padded_batch()
    results = []
    for eager in (False, True):
        model.zero_grad()
        out = model(
            **batch, position_ids=restarting(batch), is_causal=causal, output_attentions=eager
        )
        out = out.last_hidden_state[batch["attention_mask"].bool()]
        (
            out * torch.randn(out.shape, generator=torch_generator("weights"), dtype=out.dtype)
        ).sum().backward()
        results.append(
            (out, {n: p.grad for n, p in model.named_parameters() if p.grad is not None})
        )
    close(results[0][0], results[1][0])
    assert results[0][1].keys() == results[1][1].keys()
    assert kind == "none" or results[0][1]["relative_bias.weight"].abs().sum() > 0
    for name, gradient in results[0][1].items():
        close(gradient, results[1][1][name])


def test_compiled_blocks_are_one_program_at_any_depth():
    def programs(layers):
        torch._dynamo.reset()
        counter = CompileCounter()
        network = new_model(Encoder, config_for("tiny", 100, num_hidden_layers=layers), 0)
        compile_blocks(network, counter)
        ids = torch.randint(5, 99, (2, 12))
        network(ids, wanted=ids > 50)
        return counter.frame_count

    # all but the last, and the last, whose feed-forward reads fewer tokens; neither has a break
    assert programs(3) == programs(10) == 2


@pytest.mark.parametrize("copies", [1, 7, 64])
def test_rows_out_of_copies_of_a_table(copies):
    table = torch.randn(4, 10, dtype=torch.double, requires_grad=True)
    rows = torch.randint(10, (500,))
    weight = torch.randn(4, 500, dtype=torch.double)
    found = from_copies(table, rows, copies)
    assert torch.equal(found, table[:, rows])
    gradients = [torch.autograd.grad((x * weight).sum(), table)[0] for x in (found, table[:, rows])]
    torch.testing.assert_close(*gradients)


@pytest.mark.parametrize("gate_input", ["query", "scaled_query", "hidden"])
@pytest.mark.parametrize("gate_bias", [False, True])
def test_gated_attention_is_the_papers_formula(gate_input, gate_bias):
    "Equations 6 to 8 of XLM-E by loops over batch, head, query and key."
    config = toy(gate_input=gate_input, gate_bias=gate_bias, num_hidden_layers=1, norm="post")
    model = build(Encoder, config)
    batch = padded_batch([5, 3])
    positions = restarting(batch)
    out = model(**batch, position_ids=positions, output_attentions=True, output_hidden_states=True)
    hidden = out.hidden_states[0]
    layer = model.layers[0].attention
    q, k, _ = layer.qkv(hidden).view(2, 5, 3, 2, 8).permute(2, 0, 3, 1, 4)
    u, v = layer.gate.linear.weight
    b_u, b_v = layer.gate.linear.bias if gate_bias else (0.0, 0.0)
    for b in range(2):
        for h in range(2):
            for i in range(5):
                x = {
                    "query": q[b, h, i],
                    "scaled_query": q[b, h, i] / math.sqrt(8),
                    "hidden": hidden[b, i].view(2, 8)[h],
                }[gate_input]
                g_u = torch.sigmoid(x @ u + b_u)
                g_r = torch.sigmoid(x @ v + b_v)
                scores = []
                for j in range(5):
                    d = model.relative_bias.weight[
                        h, relative_buckets(positions[b, j] - positions[b, i], 8, 10)
                    ]
                    r = d + g_u * d + (1 - g_u) * layer.gate.scale[h] * g_r * d
                    score = q[b, h, i] @ k[b, h, j] / math.sqrt(8) + r
                    scores.append(score if batch["attention_mask"][b, j] else torch.tensor(-1e300))
                close(out.attentions[0][b, h, i], torch.stack(scores).softmax(0))


def test_bias_is_materialised_only_where_it_is_needed(monkeypatch):
    "No mask without padding, bias or causality; the kernel's own flag for a causal model."
    seen = []

    def watched(q, k, v, bias, causal, *rest):
        seen.append((bias, causal))
        return attend(q, k, v, bias, causal, *rest)

    monkeypatch.setattr("xlnb.encoder.encoder.attend", watched)
    model = build(Encoder, toy(relative_positions="none"))
    batch = padded_batch([6, 6])
    model(**batch)
    model(**batch, is_causal=True)
    assert [(bias is None, causal) for bias, causal in seen] == [(True, False)] * 2 + [
        (True, True)
    ] * 2
    seen.clear()
    model(**padded_batch())
    assert {tuple(bias.shape) for bias, _ in seen} == {(3, 1, 1, 11)}


@pytest.mark.parametrize("kind", KINDS)
def test_a_sequence_of_padding_alone_stays_finite(kind):
    model = build(Encoder, toy(relative_positions=kind))
    batch = padded_batch()
    batch["attention_mask"][1] = 0
    for causal in (False, True):
        model.zero_grad()
        model(**batch, is_causal=causal).last_hidden_state.square().sum().backward()
        assert all(p.grad.isfinite().all() for p in model.parameters() if p.grad is not None)


@pytest.mark.parametrize("kind", KINDS)
def test_what_padding_holds_does_not_matter(kind):
    model = build(Encoder, toy(relative_positions=kind))
    batch = padded_batch()
    out = model(**batch).last_hidden_state
    token = batch["attention_mask"].bool()
    other = model(
        batch["input_ids"].masked_fill(~token, 9), batch["attention_mask"]
    ).last_hidden_state
    close(out[token], other[token])
    for row, n in enumerate(LENGTHS):
        close(model(batch["input_ids"][row : row + 1, :n]).last_hidden_state[0], out[row, :n])


def test_bfloat16_autocast_is_close_and_finite():
    model = new_model(Encoder, config_for("tiny", VOCAB, relative_positions="gated"), 0)
    batch = padded_batch()
    with torch.autocast("cpu", torch.bfloat16):
        half = model(**batch).last_hidden_state
    gap = (half.float() - model(**batch).last_hidden_state)[batch["attention_mask"].bool()]
    assert gap.abs().max() < 0.1  # states are near 1; 8 bits of mantissa through 3 blocks
    half.float().square().mean().backward()
    assert all(p.grad.isfinite().all() for p in model.parameters() if p.grad is not None)


def test_buckets_beyond_the_lesson():
    for n, far in [(8, 10), (32, 128), (256, 512)]:
        b = relative_buckets(torch.arange(-2 * far, 2 * far + 1), n, far)
        before = b[: 2 * far + 1].flip(0)
        after = b[2 * far + 1 :]
        assert (before.diff() >= 0).all() and before.max() == n // 2 - 1
        assert (after.diff() >= 0).all() and after.max() == n - 1
        assert (after == before[1:] + n // 2).all()
        assert b[0] == b[far] and b[-1] == b[-far - 1]  # all far distances share a bucket


# ---- packed batches
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_packed_equals_padded(kind, causal, restart):
    model = build(EncoderForMaskedLM, toy(relative_positions=kind))
    batch = padded_batch()
    ids, cu_seqlens, token = packed(batch)
    labels = batch["input_ids"].masked_fill(~token | (batch["input_ids"] % 3 > 0), -100)
    positions = dict(position_ids=restarting(batch)) if restart else {}
    flat = dict(position_ids=restarting(batch)[token][None]) if restart else {}
    results = []
    for out in (
        lambda: model(**batch, **positions, labels=labels, is_causal=causal),
        lambda: model(
            ids, cu_seqlens=cu_seqlens, **flat, labels=labels[token][None], is_causal=causal
        ),
    ):
        model.zero_grad()
        (o := out()).loss.backward()
        results.append((o, {n: p.grad.clone() for n, p in model.named_parameters()}))
    close(results[0][0].loss, results[1][0].loss)
    close(results[0][0].logits[token], results[1][0].logits[0])
    for name, gradient in results[0][1].items():
        close(gradient, results[1][1][name])


def test_packed_attention_never_crosses_a_boundary():
    model, (ids, cu_seqlens, _) = build(Encoder, toy()), packed(padded_batch())
    other = ids.clone()
    other[0, : LENGTHS[0]] = 5
    a = model(ids, cu_seqlens=cu_seqlens).last_hidden_state
    b = model(other, cu_seqlens=cu_seqlens).last_hidden_state
    close(a[0, LENGTHS[0] :], b[0, LENGTHS[0] :], 1e-12)  # double precision
    assert (a - b)[0, : LENGTHS[0]].abs().max() > 1e-3


def test_packed_with_memory_and_pooler_equals_padded():
    model = build(Encoder, toy(cross_attention=True, pooler=True))
    batch = padded_batch()
    ids, cu_seqlens, token = packed(batch)
    source = dict(
        encoder_hidden_states=torch.randn(
            3, 5, 16, generator=torch_generator("memory"), dtype=torch.float64
        ),
        encoder_attention_mask=torch.tensor([[1, 1, 1, 1, 1], [1, 1, 0, 0, 0], [1, 1, 1, 1, 0]]),
    )
    a = model(**batch, **source)
    b = model(ids, cu_seqlens=cu_seqlens, **source)
    close(a.last_hidden_state[token], b.last_hidden_state[0])
    close(a.pooler_output, b.pooler_output)


@pytest.mark.parametrize("cu_seqlens", [[0, 5], [1, 22], [0, 5, 5, 22], [0, 9, 5, 22]])
def test_malformed_boundaries_are_refused(cu_seqlens):
    with pytest.raises(ValueError, match="cu_seqlens must rise from 0 to the number of tokens, 22"):
        build(Encoder, toy())(torch.full((1, 22), 5), cu_seqlens=torch.tensor(cu_seqlens))


# ---- cache and generation
# --------------------------------------------------------------------------------------------


def memory_for(config):
    memory = torch.randn(
        3, 5, config.hidden_size, generator=torch_generator("memory"), dtype=torch.float64
    )
    return dict(
        encoder_hidden_states=memory,
        encoder_attention_mask=torch.tensor([[1, 1, 1, 1, 1], [1, 1, 0, 0, 0], [1, 1, 1, 1, 0]]),
    )


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("cross", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_cached_equals_uncached(kind, cross, side):
    "In chunks of 5, 1, 1, 3 and 1 tokens, with padding on either side and positions that restart."
    config = toy(relative_positions=kind, cross_attention=cross)
    model = build(EncoderForCausalLM, config)
    batch = padded_batch(side=side)
    source = memory_for(config) if cross else {}
    positions = restarting(batch)
    whole = model(**batch, **source, position_ids=positions).logits
    parts = []
    cache = None
    start = 0
    for n in (5, 1, 1, 3, 1):
        end = start + n
        out = model(
            batch["input_ids"][:, start:end],
            batch["attention_mask"][:, :end],
            positions[:, start:end],
            **source,
            past_key_values=cache,
            use_cache=True,
        )
        parts = parts + [out.logits]
        cache = out.past_key_values
        start = end
    token = batch["attention_mask"].bool()
    close(torch.cat(parts, 1)[token], whole[token])


def test_a_cache_that_is_only_read_stays_as_it_was():
    model = build(EncoderForCausalLM, toy())
    ids = padded_batch([11])["input_ids"]
    cache = model(ids[:, :6], use_cache=True).past_key_values
    for last in (3, 7):  # two continuations of one beginning
        text = torch.cat([ids[:, :6], torch.full((1, 2), last)], 1)
        close(model(text[:, 6:], past_key_values=cache).logits, model(text).logits[:, 6:])
        assert cache.get_seq_length() == 6


@pytest.mark.parametrize("cross", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_beam_search_is_the_same_with_and_without_cache(kind, cross):
    config = toy(relative_positions=kind, cross_attention=cross)
    model = build(EncoderForCausalLM, config)
    start = padded_batch([3, 3, 3])["input_ids"]
    search = dict(
        num_beams=4,
        max_new_tokens=8,
        do_sample=False,
        return_dict_in_generate=True,
        output_scores=True,
    )
    if cross:
        search |= memory_for(config)
    a = model.generate(start, use_cache=True, **search)
    b = model.generate(start, use_cache=False, **search)
    assert torch.equal(a.sequences, b.sequences)
    # generate adds log-probabilities in single precision
    close(a.sequences_scores, b.sequences_scores, 1e-5)


def test_generation_of_left_padded_prompts_equals_one_by_one():
    model = build(EncoderForCausalLM, toy())
    batch = padded_batch(side="left")
    search = dict(max_new_tokens=5, do_sample=False, eos_token_id=None)
    together = model.generate(**batch, **search)
    for row, n in enumerate(LENGTHS):
        alone = model.generate(batch["input_ids"][row : row + 1, -n:], **search)
        assert torch.equal(together[row, -5:], alone[0, -5:])


def test_projected_memory_gives_the_same_outputs_and_gradients():
    config = toy(cross_attention=True)
    model = build(Encoder, config)
    batch = padded_batch()
    source = memory_for(config)
    memory = source["encoder_hidden_states"].requires_grad_()
    mask = source["encoder_attention_mask"]
    results = []
    for inputs in (
        dict(encoder_hidden_states=memory),
        dict(past_key_values=model.project_memory(memory)),
    ):
        out = model(**batch, **inputs, encoder_attention_mask=mask).last_hidden_state[
            batch["attention_mask"].bool()
        ]
        weight = model.layers[0].cross_attention.kv.weight
        results.append((out, *torch.autograd.grad(out.square().sum(), [memory, weight])))
    for a, b in zip(*results):
        close(a, b)


# ---- other families as oracles
# ---------------------------------------------------------------------------------------

SHAPE = dict(
    vocab_size=VOCAB,
    hidden_size=32,
    num_hidden_layers=3,
    num_attention_heads=4,
    intermediate_size=40,
    initializer_range=0.3,
    max_position_embeddings=30,
)
ROBERTA = dict(pad_token_id=1, layer_norm_eps=1e-5, type_vocab_size=1)
FAMILIES = {
    "roberta": (RobertaModel, RobertaConfig, Encoder, ROBERTA),
    "roberta-mlm": (RobertaForMaskedLM, RobertaConfig, EncoderForMaskedLM, ROBERTA),
    "xlmr": (XLMRobertaModel, XLMRobertaConfig, Encoder, ROBERTA),
    "xlmr-mlm": (XLMRobertaForMaskedLM, XLMRobertaConfig, EncoderForMaskedLM, ROBERTA),
    "xlmr-mlm-body": (XLMRobertaForMaskedLM, XLMRobertaConfig, Encoder, ROBERTA),
    "xlmr-untied": (
        XLMRobertaForMaskedLM,
        XLMRobertaConfig,
        EncoderForMaskedLM,
        dict(ROBERTA, tie_word_embeddings=False),
    ),
    "bert": (BertModel, BertConfig, Encoder, dict(type_vocab_size=2)),
    "bert-mlm": (
        BertForMaskedLM,
        BertConfig,
        EncoderForMaskedLM,
        dict(hidden_act="relu", layer_norm_eps=1e-3),
    ),
    "electra": (ElectraModel, ElectraConfig, Encoder, dict(embedding_size=12)),
    "electra-generator": (
        ElectraForMaskedLM,
        ElectraConfig,
        EncoderForMaskedLM,
        dict(embedding_size=12),
    ),
    "electra-discriminator": (
        ElectraForPreTraining,
        ElectraConfig,
        Encoder,
        dict(embedding_size=32),
    ),
}


def random_weights(model, seed=0):
    for name, p in model.named_parameters():
        p.data += 0.1 * torch.randn(p.shape, generator=torch_generator(seed, name))
    return model.eval()


def save_family(name, folder):
    their_class, config_class, our_class, changes = FAMILIES[name]
    theirs = random_weights(their_class(config_class(**{**SHAPE, **changes})))
    theirs.save_pretrained(folder)
    return theirs, our_class


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("name", FAMILIES)
def test_hidden_states_equal_those_of_transformers(name, side, tmp_path):
    "Padded and packed, right and left, with token types where there are any; pooled states and logits too."
    theirs, our_class = save_family(name, tmp_path)
    ours = load_foreign(tmp_path, our_class).double()
    batch = padded_batch(side=side)
    # the same weights; in double precision, rounding cannot hide a difference
    theirs = theirs.double()
    batch["input_ids"] = batch["input_ids"].masked_fill(
        batch["attention_mask"] == 0, theirs.config.pad_token_id
    )
    if theirs.config.type_vocab_size > 1:
        batch["token_type_ids"] = (torch.arange(11) > 4).long().expand(3, -1)
    with torch.no_grad():
        a, b = (m(**batch, output_hidden_states=True) for m in (theirs, ours))
    token = batch["attention_mask"].bool()
    assert len(a.hidden_states) == len(b.hidden_states) == 4
    for x, y in zip(a.hidden_states, b.hidden_states):
        close(x[token], y[token])
    if our_class is EncoderForMaskedLM:
        close(a.logits[token], b.logits[token])
    if b.get("pooler_output") is not None:
        close(a.pooler_output, b.pooler_output)
    assert (b.get("pooler_output") is not None) == (name in ("roberta", "xlmr", "bert"))
    if side == "right":
        ids, cu_seqlens, _ = packed(batch)
        types = (
            dict(token_type_ids=batch["token_type_ids"][token][None])
            if "token_type_ids" in batch
            else {}
        )
        with torch.no_grad():
            flat = ours(ids, cu_seqlens=cu_seqlens, **types, output_hidden_states=True)
        for x, y in zip(a.hidden_states, flat.hidden_states):
            close(x[token], y[0])


def test_a_bert_decoder_with_memory_and_cache_is_ours(tmp_path):
    "Causal self-attention, cross-attention and cache against transformers' decoder."
    config = BertConfig(**SHAPE, is_decoder=True, add_cross_attention=True)
    theirs = random_weights(BertLMHeadModel(config))
    theirs.save_pretrained(tmp_path)
    theirs = theirs.double()
    ours = load_foreign(tmp_path, EncoderForCausalLM).double()
    ids = padded_batch([9, 9, 9])["input_ids"]
    source = memory_for(config)
    with torch.no_grad():
        a = theirs(ids, **source).logits
        b = ours(ids, **source).logits
        start = ours(ids[:, :8], **source, use_cache=True)
        last = ours(
            ids[:, 8:], **source, past_key_values=start.past_key_values, use_cache=True
        ).logits
    close(a, b)
    close(a[:, -1:], last)
    search = dict(
        source, num_beams=3, max_new_tokens=6, do_sample=False, pad_token_id=0, eos_token_id=None
    )
    # BERT's decoder asks for another class of cache
    alone = theirs.generate(ids[:, :2], use_cache=False, **search)
    assert torch.equal(alone, ours.generate(ids[:, :2], **search))


def test_a_decoder_is_not_read_as_an_encoder(tmp_path):
    random_weights(BertLMHeadModel(BertConfig(**SHAPE, is_decoder=True))).save_pretrained(tmp_path)
    assert load_foreign(tmp_path, EncoderForCausalLM)
    for read in (
        lambda: load_foreign(tmp_path),
        lambda: load_foreign(tmp_path, EncoderForMaskedLM),
        lambda: masked_lm_from(tmp_path),
    ):
        with pytest.raises(CheckpointError, match="is_decoder=True.*EncoderForCausalLM"):
            read()


def test_states_are_asked_for_by_the_layers_that_there_are():
    model = build(Encoder, toy())
    batch = padded_batch()
    (last,) = layer_states(model, batch, [2])
    close(last, model(**batch).last_hidden_state)
    for layer in (-1, 3):
        with pytest.raises(ConfigError, match=f"layer={layer} is not one of 0, 1, 2"):
            layer_states(model, batch, [layer])


def test_a_sentence_beside_its_partner_is_read_at_its_last_token():
    config = toy(cross_attention=True, partner="self", relative_positions="gated")
    model = build(PartneredForSequenceClassification, config)
    left = padded_batch(side="left")
    right = padded_batch()
    right["input_ids"][right["attention_mask"] == 1] = left["input_ids"][
        left["attention_mask"] == 1
    ]
    positions = {
        name: (batch["attention_mask"].cumsum(1) - 1).clamp(min=0)
        for name, batch in (("left", left), ("right", right))
    }
    close(
        model(**left, position_ids=positions["left"]).logits,
        model(**right, position_ids=positions["right"]).logits,
    )


def test_packed_sequences_predict_no_token_of_the_next():
    model = build(EncoderForCausalLM, toy(relative_positions="gated"))
    rows = torch.randint(4, VOCAB, (3, 5), generator=torch_generator("ids"))
    flat = rows.reshape(1, -1)
    borders = torch.tensor([0, 5, 10, 15])
    labels = flat.clone()
    loss = model(flat, labels=labels, cu_seqlens=borders).loss
    close(loss, model(rows, labels=rows).loss)
    assert torch.equal(labels, flat)


def test_transformers_trainer_trains_a_model(tmp_path):
    "It passes the number of items only to models that take it."
    assert EncoderPreTrainedModel.accepts_loss_kwargs is False
    pytest.importorskip("accelerate")
    model = new_model(EncoderForMaskedLM, toy(), 0)
    rows = [{"input_ids": ids, "labels": ids} for ids in padded_batch([6, 6])["input_ids"]]
    options = TrainingArguments(str(tmp_path), max_steps=1, report_to=[], use_cpu=True)
    assert Trainer(model, options, train_dataset=rows).train().training_loss > 0


def test_foreign_weights_can_be_saved_as_ours(tmp_path):
    _, our_class = save_family("xlmr-mlm", tmp_path / "theirs")
    ours = load_foreign(tmp_path / "theirs", our_class)
    ours.save_pretrained(tmp_path / "ours")
    batch = padded_batch()
    again = load(tmp_path / "ours", EncoderForMaskedLM)
    same_weights(again, ours)
    close(again(**batch).logits, ours(**batch).logits, ROUNDING)


def test_foreign_checkpoints_that_cannot_be_read_are_refused(tmp_path):
    save_family("bert", tmp_path / "bert")
    with pytest.raises(CheckpointError, match="lacks weights of BertForMaskedLM: cls.predictions"):
        load_foreign(tmp_path / "bert", EncoderForMaskedLM)
    with pytest.raises(CheckpointError, match="is a bert checkpoint.*use load_foreign"):
        load(tmp_path / "bert")
    GPT2Model(GPT2Config(vocab_size=9, n_embd=4, n_layer=1, n_head=1)).save_pretrained(
        tmp_path / "gpt2"
    )
    with pytest.raises(
        CheckpointError, match="is a gpt2 checkpoint: only roberta, xlm-roberta, bert, electra"
    ):
        load_foreign(tmp_path / "gpt2")
    with pytest.raises(ConfigError, match="model_class"):
        load_foreign(tmp_path / "bert", EncoderForReplacedTokens)
    with pytest.raises(ConfigError, match="model_class=BertModel has no counterpart"):
        load_foreign(tmp_path / "bert", BertModel)
    (tmp_path / "empty").mkdir()
    with pytest.raises(CheckpointError, match="no checkpoint that transformers can read"):
        load_foreign(tmp_path / "empty")
    with pytest.raises(CheckpointError, match="bert is no folder with a config.json"):
        load("bert")


def test_another_class_with_a_counterpart_can_be_loaded(tmp_path):
    "The class says by `foreign_auto_class` what reads its kind; no list of classes has to know it."

    class Mine(EncoderForMaskedLM):
        pass

    theirs, _ = save_family("xlmr-mlm", tmp_path)
    batch = padded_batch()
    # float32, logits of order 1
    close(load_foreign(tmp_path, Mine)(**batch).logits, theirs(**batch).logits, 1e-4)


# ---- saving and loading
# ----------------------------------------------------------------------------------------------

NAN = float("nan")


@pytest.mark.parametrize(
    "field, values",
    {
        "vocab_size": ("50", 0, -1, NAN, None),
        "hidden_size": ("16", 0, 16.5, None),
        "num_hidden_layers": (0, 1.5, "2"),
        "num_attention_heads": (0, "2"),
        "embedding_size": (0, "4", NAN),
        "max_position_embeddings": (-3, "8"),
        "type_vocab_size": (-1, "a"),
        "mask_token_id": (-1, "4", True),
        "hidden_dropout_prob": (NAN, -0.1, 1.5, "0.1", None),
        "classifier_dropout": (3, "x"),
        "layer_norm_eps": (NAN, -1),
        "initializer_range": (NAN, -1, "0.02", None),
        "pooler": ("false", 1, None),
        "tie_word_embeddings": ("no",),
        "relative_buckets": (2, 3, 33),
        "relative_max_distance": (4, 8),
    }.items(),
)
def test_a_configuration_names_the_field_that_cannot_be(field, values):
    for value in values:
        with pytest.raises(ConfigError, match=f"^{field}="):
            config_for("tiny", **{"vocab_size": 50} | {field: value})


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: new_model(Encoder, "tiny", 0), "'tiny' is no EncoderConfig"),
        (
            lambda: new_model(Encoder, config_for("tiny", 50), None),
            "seed=None is not a whole number",
        ),
        (lambda: parameter_count(None), "None is no EncoderConfig"),
        (lambda: forward_flops(config_for("tiny", 50), "8"), "length='8'"),
        (lambda: load(None), "None is no path of a folder: give a string or a Path"),
        (lambda: load_foreign(3), "3 is no path of a folder"),
        (lambda: checkpoint_shapes([]), "is no path of a folder"),
    ],
)
def test_wrong_types_are_named(call, message):
    with pytest.raises(ConfigError, match=message):
        call()


def test_load_refuses_another_size_by_both_shapes(tmp_path):
    new_model(EncoderForMaskedLM, toy(), 0).save_pretrained(tmp_path)
    with pytest.raises(
        CheckpointError, match=r"word_embeddings.weight: checkpoint \(50, 16\), model \(60, 16\)"
    ):
        load(tmp_path, EncoderForMaskedLM, toy(vocab_size=60))
    for how, message in [
        ((Encoder, toy(num_hidden_layers=3)), r"layers.2.*scale: checkpoint absent, model \(2,\)"),
        ((Encoder, toy(relative_positions="none")), r"gate.scale: checkpoint \(2,\), model absent"),
        ((EncoderForTokenClassification,), "score.weight: checkpoint absent"),
    ]:
        with pytest.raises(CheckpointError, match=message):
            load(tmp_path, *how)


@pytest.mark.parametrize(
    "field, value",
    [("num_attention_heads", 4), ("hidden_act", "relu"), ("layer_norm_eps", 0.5)],
)
def test_load_refuses_another_architecture_of_the_same_shapes(tmp_path, field, value):
    config = toy(relative_positions="none")
    new_model(EncoderForMaskedLM, config, 0).save_pretrained(tmp_path)
    load(tmp_path, Encoder, toy(relative_positions="none", hidden_dropout_prob=0.3))
    with pytest.raises(CheckpointError, match=f"{field}: checkpoint .*, config {value!r}"):
        load(tmp_path, Encoder, toy(relative_positions="none", **{field: value}))


def test_a_size_is_a_shape_and_nothing_else():
    plain = EncoderConfig()
    for size, shape in E.SIZES.items():
        config = config_for(size, 300)
        assert (config.vocab_size, config.mask_token_id) == (300, 299)
        for name, value in {
            **plain.to_dict(),
            **shape,
            "vocab_size": 300,
            "mask_token_id": 299,
        }.items():
            assert config.to_dict()[name] == value, (size, name)
    with pytest.raises(ConfigError, match="setting='part' is not one of"):
        config_for("tiny", 300, part="generator")


def test_load_refuses_a_folder_without_weights_and_unknown_settings(tmp_path):
    model = new_model(Encoder, toy(), 0)
    model.save_pretrained(tmp_path)
    settings = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**settings, "relative_position": "gated"}))
    with pytest.raises(ConfigError, match="did you mean 'relative_positions'"):
        load(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps(settings))
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(CheckpointError, match="holds no model.safetensors"):
        load(tmp_path)


@pytest.mark.parametrize("text", ["[", "{}", '{"layer_norm_eps": 0.1}'])
def test_a_configuration_that_is_not_as_written_is_refused(tmp_path, text):
    "Other settings fit the same weights."
    new_model(Encoder, toy(), 0).save_pretrained(tmp_path)
    path = tmp_path / "config.json"
    settings = json.loads(path.read_text())
    path.write_text(json.dumps(settings | json.loads(text)) if text != "[" else text)
    if text == "{}":
        path.write_text(path.read_text() + " ")
    with pytest.raises(CheckpointError, match="config.json is damaged"):
        load(tmp_path)


@pytest.mark.parametrize(
    "name, value", [("vocab_size", 10**30), ("vocab_size", "x"), ("num_hidden_layers", None)]
)
def test_settings_of_no_network_are_refused_where_there_are_no_checksums(tmp_path, name, value):
    new_model(Encoder, toy(), 0).save_pretrained(tmp_path)
    (tmp_path / "checksums.json").unlink()
    settings = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(settings | {name: value}))
    with pytest.raises((CheckpointError, ConfigError)):
        load(tmp_path)


def test_a_configuration_of_an_older_version_loads_as_it_was(tmp_path):
    config = config_for("tiny", 60, cross_sentence_buckets="separate", relative_bias_init="random")
    new_model(Encoder, config, 0).save_pretrained(tmp_path)
    settings = json.loads((tmp_path / "config.json").read_text())
    settings["relative_across"] = settings.pop("cross_sentence_buckets").replace("separate", "own")
    settings["relative_start"] = settings.pop("relative_bias_init")
    (tmp_path / "config.json").write_text(json.dumps(settings))
    (tmp_path / "checksums.json").unlink()
    loaded = Encoder.from_pretrained(tmp_path).config
    assert (loaded.cross_sentence_buckets, loaded.relative_bias_init) == ("separate", "random")
    assert "relative_across" not in loaded.to_dict()
    with pytest.raises(ConfigError, match="cross_sentence_buckets='none'"):
        EncoderConfig(relative_across="none")


@pytest.mark.parametrize("file", ["model.safetensors", "config.json"])
def test_a_damaged_network_of_another_family_is_refused(tmp_path, file):
    BertModel(
        BertConfig(
            vocab_size=50,
            hidden_size=8,
            num_hidden_layers=1,
            num_attention_heads=2,
            intermediate_size=16,
        )
    ).save_pretrained(tmp_path)
    data = (tmp_path / file).read_bytes()
    for damaged in (
        data[:-2],
        data.replace(b'"num_hidden_layers": 1', b'"num_hidden_layers": "x"'),
        b"[" * 10**5,
    ):
        if damaged == data:
            continue
        (tmp_path / file).write_bytes(damaged)
        with pytest.raises(CheckpointError):
            load_foreign(tmp_path)


@pytest.mark.parametrize("tied", [True, False])
def test_sharded_and_tied_checkpoints_round_trip(tied, tmp_path):
    model = build(EncoderForMaskedLM, toy(tie_word_embeddings=tied)).float()
    model.save_pretrained(tmp_path, max_shard_size="4KB")
    assert len(list(tmp_path.glob("model-*.safetensors"))) > 1
    loaded = load(tmp_path, EncoderForMaskedLM)
    batch = padded_batch()
    same_weights(loaded, model)
    close(loaded(**batch).logits, model(**batch).logits, ROUNDING)
    assert (loaded.head.weight is loaded.get_input_embeddings().weight) == tied
    assert ("head.decoder.weight" in checkpoint_shapes(tmp_path)) == (not tied)


def test_shared_embeddings_train_as_one_and_save_as_two(tmp_path):
    generator = new_model(EncoderForMaskedLM, toy(num_hidden_layers=1), 0)
    discriminator = new_model(EncoderForReplacedTokens, toy(), 1)
    share_embeddings(generator, discriminator)
    pair = torch.nn.ModuleDict({"generator": generator, "discriminator": discriminator})
    optimizer = torch.optim.SGD(pair.parameters(), lr=0.1)
    batch = padded_batch()
    (
        generator(**batch).logits.square().mean() + discriminator(**batch).logits.square().mean()
    ).backward()
    optimizer.step()
    assert sum(p.shape == (VOCAB, 16) for p in pair.parameters()) == 1
    for name, model in pair.items():
        model.save_pretrained(tmp_path / name)
    first = load(tmp_path / "generator", EncoderForMaskedLM)
    second = load(tmp_path / "discriminator", EncoderForReplacedTokens)
    for loaded, model in ((first, generator.eval()), (second, discriminator.eval())):
        same_weights(loaded, model)
        close(loaded(**batch).logits, model(**batch).logits, ROUNDING)
    close(first.get_input_embeddings().weight, second.get_input_embeddings().weight, 0)


AUTO_CODE = """
import sys, xlnb
assert 'torch' not in sys.modules, 'import xlnb must stay light'
import transformers, xlnb.encoder.heads
for kind in ['', 'ForMaskedLM', 'ForCausalLM', 'ForSequenceClassification', 'ForTokenClassification',
             'ForQuestionAnswering']:
    auto = getattr(transformers, 'AutoModel' + kind)
    assert type(auto.from_pretrained(sys.argv[1])).__name__ == 'Encoder' + kind
print(transformers.AutoConfig.from_pretrained(sys.argv[1]).model_type)
"""


@pytest.mark.slow
def test_auto_classes_work_after_the_import_in_a_new_process(tmp_path):
    new_model(EncoderForMaskedLM, toy(), 0).save_pretrained(tmp_path)
    done = subprocess.run(
        [sys.executable, "-c", AUTO_CODE, str(tmp_path)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "xlnb\n"


def test_resizing_the_vocabulary_keeps_the_tie():
    model = new_model(EncoderForMaskedLM, toy(), 0)
    model.resize_token_embeddings(60, mean_resizing=False)
    assert model.head.weight is model.get_input_embeddings().weight
    assert model.head.bias.shape == (60,) and model.config.vocab_size == 60
    assert model(**padded_batch()).logits.shape == (3, 11, 60)


# ---- the rest
# --------------------------------------------------------------------------------------------------------


def test_activation_checkpointing_leaves_gradients_as_they_are():
    model = build(EncoderForMaskedLM, toy()).train()
    batch = padded_batch()
    gradients = []
    for on in (False, True):
        if on:
            model.activation_checkpointing_enable()
        model.zero_grad()
        model(**batch).logits.square().mean().backward()
        gradients.append([p.grad.clone() for p in model.parameters()])
    for a, b in zip(*gradients):
        close(a, b)


def test_a_subset_is_independent_of_its_source():
    model = build(EncoderForCausalLM, toy(num_hidden_layers=4))
    batch = padded_batch()
    small = model.subset([3, 1])
    before = model(**batch).logits
    for p in small.parameters():
        p.data.zero_()
    close(model(**batch).logits, before)
    twice = model.subset([1, 1])
    assert twice.config.num_hidden_layers == 2 and twice.encoder.config.num_hidden_layers == 2
    start = twice(batch["input_ids"][:, :5], use_cache=True).past_key_values
    close(
        twice(batch["input_ids"][:, 5:], past_key_values=start).logits,
        twice(batch["input_ids"]).logits[:, 5:],
    )


def test_weights_of_published_models_are_counted_exactly():
    "XLM-R large with pooler and head, and VECO large: 24 cross-attentions and their LayerNorms more."
    large = dict(
        vocab_size=250_002,
        hidden_size=1024,
        num_hidden_layers=24,
        num_attention_heads=16,
        intermediate_size=4096,
        max_position_embeddings=514,
        position_offset=2,
        type_vocab_size=1,
        pooler=True,
    )
    assert parameter_count(EncoderConfig(**large), EncoderForMaskedLM)["total"] == 561_192_082
    assert (
        parameter_count(EncoderConfig(**large, cross_attention=True), EncoderForMaskedLM)["total"]
        == 662_002_834
    )


def test_flops_are_those_that_torch_counts():
    config = toy(relative_positions="none", attn_implementation="eager")
    model = new_model(EncoderForMaskedLM, config, 0)
    with FlopCounterMode(display=False) as body:
        hidden = model.encoder(torch.full((2, 12), 5)).last_hidden_state
    with FlopCounterMode(display=False) as head:
        model.head(hidden)
    assert body.get_total_flops() == 24 * forward_flops(config, 12)
    assert head.get_total_flops() == 24 * head_flops(config)


def test_inputs_embeds_and_settings_of_the_configuration():
    model = build(Encoder, toy())
    batch = padded_batch()
    embedded = model.get_input_embeddings()(batch["input_ids"])
    out = model(inputs_embeds=embedded, attention_mask=batch["attention_mask"]).last_hidden_state
    close(out, model(**batch).last_hidden_state)
    with pytest.raises(ValueError, match="either input_ids or inputs_embeds"):
        model(inputs_embeds=embedded, **batch)
    with pytest.raises(ValueError, match="either input_ids or inputs_embeds"):
        model()
    model.config.output_hidden_states = True
    assert len(model(**batch).hidden_states) == 3 and len(model(**batch, return_dict=False)) == 2
    for norm in ("pre", "post"):
        out = build(Encoder, toy(norm=norm))(**batch, output_hidden_states=True)
        close(out.hidden_states[-1], out.last_hidden_state, 0)
    with pytest.raises(ConfigError, match="head_transform=False needs"):
        EncoderForMaskedLM(toy(embedding_size=8, head_transform=False))


# ---- FlexAttention
# -------------------------------------------------------------------------------------------------

FLEX_KINDS = [
    ("gated", "query"),
    ("gated", "hidden"),
    ("gated", "scaled_query"),
    ("plain", "query"),
    ("none", "query"),
]


def flex_pair(kind, gate_input, form, causal, restart, device="cpu", dtype=torch.float64):
    "The same weights with SDPA and with FlexAttention, and inputs; sequences are cut inside and across blocks of 128."
    config = E.config_for(
        "tiny",
        50,
        relative_positions=kind,
        gate_input=gate_input,
        gate_bias=True,
        max_position_embeddings=400,
    )
    sdpa = E.new_model(E.Encoder, config, seed=3).to(device, dtype)
    # as after training; at the start it is small
    if kind != "none":
        sdpa.relative_bias.weight.data *= 20
    flex = copy.deepcopy(sdpa)
    flex.set_attn_implementation("flex_attention")
    lengths = torch.tensor([200, 60, 5, 131])
    g = torch_generator("flex")
    mask = (torch.arange(200) < lengths[:, None]).long()
    ids = torch.randint(4, 49, mask.shape, generator=g)
    positions = (torch.arange(200) % (37 if restart else 200)).expand(4, -1)
    inputs = dict(input_ids=ids, attention_mask=mask, position_ids=positions)
    if form == "packed":
        keep = mask.bool()
        inputs = dict(
            input_ids=ids[keep][None],
            position_ids=positions[keep][None],
            cu_seqlens=F.pad(lengths.cumsum(0), (1, 0)),
        )
    if form == "whole":
        del inputs["attention_mask"]
    inputs = {k: v.to(device) for k, v in inputs.items()}
    seen = inputs.get("attention_mask", torch.ones_like(inputs["input_ids"])).bool()
    return sdpa, flex, dict(inputs, is_causal=causal), seen


def states_and_gradients(model, inputs, seen):
    out = model(**inputs).last_hidden_state[seen]
    weights = torch.randn(out.shape, generator=torch_generator("weights"), dtype=torch.float64).to(
        out
    )
    names, parameters = zip(*model.named_parameters())
    return out, dict(
        zip(names, torch.autograd.grad((out * weights).sum(), parameters, allow_unused=True))
    )


def check_flex(sdpa, flex, inputs, seen, tolerance):
    (a, ours), (b, theirs) = (states_and_gradients(m, inputs, seen) for m in (sdpa, flex))
    assert (a - b).abs().max() <= tolerance * a.abs().max()
    assert {n for n, g in ours.items() if g is None} == {n for n, g in theirs.items() if g is None}
    for name, gradient in ours.items():
        if gradient is None:
            continue
        assert (gradient - theirs[name]).abs().max() <= tolerance * gradient.abs().max() + 1e-12, (
            name
        )


@pytest.mark.parametrize("kind, gate_input", FLEX_KINDS)
@pytest.mark.parametrize("form", ["packed", "padded", "whole"])
@pytest.mark.parametrize("causal", [False, True])
def test_flex_states_equal_sdpa(kind, gate_input, form, causal):
    sdpa, flex, inputs, seen = flex_pair(kind, gate_input, form, causal, restart=form == "packed")
    with torch.no_grad():
        a, b = (m(**inputs).last_hidden_state[seen] for m in (sdpa, flex))
    assert (a - b).abs().max() < 1e-12  # double precision, values of order 1


@pytest.mark.parametrize("kind, gate_input", FLEX_KINDS)
@pytest.mark.parametrize("form", ["packed", "padded"])
def test_flex_gradients_equal_sdpa(monkeypatch, kind, gate_input, form):
    "FlexAttention's own backward pass, uncompiled; it works on a CPU once its check of the device is out of the way."
    import torch.nn.attention.flex_attention as torch_flex

    if not hasattr(torch_flex, "_validate_device"):
        pytest.skip("this PyTorch checks the device elsewhere")
    monkeypatch.setattr(torch_flex, "_validate_device", lambda *tensors: None)
    monkeypatch.setattr(E.Flexible, "check_device", lambda self, query: None)
    check_flex(*flex_pair(kind, gate_input, form, False, restart=True), tolerance=1e-11)


@pytest.mark.gpu
@pytest.mark.parametrize("kind, gate_input", FLEX_KINDS)
@pytest.mark.parametrize("form", ["packed", "padded", "whole"])
def test_compiled_flex_gradients_equal_sdpa(kind, gate_input, form):
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    # float32: exponentials in base 2, sums in another order, the table's gradient by atomic
    # additions
    try:
        check_flex(
            *flex_pair(kind, gate_input, form, False, True, "cuda", torch.float32), tolerance=1e-3
        )
    finally:
        torch.set_float32_matmul_precision(before)


@pytest.mark.gpu
def test_compiled_flex_in_bfloat16():
    sdpa, flex, inputs, seen = flex_pair(
        "gated", "query", "packed", False, True, "cuda", torch.float32
    )
    exact, _ = states_and_gradients(sdpa, inputs, seen)
    with torch.autocast("cuda", torch.bfloat16):
        errors = [
            float((states_and_gradients(m, inputs, seen)[0].float() - exact).norm())
            for m in (sdpa, flex)
        ]
    assert errors[1] <= 1.5 * errors[0]  # no worse than SDPA's rounding


@pytest.mark.parametrize(
    "lengths", [[1], [128], [129], [5, 123, 1, 127, 300], [64] * 9, [1] * 200, [700, 3]]
)
def test_blocks_of_a_packed_batch(lengths):
    from torch.nn.attention.flex_attention import create_block_mask

    cut = F.pad(torch.tensor(lengths).cumsum(0), (1, 0))
    owner = torch.arange(len(lengths)).repeat_interleave(torch.tensor(lengths))

    def same(b, h, i, j):
        return owner[i] == owner[j]

    ours = E.packed_blocks(cut, owner, same)
    wanted = create_block_mask(same, None, None, len(owner), len(owner), "cpu")
    assert torch.equal(ours.to_dense(), wanted.to_dense())


def test_flex_refusals():
    _, flex, inputs, _ = flex_pair("gated", "query", "padded", False, False)
    with pytest.raises(ConfigError, match="gradients on 'cuda' only, not on 'cpu': use 'sdpa'"):
        flex(**inputs)
    with torch.no_grad(), pytest.raises(ConfigError, match="nor a cache"):
        flex(**(inputs | dict(is_causal=True)), use_cache=True)
    flex.config.attention_probs_dropout_prob = 0.1
    with torch.no_grad(), pytest.raises(ConfigError, match="dropout of attention weights"):
        flex.train()(**inputs)
    with torch.no_grad():
        assert flex.eval()(**inputs, output_attentions=True).attentions[0].shape == (4, 4, 200, 200)


def test_attention_implementation_can_be_given_and_changed():
    config = E.config_for("tiny", 50, attn_implementation="flex_attention")
    model = E.new_model(EncoderForMaskedLM, config, seed=0)
    assert model.encoder.config._attn_implementation == "flex_attention"
    model.set_attn_implementation("sdpa")
    assert model.encoder.config._attn_implementation == "sdpa"
    assert (
        E.new_model(E.Encoder, E.config_for("tiny", 50), seed=0).config._attn_implementation
        == "sdpa"
    )


# ---- the states of some tokens
# ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options", [dict(norm="pre"), dict(norm="post", relative_positions="gated")]
)
@pytest.mark.parametrize("packed", [False, True])
def test_wanted_states_and_their_gradients_are_those_of_the_whole(options, packed):
    model = (
        E.new_model(E.Encoder, E.config_for("tiny", 50, **options), seed=0).double().subset([2, 0])
    )
    ids = torch.randint(5, 50, (3, 8), generator=torch_generator("wanted"))
    inputs = (
        dict(input_ids=ids.view(1, -1), cu_seqlens=torch.tensor([0, 5, 24]))
        if packed
        else dict(input_ids=ids)
    )
    wanted = inputs["input_ids"] % 3 == 0
    found = []
    for state in (model(**inputs, wanted=wanted), model(**inputs)):
        state = state.last_hidden_state
        state = state if state.ndim == 2 else state[wanted]
        found.append((state, *torch.autograd.grad(state.pow(3).sum(), list(model.parameters()))))
    # double precision; gradients are sums of up to 24 · 512 numbers
    for a, b in zip(*found):
        close(a, b, 1e-10)


# ---- attention with a learned bias on a CPU
# --------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(2, 4, 64, 32), (1, 8, 57, 64), (3, 2, 5, 16)])
def test_unfused_attention_equals_sdpa(shape):
    g = torch_generator("unfused", *shape)

    def draw(*sizes):
        return torch.randn(*sizes, generator=g, dtype=torch.float64)

    query, key, value = (draw(*shape).requires_grad_() for _ in range(3))
    bias = draw(*shape[:3], shape[2])
    bias[:, :, :, -1] = torch.finfo(bias.dtype).min  # padding
    bias.requires_grad_()
    leaves = (query, key, value, bias)
    found = []
    for out in (E.attend(*leaves)[0], F.scaled_dot_product_attention(query, key, value, bias)):
        found.append((out, *torch.autograd.grad(out.square().sum(), leaves)))
    # double precision, numbers of order 1
    for a, b in zip(*found):
        close(a, b, 1e-12)


# ---------------------------------------------------------------- threads


class SlowToBuild(EncoderForMaskedLM):
    "Building it takes long enough for two threads to load at once; the one that began first ends first."

    def __init__(self, config):
        super().__init__(config)
        time.sleep(0.2)


def test_threads_that_load_at_once_leave_shared_weights_shared(tmp_path):
    "transformers replaces `tie_weights` while it loads; what two threads put back in turn would stay replaced."
    before = PreTrainedModel.tie_weights
    EncoderForMaskedLM(toy()).save_pretrained(tmp_path)
    with ThreadPoolExecutor(3) as threads:
        running = []
        for model_class in (SlowToBuild, SlowToBuild, EncoderForMaskedLM):
            running.append(threads.submit(model_class.from_pretrained, tmp_path))
            time.sleep(0.05)
        built = threads.submit(EncoderForMaskedLM, toy()).result()
        models = [loading.result() for loading in running]
    assert PreTrainedModel.tie_weights is before
    for model in (*models, built):
        assert model.get_output_embeddings().weight is model.get_input_embeddings().weight


def test_padding_is_no_original_token():
    config = config_for("tiny", 50)
    network = new_model(EncoderForReplacedTokens, config, 0).eval()
    ids = torch.tensor([[5, 6, 7, 8], [5, 6, 1, 1]])
    mask = torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0]])
    labels = torch.tensor([[0, 1, 0, -100], [1, 0, 0, 0]])
    out = network(ids, mask, labels=labels)
    total, count = rtd_loss(out.logits, labels, mask)
    assert count == 5
    torch.testing.assert_close(out.loss, total / count)
