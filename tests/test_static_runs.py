"An encoder that goes on towards static vectors: settings, gradients, words in turn, selection, resuming, records."

import json
import math
import shutil
from collections import Counter
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from conftest import write
from safetensors.torch import load_file
from transformers import XLMRobertaConfig, XLMRobertaForMaskedLM

from xlnb.base.core import CheckpointError, ConfigError, DataError, read_records
from xlnb.text.vectors import WordVectors, read_vectors
from xlnb.encoder.encoder import config_for, load, new_model
from xlnb.encoder.foreign import load_foreign
from xlnb.encoder.heads import EncoderForMaskedLM
from xlnb.training.objectives import MaskIds
from xlnb.training.training import accumulate_gradients, read_log, step_work, train
from xlnb.pretraining.experiments import Experiment, missing, records_of
from xlnb.pretraining.pretraining import (
    MaskedLanguageModel,
    init_for_record,
    main,
    run_folder,
    step_tokens,
    train_phase,
    training_config,
)
from xlnb.pretraining.reports import has_learned, layer_means
from xlnb.results import static_runs as S
from xlnb.results.static_runs import (
    BASE,
    MASKING,
    PHASE,
    RECIPE,
    Settings,
    WordBatches,
    base_network,
    base_of,
    continuation_of,
    in_one_space,
    lexicons,
    lsa_space,
    make_batches,
    make_model,
    prepare_data,
    pulled_words,
    resolve,
    text_batches,
    translation_scores,
    vector_files,
    with_base,
    with_teacher,
    word_tests,
)
from xlnb.static_transfer import LOSSES, word_batches

SMALL = dict(
    langs="de,en",
    width=32,
    layers=2,
    steps=3,
    batch_tokens=256,
    test_lines=16,
    vocab_size=300,
    teacher_lines=600,
    transfer_steps=5,
    words=192,
)
pytestmark = pytest.mark.usefixtures("root")


def small(**changes):
    return resolve(Settings(**SMALL | changes))


@pytest.fixture(scope="module")
def data(root):
    return with_teacher(small(), with_base(small(), prepare_data(small())))


@pytest.fixture(scope="module")
def whole(root, data):
    assert train_phase(PHASE, small(loss="dcca_ey", out=str(root / "whole")), data).summary[
        "finished"
    ]
    return root / "whole"


@pytest.mark.parametrize(
    "wrong, says",
    [
        (dict(loss="cca"), "loss='cca' is not one of .*none"),
        (dict(weight=0.0), "weight=0.0 is not above 0"),
        (dict(weight=math.inf), "weight=inf: give a finite"),
        (dict(rate=-1.0), "rate=-1.0 is not above 0"),
        (dict(tasks="tlm"), "tasks='tlm'"),
        (dict(hub="fr"), "hub='fr'"),
        (dict(langs="en"), "two languages or more"),
        (dict(layer=3), "layer=3"),
        (
            dict(loss="dcca_as_published", words=100),
            "words=100 and words_at_once=64.* multiple of 64",
        ),
        (
            dict(words=321, micro_tokens=128, words_at_once=3),
            "2 micro-batches of text in a step: give a multiple of 6 ",
        ),
        (
            dict(words_at_once=20, loss="dcca_as_published"),
            "words_at_once=20: dcca_as_published needs 22",
        ),
        (
            dict(loss="dcca", words=64),
            "64 words in a loss: unrelated vectors .* give 129 words or more",
        ),
        (
            dict(teacher="x2statc"),
            "teacher='x2statc' is not one of x2static, .*, lsa, and .* lacks de.safetensors",
        ),
        (dict(recipe="paper"), "goes on from XLM-R-base.* by init="),
        (dict(transfer_steps=0), "transfer_steps=0 is not above 0"),
    ],
)
def test_settings_that_cannot_be_are_refused_with_a_sentence(wrong, says):
    with pytest.raises(ConfigError, match=says):
        small(**wrong)


def test_a_command_with_a_wrong_argument_ends_with_a_sentence():
    with pytest.raises(SystemExit, match="xlnb: weight=0.0 is not above 0"):
        main(RECIPE, ["--weight", "0.0"])


