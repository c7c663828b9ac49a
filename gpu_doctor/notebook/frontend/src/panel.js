// One view of the panel: its elements, and what a person chose, unfolded and typed.

import { anatomyPart, verdictPart } from "./verdict.js";
import { findingsPart, footerPart } from "./findings.js";
import { filled } from "./elements.js";
import { keepFocus } from "./focus.js";
import { forecastKey, toldOf } from "./forecast.js";
import { headerPart } from "./header.js";
import { knobsPart } from "./knobs.js";
import { legendPart, plotsKeyPart } from "./legend.js";
import { numbered } from "./page.js";
import { Plots } from "./plots.js";
import { resultPart } from "./result.js";
import { tablePart } from "./runs_table.js";
import { largestPart, lookPart, ranksPart, sweepPart } from "./searches.js";
import { allowedOf, keyOf, ticked, within } from "./settings.js";
import { planPart } from "./treatment.js";
import { showTips } from "./tips.js";
import { h, patch } from "./vdom.js";
import { words } from "./words.js";

/** @typedef {import("./contract").Request} Request */
/** @typedef {import("./contract").Knob} Knob */
/** @typedef {import("./contract").Settings} Settings */
/** @typedef {import("./contract").PanelState} State */
/** @typedef {import("./contract").Value} Value */

const UNHEARD_MS = 2500;
const COPIED_MS = 1500;

