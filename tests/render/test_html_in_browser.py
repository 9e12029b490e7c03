"""The HTML report in a real browser: loads nothing, complains of nothing, shows the verdict."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mpexport.render import html, parity_document
from tests.render import documents
from tests.render.browser import Browser, Page, find, pixels

pytestmark = pytest.mark.browser

WINDOWS = [(1280, "light"), (1280, "dark"), (400, "light"), (400, "dark")]
# Where the verdict is, whether anything covers it, and whether the page is wider than the window.
LOOK = """(() => {
    const verdict = document.getElementById("verdict");
    const box = verdict.getBoundingClientRect();
    const top = document.elementFromPoint(box.x + 20, box.y + box.height / 2);
    return {
        text: verdict.innerText,
        covered: top !== verdict,
        box: {x: box.x, y: box.y, width: box.width, height: box.height},
        window: [innerWidth, innerHeight],
        width: document.documentElement.scrollWidth,
        background: getComputedStyle(document.body).backgroundColor,
    };
})()"""
# Contrast of all text with what is behind it, by the formula of WCAG 2; the lowest, and where.
CONTRAST = """(() => {
    const numbers = color => (color.match(/[\\d.]+/g) || []).map(Number);
    const light = color => {
        const [r, g, b] = numbers(color).map(v => v / 255)
            .map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const opaque = color => color !== "transparent" && numbers(color)[3] !== 0;
    const lowest = {ratio: 99, text: ""};
    const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    while (walker.nextNode()) {
        const node = walker.currentNode, parent = node.parentElement;
        const hidden = ["title", "desc", "STYLE"].includes(parent.tagName);
        if (!node.data.trim() || hidden) continue;
        const style = getComputedStyle(parent);
        const ink = parent.tagName === "text" ? style.fill : style.color;
        let behind = parent;
        while (behind && !opaque(getComputedStyle(behind).backgroundColor))
            behind = behind.parentElement;
        const paper = behind ? getComputedStyle(behind).backgroundColor : "rgb(255,255,255)";
        const [a, b] = [light(ink), light(paper)].sort((x, y) => y - x);
        const ratio = (a + 0.05) / (b + 0.05);
        if (ratio < lowest.ratio) Object.assign(lowest, {ratio, text: node.data, ink, paper});
    }
    return lowest;
})()"""


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    chromium = find()
    if chromium is None:
        pytest.skip("there is no Chromium: make chromium")
    with Browser(chromium, tmp_path_factory.mktemp("profile")) as running:
        yield running


def faults(page: Page, file: Path) -> list[str]:
    """What is wrong with a loaded page, whatever it shows."""
    seen = page.evaluate(LOOK)
    found = [f"asks for {url}" for url in page.requests if url != file.as_uri()]
    found += [f"complains: {complaint}" for complaint in page.complaints]
    # A telephone zooms out until the page fits, so that its own word for the window is no measure.
    if seen["width"] > page.width:
        found.append(f"is {seen['width']} wide in a window of {page.width}")
    box = seen["box"]
    if box["y"] < 0 or box["y"] + box["height"] > seen["window"][1] or seen["covered"]:
        found.append(f"hides the verdict: {seen}")
    lowest = page.evaluate(CONTRAST)
    if lowest["ratio"] < 4.5:
        found.append(f"is hard to read: {lowest}")
    return found


def write(folder: Path, document: dict[str, Any]) -> Path:
    file = folder / "report.html"
    file.write_text(html.render(parity_document.read(document)), encoding="utf-8")
    return file


@pytest.mark.parametrize(("width", "scheme"), WINDOWS)
@pytest.mark.parametrize("kind", documents.ALL)
def test_page(kind, width, scheme, browser, tmp_path):
    document = documents.ALL[kind]()
    for report in (document["result"] or {"reports": []})["reports"]:
        report["candidate"] = "release/" + "a_very_long_name" * 12 + ".tflite"
        for row in report["outputs"]:
            row["output"] += "/" + "block" * 40
    file = write(tmp_path, document)
    page = Page(browser, file, width, scheme=scheme)
    assert faults(page, file) == []
    seen = page.evaluate(LOOK)
    verdict = {"pass": "PASS", "fail": "FAIL", "early": "ERROR"}.get(kind, "INCONCLUSIVE")
    assert seen["text"] == verdict
    assert seen["background"] == ("rgb(244, 245, 247)" if scheme == "light" else "rgb(16, 19, 25)")
    # What is painted, not only what the browser says of it.
    picture = page.screenshot()
    assert pixels(browser, tmp_path, picture, seen["box"])["colors"] > 10
    whole = {"x": 0, "y": 0, "width": width, "height": 900}
    painted = pixels(browser, tmp_path, picture, whole)
    assert painted["colors"] > 30
    assert painted["commonest"] < 0.97
    page.close()


def test_plots_are_painted(browser, tmp_path):
    """Every plot holds the colors of its series."""
    file = write(tmp_path, documents.failing())
    page = Page(browser, file, 1280, height=3000)
    boxes = page.evaluate(
        "[...document.querySelectorAll('svg.plot')].map(e => e.getBoundingClientRect().toJSON())"
    )
    assert len(boxes) == 2 + 3  # strips of each candidate, a histogram of each output
    picture = page.screenshot()
    for box in boxes:
        assert pixels(browser, tmp_path, picture, box)["colors"] > 20
    page.close()


def test_a_hostile_page_stays_quiet(browser, tmp_path):
    document = documents.failing()
    attack = (
        "<script>document.title='owned'</script><img src=https://example.com/x onerror=alert(1)>"
    )
    for report in document["result"]["reports"]:
        report["candidate"] = report["reference"] = attack
        for row in report["outputs"]:
            row["output"] = row["message"] = row["worst_candidate"] = attack
    document["error"]["message"] = attack
    file = write(tmp_path, document)
    page = Page(browser, file, 400)
    assert faults(page, file) == []
    assert page.evaluate("document.title") == "FAIL: mpexport parity"
    assert page.evaluate("document.images.length + document.scripts.length") == 0
    page.close()


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        ("<main>", '<main><img src="https://example.com/x.png">', "complains"),
        ("<main>", "<main><script>throw 1</script>", "complains"),
        ("<main>", '<main><p style="width:600px">wide</p>', "is 6"),
        ('<strong id="verdict">', '<p style="height:2000px"></p><strong id="verdict">', "hides"),
        ("--ink:#1b1f27", "--ink:#dddddd", "is hard to read"),
    ],
)
def test_faults_are_noticed(old, new, fault, browser, tmp_path):
    file = write(tmp_path, documents.passing())
    page_text = file.read_text(encoding="utf-8")
    assert old in page_text
    file.write_text(page_text.replace(old, new, 1), encoding="utf-8")
    page = Page(browser, file, 400)
    assert any(line.startswith(fault) for line in faults(page, file)), faults(page, file)
    page.close()


def test_a_request_is_noticed(browser, tmp_path):
    """Without the page's own policy, which stops it before."""
    file = write(tmp_path, documents.passing())
    page_text = file.read_text(encoding="utf-8").replace("default-src 'none'", "default-src *", 1)
    page_text = page_text.replace("<main>", '<main><img src="https://example.com/x.png">', 1)
    file.write_text(page_text, encoding="utf-8")
    page = Page(browser, file, 400)
    assert "asks for https://example.com/x.png" in faults(page, file)
    page.close()


def test_a_blank_page_is_noticed(browser, tmp_path):
    file = tmp_path / "none.html"
    file.write_text("<!DOCTYPE html><title>none</title>", encoding="utf-8")
    page = Page(browser, file, 400)
    box = {"x": 0, "y": 0, "width": 400, "height": 900}
    assert pixels(browser, tmp_path, page.screenshot(), box) == {"colors": 1, "commonest": 1}
    page.close()
