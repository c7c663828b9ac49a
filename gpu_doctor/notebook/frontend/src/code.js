// Code in the panel: the change to the user's cells as a diff or whole, lines to paste, and the buttons that copy them.

import { button, filled } from "./elements.js";
import { keyOf } from "./settings.js";
import { h } from "./vdom.js";
import { words } from "./words.js";

/** @typedef {import("./contract").Fix} Fix */
/** @typedef {import("./contract").Settings} Settings */
/** @typedef {import("./panel").Panel} Panel */

/**
 * Draws a button that copies text.
 * @param {string} text
 * @param {string} label
 * @param {Panel} panel
 * @param {string} ariaLabel label for a screen reader
 */
function copyButton(text, label, panel, ariaLabel) {
  return button(panel.copied === text ? words.copied : label, () => panel.copy(text), { class: "gd-small", "aria-label": ariaLabel });
}

/**
 * Draws code with a button that copies it.
 * @param {string} code
 * @param {Panel} panel
 */
export function codePart(code, panel) {
  return h("div", { class: "gd-code" }, h("pre", {}, code), copyButton(code, words.copy, panel, words.copyLines));
}

/**
 * Draws the button that folds and unfolds the change for some settings.
 * @param {string} label
 * @param {string} what
 * @param {Settings} settings
 * @param {Panel} panel
 * @param {boolean} primary
 */
export function codeFold(label, what, settings, panel, primary = false) {
  return button(label, () => panel.foldCode(what, settings), {
    class: primary ? "gd-primary" : "gd-link", "aria-expanded": String(panel.unfolded.has(what)), "data-fold": "code",
    tip: words.codeTip,
  });
}

/**
 * Draws the change for some settings. Until the kernel has sent it, the lines to paste are shown, if there are any.
 * @param {Settings} settings
 * @param {string} lines
 * @param {Panel} panel
 */
export function fixPart(settings, lines, panel) {
  const key = keyOf(settings);
  const fix = Object.values(panel.live.state.fixes ?? {}).find((candidate) => keyOf(candidate.settings ?? {}) === key);
  if (fix && !fix.error) return changePart(fix, key, panel);
  const message = fix ? fix.error : panel.late(key) ? words.cellsWait : words.looking;
  return h("div", { class: "gd-fix" },
    h("div", { class: "gd-soft", role: "status" }, message),
    lines ? [h("div", { class: "gd-soft" }, panel.labels.paste), codePart(lines, panel)] : null);
}

/**
 * Draws a change as a diff or as whole cells, as the user chose, then the notes and the lines to paste for the rest.
 * @param {Fix} fix
 * @param {string} key
 * @param {Panel} panel
 */
export function changePart(fix, key, panel) {
  const whole = panel.whole.has(key);
  const single = fix.cells.length === 1;
  const copies = fix.cells.map((cell) => copyButton(cell.text, single ? words.copyWhole : filled(words.copyCell, { cell: cell.label }), panel,
    filled(words.copyChanged, { cell: cell.label })));
  const body = whole
    ? fix.cells.map((cell) => h("div", { key: cell.label }, single ? null : h("div", { class: "gd-soft" }, cell.label),
      h("pre", { class: "gd-diff", tabindex: "0", role: "region", "aria-label": filled(words.whole, { cell: cell.label }) }, h("span", {}, cell.text))))
    : [h("pre", { class: "gd-diff", tabindex: "0", role: "region", "aria-label": words.changedLines },
      fix.lines.map(([kind, text]) => h("span", { class: `gd-${kind}` }, text || " ")))];
  return h("div", { class: "gd-fix" },
    fix.cells.length ? h("div", { class: "gd-row gd-fixhead" },
      button(words.wholeCell, () => panel.showWhole(key), { class: "gd-small gd-toggle", "aria-pressed": String(whole) }), copies) : null,
    fix.cells.length ? body : null,
    fix.notes.map((text) => h("div", { class: "gd-note", key: text }, text)),
    fix.paste ? [h("div", { class: "gd-soft" }, fix.complete ? words.orPaste : panel.labels.paste), codePart(fix.paste, panel)] : null);
}
