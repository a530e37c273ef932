/**
 * Full-text search of the documentation: ranks the sections of all pages for a question, in the browser.
 *
 * BM25 over sections, and to a part over whole pages; a word counts more in a heading and in a page's title. Words are reduced to stems, identifiers are found
 * whole and by their parts, an unknown word is replaced by those that begin with it or differ by one character. It touches no
 * document and fetches nothing: see docs_search_box.js.
 */

/** @typedef {[id: string, heading: string, text: string, code: string]} Section */
/** @typedef {{ url: string, weight: number, sections: Section[] }} IndexedPage */
/** @typedef {{ url: string, title: string, heading: string, text: string, words: string[] }} Found */
/** @typedef {{ page: IndexedPage, section: Section, title: string, length: number }} Entry */
/** @typedef {{ word: string, weight: number }} Form a word that counts for one of the question */

const TITLE = 4;
const HEADING = 5;
const CODE = 0.25;
const K = 1.4;
const B = 0.6;
/** How much the score of a whole page counts, beside that of the section. */
const OF_PAGE = 0.4;
/** A question that is the address of a section, such as the code of an error, leads there. */
const EXACT = 4;
const OF_ONE_PAGE = 2;
const MOST_FORMS = 12;
const STOP_WORDS = new Set(
  ("a about after all am an and any are as at be been but by can could did do does doing done for from get gets getting had has have how i " +
    "if in into is it its me my need of on one or our should so some than that the their them then there these they this to " +
    "use used using want was way we were what when where which while who why will with without would you your").split(" "),
);
/** Words of readers, and those that the pages use. @type {Record<string, string>} */
const SYNONYMS = {
  api: "reference", auth: "token", authenticate: "token", authorize: "token", autostart: "service", background: "service",
  benchmark: "performance", bundler: "vite", cancel: "abort", confirm: "approval", confirmation: "approval", cors: "origin", csp: "policy", deploy: "hosting", disconnect: "reconnect", docker: "hosting",
  drop: "reconnect", env: "variable", fail: "error", iframe: "frame", install: "setup", internet: "network", latency: "performance", login: "token",
  metric: "prometheus", multiple: "several", offline: "away", password: "token", permission: "approval", proxy: "hosting",
  react: "framework", safe: "security", secure: "security", slow: "performance", speed: "performance", start: "begin", startup: "service", timeout: "deadline",
  ubuntu: "linux", unauthorized: "token", vue: "framework",
};

/** @param {string} word */
function stem(word) {
  if (word.length < 4 || /[\d_]/.test(word)) return word;
  let short = word.replace(/(ss|us|is)$|ies$|([sxz]|ch|sh)es$|s$/, (end, kept, sibilant) => kept ?? (end === "ies" ? "y" : sibilant ?? ""));
  short = short.replace(/(?<=[aeiouy].*)(ing|edly|ed|ly|ment)$/, "");
  if (short.length < 3) return word;
  return short.replace(/([bdfglmnprt])\1$/, "$1").replace(/(?<=..)e$/, "").replace(/(?<=..)y$/, "i");
}

/**
 * The words of a text, in the form in which they are compared: `server_offline` is also `server` and `offline`.
 *
 * @param {string} text
 */
function wordsOf(text) {
  /** @type {string[]} */
  const words = [];
  for (const [raw] of text.matchAll(/[\p{L}\p{N}_$@][\p{L}\p{N}_$.@-]*/gu)) {
    const parts = raw.split(/[_.$@-]+|(?<=[a-z])(?=[A-Z])/u).filter((part) => part !== "");
    const whole = raw.replace(/^[@$]+|[.-]+$/gu, "").toLowerCase();
    if (parts.length > 1) words.push(whole);
    for (const part of parts) words.push(stem(part.toLowerCase()));
  }
  return words;
}

export class DocsIndex {
  /** @type {Entry[]} */
  #entries = [];
  /** Word to its weight by entry. @type {Map<string, Map<number, number>>} */
  #postings = new Map();
  #average = 1;
  /** Length of each page. @type {Map<IndexedPage, number>} */
  #pages = new Map();

  /** @param {IndexedPage[]} pages */
  constructor(pages) {
    let total = 0;
    for (const page of pages) {
      const title = page.sections[0]?.[1] ?? "";
      for (const section of page.sections) {
        const [, heading, text, code] = section;
        const words = wordsOf(text);
        const inCode = wordsOf(code);
        const length = words.length + inCode.length * CODE;
        const entry = this.#entries.push({ page, section, title, length }) - 1;
        total += length;
        this.#pages.set(page, (this.#pages.get(page) ?? 0) + length);
        this.#add(entry, words, 1);
        this.#add(entry, inCode, CODE);
        this.#add(entry, wordsOf(heading), HEADING);
        this.#add(entry, wordsOf(title), section === page.sections[0] ? HEADING : TITLE / 2);
      }
    }
    this.#average = total / Math.max(1, this.#entries.length);
  }

