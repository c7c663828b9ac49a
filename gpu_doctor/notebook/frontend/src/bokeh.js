// What the plots need. One loader widget a kernel carries it; the panel knows that widget's id. It is never waited for
// where anywidget waits for us.

/** @typedef {import("./types").Bokeh} Bokeh */
/** @typedef {import("./figure").Figure} Figure */
/** @typedef {import("./types").Model} Model */
/** @typedef {{ source: string, figure: Figure }} Shared */

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
 * BokehJS, evaluated once a page, and the figures to draw: the panel's own, else those that all panels share.
 * @param {Model} model the panel's
 * @param {() => void} waits told when the kernel has to be asked, which may not answer before the cell has ended
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
 * The same in the panel's own trait, where the kernel has put it; null = it has not.
 * @param {Model} model
 * @returns {Shared | null}
 */
function brought(model) {
  const { source, figure } = model.get("bokeh");
  return source ? { source, figure } : null;
}

/**
 * What the kernel's loader carries; null where it is not to be had.
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
 * Tells the kernel when its loader is there after all, as in a page that was slow to load it: later panels need not bring
 * what it carries.
 * @param {Model} model
 * @param {string} loader
 */
async function spareOthers(model, loader) {
  if (!await carried(model, loader)) return;
  try { model.send({ ask: "found" }); } catch { /* the kernel has gone */ }
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
 * What the kernel brings when it is asked, which may be after the cell.
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
 * Evaluates BokehJS for the whole page, but without two of the page's own: an AMD loader (`define`) would take the bundle
 * for itself, and on `visualViewport` every plot leaves a listener behind, with all that it ever drew.
 * @param {string} source
 */
function evaluate(source) {
  new Function("define", "visualViewport", source).call(globalThis);
}
