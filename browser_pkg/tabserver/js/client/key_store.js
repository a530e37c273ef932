/**
 * Key store of this origin: non-exportable keys in IndexedDB.
 *
 * localStorage has one entry for each, `key ID`, whose change notifies the other tabs. In a browser that can't store a CryptoKey,
 * the entry contains the raw key, `raw KEY`. A token that an earlier version stored is replaced by its keys. No token is stored.
 *
 * @import { Keys } from "../proof.js"
 */

import { decode, encode, keyOf, keysFrom } from "../proof.js";

const DATABASE = "tabrelay";
const STORE = "keys";

/** May this page use storage? Browsers block it in some private windows and for some frames. */
export function canStore() {
  try {
    return localStorage !== null;
  } catch {
    return false;
  }
}

/**
 * Store a token's keys under a name, and return them.
 * @param {string} name
 * @param {string} token
 * @returns {Promise<Keys>}
 */
export async function keepKeys(name, token) {
  const raw = await keyOf(token);
  const keys = await keysFrom(raw);
  let entry = `raw ${encode(raw)}`;
  if (typeof keys.page.key !== "string") {
    try {
      await withStore("readwrite", (store) => store.put(keys, name));
      entry = `key ${keys.worker.id}`;
    } catch (error) {
      console.warn(`tabrelay: This browser can't store keys that scripts can't read (${error}). The pairing works, with a readable key. [TR475]`);
    }
  }
  localStorage.setItem(name, entry);
  return keys;
}

/**
 * The keys under a name, if there are any.
 * @param {string} name
 * @returns {Promise<Keys | undefined>}
 */
export async function findKeys(name) {
  const entry = localStorage.getItem(name);
  if (!entry) return undefined;
  if (entry.startsWith("raw ")) return keysFrom(decode(entry.slice(4)));
  if (!entry.startsWith("key ")) return keepKeys(name, entry);
  try {
    const found = /** @type {Keys | undefined} */ (await withStore("readonly", (store) => store.get(name)));
    return found && entry === `key ${found.worker.id}` ? found : undefined;
  } catch (error) {
    console.warn(`tabrelay: The keys of this site can't be read (${error}). The page asks to be paired again. [TR475]`);
    return undefined;
  }
}

/** @param {string} name */
export async function dropKeys(name) {
  localStorage.removeItem(name);
  await withStore("readwrite", (store) => store.delete(name)).catch(() => undefined);
}

/**
 * @template Result
 * @param {IDBTransactionMode} mode
 * @param {(store: IDBObjectStore) => IDBRequest<Result>} operation
 * @returns {Promise<Result>}
 */
async function withStore(mode, operation) {
  const opening = indexedDB.open(DATABASE, 1);
  opening.onupgradeneeded = () => opening.result.createObjectStore(STORE);
  const database = await resultOf(opening);
  try {
    return await resultOf(operation(database.transaction(STORE, mode).objectStore(STORE)));
  } finally {
    database.close();
  }
}

/**
 * @template Result
 * @param {IDBRequest<Result>} request
 * @returns {Promise<Result>}
 */
function resultOf(request) {
  return new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });
}
