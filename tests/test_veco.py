"Cross-attention to the other sentence: who sees whom, parts of a batch, starts, settings, records."

import os, re, subprocess, sys
from dataclasses import replace

import pytest
import torch
from torch.testing import assert_close
from transformers import GPT2Config, GPT2Model, XLMRobertaConfig, XLMRobertaForCausalLM

from xlnb.base.core import CheckpointError, ConfigError, torch_generator
from xlnb.text.batches import encode_pairs, token_frequencies, without_digits
from xlnb.text.tokens import SpecialIds
from xlnb.encoder.encoder import EncoderConfig, load
from xlnb.encoder.foreign import load_foreign
from xlnb.encoder.heads import EncoderForCausalLM
from xlnb.training.training import read_log
from xlnb.measures.alignment import CROSSED, aer_by_layer, align
from xlnb.pretraining.pretraining import run, run_folder, train_phase
from xlnb.pretraining.reports import nats_learned
from xlnb import veco as V

SMALL = dict(
    langs="en,ru", layers=2, width=32, steps=4, batch_tokens=256, test_lines=20, vocab_size=300
)
pytestmark = pytest.mark.usefixtures("root")


def small(**changes):
    return V.resolve(V.Settings(**SMALL | changes))


@pytest.fixture(scope="module")
def data(root):
    return V.prepare_data(small())


@pytest.fixture
def unprobed(monkeypatch):
    "Runs without probes and plans, which take most of the time of a short run."
    whole = V.evaluate

    def without(network, data, *own, **more):
        return whole(network, data, *own, probe_langs=(), **more)

    monkeypatch.setattr(V, "evaluate", without)
    monkeypatch.setattr("xlnb.pretraining.pretraining.announce", lambda *_: None)


def sequences(*lengths, seed=0):
    draw = torch_generator(seed)
    begin = torch.tensor([0])
    end = torch.tensor([2])
    return [torch.cat([begin, torch.randint(5, 290, (n,), generator=draw), end]) for n in lengths]


# ---------------------------------------------------------------- who sees whom


def test_a_sentence_sees_its_own_partner_and_no_other(data):
    network = V.new_network(small(), None).eval()
    first = sequences(5, 9, 2)
    second = sequences(7, 3, 4, seed=1)

    def states(first, second):
        batch = V.pack_rows([*first, *second])
        own = V.plugged_out_states(network, batch)
        found = V.plugged_in_states(network, batch, V.partner_memory(own, batch["cu_seqlens"]))
        return own, found, batch["cu_seqlens"].tolist()

    with torch.no_grad():
        _, together, borders = states(first, second)
        for k in range(3):  # alone and beside longer ones: padding of the memory is no memory
            _, alone, own = states(first[k : k + 1], second[k : k + 1])
            for row, at in ((k, 0), (3 + k, 1)):
                here = together[:, borders[row] : borders[row + 1]]
                there = alone[:, own[at] : own[at + 1]]
                assert_close(here, there, rtol=1e-4, atol=1e-5)


def test_partners_need_two_sides(data):
    batch = V.pack_rows(sequences(3, 4, 5))
    with pytest.raises(ValueError, match="3 sequences.*an even number"):
        V.partner_memory(torch.zeros(1, len(batch["input_ids"][0]), 32), batch["cu_seqlens"])


def test_a_memory_needs_cross_attention(data):
    network = V.new_network(small(tasks="mlm"), None)
    batch = V.pack_rows(sequences(3, 4))
    memory = V.partner_memory(V.plugged_out_states(network, batch), batch["cu_seqlens"])
    with pytest.raises(ValueError, match="build it with cross_attention=True"):
        V.plugged_in_states(network, batch, memory)


def test_positions_beyond_the_table_are_refused(data):
    batch = V.pack_rows(sequences(600, 3))
    with pytest.raises(ValueError, match="position 601 is past the table"):
        V.plugged_out_states(V.new_network(small(), None), batch)


