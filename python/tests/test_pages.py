"""What the page and the docstrings show, and what the stubs promise."""

import ast
import doctest
import importlib.util
import pathlib
import re

import pytest

import ringdb

HERE = pathlib.Path(__file__).parent.parent
PAGES = [HERE / "README.md", *sorted((HERE / "../docs/guide/src").glob("*.md"))]
PROGRAMS = [
    pytest.param(program, id=f"{page.name}-{n}")
    for page in PAGES
    for n, program in enumerate(re.findall(r"```python\n(.*?)```", page.read_text(), re.S))
]


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_program_of_the_pages(program, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    exec(compile(program, "a page", "exec"), {})


def test_the_guide_has_programs():
    assert sum(p.id.startswith("python.md") for p in PROGRAMS) > 8


def test_docstrings():
    assert doctest.testmod(ringdb).failed == 0 and PROGRAMS


def test_the_comparison_with_other_packages(tmp_path, capsys):
    """With those that are here for sure; it checks what it reads."""
    spec = importlib.util.spec_from_file_location("compare", HERE / "benches" / "compare.py")
    compare = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(compare)
    compare.main([str(tmp_path / "stores"), "--pairs", "400", "--rounds", "2", "--stores", "ringdb,sqlite3"])
    rows = [line for line in capsys.readouterr().out.splitlines() if line.startswith("| ")]
    assert len(rows) == 7 and "ringdb | sqlite3" in rows[0]
    with pytest.raises(SystemExit):
        compare.main([str(tmp_path / "stores"), "--stores", "leveldb"])


def names(body):
    return {n.name for n in body if isinstance(n, (ast.FunctionDef, ast.ClassDef))}


def test_stubs_name_what_there_is():
    stubs = ast.parse((pathlib.Path(ringdb.__file__).parent / "__init__.pyi").read_text())
    classes = {c.name: c for c in stubs.body if isinstance(c, ast.ClassDef)}
    constants = {n.target.id for n in stubs.body if isinstance(n, ast.AnnAssign) and n.target.id.isupper()}
    assert set(ringdb.__all__) <= names(stubs.body) | constants
    for name in ("Db", "Keyspace", "Snapshot", "Batch", "Transaction", "Items", "PairStream", "TransactionItems"):
        wanted, bases = set(), [name]
        while bases:
            c = classes.get(bases.pop())
            if c is not None:
                wanted |= names(c.body)
                bases += [b.id for b in c.bases if isinstance(b, ast.Name)]
        there = {n for n in dir(getattr(ringdb, name)) if n in wanted or not n.startswith("_")}
        assert there == wanted, name
