"""The page as it is looked at in a browser: its parts, on which screens, and what can be measured of its plots."""

from __future__ import annotations

from typing import Any

from playwright.sync_api import ViewportSize

PHONE = ViewportSize(width=360, height=640)
WIDE = ViewportSize(width=1100, height=800)
SECTIONS = "queues depth age throughput waits redeliveries dead-letters workers specs".split()
PLOTTED = SECTIONS[1:]
# What is inside each plot that can be seen: the boxes of its marks and of its texts, in its own units.
BOXES = """
() => [...document.querySelectorAll('svg.plot')].filter(svg => svg.getBoundingClientRect().width > 0).map(svg => {
  const box = each => { const b = each.getBBox(); return [b.x, b.y, b.x + b.width, b.y + b.height]; };
  return {
    section: svg.closest('section').id,
    title: svg.querySelector('title').textContent,
    size: [svg.viewBox.baseVal.width, svg.viewBox.baseVal.height],
    height: svg.getBoundingClientRect().height,
    letters: Math.min(...[...svg.querySelectorAll('text')].map(each => each.getBoundingClientRect().height)),
    marks: [...svg.querySelectorAll('.mark')].map(box),
    texts: [...svg.querySelectorAll('text')].map(box),
  };
})
"""


def assert_all_can_be_seen(plots: list[dict[str, Any]]) -> None:
    """Every part has its plots, and in each there is something drawn; nothing stands out at a side or is too small."""
    assert {plot["section"] for plot in plots} == set(PLOTTED)
    for plot in plots:
        width, height = plot["size"]
        assert plot["marks"], plot["title"]
        for left, top, right, bottom in plot["marks"]:
            assert -0.1 <= left <= right <= width + 0.1, plot["title"]
            assert -0.1 <= top <= bottom <= height + 0.1, plot["title"]
            # Something is drawn: a mark has an extent.
            assert right - left + bottom - top > 0.5, plot["title"]
        for left, top, right, bottom in plot["texts"]:
            assert left >= -2, plot["title"]
            assert right <= width + 4, plot["title"]
            assert top >= -2, plot["title"]
            assert bottom <= height + 2, plot["title"]
        # Letters are as large on a phone as on a wide screen: about 15 pixels with their line.
        assert plot["letters"] >= 12, plot["title"]