NAMES = SimpleNamespace(
    name="cldr", langs=["de", "en", "ru"], text=dict.fromkeys(["de", "en", "ru"], [])
)


@pytest.mark.parametrize(
    "changes, says",
    [
        (dict(teacher="lsa", teacher_width=96), "fastText's alone can be chosen"),
        (
            dict(teacher="fasttext", teacher_width=96),
            "loss='cosine' with a teacher of width 96 and width=",
        ),
        (dict(teacher="fasttext", teacher_width=0, loss="dcca_ey"), "teacher_width=0"),
        (
            dict(teacher="lsa", identity_weight=1.0),
            "identity_weight=1.0 with loss='cosine' and teacher='lsa': there is no map",
        ),
        (
            dict(teacher="x2static", identity_weight=-1.0),
            "identity_weight=-1.0: give a number from 0 on",
        ),
        (dict(goes_on="mlm+tlm"), "words come beside text alone"),
        (dict(shuffled=True, loss="none"), "nothing is pulled"),
    ],
)
def test_widths_of_teachers_that_cannot_be(changes, says):
    with pytest.raises(ConfigError, match=says):
        small(**changes)


@pytest.mark.filterwarnings("ignore:.*left unaligned")
@pytest.mark.slow
def test_fasttext_of_another_width_teaches(data):
    pytest.importorskip("gensim")
    given = small(loss="dcca_ey", teacher="fasttext", teacher_width=24)
    taught = with_teacher(given, data)
    assert {v.width for v in taught.teacher.values()} == {24} and {*taught.teacher} == {
        *data.corpus.langs
    }
    assert all(v.made_by["method"] == "fastText" for v in taught.teacher.values())
    batch = make_batches(given, taught)(0, 0)
    assert batch["static"].shape[1] == 24
    model = make_model(given, taught)
    generator = torch.Generator()
    assert model(model.prepare(batch, generator), generator)["transfer"].isfinite()


def test_all_arms_continue_one_base_run(data):
    written = data.start.stat().st_mtime_ns
    arms = [dict(loss=name) for name in ("none", *LOSSES)]
    arms += [dict(rate=0.1), dict(weight=3.0), dict(teacher="x2static")]
    for arm in arms:
        assert base_of(small(**arm)) == base_of(small())
    assert (
        with_base(small(loss="none"), data).start == data.start
        and data.start.stat().st_mtime_ns == written
    )
    folders = {run_folder(PHASE, small(**arm), data) for arm in arms}
    assert len(folders) == len(arms) and data.made not in folders
    assert data.made == run_folder(BASE, base_of(small()), data)


def test_the_continuation_has_as_many_tokens_of_text_as_the_base_run_had_in_all():
    given = small(tasks="mlm+tlm", rate=0.5)
    part = continuation_of(given)
    assert (part.tasks, part.batch_tokens, part.steps) == ("mlm", 512, 5)
    assert (
        training_config(part).learning_rate == 0.5 * training_config(base_of(given)).learning_rate
    )


def test_entries_of_a_published_lexicon_are_written_as_the_text_writes_them(tmp_path, monkeypatch):
    "MUSE has lower case; German nouns do not, and a word that the text lacks has no vector to be asked for."
    rows = {"0-5000": "hund dog\nkatze cat\n", "5000-6500": "haus house\nbaum tree\nhund hound\n"}
    for part, text in rows.items():
        write(tmp_path / "muse-dictionaries" / f"de-en.{part}.txt", text)
    monkeypatch.setenv("XLNB_DATA", str(tmp_path))
    text = {
        "de": ["Ein Hund und eine Katze", "Der Hund", "ein Baum"],
        "en": ["a dog and a cat", "Dog", "dog", "tree"],
    }
    captions = SimpleNamespace(name="multi30k", langs=["de", "en"], text=text)
    known, test = lexicons(captions, "en")
    assert {*known["de"], *test["de"]} == {("Hund", "dog"), ("Katze", "cat"), ("Baum", "tree")}
    (tmp_path / "empty").mkdir()
    monkeypatch.setenv("XLNB_DATA", str(tmp_path / "empty"))
    with pytest.raises(FileNotFoundError, match="de-en"):
        lexicons(captions, "en")


