// The figures of the live plots, as `notebook/plots.py` describes them.

export interface Glyphs { source: string; glyphs: string[] }
export interface Line {
  key: string; label: string; title: string; colour: string; onDark: string; dash: string; base: Glyphs; trial: Glyphs;
}
export interface Plot {
  name: string; title: string; unit: string; figure: string; y: string; cursor: string;
  /** Smallest size and number of decimals, the largest size first. */
  decimals: [number, number][];
  marks: { epochs: string; evaluations: string };
  lines: Line[];
}
export interface Figure {
  /** A Bokeh document as JSON. */
  doc: object;
  /** Id of its root, which shows nothing and has the figures as tags. */
  root: string;
  x: string;
  plots: Plot[];
  /** Separator of thousands, and the text for a missing value. */
  thousands: string;
  missing: string;
}
