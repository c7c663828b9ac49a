// BokehJS for the plots. One loader widget a kernel carries its text; the panel knows that widget's id. It is evaluated
// once a page, and never waited for where anywidget waits for us.

/** @typedef {import("./types").Bokeh} Bokeh */
/** @typedef {import("./types").Model} Model */

/** A model that was made before ours may still be on its way when the page is loaded again. */
const PATIENCE_MS = 3000;
const EVERY_MS = 100;

/**
 * The page's BokehJS of this version, if it is there.
 * @param {string} version
 * @returns {Bokeh | undefined}
 */
function there(version) {
  const bokeh = /** @type {any} */ (globalThis).Bokeh;
  return bokeh?.version === version ? bokeh : bokeh?.[version];
}

/**
 * BokehJS: the page's own of the same version, else the loader's text, else what the kernel sends when it is asked.
 * @param {Model} model the panel's
 * @param {() => void} waits told when the kernel has to be asked, which may not answer before the cell has ended
 * @returns {Promise<Bokeh>}
 */
export async function bokehOf(model, waits) {
  const { version, loader } = model.get("bokeh");
  if (!there(version)) {
    const source = (await carried(model, loader)) ?? (await asked(model, waits));
    if (!there(version)) evaluate(source);
  }
  const bokeh = there(version);
  if (!bokeh) throw new Error(`BokehJS ${version} did not load`);
  return bokeh;
}

/**
 * The text that the kernel's loader carries; null where it is not to be had.
 * @param {Model} model
 * @param {string} loader
 * @returns {Promise<string | null>}
 */
async function carried(model, loader) {
  const manager = model.widget_manager;
  if (!manager?.get_model) return null;
  const until = Date.now() + PATIENCE_MS;
  do {
    try {
      const found = await inTime(manager.get_model(loader), until - Date.now());
      const source = found?.get("source");
      if (source) return source;
    } catch { /* it is not there yet */ }
    await new Promise((then) => { setTimeout(then, EVERY_MS); });
  } while (Date.now() < until);
  return null;
}

/**
 * @template T
 * @param {Promise<T>} promise
 * @param {number} ms
 * @returns {Promise<T | null>}
 */
function inTime(promise, ms) {
  return Promise.race([promise, new Promise((then) => { setTimeout(() => then(null), ms); })]);
}

/**
 * The text by way of the panel's own trait: the kernel puts it there when it is asked, which may be after the cell.
 * @param {Model} model
 * @param {() => void} waits
 * @returns {Promise<string>}
 */
function asked(model, waits) {
  return new Promise((then) => {
    const look = () => {
      const { source } = model.get("bokeh");
      if (!source) return false;
      model.off("change:bokeh", look);
      then(source);
      return true;
    };
    if (look()) return;
    model.on("change:bokeh", look);
    waits();
    model.send({ ask: "bokeh" });
  });
}

/** @param {string} source */
function evaluate(source) {
  const page = /** @type {any} */ (globalThis);
  const amd = page.define;
  page.define = undefined; // an AMD loader of the page would take the bundle for itself
  try { (0, eval)(source); } finally { page.define = amd; }
}
