// The verdict, what to try first, and where a mean step goes.

import { barPart, comparedPart } from "./before_after.js";
import { codeFold, codePart, fixPart } from "./code.js";
import { button, worded } from "./elements.js";
import { heldBy } from "./header.js";
import { h } from "./vdom.js";
import { words } from "./words.js";

/** @typedef {import("./contract").Advice} Advice */
/** @typedef {import("./contract").PanelState} State */
/** @typedef {import("./panel").Panel} Panel */

/**
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
    advice ? advicePart(advice, heldBy(state, panel), panel, "top") : h("div", { class: "gd-advice" }));
}

/**
 * What to try: its price, a button that tries it, and, folded, why and the lines to paste.
 * @param {Advice} advice
 * @param {string | null} held the id of what says why nothing can be started
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
        class: where === "top" && panel.next === "try" ? "gd-primary" : "", "data-ask": "try", off: held, onpointerenter: () => panel.near(), onfocus: () => panel.near(),
      }) : null,
      advice.page.length ? fold(words.why, "why") : null,
      code),
    advice.changes ? h("div", { class: "gd-soft" }, advice.changes) : null,
    !panel.unfolded.has(folded("code")) ? null
      : canTry ? fixPart(advice.settings, advice.code, panel) : codePart(advice.code, panel),
    advice.page.length && panel.unfolded.has(folded("why")) ? pagePart(advice.page) : null);
}

/**
 * @param {import("./contract").Paragraph[]} page
 */
function pagePart(page) {
  return h("div", { class: "gd-page" }, page.map((one) => [one.title ? h("b", {}, one.title) : null,
    one.code ? h("pre", {}, one.text) : h("p", {}, worded(one.text))]));
}

/**
 * The run that goes on; after a trial both of its sides.
 * @param {State} state
 */
export function anatomyPart({ anatomy, status, labels }) {
  const { segments, ceiling } = anatomy;
  const mark = ceiling ? ceiling.share : null;
  const compared = status === "recording" ? null : anatomy.compared;
  const said = segments.map((one) => `${one.label} ${one.percent}`).join(", ");
  return h("section", { class: "gd-anatomy" },
    h("div", { class: "gd-title" }, h("b", {}, labels.anatomy), h("span", { class: "gd-soft" }, compared ? compared.of : anatomy.of),
      compared ? null : h("b", { class: "gd-total" }, anatomy.total)),
    compared ? comparedPart(compared, mark, labels.asWritten) : [
      barPart(segments, said || words.unmeasured, mark),
      h("div", { class: "gd-chips" }, segments.map((one) => h("span", { key: one.phase },
        h("i", { style: `background: ${one.colour}` }), one.label, h("b", {}, one.percent), h("span", { class: "gd-soft" }, one.time)))),
    ], ceiling ? h("div", { class: "gd-bound" }, h("i", { class: "gd-ceiling", "aria-hidden": "true" }), ceiling.text) : null);
}
