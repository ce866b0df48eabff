"Text of one's own as people keep it: the same lines in six forms."

import json

from conftest import write


def joined(lines) -> str:
    return "".join(f"{line}\n" for line in lines)


def as_text(folder, texts: dict):  # language → lines, in all of these side by side
    for lang, lines in texts.items():
        write(folder / f"{lang}.txt", joined(lines))


def as_jsonl(folder, texts: dict):
    import zstandard

    for lang, lines in texts.items():
        records = joined(json.dumps({"text": line}) for line in lines)
        packed = zstandard.ZstdCompressor().compress(records.encode())
        write(folder / f"{lang}.jsonl.zst", packed)


def as_parquet(folder, texts: dict):
    import pyarrow
    from pyarrow import parquet

    folder.mkdir(exist_ok=True)
    for lang, lines in texts.items():
        parquet.write_table(pyarrow.table({"text": lines}), folder / f"{lang}.parquet")


def as_moses(folder, texts: dict):
    for lang, lines in texts.items():
        write(folder / f"train.{lang}", joined(lines))


def as_tmx(folder, texts: dict, name="memory.tmx"):
    units = []
    for row in zip(*texts.values()):
        variants = [
            f'<tuv xml:lang="{lang}"><seg>{line}</seg></tuv>' for lang, line in zip(texts, row)
        ]
        units.append(f"<tu>{''.join(variants)}</tu>")
    write(folder / name, f"<tmx><body>{joined(units)}</body></tmx>")


def as_po(folder, texts: dict):  # with English, whose lines are the keys
    for lang, lines in texts.items():
        if lang == "en":
            continue
        messages = "".join(
            f'\nmsgid "{key}"\nmsgstr "{line}"\n' for key, line in zip(texts["en"], lines)
        )
        write(folder / f"{lang}.po", f'msgid ""\nmsgstr "charset=UTF-8"\n{messages}')


TEXT = {"txt": as_text, "jsonl.zst": as_jsonl, "parquet": as_parquet}
BITEXT = {"TMX": as_tmx, "PO": as_po, "Moses": as_moses}
FORMS = TEXT | BITEXT
