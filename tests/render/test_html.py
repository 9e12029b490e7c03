"""The HTML report: self-contained, safe whatever names it holds, its plots true to the numbers."""

from __future__ import annotations

import math
import re
from html.parser import HTMLParser
from typing import Any

import pytest
from hypothesis import given, settings

from mpexport.parity.exact import Octaves
from mpexport.render import html, parity_document, svg
from tests.render import documents
from tests.render.test_parity_reports import (
    VERDICTS,
    hostile_document,
    json_values,
    many_names,
    shown,
)

TAGS = {
    "html",
    "head",
    "meta",
    "title",
    "style",
    "body",
    "svg",
    "defs",
    "pattern",
    "rect",
    "line",
    "main",
    "h1",
    "h2",
    "h3",
    "section",
    "span",
    "div",
    "strong",
    "p",
    "ul",
    "li",
    "a",
    "bdi",
    "dl",
    "dt",
    "dd",
    "small",
    "article",
    "header",
    "figure",
    "figcaption",
    "desc",
    "text",
    "g",
    "circle",
    "path",
    "table",
    "thead",
    "tbody",
    "tr",
    "th",
    "td",
    "details",
    "summary",
    "footer",
}
VOID = {"meta"}
ATTRIBUTES = {
    "lang",
    "charset",
    "http-equiv",
    "content",
    "name",
    "class",
    "aria-hidden",
    "aria-label",
    "aria-labelledby",
    "id",
    "href",
    "role",
    "tabindex",
    "scope",
    "width",
    "height",
    "patternunits",
    "patterntransform",
    "x",
    "y",
    "x1",
    "x2",
    "y1",
    "y2",
    "r",
    "d",
    "rx",
    "overflow",
    "text-anchor",
}


