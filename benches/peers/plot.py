#!/usr/bin/env python3
"""Draw the measurements of compare.py as SVG: tokens per second over depth, and over threads.

    python compare.py --models FOLDER --depths 0 512 2048 8192 --json runs.jsonl
    python plot.py runs.jsonl ../../docs/pictures

Each model gets three pictures: `MODEL-prompt-depth.svg` and `MODEL-generation-depth.svg` with a
line for each engine and number of threads, and `MODEL-threads.svg` with a line for each engine and
figure, in an empty cache. A point is the median of the rounds, with the best setting of the engine.
"""
import json
import statistics
import sys
from collections import defaultdict
from html import escape
from pathlib import Path

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 640, 360, 64, 170, 40, 48
COLOURS = {"backstitch": "#0b6e4f", "llama.cpp": "#b5651d", "ik_llama.cpp": "#6a4c93"}
FIGURES = {"prompt": "prompt_tps", "generation": "gen_tps"}


def best_points(rows, key):
    """Map (engine, threads, depth) to tokens per second."""
    found = defaultdict(lambda: defaultdict(list))
    for row in rows:
        setting = row.get("flash") or row.get("kernel_set"), row.get("repack")
        found[row["engine"], row["threads"], row["depth"]][setting].append(row[key])
    return {point: max(map(statistics.median, settings.values())) for point, settings in found.items()}


def over_depth(rows, key):
    """Return the lines over depth: (engine, words, dashed) to {depth: tokens per second}."""
    lines = defaultdict(dict)
    for (engine, threads, depth), value in best_points(rows, key).items():
        lines[engine, f"{threads} thread{'s' if threads > 1 else ''}", threads == 1][depth] = value
    return lines


def over_threads(rows):
    """Return the lines over threads, for prompt and generation."""
    lines = defaultdict(dict)
    for figure, key in FIGURES.items():
        for (engine, threads, depth), value in best_points(rows, key).items():
            if depth == 0:
                lines[engine, figure, figure == "generation"][threads] = value
    return lines


def ceiling(value):
    """Round up to 1, 2, 5 or 8 times a power of ten."""
    power = 10 ** (len(str(int(value))) - 1)
    return next(step * power for step in (1, 2, 5, 8, 10) if step * power >= value)


def text(x, y, words, **attributes):
    extra = "".join(f' {name.replace("_", "-")}="{value}"' for name, value in attributes.items())
    return f'<text x="{x:.1f}" y="{y:.1f}"{extra}>{escape(words)}</text>'


def picture(title, axis, lines):
    """Draw a picture. Places on the axis have equal distances, because 0, 2048 and 8192 would crowd
    on one scale."""
    places = sorted({place for line in lines.values() for place in line})
    top = ceiling(max(value for line in lines.values() for value in line.values()))
    step = (WIDTH - LEFT - RIGHT) / max(len(places) - 1, 1)
    x = {place: LEFT + i * step for i, place in enumerate(places)}

    def y(value):
        return HEIGHT - BOTTOM - value / top * (HEIGHT - TOP - BOTTOM)

    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>',
        text(LEFT, 22, title, font_size=15, font_weight="bold"),
        text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 10, axis, text_anchor="middle"),
    ]
    for i in range(5):
        value = top * i / 4
        out.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(value):.1f}" y2="{y(value):.1f}" stroke="#ddd"/>')
        out.append(text(LEFT - 8, y(value) + 4, f"{value:g}", text_anchor="end"))
    out += [text(x[place], HEIGHT - BOTTOM + 18, f"{place:,}", text_anchor="middle") for place in places]
    labels = []
    for (engine, words, dashed), line in sorted(lines.items()):
        colour, dash = COLOURS.get(engine, "#555"), ' stroke-dasharray="5 4"' if dashed else ""
        path = " ".join(f"{x[place]:.1f},{y(value):.1f}" for place, value in sorted(line.items()))
        out.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"{dash}/>')
        out += [f'<circle cx="{x[place]:.1f}" cy="{y(value):.1f}" r="3" fill="{colour}"/>' for place, value in sorted(line.items())]
        labels.append((y(line[max(line)]), f"{engine}, {words}", colour))
    at = 0.0
    for place, words, colour in sorted(labels):
        at = max(place + 4, at + 15)
        out.append(text(WIDTH - RIGHT + 8, at, words, fill=colour))
    return "\n".join(out + ["</svg>\n"])


def pictures(model, rows):
    for figure, key in FIGURES.items():
        lines = over_depth(rows, key)
        yield f"{model}-{figure}-depth.svg", picture(f"{model}: {figure}, tokens a second", "tokens in the cache before", lines)
    yield f"{model}-threads.svg", picture(f"{model}: tokens a second", "threads", over_threads(rows))


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    rows = [json.loads(line) for line in Path(sys.argv[1]).read_text().splitlines() if line]
    folder = Path(sys.argv[2])
    folder.mkdir(parents=True, exist_ok=True)
    for model in sorted({Path(row["model"]).stem for row in rows}):
        own = [row for row in rows if Path(row["model"]).stem == model and row.get("seqs", 1) == 1 and row.get("cache", "f16") == "f16"]
        for name, drawing in pictures(model, own):
            (folder / name).write_text(drawing)
            print(folder / name)


if __name__ == "__main__":
    main()
