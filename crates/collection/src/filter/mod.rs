//! Stub until the real one is merged.
#![allow(missing_docs, dead_code, unused)]
use crate::error::CollectionError;
use crate::ids::Ids;
use crate::schema::Schema;
use arrow_array::RecordBatch;
use arrow_buffer::BooleanBuffer;
#[derive(Debug, Clone, PartialEq)]
pub struct Filter;
#[derive(Debug, Clone)]
pub struct BoundFilter;
impl Filter {
    pub fn parse(text: &str) -> Result<Filter, CollectionError> {
        todo!()
    }
    pub fn bind(&self, schema: &Schema) -> Result<BoundFilter, CollectionError> {
        todo!()
    }
}
impl BoundFilter {
    pub fn canonical(&self) -> &str {
        todo!()
    }
    pub fn columns(&self) -> &[usize] {
        todo!()
    }
    pub fn needs_ids(&self) -> bool {
        todo!()
    }
    pub fn id_only(&self) -> Option<Ids> {
        todo!()
    }
    pub fn evaluate(&self, batch: &RecordBatch) -> Result<BooleanBuffer, CollectionError> {
        todo!()
    }
}