def test_words_that_hang_together_by_entries_are_on_one_side():
    rows = [
        ("Bank", "bench"),
        ("Bank", "bank"),
        ("Ufer", "bank"),
        ("Ufer", "shore"),
        ("Hund", "dog"),
        ("Köter", "dog"),
    ]
    assert S._families(rows) == ["bank"] * 4 + ["dog"] * 2
    assert S._families(rows[::-1]) == ["dog"] * 2 + ["bank"] * 4  # whatever the order
    assert S._families([]) == []


def test_no_name_of_the_test_is_known_to_a_map():
    known, test = lexicons(NAMES, "en")
    for lang in ("de", "ru"):
        for side in (0, 1):
            assert not {e[side] for e in known[lang]} & {e[side] for e in test[lang]}
        assert min(len(known[lang]), len(test[lang])) > 100
    hub_words = [{b for _, b in test[lang]} for lang in ("de", "ru")]
    # nearly the same in all languages
    assert len(hub_words[0] & hub_words[1]) > 0.9 * min(map(len, hub_words))
    for pair, sides in word_tests(test, "en").items():
        assert pair in ("de-en", "en-ru") and all(len({*side}) == len(side) for side in sides)
        assert all(a != b for a, b in zip(*sides))


def test_translations_make_one_space_and_chance_another(data):
    "Held-out names are found by LSA; the same vectors under permuted names find about one in the number of words."
    spaces = data.teacher
    assert all(
        torch.allclose(v.matrix.norm(dim=1), torch.ones(len(v)), atol=1e-5) for v in spaces.values()
    )
    test = data.lexicon[1]
    found = translation_scores(spaces, "en", test, "mapped")["bli/de-en/mapped/acc@1"]
    turned = spaces["de"].matrix[
        torch.randperm(len(spaces["de"]), generator=torch.Generator().manual_seed(0))
    ]
    free = translation_scores(
        {**spaces, "de": replace(spaces["de"], matrix=turned)}, "en", test, "mapped"
    )
    assert found > 0.3 > 10 * max(0.001, free["bli/de-en/mapped/acc@1"])


@pytest.mark.filterwarnings("ignore:.*left unaligned")
@pytest.mark.slow
def test_too_few_known_names_leave_a_map_to_the_shape_of_the_spaces():
    lexicon = lexicons(NAMES, "en")[0]
    draw = torch.Generator().manual_seed(0)
    known = lexicon["de"][:12]

    def mapped(n):  # names known
        words = {"de": [a for a, _ in known[:n]], "en": [b for _, b in known[:n]]}
        own = {
            lang: WordVectors(
                [*w, *(f"{lang}{k}" for k in range(60 - n))],
                torch.randn(60, 8, generator=draw),
                lang,
            )
            for lang, w in words.items()
        }
        return in_one_space(own, "en", {"de": lexicon["de"]})["de"].made_by["map"]

    assert (mapped(9)["start"], mapped(12)["start"], mapped(12)["pairs"]) == (
        "unsupervised",
        "dictionary",
        12,
    )


def test_where_spaces_are_nearly_one_a_regularised_map_is_kept_and_a_free_one_refused():
    draw = torch.Generator().manual_seed(0)
    n = 400
    width = 64
    hub = torch.randn(n, width, generator=draw)
    own = {
        "en": WordVectors([f"en{k}" for k in range(n)], hub, "en"),
        "de": WordVectors(
            [f"de{k}" for k in range(n)], hub + torch.randn(n, width, generator=draw), "de"
        ),
    }
    known = {"de": [(f"de{k}", f"en{k}") for k in range(40)]}
    with pytest.warns(UserWarning, match="left unaligned"):
        free = in_one_space(own, "en", known)
    held = in_one_space(own, "en", known, 1.0)
    assert [spaces["de"].made_by["map"]["mapped"] for spaces in (free, held)] == [False, True]


