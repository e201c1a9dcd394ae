"""``python -m anabranch.sweep``: what ``anabranch sweep --ray`` executes."""

import sys

import anabranch
from anabranch._sweep_command import main

if __name__ == "__main__":
    sys.exit(main())

# `import anabranch.sweep` must not put this module in the place of the function.
sys.modules[__name__] = anabranch.sweep  # type: ignore[assignment]
