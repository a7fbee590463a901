// What the page shows: the place in the address, filters, sorting and the rows that follow from them.
import { computed, signal } from "@preact/signals";
import { columnNamed, count, draw, search, value } from "./data.js";

const plain = (text) => {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
};
const placeOf = (hash) => {
  const [view, id, turn] = hash.replace(/^#\/?/, "").split("/");
  return { view: view || (draw ? "dialogues" : "overview"), id: id ? plain(id) : null, turn: turn ? plain(turn) : null };
};

export const place = signal(placeOf(location.hash));
let followed = location.hash;
const follow = () => {
  if (location.hash === followed) return;
  followed = location.hash;
  place.value = placeOf(followed);
};
addEventListener("hashchange", follow);

// The address of a view; of a dialogue; of one of its turns or pairs.
export const address = (...parts) => `#/${parts.filter((part) => part !== undefined && part !== null).map(encodeURIComponent).join("/")}`;
// At once: the next key may come before the browser says that the address has changed.
export const go = (view, id, turn) => {
  location.hash = address(view, id, turn);
  follow();
};
// Without a step of its own in the browser's history: for going through a list.
export const replacePlace = (view, id) => {
  history.replaceState(null, "", address(view, id));
  follow();
};

// [{column, values} | {column, low, high, missing}]; a row is shown where all hold.
export const filters = signal([]);
export const sorting = signal({ column: "", down: false });
export const words = signal("");
export const hits = signal(null); // Set of rows, or null where nothing is searched
export const searched = signal(1); // share of the dialogues that has been searched

let waiting = null;
export function searchFor(text) {
  words.value = text;
  clearTimeout(waiting);
  waiting = setTimeout(() => {
    const plain = text.trim().toLowerCase();
    if (!plain) {
      hits.value = null;
      searched.value = 1;
      search("");
      return;
    }
    const found = new Set();
    // What the table holds is there at once, of dialogues too whose text is not in this file.
    for (let row = 0; row < count(); row++) {
      const said = [value("id", row), value("first_words", row), value("reasons", row), value("failure_codes", row)];
      if (said.some((part) => part !== null && String(part).toLowerCase().includes(plain))) found.add(row);
    }
    hits.value = new Set(found);
    searched.value = 0;
    search(plain, (rows, done) => {
      rows.forEach((row) => found.add(row));
      if (rows.length) hits.value = new Set(found);
      searched.value = done;
    });
  }, 200);
}

export function holds(filter, row) {
  const held = value(filter.column, row);
  if (filter.values) {
    if (Array.isArray(held)) return filter.values.some((one) => (one === null ? !held.length : held.includes(one)));
    return filter.values.includes(held);
  }
  if (held === null) return filter.missing === true;
  return (filter.low === null || held >= filter.low) && (filter.high === null || held <= filter.high);
}

export const rows = computed(() => {
  const found = [];
  const all = filters.value;
  const among = hits.value;
  for (let row = 0; row < count(); row++) {
    if ((among === null || among.has(row)) && all.every((filter) => holds(filter, row))) found.push(row);
  }
  const { column, down } = sorting.value;
  if (!column) return found;
  const order = columnNamed(column)?.order ?? [];
  const key = (row) => {
    const held = value(column, row);
    if (order.length && held !== null) return order.indexOf(held);
    return Array.isArray(held) ? held.join() : typeof held === "boolean" ? Number(held) : held;
  };
  const keys = new Map(found.map((row) => [row, key(row)]));
  // What has no value stands last, whichever way.
  return found.sort((a, b) => {
    const [one, other] = [keys.get(a), keys.get(b)];
    if (one === null || other === null) return (one === null) - (other === null) || a - b;
    return (one < other ? -1 : one > other ? 1 : 0) * (down ? -1 : 1) || a - b;
  });
});

// Show the dialogues that have a value, and only those.
export function showOnly(column, ...values) {
  filters.value = [{ column, values }];
  searchFor("");
  go("dialogues");
}
export function showRange(column, low, high) {
  filters.value = [{ column, low, high, missing: false }];
  searchFor("");
  go("dialogues");
}
