"""How a policy came to be, as its file says."""

from __future__ import annotations

import json
import subprocess
from dataclasses import asdict
from pathlib import Path
from typing import Any

import anabranch
from anabranch.train._checkpoint import scenario_of

HERE = Path(anabranch.__file__).parent


def commit(folder: Path = HERE) -> str | None:
    """The commit of the repository in which this module is kept, with ``-dirty`` behind it where a file is otherwise there; None
    where it is installed without one."""

    def git(*words: str) -> str:
        return subprocess.run(["git", "-C", str(folder), *words], check=True, capture_output=True, text=True).stdout.strip()

    try:
        # An environment may lie in somebody's repository, which is not this one.
        git("ls-files", "--error-unmatch", "__init__.py")
        return git("describe", "--always", "--dirty", "--abbrev=40", "--exclude=*")
    except (OSError, subprocess.CalledProcessError):
        return None


def origin(by: str, seed: int, settings: Any) -> dict[str, Any]:
    """What makes a policy again: the learner, the version and, if known, the commit, the seed and all settings; of a
    scenario file what is in it, too, since the file may change."""
    known, scenario = commit(), scenario_of(settings)
    about = {"by": by, "version": anabranch.__version__, "seed": seed}
    about |= ({} if known is None else {"commit": known}) | asdict(settings)
    return about if scenario is None else about | {"scenario": json.loads(json.dumps(scenario, default=str))}
