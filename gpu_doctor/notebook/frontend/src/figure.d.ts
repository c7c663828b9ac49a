// The figures of the live plots, as `notebook/plots.py` describes them.

export interface Glyphs { source: string; glyphs: string[] }
export interface Line {
  key: string; label: string; title: string; colour: string; onDark: string; dash: string; base: Glyphs; trial: Glyphs;
}
export interface Plot {
  name: string; title: string; unit: string; figure: string; y: string; cursor: string;
  /** From which size on a value has how many decimals, the largest first. */
  decimals: [number, number][];
  marks: { epochs: string; evaluations: string };
  lines: Line[];
}
export interface Figure {
  /** A Bokeh document as JSON. */
  doc: object;
  /** Its root, which shows nothing and has the figures as tags. */
  root: string;
  x: string;
  plots: Plot[];
  /** How figures are written. */
  thousands: string;
  missing: string;
}
