"""Which branches of templates a test has rendered."""

from __future__ import annotations

from dataclasses import dataclass, field

from jinja2 import Environment, nodes


@dataclass(frozen=True)
class Branches:
    """The branches that there are, and those that were taken."""

    known: set[str] = field(default_factory=set)
    taken: set[str] = field(default_factory=set)

    def watch(self, environment: Environment) -> None:
        """Note from now on what this environment compiles and renders."""
        environment.__class__ = _Marked
        environment.globals.update(branches=self.known, seen=lambda key: self.taken.add(key) or "")


class _Marked(Environment):
    """Notes which branches are taken: of each `if` both, of each `for` its body."""

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        tree = super()._parse(source, name, filename)
        choices = list(tree.find_all(nodes.If))
        first = {id(node) for node in choices} - {id(other) for node in choices for other in node.elif_}
        for node in [*choices, *tree.find_all(nodes.For)]:
            branches = [("with", node.body)] + [("without", node.else_)] * (id(node) in first)
            for taken, branch in branches:
                key = f"{name}:{node.lineno} {type(node).__name__.lower()} {taken}"
                self.globals["branches"].add(key)
                call = nodes.Call(nodes.Name("seen", "load"), [nodes.Const(key)], [], None, None)
                branch.insert(0, nodes.Output([call]).set_lineno(node.lineno).set_environment(self))
        return tree
