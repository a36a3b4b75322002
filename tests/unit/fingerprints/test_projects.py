"""Small projects, generated and edited: an edit that may change the result is noticed, and no other edit is."""

# ruff: noqa: E501 - features are one line of source each, as far as they can be

from __future__ import annotations

import importlib
import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trek.fingerprints import fingerprint_code

pytest.importorskip("polars")  # here, since it sets an environment variable when it is first imported


@dataclass(frozen=True)
class Feature:
    """One way for code to depend on a value: `{v}` is the value, `{i}` makes names distinct."""

    text: str
    call: str
    files: dict[str, str] = field(default_factory=dict)


FEATURES = {
    "constant": Feature("K{i} = {v}", "K{i}"),
    "constant in a dict": Feature("K{i} = {{'a': [1, {v}]}}", "K{i}['a'][1]"),
    "order of a dict": Feature("K{i} = dict([(n, 0) for n in ('a', {v}, 'b')][:: 1 if {v} % 2 else -1])", "list(K{i})"),
    "set": Feature("K{i} = {{'a', 'b', {v}}}", "sorted(map(str, K{i}))"),
    "function": Feature("def f{i}():\n    return {v}", "f{i}()"),
    "function of a function": Feature("def g{i}():\n    return {v}\ndef f{i}():\n    return g{i}()", "f{i}()"),
    "default": Feature("def f{i}(x={v}):\n    return x", "f{i}()"),
    "keyword default": Feature("def f{i}(*, x={v}):\n    return x", "f{i}()"),
    "closure": Feature("def m{i}(n):\n    def f():\n        return n\n    return f\nf{i} = m{i}({v})", "f{i}()"),
    "lambda": Feature("f{i} = lambda: {v}", "f{i}()"),
    "lambdas in a list": Feature("F{i} = [lambda: 0, lambda: {v}]", "F{i}[1]()"),
    "dict of functions": Feature("F{i} = {{'a': lambda: {v}}}", "F{i}['a']()"),
    "attribute of a function": Feature("def f{i}():\n    return f{i}.scale\nf{i}.scale = {v}", "f{i}()"),
    "generator": Feature("def f{i}():\n    yield {v}", "list(f{i}())"),
    "inner function": Feature("def f{i}():\n    def g():\n        return {v}\n    return g()", "f{i}()"),
    "inner class": Feature("def f{i}():\n    class A:\n        k = {v}\n    return A.k", "f{i}()"),
    "partial": Feature("import functools\nf{i} = functools.partial(lambda x: x, {v})", "f{i}()"),
    "nested partial": Feature("import functools\nf{i} = functools.partial(functools.partial(max, 0), {v})", "f{i}()"),
    "own decorator": Feature(
        "import functools\ndef d{i}(f):\n    @functools.wraps(f)\n    def w(*a):\n        return f(*a) + {v}\n    return w\n"
        "@d{i}\ndef f{i}():\n    return 1",
        "f{i}()",
    ),
    "decorator with an argument": Feature(
        "import functools\ndef d{i}(k):\n    def e(f):\n        @functools.wraps(f)\n        def w(*a):\n"
        "            return f(*a) + k\n        return w\n    return e\n@d{i}({v})\ndef f{i}():\n    return 1",
        "f{i}()",
    ),
    "decorator that is a class": Feature(
        "class D{i}:\n    def __init__(self, f):\n        self.f = f\n    def __call__(self):\n        return self.f() + {v}\n"
        "@D{i}\ndef f{i}():\n    return 1",
        "f{i}()",
    ),
    "contextmanager": Feature(
        "import contextlib\n@contextlib.contextmanager\ndef c{i}():\n    yield {v}\n"
        "def f{i}():\n    with c{i}() as x:\n        return x",
        "f{i}()",
    ),
    "singledispatch": Feature(
        "import functools\n@functools.singledispatch\ndef f{i}(x):\n    return 0\n@f{i}.register\ndef _(x: int):\n    return {v}",
        "f{i}(1)",
    ),
    "lru_cache": Feature("import functools\n@functools.lru_cache\ndef f{i}():\n    return {v}", "f{i}()"),
    "torch.no_grad": Feature("import torch\n@torch.no_grad()\ndef f{i}():\n    return {v}", "f{i}()"),
    "class attribute": Feature("class A{i}:\n    k = {v}", "A{i}.k"),
    "method": Feature("class A{i}:\n    def m(self):\n        return {v}", "A{i}().m()"),
    "method of a base": Feature("class B{i}:\n    def m(self):\n        return {v}\nclass A{i}(B{i}):\n    pass", "A{i}().m()"),
    "super": Feature(
        "class B{i}:\n    def m(self):\n        return {v}\nclass A{i}(B{i}):\n    def m(self):\n        return super().m()",
        "A{i}().m()",
    ),
    "classmethod": Feature("class A{i}:\n    @classmethod\n    def m(cls):\n        return {v}", "A{i}.m()"),
    "staticmethod": Feature("class A{i}:\n    @staticmethod\n    def m():\n        return {v}", "A{i}.m()"),
    "property": Feature("class A{i}:\n    @property\n    def m(self):\n        return {v}", "A{i}().m"),
    "setter": Feature(
        "class A{i}:\n    x = 0\n    @property\n    def m(self):\n        return self.x\n    @m.setter\n    def m(self, value):\n"
        "        self.x = value * {v}\ndef f{i}():\n    a = A{i}()\n    a.m = 3\n    return a.m",
        "f{i}()",
    ),
    "cached_property": Feature(
        "import functools\nclass A{i}:\n    @functools.cached_property\n    def m(self):\n        return {v}", "A{i}().m"
    ),
    "lru_cache of a method": Feature(
        "import functools\nclass A{i}:\n    @functools.lru_cache\n    def m(self):\n        return {v}", "A{i}().m()"
    ),
    "partialmethod": Feature(
        "import functools\nclass A{i}:\n    def n(self, k):\n        return k\n    m = functools.partialmethod(n, {v})", "A{i}().m()"
    ),
    "singledispatchmethod": Feature(
        "import functools\nclass A{i}:\n    @functools.singledispatchmethod\n    def m(self, x):\n        return 0\n"
        "    @m.register\n    def _(self, x: int):\n        return {v}",
        "A{i}().m(1)",
    ),
    "descriptor": Feature(
        "class D{i}:\n    def __get__(self, owner, kind):\n        return {v}\nclass A{i}:\n    m = D{i}()", "A{i}().m"
    ),
    "state of a descriptor": Feature(
        "class D{i}:\n    def __init__(self, k):\n        self.k = k\n    def __get__(self, owner, kind):\n        return self.k\n"
        "class A{i}:\n    m = D{i}({v})",
        "A{i}().m",
    ),
    "metaclass": Feature(
        "class M{i}(type):\n    def m(cls):\n        return {v}\nclass A{i}(metaclass=M{i}):\n    pass", "A{i}.m()"
    ),
    "__init_subclass__": Feature(
        "class B{i}:\n    def __init_subclass__(cls, k):\n        cls.k = k\nclass A{i}(B{i}, k={v}):\n    pass", "A{i}.k"
    ),
    "abstract class": Feature(
        "import abc\nclass B{i}(abc.ABC):\n    @abc.abstractmethod\n    def m(self): ...\n    def n(self):\n        return {v}\n"
        "class A{i}(B{i}):\n    def m(self):\n        return self.n()",
        "A{i}().m()",
    ),
    "object": Feature("class A{i}:\n    def __init__(self, k):\n        self.k = k\na{i} = A{i}({v})", "a{i}.k"),
    "object with slots": Feature(
        "class A{i}:\n    __slots__ = ('k',)\n    def __init__(self, k):\n        self.k = k\na{i} = A{i}({v})", "a{i}.k"
    ),
    "object with __getstate__": Feature(
        "import threading\nclass A{i}:\n    def __init__(self, k):\n        self.k, self.lock = k, threading.Lock()\n"
        "    def __getstate__(self):\n        return {{'k': self.k}}\na{i} = A{i}({v})",
        "a{i}.k",
    ),
    "callable object": Feature("class A{i}:\n    k = {v}\n    def __call__(self):\n        return self.k\na{i} = A{i}()", "a{i}()"),
    "bound method": Feature(
        "class A{i}:\n    def __init__(self, k):\n        self.k = k\n    def m(self):\n        return self.k\nf{i} = A{i}({v}).m",
        "f{i}()",
    ),
    "attribute called path": Feature(
        "class A{i}:\n    path = 'same'\n    def __init__(self, k):\n        self.k = k\na{i} = A{i}({v})", "a{i}.k"
    ),
    "list with more": Feature("class L{i}(list):\n    k = 0\na{i} = L{i}()\na{i}.k = {v}", "a{i}.k"),
    "members of a list's kind": Feature("class L{i}(list):\n    pass\na{i} = L{i}([{v}])", "a{i}[0]"),
    "dataclass default": Feature("import dataclasses\n@dataclasses.dataclass\nclass A{i}:\n    x: int = {v}", "A{i}().x"),
    "dataclass factory": Feature(
        "import dataclasses\n@dataclasses.dataclass\nclass A{i}:\n    x: list = dataclasses.field(default_factory=lambda: [{v}])",
        "A{i}().x",
    ),
    "frozen dataclass with slots": Feature(
        "import dataclasses\n@dataclasses.dataclass(frozen=True, slots=True)\nclass A{i}:\n    x: int\na{i} = A{i}({v})", "a{i}.x"
    ),
    "pydantic default": Feature("import pydantic\nclass A{i}(pydantic.BaseModel):\n    x: int = {v}", "A{i}().x"),
    "pydantic object": Feature("import pydantic\nclass A{i}(pydantic.BaseModel):\n    x: int\na{i} = A{i}(x={v})", "a{i}.x"),
    "named tuple": Feature("import typing\nclass A{i}(typing.NamedTuple):\n    x: int = {v}", "A{i}().x"),
    "namedtuple": Feature("import collections\nA{i} = collections.namedtuple('A{i}', 'x', defaults=({v},))", "A{i}().x"),
    "enumeration": Feature("import enum\nclass E{i}(enum.Enum):\n    A = {v}\n    B = -1", "E{i}.A.value"),
    "member of an enumeration": Feature("import enum\nclass E{i}(enum.IntFlag):\n    A = 1\n    B = 2\na{i} = E{i}({v})", "int(a{i})"),
    "method of an enumeration": Feature("import enum\nclass E{i}(enum.Enum):\n    A = 1\n    def m(self):\n        return {v}", "E{i}.A.m()"),
    "namespace": Feature("import types\nK{i} = types.SimpleNamespace(a=types.SimpleNamespace(b={v}))", "K{i}.a.b"),
    "deque": Feature("import collections\nK{i} = collections.deque([1, {v}], maxlen=5)", "list(K{i})"),
    "defaultdict": Feature("import collections\nK{i} = collections.defaultdict(lambda: {v})", "K{i}.get(0) or K{i}.default_factory()"),
    "Counter": Feature("import collections\nK{i} = collections.Counter(a={v})", "K{i}['a']"),
    "bytearray": Feature("K{i} = bytearray(str({v}), 'ascii')", "K{i}.decode()"),
    "array": Feature("import array\nK{i} = array.array('q', [{v}])", "K{i}[0]"),
    "long regular expression": Feature("import re\nK{i} = re.compile('(?:' + 'a' * 300 + '|' + str({v}) + ')')", "K{i}.pattern"),
    "flags of a regular expression": Feature("import re\nK{i} = re.compile('a', [0, re.I, re.M, re.S][{v} % 4])", "K{i}.flags, {v} // 4"),
    "datetime": Feature("import datetime\nK{i} = datetime.datetime(2020, 1, 1) + datetime.timedelta({v})", "str(K{i})"),
    "Decimal": Feature("import decimal\nK{i} = decimal.Decimal('0.1') + {v}", "str(K{i})"),
    "random.Random": Feature("import random\nK{i} = random.Random({v})", "K{i}.getstate()"),
    "BytesIO": Feature("import io\nK{i} = io.BytesIO(str({v}).encode())", "K{i}.getvalue()"),
    "itemgetter": Feature("import operator\nK{i} = operator.itemgetter({v})", "K{i}(range(10**6))"),
    "zoneinfo": Feature("import datetime\nK{i} = datetime.timezone(datetime.timedelta(minutes={v} % 1000))", "str(K{i}), {v} // 1000"),
    "comprehension": Feature("def f{i}():\n    return [x * {v} for x in range(1, 3)]", "f{i}()"),
    "try": Feature("def f{i}():\n    try:\n        return 1 / 0\n    except ZeroDivisionError:\n        return {v}", "f{i}()"),
    "text": Feature("def f{i}():\n    return f'a{{1}}' + '{v}'", "f{i}()"),
    "helper module": Feature(
        "import h{i}", "h{i}.scale()", {"h{i}.py": "def scale():\n    return {v}\ndef other():\n    return 1\n"}
    ),
    "constant of a helper": Feature("import h{i} as helper{i}", "helper{i}.K", {"h{i}.py": "K = {v}\n"}),
    "name from a helper": Feature("from h{i} import scale as s{i}", "s{i}()", {"h{i}.py": "def scale():\n    return {v}\n"}),
    "helper of a helper": Feature(
        "import h{i}",
        "h{i}.scale()",
        {"h{i}.py": "import d{i}\ndef scale():\n    return d{i}.K\n", "d{i}.py": "K = {v}\n"},
    ),
    "class of a helper": Feature(
        "from h{i} import A as A{i}", "A{i}().m()", {"h{i}.py": "class A:\n    k = {v}\n    def m(self):\n        return self.k\n"}
    ),
    "module of a package": Feature("import p{i}.sub", "p{i}.sub.K", {"p{i}/__init__.py": "", "p{i}/sub.py": "K = {v}\n"}),
    "deep module": Feature(
        "import p{i}.q.sub",
        "p{i}.q.sub.f()",
        {"p{i}/__init__.py": "", "p{i}/q/__init__.py": "", "p{i}/q/sub.py": "def f():\n    return {v}\n"},
    ),
    "namespace package": Feature("import n{i}.sub", "n{i}.sub.K", {"n{i}/sub.py": "K = {v}\n"}),
    "name through a package": Feature(
        "from p{i} import f as f{i}",
        "f{i}()",
        {"p{i}/__init__.py": "from p{i}.sub import f\n", "p{i}/sub.py": "def f():\n    return {v}\n"},
    ),
    "relative import": Feature(
        "from p{i} import sub as s{i}",
        "s{i}.f()",
        {"p{i}/__init__.py": "", "p{i}/sub.py": "from . import k\ndef f():\n    return k.K\n", "p{i}/k.py": "K = {v}\n"},
    ),
    "import inside": Feature("def f{i}():\n    import h{i}\n    return h{i}.K", "f{i}()", {"h{i}.py": "K = {v}\n"}),
    "import from inside": Feature(
        "def f{i}():\n    from p{i}.sub import K\n    return K", "f{i}()", {"p{i}/__init__.py": "", "p{i}/sub.py": "K = {v}\n"}
    ),
    "package's own code, imported inside": Feature(
        "def f{i}():\n    import p{i}.sub\n    return p{i}.K", "f{i}()", {"p{i}/__init__.py": "K = {v}\n", "p{i}/sub.py": ""}
    ),
    "import_module": Feature(
        "import importlib\ndef f{i}():\n    return importlib.import_module('h{i}').K", "f{i}()", {"h{i}.py": "K = {v}\n"}
    ),
    "getattr of a module": Feature("import h{i}", "getattr(h{i}, 'K')", {"h{i}.py": "K = {v}\n"}),
    "module under another name": Feature("import h{i}\ndef f{i}():\n    m = h{i}\n    return m.K", "f{i}()", {"h{i}.py": "K = {v}\n"}),
    "module in an object": Feature("import h{i}\nK{i} = [h{i}]", "K{i}[0].K", {"h{i}.py": "K = {v}\n"}),
    "eval": Feature("K{i} = {v}\ndef f{i}():\n    return eval('K{i}')", "f{i}()"),
    "globals": Feature("K{i} = {v}\ndef f{i}():\n    return globals()['K' + '{i}']", "f{i}()"),
    "module named as a library's": Feature(
        "import sys, pathlib, importlib.util\nspec{i} = importlib.util.spec_from_file_location("
        "'statistics', pathlib.Path(__file__).with_name('statistics_{i}.py'))\n"
        "s{i} = importlib.util.module_from_spec(spec{i})\nspec{i}.loader.exec_module(s{i})\nf{i} = s{i}.mean",
        "f{i}()",
        {"statistics_{i}.py": "def mean():\n    return {v}\n"},
    ),
    "numpy array": Feature("import numpy as np\nK{i} = np.arange(5000)\nK{i}[2500] = {v}", "K{i}[2500]"),
    "sign of many numbers": Feature(
        "import numpy as np\nK{i} = np.ones(1 << 17) * (1 if {v} % 2 else -1)\nL{i} = {v}", "K{i}[0], L{i}"
    ),
    "numpy number": Feature("import numpy as np\nK{i} = np.float32({v})", "K{i}"),
    "numpy generator": Feature("import numpy as np\nK{i} = np.random.default_rng({v})", "str(K{i}.bit_generator.state)"),
    "bound method of a generator": Feature("import numpy as np\nf{i} = np.random.default_rng({v}).normal", "str(f{i}.__self__.bit_generator.state)"),
    "vectorize": Feature("import numpy as np\nf{i} = np.vectorize(lambda x: x + {v})", "f{i}([1]).tolist()"),
    "masked array": Feature("import numpy as np\nK{i} = np.ma.array([1, {v}], mask=[False, True])", "K{i}.data.tolist()"),
    "tensor": Feature("import torch\nK{i} = torch.full((3,), {v}, dtype=torch.bfloat16)", "K{i}.tolist(), {v}"),
    "model": Feature("import torch\nK{i} = torch.nn.Linear(1, 1)\nwith torch.no_grad():\n    K{i}.weight.fill_({v}); K{i}.bias.fill_(0)", "K{i}.weight.item()"),
    "hook of a model": Feature("import torch\nK{i} = torch.nn.Identity()\nK{i}.register_forward_hook(lambda m, a, o: o * {v})", "K{i}(torch.ones(1)).item()"),
    "pandas frame": Feature("import pandas as pd\nK{i} = pd.DataFrame({{'a': ['x'], 'b': [{v}]}})", "K{i}['b'][0]"),
    "pandas index": Feature("import pandas as pd\nK{i} = pd.Series([1], index=['i' + str({v})])", "K{i}.index[0]"),
    "pandas category": Feature("import pandas as pd\nK{i} = pd.Categorical(['a'], categories=['a', str({v})])", "list(K{i}.categories)"),
    "arrow": Feature("import pyarrow as pa\nK{i} = pa.table({{'a': [None, str({v})]}})", "K{i}.to_pylist()"),
    "polars": Feature("import polars as pl\nK{i} = pl.DataFrame({{'a': [str({v})]}})", "K{i}.rows()"),
}  # fmt: skip


