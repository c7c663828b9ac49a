// Loads the data of the plots: BokehJS and the figures. One loader widget per kernel carries them, and the panel knows the
// widget's id. Code that anywidget waits for never waits for them.

/** @typedef {import("./types").Bokeh} Bokeh */
/** @typedef {import("./figure").Figure} Figure */
/** @typedef {import("./types").Model} Model */
/** @typedef {{ source: string, figure: Figure }} Shared */

/** Time to wait for the loader's model, which may arrive after ours when a page is loaded again. */
const PATIENCE_MS = 3000;
const EVERY_MS = 100;

/**
 * Returns the page's BokehJS of a version, if it is loaded.
 * @param {string} version
 * @returns {Bokeh | undefined}
 */
function there(version) {
  const bokeh = /** @type {any} */ (globalThis).Bokeh;
  return bokeh?.version === version ? bokeh : bokeh?.[version];
}

/**
 * Returns BokehJS, evaluated once per page, and the figures to draw: the panel's own, else those that all panels share.
 * @param {Model} model model of the panel
 * @param {() => void} waits called before a request to the kernel, which may not answer before the cell ends
 * @returns {Promise<{ bokeh: Bokeh, figure: Figure }>}
 */
export async function plotting(model, waits) {
  const { version, loader } = model.get("bokeh");
  const { source, figure } = brought(model) ?? (await carried(model, loader)) ?? (await asked(model, waits));
  if (!there(version)) evaluate(source);
  if (brought(model)) spareOthers(model, loader);
  const bokeh = there(version);
  if (!bokeh) throw new Error(`BokehJS ${version} did not load`);
  const own = model.get("figure");
  return { bokeh, figure: own?.doc ? own : figure };
}

/**
 * Returns the data in the panel's own trait, or null if the kernel has not put it there.
 * @param {Model} model
 * @returns {Shared | null}
 */
function brought(model) {
  const { source, figure } = model.get("bokeh");
  return source ? { source, figure } : null;
}

/**
 * Returns the data that the kernel's loader carries, or null if the loader cannot be found in time.
 * @param {Model} model
 * @param {string} loader
 * @returns {Promise<Shared | null>}
 */
async function carried(model, loader) {
  const manager = model.widget_manager;
  if (!manager?.get_model) return null;
  const until = Date.now() + PATIENCE_MS;
  do {
    try {
      const found = await inTime(manager.get_model(loader), until - Date.now());
      if (found?.get("source")) return { source: found.get("source"), figure: found.get("figure") };
    } catch { /* it is not there yet */ }
    await new Promise((then) => { setTimeout(then, EVERY_MS); });
  } while (Date.now() < until);
  return null;
}

/**
 * Tells the kernel if the loader is found after all, as in a page that loaded it slowly: later panels then need not carry
 * its data.
 * @param {Model} model
 * @param {string} loader
 */
async function spareOthers(model, loader) {
  if (!await carried(model, loader)) return;
  try { model.send({ ask: "found" }); } catch { /* the kernel has gone */ }
}

/**
 * Returns the promise's value, or null if it takes too long.
 * @template T
 * @param {Promise<T>} promise
 * @param {number} ms
 * @returns {Promise<T | null>}
 */
function inTime(promise, ms) {
  return Promise.race([promise, new Promise((then) => { setTimeout(() => then(null), ms); })]);
}

/**
 * Requests the data from the kernel, which may answer only after the cell.
 * @param {Model} model
 * @param {() => void} waits
 * @returns {Promise<Shared>}
 */
function asked(model, waits) {
  return new Promise((then) => {
    const look = () => {
      const found = brought(model);
      if (!found) return false;
      model.off("change:bokeh", look);
      then(found);
      return true;
    };
    if (look()) return;
    model.on("change:bokeh", look);
    waits();
    model.send({ ask: "bokeh" });
  });
}

/**
 * Evaluates BokehJS for the whole page, but hides two globals from it: an AMD loader (`define`) would register the bundle
 * for itself, and on `visualViewport` every plot leaves a listener that holds everything it drew.
 * @param {string} source
 */
function evaluate(source) {
  new Function("define", "visualViewport", source).call(globalThis);
}
