// Draws the panel. Everything shown comes from the kernel as plain data and is put in with textContent, never as HTML.
// The kernel puts BOKEH_VERSION and BOKEH_SOURCE in front of this file.

const LINES_MOST = 2000;

function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "onclick" || name === "onchange" || name === "oninput") element[name] = value;
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(name, value);
  }
  for (const child of children.flat()) if (child !== null && child !== undefined) element.append(child);
  return element;
}

function fill(element, ...children) {
  element.replaceChildren(...children.flat().filter((child) => child !== null && child !== undefined));
}

// ---- BokehJS -----------------------------------------------------------------------------------------------------

function bokeh() {
  if (globalThis.Bokeh?.version !== BOKEH_VERSION) {
    const before = globalThis.define;
    globalThis.define = undefined; // an AMD loader on the page would take the bundle for itself
    try { (0, eval)(BOKEH_SOURCE); } finally { globalThis.define = before; }
  }
  return globalThis.Bokeh;
}

class Charts {
  constructor(element, model) {
    this.element = element;
    this.model = model;
    this.doc = null;
    this.waiting = [];
  }

  async show() {
    const views = await bokeh().embed.embed_item(this.model.get("figure"), this.element);
    const roots = views.roots ?? [...views];
    this.doc = roots[0].model.document;
    this.recolour();
    const rows = this.model.get("rows");
    if (rows && Object.keys(rows).length) this.take(rows);
    for (const lines of this.waiting.splice(0)) this.take(lines);
  }

  take(lines) {
    if (!this.doc) { this.waiting.push(lines); return; }
    const ids = this.model.get("sources");
    for (const [key, said] of Object.entries(lines)) {
      const source = ids[key] && this.doc.get_model_by_id(ids[key]);
      if (!source || !said) continue;
      const y = said.y.map((value) => (value === null ? NaN : value));
      if (said.whole) source.data = { x: said.x, y };
      else if (said.x.length) source.stream({ x: said.x, y }, LINES_MOST);
    }
  }

  rows() {
    const ids = this.model.get("sources");
    if (!this.doc) return 0;
    return Math.max(0, ...Object.values(ids).map((id) => this.doc.get_model_by_id(id)?.data.x?.length ?? 0));
  }

  // The notebook's theme, read off the page: text and grid follow it, the lines keep their colours.
  recolour() {
    if (!this.doc) return;
    const style = getComputedStyle(this.element);
    const ink = style.color;
    for (const one of this.doc._all_models.values()) {
      if (one.type === "LinearAxis") one.setv({
        axis_label_text_color: ink, major_label_text_color: ink, axis_line_color: ink, major_tick_line_color: ink,
        minor_tick_line_color: null, axis_line_alpha: 0.4, major_tick_line_alpha: 0.4, axis_label_text_font_size: "11px",
        major_label_text_font_size: "10px",
      });
      else if (one.type === "Legend") one.setv({ label_text_color: ink });
      else if (one.type === "Title") one.setv({ text_color: ink, text_font_size: "12px" });
      else if (one.type === "Grid") one.setv({ grid_line_color: ink, grid_line_alpha: 0.12 });
    }
  }
}

// ---- parts of the panel ------------------------------------------------------------------------------------------

function copyButton(text) {
  const button = h("button", { type: "button", class: "gd-quiet", title: "Copy these lines" }, "copy");
  button.onclick = async () => {
    try { await navigator.clipboard.writeText(text); button.textContent = "copied"; }
    catch { button.textContent = "select and copy by hand"; }
    setTimeout(() => { button.textContent = "copy"; }, 2000);
  };
  return button;
}

function codeBlock(code) {
  return h("div", { class: "gd-code" }, h("pre", {}, code), copyButton(code));
}

function opened(key, open, summary, ...body) {
  const details = h("details", { "data-key": key }, h("summary", {}, summary), ...body);
  details.open = open.has(key);
  details.addEventListener("toggle", () => (details.open ? open.add(key) : open.delete(key)));
  return details;
}

function verdictCard(verdict, panel) {
  const advice = verdict.advice;
  const children = [
    h("div", { class: "gd-verdict-line" },
      verdict.class ? h("span", { class: "gd-class" }, verdict.class) : null,
      h("span", { class: "gd-verdict-text" }, verdict.text),
      verdict.early ? h("span", { class: "gd-early", title: "Fewer than 20 measured steps" }, "early") : null),
  ];
  if (advice) {
    const canTry = Object.keys(advice.settings).length > 0;
    children.push(h("div", { class: "gd-advice" },
      h("span", {}, advice.text),
      advice.predicted ? h("span", { class: "gd-predicted" }, `predicted ${advice.predicted}`) : null,
      canTry ? h("button", {
        type: "button", class: "gd-primary", disabled: panel.busy(), onclick: () => panel.ask("trial", advice.settings),
      }, "Try it") : null));
    if (advice.code) children.push(opened("verdict-code", panel.open, "code", codeBlock(advice.code)));
    if (advice.changes) children.push(h("div", { class: "gd-note" }, `Changes the training: ${advice.changes}`));
  }
  return children;
}

