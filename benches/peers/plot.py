#!/usr/bin/env python3
"""Draws what compare.py measured: tokens a second over depth, and over threads, as SVG.

    python compare.py --models FOLDER --depths 0 2048 8192 --json runs.jsonl
    python plot.py runs.jsonl ../../docs/pictures

One picture a model and figure (prompt, generation): `MODEL-prompt.svg`, `MODEL-generation.svg`, with a line for each engine and number of
threads. Of llama.cpp the best setting of each point counts, of several rounds the median.
"""
import json
import statistics
import sys
from collections import defaultdict
from html import escape
from pathlib import Path

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 640, 360, 64, 150, 40, 48
COLOURS = {"backstitch": "#0b6e4f", "llama.cpp": "#b5651d"}
FIGURES = {"prompt": "prompt_tps", "generation": "gen_tps"}


def points(rows, key):
    """For each engine and number of threads: depth to tokens a second."""
    found = defaultdict(list)
    for row in rows:
        setting = row.get("flash", "")
        found[row["engine"], row["threads"], row["depth"], setting].append(row[key])
    best = defaultdict(dict)
    for (engine, threads, depth, _), values in found.items():
        line = best[engine, threads]
        line[depth] = max(line.get(depth, 0.0), statistics.median(values))
    return best


def ceiling(value):
    """The next round number: 1, 2 or 5 times a power of ten."""
    power = 10 ** (len(str(int(value))) - 1)
    return next(step * power for step in (1, 2, 5, 10) if step * power >= value)


def text(x, y, words, **attributes):
    extra = "".join(f' {name.replace("_", "-")}="{value}"' for name, value in attributes.items())
    return f'<text x="{x:.1f}" y="{y:.1f}"{extra}>{escape(words)}</text>'


def picture(title, lines):
    depths = sorted({depth for line in lines.values() for depth in line})
    top = ceiling(max(value for line in lines.values() for value in line.values()))
    # Depths stand side by side: 0, 2048 and 8192 would crowd on one scale.
    step = (WIDTH - LEFT - RIGHT) / max(len(depths) - 1, 1)
    x = {depth: LEFT + i * step for i, depth in enumerate(depths)}

    def y(value):
        return HEIGHT - BOTTOM - value / top * (HEIGHT - TOP - BOTTOM)

    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>',
        text(LEFT, 22, title, font_size=15, font_weight="bold"),
        text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 10, "tokens in the cache before", text_anchor="middle"),
    ]
    for i in range(5):
        value = top * i / 4
        out.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(value):.1f}" y2="{y(value):.1f}" stroke="#ddd"/>')
        out.append(text(LEFT - 8, y(value) + 4, f"{value:g}", text_anchor="end"))
    out += [text(x[depth], HEIGHT - BOTTOM + 18, f"{depth:,}", text_anchor="middle") for depth in depths]
    labels = []
    for (engine, threads), line in sorted(lines.items()):
        colour, dash = COLOURS.get(engine, "#555"), ' stroke-dasharray="5 4"' if threads == 1 else ""
        path = " ".join(f"{x[depth]:.1f},{y(value):.1f}" for depth, value in sorted(line.items()))
        out.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"{dash}/>')
        out += [f'<circle cx="{x[depth]:.1f}" cy="{y(value):.1f}" r="3" fill="{colour}"/>' for depth, value in line.items()]
        labels.append((y(line[max(line)]), f"{engine}, {threads} thread{'s' if threads > 1 else ''}", colour))
    at = 0.0
    for place, words, colour in sorted(labels):
        at = max(place + 4, at + 15)
        out.append(text(WIDTH - RIGHT + 8, at, words, fill=colour))
    return "\n".join(out + ["</svg>\n"])


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    rows = [json.loads(line) for line in Path(sys.argv[1]).read_text().splitlines() if line]
    folder = Path(sys.argv[2])
    folder.mkdir(parents=True, exist_ok=True)
    for model in sorted({Path(row["model"]).stem for row in rows}):
        own = [row for row in rows if Path(row["model"]).stem == model and row.get("seqs", 1) == 1]
        for figure, key in FIGURES.items():
            path = folder / f"{model}-{figure}.svg"
            path.write_text(picture(f"{model}: {figure}, tokens a second", points(own, key)))
            print(path)


if __name__ == "__main__":
    main()
