"""How the library's code is written, in numbers: python tools/style.py [--write]

A line a module, and the library as a whole. With --write, tests/style.json takes the numbers that have fallen."""

import ast, io, json, keyword, re, sys, tokenize
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
RATCHET = ROOT / "tests" / "style.json"
WIDTH = 100  # columns of a line
MOST_LINES = 25  # of an exported cell
SCREEN = 60  # lines of any cell
LIMITS = {  # of a module
    "tokens a line": 10,
    "comprehensions": 50,
    "wide lines, %": 2,
    "filler names": 50,
    "nested": 0,
    "packed": 0,
}
FILLER = {"found", "own", "given", "place", "places", "kept", "whole", "told"}
SEQUENCES = (ast.Tuple, ast.List)
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
NO_CODE = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}


def modules(root: Path = ROOT) -> dict[str, str]:
    "Dotted name below the package and text of every generated module."
    paths = [path for path in sorted((root / "xlnb").rglob("*.py")) if path.name[0] != "_"]
    names = [".".join(path.relative_to(root / "xlnb").with_suffix("").parts) for path in paths]
    return {name: path.read_text(encoding="utf-8") for name, path in zip(names, paths)}


def is_packed(node: ast.AST) -> bool:
    "Whether a statement is of the form `a, b = x, y`, with brackets or without."
    if not isinstance(node, ast.Assign) or not isinstance(node.value, SEQUENCES):
        return False
    return any(isinstance(target, SEQUENCES) for target in node.targets)


def is_nested(node: ast.AST) -> bool:
    "Whether it is a comprehension with another one in it."
    if not isinstance(node, COMPREHENSIONS):
        return False
    return any(isinstance(n, COMPREHENSIONS) for n in ast.walk(node) if n is not node)


def counts(text: str) -> dict[str, int]:
    "What is counted in a module; docstrings are tokens, comments are none."
    tokens = [
        t for t in tokenize.generate_tokens(io.StringIO(text).readline) if t.type not in NO_CODE
    ]
    names = [
        t.string for t in tokens if t.type == tokenize.NAME and not keyword.iskeyword(t.string)
    ]
    nodes = [*ast.walk(ast.parse(text))]
    lines = text.splitlines()
    return {
        "tokens": len(tokens),
        "code_lines": len({t.start[0] for t in tokens}),
        "comprehensions": sum(isinstance(node, COMPREHENSIONS) for node in nodes),
        "nested": sum(map(is_nested, nodes)),
        "packed": sum(map(is_packed, nodes)),
        "lines": len(lines),
        "wide": sum(len(line) > WIDTH for line in lines),
        "names": len(names),
        "filler": sum(name in FILLER for name in names),
    }


def rates(n: dict[str, int]) -> dict[str, float]:
    "Tokens a code line, comprehensions per 1,000 code lines, percent of wide lines, filler names per 10,000."
    return {
        "tokens a line": round(n["tokens"] / max(1, n["code_lines"]), 1),
        "comprehensions": round(1000 * n["comprehensions"] / max(1, n["code_lines"])),
        "wide lines, %": round(100 * n["wide"] / max(1, n["lines"]), 1),
        "filler names": round(1e4 * n["filler"] / max(1, n["names"])),
        "nested": n["nested"],
        "packed": n["packed"],
    }


def holds_only_imports(source: str) -> bool:
    "Whether a cell is a list of imports."
    try:
        tree = ast.parse(source)
    except SyntaxError:  # a magic command
        return False
    return all(isinstance(node, (ast.Import, ast.ImportFrom)) for node in tree.body)


def long_cells(root: Path = ROOT) -> dict[str, dict[str, int]]:
    "Notebook → exported cells of more than 25 lines, lesson cells of more than 60; imports and parameters aside."
    out = {}
    for path in sorted((root / "nbs").rglob("*.ipynb")):
        if ".ipynb_checkpoints" in path.parts:
            continue
        n = {"exported": 0, "lesson": 0}
        for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
            source = "".join(cell["source"])
            tagged = "parameters" in cell["metadata"].get("tags", [])
            if cell["cell_type"] != "code" or tagged or holds_only_imports(source):
                continue
            exported = bool(re.search(r"^#\s?\|\s*export", source, re.M))
            length = len(source.splitlines())
            n["exported"] += exported and length > MOST_LINES
            n["lesson"] += not exported and length > SCREEN
        out[path.relative_to(root / "nbs").with_suffix("").as_posix()] = n
    return out


def unnamed_exports(root: Path = ROOT) -> list[str]:
    "Exports that nothing but their own notebook names."
    texts = modules(root)
    paths = [
        *(root / "tests").glob("*.py"),
        *(root / "tools").glob("*.py"),
        *(root / "nbs").rglob("*.ipynb"),
    ]
    others = {path: set(re.findall(r"\w+", path.read_text(encoding="utf-8"))) for path in paths}
    words = {name: set(re.findall(r"\w+", text)) for name, text in texts.items()}
    out = []
    for module, text in texts.items():
        home = root / re.search(r"File to edit: (?:\.\./)+(\S+\.ipynb)", text)[1]
        elsewhere = set().union(*(w for name, w in words.items() if name != module))
        elsewhere |= set().union(*(w for path, w in others.items() if path != home))
        listed = re.search(r"^__all__ = (\[.*?\])", text, re.M | re.S)
        exports = ast.literal_eval(listed[1]) if listed else []
        out += [f"{module}.{name}" for name in exports if name not in elsewhere]
    return out


def measured(root: Path = ROOT) -> dict:
    "Modules by name, all of them together, and cells by notebook."
    by_module = {name: counts(text) for name, text in modules(root).items()}
    total = {key: sum(n[key] for n in by_module.values()) for key in next(iter(by_module.values()))}
    return {
        "modules": {name: rates(n) for name, n in by_module.items()},
        "all": rates(total) | {"unnamed exports": len(unnamed_exports(root))},
        "cells": long_cells(root),
    }


def lowest(before: dict, now: dict) -> dict:
    "Numbers of what there is now, none above what it was; what is new starts from `LIMITS` or less."
    total = {name: min(before["all"][name], value) for name, value in now["all"].items()}
    out = {"all": total, "modules": {}, "cells": {}}
    for kind, limits in (("modules", LIMITS), ("cells", {"exported": 0, "lesson": 0})):
        for name, row in now[kind].items():
            old = before[kind].get(name, limits)
            out[kind][name] = {key: min(old[key], value) for key, value in row.items()}
    return out


def main(arguments: list[str]):
    now = measured()
    for name, row in (now["modules"] | {"all": now["all"]}).items():
        print(f"{name:28}", *(f"{key} {value}," for key, value in row.items()))
    cells = now["cells"].values()
    print(
        *(
            f"{kind} cells that are too long: {sum(n[kind] for n in cells)}."
            for kind in ("exported", "lesson")
        )
    )
    if "--write" in arguments:
        lowered = lowest(json.loads(RATCHET.read_text(encoding="utf-8")), now)
        RATCHET.write_text(json.dumps(lowered, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
