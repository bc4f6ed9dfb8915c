// Audited recall since the page was opened: by audits that were asked for, and of live searches.

import { useState } from "preact/hooks";
import type { LiveAudit } from "./api";
import { LineChart, type Line } from "./chart";
import { percent, short } from "./format";
import { usePoll } from "./load";

const POLL_MS = 5000;
/** Points that are kept of each collection or index: some hours of polls. */
const MOST_POINTS = 5000;

/** A recall that was found by searches for another, at a time. */
interface Found {
  time: number;
  asked: number;
  found: number;
  low: number;
  high: number;
}

const audited = new Map<string, Found[]>();

/** Keeps the recalls that an audit has found now. */
export function record(name: string, recalls: Omit<Found, "time">[]): void {
  const now = recalls.map(({ asked, found, low, high }) => ({ time: Date.now(), asked, found, low, high }));
  audited.set(name, [...(audited.get(name) ?? []), ...now].slice(-MOST_POINTS));
}

/** Follows the audit of live searches, if the server has one, and returns all points so far. */
export function useLiveAudit(name: string, load: () => Promise<LiveAudit | undefined>) {
  const [live, setLive] = useState<LiveAudit | undefined>();
  usePoll(
    async () => {
      const now = await load();
      const known = (now?.recalls ?? []).flatMap(({ asked, found, low, high }) =>
        asked === null || found === undefined || low === undefined || high === undefined
          ? []
          : [{ asked, found, low, high }],
      );
      record(name, known);
      setLive(now && { ...now });
    },
    POLL_MS,
    [name],
  );
  return { points: audited.get(name) ?? [], live };
}

function lines(found: Found[]): Line[] {
  const asked = [...new Set(found.map((one) => one.asked))].sort((a, b) => a - b);
  return asked.map((recall) => {
    const own = found.filter((one) => one.asked === recall);
    return {
      name: `asked ${short(recall)}`,
      points: own.map((one) => [one.time, one.found]),
      ...(own.length <= 60 ? { ranges: own.map((one): [number, number] => [one.low, one.high]), dots: true } : {}),
    };
  });
}

export function AuditedOverTime({ found }: { found: ReturnType<typeof useLiveAudit> }) {
  const { points, live } = found;
  return (
    <>
      {(points.length > 0 || live) && <h3>Audited recall since the page was opened</h3>}
      {live && (
        <p class="quiet">
          The server audits {percent(live.share, 2)} of the searches: {live.sampled} so far, of which {live.dropped}{" "}
          found no time.
        </p>
      )}
      {points.length > 0 && (
        <LineChart
          title="Audited recall over time"
          lines={lines(points)}
          time
          y={(value) => short(value)}
          xName=""
          yName="recall found, with the 95 % interval"
          high={1}
        />
      )}
    </>
  );
}
