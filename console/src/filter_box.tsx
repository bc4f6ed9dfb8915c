// A filter as its user types it: with completion, and with a caret under the place of an error.

import { useEffect, useId, useLayoutEffect, useRef, useState } from "preact/hooks";
import type { ApiError, Schema } from "./api";
import { complete } from "./completion";

interface Props {
  schema: Schema;
  value: string;
  /** The error of the last request, if there was one. */
  error: ApiError | undefined;
  change: (text: string) => void;
  submit: (text: string) => void;
  button?: string;
}

/** Returns the offset in JavaScript's units of a number of characters. */
function unitsOf(text: string, characters: number): number {
  return [...text].slice(0, characters).join("").length;
}

export function FilterBox({ schema, value, error, change, submit, button = "Filter" }: Props) {
  const input = useRef<HTMLInputElement>(null);
  const [cursor, setCursor] = useState<number | null>(null);
  const [chosen, setChosen] = useState(-1);
  const [open, setOpen] = useState(false);
  const [scrolled, setScrolled] = useState(0);
  const list = useId();
  const { typed, suggestions } = complete(value.slice(0, cursor ?? value.length), schema);
  const shown = open ? suggestions : [];
  const place = error?.position;

  useEffect(() => {
    if (place === undefined || !input.current) return;
    const at = unitsOf(input.current.value, place);
    input.current.focus();
    input.current.setSelectionRange(at, at);
    setOpen(false);
  }, [error]);
  useLayoutEffect(() => setScrolled(input.current?.scrollLeft ?? 0));

  const accept = (text: string) => {
    const end = cursor ?? value.length;
    const begin = end - typed;
    const next = value.slice(0, begin) + text + value.slice(end);
    change(next);
    setChosen(-1);
    window.requestAnimationFrame(() => {
      const at = begin + text.length;
      input.current?.focus();
      input.current?.setSelectionRange(at, at);
      setCursor(at);
      setOpen(!text.endsWith("'"));
    });
  };
  const press = (event: KeyboardEvent) => {
    const steps: Record<string, number> = { ArrowDown: 1, ArrowUp: -1 };
    const step = steps[event.key];
    if (event.key === " " && event.ctrlKey) {
      setOpen(true);
    } else if (event.key === "ArrowDown" && !open) {
      look();
      setOpen(true);
    } else if (step && shown.length > 0) {
      const from = chosen < 0 && step < 0 ? 0 : chosen;
      setChosen((from + step + shown.length) % shown.length);
    } else if (event.key === "Escape" && open) {
      setOpen(false);
    } else if ((event.key === "Enter" || event.key === "Tab") && shown[chosen]) {
      accept(shown[chosen].text);
    } else if (event.key === "Enter") {
      setOpen(false);
      submit(value);
    } else {
      return;
    }
    event.preventDefault();
    event.stopPropagation();
  };
  const look = () => setCursor(input.current?.selectionStart ?? null);
  const sentence = error?.message.split("\n")[0];
  return (
    <div class="filter">
      <div class="filter-line">
        <div class="filter-input">
          <input
            ref={input}
            type="text"
            class="mono"
            data-filter
            aria-label="Filter"
            placeholder="Filter, such as  year >= 2020 and lang in ('de', 'en')"
            role="combobox"
            aria-expanded={shown.length > 0}
            aria-controls={list}
            aria-autocomplete="list"
            aria-activedescendant={shown[chosen] ? `${list}-${chosen}` : undefined}
            aria-invalid={error !== undefined}
            aria-describedby={error ? `${list}-error` : undefined}
            autocomplete="off"
            autocapitalize="off"
            spellcheck={false}
            value={value}
            onInput={(event) => {
              change(event.currentTarget.value);
              setCursor(event.currentTarget.selectionStart);
              setChosen(-1);
              setOpen(event.currentTarget.value !== "");
            }}
            onKeyDown={press}
            onKeyUp={look}
            onClick={() => {
              look();
              setOpen(value === "");
            }}
            onScroll={(event) => setScrolled(event.currentTarget.scrollLeft)}
            onBlur={() => setOpen(false)}
          />
          <ul class="completions" id={list} role="listbox" aria-label="Completions" hidden={shown.length === 0}>
            {shown.map(({ text, hint }, at) => (
              <li
                key={text}
                id={`${list}-${at}`}
                role="option"
                aria-selected={at === chosen}
                onPointerDown={(event) => {
                  event.preventDefault();
                  accept(text);
                }}
              >
                <span class="mono">{text}</span>
                <small>{hint}</small>
              </li>
            ))}
          </ul>
        </div>
        <button type="button" onClick={() => submit(value)}>
          {button}
        </button>
      </div>
      {error && (
        <div class="filter-error" id={`${list}-error`} role="alert">
          {place !== undefined && (
            <div class="caret mono" aria-hidden="true" style={{ paddingLeft: `calc(${place}ch - ${scrolled}px)` }}>
              <span>▲</span>
            </div>
          )}
          <p>{sentence}</p>
        </div>
      )}
    </div>
  );
}
