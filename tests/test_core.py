"Settings from the command line, codes of languages, and where records and figures go."

import io, itertools, json, re, resource, signal, subprocess, sys, unicodedata, warnings
from dataclasses import dataclass

import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st
import threadpoolctl
from threadpoolctl import threadpool_info, threadpool_limits

import xlnb.base.core as core
from xlnb.base.core import (
    ConfigError,
    DataError,
    append_record,
    check_texts,
    one_thread,
    our_code,
    parse_languages,
    plain_warnings,
    progress,
    progress_bar,
    read_lines,
    read_records,
    run_facts,
    runs_folder,
    save_figure,
    seeded,
    settings_from_arguments,
    split_lines,
    split_words,
)
from xlnb.text.cldr import LOCALES
from xlnb.text.corpora import LANGUAGES, language_code
from xlnb.encoder.encoder import config_for, new_model
from xlnb.encoder.heads import EncoderForMaskedLM
from xlnb.x2static import Distillation


def test_arguments_are_listed_on_request_and_given_once(capsys):
    @dataclass
    class Toy:
        steps: int = 100
        langs: str = "de,en"

    for ask in ("--help", "-h"):
        with pytest.raises(SystemExit) as e:
            settings_from_arguments(Toy, ["--steps", "3", ask])
        assert not e.value.code
        assert re.search(r"--langs STR +\(default: de,en\)", capsys.readouterr().out)
    with pytest.raises(SystemExit):
        settings_from_arguments(Distillation, ["--help"])
    assert re.search(r"--epochs INT +\w+", capsys.readouterr().out)  # and what it means
    with pytest.raises(ConfigError, match="Unrecognized options: steps, 5"):
        settings_from_arguments(Toy, ["steps", "5"])
    with pytest.raises(ConfigError, match="--steps comes twice: give it once"):
        settings_from_arguments(Toy, ["--steps", "5", "--steps=6"])


def test_warnings_of_settings_are_not_lost(capsys):
    @dataclass
    class Toy:
        steps: int = 100

        def __post_init__(self):
            if self.steps < 10:
                print("xlnb: few steps", file=sys.stderr)

    assert settings_from_arguments(Toy, ["--steps", "5"]).steps == 5
    assert capsys.readouterr().err == "xlnb: few steps\n"


@pytest.mark.parametrize(
    "text, value", [("False", False), ("false", False), ("True", True), ("true", True)]
)
def test_what_is_true_or_false_is_read_in_either_case(text, value):
    @dataclass
    class Toy:
        controls: bool = True

    assert settings_from_arguments(Toy, [f"--controls={text}"]).controls is value
    with pytest.raises(ConfigError, match="invalid choice 'no' for argument '--controls'"):
        settings_from_arguments(Toy, ["--controls", "no"])


@pytest.mark.parametrize(
    "argv", [["--steps"], ["--steps", "--langs", "de"], ["--langs", "de", "--steps"]]
)
def test_an_argument_without_its_value_is_named(argv):
    @dataclass
    class Toy:
        steps: int = 100
        langs: str = "de,en"

    with pytest.raises(ConfigError, match="Missing value for argument '--steps'"):
        settings_from_arguments(Toy, argv)


def test_codes_of_other_standards_are_ours():
    given = "DE,eng_Latn,zho_Hant,srp-latn,nob,fil"
    assert parse_languages(given, known=LANGUAGES) == ["de", "en", "zh-Hant", "sr-Latn", "no", "tl"]
    assert parse_languages("zh-Hans", known=LOCALES) == ["zh"]
    assert parse_languages([float("nan"), False]) == ["nan", "no"]
    assert language_code("DEU", "nllb") == "deu_Latn"


def test_our_own_codes_stay():
    assert [code for code in (*LANGUAGES, *LOCALES, "nan", "no") if our_code(code) != code] == []
    assert parse_languages("deu,eng", known={"deu": 1, "eng": 2}) == ["deu", "eng"], (
        "what the data has goes first"
    )


def test_an_unknown_or_repeated_code_is_named():
    with pytest.raises(
        ConfigError, match=r"language 'qq' is not one of the 2 known here; nearest: de, en"
    ):
        parse_languages("qq", known=["de", "en"])
    with pytest.raises(ConfigError, match=r"'deu' \(de\) is not one of"):
        parse_languages("deu", known=["en", "fr"])
    with pytest.raises(ConfigError, match="names 'de' twice"):
        parse_languages("de,deu")
    with pytest.raises(ConfigError, match="langs=None names no language"):
        parse_languages(None)


def test_a_text_that_is_none_is_named_by_its_index():
    with pytest.raises(DataError, match=r"^sentences\[2\] is None, not a string"):
        check_texts(["Wasser", "", None], "sentences")


