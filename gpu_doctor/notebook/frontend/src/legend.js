// The legends above the plots, with a switch for each line and its value, and the key below them.

import { button, filled } from "./elements.js";
import { figure } from "./settings.js";
import { h } from "./vdom.js";
import { words } from "./words.js";

/** Bokeh's dashes -> border styles of CSS. @type {Record<string, string>} */
const STROKES = { dashed: "dashed", dotted: "dotted", dotdash: "dashed" };

/**
 * Draws the title and legend of a plot: a switch per line, with its value now or at the pointer. Bokeh draws the plot.
 * @param {import("./figure").Plot} plot
 * @param {import("./plots").Plots} plots
 * @param {import("./figure").Figure} written format of the figures
 */
export function legendPart(plot, plots, written) {
  const { points, pointedAt } = plots;
  const valuesOf = (/** @type {string} */ key) => {
    const [now, then] = ["base", "trial"].map((layer) => points.value(`${layer}:${key}`, pointedAt));
    const baseValue = figure(now ?? null, plot.decimals, written);
    const trialValue = points.head.names.trial && typeof then === "number" ? figure(then, plot.decimals, written) : baseValue;
    return trialValue === baseValue ? baseValue : `${baseValue} → ${trialValue}`;
  };
  return [
    h("b", {}, plot.title), h("span", { class: "gd-soft gd-unit" }, plot.unit),
    plot.lines.filter((line) => points.drawn(line.key)).map((line) => {
      const style = `border-top: 3px ${STROKES[line.dash] ?? "solid"} ${plots.colour(line)}`;
      return button([h("i", { style }), h("span", {}, line.label), h("b", {}, valuesOf(line.key))], () => plots.toggle(line.key), {
        key: line.key, class: "gd-line", tip: filled(words.lineTip, { line: line.title }), "aria-pressed": String(!plots.hidden.has(line.key)),
      });
    }),
  ];
}

/**
 * Draws the key below the plots: the moment shown, and the meaning of marks and lines.
 * @param {import("./contract").Points} head
 * @param {number | null} pointedAt
 */
export function plotsKeyPart(head, pointedAt) {
  const parts = [h("span", {}, pointedAt === null ? words.secondsSince : filled(words.pointedAt, { seconds: pointedAt.toFixed(2) }))];
  if (head.epochs.length) parts.push(h("span", {}, h("i", { class: "gd-mark gd-epoch" }), words.epoch));
  if (head.evaluations.length) parts.push(h("span", {}, h("i", { class: "gd-mark gd-evaluation" }), words.evaluation));
  if (head.names.trial) {
    parts.push(h("span", {}, h("i", { class: "gd-thin" }), head.names.base ?? ""));
    parts.push(h("span", {}, h("i", { class: "gd-broad" }), head.names.trial));
  }
  return parts;
}
