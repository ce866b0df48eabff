"""Derive the numbers of README.md and of the openings of results notebooks again: python tools/rederive.py

Nothing is imported from xlnb: records are read as JSON, runs are selected by their parameters, and means, deviations
and intervals are computed here. Every number in digits that a text shows is either derived below or listed as text (a
setting, a section, a year); the script names those that are neither and those that differ, and ends with 1."""

import json, re, sys
from functools import cache, partial
from itertools import chain
from pathlib import Path
from statistics import mean, stdev

from scipy.stats import t as student

ROOT = Path(__file__).parents[1]
RECORDS = ROOT / "data" / "results"
RESULTS = ROOT / "nbs" / "results"


# --- records -------------------------------------------------------------------------------------------------------


@cache
def records(notebook: str) -> tuple[dict, ...]:
    "The records of a notebook, file by file, oldest first."
    lines = []
    for path in (RECORDS / f"{notebook}.jsonl", *sorted(RECORDS.glob(f"{notebook}.*.jsonl"))):
        if path.exists():
            lines += path.read_text(encoding="utf-8").splitlines()
    return tuple(map(json.loads, lines))


FORMER = {"relative_bias_init": "relative_start", "rtd_weight": "lam"}  # names in older records
FREE = {
    "seed",
    "max_minutes",
    "checkpoint_minutes",
    "micro_tokens",
    "out",
    "compiled",
    "test_lines",
}


# settings that older records lack, and what they were then
ADDED = {"predicts_too": False, "dense_head": False, "head_activation": True, "generator_layers": 4}


def value_of(record: dict, name: str, default=None):
    parameters = record["parameters"]
    return parameters.get(name, parameters.get(FORMER.get(name), ADDED.get(name, default)))


def runs(notebook: str, **wanted) -> dict[int, dict]:
    """The newest finished run of every seed.

    A record without a parameter passes, as older ones lack it, unless ADDED says what it was. A parameter that no
    record has raises, and so do runs that differ in anything else that both have."""
    known = set().union(*(record["parameters"] for record in records(notebook)))
    unknown = [name for name in wanted if not known & {name, FORMER.get(name)}]
    assert not unknown, (notebook, unknown)
    chosen = {}
    for record in records(notebook):
        if all(value_of(record, name, value) == value for name, value in wanted.items()):
            if record["run"]["finished"]:
                chosen[record["parameters"]["seed"]] = record
    assert chosen, (notebook, wanted)
    first, *others = (record["parameters"] for record in chosen.values())
    for other in others:
        both = (first.keys() & other.keys()) - FREE
        differing = {name for name in both if first[name] != other[name]}
        assert not differing, (notebook, wanted, differing)
    return chosen


def column(record: dict, name: str) -> list[float]:
    return record["tables"]["curve"][name]


def at_the_end(record: dict, name: str) -> float:
    return column(record, name)[-1]


# --- statistics ----------------------------------------------------------------------------------------------------


def spread(values) -> list[float]:
    "Mean and standard deviation of the sample."
    values = list(values)
    return [mean(values), stdev(values)]


def interval(values) -> list[float]:
    "Mean and half of the 95 % interval by Student's t."
    values = list(values)
    return [mean(values), student.ppf(0.975, len(values) - 1) * stdev(values) / len(values) ** 0.5]


def difference(first: dict, second: dict, measure) -> list[float]:
    "Interval of first minus second, seed by seed."
    return interval(
        measure(first[seed]) - measure(second[seed])
        for seed in sorted(first.keys() & second.keys())
    )


# --- measures ------------------------------------------------------------------------------------------------------


def by_layer(
    record: dict, test: str, measure: str, system: str = "", pair: str = "[^/]+"
) -> list[float]:
    "Percent by layer, mean over pairs; metrics of a layer each or of all in a list."
    pattern = re.compile(
        rf"{re.escape(test)}/{pair}/{system + '/' if system else ''}layer(\d*)/{re.escape(measure)}"
    )
    layers = {}
    for name, value in record["metrics"].items():
        if found := pattern.fullmatch(name):
            scores = {int(found[1]): value} if found[1] else dict(enumerate(value))
            for layer, score in scores.items():
                layers.setdefault(layer, []).append(100 * score)
    return [mean(layers[layer]) for layer in sorted(layers)]


def baseline(record: dict, test: str, system: str, measure: str = "acc@1c") -> float:
    values = []
    for name, value in record["metrics"].items():
        words = name.split("/")
        if (words[0], words[2:]) == (test, [system, measure]):
            values.append(100 * value)
    return mean(values)


def at_held_out_layer(
    record: dict, test: str, when: int = -1, system: str = "", pair: str = "[^/]+"
) -> float:
    "Accuracy at the layer above 0 that is best at retrieving held-out text."
    scores = by_layer(record, test, "acc@1c", system, pair)
    held_out = []
    for layer in range(1, len(scores)):
        held_out.append(column(record, f"held_out/found_layer{layer}")[when])
    return scores[1 + held_out.index(max(held_out))]


def million_tokens(chosen: dict) -> float:
    return mean(record["run"]["tokens"] for record in chosen.values()) / 1e6


# --- texts ---------------------------------------------------------------------------------------------------------

NUMBER = re.compile(r"(?<![\w.])[+−-]?\d+(?:,\d{3})*(?:\.\d+)?(?!\w)")
# not numbers: enumerations, names with numbers, the k of accuracy@k
NAMES = re.compile(r"^\d+\. |\b[\w*]*[A-Za-z]-\d+\b|\b\d-bit\b|@\d+", flags=re.M)


def plain(text: str) -> str:
    "Without tables, links' addresses, pictures, code and names of notebooks."
    text = re.sub(r"```.*?```", " ", text, flags=re.S)
    text = re.sub(r"^\|.*$", " ", text, flags=re.M)
    text = re.sub(r"`[^`]*`|!\[[^\]]*\]\([^)]*\)", " ", text)
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", lambda m: " " if re.match(r"\d", m[1]) else m[1], text)
    return NAMES.sub(" ", text)


