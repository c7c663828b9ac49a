// The three figures in the page. They take their points from `Points` and put them into Bokeh's data sources.

import { plotting } from "./bokeh.js";
import { roundUp } from "./points.js";

/** @typedef {import("./figure").Figure} Figure */
/** @typedef {import("./figure").Line} Line */
/** @typedef {import("./figure").Plot} Plot */
/** @typedef {import("./types").Bokeh} Bokeh */
/** @typedef {import("./types").BokehViews} BokehViews */
/** @typedef {import("./types").Layer} Layer */

const MOST_POINTS = 4000;
const FIRST_S = 2;
/** @type {Layer[]} */
const LAYERS = ["base", "trial"];

export class Plots {
  /**
   * @param {import("./points").Points} points
   * @param {() => void} redrawLegends
   */
  constructor(points, redrawLegends) {
    this.points = points;
    this.redrawLegends = redrawLegends;
    /** @type {Figure | null} */
    this.figure = null;
    /** @type {import("./types").BokehDocument | null} */
    this.doc = null;
    /** @type {(() => void) | null} */
    this.letGo = null;
    /** @type {Set<string>} */
    this.hidden = new Set();
    /** @type {number | null} */
    this.pointedAt = null;
    /** @type {Record<string, number>} */
    this.followed = {};
    this.turn = 0;
    this.ink = "currentColor";
    this.dark = false;
  }

  /** Returns one of Bokeh's models. @returns {any} */
  get(/** @type {string} */ id) { return this.doc?.get_model_by_id(id) ?? null; }

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
    const { bokeh, figure } = await plotting(model, waits);
    if (turn !== this.turn) return;
    const places = [[figure.root, cells[0]?.id], ...figure.plots.map((plot, index) => [plot.figure, cells[index]?.id])];
    const item = { docid: "gpu_doctor", roots: Object.fromEntries(places), root_ids: places.map(([root]) => root) };
    const [views] = await bokeh.embed.embed_items({ gpu_doctor: figure.doc }, [item]);
    if (!views) return;
    const letGo = () => release(bokeh, views);
    if (turn !== this.turn) { letGo(); return; }
    const doc = documentOf(views);
    this.figure = figure;
    this.letGo = letGo;
    this.doc = doc;
    this.followed = {};
    this.recolour(/** @type {HTMLElement} */ (cells[0]));
    for (const key of this.hidden) this.showLine(key);
    this.fill(new Set(this.points.lines.keys()), new Map());
    for (const plot of figure.plots) {
      const fig = this.get(plot.figure);
      fig.on_event("mousemove", (/** @type {{ x: number }} */ event) => this.point(event.x));
      fig.on_event("mouseleave", () => this.point(null));
    }
    // Each figure is drawn in a separate task, so that the page is never busy for long, with its current colours and points.
    for (const plot of figure.plots) {
      await nextTask();
      if (turn !== this.turn) return;
      doc?.add_root(doc.get_model_by_id(plot.figure));
    }
  }

  /** Removes the figures from the page and from Bokeh's list of documents, including figures that are being made. */
  clear() {
    this.turn += 1;
    this.letGo?.();
    this.doc = this.letGo = this.pointedAt = null;
  }

  /** Returns the number of points in the longest line. */
  rows() {
    const lines = (this.figure?.plots ?? []).flatMap((plot) => plot.lines);
    return Math.max(0, ...lines.map((line) => this.get(line.base.source)?.get_length() ?? 0));
  }

  /**
   * Puts new points into the figures.
   * @param {Set<string>} whole lines to set completely
   * @param {Map<string, { x: number[], y: number[] }>} fresh increments of other lines
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
   * Extends the axes to the newest points, unless the user has moved them; the reset tool restores them.
   * @param {Figure} figure
   */
  follow(figure) {
    const { end, tops } = this.points.head;
    this.moveEnd(this.get(figure.x), "x", Math.max(end * 1.01, FIRST_S));
    for (const plot of figure.plots) {
      const top = tops[plot.name];
      if (top && top > 0) this.moveEnd(this.get(plot.y), plot.name, roundUp(top));
    }
  }

  /**
   * Moves the end of an axis, unless the user has moved the axis.
   * @param {any} range range of Bokeh
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

  /**
   * Hides or shows a line.
   * @param {string} key
   */
  toggle(key) {
    if (!this.hidden.delete(key)) this.hidden.add(key);
    this.showLine(key);
    this.redrawLegends();
  }

  /**
   * Sets the visibility of a line's glyphs.
   * @param {string} key
   */
  showLine(key) {
    if (!this.doc) return;
    for (const plot of this.figure?.plots ?? []) {
      for (const line of plot.lines.filter((candidate) => candidate.key === key)) {
        for (const id of [...line.base.glyphs, ...line.trial.glyphs]) this.get(id).visible = !this.hidden.has(key);
      }
    }
  }

  /**
   * Draws a cursor through all plots at a moment and shows the values there in the legends; null removes it.
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

  /**
   * Returns the colour of a line on this page.
   * @param {Line} line
   */
  colour(line) {
    if (line.colour === "ink") return this.ink;
    return this.dark ? line.onDark : line.colour;
  }

  /**
   * Sets the colours of text, axes and lines to suit the page's theme.
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
          major_label_text_color: this.ink, axis_line_color: this.ink, major_tick_line_color: this.ink,
          axis_line_alpha: 0.4, major_tick_line_alpha: 0.4, major_label_text_font: style.fontFamily,
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
    const trial = this.get(/** @type {string} */ (line.trial.glyphs[0])).glyph;
    trial.line_alpha = { value: this.dark ? 0.6 : 0.48 };
  }
}

function nextTask() { return new Promise((then) => { setTimeout(then, 0); }); }

/** @param {BokehViews} views */
function documentOf(views) {
  const [view] = views;
  return view?.model.document ?? null;
}

/**
 * Removes our document and its views from Bokeh, which holds every document of the page in a list.
 * @param {Bokeh} bokeh
 * @param {BokehViews} views
 */
function release(bokeh, views) {
  const doc = documentOf(views);
  for (const { model } of views) model.js_event_callbacks = {}; // an object that still holds a figure then holds nothing of ours
  views.clear?.();
  if (!doc) return;
  doc.clear();
  const at = bokeh.documents.indexOf(doc);
  if (at >= 0) bokeh.documents.splice(at, 1);
}
