// Search of a collection, with how it was answered.

import { useEffect, useMemo, useState } from "preact/hooks";
import { collection, idOf, idText, type CollectionInfo, type Id, type Row } from "../api";
import { FilterBox } from "../filter_box";
import { count, nanoseconds, plural, short } from "../format";
import { Grid, type GridColumn } from "../grid";
import { useAction } from "../load";
import { Busy, ErrorBox, ImageSwitch, Notes } from "../parts";
import { NO_QUERY, QueryForm, vectorOf, type QueryState } from "../query_form";
import { RowPanel } from "../row_panel";
import { rowColumns } from "../row_columns";
import { goTo, linkTo } from "../route";
import { Plans, Timeline } from "../timeline";

const DEFAULT_K = 10;
const DEFAULT_RECALL = 0.95;

interface Asked {
  like?: Id;
  vector?: number[];
  field?: string;
  k: number;
  recall: number;
  filter?: string;
}

/** A distance as a bar between the nearest and the farthest of the answers. */
function Distance({ value, rows }: { value: number; rows: Row[] }) {
  const all = rows.map((row) => row.distance ?? 0);
  const [low, high] = [Math.min(...all, 0), Math.max(...all)];
  const share = high > low ? (value - low) / (high - low) : 0;
  return (
    <span class="distance">
      <span class="distance-bar" style={{ width: `${Math.round(100 * share)}%` }} />
      <span>{short(value, 4)}</span>
    </span>
  );
}

function found(info: CollectionInfo, rows: Row[]): GridColumn<Row>[] {
  const distance: GridColumn<Row> = {
    name: "distance",
    width: 12,
    numeric: true,
    cell: (row) => <Distance value={row.distance ?? 0} rows={rows} />,
    title: (row) => String(row.distance),
  };
  const [id, ...columns] = rowColumns(info.schema, rows);
  return id ? [id, distance, ...columns] : [distance];
}

export function SearchView(props: { info: CollectionInfo; like: string | null; mayWrite: boolean }) {
  const { name, schema } = props.info;
  const [query, setQuery] = useState<QueryState>({ ...NO_QUERY, row: props.like ?? "" });
  const [field, setField] = useState(schema.vectors[0]?.name ?? "");
  const [k, setK] = useState(String(DEFAULT_K));
  const [recall, setRecall] = useState(String(DEFAULT_RECALL));
  const [filter, setFilter] = useState("");
  const [open, setOpen] = useState<Id | undefined>();
  const shape = schema.vectors.find((one) => one.name === field) ?? schema.vectors[0];

  const search = useAction(async (given: QueryState) => {
    const asked: Asked = { k: Number(k), recall: Number(recall), ...(field ? { field } : {}) };
    if (!Number.isInteger(asked.k) || asked.k < 1) throw new Error("k is a whole number, at least 1");
    if (!(asked.recall > 0 && asked.recall <= 1)) throw new Error("recall is above 0, and at most 1");
    if (given.source === "row") asked.like = idOf(given.row, schema.id);
    else asked.vector = await vectorOf(given);
    if (filter.trim()) asked.filter = filter;
    const started = performance.now();
    const answer = await collection(name).search({ ...asked, explain: true });
    return { asked, answer, milliseconds: performance.now() - started };
  });
  const explain = useAction((asked: Asked) => collection(name).explain(asked));
  const run = (given = query) => {
    explain.forget();
    void search.run(given);
  };
  useEffect(() => {
    if (props.like === null) return;
    const next: QueryState = { ...NO_QUERY, row: props.like };
    setQuery(next);
    run(next);
  }, [props.like, name]);

  const rows = search.value?.answer.results[0]?.neighbors ?? [];
  const columns = useMemo(() => found(props.info, rows), [rows]);
  const filterError =
    search.error?.position !== undefined || search.error?.message.startsWith("the filter") ? search.error : undefined;
  return (
    <section class="search">
      <form
        class="panel"
        onSubmit={(event) => {
          event.preventDefault();
          run();
        }}
      >
        <div class="query-line">
          <QueryForm
            query={query}
            change={setQuery}
            submit={run}
            rowName="Like a row"
            rowLabel={schema.id === "u64" ? "Id of a row (a number)" : "Id of a row"}
            dim={shape?.dim ?? 0}
          />
          <div class="options">
            {schema.vectors.length > 1 && (
              <label class="field">
                <span>Vector field</span>
                <select value={field} onChange={(event) => setField(event.currentTarget.value)}>
                  {schema.vectors.map((one) => (
                    <option key={one.name}>{one.name}</option>
                  ))}
                </select>
              </label>
            )}
            <label class="field narrow">
              <span>Neighbours (k)</span>
              <input type="number" min={1} value={k} onInput={(event) => setK(event.currentTarget.value)} />
            </label>
            <label class="field narrow">
              <span>Recall</span>
              <input
                type="number"
                min={0.01}
                max={1}
                step={0.01}
                value={recall}
                onInput={(event) => setRecall(event.currentTarget.value)}
              />
            </label>
          </div>
        </div>
        <FilterBox
          schema={schema}
          value={filter}
          error={filterError}
          change={setFilter}
          submit={() => run()}
          button="Search"
        />
      </form>
      <ErrorBox error={filterError ? undefined : search.error} />
      <Busy on={search.busy} what="Searching" />
      {search.value && (
        <>
          <div class="line">
            <p class="quiet" role="status">
              {plural(rows.length, "neighbour")}
              {search.value.asked.filter && ` among ${plural(search.value.answer.matches, "matching row")}`}, in{" "}
              {nanoseconds(search.value.milliseconds * 1e6)} with the network
            </p>
            <ImageSwitch rows={rows} />
          </div>
          <Notes notes={search.value.answer.notes} />
          {rows.length > 0 && (
            <Grid
              label="Neighbours, nearest first"
              columns={columns}
              rows={rows}
              rowKey={(row) => idText(row.id)}
              total={rows.length}
              open={(row) => setOpen(row.id)}
              height="fit"
            />
          )}
          <h2>How it was answered</h2>
          <Plans plans={search.value.answer.plans ?? []} />
          {!explain.value && (
            <button disabled={explain.busy} onClick={() => search.value && void explain.run(search.value.asked)}>
              {explain.busy ? "Explaining …" : "Explain: time each part"}
            </button>
          )}
          <ErrorBox error={explain.error} />
          {explain.value && <Timeline explained={explain.value} />}
        </>
      )}
      {!search.value && !search.busy && !search.error && (
        <p class="empty">
          Search by a row of the {count(props.info.rows)}, by a vector, or by a file. A row in <i>Rows</i> has the
          button “Search like this one”.
        </p>
      )}
      {open !== undefined && (
        <RowPanel
          name={name}
          schema={schema}
          id={open}
          mayWrite={props.mayWrite}
          close={() => setOpen(undefined)}
          removed={() => {
            setOpen(undefined);
            goTo(linkTo("collections", name, "rows"));
          }}
        />
      )}
    </section>
  );
}
