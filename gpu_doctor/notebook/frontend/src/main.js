// The widget's entry point: one model per panel, with any number of views. esbuild builds `notebook/static/panel.js`
// from this file.

import { followGround } from "./ground.js";
import { forget, liveOf } from "./live.js";
import { keepKeys, staticBeside, whenInPage } from "./page.js";
import { Panel } from "./panel.js";

/** @typedef {import("./types").Model} Model */

/** @param {{ model: Model }} given */
function initialize({ model }) {
  liveOf(model); // receives messages from now on; it must not wait for BokehJS: anywidget allows two seconds
  return () => forget(model);
}

/** @param {{ model: Model, el: HTMLElement }} given */
function render({ model, el }) {
  const live = liveOf(model);
  const panel = new Panel(live, el);
  const redrawn = () => { panel.showPlots(); };
  const recoloured = () => { panel.plots.recolour(panel.root); panel.drawLegends(); };
  const letKeysGo = keepKeys(panel.root);
  let [leaveStatic, leaveGround] = [() => {}, () => {}];
  const waiting = whenInPage(el, () => {
    const result = staticBeside(el);
    leaveStatic = result.leave;
    panel.entered(result.show);
    leaveGround = followGround(panel.root, recoloured);
    panel.showPlots();
  });
  live.views.add(panel);
  model.on("change:figure", redrawn);
  panel.draw();
  return () => {
    clearInterval(waiting);
    leaveGround();
    letKeysGo();
    live.views.delete(panel);
    model.off("change:figure", redrawn);
    panel.close();
    leaveStatic();
  };
}

/**
 * Digest of this build, filled in by the kernel. Every widget carries this module, and a browser never frees a module: all
 * panels of a page use the first module of their build, so that the others are never compiled.
 */
const BUILD = "BUILD_DIGEST";
const page = /** @type {{ gpuDoctorBuilds?: Record<string, { initialize: typeof initialize, render: typeof render }> }} */ (globalThis);
const builds = (page.gpuDoctorBuilds ??= {});

export default (builds[BUILD] ??= { initialize, render });
