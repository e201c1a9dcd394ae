"""Circles of files: which files of a crate need each other, by their `use` lines and the qualified paths in their code
(`crate::x::y`, `super::x::y`), their tests left out.

A module and the files below it are one thing here: the one names the other in any case. `make lint` runs it.
"""

import doctest
import os
import re
import sys
from pathlib import Path


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


def needs_of(name: tuple[str, ...], file: Path, modules: dict[tuple[str, ...], Path]) -> set[tuple[str, ...]]:
    """The modules that a file's `use` lines and qualified paths lead to."""
    code = code_of(file.read_text())
    used = re.findall(r"^\s*(?:pub(?:\([^)]*\))?\s+)?use\s+([^;]+);", code, re.M)
    needs = set()
    for tree in [*used, *sorted(qualified_in(code))]:
        for path in paths_of(tree):
            parts = path.split("::")
            if parts[0] == "crate":
                at, parts = (), parts[1:]
            elif parts[0] in ("self", "super"):
                ups = sum(part == "super" for part in parts)
                at, parts = name[: len(name) - ups], [part for part in parts if part not in ("self", "super")]
            elif (*name, parts[0]) in modules:
                at = name
            else:
                continue
            ends = ((*at, *parts[:end]) for end in range(len(parts), -1, -1))
            needs.update([next((end for end in ends if end in modules), name)])
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
        modules = modules_of(source)
        files += len(modules)
        for circle in circles({name: needs_of(name, file, modules) for name, file in modules.items()}):
            number += 1
            print(f"{source.parent.name}: these files need each other:", file=sys.stderr)
            for name in sorted(circle):
                print(f"  {os.path.relpath(modules[name])}", file=sys.stderr)
    if number == 0:
        print(f"{files} files, and no circle of them")
    return 1 if number or not files else 0


if __name__ == "__main__":
    sys.exit(main())
