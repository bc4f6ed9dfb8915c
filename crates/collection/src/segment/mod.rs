//! Stub until the real one is merged.
#![allow(missing_docs, dead_code, unused)]
use crate::error::CollectionError;
use crate::ids::{Id, Ids};
use crate::place::Place;
use crate::schema::Schema;
use crate::version::SegmentEntry;
use arrow_array::RecordBatch;
use bathyal_index::{Index, OpenOptions, StoredVectors};
use bathyal_tier::Control;
use bathyal_vectors::VectorFile;
use bathyal_vectors::progress::Progress;
use std::ops::Range;
use std::sync::Arc;
#[derive(Debug)]
pub(crate) struct Segment;
#[derive(Debug, Clone)]
pub(crate) struct WriteOptions {
    pub(crate) memory_bytes: Option<u64>,
    pub(crate) threads: usize,
    pub(crate) flat_below_rows: usize,
    pub(crate) seed: u64,
}
pub(crate) struct SegmentWriter;
impl SegmentWriter {
    pub(crate) fn begin(
        place: &Place,
        schema: &Schema,
        name: String,
        options: &WriteOptions,
    ) -> Result<SegmentWriter, CollectionError> {
        todo!()
    }
    pub(crate) fn push(
        &mut self,
        ids: &Ids,
        vectors: &[&[u8]],
        columns: &RecordBatch,
    ) -> Result<(), CollectionError> {
        todo!()
    }
    pub(crate) fn finish(self, progress: &dyn Progress) -> Result<SegmentEntry, CollectionError> {
        todo!()
    }
}
impl Segment {
    pub(crate) fn new(place: &Place, schema: &Schema, entry: SegmentEntry, options: &OpenOptions) -> Segment {
        todo!()
    }
    pub(crate) fn rows(&self) -> u32 {
        todo!()
    }
    pub(crate) fn entry(&self) -> &SegmentEntry {
        todo!()
    }
    pub(crate) fn find(&self, ids: &Ids) -> Result<Vec<Option<u32>>, CollectionError> {
        todo!()
    }
    pub(crate) fn ids_of(&self, rows: &[u32]) -> Result<Ids, CollectionError> {
        todo!()
    }
    pub(crate) fn ids(&self, rows: Range<u32>) -> Result<Ids, CollectionError> {
        todo!()
    }
    pub(crate) fn columns_of(&self, rows: &[u32], columns: &[usize]) -> Result<RecordBatch, CollectionError> {
        todo!()
    }
    pub(crate) fn scan(
        &self,
        columns: &[usize],
        ids: bool,
        each: &mut dyn FnMut(u32, RecordBatch) -> Result<(), CollectionError>,
    ) -> Result<(), CollectionError> {
        todo!()
    }
    pub(crate) fn index(&self, field: usize) -> Result<&Index, CollectionError> {
        todo!()
    }
    pub(crate) fn vectors_of(
        &self,
        field: usize,
        rows: &[u32],
        control: Control<'_>,
    ) -> Result<StoredVectors, CollectionError> {
        todo!()
    }
    pub(crate) fn lower_bound(&self, id: &Id) -> Result<u32, CollectionError> {
        todo!()
    }
    pub(crate) fn verify(&self, progress: &dyn Progress) -> Result<Vec<String>, CollectionError> {
        todo!()
    }
    pub(crate) fn held_bytes(&self) -> u64 {
        todo!()
    }
}
