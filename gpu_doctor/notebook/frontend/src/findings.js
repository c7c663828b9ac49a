// The findings, the hints, the causes that could not be judged, the notes.

import { worded } from "./elements.js";
import { heldBy } from "./header.js";
import { h } from "./vdom.js";
import { advicePart } from "./verdict.js";
import { words } from "./words.js";

/** @typedef {import("./contract").PanelState} State */
/** @typedef {import("./panel").Panel} Panel */

/**
 * @param {import("./contract").Finding} finding
 * @param {State} state
 * @param {Panel} panel
 */
function findingPart(finding, state, panel) {
  return h("details", { key: finding.rule, class: `gd-of-${finding.kind}` },
    h("summary", {},
      finding.share === null ? null : h("i", { class: "gd-part", style: `--gd-share: ${100 * finding.share}%`, "aria-hidden": "true" }),
      h("span", { class: finding.risk ? "gd-share gd-risky" : "gd-share" }, finding.price), h("b", {}, finding.rule),
      h("span", {}, worded(finding.headline))),
    finding.risk ? h("div", { class: "gd-risk" }, finding.risk) : null,
    h("ul", {}, finding.evidence.map((text) => h("li", {}, worded(text)))),
    finding.prescriptions.map((one, number) => advicePart(
      { ...one, page: number === 0 ? finding.page : [] }, heldBy(state, panel), panel, `${finding.rule}${number}`)));
}

/**
 * Why some rules were not judged: one line, their names folded where they are many.
 * @param {import("./contract").Silence} one
 */
function silencePart(one) {
  if (!one.folded) return h("div", { class: "gd-why", key: one.reason }, `${one.reason}: `, h("span", { class: "gd-soft" }, one.rules));
  return h("details", { class: "gd-why", key: one.reason },
    h("summary", {}, `${one.reason}: ${one.count}`), h("div", { class: "gd-soft" }, one.rules));
}

/**
 * @param {State} state
 * @param {Panel} panel
 */
export function findingsPart(state, panel) {
  const { findings, hints, silent, labels } = state;
  return h("section", { class: "gd-findings" },
    findings.length ? h("div", { class: "gd-title" }, h("b", {}, words.findings), h("span", { class: "gd-soft" }, words.findingsOf)) : null,
    findings.map((finding) => findingPart(finding, state, panel)),
    hints.length ? h("div", { class: "gd-title" }, h("b", {}, labels.hints)) : null,
    hints.map((hint) => findingPart(hint, state, panel)),
    silent.length ? h("details", { key: "silent" },
      h("summary", { class: "gd-soft" }, state.unjudged),
      silent.map((one) => silencePart(one))) : null);
}

/**
 * @param {State} state
 */
export function footerPart({ footer }) {
  return h("footer", { class: "gd-footer" },
    footer.notes.length ? h("details", {}, h("summary", {}, footer.title),
      h("ul", {}, footer.notes.map((text) => h("li", {}, text)))) : null,
    footer.overhead ? h("span", { class: "gd-own" }, footer.overhead) : null);
}
