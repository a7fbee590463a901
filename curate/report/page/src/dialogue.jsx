// A dialogue turn by turn, each with its scores and what was found there.
import { useEffect, useState } from "preact/hooks";
import { Compared } from "./compare.jsx";
import { dialogueAt, draw, figures, rowOf, value } from "./data.js";
import { Message } from "./message.jsx";
import { Pair } from "./pair.jsx";
import { isHidden } from "./review.js";
import { BlindPair, Decision, PairReview, TurnReview, isPairOpen, titleOf } from "./review.jsx";
import { Adherence, ConversationLevel, Findings, Metrics, Reason, TurnScores, Verdict, byTurn, leastOf, untrue } from "./scores.jsx";
import { address, place, showOnly } from "./state.js";
import { Plain, Text, digits, plural, spoken } from "./text.jsx";

export function Dialogue({ id, target }) {
  const row = rowOf(id);
  const [held, setHeld] = useState(undefined);
  useEffect(() => {
    let isWanted = true;
    setHeld(undefined);
    if (row !== undefined) dialogueAt(row).then((dialogue) => isWanted && setHeld({ row, dialogue }), (error) => isWanted && setHeld({ row, error }));
    return () => (isWanted = false);
  }, [row]);
  useEffect(() => {
    if (!held?.dialogue) return;
    const element = target && document.getElementById(/^\d+$/.test(target) ? `turn-${target}` : `pair-${target}`);
    if (element) element.scrollIntoView({ block: "start" });
    else document.getElementById("main-pane").scrollTop = 0;
  }, [held, target]);
  if (row === undefined) return <p class="pane-note">There is no dialogue <Plain>{id}</Plain> in this file.{figures.parts.length > 0 && " It may be in another part."}</p>;
  if (!held || held.row !== row) return <p class="pane-note">Reading …</p>;
  if (held.error) return <p class="pane-note">The dialogue cannot be read: {String(held.error)}</p>;
  const View = figures.diff ? Compared : Whole;
  return <View row={row} id={id} target={target} dialogue={held.dialogue} />;
}

function Whole({ row, id, target, dialogue }) {
  const judgment = dialogue?.judge;
  const pair = place.value.view === "pairs" && dialogue?.pairs?.find((one) => one.pair_id === target);
  if (pair && isPairOpen(pair)) {
    return (
      <article class="dialogue">
        <header><h2><a href={address("pairs", id, target)}><Plain>{id}</Plain></a></h2></header>
        <Role dialogue={{ ...dialogue, adherence: undefined }} />
        {before(dialogue, pair).map((message, at) => <Message key={at} message={message} />)}
        <BlindPair dialogue={dialogue} pair={pair} />
      </article>
    );
  }
  const hidden = isHidden(id);
  if (hidden && dialogue) {
    return (
      <article class="dialogue">
        <header><h2><a href={address("dialogue", id)}><Plain>{titleOf(row)}</Plain></a></h2></header>
        <Decision dialogue={dialogue} decided={decided(row)} />
        <Role dialogue={{ ...dialogue, adherence: undefined }} />
        <Body dialogue={{ ...dialogue, judge: undefined, adherence: undefined, metrics: undefined, factuality: undefined, pairs: (dialogue.pairs ?? []).filter((pair) => pair.chosen) }} known={dialogue} id={id} />
      </article>
    );
  }
  return (
    <article class="dialogue">
      <header>
        <h2><a href={address("dialogue", id)}><Plain>{id}</Plain></a></h2>
        <p class="badges">
          {value("verdict", row) && <Verdict verdict={value("verdict", row)} />}
          {(value("sets", row) ?? []).map((set) => <span class="badge" key={set}>in {set}</span>)}
          {(value("reasons", row) ?? []).map((reason) => (
            <button class="badge bad" key={reason} title={`${figures.meanings[reason] ?? "a reason"}. Show all with it.`} onClick={() => showOnly("reasons", reason)}>{reason}</button>
          ))}
        </p>
        <Unscored row={row} dialogue={dialogue} />
        {judgment?.decision_basis && <p><Plain>{judgment.decision_basis}</Plain></p>}
        <ConversationLevel judgment={judgment} />
        <Role dialogue={dialogue} />
      </header>
      {dialogue && <Decision dialogue={dialogue} decided={decided(row)} />}
      {dialogue ? <Body dialogue={dialogue} id={id} /> : (
        <p class="pane-note">The text of this dialogue is left out of this file, to keep it under {figures.max_mb} MB. <code>curate report --split</code> writes several files; <code>curate show</code> prints it.</p>
      )}
      <Columns row={row} />
      {dialogue && <Origin dialogue={dialogue} />}
    </article>
  );
}

