// The widget: one model per panel, any number of views of it. esbuild makes `notebook/static/panel.js` of this.

import { followGround } from "./ground.js";
import { forget, liveOf } from "./live.js";
import { keepKeys, staticBeside, whenInPage } from "./page.js";
import { Panel } from "./panel.js";

/** @typedef {import("./types").Model} Model */

/** @param {{ model: Model }} given */
function initialize({ model }) {
  liveOf(model); // hears from now on; BokehJS is not waited for here: anywidget allows two seconds
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
    const beside = staticBeside(el);
    leaveStatic = beside.leave;
    panel.stands(beside.show);
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
 * Every widget brings this module along, and a browser keeps every module for good: all panels of a page use the first of
 * their build, so that the others are never compiled. The kernel puts a digest of the build in this place.
 */
const BUILD = "BUILD_DIGEST";
const page = /** @type {{ gpuDoctorBuilds?: Record<string, { initialize: typeof initialize, render: typeof render }> }} */ (globalThis);
const builds = (page.gpuDoctorBuilds ??= {});

export default (builds[BUILD] ??= { initialize, render });
