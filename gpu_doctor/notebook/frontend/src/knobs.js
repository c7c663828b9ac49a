// The knobs, the budget of a trial, and the buttons that start something.

import { codeFold, fixPart } from "./code.js";
import { button, tipped } from "./elements.js";
import { forecastId, forecastPart } from "./forecast.js";
import { blockedBy, noTrialsId } from "./header.js";
import { furtherPart, turnedPart } from "./searches.js";
import { withWorkers } from "./settings.js";
import { h } from "./vdom.js";
import { words } from "./words.js";

/** @typedef {import("./contract").Knob} Knob */
/** @typedef {import("./contract").PanelState} State */
/** @typedef {import("./panel").Panel} Panel */

/**
 * Draws a knob as a list of its values.
 * @param {Knob} knob
 * @param {Knob[]} knobs
 * @param {Panel} panel
 */
function knobPart(knob, knobs, panel) {
  const id = `${panel.id}-${knob.name}`;
  const chosen = panel.chosen[knob.name] ?? knob.written;
  const choices = knob.choices.some((choice) => choice.value === chosen)
    ? knob.choices : [...knob.choices, { value: chosen, label: chosen === null ? "–" : String(chosen), refusal: "" }];
  const moved = panel.chosen[knob.name] !== undefined;
  const refused = Boolean(knob.refusal) && !moved;
  return h("div", { class: moved ? "gd-knob gd-moved" : "gd-knob", key: knob.name },
    h("label", { for: id }, knob.label),
    h("select", {
      id, "data-knob": knob.name, "aria-disabled": refused ? "true" : null,
      "aria-describedby": knob.refusal || moved ? `${panel.id}-${sharedLine(knob, knobs)}-said` : null,
      value: String(choices.findIndex((choice) => choice.value === chosen)),
      onchange: (/** @type {{ target: HTMLSelectElement }} */ { target }) => panel.choose(knob, choices[Number(target.value)]?.value ?? null),
    }, choices.map((choice, index) => h("option", {
      value: String(index), disabled: Boolean(choice.refusal) || (refused && choice.value !== chosen),
    }, choice.label))));
}

/**
 * Returns the name of the knob whose line says why this knob is switched off: knobs with the same reason share a line.
 * @param {Knob} knob
 * @param {Knob[]} knobs
 */
function sharedLine(knob, knobs) {
  const same = knob.refusal ? knobs.find((other) => other.refusal === knob.refusal) : knob;
  return (same ?? knob).name;
}

/**
 * Draws the lines under the knobs: why some are switched off, one line per reason, and what the turned knobs change.
 * @param {Knob[]} knobs
 * @param {Panel} panel
 */
function knobSentences(knobs, panel) {
  const lines = knobs.flatMap((knob) => {
    const id = `${panel.id}-${knob.name}-said`;
    const moved = panel.chosen[knob.name] !== undefined;
    if (knob.refusal) {
      const alike = knobs.filter((other) => other.refusal === knob.refusal);
      const names = h("b", {}, alike.map((other) => other.label).join(", "));
      return alike[0] === knob ? [h("li", { id, key: id }, names, ` ${words.unchangeable} ${knob.refusal}`)] : [];
    }
    const items = knob.partly.map((text) => h("li", { key: text }, h("b", {}, knob.label), ` ${text}`));
    if (moved) items.unshift(turnedPart(knob, id));
    return items;
  });
  return lines.length ? h("ul", { class: "gd-said" }, lines) : null;
}

/** @typedef {(what: keyof typeof words.purposes, label: string, why: string | null, primary: boolean) => import("./vdom").Drawn} Act Draws a button that sends a request; `why` is the id of the element that says why it is switched off. */

/**
 * Draws the knobs and the buttons below them.
 * @param {State} state
 * @param {Panel} panel
 */