function anatomyBar(anatomy) {
  if (!anatomy.parts.length) return [h("div", { class: "gd-bar gd-empty" }, "no step measured yet")];
  const bar = h("div", { class: "gd-bar", role: "img", "aria-label": "anatomy of a step" });
  const legend = h("div", { class: "gd-legend" });
  for (const part of anatomy.parts) {
    const piece = h("div", { class: "gd-part", title: `${part.label}: ${part.words}` },
      part.share > 0.07 ? part.label : "");
    piece.style.flexGrow = String(part.share);
    piece.style.background = part.colour;
    bar.append(piece);
    const dot = h("i", {});
    dot.style.background = part.colour;
    legend.append(h("span", {}, dot, `${part.label} `, h("b", {}, part.words)));
  }
  return [h("div", { class: "gd-label" }, "anatomy of a step", h("b", {}, anatomy.step)), bar, legend];
}

function knobControl(knob, panel) {
  const id = `gd-${panel.serial}-${knob.name}`;
  const select = h("select", { id, disabled: Boolean(knob.refusal), "data-knob": knob.name });
  for (const choice of knob.choices) {
    const asWritten = choice.value === knob.found;
    const option = h("option", {
      value: JSON.stringify(choice.value), disabled: Boolean(choice.refusal), title: choice.refusal,
    }, choice.label + (asWritten ? " (as written)" : ""));
    if (choice.value === (panel.picked[knob.name] ?? knob.found)) option.selected = true;
    select.append(option);
  }
  const note = h("span", { class: "gd-note" }, knob.refusal);
  select.onchange = () => {
    const value = JSON.parse(select.value);
    if (value === knob.found) delete panel.picked[knob.name];
    else panel.picked[knob.name] = value;
    note.textContent = value !== knob.found && knob.changes ? `Changes the training: ${knob.changes}` : "";
  };
  if (panel.picked[knob.name] !== undefined && knob.changes) note.textContent = `Changes the training: ${knob.changes}`;
  return h("div", { class: "gd-knob", title: knob.refusal }, h("label", { for: id }, knob.label), select, note);
}

function runsTable(rows) {
  const heads = ["run", "settings", "samples/s", "vs baseline (95 %)", "predicted", "wait", "GPU", "peak mem", "loss"];
  return h("table", {},
    h("thead", {}, h("tr", {}, heads.map((head) => h("th", { scope: "col" }, head)))),
    h("tbody", {}, rows.map((row) => h("tr", {}, row.map((cell) => h("td", {}, cell))))));
}

function findingBlock(finding, number, panel) {
  return opened(`finding-${finding.rule}`, panel.open,
    h("span", {}, `${number} `, h("b", {}, finding.rule), ` ${finding.share}  ${finding.headline}`),
    h("ul", {}, finding.evidence.map((line) => h("li", {}, line))),
    finding.prescriptions.map((one) => [
      h("div", {}, h("b", {}, one.text), one.predicted ? `, predicted ${one.predicted}` : "", ` (${one.safety})`),
      one.code ? codeBlock(one.code) : null,
    ]).flat(),
    opened(`why-${finding.rule}`, panel.open, "why?", h("pre", { class: "gd-page" }, finding.page)));
}

// ---- the panel ---------------------------------------------------------------------------------------------------

let serials = 0;

class Panel {
  constructor(model, el) {
    this.model = model;
    this.serial = ++serials;
    this.picked = {};
    this.open = new Set();
    this.state = null;
    this.drawn = {};
    this.root = h("div", { class: "gpu-doctor", "data-gpu-doctor": "panel" });
    this.parts = Object.fromEntries(["header", "message", "verdict", "anatomy", "charts", "knobs", "runs", "findings", "footer"]
      .map((name) => [name, h("section", { class: `gd-${name}` })]));
    this.parts.verdict.setAttribute("aria-live", "polite");
    this.root.append(...Object.values(this.parts));
    el.append(this.root);
    this.charts = new Charts(this.parts.charts, model);
    el.gpuDoctor = this.root.gpuDoctor = { rows: () => this.charts.rows(), state: () => this.state };
  }

  busy() { return Boolean(this.state?.header.busy); }

  ask(what, settings = this.picked) {
    const steps = Number.parseInt(this.parts.knobs.querySelector("input.gd-steps")?.value ?? "50", 10) || 50;
    const changes = this.parts.knobs.querySelector("input.gd-changes")?.checked ?? false;
    this.model.send({ ask: what, settings, steps, changes_training: changes });
  }

  // Redraws a part only when its data changed: what a person opened, picked or typed stays as it is.
  part(name, data, draw) {
    const said = JSON.stringify(data);
    if (this.drawn[name] === said) return;
    this.drawn[name] = said;
    fill(this.parts[name], draw());
  }

