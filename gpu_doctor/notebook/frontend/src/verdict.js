// The verdict, the first advice, and the anatomy of a mean step.

import { barPart, comparedPart } from "./before_after.js";
import { codeFold, codePart, fixPart } from "./code.js";
import { button, worded } from "./elements.js";
import { blockedBy } from "./header.js";
import { h } from "./vdom.js";
import { words } from "./words.js";

/** @typedef {import("./contract").Advice} Advice */
/** @typedef {import("./contract").PanelState} State */
/** @typedef {import("./panel").Panel} Panel */

/**
 * Draws the verdict with the first advice.
 * @param {State} state
 * @param {Panel} panel
 */
export function verdictPart(state, panel) {
  const { verdict } = state;
  const { advice } = verdict;
  return h("section", { class: state.result ? "gd-verdict gd-second" : "gd-verdict", style: `--gd-accent-now: ${verdict.accent}` },
    h("div", { class: "gd-sentence" },
      h("span", { class: "gd-text" }, worded(verdict.text)),
      verdict.kind ? h("span", { class: "gd-kind" }, verdict.kind) : null,
      verdict.early ? h("span", { class: "gd-early" }, verdict.early) : null),
    verdict.risk ? h("div", { class: "gd-risk" }, verdict.risk) : null,
    advice ? advicePart(advice, blockedBy(state, panel), panel, "top") : h("div", { class: "gd-advice" }));
}

/**
 * Draws an advice: its forecast, a button that tries it, and, folded, the reason and the code.
 * @param {Advice} advice
 * @param {string | null} held id of the element that says why nothing can be started
 * @param {Panel} panel
 * @param {string} where
 */
export function advicePart(advice, held, panel, where) {
  const canTry = Object.keys(advice.settings).length > 0;
  const folded = (/** @type {string} */ what) => `${where}:${what}`;
  const fold = (/** @type {string} */ label, /** @type {string} */ what) => button(label, () => panel.fold(folded(what)), {
    class: "gd-link", "aria-expanded": String(panel.unfolded.has(folded(what))), "data-fold": what,
  });
  const code = canTry ? codeFold(words.code, folded("code"), advice.settings, panel)
    : advice.code ? fold(words.code, "code") : null;
  return h("div", { class: "gd-advice" },
    h("div", { class: "gd-row" },
      h("span", { class: "gd-try" }, advice.hint && where === "top" ? h("span", { class: "gd-soft" }, `${words.worthATrial} `) : null, worded(advice.text.replace(/\.$/, ""))),
      advice.predicted && !advice.hint ? h("span", { class: "gd-predicted" }, advice.predicted) : null,
      h("span", { class: "gd-soft" }, advice.safety),
      canTry ? button(words.tryIt, () => panel.tryIt(advice.settings), {
        class: where === "top" && panel.next === "try" ? "gd-primary" : "", "data-ask": "try", off: held, onpointerenter: () => panel.preview(), onfocus: () => panel.preview(),
      }) : null,
      advice.page.length ? fold(words.why, "why") : null,
      code),
    advice.changes ? h("div", { class: "gd-soft" }, advice.changes) : null,
    !panel.unfolded.has(folded("code")) ? null
      : canTry ? fixPart(advice.settings, advice.code, panel) : codePart(advice.code, panel),
    advice.page.length && panel.unfolded.has(folded("why")) ? pagePart(advice.page) : null);
}

/**
 * Draws the page that explains a cause.
 * @param {import("./contract").Paragraph[]} page
 */
function pagePart(page) {
  return h("div", { class: "gd-page" }, page.map((paragraph) => [paragraph.title ? h("b", {}, paragraph.title) : null,
    paragraph.code ? h("pre", {}, paragraph.text) : h("p", {}, worded(paragraph.text))]));
}

/**
 * Draws the anatomy of the run in progress; after a trial, of both of its sides.
 * @param {State} state
 */
export function anatomyPart({ anatomy, status, labels }) {
  const { segments, ceiling } = anatomy;
  const mark = ceiling ? ceiling.share : null;
  const compared = status === "recording" ? null : anatomy.compared;
  const description = segments.map((segment) => `${segment.label} ${segment.percent}`).join(", ");
  return h("section", { class: "gd-anatomy" },
    h("div", { class: "gd-title" }, h("b", {}, labels.anatomy), h("span", { class: "gd-soft" }, compared ? compared.of : anatomy.of),
      compared ? null : h("b", { class: "gd-total" }, anatomy.total)),
    compared ? comparedPart(compared, mark, labels.asWritten) : [
      barPart(segments, description || words.unmeasured, mark),
      h("div", { class: "gd-chips" }, segments.map((segment) => h("span", { key: segment.phase },
        h("i", { style: `background: ${segment.colour}` }), segment.label, h("b", {}, segment.percent), h("span", { class: "gd-soft" }, segment.time)))),
    ], ceiling ? h("div", { class: "gd-bound" }, h("i", { class: "gd-ceiling", "aria-hidden": "true" }), ceiling.text) : null);
}