def test_records_and_figures_stay_out_of_what_git_tracks(tmp_path, monkeypatch):
    monkeypatch.setenv("XLNB_ROOT", str(tmp_path))
    for name in ("XLNB_RESULTS", "XLNB_FIGURES"):
        monkeypatch.delenv(name, raising=False)
    assert append_record("toy", {"n": 2}) == tmp_path / "runs" / "results" / "toy.jsonl"
    monkeypatch.setenv("XLNB_RESULTS", str(tmp_path / "data" / "results"))
    append_record("toy", {"n": 1})
    assert [r["n"] for r in read_records("toy")] == [1], "a named folder stands alone"
    monkeypatch.delenv("XLNB_RESULTS")
    assert [r["n"] for r in read_records("toy")] == [1, 2]
    fig, _ = plt.subplots()
    assert {p.parent for p in save_figure(fig, "toy")} == {tmp_path / "runs" / "figures"}
    monkeypatch.setenv("XLNB_FIGURES", str(tmp_path / "figures"))
    assert {p.parent for p in save_figure(fig, "toy")} == {tmp_path / "figures"}
    plt.close(fig)


def test_outside_a_checkout_runs_lie_in_the_current_folder(tmp_path, monkeypatch):
    for name in ("XLNB_ROOT", "XLNB_RESULTS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    assert runs_folder() == tmp_path / "runs"
    assert append_record("toy", {"n": 1}) == tmp_path / "runs" / "results" / "toy.jsonl"
    (tmp_path / "settings.ini").touch(), (tmp_path / "nbs").mkdir(), (tmp_path / "below").mkdir()
    monkeypatch.chdir(tmp_path / "below")
    assert runs_folder() == tmp_path / "runs"


def test_progress_needs_no_reader(tmp_path, monkeypatch):
    monkeypatch.setenv("XLNB_PROGRESS", str(tmp_path / "gone"))
    progress("step 1 of 2")
    assert list(tmp_path.iterdir()) == []


def test_the_package_alone_loads_no_library():
    loaded = "import sys, xlnb; sys.exit(bool({'torch', 'numpy'} & {*sys.modules}))"
    subprocess.run([sys.executable, "-c", loaded], check=True)


def test_a_command_warns_in_lines_without_code(capsys):
    before = warnings.showwarning

    @plain_warnings()
    def main():
        warnings.warn("tatoeba, model: 2 of 1000 sentences were cut")

    for _ in range(2):
        main()
    assert warnings.showwarning is before
    assert {*capsys.readouterr().err.splitlines()} == {
        "xlnb: tatoeba, model: 2 of 1000 sentences were cut"
    }


def blas_threads():
    return {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"}


def test_one_thread_is_given_back_even_after_an_error():
    before = torch.get_num_threads()
    np.ones((2, 2)) @ np.ones((2, 2))  # BLAS is loaded
    try:
        torch.set_num_threads(2)
        with threadpool_limits(2, "blas"):
            with one_thread():
                assert (torch.get_num_threads(), blas_threads()) == (1, {1})
            with pytest.raises(KeyError), one_thread():
                raise KeyError
            assert (torch.get_num_threads(), blas_threads()) == (2, {2})
    finally:
        torch.set_num_threads(before)


def test_libraries_are_looked_for_again_only_after_an_import(monkeypatch):
    looked = []

    class Looked(threadpoolctl.ThreadpoolController):
        def __init__(self):
            looked.append(1)
            super().__init__()

    monkeypatch.setattr(threadpoolctl, "ThreadpoolController", Looked)
    core._thread_pools.cache_clear()
    for _ in range(3):
        with one_thread():
            pass
    assert len(looked) == 1
    monkeypatch.setitem(sys.modules, "a_new_module", None)
    with one_thread():
        pass
    assert len(looked) == 2


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize(
    "stream, quiet, has_lines, has_bar",
    [
        (io.StringIO, False, True, False),
        (Terminal, False, False, True),
        (io.StringIO, True, False, False),
        (Terminal, True, False, False),
    ],
)
def test_a_log_gets_lines_and_a_terminal_a_bar(stream, quiet, has_lines, has_bar, monkeypatch):
    monkeypatch.setattr(sys, "stderr", stream())
    monkeypatch.setattr(core, "SECONDS_BETWEEN_LINES", 0)  # whenever an item is taken
    monkeypatch.setattr(core, "SECONDS_BEFORE_BAR", 0)
    for _ in progress_bar(range(40), quiet, unit="batch"):
        pass
    text = sys.stderr.getvalue()
    assert ("\n" in text, "\r" in text) == (has_lines, has_bar)


def test_lines_of_a_log_read_as_sentences(monkeypatch):
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    monkeypatch.setattr(core, "SECONDS_BETWEEN_LINES", 0)
    for _ in progress_bar(range(4), desc="evaluation"):
        pass
    first, *_ = sys.stderr.getvalue().splitlines()
    assert re.fullmatch(r"evaluation: \d+ %, \d of 4, [\d:]+ so far, [\d:?]+ left", first), first
    with progress_bar(unit=" lines", unit_scale=True) as bar:
        bar.set_description("pairs de-ja", refresh=False)
        bar.update(633_000)
    *_, last = sys.stderr.getvalue().splitlines()
    assert re.fullmatch(r"pairs de-ja: 633k lines, [\d:]+ so far, .+ lines/s", last), last


def test_a_log_gets_no_line_before_its_time(monkeypatch):
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    monkeypatch.setattr(core, "SECONDS_BETWEEN_LINES", 3600)
    for _ in progress_bar(range(40), unit="batch"):
        pass
    assert sys.stderr.getvalue() == ""


BLANKS = "\x0b\x0c\x1c\x85\xa0\u2028\u2029\u3000\r"


def test_lines_and_words_end_at_what_ends_them_everywhere(tmp_path):
    assert split_lines("".join(f"a{c}b\n" for c in BLANKS)) == [f"a{c}b" for c in BLANKS]
    assert [split_words(f"a{c}b\tc  d") for c in BLANKS] == [[f"a{c}b", "c", "d"] for c in BLANKS]
    text = "\ufeffa\r\n\n b\u2028c \nd"
    (tmp_path / "a.txt").write_bytes(text.encode())
    assert (
        [*read_lines(tmp_path / "a.txt")]
        == ["a", "", " b\u2028c ", "d"]
        == split_lines(text.removeprefix("\ufeff"))
    )
    (tmp_path / "b.txt").write_bytes(b"ok\nh\xe4user\n")
    with pytest.raises(DataError, match=r"b.txt:2: byte 2 of the line, 0xe4, is not UTF-8"):
        list(read_lines(tmp_path / "b.txt"))
    (tmp_path / "c.txt").write_bytes("ok\n".encode("utf-16"))
    with pytest.raises(DataError, match=r"c.txt:1: .* iconv -f UTF-16"):
        list(read_lines(tmp_path / "c.txt"))


def test_half_of_a_character_is_named():
    with pytest.raises(
        DataError,
        match=r"lines\[1\] has half of a character, '\\ud83d', at place 2.*leave the line",
    ):
        check_texts(["whole 😀", "a \ud83d"], "lines")


def test_a_full_disk_costs_no_record(tmp_path, monkeypatch):
    "The line that does not fit is not there at all, and the next one stands alone."
    monkeypatch.setenv("XLNB_RESULTS", str(tmp_path))
    path = append_record("toy", {"seed": 0})
    before = path.read_bytes()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 9, limits[1]))
        with pytest.raises(OSError, match="nothing was recorded.*free some space"):
            append_record("toy", {"seed": 1})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
    assert path.read_bytes() == before
    append_record("toy", {"seed": 2})
    assert [record["seed"] for record in read_records("toy")] == [0, 2]


