//! Checks every byte of a graph: checksums, ids, links and vectors.

use super::layout::GraphLayout;
use super::open::load_offsets;
use super::records::read_records;
use super::section::GraphEntry;
use crate::error::IndexError;
use crate::family::{VerifyReport, Verifying};
use crate::format::csr::CsrLayout;
use crate::format::local::LocalLayout;
use crate::format::pages::PageLayout;
use crate::format::walk::{Marks, read_through};
use bathyal_kernels::{Element, first_non_finite};

/// Checks every record, page and link.
pub(super) fn verify(
    verifying: &Verifying<'_>,
    graph: &GraphEntry,
    report: &mut VerifyReport,
) -> Result<(), IndexError> {
    let Verifying { directory, object, manifest, progress } = *verifying;
    let offsets = match load_offsets(directory, manifest, graph) {
        Ok(offsets) => offsets,
        Err(damage @ (IndexError::Damaged { .. } | IndexError::Store(_))) => {
            // A wrong checksum is reported already. Offsets with the right checksum may still be wrong.
            if report.sound {
                report.fault(damage.to_string());
            }
            return Ok(());
        }
        Err(other) => return Err(other),
    };
    let wrong = |reason: String| IndexError::damaged(object.address(), "the manifest", reason);
    let element = manifest.stored_element().map_err(wrong)?;
    let layout = graph.layout(manifest).map_err(wrong)?;
    let mut checker = GraphChecker {
        vectors: manifest.vectors as u32,
        element,
        linked: Marks::new(manifest.vectors)?,
        ids: Marks::new(manifest.vectors)?,
        links: Vec::new(),
        report,
    };
    checker.linked.mark(layout.node_of(graph.entry_point));
    let (total, unit) = (graph.file.bytes, layout.read_bytes());
    let crc = match &layout {
        GraphLayout::Padded(layout) => read_through(object, total, unit, progress, |number, bytes| {
            checker.check_records(layout, number, bytes)
        })?,
        GraphLayout::Local(layout) => read_through(object, total, unit, progress, |number, bytes| {
            checker.check_page(layout, number as u32, bytes)
        })?,
        GraphLayout::Csr(layout) => read_records(object, &offsets, progress, |place, bytes| {
            checker.check_packed(layout, place, bytes)
        })?,
    };
    let (linked, ids) = (checker.linked.count(), checker.ids.count());
    report.bytes += graph.file.bytes;
    if crc != graph.file.crc32c {
        report.fault(format!(
            "{}: its checksum is {crc:08x}; the manifest has {:08x}",
            graph.file.name, graph.file.crc32c
        ));
    }
    report.unlinked = layout.nodes(manifest.vectors).saturating_sub(linked);
    if report.unlinked > 0 {
        let nodes = if layout.page_local().is_some() { "pages" } else { "vectors" };
        report.fault(format!("no link leads to {} of the {nodes}", report.unlinked));
    }
    if ids < manifest.vectors {
        report.fault(format!("{} ids are missing", manifest.vectors - ids));
    }
    Ok(())
}

/// Checks a graph record by record, and keeps the marks that the final checks need.
struct GraphChecker<'a> {
    vectors: u32,
    element: Element,
    /// Nodes to which a link leads.
    linked: Marks,
    /// Ids that have been found.
    ids: Marks,
    links: Vec<u32>,
    report: &'a mut VerifyReport,
}

impl GraphChecker<'_> {
    /// Checks the records of one page of the padded layout, or the one record that takes several pages.
    fn check_records(&mut self, layout: &PageLayout, number: u64, bytes: &[u8]) {
        let records = layout.records_per_page().max(1) as u64;
        for id in number * records..((number + 1) * records).min(u64::from(self.vectors)) {
            self.check_record(layout, id as u32, bytes);
        }
    }

    fn check_record(&mut self, layout: &PageLayout, id: u32, bytes: &[u8]) {
        self.report.vectors += 1;
        self.ids.mark(id);
        let record = match layout.decode(bytes, id) {
            Ok(record) => record,
            Err(reason) => return self.report.fault(format!("vector {id}: {reason}")),
        };
        self.report.links += record.degree() as u64;
        for neighbor in record.neighbors() {
            if neighbor >= self.vectors || neighbor == id {
                self.report.fault(format!(
                    "vector {id}: it links to {neighbor}, which is the vector itself or not below {}",
                    self.vectors
                ));
            } else {
                self.linked.mark(neighbor);
            }
        }
        self.check_vector(&format!("vector {id}"), record.vector);
        if !layout.padding_is_zero(bytes, id, record.degree()) {
            self.report.fault(format!("vector {id}: unused bytes are not zero"));
        }
    }

    fn check_packed(&mut self, layout: &CsrLayout, place: u32, bytes: &[u8]) {
        self.report.vectors += 1;
        let decoded = layout
            .decode(bytes, place)
            .and_then(|record| layout.links(&record, &mut self.links).map(|end| (record, end)));
        let (record, end) = match decoded {
            Ok(decoded) => decoded,
            Err(reason) => return self.report.fault(format!("record {place}: {reason}")),
        };
        if record.id >= self.vectors || !self.ids.mark(record.id) {
            self.report.fault(format!(
                "record {place}: it holds vector {}, which is stored elsewhere too, or not below {}",
                record.id, self.vectors
            ));
        }
        self.report.links += self.links.len() as u64;
        for link in &self.links {
            if *link == place {
                self.report.fault(format!("record {place}: it links to itself"));
            }
            self.linked.mark(*link);
        }
        self.check_vector(&format!("record {place}"), record.vector);
        if !layout.padding_is_zero(&record, end) {
            self.report.fault(format!("record {place}: unused bytes are not zero"));
        }
    }

    fn check_page(&mut self, layout: &LocalLayout, number: u32, bytes: &[u8]) {
        let places = layout.places(number);
        self.report.vectors += places.len() as u64;
        let page = match layout.decode(bytes, number) {
            Ok(page) => page,
            Err(reason) => return self.report.fault(format!("page {number}: {reason}")),
        };
        for (id, vector) in page.ids().zip(page.vectors.chunks_exact(page.vectors.len() / places.len())) {
            if id >= self.vectors || !self.ids.mark(id) {
                self.report.fault(format!(
                    "page {number}: it holds vector {id}, which is stored elsewhere too, or not below {}",
                    self.vectors
                ));
            }
            self.check_vector(&format!("page {number}: vector {id}"), vector);
        }
        match page.links(&mut self.links) {
            Err(reason) => self.report.fault(format!("page {number}: {reason}")),
            Ok(used) => {
                self.report.links += self.links.len() as u64;
                for target in self.links.iter().map(|place| layout.page_of(*place)) {
                    if target == number {
                        self.report.fault(format!("page {number}: it links to itself"));
                    }
                    self.linked.mark(target);
                }
                if !page.padding_is_zero(used) {
                    self.report.fault(format!("page {number}: unused bytes are not zero"));
                }
            }
        }
    }

    fn check_vector(&mut self, place: &str, vector: &[u8]) {
        if let Some(at) = first_non_finite(self.element, vector) {
            self.report.fault(format!("{place}: component {at} is not finite"));
        }
    }
}