class Project:
    """Features in one module called `flow_under_test`, with a function `step` that uses them all."""

    def __init__(self, names: list[str], values: list[int], *, is_noisy: bool = False) -> None:
        self.chosen = [
            (FEATURES[name], index, value) for index, (name, value) in enumerate(zip(names, values, strict=True))
        ]
        self.is_noisy = is_noisy

    def files(self) -> dict[str, str]:
        found = {"flow_under_test.py": self._main()}
        for feature, index, value in self.chosen:
            for name, text in feature.files.items():
                filled = _fill(text, index, value)
                found[name.replace("{i}", str(index))] = _make_noisy(filled) if self.is_noisy else filled
        return found

    def _main(self) -> str:
        blocks = [_fill(feature.text, index, value) for feature, index, value in self.chosen]
        calls = ", ".join(_fill(feature.call, index, value) for feature, index, value in self.chosen)
        step = f"def step():\n    return [{calls}]"
        if not self.is_noisy:
            return "\n".join([*blocks, step])
        unused = "UNUSED = 5\ndef unused():\n    return UNUSED\nclass Unused:\n    k = 1"
        return "\n\n\n".join([_make_noisy(block) for block in [*reversed(blocks), unused, step]])


def _fill(text: str, index: int, value: int) -> str:
    return text.replace("{i}", str(index)).replace("{v}", str(value)).replace("{{", "{").replace("}}", "}")


