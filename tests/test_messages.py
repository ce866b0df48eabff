"Message and translation-memory files: against the libraries that own the formats, and damaged."

import gettext

import pytest
from conftest import write

from xlnb.base.core import ConfigError, DataError
from xlnb.text import formats
from xlnb.text.corpora import Report, tag_language
from xlnb.text.messages import (
    join_messages,
    memory_languages,
    plain_message,
    read_memory,
    read_messages,
)

PO = """msgid ""
msgstr "Content-Type: text/plain; charset=UTF-8"

msgctxt "menu"
msgid "Open"
msgstr "Öffnen"

msgctxt "state"
msgid "Open"
msgstr "Offen"

#, fuzzy
msgid "Close"
msgstr "Öffnen"

msgid "%d day"
msgid_plural "%d days"
msgstr[0] "%d Tag"
msgstr[1] "%d Tage"

msgid "Quit"
msgstr ""

msgid "<b>Bold</b> &amp;\\n _more"
msgstr "<b>Fett</b> &amp;\\n _mehr"

#~ msgid "Old"
#~ msgstr "Alt"
"""

TMX = """<?xml version="1.0"?>
<tmx version="1.4"><header srclang="en"/><body>
<tu><tuv xml:lang="en"><seg>One <hi>dog</hi>.</seg></tuv>
<tuv xml:lang="de"><seg>Ein <hi>Hund</hi>.</seg></tuv>
<tuv xml:lang="fr"><seg>Un chien.</seg></tuv></tu>
<tu><tuv xml:lang="en"><seg>Two dogs.</seg></tuv><tuv xml:lang="de"><seg>Zwei Hunde.</seg></tuv></tu>
<tu><tuv xml:lang="en"><seg>None.</seg></tuv></tu>
</body></tmx>
"""

XLIFF = """<xliff version="1.2" xmlns="urn:oasis:names:tc:xliff:document:1.2">
<file original="a" source-language="en" target-language="de"><body>
<trans-unit id="1" approved="yes"><source>A dog</source><target>Ein Hund</target></trans-unit>
<trans-unit id="2" approved="no"><source>A cat</source><target>Eine Katze</target></trans-unit>
<trans-unit id="3"><source>A hen</source></trans-unit>
<trans-unit id="4"><source>Two <x id="1"/>cows</source><target>Zwei <x id="1"/>Kühe</target></trans-unit>
</body></file></xliff>
"""


def test_messages_of_a_po_file(tmp_path):
    pytest.importorskip("translate")
    report = Report()
    messages = list(read_messages(write(tmp_path / "de.po.gz", PO), report))
    assert [(m.source, m.target) for m in messages] == [
        ("Open", "Öffnen"),
        ("Open", "Offen"),
        ("%d days", "%d Tage"),
        ("Bold & more", "Fett & mehr"),
    ]
    assert report.counts == {
        "accelerator, removed": 2,
        "fuzzy": 1,
        "markup, removed": 2,
        "obsolete": 1,
        "plural, last form kept": 1,
        "untranslated": 1,
    }


def test_contexts_keep_messages_apart(tmp_path):
    pytest.importorskip("translate")
    german = write(tmp_path / "de.po", PO)
    french = PO.replace('"Öffnen"', '"Ouvrir"').replace('"Offen"', '"Ouvert"')
    rows = list(join_messages(german, write(tmp_path / "fr.po", french)))
    assert rows[:2] == [("Öffnen", "Ouvrir"), ("Offen", "Ouvert")]
    with pytest.raises(ConfigError, match="first=None and second=None"):
        join_messages(None, None)


@pytest.mark.parametrize("locale", ["de", "ja"])
def test_a_compiled_file_is_read_as_gettext_reads_it(locale, tmp_path):
    from babel.messages.catalog import Catalog
    from babel.messages.mofile import write_mo

    catalogue = Catalog(locale=locale)
    catalogue.add("dog", "Hund")
    catalogue.add("dog", "Rüde", context="male")
    catalogue.add(("%d cat", "%d cats"), ("%d Katze", "%d Katzen")[-catalogue.num_plurals :])
    path = tmp_path / "toy.mo"
    with open(path, "wb") as file:
        write_mo(file, catalogue)
    with open(path, "rb") as file:
        theirs = gettext.GNUTranslations(file)
    ours = {message.key: message.target for message in read_messages(path)}
    assert ours["", "dog"] == theirs.gettext("dog")
    assert ours["male", "dog"] == theirs.pgettext("male", "dog")
    assert ours["", "%d cat"] == theirs.ngettext("%d cat", "%d cats", 5)
    assert len(ours) == 3


def test_a_memory_is_read_as_translate_toolkit_reads_it(tmp_path):
    tmx = pytest.importorskip("translate.storage.tmx")
    path = write(tmp_path / "a.tmx", TMX)
    with open(path, "rb") as file:
        store = tmx.tmxfile(file, "en", "de")
    theirs = [(unit.target, unit.source) for unit in store.units if unit.target]
    assert list(read_memory(path, ("de", "en"))) == theirs
    assert memory_languages(path) == ["en", "de", "fr"]
    report = Report()
    assert list(read_memory(path, ("de", "fr"), report)) == [("Ein Hund.", "Un chien.")]
    assert report.counts == {"untranslated": 2}


