//! Counters for Prometheus, at an address of their own.

use crate::access::authenticate;
use crate::state::Shared;
use axum::Router;
use axum::extract::State;
use axum::http::header;
use axum::middleware::from_fn_with_state;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The type of the text format of Prometheus.
const TEXT: &str = "text/plain; version=0.0.4";

/// Returns the only page. Beyond this machine it needs a key.
pub(crate) fn router(shared: &Arc<Shared>, is_local: bool) -> Router {
    let router = Router::new().route("/metrics", get(metrics));
    let router = match is_local {
        true => router,
        false => router.layer(from_fn_with_state(shared.clone(), authenticate)),
    };
    router.with_state(shared.clone())
}

/// Returns the counters of the server, and of the collections and indexes that are open.
async fn metrics(State(shared): State<Arc<Shared>>) -> Response {
    let mut own = String::new();
    shared.counters.write_prometheus(&mut own);
    own +=
        "# HELP bathyal_server_writes 1 if this server writes, 0 if it forwards changes or has had none.\n";
    own += "# TYPE bathyal_server_writes gauge\n";
    own += &format!("bathyal_server_writes {}\n", u8::from(shared.lease.is_held()));
    let collections = shared.entries.open_collections();
    let collections = collections.iter().map(|(name, collection)| {
        let mut stats = collection.stats();
        stats.description.path = name.to_string();
        stats.to_prometheus()
    });
    let indexes = shared.entries.open_indexes();
    let indexes = indexes.iter().map(|(name, index)| {
        let mut stats = index.stats();
        stats.index = name.to_string();
        stats.to_prometheus()
    });
    let text = merged(std::iter::once(own).chain(collections).chain(indexes));
    ([(header::CONTENT_TYPE, TEXT)], text).into_response()
}

/// Merges texts, so that the rows of a metric are together and described once, as the format demands.
fn merged(texts: impl Iterator<Item = String>) -> String {
    let mut metrics: BTreeMap<String, MergedMetric> = BTreeMap::new();
    for text in texts {
        let mut name = String::new();
        for line in text.lines() {
            if let Some(described) = line.strip_prefix("# HELP ") {
                name = described.split(' ').next().unwrap_or_default().to_owned();
            }
            let metric = metrics.entry(name.clone()).or_default();
            let lines = if line.starts_with('#') { &mut metric.about } else { &mut metric.rows };
            if !line.starts_with('#') || !lines.iter().any(|known| known == line) {
                lines.push(line.to_owned());
            }
        }
    }
    let lines = metrics.into_values().flat_map(|metric| metric.about.into_iter().chain(metric.rows));
    lines.fold(String::new(), |text, line| text + &line + "\n")
}

/// The lines about a metric.
#[derive(Debug, Default)]
struct MergedMetric {
    about: Vec<String>,
    rows: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_a_metric_are_together() {
        let text = |label: &str| {
            format!("# HELP b B.\n# TYPE b gauge\nb{{x=\"{label}\"}} 1\n# HELP a A.\n# TYPE a counter\na 2\n")
        };
        let merged = merged([text("1"), text("2")].into_iter());
        let expected = "# HELP a A.\n# TYPE a counter\na 2\na 2\n\
                        # HELP b B.\n# TYPE b gauge\nb{x=\"1\"} 1\nb{x=\"2\"} 1\n";
        assert_eq!(merged, expected);
    }
}
