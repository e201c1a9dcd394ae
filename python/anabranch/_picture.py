"""An episode so far as a picture. Needs matplotlib."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

SIZE_INCHES = (8.0, 6.0)
DOTS_PER_INCH = 80
# More hosts than these have no room beside the picture for their names.
MOST_NAMED = 12


def picture(
    times: Sequence[float],
    actions: npt.NDArray[np.float32],
    axis: str,
    most: float,
    terms: npt.NDArray[np.float32],
    names: Sequence[str],
) -> npt.NDArray[np.uint8]:
    """``(480, 640, 3)``: what was directed, ``(steps, hosts)``, up to ``most``, above the reward's terms,
    ``(steps, terms)``."""
    return drawn(figure(times, actions, axis, most, terms, names))


def figure(
    times: Sequence[float],
    actions: npt.NDArray[np.float32],
    axis: str,
    most: float,
    terms: npt.NDArray[np.float32],
    names: Sequence[str],
) -> Figure:
    """What :func:`picture` draws."""
    made = Figure(SIZE_INCHES, dpi=DOTS_PER_INCH, layout="constrained")
    above, below = made.subplots(2, 1, sharex=True)
    for host in range(actions.shape[1]):
        above.step(times, actions[:, host], where="pre", label=f"host {host}")
    for place, name in enumerate(names):
        below.plot(times, terms[:, place], label=name)
    # A line at the most is to be seen.
    above.set(ylabel=axis, ylim=(0.0, 1.04 * most))
    below.set(xlabel="s", ylabel="terms of the reward")
    for axes in (above, below):
        if axes is below or actions.shape[1] <= MOST_NAMED:
            axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)
        axes.grid(alpha=0.3)
    return made


def drawn(figure: Figure) -> npt.NDArray[np.uint8]:
    """Its pixels."""
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    return np.array(canvas.buffer_rgba())[:, :, :3].copy()