  /**
   * @param {number} entry
   * @param {string[]} words
   * @param {number} weight
   */
  #add(entry, words, weight) {
    for (const word of words) {
      let found = this.#postings.get(word);
      if (!found) this.#postings.set(word, (found = new Map()));
      found.set(entry, (found.get(entry) ?? 0) + weight);
    }
  }

  /**
   * The best sections for a question, at most two of a page.
   *
   * @param {string} question
   * @param {number} [most]
   * @returns {Found[]}
   */
  find(question, most = 10) {
    const asked = this.#terms(question);
    if (asked.length === 0) return [];
    /** @type {Map<number, { score: number, covered: number }>} */
    const scores = new Map();
    let whole = 0;
    for (const forms of asked) {
      whole += Math.max(...forms.map(({ word }) => this.#rarity(word)));
      for (const [entry, score] of this.#termScores(forms)) {
        const known = scores.get(entry) ?? { score: 0, covered: 0 };
        scores.set(entry, { score: known.score + score.score, covered: known.covered + score.rarity });
      }
    }
    const ofPages = this.#pageScores(asked);
    const anchor = question.trim().toLowerCase().replace(/\s+/g, "-");
    const ranked = [...scores].map(([entry, { score, covered }]) => {
      const { page, section } = /** @type {Entry} */ (this.#entries[entry]);
      const weight = page.weight * (section[0] === anchor ? EXACT : 1);
      return { entry, score: weight * (score * coverage(covered / whole) + OF_PAGE * (ofPages.get(page) ?? 0)) };
    });
    ranked.sort((a, b) => b.score - a.score);
    return this.#results(ranked, [...new Set(asked.flat().map(({ word }) => word))], most);
  }

  /**
   * The scores of whole pages. A page may answer a question in several sections.
   *
   * @param {Form[][]} asked
   */
  #pageScores(asked) {
    /** @type {Map<IndexedPage, { score: number, words: number }>} */
    const scores = new Map();
    for (const forms of asked) {
      for (const [page, score] of this.#termScoresOfPages(forms)) {
        const known = scores.get(page) ?? { score: 0, words: 0 };
        scores.set(page, { score: known.score + score, words: known.words + 1 });
      }
    }
    return new Map([...scores].map(([page, { score, words }]) => [page, score * coverage(words / asked.length)]));
  }

  /** @param {Form[]} forms */
  #termScoresOfPages(forms) {
    /** @type {Map<IndexedPage, number>} */
    const best = new Map();
    for (const { word, weight } of forms) {
      /** @type {Map<IndexedPage, number>} */
      const counts = new Map();
      for (const [entry, count] of this.#postings.get(word) ?? []) {
        const { page } = /** @type {Entry} */ (this.#entries[entry]);
        counts.set(page, (counts.get(page) ?? 0) + count);
      }
      const rarity = rarityOf(counts.size, this.#pages.size) * weight;
      const average = (this.#average * this.#entries.length) / this.#pages.size;
      for (const [page, count] of counts) {
        const score = rarity * saturation(count, (this.#pages.get(page) ?? 0) / average);
        if (score > (best.get(page) ?? 0)) best.set(page, score);
      }
    }
    return best;
  }

  /**
   * For each word of the question the forms that count for it.
   *
   * @param {string} question
   */
  #terms(question) {
    const all = [...question.matchAll(/[\p{L}\p{N}_$@][\p{L}\p{N}_$.@-]*/gu)].map(([raw]) => raw);
    const kept = all.filter((raw) => !STOP_WORDS.has(raw.toLowerCase()));
    return (kept.length ? kept : all).slice(0, 16).map((raw, index, list) => {
      const is_last = index === list.length - 1 && /\S$/.test(question);
      const words = wordsOf(raw);
      /** @type {Form[]} */
      const forms = words.filter((word) => this.#postings.has(word)).map((word, place) => ({ word, weight: place === 0 ? 1 : 0.6 }));
      const other = SYNONYMS[raw.toLowerCase()] ?? SYNONYMS[words[0] ?? ""];
      if (other) forms.push(...wordsOf(other).filter((word) => this.#postings.has(word)).map((word) => ({ word, weight: 0.45 })));
      if (forms.length === 0 || (is_last && raw.length > 2)) forms.push(...this.#similar(words[0] ?? "", forms.length === 0));
      return forms;
    }).filter((forms) => forms.length > 0);
  }

  /**
   * Words that begin with this one; else those that differ by one character.
   *
   * @param {string} word
   * @param {boolean} isUnknown
   */
  #similar(word, isUnknown) {
    /** @type {Form[]} */
    const found = [];
    for (const known of this.#postings.keys()) {
      if (known !== word && known.startsWith(word) && known.length <= word.length + 6) found.push({ word: known, weight: 0.3 });
    }
    if (found.length === 0 && isUnknown && word.length > 3) {
      for (const known of this.#postings.keys()) if (isNear(word, known)) found.push({ word: known, weight: 0.5 });
    }
    return found.slice(0, MOST_FORMS);
  }

  /** @param {string} word */
  #rarity(word) {
    return rarityOf(this.#postings.get(word)?.size ?? 0, this.#entries.length);
  }

  /**
   * The score of one word of the question by entry: that of its best form.
   *
   * @param {Form[]} forms
   */
  #termScores(forms) {
    /** @type {Map<number, { score: number, rarity: number }>} */
    const best = new Map();
    for (const { word, weight } of forms) {
      const rarity = this.#rarity(word) * weight;
      for (const [entry, count] of this.#postings.get(word) ?? []) {
        const { length } = /** @type {Entry} */ (this.#entries[entry]);
        const score = rarity * saturation(count, length / this.#average);
        if (score > (best.get(entry)?.score ?? 0)) best.set(entry, { score, rarity });
      }
    }
    return best;
  }

  /**
   * @param {{ entry: number, score: number }[]} ranked
   * @param {string[]} words
   * @param {number} most
   */
  #results(ranked, words, most) {
    /** @type {Found[]} */
    const results = [];
    /** @type {Map<IndexedPage, number>} */
    const perPage = new Map();
    for (const { entry } of ranked) {
      const { page, section, title } = /** @type {Entry} */ (this.#entries[entry]);
      const [id, heading, text, code] = section;
      const count = perPage.get(page) ?? 0;
      if (count >= OF_ONE_PAGE) continue;
      perPage.set(page, count + 1);
      results.push({ url: page.url + (id ? `#${id}` : ""), title, heading: heading === title ? "" : heading, text: text || code, words });
      if (results.length === most) break;
    }
    return results;
  }
}

/**
 * How rare a word is that so many of all have.
 *
 * @param {number} having
 * @param {number} all
 */
function rarityOf(having, all) {
  return Math.log(1 + (all - having + 0.5) / (having + 0.5));
}

/**
 * A word that occurs more often counts more, up to a limit, and less in a long text. `length`: 1 is the average.
 *
 * @param {number} count
 * @param {number} length
 */
function saturation(count, length) {
  return (count * (K + 1)) / (count + K * (1 - B + B * length));
}

/** The share of the question that is found, as a factor. @param {number} share */
function coverage(share) {
  return 0.2 + 0.8 * share ** 2;
}

/**
 * The part of a text around the first word that was asked for, as parts that are marked or not.
 *
 * @param {string} text
 * @param {string[]} words
 * @returns {[text: string, isMarked: boolean][]}
 */
export function excerpt(text, words, size = 180) {
  const asked = new Set(words);
  const hits = [...text.matchAll(/[\p{L}\p{N}_$@][\p{L}\p{N}_$.@-]*/gu)].filter(([raw]) => wordsOf(raw).some((word) => asked.has(word)));
  const first = hits[0]?.index ?? 0;
  const start = first < 60 ? 0 : text.lastIndexOf(" ", first - 40) + 1;
  const end = Math.min(text.length, start + size);
  /** @type {[string, boolean][]} */
  const parts = [[start > 0 ? "… " : "", false]];
  let at = start;
  for (const hit of hits) {
    if (hit.index < at || hit.index + hit[0].length > end) continue;
    parts.push([text.slice(at, hit.index), false], [hit[0], true]);
    at = hit.index + hit[0].length;
  }
  parts.push([text.slice(at, end) + (end < text.length ? " …" : ""), false]);
  return parts.filter(([part]) => part !== "");
}

/**
 * Are these words one change, insertion or removal of a character apart?
 *
 * @param {string} a
 * @param {string} b
 */
function isNear(a, b) {
  if (Math.abs(a.length - b.length) > 1 || a === b) return false;
  let start = 0;
  while (start < a.length && start < b.length && a[start] === b[start]) start++;
  let end = 0;
  while (end < a.length - start && end < b.length - start && a[a.length - 1 - end] === b[b.length - 1 - end]) end++;
  return Math.max(a.length, b.length) - start - end <= 1;
}
