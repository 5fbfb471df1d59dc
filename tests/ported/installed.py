"""Texts of the installed PySpark, its docstrings and its examples, run statement by statement over rows of ours."""

from __future__ import annotations

import ast
import doctest
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyspark
from pyspark.sql.streaming import StatefulProcessor

EXAMPLES = Path(pyspark.__file__).parent / "examples" / "src" / "main" / "python" / "sql" / "streaming"


class Text:
    """A text whose statements are found by what they say.

    Args:
        name: What errors call it.
        source: Its Python.
    """

    def __init__(self, name: str, source: str) -> None:
        self.name = name
        nodes = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.stmt)]
        self._imports = [node for node in nodes if isinstance(node, ast.Import | ast.ImportFrom)]
        self._statements = sorted((node for node in nodes if node not in self._imports), key=lambda node: node.lineno)

    def run(self, *parts: str, **given: Any) -> Any:
        """Run the imports and some statements, and return what the last one makes.

        Args:
            *parts: For each of these statements, in order, words that only it has: of a statement with a body, in its
                first line.
            **given: What the text calls by these names: our rows, in place of those that it makes.

        Returns:
            The value that is assigned, the function or class that is defined, or the value of an expression; of one
            that is shown, what is shown.

        Raises:
            LookupError: No statement says so in this version of PySpark, or several do.
        """
        scope, made = {"__name__": self.name, **given}, ""
        for statement in [*self._imports, *map(self._saying, parts)]:
            made, code = made_by(statement)
            # dont_inherit: this file's __future__ is not the text's.
            exec(compile(code, self.name, "exec", dont_inherit=True), scope)  # noqa: S102 - PySpark's own text
        return scope[made]

    def _saying(self, part: str) -> ast.stmt:
        found = [statement for statement in self._statements if part in said(statement)]
        if len(found) != 1:
            message = f"{self.name}: {len(found)} statements of PySpark {pyspark.__version__} say {part!r}, not one"
            raise LookupError(message)
        return found[0]


def example(name: str) -> Text:
    """A file of the examples that PySpark brings."""
    file = EXAMPLES / f"{name}.py"
    return Text(str(file.relative_to(Path(pyspark.__file__).parent)), file.read_text(encoding="utf-8"))


def docstring(documented: Any) -> Text:
    """The examples in a docstring of PySpark's."""
    name = getattr(documented, "__qualname__", None) or documented.fget.__qualname__
    examples = doctest.DocTestParser().get_examples(documented.__doc__ or "")
    return Text(f"docstring of {name}", "".join(each.source for each in examples))


def processor(method: Callable[..., Any], key: Callable[[Any], Any] = lambda key: key) -> type[StatefulProcessor]:
    """The processor in a docstring of PySpark's, which forgets an argument that Spark passes.

    Args:
        method: Has the docstring.
        key: What the docstring takes for the key, given the key.
    """
    text = docstring(method)
    shown: Any = text.run("class SimpleStatefulProcessor", state_schema=text.run("state_schema ="))

    class Completed(shown):  # type: ignore[misc] # known when it runs
        def handleInputRows(self, keys: Any, rows: Any, timerValues: Any) -> Any:
            return shown.handleInputRows(self, key(keys), rows)

    return Completed


class Loading:
    """A reader that loads rows of ours, whatever source it is told to read.

    Args:
        rows: A DataFrame or a stream.
    """

    def __init__(self, rows: Any) -> None:
        self._rows = rows

    def format(self, _: str) -> Loading:
        return self

    def option(self, *_: Any) -> Loading:
        return self

    def load(self) -> Any:
        return self._rows


def session(rows: Any) -> Any:
    """The object that a text calls ``spark``, if the line that changes when it is ported is within another one."""
    return SimpleNamespace(readStream=Loading(rows))


def said(statement: ast.stmt) -> str:
    """The statement without its comments and line breaks; the first line of one with a body."""
    text = ast.unparse(statement)
    return text.partition("\n")[0] if hasattr(statement, "body") else text


def made_by(statement: ast.stmt) -> tuple[str, ast.Module]:
    """The name under which a statement leaves what it makes, and its code."""
    match statement:
        case ast.Expr(value):
            while isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr == "show":
                value = value.func.value
            name, statement = "_", ast.Assign([ast.Name("_", ast.Store())], value)
        case ast.Assign(targets=[ast.Name(id=name)]) | ast.FunctionDef(name=name) | ast.ClassDef(name=name):
            pass
        case _:
            name = ""
    return name, ast.fix_missing_locations(ast.Module([statement], []))
