"""What callers give by name: taken where it is what it must be, and otherwise refused by its name."""

from __future__ import annotations

import operator
import os
from collections.abc import Iterable, Mapping, Set
from numbers import Real
from typing import Any, TypeVar

import numpy as np

AnyPath = TypeVar("AnyPath", bound="str | os.PathLike[str]")


def integer(name: str, value: Any, least: int, most: int, otherwise: str = "") -> int:
    """A whole number, NumPy's too; True and False are none. ``otherwise`` says what else would be taken."""
    try:
        if isinstance(value, (bool, np.bool_)):
            raise TypeError
        found = operator.index(value)
    except TypeError:
        kind = type(value).__name__
        raise TypeError(f"{name} is of type {kind}, must be an int from {least} to {most}{otherwise}") from None
    if not least <= found <= most:
        raise ValueError(f"{name} is {found}, must be from {least} to {most}{otherwise}")
    return found


def number(name: str, value: Any) -> float:
    """A number, NumPy's too; True and False are none."""
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, Real):
        raise TypeError(f"{name} is of type {type(value).__name__}, must be a number")
    try:
        return float(value)
    except OverflowError:
        raise ValueError(f"{name} is larger than any float, must be a number") from None


def flag(name: str, value: Any) -> bool:
    """True or False."""
    if not isinstance(value, (bool, np.bool_)):
        raise TypeError(f"{name} is of type {type(value).__name__}, must be True or False")
    return bool(value)


def text(name: str, value: Any) -> str:
    """A text."""
    if not isinstance(value, str):
        raise TypeError(f"{name} is of type {type(value).__name__}, must be a text")
    return value


def names(name: str, value: Iterable[str]) -> list[str]:
    """Texts in an order: a set has another in each process."""
    if isinstance(value, str):
        raise TypeError(f'{name} is the text "{value}", must be a list of names')
    if isinstance(value, (Set, Mapping)) or not isinstance(value, Iterable):
        raise TypeError(f"{name} is of type {type(value).__name__}, must be a list of names")
    return [text(f"{name}[{place}]", one) for place, one in enumerate(value)]


def weights(name: str, value: Mapping[str, float]) -> dict[str, float]:
    """A number for each of some names."""
    if not isinstance(value, Mapping):
        raise TypeError(f"{name} is of type {type(value).__name__}, must be a dict")
    return {text(f"a key of {name}", key): number(f'{name}["{key}"]', one) for key, one in value.items()}


def folder(name: str, value: AnyPath | None) -> AnyPath | None:
    """Where a folder is, or is to be; an empty path would be the present one."""
    if value is None:
        return None
    if not isinstance(value, (str, os.PathLike)):
        raise TypeError(f"{name} is of type {type(value).__name__}, must be the path of a folder")
    if not os.fspath(value):
        raise ValueError(f"{name} is empty, must be the path of a folder")
    return value