def test_the_same_weights_as_transformers_decoder(tmp_path):
    config = XLMRobertaConfig(
        vocab_size=60,
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=40,
        is_decoder=True,
        add_cross_attention=True,
    )
    torch.manual_seed(0)
    theirs = XLMRobertaForCausalLM(config).eval()
    for weight in theirs.parameters():
        torch.nn.init.normal_(weight, std=0.3)
    theirs.save_pretrained(tmp_path)
    ours = load_foreign(tmp_path, EncoderForCausalLM).eval()
    ids = torch.randint(5, 60, (3, 7))
    memory = torch.randn(3, 5, 16)
    mask = torch.tensor([[1] * 5, [1] * 3 + [0] * 2, [1] + [0] * 4])
    given = dict(input_ids=ids, encoder_hidden_states=memory, encoder_attention_mask=mask)
    with torch.no_grad():
        assert_close(ours(**given).logits, theirs(**given).logits, rtol=1e-4, atol=1e-4)


# ---------------------------------------------------------------- parts of a batch


def test_joined_sides_are_the_pair(data):
    first = sequences(3, 1)
    second = sequences(2, 4, seed=1)
    batch = V.pack_rows([*first, *second])
    joined = V.join_sides(batch | {"labels": batch["input_ids"] + 1}, restart=True)
    rows = [torch.cat([a, b[1:]]) for a, b in zip(first, second)]
    assert joined["input_ids"].tolist() == [torch.cat(rows).tolist()]
    assert torch.equal(joined["labels"], joined["input_ids"] + 1)
    assert joined["cu_seqlens"].diff().tolist() == [len(row) for row in rows]
    # anew from the </s> between
    assert joined["position_ids"][0, : len(rows[0])].tolist() == [0, 1, 2, 3, 0, 1, 2, 3]
    running = V.join_sides(batch, restart=False)["position_ids"][0, : len(rows[0])].tolist()
    assert running == list(range(len(rows[0])))


PARTS = {
    "ca-mlm+tlm": (["masked"], ["plugged_out", "masked", "plugged_in"]),
    "mlm+tlm": (["masked"], ["masked"]),
    "mlm+sides+tlm": (["masked"], ["plugged_out", "masked"]),
    "denoise": (["denoise"], ["denoise"]),
    "ca-mlm": (["plugged_out", "plugged_in"], None),
    "mlm": (["masked"], None),
}


@pytest.mark.parametrize("tasks", V.TASKS)
def test_parts_and_tokens_by_task(data, tasks):
    s = small(tasks=tasks)
    model = V.make_model(s, data)
    batches = V.make_batches(s, data)
    found = [model.prepare(batches(0, k), torch_generator(k)) for k in range(batches.micro_batches)]
    assert [[part["part"] for part in parts] for parts in found] == [p for p in PARTS[tasks] if p]
    for parts in found:
        # a token that is read twice counts once
        assert sum("attention_mask" in part for part in parts) == 1
        for part in parts:
            sums = model(part, None)
            counts = model.counts(part)
            assert set(counts) == set(part["losses"]) <= set(sums) and all(
                0 < sums[k].item() for k in counts
            )
            assert {k.split("/")[0] for k in sums} <= set(model.names)


def test_text_looks_at_its_other_half_where_it_runs_on(data):
    s = small(text_partner="adjacent")
    model = V.make_model(s, data)
    batches = V.make_batches(s, data)
    parts = model.prepare(batches(0, 0), torch_generator(0))
    assert [part["part"] for part in parts] == [
        "plugged_out",
        "plugged_in",
    ] and "ca_mlm" in model.weights
    assert "ca_mlm" not in V.make_model(small(), data).weights


def test_a_decoder_writes_the_translation(data):
    s = small(tasks="denoise")
    model = V.make_model(s, data)
    batches = V.make_batches(s, data)
    batch = batches(0, batches.micro_batches - 1)
    (part,) = model.prepare(batch, torch_generator(0))
    sides = {
        tuple(row.tolist()) for prefix in ("", "partner_") for row in V.unpadded_rows(batch, prefix)
    }
    borders = part["target_cu_seqlens"].tolist()
    ids = part["target_input_ids"][0].tolist()
    labels = part["target_labels"][0].tolist()
    for a, b in zip(borders, borders[1:]):
        assert (*ids[a:b], labels[b - 1]) in sides and ids[a + 1 : b] == labels[a : b - 1]


