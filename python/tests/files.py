"""What a run has left behind."""


def contents(folder):
    """The bytes of all files below a folder."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}