class Reader(HTMLParser):
    """Checks as it reads; collects texts and the tree of open tags."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.texts: list[str] = []
        self.named: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in TAGS
        assert {name for name, _ in attrs} <= ATTRIBUTES
        values = dict(attrs)
        self.ids += [values["id"]] if values.get("id") else []
        self.links += [values["href"]] if values.get("href") else []
        if tag == "bdi":
            self.named.append("")
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)
        if self.open and self.open[-1] == "bdi":
            self.named[-1] += data

    def handle_comment(self, data: str) -> None:
        raise AssertionError(f"a comment: {data}")

    def unknown_decl(self, data: str) -> None:
        raise AssertionError(f"a declaration: {data}")


def read(page: str) -> Reader:
    page.encode("utf-8")
    reader = Reader()
    reader.feed(page)
    reader.close()
    assert reader.open == []
    assert len(set(reader.ids)) == len(reader.ids)
    assert all(link.startswith("#") and link[1:] in reader.ids for link in reader.links)
    return reader


def render(document: dict[str, Any]) -> str:
    return html.render(parity_document.read(document))


@pytest.mark.parametrize("kind", documents.ALL)
def test_page(kind):
    page = render(documents.ALL[kind]())
    reader = read(page)
    assert page == render(documents.ALL[kind]())
    assert f'<strong id="verdict">{VERDICTS[kind]}</strong>' in page
    assert f"<title>{VERDICTS[kind]}: " in page
    assert "@import" not in page
    assert "url(" not in page.replace("url(#hatched)", "")
    # Every picture that isn't decoration has a name and a description.
    for attributes in re.findall(r"<svg ([^>]*)>", page):
        labels = re.search('aria-labelledby="([^"]+)"', attributes)
        if labels:
            assert set(labels[1].split()) <= set(reader.ids)
        else:
            assert "aria-hidden" in attributes or "overflow" in attributes


def test_the_worst_comes_first():
    page = render(documents.failing())
    assert page.index(">stale.tflite<") < page.index(">cnn.tflite<")
    assert page.count("<article") == 2
    assert "1 of 2 files passed" in page
    row = documents.failing()["result"]["reports"][1]["outputs"][0]
    assert f"{row['max_abs']:.3g}" in page
    assert f"{row['noise_floor']:.3g}" in page
    assert "ulp 9.1e+04 &gt; 64" in page


@settings(max_examples=100, deadline=None)
@given(many_names)
def test_hostile_names(names):
    document = hostile_document(names)
    reader = read(render(document))
    for candidate in document["result"]["reports"]:
        assert shown(candidate["candidate"]) in reader.named
        for row in candidate["outputs"]:
            assert shown(row["output"]) in reader.named
        for limit in candidate["missed"]:
            assert shown(limit["limit"]) in reader.named
    text = "".join(reader.texts)
    assert all(c.isprintable() or c == "\n" for c in text)


@settings(max_examples=100, deadline=None)
@given(json_values, json_values, json_values)
def test_plots_of_anything(errors, number, index):
    document = documents.failing()
    row = document["result"]["reports"][0]["outputs"][0]
    row.update(errors=errors, max_abs=number, noise_floor=number, worst_index=index)
    read(render(document))
    row.update(errors={"zeros": number, "counts": [[index, number], [3, 1]]}, abs_p50=number)
    read(render(document))


@pytest.mark.parametrize(
    "value", [5e-324, 1.7976931348623157e308, "Infinity", "NaN", 0, -1, 10**400]
)
def test_extreme_numbers(value):
    document = documents.failing()
    for name in ("max_abs", "noise_floor", "abs_p50", "abs_p999", "count", "mismatched", "ulp"):
        document["result"]["reports"][0]["outputs"][0][name] = value
    document["result"]["reports"][0]["num_samples"] = value
    read(render(document))


def test_a_page_has_bounds():
    names = tuple(f"o{i}" for i in range(700))
    page = render(documents.of(documents.report(names=names)))
    reader = read(page)
    texts = " ".join(reader.texts)
    assert "676 more outputs not shown" in texts
    assert "694 more histograms not shown" in texts
    assert "400 more outputs not shown" in texts
    assert len(page) < 1_000_000


# --- plots ----------------------------------------------------------------------------------------


def test_positions_on_the_axis():
    axis = svg.LogAxis.over([3e-7, 0.02])
    assert (axis.low, axis.high) == (-7, -1)
    places = [axis.place(v) for v in (0, 1e-9, 1e-7, 1e-4, 1e-1, 1e3, math.inf)]
    assert places == [2.5, 7.0, 7.0, pytest.approx(51.0), 95.0, 95.0, 95.0]
    assert [label for _, label in axis.ticks()] == ["10⁻⁷", "10⁻⁵", "10⁻³", "10⁻¹"]


def test_bars_of_a_histogram():
    """Heights are shares of the values, the left one that of exact zeros."""
    errors, noise = Octaves(20, ((-3, 20), (-1, 60))), Octaves(0, ((-1, 10), (0, 30)))
    plot = svg.histogram("h", "y", errors, noise)
    found = re.findall(
        r'"bar (\w+)" x="([\d.]+)%" y="([\d.]+)" width="([\d.]+)%" height="([\d.]+)', plot
    )
    heights = {kind: [float(h) for k, _, _, _, h in found if k == kind] for kind, *_ in found}
    tallest = 0.75  # of the noise; the plot's 96 pixels
    assert heights["candidate"] == pytest.approx(
        [96 * s / tallest for s in (0.2, 0.2, 0.6)], abs=0.1
    )
    assert heights["trained"] == pytest.approx([96 * s / tallest for s in (0.25, 0.75)], abs=0.1)
    middles = {
        kind: [float(x) + float(w) / 2 for k, x, _, w, _ in found if k == kind] for kind in heights
    }
    step = (95 - 7) / 4
    wanted = {
        "candidate": [2.5, 7 + step / 2, 7 + 2.5 * step],
        "trained": [7 + 2.5 * step, 7 + 3.5 * step],
    }
    for kind, places in wanted.items():
        assert middles[kind] == pytest.approx(places, abs=0.02)


def test_wide_histograms_merge_octaves():
    wide = Octaves(0, tuple((e, 1) for e in range(-1000, 1000)))
    plot = svg.histogram("h", "y", wide, None)
    bars = plot.count('"bar candidate"')
    assert 50 < bars <= 72
