//! An advice as a page for a browser, which needs no other file, and as a plot.

use crate::advice::{Advice, AdvisedDevice};
use crate::front_plot::front_svg;
use crate::interval::Interval;
use crate::prediction::IndexPrediction;
use crate::ranking::size_words;
use crate::request::IndexLimits;
use bathyal_index::IndexError;
use std::fmt::Write;
use std::path::Path;

/// The style of the page.
const STYLE: &str = "\
body { font: 15px/1.45 sans-serif; margin: 2em auto; max-width: 1200px; padding: 0 1em; } \
table { border-collapse: collapse; } \
th, td { border-bottom: 1px solid #ccc; padding: 4px 10px; text-align: right; white-space: nowrap; } \
th:nth-child(-n+3), td:nth-child(-n+3) { text-align: left; } \
small { color: #666; display: block; } svg { max-width: 100%; height: auto; } .wide { overflow-x: auto; }";

/// The head of the table. Each number of a row has its interval below it.
const COLUMNS: [&str; 15] = [
    "",
    "index",
    "on",
    "disk",
    "memory",
    "reads",
    "bytes moved",
    "queries/s",
    "limited by",
    "p50",
    "p99",
    "build",
    "build memory",
    "$ a month",
    "$ a million queries",
];

/// The formats in which an advice is saved for people.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PageFormat {
    /// A page with tables, reasons and the plot (`.html`).
    Html,
    /// The plot alone (`.svg`).
    Svg,
}

impl PageFormat {
    /// Returns the format that the ending of a file names.
    ///
    /// # Errors
    /// [`IndexError::Parameter`] for another ending, for a folder, and for a file in a folder that does not
    /// exist.
    pub fn of_file(path: &Path) -> Result<PageFormat, IndexError> {
        let refuse = |why: &str| Err(IndexError::Parameter(format!("{}: {why}", path.display())));
        let ending = path.extension().map(|ending| ending.to_ascii_lowercase());
        let format = match ending.as_ref().and_then(|ending| ending.to_str()) {
            Some("html" | "htm") => PageFormat::Html,
            Some("svg") => PageFormat::Svg,
            _ => return refuse("a page is a file that ends in .html, or in .svg for the plot alone"),
        };
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        if path.is_dir() {
            return refuse("is a folder, so no page can be written there");
        }
        if folder.is_some_and(|folder| !folder.is_dir()) {
            return refuse("its folder does not exist, so no page can be written there");
        }
        Ok(format)
    }

    /// Returns the text of the file.
    ///
    /// # Errors
    /// Those of [`front_svg`].
    pub fn text(self, advice: &Advice) -> Result<String, IndexError> {
        match self {
            PageFormat::Svg => front_svg(advice),
            PageFormat::Html => {
                let (title, body) = (escape(&title(advice)), body(advice)?);
                Ok(format!(
                    "<!DOCTYPE html>\n<html lang=\"en\">\n<head><meta charset=\"utf-8\"/>\
                     <title>{title}</title><style>{STYLE}</style></head>\n\
                     <body>\n<h1>{title}</h1>\n{body}</body>\n</html>\n"
                ))
            }
        }
    }
}

/// Returns the content of the page as a part of another one, such as a notebook.
///
/// # Errors
/// Those of [`front_svg`].
pub fn page_part(advice: &Advice) -> Result<String, IndexError> {
    Ok(format!("<div>\n<h3>{}</h3>\n{}</div>\n", escape(&title(advice)), body(advice)?))
}

fn title(advice: &Advice) -> String {
    let Advice { vectors, dim, element, metric, .. } = advice;
    format!("Indexes of {vectors} vectors of {dim} {element} ({metric})")
}

/// Returns the answers for all recalls, one after the other.
fn body(advice: &Advice) -> Result<String, IndexError> {
    std::iter::once(advice).chain(&advice.other_recalls).map(section).collect()
}

fn section(advice: &Advice) -> Result<String, IndexError> {
    let Advice { concurrency, threads, sample_rows, sample_queries, .. } = advice;
    let sample = if advice.assumed.is_some() { "an assumed sample" } else { "a sample" };
    let mut text = format!(
        "<p>{}, {concurrency} queries in flight on {threads} threads; predicted from {sample} of \
         {sample_rows} vectors and {sample_queries} queries.</p>\n",
        advice.quality_words()
    );
    list(&mut text, "Notes", advice.notes.iter().cloned());
    list(&mut text, "Limits", limit_words(&advice.limits).into_iter());
    text += &table(advice);
    list(&mut text, "Searches under filters and of collections", further_words(advice));
    let left_out = &advice.indexes.left_out;
    list(&mut text, "What would change the choice", left_out.iter().filter_map(|one| one.wanted_if.clone()));
    let reasons = |reasons: &[String]| reasons.join("; ");
    list(
        &mut text,
        "Left out",
        left_out.iter().map(|one| format!("{} on {}: {}", one.label, one.tier, reasons(&one.reasons))),
    );
    let _ = write!(text, "<h2>Size against speed</h2>\n<div class=\"wide\">{}</div>\n", front_svg(advice)?);
    list(&mut text, "Devices", advice.devices.iter().map(device_words));
    list(&mut text, "The data", data_words(advice).into_iter());
    Ok(text)
}