def test_a_denoiser_is_measured_by_the_translations_it_has_not_read(data):
    s = small(tasks="denoise")
    model = V.make_model(s, data).eval()
    held_out = V.hold_out(data, V.held_out_spec(s, s.masking))
    found = V.denoising_metrics(model, V.denoising_batches(data, held_out))
    special = SpecialIds.of(data.tokenizer)
    head = model.generator.head
    losses = []
    free = []
    frequencies = [token_frequencies(data.store, lang) for lang in ("en", "ru")]
    (text,) = held_out.partners
    words = V.denoising_batch(text, special)["target_labels"][0].tolist()
    pairs = encode_pairs(
        without_digits(data.corpus.valid["en-ru"])[: len(text.true["language"])], data.tokenizer
    )
    for row, (pair, kept) in enumerate(zip(pairs, text.true["language"].tolist())):
        read = text.true["input_ids"][row][text.true["scored"][row]]
        written = torch.tensor(pair[1 - kept])
        assert words[: len(written)] == written.tolist()  # in their order, without holes
        words = words[len(written) :]
        alone = V.pack_rows(
            [torch.cat([torch.tensor([special.bos]), read, torch.tensor([special.eos])])]
        )
        shown = torch.cat([torch.tensor([special.bos]), written[:-1]])[None]
        with torch.no_grad():
            memory = V.plugged_out_states(model.generator, alone)
            states = model.generator.encoder(
                shown, is_causal=True, encoder_hidden_states=memory
            ).last_hidden_state
            scores = (head.transform(states) @ head.weight.T + head.bias).log_softmax(-1)[0]
        losses += (-scores.gather(1, written[:, None])[:, 0]).tolist()
        free += (-torch.from_numpy(frequencies[1 - kept]).double()[written].log()).tolist()
    assert not words and found["held_out/pair_denoise"] == pytest.approx(
        sum(losses) / len(losses), rel=1e-5
    )
    assert found["held_out/pair_denoise_unigram"] == pytest.approx(sum(free) / len(free), rel=1e-9)


# ---------------------------------------------------------------- starts


def test_frozen_steps_move_cross_attention_alone(data, root, tmp_path):
    start = tmp_path / "encoder"
    encoder = V.new_network(small(tasks="mlm"), None)
    encoder.save_pretrained(start), data.tokenizer.save_pretrained(start)
    s = small(init=str(start), frozen_steps=3, steps=2, width=None, layers=None, vocab_size=None)
    assert (s.width, s.layers, s.vocab_size) == (32, 2, len(data.tokenizer))
    # as the batches are, not as it was
    assert V.veco_config(replace(s, cross_sentence_buckets="none")).restart_positions
    own = V.prepare_data(s)
    after = V.cross_attention_first(s, own)
    first = V.new_network(s, after.start).state_dict()
    fresh = V.new_network(s, own.start).state_dict()
    moved = {name for name in first if not torch.equal(first[name], fresh[name])}
    assert moved and all("cross" in name for name in moved)
    names = {"mlm", "ca_mlm", "pair_mlm", "pair_ca_mlm", "tlm"}
    assert set(read_log(run_folder(V.FROZEN, s, own))[0]) & names == {"pair_ca_mlm"}
    trained = train_phase(V.PHASE, s, after)
    assert not torch.equal(
        trained.model.generator.state_dict()["head.dense.weight"], first["head.dense.weight"]
    )


