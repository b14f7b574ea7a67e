"""Formats of figures and reports: blocks for Markdown, one HTML page or a part of the docs.

A block is ("head", text), ("text", text), ("list", texts), ("table", header, rows) or
("plot", name, caption). Cells are strings; text may hold `code`.
"""

import html as escape
import json
import os
import pathlib
import re
import shutil
import statistics
import textwrap

COLUMNS = 100  # of a line in docs/


# ---- figures ----

def format_short(value):
    """Formats a number as 4.70 M, 153 k, 0.0542: never with an exponent."""
    if value >= 1e6:
        return f"{value / 1e6:.2f} M"
    if value >= 1e4:
        return f"{value / 1e3:.0f} k"
    if value >= 999.5:
        return f"{value:,.0f}"
    return f"{value:.4f}" if 0 < value < 0.001 else f"{value:.3g}"


def as_time(us):
    return f"{us:.3g} us" if us < 999.5 else f"{us / 1000:.3g} ms"


def as_ratio(value):
    return f"{format_short(value)} x"


def spread(values, form=format_short):
    """The median, and the lowest and highest if there are several."""
    middle = form(statistics.median(values))
    if len(values) == 1:
        return middle
    return f"{middle} ({form(min(values))} - {form(max(values))})"


# ---- blocks as text ----

def table_lines(header, rows):
    """Returns a Markdown table with aligned columns."""
    widths = [max(map(len, column)) for column in zip(header, *rows)]
    lines = [" | ".join(map(str.ljust, row, widths)) for row in (header, *rows)]
    lines = [f"| {line} |" for line in lines]
    return [lines[0], "|" + "|".join("-" * (w + 2) for w in widths) + "|", *lines[1:]]


def markdown(blocks, images="", level=2):
    """images: the plots' folder, relative to the file."""
    write = {"head": lambda text: f"{'#' * level} {text}", "text": str,
             "list": lambda texts: "\n".join(f"- {text}" for text in texts),
             "plot": lambda name, caption: f"![{caption}]({images}{name}.svg)",
             "table": lambda header, rows: "\n".join(table_lines(header, rows))}
    return "\n\n".join(write[kind](*what) for kind, *what in blocks) + "\n"


STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 68rem; margin: 2rem auto; padding: 0 1rem;
       color: #1a1a1a; background: #fff; }
h1 { font-size: 1.7rem } h2 { margin-top: 2.2rem; font-size: 1.25rem }
.scroll { overflow-x: auto }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: .3rem .8rem; border-bottom: 1px solid #ddd; text-align: left;
         vertical-align: top }
th { border-bottom: 2px solid #888 }
figure { margin: 1.5rem 0 } figure svg { width: 100%; height: auto }
figcaption { color: #555; font-size: .9rem }
code { background: #f2f2f2; padding: 0 .2em }
"""


def tagged(tag, texts):
    """Returns HTML elements of one kind, with escaped text and `code`."""
    return "".join(f"<{tag}>" + re.sub(r"`([^`]+)`", r"<code>\1</code>",
                                       escape.escape(text, quote=False)) + f"</{tag}>"
                   for text in texts)


def format_html(title, blocks, folder):
    """One page with its plots, which are read from the folder, in it."""
    def figure(name, caption):
        path = pathlib.Path(folder, name + ".svg")
        if not path.exists():
            return ""
        # gnuplot gives every plot the same ids; one page holds several.
        svg = path.read_text("utf-8")
        svg = re.sub(r"\bid=(['\"])", rf"id=\1{name}-", svg[svg.index("<svg"):])
        svg = re.sub(r"href=(['\"])#", rf"href=\1#{name}-",
                     svg.replace("url(#", f"url(#{name}-"))
        return f"<figure>{svg}{tagged('figcaption', [caption])}</figure>"

    def table(header, rows):
        body = "".join(f"<tr>{tagged('td', row)}</tr>" for row in rows)
        return (f'<div class="scroll"><table><thead><tr>{tagged("th", header)}</tr></thead>'
                f"<tbody>{body}</tbody></table></div>")

    write = {"head": lambda text: tagged("h2", [text]), "text": lambda text: tagged("p", [text]),
             "list": lambda texts: f"<ul>{tagged('li', texts)}</ul>", "plot": figure,
             "table": table}
    return "\n".join([
        "<!DOCTYPE html>", '<html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width">',
        f"<title>{title}</title><style>{STYLE}</style></head><body>", tagged("h1", [title]),
        *[write[kind](*what) for kind, *what in blocks], "</body></html>", ""])


# ---- files ----

def load_json(path):
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def save_json(path, found):
    """Writes JSON atomically; makes its folder."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path + ".new", "w", encoding="utf-8") as file:
        json.dump(found, file, indent=1)
        file.write("\n")
    os.replace(path + ".new", path)


def filled(text):
    """Returns Markdown with paragraphs in lines of 100 columns, as in docs/."""
    lines = []
    for line in text.split("\n"):
        if not line.startswith(("|", "<", "#", "!")):
            line = textwrap.fill(line, COLUMNS, break_long_words=False, break_on_hyphens=False,
                                 subsequent_indent="  " if line.startswith("- ") else "")
        lines.append(line)
    return "\n".join(lines)


def name_marks(name):
    return f"<!-- {name}: begin -->\n", f"<!-- {name}: end -->"


def publish(name, texts, plots, top):
    """Puts each text between the marks of its file, and plots into docs/plots; returns the
    paths."""
    folder = os.path.join(top, "docs", "plots")
    os.makedirs(folder, exist_ok=True)
    made = [shutil.copy(plot, folder) for plot in plots]
    begin, end = name_marks(name)
    for path, text in texts.items():
        path = pathlib.Path(top, path)
        before, _, rest = path.read_text("utf-8").partition(begin)
        path.write_text(before + begin + filled(text) + rest[rest.index(end):], "utf-8")
        made.append(str(path))
    return made