def opening(name: str) -> str:
    "What stands before the first section of a notebook, in text and in displayed text."
    nb = json.loads((RESULTS / f"{name}.ipynb").read_text(encoding="utf-8"))
    parts = []
    for cell in nb["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            before, *more = re.split(r"^## .*$", source, maxsplit=1, flags=re.M)
            parts.append(before)
            if more:
                break
        else:
            for output in cell.get("outputs", []):
                parts.append("".join(output.get("data", {}).get("text/markdown", [])))
    return plain("\n".join(parts))


def readme() -> str:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    return plain(text.split("## What the runs say")[1].split("\n## ")[0])


def shows(shown: str, value: float) -> bool:
    "Whether a number in digits is a value, rounded to as many places."
    digits = shown.replace(",", "").replace("−", "-")
    places = len(digits.partition(".")[2])
    step = 1000 if not places and digits.endswith("000") else 10.0**-places
    if digits[0] not in "+-":
        value = abs(value)
    return abs(float(digits) - value) <= step / 2 + 1e-9


def section(name: str, title: str) -> str:
    "What stands below a heading in a notebook, up to the next."
    nb = json.loads((RESULTS / f"{name}.ipynb").read_text(encoding="utf-8"))
    for cell in nb["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown" and source.startswith(f"## {title}\n"):
            return plain(source.partition("\n")[2])
    raise AssertionError(f"{name} has no section {title!r}")


def differences(text: str, expected: list) -> list[str]:
    "What differs between the numbers of a text and the expected ones: derived (numbers), or listed as text."
    found = list(NUMBER.finditer(text))
    messages = []
    for match, value in zip(found, expected):
        shown = match[0]
        if not (shown == value if isinstance(value, str) else shows(shown, value)):
            around = " ".join(text[max(0, match.start() - 60) : match.end() + 20].split())
            messages.append(
                f"{shown} where {value if isinstance(value, str) else round(value, 5)} is expected: …{around}…"
            )
            break
    if not messages and len(found) != len(expected):
        messages.append(
            f"{len(found)} numbers, {len(expected)} expected: {[m[0] for m in found[len(expected) :]]}"
        )
    return messages


# --- XLM-E -----------------------------------------------------------------------------------------------------------

XLM_E = "03_xlm_e"
CAPTIONS = "multi30k-2016"
_LOCAL = {
    "layers": 3,
    "relative_bias_init": "local",
    "mismatched": False,
    "contrast": 0.0,
    "relative_positions": "gated",
    "width": 128,
}


def auc(record):
    return column(record, "held_out/text_rtd_auc_drawn")[-1]


def last_layer(record, system="", test=CAPTIONS):
    return by_layer(record, test, "acc@1c", system)[-1]


def scores(chosen: dict, measure=last_layer, *more) -> list[float]:
    return spread(measure(record, *more) for record in chosen.values())


def starts(corpus, start, steps):
    wanted = _LOCAL | {
        "relative_bias_init": start,
        "corpus": corpus,
        "steps": steps,
        "rtd_weight": 5.0,
    }
    return runs(XLM_E, tasks="mrtd+trtd", **wanted)


def long_runs(tasks, mismatched=False):
    return runs(XLM_E, tasks=tasks, steps=24_000, mismatched=mismatched)


def wide_runs(tasks, mismatched=False):
    return runs(XLM_E, tasks=tasks, size="small", mismatched=mismatched)


def bible_run(tasks):
    return runs(XLM_E, tasks=tasks, size="base", mismatched=False)[0]


# --- MetaXLM ---------------------------------------------------------------------------------------------------------

META = "05_meta_xlm"
_PHRASES = {
    "corpus": "cldr",
    "source_share": None,
    "distil": 0.0,
    "frozen": False,
    "dictionaries": "none",
}
_ARMS = {
    "from scratch": {"parts": "none", "steps": 1200},
    "from scratch, all steps": {"parts": "none", "steps": 2800},
    "from scratch, random start": {"parts": "none", "steps": 1200, "relative_bias_init": "random"},
    "both": {"parts": "both"},
    "body": {"parts": "body"},
    "words": {"parts": "embeddings"},
    "scattered": {"parts": "both", "meta_order": "scattered"},
}


def starts_from(arm):
    return runs(
        META, **_PHRASES | {"relative_bias_init": "local", "meta_order": "text"} | _ARMS[arm]
    )


def base_start(parts, steps=800):
    return runs(META, size="base", parts=parts, steps=steps)[0]


def losses_elsewhere(record) -> dict[str, float]:
    "Nats below word frequency at the end, of the languages that the start has not read."
    ahead = {}
    for lang, frequency in record["unigram"].items():
        if lang != record["parameters"]["source_lang"]:
            ahead[lang] = frequency - column(record, f"held_out/mlm/{lang}")[-1]
    return ahead


def below_frequency(record) -> float:
    return mean(losses_elsewhere(record).values())


def ahead(first, second="from scratch"):
    return difference(starts_from(first), starts_from(second), below_frequency)


# --- VECO, static vectors --------------------------------------------------------------------------------------------


def veco_runs(tasks):
    wanted = {"corpus": "multi30k", "steps": 4000, "mismatched": False, "text_partner": "none"}
    return runs("06_veco", tasks=tasks, **wanted)


def pulled(shuffled, **teacher):
    "Runs of three languages whose frequent words are pulled, with a teacher and with the same one shuffled."
    wanted = {
        "langs": "de,en,fr",
        "steps": 5000,
        "transfer_steps": 1000,
        "loss": "dcca_ey",
        "most_words": 1000,
    }
    return runs("07c_static_runs", shuffled=shuffled, **wanted, **teacher)


def gained(record, test):
    "Points over the run that it continues, each at its own held-out layer."
    return at_held_out_layer(record, test) - at_held_out_layer(record, test, 0, "before")


def over_shuffled(test, **teacher):
    return difference(
        pulled(False, **teacher), pulled(True, **teacher), lambda record: gained(record, test)
    )


# --- XY-LENT, downstream tasks ---------------------------------------------------------------------------------------


def bitext_runs(tasks, bitext="x-y", sampler="entropic", lines=84_000):
    wanted = {"bitext": bitext, "tasks": tasks, "sampler": sampler, "pair_lines": lines}
    return runs("04_xy_lent", corpus="multi30k", **wanted)


def direct_runs(bitext="x-y", sampler="entropic", pieces=3000):
    "Captions in three languages, of whose sentences the same network finds several times as many."
    wanted = {"langs": "de,en,fr", "vocab_size": pieces, "pair_lines": 58_000, "mismatched": False}
    return runs("04_xy_lent", corpus="multi30k", bitext=bitext, sampler=sampler, **wanted)


def found(record, pair):
    return at_held_out_layer(record, CAPTIONS, pair=pair)


def found_by_language(first: dict, second: dict) -> list:
    "Differences between two languages other than English and with English, each with its number of seeds."
    values = []
    for pair in ("others", "pivot"):
        values += [*difference(first, second, partial(found, pair=pair)), len(first)]
    return values


def carried(encoder) -> float:
    "Part-of-speech tags learned in English, in languages that no encoder has read; mean over seeds."
    by_seed = []
    for record in records("08a_downstream_results"):
        p = record["parameters"]
        if (p.get("tasks"), p["encoder"], p.get("langs")) == ("pos", encoder, ""):
            rows = zip(
                record["scores"]["measure"], record["scores"]["target"], record["scores"]["score"]
            )
            by_seed.append(
                mean(s for m, lang, s in rows if m == "accuracy" and lang not in ("de", "en", "fr"))
            )
    return mean(by_seed)


# --- real encoders ---------------------------------------------------------------------------------------------------


def encoder_record(model: str) -> dict:
    return [r for r in records("08b_real_encoders") if r["parameters"]["model"] == model][-1]


def mean_by_layer(model: str, pattern: str, lists: int) -> list[float]:
    "Percent by layer, mean over the so many metrics that a pattern names."
    metrics = encoder_record(model)["metrics"]
    matching = [values for name, values in metrics.items() if re.fullmatch(pattern, name)]
    assert len(matching) == lists, (model, pattern, len(matching))
    return [100 * mean(layer) for layer in zip(*matching)]


def tatoeba(model: str) -> list[float]:
    "Accuracy, centred, of both directions of all pairs."
    return mean_by_layer(model, r"tatoeba/[^/]+/(forward|backward)/layer/acc@1c", 72)


def aer(model: str, reading: str = "apart") -> list[float]:
    return mean_by_layer(model, rf"gold/[^/]+/{reading}/layer/aer-optimal_transport", 4)


def minutes(model: str) -> float:
    return sum(encoder_record(model)["run"]["processor_minutes"].values())


ENCODERS = ("multilingual-e5-small", "all-MiniLM-L6-v2", "mlm-tlm-tiny", "xlm-e-tiny")


def _is_of(record: dict, model: str, task: str, way: str = "probed") -> bool:
    asked = record["parameters"]
    return (asked["model"], asked["task"], asked.get("way", "probed")) == (model, task, way)


def task_rows(model: str, task: str, way: str = "probed", **wanted) -> list[dict]:
    "The rows of the newest record of a task."
    chosen = []
    for record in records("08g_real_downstream"):
        if _is_of(record, model, task, way):
            chosen = [dict(zip(record["rows"], row)) for row in zip(*record["rows"].values())]
    return [row for row in chosen if wanted.items() <= row.items()]


def task_score(model: str, task: str, languages, **wanted) -> float:
    "Mean over languages; of rows of several draws, the mean over the draws of a language comes first."
    by_language = {}
    for row in task_rows(model, task, **wanted):
        by_language.setdefault(row["target"], []).append(row["score"])
    if languages == "elsewhere":
        languages = by_language.keys() - {"en"}
    return mean(mean(by_language[lang]) for lang in languages)


# --- objectives on a trained encoder ---------------------------------------------------------------------------------

UPPER = (9, 10, 11, 12)
MIDDLE = (6, 7, 8)


_USUALLY = {
    "mismatched": False,
    "learning_rate": 1e-4,
    "rtd_weight": 5.0,
    "blind_generator": False,
    "predicts_too": False,
    "dense_head": False,
    "head_activation": True,
    "frozen_layers": 0,
    "heads_seed": 0,
    "generator_layers": 4,
}


def continued(tasks, steps=1200, warm_steps=3000, **changed):
    wanted = dict(tasks=tasks, steps=steps, warm_steps=warm_steps) | _USUALLY | changed
    return runs("08d_real_objectives", **wanted)


def against_two_blocks():
    return continued("mrtd+trtd", 1600, 600, generator_layers=2)


def in_english(tasks, rate=5e-4):
    return runs("08d_real_objectives", tasks=tasks, learning_rate=rate, text_langs="en")


def other_tags(record: dict, layer: int, system: str = "", task: str = "tags") -> float:
    langs = set(record["parameters"]["langs"].split(",")) - {"en"}
    names = (f"{task}/{lang}/{system}layer/acc" for lang in langs)
    return 100 * mean(record["metrics"][name][layer] for name in names)


def tags_before(record: dict, task: str = "tags") -> tuple[float, int]:
    "In the other languages at the layer that was best, and that layer."
    return max((other_tags(record, layer, "before/", task), layer) for layer in (4, 8, 12))


def tags_gained(record: dict) -> float:
    before, layer = tags_before(record)
    return other_tags(record, layer) - before


def change(test, measure, layers, pair="[^/]+"):
    "Record → points that a band of layers has changed by."

    def changed(record):
        after = by_layer(record, test, measure, "", pair)
        before = by_layer(record, test, measure, "before", pair)
        return mean(after[layer] - before[layer] for layer in layers)

    return changed


# --- pretraining tasks on a trained encoder ---------------------------------------------------------------------------

LEARNED_IN_ENGLISH = ("tags", "entailment")


def real_tasks(tasks, rate=1e-4):
    return runs("08i_real_tasks", tasks=tasks, learning_rate=rate)


def at_better_rate(tasks, measure) -> dict:  # seed → record
    return max(
        (real_tasks(tasks, rate) for rate in (1e-4, 3e-5)),
        key=lambda chosen: mean(map(measure, chosen.values())),
    )


def at_better_rates(ahead, behind, measure):
    return difference(at_better_rate(ahead, measure), at_better_rate(behind, measure), measure)


def entailed_elsewhere(record: dict) -> float:
    return other_tags(record, tags_before(record, "entailment")[1], "", "entailment")


def transferred(record: dict) -> float:
    "Tags and entailment in the other languages, each at the layer that was best before; percent."
    layers = {task: tags_before(record, task)[1] for task in LEARNED_IN_ENGLISH}
    return mean(other_tags(record, layer, "", task) for task, layer in layers.items())


def transferred_before(record: dict) -> float:
    return mean(tags_before(record, task)[0] for task in LEARNED_IN_ENGLISH)


def ahead_of_english(record: dict) -> float:
    layers = {task: tags_before(record, task)[1] for task in LEARNED_IN_ENGLISH}
    english = mean(record["metrics"][f"{task}/en/layer/acc"][n] for task, n in layers.items())
    return transferred(record) - 100 * english


def retrieved(record: dict) -> float:
    return max(by_layer(record, "tatoeba", "acc@1c")[1:])


# --- MetaXLM from a real encoder -------------------------------------------------------------------------------------


def real_start(**wanted):
    usual = {"steps": 400, "rows": "matched", "dictionaries": "none", "distil": 0.0}
    return runs("08e_real_meta_xlm", **usual | wanted)


def real_loss(record) -> float:
    "Nats below word frequency at the end, mean of German, Russian and Chinese."
    metrics = record["metrics"]
    return mean(
        metrics[f"final/{lang}/unigram"] - metrics[f"final/{lang}/mlm"]
        for lang in ("de", "ru", "zh")
    )


def loss_in_english(record) -> float:
    return record["metrics"]["final/en/unigram"] - record["metrics"]["final/en/mlm"]


def real_tags(record) -> float:
    "Tags elsewhere, at the layer that is best in English; percent."
    metrics = record["metrics"]
    english = metrics["pos/en-en/layer/accuracy"]
    layer = english.index(max(english))
    return 100 * mean(
        metrics[f"pos/en-{lang}/layer/accuracy"][layer] for lang in ("de", "ru", "zh")
    )


def words_alone(record) -> float:
    return 100 * mean(
        record["metrics"][f"pos/en-{lang}/words/accuracy"] for lang in ("de", "ru", "zh")
    )


def translated(record: dict, system: str, layer: int | None, lang: str) -> float:
    "Words of MUSE that are translated, mean over the tests that have a language ('en': all); percent."
    values = []
    for name, value in record["metrics"].items():
        test, pair, *rest = name.split("/")
        if test == "muse" and "/".join(rest) == f"{system}/acc@1" and lang in pair.split("-"):
            values.append(100 * (value if layer is None else value[layer]))
    return mean(values)


def gained_by_map(layer: int):
    "Points that a map of the vectors of a layer gains."
    system = "aggregated/layer"
    return lambda record: (
        translated(record, f"{system}/mapped", layer, "en")
        - translated(record, f"{system}/unmapped", layer, "en")
    )


TRANSLATED = "08f_real_translation"


def real_translators(weights: str, blocks: str = "last") -> dict[int, dict]:
    "Runs whose decoder was trained alone first."
    wanted = {"weights": weights, "decoder_from": blocks, "learning_rate": 0.0001}
    return runs(TRANSLATED, **wanted, steps=240, warm_decoder_steps=120)


def without_a_first_decoder(weights: str, blocks: str = "last") -> dict[int, dict]:
    wanted = {"weights": weights, "decoder_from": blocks, "learning_rate": 0.001}
    return runs(TRANSLATED, **wanted, steps=240)


def loss_left(record: dict) -> float:
    return at_the_end(record, "held_out/loss")


# --- claims ----------------------------------------------------------------------------------------------------------


def claim_tables(column: str = "verdict") -> list[list[dict]]:
    "The tables of 10_claims that have a column, as rows."
    nb = json.loads((RESULTS / "10_claims.ipynb").read_text(encoding="utf-8"))
    tables = []
    for cell in nb["cells"]:
        for output in cell.get("outputs", []):
            html = "".join(output.get("data", {}).get("text/html", []))
            lines = re.findall(r"<tr[^>]*>(.*?)</tr>", html, flags=re.S)
            cells = [
                [
                    re.sub(r"<[^>]+>", "", c).strip()
                    for c in re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", line, re.S)
                ]
                for line in lines
            ]
            if cells and column in cells[0]:
                tables.append([dict(zip(cells[0], row)) for row in cells[1:]])
    return tables


def own_and_real() -> tuple[list[dict], list[dict]]:
    *own, real = claim_tables()
    return [row for table in own for row in table], real


def is_decided(row: dict) -> bool:
    return row["verdict"].startswith(("reproduced", "equivalent", "contradicted"))


def counted(rows: list[dict], *beginnings) -> list[int]:
    return [sum(row["verdict"].startswith(beginning) for row in rows) for beginning in beginnings]


VERDICTS = (
    "reproduced", "equivalent", "contradicted", "undecided", "not run", "not tested here", "by computation"
)  # fmt: skip


def summary_of_claims() -> list[float]:
    "The numbers of the first paragraphs of 10_claims, counted in its tables."
    own, real = own_and_real()
    undecided = [row for row in own if row["verdict"].startswith("undecided")]
    undetected = [row for row in undecided if "the discriminator" in row["verdict"]]
    plain_ones = [row for row in undecided if row["verdict"] == "undecided"]
    decided = [row for row in own if is_decided(row)]
    hidden = [row for row in undetected if "by the numbers alone contradicted" in row["verdict"]]
    kept = [row for row in decided if row["after Holm"] == "significant"]
    small = [row for row in decided if "smaller than of interest" in row["verdict"]]
    [later] = claim_tables("by these alone")
    extended = [row for row in later if is_decided({"verdict": row["by all seeds"]})]
    extended = [row for row in extended if not is_decided({"verdict": row["by these alone"]})]
    numbers = [len(own), *counted(own, *VERDICTS), len(undetected), len(hidden)]
    numbers += [
        len(undecided) - len(undetected) - len(plain_ones),
        len(plain_ones),
        len(kept),
        len(decided),
        len(small),
        len(extended),
    ]
    decided_real = [row["claim"] for row in real if is_decided(row)]
    numbers += [
        len(decided_real),
        len(real),
        *counted(real, *VERDICTS[:3]),
        *counted(real, "undecided", "not run"),
    ]
    either = len({row["claim"] for row in decided} | set(decided_real))
    return [*numbers, either, either + counted(own, "by computation")[0]]


# claim → mean and half of the interval, above zero on the paper's side
OWN = {
    "xlme-07": lambda: difference(
        task_runs("mlm+tlm"), task_runs("mlm"), lambda r: at_held_out_layer(r, CAPTIONS)
    ),
    "xylent-02": lambda: difference(
        direct_runs(pieces=6000), direct_runs(), partial(found, pair="others")
    ),
    "xylent-03": lambda: bitext_difference("others"),
    "xylent-04": lambda: difference(
        bitext_runs("mlm+tlm"), bitext_runs("mlm+tlm", lines=8400), partial(found, pair="others")
    ),
    "metaxlm-01": lambda: ahead("both"),
    "metaxlm-02": lambda: difference(
        runs(META, corpus="cldr", dictionaries="cldr"), starts_from("both"), below_frequency
    ),
    "metaxlm-08": lambda: difference(starts_from("both"), runs(META, distil=1.0), below_frequency),
    "metaxlm-09": lambda: difference(starts_from("both"), runs(META, frozen=True), below_frequency),
    "metaxlm-10": lambda: over_better_part(
        starts_from("both"), starts_from("body"), starts_from("words"), below_frequency
    ),
    "veco-12": lambda: difference(
        partners(stop_gradient=False), partners(stop_gradient=True), beside_the_partner
    ),
    "xylent-14": lambda: difference(
        on_one_domain(rate=1.0), on_one_domain(rate=0.1), tags_lost_elsewhere
    ),
}
REAL = {
    "xlme-11": lambda: difference(
        continued("mlm+tlm", 1600, 600), against_two_blocks(), lowest_error
    ),
    "xlme-12": lambda: difference(
        against_two_blocks(), continued("mlm+tlm", 1600, 600), top_on_tatoeba
    ),
    "xlme-13": lambda: difference(
        against_two_blocks(), continued("mlm+tlm", 1600, 600), best_at_alignment
    ),
    "xylent-06": lambda: difference(
        against_two_blocks(), continued("mlm+tlm", 1600, 600), tags_gained
    ),
    "xylent-14": lambda: difference(in_english("mlm", 5e-5), in_english("mlm"), tags_gained),
    "xylent-15": lambda: difference(in_english("mlm"), in_english("mrtd"), tags_gained),
    "xlme-01": lambda: at_better_rates("mrtd", "mlm", transferred),
    "xlme-03": lambda: at_better_rates("mrtd+trtd", "mlm+tlm", entailed_elsewhere),
    "xlme-04": lambda: at_better_rates("mrtd+trtd", "mrtd", transferred),
    "xlme-06": lambda: at_better_rates("mrtd", "mlm+tlm", transferred),
    "xlme-07": lambda: at_better_rates("mlm+tlm", "mlm", transferred),
    "xlme-09": lambda: at_better_rates("mrtd+trtd", "mlm", retrieved),
    "xlme-14": lambda: at_better_rates("mrtd+trtd", "mlm", ahead_of_english),
    "static-07": lambda: difference(real_pull(), real_pull("none"), tatoeba_in_the_middle),
    "static-08": lambda: difference(real_pull("none"), real_pull("mse"), tatoeba_in_the_middle),
    "static-10": lambda: difference(real_pull("none"), real_pull(), tags_gained),
    "metaxlm-01": lambda: difference(real_start(parts="both"), real_start(parts="none"), real_loss),
    "metaxlm-10": lambda: over_better_part(
        *(real_start(parts=p) for p in ("both", "body", "embeddings")), real_loss
    ),
    "metaxlm-02": lambda: difference(
        real_start(parts="both", dictionaries="muse"), real_start(parts="both"), real_loss
    ),
    "metaxlm-08": lambda: difference(
        real_start(parts="both"), real_start(parts="none", distil=1.0), real_loss
    ),
    "veco-06": lambda: difference(real_translators("encoder"), real_translators("veco"), loss_left),
    "veco-07": lambda: halfway_before_the_end(real_translators("veco"), real_translators("random")),
    "veco-09": lambda: difference(
        real_translators("encoder", "first"), real_translators("encoder"), loss_left
    ),
}


def task_runs(tasks):
    return runs(
        XLM_E,
        tasks=tasks,
        corpus="multi30k",
        steps=6000,
        layers=3,
        mismatched=False,
        relative_bias_init="local",
    )


def bitext_difference(pair):
    return difference(direct_runs(), direct_runs("en-x", "exponent"), lambda r: found(r, pair))


def lowest_error(record) -> float:
    return min(by_layer(record, "gold", "aer")[1:])


def top_on_tatoeba(record) -> int:
    curve = by_layer(record, "tatoeba", "acc@1c")[1:]
    return 1 + curve.index(max(curve))


def best_at_alignment(record) -> int:
    curve = by_layer(record, "gold", "aer")[1:]
    return 1 + curve.index(min(curve))


def partners(**wanted) -> dict[int, dict]:
    tasks = {"tasks": "ca-mlm+tlm", "learning_rate": 0.002, "corpus": "cldr", "norm": "post"}
    return runs("06_veco", **tasks, steps=1000, batch_tokens=256, **wanted)


def beside_the_partner(record: dict) -> float:
    return at_the_end(record, "held_out/ca_mlm")


def on_one_domain(**wanted) -> dict[int, dict]:
    return runs("04c_continued", tasks="mlm+tlm", **wanted)


def tags_lost_elsewhere(record: dict) -> float:
    "What the sum of the other languages' F1 loses at the layer that was best before, percent."
    langs = set(record["parameters"]["langs"].split(",")) - {record["parameters"]["pivot"]}
    sums = []
    for system in ("before/", ""):
        names = (f"tags/{lang}/{system}layer/f1" for lang in langs)
        sums.append(sum(record["metrics"][name][record["base_layer"]] for name in names))
    return 100 * (sums[0] - sums[1]) / sums[0]


def over_better_part(both: dict, first: dict, second: dict, measure) -> list[float]:
    better = {}
    for seed in both.keys() & first.keys() & second.keys():
        better[seed] = measure(both[seed]) - max(measure(first[seed]), measure(second[seed]))
    return interval(better.values())


def check_effects() -> list[str]:
    "Effects that the tables of 10_claims show and the records do not give."
    messages = []
    for rows, derivations in zip(own_and_real(), (OWN, REAL)):
        effects = {row["claim"]: row["effect"] for row in rows}
        for claim, derive in derivations.items():
            shown = NUMBER.findall(effects[claim])[:2]
            derived = derive()
            if not all(map(shows, shown, derived)):
                messages.append(f"{claim}: {effects[claim]} where {derived} is derived")
    return messages


# --- every number of every text, in its order ------------------------------------------------------------------------


def readme_numbers() -> list:
    summary = summary_of_claims()
    ledger = [*summary[:8], *summary[-8:-4]]
    masked, random, detector = (
        wide_runs(t, m) for t, m in (("mlm+tlm", False), ("mlm+tlm", True), ("mrtd+trtd", False))
    )
    detector_random = wide_runs("mrtd+trtd", True)
    speeds = [r for r in records("gpu") if r.get("phase") == "speed" and "mfu" in r]
    newest = [
        r for r in speeds if r["code"] == speeds[-1]["code"] and r["case"].endswith(" tokens")
    ]
    fastest = max(newest, key=lambda r: r["tokens_per_second"])
    bible = bible_run("mlm+tlm")
    lead = below_frequency(base_start("both")) - below_frequency(base_start("none"))
    return [
        *ledger, "1,000", "0.1",
        *scores(starts("cldr", "local", 2700), auc), *scores(starts("cldr", "random", 2700), auc),
        *scores(long_runs("mlm+tlm")), *scores(long_runs("mrtd+trtd")), million_tokens(long_runs("mlm+tlm")),
        scores(long_runs("mrtd+trtd"), last_layer, "untrained")[0],
        mean(baseline(r, CAPTIONS, "lsa") for r in long_runs("mlm+tlm").values()),
        *ahead("both"), *ahead("both", "from scratch, all steps"), *ahead("scattered"),
        *scores(veco_runs("denoise"), at_held_out_layer, CAPTIONS),
        *scores(veco_runs("mlm+tlm"), at_held_out_layer, CAPTIONS),
        *scores(veco_runs("ca-mlm+tlm"), at_held_out_layer, CAPTIONS), million_tokens(veco_runs("denoise")),
        *over_shuffled(CAPTIONS, teacher="lsa"), *over_shuffled("tatoeba", teacher="lsa"),
        *over_shuffled(CAPTIONS, teacher="x2static"), "95",
        "256", *scores(masked), *scores(random), *scores(detector), *scores(detector_random),
        scores(detector, last_layer, "untrained")[0],
        "768", last_layer(bible, test="bible"), baseline(bible, "bible", "trigrams", "acc@1"),
        last_layer(bible_run("mrtd+trtd"), test="bible"), lead,
        fastest["tokens_per_second"], 100 * fastest["mfu"],
    ]  # fmt: skip


def xlm_e_numbers() -> list:
    phrases = starts("cldr", "local", 2700), starts("cldr", "random", 2700)
    captions = starts("multi30k", "local", 6000), starts("multi30k", "random", 6000)
    masked, random, detector = (
        long_runs("mlm+tlm"),
        long_runs("mlm+tlm", True),
        long_runs("mrtd+trtd"),
    )
    gains = [
        scores(detector, at_the_end, name) for name in ("held_out/trtd_gap", "held_out/tlm_gap")
    ]
    return [
        "95", "0.5", "95", *scores(phrases[0], auc), *scores(phrases[1], auc), len(phrases[0]),
        *scores(captions[0], auc), *scores(captions[1], auc), len(captions[1]),
        *scores(masked), "1,000", len(masked), "0.1", mean(map(last_layer, random.values())), len(random),
        *scores(detector), len(detector), scores(detector, last_layer, "untrained")[0], *gains[0], *gains[1],
    ]  # fmt: skip


def upper_captions(record) -> float:
    return mean(by_layer(record, CAPTIONS, "acc@1c")[2:])


def shown_instead(negatives: str) -> dict[int, dict]:
    return runs("03b_negatives", negatives=negatives, mismatched=False, masks="one side")


def negatives_numbers() -> list:
    masked, usual = task_runs("mlm+tlm"), task_runs("mrtd+trtd")
    blind, shuffled = shown_instead("apart"), shown_instead("shuffled")
    paper = runs("03b_negatives", negatives="generator", masks="paper")
    mixed = runs("03b_negatives", negatives="apart", mismatched=True)
    found = [mean(map(upper_captions, arm.values())) for arm in (blind, shuffled, usual, masked)]
    leads = []
    for arm in (blind, shuffled):
        leads += [*difference(arm, usual, upper_captions), len(arm)]
    return [
        "1,000", "2", "3", *found, *leads, "3",
        mean(map(upper_captions, paper.values())), mean(map(upper_captions, mixed.values())), len(mixed),
        "5", "15", "40", "1", "50", "24",
    ]  # fmt: skip


def xy_lent_numbers() -> list:
    both, english = direct_runs(), direct_runs("en-x", "exponent")
    masked, replaced = bitext_runs("mlm+tlm"), bitext_runs("mrtd+trtd")
    gain = difference(both, english, lambda r: column(r, "held_out/tlm_gap")[-1])
    bitext = [*found_by_language(both, english), *gain, len(both)]
    between = mean(found(record, "others") for record in english.values())
    larger = difference(direct_runs(pieces=6000), both, partial(found, pair="others"))
    opening = [between, "6,000", "3,000", *larger, "1,000"]
    return [*opening, *bitext, *found_by_language(replaced, masked)]


def meta_xlm_numbers() -> list:
    both, scratch = starts_from("both"), starts_from("from scratch")
    settings = both[0]["parameters"]
    longer = starts_from("from scratch, all steps")
    late = starts_from("from scratch, random start")
    learned = [min_ahead for r in late.values() if (min_ahead := min(all_losses(r))) >= 0.5]
    values = [
        "0.5",
        "95",
        "95",
        meta_tokens(both),
        settings["steps"],
        settings["meta_steps"],
        longer[0]["parameters"]["steps"],
    ]
    values += [*ahead("both"), len(both.keys() & scratch.keys())]
    values += [*ahead("both", "from scratch, all steps"), len(both.keys() & longer.keys())]
    for arm in ("body", "words", "scattered"):
        values += [*ahead(arm), len(starts_from(arm))]
    return [*values, len(learned), len(late), "3"]


def all_losses(record) -> list[float]:
    return [
        freq - column(record, f"held_out/mlm/{lang}")[-1]
        for lang, freq in record["unigram"].items()
    ]


def meta_tokens(chosen: dict) -> float:
    "Millions read by the monolingual model."
    return mean(record["meta"]["tokens"] for record in chosen.values()) / 1e6


def real_encoder_numbers() -> list:
    e5, english, masked, detector = ENCODERS
    apart, joint = aer(e5), aer(e5, "joint")
    best = apart.index(min(apart))
    top = tatoeba(e5)
    small = min(aer(masked)), min(aer(detector)), max(tatoeba(masked)), max(tatoeba(detector))
    blocks = min(aer(detector)[1:]), max(aer(masked)[1:])
    every = sum(map(minutes, ENCODERS))
    return [
        best, min(apart), apart[-1], max(top), top.index(max(top)), "10", "9", "7", min(apart), min(joint),
        max(tatoeba(english)), min(aer(english)), *small, *blocks, every, minutes(e5),
    ]  # fmt: skip


def downstream_numbers() -> list:
    e5, english = ENCODERS[:2]
    words = [task_score("baselines", task, "elsewhere", system="words") for task in ("pos", "ner")]
    tags = {
        model: [task_score(model, "pos", langs) for langs in ("elsewhere", ["en"])]
        for model in (e5, english)
    }
    entailment = task_score(e5, "xnli", ["en"]), task_score(e5, "xnli", "elsewhere")
    asian = [task_score(e5, task, [lang]) for task in ("pos", "ner") for lang in ("ja", "zh")]
    return [
        "150", tags[e5][0], words[0], "300", task_score(e5, "ner", "elsewhere"), words[1],
        peak(e5, "pos"), peak(e5, "ner"), "7", entailment[0] - entailment[1], *entailment, "250",
        tags[english][1], tags[e5][1], tags[english][0], *asian,
        *(task_score(e5, "pos", [lang], way="tuned") for lang in ("ja", "zh")),
        "2,000", tuned(e5, "ner")[1], "300", task_score(e5, "ner", "elsewhere"),
        tuned(e5, "pos")[1], "150", tags[e5][0],
        tuned(english, "pos")[0], tuned(english, "pos")[1], tuned(english, "ner")[1],
        *tuned(e5, "xnli"), *tuned(english, "xnli"), "100",
    ]  # fmt: skip


def tuned(model: str, task: str) -> list[float]:
    "In English and in the other languages, all weights trained."
    return [task_score(model, task, langs, way="tuned") for langs in (["en"], "elsewhere")]


def peak(model: str, task: str) -> int:
    "The layer that is best in the other languages."
    for record in records("08g_real_downstream"):
        if _is_of(record, model, task):
            layers = record["layers"]
    elsewhere = layers["others"]
    return layers["layer"][elsewhere.index(max(elsewhere))]


def gone(masked: dict, replaced: dict, test: str = "own") -> list[float]:
    "By seed, the percentage of the difference that three components fewer take away."
    whole = change(test, "acc@1c", UPPER)
    without = change(test, "acc@1c-3pc", UPPER)
    shares = []
    for seed in masked:
        kept = (without(masked[seed]) - without(replaced[seed])) / (
            whole(masked[seed]) - whole(replaced[seed])
        )
        shares.append(100 * (1 - kept))
    return shares


def wrong(test: str, system: str, chosen: dict) -> float:
    "Percent of wrong answers in the upper layers."
    shares = []
    for record in chosen.values():
        scores_of_layers = by_layer(record, test, "acc@1c", system)
        shares.append(mean(100 - scores_of_layers[layer] for layer in UPPER))
    return mean(shares)


def ratios(name: str, masked: dict, replaced: dict) -> list[float]:
    "How many times as far the upper layers move with replaced tokens, by layer and seed."
    every = []
    for layer in UPPER:
        key = f"{name}/layer{layer}"
        every += [replaced[seed]["metrics"][key] / masked[seed]["metrics"][key] for seed in masked]
    return every


def share_detected(kind: str, record: dict) -> float:
    "Percent of the base rate's loss that the discriminator has got rid of, on text or on pairs."
    loss, base = {"text": ("text_rtd_loss", "text_rtd_base_loss"), "pairs": ("trtd", "trtd_base")}[
        kind
    ]
    return 100 * (
        1 - at_the_end(record, f"held_out/{loss}") / at_the_end(record, f"held_out/{base}")
    )


def below_words(name: str, frequency: str, record: dict) -> float:
    return at_the_end(record, f"held_out/{frequency}") - at_the_end(record, f"held_out/{name}")


def ends(measure, chosen: dict) -> list[float]:
    "Lowest and highest over seeds."
    values = list(map(measure, chosen.values()))
    return [min(values), max(values)]


def best_layer(test: str, system: str, record: dict) -> int:
    curve = by_layer(record, test, "acc@1c", system)
    return curve.index(max(curve))


def english_numbers() -> list:
    "What training in English alone does in the other languages."
    masked, replaced, slowly = in_english("mlm"), in_english("mrtd"), in_english("mlm", 5e-5)
    (layer,) = {tags_before(record)[1] for record in masked.values()}
    far = change("tatoeba", "acc@1c", UPPER)

    def of(measure, chosen):
        return mean(map(measure, chosen.values()))

    return [
        "300", "0.0005", of(tags_gained, masked), of(tags_gained, replaced), layer,
        -of(far, masked), -of(far, replaced), of(tags_gained, slowly), -of(far, slowly),
        *sorted(-nats for nats in ends(partial(below_words, "text_mlm", "unigram"), masked)),
    ]  # fmt: skip


def both_objectives(steps=1200, warm_steps=3000) -> tuple[dict, dict]:
    return tuple(continued(tasks, steps, warm_steps) for tasks in ("mlm+tlm", "mrtd+trtd"))


def over(measure, chosen: dict) -> float:
    return mean(map(measure, chosen.values()))


def saved(own, warm_steps=200, **changed) -> list[float]:
    "How much less a variant of replaced tokens loses in a short run."
    usual = continued("mrtd+trtd", 150, 200)
    return difference(continued("mrtd+trtd", 150, warm_steps, **changed), usual, own)


def two_layers_numbers(own) -> list:
    "What a head of two layers saves in a short run and in a long one."
    masked, replaced = both_objectives()
    dense = continued("mrtd+trtd", dense_head=True)
    return [
        "150", difference(*both_objectives(150, 200), own)[0], *saved(own, dense_head=True),
        *saved(own, dense_head=True, head_activation=False), "200",
        "40", *saved(own, warm_steps=40, dense_head=True), "1,200", "3,000",
        *difference(dense, replaced, own), difference(masked, replaced, own)[0],
    ]  # fmt: skip


def objectives_numbers() -> list:
    masked, replaced = both_objectives()
    own, far = change("own", "acc@1c", UPPER), change("tatoeba", "acc@1c", UPPER)
    middle, upper = change("gold", "aer", MIDDLE), change("gold", "aer", UPPER)
    (before,) = set(ends(partial(best_layer, "own", "before"), masked))
    (after,) = set(ends(partial(best_layer, "own", ""), masked))
    hidden = change("own", "acc@1c-3pc", UPPER)
    return [
        "1,200", "9", "12", over(own, replaced), over(own, masked), *difference(masked, replaced, own),
        over(far, replaced), over(far, masked), *difference(masked, replaced, far),
        *difference(masked, replaced, hidden), "6", "8", over(middle, replaced), over(middle, masked),
        *difference(masked, replaced, middle),
        over(change("own", "acc@1c", MIDDLE), replaced), over(upper, replaced), over(upper, masked),
        before, *best_layers("own", replaced), *best_layers("tatoeba", replaced), after, *two_layers_numbers(own), "95",
    ]  # fmt: skip


def best_layers(test: str, chosen: dict) -> list[int]:
    "The lowest and the highest over seeds; one where they are the same."
    return sorted(set(ends(partial(best_layer, test, ""), chosen)))


def learned_numbers() -> list:
    "What both objectives have learned."
    masked, replaced = both_objectives()
    return [
        *ends(partial(below_words, "text_mlm", "unigram"), masked),
        *ends(partial(below_words, "tlm", "tlm_unigram"), masked),
        *ends(partial(share_detected, "text"), replaced), *ends(partial(share_detected, "pairs"), replaced),
    ]  # fmt: skip


def weaker_numbers(own) -> list:
    "Against a generator of two blocks."
    masked, four = both_objectives(1600, 600)
    replaced = against_two_blocks()
    (best_masked,) = set(ends(top_on_tatoeba, masked))
    on_pairs = [0.5 - below_words("tlm", "tlm_unigram", record) for record in replaced.values()]
    missed = [nats for nats in on_pairs if nats > 0]
    base = partial(at_the_end, name="held_out/text_rtd_base_loss")
    return [
        "1,600", *ends(partial(share_detected, "text"), replaced), *ends(partial(share_detected, "pairs"), replaced),
        *difference(masked, replaced, own), *ends(top_on_tatoeba, replaced), best_masked,
        *difference(masked, replaced, lowest_error),
        *ends(partial(below_words, "text_mlm", "unigram"), replaced), min(missed), max(missed),
        over(base, replaced), over(base, four),
    ]  # fmt: skip


def between_numbers(own) -> list:
    "Against a generator of three blocks."
    masked, _ = both_objectives(1200, 600)
    replaced = continued("mrtd+trtd", 1200, 600, generator_layers=3)
    on_pairs = partial(below_words, "tlm", "tlm_unigram")
    return [
        "1,200", *ends(partial(share_detected, "text"), replaced), *ends(on_pairs, replaced),
        *difference(masked, replaced, own), *ends(top_on_tatoeba, replaced),
        *difference(masked, replaced, lowest_error),
    ]  # fmt: skip


def start_numbers(own) -> list:
    "The difference after other lengths and from other heads."
    masked, _ = both_objectives(150, 200)
    second = continued("mrtd+trtd", 150, 200, heads_seed=1)
    return [
        "150", *difference(*both_objectives(150, 200), own), *difference(*both_objectives(150, 0), own),
        "1,200", *difference(*both_objectives(1200, 600), own), "600",
        "1,600", *difference(*both_objectives(1600, 600), own), *difference(masked, second, own), "150",
    ]  # fmt: skip


def not_it_numbers(own) -> list:
    "Random pairs, pairs alone, the size of steps, and variants."
    random = [continued(tasks, 150, 200, mismatched=True) for tasks in ("mlm+tlm", "mrtd+trtd")]
    alone = [continued(tasks, 150, 200) for tasks in ("tlm", "trtd")]
    masked, replaced = both_objectives()
    weights, states = ratios("distance", masked, replaced), ratios("moved", masked, replaced)
    short_masked, usual = both_objectives(150, 200)
    behind = [
        {seed: own(first[seed]) - own(second[seed]) for seed in first}
        for first, second in (random, (short_masked, usual))
    ]
    slow = [continued(tasks, 150, 200, learning_rate=5e-5) for tasks in ("mlm+tlm", "mrtd+trtd")]
    masked_fast, fast = (
        continued(tasks, 150, 200, learning_rate=2e-4) for tasks in ("mlm+tlm", "mrtd+trtd")
    )
    moves = ratios("distance", usual, masked_fast)
    light, heavy = (saved(own, rtd_weight=weight) for weight in (1.0, 50.0))
    return [
        "150", *difference(*random, own), *difference(*behind, float), *difference(*alone, own),
        "150", *difference(*slow, own), *difference(masked_fast, fast, own),
        min(weights), max(weights), min(states), max(states), min(moves), max(moves),
        -over(own, masked_fast), "150", -over(own, usual),
        "150", "1", *light, "50", *heavy, *saved(own, blind_generator=True),
        *saved(own, frozen_layers=6), *saved(own, predicts_too=True),
    ]  # fmt: skip


def damage_numbers(own) -> list:  # own: a measure in the training domain → change
    "How much is lost, and how much of that is recoverable."
    masked, replaced = both_objectives()
    apart = partial(difference, masked, replaced)
    rates = [
        wrong(test, system, replaced) for test in ("own", "tatoeba") for system in ("before", "")
    ]
    shares, far_shares = gone(masked, replaced), gone(masked, replaced, "tatoeba")
    german, hindi = (change("own", "acc@1c", UPPER, pair) for pair in ("de-en", "en-hi"))
    return [
        *rates, min(shares), max(shares), min(far_shares), max(far_shares), *apart(own("acc@1c-csls")),
        -over(own("acc@1"), masked), *apart(own("acc@1")), *apart(hindi), *apart(german),
    ]  # fmt: skip


def sceptical_numbers() -> list:
    own = partial(change, "own", layers=UPPER)
    centred = own("acc@1c")
    return [
        *learned_numbers(), *weaker_numbers(centred), *between_numbers(centred), *start_numbers(centred),
        *not_it_numbers(centred),
        *damage_numbers(own), *english_numbers(), "1,200", "300",
    ]  # fmt: skip


def real_start_numbers() -> list:
    scratch, both = real_start(parts="none"), real_start(parts="both")
    words, body = real_start(parts="embeddings"), real_start(parts="body")
    shuffled = real_start(parts="both", rows="shuffled")
    distilled = real_start(parts="none", distil=1.0)
    focus, wechsel = (real_start(parts="both", rows=rows) for rows in ("focus", "wechsel"))
    leads = [difference(chosen, scratch, real_loss) for chosen in (both, words, body)]
    better = over_better_part(both, body, words, real_loss)
    tokens = mean(record["run"]["tokens"] for record in both.values())
    return [
        tokens, leads[0][0], *leads[0],
        mean(map(real_loss, both.values())), mean(map(real_loss, scratch.values())), "95",
        *leads[1], *leads[2], *better, 100 * leads[1][0] / leads[0][0],
        *difference(shuffled, scratch, real_loss), *difference(shuffled, body, real_loss),
        *difference(both, shuffled, real_loss),
        *difference(both, shuffled, loss_in_english),
        *difference(real_start(parts="both", dictionaries="muse"), both, real_loss),
        *difference(distilled, scratch, real_loss), *difference(both, distilled, real_loss),
        *difference(focus, both, real_loss), *difference(focus, both, loss_in_english),
        *difference(focus, real_start(parts="both", dictionaries="muse"), real_loss), "0.2",
        *difference(both, wechsel, real_loss), *difference(both, wechsel, loss_in_english),
        mean(map(real_tags, both.values())), mean(map(words_alone, both.values())),
        *difference(both, scratch, real_tags),
    ]  # fmt: skip


def real_static_numbers() -> list:
    german = runs("08c_real_static", scored="de,en")
    every = runs("08c_real_static", scored="de,en,fi,ru")
    unmapped = "aggregated/layer/unmapped"

    def share(chosen, *what):
        return mean(translated(record, *what) for record in chosen.values())

    return [
        "6", share(german, unmapped, 6, "de"), mean(100 * r["floor"] for r in german.values()),
        share(every, unmapped, 6, "en"),
        *interval(map(gained_by_map(6), german.values())),
        *interval(map(gained_by_map(0), german.values())), "6.4",
        share(every, "fasttext/rotation", None, "de"), "20,000", share(every, "lsa", None, "de"),
        share(every, "lsa", None, "fi"), "6", share(every, unmapped, 6, "fi"),
        share(german, "aggregated/layer/right50", 6, "de"),
        share(german, "aggregated/layer/right10", 6, "de"), "6", "12",
    ]  # fmt: skip


def halfway_before_the_end(early: dict, late: dict) -> list[float]:
    "By how much the loss of some runs halfway is below the last one of others."
    below = {}
    for seed in early.keys() & late.keys():
        by_step = dict(zip(column(early[seed], "step"), column(early[seed], "held_out/loss")))
        below[seed] = loss_left(late[seed]) - by_step[early[seed]["parameters"]["steps"] / 2 - 1]
    return interval(below.values())


def real_pull(loss="dcca_ey", teacher="aggregated", shuffled=False):
    return runs("08h_real_transfer", loss=loss, teacher=teacher, shuffled=shuffled)


def tatoeba_in_the_middle(record: dict, system: str = "") -> float:
    curve = by_layer(record, "tatoeba", "acc@1c", system)
    return mean(curve[layer] for layer in MIDDLE)


def taught(record: dict, pair: str) -> float:
    "Percent of the held-out entries that the teacher's vectors translate."
    return 100 * record["metrics"][f"bli/{pair}/teacher/mapped/acc@1"]


def real_transfer_numbers() -> list:
    alone, own, shuffled = real_pull("none"), real_pull(), real_pull(shuffled=True)
    mse, other = real_pull("mse"), real_pull(teacher="fasttext")
    (before,) = {round(tatoeba_in_the_middle(r, "before"), 9) for r in alone.values()}
    minutes = sorted(
        r["core_minutes"] for c in (alone, own, shuffled, mse, other) for r in c.values()
    )
    losses = [mean(r["transfer"][k] for r in mse.values()) for k in (0, 1)]
    far = change("tatoeba", "acc@1c", UPPER)

    def of(measure, chosen):
        return mean(map(measure, chosen.values()))

    return [
        "2022", "12", "384", "150", "6", "8", of(tatoeba_in_the_middle, alone),
        of(tatoeba_in_the_middle, own), *difference(own, alone, tatoeba_in_the_middle), "7.2", before,
        *difference(own, alone, tags_gained), *difference(own, shuffled, tags_gained),
        mean(tags_before(r)[0] for r in own.values()),
        mean(tags_before(r)[0] + tags_gained(r) for r in own.values()),
        *difference(own, shuffled, tatoeba_in_the_middle),
        *difference(alone, mse, tatoeba_in_the_middle), "384", *losses,
        of(partial(taught, pair="de-en"), other), of(partial(taught, pair="en-fi"), other),
        of(partial(taught, pair="de-en"), own), of(partial(taught, pair="en-fi"), own),
        *difference(own, other, tatoeba_in_the_middle),
        -difference(own, alone, far)[0], difference(own, alone, far)[1],
        "25", minutes[0], minutes[-2],
    ]  # fmt: skip


def mean_of(chosen: dict, measure) -> float:
    return mean(map(measure, chosen.values()))


def real_tasks_numbers() -> list:
    masked, replaced = map(real_tasks, ("mlm", "mrtd"))
    return [
        "12", "384", mean_of(replaced, transferred), mean_of(masked, transferred),
        *difference(replaced, masked, transferred),
        mean_of(real_tasks("mlm", 3e-5), transferred), *REAL["xlme-01"](),
        mean_of(masked, transferred_before),
        *map(abs, REAL["xlme-04"]()), *map(abs, REAL["xlme-07"]()),
        mean_of(at_better_rate("mrtd+trtd", retrieved), retrieved), *map(abs, REAL["xlme-09"]()),
    ]  # fmt: skip


def entailment_lost(record: dict) -> float:
    return tags_before(record, "entailment")[0] - entailed_elsewhere(record)


def predicted_tasks_numbers() -> list:
    "What 08i_real_tasks says of its predictions."
    masked, replaced, with_pairs = map(real_tasks, ("mlm", "mrtd", "mrtd+trtd"))
    with_masked_pairs = real_tasks("mlm+tlm")
    leads = [transferred(replaced[seed]) - transferred(masked[seed]) for seed in replaced]
    gained = [-entailment_lost(r) for r in with_pairs.values() if entailment_lost(r) < 0]
    return [
        min(leads), max(leads), mean_of(replaced, tags_gained), mean_of(masked, tags_gained),
        mean_of(replaced, entailment_lost), mean_of(masked, entailment_lost),
        *difference(replaced, with_masked_pairs, transferred),
        *difference(with_pairs, with_masked_pairs, entailed_elsewhere),
        difference(with_pairs, replaced, transferred)[0],
        difference(with_masked_pairs, masked, transferred)[0],
        difference(masked, with_pairs, retrieved)[0],
        mean_of(replaced, retrieved) - mean_of(with_pairs, retrieved), *gained,
        "256,000", mean(leads),
    ]  # fmt: skip


def gentle_tasks_numbers() -> list:
    "What it says of the gentler rate."
    fast, gentle = (
        {tasks: real_tasks(tasks, rate) for tasks in ("mlm", "mlm+tlm", "mrtd", "mrtd+trtd")}
        for rate in (1e-4, 3e-5)
    )
    learned = partial(below_words, "text_mlm", "unigram")
    before = transferred_before(next(iter(fast["mlm"].values())))
    found = [mean_of(chosen, retrieved) for chosen in gentle.values()]
    replaced = interval(map(transferred, fast["mrtd"].values()))
    return [
        *interval(map(transferred, gentle["mlm"].values())), before,
        mean_of(gentle["mlm"], learned), mean_of(fast["mlm"], learned),
        *difference(gentle["mlm"], gentle["mrtd"], transferred),
        *difference(gentle["mlm+tlm"], gentle["mrtd+trtd"], entailed_elsewhere),
        *found, *map(abs, REAL["xlme-07"]()), *map(abs, REAL["xlme-09"]()), *REAL["xlme-01"](),
        min(share_detected("text", record) for record in gentle["mrtd+trtd"].values()),
        *REAL["xlme-06"](), *REAL["xlme-03"](),
        before - mean_of(gentle["mlm+tlm"], transferred), replaced[0] - before, replaced[1],
    ]  # fmt: skip


STARTS_OF_TRANSLATORS = (
    ("random", "last"),
    ("encoder", "last"),
    ("encoder", "first"),
    ("veco", "last"),
)


def real_translation_numbers() -> list:
    collapsed = [without_a_first_decoder(*start) for start in STARTS_OF_TRANSLATORS]
    for record in chain.from_iterable(chosen.values() for chosen in collapsed):
        gains = map(abs, column(record, "held_out/source_gain")[1:])
        assert max(gains) < 0.0001
        assert len(set(record["tables"]["samples"]["translation"])) == 1
    random, last, first, after_veco = (real_translators(*start) for start in STARTS_OF_TRANSLATORS)

    def ends(chosen, name):
        return spread(at_the_end(record, f"held_out/{name}") for record in chosen.values())

    def loss_and_chrf(*starts):
        return [
            *chain.from_iterable(spread(map(loss_left, chosen.values())) for chosen in starts),
            *chain.from_iterable(
                spread(r["metrics"]["chrf/multi30k-2016"] for r in chosen.values())
                for chosen in starts
            ),
        ]

    [low] = runs(TRANSLATED, weights="encoder", learning_rate=0.0001, steps=480).values()
    best = max(r["metrics"]["bleu/multi30k-2016"] for r in [*last.values(), *first.values()])
    veco_06 = difference(after_veco, last, loss_left)
    return [
        "2021", "12", "384", "0.998",
        at_the_end(low, "held_out/mean_cosine"), abs(at_the_end(low, "held_out/source_gain")),
        "120", "240", *ends(last, "source_gain"), *ends(random, "source_gain"), *ends(last, "mean_cosine"),
        *loss_and_chrf(last, after_veco, random), *veco_06,
        *halfway_before_the_end(after_veco, random), *halfway_before_the_end(last, random),
        *spread(map(loss_left, first.values())), *ends(first, "source_gain"),
        *spread(r["metrics"]["chrf/multi30k-2016"] for r in first.values()), best, "95",
    ]  # fmt: skip


def claims_numbers() -> list:
    return [*summary_of_claims(), "95"]


def tags_in(record: dict, languages, when: int) -> float:
    return 100 * mean(column(record, f"held_out/tags/{lang}")[when] for lang in languages)


def beside_numbers() -> list:
    "What 10_claims says beside some verdicts."
    right, shuffled = (pulled(flag, teacher="x2static") for flag in (False, True))
    alone = runs(
        "07c_static_runs", langs="de,en,fr", steps=5000, transfer_steps=1000, loss="none",
        goes_on="mlm", most_words=1000,
    )  # fmt: skip
    tatoeba_gained = partial(gained, test="tatoeba")
    leads = [
        difference(ahead, behind, tatoeba_gained)
        for ahead, behind in ((shuffled, alone), (right, alone), (right, shuffled))
    ]
    scratch, both, words = (real_start(parts=p) for p in ("none", "both", "embeddings"))
    shares = [difference(first, scratch, real_loss)[0] for first in (words, both)]
    tokens = mean(record["run"]["tokens"] for record in both.values())
    starts_of = starts_from("both").values()
    others = ("de", "ru", "zh")
    source, elsewhere = (
        [mean(tags_in(record, langs, when) for record in starts_of) for when in (0, -1)]
        for langs in (("en",), others)
    )
    untrained = mean(
        100 * record["metrics"]["tags/en/untrained/layer/others"][2]  # of three, as for the others
        for record in starts_of
    )
    short_of = []
    for steps in (1200, 1600):
        _, replaced = both_objectives(steps, 600)
        short_of.append(50 - min(share_detected("text", record) for record in replaced.values()))
    on_pairs = (below_words("tlm", "tlm_unigram", r) for r in against_two_blocks().values())
    return [
        *leads[0], *leads[1], *leads[2], 100 * shares[0] / shares[1], "-08", tokens,
        short_of[0], "1,200", short_of[1], "1,600", 0.5 - min(on_pairs), "1,600", "1,200",
        *difference(real_tasks("mrtd"), real_tasks("mlm"), transferred),
        source[0] - elsewhere[0], source[1] - elsewhere[1], *elsewhere, untrained,
    ]  # fmt: skip


def preparation_numbers() -> list:
    record = [r for r in records("benchmarks") if r.get("measurement") == "preparation"][-1]
    tokenizers = record["tables"]["tokenizers"]
    alone = sum(tokenizers["tokens"]) / sum(tokenizers["cpu"])
    rates = [
        record[name]["tokens"] / record[name]["rows"][-1]["cpu"] for name in ("one", "several")
    ]
    largest = max(row["resident"] for name in ("one", "several") for row in record[name]["rows"])
    shares = [100 * rate / alone for rate in rates]
    return [
        "100",
        "1,000",
        record["files"],
        largest / 1e9,
        record["bytes"] / 1e9,
        rates[0],
        *shares,
    ]


# settings, sections, years, and pilots of which no record was kept
TEXT = {
    "04b_dro_runs": ["6.6", "2021"],
    "04c_continued": ["8", "6", "7", "5"],
    "06b_veco_results": ["0.5", "95", "0", "95"],
    "07c_static_runs": ["2022", "160", "60"],
    "07d_static_results": ["95", "0.5", "95", "0"],
    "11_benchmarks": ["250,000", "8,000", "40", "1,024", "4,096", "8"],
}
DERIVED = {
    "03a_xlm_e_results": xlm_e_numbers,
    "03b_negatives": negatives_numbers,
    "04d_xy_lent_results": xy_lent_numbers,
    "05a_meta_xlm_results": meta_xlm_numbers,
    "08a_downstream_results": lambda: [carried("MLM + TLM") - carried("untrained")],
    "08b_real_encoders": real_encoder_numbers,
    "08c_real_static": real_static_numbers,
    "08d_real_objectives": objectives_numbers,
    "08e_real_meta_xlm": real_start_numbers,
    "08f_real_translation": real_translation_numbers,
    "08g_real_downstream": downstream_numbers,
    "08h_real_transfer": real_transfer_numbers,
    "08i_real_tasks": real_tasks_numbers,
    "10_claims": claims_numbers,
    "11a_preparation_runs": preparation_numbers,
}


# notebook, section below its opening → its numbers
SECTIONS = {
    ("08d_real_objectives", "A sceptical reading"): sceptical_numbers,
    ("08i_real_tasks", "Against the predictions"): predicted_tasks_numbers,
    ("08i_real_tasks", "What came out at the gentler rate"): gentle_tasks_numbers,
    ("10_claims", "What to read beside some verdicts"): beside_numbers,
}


def main() -> int:
    texts = {"README.md": (readme(), readme_numbers)}
    for path in sorted(RESULTS.glob("*.ipynb")):
        texts[path.stem] = (
            opening(path.stem),
            DERIVED.get(path.stem, partial(TEXT.get, path.stem, [])),
        )
    for (name, title), numbers in SECTIONS.items():
        texts[f"{name}, {title.lower()}"] = section(name, title), numbers
    failed = 0
    for name, (text, expected) in texts.items():
        values = expected()
        messages = differences(text, values)
        failed += len(messages)
        derived = sum(not isinstance(value, str) for value in values)
        print(
            f"{name}: {derived} derived, {len(values) - derived} listed{'; ' if messages else ''}{'; '.join(messages)}"
        )
    effects = check_effects()
    print(
        f"10_claims: effects of {len(OWN) + len(REAL)} claims derived{'; ' if effects else ''}{'; '.join(effects)}"
    )
    return 1 if failed or effects else 0


if __name__ == "__main__":
    sys.exit(main())
