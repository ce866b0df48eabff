"Encoder and decoder out of one network: what they share, search, VECO's names, fewer pieces."

import pytest
import torch
from torch.testing import assert_close
from transformers import AutoModelForSeq2SeqLM

from xlnb.base.core import ConfigError
from xlnb.encoder.encoder import config_for, new_model
from xlnb.encoder.heads import EncoderForMaskedLM
from xlnb.encoder.seq2seq import (
    TranslationConfig,
    decoder_blocks,
    encoder_decoder_from,
    from_veco,
    to_veco,
    veco_names,
)


def masked_lm(seed=0, **choices):
    return new_model(
        EncoderForMaskedLM, config_for("tiny", 60, mask_token_id=59, **choices), seed
    ).eval()


def rows(*shape, seed=0):
    return torch.randint(5, 55, shape, generator=torch.Generator().manual_seed(seed))


GATED = dict(cross_attention=True, relative_positions="gated")


@pytest.mark.parametrize("tied", [True, False])
def test_saved_and_loaded_it_scores_the_same_and_shares_what_it_shared(tied, tmp_path):
    model = encoder_decoder_from(masked_lm(**GATED), [1, 2], tied).eval()
    model.save_pretrained(tmp_path)
    again = AutoModelForSeq2SeqLM.from_pretrained(tmp_path).eval()
    source = rows(2, 7)
    target = rows(2, 5, seed=1)
    with torch.no_grad():
        assert_close(
            model(source, decoder_input_ids=target).logits,
            again(source, decoder_input_ids=target).logits,
        )
    for one in (model, again):
        words = one.encoder.embeddings.word_embeddings.weight
        assert one.decoder.embeddings.word_embeddings.weight is words
        shared = (
            one.decoder.layers[0].attention.qkv.weight is one.encoder.layers[1].attention.qkv.weight
        )
        assert shared == tied


def test_of_untied_embeddings_it_has_one_matrix_and_shares_its_blocks():
    model = encoder_decoder_from(masked_lm(**GATED, tie_word_embeddings=False), tied=True)
    words = model.encoder.embeddings.word_embeddings.weight
    assert model.decoder.embeddings.word_embeddings.weight is words
    assert model.decoder.layers[2].up.weight is model.encoder.layers[2].up.weight
    with pytest.raises(ConfigError, match="have one embedding matrix"):
        TranslationConfig(tie_word_embeddings=False)


def test_without_a_first_token_none_is_guessed():
    network = masked_lm(**GATED, bos_token_id=None)
    with pytest.raises(ConfigError, match="give decoder_start_token_id"):
        encoder_decoder_from(network)
    model = encoder_decoder_from(network, decoder_start_token_id=7)
    assert model.shifted(torch.tensor([[8, 9]])).tolist() == [[7, 8]]


def test_blocks_are_chosen_before_it_is_made():
    model = encoder_decoder_from(masked_lm(**GATED), tied=True)
    with pytest.raises(ConfigError, match="encoder-decoder has no subset"):
        model.subset([1])


def test_with_more_subwords_it_still_scores_and_shares(tmp_path):
    model = encoder_decoder_from(masked_lm(**GATED)).eval()
    scores = model(rows(2, 7), decoder_input_ids=rows(2, 5)).logits
    model.resize_token_embeddings(63)
    more = model(rows(2, 7), decoder_input_ids=rows(2, 5)).logits
    assert_close(more[..., :60], scores)
    model.save_pretrained(tmp_path)
    assert AutoModelForSeq2SeqLM.from_pretrained(tmp_path).bias.shape == (63,)