def test_another_shape_than_the_encoder_to_start_from_is_refused(data, tmp_path):
    V.new_network(small(tasks="mlm"), None).save_pretrained(tmp_path)
    with pytest.raises(ConfigError, match="layers=3 with init=.*that network has 2"):
        small(init=str(tmp_path), layers=3)
    with pytest.raises(CheckpointError, match="none is not a folder here .*: give the folder"):
        small(init=str(tmp_path / "none"), layers=None)


@pytest.mark.parametrize(
    "given, message",
    [
        (dict(tasks="ca"), "tasks='ca' is not one of ca-mlm"),
        (dict(langs="en"), "two languages or more"),
        (dict(pair_mask_rate=0.0), "pair_mask_rate=0.0 is not between 0 and 1"),
        (dict(frozen_steps=-1), "frozen_steps=-1 is below 0"),
        (dict(frozen_steps=5), "give an encoder"),
        (dict(tasks="mlm", stop_gradient=False), "no loss has a partner"),
        (dict(tasks="mlm", text_partner="adjacent"), "no loss has a partner"),
        (dict(tasks="ca-mlm", text_partner="none"), "which reads text alone"),
        (dict(dropout=1.0), "dropout=1.0 is not from 0 to below 1"),
        (dict(recipe="paper", size="small"), "the paper has large, base"),
    ],
)
def test_settings_that_cannot_be_are_refused(given, message):
    with pytest.raises(ConfigError, match=message):
        V.resolve(V.Settings(**given))


def test_the_papers_recipe_has_absolute_positions_alone():
    found = V.resolve(V.Settings(size="large", recipe="paper"))
    assert (found.relative_positions, found.relative_memory, found.norm) == ("none", "none", "post")
    assert found.text_partner == "adjacent" == V.resolve(found).text_partner
    assert V.resolve(V.Settings(size="large", recipe="paper", tasks="mlm")).text_partner == "none"
    mine = V.resolve(V.Settings(size="large", recipe="paper", relative_positions="gated"))
    assert mine.relative_positions == "gated"  # what is given stands


def test_dropout_is_the_papers_or_what_is_given_and_kept_in_the_checkpoint():
    found = V.resolve(V.Settings(size="large", recipe="paper"))
    assert (found.dropout, V.resolve(V.Settings()).dropout) == (0.1, 0.0)
    config = V.veco_config(small(dropout=0.3))
    assert config.hidden_dropout_prob == config.attention_probs_dropout_prob == 0.3


def test_the_network_drops_states_while_it_learns_and_not_when_it_is_measured(data):
    network = V.new_network(small(dropout=0.3), None)
    row = dict(input_ids=torch.tensor([[1, 9, 10, 2]]), attention_mask=torch.ones(1, 4))

    def states():
        return network.encoder(**row).last_hidden_state

    assert not torch.equal(network.train() and states(), states())
    assert torch.equal(network.eval() and states(), states())


# ---------------------------------------------------------------- runs


@pytest.mark.parametrize("tasks", ["ca-mlm+tlm", "denoise"])
def test_a_run_is_recorded(tasks, unprobed, root):
    record = run(V.RECIPE, small(tasks=tasks, out=str(root / tasks)))
    assert record["run"]["finished"]
    assert {"T3/en-ru/layer2/acc@1c", "lists/en-ru/layer2/aer"} <= record["metrics"].keys()
    assert ("held_out/ca_gap" in record["curve"][-1]) == (tasks == "ca-mlm+tlm")
    assert ("written" in nats_learned(record, record["curve"][-1])) == (tasks == "denoise")
    assert V.describe(record).startswith(
        {"denoise": "denoiser", "ca-mlm+tlm": "CA-MLM + TLM"}[tasks]
    )
    assert (root / tasks / "generator" / "README.md").exists()


# ---------------------------------------------------------------- attention


