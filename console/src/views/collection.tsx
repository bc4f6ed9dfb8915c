// A collection: its tabs.

import { collection, type Me } from "../api";
import { bytes, count, plural } from "../format";
import { useLoad } from "../load";
import { Busy, ErrorBox, Figure } from "../parts";
import type { CollectionTab } from "../route";
import { AboutView } from "./about";
import { LiveView } from "./live";
import { MapView } from "./map";
import { RecallView } from "./recall";
import { RowsView } from "./rows";
import { SearchView } from "./search";

export function mayWrite(me: Me, name: string): boolean {
  return me.right === "write" && name.startsWith(me.prefix);
}

export function CollectionPage(props: { name: string; tab: CollectionTab; query: URLSearchParams; me: Me }) {
  const { name, tab } = props;
  const { value: info, error, busy, again } = useLoad(() => collection(name).describe(), [name]);
  const writes = mayWrite(props.me, name);
  return (
    <>
      <ErrorBox error={error} again={again} />
      <Busy on={busy && !info} />
      {info && info.name === name && (
        <>
          {tab !== "about" && tab !== "live" && (
            <dl class="figures small">
              <Figure label="Rows" value={count(info.rows)} />
              <Figure label="On disk" value={bytes(info.bytes)} note={`in ${plural(info.segments.length, "segment")}`} />
              {info.schema.vectors.map((field) => (
                <Figure
                  key={field.name}
                  label={field.name}
                  value={`${field.dim} × ${field.element}`}
                  note={field.metric}
                />
              ))}
            </dl>
          )}
          {tab === "rows" && <RowsView info={info} mayWrite={writes} changed={again} />}
          {tab === "search" && <SearchView info={info} like={props.query.get("like")} mayWrite={writes} />}
          {tab === "recall" && <RecallView info={info} />}
          {tab === "map" && <MapView info={info} mayWrite={writes} />}
          {tab === "live" && <LiveView name={name} />}
          {tab === "about" && <AboutView info={info} mayWrite={writes} changed={again} />}
        </>
      )}
    </>
  );
}
