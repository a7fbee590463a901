// Looks for words in everything that is said in or about dialogues, away from the page's own thread.
import { bytesOf, unpackedText } from "./packed.js";

const chunks = [];
let latest = 0;

// Texts of a dialogue and of its records; keys of JSON are not among them.
function texts(value, found) {
  if (typeof value === "string") found.push(value);
  else if (Array.isArray(value)) for (const part of value) texts(part, found);
  else if (value && typeof value === "object") for (const part of Object.values(value)) texts(part, found);
  return found;
}

self.onmessage = async ({ data }) => {
  if (data.chunk !== undefined) {
    chunks.push({ first: data.first, bytes: bytesOf(data.chunk) });
    return;
  }
  latest = data.number;
  const words = data.words.toLowerCase();
  for (let at = 0; at < chunks.length; at++) {
    if (latest !== data.number) return;
    const hits = [];
    const lines = (await unpackedText(chunks[at].bytes)).split("\n");
    lines.forEach((line, place) => {
      if (texts(JSON.parse(line), []).some((text) => text.toLowerCase().includes(words))) hits.push(chunks[at].first + place);
    });
    self.postMessage({ number: data.number, hits, done: (at + 1) / chunks.length });
  }
  if (!chunks.length) self.postMessage({ number: data.number, hits: [], done: 1 });
};