def test_links_from_cross_attention(data):
    network = V.new_network(small(), None)
    gold = data.corpus.gold
    rows = aer_by_layer(network, gold, data.tokenizer, method=CROSSED)
    assert sorted({r["layer"] for r in rows}) == [1, 2]
    assert all(r["metric"].endswith("/aer-cross_attention") for r in rows)
    same = [("Basque, Sindhi and Yi",) * 2]
    one = align(same, network, 1, CROSSED, data.tokenizer)[0]
    # alike: each word to itself, untrained
    assert {(i, i) for i in range(4)} <= {link[:2] for link in one}
    assert align([("", "a"), ("b", "")], network, 1, CROSSED, data.tokenizer) == [[], []]
    with pytest.raises(ConfigError, match="a block, from 1 on"):
        align(same, network, 0, CROSSED, data.tokenizer)
    with pytest.raises(ConfigError, match="reads the sentences apart"):
        align(same, network, 1, CROSSED, data.tokenizer, joint=True)
    with pytest.raises(ConfigError, match="cross_attention=True"):
        align(same, V.new_network(small(tasks="mlm"), None), 1, CROSSED, data.tokenizer)


def test_attention_across_is_a_share(data):
    pairs = data.corpus.valid["en-ru"][:8]
    rows = V.attention_across(V.new_network(small(), None), pairs, data.tokenizer)
    assert [r["layer"] for r in rows] == [1, 2] and all(
        0 < r["share"] < 1 and 0 < r["even"] < 1 for r in rows
    )
    even = V.new_network(small(), None)
    for block in even.encoder.layers:
        block.attention.qkv.weight.data.zero_()
    even.encoder.relative_bias.weight.data.zero_()
    for row in V.attention_across(even, pairs, data.tokenizer):
        assert row["share"] == pytest.approx(row["even"], abs=1e-6)


# ---------------------------------------------------------------- an encoder to start from


@pytest.fixture(scope="module")
def encoder(data, root):
    "A folder with an encoder of this library and its tokenizer."
    folder = root / "encoder"
    V.new_network(small(tasks="mlm"), None).save_pretrained(folder)
    data.tokenizer.save_pretrained(folder)
    return str(folder)


def from_encoder(encoder, **changes):
    kept = {k: v for k, v in SMALL.items() if k not in ("layers", "width", "vocab_size")}
    return V.resolve(V.Settings(**kept | changes, init=encoder, relative_positions="gated"))


def test_a_folder_of_ones_own_holds_the_run_and_not_the_frozen_phase(encoder, tmp_path, unprobed):
    record = run(V.RECIPE, from_encoder(encoder, frozen_steps=2, out=str(tmp_path)))
    assert record["run"]["finished"] and len(read_log(tmp_path)) == 4


def test_a_record_of_a_run_from_an_encoder_can_be_read_again(encoder):
    s = from_encoder(encoder)
    recorded = s.for_record()
    assert re.fullmatch("encoder-[0-9a-f]{12}", recorded["init"])
    assert V.resolve(V.Settings(**recorded)).width == s.width
    assert f"from {recorded['init']}" in V.describe({"parameters": recorded})
    assert "from" not in V.describe({"parameters": small().for_record()})


def test_a_decoder_is_no_encoder_to_start_from(tmp_path):
    config = GPT2Config(vocab_size=50, n_embd=8, n_layer=1, n_head=2)
    GPT2Model(config).save_pretrained(tmp_path)
    with pytest.raises(CheckpointError, match="is a gpt2 checkpoint: only xlnb, roberta"):
        from_encoder(str(tmp_path))


def test_arms_of_an_experiment_read_the_same_tokens():
    for name in ("tasks", "phrases"):
        experiment = V.EXPERIMENTS[name]
        runs = [
            V.resolve(V.Settings(**experiment.shared | arm)) for arm in experiment.arms.values()
        ]
        assert len({sum(V.step_tokens(s)) * s.steps for s in runs}) == 1, name


def test_a_record_says_where_attention_goes(data, unprobed):
    record = run(V.RECIPE, small(tasks="ca-mlm+tlm", max_minutes=60.0, steps=2))
    assert [row["layer"] for row in record["attention"]] == [1, 2]
    assert all(0 < row["share"] < 1 and 0 < row["even"] < 1 for row in record["attention"])
    crossed = [name for name in record["metrics"] if name.endswith("/aer-cross_attention")]
    # beside those of the states, as ever
    assert {name.split("/")[2] for name in crossed} == {"layer1", "layer2"}
    assert {name.replace("-cross_attention", "") for name in crossed} <= record["metrics"].keys()


