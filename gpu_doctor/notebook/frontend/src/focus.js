// Preserves the focus while the panel is redrawn; it is never taken from elsewhere in the page.

const STOPS = "button, select, input, summary, [tabindex]";

/**
 * Redraws the panel. If the focused control was moved, it gets the focus again; if it is gone, the nearest remaining
 * control before it does.
 * @param {HTMLElement} root
 * @param {() => void} redraw
 */
export function keepFocus(root, redraw) {
  const page = /** @type {Document | ShadowRoot} */ (root.getRootNode());
  const held = /** @type {HTMLElement | null} */ (page.activeElement);
  if (!held || !root.contains(held)) { redraw(); return; }
  const stops = /** @type {HTMLElement[]} */ ([...root.querySelectorAll(STOPS)]);
  redraw();
  if (page.activeElement === held) return;
  const remaining = stops.slice(0, stops.indexOf(held) + 1).filter((stop) => root.contains(stop) && stop.checkVisibility());
  remaining.at(-1)?.focus({ preventScroll: true });
}
