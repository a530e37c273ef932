/** Starting points of the playground: what the choice shows, and the file of each. */

/**
 * @type {{ id: string, title: string, language: import("./sandbox.js").Language, file: string }[]}
 */
export const STARTING_POINTS = [
  { id: "typed", title: "Typed Python: convert a temperature", language: "python", file: "typed.py" },
  { id: "plot", title: "A plot: draw numbers on a canvas", language: "javascript", file: "plot.js" },
  { id: "dom", title: "The DOM: a list that a person sees", language: "javascript", file: "dom.js" },
  { id: "question", title: "A question to the user: order a drink", language: "python", file: "question.py" },
  { id: "long-job", title: "A long job with progress: count slowly", language: "python", file: "long_job.py" },
];

const LOAD_MS = 10_000;

/** @param {string} file */
export async function loadProgram(file) {
  const answer = await fetch(new URL(`programs/${file}`, import.meta.url), { signal: AbortSignal.timeout(LOAD_MS) });
  if (!answer.ok) throw new Error(`The relay has no ${file}. [TR239]`);
  return answer.text();
}
