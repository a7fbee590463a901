// A list of rows of one height, of which only those in sight are in the page.
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";

const BEYOND = 8;

// rows: numbers; `current`: the one that is open; `draw(row)` gives what stands in it.
export function List({ rows, current, height, draw, pick, label }) {
  const box = useRef(null);
  const [view, setView] = useState({ top: 0, height: 800 });
  const at = rows.indexOf(current);
  useLayoutEffect(() => {
    const measure = () => setView({ top: box.current.scrollTop, height: box.current.clientHeight });
    measure();
    const watch = new ResizeObserver(measure);
    watch.observe(box.current);
    return () => watch.disconnect();
  }, []);
  useEffect(() => {
    if (at < 0) return;
    const { scrollTop, clientHeight } = box.current;
    if (at * height < scrollTop) box.current.scrollTop = at * height;
    else if ((at + 1) * height > scrollTop + clientHeight) box.current.scrollTop = (at + 1) * height - clientHeight;
  }, [at, rows]);
  const first = Math.max(0, Math.floor(view.top / height) - BEYOND);
  const last = Math.min(rows.length, Math.ceil((view.top + view.height) / height) + BEYOND);
  const shown = rows.slice(first, last);
  return (
    <div class="list" ref={box} role="listbox" tabindex="0" aria-label={label} aria-activedescendant={shown.includes(current) ? `row-${current}` : undefined}
      onScroll={() => setView({ top: box.current.scrollTop, height: box.current.clientHeight })}>
      <div class="list-whole" role="presentation" style={{ height: `${rows.length * height}px` }}>
        {shown.map((row, place) => (
          <div key={row} id={`row-${row}`} class={`list-row ${row === current ? "current" : ""}`} role="option" aria-selected={row === current}
            aria-setsize={rows.length} aria-posinset={first + place + 1} style={{ top: `${(first + place) * height}px`, height: `${height}px` }}
            onClick={() => pick(row)}>
            {draw(row)}
          </div>
        ))}
      </div>
    </div>
  );
}
