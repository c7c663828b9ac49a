// Tooltips next to controls, for the mouse and for the keyboard; the attribute `title` serves the mouse alone.

const GAP = 5;

/**
 * Shows the `data-tip` of the element under the pointer or with the focus. Returns a function that ends this.
 * @param {HTMLElement} root
 */
export function showTips(root) {
  const tip = Object.assign(document.createElement("div"), { className: "gd-tip", popover: "manual", role: "tooltip", hidden: true });
  const ending = new AbortController();
  const hide = () => { tip.hidden = true; };
  const show = (/** @type {Event} */ { target, type }) => {
    if (!(target instanceof Element) || target === tip) return;
    const of = target.closest("[data-tip]");
    if (!of || (type === "focusin" && !of.matches(":focus-visible"))) hide();
    else place(tip, of);
  };
  root.append(tip);
  const { signal } = ending;
  for (const type of ["pointerover", "focusin"]) root.addEventListener(type, show, { signal });
  // A click changes the panel around the control: the tooltip would cover something else.
  for (const type of ["pointerleave", "focusout", "click"]) root.addEventListener(type, hide, { signal });
  root.addEventListener("keydown", ({ key }) => { if (key === "Escape") hide(); }, { signal });
  window.addEventListener("scroll", hide, { capture: true, passive: true, signal });
  return () => ending.abort();
}

/**
 * Places the tooltip next to `of`, inside the window and above everything: a popover is not cut off by the panel's edge.
 * @param {HTMLElement} tip
 * @param {Element} of
 */
function place(tip, of) {
  tip.textContent = of.getAttribute("data-tip");
  tip.hidden = false;
  tip.showPopover?.();
  const { left, top, bottom } = of.getBoundingClientRect();
  const below = bottom + GAP + tip.offsetHeight <= innerHeight;
  tip.style.left = `${Math.max(GAP, Math.min(left, innerWidth - tip.offsetWidth - GAP))}px`;
  tip.style.top = `${below ? bottom + GAP : top - GAP - tip.offsetHeight}px`;
}
