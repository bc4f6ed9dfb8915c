// The rows of a collection, page by page, and those that match a filter.

import { useEffect, useRef, useState } from "preact/hooks";
import { ApiError, collection, idText, type CollectionInfo, type Id, type Row } from "../api";
import { FilterBox } from "../filter_box";
import { count, plural } from "../format";
import { Grid } from "../grid";
import { Busy, ErrorBox, ImageSwitch } from "../parts";
import { RowPanel } from "../row_panel";
import { rowColumns } from "../row_columns";

/** Rows of the first page: as many as are seen at once; and of later ones. */
const FIRST_PAGE = 100;
const PAGE = 1000;

interface Page {
  filter: string;
  rows: Row[];
  next: Id | undefined;
  total: number;
}

export function RowsView(props: { info: CollectionInfo; mayWrite: boolean; changed: () => void }) {
  const { name, schema } = props.info;
  const [text, setText] = useState("");
  const [page, setPage] = useState<Page | undefined>();
  const [error, setError] = useState<ApiError | undefined>();
  const [busy, setBusy] = useState(false);
  const [open, setOpen] = useState<Id | undefined>();
  const running = useRef<AbortController | null>(null);

  const asError = (failure: unknown) =>
    setError(failure instanceof ApiError ? failure : new ApiError("internal", String(failure), 0));
  const load = async (filter: string) => {
    running.current?.abort();
    const abort = new AbortController();
    running.current = abort;
    setBusy(true);
    try {
      const of = filter ? { filter } : {};
      const [first, counted] = await Promise.all([
        collection(name).scan({ ...of, limit: FIRST_PAGE }, abort.signal),
        collection(name).count(filter, abort.signal),
      ]);
      setPage({ filter, rows: first.rows, next: first.next, total: counted.count });
      setError(undefined);
    } catch (failure) {
      if (!abort.signal.aborted) asError(failure);
    } finally {
      if (running.current === abort) {
        running.current = null;
        setBusy(false);
      }
    }
  };
  const more = async () => {
    if (running.current || !page || page.next === undefined) return;
    const abort = new AbortController();
    running.current = abort;
    try {
      const of = page.filter ? { filter: page.filter } : {};
      const later = await collection(name).scan({ ...of, after: page.next, limit: PAGE }, abort.signal);
      setPage({ ...page, rows: [...page.rows, ...later.rows], next: later.next });
    } catch (failure) {
      if (!abort.signal.aborted) {
        asError(failure);
        setPage({ ...page, next: undefined });
      }
    } finally {
      if (running.current === abort) running.current = null;
    }
  };
  useEffect(() => {
    void load("");
    return () => running.current?.abort();
  }, [name]);

  const rows = page?.rows ?? [];
  return (
    <section class="rows">
      <FilterBox
        schema={schema}
        value={text}
        error={error?.position !== undefined || error?.kind === "invalid_argument" ? error : undefined}
        change={(next) => {
          setText(next);
          if (error) setError(undefined);
        }}
        submit={(filter) => void load(filter.trim() ? filter : "")}
      />
      {error && error.kind !== "invalid_argument" && (
        <ErrorBox error={error} again={() => void load(page?.filter ?? "")} />
      )}
      <div class="line">
        <p class="quiet" role="status">
          {busy
            ? "Loading …"
            : page &&
              (page.filter
                ? `${plural(page.total, "row")} of ${count(props.info.rows)} match`
                : plural(page.total, "row"))}
        </p>
        <ImageSwitch rows={rows} />
      </div>
      {page && page.total === 0 && !busy && (
        <p class="empty">{page.filter ? "No row matches the filter." : "The collection has no rows yet."}</p>
      )}
      {page && rows.length > 0 && (
        <Grid
          label={`Rows of ${name}`}
          columns={rowColumns(schema, rows)}
          rows={rows}
          rowKey={(row) => idText(row.id)}
          total={Math.max(page.total, rows.length)}
          open={(row) => setOpen(row.id)}
          more={() => void more()}
        />
      )}
      {!page && !error && <Busy on={busy} />}
      {open !== undefined && (
        <RowPanel
          name={name}
          schema={schema}
          id={open}
          mayWrite={props.mayWrite}
          close={() => setOpen(undefined)}
          removed={() => {
            setOpen(undefined);
            void load(page?.filter ?? "");
            props.changed();
          }}
        />
      )}
    </section>
  );
}
