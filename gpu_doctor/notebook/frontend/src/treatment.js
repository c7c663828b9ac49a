// The plan of a treatment: a bar per step, dropped settings, the change to the cells, and manual work.

import { changePart } from "./code.js";
import { button } from "./elements.js";
import { statusId } from "./header.js";
import { h } from "./vdom.js";
import { words } from "./words.js";

/** @typedef {import("./contract").PanelState} State */
/** @typedef {import("./panel").Panel} Panel */

/**
 * Draws the plan of a treatment, if there is one.
 * @param {State} state
 * @param {Panel} panel
 */
export function planPart({ plan, busy, labels }, panel) {
  if (!plan) return h("section", { class: "gd-plan", hidden: true });
  const changed = Object.keys(plan.settings).length > 0;
  return h("section", { class: "gd-plan" },
    h("div", { class: "gd-row gd-planhead" }, h("b", {}, labels.treatment), h("span", { class: "gd-sum" }, plan.sentence),
      changed ? button(words.setKnobs, () => panel.turnTo(plan.settings), { class: "gd-link", off: busy && statusId(panel) }) : null),
    plan.steps.length ? h("div", { class: "gd-waterfall", role: "table", "aria-label": words.gains },
      plan.steps.map((step, number) => rungPart(step, number))) : null,
    plan.notes.map((text) => h("div", { class: "gd-note", key: text }, text)),
    plan.dropped.length ? h("div", { class: "gd-dropped gd-soft" }, labels.dropped,
      h("ul", {}, plan.dropped.map((change, number) => h("li", { key: String(number) }, h("code", {}, change.label), ` ${change.why}`)))) : null,
    plan.fix ? [h("div", { class: "gd-subtitle" }, labels.changed), changePart(plan.fix, "plan", panel)] : null,
    plan.byHand.length ? h("div", { class: "gd-byhand" }, h("div", { class: "gd-subtitle" }, labels.byHand),
      h("ul", {}, plan.byHand.map((text) => h("li", { key: text }, text)))) : null);
}

/**
 * Draws a step of the plan as a bar.
 * @param {import("./contract").Step} step
 * @param {number} number
 */
function rungPart(step, number) {
  const lost = step.added < 0;
  const share = (/** @type {number} */ part) => `${(100 * Math.abs(part)).toFixed(2)}%`;
  return h("div", { class: "gd-rung", role: "row", key: String(number) },
    h("span", { class: "gd-what", role: "cell" }, step.label),
    h("span", { class: "gd-track", role: "cell", "aria-hidden": "true" },
      h("i", { class: "gd-was", style: `width: ${share(number ? step.before : step.added)}` }),
      number ? h("i", { class: lost ? "gd-lost" : step.whole ? "gd-gain gd-whole" : "gd-gain", style: `width: ${share(step.added)}` }) : null),
    h("b", { role: "cell" }, step.total),
    h("span", { class: "gd-soft", role: "cell" }, step.gain),
    step.losses ? h("span", { class: "gd-soft gd-losses", role: "cell" }, step.losses) : null);
}
