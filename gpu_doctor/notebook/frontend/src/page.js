// The panel's surroundings in the page: other panels, the static result, JupyterLab's keys.

/** Returns a number that no other panel of the page has. It is stored in the page, as each widget has its own module. */
export function numbered() {
  const page = /** @type {any} */ (globalThis);
  page.gpuDoctorPanels = (page.gpuDoctorPanels ?? 0) + 1;
  return page.gpuDoctorPanels;
}

/**
 * Controls whether the static result next to the panel is visible, also a result that comes later. It is hidden while the
 * panel shows the same content. Returns `show` to change that and `leave` to end it.
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
 * Calls `then` once the element is in the page, which happens only after `render` has returned. Returns the interval.
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
 * Reserves plain keys for the focused list or scrolling part: JupyterLab would go to the next cell at an arrow and cut this
 * cell at an X. JupyterLab ignores keys on an element with `data-lm-suppress-shortcuts`, and the window's listener sees a
 * key before JupyterLab does. Returns a function that ends this.
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
