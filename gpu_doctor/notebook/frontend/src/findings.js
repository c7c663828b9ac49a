// The findings, the hints, the causes that could not be judged, the notes.

import { button, filled, worded } from "./elements.js";
import { heldBy } from "./header.js";
import { described } from "./settings.js";
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
    insidePart(finding, state, panel));
}

/**
 * The evidence of a finding, and what to try.
 * @param {import("./contract").Finding} finding
 * @param {State} state
 * @param {Panel} panel
 */
function insidePart(finding, state, panel) {
  return [
    finding.risk ? h("div", { class: "gd-risk" }, finding.risk) : null,
    h("ul", {}, finding.evidence.map((text) => h("li", {}, worded(text)))),
    finding.prescriptions.map((one, number) => advicePart(
      { ...one, page: number === 0 ? finding.page : [], hint: finding.kind === "hint" }, heldBy(state, panel), panel, `${finding.rule}${number}`)),
  ];
}

/**
 * What is worth a trial though nothing prices it: a quiet line, each hint with its button; what it is unfolds.
 * @param {import("./contract").Finding[]} hints
 * @param {State} state
 * @param {Panel} panel
 */
function hintsPart(hints, state, panel) {
  const open = hints.filter(({ rule }) => panel.unfolded.has(`hint:${rule}`));
  return [
    h("div", { class: "gd-row gd-hints" }, h("span", { class: "gd-soft" }, words.hints),
      hints.map((hint) => hintPart(hint, state, panel))),
    open.map((hint) => h("div", { class: "gd-unfolded", key: hint.rule }, h("b", {}, hint.rule), " ", worded(hint.headline), insidePart(hint, state, panel))),
  ];
}

/**
 * @param {import("./contract").Finding} hint
 * @param {State} state
 * @param {Panel} panel
 */
function hintPart(hint, state, panel) {
  const fold = `hint:${hint.rule}`;
  const settings = hint.prescriptions[0]?.settings ?? {};
  const named = described(settings) || hint.rule;
  return h("span", { class: "gd-choice", key: hint.rule },
    button(named, () => panel.fold(fold), { class: "gd-link", "aria-expanded": String(panel.unfolded.has(fold)), "data-fold": fold }),
    Object.keys(settings).length ? button(words.tryIt, () => panel.tryIt(settings), {
      class: "gd-small", "data-ask": "try", "aria-label": filled(words.tryHint, { hint: named }), off: heldBy(state, panel),
      onpointerenter: () => panel.near(), onfocus: () => panel.near(),
    }) : null);
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
  const { findings, hints } = state;
  const risks = hints.filter((one) => one.risk);
  const quiet = hints.filter((one) => !one.risk);
  return h("section", { class: "gd-findings" },
    findings.length || risks.length ? h("div", { class: "gd-title" }, h("b", {}, words.findings), h("span", { class: "gd-soft" }, words.findingsOf)) : null,
    findings.map((finding) => findingPart(finding, state, panel)),
    risks.map((risk) => findingPart(risk, state, panel)),
    quiet.length ? hintsPart(quiet, state, panel) : null);
}

/**
 * @param {State} state
 */
export function footerPart({ footer, silent, labels }) {
  return h("footer", { class: "gd-footer" },
    footer.notes.length ? h("details", { key: "notes" }, h("summary", {}, footer.title),
      h("ul", {}, footer.notes.map((text) => h("li", {}, text)))) : null,
    silent.length ? h("details", { key: "silent" }, h("summary", {}, labels.notJudged),
      silent.map((one) => silencePart(one))) : null,
    footer.overhead ? h("span", { class: "gd-own" }, footer.overhead) : null);
}
