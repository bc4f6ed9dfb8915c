// One row with everything that it has.

import { useState } from "preact/hooks";
import { collection, idText, type Id, type Row, type Schema } from "./api";
import { cellText, plural } from "./format";
import { useAction, useLoad } from "./load";
import { Dialog, ErrorBox, ImageSwitch, Value } from "./parts";
import { goTo, linkTo } from "./route";

/** The components of a vector as bars; at most this many. */
const MOST_BARS = 256;

function VectorBars({ values }: { values: number[] }) {
  const every = Math.ceil(values.length / MOST_BARS);
  const bars = values.filter((_, at) => at % every === 0);
  const most = Math.max(...bars.map(Math.abs), Number.MIN_VALUE);
  return (
    <svg
      class="bars"
      viewBox={`0 0 ${bars.length} 2`}
      preserveAspectRatio="none"
      role="img"
      aria-label={`${values.length} components`}
    >
      {bars.map((value, at) => {
        const tall = Math.abs(value) / most;
        return <rect key={at} x={at} width={0.8} y={value < 0 ? 1 : 1 - tall} height={tall} />;
      })}
    </svg>
  );
}

export function RowPanel(props: {
  name: string;
  schema: Schema;
  id: Id;
  mayWrite: boolean;
  close: () => void;
  /** Called when the row was deleted. */
  removed: () => void;
}) {
  const { name, schema, id } = props;
  const fields = schema.vectors.map((field) => field.name);
  const { value, error, busy } = useLoad(() => collection(name).get(id, fields), [name, idText(id)]);
  const [asked, setAsked] = useState(false);
  const remove = useAction(() => collection(name).remove([id]));
  const [copied, setCopied] = useState("");
  const row: Row | undefined = value?.rows[0];
  const copy = (what: string, text: string) =>
    navigator.clipboard.writeText(text).then(
      () => setCopied(`${what} copied`),
      () => setCopied("the browser did not let the page copy"),
    );
  return (
    <Dialog title={`Row ${idText(id)}`} close={props.close} side>
      <ErrorBox error={error ?? remove.error} />
      {!busy && !row && !error && <p>There is no row with this id any more.</p>}
      {row && (
        <>
          <div class="actions">
            <button onClick={() => goTo(linkTo("collections", name, "search", `like=${encodeURIComponent(idText(id))}`))}>
              Search like this one
            </button>
            <button class="plain" onClick={() => copy("Row", JSON.stringify({ ...row, id: idText(row.id) }, null, 1))}>
              Copy as JSON
            </button>
            {props.mayWrite && !asked && (
              <button class="plain danger" onClick={() => setAsked(true)}>
                Delete …
              </button>
            )}
          </div>
          {asked && (
            <div class="confirm" role="alertdialog" aria-label="Delete the row">
              <p>Delete the row {idText(id)}? This cannot be undone.</p>
              <button
                class="danger"
                disabled={remove.busy}
                onClick={() => remove.run().then((done) => done && props.removed())}
              >
                Delete the row
              </button>
              <button class="plain" onClick={() => setAsked(false)}>
                Keep it
              </button>
            </div>
          )}
          <ImageSwitch rows={[row]} />
          <dl class="values">
            {(schema.columns ?? []).map((column) => (
              <div key={column.name}>
                <dt>
                  {column.name} <small>{column.type}</small>
                </dt>
                <dd>
                  {row[column.name] === null || row[column.name] === undefined ? (
                    <span class="null">null</span>
                  ) : (
                    <Value value={row[column.name]} large />
                  )}
                </dd>
              </div>
            ))}
            {schema.vectors.map((field) => {
              const vector = row[field.name] as number[] | undefined;
              return (
                <div key={field.name}>
                  <dt>
                    {field.name}{" "}
                    <small>
                      {field.dim} × {field.element}, {field.metric}
                    </small>
                  </dt>
                  <dd>
                    {vector && <VectorBars values={vector} />}
                    {vector && (
                      <button class="plain" onClick={() => copy("Vector", JSON.stringify(vector))}>
                        Copy {plural(vector.length, "number")}
                      </button>
                    )}
                    <code class="vector">{vector?.slice(0, 8).map(cellText).join(", ")} …</code>
                  </dd>
                </div>
              );
            })}
          </dl>
          <p role="status" class="quiet">
            {copied}
          </p>
        </>
      )}
    </Dialog>
  );
}
