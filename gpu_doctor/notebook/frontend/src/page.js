// The panel and the page around it: other panels, the static result, JupyterLab's keys.

/** A number that no other panel of the page has: every widget of a notebook has this module for itself. */
export function numbered() {
  const page = /** @type {any} */ (globalThis);
  page.gpuDoctorPanels = (page.gpuDoctorPanels ?? 0) + 1;
  return page.gpuDoctorPanels;
}

/**
 * The static result beside the live panel, also one that comes later: hidden while the panel tells as much.
 * @param {HTMLElement} el
 */
export function staticBeside(el) {
  const area = el.closest(".jp-OutputArea, .output, .cell-output-ipywidget-background");
  /** @type {Set<HTMLElement>} */
  const hidden = new Set();
  let shown = true;
  const hide = () => {
    if (shown) return;
    for (const result of area?.querySelectorAll(".gpu-doctor-static") ?? []) {
      const child = /** @type {HTMLElement} */ (result.closest(".jp-OutputArea-child, .output_area") ?? result);
      if (child.contains(el) || hidden.has(child)) continue;
      hidden.add(child);
      child.style.display = "none";
    }
  };
  const observer = new MutationObserver(hide);
  if (area) observer.observe(area, { childList: true, subtree: true });
  const show = (/** @type {boolean} */ on) => {
    if (on === shown) return;
    shown = on;
    if (!on) { hide(); return; }
    for (const child of hidden) child.style.display = "";
    hidden.clear();
  };
  return { show, leave: () => { observer.disconnect(); show(true); } };
}

/**
 * Calls `then` once the element is in the page, which is only after `render` has returned; returns the interval.
 * @param {HTMLElement} el
 * @param {() => void} then
 */
export function whenInPage(el, then) {
  const waiting = setInterval(() => {
    if (!el.isConnected) return;
    clearInterval(waiting);
    then();
  }, 15);
  return waiting;
}

/**
 * Plain keys are those of the list or scrolling part that has the focus: JupyterLab would go to the next cell at an arrow
 * and cut this one at an X. It passes over an element that says so, and the window hears a key before JupyterLab does.
 * Returns what ends it.
 * @param {HTMLElement} root
 */
export function keepKeys(root) {
  const keep = (/** @type {KeyboardEvent} */ event) => {
    const { target } = event;
    if (!(target instanceof Element) || !root.contains(target) || !target.matches("select, [tabindex]")) return;
    const command = event.ctrlKey || event.metaKey || event.altKey || (event.shiftKey && event.key === "Enter");
    target.toggleAttribute("data-lm-suppress-shortcuts", !command);
  };
  window.addEventListener("keydown", keep, true);
  return () => window.removeEventListener("keydown", keep, true);
}
