// What a treatment arrived at: a bar per kept step, what was not kept, the change of the cells, what is left by hand.

import { changePart } from "./code.js";
import { button } from "./elements.js";
import { statusOf } from "./header.js";
import { h } from "./vdom.js";
import { words } from "./words.js";

/** @typedef {import("./contract").PanelState} State */
/** @typedef {import("./panel").Panel} Panel */

/**
 * @param {State} state
 * @param {Panel} panel
 */
export function planPart({ plan, busy, labels }, panel) {
  if (!plan) return h("section", { class: "gd-plan", hidden: true });
  const kept = Object.keys(plan.settings).length > 0;
  return h("section", { class: "gd-plan" },
    h("div", { class: "gd-row gd-planhead" }, h("b", {}, labels.treatment), h("span", { class: "gd-sum" }, plan.sentence),
      kept ? button(words.setKnobs, () => panel.turnTo(plan.settings), { class: "gd-link", off: busy && statusOf(panel) }) : null),
    plan.steps.length ? h("div", { class: "gd-waterfall", role: "table", "aria-label": words.gains },
      plan.steps.map((one, number) => rungPart(one, number))) : null,
    plan.notes.map((text) => h("div", { class: "gd-note", key: text }, text)),
    plan.dropped.length ? h("div", { class: "gd-dropped gd-soft" }, labels.dropped,
      h("ul", {}, plan.dropped.map((one, number) => h("li", { key: String(number) }, h("code", {}, one.label), ` ${one.why}`)))) : null,
    plan.fix ? [h("div", { class: "gd-subtitle" }, labels.changed), changePart(plan.fix, "plan", panel)] : null,
    plan.byHand.length ? h("div", { class: "gd-byhand" }, h("div", { class: "gd-subtitle" }, labels.byHand),
      h("ul", {}, plan.byHand.map((text) => h("li", { key: text }, text)))) : null);
}

/**
 * @param {import("./contract").Step} one
 * @param {number} number
 */
function rungPart(one, number) {
  const lost = one.added < 0;
  const share = (/** @type {number} */ part) => `${(100 * Math.abs(part)).toFixed(2)}%`;
  return h("div", { class: "gd-rung", role: "row", key: String(number) },
    h("span", { class: "gd-what", role: "cell" }, one.label),
    h("span", { class: "gd-track", role: "cell", "aria-hidden": "true" },
      h("i", { class: "gd-was", style: `width: ${share(number ? one.before : one.added)}` }),
      number ? h("i", { class: lost ? "gd-lost" : one.whole ? "gd-gain gd-whole" : "gd-gain", style: `width: ${share(one.added)}` }) : null),
    h("b", { role: "cell" }, one.total),
    h("span", { class: "gd-soft", role: "cell" }, one.gain),
    one.losses ? h("span", { class: "gd-soft gd-losses", role: "cell" }, one.losses) : null);
}
