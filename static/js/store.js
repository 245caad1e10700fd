// Conversations in IndexedDB, one record each, so that a list of them needs no other format:
//
//   {id, version: 1, title, created, updated, skip, messages: [message]}
//   message {id, role: "user"|"assistant", content, created, status, ...}; an assistant's has what its quiet line shows
//
// Without storage (private mode, full disk) the page goes on in memory: open() resolves to null and save() to false.

const NAME = "pagelight";
const STORE = "conversations";
const CURRENT = "pagelight.conversation";

let database; // promise

function open() {
  database ??= new Promise((resolve) => {
    let request;
    try {
      request = indexedDB.open(NAME, 1);
    } catch {
      return resolve(null);
    }
    request.onupgradeneeded = () => request.result.createObjectStore(STORE, { keyPath: "id" }).createIndex("updated", "updated");
    request.onsuccess = () => {
      const db = request.result;
      db.onversionchange = () => db.close();
      resolve(db);
    };
    request.onerror = () => resolve(null);
    request.onblocked = () => resolve(null);
  });
  return database;
}

async function run(mode, work) {
  const db = await open();
  if (!db) return undefined;
  return new Promise((resolve) => {
    try {
      const transaction = db.transaction(STORE, mode);
      const request = work(transaction.objectStore(STORE));
      transaction.oncomplete = () => resolve(request.result);
      transaction.onabort = () => resolve(undefined);
      transaction.onerror = () => resolve(undefined);
    } catch {
      resolve(undefined);
    }
  });
}

// save keeps a conversation and resolves to whether it is kept.
export const save = async (conversation) => (await run("readwrite", (store) => store.put(conversation))) !== undefined;

export const load = (id) => run("readonly", (store) => store.get(id));

// The conversation that this tab shows: each tab has its own, a new tab starts with the last one used anywhere.
export function current() {
  try {
    return sessionStorage.getItem(CURRENT) ?? localStorage.getItem(CURRENT);
  } catch {
    return null;
  }
}

export function setCurrent(id) {
  try {
    sessionStorage.setItem(CURRENT, id);
    localStorage.setItem(CURRENT, id);
  } catch {
    // Not kept: the next load starts with an empty conversation.
  }
}
