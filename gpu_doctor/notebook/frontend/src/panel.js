// One view of the panel: its elements, and what the user chose, unfolded and typed.

import { anatomyPart, verdictPart } from "./verdict.js";
import { findingsPart, footerPart } from "./findings.js";
import { filled } from "./elements.js";
import { keepFocus } from "./focus.js";
import { forecastKey, forecastFor } from "./forecast.js";
import { headerPart } from "./header.js";
import { knobsPart } from "./knobs.js";
import { legendPart, plotsKeyPart } from "./legend.js";
import { numbered } from "./page.js";
import { Plots } from "./plots.js";
import { resultPart } from "./result.js";
import { tablePart } from "./runs_table.js";
import { largestPart, lookPart, ranksPart, sweepPart } from "./searches.js";
import { allowedOf, keyOf, ticked, limited } from "./settings.js";
import { planPart } from "./treatment.js";
import { showTips } from "./tips.js";
import { h, patch } from "./vdom.js";
import { words } from "./words.js";

/** @typedef {import("./contract").Request} Request */
/** @typedef {import("./contract").Knob} Knob */
/** @typedef {import("./contract").Settings} Settings */
/** @typedef {import("./contract").PanelState} State */
/** @typedef {import("./contract").Value} Value */

const UNANSWERED_MS = 2500;
const COPIED_MS = 1500;

/**
 * Makes a `div` of a class.
 * @param {string} name
 */
function made(name) { return Object.assign(document.createElement("div"), { className: name }); }

export class Panel {
  /**
   * @param {import("./live").Live} live
   * @param {HTMLElement & { gpuDoctor?: object }} el
   */
  constructor(live, el) {
    this.live = live;
    this.el = el;
    this.id = `gpu-doctor-${numbered()}`;
    /** Settings that the user chose but has not run yet. @type {Settings} */
    this.chosen = {};
    /** Values ticked for a sweep. @type {import("./settings").Grid} */
    this.grid = {};
    /** @type {Set<string>} */
    this.unfolded = new Set();
    /** Permissions whose checkboxes are ticked. @type {Set<string>} */
    this.allowed = new Set();
    /** Changes that are shown as whole cells instead of as a diff. @type {Set<string>} */
    this.whole = new Set();
    /** Budget of a trial, as typed. @type {{ steps: string, seconds: string } | null} */
    this.budget = null;
    this.changesTraining = this.stopping = this.stopUnanswered = this.unanswered = this.previewing = this.gone = false;
    /** @type {string | null} */
    this.copied = null;
    /** Reason why there are no plots. @type {string | null} */
    this.broken = null;
    this.rowCount = 0;
    this.spoken = { news: "", text: "" };
    /** Time at which a change of the code, or a forecast, was requested. @type {Map<string, number>} */
    this.asked = new Map();
    /** @type {Set<ReturnType<typeof setTimeout>>} */
    this.timers = new Set();
    /** @type {HTMLElement & { gpuDoctor?: object }} */
    this.root = made("gpu-doctor");
    this.root.dataset.gpuDoctor = "panel";
    this.top = made("");
    this.middle = Object.assign(document.createElement("section"), { className: "gd-plots" });
    this.bottom = made("");
    this.root.append(this.top, this.middle, this.bottom);
    el.append(this.root);
    /** @type {HTMLElement[]} */
    this.cells = [];
    /** @type {HTMLElement[]} */
    this.legends = [];
    this.key = made("gd-key gd-soft");
    this.filling = made("gd-filling gd-soft");
    this.plots = new Plots(live.points, () => this.drawLegends());
    this.unplotted = false;
    this.showStatic = (/** @type {boolean} */ _) => {};
    this.makePlots();
    this.endTips = showTips(this.root);
    this.root.gpuDoctor = el.gpuDoctor = { rows: () => this.plots.rows(), state: () => live.state, plots: this.plots, live };
  }

  makePlots() {
    const grid = made("gd-grid");
    for (let index = 0; index < 3; index += 1) {
      const box = made("gd-box");
      const legend = made("gd-legend");
      const cell = Object.assign(made("gd-cell"), { id: `${this.id}-plot-${index}`, role: "group" });
      this.legends.push(legend);
      this.cells.push(cell);
      box.append(legend, cell);
      grid.append(box);
    }
    const below = made("gd-below");
    below.append(this.key, this.filling);
    this.middle.append(grid, below);
  }

  async showPlots() {
    const waits = () => this.showPlotMessage(words.plotsWait);
    try {
      this.broken = null;
      this.hidePlots(false);
      await this.plots.show(this.live.model, this.cells, waits);
      if (this.plots.doc) this.showPlotMessage(null);
    } catch (error) {
      const reason = error instanceof Error ? error.message : String(error);
      this.showPlotMessage(filled(words.plotsFailed, { why: reason }));
      this.hidePlots(true);
    }
  }

  /**
   * Shows the reason why there are no plots, or the legends.
   * @param {string | null} why there are no plots
   */
  showPlotMessage(why) {
    if (this.gone) return;
    this.broken = why;
    if (why) patch(this.key, [why]);
    else this.drawLegends();
  }