def test_a_job_is_read_as_translate_toolkit_reads_it(tmp_path):
    xliff = pytest.importorskip("translate.storage.xliff")
    path = write(tmp_path / "a.xlf", XLIFF)
    store = xliff.xlifffile.parsefile(str(path))
    theirs = [(unit.source, unit.target) for unit in store.units if unit.target]
    report = Report()
    ours = list(read_memory(path, ("en", "de"), report))
    assert ours == [theirs[0], ("Two cows", "Zwei Kühe")]
    assert [row[0] for row in theirs] == ["A dog", "A cat", "Two cows"]
    assert report.counts == {"inline code, removed": 1, "not approved": 1, "untranslated": 1}


def test_endings_in_capitals_and_a_job_without_languages(tmp_path):
    rows = [("Two dogs.", "Zwei Hunde.")]
    assert list(read_memory(write(tmp_path / "A.TMX", TMX), ("en", "de")))[1:] == rows
    job = XLIFF.replace("xliff", "job").replace("<file", "<part").replace("</file", "</part")
    assert memory_languages(write(tmp_path / "a.xlf", job)) == []


@pytest.mark.parametrize(
    "name, content",
    [
        ("a.tmx", TMX[:-30]),
        ("a.tmx", "no XML"),
        ("a.xlf", XLIFF.replace("</source>", "", 1)),
        ("a.tmx.gz", TMX.encode()),
    ],
)
def test_a_damaged_memory_is_one_sentence(name, content, tmp_path):
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(
        DataError, match=f"{name}: damaged or of another form .*fetch it again"
    ) as e:
        list(read_memory(path, ("de", "en")))
    assert "\n" not in str(e.value)


@pytest.mark.parametrize(
    "name, content",
    [
        ("a.mo", b""),
        ("a.mo", b"no catalogue at all, but long enough"),
        ("a.mo", b"\xde\x12\x04\x95" + bytes([0] * 4 + [9] * 12)),
        ("a.po", b"msgid no quotes\n"),
    ],
)
def test_a_damaged_file_of_messages_is_one_sentence(name, content, tmp_path):
    if name.endswith("po"):
        pytest.importorskip("translate")
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=f"{name}: damaged or of another form") as raised:
        list(read_messages(tmp_path / name))
    assert "\n" not in str(raised.value)


def test_what_is_to_be_installed_is_named(tmp_path, monkeypatch):
    def absent(module):
        raise ImportError(module)

    monkeypatch.setattr(formats, "import_module", absent)
    with pytest.raises(ConfigError, match="PO needs the package translate-toolkit"):
        list(read_messages(write(tmp_path / "a.po", PO)))


def test_markup_that_parts_words_leaves_a_blank(tmp_path):
    report = Report()
    assert plain_message("One.<br>Two.<p>Three, un<b>do</b>ne", "x", 1, report) == (
        "One. Two. Three, undone"
    )
    body = '<tu><tuv xml:lang="en"><seg>Hello{}world</seg></tuv><tuv xml:lang="de"><seg>Hallo</seg></tuv></tu>'
    for code, text in (
        ('<ph type="lb"/>', "Hello world"),
        ("<ph>&lt;br/&gt;</ph>", "Hello world"),
        ('<ph type="bold"/>', "Helloworld"),
    ):
        path = write(tmp_path / "a.tmx", f"<tmx><body>{body.format(code)}</body></tmx>")
        assert list(read_memory(path, ("en", "de"))) == [(text, "Hallo")]


def units(*rows) -> str:
    "TMX of units, each (tag, text) pairs."
    variants = [
        "".join(f'<tuv xml:lang="{tag}"><seg>{text}</seg></tuv>' for tag, text in row)
        for row in rows
    ]
    return f"<tmx><body>{''.join(f'<tu>{v}</tu>' for v in variants)}</body></tmx>"


def test_a_language_that_begins_late_in_a_memory_is_found(tmp_path):
    rows = [[("en", f"dog {n}"), ("de", f"Hund {n}")] for n in range(1200)]
    rows += [[("en", "cow"), ("fr-fr", "vache")]]
    assert memory_languages(write(tmp_path / "a.tmx", units(*rows))) == ["en", "de", "fr"]


def test_second_variants_are_counted_and_an_empty_one_gives_way(tmp_path):
    rows = (
        [("en", "bus"), ("pt-PT", "autocarro"), ("pt-BR", "ônibus")],
        [
            ("en", "train"),
            ("pt-PT", " "),
            ("pt-BR", "trem"),
        ],
    )
    report = Report()
    path = write(tmp_path / "a.tmx", units(*rows))
    assert list(read_memory(path, ("en", "pt"), report)) == [
        ("bus", "autocarro"),
        ("train", "trem"),
    ]
    assert report.counts == {"second text of a language, left out": 2}


def test_a_file_of_a_job_has_its_own_languages(tmp_path):
    unit = '<trans-unit id="1"><source>dog</source><target>{}</target></trans-unit>'
    job = (
        '<xliff version="1.2"><file source-language="en" target-language="pt-br">'
        f"<body>{unit.format('cão')}</body></file>"
        f'<file source-language="en"><body>{unit.format("?")}</body></file></xliff>'
    )
    path = write(tmp_path / "a.xlf", job)
    assert memory_languages(path) == ["en", "pt"]
    assert list(read_memory(path, ("en", "pt"))) == [("dog", "cão")]


@pytest.mark.parametrize(
    "tag, lang",
    [("zh-Hans-HK", "zh"), ("zh_Hans_MO", "zh"), ("zh_HK", "zh-Hant"), ("sr-latn-RS", "sr-Latn")],
)
def test_a_script_that_is_said_is_the_script(tag, lang):
    assert tag_language(tag) == lang
    assert tag_language("de-news") is None
