"""What people see and hear of the panel: axe's findings, the contrast of every text over what is really behind it."""

# ruff: noqa: E501 (scripts of the page)

from __future__ import annotations

from typing import Any, Final

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Frame, Page

LEAST_CONTRAST: Final = 4.5
"""WCAG 2.2, 1.4.3, for text of any size: AA."""

_SERIOUS: Final = ("serious", "critical")

# axe calls text over a half-transparent colour undecided. Here every layer is laid over the one below it, opacity of
# whole groups too, and the text over all of them.
_CONTRAST: Final = """(root) => {
  const read = (text) => {
    const [red, green, blue, alpha = 1] = (text.replace(/^color\\(srgb/, '').match(/[\\d.e-]+/g) ?? []).map(Number);
    const scale = text.startsWith('color(') ? 255 : 1;
    return { rgb: [red * scale, green * scale, blue * scale], alpha };
  };
  const over = (top, below, alpha) => top.map((one, index) => one * alpha + below[index] * (1 - alpha));
  const light = (rgb) => {
    const [red, green, blue] = rgb.map((one) => one / 255).map((one) => (one <= 0.04045 ? one / 12.92 : ((one + 0.055) / 1.055) ** 2.4));
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
  };
  const ratioOf = (element) => {
    const path = [];
    for (let one = element; one; one = one.parentElement) path.unshift(one);
    let ground = matchMedia('(prefers-color-scheme: dark)').matches && matchMedia('(forced-colors: active)').matches ? [0, 0, 0] : [255, 255, 255];
    const groups = [];
    for (const one of path) {
      const style = getComputedStyle(one);
      if (style.opacity !== '1') groups.push({ ground, opacity: Number(style.opacity) });
      const { rgb, alpha } = read(style.backgroundColor);
      ground = over(rgb, ground, alpha);
    }
    const { rgb, alpha } = read(getComputedStyle(element).color);
    let ink = over(rgb, ground, alpha);
    for (const group of groups.reverse()) {
      ink = over(ink, group.ground, group.opacity);
      ground = over(ground, group.ground, group.opacity);
    }
    const [low, high] = [light(ink), light(ground)].sort((one, other) => one - other);
    return (high + 0.05) / (low + 0.05);
  };
  const found = [];
  const texts = document.createTreeWalker(root, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const element = texts.currentNode.parentElement;
    if (!texts.currentNode.data.trim() || !element.checkVisibility({ visibilityProperty: true }) || element.closest('.bk-Canvas, option')) continue;
    found.push({ text: texts.currentNode.data.trim().slice(0, 40), where: element.className || element.tagName, ratio: Math.round(ratioOf(element) * 100) / 100 });
  }
  for (const element of root.querySelectorAll('select, input[type=number]')) {
    found.push({ text: element.value, where: element.tagName, ratio: Math.round(ratioOf(element) * 100) / 100 });
  }
  return found;
}"""


def serious(page: Page, of: str = "[data-gpu-doctor]") -> list[str]:
    """Serious and critical findings of axe in a part of the page, each with the elements that it is about."""
    found = Axe().run(page, context=of, options={"resultTypes": ["violations"]}).response["violations"]
    return [
        f"{one['id']}: {[node['html'][:120] for node in one['nodes']]}" for one in found if one["impact"] in _SERIOUS
    ]


def pale(page: Page | Frame, of: str = "[data-gpu-doctor]") -> list[dict[str, Any]]:
    """Every text of a part of the page that stands out less than it must, with its contrast."""
    texts: list[dict[str, Any]] = page.locator(of).first.evaluate(_CONTRAST)
    assert texts, "no text was seen"
    return [one for one in texts if one["ratio"] < LEAST_CONTRAST]
