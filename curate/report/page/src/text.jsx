// Text from elsewhere: never markup, and what would reorder or hide it is shown.
import { useState } from "preact/hooks";

// Controls, marks of direction, embeddings, overrides and isolates, blanks without width, tags. The joiners that scripts and
// emoji need stay.
const SIGNS = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060\u2066-\u2069\ufeff]|[\u{e0000}-\u{e007f}]/gu;
const LIMIT = 20_000;

const code = (sign) => `U+${sign.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}`;

function withSigns(text) {
  const parts = [];
  let end = 0;
  for (const match of text.matchAll(SIGNS)) {
    if (match[0] === "\r") continue;
    parts.push(text.slice(end, match.index), <span class="sign" title="an invisible character">{code(match[0])}</span>);
    end = match.index + match[0].length;
  }
  return parts.length ? [...parts, text.slice(end)] : text;
}

export const Plain = ({ children }) => <bdi>{withSigns(String(children ?? ""))}</bdi>;

// marks: [{words, title, kind}], each marked where it first stands.
export function Text({ text, marks = [] }) {
  const [whole, setWhole] = useState(false);
  const shown = whole ? text : text.slice(0, LIMIT);
  const places = marks
    .map((mark) => ({ ...mark, at: mark.words ? shown.indexOf(mark.words) : -1 }))
    .filter((mark) => mark.at >= 0)
    .sort((a, b) => a.at - b.at);
  const parts = [];
  let end = 0;
  for (const { at, words, title, kind } of places) {
    if (at < end) continue;
    parts.push(withSigns(shown.slice(end, at)), <mark class={kind} title={title}>{withSigns(words)}</mark>);
    end = at + words.length;
  }
  parts.push(withSigns(shown.slice(end)));
  return (
    <div class="text" dir="auto">
      {parts}
      {shown.length < text.length && (
        <button class="more" onClick={() => setWhole(true)}>
          Show all {text.length.toLocaleString("en")} characters
        </button>
      )}
    </div>
  );
}

export const digits = (number, places = 2) => (number === null || number === undefined ? "" : Number(number.toFixed(places)).toLocaleString("en"));
export const plural = (count, word) => `${count.toLocaleString("en")} ${word}${count === 1 ? "" : "s"}`;
export const spoken = (name) => String(name).replaceAll("_", " ");
export const share = (part, of) => (of ? `${((100 * part) / of).toFixed(part && part / of < 0.1 ? 1 : 0)} %` : "");
