#!/usr/bin/env python3
"""Takes the charts of reports out as SVG files that stand alone.

    anabranch reproduce --all --out out/full
    python3 docs/figures/extract.py out/full

Each chart of a report is inline SVG, styled by the page. A file gets the rules for
light screens and a white ground, so that it looks the same wherever it is shown.
"""

import pathlib
import re
import sys

# file: experiment, charts of its report by number (side by side if several)
FIGURES = {
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
    "table-7.2": ("raiber-table-7.2", [0, 1]),
    "table-7.7": ("raiber-table-7.7", [0, 1]),
}


def rules(page: str) -> str:
    """The page's rules for charts, without those for dark screens."""
    style = "".join(re.findall(r"<style>(.*?)</style>", page, re.S))
    style = re.sub(r"@media[^{]*\{(?:[^{}]*\{[^{}]*\})*[^{}]*\}", "", style)
    kept = re.findall(r"\.chart[^{}]*\{[^{}]*\}", style)
    return "".join(rule for rule in kept if "width:100%" not in rule)


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
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" width="{width:g}" height="{height:g}">\n'
        f"<style>{style}</style>\n"
        f'<rect width="{width:g}" height="{height:g}" fill="#ffffff"/>\n' + "\n".join(parts) + "\n</svg>\n"
    )


def main() -> None:
    results = pathlib.Path(sys.argv[1])
    here = pathlib.Path(__file__).parent
    for name, (experiment, numbers) in FIGURES.items():
        report = results / experiment / "report.html"
        if not report.exists():
            print(f"{name}: no {report}", file=sys.stderr)
            continue
        page = report.read_text(encoding="utf-8")
        charts = charts_of(page)
        text = stand_alone([charts[number] for number in numbers], rules(page))
        (here / f"{name}.svg").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
