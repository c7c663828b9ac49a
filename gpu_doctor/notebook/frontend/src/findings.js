// The findings, the hints, the causes that could not be judged, the notes.

import { button, filled, worded } from "./elements.js";
import { blockedBy } from "./header.js";
import { described } from "./settings.js";
import { h } from "./vdom.js";
import { advicePart } from "./verdict.js";
import { words } from "./words.js";

/** @typedef {import("./contract").PanelState} State */
/** @typedef {import("./panel").Panel} Panel */

/**
 * Draws a finding: its price, rule and headline; the evidence and the cures unfold.
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
 * Draws the evidence of a finding and its cures.
 * @param {import("./contract").Finding} finding
 * @param {State} state
 * @param {Panel} panel
 */
function insidePart(finding, state, panel) {
  return [
    finding.risk ? h("div", { class: "gd-risk" }, finding.risk) : null,
    h("ul", {}, finding.evidence.map((text) => h("li", {}, worded(text)))),
    finding.prescriptions.map((prescription, number) => advicePart(
      { ...prescription, page: number === 0 ? finding.page : [], hint: finding.kind === "hint" }, blockedBy(state, panel), panel, `${finding.rule}${number}`)),
  ];
}

/**
 * Draws the hints, which are worth a trial although no measurement prices them, as one line with a button each. The
 * details of a hint unfold.
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
 * Draws one hint with its button.
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
      class: "gd-small", "data-ask": "try", "aria-label": filled(words.tryHint, { hint: named }), off: blockedBy(state, panel),
      onpointerenter: () => panel.preview(), onfocus: () => panel.preview(),
    }) : null);
}

/**
 * Draws one line that says why some rules were not judged; many names are folded.
 * @param {import("./contract").Silence} silence
 */
function silencePart(silence) {
  if (!silence.folded) return h("div", { class: "gd-why", key: silence.reason }, `${silence.reason}: `, h("span", { class: "gd-soft" }, silence.rules));
  return h("details", { class: "gd-why", key: silence.reason },
    h("summary", {}, `${silence.reason}: ${silence.count}`), h("div", { class: "gd-soft" }, silence.rules));
}

/**
 * Draws the findings, then the hints with a risk, then the other hints.
 * @param {State} state
 * @param {Panel} panel
 */
export function findingsPart(state, panel) {
  const { findings, hints } = state;
  const risks = hints.filter((hint) => hint.risk);
  const quiet = hints.filter((hint) => !hint.risk);
  return h("section", { class: "gd-findings" },
    findings.length || risks.length ? h("div", { class: "gd-title" }, h("b", {}, words.findings), h("span", { class: "gd-soft" }, words.findingsOf)) : null,
    findings.map((finding) => findingPart(finding, state, panel)),
    risks.map((risk) => findingPart(risk, state, panel)),
    quiet.length ? hintsPart(quiet, state, panel) : null);
}

/**
 * Draws the footer: notes, causes that were not judged, and the overhead.
 * @param {State} state
 */
export function footerPart({ footer, silent, labels }) {
  return h("footer", { class: "gd-footer" },
    footer.notes.length ? h("details", { key: "notes" }, h("summary", {}, footer.title),
      h("ul", {}, footer.notes.map((text) => h("li", {}, text)))) : null,
    silent.length ? h("details", { key: "silent" }, h("summary", {}, labels.notJudged),
      silent.map((silence) => silencePart(silence))) : null,
    footer.overhead ? h("span", { class: "gd-own" }, footer.overhead) : null);
}
