// The query of a search: a row, a vector that was pasted, or one from a file.

import { useId, useState } from "preact/hooks";
import { vectorOfFile, vectorOfText } from "./vector_input";

export type Source = "row" | "vector" | "file";

export interface QueryState {
  source: Source;
  row: string;
  vector: string;
  file: File | undefined;
  fileRow: string;
}

export const NO_QUERY: QueryState = { source: "row", row: "", vector: "", file: undefined, fileRow: "0" };

/** Returns the vector of a query that is no row. */
export async function vectorOf(query: QueryState): Promise<number[]> {
  if (query.source === "vector") return vectorOfText(query.vector);
  if (!query.file) throw new Error("choose a file with a vector");
  return vectorOfFile(query.file, Number(query.fileRow) || 0);
}

const SOURCES: [Source, string][] = [
  ["row", ""],
  ["vector", "Vector"],
  ["file", "File"],
];

export function QueryForm(props: {
  query: QueryState;
  change: (query: QueryState) => void;
  submit: () => void;
  rowName: string;
  rowLabel: string;
  dim: number;
}) {
  const { query, change } = props;
  const id = useId();
  const [dragged, setDragged] = useState(false);
  const set = (part: Partial<QueryState>) => change({ ...query, ...part });
  const enter = (event: KeyboardEvent) => {
    if (event.key !== "Enter" || event.shiftKey) return;
    event.preventDefault();
    props.submit();
  };
  return (
    <div class="query">
      <div class="segments" role="radiogroup" aria-label="Search by">
        {SOURCES.map(([source, text]) => (
          <label key={source}>
            <input
              type="radio"
              name={id}
              checked={query.source === source}
              onChange={() => set({ source })}
            />
            <span>{source === "row" ? props.rowName : text}</span>
          </label>
        ))}
      </div>
      {query.source === "row" && (
        <label class="field wide">
          <span>{props.rowLabel}</span>
          <input
            class="mono"
            value={query.row}
            data-first
            onInput={(event) => set({ row: event.currentTarget.value })}
            onKeyDown={enter}
          />
        </label>
      )}
      {query.source === "vector" && (
        <label class="field wide">
          <span>{props.dim} numbers, as JSON or between commas or spaces</span>
          <textarea
            class="mono"
            rows={3}
            value={query.vector}
            placeholder="[0.12, -0.5, …]"
            onInput={(event) => set({ vector: event.currentTarget.value })}
            onKeyDown={enter}
          />
        </label>
      )}
      {query.source === "file" && (
        <div
          class={`file wide ${dragged ? "dragged" : ""}`}
          onDragOver={(event) => {
            event.preventDefault();
            setDragged(true);
          }}
          onDragLeave={() => setDragged(false)}
          onDrop={(event) => {
            event.preventDefault();
            setDragged(false);
            set({ file: event.dataTransfer?.files[0] });
          }}
        >
          <label class="field">
            <span>.json, .npy, .fvecs or .fbin; it stays in the browser</span>
            <input
              type="file"
              accept=".json,.npy,.fvecs,.bvecs,.fbin,.f16bin,.u8bin,.i8bin,.txt"
              onChange={(event) => set({ file: event.currentTarget.files?.[0] })}
            />
          </label>
          <label class="field narrow">
            <span>Vector number</span>
            <input
              type="number"
              min={0}
              value={query.fileRow}
              onInput={(event) => set({ fileRow: event.currentTarget.value })}
              onKeyDown={enter}
            />
          </label>
        </div>
      )}
    </div>
  );
}