# ---------------------------------------------------------------- several processes


def test_processes_that_would_read_text_alone_are_refused(data, monkeypatch):
    monkeypatch.setattr(V, "rank_and_world", lambda: (0, 2))
    with pytest.raises(
        ConfigError, match="1 micro-batches of text and 1 of pairs for 2 processes: .* micro_tokens"
    ):
        V.make_batches(small(), data)
    assert V.make_batches(small(micro_tokens=128), data).pair_micro == 2
    # all weights learn from text too
    for tasks in ("mlm+tlm", "denoise"):
        V.make_batches(small(tasks=tasks), data)


@pytest.mark.slow
def test_two_processes_train_the_same_model(tmp_path, root):
    shape = SMALL | dict(steps=2, micro_tokens=128, max_minutes=20.0)
    given = [w for k, v in shape.items() for w in (f"--{k.replace('_', '-')}", str(v))]
    two = [
        "-m",
        "torch.distributed.run",
        "--nproc-per-node=2",
        "--rdzv-backend=c10d",
        "--rdzv-endpoint=127.0.0.1:0",
    ]
    losses = []
    for launcher in ([], two):
        out = tmp_path / str(len(losses))
        done = subprocess.run(
            [sys.executable, *launcher, "-m", "xlnb.veco", *given, "--out", str(out)],
            capture_output=True,
            text=True,
            timeout=600,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
        )
        assert done.returncode == 0, done.stderr[-2000:]
        losses.append([line["loss"] for line in read_log(out)])
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)


@pytest.mark.parametrize("recipe", ["paper", "default"])
def test_the_comparison_shows_the_papers_column_for_the_size(recipe):
    "Table 8 has two: large, and small, which is our base; what it does not give of small is not taken from large."
    shown = {
        size: {
            row[""]: row
            for row in V.compare_with_paper(V.resolve(V.Settings(size=size, recipe=recipe)))
        }
        for size in ("base", "large")
    }
    paper = {
        size: {name: row["paper"] for name, row in rows.items()} for size, rows in shown.items()
    }
    differ = {name for name in paper["base"] if paper["base"][name] != paper["large"][name]}
    assert differ == {
        "network",
        "vocabulary",
        "learning rate",
        "starts from",
        "cross-attention trained alone",
        "Adam",
    }
    assert (
        paper["base"]["network"] == "6 × 768 (12 heads, 3072)"
        and paper["base"]["learning rate"] == "3e-4"
    )
    assert paper["base"]["vocabulary"] == "not given" and "0.999" in paper["base"]["Adam"]
    assert shown["base"]["Adam"]["this run"].startswith("β 0.9, 0.98")
    assert paper["large"]["network"] == "24 × 1024 (16 heads, 4096)"
    if recipe == "paper":
        for rows in shown.values():
            assert rows["network"]["this run"] == rows["network"]["paper"]


@pytest.mark.parametrize(
    "tasks, pairs", [("mlm", False), ("ca-mlm", False), ("ca-mlm+tlm", True), ("denoise", False)]
)
def test_a_network_says_whether_it_has_read_pairs_in_one_row_and_does_not_forget(
    data, tmp_path, tasks, pairs
):
    V.make_model(small(tasks=tasks), data).save_pretrained(tmp_path)
    config = EncoderConfig.from_pretrained(tmp_path / "generator")
    assert config.trained_on_pairs == pairs
    assert load(
        tmp_path / "generator", config=EncoderConfig.from_pretrained(tmp_path / "generator")
    )
    data.tokenizer.save_pretrained(tmp_path / "generator")
    goes_on = small(tasks="mlm", init=str(tmp_path / "generator"))
    assert V.new_network(goes_on, tmp_path / "generator").config.trained_on_pairs == pairs
