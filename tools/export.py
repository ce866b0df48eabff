"""Write xlnb/ from the notebooks, docments copied into docstrings, and help(xlnb): python tools/export.py [checkout]

`help`, `?` and editors show docstrings, not comments. Nothing but docstrings differs from what nbdev_export writes.
"""
import ast, inspect, io, re, subprocess, sys, textwrap, tokenize
from pathlib import Path

WIDTH = 100 # columns of a docstring line
SECTION = re.compile(r"(?:^|\n\n)(?:Args|Fields|Returns|Note):\n.*", re.DOTALL) # what this program wrote
TRANSPARENT = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT}
FUNCTION = (ast.FunctionDef, ast.AsyncFunctionDef)


class Source:
    "The lines of a module, its comments by line, and where its tokens of code end."
    def __init__(self, text: str):
        self.lines = text.splitlines(keepends=True)
        tokens = list(tokenize.generate_tokens(io.StringIO(text).readline))
        self.comments = {t.start[0]: t.string.lstrip("# ").rstrip() for t in tokens if t.type == tokenize.COMMENT}
        self.code = [t for t in tokens if t.type not in TRANSPARENT]
        self.with_code = {line for t in self.code for line in range(t.start[0], t.end[0] + 1)}

    def signature_end(self, node) -> int:
        "Line of the colon that ends the signature of a function."
        depth = 0
        for token in self.code:
            if token.start < (node.lineno, node.col_offset): continue
            depth += (token.string in ("(", "[", "{")) - (token.string in (")", "]", "}"))
            if token.string == ":" and not depth: return token.start[0]

    def comment(self, first: int, last: int) -> str:
        "Comments from a line on, with those below it that stand alone and before the last line."
        parts = [self.comments.get(first, "")]
        for line in range(first + 1, last + 1):
            if line in self.with_code or line not in self.comments: break
            parts.append(self.comments[line])
        return " ".join(filter(None, parts))


def parameters(node) -> list:
    "(node of the parameter, its name with stars, default or None), without self and cls."
    a = node.args
    plain = [*a.posonlyargs, *a.args]
    defaults = [None] * (len(plain) - len(a.defaults)) + a.defaults
    found = [(arg, arg.arg, default) for arg, default in zip(plain, defaults) if arg.arg not in ("self", "cls")]
    if a.vararg: found.append((a.vararg, f"*{a.vararg.arg}", None))
    found += [(arg, arg.arg, default) for arg, default in zip(a.kwonlyargs, a.kw_defaults)]
    if a.kwarg: found.append((a.kwarg, f"**{a.kwarg.arg}", None))
    return found


def described(name: str, annotation, default) -> str:
    "E.g. `alpha (float, default 0.7)`."
    facts = [ast.unparse(annotation)] if annotation else []
    if default is not None: facts.append(f"default {ast.unparse(default)}")
    return f"{name} ({', '.join(facts)})" if facts else name


def section(title: str, entries: list) -> str: # (what, comment)
    wrap = lambda what, comment: textwrap.fill(f"{what}: {comment}" if what and comment else what or comment, WIDTH - 4,
                                               initial_indent="    ", subsequent_indent="        ",
                                               break_long_words=False, break_on_hyphens=False)
    return "\n".join([f"{title}:", *(wrap(*entry) for entry in entries)])


def of_function(node, source: Source) -> list[str]:
    "Sections of a function: parameters that share a line share its comment; none if nothing has a comment."
    last, found = source.signature_end(node), parameters(node)
    ended = source.comments.get(last, "") if node.body[0].lineno > last else ""
    rows = {} # last line of a parameter with its default → its text and that of its neighbours
    for arg, name, default in found:
        rows.setdefault((default or arg).end_lineno, []).append(described(name, arg.annotation, default))
    def comment_of(line): return source.comment(line, last - 1) if line < last else ""
    entries = [(", ".join(texts), comment_of(line)) for line, texts in rows.items()]
    note = returned = ""
    if last in rows and not node.returns and (last > node.lineno or len(found) == 1):
        entries[-1] = (entries[-1][0], ended)
    elif last in rows and last == node.lineno: note = ended # parameters and result in one line: it may mean either
    else: returned = ended
    sections = [section("Args", entries)] if any(comment for _, comment in entries) else []
    if returned: sections.append(section("Returns", [(ast.unparse(node.returns) if node.returns else "", returned)]))
    if note: sections.append(section("Note", [("", note)]))
    return sections


def of_fields(node, source: Source) -> list[str]:
    "The section of a class with annotated fields: a dataclass, a NamedTuple."
    fields = [n for n in node.body if isinstance(n, ast.AnnAssign) and public(n.target.id)
              and not ast.unparse(n.annotation).startswith("ClassVar")]
    rows = {}
    for field in fields:
        rows.setdefault(field.end_lineno, []).append(described(field.target.id, field.annotation, field.value))
    entries = [(", ".join(texts), source.comment(line, node.end_lineno)) for line, texts in rows.items()]
    return [section("Fields", entries)] if any(comment for _, comment in entries) else []


def public(name: str) -> bool: return not name.startswith("_") or name == "__call__"


def documented_nodes(tree, source: Source):
    "(class or function, its sections), in order: public ones, outside functions; `__init__` is its class's."
    for node in tree.body:
        if isinstance(node, FUNCTION) and public(node.name): yield node, of_function(node, source)
        if isinstance(node, ast.ClassDef) and public(node.name):
            made = [n for n in node.body if isinstance(n, FUNCTION) and n.name == "__init__"]
            yield node, [*of_fields(node, source), *(s for n in made for s in of_function(n, source))]
            yield from documented_nodes(node, source)


def literal(text: str, indent: str) -> str:
    "A docstring's source: raw where it has a backslash, closing quotes on a line of their own."
    body = "\n".join(indent + line if line else "" for line in text.split("\n")) + f"\n{indent}"
    body = f"\n{body}" if SECTION.match(text) else body.lstrip()
    plain = f'"""{body}"""'
    if "\\" not in body and '"""' not in body: return plain
    if '"""' not in body: return f"r{plain}"
    return '"""' + body.replace("\\", "\\\\").replace('"""', r'\"\"\"') + '"""'


def documented(text: str) -> str:
    "The module with sections in its docstrings; the same for a module that has them."
    source, tree = Source(text), ast.parse(text)
    changes = []
    for node, sections in documented_nodes(tree, source):
        first = node.body[0]
        if first.lineno == node.lineno or (isinstance(node, FUNCTION) and first.lineno == source.signature_end(node)):
            continue # the body stands in the line of the signature
        doc, indent = ast.get_docstring(node, clean=False), " " * first.col_offset
        head = SECTION.sub("", inspect.cleandoc(doc)) if doc else ""
        if not sections: continue
        whole = literal("\n\n".join(filter(None, [head, *sections])), indent)
        start = first.lineno if doc else start_of(first)
        changes.append((start, first.end_lineno if doc else start - 1, f"{indent}{whole}\n"))
    for start, end, new in reversed(changes): source.lines[start - 1:end] = [new]
    return "".join(source.lines)


def start_of(node) -> int: return min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", []))])


if __name__ == "__main__":
    root = Path(sys.argv[1] if len(sys.argv) > 1 else ".").resolve()
    subprocess.run([Path(sys.executable).parent / "nbdev_export"], cwd=root, stdin=subprocess.DEVNULL, check=True)
    for path in sorted((root / "xlnb").glob("*.py")):
        if path.name != "_modidx.py": path.write_text(documented(path.read_text("utf-8")), encoding="utf-8")
    subprocess.run([sys.executable, Path(__file__).with_name("package_doc.py"), root], check=True)
