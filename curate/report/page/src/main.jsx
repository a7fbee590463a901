// The page: opens the columns, shows the view that the address names, and listens to keys.
import { options, render } from "preact";
import { Browser, Pairs, step, stepTurn } from "./browser.jsx";
import { Changes } from "./compare.jsx";
import { draw, figures, openColumns, pairCount } from "./data.js";
import { Overview } from "./overview.jsx";
import { reviewing } from "./review.js";
import { decide, nextOpen } from "./review.jsx";
import { go, place } from "./state.js";
import { Plain } from "./text.jsx";
import { Threshold } from "./threshold.jsx";

const VIEWS = draw ? [["dialogues", "Review", Browser]] : figures.diff ? [["overview", "What changed", Changes], ["dialogues", "Dialogues", Browser]] : [
  ["overview", "Overview", Overview],
  ["dialogues", "Dialogues", Browser],
  ["pairs", "Pairs", Pairs],
  ["threshold", "Threshold", Threshold],
];
const KEYS = [
  ["j or ↓, k or ↑", "next and previous dialogue"],
  ["n, p", "next and previous turn"],
  ["w", "the weakest turn"],
  ["/", "search"],
  ["o, d", "overview, dialogues"],
  ["1, 2", "in a review: accept, reject"],
  ["1, 2, 3", "in a draw of pairs: A, B, neither"],
  ["Ctrl Enter", "in a review: the next dialogue without a decision"],
  ["Esc", "leave a field, back to the list"],
  ["?", "these keys"],
];

// Whether the keys are shown is asked of the dialog itself: the browser tells of a closing only later.
const help = () => document.getElementById("help");

function Help() {
  return (
    <dialog id="help" aria-labelledby="keys">
      <h2 id="keys">Keys</h2>
      <table class="plain"><tbody>{KEYS.map(([key, about]) => <tr key={key}><th scope="row"><kbd>{key}</kbd></th><td>{about}</td></tr>)}</tbody></table>
      <button onClick={() => help().close()}>Close</button>
    </dialog>
  );
}

function Page() {
  const { view } = place.value;
  const shown = view === "dialogue" ? "dialogues" : view;
  const View = VIEWS.find(([name]) => name === shown)?.[2] ?? VIEWS[0][2];
  return (
    <>
      <header class="top">
        <span class="name"><Plain>{figures.run.name}</Plain></span>
        <nav aria-label="views">
          {VIEWS.map(([name, title]) => (name !== "pairs" || pairCount() > 0) && <a key={name} href={`#/${name}`} aria-current={shown === name ? "page" : undefined}>{title}</a>)}
          <button onClick={() => help().showModal()} title="Keys">?</button>
        </nav>
      </header>
      <main class={`view-${shown}`}><View /></main>
      <Help />
    </>
  );
}

// The next key may be typed before a drawing that is put off: what it is typed into must be there.
const drawnAtOnce = (change) => {
  const later = options.debounceRendering;
  options.debounceRendering = (draw) => draw();
  change();
  options.debounceRendering = later;
};

const DOES = {
  j: () => step(1),
  ArrowDown: () => step(1),
  k: () => step(-1),
  ArrowUp: () => step(-1),
  n: () => stepTurn(1),
  p: () => stepTurn(-1),
  w: () => stepTurn("weakest"),
  o: () => !draw && go("overview"),
  d: () => go("dialogues"),
  1: () => decide(0),
  2: () => decide(1),
  3: () => decide(2),
  "?": () => help().showModal(),
  Escape: () => place.value.view === "dialogue" && go("dialogues"),
  "/": () => {
    if (!document.getElementById("search")) drawnAtOnce(() => go("dialogues"));
    document.getElementById("search")?.focus();
  },
};
const MOVES = new Set(["j", "k", "ArrowDown", "ArrowUp", "n", "p", "w"]);

addEventListener("keydown", (event) => {
  if (reviewing.value && event.ctrlKey && event.key === "Enter") {
    event.target.blur?.();
    nextOpen();
    return;
  }
  if (event.ctrlKey || event.metaKey || event.altKey || help()?.open) return;
  const field = event.target.closest?.("input, select, textarea");
  if (field) {
    if (event.key === "Escape") field.blur();
    return;
  }
  const inBrowser = ["dialogues", "dialogue"].includes(place.value.view);
  if (MOVES.has(event.key) && !inBrowser) return;
  // In the text the arrows scroll.
  if (event.key.startsWith("Arrow") && event.target.closest?.(".main-pane, summary, button, a, [role=region]")) return;
  const act = DOES[event.key];
  if (!act) return;
  event.preventDefault();
  act();
});

openColumns().then(
  () => {
    const app = document.getElementById("app");
    app.replaceChildren();
    render(<Page />, app);
    document.documentElement.dataset.open = "yes";
  },
  (error) => {
    document.getElementById("app").textContent = `The report cannot be read: ${error}. It needs a browser of 2023 or newer.`;
  },
);
