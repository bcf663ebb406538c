"""Rules of the house that no type checker knows: who may write, and through what.

A controller changes an object only through `LazyCopy`: what the cache hands out is shared, and a
patch that no LazyCopy computed has no lock. The listener's one patch of the number of replicas is
the exception, by name.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2] / "arc_controller"
ROOMS = ("controllers", "listener")

# Who may call client.patch itself: (file, function). Replicas and patchID are the listener's own
# fields, their order is the service's, and a lock would lose the newest wish to an old write.
EXEMPT = {("listener/scaler.py", "_write_target")}

MUTATORS = frozenset(
    {"add", "append", "clear", "discard", "extend", "insert", "pop", "popitem", "remove"}
    | {"reverse", "setdefault", "sort", "update"}
)
READS = frozenset({"get", "find", "list"})
PATCHES = frozenset({"patch", "patch_status"})


def violations(source: str, exempt: frozenset[str] = frozenset()) -> list[str]:
    """What a module does that it must not, one line each."""
    linter = _Linter(exempt)
    linter.visit(ast.parse(source))
    return linter.found


class _Linter(ast.NodeVisitor):
    """Follows, name by name, what is shared with the cache: `.obj`, and what reads return."""

    def __init__(self, exempt: frozenset[str]) -> None:
        self.found: list[str] = []
        self._exempt = exempt
        self._function = ""
        self._shared: set[str] = set()

    def _visit_function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        outer, shared = self._function, set(self._shared)
        self._function = node.name
        arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
        self._shared -= {argument.arg for argument in arguments}
        self.generic_visit(node)
        self._function, self._shared = outer, shared

    visit_FunctionDef = _visit_function  # noqa: N815
    visit_AsyncFunctionDef = _visit_function  # noqa: N815

    def visit_Assign(self, node: ast.Assign) -> None:
        self.visit(node.value)
        for target in node.targets:
            self._assign(target, self._is_shared(node.value))

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)
            self._assign(node.target, self._is_shared(node.value))

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self.visit(node.value)
        if isinstance(node.target, ast.Name):
            if node.target.id in self._shared:  # a list is extended in place
                self._report(node, "changes")
        else:
            self._assign(node.target, False)

    def visit_NamedExpr(self, node: ast.NamedExpr) -> None:
        self.visit(node.value)
        self._assign(node.target, self._is_shared(node.value))

    def visit_For(self, node: ast.For | ast.AsyncFor) -> None:
        self.visit(node.iter)
        self._assign(node.target, self._is_shared(node.iter))
        for statement in [*node.body, *node.orelse]:
            self.visit(statement)

    visit_AsyncFor = visit_For  # noqa: N815

    def visit_comprehension(self, node: ast.comprehension) -> None:
        self._assign(node.target, self._is_shared(node.iter))
        self.generic_visit(node)

    def visit_Delete(self, node: ast.Delete) -> None:
        for target in node.targets:
            if not isinstance(target, ast.Name):
                self._assign(target, False)

    def visit_Call(self, node: ast.Call) -> None:
        self.generic_visit(node)
        function = node.func
        match function:
            case ast.Name(id="setattr" | "delattr") if self._is_shared(node.args[0]):
                self._report(node, "changes")
            case ast.Attribute(attr=attr, value=value):
                if attr in MUTATORS and self._is_shared(value):
                    self._report(node, "changes")
                if (
                    attr in PATCHES
                    and not _is_of_a_lazy_copy(node)
                    and self._function not in self._exempt
                ):
                    self._report(node, "patches without LazyCopy")

    def _assign(self, target: ast.expr, is_shared: bool) -> None:
        match target:
            case ast.Name(id=name):
                (self._shared.add if is_shared else self._shared.discard)(name)
            case ast.Tuple(elts=parts) | ast.List(elts=parts):
                for part in parts:
                    self._assign(part, is_shared)
            case ast.Starred(value=value):
                self._assign(value, is_shared)
            case ast.Attribute(value=value) | ast.Subscript(value=value):
                if self._is_shared(value):
                    self._report(target, "changes")

    def _is_shared(self, node: ast.expr) -> bool:
        match node:
            case ast.Name(id=name):
                return name in self._shared
            case ast.Attribute(attr="obj"):
                return True
            case ast.Attribute(value=value) | ast.Subscript(value=value) | ast.Await(value=value):
                return self._is_shared(value)
            case ast.NamedExpr(value=value) | ast.Starred(value=value):
                return self._is_shared(value)
            case ast.IfExp(body=body, orelse=orelse):
                return self._is_shared(body) or self._is_shared(orelse)
            case ast.BoolOp(values=values):
                return any(map(self._is_shared, values))
            case ast.ListComp(elt=element) | ast.GeneratorExp(elt=element):
                return self._is_shared(element)
            case ast.Call(func=ast.Attribute(attr=attr, value=value)) if attr in READS:
                # client.get(Kind, …) reads; a_dict.get("key") reads what the dict holds
                return _is_a_kind(node.args[0]) if node.args else self._is_shared(value)
            case ast.Call(func=ast.Attribute(attr="values" | "items", value=value)):
                return self._is_shared(value)
            case ast.Call(func=ast.Name(id="sorted" | "list" | "next" | "iter"), args=[first, *_]):
                return self._is_shared(first)
            case _:
                return False

    def _report(self, node: ast.AST, what: str) -> None:
        self.found.append(f"{self._function}: {what}: {ast.unparse(node)}")


def _is_a_kind(node: ast.expr) -> bool:
    name = node.id if isinstance(node, ast.Name) else getattr(node, "attr", "")
    return name[:1].isupper() or name == "kind"


def _is_of_a_lazy_copy(node: ast.Call) -> bool:
    """``lazy.patch(client, lock=…)``; ``client.patch(kind, key, patch)`` has three arguments."""
    return len(node.args) == 1 and {keyword.arg for keyword in node.keywords} <= {"lock"}


def modules() -> Iterator[Path]:
    for room in ROOMS:
        yield from sorted((ROOT / room).rglob("*.py"))


@pytest.mark.parametrize("path", list(modules()), ids=lambda path: str(path.relative_to(ROOT)))
def test_controllers_and_listener_write_only_through_lazy_copies(path: Path) -> None:
    name = str(path.relative_to(ROOT))
    exempt = frozenset(function for file, function in EXEMPT if file == name)
    assert violations(path.read_text(), exempt) == []


def test_every_exemption_is_used() -> None:
    for file, function in EXEMPT:
        found = violations((ROOT / file).read_text())
        assert [line for line in found if line.startswith(f"{function}: patches")]


@pytest.mark.parametrize(
    "code",
    [
        "lazy.obj.status.phase = 'Failed'",
        "lazy.obj.metadata.labels['a'] = 'b'",
        "lazy.obj.spec.replicas += 1",
        "del lazy.obj.metadata.labels['a']",
        "lazy.obj.metadata.finalizers.append('f')",
        "setattr(lazy.obj, 'spec', spec)",
        "status = lazy.obj.status\nstatus.phase = 'Failed'",
        "labels = lazy.obj.metadata.labels\nlabels |= {'a': 'b'}",
        "pod = await client.get(Pod, key)\npod.status.phase = 'Failed'",
        "if (pod := await client.find(Pod, key)):\n    pod.metadata.labels.clear()",
        "for pod in await client.list(Pod):\n    pod.metadata.labels.update(a='b')",
        "a, b = [pod for pod in await client.list(core.Pod)]\na.status = None",
        "pods = sorted(cache.list(Pod), key=age)\npods[0].status = None",
        "await client.patch(Pod, key, {'spec': {}})",
        "await self._client.patch_status(Pod, key, patch=changes)",
    ],
)
def test_the_rule_catches(code: str) -> None:
    assert len(violations(code)) == 1


@pytest.mark.parametrize(
    "code",
    [
        "lazy.mutate().status.phase = 'Failed'",
        "status = lazy.mutate().status\nstatus.phase = 'Failed'",
        "lazy = LazyCopy(await client.get(Pod, key))\nawait lazy.patch(client, lock=False)",
        "await lazy.patch_status(self._client)",
        "labels = dict(lazy.obj.metadata.labels)\nlabels['a'] = 'b'",
        "labels = {**lazy.obj.metadata.labels}\nlabels['a'] = 'b'",
        "found = counts.get('a')\nfound.append(1)",
        "pod = Pod()\npod.status.phase = 'Pending'\nawait client.create(pod)",
        "pod = await client.get(Pod, key)\npod = copy(pod)\npod.status = None",
        "self._seen[lazy.obj.key] = lazy.obj.metadata.resource_version",
        "names.add(lazy.obj.metadata.name)",
    ],
)
def test_the_rule_lets_through(code: str) -> None:
    assert violations(code) == []
