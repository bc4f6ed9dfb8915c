// The columns of rows in tables.

import { idText, type Row, type Schema } from "./api";
import { cellText } from "./format";
import type { GridColumn } from "./grid";
import { Value } from "./parts";

const NUMBERS = /^(u?int\d+|float\d+)$/;
const WIDEST = 44;

/** Returns the id and all columns of a schema, as wide as the first rows need. */
export function rowColumns(schema: Schema, rows: Row[]): GridColumn<Row>[] {
  const sample = rows.slice(0, 60);
  const width = (name: string, of: (row: Row) => string) =>
    Math.min(WIDEST, Math.max(name.length + 1, 5, ...sample.map((row) => of(row).length)));
  const id: GridColumn<Row> = {
    name: "id",
    width: width("id", (row) => idText(row.id)),
    numeric: schema.id === "u64",
    cell: (row) => <span class="mono">{idText(row.id)}</span>,
    title: (row) => idText(row.id),
  };
  const columns = (schema.columns ?? []).map(({ name, type }): GridColumn<Row> => {
    const value = (row: Row) => row[name];
    return {
      name,
      width: width(name, (row) => cellText(value(row))),
      numeric: NUMBERS.test(type),
      cell: (row) => {
        const found = value(row);
        return found === null || found === undefined ? <span class="null">null</span> : <Value value={found} />;
      },
      title: (row) => cellText(value(row)),
    };
  });
  return [id, ...columns];
}
