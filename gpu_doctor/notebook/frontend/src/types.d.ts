// What the page has of its own, and as much of anywidget's and Bokeh's faces as it uses.

import type { Control, FixShown, PanelState } from "./contract";

/** What knobs are turned to. */
export type Settings = FixShown["settings"];
/** Of a knob; null where it is not known. */
export type Value = Control["written"];

export type Layer = "base" | "trial";

/** What to do with the points of a message; the points themselves lie in a buffer beside it, as float32. */
export interface RowsHead {
  clear: string[];
  /** Layer, key, number of points, and whether they replace those that are there. */
  lines: [string, string, number, boolean][];
  names: { base?: string; trial?: string };
  end: number;
  tops: Record<string, number | null>;
  epochs: number[];
  evaluations: number[];
}

/** A message of the kernel. */
export interface Message {
  seq: number;
  kind: string;
  state: Partial<PanelState>;
  rows: RowsHead;
}

/** A model of the page's widget manager, as anywidget hands it out. */
export interface Model {
  get(name: string): any;
  on(name: string, call: (...given: any[]) => void): void;
  off(name: string, call: (...given: any[]) => void): void;
  send(message: object): void;
  widget_manager?: { get_model(id: string): Promise<{ get(name: string): any }> };
}

export interface Bokeh {
  version: string;
  documents: BokehDocument[];
  embed: { embed_items(docs: object, items: object[]): Promise<BokehViews[]> };
  [version: string]: any;
}

export interface BokehDocument {
  get_model_by_id(id: string): any;
  clear(): void;
}

export interface BokehViews extends Iterable<{ model: { document: BokehDocument } }> {
  clear?(): void;
}

