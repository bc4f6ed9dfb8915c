//! Stub until the real one is merged.
#![allow(missing_docs, dead_code, unused)]
use crate::error::CollectionError;
use crate::ids::Ids;
use crate::place::Place;
use crate::rows::Rows;
use crate::schema::Schema;
use crate::version::Version;
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    Disk,
    System,
}
#[derive(Debug)]
pub(crate) enum Change {
    Put(Rows),
    Delete(Ids),
}
pub(crate) fn encode(
    id: &str,
    change: &Change,
    sequence: u64,
    out: &mut Vec<u8>,
) -> Result<(), CollectionError> {
    todo!()
}
#[derive(Debug, Clone)]
pub(crate) struct ReadTo;
pub(crate) enum Reading {
    Read(ReadTo),
    Moved,
}
pub(crate) fn read_after(
    place: &Place,
    version: &Version,
    from: Option<&ReadTo>,
    each: &mut dyn FnMut(u64, Change) -> Result<(), CollectionError>,
) -> Result<Reading, CollectionError> {
    todo!()
}
#[derive(Debug)]
pub(crate) struct LogWriter;
impl LogWriter {
    pub(crate) fn acquire(
        place: &Place,
        each: &mut dyn FnMut(u64, Change) -> Result<(), CollectionError>,
    ) -> Result<(LogWriter, Version), CollectionError> {
        todo!()
    }
    pub(crate) fn append(&mut self, records: &[u8], durability: Durability) -> Result<(), CollectionError> {
        todo!()
    }
    pub(crate) fn rotate(&mut self) -> Result<(), CollectionError> {
        todo!()
    }
    pub(crate) fn remove_through(&mut self, through: u64) -> Result<(), CollectionError> {
        todo!()
    }
    pub(crate) fn is_current(&self, number: u64) -> Result<bool, CollectionError> {
        todo!()
    }
}