@pytest.mark.parametrize("line", ["null", "[]", "3"])
def test_json_that_is_no_record_is_named(tmp_path, monkeypatch, line):
    monkeypatch.setenv("XLNB_RESULTS", str(tmp_path))
    append_record("toy", {"seed": 0}).write_text(f"{line}\n")
    with pytest.raises(DataError, match="toy.jsonl:1: .* is JSON and no record"):
        read_records("toy")


@pytest.mark.parametrize(
    "line, said",
    [
        ('{"metrics": []}', "tables or metrics"),
        ('{"tables": {"curve": {"step": [1, 2], "loss": [0.5]}}}', "tables or"),
    ],
)
def test_a_record_whose_parts_are_not_as_written_is_named(tmp_path, monkeypatch, line, said):
    monkeypatch.setenv("XLNB_RESULTS", str(tmp_path))
    append_record("toy", {"seed": 0}).write_text(f"{line}\n")
    with pytest.raises(DataError, match=f"toy.jsonl:1: {said}"):
        read_records("toy")


def test_bytes_that_are_no_text_cost_their_line_alone(tmp_path, monkeypatch):
    monkeypatch.setenv("XLNB_RESULTS", str(tmp_path))
    append_record("toy", {"seed": 0}).write_bytes(b'{"seed":\r 1}\n{"seed": "\xff"}\n{"seed": 2}\n')
    with pytest.warns(UserWarning, match="toy.jsonl:2: not a JSON record"):
        found = read_records("toy")
    assert [record["seed"] for record in found] == [1, 2]


@pytest.mark.parametrize(
    "text, said",
    [
        ("{", "is damaged"),
        ("[" * 10**5, "is damaged"),
        ("[]", "it holds"),
        ('{"rows": []}', "it lacks said"),
    ],
)
def test_what_a_run_has_left_is_read_or_named(tmp_path, text, said):
    (path := tmp_path / "rows.json").write_text(text)
    with pytest.raises(
        core.CheckpointError, match=f"rows.json .*{said}.*: delete it, and it is computed again"
    ):
        core.read_json_object(path, "rows", "said", advice=core.AGAIN)


