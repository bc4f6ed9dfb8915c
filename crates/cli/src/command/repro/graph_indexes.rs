//! The graphs that the figures compare: built once, and searched hard enough for the recall asked for.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use bathyal_index::format::manifest::Manifest;
use bathyal_index::index::MAX_SEARCH_LIST;
use bathyal_index::{
    BuildOptions, Effort, FamilyChoice, Index, LayoutChoice, OpenOptions, SearchOptions, SearchTotals,
    TierChoice, convert_layout,
};
use bathyal_tier::layer::delay::{DelayProfile, DelayTier};
use bathyal_tier::layer::switch::SwitchTier;
use bathyal_tier::{Control, Tier, TierProfile};

use super::workload::Workload;
use crate::arguments::{GraphLayoutName, GraphReproArguments};
use crate::command::recall::recall;
use crate::console::Console;
use crate::failure::Failure;

/// A graph on disk.
pub(super) struct GraphIndex {
    pub(super) path: PathBuf,
    pub(super) layout: GraphLayoutName,
    pub(super) max_degree: u32,
    pub(super) manifest: Manifest,
}

/// Finds the index of a degree and a layout in the work folder, converts it from the padded one, or builds it.
pub(super) fn find_or_build(
    arguments: &GraphReproArguments,
    work: &Workload,
    layout: GraphLayoutName,
    max_degree: u32,
    console: &Console,
) -> Result<GraphIndex, Failure> {
    let named = |layout: GraphLayoutName| {
        arguments.work.join(format!("{}r{max_degree}-{}", arguments.prefix, layout.name()))
    };
    let (path, padded) = (named(layout), named(GraphLayoutName::Padded));
    if !path.exists() && padded.exists() {
        // The same graph, which a build on several threads would not make again.
        convert_layout(&padded, &path, LayoutChoice::Csr, 0, &console.progress())?;
    } else if !path.exists() {
        let options = BuildOptions {
            metric: arguments.metric,
            family: FamilyChoice::Graph,
            layout: Some(match layout {
                GraphLayoutName::Padded => LayoutChoice::Padded,
                GraphLayoutName::Csr => LayoutChoice::Csr,
            }),
            max_degree,
            ..BuildOptions::default()
        };
        bathyal_index::build(&work.base, &path, &options, &console.progress())?;
    }
    let manifest = Manifest::read(&path)?;
    check(&path, &manifest, work, arguments, layout, max_degree)?;
    Ok(GraphIndex { path, layout, max_degree, manifest })
}

/// Refuses an index that lies where one of another kind or of other vectors is expected.
fn check(
    path: &Path,
    manifest: &Manifest,
    work: &Workload,
    arguments: &GraphReproArguments,
    layout: GraphLayoutName,
    max_degree: u32,
) -> Result<(), Failure> {
    let expected = format!(
        "a {} graph of degree {max_degree} over {} vectors of {} {} ({})",
        layout.name(),
        work.base.count(),
        work.base.dim(),
        work.base.element().name(),
        arguments.metric.name(),
    );
    let found = manifest.graph().map(|graph| {
        format!(
            "a {} graph of degree {} over {} vectors of {} {} ({})",
            graph.layout, graph.max_degree, manifest.vectors, manifest.dim, manifest.element, manifest.metric,
        )
    });
    match found {
        Ok(found) if found == expected => Ok(()),
        found => Err(Failure::new(format!(
            "{}: is {}, but {expected} is wanted; name another work folder",
            path.display(),
            found.unwrap_or_else(|_| "no graph".to_owned())
        ))),
    }
}

/// A switch between tiers, and their profiles.
type Switched = (SwitchTier, Vec<TierProfile>);

/// A graph whose bytes lie in DRAM, with devices emulated on top of it: one open index, so that what is measured
/// differs in the device alone.
pub(super) struct OnDevices {
    pub(super) index: Index,
    switch: SwitchTier,
    /// Of DRAM, and of each device.
    pub(super) profiles: Vec<TierProfile>,
}

impl OnDevices {
    /// Opens `graph` on DRAM, which is device number 0, and on `devices`.
    pub(super) fn open(graph: &GraphIndex, devices: &[DelayProfile]) -> Result<OnDevices, Failure> {
        let made: Arc<Mutex<Option<Switched>>> = Arc::default();
        let (slot, devices) = (made.clone(), devices.to_vec());
        let wrap = move |dram: Arc<dyn Tier>| {
            let slow = devices
                .iter()
                .map(|device| Arc::new(DelayTier::new(dram.clone(), device.clone())) as Arc<dyn Tier>);
            let tiers: Vec<Arc<dyn Tier>> = std::iter::once(dram.clone()).chain(slow).collect();
            let profiles = tiers.iter().map(|tier| tier.profile().clone()).collect();
            let switch = SwitchTier::new(tiers)?;
            *slot.lock().unwrap_or_else(PoisonError::into_inner) = Some((switch.clone(), profiles));
            Ok(Arc::new(switch) as Arc<dyn Tier>)
        };
        let options =
            OpenOptions { tier: TierChoice::Dram, wrap: Some(Arc::new(wrap)), ..OpenOptions::default() };
        let index = Index::open(&graph.path, &options)?;
        let made = made.lock().unwrap_or_else(PoisonError::into_inner).take();
        let (switch, profiles) = made.ok_or_else(|| Failure::new("the index opened no tier"))?;
        Ok(OnDevices { index, switch, profiles })
    }

    /// Lets searches read from device `device`.
    pub(super) fn choose(&self, device: usize) {
        self.switch.choose(device);
    }
}

/// The effort that a recall takes, and what it comes to.
#[derive(Clone, Copy)]
pub(super) struct Reached {
    pub(super) search_list: u32,
    pub(super) recall: f64,
    pub(super) totals: SearchTotals,
}

/// The smallest candidate list with which the queries are answered at the recall asked for.
pub(super) fn effort_for(
    index: &Index,
    work: &Workload,
    arguments: &GraphReproArguments,
    control: Control<'_>,
) -> Result<Reached, Failure> {
    let target = f64::from(arguments.recall);
    let k = (arguments.k as usize).min(index.len());
    let run = |search_list: u32| -> Result<Reached, Failure> {
        let found =
            index.search(&work.queries, &options(arguments, search_list, arguments.in_flight), control)?;
        let recall = recall(&work.exact, &found.ids, found.k, work.queries.count())?;
        Ok(Reached { search_list, recall, totals: found.totals })
    };
    let mut high = run(k as u32)?;
    let mut low = 0;
    while high.recall < target {
        let longest = MAX_SEARCH_LIST.min(index.len().max(k) as u32);
        if high.search_list >= longest {
            return Err(Failure::new(format!(
                "{}: reaches recall {:.4} at most, {target} is asked for; lower --recall or leave this degree out",
                index.path().display(),
                high.recall
            )));
        }
        low = high.search_list;
        high = run((high.search_list.saturating_mul(2)).min(longest))?;
    }
    while high.search_list - low > 1 && low > 0 {
        let middle = run(low + (high.search_list - low) / 2)?;
        if middle.recall >= target { high = middle } else { low = middle.search_list }
    }
    Ok(high)
}

/// How a search with a candidate list and a number of queries in flight is run.
pub(super) fn options(arguments: &GraphReproArguments, search_list: u32, in_flight: u32) -> SearchOptions {
    SearchOptions {
        k: arguments.k as usize,
        effort: Effort::SearchList(search_list),
        beam_width: arguments.beam_width,
        threads: arguments.threads,
        width: Some(in_flight as usize),
        ..SearchOptions::default()
    }
}
