// The widget: one model per panel, any number of views of it. BOKEH_VERSION, BOKEH_SOURCE and the other pieces stand
// in front of this file (bokeh_view.py puts them together).

const UNHEARD_MS = 2500;
const MISSED_MS = 1500;
const MOST_STEPS = 100000;
const MOST_SECONDS = 3600;
const models = new WeakMap();

/** What lives as long as the model: the state, the points, and the views to tell. */
class Live {
  constructor(model) {
    this.model = model;
    this.state = { ...model.get("state") };
    this.points = new Points();
    this.views = new Set();
    this.number = 0;
    this.lost = false;
    const rows = model.get("rows");
    if (rows?.head) this.points.take(rows.head, rows.data);
    model.on("msg:custom", (message, buffers) => this.hear(message, buffers));
    // A page that was loaded while a run goes on has missed what came before: it asks for all of it.
    setTimeout(() => { if (!this.number && this.state.busy) this.ask({ ask: "rows" }); }, MISSED_MS);
  }

  /** A kernel that was restarted takes no message from this panel any more: sending throws. */
  ask(message) {
    try {
      this.model.send(message);
    } catch {
      this.lost = true;
      for (const view of this.views) view.draw();
    }
  }

  hear(message, buffers) {
    if (!message?.rows) return;
    if (message.number > this.number + 1 && this.number === 0 && !message.rows.clear.includes("base")) this.ask({ ask: "rows" });
    this.number = message.number;
    this.state = { ...this.state, ...message.state };
    const changed = this.points.take(message.rows, buffers?.[0]);
    for (const view of this.views) view.told(changed);
  }
}

/** The `model` of `initialize` and that of `render` are two faces of one: what they share is its layout object. */
function liveOf(model) {
  const shared = model.get("layout") ?? model;
  const key = typeof shared === "object" ? shared : model;
  if (!models.has(key)) models.set(key, new Live(model));
  return models.get(key);
}

/** One view: the elements, and what a person chose, folded and typed. */
class Panel {
  constructor(live, el) {
    this.live = live;
    this.id = `gpu-doctor-${numbered()}`;
    this.chosen = {};
    this.grid = {};
    this.unfolded = new Set();
    this.budget = null; // of a trial, as typed
    this.changesTraining = false;
    this.stopping = this.unheard = this.unanswered = false;
    this.copied = this.broken = null;
    this.gone = false;
    this.whole = new Set();
    this.rowCount = 0;
    this.asked = new Map();
    this.nearing = false;
    this.root = document.createElement("div");
    this.root.className = "gpu-doctor";
    this.root.dataset.gpuDoctor = "panel";
    this.top = document.createElement("div");
    this.middle = document.createElement("section");
    this.middle.className = "gd-plots";
    this.bottom = document.createElement("div");
    this.root.append(this.top, this.middle, this.bottom);
    el.append(this.root);
    this.makePlots();
    this.root.gpuDoctor = el.gpuDoctor = { rows: () => this.plots.rows(), state: () => this.live.state, plots: this.plots };
  }

  makePlots() {
    const make = (name) => Object.assign(document.createElement("div"), { className: name });
    this.cells = [];
    this.legends = [];
    const grid = make("gd-grid");
    for (let index = 0; index < 3; index += 1) {
      const box = make("gd-box");
      this.legends.push(make("gd-legend"));
      this.cells.push(Object.assign(make("gd-cell"), { id: `${this.id}-plot-${index}`, role: "group" }));
      box.append(this.legends[index], this.cells[index]);
      grid.append(box);
    }
    this.key = make("gd-key gd-soft");
    this.middle.append(grid, this.key);
    this.plots = new Plots(this.live.points, () => this.drawLegends());
  }

  async showPlots() {
    try {
      await this.plots.show(this.live.model.get("figure"), this.cells);
      this.broken = null;
      this.drawLegends();
    } catch (error) {
      this.broken = `The plots could not be drawn (${error.message}). The run is not affected.`;
      patch(this.key, [this.broken]);
    }
  }

  told({ whole, fresh }) {
    this.unanswered = false;
    this.plots.fill(whole, fresh);
    this.draw();
  }

  draw() {
    const { state } = this.live;
    if (this.gone || !state.header) return;
    this.budget ??= { steps: String(state.trial.steps), seconds: String(state.trial.seconds) };
    if (state.busy) this.nearing = this.unanswered = false;
    else this.stopping = this.unheard = false;
    patch(this.top, [
      headerPart(state, this),
      h("div", { class: "gd-message", role: "status", hidden: !state.message }, state.message || null),
      verdictPart(state, this),
      anatomyPart(state),
    ]);
    this.drawLegends();
    patch(this.bottom, [
      knobsPart(state, this), planPart(state, this), sweepPart(state, this), largestPart(state, this), tablePart(state, this), outputPart(state), findingsPart(state, this), footerPart(state),
    ]);
    this.showNewRow(state.table.rows.length);
  }

