// The focus while the panel is drawn anew: it stays where it was, and is never taken from elsewhere.

const STOPS = "button, select, input, summary, [tabindex]";

/**
 * Redraws. A control that was moved has the focus again; one that is gone hands it to the nearest before it that is left.
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
  const left = stops.slice(0, stops.indexOf(held) + 1).filter((one) => root.contains(one) && one.checkVisibility());
  left.at(-1)?.focus({ preventScroll: true });
}
