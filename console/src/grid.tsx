// A table of many rows, of which only the visible ones are drawn.

import type { ComponentChildren } from "preact";
import { useEffect, useId, useRef, useState } from "preact/hooks";

export interface GridColumn<T> {
  name: string;
  /** Width in characters. */
  width: number;
  numeric?: boolean;
  cell: (row: T) => ComponentChildren;
  title?: (row: T) => string;
}

interface Props<T> {
  label: string;
  columns: GridColumn<T>[];
  rows: T[];
  rowKey: (row: T) => string | number;
  /** Rows that there are in all, of which those in `rows` are loaded. */
  total: number;
  open: (row: T) => void;
  /** Called when the end of the loaded rows is near. */
  more?: () => void;
  height?: "fit" | "fill";
}

export const ROW_HEIGHT = 33;
const BEYOND = 12;

export function Grid<T>({ label, columns, rows, rowKey, total, open, more, height = "fill" }: Props<T>) {
  const box = useRef<HTMLDivElement>(null);
  const [top, setTop] = useState(0);
  const [visible, setVisible] = useState(30);
  const [active, setActive] = useState(-1);
  const id = useId();
  const first = Math.max(0, Math.floor(top / ROW_HEIGHT) - BEYOND);
  const end = Math.min(rows.length, first + visible + 2 * BEYOND);

  useEffect(() => {
    const own = box.current;
    if (!own) return undefined;
    const measure = () => setVisible(Math.ceil(own.clientHeight / ROW_HEIGHT));
    const observer = new ResizeObserver(measure);
    observer.observe(own);
    return () => observer.disconnect();
  }, []);
  useEffect(() => {
    if (more && end > rows.length - 2 * BEYOND && rows.length < total) more();
  });

  const go = (to: number) => {
    const at = Math.max(0, Math.min(rows.length - 1, to));
    setActive(at);
    const own = box.current;
    if (!own) return;
    const page = own.clientHeight - ROW_HEIGHT;
    if (at * ROW_HEIGHT < own.scrollTop) own.scrollTop = at * ROW_HEIGHT;
    else if ((at + 1) * ROW_HEIGHT > own.scrollTop + page) own.scrollTop = (at + 1) * ROW_HEIGHT - page;
  };
  const press = (event: KeyboardEvent) => {
    const steps: Record<string, number> = {
      ArrowDown: active + 1,
      ArrowUp: active - 1,
      PageDown: active + visible - 2,
      PageUp: active - visible + 2,
      Home: 0,
      End: rows.length - 1,
    };
    const to = steps[event.key];
    const row = rows[active];
    if (to !== undefined && !event.ctrlKey && !event.metaKey) go(to);
    else if (event.key === "Enter" && row) open(row);
    else return;
    event.preventDefault();
  };
  // Names of columns take more room than digits.
  const least = `${columns.reduce((sum, { width }) => sum + width + 3, 0)}ch`;
  const template = columns.map(({ width }) => `minmax(${width + 3}ch, ${width}fr)`).join(" ");
  return (
    <div
      ref={box}
      class={`grid-box ${height}`}
      role="grid"
      aria-label={label}
      aria-rowcount={total + 1}
      aria-colcount={columns.length}
      aria-activedescendant={active >= first && active < end ? `${id}-${active}` : undefined}
      tabIndex={0}
      onKeyDown={press}
      onFocus={() => active < 0 && rows.length > 0 && setActive(0)}
      onScroll={(event) => setTop(event.currentTarget.scrollTop)}
    >
      <div class="grid-row head" role="row" aria-rowindex={1} style={{ gridTemplateColumns: template, minWidth: least }}>
        {columns.map(({ name, numeric }) => (
          <div key={name} role="columnheader" class={numeric ? "number" : ""} title={name}>
            {name}
          </div>
        ))}
      </div>
      <div class="grid-space" role="presentation" style={{ height: `${first * ROW_HEIGHT}px` }} />
      {rows.slice(first, end).map((row, offset) => {
        const at = first + offset;
        return (
          <div
            key={rowKey(row)}
            id={`${id}-${at}`}
            class={`grid-row ${at === active ? "active" : ""}`}
            role="row"
            aria-rowindex={at + 2}
            aria-selected={at === active}
            style={{ gridTemplateColumns: template, minWidth: least }}
            onClick={() => {
              setActive(at);
              open(row);
            }}
          >
            {columns.map(({ name, numeric, cell, title }) => (
              <div key={name} role="gridcell" class={numeric ? "number" : ""} title={title?.(row)}>
                {cell(row)}
              </div>
            ))}
          </div>
        );
      })}
      <div
        class="grid-space"
        role="presentation"
        style={{ height: `${Math.max(0, rows.length - end) * ROW_HEIGHT}px` }}
      />
    </div>
  );
}