def test_the_decoder_starts_from_the_blocks_that_were_chosen():
    network = masked_lm(**GATED)
    model = encoder_decoder_from(network, decoder_blocks(3, 2, "last"))
    for ours, theirs in zip(model.decoder.layers, network.encoder.layers[1:]):
        assert torch.equal(ours.cross_attention.kv.weight, theirs.cross_attention.kv.weight)
        assert torch.equal(ours.up.weight, theirs.up.weight)
    assert not any("cross" in name for name in model.encoder.state_dict())
    with pytest.raises(ConfigError, match="the encoder has 3, give 1 to 3"):
        decoder_blocks(3, 4)
    with pytest.raises(ConfigError, match="did you mean 'last'"):
        decoder_blocks(3, 1, "lsat")
    with pytest.raises(ConfigError, match="decoder_layers='2': give a whole number"):
        decoder_blocks(3, "2")
    with pytest.raises(ConfigError, match="'folder' is no EncoderForMaskedLM"):
        encoder_decoder_from("folder")
    with pytest.raises(ConfigError, match="decoder block=7"):
        TranslationConfig(num_hidden_layers=3, decoder_blocks=[7])


@pytest.mark.parametrize("memory", ["none", "shared"])
@pytest.mark.parametrize("norm", ["pre", "post"])
def test_a_cache_changes_no_translation(memory, norm):
    model = encoder_decoder_from(masked_lm(3, norm=norm, relative_memory=memory, **GATED)).eval()
    source = rows(3, 9)
    mask = torch.ones_like(source)
    mask[1, 5:] = 0
    for beams in (1, 4):
        options = dict(
            attention_mask=mask, num_beams=beams, max_length=14, do_sample=False, length_penalty=0.5
        )
        found = model.generate(source, **options)
        assert torch.equal(found, model.generate(source, use_cache=False, **options))
    alone = model.generate(
        source[1:2, :5], num_beams=4, max_length=14, do_sample=False, length_penalty=0.5
    )[0]
    assert torch.equal(found[1][: len(alone)], alone), "padding of the source is seen"


def test_a_language_can_be_forced():
    model = encoder_decoder_from(masked_lm(**GATED)).eval()
    found = model.generate(
        rows(2, 6), forced_bos_token_id=44, num_beams=2, max_length=8, do_sample=False
    )
    assert found[:, 0].tolist() == [0, 0] and found[:, 1].tolist() == [44, 44]


def test_the_decoder_sees_nothing_that_comes_later():
    model = encoder_decoder_from(masked_lm(**GATED)).eval()
    source = rows(2, 6)
    target = rows(2, 8, seed=1)
    embedded = model.decoder.embeddings.word_embeddings(target).detach().requires_grad_()
    memory = model.encoder(source).last_hidden_state
    states = model.decoder(
        inputs_embeds=embedded, is_causal=True, encoder_hidden_states=memory
    ).last_hidden_state
    states[:, 3, 0].sum().backward()
    assert embedded.grad[:, 4:].abs().max() == 0 and embedded.grad[:, :4].abs().amax(-1).min() > 0


@pytest.mark.parametrize(
    "kind, network",
    [
        (
            "pretrained",
            lambda: masked_lm(cross_attention=True, pooler=True, type_vocab_size=1, norm="post"),
        ),
        ("translation", lambda: encoder_decoder_from(masked_lm(cross_attention=True), [2])),
    ],
)
def test_weights_go_to_vecos_names_and_back(kind, network):
    # which fairseq's have not
    weights = {name: w for name, w in network().state_dict().items() if name != "bias"}
    theirs = to_veco(weights, kind)
    assert sum(w.numel() for w in theirs.values()) == sum(w.numel() for w in weights.values())
    back = from_veco(theirs, list(weights), kind)
    assert back.keys() == weights.keys() and all(
        torch.equal(back[name], w) for name, w in weights.items()
    )
    keys = ("attn.k_proj.weight", "cross_attention.self.key.weight")
    del theirs[next(name for name in theirs if name.endswith(keys))]
    with pytest.raises(KeyError, match="k_proj|key"):
        from_veco(theirs, list(weights), kind)


def test_what_vecos_checkpoints_lack_is_named():
    with pytest.raises(
        ConfigError,
        match="'encoder.relative_bias.weight' has no counterpart.*relative_positions='none'",
    ):
        veco_names(list(masked_lm(**GATED).state_dict()), "pretrained")
    with pytest.raises(ConfigError, match="kind='fairseq' is not one of"):
        veco_names([], "fairseq")
