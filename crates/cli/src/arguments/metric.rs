//! A metric as it was typed.

use std::str::FromStr;

use bathyal_kernels::metric::UnknownMetric;
use bathyal_kernels::{Metric, MetricName};

/// A metric, and what is to be said of the name that it was typed by.
#[derive(Clone, Debug)]
pub struct MetricArgument {
    /// The metric.
    pub name: MetricName,
    /// What it is called here, where another system's name was typed.
    pub note: Option<String>,
}

impl FromStr for MetricArgument {
    type Err = UnknownMetric;

    fn from_str(name: &str) -> Result<MetricArgument, UnknownMetric> {
        Ok(MetricArgument { name: name.parse()?, note: Metric::note_on(name) })
    }
}