// What the rules decided: what an answer replaces.
const decided = (row) => (value("sets", row)?.includes("sft") ? "accept" : value("sets", row) ? "reject" : null);

function Unscored({ row, dialogue }) {
  return ["judge", "adherence", "metrics", "factuality"].map((stage) => {
    const reason = value(`${stage}_unscored`, row);
    if (!reason) return null;
    const detail = dialogue?.[stage]?.detail;
    return <p key={stage} class="note">{stage}: unscored, {spoken(reason)} ({figures.meanings[reason] ?? ""}){detail && <>: <Plain>{detail}</Plain></>}</p>;
  });
}

export function Role({ dialogue }) {
  if (!dialogue) return null;
  const adherence = dialogue.adherence;
  const reasons = [...(adherence?.per_turn ?? []), ...(adherence?.conversation ? [{ turn: null, ...adherence.conversation }] : [])];
  const marks = reasons
    .filter((turn) => turn.reason?.role_words)
    .map((turn) => ({ words: turn.reason.role_words, kind: "violated", title: turn.turn === null ? "not kept" : `not kept in turn ${turn.turn}` }));
  return (
    <>
      {adherence?.session_score !== undefined && (
        <p><Adherence record={adherence} />.</p>
      )}
      {adherence?.conversation?.reason && <Reason reason={adherence.conversation.reason} />}
      {dialogue.role_definition && <details open={marks.length > 0}><summary>Role{marks.length > 0 && `, ${plural(marks.length, "violation")} marked`}</summary><Text text={dialogue.role_definition} marks={marks} /></details>}
      {dialogue.scenario && <details><summary>Scenario</summary><Text text={dialogue.scenario} /></details>}
      {dialogue.tools?.length > 0 && <details><summary>{plural(dialogue.tools.length, "tool")}</summary><Text text={JSON.stringify(dialogue.tools, null, 2)} /></details>}
      {dialogue.evidence?.length > 0 && <details><summary>{plural(dialogue.evidence.length, "document")}</summary>{dialogue.evidence.map((text, at) => <Text key={at} text={text} />)}</details>}
      {dialogue.expected_outcomes?.length > 0 && <details><summary>Expected outcomes</summary>{dialogue.expected_outcomes.map((text, at) => <Text key={at} text={text} />)}</details>}
    </>
  );
}

