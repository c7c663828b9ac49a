// Stores the points of the live plots for as long as the model lives: they arrive in increments, also before the panel is
// drawn and while it is redrawn.

/** @typedef {import("./contract").Points} Head */
/** @typedef {{ x: number[], y: number[] }} Line */

/** A legend shows the mean over this many of the newest seconds. */
const NEWEST_S = 2;
const NICE = [1, 1.5, 2, 3, 4, 5, 6, 8, 10];

export class Points {
  constructor() {
    /** `layer:key` -> points of the line. @type {Map<string, Line>} */
    this.lines = new Map();
    /** @type {Head} */
    this.head = { clear: [], lines: [], names: {}, end: 0, tops: {}, epochs: [], evaluations: [] };
  }

  /**
   * Adds the points of a message.
   * @param {Head} head
   * @param {ArrayBufferView | undefined} buffer
   * @returns {{ whole: Set<string>, fresh: Map<string, Line> }} lines to set completely, and increments of the others
   */
  take(head, buffer) {
    const values = buffer
      ? new Float32Array(buffer.buffer.slice(buffer.byteOffset, buffer.byteOffset + buffer.byteLength)) : new Float32Array();
    const whole = new Set([...this.lines.keys()].filter((name) => head.clear.includes(layerOf(name))));
    const fresh = new Map();
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

  /**
   * Returns true if a line has points in a layer.
   * @param {string} key
   */
  drawn(key) { return ["base", "trial"].some((layer) => this.lines.get(`${layer}:${key}`)?.x.length); }

  /**
   * Returns the value of a line at a moment, or the mean of its newest seconds without a moment; null if there is none.
   * @param {string} name
   * @param {number | null} moment
   */
  value(name, moment) {
    const line = this.lines.get(name);
    if (!line?.x.length) return null;
    return moment === null ? newest(line) : nearest(line, moment);
  }
}

/** @param {string} name */
function layerOf(name) { return name.slice(0, name.indexOf(":")); }

/** @param {Line} line */
function newest({ x, y }) {
  const since = /** @type {number} */ (x.at(-1)) - NEWEST_S;
  const known = y.slice(x.findIndex((value) => value >= since)).filter((value) => !Number.isNaN(value));
  return known.length ? known.reduce((sum, value) => sum + value, 0) / known.length : null;
}

/**
 * @param {Line} line
 * @param {number} moment
 */
function nearest({ x, y }, moment) {
  const after = x.findIndex((value) => value >= moment);
  let at = after < 0 ? x.length - 1 : after;
  if (at > 0 && moment - /** @type {number} */ (x[at - 1]) < /** @type {number} */ (x[at]) - moment) at -= 1;
  const value = /** @type {number} */ (y[at]);
  return Number.isNaN(value) ? null : value;
}

/**
 * Rounds up the end of an axis, so that it rarely moves.
 * @param {number} value above 0
 */
export function roundUp(value) {
  const power = 10 ** Math.floor(Math.log10(value));
  return power * /** @type {number} */ (NICE.find((step) => step * power >= value * 0.999));
}
