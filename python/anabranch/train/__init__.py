"""Learners, each in a file of its own. They need ``pip install 'anabranch[train]'``."""