def test_the_map_of_vectors_out_of_the_encoder_is_regularised_unless_told_otherwise():
    def weight(**given):
        return resolve(small(**given)).identity_weight

    own = (
        dict(teacher="x2static"),
        dict(teacher="aggregated"),
        dict(teacher="x2static", identity_weight=0.0),
    )
    assert [weight(**given) for given in own] == [1, 1, 0]
    assert (
        weight(teacher="lsa"),
        weight(teacher="fasttext"),
        weight(teacher="x2static", loss="none"),
    ) == (0, 0, 0)


def test_words_come_in_turn_and_once_in_an_epoch(data):
    batches = make_batches(small(), data)
    pulled = pulled_words(data.teacher, "en", data.lexicon[1])
    drawn = [batches.draw(n)[0] for n in range(2 * min(len(v) for v in pulled.values()))]
    for k, (lang, vectors) in enumerate(pulled.items()):
        # two words of each language in turn
        own = [word for n, word in enumerate(drawn) if n // 2 % 2 == k]
        assert len({*own}) == len(own) and {*own} <= {*vectors.words}
    one = batches(3, 0)
    other = make_batches(small(), data)(3, 0)
    assert all(torch.equal(one[name], other[name]) for name in one)
    words = [batches.draw(3 * 192 + k) for k in range(192)]
    (read,) = word_batches([word for word, _ in words], data.tokenizer, 192)
    assert torch.equal(one["word_input_ids"], read["input_ids"])
    assert torch.equal(one["static"], torch.stack([vector for _, vector in words]))


def test_shuffled_every_word_has_the_vector_of_another(data):
    plain, mixed = (
        make_batches(small(loss="mse", shuffled=mixed), data).teacher["de"]
        for mixed in (False, True)
    )
    assert mixed.words == plain.words and torch.equal(
        *(v.matrix.sum(1).sort().values for v in (mixed, plain))
    )
    assert (mixed.matrix == plain.matrix).all(1).float().mean() < 0.05


def test_the_control_of_the_base_runs_own_tasks_reads_as_many_tokens(data):
    alone, both = (
        continuation_of(small(loss="none", goes_on=tasks)) for tasks in ("mlm", "mlm+tlm")
    )
    assert sum(S.step_tokens(alone)) == sum(S.step_tokens(both)) and S.step_tokens(both)[1] > 0
    model = make_model(small(loss="none", goes_on="mlm+tlm"), data)
    assert {"mlm", "tlm"} <= {*model.names} and "tlm" not in make_model(
        small(loss="none"), data
    ).names


@pytest.mark.parametrize("langs", [1, 2, 3, 4])
def test_both_halves_of_the_words_hold_the_same_languages(
    data, langs
):  # `dcca_ey` takes every second word
    one = next(iter(data.teacher.values()))
    teacher = {
        f"x{k}": replace(one, words=[f"{k}{word}" for word in one.words]) for k in range(langs)
    }
    batches = WordBatches(make_batches(small(loss="none"), data), teacher, data.tokenizer, 24, 0)
    drawn = [batches.draw(n)[0][0] for n in range(24)]
    assert Counter(drawn[0::2]) == Counter(drawn[1::2]) and len({*drawn}) == langs


def test_no_name_of_the_test_is_pulled_in_whatever_case(data):
    asked = {
        word.casefold() for side in word_tests(data.lexicon[1], "en")["de-en"] for word in side
    }
    lower = {
        lang: replace(v, words=[word.lower() for word in v.words]) if lang == "de" else v
        for lang, v in data.teacher.items()
    }  # as files of vectors often have them
    for teacher in (data.teacher, lower):
        kept = pulled_words(teacher, "en", data.lexicon[1])
        for lang, v in kept.items():
            assert not asked & {word.casefold() for word in v.words}
            assert 0.3 < len(v) / len(teacher[lang]) < 1
            assert all(torch.equal(v[word], teacher[lang][word]) for word in v.words[:20])


def test_a_word_without_subwords_is_refused_before_training(data):
    blank = WordVectors(["\u200b", "a"], torch.eye(2), "de")
    with pytest.raises(DataError, match="has no subwords"):
        WordBatches(text_batches(small(), data), {"de": blank}, data.tokenizer, 192, 0)


@pytest.mark.parametrize("loss", [*LOSSES])
def test_the_alignment_loss_moves_word_table_and_blocks(data, loss):
    "With masked tokens out of play, what has a gradient has it from the words."
    model = make_model(given := small(loss=loss), data)
    model.weights |= {"mlm": 0.0}
    part = continuation_of(given)
    sums, counts = accumulate_gradients(
        model, step_work(model, make_batches(given, data), training_config(part), 0)
    )
    assert counts["transfer"] == 192 and math.isfinite(sums["transfer"])
    encoder = model.generator.encoder
    table = encoder.get_input_embeddings().weight.grad
    assert table.abs().sum() > 0
    for block in S_blocks(encoder):
        assert max(p.grad.abs().max() for p in block.parameters()) > 0
    assert all(p.grad is None for p in model.selected.parameters())


def S_blocks(encoder):
    return next(m for m in encoder.modules() if isinstance(m, torch.nn.ModuleList) and len(m) == 2)


def test_micro_batches_of_words_give_the_gradients_of_all(data):
    "Words that do not fit at once are encoded again; to float32 rounding over two orders of summation."
    found = []
    for room in (8192, 200):
        model = make_model(small(loss="dcca_ey"), data)
        model.room = room
        batches = make_batches(small(loss="dcca_ey"), data)
        accumulate_gradients(model, step_work(model, batches, training_config(small()), 0))
        found.append(
            torch.cat(
                [p.grad.flatten() for p in model.generator.parameters() if p.grad is not None]
            )
        )
    assert (found[0] - found[1]).norm() < 1e-5 * found[0].norm()


def weights_of(folder, part="generator"):
    return load_file(folder / part / "model.safetensors")


def test_stopped_at_every_step_it_ends_in_the_same_bits(tmp_path, data, whole):
    given = small(loss="dcca_ey", out=str(tmp_path), max_minutes=1e-6)  # one step a call
    calls = [train_phase(PHASE, given, data).summary["finished"] for _ in range(5)]
    assert calls == [False] * 4 + [True]
    for part in ("generator", "selected"):
        one = weights_of(tmp_path, part)
        other = weights_of(whole, part)
        assert one.keys() == other.keys() and all(torch.equal(one[k], other[k]) for k in one)
    kept = [
        load_file(next(f.glob("checkpoint-*")) / "selection.safetensors") for f in (tmp_path, whole)
    ]
    assert {*kept[0]} == {"best", "transfer.maps.0", "transfer.maps.1"}
    assert all(torch.equal(kept[0][k], kept[1][k]) for k in kept[0])
    last = [{k: v for k, v in read_log(f)[-1].items() if k != "seconds"} for f in (tmp_path, whole)]
    assert last[0] == last[1] and "transfer" in last[0]


def test_the_selected_network_is_that_of_the_lowest_held_out_loss(data):
    model = make_model(small(loss="none"), data)
    losses = iter([3.0, 2.0, 2.5, 2.0])
    model.judge = lambda network: next(losses)
    model.due = lambda step: step != 1
    weight = model.generator.encoder.get_input_embeddings().weight
    seen = []
    for step in range(5):
        with torch.no_grad():
            weight.fill_(step)
        model.after_step(step, {})
        seen.append(float(model.primary_network.encoder.get_input_embeddings().weight[0, 0]))
    assert seen == [0, 0, 2, 2, 2] and model.best.tolist() == [2.0, 2.0]


def test_none_is_masked_language_modelling_and_nothing_else(tmp_path, data, root):
    given = small(loss="none", out=str(root / "none"))
    trained = train_phase(PHASE, given, data)
    part = continuation_of(given)
    plain = MaskedLanguageModel(base_network(given, data), MASKING, MaskIds.of(data.tokenizer))
    train(
        plain,
        S.pretraining.make_batches(part, data, part.batch_tokens),
        training_config(part),
        tmp_path,
    )
    one = plain.generator.state_dict()
    other = trained.model.generator.state_dict()
    assert all(torch.equal(one[k], other[k]) for k in one)
    assert any(
        not torch.equal(v, base_network(given, data).state_dict()[k]) for k, v in one.items()
    )


@pytest.mark.parametrize("loss", [*LOSSES])
def test_every_loss_runs_and_is_logged(tmp_path, data, loss):
    trained = train_phase(PHASE, small(loss=loss, out=str(tmp_path)), data)
    assert trained.summary["finished"] and trained.losses == ["mlm", "transfer"]
    assert [line for line in read_log(tmp_path) if not math.isfinite(line["transfer"])] == []
    assert math.isfinite(trained.model.best[0])


def test_vectors_of_files_are_read_by_language_and_recorded_by_contents(tmp_path, data):
    for lang, vectors in data.teacher.items():
        replace(vectors, matrix=3 * vectors.matrix).save(tmp_path / f"wiki.{lang}.vec")
    given = small(teacher=str(tmp_path / "wiki.{lang}.vec"))
    read = with_teacher(given, data).teacher
    for lang, vectors in data.teacher.items():
        assert read[lang].words == vectors.words and torch.allclose(
            read[lang].matrix, vectors.matrix, atol=1e-6
        )
    named = given.for_record()["teacher"]
    assert named.startswith("wiki.{lang}.vec-") and str(tmp_path) not in named
    path = vector_files(given)["de"]
    changed = read_vectors(path, language="de").first(50)
    changed.save(path)
    assert given.for_record()["teacher"] != named
    narrow = read_vectors(path, language="de")
    replace(narrow, matrix=narrow.matrix[:, :20]).save(path)
    # before the base run
    with pytest.raises(ConfigError, match="loss='mse' with a teacher of width 20 and width=32"):
        resolve(replace(given, loss="mse"))
    narrow = {lang: replace(v, matrix=v.matrix[:, :20]) for lang, v in data.teacher.items()}
    with pytest.raises(ConfigError, match="mse between vectors of width 32 and 20"):
        make_model(small(loss="mse"), replace(data, teacher=narrow))
    assert (
        make_model(small(loss="dcca_ey"), replace(data, teacher=narrow)).transfer.maps[1].shape[0]
        == 20
    )


def test_languages_without_translations_cannot_have_lsa(data):
    corpus = replace(data.corpus, pairs={})
    with pytest.raises(
        ConfigError, match="teacher='lsa' needs translations, and cldr has none of de-en"
    ):
        lsa_space(small(), replace(data, corpus=corpus))


def words_of(**given):
    return [w for k, v in given.items() for w in (f"--{k.replace('_', '-')}", str(v))]


@pytest.mark.slow
def test_a_command_leaves_a_record_that_its_experiment_finds(root):
    arguments = {**SMALL, "loss": "cosine"}
    main(RECIPE, words_of(**arguments))
    [record] = read_records("07c_static_runs")
    assert len(json.dumps(record)) < 40_000 and record["run"]["finished"]
    for test in ("T3", "words"):
        for system in ("", "last", "before", "untrained"):
            assert len(layer_means(record, test, "acc@1", system)) == 3
    assert {"lists/de-en/layer2/aer", "tags/de/before/layer1/f1"} <= {*record["metrics"]}
    for system in ("x2static", "before/x2static"):
        agreed = [
            record["metrics"][f"bli/de-en/{system}/{space}/agreement"]
            for space in ("free", "regularised")
        ]
        assert all(0 <= share <= 1 for share in agreed)
    assert {f"bli/de-en/{system}/unmapped/acc@1" for system in ("x2static", "before/x2static")} < {
        *record["metrics"]
    }
    assert record["teacher"]["en"]["words"] > 100 and 0 <= record["selected"]["step"] < 5
    start, end = record["transfer"]  # cosine distances
    assert 0.9 < start < 1.1 and 0 < end < 1.1
    assert (
        record["losses"] == ["mlm", "transfer"]
        and not has_learned(record)
        and {*record["base_learned"]} == {"MLM"}
    )
    assert str(root) not in json.dumps(record) and (root / "runs" / record["base"]).is_dir()
    arms = {"cosine": {"loss": "cosine"}, "MLM alone": {"loss": "none"}}
    experiment = Experiment("", arms, SMALL, seeds=(0,))
    assert records_of(experiment, RECIPE, [record]) == {"cosine": {0: record}, "MLM alone": {}}


STARTED = SMALL | dict.fromkeys(("width", "layers", "vocab_size", "steps"))


@pytest.fixture(scope="module")
def xlm_r(root, data):  # an XLM-R of a few numbers as one of ours, with its tokenizer
    config = XLMRobertaConfig(
        vocab_size=len(data.tokenizer),
        hidden_size=24,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=48,
        max_position_embeddings=130,
    )
    XLMRobertaForMaskedLM(config).save_pretrained(root / "theirs")
    load_foreign(root / "theirs", EncoderForMaskedLM).save_pretrained(root / "xlm-r")
    data.tokenizer.save_pretrained(root / "xlm-r")
    return root / "xlm-r"


@pytest.mark.parametrize("loss", ["dcca_ey", "none"])
@pytest.mark.slow
def test_an_encoder_that_is_there_goes_on_in_place_of_a_base_run(root, xlm_r, loss):
    s = resolve(Settings(**STARTED | dict(init=str(xlm_r), loss=loss, relative_positions="none")))
    assert (s.width, s.layers, s.relative_positions, s.norm) == (24, 2, "none", "post")
    assert resolve(s) == s and s.steps == s.transfer_steps == 5
    ready = with_teacher(s, prepare_data(s))
    # nothing is written beside it
    assert ready.start == xlm_r and not list(xlm_r.glob("teacher*"))
    model = make_model(s, ready)
    theirs = load(xlm_r, EncoderForMaskedLM).state_dict()
    assert all(torch.equal(w, theirs[name]) for name, w in model.generator.state_dict().items())
    # its dropout, of 0.1, is on
    assert all(module.training for module in model.generator.modules())
    assert model.generator.config.hidden_dropout_prob == 0.1
    main(
        RECIPE,
        words_of(**{k: v for k, v in STARTED.items() if v is not None}, init=xlm_r, loss=loss),
    )
    record = read_records("07c_static_runs")[-1]
    assert record["run"]["finished"] and str(root) not in json.dumps(record)
    assert record["parameters"]["init"] == init_for_record(str(xlm_r)) and record[
        "base"
    ].startswith("static_init-")
    assert RECIPE.describe(record).startswith(record["parameters"]["init"]) and {
        *record["base_learned"]
    } == {"MLM"}
    again = resolve(Settings(**record["parameters"]))  # of the record, wherever the folder is
    assert again.width == 24 and again.for_record() == record["parameters"]
    arm = Experiment(
        "",
        {"here": {"loss": loss, "init": str(xlm_r)}},
        {k: v for k, v in STARTED.items() if v is not None},
        seeds=(0,),
    )
    assert records_of(arm, RECIPE, [record]) == {"here": {0: record}}


def test_what_an_encoder_that_is_there_leaves_no_room_for(xlm_r, tmp_path):
    given = STARTED | {"init": str(xlm_r)}
    # as it was trained
    assert not resolve(Settings(**given | {"relative_positions": "none"})).restart_positions
    config = config_for("tiny", 300, max_position_embeddings=60)
    new_model(EncoderForMaskedLM, config, 0).save_pretrained(tmp_path / "short")
    with pytest.raises(
        ConfigError, match="has 60 positions, and a row of text 64 tokens at size='tiny'"
    ):
        resolve(Settings(**STARTED | {"init": str(tmp_path / "short")}))
    with pytest.raises(
        ConfigError, match="size='base' with init=.* width 24 is 'tiny'; give size=tiny"
    ):
        resolve(Settings(**given | {"size": "base"}))
    with pytest.raises(CheckpointError, match="holds no weights"):
        init_for_record(str(tmp_path))
    for wrong, says in (
        (dict(steps=9), "steps=9 with init=.* no base run"),
        (dict(tasks="mlm+tlm"), "tasks='mlm.tlm'"),
        (dict(layers=3), "layers=3 with init=.*that network has 2"),
        (dict(relative_positions="gated"), "relative_positions='gated' with init="),
    ):
        with pytest.raises(ConfigError, match=says):
            resolve(Settings(**given | wrong))


def test_the_papers_recipe_goes_on_from_an_encoder(tmp_path):
    config_for(
        "base",
        300,
        max_position_embeddings=514,
        position_offset=2,
        norm="post",
        relative_positions="none",
    ).save_pretrained(tmp_path)
    s = resolve(
        Settings(
            init=str(tmp_path),
            recipe="paper",
            size="base",
            loss="dcca_as_published",
            teacher="x2static",
        )
    )
    part = continuation_of(s)
    assert (part.steps, part.learning_rate, part.warmup_steps, sum(step_tokens(part))) == (
        7500,
        5e-5,
        0,
        8192,
    )
    assert (s.words, s.words_at_once, s.weight, s.alpha, s.identity_weight) == (1024, 64, 1, 0, 0)


def test_a_teacher_as_records_name_it_is_known_and_not_read(tmp_path):
    WordVectors(["a", "b"], torch.eye(2), "de").save(tmp_path / "own" / "de.safetensors")
    WordVectors(["a", "b"], torch.eye(2), "en").save(tmp_path / "own" / "en.safetensors")
    for teacher in (str(tmp_path / "own"), str(tmp_path / "own" / "{lang}.safetensors")):
        s = small(teacher=teacher, loss="dcca_ey")
        named = s.for_record()["teacher"]
        again = small(teacher=named, loss="dcca_ey")
        assert again.for_record()["teacher"] == named
        with pytest.raises(ConfigError, match="as files it lacks"):
            prepare_data(again)


def test_arms_of_one_seed_share_their_base_run():
    todo = missing(S.EXPERIMENTS["losses"], RECIPE, [])
    resolved = [resolve(Settings(**given)) for _, given in todo]
    assert len(todo) == 45 and len({base_of(s) for s in resolved}) == 5
    assert len({(s.transfer_steps, s.batch_tokens) for s in resolved}) == 1
    assert {(s.words, "576 words" in arm) for (arm, _), s in zip(todo, resolved)} == {
        (192, False),
        (576, True),
    }
    assert {s.teacher for s in resolved} == {"lsa", "aggregated"} and all(
        s.uses_pairs for s in resolved
    )


def test_of_each_language_only_its_most_frequent_words_are_pulled(data):
    every, few = (
        make_batches(small(loss="mse", most_words=most), data).teacher for most in (None, 3)
    )
    assert {lang: v.words for lang, v in few.items()} == {
        lang: v.words[:3] for lang, v in every.items()
    }
    assert all(torch.equal(v.matrix, every[lang].matrix[:3]) for lang, v in few.items())
    with pytest.raises(ConfigError, match="most_words=0"):
        small(most_words=0)


def test_a_flipped_bit_in_stored_vectors_is_named(tmp_path):
    made = WordVectors(["Haus", "Berg"], torch.eye(2), "de")

    def kept():
        return S.stored_vectors(tmp_path, ["de"], lambda: {"de": made})["de"]

    kept()
    (file,) = tmp_path.rglob("de.safetensors")
    data = bytearray(file.read_bytes())
    data[-9] ^= 1
    file.write_bytes(data)
    with pytest.raises(
        CheckpointError, match="de.safetensors is damaged.*: delete the folder that it is in"
    ):
        kept()
    shutil.rmtree(file.parent)
    assert torch.equal(kept().matrix, made.matrix)


@pytest.mark.parametrize("tasks, pairs", [("mlm", False), ("mlm+tlm", True)])
def test_a_base_network_says_whether_it_has_read_pairs(data, tasks, pairs):
    assert S.new_base(base_of(small(tasks=tasks)), data).generator.config.trained_on_pairs == pairs