// `known`: the dialogue with what the judge says, where `dialogue` has it hidden.
function Body({ dialogue, known = dialogue, id }) {
  const recorded = new Map((known.judge?.per_turn ?? []).map((turn) => [turn.turn, turn.scores]));
  const [scores, roles, facts] = [byTurn(dialogue.judge), byTurn(dialogue.adherence), byTurn(dialogue.factuality)];
  const weakest = dialogue.judge?.weakest_turn ?? null;
  const firstTurn = dialogue.turns[0]?.[1] ?? dialogue.messages.length;
  const system = dialogue.messages.slice(0, firstTurn).filter((message) => (message.content ?? "") !== (dialogue.role_definition ?? ""));
  const poor = (dialogue.metrics?.metrics ?? []).filter((metric) => metric.failure_code);
  const pairs = dialogue.pairs ?? [];
  const loose = pairs.filter((pair) => !dialogue.turns.some(([number]) => number === pair.turn));
  return (
    <>
      {dialogue.metrics?.metrics && <Metrics record={dialogue.metrics} id={id} />}
      {dialogue.factuality?.precision !== undefined && <p>Facts: precision {digits(dialogue.factuality.precision)}.</p>}
      {system.map((message, at) => <Message key={at} message={message} />)}
      {dialogue.turns.map(([number, start, stop]) => (
        <Turn key={number} number={number} id={id} dialogue={known} recorded={recorded.get(number)} messages={dialogue.messages.slice(start, stop)} scores={scores.get(number)} role={roles.get(number)}
          facts={facts.get(number)} isWeakest={weakest === number} faults={poor.filter((metric) => metric.turns?.includes(number))}
          unscored={dialogue.judge?.unscored_turns?.find((turn) => turn.turn === number)} pairs={pairs.filter((pair) => pair.turn === number)} />
      ))}
      {loose.map((pair) => <Either key={pair.pair_id} dialogue={known} id={id} pair={pair} />)}
    </>
  );
}

// The messages before a pair's replies: the dialogue's own next one is often one of its sides.
function before(dialogue, pair) {
  const [, start, stop] = dialogue.turns.find(([number]) => number === pair.turn) ?? [0, 0, 0];
  const reply = dialogue.messages.slice(start, stop).findIndex(({ role }) => role === "assistant");
  return dialogue.messages.slice(0, start + Math.max(0, reply));
}

function Either({ dialogue, id, pair }) {
  if (draw) return <BlindPair dialogue={dialogue} pair={pair} />;
  if (isPairOpen(pair)) return <p class="note"><a href={address("pairs", id, pair.pair_id)}>A pair to compare</a>, by itself: the reply above is often one of its sides.</p>;
  return <><Pair pair={pair} /><PairReview dialogue={dialogue} pair={pair} /></>;
}

function Turn({ number, id, dialogue, recorded, messages, scores, role, facts, isWeakest, faults, unscored, pairs }) {
  const least = leastOf(scores);
  const current = place.value.turn === String(number);
  return (
    <section class={`turn ${least ? `edge-${least}` : ""} ${current ? "current" : ""}`} id={`turn-${number}`} aria-label={`turn ${number}`}>
      <h3>
        <a href={address("dialogue", id, number)}>Turn {number}</a>
        <TurnScores scores={scores} role={role} isWeakest={isWeakest} />
      </h3>
      {unscored && <p class="note">unscored: {spoken(unscored.reason)} <Plain>{unscored.detail}</Plain></p>}
      <div class="turn-body">
        <div class="said">{messages.map((message, at) => <Message key={at} message={message} marks={message.role === "assistant" ? untrue(facts) : []} />)}</div>
        <div class="found">
          <Findings scores={scores} role={role} faults={faults} facts={facts} />
        </div>
      </div>
      <TurnReview dialogue={dialogue} turn={number} scores={recorded} />
      {pairs.map((pair) => <Either key={pair.pair_id} dialogue={dialogue} id={id} pair={pair} />)}
    </section>
  );
}

export function Columns({ row }) {
  const held = figures.columns.map((column) => ({ ...column, held: value(column.name, row) })).filter((column) => column.held !== null && column.name !== "id");
  const show = (one) => (Array.isArray(one) ? one.join(", ") : typeof one === "number" ? digits(one, 3) : String(one));
  return (
    <details>
      <summary>All columns</summary>
      <table class="plain"><tbody>
        {held.map((column) => <tr key={column.name}><th scope="row" title={column.about}>{column.name}</th><td><Plain>{show(column.held)}</Plain></td></tr>)}
      </tbody></table>
    </details>
  );
}

export function Origin({ dialogue }) {
  const { lineage, metadata, labels, hash, collisions, judge } = dialogue;
  return (
    <details>
      <summary>Origin</summary>
      <Text text={JSON.stringify({ content: hash, lineage, labels, metadata, collisions, remarks: judge?.remarks, windows: judge?.windows }, null, 2)} />
    </details>
  );
}
