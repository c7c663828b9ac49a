// The plots: points come in binary increments into a store that lives as long as the model, so that they may arrive before
// the panel is drawn, or while it is redrawn; from there they go into Bokeh's data sources.

const MOST_POINTS = 4000;
const FIRST_S = 2;
const ON_DARK = { "#0072B2": "#3D9EE0", "#009E73": "#2BBE93" }; // Okabe and Ito's darker two, lighter on a dark page
const NICE = [1, 1.5, 2, 3, 4, 5, 6, 8, 10];

/** The page's BokehJS of the kernel's version: the one that is there, else ours, evaluated once. */
function bokeh() {
  const there = () => (globalThis.Bokeh?.version === BOKEH_VERSION ? globalThis.Bokeh : globalThis.Bokeh?.[BOKEH_VERSION]);
  if (!there()) {
    const amd = globalThis.define;
    globalThis.define = undefined; // an AMD loader of the page would take the bundle for itself
    try { (0, eval)(BOKEH_SOURCE); } finally { globalThis.define = amd; }
  }
  return there();
}

/** All points so far: `lines` maps `layer:key` to {x, y}. */
class Points {
  constructor() {
    this.lines = new Map();
    this.head = { end: 0, tops: {}, names: {}, epochs: [], evaluations: [] };
  }

  /** Takes in a message; returns the names of lines to be set whole, and the increments of the others. */
  take(head, buffer) {
    const values = buffer ? new Float32Array(buffer.buffer.slice(buffer.byteOffset, buffer.byteOffset + buffer.byteLength)) : [];
    const whole = new Set();
    const fresh = new Map();
    for (const name of this.lines.keys()) if (head.clear.includes(name.split(":")[0])) whole.add(name);
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
}

/** The end of an axis, rounded up so that it seldom moves. */
function roundUp(value) {
  const power = 10 ** Math.floor(Math.log10(value));
  return power * NICE.find((step) => step * power >= value * 0.999);
}

/** The three figures in the page. */
class Plots {
  constructor(points, redrawLegends) {
    this.points = points;
    this.redrawLegends = redrawLegends;
    this.figure = null;
    this.doc = null;
    this.views = null;
    this.hidden = new Set();
    this.pointedAt = null;
    this.followed = {};
    this.turn = 0;
  }

  get(id) { return this.doc?.get_model_by_id(id) ?? null; }

  /** Draws `figure` into `cells`, one element per plot; an element needs an id. */
  async show(figure, cells) {
    if (!figure?.doc) return;
    this.clear();
    for (const cell of cells) cell.replaceChildren();
    const roots = Object.fromEntries(figure.plots.map((plot, index) => [plot.figure, cells[index].id]));
    const item = { docid: "gpu_doctor", roots, root_ids: Object.keys(roots) };
    const turn = (this.turn += 1);
    const [views] = await bokeh().embed.embed_items({ gpu_doctor: figure.doc }, [item]);
    if (turn !== this.turn) { views.clear?.(); return; }
    this.figure = figure;
    this.views = views;
    this.doc = [...views][0].model.document;
    this.followed = {};
    this.recolour(cells[0]);
    for (const key of this.hidden) this.showLine(key);
    this.fill(new Set(this.points.lines.keys()), new Map());
    for (const plot of figure.plots) {
      const fig = this.get(plot.figure);
      fig.on_event("mousemove", (event) => this.point(event.x));
      fig.on_event("mouseleave", () => this.point(null));
    }
  }

  /** Takes the figures out of the page, those too that are still being made. */
  clear() {
    this.turn += 1;
    this.views?.clear?.();
    this.doc = this.views = null;
  }

  rows() {
    let most = 0;
    for (const plot of this.figure?.plots ?? []) {
      for (const line of plot.lines) most = Math.max(most, this.get(line.base.source)?.get_length() ?? 0);
    }
    return most;
  }

  fill(whole, fresh) {
    if (!this.doc) return;
    for (const plot of this.figure.plots) {
      for (const line of plot.lines) {
        for (const layer of ["base", "trial"]) {
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
    this.follow();
  }

  /** Moves the axes along, unless a person has moved them; the reset tool brings them back. */
  follow() {
    const { end, tops } = this.points.head;
    this.moveEnd(this.get(this.figure.x), "x", Math.max(end * 1.01, FIRST_S));
    for (const plot of this.figure.plots) {
      const top = tops[plot.name];
      if (top > 0) this.moveEnd(this.get(plot.y), plot.name, roundUp(top));
    }
  }

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

  toggle(key) {
    if (!this.hidden.delete(key)) this.hidden.add(key);
    this.showLine(key);
    this.redrawLegends();
  }

  showLine(key) {
    if (!this.doc) return;
    for (const plot of this.figure.plots) {
      for (const line of plot.lines.filter((one) => one.key === key)) {
        for (const id of [...line.base.glyphs, ...line.trial.glyphs]) this.get(id).visible = !this.hidden.has(key);
      }
    }
  }

  /** A moment pointed at: a line through all plots, and the legends show the values there. */
  point(x) {
    if (!this.doc) return;
    this.pointedAt = x;
    for (const plot of this.figure.plots) {
      const cursor = this.get(plot.cursor);
      cursor.setv(x === null ? { visible: false } : { visible: true, location: x });
    }
    this.redrawLegends();
  }

  /** The value of a line at the moment pointed at, else the mean of its newest two seconds; null = none. */
  value(name) {
    const line = this.points.lines.get(name);
    if (!line?.x.length) return null;
    const last = line.x.length - 1;
    if (this.pointedAt !== null) {
      let at = line.x.findIndex((x) => x >= this.pointedAt);
      if (at < 0) at = last;
      if (at > 0 && this.pointedAt - line.x[at - 1] < line.x[at] - this.pointedAt) at -= 1;
      return Number.isNaN(line.y[at]) ? null : line.y[at];
    }
    let sum = 0;
    let count = 0;
    for (let at = last; at >= 0 && line.x[at] >= line.x[last] - 2; at -= 1) {
      if (!Number.isNaN(line.y[at])) { sum += line.y[at]; count += 1; }
    }
    return count ? sum / count : null;
  }

  colour(line) {
    if (line.colour === "ink") return this.ink ?? "currentColor";
    return (this.dark && ON_DARK[line.colour]) || line.colour;
  }

  /** Text, axes and lines follow the page's theme. */
  recolour(element) {
    if (!this.doc) return;
    const style = getComputedStyle(element);
    this.ink = style.color;
    const [red, green, blue] = (this.ink.match(/[\d.]+/g) ?? [0, 0, 0]).map(Number);
    this.dark = (red + green + blue) / 3 > 127;
    for (const plot of this.figure.plots) {
      const fig = this.get(plot.figure);
      for (const axis of [...fig.below, ...fig.left]) {
        axis.setv({
          major_label_text_color: this.ink, axis_line_color: this.ink, major_tick_line_color: this.ink,
          axis_line_alpha: 0.4, major_tick_line_alpha: 0.4, major_label_text_font: style.fontFamily,
        });
      }
      for (const line of plot.lines) this.recolourLine(line);
    }
  }

  recolourLine(line) {
    const value = this.colour(line);
    for (const id of [...line.base.glyphs, ...line.trial.glyphs]) {
      const { glyph } = this.get(id);
      if (glyph.properties.line_color) glyph.line_color = { value };
      if (glyph.properties.fill_color) glyph.fill_color = { value };
    }
    const trial = this.get(line.trial.glyphs[0]).glyph;
    trial.line_alpha = { value: this.dark ? 0.6 : 0.48 };
  }
}