export function knobsPart(state, panel) {
  const { knobs: offered, before, noTrials, labels } = state;
  const knobs = withWorkers(offered, panel.chosen.num_workers);
  const front = knobs.filter((knob) => knob.front);
  const more = knobs.filter((knob) => !knob.front);
  const moved = Object.keys(panel.chosen).length;
  const none = `${panel.id}-no-knob`;
  const unknown = knobs.length > 0 && knobs.every((knob) => (knob.choices[0]?.value ?? null) === null);
  /** @type {Act} */
  const act = (what, label, why, primary) => button(label, () => panel.ask(what), {
    class: primary ? "gd-primary" : "", "data-ask": what, tip: words.purposes[what], off: blockedBy(state, panel) ?? (unknown ? none : why),
    onpointerenter: () => panel.preview(), onfocus: () => panel.preview(),
  });
  const open = panel.unfolded.has("more");
  return h("section", { class: "gd-knobs" },
    h("div", { class: "gd-row" }, front.map((knob) => knobPart(knob, knobs, panel)),
      act("trial", words.trial, moved ? null : forecastId(panel), panel.next === "trial"),
      forecastPart(state, panel)),
    moved ? h("div", { class: "gd-row gd-actions", key: "moved" },
      button(labels.asWritten, () => panel.reset(), { class: "gd-link", tip: words.resetTip, key: "reset", "data-reset": "" }),
      codeFold(words.codeOfThese, "chosen", panel.chosen, panel, panel.next === "code")) : null,
    noTrials ? h("div", { class: "gd-soft", id: noTrialsId(panel), key: "no-trials" }, noTrials) : null,
    unknown ? h("div", { class: "gd-soft", id: none }, knobs[0]?.refusal) : knobSentences(front, panel),
    h("div", { class: "gd-row gd-actions" },
      act("treat", words.treat, null, false),
      h("label", { class: "gd-tick" },
        h("input", { type: "checkbox", checked: panel.changesTraining, onchange: (/** @type {{ target: HTMLInputElement }} */ { target }) => panel.setChanges(target.checked) }),
        words.treatMore),
      button(more.some((knob) => panel.chosen[knob.name] !== undefined) ? words.moreTurned : words.more, () => panel.fold("more"), {
        class: "gd-link", "aria-expanded": String(open), "data-fold": "more",
      })),
    unknown || noTrials ? null : allowPart(before ?? [], panel),
    open ? h("div", { class: "gd-row gd-more", key: "more" }, more.map((knob) => knobPart(knob, knobs, panel))) : null,
    open && !unknown ? knobSentences(more, panel) : null,
    open ? h("div", { class: "gd-row gd-actions", key: "further" }, noTrials ? null : budgetPart(state, panel)) : null,
    open && !unknown ? furtherPart(state, act, panel) : null,
    moved && panel.unfolded.has("chosen") ? fixPart(panel.chosen, "", panel) : null,
    unknown || noTrials ? null : beforePart(before ?? [], panel));
}

/**
 * Draws the budget of a trial: the steps of a side, and the seconds of the whole trial.
 * @param {State} state
 * @param {Panel} panel
 */
function budgetPart({ trial }, panel) {
  const field = (/** @type {"steps" | "seconds"} */ what, /** @type {string} */ label, /** @type {import("./vdom").Attributes} */ limits) => h("input", {
    type: "number", ...limits, value: panel.budget?.[what], "data-budget": what, "aria-label": label, ...tipped(words.budgetTip), oninput: (/** @type {{ target: HTMLInputElement }} */ { target }) => panel.setBudget(what, target.value),
  });
  return h("span", { class: "gd-steps", role: "group", "aria-label": words.length }, words.lengthBefore,
    field("steps", words.lengthOfSide, { min: "5", step: "5", max: String(trial.mostSteps) }), words.lengthSteps,
    field("seconds", words.lengthOfTrial, { min: "1", step: "10", max: String(trial.mostSeconds) }), words.lengthSeconds);
}

/**
 * Draws what a trial cannot restore, before the click, without refusals that the user has allowed. What it restores is
 * folded.
 * @param {NonNullable<State["before"]>} notices
 * @param {Panel} panel
 */
function beforePart(notices, panel) {
  const bad = notices.filter((notice) => notice.tone && !panel.allowed.has(notice.allow));
  const notes = [words.before, ...notices.filter((notice) => !notice.tone).map((notice) => notice.text)];
  const item = (/** @type {string} */ text, /** @type {string} */ tone) => h("li", { key: text, class: tone }, text);
  return h("div", { class: "gd-said gd-before", key: "before" },
    bad.length ? h("ul", { class: "gd-said" }, bad.map(({ text }) => item(text, "gd-changes"))) : null,
    h("details", { key: "restores" },
      h("summary", { onpointerenter: () => panel.preview(), onfocus: () => panel.preview() }, words.restores),
      h("ul", {}, notes.map((text) => item(text, "")))));
}

/**
 * Draws a checkbox for each permission without which a trial would be refused.
 * @param {NonNullable<State["before"]>} notices
 * @param {Panel} panel
 */
function allowPart(notices, panel) {
  return notices.filter((notice) => notice.allow).map(({ allow, tick }) => h("div", { class: "gd-row gd-actions", key: `allow-${allow}` },
    h("label", { class: "gd-tick" },
      h("input", { type: "checkbox", "data-allow": allow, checked: panel.allowed.has(allow), onchange: () => panel.allow(allow) }), tick)));
}
