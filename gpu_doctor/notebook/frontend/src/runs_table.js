// The table of runs and trials, and the details that a row unfolds.

import { button, tipped } from "./elements.js";
import { codeFold, fixPart } from "./code.js";
import { h } from "./vdom.js";
import { words } from "./words.js";

/** @typedef {import("./contract").PanelState} State */
/** @typedef {import("./contract").Unfolded} Unfolded */
/** @typedef {import("./panel").Panel} Panel */

const MANY_ROWS = 12;

/**
 * Draws the table of runs and trials.
 * @param {State} state
 * @param {Panel} panel
 */
export function tablePart({ table }, panel) {
  if (!table.rows.length) return h("section", { class: "gd-runs", hidden: true });
  const wordy = (/** @type {number} */ index) => (index < 2 ? "gd-word" : "");
  const drawn = table.rows.flatMap((row, number) => rowParts(row, table.details[number] ?? null, number, table.head, panel));
  const many = table.rows.length > MANY_ROWS;
  return h("section", { class: "gd-runs" }, h("div", { class: many ? "gd-scroll gd-many" : "gd-scroll", tabindex: "0", role: "region", "aria-label": words.runs },
    // Explicit roles: without them, a table with stacked cells, as in a narrow panel, is no table for a screen reader.
    h("table", { role: "table" },
      h("thead", { role: "rowgroup" }, h("tr", { role: "row" },
        table.head.map((text, index) => h("th", { role: "columnheader", scope: "col", class: wordy(index) }, text)))),
      h("tbody", { role: "rowgroup" }, drawn))));
}

/**
 * Draws a row, and below it the details that it unfolds.
 * @param {import("./contract").Cell[]} row
 * @param {Unfolded | null} detail
 * @param {number} number
 * @param {string[]} head
 * @param {Panel} panel
 */
function rowParts(row, detail, number, head, panel) {
  const what = `row${number}`;
  const open = panel.unfolded.has(what);
  const name = (/** @type {import("./contract").Cell} */ cell) => (detail ? button(cell.text, () => panel.fold(what), {
    class: "gd-link gd-rowname", "aria-expanded": String(open), "data-fold": "row", tip: cell.title || words.rowTip,
  }) : figurePart(cell));
  const cells = row.map((cell, index) => h("td", {
    role: "cell", class: `${index < 2 ? "gd-word" : ""} ${cell.tone ? `gd-${cell.tone}` : ""}`,
    "data-head": head[index], "data-tip": cell.title || null,
  }, index === 0 ? name(cell) : detail ? cell.text : figurePart(cell), cell.small ? h("div", { class: "gd-step" }, cell.small) : null));
  const rows = [h("tr", { role: "row", key: what }, cells)];
  if (detail && open) {
    rows.push(h("tr", { role: "row", key: `${what}-more`, class: "gd-detail" },
      h("td", { role: "cell", colspan: String(head.length) }, detailPart(detail, tooltipsOf(row, head), what, panel))));
  }
  return rows;
}

/**
 * Draws a figure of a row without details; its tooltip can be reached with the keyboard.
 * @param {import("./contract").Cell} cell
 */
function figurePart(cell) { return cell.title ? h("span", { tabindex: "0", role: "note", ...tipped(cell.title) }, cell.text) : cell.text; }

/**
 * Returns the tooltips of a row's figures, which the details repeat.
 * @param {import("./contract").Cell[]} row
 * @param {string[]} head
 */
function tooltipsOf(row, head) {
  return row.flatMap(({ title }, index) => (title && index ? [`${head[index]}: ${title}`] : [])); // `measured` has the first one
}

/**
 * Draws the details of a trial: losses, notes, figures and code.
 * @param {Unfolded} detail
 * @param {string[]} tooltips
 * @param {string} what
 * @param {Panel} panel
 */
function detailPart(detail, tooltips, what, panel) {
  const { labels } = panel;
  const code = `${what}:code`;
  return h("div", { class: "gd-more-of" },
    detail.losses ? h("figure", {},
      h("img", { src: detail.losses, alt: `${labels.losses}: ${detail.judged.join(" ")}`, width: "340", height: "132" }),
      h("figcaption", {}, h("span", {}, h("i", { class: "gd-side" }), labels.baseline), h("span", {}, h("i", { class: "gd-side gd-candidate" }), labels.candidate),
        h("span", { class: "gd-soft" }, labels.losses))) : null,
    h("div", { class: "gd-said-of" },
      detail.judged.map((text, index) => h("div", { key: text, class: index ? "gd-soft" : detail.warns ? "gd-judged gd-warns" : "gd-judged" }, text)),
      detail.losses || detail.judged.length ? null : h("div", { class: "gd-soft" }, words.noLosses),
      detail.notes.length ? h("ul", {}, detail.notes.map((text) => h("li", { key: text }, text))) : null,
      detail.measured ? h("div", { class: "gd-soft" }, detail.measured) : null,
      tooltips.length ? h("div", { class: "gd-soft" }, tooltips.join(" · ")) : null,
      codeFold(words.code, code, detail.settings, panel),
      panel.unfolded.has(code) ? fixPart(detail.settings, "", panel) : null));
}
