// A map of a sample of a collection, or of an index.

import { useMemo, useState } from "preact/hooks";
import { collection, idText, index, type CollectionInfo, type Id, type IndexInfo, type MapAnswer, type Row } from "../api";
import { colouring } from "../colours";
import { FilterBox } from "../filter_box";
import { cellText, count, percent, plural } from "../format";
import { useLoad } from "../load";
import { MapCanvas } from "../map_canvas";
import { Busy, ErrorBox } from "../parts";
import { RowPanel } from "../row_panel";
import { goTo, linkTo } from "../route";

const SIZES = [500, 2000, 5000, 10000];

function About({ answer, shown }: { answer: MapAnswer; shown: number }) {
  return (
    <p class="quiet" role="status">
      {plural(shown, "row")} of {count(answer.of)}, drawn at random. The two directions hold{" "}
      {percent(answer.shares[0])} and {percent(answer.shares[1])} of the variance: what is near here may be far apart
      in the others.
    </p>
  );
}

function SizeField({ size, change }: { size: number; change: (size: number) => void }) {
  return (
    <label class="field narrow">
      <span>Rows</span>
      <select value={size} onChange={(event) => change(Number(event.currentTarget.value))}>
        {SIZES.map((one) => (
          <option key={one} value={one}>
            {count(one)}
          </option>
        ))}
      </select>
    </label>
  );
}

export function MapView(props: { info: CollectionInfo; mayWrite: boolean }) {
  const { name, schema } = props.info;
  const columns = schema.columns ?? [];
  const [field, setField] = useState(schema.vectors[0]?.name ?? "");
  const [size, setSize] = useState(2000);
  const [seed, setSeed] = useState(0);
  const [colour, setColour] = useState(columns.find(({ type }) => type === "string")?.name ?? columns[0]?.name ?? "");
  const [text, setText] = useState("");
  const [filter, setFilter] = useState("");
  const [open, setOpen] = useState<Id | undefined>();
  const { value, error, busy, again } = useLoad(
    (signal) =>
      collection(name).map(
        { field, rows: size, seed, columns: colour ? [colour] : [], ...(filter ? { filter } : {}) },
        signal,
      ),
    [name, field, size, seed, colour, filter],
  );
  const rows: Row[] = value?.rows ?? [];
  const numeric = /^(u?int\d+|float\d+)$/.test(columns.find((column) => column.name === colour)?.type ?? "");
  const colours = useMemo(
    () => colouring(rows.map((row) => (colour ? row[colour] : "all rows")), numeric),
    [value, colour],
  );
  const points = useMemo(
    () =>
      (value?.points ?? []).map(([x, y], at) => {
        const row = rows[at];
        const shown = colour && row ? `, ${colour} ${cellText(row[colour]) || "null"}` : "";
        return {
          x,
          y,
          colour: colours.of(colour ? row?.[colour] : "all rows"),
          label: `${row ? idText(row.id) : ""}${shown.slice(0, 80)}`,
        };
      }),
    [value, colours],
  );
  const placed = error?.kind === "invalid_argument" ? error : undefined;
  return (
    <section>
      <FilterBox
        schema={schema}
        value={text}
        error={placed}
        change={setText}
        submit={(next) => (next.trim() === filter ? again() : setFilter(next.trim()))}
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
        {columns.length > 0 && (
          <label class="field">
            <span>Colours by</span>
            <select value={colour} onChange={(event) => setColour(event.currentTarget.value)}>
              <option value="">nothing</option>
              {columns.map((column) => (
                <option key={column.name}>{column.name}</option>
              ))}
            </select>
          </label>
        )}
        <SizeField size={size} change={setSize} />
        <button class="plain" onClick={() => setSeed(seed + 1)}>
          Draw others
        </button>
        <Busy on={busy} what="Drawing" />
      </div>
      <ErrorBox error={placed ? undefined : error} again={again} />
      {value && points.length === 0 && <p class="empty">There are no rows to show.</p>}
      {value && points.length > 0 && (
        <>
          <MapCanvas
            points={points}
            label={`Map of ${plural(points.length, "row")}`}
            open={(at) => setOpen(rows[at]?.id)}
          />
          {colours.ends ? (
            <div class="gradient">
              <span>{colours.ends[0]}</span>
              <span class="gradient-bar" role="img" aria-label={`${colour} from low to high`} />
              <span>{colours.ends[1]}</span>
            </div>
          ) : (
            colour && (
              <ul class="legend" aria-label={`Colours by ${colour}`}>
                {colours.legend.map((entry) => (
                  <li key={entry.text}>
                    <span class={`swatch ${entry.colour.slice(2)}`} />
                    {entry.text} <small>{entry.count !== undefined && count(entry.count)}</small>
                  </li>
                ))}
              </ul>
            )
          )}
          <About answer={value} shown={points.length} />
        </>
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
            again();
          }}
        />
      )}
    </section>
  );
}

export function IndexMapView({ info }: { info: IndexInfo }) {
  const [size, setSize] = useState(2000);
  const [seed, setSeed] = useState(0);
  const { value, error, busy, again } = useLoad(
    (signal) => index(info.name).map({ rows: size, seed }, signal),
    [info.name, size, seed],
  );
  const points = useMemo(
    () => (value?.points ?? []).map(([x, y], at) => ({ x, y, colour: "--line-0", label: `id ${value?.ids?.[at]}` })),
    [value],
  );
  return (
    <section>
      <div class="options">
        <SizeField size={size} change={setSize} />
        <button class="plain" onClick={() => setSeed(seed + 1)}>
          Draw others
        </button>
        <Busy on={busy} what="Drawing" />
      </div>
      <ErrorBox error={error} again={again} />
      {value && points.length > 0 && (
        <>
          <MapCanvas
            points={points}
            label={`Map of ${plural(points.length, "vector")}`}
            open={(at) => goTo(linkTo("indexes", info.name, "search", `like=${value.ids?.[at] ?? 0}`))}
          />
          <About answer={value} shown={points.length} />
        </>
      )}
    </section>
  );
}
