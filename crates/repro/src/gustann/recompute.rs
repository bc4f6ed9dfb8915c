//! Predicts again from records that were counted before. Predictions are pure functions of the counters, so
//! a change of the model needs no searches.

use std::collections::HashMap;
use std::path::Path;

use bathyal_console::{Console, Failure};
use bathyal_index::cost::card::CardDemand;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::arguments::{GustannArguments, SystemTimes};
use super::latency::IN_FLIGHT;
use super::measure::RECALLS;
use super::model::Machine;
use super::subjects::CLUSTER;
use crate::records::Records;
use crate::workload::make_folders;

/// The fields of a measured row from which its predictions follow.
#[derive(Deserialize)]
struct CountedRow {
    index: String,
    rounds: f64,
    asked: f32,
    on_card: bool,
    asks: CardDemand,
}

/// Writes the records in `counted` again, with the predictions of this machine.
pub(super) fn run(arguments: &GustannArguments, counted: &Path, console: &Console) -> Result<(), Failure> {
    make_folders(&arguments.work, &arguments.output)?;
    let failure = |what: String| Failure::new(format!("{}: {what}", counted.display()));
    let text = std::fs::read_to_string(counted).map_err(|e| failure(format!("cannot be read: {e}")))?;
    let lines: Vec<Map<String, Value>> = text
        .lines()
        .map(serde_json::from_str)
        .collect::<Result<_, _>>()
        .map_err(|e| failure(format!("is not a file of records: {e}")))?;
    let Some((run, rows)) =
        lines.split_first().filter(|(run, _)| run.get("paper") == Some(&"gustann".into()))
    else {
        return Err(failure("does not begin with the line about a run of gustann".into()));
    };
    let mut prediction = Recomputed::new(arguments);
    let details = recomputed_run(run, arguments).map_err(|e| failure(e.to_string()))?;
    let rows = rows.iter().map(|row| prediction.row(row)).collect::<Result<Vec<_>, _>>();
    let rows = rows.map_err(|e| failure(format!("holds a row without the counters: {e}")))?;
    let mut records = Records::create(&arguments.output, "gustann", &details)?;
    records.write_all(&rows)?;
    records.print_location(console)
}

/// Returns the details of the line about the run: those of `run`, with the machine of this prediction, and
/// the command and the machine of the counting run.
fn recomputed_run(
    run: &Map<String, Value>,
    arguments: &GustannArguments,
) -> Result<Map<String, Value>, serde_json::Error> {
    let mut details = run.clone();
    for key in ["of", "paper"] {
        details.remove(key);
    }
    for (key, counted) in [("command", "counted_by"), ("machine", "counted_on")] {
        let value = details.remove(key).unwrap_or_default();
        // Records that were recomputed before name the first run.
        details.entry(counted).or_insert(value);
    }
    details.insert("predicted".into(), serde_json::to_value(arguments.predicted())?);
    Ok(details)
}

/// The predictions of a machine for counted rows.
struct Recomputed {
    machines: Vec<Machine>,
    machine: Machine,
    system: SystemTimes,
    /// The demand and the rounds of each set and index at the lowest recall, for figure 17.
    least: HashMap<(String, String), CountedRow>,
}

impl Recomputed {
    fn new(arguments: &GustannArguments) -> Recomputed {
        Recomputed {
            machines: (1..=super::measure::MOST_DISKS).map(|disks| arguments.machine(disks)).collect(),
            machine: arguments.machine(arguments.ssds),
            system: arguments.system_times(),
            least: HashMap::new(),
        }
    }

    /// Returns `row` with the predictions of this machine. Walks from other starting points are returned as
    /// they are, since their records lack the demand.
    fn row(&mut self, row: &Map<String, Value>) -> Result<Map<String, Value>, serde_json::Error> {
        let mut row = row.clone();
        let name = |key: &str| row.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        let key = (name("set"), name("index"));
        // The oldest records have searches only, and no field `of`.
        let of = row.get("of").and_then(Value::as_str).unwrap_or("row").to_owned();
        match of.as_str() {
            "loaded" => self.set_load(&mut row, &key)?,
            "begun" => {}
            _ => {
                let counted: CountedRow = serde_json::from_value(Value::Object(row.clone()))?;
                self.set_throughput(&mut row, &counted)?;
                if of == "row" && counted.asked == RECALLS[0] && counted.on_card {
                    self.least.insert(key, counted);
                }
            }
        }
        Ok(row)
    }

    fn set_throughput(
        &self,
        row: &mut Map<String, Value>,
        counted: &CountedRow,
    ) -> Result<(), serde_json::Error> {
        let through_system = self.system.on(self.machine, counted.index == CLUSTER);
        let demand = &counted.asks;
        let bytes = |key: &str| row.get(key).and_then(Value::as_f64).unwrap_or(demand.sent_bytes);
        let sending = |bytes: f64| CardDemand { sent_bytes: bytes, vector_bytes: 0.0, ..*demand };
        let (records, pages) = (sending(bytes("record_bytes")), sending(bytes("page_bytes")));
        let by_disks: Vec<_> = self.machines.iter().map(|machine| machine.predict(demand)).collect();
        for (key, predicted) in [
            ("prediction", serde_json::to_value(self.machine.predict(demand))?),
            ("through_system", serde_json::to_value(through_system.predict(demand))?),
            ("by_disks", serde_json::to_value(by_disks)?),
            ("sending_records", serde_json::to_value(self.machine.predict(&records))?),
            ("sending_pages", serde_json::to_value(self.machine.predict(&pages))?),
        ] {
            row.insert(key.into(), predicted);
        }
        Ok(())
    }

    fn set_load(
        &self,
        row: &mut Map<String, Value>,
        key: &(String, String),
    ) -> Result<(), serde_json::Error> {
        let in_flight = row.get("in_flight").and_then(Value::as_u64);
        let at = IN_FLIGHT.iter().position(|count| Some(u64::from(*count)) == in_flight);
        let (Some(counted), Some(at)) = (self.least.get(key), at) else { return Ok(()) };
        let system = self.system.on(self.machine, counted.index == CLUSTER);
        let load = |machine: &Machine| machine.loads(&counted.asks, counted.rounds).into_iter().nth(at);
        if let Value::Object(paper) = serde_json::to_value(load(&self.machine))? {
            row.extend(paper);
        }
        row.insert("through_system".into(), serde_json::to_value(load(&system))?);
        Ok(())
    }
}