  /**
   * Draws the new state and points.
   * @param {import("./live").Changed} changed
   */
  update({ whole, fresh }) {
    this.unanswered = false;
    this.plots.fill(whole, fresh);
    this.draw();
  }

  /** The state from the kernel; null until it is complete. */
  get state() { return this.live.state.header ? /** @type {State} */ (this.live.state) : null; }

  /** The labels in the state; read only while there is a state. */
  get labels() { return /** @type {State} */ (this.live.state).labels; }

  /**
   * The most likely next action, whose button is emphasized: try the advice, or use the proven result. With turned knobs:
   * try them, or show their code if they are the proven result.
   * @returns {"try" | "use" | "trial" | "code"}
   */
  get next() {
    const { result } = this.live.state;
    if (!Object.keys(this.chosen).length) return result ? "use" : "try";
    return result && keyOf(result.settings) === keyOf(this.chosen) ? "code" : "trial";
  }

  draw() { keepFocus(this.root, () => this.redraw()); }

  redraw() {
    const { state } = this;
    if (this.gone || !state) return;
    this.budget ??= { steps: String(state.trial.steps), seconds: String(state.trial.seconds) };
    if (state.busy) this.previewing = this.unanswered = false;
    else this.stopping = this.stopUnanswered = false;
    patch(this.top, [
      headerPart(state, this),
      h("div", { class: "gd-message", role: "status", hidden: !state.message }, state.message || null),
      h("div", { class: "gd-aloud", role: "status" }, this.spokenVerdict(state)),
      resultPart(state, this),
      verdictPart(state, this),
      anatomyPart(state),
    ]);
    this.drawLegends();
    patch(this.filling, [state.filling && `${words.inMemory} ${state.filling}`]);
    patch(this.bottom, [
      knobsPart(state, this), planPart(state, this), sweepPart(state, this), largestPart(state, this), lookPart(state), ranksPart(state),
      tablePart(state, this), findingsPart(state, this), footerPart(state),
    ]);
    this.showNewRow(state.table.rows.length);
    this.updateStatic();
  }

  /**
   * Called once the panel is in the page.
   * @param {(on: boolean) => void} showStatic shows and hides the static result
   */
  entered(showStatic) {
    this.showStatic = showStatic;
    this.updateStatic();
  }

  /**
   * Hides the plots, or shows them again.
   * @param {boolean} on true if there are no plots and none will come
   */
  hidePlots(on) {
    this.unplotted = on;
    /** @type {HTMLElement} */ (this.middle.firstElementChild).hidden = on;
    this.updateStatic();
  }

  /** Shows the static result if the panel itself shows less. */
  updateStatic() {
    const { lost, silent } = this.live;
    this.showStatic(lost || silent || this.unplotted);
  }

  /**
   * Returns the verdict for a screen reader. The text changes with the kind of verdict and the status, not every figure.
   * @param {State} state
   */
  spokenVerdict({ status, verdict }) {
    const news = `${status}: ${verdict.kind}: ${verdict.advice?.text ?? ""}`;
    if (news !== this.spoken.news) this.spoken = { news, text: verdict.text };
    return this.spoken.text;
  }

  /**
   * Scrolls a long table to its end when a row was added.
   * @param {number} count
   */
  showNewRow(count) {
    const many = count > this.rowCount ? this.bottom.querySelector(".gd-many") : null;
    if (many) many.scrollTop = many.scrollHeight;
    this.rowCount = count;
  }

  drawLegends() {
    const { figure, doc } = this.plots;
    if (!doc || !figure || this.broken) return;
    figure.plots.forEach((plot, index) => {
      const [cell, legend] = [this.cells[index], this.legends[index]];
      if (!cell || !legend) return;
      cell.ariaLabel = filled(words.plot, { title: plot.title, unit: plot.unit });
      patch(legend, legendPart(plot, this.plots, figure));
    });
    patch(this.key, plotsKeyPart(this.live.points.head, this.plots.pointedAt));
  }

  /**
   * Calls a function later, unless the panel is closed before.
   * @param {() => void} what
   * @param {number} ms
   */
  later(what, ms) {
    const timer = setTimeout(() => { this.timers.delete(timer); what(); }, ms);
    this.timers.add(timer);
  }

  /**
   * Closes the view: removes the figures from Bokeh and stops drawing. JupyterLab holds the element of a removed view, so
   * everything of ours is removed from it.
   */
  close() {
    this.gone = true;
    for (const timer of this.timers) clearTimeout(timer);
    this.plots.clear();
    this.endTips();
    this.showStatic = () => {};
    this.root.remove();
    delete this.root.gpuDoctor;
    delete this.el.gpuDoctor;
  }

  // ---- actions of the user ---------------------------------------------------------------------------------------

  /**
   * Turns a knob.
   * @param {Knob} knob
   * @param {Value} value
   */
  choose(knob, value) {
    if (value === knob.written || value === null) delete this.chosen[knob.name];
    else this.chosen[knob.name] = value;
    this.requestForecast();
    this.draw();
  }