def _make_noisy(text: str) -> str:
    """The same code with comments, blank lines and docstrings."""
    lines = []
    for line in text.splitlines():
        lines.append(line)
        indent = len(line) - len(line.lstrip())
        if line.lstrip().startswith(("def ", "class ")) and line.endswith(":"):
            lines += [" " * (indent + 4) + '"""What it does."""', " " * (indent + 4) + "# a remark"]
        elif indent == 0 and not line.startswith("@"):
            lines += ["", "# another remark"]
    return "\n".join(lines)


@contextmanager
def loaded(project: Project, folder: Path) -> Iterator[Any]:
    """The project's main module, imported anew."""
    files = project.files()
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    before = set(sys.modules)
    sys.path.insert(0, str(folder))
    importlib.invalidate_caches()
    try:
        yield importlib.import_module("flow_under_test")
    finally:
        sys.path.remove(str(folder))
        for name in set(sys.modules) - before:
            if str(folder) in str(
                getattr(sys.modules[name], "__file__", None) or getattr(sys.modules[name], "__path__", "")
            ):
                del sys.modules[name]


@pytest.fixture(scope="module", autouse=True)
def no_bytecode() -> Iterator[None]:
    """Files are written again within a second, which Python's own cache of compiled files does not notice."""
    before, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    yield
    sys.dont_write_bytecode = before


