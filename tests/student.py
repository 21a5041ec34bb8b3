"""A student: the solutions of the chapters, typed into the cells of a notebook."""

import ast
import inspect
import linecache
import re
from pathlib import Path
from typing import Any

import pytest
from places import ROOT

jupytext = pytest.importorskip("jupytext", reason="the chapters need the extra `notebooks`")

ALIAS = re.compile(r"^(?P<own>My\w+|my_\w+) = (?P<ours>[A-Za-z]\w+)$", re.MULTILINE)


class Notebook:
    """Cells that run one after the other, with their sources known, as in Jupyter."""

    def __init__(self) -> None:
        self.names: dict[str, Any] = {"__name__": "__main__"}
        self.count = 0

    def run(self, source: str) -> None:
        self.count += 1
        name = f"<cell {self.count} of notebook {id(self)}>"
        linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
        exec(compile(source, name, "exec"), self.names)  # noqa: S102 - a cell


class WithoutTypes(ast.NodeTransformer):
    """Removes annotations, which a student doesn't type."""

    def visit_arg(self, node: ast.arg) -> ast.arg:
        node.annotation = None
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.returns = None
        return self.generic_visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        assert node.value is not None
        return ast.Assign([node.target], node.value, lineno=node.lineno)


def cells_of(chapter: str) -> list[Any]:
    """The cells of code of a chapter."""
    (path,) = (ROOT / "chapters").glob(f"{chapter}_*.md")
    return [cell for cell in jupytext.read(path).cells if cell.cell_type == "code"]


def answer_of(chapter: str, notebook: Notebook) -> str:
    """The solutions of a chapter, typed: a class of the package that they refer to is copied."""
    (path,) = (ROOT / "chapters" / "solutions").glob(f"{chapter}_*.py")
    text = path.read_text(encoding="utf-8")
    for alias in ALIAS.finditer(text):
        notebook.run(text[: alias.start()])
        file = Path(inspect.getfile(notebook.names[alias["ours"]]))
        module = WithoutTypes().visit(ast.parse(file.read_text(encoding="utf-8")))
        others = (ast.ClassDef, ast.FunctionDef)
        module.body = [n for n in module.body if not isinstance(n, others) or n.name == alias["ours"]]
        copy = re.sub(rf"\b{alias['ours']}\b(?! import)", alias["own"], ast.unparse(module))
        text = text.replace(alias[0], copy)
    return text
