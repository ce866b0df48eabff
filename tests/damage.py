"""What the campaigns of damaged files share: kinds of damage, and a loop that gives them to a reader in turn.

`XLNB_CAMPAIGNS=full` damages every file 300 times, otherwise a handful of times."""

import gzip, json, lzma, os, random, re, signal, unicodedata, warnings
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from conftest import write

from xlnb.base.core import CheckpointError, ConfigError, DataError
from xlnb.text.corpora import Report

FULL = os.environ.get("XLNB_CAMPAIGNS") == "full"
SECONDS = 10  # that one call may take


def times(few):
    return 300 if FULL else few


def _flipped(data, draw):
    place = draw.randrange(len(data))
    return data[:place] + bytes([data[place] ^ 1 << draw.randrange(8)]) + data[place + 1 :]


def _inserted(data, draw):
    place = draw.randrange(len(data) + 1)
    odd = draw.choice(
        [b"\0", b"\xef\xbb\xbf", b"\r", "\u2028".encode(), b"\x85", b"\xff", b"\t", b"\n", b'"']
    )
    return data[:place] + odd + data[place:]


def _swapped(data, draw):
    lines = data.splitlines(keepends=True)
    i, j = (draw.randrange(len(lines)) for _ in range(2))
    lines[i], lines[j] = lines[j], lines[i]
    return b"".join(lines)


def _removed(data, draw):
    begin = draw.randrange(len(data))
    return data[:begin] + data[begin + draw.randrange(1, 40) :]


def _members(value) -> list:  # (container, key or index) of all that is inside
    if not isinstance(value, dict | list):
        return []
    keys = [*value] if isinstance(value, dict) else [*range(len(value))]
    return [(value, key) for key in keys] + [
        place for key in keys for place in _members(value[key])
    ]


def _retyped(data, draw):
    "One value inside JSON, or in one of its lines, is another or gone; other files have a bit flipped."
    head = b""
    text = data
    rest = b""
    if data.count(b"\n") > 1 and data[:1] == b"{" and data[1:2] != b"\n":
        lines = data.splitlines(keepends=True)
        number = draw.randrange(len(lines))
        head = b"".join(lines[:number])
        text = lines[number]
        rest = b"\n" + b"".join(lines[number + 1 :])
    try:
        value = json.loads(text)
    except ValueError:
        return _flipped(data, draw)
    if not (places := _members(value)):
        return b"[]"
    container, key = draw.choice(places)
    if draw.random() < 0.3:
        del container[key]
    else:
        container[key] = draw.choice([None, [], {}, "x", -1, 1e999, True, [[]], 10**30, "\ud800"])
    return head + json.dumps(value).encode() + rest


DAMAGES = {
    "flipped": _flipped,
    "inserted": _inserted,
    "swapped": _swapped,
    "removed": _removed,
    "retyped": _retyped,
    "cut off": lambda data, draw: data[: draw.randrange(len(data))],
    "repeated": lambda data, draw: data + data[draw.randrange(len(data)) :],
    "huge": lambda data, draw: data + b"9" * 200_000 + b"\n",
    "nested": lambda data, draw: data + b"[" * 100_000 + b"\n",
}


# a plain reading of the damaged bytes, which shares no code with the library


def lines(data: bytes) -> list[str]:
    rows = data.decode("utf-8").removeprefix("\ufeff").split("\n")
    return [row.removesuffix("\r") for row in (rows[:-1] if rows[-1] == "" else rows)]


def fields(data: bytes) -> list[list[str]]:
    return [line.split("\t") for line in lines(data)]


def normal(item):
    "An item without what reading may change: blanks at the ends, soft hyphens, and whether characters are composed."
    if isinstance(item, str):
        return unicodedata.normalize("NFC", item.replace("\u00ad", "")).strip()
    if isinstance(item, tuple | list):
        return tuple(map(normal, item))
    return item


def same(item):
    return re.sub(r"\s+", " ", repr(normal(item)))


def unpacked(path: Path) -> bytes:
    data = path.read_bytes()
    return {".gz": gzip.decompress, ".xz": lzma.decompress}.get(path.suffix, bytes)(data)


class Reader(NamedTuple):
    "A function that reads files, and what it may make of a damaged one."

    files: dict[str, str | bytes]  # name → content
    read: Callable  # folder, report → items
    plain: Callable  # bytes → an item for every physical line, row or object; an error: these bytes have no reading
    lost: tuple = ()  # what the report calls an item that was left out
    damaged: str | None = None  # the file that is damaged; None: the first

    def check(self, items, path, report):
        "Each item is one of a plain reading, in its order; the others are counted."
        try:
            plain = [same(item) for item in self.plain(unpacked(path))]
        except Exception as error:
            raise AssertionError(f"read, but without a plain reading: {error!r}") from error
        rest = iter(plain)
        for item in map(same, items):
            assert item in rest, f"{item:.200} does not stand there, or not in this place"
        lost = (
            sum(count for what, count in report.counts.items() if what.startswith(self.lost))
            if self.lost
            else 0
        )
        assert len(items) + lost == len(plain), (
            f"{len(items)} read, {lost} counted, {len(plain)} there"
        )


ALLOWED = (CheckpointError, ConfigError, DataError)


class Hang(BaseException):
    "No `Exception`, so that no reader takes it for damage."


def _stopped(*_):
    raise Hang(f"more than {SECONDS} s")


def campaign(name, path: Path, count: int, read: Callable, check: Callable, allowed=ALLOWED):
    "Damage a file in all ways in turn, put it back at the end; `read(report)` ends well or in the library's words."
    draw = random.Random(name)
    data = path.read_bytes()
    kinds = [*DAMAGES]
    draw.shuffle(kinds)
    before = signal.signal(signal.SIGALRM, _stopped)
    wrong = []
    try:
        for number in range(count):
            kind = kinds[number % len(kinds)]
            path.write_bytes(DAMAGES[kind](data, draw))
            try:
                _one(path, read, check, allowed)
            except (Exception, Hang) as error:
                wrong.append(f"number {number}, {kind}: {error!r:.600}")
    finally:
        signal.signal(signal.SIGALRM, before)
        path.write_bytes(data)
    assert not wrong, f"{name}, {path.name}: {len(wrong)} of {count}\n" + "\n".join(wrong[:8])


def _one(path, read, check, allowed):
    report = Report()
    signal.alarm(SECONDS)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = read(report)
    except allowed:
        return
    finally:
        signal.alarm(0)
    check(found, path, report)


def of_files(name, reader: Reader, folder: Path, count: int):
    "The campaign of a reader whose files are written first."
    for file, content in reader.files.items():
        write(folder / file, content)
    path = folder / (reader.damaged or next(iter(reader.files)))
    report = Report()
    reader.check(reader.read(folder, report), path, report)
    campaign(name, path, count, lambda report: reader.read(folder, report), reader.check)
