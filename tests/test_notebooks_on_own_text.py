"papermill of every paper, translation and evaluation on text in six forms, with a vocabulary trained or named."

import json, os
from itertools import product
from pathlib import Path

import nbformat, pytest
from conftest import ROOT
from test_papers_on_own_text import SENTENCES
from text_forms import BITEXT, FORMS, TEXT
from tokenizer_kinds import xlmr
from warm import run_notebook

from xlnb.text.own import corpus_for_record

NEEDS = {"jsonl.zst": "zstandard", "parquet": "pyarrow", "PO": "translate"}
SMALL = dict(steps=2, width=32, layers=2)
BRIEF = SMALL | dict(max_minutes=1e-4, test_lines=8)  # a step is trained, the least is measured
# notebook → its parameters beside the corpus
NOTEBOOKS = {
    "03_xlm_e": BRIEF | dict(langs="de,en"),
    "04_xy_lent": BRIEF | dict(langs="de,en,ru"),
    "05_meta_xlm": BRIEF | dict(langs="de,en", meta_steps=1),
    "06_veco": BRIEF | dict(langs="de,en"),
    "06a_translation": BRIEF | dict(langs="de,en", source="de", target="en", snapshots=1),
    "07_x2static": SMALL | dict(langs="de,en", lines=60, epochs=1, min_count=2),
}
# what reads text alone; the other notebooks need bitext too, or no pairs
OF_TEXT = {"03_xlm_e": "mrtd", "06_veco": "ca-mlm", "07_x2static": "mlm"}
WITH_BITEXT = ("04_xy_lent", "06a_translation")
QUICK = (("04_xy_lent", "TMX"), ("07_x2static", "jsonl.zst"))


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    "Where runs, records and figures go; surveys and the vocabulary of the lessons are made once."
    return tmp_path_factory.mktemp("place")


@pytest.fixture(scope="module")
def vocabulary(tmp_path_factory):
    folder = tmp_path_factory.mktemp("vocabularies") / "like-xlm-r"
    xlmr(folder)
    return folder


def write_corpus(folder: Path, form: str, notebook: str) -> dict:
    "The text in one form, with bitext beside text where a notebook needs it; parameters that read it."
    pytest.importorskip(NEEDS.get(form, "xlnb"))
    FORMS[form](folder, SENTENCES)
    parameters = NOTEBOOKS[notebook] | {"corpus": str(folder)}
    if form in TEXT and notebook in WITH_BITEXT:
        BITEXT["Moses"](folder, SENTENCES)
    elif form in TEXT and notebook in OF_TEXT:
        parameters["tasks"] = OF_TEXT[notebook]
    return parameters


def run(notebook: str, parameters: dict, place: Path, output: Path):
    "The executed notebook."
    folders = {f"XLNB_{name}": str(place / name.lower()) for name in ("RESULTS", "FIGURES")}
    environment = {**os.environ, "XLNB_ROOT": str(place), **folders}
    path = ROOT / "nbs" / f"{notebook}.ipynb"
    done = run_notebook(path, output, parameters, env=environment)
    assert done.returncode == 0, done.stderr[-3000:]
    return nbformat.read(output, as_version=4)


def shown(executed) -> list[str]:
    "All HTML that an executed notebook has."
    cells = [cell for cell in executed.cells if cell.cell_type == "code"]
    outputs = [output for cell in cells for output in cell.outputs if "data" in output]
    return [output["data"]["text/html"] for output in outputs if "text/html" in output["data"]]


def check_table(executed, name: str, langs: list[str]):
    "The notebook shows what was read, under the name and digest of the text."
    [table] = [html for html in shown(executed) if f"What was read of {name}<" in html]
    for lang in langs:
        assert f">{lang}<" in table


def record_of(notebook: str, place: Path, name: str) -> dict:
    [file] = (place / "results").glob(f"{notebook}.{name}.jsonl")
    return json.loads(file.read_text(encoding="utf-8").splitlines()[-1])


def check_run(record: dict, place: Path, name: str, folder: Path):
    "Record, checkpoint and card name the text of the folder."
    assert record["parameters"]["corpus"] == name
    files = {path.name for path in folder.iterdir()}
    assert files & record["corpus"]["sha256"].keys()
    run_folder = place / "runs" / record["run"]["model"]
    [state] = run_folder.glob("checkpoint-*/state.json")
    assert json.loads(state.read_text(encoding="utf-8"))["identity"]["corpus"] == name
    cards = [*run_folder.glob("*/README.md")]
    assert cards
    for card in cards:
        assert f"Trained with xlnb on `{name}`" in card.read_text(encoding="utf-8")


def check_notebook(notebook: str, parameters: dict, place: Path, tmp_path: Path) -> dict | None:
    "Run a notebook on a folder of text; the record, where it writes one."
    executed = run(notebook, parameters, place, tmp_path / "out.ipynb")
    folder = Path(parameters["corpus"])
    langs = parameters["langs"].split(",")
    name = corpus_for_record(str(folder), langs)
    assert name.startswith(f"{folder.name}@")
    check_table(executed, name, langs)
    if notebook == "07_x2static":
        return None
    record = record_of(notebook, place, name)
    check_run(record, place, name, folder)
    return record


EACH_FORM = [
    pytest.param(*both, marks=[] if both in QUICK else [pytest.mark.slow], id="-".join(both))
    for both in product(NOTEBOOKS, FORMS)
]


@pytest.mark.parametrize("notebook, form", EACH_FORM)
def test_a_notebook_reads_a_form(notebook, form, place, tmp_path):
    folder = tmp_path / f"letters-{form}"
    parameters = write_corpus(folder, form, notebook)
    record = check_notebook(notebook, parameters, place, tmp_path)
    if notebook != "03_xlm_e":
        return
    # evaluation of the model that was trained on it
    model = place / "runs" / record["run"]["model"]
    evaluated = run(
        "08_evaluation",
        {"model": str(model), "langs": "de,en", "controls": False},
        place,
        tmp_path / "evaluated.ipynb",
    )
    assert any("<td" in html for html in shown(evaluated))


@pytest.mark.slow
@pytest.mark.parametrize("notebook", NOTEBOOKS)
def test_a_notebook_takes_a_vocabulary_of_xlm_rs_kind(notebook, vocabulary, place, tmp_path):
    folder = tmp_path / "letters"
    parameters = write_corpus(folder, "Moses", notebook) | {"vocabulary": str(vocabulary)}
    record = check_notebook(notebook, parameters, place, tmp_path)
    if record is None:
        return
    assert record["tokenizer"]["name"] == vocabulary.name
    run_folder = place / "runs" / record["run"]["model"]
    for card in run_folder.glob("*/README.md"):
        assert f"Vocabulary: {vocabulary.name} (sha256 " in card.read_text(encoding="utf-8")