/** @param {string} name */
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
    /** Knobs that were turned and not run yet. @type {Settings} */
    this.chosen = {};
    /** The values ticked for a sweep. @type {import("./settings").Grid} */
    this.grid = {};
    /** @type {Set<string>} */
    this.unfolded = new Set();
    /** Permissions whose boxes are ticked. @type {Set<string>} */
    this.allowed = new Set();
    /** Codes that are shown whole instead of as a diff. @type {Set<string>} */
    this.whole = new Set();
    /** Of a trial, as typed. @type {{ steps: string, seconds: string } | null} */
    this.budget = null;
    this.changesTraining = this.stopping = this.unheard = this.unanswered = this.nearing = this.gone = false;
    /** @type {string | null} */
    this.copied = null;
    /** Why there are no plots. @type {string | null} */
    this.broken = null;
    this.rowCount = 0;
    this.heard = { news: "", text: "" };
    /** When a change of the code, or a forecast, was asked for. @type {Map<string, number>} */
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
    const waits = () => this.sayOfPlots(words.plotsWait);
    try {
      this.broken = null;
      this.plotless(false);
      await this.plots.show(this.live.model, this.cells, waits);
      if (this.plots.doc) this.sayOfPlots(null);
    } catch (error) {
      const said = error instanceof Error ? error.message : String(error);
      this.sayOfPlots(filled(words.plotsFailed, { why: said }));
      this.plotless(true);
    }
  }

  /** @param {string | null} why there are no plots */
  sayOfPlots(why) {
    if (this.gone) return;
    this.broken = why;
    if (why) patch(this.key, [why]);
    else this.drawLegends();
  }

  /** @param {import("./live").Changed} changed */
  told({ whole, fresh }) {
    this.unanswered = false;
    this.plots.fill(whole, fresh);
    this.draw();
  }

  /** What the kernel has told, once it has told all of it at least once. */
  get state() { return this.live.state.header ? /** @type {State} */ (this.live.state) : null; }

  /** Only asked for while there is a state. */
  get labels() { return /** @type {State} */ (this.live.state).labels; }

  /**
   * What a person does next, the one button that stands out: try the advice; use what was proved; with turned knobs try
   * them, or take their code if they are what was proved.
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
    if (state.busy) this.nearing = this.unanswered = false;
    else this.stopping = this.unheard = false;
    patch(this.top, [
      headerPart(state, this),
      h("div", { class: "gd-message", role: "status", hidden: !state.message }, state.message || null),
      h("div", { class: "gd-aloud", role: "status" }, this.aloud(state)),
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
    this.besides();
  }

  /**
   * It stands in the page.
   * @param {(on: boolean) => void} showStatic shows and hides the static result
   */
  stands(showStatic) {
    this.showStatic = showStatic;
    this.besides();
  }

  /** @param {boolean} on whether there are no plots, and none will come */
  plotless(on) {
    this.unplotted = on;
    /** @type {HTMLElement} */ (this.middle.firstElementChild).hidden = on;
    this.besides();
  }

  /** The static result is there where the panel does not tell as much. */
  besides() {
    const { lost, silent } = this.live;
    this.showStatic(lost || silent || this.unplotted);
  }

  /**
   * The verdict for a screen reader: again when it changes in kind or a run begins or ends, not with every figure.
   * @param {State} state
   */
  aloud({ status, verdict }) {
    const news = `${status}: ${verdict.kind}: ${verdict.advice?.text ?? ""}`;
    if (news !== this.heard.news) this.heard = { news, text: verdict.text };
    return this.heard.text;
  }

  /**
   * Of many rows only some are seen at once: a new one comes into sight.
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
   * Does something later, unless the panel is gone by then.
   * @param {() => void} what
   * @param {number} ms
   */
  later(what, ms) {
    const timer = setTimeout(() => { this.timers.delete(timer); what(); }, ms);
    this.timers.add(timer);
  }

  /**
   * The view goes: the figures leave Bokeh, nothing is drawn any more. JupyterLab keeps the element of a view that it has
   * removed: nothing of ours stays in it.
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

  // ---- what a person does ----------------------------------------------------------------------------------------

  /**
   * @param {Knob} knob
   * @param {Value} value
   */
  choose(knob, value) {
    if (value === knob.written || value === null) delete this.chosen[knob.name];
    else this.chosen[knob.name] = value;
    this.foretell();
    this.draw();
  }

  /** Asks for the forecast of what is turned now, unless it was told: that of a single value is sent along. */
  foretell() {
    const { state, chosen } = this;
    const key = forecastKey(chosen);
    if (!state?.forecasts.length || !Object.keys(chosen).length || toldOf(state.forecasts, chosen)) return;
    this.asked.set(key, Date.now());
    this.live.ask({ ask: "forecast", settings: { ...chosen } });
    this.later(() => this.draw(), UNHEARD_MS);
  }

  reset() { this.chosen = {}; this.draw(); }

  /**
   * Takes a value into the sweep, or out of it.
   * @param {Knob} knob
   * @param {NonNullable<Value>} value
   */
  tick(knob, value) {
    this.grid = ticked(this.grid, knob.name, value);
    this.draw();
  }

  /** @param {string} what */
  fold(what) {
    if (!this.unfolded.delete(what)) this.unfolded.add(what);
    this.draw();
  }

  /**
   * Unfolds the change of the person's own cells, which the kernel works out when it is asked.
   * @param {string} what
   * @param {Settings} settings
   */
  foldCode(what, settings) {
    if (!this.unfolded.has(what)) {
      this.asked.set(keyOf(settings), Date.now());
      this.live.ask({ ask: "fix", settings });
      this.later(() => this.draw(), UNHEARD_MS);
    }
    this.fold(what);
  }

  /**
   * Whether the kernel has not answered for a while what was asked for.
   * @param {string} key
   */
  late(key) { return Date.now() - (this.asked.get(key) ?? 0) >= UNHEARD_MS; }

  /** @param {string} key */
  showWhole(key) {
    if (!this.whole.delete(key)) this.whole.add(key);
    this.draw();
  }

  /** A person comes near the buttons: what a trial cannot put back is looked up, once a run. */
  near() {
    const { state } = this;
    if (!state || this.nearing || state.busy || state.before !== null || !state.table.rows.length) return;
    this.nearing = true;
    this.live.ask({ ask: "before" });
  }

  /** @param {Settings} settings */
  turnTo(settings) {
    this.chosen = { ...settings };
    this.foretell();
    this.draw();
  }

  /**
   * @param {"steps" | "seconds"} what
   * @param {string} text
   */
  setBudget(what, text) { if (this.budget) this.budget[what] = text; }

  /** @param {boolean} on */
  setChanges(on) { this.changesTraining = on; }

  /** @param {string} what the permission whose box is ticked, or no longer */
  allow(what) {
    if (!this.allowed.delete(what)) this.allowed.add(what);
    this.draw();
  }

  /** @param {Settings} settings */
  tryIt(settings) {
    this.chosen = { ...settings };
    this.ask("trial");
  }

  /** @param {Request["ask"]} what */
  ask(what) {
    const { state, live, budget } = this;
    if (!state || !budget) return;
    const { trial } = state;
    const heard = live.last;
    const steps = within(Number.parseInt(budget.steps, 10), trial.mostSteps, trial.steps);
    const seconds = within(Number.parseFloat(budget.seconds), trial.mostSeconds, trial.seconds);
    this.budget = { steps: String(steps), seconds: String(seconds) }; // what is done is what stands there
    live.ask({
      ask: what, settings: what === "trial" ? this.chosen : {}, steps, seconds,
      changes_training: this.changesTraining, allow: allowedOf(state, this.allowed), ...(what === "sweep" ? { grid: this.grid } : {}),
    });
    if (what === "sweep") this.unfolded.delete("sweep");
    this.later(() => { this.unanswered = live.last === heard && !live.state.busy; this.draw(); }, UNHEARD_MS);
    this.draw();
  }

  stop() {
    this.stopping = true;
    this.live.ask({ ask: "stop" });
    this.later(() => { this.unheard = this.stopping; this.draw(); }, UNHEARD_MS);
    this.draw();
  }

  /** @param {string} code */
  async copy(code) {
    try {
      await navigator.clipboard.writeText(code);
    } catch { // no permission, or no secure page: the old way
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
