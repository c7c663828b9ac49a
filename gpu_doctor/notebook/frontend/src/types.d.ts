// The page's own types, and the parts of anywidget's and Bokeh's interfaces that it uses.

export type Layer = "base" | "trial";

/** A model of the page's widget manager, as anywidget provides it. */
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
  add_root(model: object): void;
  clear(): void;
}

export interface BokehViews extends Iterable<{ model: { document: BokehDocument, js_event_callbacks: object } }> {
  clear?(): void;
}

