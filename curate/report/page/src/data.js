// What the file holds: figures, columns, and the dialogues, which are unpacked when they are needed.
import { bytesOf, unpackedText } from "./packed.js";

const element = (name) => document.getElementById(name);

export const figures = JSON.parse(element("figures").textContent);
// Where the file holds what `curate sample` drew: what is asked of it, and what it is drawn from.
export const draw = figures.draw ?? null;

let dialogues = {};
let pairColumns = {};
const NONE = [];

export async function openColumns() {
  const text = await unpackedText(bytesOf(element("columns").textContent));
  element("columns").remove();
  ({ dialogues, pairs: pairColumns } = JSON.parse(text));
}

const read = (column, row) => {
  if (!column) return null;
  if (column.v) return column.v[row] ?? null;
  return column.c[row] < 0 ? null : column.d[column.c[row]];
};

export const value = (name, row) => read(dialogues[name], row);
export const hasColumn = (name) => name in dialogues;
export const count = () => lengthOf(dialogues.id);
export const pairCount = () => lengthOf(pairColumns.id);
export const pairValue = (name, row) => read(pairColumns[name], row);
const lengthOf = (column) => (column ? (column.v ?? column.c).length : 0);

// Distinct values of a column that is filtered by choosing: of lists their members. How often each comes, the commonest
// first unless the column has an order of its own.
export function choices(column) {
  const counts = new Map();
  for (let row = 0; row < count(); row++) {
    const held = value(column.name, row);
    for (const one of Array.isArray(held) ? held : held === null ? NONE : [held]) counts.set(one, (counts.get(one) ?? 0) + 1);
  }
  const entries = [...counts];
  if (column.order?.length) return entries.sort((a, b) => column.order.indexOf(b[0]) - column.order.indexOf(a[0]));
  return entries.sort((a, b) => b[1] - a[1]);
}

export const columnNamed = (name) => figures.columns.find((column) => column.name === name);
export const numberColumns = () => figures.columns.filter((column) => column.kind === "number");

const rowOfId = new Map();
export function rowOf(id) {
  if (!rowOfId.size) for (let row = count() - 1; row >= 0; row--) rowOfId.set(value("id", row), row);
  return rowOfId.get(id);
}

// First row of each chunk.
const starts = [];
figures.chunks.reduce((first, size) => (starts.push(first), first + size), 0);
const held = new Map();
const HELD = 6;

// A dialogue with its records; null where its text is not in this file.
export async function dialogueAt(row) {
  let chunk = starts.length - 1;
  while (chunk > 0 && starts[chunk] > row) chunk--;
  if (chunk < 0 || row >= starts[chunk] + figures.chunks[chunk]) return null;
  if (!held.has(chunk)) {
    if (held.size >= HELD) held.delete(held.keys().next().value);
    held.set(chunk, unpackedText(bytesOf(element(`chunk-${chunk}`).textContent)).then((text) => text.split("\n")));
  }
  const lines = await held.get(chunk);
  return JSON.parse(lines[row - starts[chunk]]);
}

let worker = null;
let number = 0;

// Search all dialogues; `onHits(rows, done)` is called as they are found. A later search ends an earlier one.
export function search(words, onHits) {
  number += 1;
  if (!words) return;
  if (!worker) {
    worker = new Worker(URL.createObjectURL(new Blob([SEARCH_WORKER], { type: "text/javascript" })));
    figures.chunks.forEach((_, chunk) => worker.postMessage({ chunk: element(`chunk-${chunk}`).textContent, first: starts[chunk] }));
  }
  worker.onmessage = ({ data }) => data.number === number && onHits(data.hits, data.done);
  worker.postMessage({ number, words });
}