class PanicException(BaseException):
    "As Rust raises it."


@pytest.mark.parametrize(
    "raised, error",
    [
        (KeyError("a\nb"), core.CheckpointError),
        (PanicException("no entry"), core.CheckpointError),
        (ConfigError("ours"), ConfigError),
        (MemoryError(), MemoryError),
        (KeyboardInterrupt(), KeyboardInterrupt),
    ],
)
def test_errors_over_damaged_files_are_one_error_and_others_pass(raised, error):
    with pytest.raises(error) as caught:
        with core.refusing_damage(lambda why: f"toy holds no model ({why})"):
            raise raised
    if error is not core.CheckpointError:
        assert caught.value is raised
    else:
        assert re.fullmatch("toy holds no model [(].*[)]", str(caught.value))


def test_checksums_are_of_what_was_written_last_and_each_file_is_hashed_once(tmp_path):
    (tmp_path / "network").mkdir()
    for content in ("first", "second"):
        (tmp_path / "network" / "weights").write_text(content)
        (tmp_path / "state").write_text(content)
        for folder in (tmp_path / "network", tmp_path):
            core.write_checksums(folder)
    assert [*json.loads((tmp_path / "checksums.json").read_text())] == ["state"]
    core.verify_checksums(tmp_path)
    (tmp_path / "network" / "weights").write_text("flipped")
    for folder in (tmp_path, tmp_path / "network"):
        with pytest.raises(core.CheckpointError, match="weights is damaged"):
            core.verify_checksums(folder)


@given(
    st.text(
        "ae \t\n\u00a0\u00ad\u0301\u0308\u00e9\u0915\u093c\u0958\u1100\u1161\u3000<=", max_size=12
    )
)
def test_a_normalised_text_has_the_words_that_it_had_and_stays(text):
    normalized = core.normalize_text(text)
    assert core.normalize_text(normalized) == normalized and unicodedata.is_normalized(
        "NFC", normalized
    )
    words = core.split_words(text)
    assert core.split_words(normalized) == [*map(core.normalize_text, words)] and all(words)
    assert bool(normalized.strip()) == bool(text.strip())


@given(st.text("ae \u00ad\u0301\u0308\u00e9\u0915\u093c\u0958\u1100\u1161", max_size=12))
def test_places_move_with_their_text(text):
    normalized = core.normalize_text(text)
    places = [core.normalized_position(text, k) for k in range(len(text) + 1)]
    assert places[0] == 0 and places[-1] == len(normalized)
    borders = [(k, place) for k, place in enumerate(places) if place is not None]
    for (a, start), (b, end) in itertools.combinations(borders, 2):
        assert normalized[start:end].replace("\u00ad", "") == unicodedata.normalize(
            "NFC", text[a:b].replace("\u00ad", "")
        )


def test_no_character_is_composed_with_what_ends_words_and_fields():
    marks = [c for c in map(chr, range(0x110000)) if unicodedata.combining(c)]
    for end, mark in itertools.product(' \t\n|"', marks):
        assert unicodedata.normalize("NFC", end + mark) == end + unicodedata.normalize("NFC", mark)


@pytest.mark.parametrize("installed", [".venv/lib", ""])
def test_a_package_in_the_git_folder_of_a_user_has_no_commit(installed, tmp_path, monkeypatch):
    package = tmp_path / installed / "xlnb"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (tmp_path / "notes.txt").write_text("mine")
    identity = ["-c", "user.name=a", "-c", "user.email=a@b"]
    for words in (["init", "-q"], ["add", "notes.txt"], [*identity, "commit", "-q", "-m", "mine"]):
        subprocess.run(["git", *words], cwd=tmp_path, check=True)
    monkeypatch.setenv("XLNB_ROOT", str(tmp_path))
    monkeypatch.setattr("xlnb.__file__", str(package / "__init__.py"))
    facts = run_facts()
    assert facts["commit"] is None and facts["changed_files"] == 0


def test_a_seed_is_for_what_is_inside_alone(monkeypatch):
    "A GPU that nothing is drawn on keeps its generator, also one that is not in use yet."
    touched = []
    monkeypatch.setattr(torch.cuda, "manual_seed_all", touched.append)
    torch.manual_seed(7)
    touched.clear()
    before = torch.get_rng_state()
    with seeded(3):
        inside = torch.rand(4)
    assert torch.equal(torch.get_rng_state(), before) and not touched
    assert torch.equal(inside, torch.rand(4, generator=torch.Generator().manual_seed(3)))
    new_model(EncoderForMaskedLM, config_for("tiny", 50), 5)
    assert torch.equal(torch.get_rng_state(), before) and not touched
