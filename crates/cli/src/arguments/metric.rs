//! A metric as it was typed.

use std::str::FromStr;

use bathyal_kernels::Metric;
use bathyal_kernels::metric::UnknownMetric;

/// A metric, and what is to be said of the name that it was typed by.
#[derive(Clone, Debug)]
pub struct MetricArgument {
    /// The metric.
    pub metric: Metric,
    /// What it is called here, where another system's name was typed.
    pub note: Option<String>,
}

impl FromStr for MetricArgument {
    type Err = UnknownMetric;

    fn from_str(name: &str) -> Result<MetricArgument, UnknownMetric> {
        Ok(MetricArgument { metric: name.parse()?, note: Metric::note_on(name) })
    }
}
