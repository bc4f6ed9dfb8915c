//! A little-endian writer of trained codecs, and a reader that checks every length.

use super::QuantizeError;

#[derive(Default)]
pub(in crate::quantize) struct ByteWriter(Vec<u8>);

impl ByteWriter {
    pub(in crate::quantize) fn bytes(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    pub(in crate::quantize) fn u32(&mut self, value: u32) {
        self.bytes(&value.to_le_bytes());
    }

    pub(in crate::quantize) fn floats(&mut self, values: &[f32]) {
        values.iter().for_each(|v| self.bytes(&v.to_le_bytes()));
    }

    pub(in crate::quantize) fn finish(self) -> Vec<u8> {
        self.0
    }
}

pub(in crate::quantize) struct ByteReader<'a>(&'a [u8]);

impl<'a> ByteReader<'a> {
    pub(in crate::quantize) fn new(bytes: &'a [u8]) -> Self {
        ByteReader(bytes)
    }

    pub(in crate::quantize) fn take(&mut self, len: usize) -> Result<&'a [u8], QuantizeError> {
        let (head, rest) =
            self.0.split_at_checked(len).ok_or(QuantizeError::Malformed("the bytes end too early"))?;
        self.0 = rest;
        Ok(head)
    }

    pub(in crate::quantize) fn u32(&mut self) -> Result<u32, QuantizeError> {
        let bytes = self.take(4)?;
        Ok(u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
    }

    /// Reads `count` finite floats. Allocates only if the bytes are there.
    pub(in crate::quantize) fn floats(&mut self, count: usize) -> Result<Vec<f32>, QuantizeError> {
        let len = count.checked_mul(4).ok_or(QuantizeError::Malformed("a length overflows"))?;
        let bytes = self.take(len)?;
        let values: Vec<f32> =
            bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect();
        if values.iter().all(|v| v.is_finite()) {
            Ok(values)
        } else {
            Err(QuantizeError::Malformed("a value is not finite"))
        }
    }

    pub(in crate::quantize) fn end(&self) -> Result<(), QuantizeError> {
        if self.0.is_empty() { Ok(()) } else { Err(QuantizeError::Malformed("bytes follow the end")) }
    }
}
