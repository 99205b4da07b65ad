"""A report is one HTML file, with the misses first, that runs nothing and loads nothing."""

from __future__ import annotations

import re
from contextlib import closing
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import pyrdma as rd
from pyrdma import runs
from pyrdma.sharing import report
from tests.errors import raises, unnamed
from tests.harness.support import pyrdma
from tests.sharing.browser import SAID, Browser, chromium
from tests.stored.tree import Tree, tree

__all__ = ["tree"]  # a fixture

HOSTILE = "</td><script>alert(1)</script><img src=x onerror=alert(2)>"


class Page(HTMLParser):
    """The elements of a page, its texts, and whether the tags fit together."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, Any]]] = []
        self.text = ""
        self.feed(path.read_text(encoding="utf-8"))
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in ("meta", "img"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += f"{data} "

    def ordered(self, *words: str) -> bool:
        """Return whether the words stand in the text in this order."""
        return re.search(".*".join(map(re.escape, words)), self.text, re.DOTALL) is not None


@pytest.fixture
def written(tree: Tree) -> Page:
    """The report of a paper with one missed and one held claim, and with three hosts."""
    file = tree.folder / "experiments/claims/fake.yaml"
    held = file.read_text().splitlines()[-2:]
    missed = [line.replace("id: peak", "id: miss").replace("400", "9") for line in held]
    file.write_text("\n".join([*file.read_text().splitlines(), *missed]))
    decides = 'decides={"fake/miss": decide.extreme("rate", "n"), '
    tree.edit("decides={", decides)
    tree.edit('title="Title 1"', f'title="{HOSTILE}"')
    tree.edit("    max_rep", f'    misses={{"fake/miss": "{HOSTILE}"}},\n    max_rep')
    tree.run()
    tree.run(fabric="shm")
    hosts = {"host": ["a", "b", "c"], "mtu": [4096] * 3, "firmware": ["1.1", "1.1", "1.2"]}
    frame = pd.DataFrame({**hosts, "link": [HOSTILE] * 3})
    frame.to_parquet(tree.out / "fake/rates/shm/hosts.parquet")
    assert report.write(tree.out, tree.folder / "report.html") == 2
    return Page(tree.folder / "report.html")


def test_misses_come_first_and_rows_that_differ(written: Page) -> None:
    sections = ("Predictions", "Missed claims", "Verdicts by paper", "Figures", "Numbers")
    assert written.ordered(*sections, "Provenance", "Hosts")
    assert written.ordered("Missed claims", "fake/miss", "Verdicts by paper", "peak")
    assert not written.ordered("Verdicts by paper", "fake/miss")
    assert written.ordered("4 of 1 experiments", "shm, sim", "none flagged", "Predictions")
    assert unnamed(written.text, 9, 400, "op/s", "fake/rates", rd.__version__) == []
    assert written.ordered("Hosts", "firmware", "1.1", "1.2", "mtu", "4096")
    assert not written.ordered("Hosts", "mtu", "firmware")
    assert written.text.count("4096") == 1, "what is equal on all hosts stands there once"


def test_every_text_is_escaped_and_nothing_is_loaded(written: Page) -> None:
    assert written.text.count(HOSTILE) >= 4, "a title of two figures, a reason, a host"
    tags = {tag for tag, _ in written.elements}
    assert not tags & {"script", "link", "iframe", "object", "form"}
    anchors = {a["id"] for _, a in written.elements if "id" in a}
    for tag, attributes in written.elements:
        assert not [name for name in attributes if name.startswith("on")]
        assert tag != "a" or attributes["href"].removeprefix("#") in anchors
        if tag == "img":
            assert attributes["src"].startswith("data:image/png;base64,")
    assert [t for t, _ in written.elements].count("img") == 2
    [policy] = [a["content"] for _, a in written.elements if "http-equiv" in a]
    assert "default-src 'none'" in policy


def test_two_runs_are_compared(tree: Tree) -> None:
    tree.run(seeds=range(1, 8))
    other = tree.folder / "other"
    tree.out.rename(other)
    tree.edit("FACTOR = 100", "FACTOR = 300")
    tree.run(seeds=range(1, 8))
    words = ("report", str(tree.out), "--compare", str(other), "--out", "page.html")
    done = pyrdma(*words, cwd=tree.folder)
    assert done.returncode == 0, done.stderr
    page = Page(tree.folder / "page.html")
    assert page.ordered(
        "Comparison", str(tree.out), str(other), "14 of 14 numbers differ", "Predictions"
    )
    assert page.ordered("fake/rates on sim", "rate", "300", "100", "op/s", "n=1", "seed=1")
    assert page.ordered("Numbers", "fake/rates on sim", "low", "300", "303", "306")
    with raises(rd.InvalidArgument, "--compare", "nowhere"):
        report.write(tree.out, tree.folder / "page.html", other=tree.folder / "nowhere")


@pytest.mark.skipif(chromium() is None, reason="Chromium is missing: apt-get install chromium")
def test_a_browser_shows_it_without_errors_and_asks_for_nothing(tree: Tree) -> None:
    tree.run(seeds=range(1, 8))
    target = tree.folder / "report.html"
    report.write(tree.out, target, other=tree.out)
    broken = tree.folder / "broken.html"
    broken.write_text("<script>console.log(1); nothing()</script><img src='http://localhost:9/x'>")
    with closing(Browser(tree.folder / "browser")) as browser:
        browser.open(broken, 1200)
        assert len(browser.named(*SAID)) == 3, "a text, an exception, a picture that is not there"
        assert [url for url in browser.requests() if url.startswith("http:")]
        for width in (1200, 390):
            browser.open(target, width)
            assert browser.named(*SAID) == []
            assert browser.requests() == {target.resolve().as_uri()}
            assert browser.evaluate("document.documentElement.scrollWidth") <= width
            sizes = browser.evaluate("[...document.images].map(i => [i.width, i.height])")
            assert len(sizes) == 1
            assert all(width > w > 250 and h > 150 for w, h in sizes)
            assert browser.evaluate("document.querySelector('h2').getBoundingClientRect().top") > 0


def test_a_figure_of_other_points_than_todays_says_so(tree: Tree) -> None:
    def notes() -> str:
        done = pyrdma("report", "--out", "page.html", cwd=tree.folder)
        assert done.returncode == 0, done.stderr
        assert unnamed(done.stderr, "page.html") == []
        found = Page(tree.folder / "page.html").text
        return " ".join(re.findall("other code measured.*|.*draws it again", found))

    tree.run(settings={"link.rate_gbps": 10})
    tree.run()
    assert notes() == ""
    tree.edit("FACTOR = 100", "FACTOR = 200")
    assert notes().count("other code measured 2 of the 2 points") == 2
    assert "stale" in Page(tree.folder / "page.html").text
    tree.run()
    assert notes().count("other code measured 2 of the 2 points") == 1, "the default's is new"
    tree.edit("FACTOR = 200", "FACTOR = 300")
    tree.edit("    return figure", "    return None")
    tree.run()
    assert notes().count("pyrdma draw fake/rates") == 1
    tree.edit("    return None", "    return figure")
    runs.draw("fake/rates", tree.out)
    assert notes().count("pyrdma draw fake/rates") == 0
    tree.edit("    return figure", "    return None")
    tree.run(quick=False)
    assert notes().count("pyrdma draw fake/rates") == 1, "the figure lacks a full point"


def test_what_has_no_report_is_named(tree: Tree) -> None:
    target = tree.folder / "report.html"
    with raises(rd.InvalidArgument, tree.out):
        report.write(tree.out, target)
    with raises(rd.InvalidArgument, "nowhere"):
        report.write(tree.folder / "nowhere", target)
    tree.run()
    with raises(rd.InvalidArgument, "fabric", "'wire'"):
        report.write(tree.out, target, "wire")
    with raises(rd.InvalidArgument, tree.out, f"pyrdma report {tree.out}"):
        report.write(tree.out, tree.out)
    with raises(rd.InvalidArgument, "--out", tree.folder / "experiments/fake/rates.py"):
        report.write(tree.out, tree.folder / "experiments/fake/rates.py/report.html")
    with raises(rd.InvalidArgument, "--out", "/dev/null"):
        report.write(tree.out, Path("/dev/null"))
    picture = tree.out / "fake/rates/sim/rates.png"
    picture.write_bytes(b"<svg onload=alert(1)>")
    with raises(rd.Error, picture):
        report.write(tree.out, target)
    picture.unlink()
    (tree.out / "fake/rates/sim/hosts.parquet").write_bytes(b"PAR1")
    with raises(rd.Error, tree.out / "fake/rates/sim/hosts.parquet"):
        report.write(tree.out, target)
    assert not target.exists()
