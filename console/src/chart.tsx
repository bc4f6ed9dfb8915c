// A chart of lines. It is drawn as SVG without styles in attributes, which the policy of the page forbids.

import { useLayoutEffect, useRef, useState } from "preact/hooks";
import { clock } from "./format";

export interface Line {
  name: string;
  points: [number, number][];
  /** Ends of the interval of each point. */
  ranges?: [number, number][];
  dots?: boolean;
}

interface Props {
  title: string;
  lines: Line[];
  /** Text of a value on the x axis; times are written by the chart itself. */
  x?: (value: number) => string;
  /** True if x is a time in milliseconds since 1970. */
  time?: boolean;
  y: (value: number) => string;
  xName: string;
  yName: string;
  logX?: boolean;
  /** Limits of the y axis; those of the data if they are left out. */
  low?: number;
  high?: number;
  height?: number;
}

const LEFT = 58;
const RIGHT = 14;
const TOP = 10;
const BOTTOM = 38;
export const COLOURS = 8;

function ticks(low: number, high: number, wanted: number): number[] {
  const span = high - low;
  if (!(span > 0)) return [low];
  const rough = span / wanted;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((factor) => factor * power).find((size) => size >= rough) ?? rough;
  const found: number[] = [];
  for (let at = Math.ceil(low / step) * step; at <= high + step * 1e-9; at += step) {
    found.push(Math.abs(at) < step * 1e-9 ? 0 : at);
  }
  return found;
}

function logTicks(low: number, high: number, wanted: number): number[] {
  const found: number[] = [];
  for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); power += 1) {
    for (const factor of [1, 2, 5]) {
      const at = factor * 10 ** power;
      if (at >= low * 0.999 && at <= high * 1.001) found.push(at);
    }
  }
  const every = Math.ceil(found.length / wanted);
  return found.filter((_, at) => at % every === 0);
}

/** Steps between the marks of times, in milliseconds. */
const TIME_STEPS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 1800, 3600].map((seconds) => 1000 * seconds);
/** The shortest time that a chart shows. */
const SHORTEST_MS = 30_000;

function timeTicks(low: number, high: number, wanted: number): number[] {
  const step = TIME_STEPS.find((size) => (high - low) / size <= wanted) ?? (high - low) / wanted;
  const found: number[] = [];
  for (let at = Math.ceil(low / step) * step; at <= high; at += step) found.push(at);
  return found;
}

/** Returns the width of an element, which follows the window. */
export function useWidth<E extends HTMLElement>() {
  const element = useRef<E>(null);
  const [width, setWidth] = useState(0);
  useLayoutEffect(() => {
    const own = element.current;
    if (!own) return undefined;
    const measure = () => setWidth(own.clientWidth);
    const observer = new ResizeObserver(measure);
    observer.observe(own);
    measure();
    return () => observer.disconnect();
  }, []);
  return [element, width] as const;
}