  /** Of many rows only some are seen at once: a new one comes into sight. */
  showNewRow(count) {
    const many = count > this.rowCount && this.bottom.querySelector(".gd-many");
    if (many) many.scrollTop = many.scrollHeight;
    this.rowCount = count;
  }

  drawLegends() {
    if (!this.plots.doc || this.broken) return;
    this.plots.figure.plots.forEach((plot, index) => {
      this.cells[index].ariaLabel = `${plot.title} in ${plot.unit} over seconds; the figures are above`;
      patch(this.legends[index], legendPart(plot, this.plots).flat());
    });
    patch(this.key, plotsKeyPart(this.live.points.head, this.plots.pointedAt));
  }

  // ---- what a person does ----------------------------------------------------------------------------------------

  choose(knob, value) {
    if (value === knob.written) delete this.chosen[knob.name];
    else this.chosen[knob.name] = value;
    this.draw();
  }

  reset() { this.chosen = {}; this.draw(); }

  /** Takes a value into the sweep, or out of it. */
  tick(knob, value) {
    const kept = (this.grid[knob.name] ?? []).filter((one) => one !== value);
    const values = kept.length < (this.grid[knob.name] ?? []).length ? kept : [...kept, value];
    if (values.length) this.grid[knob.name] = values;
    else delete this.grid[knob.name];
    this.draw();
  }

  fold(what) {
    if (!this.unfolded.delete(what)) this.unfolded.add(what);
    this.draw();
  }

  /** Unfolds the change of the person's own cells, which the kernel works out when it is asked. */
  foldCode(what, settings) {
    if (!this.unfolded.has(what)) {
      this.asked.set(keyOf(settings), Date.now());
      this.live.ask({ ask: "fix", settings });
      setTimeout(() => this.draw(), UNHEARD_MS);
    }
    this.fold(what);
  }

  /** Whether the kernel has not answered for a while what was unfolded. */
  late(key) { return Date.now() - (this.asked.get(key) ?? 0) >= UNHEARD_MS; }

  showWhole(key) {
    if (!this.whole.delete(key)) this.whole.add(key);
    this.draw();
  }

  /** A person comes near the buttons: what a trial cannot put back is looked up, once a run. */
  near() {
    const { state } = this.live;
    if (this.nearing || state.busy || state.before !== null || !state.table?.rows.length) return;
    this.nearing = true;
    this.live.ask({ ask: "before" });
  }

  turnTo(settings) {
    this.chosen = { ...settings };
    this.draw();
  }

  setBudget(what, text) { this.budget[what] = text; }

  setChanges(on) { this.changesTraining = on; }

  tryIt(settings) {
    this.chosen = { ...settings };
    this.ask("trial");
  }

  ask(what) {
    const { number, state: { trial } } = this.live;
    const within = (given, most, usual) => (given > 0 ? Math.min(given, most) : usual);
    const steps = within(Number.parseInt(this.budget.steps, 10), MOST_STEPS, trial.steps);
    const seconds = within(Number.parseFloat(this.budget.seconds), MOST_SECONDS, trial.seconds);
    this.budget = { steps: String(steps), seconds: String(seconds) }; // what is done is what stands there
    this.live.ask({
      ask: what, settings: ["trial", "real"].includes(what) ? this.chosen : {}, steps, seconds, changes_training: this.changesTraining,
      ...(what === "sweep" ? { grid: this.grid } : {}),
    });
    if (what === "sweep") this.unfolded.delete("sweep");
    setTimeout(() => { this.unanswered = this.live.number === number && !this.live.state.busy; this.draw(); }, UNHEARD_MS);
    this.draw();
  }

  stop() {
    this.stopping = true;
    this.live.ask({ ask: "stop" });
    setTimeout(() => { this.unheard = this.stopping; this.draw(); }, UNHEARD_MS);
    this.draw();
  }

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
    setTimeout(() => { this.copied = null; this.draw(); }, 1500);
  }
}

function initialize({ model }) { liveOf(model); }

function render({ model, el }) {
  const live = liveOf(model);
  const panel = new Panel(live, el);
  const redrawn = () => panel.showPlots();
  const retold = () => { live.state = { ...live.state, ...model.get("state") }; panel.draw(); };
  const theme = new MutationObserver(() => { panel.plots.recolour(panel.cells[0]); panel.drawLegends(); });
  const letKeysGo = keepKeys(panel.root);
  let showStatic = () => {};
  const waiting = whenInPage(el, () => { showStatic = hideStatic(el); panel.showPlots(); });
  theme.observe(document.body, { attributes: true, attributeFilter: ["data-jp-theme-light", "data-jp-theme-name", "class"] });
  live.views.add(panel);
  model.on("change:figure", redrawn);
  model.on("change:state", retold);
  panel.draw();
  return () => {
    clearInterval(waiting);
    theme.disconnect();
    letKeysGo();
    live.views.delete(panel);
    panel.gone = true;
    model.off("change:figure", redrawn);
    model.off("change:state", retold);
    panel.plots.clear();
    showStatic();
  };
}

export default { initialize, render };