def look(project: Project, folder: Path) -> tuple[dict[str, str], Any]:
    """Parts and result; parts are the same after the function has run, whatever it keeps for next time."""
    with loaded(project, folder) as module:
        found = fingerprint_code(module.step)
        assert not found.unknown
        result = repr(module.step())
        assert dict(fingerprint_code(module.step).parts) == dict(found.parts)
        return dict(found.parts), result


@pytest.mark.parametrize("name", FEATURES)
def test_a_changed_value_is_noticed_however_code_depends_on_it(name: str, tmp_path: Path) -> None:
    """Results of edited helpers, bases, decorators, library objects and more were served from the cache as if fresh."""
    before, first = look(Project([name], [3]), tmp_path)
    after, second = look(Project([name], [4]), tmp_path)
    assert first != second, "the edit must change the result"
    assert before != after


PRECISE = sorted(FEATURES.keys() - {"eval", "globals"})
"""Without code that looks up names by itself, which counts with its whole file."""


@pytest.mark.parametrize("name", PRECISE)
def test_remarks_and_moves_are_not_noticed(name: str, tmp_path: Path) -> None:
    before, _ = look(Project([name], [3]), tmp_path)
    assert look(Project([name], [3], is_noisy=True), tmp_path)[0] == before


_some = st.lists(st.sampled_from(PRECISE), min_size=2, max_size=8)


