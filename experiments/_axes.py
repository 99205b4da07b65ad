"""What the experiments' figures share beside `pyrdma.figures`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

__all__ = ["from_zero", "hollow", "joint_legend", "write_values"]


def from_zero(*panels: Any) -> None:
    """Start the y axis at zero, with room above all that has been drawn so far."""
    for ax in panels:
        ax.set_ylim(0, 1.06 * ax.get_ylim()[1])


def write_values(ax: Any, form: str = "{:.2f}") -> None:
    """Write each bar's height into its middle, clear of the paper's markers at its end."""
    for container in ax.containers:
        if not hasattr(container, "patches"):
            continue
        ax.bar_label(
            container,
            labels=[form.format(patch.get_height()) for patch in container.patches],
            label_type="center",
            fontsize=8,
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 1.2, "alpha": 0.9},
        )


def hollow(ax: Any, x: float, y: float, label: str, marker: str = "o") -> None:
    """Draw a number that follows from the paper's, marked as `pyrdma.figures.overlay` does."""
    style: Mapping[str, Any] = {"color": "black", "markerfacecolor": "none", "zorder": 5}
    ax.plot(
        [x], [y], marker, markersize=9, markeredgewidth=1.3, linestyle="none", label=label, **style
    )


def joint_legend(panels: Iterable[Any], ax: Any, **options: Any) -> None:
    """Put one legend into `ax` with every label of `panels`, each once."""
    found: dict[str, Any] = {}
    for panel in panels:
        for handle, label in zip(*panel.get_legend_handles_labels(), strict=True):
            found.setdefault(label, handle)
    ax.legend(list(found.values()), list(found), **options)
