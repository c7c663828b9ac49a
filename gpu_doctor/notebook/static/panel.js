// src/ground.js
var LATER_MS = 400;
var THEME = ["class", "style", "theme", "data-jp-theme-light", "data-jp-theme-name", "data-theme"];
var [PAPER, SLATE] = ["rgb(255, 255, 255)", "rgb(30, 30, 30)"];
function rgba(text) {
  const numbers = (text.match(/-?[\d.]+(e-?\d+)?/g) ?? []).map(Number);
  const scale = text.startsWith("color(") ? 255 : 1;
  const [red = 0, green = 0, blue = 0, alpha = numbers.length ? 1 : 0] = numbers;
  return [red * scale, green * scale, blue * scale, alpha];
}
function luminance([red, green, blue]) {
  const [r = 0, g = 0, b = 0] = [red, green, blue].map((one) => {
    const share = one / 255;
    return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}
function isDark(colour) {
  return luminance(rgba(colour)) < 0.179;
}
function groundOf(element) {
  for (let one = element.parentElement; one; one = one.parentElement) {
    const { backgroundColor } = getComputedStyle(one);
    if (rgba(backgroundColor)[3] === 1) return backgroundColor;
  }
  return isDark(getComputedStyle(element.parentElement ?? element).color) ? PAPER : SLATE;
}
function followGround(root, changed) {
  let ground = "";
  const look = () => {
    const now = root.isConnected ? groundOf(root) : ground;
    if (now === ground) return;
    ground = now;
    root.style.setProperty("--gd-ground", ground);
    root.classList.toggle("gd-dark", isDark(ground));
    changed();
  };
  let later;
  const twice = () => {
    look();
    clearTimeout(later);
    later = setTimeout(look, LATER_MS);
  };
  const named = new MutationObserver(twice);
  for (const one of [document.documentElement, document.body]) named.observe(one, { attributes: true, attributeFilter: THEME });
  const sheets = new MutationObserver(twice);
  sheets.observe(document.head, { childList: true });
  document.head.addEventListener("load", twice, true);
  const system = matchMedia("(prefers-color-scheme: dark)");
  system.addEventListener("change", twice);
  twice();
  return () => {
    clearTimeout(later);
    named.disconnect();
    sheets.disconnect();
    document.head.removeEventListener("load", twice, true);
    system.removeEventListener("change", twice);
  };
}

// src/messages.js
var PATIENCE = 20;
var Messages = class {
  /** @param {number} last number of the message up to which the page has everything. */
  constructor(last = 0) {
    this.last = last;
    this.whole = last;
    this.missing = false;
    this.askedAt = null;
    this.patience = PATIENCE;
  }
  /**
   * @param {{ seq: number, kind: string }} message
   * @returns {{ take: "all" | "news" | "nothing", ask: boolean }}
   */
  heard({ seq, kind }) {
    if (kind === "state") return this.heardAll(seq);
    if (seq <= this.last) return { take: "nothing", ask: false };
    if (seq > this.last + 1) this.missing = true;
    this.last = seq;
    if (!this.missing) this.whole = seq;
    return { take: "news", ask: this.missing && this.due() };
  }
  /** @param {number} seq */
  heardAll(seq) {
    this.askedAt = null;
    if (seq < this.last) {
      this.missing = true;
      return { take: (
        /** @type {const} */
        "nothing"
      ), ask: true };
    }
    this.last = this.whole = seq;
    this.missing = false;
    this.patience = PATIENCE;
    return { take: (
      /** @type {const} */
      "all"
    ), ask: false };
  }
  due() {
    return this.askedAt === null || this.last - this.askedAt >= this.patience;
  }
  /**
   * The question for all; noted, so that it is asked once.
   * @returns {import("./contract").Ask}
   */
  question() {
    if (this.askedAt !== null) this.patience *= 2;
    this.askedAt = this.last;
    return { ask: "state", have: this.whole };
  }
};

// src/points.js
var NEWEST_S = 2;
var NICE = [1, 1.5, 2, 3, 4, 5, 6, 8, 10];
var Points = class {
  constructor() {
    this.lines = /* @__PURE__ */ new Map();
    this.head = { clear: [], lines: [], names: {}, end: 0, tops: {}, epochs: [], evaluations: [] };
  }
  /**
   * Takes in what a message brings.
   * @param {Head} head
   * @param {ArrayBufferView | undefined} buffer
   * @returns {{ whole: Set<string>, fresh: Map<string, Line> }} lines to be set whole, increments of the others
   */
  take(head, buffer) {
    const values = buffer ? new Float32Array(buffer.buffer.slice(buffer.byteOffset, buffer.byteOffset + buffer.byteLength)) : new Float32Array();
    const whole = new Set([...this.lines.keys()].filter((name) => head.clear.includes(layerOf(name))));
    const fresh = /* @__PURE__ */ new Map();
    for (const name of whole) this.lines.set(name, { x: [], y: [] });
    let at = 0;
    for (const [layer, key, count, replaces] of head.lines) {
      const name = `${layer}:${key}`;
      const x = Array.from(values.subarray(at, at + count));
      const y = Array.from(values.subarray(at + count, at + 2 * count));
      at += 2 * count;
      const line = this.lines.get(name);
      if (replaces || !line) {
        this.lines.set(name, { x, y });
        whole.add(name);
      } else {
        line.x.push(...x);
        line.y.push(...y);
        fresh.set(name, { x, y });
      }
    }
    this.head = head;
    return { whole, fresh };
  }
  /** @param {string} key */
  drawn(key) {
    return ["base", "trial"].some((layer) => this.lines.get(`${layer}:${key}`)?.x.length);
  }
  /**
   * The value of a line at a moment, or, without one, the mean of its newest seconds; null = none.
   * @param {string} name
   * @param {number | null} moment
   */
  value(name, moment) {
    const line = this.lines.get(name);
    if (!line?.x.length) return null;
    return moment === null ? newest(line) : nearest(line, moment);
  }
};
function layerOf(name) {
  return name.slice(0, name.indexOf(":"));
}
function newest({ x, y }) {
  const since = (
    /** @type {number} */
    x.at(-1) - NEWEST_S
  );
  const known2 = y.slice(x.findIndex((one) => one >= since)).filter((one) => !Number.isNaN(one));
  return known2.length ? known2.reduce((sum, one) => sum + one, 0) / known2.length : null;
}
function nearest({ x, y }, moment) {
  const after = x.findIndex((one) => one >= moment);
  let at = after < 0 ? x.length - 1 : after;
  if (at > 0 && moment - /** @type {number} */
  x[at - 1] < /** @type {number} */
  x[at] - moment) at -= 1;
  const value = (
    /** @type {number} */
    y[at]
  );
  return Number.isNaN(value) ? null : value;
}
function roundUp(value) {
  const power = 10 ** Math.floor(Math.log10(value));
  return power * /** @type {number} */
  NICE.find((step) => step * power >= value * 0.999);
}

// src/live.js
var MISSED_MS = 1500;
var SILENT_MS = 3e4;
var PROBED_MS = 6e3;
var GREETED_AT = [1, 4, 12];
var Live = class {
  /** @param {Model} model */
  constructor(model) {
    this.model = model;
    this.points = new Points();
    this.messages = new Messages();
    this.views = /* @__PURE__ */ new Set();
    this.lost = this.silent = false;
    this.greeted = 0;
    this.quiet = [];
    this.state = {};
    this.read();
    this.hearing = (message, buffers) => this.hear(message, buffers);
    this.reading = () => this.readAgain();
    model.on("msg:custom", this.hearing);
    model.on("change:state", this.reading);
    this.losing = () => this.lose();
    model.on("comm_live_update", this.losing);
    this.waiting = setTimeout(() => {
      if (!this.messages.last && this.state.busy) this.askForAll();
    }, MISSED_MS);
    this.listen();
  }
  /** Takes what is written down in the traits, which is all there was when it was written. */
  read() {
    this.state = { ...this.model.get("state") };
    const { head, data, seq } = this.model.get("rows") ?? {};
    if (seq) this.messages = new Messages(seq);
    return head ? this.points.take(head, data) : null;
  }
  /** The traits were written anew: at the end of a run, with every point, or where the view has failed. */
  readAgain() {
    const { seq } = this.model.get("rows") ?? {};
    const behind = seq > this.messages.last || this.messages.missing && seq === this.messages.last;
    const changed = behind ? this.read() : null;
    if (!behind) this.state = { ...this.state, ...this.model.get("state") };
    this.listen();
    this.tell(changed ?? { whole: /* @__PURE__ */ new Set(), fresh: /* @__PURE__ */ new Map() });
  }
  /**
   * Posts a request. A kernel that was restarted takes no message from this panel any more: sending throws.
   * @param {import("./contract").Ask | { ask: "hello" }} request
   */
  ask(request) {
    try {
      this.model.send(request);
    } catch {
      this.lose();
    }
  }
  /** No kernel hears the panel any more. */
  lose() {
    this.lost = true;
    this.hush();
    for (const view of this.views) view.draw();
  }
  /** From now on silence is noticed, if something runs. */
  listen() {
    this.hush();
    this.silent = false;
    if (!this.state.busy || this.lost) return;
    const silent = () => {
      this.silent = true;
      for (const view of this.views) view.draw();
    };
    this.quiet = [setTimeout(() => this.ask({ ask: "hello" }), PROBED_MS), setTimeout(silent, SILENT_MS)];
  }
  hush() {
    for (const timer of this.quiet.splice(0)) clearTimeout(timer);
  }
  /** The kernel learns from where it hears this whether it hears clicks while a cell runs. */
  greet() {
    this.greeted = this.state.busy ? this.greeted + 1 : 0;
    if (GREETED_AT.includes(this.greeted)) this.ask({ ask: "hello" });
  }
  askForAll() {
    this.ask(this.messages.question());
  }
  /**
   * @param {Message} message
   * @param {ArrayBufferView[]} buffers
   */
  hear(message, buffers) {
    if (!message?.seq || !message.rows) return;
    const { take, ask } = this.messages.heard(message);
    if (ask) this.askForAll();
    if (take === "nothing") return;
    this.state = take === "all" ? { ...message.state } : { ...this.state, ...message.state };
    this.greet();
    this.listen();
    this.tell(this.points.take(message.rows, buffers?.[0]));
  }
  /** @param {Changed} changed */
  tell(changed) {
    for (const view of this.views) view.told(changed);
  }
  /** The model goes: nothing of the page may hold what it had. */
  end() {
    clearTimeout(this.waiting);
    this.hush();
    this.model.off("msg:custom", this.hearing);
    this.model.off("change:state", this.reading);
    this.model.off("comm_live_update", this.losing);
    this.points = new Points();
    this.state = {};
  }
};
var known = /* @__PURE__ */ new WeakMap();
var keyOf = (model) => {
  const shared = model.get("layout");
  return typeof shared === "object" && shared !== null ? shared : model;
};
function liveOf(model) {
  const key = keyOf(model);
  const live = known.get(key) ?? new Live(model);
  known.set(key, live);
  return live;
}
function forget(model) {
  known.get(keyOf(model))?.end();
  known.delete(keyOf(model));
}

// src/page.js
function numbered() {
  const page2 = (
    /** @type {any} */
    globalThis
  );
  page2.gpuDoctorPanels = (page2.gpuDoctorPanels ?? 0) + 1;
  return page2.gpuDoctorPanels;
}
function staticBeside(el) {
  const area = el.closest(".jp-OutputArea, .output, .cell-output-ipywidget-background");
  const hidden = /* @__PURE__ */ new Set();
  let shown = true;
  const hide = () => {
    if (shown) return;
    for (const result of area?.querySelectorAll(".gpu-doctor-static") ?? []) {
      const child = (
        /** @type {HTMLElement} */
        result.closest(".jp-OutputArea-child, .output_area") ?? result
      );
      if (child.contains(el) || hidden.has(child)) continue;
      hidden.add(child);
      child.style.display = "none";
    }
  };
  const observer = new MutationObserver(hide);
  if (area) observer.observe(area, { childList: true, subtree: true });
  const show = (on) => {
    if (on === shown) return;
    shown = on;
    if (!on) {
      hide();
      return;
    }
    for (const child of hidden) child.style.display = "";
    hidden.clear();
  };
  return { show, leave: () => {
    observer.disconnect();
    show(true);
  } };
}
function whenInPage(el, then) {
  const waiting = setInterval(() => {
    if (!el.isConnected) return;
    clearInterval(waiting);
    then();
  }, 15);
  return waiting;
}
function keepKeys(root) {
  const keep = (event) => {
    const { target } = event;
    if (!(target instanceof Element) || !root.contains(target) || !target.matches("select, [tabindex]")) return;
    const command = event.ctrlKey || event.metaKey || event.altKey || event.shiftKey && event.key === "Enter";
    target.toggleAttribute("data-lm-suppress-shortcuts", !command);
  };
  window.addEventListener("keydown", keep, true);
  return () => window.removeEventListener("keydown", keep, true);
}

// src/vdom.js
function h(tag, attributes, ...children) {
  return { tag, attributes, children: kept(children) };
}
function kept(offered) {
  return offered.flatMap((one) => Array.isArray(one) ? kept(one) : one === null || one === void 0 || one === false ? [] : [one]);
}
function patch(parent, offered) {
  const wanted = kept(offered);
  const keys = new Set(wanted.map((one) => typeof one === "string" ? void 0 : one.attributes.key).filter((key) => key !== void 0));
  wanted.forEach((one, index) => {
    const there2 = (
      /** @type {Made | undefined} */
      parent.childNodes[index]
    );
    if (typeof one === "string") patchText(parent, there2, one, keys);
    else patchElement(parent, moved(parent, there2, one), one, keys);
  });
  while (parent.childNodes.length > wanted.length) parent.lastChild?.remove();
}
function moved(parent, there2, wanted) {
  const { key } = wanted.attributes;
  if (key === void 0 || !there2 || there2.gpuDoctorTag === wanted.tag && there2.gpuDoctorKey === key) return there2;
  for (let one = (
    /** @type {Made | null} */
    there2.nextSibling
  ); one; one = /** @type {Made | null} */
  one.nextSibling) {
    if (one.gpuDoctorTag === wanted.tag && one.gpuDoctorKey === key) return parent.insertBefore(one, there2);
  }
  return there2;
}
function put(parent, there2, made2, keys) {
  if (there2 && !(there2.gpuDoctorKey !== void 0 && keys.has(there2.gpuDoctorKey))) there2.replaceWith(made2);
  else parent.insertBefore(made2, there2 ?? null);
  return made2;
}
function patchText(parent, there2, text, keys) {
  if (!(there2 instanceof Text)) put(parent, there2, document.createTextNode(text), keys);
  else if (there2.data !== text) there2.data = text;
}
function patchElement(parent, there2, wanted, keys) {
  const { tag, attributes, children } = wanted;
  const same = there2?.gpuDoctorTag === tag && there2.gpuDoctorKey === attributes.key;
  const node = (
    /** @type {HTMLElement & Made} */
    same ? there2 : put(parent, there2, document.createElement(tag), keys)
  );
  if (!same) Object.assign(node, { gpuDoctorTag: tag, gpuDoctorKey: attributes.key, gpuDoctorAttributes: {} });
  patch(node, children);
  dress(node, attributes);
}
function dress(node, attributes) {
  const before = node.gpuDoctorAttributes ?? {};
  for (const name of Object.keys(before)) {
    if (!(name in attributes)) set(node, name, name.startsWith("on") ? null : name === "checked" ? false : void 0);
  }
  for (const [name, value] of Object.entries(attributes)) {
    if (before[name] !== value || name === "value" && /** @type {any} */
    node.value !== value) set(node, name, value);
  }
  node.gpuDoctorAttributes = attributes;
}
function set(node, name, value) {
  if (name === "key") return;
  if (name.startsWith("on") || name === "checked") node[name] = value;
  else if (name === "value") node.value = value ?? "";
  else if (name === "style") node.style.cssText = value ?? "";
  else if (value === void 0 || value === null || value === false) node.removeAttribute(name);
  else node.setAttribute(name, value === true ? "" : value);
}

// src/before_after.js
function barPart(segments, said) {
  return h(
    "div",
    { class: "gd-bar", role: "img", "aria-label": said },
    segments.map((one) => h("span", {
      key: one.phase,
      style: `flex-grow: ${one.share}; background: ${one.colour}; color: ${one.ink}`,
      "data-tip": `${one.label}: ${one.time}, ${one.percent}`
    }, h("b", {}, one.label)))
  );
}
function comparedPart(compared) {
  const [before, after] = compared.sides;
  return [
    h("div", { class: "gd-sides" }, compared.sides.map((one) => sidePart(one))),
    h("div", { class: "gd-chips" }, phasesOf(before, after).map(({ label, colour, was, is }) => h(
      "span",
      { key: label },
      h("i", { style: `background: ${colour}` }),
      label,
      h("span", { class: "gd-soft" }, `${was} \u2192 `),
      h("b", {}, is)
    )))
  ];
}
function sidePart({ label, total, segments, spread }) {
  const said = segments.map((one) => `${one.label} ${one.time}`).join(", ");
  return [
    h("div", { class: "gd-sidename" }, h("span", { class: "gd-what" }, label), h("b", {}, total)),
    h(
      "div",
      {},
      barPart(segments, `${label}, ${total}: ${said}`),
      spread ? h(
        "div",
        { class: "gd-spread" },
        h("div", { class: "gd-range", "aria-hidden": "true" }, rangeParts(spread.at)),
        h("span", { class: "gd-soft" }, spread.text)
      ) : null
    )
  ];
}
function rangeParts([first = 0, low = 0, middle = 0, high = 0, last = 0]) {
  const place2 = (from, to) => `left: ${(100 * from).toFixed(2)}%; width: ${(100 * (to - from)).toFixed(2)}%`;
  return [
    h("i", { class: "gd-whisker", style: place2(first, last) }),
    h("i", { class: "gd-box-of", style: place2(low, high) }),
    h("i", { class: "gd-median", style: place2(middle, middle) })
  ];
}
function phasesOf(before, after) {
  const times = (side) => new Map(side.segments.map((one) => [one.phase, one]));
  const [was, is] = [times(before), times(after)];
  const phases = [.../* @__PURE__ */ new Set([...was.keys(), ...is.keys()])];
  return phases.map((phase) => {
    const { label, colour } = (
      /** @type {Segment} */
      was.get(phase) ?? is.get(phase)
    );
    return { label, colour, was: was.get(phase)?.time ?? "0", is: is.get(phase)?.time ?? "0" };
  });
}

// src/elements.js
function button(label, onclick, { off, tip, ...attributes } = {}) {
  const key = attributes["data-ask"] ?? attributes["data-fold"];
  return h("button", { type: "button", onclick: off ? null : onclick, ...key ? { key } : {}, ...attributes, ...switchedOff(off), ...tipped(tip) }, label);
}
function switchedOff(off) {
  return off ? { "aria-disabled": "true", "aria-describedby": off } : {};
}
function tipped(tip) {
  return tip ? { "data-tip": tip, "aria-description": tip } : {};
}
function worded(text) {
  return text.split(/`([^`]+)`/).map((part, index) => index % 2 ? h("code", {}, part) : part).filter(Boolean);
}
function filled(text, given) {
  return text.replace(/\{(\w+)\}/g, (_, name) => String(given[name] ?? ""));
}

// src/settings.js
function keyOf2(settings) {
  return JSON.stringify(Object.entries(settings).sort(([one], [other]) => one < other ? -1 : 1));
}
function asTurned(knobs, chosen) {
  const written = knobs.find((one) => one.name === "num_workers")?.written ?? 0;
  if (Number(chosen ?? written) > 0 === Number(written) > 0) return knobs;
  return knobs.map((one) => one.otherwise ? { ...one, ...one.otherwise } : one);
}
function within(given, most, usual) {
  return given > 0 ? Math.min(given, most) : usual;
}
function ticked(grid, name, value) {
  const { [name]: before = [], ...others } = grid;
  const kept2 = before.filter((one) => one !== value);
  const values = kept2.length < before.length ? kept2 : [...kept2, value];
  return values.length ? { ...others, [name]: values } : others;
}
function combinations(grid) {
  const lists = Object.values(grid);
  return lists.length ? lists.reduce((product, values) => product * values.length, 1) : 0;
}
function figure(value, decimals, { thousands, missing }) {
  if (value === null) return missing;
  const [, digits] = decimals.find(([least]) => Math.abs(value) >= least) ?? [0, 0];
  const [whole, part] = (
    /** @type {[string, string?]} */
    value.toFixed(digits).split(".")
  );
  const grouped = whole.replace(/\B(?=(\d{3})+$)/g, thousands);
  return part === void 0 ? grouped : `${grouped}.${part}`;
}

// src/code.js
function copyButton(text, label, panel, said) {
  return button(panel.copied === text ? panel.words.copied : label, () => panel.copy(text), { class: "gd-small", "aria-label": said });
}
function codePart(code, panel) {
  const { words } = panel;
  return h("div", { class: "gd-code" }, h("pre", {}, code), copyButton(code, words.copy, panel, words.copyLines));
}
function codeFold(label, what, settings, panel) {
  return button(label, () => panel.foldCode(what, settings), {
    class: "gd-link",
    "aria-expanded": String(panel.unfolded.has(what)),
    "data-fold": "code",
    tip: panel.words.codeTip
  });
}
function fixPart(settings, lines, panel) {
  const key = keyOf2(settings);
  const fix = Object.values(panel.live.state.fixes ?? {}).find((one) => keyOf2(one.settings ?? {}) === key);
  if (fix && !fix.error) return changePart(fix, key, panel);
  const said = fix ? fix.error : panel.late(key) ? panel.words.cellsWait : panel.words.looking;
  return h(
    "div",
    { class: "gd-fix" },
    h("div", { class: "gd-soft", role: "status" }, said),
    lines ? [h("div", { class: "gd-soft" }, panel.labels.paste), codePart(lines, panel)] : null
  );
}
function changePart(fix, key, panel) {
  const { words } = panel;
  const whole = panel.whole.has(key);
  const one = fix.cells.length === 1;
  const copies = fix.cells.map((cell) => copyButton(
    cell.text,
    one ? words.copyWhole : filled(words.copyCell, { cell: cell.label }),
    panel,
    filled(words.copyChanged, { cell: cell.label })
  ));
  const body = whole ? fix.cells.map((cell) => h(
    "div",
    { key: cell.label },
    one ? null : h("div", { class: "gd-soft" }, cell.label),
    h("pre", { class: "gd-diff", tabindex: "0", role: "region", "aria-label": filled(words.whole, { cell: cell.label }) }, h("span", {}, cell.text))
  )) : [h(
    "pre",
    { class: "gd-diff", tabindex: "0", role: "region", "aria-label": words.changedLines },
    fix.lines.map(([kind, text]) => h("span", { class: `gd-${kind}` }, text || " "))
  )];
  return h(
    "div",
    { class: "gd-fix" },
    fix.cells.length ? h(
      "div",
      { class: "gd-row gd-fixhead" },
      button(words.wholeCell, () => panel.showWhole(key), { class: "gd-small gd-toggle", "aria-pressed": String(whole) }),
      copies
    ) : null,
    fix.cells.length ? body : null,
    fix.notes.map((text) => h("div", { class: "gd-note", key: text }, text)),
    fix.paste ? [h("div", { class: "gd-soft" }, fix.complete ? words.orPaste : panel.labels.paste), codePart(fix.paste, panel)] : null
  );
}

// src/header.js
function statusOf(panel) {
  return `${panel.id}-status`;
}
function noTrialsOf(panel) {
  return `${panel.id}-no-trials`;
}
function heldBy({ busy, noTrials }, panel) {
  return busy ? statusOf(panel) : noTrials ? noTrialsOf(panel) : null;
}
function headerPart(state, panel) {
  const { header, labels, words } = state;
  const { progress } = header;
  const { lost, silent } = panel.live;
  const busy = state.busy && !lost;
  const stopping = panel.stopping && busy;
  const stop = state.status === "waiting" ? words.stopRequest : words.stopRun;
  const told = statusOf(panel);
  return h(
    "header",
    { class: "gd-header" },
    h("span", { class: "gd-name" }, labels.product),
    header.name ? h("span", { class: "gd-case" }, header.name) : null,
    header.replay ? h("span", { class: "gd-replay" }, header.replay) : null,
    h("span", { class: "gd-machine" }, header.machine),
    h(
      "span",
      { class: "gd-live" },
      h("span", { class: `gd-dot gd-${header.failed || lost || silent ? "broken" : state.status}`, "aria-hidden": "true" }),
      h(
        "b",
        { role: "status", id: told },
        lost ? words.gone : silent ? words.noNews : stopping ? words.stopping : header.status
      ),
      header.settings ? h("span", { class: "gd-running" }, header.settings) : null
    ),
    h("span", { class: "gd-figures" }, [header.clock, header.steps, header.rate].filter(Boolean).join("  \xB7  ")),
    button(words.stop, () => panel.stop(), {
      class: "gd-stop",
      "data-ask": "stop",
      off: (!busy || stopping) && told,
      "aria-label": stop,
      tip: stop
    }),
    busy && (header.stop || panel.unheard && stopping) ? h("span", { class: "gd-hint" }, header.stop || words.unheard) : null,
    lost || silent || panel.unanswered ? h("span", { class: "gd-hint", role: "status" }, lost ? words.lost : silent ? words.silent : words.unanswered) : null,
    progress ? h(
      "div",
      { class: "gd-progress" },
      h("progress", { max: "1", value: progress.share, "aria-label": words.progress }),
      h("span", {}, [progress.text, progress.steps, progress.left].filter(Boolean).join("  \xB7  "))
    ) : null
  );
}

// src/verdict.js
function verdictPart(state, panel) {
  const { verdict } = state;
  const { advice } = verdict;
  return h(
    "section",
    { class: state.result ? "gd-verdict gd-second" : "gd-verdict", style: `--gd-accent-now: ${verdict.accent}` },
    h(
      "div",
      { class: "gd-sentence" },
      h("span", { class: "gd-text" }, worded(verdict.text)),
      verdict.kind ? h("span", { class: "gd-kind" }, verdict.kind) : null,
      verdict.early ? h("span", { class: "gd-early" }, verdict.early) : null
    ),
    verdict.risk ? h("div", { class: "gd-risk" }, verdict.risk) : null,
    advice ? advicePart(advice, state, heldBy(state, panel), panel, "top") : h("div", { class: "gd-advice" })
  );
}
function advicePart(advice, { words }, held, panel, where) {
  const canTry = Object.keys(advice.settings).length > 0;
  const folded = (what) => `${where}:${what}`;
  const fold = (label, what) => button(label, () => panel.fold(folded(what)), {
    class: "gd-link",
    "aria-expanded": String(panel.unfolded.has(folded(what))),
    "data-fold": what
  });
  const code = canTry ? codeFold(words.code, folded("code"), advice.settings, panel) : advice.code ? fold(words.code, "code") : null;
  return h(
    "div",
    { class: "gd-advice" },
    h(
      "div",
      { class: "gd-row" },
      h("span", { class: "gd-try" }, worded(advice.text.replace(/\.$/, ""))),
      advice.predicted ? h("span", { class: "gd-predicted" }, advice.predicted) : null,
      h("span", { class: "gd-soft" }, advice.safety),
      canTry ? button(words.tryIt, () => panel.tryIt(advice.settings), {
        class: where === "top" && panel.next === "try" ? "gd-primary" : "",
        "data-ask": "try",
        off: held,
        onpointerenter: () => panel.near(),
        onfocus: () => panel.near()
      }) : null,
      advice.page.length ? fold(words.why, "why") : null,
      code
    ),
    advice.changes ? h("div", { class: "gd-soft" }, advice.changes) : null,
    !panel.unfolded.has(folded("code")) ? null : canTry ? fixPart(advice.settings, advice.code, panel) : codePart(advice.code, panel),
    advice.page.length && panel.unfolded.has(folded("why")) ? pagePart(advice.page) : null
  );
}
function pagePart(page2) {
  return h("div", { class: "gd-page" }, page2.map((one) => [
    one.title ? h("b", {}, one.title) : null,
    one.code ? h("pre", {}, one.text) : h("p", {}, worded(one.text))
  ]));
}
function anatomyPart({ anatomy, status, labels, words }) {
  const { segments } = anatomy;
  const compared = status === "recording" ? null : anatomy.compared;
  const said = segments.map((one) => `${one.label} ${one.percent}`).join(", ");
  return h(
    "section",
    { class: "gd-anatomy" },
    h(
      "div",
      { class: "gd-title" },
      h("b", {}, labels.anatomy),
      h("span", { class: "gd-soft" }, compared ? compared.of : anatomy.of),
      compared ? null : h("b", { class: "gd-total" }, anatomy.total)
    ),
    compared ? comparedPart(compared) : [
      barPart(segments, said || words.unmeasured),
      h("div", { class: "gd-chips" }, segments.map((one) => h(
        "span",
        { key: one.phase },
        h("i", { style: `background: ${one.colour}` }),
        one.label,
        h("b", {}, one.percent),
        h("span", { class: "gd-soft" }, one.time)
      )))
    ]
  );
}

// src/findings.js
function findingPart(finding, state, panel) {
  return h(
    "details",
    { key: finding.rule, class: `gd-of-${finding.kind}` },
    h(
      "summary",
      {},
      finding.share === null ? null : h("i", { class: "gd-part", style: `--gd-share: ${100 * finding.share}%`, "aria-hidden": "true" }),
      h("span", { class: finding.risk ? "gd-share gd-risky" : "gd-share" }, finding.price),
      h("b", {}, finding.rule),
      h("span", {}, worded(finding.headline))
    ),
    finding.risk ? h("div", { class: "gd-risk" }, finding.risk) : null,
    h("ul", {}, finding.evidence.map((text) => h("li", {}, worded(text)))),
    finding.prescriptions.map((one, number) => advicePart(
      { ...one, page: number === 0 ? finding.page : [] },
      state,
      heldBy(state, panel),
      panel,
      `${finding.rule}${number}`
    ))
  );
}
function silencePart(one) {
  if (!one.folded) return h("div", { class: "gd-why", key: one.reason }, `${one.reason}: `, h("span", { class: "gd-soft" }, one.rules));
  return h(
    "details",
    { class: "gd-why", key: one.reason },
    h("summary", {}, `${one.reason}: ${one.count}`),
    h("div", { class: "gd-soft" }, one.rules)
  );
}
function findingsPart(state, panel) {
  const { findings, hints, silent, words } = state;
  return h(
    "section",
    { class: "gd-findings" },
    findings.length ? h("div", { class: "gd-title" }, h("b", {}, words.findings), h("span", { class: "gd-soft" }, words.findingsOf)) : null,
    findings.map((finding) => findingPart(finding, state, panel)),
    hints.length ? h("div", { class: "gd-title" }, h("b", {}, words.hints)) : null,
    hints.map((hint) => findingPart(hint, state, panel)),
    silent.length ? h(
      "details",
      { key: "silent" },
      h("summary", { class: "gd-soft" }, state.unjudged),
      silent.map((one) => silencePart(one))
    ) : null
  );
}
function footerPart({ footer }) {
  return h(
    "footer",
    { class: "gd-footer" },
    footer.notes.length ? h(
      "details",
      {},
      h("summary", {}, footer.title),
      h("ul", {}, footer.notes.map((text) => h("li", {}, text)))
    ) : null,
    footer.overhead ? h("span", { class: "gd-own" }, footer.overhead) : null
  );
}

// src/focus.js
var STOPS = "button, select, input, summary, [tabindex]";
function keepFocus(root, redraw) {
  const page2 = (
    /** @type {Document | ShadowRoot} */
    root.getRootNode()
  );
  const held = (
    /** @type {HTMLElement | null} */
    page2.activeElement
  );
  if (!held || !root.contains(held)) {
    redraw();
    return;
  }
  const stops = (
    /** @type {HTMLElement[]} */
    [...root.querySelectorAll(STOPS)]
  );
  redraw();
  if (page2.activeElement === held) return;
  const left = stops.slice(0, stops.indexOf(held) + 1).filter((one) => root.contains(one) && one.checkVisibility());
  left.at(-1)?.focus({ preventScroll: true });
}

// src/forecast.js
function forecastKey(settings) {
  return `forecast:${keyOf2(settings)}`;
}
function toldOf({ forecasts, labels }, settings) {
  const of = (wanted) => forecasts.find((one) => keyOf2(one.settings) === keyOf2(wanted));
  const told = of(settings);
  if (told) return told;
  const singles = Object.entries(settings).map(([name, value]) => of({ [name]: value }));
  if (!singles.some((one) => one && !one.known)) return null;
  const alone = singles.flatMap((one) => one ? [one.alone] : []);
  return { text: `${labels.noneTogether}${alone.length ? ` (${alone.join("; ")})` : ""}`, known: false };
}
function forecastOf(panel) {
  return `${panel.id}-forecast`;
}
function forecastPart(state, panel) {
  const { forecasts, labels, words } = state;
  const turned = Object.keys(panel.chosen).length > 0;
  const id = forecastOf(panel);
  if (!turned) return h("span", { role: "status", id, class: "gd-soft" }, words.turnFirst);
  if (!forecasts.length) return h("span", { role: "status", id });
  const told = toldOf(state, panel.chosen);
  const said = told?.text ?? (panel.late(forecastKey(panel.chosen)) ? labels.noAnswer : labels.asking);
  return h("span", { class: told?.known ? "gd-predicted" : "gd-soft", role: "status", id, "data-forecast": "" }, said);
}

// src/searches.js
function furtherPart(state, act, panel) {
  const { words } = state;
  const open = panel.unfolded.has("sweep");
  const why = `${panel.id}-no-largest`;
  return [
    h(
      "div",
      { class: "gd-row gd-further" },
      state.noSweep ? null : button(words.sweep, () => panel.fold("sweep"), { "data-fold": "sweep", "aria-expanded": String(open), tip: words.purposes.sweep, class: "gd-opens" }),
      h(
        "span",
        { class: "gd-choice" },
        act("largest", words.largest, state.noLargest ? why : null, false),
        state.noLargest ? h("span", { class: "gd-soft gd-fine", id: why }, state.noLargest) : null
      )
    ),
    open && !state.noSweep ? gridPart(state, act, panel) : null
  ];
}
function gridPart(state, act, panel) {
  const { words } = state;
  const some = panel.grid.num_workers?.length ? Math.max(...panel.grid.num_workers.map(Number)) : void 0;
  const knobs = asTurned(state.knobs, some).filter((knob) => !knob.refusal || panel.grid[knob.name]);
  const whole = panel.unfolded.has("sweep:more");
  const shown = knobs.filter((knob) => knob.front || whole || panel.grid[knob.name]);
  const count = combinations(panel.grid);
  const many = count > state.sweepMost;
  const told = `${panel.id}-sweep-said`;
  const said = filled(!count ? words.sweepEmpty : many ? words.sweepMany : words.sweepCount, { count, most: state.sweepMost });
  return h(
    "div",
    { class: "gd-grid-of", key: "sweep", role: "group", "aria-label": words.sweepValues },
    h("div", { class: "gd-ticks" }, shown.map((knob) => ticksPart(knob, state.busy, panel))),
    h(
      "div",
      { class: "gd-row gd-actions" },
      act("sweep", words.sweepRun, !count || many ? told : null, true),
      h("span", { class: many ? "gd-changes" : "gd-soft", role: "status", id: told }, said),
      knobs.some((knob) => !knob.front) ? button(words.moreKnobs, () => panel.fold("sweep:more"), {
        class: "gd-link",
        "aria-expanded": String(whole),
        "data-fold": "sweep-more"
      }) : null
    ),
    shown.some(refuses) ? h("ul", { class: "gd-said" }, shown.filter(refuses).map((knob) => refusalPart(knob, panel))) : null,
    changesOf(shown.filter((knob) => panel.grid[knob.name]), panel)
  );
}
function ticksPart(knob, busy, panel) {
  const ticked2 = panel.grid[knob.name] ?? [];
  const name = `${panel.id}-${knob.name}-ticks`;
  return h(
    "div",
    { class: "gd-tickrow", key: knob.name, role: "group", "aria-labelledby": name },
    h("span", { id: name, class: ticked2.length ? "gd-ticked" : "" }, knob.label),
    h("span", { class: "gd-values" }, knob.choices.map(({ value, label, refusal }) => {
      if (value === null) return null;
      const checked = ticked2.includes(value);
      const off = busy ? statusOf(panel) : (refusal || knob.refusal) && !checked ? refusalOf(knob, panel) : null;
      return h("label", { key: String(value), class: refusal ? "gd-off" : "" }, h("input", {
        type: "checkbox",
        "data-tick": `${knob.name}=${value}`,
        checked,
        ...switchedOff(off),
        onclick: off ? (event) => event.preventDefault() : null,
        onchange: () => panel.tick(knob, value)
      }), label);
    }))
  );
}
function refuses(knob) {
  return Boolean(knob.refusal) || knob.choices.some((one) => one.refusal);
}
function refusalOf(knob, panel) {
  return `${panel.id}-${knob.name}-unticked`;
}
function refusalPart(knob, panel) {
  const said = knob.refusal ? [`${panel.words.unchangeable} ${knob.refusal}`] : knob.partly;
  const id = refusalOf(knob, panel);
  return h("li", { id, key: id }, said.map((text) => h("div", {}, h("b", {}, knob.label), ` ${text}`)));
}
function changesOf(knobs, panel) {
  return knobs.length ? h("ul", { class: "gd-said" }, knobs.map((knob) => turnedPart(knob, `${panel.id}-${knob.name}-ticked`))) : null;
}
function turnedPart(knob, id) {
  return h("li", { id, key: id, class: knob.safe ? "" : "gd-changes" }, h("b", {}, knob.label), ` ${knob.turned}`);
}
function sweepPart({ sweep, busy, labels, words }, panel) {
  if (!sweep) return h("section", { class: "gd-plan", hidden: true });
  const found = Object.keys(sweep.settings).length > 0;
  const later = sweep.rows.slice(sweep.first + 1);
  return h(
    "section",
    { class: "gd-plan gd-sweep" },
    h(
      "div",
      { class: "gd-row gd-planhead" },
      h("b", {}, labels.sweep),
      h("span", { class: "gd-sum" }, sweep.sentence),
      found ? button(words.setKnobs, () => panel.turnTo(sweep.settings), { class: "gd-link", off: busy && statusOf(panel) }) : null,
      found ? codeFold(words.code, "sweep:code", sweep.settings, panel) : null
    ),
    found && panel.unfolded.has("sweep:code") ? fixPart(sweep.settings, "", panel) : null,
    sweptTable(sweep.rows.slice(0, sweep.first + 1), words.sweepHead, words.sweepRows),
    later.length ? h(
      "details",
      { key: "later" },
      h("summary", { class: "gd-soft" }, sweep.later),
      sweptTable(later, words.sweepHead, words.sweepLater)
    ) : null,
    sweep.notes.map((text) => h("div", { class: "gd-note", key: text }, text))
  );
}
function sweptTable(rows, head, label) {
  if (!rows.length) return null;
  return h(
    "table",
    { role: "table", "aria-label": label },
    h("thead", { role: "rowgroup" }, h(
      "tr",
      { role: "row" },
      head.map((text) => h("th", { role: "columnheader", scope: "col", class: "gd-word" }, text))
    )),
    h("tbody", { role: "rowgroup" }, rows.map((one, number) => sweptRow(one, head, number)))
  );
}
function sweptRow(one, head, number) {
  const gain = one.gain && h("span", {}, h(
    "span",
    { class: "gd-track", "aria-hidden": "true" },
    h("i", { class: one.faster ? "gd-gain" : "gd-was", style: `width: ${(100 * one.share).toFixed(2)}%` })
  ), one.gain);
  const cells = [one.setting, one.state, one.rate, gain, one.losses, one.note];
  return h(
    "tr",
    { role: "row", key: String(number), class: one.best ? "gd-best" : "" },
    cells.map((cell, index) => h("td", { role: "cell", class: "gd-word", "data-head": head[index] }, cell))
  );
}
function largestPart({ largest, busy, labels, words }, panel) {
  if (!largest) return h("section", { class: "gd-plan", hidden: true });
  const size = largest.settings.batch_size;
  return h(
    "section",
    { class: "gd-plan gd-largest" },
    h(
      "div",
      { class: "gd-row gd-planhead" },
      h("b", {}, labels.largest),
      h("span", { class: "gd-sum" }, largest.sentence),
      size ? button(filled(words.setKnob, { value: String(size) }), () => panel.turnTo(largest.settings), { class: "gd-link", off: busy && statusOf(panel) }) : null
    ),
    barsPart(
      largest.sizes.map((one, number) => barPart2(one.label, one.share, !one.peak ? "gd-lost" : one.chosen ? "gd-gain" : "gd-was", one.peak, one.said, number, one.chosen)),
      words.largestBars
    ),
    largest.notes.map((text) => h("div", { class: "gd-note", key: text }, text))
  );
}
function barsPart(rungs, label) {
  return rungs.length ? h("div", { class: "gd-waterfall gd-places", role: "table", "aria-label": label }, rungs) : null;
}
function barPart2(label, share, tone, total, said, number, strong) {
  return h(
    "div",
    { class: "gd-rung", role: "row", key: String(number) },
    h("span", { class: strong ? "gd-what gd-strong" : "gd-what", role: "cell" }, label),
    h("span", { class: "gd-track", role: "cell", "aria-hidden": "true" }, h("i", { class: tone, style: `width: ${(100 * share).toFixed(2)}%` })),
    h("b", { role: "cell" }, total),
    h("span", { class: "gd-soft", role: "cell" }, said)
  );
}

// src/knobs.js
function knobPart(knob, knobs, panel) {
  const id = `${panel.id}-${knob.name}`;
  const chosen = panel.chosen[knob.name] ?? knob.written;
  const choices = knob.choices.some((one) => one.value === chosen) ? knob.choices : [...knob.choices, { value: chosen, label: chosen === null ? "\u2013" : String(chosen), refusal: "" }];
  const moved2 = panel.chosen[knob.name] !== void 0;
  const refused = Boolean(knob.refusal) && !moved2;
  return h(
    "div",
    { class: moved2 ? "gd-knob gd-moved" : "gd-knob", key: knob.name },
    h("label", { for: id }, knob.label),
    h("select", {
      id,
      "data-knob": knob.name,
      "aria-disabled": refused ? "true" : null,
      "aria-describedby": knob.refusal || moved2 ? `${panel.id}-${saidAt(knob, knobs)}-said` : null,
      value: String(choices.findIndex((one) => one.value === chosen)),
      onchange: ({ target }) => panel.choose(knob, choices[Number(target.value)]?.value ?? null)
    }, choices.map((one, index) => h("option", {
      value: String(index),
      disabled: Boolean(one.refusal) || refused && one.value !== chosen
    }, one.label)))
  );
}
function saidAt(knob, knobs) {
  const same = knob.refusal ? knobs.find((one) => one.refusal === knob.refusal) : knob;
  return (same ?? knob).name;
}
function knobSentences(knobs, panel) {
  const lines = knobs.flatMap((knob) => {
    const id = `${panel.id}-${knob.name}-said`;
    const moved2 = panel.chosen[knob.name] !== void 0;
    if (knob.refusal) {
      const alike = knobs.filter((one) => one.refusal === knob.refusal);
      const names = h("b", {}, alike.map((one) => one.label).join(", "));
      return alike[0] === knob ? [h("li", { id, key: id }, names, ` ${panel.words.unchangeable} ${knob.refusal}`)] : [];
    }
    const said = knob.partly.map((text) => h("li", { key: text }, h("b", {}, knob.label), ` ${text}`));
    if (moved2) said.unshift(turnedPart(knob, id));
    return said;
  });
  return lines.length ? h("ul", { class: "gd-said" }, lines) : null;
}
function knobsPart(state, panel) {
  const { knobs: offered, before, noTrials, labels, words } = state;
  const knobs = asTurned(offered, panel.chosen.num_workers);
  const front = knobs.filter((knob) => knob.front);
  const more = knobs.filter((knob) => !knob.front);
  const moved2 = Object.keys(panel.chosen).length;
  const none = `${panel.id}-no-knob`;
  const unknown = knobs.length > 0 && knobs.every((knob) => (knob.choices[0]?.value ?? null) === null);
  const act = (what, label, why, primary) => button(label, () => panel.ask(what), {
    class: primary ? "gd-primary" : "",
    "data-ask": what,
    tip: words.purposes[what],
    off: heldBy(state, panel) ?? (unknown ? none : why),
    onpointerenter: () => panel.near(),
    onfocus: () => panel.near()
  });
  const open = panel.unfolded.has("more");
  const real = () => act("real", moved2 ? words.real : words.realAgain, null, panel.next === "real");
  return h(
    "section",
    { class: "gd-knobs" },
    h(
      "div",
      { class: "gd-row" },
      front.map((knob) => knobPart(knob, knobs, panel)),
      act("trial", words.trial, moved2 ? null : forecastOf(panel), panel.next === "trial"),
      forecastPart(state, panel)
    ),
    moved2 ? h(
      "div",
      { class: "gd-row gd-actions", key: "moved" },
      real(),
      button(labels.asWritten, () => panel.reset(), { class: "gd-link", tip: words.resetTip, key: "reset", "data-reset": "" }),
      codeFold(words.codeOfThese, "chosen", panel.chosen, panel)
    ) : null,
    noTrials ? h("div", { class: "gd-soft", id: noTrialsOf(panel), key: "no-trials" }, noTrials) : null,
    unknown ? h("div", { class: "gd-soft", id: none }, knobs[0]?.refusal) : knobSentences(front, panel),
    h(
      "div",
      { class: "gd-row gd-actions" },
      act("treat", words.treat, null, false),
      h(
        "label",
        { class: "gd-tick" },
        h("input", { type: "checkbox", checked: panel.changesTraining, onchange: ({ target }) => panel.setChanges(target.checked) }),
        words.treatMore
      ),
      button(more.some((knob) => panel.chosen[knob.name] !== void 0) ? words.moreTurned : words.more, () => panel.fold("more"), {
        class: "gd-link",
        "aria-expanded": String(open),
        "data-fold": "more"
      })
    ),
    open ? h("div", { class: "gd-row gd-more", key: "more" }, more.map((knob) => knobPart(knob, knobs, panel))) : null,
    open && !unknown ? knobSentences(more, panel) : null,
    open ? h("div", { class: "gd-row gd-actions", key: "further" }, noTrials ? null : budgetPart(state, panel), moved2 ? null : real()) : null,
    open && !unknown ? furtherPart(state, act, panel) : null,
    moved2 && panel.unfolded.has("chosen") ? fixPart(panel.chosen, "", panel) : null,
    unknown || noTrials ? null : beforePart(before ?? [{ text: words.before, tone: "" }])
  );
}
function budgetPart({ trial, labels, words }, panel) {
  const field = (what, label, limits) => h("input", {
    type: "number",
    ...limits,
    value: panel.budget?.[what],
    "data-budget": what,
    "aria-label": label,
    ...tipped(words.budgetTip),
    oninput: ({ target }) => panel.setBudget(what, target.value)
  });
  return h(
    "span",
    { class: "gd-steps", role: "group", "aria-label": words.length },
    words.lengthBefore,
    field("steps", labels.steps, { min: "5", step: "5", max: String(trial.mostSteps) }),
    words.lengthSteps,
    field("seconds", labels.seconds, { min: "1", step: "10", max: String(trial.mostSeconds) }),
    words.lengthSeconds
  );
}
function beforePart(said) {
  return h("ul", { class: "gd-said gd-before" }, said.map((one) => h("li", { key: one.text, class: one.tone ? "gd-changes" : "" }, one.text)));
}

// src/legend.js
var STROKES = { dashed: "dashed", dotted: "dotted", dotdash: "dashed" };
function legendPart(plot, plots, written, words) {
  const { points, pointedAt } = plots;
  const valuesOf = (key) => {
    const [now, then] = ["base", "trial"].map((layer) => points.value(`${layer}:${key}`, pointedAt));
    const said = figure(now ?? null, plot.decimals, written);
    const beside = points.head.names.trial && typeof then === "number" ? figure(then, plot.decimals, written) : said;
    return beside === said ? said : `${said} \u2192 ${beside}`;
  };
  return [
    h("b", {}, plot.title),
    h("span", { class: "gd-soft gd-unit" }, plot.unit),
    plot.lines.filter((line) => points.drawn(line.key)).map((line) => {
      const style = `border-top: 3px ${STROKES[line.dash] ?? "solid"} ${plots.colour(line)}`;
      return button([h("i", { style }), h("span", {}, line.label), h("b", {}, valuesOf(line.key))], () => plots.toggle(line.key), {
        key: line.key,
        class: "gd-line",
        tip: filled(words.lineTip, { line: line.title }),
        "aria-pressed": String(!plots.hidden.has(line.key))
      });
    })
  ];
}
function plotsKeyPart(head, pointedAt, words) {
  const parts = [h("span", {}, pointedAt === null ? words.secondsSince : filled(words.pointedAt, { seconds: pointedAt.toFixed(2) }))];
  if (head.epochs.length) parts.push(h("span", {}, h("i", { class: "gd-mark gd-epoch" }), words.epoch));
  if (head.evaluations.length) parts.push(h("span", {}, h("i", { class: "gd-mark gd-evaluation" }), words.evaluation));
  if (head.names.trial) {
    parts.push(h("span", {}, h("i", { class: "gd-thin" }), head.names.base ?? ""));
    parts.push(h("span", {}, h("i", { class: "gd-broad" }), head.names.trial));
  }
  return parts;
}

// src/bokeh.js
var PATIENCE_MS = 3e3;
var EVERY_MS = 100;
function there(version) {
  const bokeh = (
    /** @type {any} */
    globalThis.Bokeh
  );
  return bokeh?.version === version ? bokeh : bokeh?.[version];
}
async function plotting(model, waits) {
  const { version, loader } = model.get("bokeh");
  const { source, figure: figure2 } = brought(model) ?? await carried(model, loader) ?? await asked(model, waits);
  if (!there(version)) evaluate(source);
  const bokeh = there(version);
  if (!bokeh) throw new Error(`BokehJS ${version} did not load`);
  const own = model.get("figure");
  return { bokeh, figure: own?.doc ? own : figure2 };
}
function brought(model) {
  const { source, figure: figure2 } = model.get("bokeh");
  return source ? { source, figure: figure2 } : null;
}
async function carried(model, loader) {
  const manager = model.widget_manager;
  if (!manager?.get_model) return null;
  const until = Date.now() + PATIENCE_MS;
  do {
    try {
      const found = await inTime(manager.get_model(loader), until - Date.now());
      if (found?.get("source")) return { source: found.get("source"), figure: found.get("figure") };
    } catch {
    }
    await new Promise((then) => {
      setTimeout(then, EVERY_MS);
    });
  } while (Date.now() < until);
  return null;
}
function inTime(promise, ms) {
  return Promise.race([promise, new Promise((then) => {
    setTimeout(() => then(null), ms);
  })]);
}
function asked(model, waits) {
  return new Promise((then) => {
    const look = () => {
      const found = brought(model);
      if (!found) return false;
      model.off("change:bokeh", look);
      then(found);
      return true;
    };
    if (look()) return;
    model.on("change:bokeh", look);
    waits();
    model.send({ ask: "bokeh" });
  });
}
function evaluate(source) {
  new Function("define", "visualViewport", source).call(globalThis);
}

// src/plots.js
var MOST_POINTS = 4e3;
var FIRST_S = 2;
var LAYERS = ["base", "trial"];
var Plots = class {
  /**
   * @param {import("./points").Points} points
   * @param {() => void} redrawLegends
   */
  constructor(points, redrawLegends) {
    this.points = points;
    this.redrawLegends = redrawLegends;
    this.figure = null;
    this.doc = null;
    this.letGo = null;
    this.hidden = /* @__PURE__ */ new Set();
    this.pointedAt = null;
    this.followed = {};
    this.turn = 0;
    this.ink = "currentColor";
    this.dark = false;
  }
  /** @returns {any} a model of Bokeh's */
  get(id) {
    return this.doc?.get_model_by_id(id) ?? null;
  }
  /**
   * Draws the figures into `cells`, one element per plot; an element needs an id.
   * @param {import("./types").Model} model
   * @param {HTMLElement[]} cells
   * @param {() => void} waits
   */
  async show(model, cells, waits) {
    this.clear();
    for (const cell of cells) cell.replaceChildren();
    const turn = this.turn;
    const { bokeh, figure: figure2 } = await plotting(model, waits);
    if (turn !== this.turn) return;
    const places = [[figure2.root, cells[0]?.id], ...figure2.plots.map((plot, index) => [plot.figure, cells[index]?.id])];
    const item = { docid: "gpu_doctor", roots: Object.fromEntries(places), root_ids: places.map(([root]) => root) };
    const [views] = await bokeh.embed.embed_items({ gpu_doctor: figure2.doc }, [item]);
    if (!views) return;
    const letGo = () => release(bokeh, views);
    if (turn !== this.turn) {
      letGo();
      return;
    }
    const doc = documentOf(views);
    this.figure = figure2;
    this.letGo = letGo;
    this.doc = doc;
    this.followed = {};
    this.recolour(
      /** @type {HTMLElement} */
      cells[0]
    );
    for (const key of this.hidden) this.showLine(key);
    this.fill(new Set(this.points.lines.keys()), /* @__PURE__ */ new Map());
    for (const plot of figure2.plots) {
      const fig = this.get(plot.figure);
      fig.on_event("mousemove", (event) => this.point(event.x));
      fig.on_event("mouseleave", () => this.point(null));
    }
    for (const plot of figure2.plots) {
      await nextTask();
      if (turn !== this.turn) return;
      doc?.add_root(doc.get_model_by_id(plot.figure));
    }
  }
  /** Takes the figures out of the page and out of Bokeh's list of documents, those too that are still being made. */
  clear() {
    this.turn += 1;
    this.letGo?.();
    this.doc = this.letGo = this.pointedAt = null;
  }
  rows() {
    const lines = (this.figure?.plots ?? []).flatMap((plot) => plot.lines);
    return Math.max(0, ...lines.map((line) => this.get(line.base.source)?.get_length() ?? 0));
  }
  /**
   * @param {Set<string>} whole
   * @param {Map<string, { x: number[], y: number[] }>} fresh
   */
  fill(whole, fresh) {
    if (!this.doc || !this.figure) return;
    for (const plot of this.figure.plots) {
      for (const line of plot.lines) {
        for (const layer of LAYERS) {
          const name = `${layer}:${line.key}`;
          const source = this.get(line[layer].source);
          const all = this.points.lines.get(name);
          if (all && whole.has(name)) source.data = { x: [...all.x], y: [...all.y] };
          else if (fresh.has(name)) source.stream(fresh.get(name), MOST_POINTS);
        }
      }
      this.get(plot.marks.epochs).data = { x: this.points.head.epochs };
      this.get(plot.marks.evaluations).data = { x: this.points.head.evaluations };
    }
    this.follow(this.figure);
  }
  /**
   * Moves the axes along, unless a person has moved them; the reset tool brings them back.
   * @param {Figure} figure
   */
  follow(figure2) {
    const { end, tops } = this.points.head;
    this.moveEnd(this.get(figure2.x), "x", Math.max(end * 1.01, FIRST_S));
    for (const plot of figure2.plots) {
      const top = tops[plot.name];
      if (top && top > 0) this.moveEnd(this.get(plot.y), plot.name, roundUp(top));
    }
  }
  /**
   * @param {any} range of Bokeh's
   * @param {string} name
   * @param {number} end
   */
  moveEnd(range, name, end) {
    const last = this.followed[name] ?? range.reset_end;
    if (range.start === 0 && range.end === last) {
      range.setv({ end, reset_end: end });
    } else {
      range.reset_end = end;
      if (range.start === 0 && range.end === end) this.followed[name] = end;
      return;
    }
    this.followed[name] = end;
  }
  /** @param {string} key */
  toggle(key) {
    if (!this.hidden.delete(key)) this.hidden.add(key);
    this.showLine(key);
    this.redrawLegends();
  }
  /** @param {string} key */
  showLine(key) {
    if (!this.doc) return;
    for (const plot of this.figure?.plots ?? []) {
      for (const line of plot.lines.filter((one) => one.key === key)) {
        for (const id of [...line.base.glyphs, ...line.trial.glyphs]) this.get(id).visible = !this.hidden.has(key);
      }
    }
  }
  /**
   * A moment pointed at: a line through all plots, and the legends show the values there.
   * @param {number | null} x
   */
  point(x) {
    if (!this.doc) return;
    this.pointedAt = x;
    for (const plot of this.figure?.plots ?? []) {
      const cursor = this.get(plot.cursor);
      cursor.setv(x === null ? { visible: false } : { visible: true, location: x });
    }
    this.redrawLegends();
  }
  /** @param {Line} line */
  colour(line) {
    if (line.colour === "ink") return this.ink;
    return this.dark ? line.onDark : line.colour;
  }
  /**
   * Text, axes and lines follow the page's theme.
   * @param {HTMLElement} element
   */
  recolour(element) {
    if (!this.doc) return;
    const style = getComputedStyle(element);
    this.ink = style.color;
    const [red = 0, green = 0, blue = 0] = (this.ink.match(/[\d.]+/g) ?? []).map(Number);
    this.dark = (red + green + blue) / 3 > 127;
    for (const plot of this.figure?.plots ?? []) {
      const fig = this.get(plot.figure);
      for (const axis of [...fig.below, ...fig.left]) {
        axis.setv({
          major_label_text_color: this.ink,
          axis_line_color: this.ink,
          major_tick_line_color: this.ink,
          axis_line_alpha: 0.4,
          major_tick_line_alpha: 0.4,
          major_label_text_font: style.fontFamily
        });
      }
      for (const line of plot.lines) this.recolourLine(line);
    }
  }
  /** @param {Line} line */
  recolourLine(line) {
    const value = this.colour(line);
    for (const id of [...line.base.glyphs, ...line.trial.glyphs]) {
      const { glyph } = this.get(id);
      if (glyph.properties.line_color) glyph.line_color = { value };
      if (glyph.properties.fill_color) glyph.fill_color = { value };
    }
    const trial = this.get(
      /** @type {string} */
      line.trial.glyphs[0]
    ).glyph;
    trial.line_alpha = { value: this.dark ? 0.6 : 0.48 };
  }
};
function nextTask() {
  return new Promise((then) => {
    setTimeout(then, 0);
  });
}
function documentOf(views) {
  const [view] = views;
  return view?.model.document ?? null;
}
function release(bokeh, views) {
  const doc = documentOf(views);
  for (const { model } of views) model.js_event_callbacks = {};
  views.clear?.();
  if (!doc) return;
  doc.clear();
  const at = bokeh.documents.indexOf(doc);
  if (at >= 0) bokeh.documents.splice(at, 1);
}

// src/result.js
function unbroken(text) {
  const [, words = text, interval = ""] = /^(.*?)(\([^()]*\))?$/s.exec(text) ?? [];
  return [words, interval ? h("span", { class: "gd-together" }, interval) : null];
}
function resultPart({ result, busy, labels, words }, panel) {
  if (!result) return h("section", { class: "gd-result", hidden: true });
  const code = "result:code";
  return h(
    "section",
    { class: "gd-result" },
    h("div", { class: "gd-proved", role: "status" }, unbroken(result.text)),
    h(
      "div",
      { class: "gd-row" },
      result.more ? h("span", { class: result.warns ? "gd-warns" : "gd-soft" }, result.more) : null,
      codeFold(words.code, code, result.settings, panel),
      button(labels.useIt, () => panel.turnTo(result.settings), {
        class: panel.next === "use" ? "gd-primary" : "",
        off: busy && statusOf(panel),
        "data-use": "result",
        key: "use"
      })
    ),
    panel.unfolded.has(code) ? fixPart(result.settings, "", panel) : null
  );
}

// src/runs_table.js
var MANY_ROWS = 12;
function tablePart({ table }, panel) {
  if (!table.rows.length) return h("section", { class: "gd-runs", hidden: true });
  const wordy = (index) => index < 2 ? "gd-word" : "";
  const drawn = table.rows.flatMap((row, number) => rowParts(row, table.details[number] ?? null, number, table.head, panel));
  const many = table.rows.length > MANY_ROWS;
  return h("section", { class: "gd-runs" }, h(
    "div",
    { class: many ? "gd-scroll gd-many" : "gd-scroll", tabindex: "0", role: "region", "aria-label": panel.words.runs },
    // The roles are said: a table whose cells are stacked, as in a narrow panel, would be none for a screen reader.
    h(
      "table",
      { role: "table" },
      h("thead", { role: "rowgroup" }, h(
        "tr",
        { role: "row" },
        table.head.map((text, index) => h("th", { role: "columnheader", scope: "col", class: wordy(index) }, text))
      )),
      h("tbody", { role: "rowgroup" }, drawn)
    )
  ));
}
function rowParts(row, detail, number, head, panel) {
  const what = `row${number}`;
  const open = panel.unfolded.has(what);
  const name = (cell) => detail ? button(cell.text, () => panel.fold(what), {
    class: "gd-link gd-rowname",
    "aria-expanded": String(open),
    "data-fold": "row",
    tip: cell.title || panel.words.rowTip
  }) : figurePart(cell);
  const cells = row.map((cell, index) => h("td", {
    role: "cell",
    class: `${index < 2 ? "gd-word" : ""} ${cell.tone ? `gd-${cell.tone}` : ""}`,
    "data-head": head[index],
    "data-tip": cell.title || null
  }, index === 0 ? name(cell) : detail ? cell.text : figurePart(cell), cell.small ? h("div", { class: "gd-step" }, cell.small) : null));
  const rows = [h("tr", { role: "row", key: what }, cells)];
  if (detail && open) {
    rows.push(h(
      "tr",
      { role: "row", key: `${what}-more`, class: "gd-detail" },
      h("td", { role: "cell", colspan: String(head.length) }, detailPart(detail, besides(row, head), what, panel))
    ));
  }
  return rows;
}
function figurePart(cell) {
  return cell.title ? h("span", { tabindex: "0", role: "note", ...tipped(cell.title) }, cell.text) : cell.text;
}
function besides(row, head) {
  return row.flatMap(({ title }, index) => title && index ? [`${head[index]}: ${title}`] : []);
}
function detailPart(detail, beside, what, panel) {
  const { labels, words } = panel;
  const code = `${what}:code`;
  return h(
    "div",
    { class: "gd-more-of" },
    detail.losses ? h(
      "figure",
      {},
      h("img", { src: detail.losses, alt: `${labels.losses}: ${detail.judged.join(" ")}`, width: "340", height: "132" }),
      h(
        "figcaption",
        {},
        h("span", {}, h("i", { class: "gd-side" }), labels.baseline),
        h("span", {}, h("i", { class: "gd-side gd-candidate" }), labels.candidate),
        h("span", { class: "gd-soft" }, labels.losses)
      )
    ) : null,
    h(
      "div",
      { class: "gd-said-of" },
      detail.judged.map((text, index) => h("div", { key: text, class: index ? "gd-soft" : detail.warns ? "gd-judged gd-warns" : "gd-judged" }, text)),
      detail.losses || detail.judged.length ? null : h("div", { class: "gd-soft" }, words.noLosses),
      detail.notes.length ? h("ul", {}, detail.notes.map((text) => h("li", { key: text }, text))) : null,
      detail.measured ? h("div", { class: "gd-soft" }, detail.measured) : null,
      beside.length ? h("div", { class: "gd-soft" }, beside.join(" \xB7 ")) : null,
      codeFold(words.code, code, detail.settings, panel),
      panel.unfolded.has(code) ? fixPart(detail.settings, "", panel) : null
    )
  );
}
function outputPart({ output, labels, words }) {
  if (!output) return h("section", { class: "gd-output", hidden: true });
  return h("section", { class: "gd-output" }, h(
    "details",
    { open: true },
    h("summary", {}, labels.output),
    output.text ? h("pre", { tabindex: "0", role: "region", "aria-label": labels.output }, output.text) : null,
    output.images.map((src, index) => h("img", { src, alt: filled(words.picture, { number: index + 1 }), key: String(index) }))
  ));
}

// src/treatment.js
function planPart({ plan, busy, labels, words }, panel) {
  if (!plan) return h("section", { class: "gd-plan", hidden: true });
  const kept2 = Object.keys(plan.settings).length > 0;
  return h(
    "section",
    { class: "gd-plan" },
    h(
      "div",
      { class: "gd-row gd-planhead" },
      h("b", {}, labels.treatment),
      h("span", { class: "gd-sum" }, plan.sentence),
      kept2 ? button(words.setKnobs, () => panel.turnTo(plan.settings), { class: "gd-link", off: busy && statusOf(panel) }) : null
    ),
    plan.steps.length ? h(
      "div",
      { class: "gd-waterfall", role: "table", "aria-label": words.gains },
      plan.steps.map((one, number) => rungPart(one, number))
    ) : null,
    plan.notes.map((text) => h("div", { class: "gd-note", key: text }, text)),
    plan.dropped.length ? h(
      "div",
      { class: "gd-dropped gd-soft" },
      labels.dropped,
      h("ul", {}, plan.dropped.map((one, number) => h("li", { key: String(number) }, h("code", {}, one.label), ` ${one.why}`)))
    ) : null,
    plan.fix ? [h("div", { class: "gd-subtitle" }, labels.changed), changePart(plan.fix, "plan", panel)] : null,
    plan.byHand.length ? h(
      "div",
      { class: "gd-byhand" },
      h("div", { class: "gd-subtitle" }, labels.byHand),
      h("ul", {}, plan.byHand.map((text) => h("li", { key: text }, text)))
    ) : null
  );
}
function rungPart(one, number) {
  const lost = one.added < 0;
  const share = (part) => `${(100 * Math.abs(part)).toFixed(2)}%`;
  return h(
    "div",
    { class: "gd-rung", role: "row", key: String(number) },
    h("span", { class: "gd-what", role: "cell" }, one.label),
    h(
      "span",
      { class: "gd-track", role: "cell", "aria-hidden": "true" },
      h("i", { class: "gd-was", style: `width: ${share(number ? one.before : one.added)}` }),
      number ? h("i", { class: lost ? "gd-lost" : one.whole ? "gd-gain gd-whole" : "gd-gain", style: `width: ${share(one.added)}` }) : null
    ),
    h("b", { role: "cell" }, one.total),
    h("span", { class: "gd-soft", role: "cell" }, one.gain),
    one.losses ? h("span", { class: "gd-soft gd-losses", role: "cell" }, one.losses) : null
  );
}

// src/tips.js
var GAP = 5;
function showTips(root) {
  const tip = Object.assign(document.createElement("div"), { className: "gd-tip", popover: "manual", role: "tooltip", hidden: true });
  const ending = new AbortController();
  const hide = () => {
    tip.hidden = true;
  };
  const show = ({ target, type }) => {
    if (!(target instanceof Element) || target === tip) return;
    const of = target.closest("[data-tip]");
    if (!of || type === "focusin" && !of.matches(":focus-visible")) hide();
    else place(tip, of);
  };
  root.append(tip);
  const { signal } = ending;
  for (const type of ["pointerover", "focusin"]) root.addEventListener(type, show, { signal });
  for (const type of ["pointerleave", "focusout", "click"]) root.addEventListener(type, hide, { signal });
  root.addEventListener("keydown", ({ key }) => {
    if (key === "Escape") hide();
  }, { signal });
  window.addEventListener("scroll", hide, { capture: true, passive: true, signal });
  return () => ending.abort();
}
function place(tip, of) {
  tip.textContent = of.getAttribute("data-tip");
  tip.hidden = false;
  tip.showPopover?.();
  const { left, top, bottom } = of.getBoundingClientRect();
  const below = bottom + GAP + tip.offsetHeight <= innerHeight;
  tip.style.left = `${Math.max(GAP, Math.min(left, innerWidth - tip.offsetWidth - GAP))}px`;
  tip.style.top = `${below ? bottom + GAP : top - GAP - tip.offsetHeight}px`;
}

// src/panel.js
var UNHEARD_MS = 2500;
var COPIED_MS = 1500;
function made(name) {
  return Object.assign(document.createElement("div"), { className: name });
}
var Panel = class {
  /**
   * @param {import("./live").Live} live
   * @param {HTMLElement & { gpuDoctor?: object }} el
   */
  constructor(live, el) {
    this.live = live;
    this.el = el;
    this.id = `gpu-doctor-${numbered()}`;
    this.chosen = {};
    this.grid = {};
    this.unfolded = /* @__PURE__ */ new Set();
    this.whole = /* @__PURE__ */ new Set();
    this.budget = null;
    this.changesTraining = this.stopping = this.unheard = this.unanswered = this.nearing = this.gone = false;
    this.copied = null;
    this.broken = null;
    this.rowCount = 0;
    this.heard = { news: "", text: "" };
    this.asked = /* @__PURE__ */ new Map();
    this.timers = /* @__PURE__ */ new Set();
    this.root = made("gpu-doctor");
    this.root.dataset.gpuDoctor = "panel";
    this.top = made("");
    this.middle = Object.assign(document.createElement("section"), { className: "gd-plots" });
    this.bottom = made("");
    this.root.append(this.top, this.middle, this.bottom);
    el.append(this.root);
    this.cells = [];
    this.legends = [];
    this.key = made("gd-key gd-soft");
    this.plots = new Plots(live.points, () => this.drawLegends());
    this.unplotted = false;
    this.showStatic = (_) => {
    };
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
    this.middle.append(grid, this.key);
  }
  async showPlots() {
    const waits = () => this.sayOfPlots(this.state?.words.plotsWait ?? "");
    try {
      this.broken = null;
      this.plotless(false);
      await this.plots.show(this.live.model, this.cells, waits);
      if (this.plots.doc) this.sayOfPlots(null);
    } catch (error) {
      const said = error instanceof Error ? error.message : String(error);
      this.sayOfPlots(filled(this.state?.words.plotsFailed ?? "{why}", { why: said }));
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
  get state() {
    return this.live.state.header ? (
      /** @type {State} */
      this.live.state
    ) : null;
  }
  /** Only asked for while there is a state. */
  get labels() {
    return (
      /** @type {State} */
      this.live.state.labels
    );
  }
  /** As well. */
  get words() {
    return (
      /** @type {State} */
      this.live.state.words
    );
  }
  /**
   * What a person does next, the one button that stands out: try the advice; use what was proved; with turned knobs try
   * them, or run them for real if they are what was proved.
   * @returns {"try" | "use" | "trial" | "real"}
   */
  get next() {
    const { result } = this.live.state;
    if (!Object.keys(this.chosen).length) return result ? "use" : "try";
    return result && keyOf2(result.settings) === keyOf2(this.chosen) ? "real" : "trial";
  }
  draw() {
    keepFocus(this.root, () => this.redraw());
  }
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
      anatomyPart(state)
    ]);
    this.drawLegends();
    patch(this.bottom, [
      knobsPart(state, this),
      planPart(state, this),
      sweepPart(state, this),
      largestPart(state, this),
      tablePart(state, this),
      outputPart(state),
      findingsPart(state, this),
      footerPart(state)
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
    this.middle.firstElementChild.hidden = on;
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
    const { figure: figure2, doc } = this.plots;
    const words = this.state?.words;
    if (!doc || !figure2 || this.broken || !words) return;
    figure2.plots.forEach((plot, index) => {
      const [cell, legend] = [this.cells[index], this.legends[index]];
      if (!cell || !legend) return;
      cell.ariaLabel = filled(words.plot, { title: plot.title, unit: plot.unit });
      patch(legend, legendPart(plot, this.plots, figure2, words));
    });
    patch(this.key, plotsKeyPart(this.live.points.head, this.plots.pointedAt, words));
  }
  /**
   * Does something later, unless the panel is gone by then.
   * @param {() => void} what
   * @param {number} ms
   */
  later(what, ms) {
    const timer = setTimeout(() => {
      this.timers.delete(timer);
      what();
    }, ms);
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
    this.showStatic = () => {
    };
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
  /** Asks for the forecast of what is turned now, unless it was told: that of a single value always is. */
  foretell() {
    const { state, chosen } = this;
    const key = forecastKey(chosen);
    if (!state?.forecasts.length || !Object.keys(chosen).length || toldOf(state, chosen) !== null) return;
    this.asked.set(key, Date.now());
    this.live.ask({ ask: "forecast", settings: { ...chosen } });
    this.later(() => this.draw(), UNHEARD_MS);
  }
  reset() {
    this.chosen = {};
    this.draw();
  }
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
      this.asked.set(keyOf2(settings), Date.now());
      this.live.ask({ ask: "fix", settings });
      this.later(() => this.draw(), UNHEARD_MS);
    }
    this.fold(what);
  }
  /**
   * Whether the kernel has not answered for a while what was asked for.
   * @param {string} key
   */
  late(key) {
    return Date.now() - (this.asked.get(key) ?? 0) >= UNHEARD_MS;
  }
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
  setBudget(what, text) {
    if (this.budget) this.budget[what] = text;
  }
  /** @param {boolean} on */
  setChanges(on) {
    this.changesTraining = on;
  }
  /** @param {Settings} settings */
  tryIt(settings) {
    this.chosen = { ...settings };
    this.ask("trial");
  }
  /** @param {Ask["ask"]} what */
  ask(what) {
    const { state, live, budget } = this;
    if (!state || !budget) return;
    const { trial } = state;
    const heard = live.messages.last;
    const steps = within(Number.parseInt(budget.steps, 10), trial.mostSteps, trial.steps);
    const seconds = within(Number.parseFloat(budget.seconds), trial.mostSeconds, trial.seconds);
    this.budget = { steps: String(steps), seconds: String(seconds) };
    live.ask({
      ask: what,
      settings: ["trial", "real"].includes(what) ? this.chosen : {},
      steps,
      seconds,
      changes_training: this.changesTraining,
      ...what === "sweep" ? { grid: this.grid } : {}
    });
    if (what === "sweep") this.unfolded.delete("sweep");
    this.later(() => {
      this.unanswered = live.messages.last === heard && !live.state.busy;
      this.draw();
    }, UNHEARD_MS);
    this.draw();
  }
  stop() {
    this.stopping = true;
    this.live.ask({ ask: "stop" });
    this.later(() => {
      this.unheard = this.stopping;
      this.draw();
    }, UNHEARD_MS);
    this.draw();
  }
  /** @param {string} code */
  async copy(code) {
    try {
      await navigator.clipboard.writeText(code);
    } catch {
      const area = document.createElement("textarea");
      area.value = code;
      this.root.append(area);
      area.select();
      document.execCommand("copy");
      area.remove();
    }
    this.copied = code;
    this.draw();
    this.later(() => {
      this.copied = null;
      this.draw();
    }, COPIED_MS);
  }
};

// src/main.js
function initialize({ model }) {
  liveOf(model);
  return () => forget(model);
}
function render({ model, el }) {
  const live = liveOf(model);
  const panel = new Panel(live, el);
  const redrawn = () => {
    panel.showPlots();
  };
  const recoloured = () => {
    panel.plots.recolour(panel.root);
    panel.drawLegends();
  };
  const letKeysGo = keepKeys(panel.root);
  let [leaveStatic, leaveGround] = [() => {
  }, () => {
  }];
  const waiting = whenInPage(el, () => {
    const beside = staticBeside(el);
    leaveStatic = beside.leave;
    panel.stands(beside.show);
    leaveGround = followGround(panel.root, recoloured);
    panel.showPlots();
  });
  live.views.add(panel);
  model.on("change:figure", redrawn);
  panel.draw();
  return () => {
    clearInterval(waiting);
    leaveGround();
    letKeysGo();
    live.views.delete(panel);
    model.off("change:figure", redrawn);
    panel.close();
    leaveStatic();
  };
}
var BUILD = "BUILD_DIGEST";
var page = (
  /** @type {{ gpuDoctorBuilds?: Record<string, { initialize: typeof initialize, render: typeof render }> }} */
  globalThis
);
var builds = page.gpuDoctorBuilds ??= {};
var main_default = builds[BUILD] ??= { initialize, render };
export {
  main_default as default
};
