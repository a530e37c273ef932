/**
 * Store of tasks in IndexedDB: what the next worker of a server needs of the tasks of one that ended with its pages.
 *
 * Each record has the Web Lock of the worker that wrote it. A record of a worker that still runs is not given to another one before
 * that lock is free, so no task runs twice. What a record contains is decided in Python. Without IndexedDB, nothing is stored.
 */

const DATABASE = "tabrelay-tasks";
const STORE = "tasks";
/** The link to the relay does not wait longer for the records. */
const READ_MS = 1000;

/** @typedef {{ server: string, owner: string, expires: number, json: string }} Row */

/** The lock of this worker, which it holds until it ends. */
let owner = "";
/** Writes happen one after the other. @type {Promise<unknown>} */
let last = Promise.resolve();

/** @param {string} lock */
export function useOwner(lock) {
  owner = lock;
}

/**
 * @param {string} server
 * @param {string} id
 * @param {number} expires milliseconds since 1970
 * @param {string} json
 */
export function keepTask(server, id, expires, json) {
  write((store) => store.put({ server, owner, expires, json }, `${server} ${id}`));
}

/** @param {string} server @param {string} id */
export function dropTask(server, id) {
  write((store) => store.delete(`${server} ${id}`));
}

/**
 * Give the records of workers of this server that have ended to `restore`, as JSON texts; those of a worker that still runs when it
 * has ended. Resolves when the former are given.
 *
 * @param {string} server
 * @param {(json: string) => void} restore
 */
export async function readTasks(server, restore) {
  try {
    /** @type {Promise<never>} */
    const limit = new Promise((_, reject) => setTimeout(reject, READ_MS, new Error("it takes too long")));
    const rows = await Promise.race([allRows(), limit]);
    const others = new Set(rows.filter((row) => row.server === server && row.owner !== owner).map((row) => row.owner));
    // The query alone would keep the page of a worker in a tab out of the back/forward cache.
    if (!others.size) return;
    const held = new Set((await navigator.locks.query()).held?.map(({ name }) => name));
    for (const lock of others) if (!held.has(lock)) await takeOver(server, lock, restore);
    for (const lock of others) if (held.has(lock)) void navigator.locks.request(lock, () => takeOver(server, lock, restore)).catch(() => undefined);
  } catch {
    // Some browsers, private windows and sandboxed frames have no storage.
  }
}

/** @param {string} server @param {string} lock @param {(json: string) => void} restore */
async function takeOver(server, lock, restore) {
  for (const row of await allRows()) {
    if (row.server === server && row.owner === lock) restore(row.json);
  }
}

/** Rows whose time is not over; the others are removed. @returns {Promise<Row[]>} */
async function allRows() {
  await last;
  // Opening it would make it, in each app without tasks.
  if (!(await indexedDB.databases()).some(({ name }) => name === DATABASE)) return [];
  return withStore((store) => {
    /** @type {Row[]} */
    const rows = [];
    const reading = store.openCursor();
    reading.onsuccess = () => {
      const cursor = reading.result;
      if (!cursor) return;
      if (cursor.value.expires > Date.now()) rows.push(cursor.value);
      else cursor.delete();
      cursor.continue();
    };
    return rows;
  });
}

/** @param {(store: IDBObjectStore) => void} operation */
function write(operation) {
  // Where a browser has no storage, a task ends with its worker.
  last = last.then(() => withStore(operation)).catch(() => undefined);
}

/**
 * @template T
 * @param {(store: IDBObjectStore) => T} operation
 * @returns {Promise<T>} when the transaction is complete
 */
function withStore(operation) {
  return new Promise((resolve, reject) => {
    const opening = indexedDB.open(DATABASE, 1);
    opening.onupgradeneeded = () => opening.result.createObjectStore(STORE);
    opening.onerror = () => reject(opening.error);
    opening.onsuccess = () => {
      const database = opening.result;
      const transaction = database.transaction(STORE, "readwrite");
      const found = operation(transaction.objectStore(STORE));
      transaction.addEventListener("complete", () => {
        database.close();
        resolve(found);
      });
      transaction.addEventListener("abort", () => {
        database.close();
        reject(transaction.error);
      });
    };
  });
}
