#!/usr/bin/env python3
"""Takes the charts of reports out as SVG files that stand alone.

    anabranch reproduce --all --out out/full
    python3 docs/figures/extract.py out/full

Each chart of a report is inline SVG, styled by the page. A file gets the rules for charts,
for light and dark screens, and a ground of its own, so that it can be read on any page.
"""

import pathlib
import re
import sys

# file: experiment, charts of its report by number or by the beginning of their captions (side by side if several)
FIGURES = {
    "learners": ("anabranch-learners", ["20 peers, windows", "20 peers, limits swapped, windows"]),
    "coordinator": ("c3-cross-learned", [0]),
    "c3-scenario-1": ("c3-scenario-1", [0, 2, 3]),
    "c3-scenario-2": ("c3-scenario-2", [0, 2, 3]),
    "c3-scenario-3": ("c3-scenario-3", [0, 2, 3]),
    "c3-fairness": ("c3-fairness", [0]),
    "c3-subdomains": ("c3-subdomains", [0]),
    "c3-delayed": ("c3-delayed", [0]),
    "table-7.4": ("raiber-table-7.4", [0, 1]),
    "table-7.4-over-time": ("raiber-table-7.4", [2]),
    "table-7.1-gain": ("raiber-table-7.1", [0, 1, 2]),
    "table-7.1-deviations": ("raiber-table-7.1", [3, 4, 5]),
    "rate-q-learning": ("raiber-table-7.5", [0]),
    "rate-aimd": ("raiber-table-7.5", [1]),
    "rate-aimd-literal": ("raiber-table-7.5", [2]),
    "fig-7.4": ("raiber-fig-7.4", [0]),
    "fig-7.5": ("raiber-fig-7.5", [0]),
    "fig-7.6": ("raiber-fig-7.6", [0]),
    "fig-7.7": ("raiber-fig-7.7", [0]),
    "fig-7.8": ("raiber-fig-7.8", [0]),
    "fig-7.9": ("raiber-fig-7.9", [0]),
    "fig-7.10": ("raiber-fig-7.10", [0]),
    "fig-7.11": ("raiber-fig-7.11", [0]),
    "table-7.2": ("raiber-table-7.2", [0, 1]),
    "table-7.7": ("raiber-table-7.7", [0, 1]),
}


def chart_rules(style: str) -> str:
    kept = re.findall(r"\.chart[^{}]*\{[^{}]*\}", style)
    # Widths are about the page.
    return "".join(rule for rule in kept if "width:100%" not in rule and "min-width" not in rule)


def rules(page: str) -> str:
    """The page's rules for charts, and for charts on dark screens."""
    style = "".join(re.findall(r"<style>(.*?)</style>", page, re.S))
    medium = r"(@media[^{]*)\{((?:[^{}]*\{[^{}]*\})*)[^{}]*\}"
    dark = [(at, chart_rules(inner)) for at, inner in re.findall(medium, style) if "dark" in at]
    of_dark = "".join(f"{at}{{{inner}}}" for at, inner in dark if inner)
    return chart_rules(re.sub(medium, "", style)) + of_dark


def charts_of(page: str) -> list[str]:
    """The outermost <svg> elements; a chart may clip its plot with one inside."""
    charts, depth, start = [], 0, 0
    for tag in re.finditer(r"<svg\b|</svg>", page):
        if tag.group() == "</svg>":
            depth -= 1
            if depth == 0:
                charts.append(page[start : tag.end()])
        else:
            start = tag.start() if depth == 0 else start
            depth += 1
    return charts


def size(chart: str) -> tuple[float, float]:
    _, _, width, height = re.search(r'viewBox="([^"]+)"', chart).group(1).split()
    return float(width), float(height)


def find(charts: list[str], which: int | str) -> str:
    if isinstance(which, int):
        return charts[which]
    return next(chart for chart in charts if re.search(r'aria-label="([^"]*)"', chart).group(1).startswith(which))


def stand_alone(charts: list[str], style: str) -> str:
    gap, margin = 24.0, 8.0
    sizes = [size(chart) for chart in charts]
    width = sum(w for w, _ in sizes) + gap * (len(charts) - 1) + 2 * margin
    height = max(h for _, h in sizes) + 2 * margin
    parts, x = [], margin
    for chart, (w, _) in zip(charts, sizes):
        parts.append(chart.replace("<svg ", f'<svg x="{x:g}" y="{margin:g}" ', 1))
        x += w + gap
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="chart" viewBox="0 0 {width:g} {height:g}" width="{width:g}" height="{height:g}">\n'
        f"<style>{style}</style>\n"
        f'<rect class="paper" width="{width:g}" height="{height:g}"/>\n' + "\n".join(parts) + "\n</svg>\n"
    )


def main() -> None:
    results = pathlib.Path(sys.argv[1])
    here = pathlib.Path(__file__).parent
    for name, (experiment, chosen) in FIGURES.items():
        report = results / experiment / "report.html"
        if not report.exists():
            print(f"{name}: no {report}", file=sys.stderr)
            continue
        page = report.read_text(encoding="utf-8")
        charts = charts_of(page)
        text = stand_alone([find(charts, which) for which in chosen], rules(page))
        (here / f"{name}.svg").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
