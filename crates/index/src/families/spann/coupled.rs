//! The cost of a query of coupled lists from their shape, before they are built. It shows whether codes in
//! lists, with a second round for the vectors of the best candidates, pay off on a device.

use super::cost::ListCost;
use crate::cost::demand::moved_bytes;
use serde::{Deserialize, Serialize};

/// Bytes of an id or a place.
const ID_BYTES: f64 = 4.0;

/// The mean shape of coupled lists.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct CoupledShape {
    /// Lists searched.
    pub lists: f64,
    /// Vectors of a list.
    pub list_vectors: f64,
    /// Bytes of a vector.
    pub vector_bytes: u32,
    /// Bytes of a code, if lists hold codes; otherwise they hold copies.
    pub code_bytes: Option<u32>,
    /// Candidates whose vectors are read, if lists hold codes.
    pub candidates: f64,
    /// The share of candidates that are a separate read. Near candidates lie together, so some share a block.
    pub apart: f64,
    /// All reads begin and end at multiples of this; 1 if they may begin anywhere.
    pub alignment: u32,
}

impl CoupledShape {
    /// Returns the bytes of a list without the padding of alignment.
    pub fn list_bytes(&self) -> f64 {
        self.list_vectors.max(0.0) * (f64::from(self.code_bytes.unwrap_or(self.vector_bytes)) + ID_BYTES)
    }

    /// Returns the bytes of the index, without centroids, divided by those of the vectors, if each vector is
    /// in `replicas` lists.
    pub fn amplification(&self, replicas: f64) -> f64 {
        let vector = f64::from(self.vector_bytes.max(1));
        match self.code_bytes {
            Some(code) => (vector + ID_BYTES + replicas * (f64::from(code) + ID_BYTES)) / vector,
            None => replicas * (vector + ID_BYTES) / vector,
        }
    }

    /// Returns the cost of a query that compares `centroids` centroids and takes `compute_ns` of processor
    /// time, including that for codes.
    pub fn cost(&self, centroids: f64, compute_ns: f64) -> ListCost {
        let unit = f64::from(self.alignment.max(1));
        // A list begins where it touches the fewest blocks.
        let list_bytes = self.lists * (self.list_bytes() / unit).ceil() * unit;
        let candidates = if self.code_bytes.is_some() { self.candidates.max(0.0) } else { 0.0 };
        let small_reads = candidates * self.apart.clamp(0.0, 1.0);
        let row_bytes = self.vector_bytes + ID_BYTES as u32;
        let row_read_bytes = moved_bytes(f64::from(row_bytes), row_bytes, self.alignment);
        // A vector that shares a block costs its own bytes only if reads are not rounded to blocks.
        let shared = if self.alignment > 1 { 0.0 } else { candidates - small_reads };
        ListCost {
            lists: self.lists,
            hops: if candidates > 0.0 { 2.0 } else { 1.0 },
            reads: self.lists + small_reads,
            small_reads,
            bytes: list_bytes + small_reads * row_read_bytes + shared * f64::from(row_bytes),
            vector_bytes: row_bytes,
            alignment: self.alignment,
            centroids,
            vectors: if self.code_bytes.is_some() { candidates } else { self.lists * self.list_vectors },
            compute_ns,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::cost::predict;
    use super::*;
    use crate::cost::demand::tests::device;
    use crate::cost::demand::{Bound, Execution};
    use proptest::prelude::*;

    const COPIES: CoupledShape = CoupledShape {
        lists: 20.0,
        list_vectors: 200.0,
        vector_bytes: 1536,
        code_bytes: None,
        candidates: 30.0,
        apart: 0.5,
        alignment: 1,
    };
    const CODES: CoupledShape = CoupledShape { code_bytes: Some(48), ..COPIES };

    #[test]
    fn codes_take_fewer_bytes_and_one_round_more() {
        let (copies, codes) = (COPIES.cost(1000.0, 1e5), CODES.cost(1000.0, 1e5));
        assert_eq!((copies.hops, copies.reads, copies.vectors), (1.0, 20.0, 4000.0));
        assert_eq!(copies.bytes, 20.0 * 200.0 * 1540.0);
        assert_eq!((codes.hops, codes.reads, codes.small_reads, codes.vectors), (2.0, 35.0, 15.0, 30.0));
        assert_eq!(codes.bytes, 20.0 * 200.0 * 52.0 + 30.0 * 1540.0);
        assert!(COPIES.amplification(7.0) > 7.0 && CODES.amplification(7.0) < 1.25);
        // Codes are more than four times as fast on a narrow device, and half as fast on a distant, idle one.
        let run = |in_flight| Execution { threads: 1, in_flight, issue_ns: 0.0 };
        let narrow = device(1000, 1.0, 1, 0.0);
        let (copied, coded) = (predict(&copies, &narrow, &run(1000)), predict(&codes, &narrow, &run(1000)));
        assert_eq!(copied.bound, Bound::Bandwidth);
        assert!(coded.qps > 4.0 * copied.qps);
        let far = device(10_000_000, 0.0, 1, 0.0);
        let ratio = predict(&codes, &far, &run(1)).qps / predict(&copies, &far, &run(1)).qps;
        assert!((0.45..0.55).contains(&ratio), "{ratio}");
    }

    #[test]
    fn blocks_are_read_whole() {
        let disk = CoupledShape { alignment: 4096, ..CODES }.cost(0.0, 0.0);
        // A list of 10400 bytes touches three blocks; a row of 1540 bytes begins at any multiple of 4.
        assert_eq!(disk.bytes, 20.0 * 3.0 * 4096.0 + 15.0 * (4096.0 + 1536.0));
        assert_eq!(disk.moved_bytes(4096), disk.bytes);
    }

    proptest! {
        #[test]
        fn larger_shapes_are_never_cheaper(
            lists in 1.0..500.0_f64, list_vectors in 1.0..1000.0_f64, vector_bytes in 1..10_000_u32,
            code_bytes in 1..200_u32, candidates in 0.0..500.0_f64, apart in 0.0..1.0_f64, power in 0..13_u32,
        ) {
            let alignment = 1 << power;
            let shape = CoupledShape {
                lists, list_vectors, vector_bytes, code_bytes: Some(code_bytes), candidates, apart, alignment,
            };
            let cost = shape.cost(1.0, 1.0);
            for more in [
                CoupledShape { lists: lists + 1.0, ..shape },
                CoupledShape { list_vectors: list_vectors + 1.0, ..shape },
                CoupledShape { code_bytes: Some(code_bytes + 1), ..shape },
                CoupledShape { candidates: candidates + 1.0, ..shape },
                CoupledShape { alignment: 2 * alignment, ..shape },
            ] {
                // Reads of whole units save the bytes of vectors that share one.
                let slack = if alignment == 1 { candidates * f64::from(vector_bytes + 4) } else { 0.0 };
                let other = more.cost(1.0, 1.0);
                prop_assert!(other.bytes + slack >= cost.bytes * (1.0 - 1e-12) && other.reads >= cost.reads);
            }
            prop_assert!(cost.small_reads <= cost.reads && cost.hops <= 2.0);
        }
    }
}
