"""Circles of files: which files of a crate need each other, by their `use` lines and the qualified paths in their code
(`crate::x::y`, `super::x::y`), their tests left out.

A module and the files below it are one thing here: the one names the other in any case. `make lint` runs it.
"""

import doctest
import os
import re
import sys
from pathlib import Path

# How often in a row a name may be one that another module only names anew.
DEEPEST = 8


def paths_of(tree: str) -> list[str]:
    """The paths of a `use` with braces."""
    tree = tree.strip()
    found = re.match(r"^((?:\w+::)*)\{(.*)\}$", tree, re.S)
    if not found:
        return [re.sub(r"\s+as\s+\w+$", "", tree)]
    parts, depth, part = [], 0, ""
    for letter in found[2] + ",":
        depth += (letter == "{") - (letter == "}")
        if letter == "," and depth == 0:
            parts.append(part)
            part = ""
        else:
            part += letter
    return [found[1] + path for part in parts if part.strip() for path in paths_of(part)]


def modules_of(source: Path) -> dict[tuple[str, ...], Path]:
    """The files of a crate by the names of their modules, without those for tests alone."""
    modules, tests = {}, set()
    for file in sorted(source.rglob("*.rs")):
        name = file.relative_to(source).with_suffix("").parts
        name = name[:-1] if name[-1] in ("mod", "lib", "main") else name
        modules[name] = file
        declared = re.findall(r"#\[cfg\((?:test|.*\btest\b.*)\)\]\s*(?:pub(?:\([^)]*\))? )?mod (\w+);", file.read_text())
        tests.update((*name, test) for test in declared)
    is_for_tests = lambda name: any(name[:end] in tests for end in range(len(name) + 1))
    return {name: file for name, file in modules.items() if not is_for_tests(name)}


def code_of(text: str) -> str:
    r"""A file's code without its tests, comments and strings.

    >>> code_of('a("crate::b"); // crate::c\n#[cfg(test)]\nuse crate::d;\nlet e = \'"\';')
    'a(""); \n\nlet e = "";'
    """
    text = re.split(r"#\[cfg\(test\)\]\s*mod \w+ \{", text)[0]
    text = re.sub(
        r'//[^\n]*|/\*.*?\*/|b?r(#*)".*?"\1|b?"(?:[^"\\]|\\.)*"|b?\'(?:[^\'\\]|\\.[^\']*)\'',
        lambda found: "" if found[0].startswith("/") else '""',
        text,
        flags=re.S,
    )
    # What is there for tests alone: a line, or what follows up to its end.
    return re.sub(r"#\[cfg\(test\)\]\s*(?:use\s+[^;]+;|let\s+[^;]+;)", "", text)


def qualified_in(code: str) -> set[str]:
    """The paths in code that begin with `crate` or `super`, `use` lines left out.

    >>> sorted(qualified_in("use crate::a;\\nlet b = crate::c::D + super::super::e(); f::crate_g::h();"))
    ['crate::c::D', 'super::super::e']
    """
    code = re.sub(r"^\s*(?:pub(?:\([^)]*\))?\s+)?use\s+[^;]+;", "", code, flags=re.M)
    return set(re.findall(r"(?<![\w:])(?:crate|(?:self::)?super(?:::super)*)(?:::\w+)+", code))


def used_in(code: str) -> list[str]:
    r"""The paths of the `use` lines in code.

    >>> used_in("pub use a::{B, c::D as E};\nuse crate::f;")
    ['a::B', 'a::c::D', 'crate::f']
    """
    trees = re.findall(r"^\s*(?:pub(?:\([^)]*\))?\s+)?use\s+([^;]+);", code, re.M)
    return [path for tree in trees for path in paths_of(tree)]


class Crate:
    """The files of a crate, and where the paths in them lead."""

    def __init__(self, source: Path):
        self.modules = modules_of(source)
        self.code = {name: code_of(file.read_text()) for name, file in self.modules.items()}
        self.used = {name: used_in(code) for name, code in self.code.items()}

    def module_of(self, name: tuple[str, ...], path: str, depth: int = 0) -> tuple[str, ...] | None:
        """The module that a path in `name` leads to: what a module only names anew (`pub use`) is where it comes from."""
        parts = path.split("::")
        if parts[0] == "crate":
            at, parts = (), parts[1:]
        elif parts[0] in ("self", "super"):
            ups = sum(part == "super" for part in parts)
            at, parts = name[: len(name) - ups], [part for part in parts if part not in ("self", "super")]
        elif (*name, parts[0]) in self.modules:
            at = name
        else:
            return None
        end = next((end for end in range(len(parts), -1, -1) if (*at, *parts[:end]) in self.modules), None)
        if end is None:
            return name
        module, rest = (*at, *parts[:end]), parts[end:]
        if rest and depth < DEEPEST:
            for used in self.used[module]:
                if used.split("::")[-1] == rest[0]:
                    return self.module_of(module, used, depth + 1) or module
        return module

    def needs_of(self, name: tuple[str, ...]) -> set[tuple[str, ...]]:
        """The modules that a file's `use` lines and qualified paths lead to."""
        paths = [*self.used[name], *sorted(qualified_in(self.code[name]))]
        needs = {module for path in paths if (module := self.module_of(name, path)) is not None}
        is_kin = lambda other: other[: len(name)] == name or name[: len(other)] == other
        return {other for other in needs if not is_kin(other)}


def circles(edges: dict) -> list[set]:
    """The largest sets of more than one member that all lead to each other."""

    def reached(start):
        seen, open_ = set(), [start]
        while open_:
            for other in edges.get(open_.pop(), ()):
                if other not in seen:
                    seen.add(other)
                    open_.append(other)
        return seen

    from_each = {name: reached(name) for name in edges}
    found = []
    for name, others in from_each.items():
        circle = {name} | {other for other in others if name in from_each.get(other, ())}
        if len(circle) > 1 and circle not in found:
            found.append(circle)
    return found


def main() -> int:
    if doctest.testmod().failed:
        return 1
    number = files = 0
    for source in sorted(Path(__file__).parent.parent.glob("crates/*/src")):
        crate = Crate(source)
        files += len(crate.modules)
        for circle in circles({name: crate.needs_of(name) for name in crate.modules}):
            number += 1
            print(f"{source.parent.name}: these files need each other:", file=sys.stderr)
            for name in sorted(circle):
                print(f"  {os.path.relpath(crate.modules[name])}", file=sys.stderr)
    if number == 0:
        print(f"{files} files, and no circle of them")
    return 1 if number or not files else 0


if __name__ == "__main__":
    sys.exit(main())
