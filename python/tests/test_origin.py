"""A trained policy's file says by which commit it came to be."""

import re
import shutil
import subprocess

import pytest

pytest.importorskip("jax")

from anabranch.train._origin import commit

GIT = ["git", "-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"]


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not here")
def test_the_commit_is_that_of_the_repository_that_keeps_the_module(tmp_path):
    def git(*words):
        subprocess.run([*GIT, *words], cwd=tmp_path, check=True, capture_output=True)

    (tmp_path / "__init__.py").write_text("")
    assert commit(tmp_path) is None, "there is no repository"
    git("init")
    git("commit", "--allow-empty", "-m", "one")
    assert commit(tmp_path) is None, "the repository keeps something else"
    git("add", "__init__.py")
    git("commit", "-m", "two")
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=tmp_path, check=True, capture_output=True, text=True).stdout.strip()
    assert commit(tmp_path) == head and re.fullmatch("[0-9a-f]{40}", head)
    (tmp_path / "__init__.py").write_text("changed = True")
    assert commit(tmp_path) == f"{head}-dirty"