  draw(state) {
    if (!state || !state.header) return;
    this.state = state;
    const busy = state.header.busy;
    this.part("header", state.header, () => [
      h("span", { class: "gd-name" }, "GPU Doctor"),
      h("span", { class: "gd-machine" }, state.header.machine),
      h("span", { class: busy ? "gd-status gd-live" : "gd-status" }, state.header.status),
      h("span", { class: "gd-figures" }, state.header.live),
      h("button", { type: "button", class: "gd-stop", disabled: !busy, onclick: () => this.ask("stop", {}) }, "Stop"),
    ]);
    this.part("message", state.message, () => [state.message]);
    this.parts.message.hidden = !state.message;
    this.part("verdict", [state.verdict, busy], () => verdictCard(state.verdict, this));
    this.part("anatomy", state.anatomy, () => anatomyBar(state.anatomy));
    this.part("knobs", [state.knobs, busy], () => this.knobs(state.knobs, busy));
    this.part("runs", state.rows, () => (state.rows.length ? [runsTable(state.rows)] : []));
    this.part("findings", [state.findings, state.silent], () => [
      ...state.findings.map((finding, i) => findingBlock(finding, i + 1, this)),
      state.silent.length ? opened("silent", this.open, `not judged: ${state.silent.length} rules`,
        h("ul", {}, state.silent.map(([rule, reason]) => h("li", {}, h("b", {}, rule), `: ${reason}`)))) : null,
    ]);
    this.part("footer", state.footer, () => [h("span", {}, state.footer.text),
      ...state.footer.notes.map((note) => h("span", { class: "gd-note" }, note))]);
  }

  knobs(knobs, busy) {
    const typed = this.parts.knobs.querySelector("input.gd-steps")?.value ?? "50";
    const ticked = this.parts.knobs.querySelector("input.gd-changes")?.checked ?? false;
    const button = (label, what, title, primary) => h("button", {
      type: "button", class: primary ? "gd-primary" : "", title, disabled: busy, onclick: () => this.ask(what), "data-ask": what,
    }, label);
    const steps = h("input", { type: "number", class: "gd-steps", min: 1, max: 100000, step: 1, value: typed, id: `gd-${this.serial}-steps` });
    const changes = h("input", { type: "checkbox", class: "gd-changes", id: `gd-${this.serial}-changes` });
    changes.checked = ticked;
    return [
      h("div", { class: "gd-row" }, knobs.filter((knob) => knob.front).map((knob) => knobControl(knob, this))),
      opened("more", this.open, "more", h("div", { class: "gd-row" },
        knobs.filter((knob) => !knob.front).map((knob) => knobControl(knob, this)))),
      h("div", { class: "gd-row gd-actions" },
        h("label", { for: steps.id }, "trial of"), steps, h("span", {}, "steps"),
        button("Rerun as a trial", "trial", "As written and with these settings, in turns, from the same state; everything is put back", true),
        button("Treat: find the best safe settings", "treat", "Tries the advice one by one and keeps what is verified"),
        h("label", { for: changes.id, class: "gd-tick" }, changes, "also what changes the training"),
        button("Run for real with these settings", "real", "The whole cell once more, in your namespace")),
    ];
  }
}

function hideStaticResult(el) {
  const hidden = [];
  const area = el.closest(".jp-OutputArea, .output_area, .cell-output, .output");
  const hide = () => {
    for (const one of area?.querySelectorAll(".gpu-doctor-static") ?? []) {
      const holder = one.closest(".jp-OutputArea-child, .output_subarea") ?? one;
      if (!holder.contains(el) && holder.style.display !== "none") {
        hidden.push([holder, holder.style.display]);
        holder.style.display = "none";
      }
    }
  };
  hide();
  const observer = area ? new MutationObserver(hide) : null;
  observer?.observe(area, { childList: true, subtree: true });
  return () => {
    observer?.disconnect();
    for (const [holder, display] of hidden) holder.style.display = display;
  };
}

function render({ model, el }) {
  const panel = new Panel(model, el);
  const heard = (message) => {
    if (message?.kind === "rows") panel.charts.take(message.lines);
    if (message?.kind === "state") panel.draw(message.state);
  };
  const written = () => panel.draw(model.get("state"));
  model.on("msg:custom", heard);
  model.on("change:state", written);
  written();
  panel.charts.show().catch((error) => {
    panel.parts.charts.textContent = `The plots could not be drawn: ${error.message}. The run goes on.`;
  });
  model.send({ ask: "rows" });
  const show = hideStaticResult(el);
  const unhide = { now: show };
  requestAnimationFrame(() => { unhide.now(); unhide.now = hideStaticResult(el); });
  const theme = new MutationObserver(() => panel.charts.recolour());
  theme.observe(document.body, { attributes: true, attributeFilter: ["data-jp-theme-light", "class"] });
  return () => {
    model.off("msg:custom", heard);
    model.off("change:state", written);
    theme.disconnect();
    unhide.now();
  };
}

export default { render };
