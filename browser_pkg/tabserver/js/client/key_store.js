/**
 * The keys of this origin, in IndexedDB. They can be used here and not exported; no token is kept.
 *
 * localStorage has a mark for each, `key ID`, which tells the other tabs of a change. A browser that can't store a
 * CryptoKey keeps the key itself there instead, `raw KEY`. A token of an earlier version is replaced by its keys.
 *
 * @import { Keys } from "../proof.js"
 */

import { decode, encode, keyOf, keysFrom } from "../proof.js";

const DATABASE = "tabrelay";
const STORE = "keys";

/**
 * Keep a token's keys under a name; gives them.
 * @param {string} name
 * @param {string} token
 * @returns {Promise<Keys>}
 */
export async function keepKeys(name, token) {
  const raw = await keyOf(token);
  const keys = await keysFrom(raw);
  let mark = `raw ${encode(raw)}`;
  if (typeof keys.page.key !== "string") {
    try {
      await inStore("readwrite", (store) => store.put(keys, name));
      mark = `key ${keys.worker.id}`;
    } catch (error) {
      console.warn("tabrelay: this browser can't keep a key that can't be exported", error);
    }
  }
  localStorage.setItem(name, mark);
  return keys;
}

/**
 * The keys under a name, if there are any.
 * @param {string} name
 * @returns {Promise<Keys | undefined>}
 */
export async function findKeys(name) {
  const mark = localStorage.getItem(name);
  if (!mark) return undefined;
  if (mark.startsWith("raw ")) return keysFrom(decode(mark.slice(4)));
  if (!mark.startsWith("key ")) return keepKeys(name, mark);
  try {
    const found = /** @type {Keys | undefined} */ (await inStore("readonly", (store) => store.get(name)));
    return found && mark === `key ${found.worker.id}` ? found : undefined;
  } catch (error) {
    console.warn("tabrelay: the keys of this origin can't be read", error);
    return undefined;
  }
}

/** @param {string} name */
export async function dropKeys(name) {
  localStorage.removeItem(name);
  await inStore("readwrite", (store) => store.delete(name)).catch(() => undefined);
}

/**
 * @template Result
 * @param {IDBTransactionMode} mode
 * @param {(store: IDBObjectStore) => IDBRequest<Result>} act
 * @returns {Promise<Result>}
 */
async function inStore(mode, act) {
  const opening = indexedDB.open(DATABASE, 1);
  opening.onupgradeneeded = () => opening.result.createObjectStore(STORE);
  const database = await settled(opening);
  try {
    return await settled(act(database.transaction(STORE, mode).objectStore(STORE)));
  } finally {
    database.close();
  }
}

/**
 * @template Result
 * @param {IDBRequest<Result>} request
 * @returns {Promise<Result>}
 */
function settled(request) {
  return new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });
}