  /** Requests the forecast for the chosen settings, unless the state has it, as for every single value. */
  requestForecast() {
    const { state, chosen } = this;
    const key = forecastKey(chosen);
    if (!state?.forecasts.length || !Object.keys(chosen).length || forecastFor(state.forecasts, chosen)) return;
    this.asked.set(key, Date.now());
    this.live.ask({ ask: "forecast", settings: { ...chosen } });
    this.later(() => this.draw(), UNANSWERED_MS);
  }

  reset() { this.chosen = {}; this.draw(); }

  /**
   * Adds a value to the sweep, or removes it.
   * @param {Knob} knob
   * @param {NonNullable<Value>} value
   */
  tick(knob, value) {
    this.grid = ticked(this.grid, knob.name, value);
    this.draw();
  }

  /**
   * Folds or unfolds a part of the panel.
   * @param {string} what
   */
  fold(what) {
    if (!this.unfolded.delete(what)) this.unfolded.add(what);
    this.draw();
  }

  /**
   * Folds or unfolds the change to the user's cells, which the kernel computes on request.
   * @param {string} what
   * @param {Settings} settings
   */
  foldCode(what, settings) {
    if (!this.unfolded.has(what)) {
      this.asked.set(keyOf(settings), Date.now());
      this.live.ask({ ask: "fix", settings });
      this.later(() => this.draw(), UNANSWERED_MS);
    }
    this.fold(what);
  }

  /**
   * Returns true if the kernel has not answered a request for a while.
   * @param {string} key
   */
  late(key) { return Date.now() - (this.asked.get(key) ?? 0) >= UNANSWERED_MS; }

  /**
   * Shows a change as whole cells, or as a diff again.
   * @param {string} key
   */
  showWhole(key) {
    if (!this.whole.delete(key)) this.whole.add(key);
    this.draw();
  }

  /** Requests the sentences on what a trial cannot restore, once per run, when the pointer comes near the buttons. */
  preview() {
    const { state } = this;
    if (!state || this.previewing || state.busy || state.before !== null || !state.table.rows.length) return;
    this.previewing = true;
    this.live.ask({ ask: "before" });
  }

  /**
   * Sets the knobs to some settings.
   * @param {Settings} settings
   */
  turnTo(settings) {
    this.chosen = { ...settings };
    this.requestForecast();
    this.draw();
  }

  /**
   * Stores what the user types as the budget of a trial.
   * @param {"steps" | "seconds"} what
   * @param {string} text
   */
  setBudget(what, text) { if (this.budget) this.budget[what] = text; }

  /**
   * Stores whether a treatment may change batch size and precision.
   * @param {boolean} on
   */
  setChanges(on) { this.changesTraining = on; }

  /**
   * Ticks a permission, or removes the tick.
   * @param {string} what the permission
   */
  allow(what) {
    if (!this.allowed.delete(what)) this.allowed.add(what);
    this.draw();
  }

  /**
   * Sets the knobs to some settings and requests a trial of them.
   * @param {Settings} settings
   */
  tryIt(settings) {
    this.chosen = { ...settings };
    this.ask("trial");
  }

  /**
   * Sends a request that reruns the cell.
   * @param {Request["ask"]} what
   */
  ask(what) {
    const { state, live, budget } = this;
    if (!state || !budget) return;
    const { trial } = state;
    const lastMessage = live.last;
    const steps = limited(Number.parseInt(budget.steps, 10), trial.mostSteps, trial.steps);
    const seconds = limited(Number.parseFloat(budget.seconds), trial.mostSeconds, trial.seconds);
    this.budget = { steps: String(steps), seconds: String(seconds) }; // the fields show what is sent
    live.ask({
      ask: what, settings: what === "trial" ? this.chosen : {}, steps, seconds,
      changes_training: this.changesTraining, allow: allowedOf(state, this.allowed), ...(what === "sweep" ? { grid: this.grid } : {}),
    });
    if (what === "sweep") this.unfolded.delete("sweep");
    this.later(() => { this.unanswered = live.last === lastMessage && !live.state.busy; this.draw(); }, UNANSWERED_MS);
    this.draw();
  }

  /** Requests a stop. */
  stop() {
    this.stopping = true;
    this.live.ask({ ask: "stop" });
    this.later(() => { this.stopUnanswered = this.stopping; this.draw(); }, UNANSWERED_MS);
    this.draw();
  }

  /**
   * Copies code to the clipboard.
   * @param {string} code
   */
  async copy(code) {
    try {
      await navigator.clipboard.writeText(code);
    } catch { // no permission, or not a secure page: the old method
      const area = document.createElement("textarea");
      area.value = code;
      this.root.append(area);
      area.select();
      document.execCommand("copy");
      area.remove();
    }
    this.copied = code;
    this.draw();
    this.later(() => { this.copied = null; this.draw(); }, COPIED_MS);
  }
}
