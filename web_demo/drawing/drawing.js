/**
 * The demo's drawing: steps that the visitor and agents made, with one history for all of them.
 *
 * The picture is what the steps since the last "clear" drew. Undo takes back the newest step of any of them, and a clear is a step
 * like others. Each change has a revision, by which tabs find the newest version. Steps that two tabs make at the same time are both
 * kept. It touches no document and no storage.
 */

/**
 * @typedef {import("./shapes.js").Shape} Shape
 * @typedef {{ id: string, by: string, shape: Shape | null }} Step without a shape: everything before it was cleared
 * @typedef {{ revision: number, by: string, seen: Record<string, number>, done: Step[], undone: Step[] }} Version `by`: the tab that made
 *   it; `seen`: how many changes of each tab it contains
 * @typedef {{ step: Step | null, isUndone: boolean, isOwn: boolean }} Change `isOwn`: made in this tab
 */

/** Bounds of what is stored and sent to other tabs: about 2 MB of JSON at most. */
const MAX_STEPS = 400;
export const MAX_POINTS = 400;
const NAME_LENGTH = 40;
const MAX_TABS = 20;
/** A merge counts as many changes: it must be newer than what a tab that changes all the time has by then. */
const MERGE_CHANGES = 20;

export class DrawingFull extends Error {
  constructor() {
    super(`The drawing is full: it has ${MAX_STEPS} shapes. Undo some, or clear it.`);
    this.name = "DrawingFull";
  }
}

export class Drawing extends EventTarget {
  /** @type {Version} */
  #version = { revision: 0, by: "", seen: {}, done: [], undone: [] };
  #tab = crypto.randomUUID().slice(0, 8);
  #changes = 0;
  /** Steps of this tab, each with the number of its change, until another tab's version contains them. @type {Map<string, { step: Step, change: number }>} */
  #unconfirmed = new Map();

  get version() {
    return this.#version;
  }

  /** What is on the canvas, from the back to the front. @returns {Step[]} */
  get visible() {
    const { done } = this.#version;
    return done.slice(done.findLastIndex(({ shape }) => shape === null) + 1);
  }

  /** @returns {Shape[]} */
  get shapes() {
    return this.visible.flatMap(({ shape }) => shape ?? []);
  }

  get canUndo() {
    return this.#version.done.length > 0;
  }

  get canRedo() {
    return this.#version.undone.length > 0;
  }

  /**
   * @param {string} by the visitor or a client
   * @param {Shape} shape
   * @returns {Step}
   */
  draw(by, shape) {
    return this.#append(by, shape);
  }

  /** Replace the shape of a step while it is being drawn. False: the step is gone. @param {string} id @param {Shape} shape */
  redraw(id, shape) {
    const step = this.visible.find((each) => each.id === id);
    if (!step) return false;
    const changed = { ...step, shape };
    this.#change({ done: this.#version.done.map((each) => (each === step ? changed : each)) }, changed);
    return true;
  }

  /** Clear the canvas. Returns how many shapes were on it. @param {string} by */
  clear(by) {
    const count = this.visible.length;
    if (count) this.#append(by, null);
    return count;
  }

  /** @param {number} [count] @returns {Step[]} the steps that were taken back, the newest first */
  undo(count = 1) {
    const { done, undone } = this.#version;
    const taken = done.slice(Math.max(0, done.length - count)).reverse();
    if (taken.length) {
      for (const { id } of taken) this.#unconfirmed.delete(id);
      this.#change({ done: done.slice(0, done.length - taken.length), undone: [...undone, ...taken] }, taken.at(-1), true);
    }
    return taken;
  }

  /** @returns {Step | undefined} the step that was made again */
  redo() {
    const { done, undone } = this.#version;
    const step = undone.at(-1);
    if (step) this.#change({ done: [...done, step], undone: undone.slice(0, -1) }, step);
    return step;
  }

  /** Take the version of another tab, or a stored one, if it is newer. @param {unknown} other @returns {boolean} */
  load(other) {
    if (!isVersion(other) || !isNewer(other, this.#version)) return false;
    const { seen = {}, by = "" } = other;
    const before = this.#version.done.at(-1);
    this.#version = { ...other, seen, by };
    const last = other.done.at(-1);
    this.#notify({ step: last && last.id !== before?.id ? last : null, isUndone: false, isOwn: false });
    const confirmed = seen[this.#tab] ?? 0;
    for (const [id, { change }] of this.#unconfirmed) if (change <= confirmed) this.#unconfirmed.delete(id);
    if (this.#unconfirmed.size) this.#merge();
    return true;
  }

  /** Add what this tab drew while another one made the version that was just loaded. */
  #merge() {
    const { revision, done } = this.#version;
    const own = new Map([...this.#unconfirmed].map(([id, { step }]) => [id, step]));
    const known = done.map((step) => own.get(step.id) ?? step);
    for (const { id } of done) own.delete(id);
    this.#change({ revision: revision + MERGE_CHANGES, done: [...known, ...own.values()].slice(-MAX_STEPS) });
  }

  /** @param {string} by @param {Shape | null} shape */
  #append(by, shape) {
    let { done } = this.#version;
    if (shape && done.length >= MAX_STEPS) {
      done = this.visible; // the steps before the last clear make room
      if (done.length >= MAX_STEPS) throw new DrawingFull();
    }
    const step = { id: crypto.randomUUID().slice(0, 8), by: by.slice(0, NAME_LENGTH), shape };
    this.#change({ done: [...done, step], undone: [] }, step);
    return step;
  }

  /**
   * @param {Partial<Version>} changes
   * @param {Step} [step]
   * @param {boolean} [isUndone]
   */
  #change(changes, step, isUndone = false) {
    const { revision, seen } = this.#version;
    const change = ++this.#changes;
    const others = Object.entries(seen).filter(([tab]) => tab !== this.#tab);
    const counts = Object.fromEntries([...others.slice(1 - MAX_TABS), [this.#tab, change]]);
    this.#version = { ...this.#version, revision: revision + 1, ...changes, by: this.#tab, seen: counts };
    if (step && !isUndone) this.#remember(step, change);
    this.#notify({ step: step ?? null, isUndone, isOwn: true });
  }

  /** @param {Step} step @param {number} change */
  #remember(step, change) {
    this.#unconfirmed.delete(step.id);
    this.#unconfirmed.set(step.id, { step, change });
    const [oldest] = this.#unconfirmed.keys();
    if (oldest !== undefined && this.#unconfirmed.size > MAX_STEPS) this.#unconfirmed.delete(oldest);
  }

  /** @param {Change} detail */
  #notify(detail) {
    this.dispatchEvent(new CustomEvent("change", { detail }));
  }
}

/** Of two versions with the same revision, all tabs take the same one. @param {Version} one @param {Version} other */
function isNewer(one, other) {
  return one.revision > other.revision || (one.revision === other.revision && (one.by ?? "") > other.by);
}

/** @param {any} value @returns {value is Version} */
function isVersion(value) {
  return Number.isInteger(value?.revision) && Array.isArray(value.done) && Array.isArray(value.undone);
}
