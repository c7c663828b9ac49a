// What the kernel tells the page: the panel's state, and the messages that carry it.

export type Value = string | number | boolean | null;
export type Settings = Record<string, Value>;

export interface Progress { text: string; steps: string; share: number; left: string }
export interface Header {
  machine: string; status: string; failed: boolean; name: string; clock: string; steps: string; rate: string;
  settings: string; stop: string; progress: Progress | null;
}
export interface Paragraph { title: string; text: string }
export interface Prescription {
  text: string; predicted: string; settings: Settings; code: string; safety: string; changes: string;
}
export interface Advice extends Prescription { page: Paragraph[] }
export interface Verdict {
  text: string; kind: string; accent: string; early: string; risk: string; advice: Advice | null;
}
export interface Segment {
  phase: string; label: string; share: number; percent: string; time: string; colour: string; ink: string;
}
export interface Anatomy { total: string; of: string; segments: Segment[] }
export interface Choice { value: Value; label: string; refusal: string }
export interface Offer { choices: Choice[]; refusal: string; partly: string[] }
export interface Knob extends Offer {
  name: string; label: string; front: boolean; safe: boolean; changes: string; written: Value; otherwise?: Partial<Offer>;
}
export interface Fix {
  lines: [string, string][]; cells: { label: string; text: string }[]; notes: string[]; paste: string;
  complete: boolean; error: string; settings?: Settings;
}
export interface Rung {
  label: string; added: number; before: number; total: string; gain: string; losses: string; whole: boolean;
}
export interface Plan {
  sentence: string; steps: Rung[]; dropped: { label: string; why: string }[]; notes: string[]; byHand: string[];
  settings: Settings; fix: Fix | null;
}
export interface Place { label: string; total: string; said: string; share: number; best: boolean; faster: boolean }
export interface Sweep { sentence: string; places: Place[]; first: number; notes: string[]; settings: Settings }
export interface Size { label: string; peak: string; said: string; share: number; chosen: boolean }
export interface Largest { sentence: string; sizes: Size[]; notes: string[]; settings: Settings }
export interface Cell { text: string; tone: string; title: string }
export interface Unfolded {
  losses: string; warns: boolean; judged: string[]; notes: string[]; settings: Settings; measured: string;
}
export interface Table { head: string[]; rows: Cell[][]; details: (Unfolded | null)[] }
export interface Finding {
  rule: string; headline: string; price: string; risk: string; evidence: string[]; prescriptions: Prescription[];
  page: Paragraph[];
}
export interface Silence { reason: string; number: number; rules: string; folded: boolean }
export interface Budget { steps: number; seconds: number; mostSteps: number; mostSeconds: number }
export interface Output { text: string; images: string[] }

export interface State {
  status: string; busy: boolean; message: string;
  header: Header; verdict: Verdict; anatomy: Anatomy; knobs: Knob[]; trial: Budget;
  plan: Plan | null; sweep: Sweep | null; largest: Largest | null; table: Table;
  findings: Finding[]; silent: Silence[]; footer: { overhead: string; notes: string[] };
  sweepMost: number; noLargest: string; fixes: Record<string, Fix>;
  before: { text: string; tone: string }[] | null; output: Output | null;
}