/// Returns the table of the ranked indexes.
fn table(advice: &Advice) -> String {
    if advice.indexes.ranked.is_empty() {
        return "<p><b>No index meets all limits.</b></p>\n".into();
    }
    let head: String = COLUMNS.iter().map(|name| format!("<th>{name}</th>")).collect();
    let rows = advice.indexes.ranked.iter().enumerate();
    let rows: String = rows.map(|(at, index)| row(at + 1, index, advice.concurrency)).collect();
    format!(
        "<h2>The indexes that meet all limits, the best first</h2>\n<div class=\"wide\"><table>\n\
         <tr>{head}</tr>\n{rows}</table></div>\n<p>Below each number is the interval in which the true one \
         is expected in about 19 of 20 cases.</p>\n"
    )
}

/// Returns the speeds of the ranked indexes under each filter, or in a collection that changes.
fn further_words(advice: &Advice) -> impl Iterator<Item = String> {
    advice.indexes.ranked.iter().flat_map(|index| {
        let words = index.further_words(advice.concurrency).into_iter();
        words.map(|words| format!("{} on {}: {words}", index.label, index.tier))
    })
}

fn row(rank: usize, index: &IndexPrediction, concurrency: u32) -> String {
    let none = Interval::exactly(0.0);
    let load = index.load(concurrency);
    let (qps, p50, p99) =
        load.map_or((none, none, none), |load| (load.queries_per_second, load.p50_us, load.p99_us));
    let bound = load.map_or("", |load| &load.bound);
    let seconds = |seconds: f64| format!("{} s", number(seconds));
    let cells = [
        format!("<td>{rank}</td>"),
        format!("<td>{}</td>", escape(&index.label)),
        format!("<td>{}</td>", escape(&index.tier)),
        cell(&index.disk_bytes, &size_words),
        cell(&index.dram_bytes, &size_words),
        cell(&index.reads, &number),
        cell(&index.moved_bytes, &size_words),
        cell(&qps, &number),
        format!("<td>{}</td>", escape(bound)),
        cell(&p50, &micros),
        cell(&p99, &micros),
        cell(&index.build_seconds, &seconds),
        cell(&Interval::exactly(index.build_memory_bytes as f64), &size_words),
        format!("<td>{:.2}</td>", index.dollars_per_month),
        format!("<td>{:.3}</td>", index.dollars_per_million),
    ];
    format!("<tr>{}</tr>\n", cells.concat())
}

/// Returns a number, and its interval if it has one.
fn cell(of: &Interval, words: &dyn Fn(f64) -> String) -> String {
    let (value, low, high) = (words(of.value), words(of.low), words(of.high));
    match low == high {
        true => format!("<td>{}</td>", escape(&value)),
        false => format!("<td>{}<small>{} to {}</small></td>", escape(&value), escape(&low), escape(&high)),
    }
}

/// Returns a number with three digits, or all digits of its whole part.
fn number(value: f64) -> String {
    match value.abs() {
        size if size >= 100.0 || size == 0.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

/// Returns microseconds, or milliseconds from ten on.
fn micros(us: f64) -> String {
    if us >= 1e4 { format!("{} ms", number(us / 1e3)) } else { format!("{} us", number(us)) }
}

/// Returns the limits, each in words.
fn limit_words(limits: &IndexLimits) -> Vec<String> {
    let size = |name: &str, bytes: Option<u64>| {
        bytes.map(|bytes| format!("{name} {} at most", size_words(bytes as f64)))
    };
    let words = [
        size("memory", limits.dram_bytes),
        size("disk", limits.disk_bytes),
        limits.p50_us.map(|us| format!("p50 {} at most", micros(us))),
        limits.p99_us.map(|us| format!("p99 {} at most", micros(us))),
        limits.queries_per_second.map(|rate| format!("{} queries a second at least", number(rate))),
        limits.build_seconds.map(|seconds| format!("build {} s at most", number(seconds))),
        size("memory of the build", limits.build_memory_bytes),
        limits.dollars_per_month.map(|dollars| format!("{} dollars a month at most", number(dollars))),
    ];
    words.into_iter().flatten().collect()
}

fn device_words(device: &AdvisedDevice) -> String {
    let profile = &device.profile;
    format!(
        "{}: {}, granules of {} B, {} us, {} reads/s, {}/s",
        device.name,
        profile.kind,
        profile.granularity,
        number(profile.latency_ns as f64 / 1e3),
        number(profile.iops),
        size_words(profile.bandwidth_bytes_per_s)
    )
}

fn data_words(advice: &Advice) -> Vec<String> {
    let of = &advice.statistics;
    let known = |name: &str, value: Option<f64>| value.map(|value| format!("{name} {value:.1}"));
    let words = [
        known("intrinsic dimension", of.intrinsic_dimension),
        known("relative contrast", of.relative_contrast),
        Some(format!("copies of queries {:.1}%", 100.0 * of.copies)),
        Some(format!("vectors with a near copy {:.1}%", 100.0 * of.near_copies)),
    ];
    words.into_iter().flatten().collect()
}

/// Appends a list with a headline, unless it is empty. Writing to a string does not fail.
fn list(text: &mut String, headline: &str, lines: impl Iterator<Item = String>) {
    let lines: String = lines.map(|line| format!("<li>{}</li>\n", escape(&line))).collect();
    if !lines.is_empty() {
        let _ = write!(text, "<h2>{headline}</h2>\n<ul>\n{lines}</ul>\n");
    }
}

/// Returns text as it stands in HTML and XML, without characters that neither has.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped += "&amp;",
            '<' => escaped += "&lt;",
            '>' => escaped += "&gt;",
            '"' => escaped += "&quot;",
            '\'' => escaped += "&#39;",
            control if control.is_control() => escaped.push('?'),
            other => escaped.push(other),
        }
    }
    escaped
}