@settings(max_examples=40, deadline=None)
@given(names=_some, data=st.data())
def test_one_edit_among_many_dependencies_is_noticed(
    names: list[str], data: st.DataObject, tmp_path_factory: Any
) -> None:
    """Two lambdas or closures in one step had the same name, so that an edit of one was missed."""
    values = data.draw(st.lists(st.integers(1, 50), min_size=len(names), max_size=len(names)))
    index = data.draw(st.integers(0, len(names) - 1))
    changed = [*values]
    changed[index] += data.draw(st.integers(1, 3))
    folder = tmp_path_factory.mktemp("project")
    before, first = look(Project(names, values), folder)
    assert look(Project(names, values, is_noisy=True), folder)[0] == before
    after, second = look(Project(names, changed), folder)
    assert (before != after) or first == second


def test_two_processes_agree_whatever_their_hash_seeds(tmp_path: Path) -> None:
    """The order of sets and of whatever else depends on hashes must not count."""
    names = sorted(FEATURES)
    project = Project(names, list(range(1, len(names) + 1)))
    with loaded(project, tmp_path):
        program = (
            "import flow_under_test, trek.fingerprints as f, json; "
            "print(json.dumps(dict(f.fingerprint_code(flow_under_test.step).parts)))"
        )
        found = [_run(program, folder=tmp_path, seed=seed) for seed in ("1", "2")]
    assert found[0] == found[1]


def _run(program: str, *, folder: Path, seed: str) -> str:
    path = os.pathsep.join([str(folder), *sys.path])
    environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": path}
    command = [sys.executable, "-c", textwrap.dedent(program)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout
