// Searches: the grid of a sweep, and the results of a sweep, a search for the largest batch and a deep look.

import { codeFold, fixPart } from "./code.js";
import { button, filled, switchedOff } from "./elements.js";
import { statusId } from "./header.js";
import { withWorkers, combinations } from "./settings.js";
import { h } from "./vdom.js";
import { words } from "./words.js";

/** @typedef {import("./contract").Knob} Knob */
/** @typedef {import("./contract").PanelState} State */
/** @typedef {import("./knobs").Act} Act */
/** @typedef {import("./panel").Panel} Panel */
/** @typedef {import("./vdom").Drawn} Drawn */

/**
 * Draws further buttons: a sweep, whose grid unfolds, the search for the largest batch or why there is none, an ideal
 * loader, and a deep look.
 * @param {State} state
 * @param {Act} act
 * @param {Panel} panel
 */
export function furtherPart(state, act, panel) {
  const open = panel.unfolded.has("sweep");
  const why = `${panel.id}-no-largest`;
  return [
    h("div", { class: "gd-row gd-further" },
      state.noSweep ? null : button(words.sweep, () => panel.fold("sweep"), { "data-fold": "sweep", "aria-expanded": String(open), tip: words.purposes.sweep, class: "gd-opens" }),
      h("span", { class: "gd-choice" },
        act("largest", words.largest, state.noLargest ? why : null, false),
        state.noLargest ? h("span", { class: "gd-soft gd-fine", id: why }, state.noLargest) : null),
      state.noIdeal ? null : act("ideal", words.ideal, null, false),
      act("look", words.look, null, false)),
    open && !state.noSweep ? gridPart(state, act, panel) : null,
  ];
}

/**
 * Draws the values that a sweep may combine: a row of checkboxes for each knob that can be turned.
 * @param {State} state
 * @param {Act} act
 * @param {Panel} panel
 */
function gridPart(state, act, panel) {
  const some = panel.grid.num_workers?.length ? Math.max(...panel.grid.num_workers.map(Number)) : undefined;
  const knobs = withWorkers(state.knobs, some).filter((knob) => !knob.refusal || panel.grid[knob.name]);
  const whole = panel.unfolded.has("sweep:more");
  const shown = knobs.filter((knob) => knob.front || whole || panel.grid[knob.name]);
  const count = combinations(panel.grid);
  const many = count > state.sweepMost;
  const message = `${panel.id}-sweep-said`;
  const text = filled(!count ? words.sweepEmpty : many ? words.sweepMany : words.sweepCount, { count, most: state.sweepMost });
  return h("div", { class: "gd-grid-of", key: "sweep", role: "group", "aria-label": words.sweepValues },
    h("div", { class: "gd-ticks" }, shown.map((knob) => ticksPart(knob, state.busy, panel))),
    h("div", { class: "gd-row gd-actions" },
      act("sweep", words.sweepRun, !count || many ? message : null, true),
      h("span", { class: many ? "gd-changes" : "gd-soft", role: "status", id: message }, text),
      knobs.some((knob) => !knob.front) ? button(words.moreKnobs, () => panel.fold("sweep:more"), {
        class: "gd-link", "aria-expanded": String(whole), "data-fold": "sweep-more",
      }) : null),
    shown.some(refuses) ? h("ul", { class: "gd-said" }, shown.filter(refuses).map((knob) => refusalPart(knob, panel))) : null,
    changesOf(shown.filter((knob) => panel.grid[knob.name]), panel));
}

/**
 * Draws the checkboxes of one knob.
 * @param {Knob} knob
 * @param {boolean} busy
 * @param {Panel} panel
 */
function ticksPart(knob, busy, panel) {
  const ticked = panel.grid[knob.name] ?? [];
  const name = `${panel.id}-${knob.name}-ticks`;
  return h("div", { class: "gd-tickrow", key: knob.name, role: "group", "aria-labelledby": name },
    h("span", { id: name, class: ticked.length ? "gd-ticked" : "" }, knob.label),
    h("span", { class: "gd-values" }, knob.choices.map(({ value, label, refusal }) => {
      if (value === null) return null;
      const checked = ticked.includes(value);
      const off = busy ? statusId(panel) : (refusal || knob.refusal) && !checked ? refusalId(knob, panel) : null;
      return h("label", { key: String(value), class: refusal ? "gd-off" : "" }, h("input", {
        type: "checkbox", "data-tick": `${knob.name}=${value}`, checked, ...switchedOff(off),
        onclick: off ? (/** @type {Event} */ event) => event.preventDefault() : null, onchange: () => panel.tick(knob, value),
      }), label);
    })));
}

/**
 * Returns true if a knob or one of its values cannot be chosen.
 * @param {Knob} knob
 */
function refuses(knob) { return Boolean(knob.refusal) || knob.choices.some((choice) => choice.refusal); }

/**
 * Returns the id of the line that says why values of a knob cannot be ticked.
 * @param {Knob} knob
 * @param {Panel} panel
 */
function refusalId(knob, panel) { return `${panel.id}-${knob.name}-unticked`; }

/**
 * Draws the reasons why some values of a knob cannot be ticked, each once.
 * @param {Knob} knob
 * @param {Panel} panel
 */
function refusalPart(knob, panel) {
  const reasons = knob.refusal ? [`${words.unchangeable} ${knob.refusal}`] : knob.partly;
  const id = refusalId(knob, panel);
  return h("li", { id, key: id }, reasons.map((text) => h("div", {}, h("b", {}, knob.label), ` ${text}`)));
}

/**
 * Draws what the ticked knobs change in the training.
 * @param {Knob[]} knobs
 * @param {Panel} panel
 */
function changesOf(knobs, panel) {
  return knobs.length ? h("ul", { class: "gd-said" }, knobs.map((knob) => turnedPart(knob, `${panel.id}-${knob.name}-ticked`))) : null;
}

/**
 * Draws what turning a knob does to the training.
 * @param {Knob} knob
 * @param {string} id
 */
export function turnedPart(knob, id) {
  return h("li", { id, key: id, class: knob.safe ? "" : "gd-changes" }, h("b", {}, knob.label), ` ${knob.turned}`);
}

/**
 * Draws a sweep, running or finished: a row for each combination.
 * @param {State} state
 * @param {Panel} panel
 */
export function sweepPart({ sweep, busy, labels }, panel) {
  if (!sweep) return h("section", { class: "gd-plan", hidden: true });
  const found = Object.keys(sweep.settings).length > 0;
  const later = sweep.rows.slice(sweep.first + 1);
  return h("section", { class: "gd-plan gd-sweep" },
    h("div", { class: "gd-row gd-planhead" }, h("b", {}, labels.sweep), h("span", { class: "gd-sum" }, sweep.sentence),
      found ? button(words.setKnobs, () => panel.turnTo(sweep.settings), { class: "gd-link", off: busy && statusId(panel) }) : null,
      found ? codeFold(words.code, "sweep:code", sweep.settings, panel) : null),
    found && panel.unfolded.has("sweep:code") ? fixPart(sweep.settings, "", panel) : null,
    sweptTable(sweep.rows.slice(0, sweep.first + 1), words.sweepHead, words.sweepRows),
    later.length ? h("details", { key: "later" }, h("summary", { class: "gd-soft" }, sweep.later),
      sweptTable(later, words.sweepHead, words.sweepLater)) : null,
    sweep.notes.map((text) => h("div", { class: "gd-note", key: text }, text)));
}

/**
 * Draws a table of combinations.
 * @param {import("./contract").SweepRow[]} rows
 * @param {string[]} head
 * @param {string} label
 */
function sweptTable(rows, head, label) {
  if (!rows.length) return null;
  return h("table", { role: "table", "aria-label": label },
    h("thead", { role: "rowgroup" }, h("tr", { role: "row" },
      head.map((text) => h("th", { role: "columnheader", scope: "col", class: "gd-word" }, text)))),
    h("tbody", { role: "rowgroup" }, rows.map((row, number) => sweptRow(row, head, number))));
}

/**
 * Draws a combination as a row.
 * @param {import("./contract").SweepRow} row
 * @param {string[]} head
 * @param {number} number
 */
function sweptRow(row, head, number) {
  const gain = row.gain && h("span", {}, h("span", { class: "gd-track", "aria-hidden": "true" },
    h("i", { class: row.faster ? "gd-gain" : "gd-was", style: `width: ${(100 * row.share).toFixed(2)}%` })), row.gain);
  const cells = [row.setting, row.state, row.rate, gain, row.losses, row.note];
  return h("tr", { role: "row", key: String(number), class: row.best ? "gd-best" : "" },
    cells.map((cell, index) => h("td", { role: "cell", class: "gd-word", "data-head": head[index] }, cell)));
}

/**
 * Draws the result of the search for the largest batch: each size with its memory and its samples per second.
 * @param {State} state
 * @param {Panel} panel
 */
export function largestPart({ largest, busy, labels }, panel) {
  if (!largest) return h("section", { class: "gd-plan", hidden: true });
  const size = largest.settings.batch_size;
  return h("section", { class: "gd-plan gd-largest" },
    h("div", { class: "gd-row gd-planhead" }, h("b", {}, labels.largest), h("span", { class: "gd-sum" }, largest.sentence),
      size ? button(filled(words.setKnob, { value: String(size) }), () => panel.turnTo(largest.settings), { class: "gd-link", off: busy && statusId(panel) }) : null),
    barsPart(largest.sizes.map((size, number) => barPart(size.label, size.share, !size.peak ? "gd-lost" : size.chosen ? "gd-gain" : "gd-was", size.peak, size.said, number, size.chosen)),
      words.largestBars),
    largest.notes.map((text) => h("div", { class: "gd-note", key: text }, text)));
}

/**
 * Draws the result of a deep look: the operators that take most time, each with its share of the step and its caller.
 * @param {State} state
 */
export function lookPart({ look, labels }) {
  if (!look) return h("section", { class: "gd-plan", hidden: true });
  return h("section", { class: "gd-plan gd-look" },
    h("div", { class: "gd-row gd-planhead" }, h("b", {}, labels.look), h("span", { class: "gd-sum" }, look.sentence)),
    barsPart(look.operators.map((operator, number) => barPart(operator.label, operator.share, "gd-was", operator.peak, operator.said, number, false)), words.lookBars),
    look.notes.map((text) => h("div", { class: "gd-note", key: text }, text)));
}

/**
 * Draws the ranks that the cell started, side by side, below their problems.
 * @param {State} state
 */
export function ranksPart({ ranks }) {
  if (!ranks) return h("section", { class: "gd-plan", hidden: true });
  return h("section", { class: "gd-plan gd-ranks" },
    h("div", { class: "gd-row gd-planhead" }, h("b", {}, words.ranks), h("span", { class: "gd-sum" }, ranks.sentence)),
    ranks.remarks.map(([sentence, todo]) => h("div", { class: "gd-note", key: sentence }, sentence, todo ? h("b", {}, ` ${todo}`) : null)),
    h("div", { class: "gd-scroll", tabindex: "0", role: "region", "aria-label": words.ranks },
      h("table", { role: "table" },
        h("thead", { role: "rowgroup" }, h("tr", { role: "row" }, ranks.head.map((text) => h("th", { role: "columnheader", scope: "col" }, text)))),
        h("tbody", { role: "rowgroup" }, ranks.rows.map((row, number) => h("tr", { role: "row", key: String(number) },
          row.map((cell, index) => h("td", { role: "cell", "data-head": ranks.head[index] }, cell))))))),
    ranks.notes.map((text) => h("div", { class: "gd-soft gd-fine", key: text }, text)));
}

/**
 * Draws a list of bars.
 * @param {Drawn[]} rungs
 * @param {string} label
 */
function barsPart(rungs, label) {
  return rungs.length ? h("div", { class: "gd-waterfall gd-places", role: "table", "aria-label": label }, rungs) : null;
}

/**
 * Draws a bar with its label, its figure and a remark.
 * @param {string} label
 * @param {number} share
 * @param {string} tone
 * @param {string} total
 * @param {string} remark
 * @param {number} number
 * @param {boolean} strong
 */
function barPart(label, share, tone, total, remark, number, strong) {
  return h("div", { class: "gd-rung", role: "row", key: String(number) },
    h("span", { class: strong ? "gd-what gd-strong" : "gd-what", role: "cell" }, label),
    h("span", { class: "gd-track", role: "cell", "aria-hidden": "true" }, h("i", { class: tone, style: `width: ${(100 * share).toFixed(2)}%` })),
    h("b", { role: "cell" }, total),
    h("span", { class: "gd-soft", role: "cell" }, remark));
}
