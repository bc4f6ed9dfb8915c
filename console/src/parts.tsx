// Small parts that several pages have.

import type { ComponentChildren } from "preact";
import { useEffect, useRef } from "preact/hooks";
import type { ApiError } from "./api";
import { cellText, isImage, isLink } from "./format";
import { images, useCell } from "./session";

export function ErrorBox({ error, again }: { error: ApiError | undefined; again?: () => void }) {
  if (!error) return null;
  return (
    <div class="error" role="alert">
      <div>
        <strong>{error.kind.replaceAll("_", " ")}</strong>
        <pre>{error.message}</pre>
      </div>
      {again && <button onClick={again}>Try again</button>}
    </div>
  );
}

export function Busy({ on, what = "Loading" }: { on: boolean; what?: string }) {
  return (
    <span class="busy" role="status">
      {on ? `${what} …` : ""}
    </span>
  );
}

export function Figure({ label, value, note }: { label: string; value: string; note?: string | undefined }) {
  return (
    <div class="figure">
      <dt>{label}</dt>
      <dd>
        {value}
        {note && <small>{note}</small>}
      </dd>
    </div>
  );
}

export function Notes({ notes }: { notes: string[] }) {
  if (notes.length === 0) return null;
  return (
    <ul class="notes">
      {notes.map((note) => (
        <li key={note}>{note}</li>
      ))}
    </ul>
  );
}

/** A dialog over the page, which Escape and a click beside it close. */
export function Dialog(props: {
  title: string;
  close: () => void;
  children: ComponentChildren;
  side?: boolean;
}) {
  const element = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    const before = document.activeElement;
    element.current?.showModal();
    return () => (before instanceof HTMLElement ? before.focus() : undefined);
  }, []);
  return (
    <dialog
      ref={element}
      class={props.side ? "side" : ""}
      aria-label={props.title}
      onClose={props.close}
      onClick={(event) => event.target === element.current && props.close()}
    >
      <div class="dialog">
        <header>
          <h2>{props.title}</h2>
          <button class="plain" onClick={props.close} aria-label="Close">
            ×
          </button>
        </header>
        {props.children}
      </div>
    </dialog>
  );
}

/** A value of a row: a picture or a link if it is the address of one, else its text. */
export function Value({ value, large = false }: { value: unknown; large?: boolean }) {
  const shown = useCell(images);
  if (isImage(value)) {
    const name = value.startsWith("data:") ? "picture" : (value.split(/[?#]/)[0]?.split("/").pop() ?? value);
    if (!shown && !value.startsWith("data:")) {
      return (
        <a class="picture-link" href={value} target="_blank" rel="noopener noreferrer" title={value}>
          {large ? value : name}
        </a>
      );
    }
    return (
      <img
        class={large ? "large" : "thumb"}
        src={value}
        alt={name}
        loading="lazy"
        referrerpolicy="no-referrer"
      />
    );
  }
  if (isLink(value) && large) {
    return (
      <a href={value} target="_blank" rel="noopener noreferrer">
        {value}
      </a>
    );
  }
  return <>{cellText(value)}</>;
}

/** The switch that loads pictures, shown only where rows have addresses of some. */
export function ImageSwitch({ rows }: { rows: { [name: string]: unknown }[] }) {
  const on = useCell(images);
  const has = rows.some((row) => Object.values(row).some((value) => isImage(value)));
  if (!has) return null;
  return (
    <label class="check" title="Their hosts then see your address">
      <input type="checkbox" checked={on} onChange={(event) => images.set(event.currentTarget.checked)} />
      Show pictures of other hosts
    </label>
  );
}