export function LineChart(props: Props) {
  const [box, width] = useWidth<HTMLDivElement>();
  const [hover, setHover] = useState<number | null>(null);
  const height = props.height ?? 260;
  const points = props.lines.flatMap((line) => line.points);
  const xs = points.map(([x]) => x).filter((x) => !props.logX || x > 0);
  const ys = points.map(([, y]) => y).concat(props.lines.flatMap((line) => line.ranges?.flat() ?? []));
  const empty = xs.length === 0;
  let [lowX, highX] = [Math.min(...xs), Math.max(...xs)];
  if (props.time && highX - lowX < SHORTEST_MS) lowX = highX - SHORTEST_MS;
  if (lowX === highX) [lowX, highX] = props.logX ? [lowX / 2, highX * 2] : [lowX - 1, highX + 1];
  let lowY = props.low ?? Math.min(...ys);
  let highY = props.high ?? Math.max(...ys);
  if (lowY >= highY) [lowY, highY] = props.low === lowY ? [lowY, lowY + 1] : [lowY - 0.5, highY + 0.5];
  const showX = props.time ? clock : (props.x ?? String);
  const scale = (x: number) => (props.logX ? Math.log(x) : x);
  const right = Math.max(width - RIGHT, LEFT + 1);
  const placeX = (x: number) =>
    LEFT + ((scale(x) - scale(lowX)) / (scale(highX) - scale(lowX))) * (right - LEFT);
  const placeY = (y: number) => TOP + (1 - (y - lowY) / (highY - lowY)) * (height - TOP - BOTTOM);
  const many = Math.max(2, width / (props.time ? 95 : 110));
  const logarithmic = props.logX && !empty ? logTicks(lowX, highX, many) : [];
  // A range of less than a decade has too few round powers.
  const linear = () => (props.time ? timeTicks : ticks)(lowX, highX, many);
  const xTicks = empty ? [] : logarithmic.length > 2 ? logarithmic : linear();
  const yTicks = empty ? [] : ticks(lowY, highY, 5);
  const near = (line: Line) => {
    if (hover === null) return undefined;
    const far = (point: [number, number]) => Math.abs(placeX(point[0]) - hover);
    return line.points.reduce<[number, number] | undefined>(
      (best, point) => (best && far(best) <= far(point) ? best : point),
      undefined,
    );
  };
  return (
    <figure class="chart" ref={box}>
      {empty && (
        <p class="empty" style={{ height: `${height}px` }}>
          No values yet
        </p>
      )}
      {!empty && width > 0 && (
        <svg
          width={width}
          height={height}
          role="img"
          aria-label={props.title}
          onPointerMove={(event) => setHover(event.offsetX)}
          onPointerLeave={() => setHover(null)}
        >
          {yTicks.map((tick) => (
            <g key={tick}>
              <line class="grid" x1={LEFT} x2={right} y1={placeY(tick)} y2={placeY(tick)} />
              <text class="tick" x={LEFT - 8} y={placeY(tick) + 4} text-anchor="end">
                {props.y(tick)}
              </text>
            </g>
          ))}
          {xTicks.map((tick) => (
            <g key={tick}>
              <line class="grid" x1={placeX(tick)} x2={placeX(tick)} y1={TOP} y2={height - BOTTOM} />
              <text
                class="tick"
                x={placeX(tick)}
                y={height - BOTTOM + 16}
                text-anchor={right - placeX(tick) < 26 ? "end" : "middle"}
              >
                {showX(tick)}
              </text>
            </g>
          ))}
          <text class="axis" x={right} y={height - 6} text-anchor="end">
            {props.xName}
          </text>
          {props.lines.map((line, number) => (
            <g key={line.name} class={`line colour-${number % COLOURS}`}>
              <polyline points={line.points.map(([x, y]) => `${placeX(x)},${placeY(y)}`).join(" ")} />
              {line.ranges?.map(([low, high], at) => {
                const x = placeX(line.points[at]?.[0] ?? lowX);
                return <line key={at} class="range" x1={x} x2={x} y1={placeY(low)} y2={placeY(high)} />;
              })}
              {(line.dots || line.points.length === 1) &&
                line.points.map(([x, y], at) => <circle key={at} r={3} cx={placeX(x)} cy={placeY(y)} />)}
            </g>
          ))}
          {hover !== null &&
            props.lines.map((line, number) => {
              const point = near(line);
              if (!point) return null;
              return (
                <circle
                  key={line.name}
                  class={`marked colour-${number % COLOURS}`}
                  r={4.5}
                  cx={placeX(point[0])}
                  cy={placeY(point[1])}
                />
              );
            })}
        </svg>
      )}
      {!empty && (
        <figcaption>
          <span class="y-name">{props.yName}</span>
          {props.lines.map((line, number) => {
            const point = near(line);
            return (
              <span key={line.name} class="key">
                <i class={`colour-${number % COLOURS}`} />
                {line.name}
                {point && <b>{` ${props.y(point[1])} at ${showX(point[0])}`}</b>}
              </span>
            );
          })}
        </figcaption>
      )}
    </figure>
  );
}

/** A small line without axes, for a cell of a table. */
export function Spark({ values, title }: { values: number[]; title: string }) {
  if (values.length < 2) return null;
  const [low, high] = [Math.min(...values), Math.max(...values)];
  const place = (value: number, at: number) =>
    `${(at / (values.length - 1)) * 62 + 1},${high > low ? 17 - ((value - low) / (high - low)) * 16 : 9}`;
  return (
    <svg class="spark" width={64} height={18} role="img" aria-label={title}>
      <polyline points={values.map(place).join(" ")} />
    </svg>
  );
}
